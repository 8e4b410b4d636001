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
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.asking.oracle import Oracle, make_oracle
from narrowdown.engines.asking.question import Question
from narrowdown.engines.compare.judge import badness, judge_whole, limit
from narrowdown.engines.compare.say import say_amount, say_part, wrong_by
from narrowdown.engines.findings import Suspect, Workaround
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.probe import Measurement, Score
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
from narrowdown.engines.search.alone import pack_alone
from narrowdown.engines.search.emulation import find_emulation
from narrowdown.engines.search.twin import asking_twin, find_twin
from narrowdown.engines.search.watchable import BATCH_BYTES, pack_batches, split_markable
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

# A listener that was asked for is given up after this many deaths of the worker, one that is tried
# by itself after the first. TensorRT 10.6's builder dies of most sets of debug tensors, at ten
# seconds each.
DEATHS = 4
# Questions to an emulation that a look at every layer asks, each as dear as a run of the whole
# model at most.
QUESTIONS = 180
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


class _Watched(msgspec.Struct):
    """What the marked runs saw; filled batch by batch."""

    inherited: dict[int, Score] = {}
    skipped: list[int] = []
    failing: int = 0
    ran: int = 0
    watched: int = 0  # tensors in runs that worked
    reason: str = ""
    way: str = "outputs"  # in which the failure showed last
    hidden: bool = False  # watched in another way, some of it did not show


class _Look(msgspec.Struct):
    """What a look at every layer found. ``ask``: of the engine that was looked into; ``shares``:
    see ``measure_shares``."""

    ask: Inquiry
    seen: _Watched
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


def layerwise(ctx: StepContext) -> Steps[LayerwiseOutcome]:
    params = msgspec.convert(dict(ctx.params), LayerwiseParams)
    findings = yield from prepare_findings(ctx)
    given: Inquiry = yield from open_inquiry(ctx, findings)
    look, cure = yield from _look_at_emulation(given, params)
    if look is None:
        findings = yield from find_twin(ctx, findings)
        given = given.knowing(findings)
        look = yield from _look(asking_twin(given), params)
        if findings.twin and not look.seen.failing:
            # The twin's kernels are others: watching may cure these and not the engine's own.
            look = yield from _look(given, params)
    ask, seen, rows = look.ask, look.seen, look.rows
    suspects = () if look.spread else look.suspects  # each of them is one of many alike
    groups = (yield from _read_groups(given)) if suspects and cure is None else ()
    joined = {name: group for group in groups for name in group.nodes}
    layer_of = {name: group.layer for name, group in joined.items()}
    table = [
        msgspec.structs.replace(rows[t], group=layer_of.get(rows[t].node, "")) for t in sorted(rows)
    ]
    bad = [r for r in table if r.error is not None and r.error > limit(ask.criterion, r.name)]
    first_bad = bad[0] if bad else None
    top = suspects[0] if suspects else None
    largest = max(look.shares) if look.spread else None
    outcome = LayerwiseOutcome(
        observer=look.observer,
        tensors=len(seen.inherited),
        bad=len(bad),
        skipped=len(seen.skipped),
        culprit=ask.names([top.node])[0] if top else "",
        culprit_op=ask.index.nodes[top.node].op if top else "",
        first_bad=first_bad.name if first_bad else "",
        first_nonfinite=next((r.name for r in table if r.first_nonfinite), ""),
        inherited=top.inherited if top else None,
        added=top.added if top else None,
        effect=top.effect if top else None,
        spread=look.spread,
        largest_part=largest,
        harmless=look.harmless,
        left=look.left,
        emulated=ask.ctx.engine if cure else "",
        profile=profile_by_depth([r.error for r in table if r.error is not None]),
        groups=len(groups),
        group=_say_joined(ask, top, joined),
        reason=seen.reason,
        message=_message(look.observer, top, largest, ask, table, seen)
        + _say_watched(seen)
        + (cure.said if cure else "")
        + _say_left(look.left)
        + say_left_out(ask.index, len(seen.skipped)),
    )
    return Finish(
        outcome,
        msgspec.structs.replace(
            findings,
            suspects=suspects,
            spread=look.spread,
            hidden=look.observer == "improves",
            case=None,
            workaround=cure.workaround if cure else findings.workaround,
        ),
        tables={"tensors": table, "groups": groups} if groups else {"tensors": table},
    )


