"""A node's work by hand: the commands that a flow gives for other tools, filled in for the session
and quoted for the shell.

They fit what is here: a command for other versions of its tool, or of the session's engine, is left
out, and the flags are those that this version takes, as the engine's declaration says.
"""

import contextlib
import functools
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import msgspec

from narrowdown.engines import outside
from narrowdown.engines.compare.judge import for_parts
from narrowdown.engines.declaration import ByHand, Found
from narrowdown.engines.findings import Findings
from narrowdown.engines.spec import parse
from narrowdown.wizard.flow.expressions import TemplateProblem, Words, render_command
from narrowdown.wizard.flow.model import FlowNode
from narrowdown.wizard.problem import Problem

# The fields that ``commands`` may name. Those of several words stand for none to many, each with a
# space in front.
FIELDS: Final = (
    "model", "engine", "reference", "tolerance", "atol", "rtol", "problem", "polygraphy_inputs", "precision_flags",
    "trtexec_flags", "failing_outputs", "cut_inputs", "cut_outputs", "kept_layers",
)  # fmt: skip

_TOOL = re.compile(r"([a-z][a-z0-9-]*)((?:\s*,?\s*(?:>=|<=|==|<|>)\s*[0-9]+(?:\.[0-9]+)*)*)")
_BOUND = re.compile(r"(>=|<=|==|<|>)\s*([0-9.]+)")


class Tool(msgspec.Struct, frozen=True):
    """The key of a command: a tool, and the versions of it that the command is for
    (``polygraphy>=0.53``, ``trtexec``); behind a semicolon what else it needs (``polygraphy;
    ENGINE<11``)."""

    name: str
    bounds: tuple[tuple[str, tuple[int, ...]], ...] = ()
    needs: "tuple[Tool, ...]" = ()

    @classmethod
    def parse(cls, key: str) -> "Tool":
        """Raises ValueError with a sentence."""
        first, *others = key.split(";")
        match = _TOOL.fullmatch(first.strip())
        if match is None:
            raise ValueError(
                f"'{key}' does not name a tool; write a name, and bounds such as >=0.53,<1 if it matters."
            )
        bounds = tuple(
            (op, tuple(map(int, version.split(".")))) for op, version in _BOUND.findall(match[2])
        )
        return cls(match[1], bounds, tuple(map(cls.parse, others)))

    def suits(self, have: Mapping[str, str]) -> bool:
        """Whether the command is for what is here. ``have``: tool -> its version; one that is not
        named may be anywhere, in any version."""
        return all(t.name not in have or t.fits(have[t.name]) for t in (self, *self.needs))

    def fits(self, number: str) -> bool:
        """Whether a command for this key is for that version of the tool."""
        have = tuple(int(part) for part in re.findall(r"[0-9]+", number)[:4])
        for op, bound in self.bounds:
            width = max(len(have), len(bound))
            a, b = have + (0,) * (width - len(have)), bound + (0,) * (width - len(bound))
            if not {">=": a >= b, "<=": a <= b, "==": a == b, "<": a < b, ">": a > b}[op]:
                return False
        return True


class Command(msgspec.Struct, frozen=True):
    """One command as shown. ``problem`` says why ``text`` is empty, where it is."""

    tool: str
    text: str
    problem: str = ""


@functools.cache
def installed() -> Mapping[str, str]:
    """The versions of the tools of commands that are installed beside this program; a tool that is
    not may be anywhere."""
    found: dict[str, str] = {}
    with contextlib.suppress(PackageNotFoundError):
        found["polygraphy"] = version("polygraphy")
    return found


def _find(engine: str, have: Mapping[str, str] | None) -> Found:
    spec = parse(engine)
    return outside.found(spec, (have or {}).get(spec.name, ""))


def by_hand(
    node: FlowNode,
    values: Mapping[str, Any],
    have: Mapping[str, str] | None = None,
    engine: str = "",
) -> list[Command]:
    """Every command of a node, filled in; one that would hold a control character is left out with
    the reason. ``have``: tool -> its version here; what is written for other versions of it is left
    out. ``engine``: the session's, whose ways the commands are fitted to."""
    made = []
    chosen = _find(engine, have) if engine else None
    ways = outside.declared(chosen).by_hand if chosen else ByHand()
    have = {**(have or {}), **ways.stands_for}
    for key, template in node.commands.items():
        tool = Tool.parse(key)
        if not tool.suits(have) or tool.name in ways.without:
            continue
        try:
            text = render_command(template, values).strip()
            made.append(Command(key, outside.fitted(chosen, text) if chosen else text))
        except TemplateProblem as problem:
            made.append(Command(key, "", str(problem)))
    return made


