"""layerwise: watch every tensor in one run, then ask which node's own error reaches the model's
outputs.

Three numbers for each tensor: *inherited* (its error in the marked run), *added* (the error of its
node alone, fed reference values as the engine stores them) and *effect* (that error transplanted
into the clean reference run). Only effect accuses: measured on real models, true culprits score
0.38 to 1.1 and harmless overflows 0.0000, while added error alone ties five infinities of which
three are harmless.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, Note, StepContext, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.compare.judge import badness, limit
from narrowdown.engines.compare.say import say_amount, say_part, wrong_by
from narrowdown.engines.findings import Suspect, Workaround
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.probe import Score
from narrowdown.engines.search import remedy
from narrowdown.engines.search.accuse import (
    PARTS,
    Accused,
    Bounds,
    accuse,
    is_spread,
    list_producers,
    measure_shares,
)
from narrowdown.engines.search.cheap_engine import ask_cheaply, find_cheap_engine, find_emulation
from narrowdown.engines.search.watch import OUTPUTS, Packing, Watched, measure_added, watch_tensors
from narrowdown.engines.search.watchable import BATCH_BYTES
from narrowdown.engines.spec import parse
from narrowdown.engines.steps.base import (
    BUILDS_MODELS,
    Finish,
    Steps,
    StepSpec,
    Told,
    capability,
    comparison,
)
from narrowdown.engines.steps.prepare import prepare_findings

LISTENING = {
    "debug": "by a listener (observe=debug)",
    "unfused": "by a listener, layers fused as ever (observe=unfused)",
}
WIDTH = 60  # values of a profile: one for each column of a terminal of 80, beside its axis


class LayerwiseOutcome(msgspec.Struct, frozen=True, kw_only=True):
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
    # of a spread error: the largest share of an eighth of the model
    largest_part: float | None = None
    harmless: int = 0  # bad tensors whose error reaches no output
    left: int = 0  # suspects that were not asked about in every way
    emulated: str = ""  # the emulation that was asked in place of the engine
    groups: int = 0  # layers of the built engine that hold several nodes
    group: str = ""  # what it computes together with the culprit
    profile: str = ""  # error by depth, log10, as a sparkline-ready comma list
    reason: str = ""
    message: str = ""


# 512 MiB fit beside a model on any machine that runs it. 48 suspects bound the builds: by added
# error alone real models tie five infinities of which three are harmless, and a strict tolerance
# makes every node a suspect. Three levels of producers, as a variance is a square, a mean and a
# difference; eight nodes injected or quiet, and a batch halved five times (to a thirty-second):
# bounds, chosen and not measured.
class LayerwiseParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    batch_bytes: Count = BATCH_BYTES  # of marked tensors in one build
    most_suspects: Count = 48  # whose effect is measured
    levels: Count = 3  # of producers that an amplifying node is tried with
    injected: Count = 8  # nodes that get their true values where none carries the failure
    quiet: Count = 8  # nodes before the first bad tensor whose small error may grow
    splits: Count = 5  # how often a batch that cannot run is halved
    budget: Count = 0  # suspects whose effect is measured; 0: all


class TensorRow(msgspec.Struct, frozen=True):
    """A row of the table ``tensors``, None where not measured. ``error``, ``inherited``: badness in
    the watched model; ``added``, ``added_exact``: of its node alone, fed as stored and exactly;
    ``effect``: what arrives; ``group``: the engine's layer."""

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
    first_nonfinite: bool = False
    harmless: bool = False
    reference_absmax: float | None = None
    group: str = ""


class Group(msgspec.Struct, frozen=True):
    """A row of the table ``groups``: a layer of the built engine that stands for several nodes, by
    their names."""

    layer: str
    tactic: str = ""
    nodes: tuple[str, ...] = ()


class _Look(msgspec.Struct):
    """What a look at every layer found. ``ask``: of the engine that was looked into; ``shares``:
    see ``measure_shares``."""

    ask: Inquiry
    seen: Watched
    rows: dict[int, TensorRow] = {}
    suspects: tuple[Suspect, ...] = ()
    harmless: int = 0
    left: int = 0
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
        return () if self.spread else self.suspects


