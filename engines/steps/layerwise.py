"""layerwise: watch every tensor in one run, then ask which node's own error reaches the model's
outputs.

Three numbers for each tensor: *inherited* (its error in the marked run), *added* (the error of its
node alone, fed reference values as the engine stores them) and *effect* (that error transplanted
into the clean reference run). Only effect accuses: measured on real models, true culprits score
0.38 to 1.1 and harmless overflows 0.0000, while added error alone ties five infinities of which
three are harmless.
"""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, StepContext, Sub
from narrowdown.engines.asking.engine_forms import find_cheap_engine
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.compare.judge import badness, limit
from narrowdown.engines.compare.say import say_part, wrong_by
from narrowdown.engines.findings import Suspect
from narrowdown.engines.graph.watched import BATCH_BYTES
from narrowdown.engines.probe import Score
from narrowdown.engines.search.accuse import (
    PARTS,
    Accused,
    accuse,
    is_spread,
    measure_shares,
)
from narrowdown.engines.search.tensor_errors import (
    Added,
    Packing,
    Watched,
    measure_alone,
    watch_tensors,
)
from narrowdown.engines.steps.base import (
    BUILDS_MODELS,
    Finish,
    Outcome,
    Steps,
    StepSpec,
    Told,
    capability,
    comparison,
)
from narrowdown.engines.steps.prepare import prepare_findings

WIDTH = 60  # values of a profile: one for each column of a terminal of 80, beside its axis


class LayerwiseOutcome(Outcome, frozen=True, kw_only=True):
    # the failure when every tensor can be read
    observer: Literal["reproduces", "improves", "cannot-run"] = "cannot-run"
    tensors: int = 0  # that were read
    bad: int = 0  # of them over tolerance
    skipped: int = 0  # that could not be read
    culprit: str = ""  # the node whose own error reaches the outputs
    culprit_op: str = ""  # its operator
    first_bad: str = ""  # the first tensor over tolerance
    first_nonfinite: str = ""  # the first Inf or NaN where the reference is finite
    inherited: float | None = None  # the culprit's error as it arrives in the whole model
    added: float | None = None  # its error when its inputs are exact
    effect: float | None = None
    spread: bool = False  # no node makes most of the error
    keeps: bool = False  # earlier culprits are known, and nodes can be kept in FP32
    harmless: int = 0  # bad tensors whose error reaches no output
    left: int = 0  # suspects that were not asked about in every way
    profile: str = ""  # error by depth, log10, as a sparkline-ready comma list
    reason: str = ""


# 512 MiB fit beside a model on any machine that runs it.
class LayerwiseParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    budget: Count = 0  # suspects whose effect is measured; 0: all
    batch_bytes: Count = BATCH_BYTES  # of marked tensors in one build


class TensorRow(msgspec.Struct, frozen=True):
    """A row of the table ``tensors``, None where not measured. ``error``, ``inherited``: badness in
    the watched model; ``added``, ``added_exact``: of its node alone, fed as stored and exactly;
    ``effect``: what arrives. ``module``, ``source``: of the exported program."""

    name: str
    node: str
    op: str
    shape: tuple[int, ...]
    dtype: str
    error: float | None = None
    inherited: float | None = None
    added: float | None = None
    added_exact: float | None = None
    effect: float | None = None
    nonfinite: bool = False
    harmless: bool = False
    module: str = ""
    source: str = ""


class _Look(msgspec.Struct):
    """What a look at every layer found. ``ask``: of the engine that was looked into; ``added``: by
    each node alone; ``shares``: see ``measure_shares``."""

    ask: Inquiry
    seen: Watched
    added: Added = {}
    found: Accused = Accused()
    shares: tuple[float, ...] = ()

    @property
    def observer(self) -> Literal["reproduces", "improves", "cannot-run"]:
        return "reproduces" if self.seen.failing else "improves" if self.seen.ran else "cannot-run"

    @property
    def spread(self) -> bool:
        return is_spread(self.shares)

    @property
    def accused(self) -> tuple[Suspect, ...]:
        """The suspects; none where each of them is one of many alike."""
        return () if self.spread else self.found.suspects


