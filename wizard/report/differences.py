"""What differs between two sessions, or a session and this machine: all that a result depends on,
the likeliest reason first.

"It fails here and not there" begins with it. Nothing is run and no engine is loaded: all of it was
written down at the time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

import msgspec

from narrowdown.engines.spec import parse
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.report.document import Report
from narrowdown.wizard.report.sections import say_error
from narrowdown.wizard.words import elide, visible

# What a result depends on, in the order in which a difference is likely to be the reason: first
# what asks another question (model, inputs, what counts as wrong), then what the vendors change
# between two answers (engine, its version, the device), then what the other side of the comparison
# is, and last what is seldom the reason.
AREAS: Final[Mapping[str, str]] = {
    "model": "another model may have another fault",
    "engine": "another engine, precision or option chooses other kernels",
    "inputs": "a fault may show on some inputs only",
    "judgement": "what counts as wrong is not the same",
    "version": "versions fix faults and bring new ones",
    "device": "another device runs other kernels",
    "reference": "the right values come from elsewhere",
    "packages": "they read and write models and numbers; seldom the reason",
    "machine": "seldom the reason: threads and the system's own libraries",
}
# An engine's fingerprint: it holds every setting, and speaks where none that has a name differs.
_NAMELESS = "other settings"
_CONTENT = "with its weights"


class Side(msgspec.Struct, frozen=True):
    """One of the two. ``name``: for people. ``result``: a sentence, "" for a machine. ``facts``:
    area -> name -> value; an area that is not there is not known of this side."""

    name: str
    result: str
    facts: dict[str, dict[str, str]]


class Difference(msgspec.Struct, frozen=True):
    """One fact that is not the same; "" where that side has no such fact."""

    area: str
    name: str
    left: str
    right: str
    why: str


class Differences(msgspec.Struct, frozen=True):
    """``same``, ``unknown``: areas that are alike, and those that are not known of both sides."""

    left: Side
    right: Side
    differences: tuple[Difference, ...]
    same: tuple[str, ...]
    unknown: tuple[str, ...]
    format: int = 1


def compare_sides(left: Side, right: Side) -> Differences:
    """Every fact that differs, area by area in the order of ``AREAS``."""
    both = [area for area in AREAS if area in left.facts and area in right.facts]
    every = [d for area in both for d in _compare_area(area, left.facts[area], right.facts[area])]
    found = tuple(d for d in every if not _follows(d, every))
    differing = {d.area for d in found}
    return Differences(
        left,
        right,
        found,
        tuple(area for area in both if area not in differing),
        tuple(area for area in AREAS if area not in both),
    )


def _follows(one: Difference, every: Sequence[Difference]) -> bool:
    """Whether it is told by another difference: what an engine computes in comes from its options,
    and its fingerprint holds all that has a name too."""
    if one.area != "device" or one.name == "device":
        return False
    named = {"engine", "version"} if one.name == _NAMELESS else {"engine"}
    return any(
        d.area in named or (one.name == _NAMELESS and d.area == "device" and d != one)
        for d in every
    )


def _compare_area(
    area: str, left: Mapping[str, str], right: Mapping[str, str]
) -> Iterator[Difference]:
    names = dict.fromkeys([*left, *right])
    if area in (
        "model",
        "device",
    ):  # of a machine the file alone is known, and an engine that was asked without options
        names = dict.fromkeys(name for name in left if name in right)
    if _CONTENT in names:  # two files may hold the same nodes and weights
        names = {_CONTENT: None}
    for name in names:
        if left.get(name, "") != right.get(name, ""):
            yield Difference(area, name, left.get(name, ""), right.get(name, ""), AREAS[area])


def session_side(
    name: str,
    problem: Problem,
    report: Report,
    infos: Mapping[str, Mapping[str, Any]],
    content: str,
) -> Side:
    """A session as it was measured. ``infos``: what each engine said of itself, by spec;
    ``content``: digest of the model with its weights as it was taken in, "" where it was not
    yet."""
    versions = report.environment.get("versions") or {}
    engine, reference = (
        _engine_facts(infos.get(spec) or {}) for spec in (problem.engine, problem.reference)
    )
    model = {_CONTENT: content, "file": problem.digests.get(problem.model, "")}
    facts = {
        "model": {key: value for key, value in model.items() if value},
        "engine": _spec_facts(problem.engine),
        "inputs": _input_facts(problem),
        "judgement": _judgement_facts(problem, report),
        "version": engine.get("version", {}),
        "device": engine.get("device", {}),
        "reference": {**_spec_facts(problem.reference), **reference.get("version", {})},
        "packages": {key: str(value) for key, value in versions.items()},
        "machine": {
            key: str(value) for key, value in (report.environment.get("machine") or {}).items()
        },
    }
    result = report.headline if report.error is None else f"{report.headline}; {say_error(report)}"
    return Side(name, result, {area: rows for area, rows in facts.items() if rows})


def machine_side(
    name: str,
    problem: Problem,
    digests: Mapping[str, str],
    versions: Mapping[str, str],
    machine: Mapping[str, Any],
    infos: Mapping[str, Mapping[str, Any]],
) -> Side:
    """This machine as the session would find it. ``digests``: of the session's files as they are
    now, by path; one that is not there is left out. ``infos``: what each engine that is here says
    of itself, by name."""
    now = msgspec.structs.replace(problem, digests=dict(digests))
    engine = _engine_facts(infos.get(parse(problem.engine).name) or {})
    facts: dict[str, dict[str, str]] = {
        "version": engine.get("version") or {"version": "not here"},
        # Only what it runs on: here it was asked without the session's options.
        "device": {"device": (engine.get("device") or {}).get("device", "")},
        "packages": dict(versions),
        "machine": {key: str(value) for key, value in machine.items()},
    }
    if problem.model in digests:
        facts["model"] = {"file": digests[problem.model]}
    if all(path in digests for path in _input_files(problem)):
        facts["inputs"] = _input_facts(now)
    return Side(name, "", {area: rows for area, rows in facts.items() if rows})


def _spec_facts(text: str) -> dict[str, str]:
    spec = parse(text)
    return {"engine": spec.name, **{key: _without_folder(value) for key, value in spec.options}}


def _without_folder(value: str) -> str:
    """A path as the name of its file: folders differ between any two machines."""
    return PurePath(value).name if value.startswith(("/", "+/")) else value


def _engine_facts(info: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Version, and what it ran on."""
    rows = {
        "version": {"version": info.get("version")},
        "device": {
            "device": info.get("device"),
            "precision": info.get("precision"),
            "storage": info.get("storage"),
            _NAMELESS: info.get("fingerprint"),
        },
    }
    return {
        area: {key: str(value) for key, value in facts.items() if value}
        for area, facts in rows.items()
    }