def layerwise(ctx: StepContext) -> Steps[LayerwiseOutcome]:
    params = msgspec.convert(dict(ctx.params), LayerwiseParams)
    findings = yield from prepare_findings(ctx)
    given: Inquiry = yield from open_inquiry(ctx, findings)
    look, cure = yield from _look_at_emulation(given, params)
    if look is None:
        findings = yield from find_cheap_engine(ctx, findings)
        given = given.knowing(findings)
        look = yield from _look(ask_cheaply(given), params)
        if findings.cheap and not look.seen.failing:
            # The cheap engine's kernels are others: watching may cure these and not the engine's own.
            look = yield from _look(given, params)
    groups = (yield from _read_groups(given)) if look.accused and cure is None else ()
    layer_of = {name: group for group in groups for name in group.nodes}
    table = [
        msgspec.structs.replace(row, group=layer_of[row.node].layer if row.node in layer_of else "")
        for _, row in sorted(look.rows.items())
    ]
    return Finish(
        _sum_up(look, cure, table, layer_of, len(groups)),
        msgspec.structs.replace(
            findings,
            suspects=look.accused,
            spread=look.spread,
            hidden=look.observer == "improves",
            case=None,
            workaround=cure.workaround if cure else findings.workaround,
        ),
        tables={"tensors": table, "groups": groups} if groups else {"tensors": table},
    )


def _sum_up(
    look: _Look,
    cure: "_Cure | None",
    table: Sequence[TensorRow],
    layer_of: Mapping[str, Group],
    groups: int,
) -> LayerwiseOutcome:
    ask, seen = look.ask, look.seen
    bad = [r.name for r in table if r.error is not None and r.error > limit(ask.criterion, r.name)]
    outcome = LayerwiseOutcome(
        observer=look.observer,
        tensors=len(seen.inherited),
        bad=len(bad),
        skipped=len(seen.skipped),
        first_bad=next(iter(bad), ""),
        first_nonfinite=next((r.name for r in table if r.first_nonfinite), ""),
        spread=look.spread,
        largest_part=max(look.shares) if look.spread else None,
        harmless=look.harmless,
        left=look.left,
        emulated=ask.ctx.engine if cure else "",
        profile=profile_by_depth([r.error for r in table if r.error is not None]),
        groups=groups,
        reason=seen.reason,
        message=_message(look, len(bad), table) + _say_beside(look, cure),
    )
    for top in look.accused[:1]:
        node = ask.index.nodes[top.node]
        outcome = msgspec.structs.replace(
            outcome,
            culprit=ask.names([top.node])[0],
            culprit_op=node.op,
            inherited=top.inherited,
            added=top.added,
            effect=top.effect,
            group=_say_joined(ask, layer_of[node.name]) if node.name in layer_of else "",
        )
    return outcome


def _look(ask: Inquiry, params: LayerwiseParams) -> Sub[_Look]:
    """Every tensor watched, and where the failure is still there the nodes whose own error reaches
    the outputs."""
    packing = Packing(params.batch_bytes, params.splits)
    ways = {way: make_oracle(ask.of(engine)) for way, engine in _list_ways(ask.ctx).items()}
    seen: Watched = yield from watch_tensors(ways, packing)
    rows = {t: _make_row(ask, t, s) for t, s in seen.inherited.items()}
    look = _Look(ask, seen, rows)
    if look.observer == "reproduces":
        oracle = make_oracle(ask)
        added = yield from measure_added(oracle, packing, seen.inherited)
        for t, (stored, exact) in added.items():
            row = rows.get(t) or _make_row(ask, t, None)
            own, exactly = badness(stored, ask.criterion), _badness_or_none(exact, ask)
            rows[t] = msgspec.structs.replace(row, added=own, added_exact=exactly)
        bounds = Bounds(
            most_suspects=params.most_suspects,
            levels=params.levels,
            injected=params.injected,
            quiet=params.quiet,
            budget=params.budget,
        )
        accused: Accused = yield from accuse(oracle, bounds, seen.inherited, added)
        look.suspects, look.left = accused.suspects, accused.left
        harmless = {node for node, why in accused.verdicts.items() if why == "harmless"}
        look.harmless = len(harmless)
        for t in (t for node in harmless for t in ask.index.nodes[node].outputs if t in rows):
            rows[t] = msgspec.structs.replace(rows[t], harmless=True)
        for s in look.suspects:
            rows[s.tensor] = msgspec.structs.replace(rows[s.tensor], effect=s.effect)
        look.shares = () if look.left else (yield from measure_shares(oracle, look.suspects))
    for t in _first_nonfinite(ask.index, seen.inherited):
        rows[t] = msgspec.structs.replace(rows[t], first_nonfinite=True)
    return look


