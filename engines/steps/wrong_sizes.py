"""Given inputs of a size that the reference does not run, where it runs made-up ones: which axis
that is. Where the engine runs them neither, they do not fit the model."""

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from narrowdown.engines.asking import Note, StepContext, StepRefused, Sub, asked
from narrowdown.engines.compare.judge import REFUSALS
from narrowdown.engines.findings import Findings
from narrowdown.engines.options import recorded
from narrowdown.engines.probe import LoadInputs, Measurement, SampleInfo, is_given
from narrowdown.engines.search.whole import probe_whole

_BAD_INPUT, _MISSING = (
    2,
    4,
)  # exit codes (narrowdown.wizard.exits), which an engine's room does not import
_DOES_NOT_RUN = (*REFUSALS, "error", "reference-failed")

_Place: TypeAlias = tuple[str, int]  # an input and an axis of it
_Sizes: TypeAlias = tuple[int, int]  # as it was given, and as it is made up


def refuse_wrong_sizes(
    ctx: StepContext, findings: Findings, m: Measurement, made_up: LoadInputs
) -> Sub[None]:
    """Raise StepRefused with the axes where the sizes of a given sample are why the whole model did
    not run: exit code 2, or 4 where the engine runs it. ``m``: how it ended; ``made_up``: asks for
    the session's inputs."""
    if ctx.check or recorded(ctx.reference) or m.status not in _DOES_NOT_RUN:
        return
    alone = msgspec.structs.replace(made_up, sources=(), source_digests=(), shapes={}, random=True)
    one_a_size = {
        tuple(sorted(s.shapes.items())): s for s in reversed(findings.samples) if is_given(s.id)
    }
    for sample in reversed(one_a_size.values()):
        yield Note("does the reference run it?")
        feed, right = (sample.id,), ctx.reference
        theirs = yield from asked(
            probe_whole(ctx, findings, samples=feed, engine=right, reference=right)
        )
        if theirs.status not in _DOES_NOT_RUN:
            continue
        ours: Measurement = m
        if m.status == "reference-failed":  # the engine was not asked
            ours = yield from asked(probe_whole(ctx, findings, samples=feed, reference=ctx.engine))
        sizes = yield from _run_made_up(ctx, findings, alone)
        found = (yield from _find_axes(ctx, findings, alone, sample, sizes)) if sizes else ""
        if not found:
            return
        unfit = ours.status in _DOES_NOT_RUN
        first = (
            "The inputs do not fit the model: neither engine nor reference runs"
            if unfit
            else "The reference does not run"
        )
        raise StepRefused(
            f"{first} '{sample.source}', and made-up ones run. {found} {theirs.message}",
            code=_BAD_INPUT if unfit else _MISSING,
        )


def _run_made_up(
    ctx: StepContext, findings: Findings, load: LoadInputs
) -> Sub[dict[str, tuple[int, ...]]]:
    """The shapes of made-up inputs that the reference runs; none where it does not."""
    made = yield from asked(load)
    if made.status != "ok":
        return {}
    sample = msgspec.convert(made.facts["samples"][0], SampleInfo)
    theirs = msgspec.structs.replace(findings, inputs=made.facts["inputs"], samples=(sample,))
    m = yield from asked(probe_whole(ctx, theirs, engine=ctx.reference, reference=ctx.reference))
    return sample.shapes if m.status == "ok" else {}


def _find_axes(
    ctx: StepContext,
    findings: Findings,
    load: LoadInputs,
    sample: SampleInfo,
    sizes: dict[str, tuple[int, ...]],
) -> Sub[str]:
    """Which axes make it run when they alone have the made-up size, as sentences; all that differ
    where none does alone, "" where none differs. Axes of the same two sizes are changed together,
    as inputs share them."""
    differ: dict[_Sizes, list[_Place]] = {}
    for place, pair in _list_different(sample.shapes, sizes):
        differ.setdefault(pair, []).append(place)
    runs: dict[_Sizes, list[_Place]] = {}
    if len(differ) > 1:
        for pair, places in differ.items():
            yield Note("and with one size as it is made up?")
            shapes = {
                name: tuple(
                    pair[1] if (name, axis) in places else size for axis, size in enumerate(shape)
                )
                for name, shape in sample.shapes.items()
            }
            if (
                yield from _run_made_up(ctx, findings, msgspec.structs.replace(load, shapes=shapes))
            ):
                runs[pair] = places
    said = [
        f"{' and '.join(map(_say_place, places))} is {given} and runs with {made}"
        for (given, made), places in (runs or differ).items()
    ]
    if not said:
        return ""
    joined = (", or " if runs else ", and ").join(said)
    return f"{joined[0].upper()}{joined[1:]}."


def _list_different(
    given: dict[str, tuple[int, ...]], made: dict[str, tuple[int, ...]]
) -> Iterator[tuple[_Place, _Sizes]]:
    for name, shape in given.items():
        for axis, pair in enumerate(zip(shape, made.get(name, shape), strict=False)):
            if pair[0] != pair[1]:
                yield (name, axis), pair


def _say_place(place: _Place) -> str:
    return f"axis {place[1]} of '{place[0]}'"
