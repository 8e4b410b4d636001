"""What a report says, as plain data: the same facts become JSON, Markdown and HTML."""

from collections.abc import Hashable, Iterable
from typing import Any, Literal

import msgspec

from narrowdown.engines.compare.loops import CurveRow
from narrowdown.engines.compare.values import Values
from narrowdown.engines.declaration import Recipe
from narrowdown.engines.findings import Culprit as Found, Lookalike
from narrowdown.engines.search.ranking import LayerRow
from narrowdown.engines.steps.rewrite import RewriteRow
from narrowdown.engines.steps.score import ScoreRow
from narrowdown.engines.steps.trigger import FactorRow
from narrowdown.wizard.report.vicinity import Vicinity
from narrowdown.wizard.words import LONGEST, bounded, elide, write_json

Verdict = Literal[
    "minimal-case", "worked-around", "build-failure", "not-reproduced", "fixed-by-sanitizing", "input-sensitive",
    "reference-suspect", "not-determined", "export-at-fault", "refused", "unresolved",
]  # fmt: skip


class Culprit(msgspec.Struct, frozen=True):
    """One named cause and its minimal case. ``dir`` is where its bundle lies below an export
    (``case``, ``case/culprit-2``)."""

    nodes: tuple[str, ...]
    ops: tuple[str, ...]
    cause: str
    evidence: str
    own: float | None
    effect: float | None
    sample: str
    nodes_after: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dir: str
    verified: str
    minimal: bool
    needs_higher_inputs: bool
    found_by: str
    also: tuple[str, ...] = ()  # nodes of the same kind, without a case of their own
    at: str = ""  # of several nodes the one that the evidence is about; "": all of them
    # of whole numbers: wrong ones of its own, and all; 1 of 0: another shape
    own_places: tuple[int, int] = (0, 0)
    effect_places: tuple[int, int] = (0, 0)  # likewise of the model's
    engine: str = ""  # the spec on which it fails, if not the session's
    around: Vicinity = Vicinity()
    values: tuple[Values, ...] = ()  # of its outputs, the worst first
    source: tuple[str, ...] = ()  # file and line of the exported program
    modules: tuple[str, ...] = ()  # path and class of the PyTorch modules
    ran_as: tuple[str, ...] = ()  # the engine's layers that hold its nodes, and the types they give
    # error of the part in the case folder, if its shapes or values were made smaller
    made_smaller: float | None = None


class Workaround(msgspec.Struct, frozen=True):
    """What makes the model right on this engine. ``holds``: on every sample, also of those that it
    was not made on."""

    kind: str
    holds: bool
    engine: str
    keep_higher: tuple[str, ...]
    switched_off: tuple[str, ...]
    samples_ok: int
    samples_n: int
    error: float | None
    margin: float | None
    cost: str
    minimal: bool
    condition: str = ""  # it is right only while this is so
    unseen_ok: int = 0
    unseen_n: int = 0
    unseen_given: int = 0
    unseen_failing: int = 0
    held_out_ok: int = 0  # the same as `unseen_ok`
    held_out_n: int = 0  # the same as `unseen_n`
    file: str = ""  # the model with it, beside the report; "" where it is no other model
    accused_inside: bool | None = None  # every accused node is in the set that is kept
    # share of other samples that pass at least, at 95 %; null: not tried
    unseen_least: float | None = None
    source: tuple[str, ...] = ()  # lines of the exported program whose nodes it keeps
    modules: tuple[str, ...] = ()  # the PyTorch modules that these lie in
    known: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()  # nodes of the graph that are or hold those of `keep_higher`
    layers: bool = False  # `keep_higher` are quantized layers in float
    apply: tuple[Recipe, ...] = ()  # in the words of each tool, the engine's own first


class Stop(msgspec.Struct, frozen=True):
    """One answered question of the route. ``recommended`` is the id of the answer that was
    recommended; ``state``: of its step, in the words of ``wizard.report.stage``, "" where there was
    none."""

    node: str
    title: str
    answer: str
    text: str
    by: str
    recommended: str
    because: str
    note: str
    message: str
    seconds: float
    probes: int
    builds: int
    state: str = ""
    missed: str = ""  # what runs without a failure leave possible


class Depth(msgspec.Struct, frozen=True):
    """One tensor of the error-by-depth picture, in topological order. ``inherited``: the error that
    its node's inputs bring along; ``added``: what the node itself adds; None where not measured."""

    name: str
    op: str
    error: float
    bad: bool
    inherited: float | None = None
    added: float | None = None
    culprit: int = 0  # which of the culprits holds its node, counted from 1; 0: none


class RuledOut(msgspec.Struct, frozen=True):
    """What is not the reason, and what was measured to know it."""

    what: str
    measured: str


class QuantizedLayer(LayerRow, frozen=True):
    """One layer of a Q/DQ model, the largest effect first. SQNRs in dB, None where not measured:
    ``sqnr_db`` of its output with this layer alone quantized, ``cumulative_db`` in the quantized
    model, ``weights_db`` and ``inputs_db`` of what its pairs give. ``effect``: error on the model's
    outputs with this layer alone quantized. ``codes``, ``scales``: how it is quantized."""


