"""What a step is: a pure, deterministic generator of probes.

    def reduce(ctx: StepContext) -> Steps[ReduceOutcome]:
        measurement = yield from asked(Measure(...))  # the runner answers with a Measurement
        yield Note("trying nodes 96-143", best=96)    # progress; answered with nothing
        return Finish(ReduceOutcome(...), findings=..., tables=..., decisive=...)

A step sees ids, names and numbers; never a model, an array, a clock, a random source or the number
of jobs. Given the same answers it asks the same questions in the same order: resume is running it
again with the answers known.

Speculation: on free slots the runner runs the generator ahead over an invented answer
(``Measurement(assumed="pass"|"fail")``), which ``judge`` turns into that verdict. A step that reads
anything else from an invented measurement simply ends the speculation.
"""

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec

from narrowdown.engines.asking import StepContext, Sub, Tables
from narrowdown.engines.compare.judge import Off
from narrowdown.engines.findings import Case, Findings
from narrowdown.engines.graph.filekind import is_ir
from narrowdown.engines.probe import Probe

# Covariant: whoever goes through all steps holds them as ``StepSpec[msgspec.Struct]``.
OutcomeT = TypeVar("OutcomeT", bound=msgspec.Struct, covariant=True)


class Finish(msgspec.Struct, Generic[OutcomeT], frozen=True):
    """The end of a step. ``tables``: rows for evidence, report and JSON (stored as artifacts).
    ``decisive``: the probes that a replay measures again, by role (``whole``, ``case``, ``good``,
    ``workaround``)."""

    outcome: OutcomeT
    findings: Findings
    tables: Tables = {}
    decisive: Mapping[str, tuple[Probe, ...]] = {}


Steps: TypeAlias = Sub[Finish[OutcomeT]]


# Parameters that steps of earlier versions had: a flow or a command that gives one to a step that has
# it no more is taken, and it has no effect.
RETIRED = frozenset(
    {
        "batch_bytes",
        "batches",
        "budget",
        "builds",
        "headroom",
        "injected",
        "judge_nodes",
        "levels",
        "most_culprits",
        "most_growth",
        "most_nodes",
        "most_rounds",
        "most_patches",
        "most_places",
        "most_runs",
        "most_suspects",
        "place_growth",
        "quiet",
        "returns",
        "rings",
        "rounds",
        "shrink",
        "shrink_others",
        "splits",
        "verify",
    }
)


class NoParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a step that a flow's ``with`` can set nothing of."""


class Need(msgspec.Struct, frozen=True):
    """What must hold before a step starts. ``what``: for the pages; ``why``: the sentence that
    refuses it, and ``code`` the exit code where it is the session's only step: 4 the engine cannot
    do this, 2 it was asked for wrongly."""

    what: str
    holds: Callable[[StepContext], bool]
    why: Callable[[StepContext], str]
    code: int = 4


def capability(name: str) -> Need:
    """The engine can do this. One that tells nothing of what it can is taken for one that can, and
    so is an external check's."""

    def holds(ctx: StepContext) -> bool:
        return bool(ctx.check) or not ctx.engine_info.capabilities or ctx.can(name)

    def why(ctx: StepContext) -> str:
        reason = ctx.engine_info.reason(name) or f"it does not offer '{name}'."
        return f"This step is not possible on {ctx.engine}: {reason}"

    return Need(f"an engine that can: {name}", holds, why)


BUILDS_MODELS = Need(
    "an engine that builds, of an ONNX model",
    lambda ctx: bool(ctx.check) or not (ctx.engine_info.rebuilt or is_ir(ctx.problem.model)),
    lambda ctx: (
        f"This step looks into the model, and '{PurePath(ctx.problem.model).name}' is OpenVINO IR, which runs whole: layers and "
        "parts need the ONNX model that it was converted from. compare, inputs, repeat and consistency take the IR."
        if is_ir(ctx.problem.model)
        else f"This step tries other models than the whole, and {ctx.engine} was built before: it runs as it is. Build the like "
        f"from the model: --engine {ctx.engine_info.rebuilt}"
    ),
)


def comparison(why: str, code: int = 4) -> Need:
    """Outputs are compared; an external check that judges in their place can tell nothing of what
    this step asks."""
    return Need("a comparison, no --check", lambda ctx: not ctx.check, lambda _ctx: why, code)