def _look(ask: Inquiry, params: LayerwiseParams) -> Sub[_Look]:
    """Every tensor watched, and where the failure is still there the nodes whose own error reaches
    the outputs."""
    seen: _Watched = yield from _watch_tensors(ask, params)
    rows = {t: _make_row(ask, t, s) for t, s in seen.inherited.items()}
    look = _Look(ask, seen, rows)
    if look.observer == "reproduces":
        oracle = make_oracle(ask)
        added = yield from _measure_added(oracle, params, seen)
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
        look.suspects, verdicts, look.left = accused.suspects, accused.verdicts, accused.left
        look.harmless = sum(reason == "harmless" for reason in verdicts.values())
        for node, reason in verdicts.items():
            for t in ask.index.nodes[node].outputs:
                if t in rows:
                    rows[t] = msgspec.structs.replace(rows[t], harmless=reason == "harmless")
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
    """A look at the emulation of the precision in place of an engine whose builds are dear, where
    the engine bears it out: it is right on every sample with the nodes in FP32 that are accused
    there. Else None: the engine is looked into.

    Watched, TensorRT builds anew, which took 220 s for basic_pitch (B 72 s) and 354 s for
    PaddleOCR's recognition (B 439 s), whose failure then was gone; the emulation takes seconds, and
    the engine's word is a build or two."""
    spec = find_emulation(given.ctx, given.findings)
    if not spec or not given.findings.dear:
        return None, None
    there = given.of(spec)
    plain = yield from asked(there.plain((given.findings.sample,)))
    if (
        plain.status != "ok"
        or (plain.build_seconds + plain.run_seconds) * QUESTIONS > given.findings.dear
    ):
        return None, None
    look: _Look = yield from _look(there, params)
    if not (look.suspects or look.spread):
        return None, None
    accused = () if look.spread else ranges.decode(look.suspects[0].nodes)
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


def _watch_tensors(ask: Inquiry, params: LayerwiseParams) -> Sub[_Watched]:
    """Marked runs, batch by batch; a batch that cannot run is halved to find what cannot be
    marked."""
    can, cannot = split_markable(ask.index)
    seen = _Watched(inherited={}, skipped=list(cannot))
    # What earlier culprits fed is patched: only what still reaches the outputs is of interest.
    live = set(ask.everything)
    can = tuple(t for t in can if ask.index.tensors[t].producer in live)
    # Where nothing lies between inputs and outputs, the model as it is says all that watching
    # could.
    todo = [(b, params.splits) for b in pack_batches(ask.index, can, params.batch_bytes) or [()]]
    ways = _list_ways(ask.ctx)
    asked = next(iter(ways))
    deaths = 0
    while todo:
        batch, splits = todo.pop(0)
        ran = failed = blind = False
        for way, engine in tuple(ways.items()):
            yield Note(f"watching {len(batch)} tensors in one run")
            marks = ranges.encode(batch)
            m: Measurement = yield from ask.repeated(
                lambda attempt, marks=marks, engine=engine: ask.whole(  # type: ignore[misc]
                    (ask.findings.sample,), marks=marks, engine=engine, attempt=attempt
                ),
                lambda m: judge_whole(ask.unpatched(m), ask.criterion),
            )
            if m.status != "ok":
                seen.reason = seen.reason or m.message
                deaths += m.status == "crash" and way != "outputs"
                if m.status == "crash" and way != "outputs" and (way != asked or deaths >= DEATHS):
                    del ways[way]
                continue
            if blind := bool(batch) and not any(r.marks for r in m.results):
                seen.reason = seen.reason or "it gives out none of the tensors that were marked."
                continue
            ran = True
            # What cures the failure says nothing about its tensors: what it saw is left out.
            if failed := judge_whole(ask.unpatched(m), ask.criterion).failed:
                seen.failing += 1
                seen.way = way
                row = ask.row(ask.unpatched(m))
                scores = (*row.marks, *row.outputs)
                seen.inherited.update(
                    (ask.index.by_name[s.name], s) for s in scores if s.name in ask.index.by_name
                )
                break
        seen.ran += ran
        seen.watched += len(batch) if ran else 0
        seen.hidden |= not failed or seen.way != asked
        if not ran and not blind and ways and splits > 0 and len(batch) > 1:
            middle = len(batch) // 2
            todo[:0] = [(batch[:middle], splits - 1), (batch[middle:], splits - 1)]
        elif not ran:
            seen.skipped.extend(batch)
    return seen


def _list_ways(ctx: StepContext) -> dict[str, str]:
    """How tensors can be watched -> engine spec, in the order to try: as asked for; then by the
    engine's listener, if it has one. What cannot be built with more outputs, or is cured by them,
    may be built with a listener."""
    spec = parse(ctx.engine)
    asked = spec.get("observe", "outputs")
    ways = {asked: ctx.engine}
    for way, needs in (("unfused", "unfused-debug-tensors"), ("debug", "debug-tensors")):
        if asked == "outputs" and ctx.can(needs):
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