def _input_files(problem: Problem) -> list[str]:
    """Paths of the files that the inputs were read from, in the order in which they were given."""
    given = tuple(path for source in problem.inputs if (path := _path(source)))
    return [
        path
        for path in problem.digests
        if path != problem.model and any(path == own or path.startswith(f"{own}/") for own in given)
    ]


def _path(source: str) -> str:
    """The path in an input's source: what follows ``name:`` in ``name:/file.bin``."""
    head, _, tail = source.partition(":/")
    return f"/{tail}" if tail and "/" not in head else source


def _input_facts(problem: Problem) -> dict[str, str]:
    """The files by digest, whatever they are called and wherever they lie; made-up inputs by what
    makes them."""
    files = _input_files(problem)
    if not files:
        made = {"made up, seed": str(problem.seed)}
        shapes = {
            f"shape of {name}": str(list(shape)) for name, shape in problem.input_shapes.items()
        }
        ranges = {
            f"values of {name or 'each'}": str(list(low)) for name, low in problem.val_range.items()
        }
        return {**made, **shapes, **ranges}
    return {f"file {i}": problem.digests[path] for i, path in enumerate(files, 1)}


def _judgement_facts(problem: Problem, report: Report) -> dict[str, str]:
    rows = {
        "metric": report.metric,
        "tolerance": f"{report.tolerance:g}" if report.tolerance else "",
    }
    per_output = {
        f"{option} of {name}" if name else option: f"{value:g}"
        for option in ("tolerance", "atol", "rtol")
        for name, value in getattr(problem, option).items()
    }
    scripts = {
        f"postprocess {i}": _without_folder(text) for i, text in enumerate(problem.postprocess, 1)
    }
    scripts["score"] = _without_folder(problem.score)
    return {
        key: value
        for key, value in {**rows, **per_output, **scripts, "check": problem.check}.items()
        if value
    }


def say_differences(found: Differences) -> list[str]:
    """Lines for people."""
    sides = (("A", found.left), ("B", found.right))
    lines = [
        visible(f"{letter}  {': '.join(filter(None, (side.name, side.result)))}")
        for letter, side in sides
    ]
    if not found.differences:
        lines += [
            "",
            "Nothing that was written down differs. What is not: clocks, load, settings in the environment.",
        ]
    else:
        lines += ["", "What differs, the likeliest reason first:"]
    widths = [
        max((len(_cell(row)) for row in column), default=0)
        for column in _columns(found.differences)
    ]
    for area in dict.fromkeys(d.area for d in found.differences):
        lines.append(f"{area}: {AREAS[area]}")
        rows = [d for d in found.differences if d.area == area]
        lines += [
            "  "
            + "  ".join(
                _cell(cell).ljust(width) for cell, width in zip(row, widths, strict=True)
            ).rstrip()
            for row in zip(*_columns(rows), strict=True)
        ]
    lines += [f"The same: {', '.join(found.same)}."] if found.same else []
    lines += [f"Not known of both: {', '.join(found.unknown)}."] if found.unknown else []
    return lines


def _columns(rows: Iterable[Difference]) -> tuple[Sequence[str], ...]:
    kept = list(rows)
    return (
        [d.name for d in kept],
        [f"A {d.left or 'none'}" for d in kept],
        [f"B {d.right or 'none'}" for d in kept],
    )


def _cell(text: str) -> str:
    return elide(visible(text), 44)