class Weighed(ScoreRow, frozen=True):
    """The reference, the model as it is, or a workaround that was tried."""


class Tried(msgspec.Struct, frozen=True):
    """A variant of the case that was built."""

    changed: str  # what is other than in the case; empty for the case itself
    outcome: str  # `fires`, `passes`, `refused`, `hidden`, `cannot tell` or `invalid`
    error: float | None  # by the metric; `null` where nothing was compared
    why: str  # where there was no answer


class Trigger(msgspec.Struct, frozen=True):
    """What triggers the failure of the case."""

    verdict: str  # `found`, `always`, `unsteady`, `gone`, `passes` or `unresolved`
    condition: str  # a sentence for each property that matters; empty where none was found to
    said: str  # the same, with how often it was so
    factors: tuple[FactorRow, ...]  # those that matter come first
    cases: tuple[Tried, ...]  # the case first, then as they were tried


class Rewritten(RewriteRow, frozen=True):
    """A rewrite that was tried."""


class Brought(msgspec.Struct, frozen=True):
    """A table of a step that another package brings."""

    step: str  # its name
    table: str  # what the step calls it
    columns: tuple[str, ...]  # fields of its rows
    rows: tuple[
        tuple[str, ...], ...
    ]  # a cell for each column; empty where the row has no such field


class Report(msgspec.Struct, frozen=True):
    """Everything. ``verdict`` is ``unresolved`` and ``end`` empty while the session has not
    ended."""

    verdict: Verdict
    end: str
    headline: str
    cause: str
    nodes: tuple[str, ...]
    nodes_before: int
    nodes_after: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    workaround: Workaround | None
    culprits: tuple[Culprit, ...]
    route: tuple[Stop, ...]
    environment: dict[str, Any]
    session: str
    model: str
    engine: str
    reference: str
    metric: str
    tolerance: float | None
    error: float | None
    failing_outputs: tuple[str, ...]
    samples: int
    samples_failing: int
    explanation: str
    depth: tuple[Depth, ...]
    notes: tuple[str, ...]
    commands: tuple[str, ...]
    seconds: float
    probes: int
    # how many times the worst error fits into what is allowed, where nothing failed
    margin: float | None = None
    worst_output: str = ""
    worst_sample: str = ""
    spread: str = ""  # what shows that the error is spread; else empty
    advice: str = ""  # what the end means, and what to do now
    layers: tuple[QuantizedLayer, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    # `from`, `to` and `why`, where another reference stood in
    reference_replaced: dict[str, str] | None = None
    alike: bool = False  # reference and engine under test are wrong in the same way
    rounds: tuple[tuple[Depth, ...], ...] = ()  # the same for each comparison of layers
    error_places: tuple[int, int] = (0, 0)  # of whole numbers: wrong ones, and all
    allowed: str = ""  # `tolerance` in words: `rel_l2 0.0001`, or `atol 0.001, rtol 1e-05`
    lookalikes: tuple[Lookalike, ...] = ()  # known bugs that it looks like, confirmed ones first
    rewrites: tuple[Rewritten, ...] = ()  # rewrites that were tried
    scores: tuple[Weighed, ...] = ()  # the reference, the fault and each workaround
    cures: tuple[Workaround, ...] = ()  # all that was tried and verified, the chosen one first
    trigger: Trigger | None = None  # what triggers the first case; `null` where nobody asked
    goes_on_from: str = ""  # id of the session whose findings these are
    loop: tuple[
        CurveRow, ...
    ] = ()  # of a model whose outputs go back into its inputs, step by step
    brought: tuple[Brought, ...] = ()  # tables of steps that other packages bring
    next: str = ""  # the command that continues; empty where nothing follows
    format: Literal[1] = 1  # version of this format


def to_json(report: Report) -> str:
    """The public JSON form: the contract's fields first, the rest added. No NaN, no infinity; of a
    giant name both ends."""
    return write_json(_bounded(msgspec.to_builtins(report)))


def _bounded(value: Any) -> Any:
    """The same plain data; only the model itself has a name of a megabyte whole."""
    if isinstance(value, dict):
        return {_bounded(key): _bounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_bounded(inner) for inner in value]
    return bounded(elide(value, 4 * LONGEST)) if isinstance(value, str) else value


def groups(kinds: Iterable[Hashable]) -> list[tuple[int, ...]]:
    """Positions of what is of one kind, the kinds in the order in which they first appear."""
    found: dict[Hashable, list[int]] = {}
    for position, kind in enumerate(kinds):
        found.setdefault(kind, []).append(position)
    return [tuple(positions) for positions in found.values()]


def kind(culprit: Culprit | Found) -> Hashable:
    """What alike culprits share: the cause, the operators, and whether they need their inputs in
    higher precision."""
    case = culprit.case if isinstance(culprit, Found) else culprit
    return culprit.cause, case.ops, case.needs_higher_inputs


def others(n: int) -> str:
    """``6 more fail in the same way``."""
    return f"{n} more {'fails' if n == 1 else 'fail'} in the same way"