def _measure_added(
    oracle: Oracle, params: LayerwiseParams, seen: _Watched
) -> Sub[dict[int, tuple[Score, Score | None]]]:
    """Each node alone, fed reference values: all nodes of a batch in one build, with every edge
    between them severed."""
    index, live = oracle.index, set(oracle.live)
    added: dict[int, tuple[Score, Score | None]] = {}
    outputs = [
        t for t in sorted({*seen.inherited, *index.outputs}) if index.tensors[t].producer in live
    ]
    todo = [(b, params.splits) for b in pack_alone(index, outputs, params.batch_bytes // 2)]
    while todo:
        batch, splits = todo.pop(0)
        nodes = frozenset(index.tensors[t].producer for t in batch)
        yield Note(f"{len(nodes)} nodes, each alone, fed reference values")
        question = Question(nodes, outputs=batch, alone=True)
        stored: Answer = yield from oracle.ask(question)
        exact: Answer = yield from oracle.ask(msgspec.structs.replace(question, feed="exact"))
        if not stored.scores:
            middle = len(batch) // 2
            todo[:0] = [
                (b, splits - 1) for b in (batch[:middle], batch[middle:]) if splits > 0 and middle
            ]
        for name, score in stored.scores.items():
            added[index.by_name[name]] = (score, exact.scores.get(name))
    return added


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


def _message(
    observer: str,
    top: Suspect | None,
    largest: float | None,
    ask: Inquiry,
    table: Sequence[TensorRow],
    seen: _Watched,
) -> str:
    """``largest``: the largest share that a part has in a failure that is spread; None where it is
    not."""
    metric = ask.criterion.metric
    if observer == "cannot-run":
        return f"The model cannot run while every layer is looked at: {seen.reason}"
    if observer == "improves":
        return (
            f"While we look at {seen.watched} of its tensors, the model no longer fails; it was "
            f"{wrong_by(ask.signature.error, ask.signature.metric)}. Looking changes what the engine does."
        )
    if largest is not None:
        errors = [r.error for r in table if r.error is not None]
        quarter = max(1, len(errors) // 4)
        what = "What is left of the error" if ask.findings.culprits else "The error"
        return (
            f"{what} is spread over many layers, and no single node makes most of it: of {PARTS} parts of the model none "
            f"makes more than {100 * largest:.0f} % of it. It grows with depth: up to "
            f"{say_amount(max(errors[:quarter]), metric)} in the first quarter, "
            f"{say_amount(max(errors[-quarter:]), metric)} in the last, "
            f"{say_amount(ask.signature.error, metric)} at the outputs."
        )
    if top is None:
        bad = sum(r.error > limit(ask.criterion, r.name) for r in table if r.error is not None)
        return f"{'1 tensor differs' if bad == 1 else f'{bad} tensors differ'}, but no node by itself makes the outputs wrong."
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


def _say_left(left: int) -> str:
    """That not every suspect was asked about, one sentence with a space in front."""
    if not left:
        return ""
    others = f"{left} more suspects were" if left > 1 else "one more suspect was"
    return f" The step was ended here: {others} not asked about, so another node may add more."


def _say_watched(seen: _Watched) -> str:
    """How the tensors were watched where it matters, one sentence with a space in front."""
    how = {
        "debug": "by a listener (observe=debug)",
        "unfused": "by a listener, layers fused as ever (observe=unfused)",
    }
    if not seen.failing or seen.way not in how or not seen.hidden:
        return ""
    return f" They were watched {how[seen.way]}: made outputs, they hid the failure or could not be built."


def _say_joined(ask: Inquiry, top: Suspect | None, joined: Mapping[str, Group]) -> str:
    """What the engine computes together with the culprit, as ``12 nodes: Pow, ReduceMean, ...``;
    empty where it stands alone."""
    name = ask.index.nodes[top.node].name if top else ""
    if name not in joined:
        return ""
    ops = {n.name: n.op for n in ask.index.nodes}
    nodes = joined[name].nodes
    kinds = dict.fromkeys(ops[n] for n in nodes if n in ops)
    return f"{len(nodes)} nodes: {', '.join(kinds)}"


def say_left_out(index: GraphIndex, skipped: int) -> str:
    """What was not looked into, one sentence for each kind, with a space in front; empty where that
    is nothing."""
    bodies = [n for n in index.nodes if n.holds_graphs]
    inside = f" {len(bodies)} of its nodes ({', '.join(sorted({n.op for n in bodies}))}) hold graphs of their own, left whole."
    unseen = f" {skipped} tensors hold no numbers (sequences, strings) or cannot be marked, and were not watched."
    return (inside if bodies else "") + (unseen if skipped else "")


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