def layerwise(ctx: StepContext) -> Steps[LayerwiseOutcome]:
    params = msgspec.convert(dict(ctx.params), LayerwiseParams)
    findings = yield from prepare_findings(ctx)
    given: Inquiry = yield from open_inquiry(ctx, findings)
    findings = yield from find_cheap_engine(ctx, findings)
    given = msgspec.structs.replace(given, findings=findings)
    look: _Look = yield from _look(given.of(findings.cheap), params)
    if findings.cheap and not look.seen.failing:
        # The cheap engine's kernels are others: watching may cure these and not the engine's own.
        look = yield from _look(given, params)
    table = _tabulate(look)
    return Finish(
        _sum_up(look, table),
        msgspec.structs.replace(
            findings,
            suspects=look.accused,
            spread=look.spread,
            hidden=look.observer == "improves",
            case=None,
        ),
        tables={"tensors": table},
    )


def _sum_up(look: _Look, table: Sequence[TensorRow]) -> LayerwiseOutcome:
    ask, seen = look.ask, look.seen
    bad = [r.name for r in table if r.error is not None and r.error > limit(ask.criterion, r.name)]
    broken = [t for t, score in seen.inherited.items() if score.new_nonfinite]
    outcome = LayerwiseOutcome(
        observer=look.observer,
        tensors=len(seen.inherited),
        bad=len(bad),
        skipped=len(seen.skipped),
        first_bad=next(iter(bad), ""),
        first_nonfinite=next((ask.index.tensors[t].name for t in ask.index.first_of(broken)), ""),
        spread=look.spread,
        keeps=bool(ask.findings.culprits) and make_oracle(ask).keeps,
        harmless=len(look.found.harmless),
        left=look.found.left,
        profile=profile_by_depth([r.error for r in table if r.error is not None]),
        reason=seen.reason,
        message=_message(look, len(bad)) + _say_beside(look),
    )
    for top in look.accused[:1]:
        row = next(r for r in table if r.name == ask.index.tensors[top.tensor].name)
        outcome = msgspec.structs.replace(
            outcome,
            culprit=row.node,
            culprit_op=row.op,
            inherited=row.inherited,
            added=row.added,
            effect=top.effect,
        )
    return outcome