class End(msgspec.Struct, frozen=True):
    """How a step that runs alone has ended where this field of its outcome has this value."""

    field: str
    value: str | int | bool
    end: Literal[
        "not-reproduced",
        "reference-suspect",
        "not-determined",
        "export-at-fault",
        "refused",
        "unresolved",
    ]


PASSES = End("verdict", "passes", "not-reproduced")


def unresolved(*verdicts: str) -> tuple[End, ...]:
    """The verdicts that are no answer: these, and ``unresolved`` itself."""
    return tuple(End("verdict", verdict, "unresolved") for verdict in (*verdicts, "unresolved"))


class Told(msgspec.Struct, frozen=True):
    """A finished step, as ``json`` is given it: its outcome, what is known since, its tables' rows,
    and what it took."""

    outcome: Mapping[str, object]
    findings: Findings
    tables: Mapping[str, list[dict[str, object]]] = {}
    speculative: int = 0  # probes that ran ahead
    cached: int = 0  # probes whose answers were known
    builds: int = 0


def as_it_is(told: Told) -> dict[str, object]:
    """The outcome's fields, then the tables by name."""
    return {**told.outcome, **told.tables}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a step answers."""

    message: str = ""


class CaseOutcome(Off, frozen=True, kw_only=True):
    """What a step that leaves a case tells of it."""

    ops: str = ""
    names: str = ""
    message: str = ""


def tell_case(case: Case) -> dict[str, object]:
    """The fields of a ``CaseOutcome``."""
    return {
        "ops": " + ".join(case.ops),
        "names": ", ".join(case.nodes),
        **case.off,
    }


def with_case(told: Told) -> dict[str, object]:
    """The outcome with the case's names as lists, and how many nodes it has beside them."""
    return {**told.outcome, "nodes_after": told.outcome.get("nodes", 0), **case_names(told)}


def case_names(told: Told) -> dict[str, object]:
    """Names of the case's nodes, inputs and outputs."""
    case = told.findings.case
    if case is None:
        return {"nodes": [], "inputs": [], "outputs": []}
    return {"nodes": list(case.nodes), "inputs": list(case.inputs), "outputs": list(case.outputs)}


# A model that a step leaves: a whole one, named by its digest in the table ``sanitized`` (field
# ``model``); a failing part, a failing part seen again in fresh builds, a model with a workaround
# in it, each a row of the table ``bundle`` with its ``role`` and ``files``.
Made: TypeAlias = Literal["model", "case", "confirmed", "workaround"]


class StepSpec(msgspec.Struct, Generic[OutcomeT], frozen=True):
    """All that the rest of the program knows of a step: the command line, the displays, the report,
    the pages and the schema of flow files read it here.

    Every field of ``outcome`` has a default, so that a step that was cut short still says what it
    knows; errors are badness under the session's metric, None where not measured; ``message`` is
    one sentence for people.
    """

    name: str  # as flows and ``narrowdown step`` say it
    version: int  # raised where its questions change: answers of an earlier version are then no longer replayed as its own
    summary: str  # one sentence
    run: Callable[[StepContext], Steps[OutcomeT]]
    outcome: type[OutcomeT]  # what a flow's ``when``, templates and ``evidence`` may name
    params: type[msgspec.Struct]  # what a flow's ``with`` may set
    # About how many probes it will ask, of a model of so many nodes (0: not read yet); None where
    # nobody knows.
    plan: int | Callable[[StepContext, int], int | None] | None = None
    exclusive: bool = False  # of its probes, only those run ahead that are exclusive
    needs: tuple[Need, ...] = ()  # what must hold before it starts
    sets: tuple[
        str, ...
    ] = ()  # fields of Findings that it may change, beside what every step prepares
    makes: tuple[Made, ...] = ()
    ends: tuple[End, ...] = ()  # run alone: the first that holds; done where none does
    labels: Mapping[
        str, str
    ] = {}  # outcome fields for people; ``{precision}`` in one becomes the outcome's own
    json: Callable[[Told], dict[str, object]] = as_it_is  # the object of ``narrowdown step --json``
    alone: bool = True  # whether it makes sense outside of a flow
    # Run alone, its exit code tells whether the whole model fails, so that --expect may be asked of
    # it.
    judges: bool = False
    package: str = ""  # who brought it, where that is not narrowdown; the registry fills it in

    def lacking(self, ctx: StepContext) -> Need | None:
        """The first need that is not met."""
        return next((need for need in self.needs if not need.holds(ctx)), None)