class _Cure(msgspec.Struct, frozen=True):
    """That what the emulation accuses is at fault on the engine itself. ``said``: in a sentence,
    with a space in front."""

    said: str
    workaround: Workaround


def _look_at_emulation(
    given: Inquiry, params: LayerwiseParams
) -> Sub[tuple[_Look | None, _Cure | None]]:
    """A look at the emulation of the precision in place of an engine whose builds are expensive, where
    the engine bears it out: it is right on every sample with the nodes in FP32 that are accused
    there. Else None: the engine is looked into.

    Watched, TensorRT builds anew, which took 220 s for basic_pitch (B 72 s) and 354 s for
    PaddleOCR's recognition (B 439 s), whose failure then was gone; the emulation takes seconds, and
    the engine's word is a build or two."""
    spec = find_emulation(given.ctx, given.findings)
    if not spec or not given.findings.expensive:
        return None, None
    there = given.of(spec)
    plain = yield from asked(there.plain((given.findings.sample,)))
    # Each suspect is asked about with its producers, at most as expensive as a run of the whole model.
    questions = params.most_suspects * params.levels
    seconds = (plain.build_seconds + plain.run_seconds) * questions
    if plain.status != "ok" or seconds > given.findings.expensive:
        return None, None
    look: _Look = yield from _look(there, params)
    if not (look.suspects or look.spread):
        return None, None
    accused = ranges.decode(look.accused[0].nodes) if look.accused else ()
    close = tuple(sorted({*accused, *list_producers(given.index, accused)}))
    cure: _Cure | None = yield from _try_on_engine(given, close)
    return (look, cure) if cure else (None, None)


def _try_on_engine(given: Inquiry, keep: tuple[int, ...]) -> Sub[_Cure | None]:
    """What to say where the engine is right on every sample with these nodes in FP32; None where it
    is not, or there are none."""
    if not keep:
        return None
    yield Note(f"is the engine right with {len(keep)} of {len(given.index.nodes)} nodes in FP32?")
    tried: remedy.Remedy | None = yield from remedy.try_keeping(given, keep)
    if tried is None or not tried.cured:
        return None
    samples = tried.samples
    said = (
        f" That was seen in an emulation of {given.criterion.precision.upper()}, as a look into the engine takes a build. With "
        f"{len(keep)} nodes in FP32 the engine itself is right on {samples} of {samples} samples."
    )
    return _Cure(said, remedy.keep_as_workaround(given, keep, samples, tried.error))