def _look(ask: Inquiry, params: LayerwiseParams) -> Sub[_Look]:
    """Every tensor watched, and where the failure is still there the nodes whose own error reaches
    the outputs."""
    oracle = make_oracle(ask)
    seen: Watched = yield from watch_tensors(oracle, Packing(params.batch_bytes))
    look = _Look(ask, seen)
    if look.observer == "reproduces":
        look.added = yield from measure_alone(
            oracle, seen.inherited, Packing(params.batch_bytes // 2), exactly=True
        )
        look.found = yield from accuse(oracle, params.budget, seen.inherited, look.added)
        if not look.found.left:
            look.shares = yield from measure_shares(oracle, look.found.suspects)
    return look


def profile_by_depth(errors: Sequence[float]) -> str:
    """Error by depth as at most ``WIDTH`` comma-separated log10 values (the worst of each bin), -9
    for none."""
    bins = min(WIDTH, len(errors))
    worst = [
        max(errors[i * len(errors) // bins : (i + 1) * len(errors) // bins] or [0.0])
        for i in range(bins)
    ]
    return ",".join(f"{max(-9.0, min(9.0, math.log10(e))):.2f}" if e > 0 else "-9" for e in worst)


def _tabulate(look: _Look) -> list[TensorRow]:
    index, rule = look.ask.index, look.ask.criterion

    def measure(score: Score | None) -> float | None:
        return None if score is None else badness(score, rule)

    effects, harmless = {s.tensor: s.effect for s in look.found.suspects}, look.found.harmless
    rows = []
    for t in sorted({*look.seen.inherited, *look.added}):
        tensor, node, score = index.tensors[t], index.made_by(t), look.seen.inherited.get(t)
        stored, exact = look.added.get(t, (None, None))
        rows.append(TensorRow(
            name=tensor.name,
            node=index.shown_names[node.id] if node else "",
            op=node.op if node else "",
            shape=tensor.shape or (),
            dtype=tensor.dtype,
            error=measure(score),
            inherited=measure(score),
            added=measure(stored),
            added_exact=measure(exact),
            effect=effects.get(t),
            nonfinite=bool(score and score.new_nonfinite),
            harmless=tensor.producer in harmless,
            module=node.module if node else "",
            source=node.source if node else "",
        ))  # fmt: skip
    return rows


def _message(look: _Look, bad: int) -> str:
    """``bad``: tensors that are over the tolerance."""
    ask, failure = look.ask, look.ask.signature
    if look.observer == "cannot-run":
        return f"The model cannot run while every layer is looked at: {look.seen.reason}"
    if look.observer == "improves":
        return (
            f"While we look at {look.seen.watched} of its tensors, the model no longer fails; it was "
            f"{wrong_by(failure.error, failure.metric)}. Looking changes what the engine does."
        )
    if look.spread:
        what = "What is left of the error" if ask.findings.culprits else "The error"
        return (
            f"{what} is spread over many layers, and no single node makes most of it: of {PARTS} parts of the model none "
            f"makes more than {100 * max(look.shares):.0f} % of it."
        )
    if not look.accused:
        return f"{'1 tensor differs' if bad == 1 else f'{bad} tensors differ'}, but no node by itself makes the outputs wrong."
    top, metric = look.accused[0], ask.criterion.metric
    small = top.own <= limit(ask.criterion, ask.index.tensors[top.tensor].name)
    what = (
        "a small error, which grows on its way to the outputs"
        if small
        else "the error that reaches the outputs"
    )
    return (
        f"{ask.index.shown_names[top.node]} ({ask.index.nodes[top.node].op}) adds {what}: "
        f"by itself {say_part(top.own, metric, top.own_places)}, the model's outputs "
        f"{say_part(top.effect, metric, top.effect_places)} by it."
    )


def _say_beside(look: _Look) -> str:
    """What was not looked into: sentences, each with a space in front."""
    ask, seen, left = look.ask, look.seen, look.found.left
    bodies = [n for n in ask.index.nodes if n.holds_graphs]
    kinds = ", ".join(sorted({n.op for n in bodies}))
    told = (
        (
            left,
            f" The step was ended here: {f'{left} more suspects were' if left > 1 else 'one more suspect was'} not asked about, "
            "so another node may add more.",
        ),
        (bodies, f" {len(bodies)} of its nodes ({kinds}) hold graphs of their own, left whole."),
        (
            seen.skipped,
            f" {len(seen.skipped)} tensors hold no numbers (sequences, strings) or cannot be marked, and were not watched.",
        ),
    )
    return "".join(text for holds, text in told if holds)


def _json(told: Told) -> dict[str, object]:
    tensors = told.tables.get("tensors", [])
    first = told.outcome.get("first_bad", "")
    return {
        **told.outcome,
        "culprit": told.outcome.get("culprit") or None,
        "first_bad": next((row for row in tensors if row["name"] == first), None)
        if first
        else None,
        "suspects": [
            {"nodes": s.nodes, "own": s.own, "effect": s.effect} for s in told.findings.suspects
        ],
        "tensors": tensors,
    }


SPEC = StepSpec(
    name="layerwise",
    version=8,
    summary="Run the model with every tensor readable, and find the node whose own error reaches the outputs.",
    run=layerwise,
    outcome=LayerwiseOutcome,
    params=LayerwiseParams,
    needs=(
        BUILDS_MODELS,
        capability("mark"),
        comparison(
            "An external check judges whole candidates and cannot watch single tensors; go on to reduce."
        ),
    ),
    sets=("suspects", "spread", "hidden", "case"),
    labels={
        "observer": "when we look at every layer",
        "tensors": "tensors compared",
        "bad": "tensors over tolerance",
        "skipped": "could not be watched",
        "culprit": "adds the most error",
        "culprit_op": "operator",
        "first_bad": "first tensor over tolerance",
        "first_nonfinite": "first NaN or infinity",
        "spread": "spread over many layers",
        "harmless": "wrong but harmless",
        "left": "suspects not asked about",
    },
    json=_json,
)