def known_versions(problem: Problem, engines: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Tools and engine of a session -> their versions, as far as they are known. ``engines``: what
    each said of itself, by spec."""
    known = str(engines.get(problem.engine, {}).get("version", ""))
    return {**installed(), **({parse(problem.engine).name: known} if known else {})}


def values(
    problem: Problem, findings: Findings | None = None, have: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What the fields stand for in a session: its PROBLEM and what was found so far, for the
    versions of ``have``. Capital words are left to the reader."""
    found = findings or Findings()
    reference = found.replaced.to if found.replaced else problem.reference
    engine = found.firm or problem.engine
    problem = msgspec.structs.replace(problem, engine=engine, reference=reference)
    criterion = found.criterion
    relative = (
        for_parts(criterion).tolerance if criterion and criterion.metric != "elementwise" else 1e-2
    )
    case = found.case
    failing = found.signature.outputs if found.signature else ()
    kept = found.workaround.keep_names if found.workaround else ()
    polygraphy, trtexec = outside.flags(_find(problem.engine, have))
    return {
        "model": problem.model,
        "engine": problem.engine,
        "reference": problem.reference,
        "tolerance": relative,
        "atol": criterion.atol if criterion and criterion.metric == "elementwise" else relative,
        "rtol": criterion.rtol if criterion and criterion.metric == "elementwise" else relative,
        "problem": Words(options(problem)),
        "polygraphy_inputs": Words(_polygraphy_inputs(problem.inputs)),
        "precision_flags": Words(polygraphy),
        "trtexec_flags": Words(trtexec),
        "failing_outputs": Words(failing or ("OUTPUT",)),
        "cut_inputs": Words(f"{name}:auto:auto" for name in (case.inputs if case else ("TENSOR",))),
        "cut_outputs": Words(f"{name}:auto" for name in (case.outputs if case else ("TENSOR",))),
        "kept_layers": Words(f"{name}:float32" for name in kept or ("LAYER",)),
    }


def options(problem: Problem) -> tuple[str, ...]:
    """The PROBLEM as ``narrowdown`` takes it, without the model; defaults are left out."""
    plain = Problem(model="")
    given: list[tuple[str, Iterable[object]]] = [
        ("--engine", [problem.engine]),
        ("--reference", [problem.reference] if problem.reference != plain.reference else []),
        ("--inputs", problem.inputs),
        ("--seed", [problem.seed] if problem.seed != plain.seed else []),
        (
            "--input-shapes",
            [f"{n}:[{','.join(map(str, shape))}]" for n, shape in problem.input_shapes.items()],
        ),
        (
            "--val-range",
            [
                f"{n}:[{lo},{hi}]" if n else f"[{lo},{hi}]"
                for n, (lo, hi) in problem.val_range.items()
            ],
        ),
        ("--carry", problem.carry),
        ("--carry-token", problem.carry_token),
        ("--steps", [problem.steps] if problem.steps else []),
        ("--force", [problem.force] if problem.force else []),
        ("--metric", [problem.metric] if problem.metric else []),
        *(
            (option, [f"{n}:{limit:g}" if n else f"{limit:g}" for n, limit in limits.items()])
            for option, limits in (
                ("--atol", problem.atol),
                ("--rtol", problem.rtol),
                ("--tolerance", problem.tolerance),
            )
        ),
        ("--postprocess", problem.postprocess),
        ("--score", [problem.score] if problem.score else []),
        ("--check", [problem.check] if problem.check else []),
        ("--fail-regex", problem.fail_regex),
        ("--fail-code", problem.fail_code),
        ("--ignore-fail-code", problem.ignore_fail_code),
    ]
    return tuple(
        word for option, values in given for value in values for word in (option, str(value))
    )


def _polygraphy_inputs(sources: tuple[str, ...]) -> list[str]:
    """Polygraphy reads its own JSON and loader scripts; for other inputs the case bundle holds an
    inputs.json."""
    json = [s for s in sources if s.endswith(".json")]
    scripts = [s for s in sources if s.partition(".py:")[1] or s.endswith(".py")]
    if json:
        return ["--load-inputs", *json]
    if scripts:
        return ["--data-loader-script", scripts[0]]
    return ["--load-inputs", "inputs.json"] if sources else []