def profile_by_depth(errors: Sequence[float]) -> str:
    """Error by depth as at most ``WIDTH`` comma-separated log10 values (the worst of each bin), -9
    for none."""
    if not errors:
        return ""
    bins = min(WIDTH, len(errors))
    worst = [
        max(errors[i * len(errors) // bins : (i + 1) * len(errors) // bins] or [0.0])
        for i in range(bins)
    ]
    return ",".join(f"{max(-9.0, min(9.0, math.log10(e))):.2f}" if e > 0 else "-9" for e in worst)


def _list_ways(ctx: StepContext) -> dict[str, str]:
    """How tensors can be watched -> engine spec, in the order to try: as asked for; then by the
    engine's listener, if it has one. What cannot be built with more outputs, or is cured by them,
    may be built with a listener."""
    spec = parse(ctx.engine)
    wanted = spec.get("observe", OUTPUTS)
    ways = {wanted: ctx.engine}
    for way, needs in (("unfused", "unfused-debug-tensors"), ("debug", "debug-tensors")):
        if wanted == OUTPUTS and ctx.can(needs):
            ways[way] = str(spec.with_option("observe", way))
    return ways


def _read_groups(ask: Inquiry) -> Sub[tuple[Group, ...]]:
    """The layers of the built engine, nothing watched, that stand for several nodes; none where it
    does not tell."""
    if not ask.ctx.can("layers"):
        return ()
    yield Note("which nodes does the engine join?")
    m = yield from asked(ask.whole((ask.findings.sample,), record=True))
    return msgspec.convert(m.facts.get("build", {}).get("groups", ()), tuple[Group, ...])


def _first_nonfinite(index: GraphIndex, inherited: dict[int, Score]) -> list[int]:
    """Tensors that hold new non-finite values although all that their node reads is still finite,
    in topological order."""
    return list(index.first_of([t for t, score in inherited.items() if score.new_nonfinite]))


def _badness_or_none(score: Score | None, ask: Inquiry) -> float | None:
    return None if score is None else badness(score, ask.criterion)


def _make_row(ask: Inquiry, tensor: int, score: Score | None) -> TensorRow:
    t = ask.index.tensors[tensor]
    node = ask.index.made_by(tensor)
    return TensorRow(
        name=t.name,
        node=ask.names([node.id])[0] if node else "",
        op=node.op if node else "",
        shape=t.shape or (),
        dtype=t.dtype,
        error=_badness_or_none(score, ask),
        inherited=_badness_or_none(score, ask),
        nonfinite=bool(score and score.new_nonfinite),
        reference_absmax=score.absmax if score else None,
    )


def _message(look: _Look, bad: int, table: Sequence[TensorRow]) -> str:
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
        return _say_spread(look, [r.error for r in table if r.error is not None])
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
        f"{ask.names([top.node])[0]} ({ask.index.nodes[top.node].op}) adds {what}: "
        f"by itself {say_part(top.own, metric, top.own_places)}, the model's outputs "
        f"{say_part(top.effect, metric, top.effect_places)} by it."
    )


def _say_spread(look: _Look, errors: Sequence[float]) -> str:
    """``errors`` of the tensors by depth."""
    quarter, metric = max(1, len(errors) // 4), look.ask.criterion.metric
    first, last = (say_amount(max(part), metric) for part in (errors[:quarter], errors[-quarter:]))
    what = "What is left of the error" if look.ask.findings.culprits else "The error"
    return (
        f"{what} is spread over many layers, and no single node makes most of it: of {PARTS} parts of the model none "
        f"makes more than {100 * max(look.shares):.0f} % of it. It grows with depth: up to {first} in the first quarter, "
        f"{last} in the last, {say_amount(look.ask.signature.error, metric)} at the outputs."
    )


def _say_joined(ask: Inquiry, group: Group) -> str:
    """What the engine computes together, as ``12 nodes: Pow, ReduceMean, ...``."""
    ops = {n.name: n.op for n in ask.index.nodes}
    kinds = dict.fromkeys(ops[n] for n in group.nodes if n in ops)
    return f"{len(group.nodes)} nodes: {', '.join(kinds)}"


def _say_beside(look: _Look, cure: "_Cure | None") -> str:
    """How the tensors were watched where it matters, and what was not looked into: sentences, each
    with a space in front."""
    seen, left = look.seen, look.left
    bodies = [n for n in look.ask.index.nodes if n.holds_graphs]
    kinds = ", ".join(sorted({n.op for n in bodies}))
    told = (
        (
            seen.failing and seen.hidden and seen.way in LISTENING,
            f" They were watched {LISTENING.get(seen.way)}: made outputs, they hid the failure or could not be built.",
        ),
        (cure, cure.said if cure else ""),
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
    version=5,
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
    sets=("suspects", "spread", "hidden", "case", "workaround"),
    labels={
        "observer": "when we look at every layer",
        "tensors": "tensors compared",
        "bad": "tensors over tolerance",
        "skipped": "could not be watched",
        "culprit": "adds the most error",
        "culprit_op": "operator",
        "first_bad": "first tensor over tolerance",
        "first_nonfinite": "first NaN or infinity",
        "emulated": "looked into in its place",
        "groups": "layers of several nodes",
        "group": "computed together with it",
        "spread": "spread over many layers",
        "harmless": "wrong but harmless",
        "left": "suspects not asked about",
    },
    json=_json,
)
