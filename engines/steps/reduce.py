"""reduce: the smallest part of the model that still fails in the same way, with proof at both ends."""

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from engines.compare.criterion import Signature, Verdict
from engines.compare.judge import badness, judge_whole, over
from engines.graph import ranges
from engines.graph.index import GraphIndex
from engines.graph.shapelike import deciding
from engines.probe import HUGE, Candidate, Edit, Measurement
from engines.steps.base import Case, Finish, Note, StepContext, Steps, StepSpec, Sub
from engines.steps.inquiry import Inquiry, inquiry
from engines.steps.outcome import ReduceOutcome
from engines.steps.prepare import prepared
from engines.steps.search import NodeIds, Trials, minimise, one_minimal

# Values that a fed tensor is filled with, to see whether the fault needs its own: the last one squares past what FP16 holds.
SIMPLE = (1.0, -1.0, 300.0)
CODES = ("int8", "uint8")  # of quantized weights; other integers are indices and shapes
# Bytes of weights that the passing neighbour is kept with: it only stands beside the case, which is kept whatever it weighs.
HEAVIEST_GOOD = 256 << 20


class ReduceParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    search: str = "bisect"  # or "linear": no cuts by node order, delta debugging over everything
    verify: int = 3  # fresh builds of the result
    shrink: bool = True  # whether shapes, values and attributes of the result are made simpler too
    shrink_probes: int = 32  # that this may take


class Reduced(msgspec.Struct, frozen=True):
    """A search's result, verified or not. ``case`` is None where the full model did not fail."""

    case: Case | None
    verdict: str  # reduced | not-reproduced | unresolved
    reason: str = ""
    probes: int = 0
    verifications: int = 0
    unresolved: dict[str, int] = {}
    files: tuple[dict[str, Any], ...] = ()  # rows of the table "bundle"


def reduce(ctx: StepContext) -> Steps[ReduceOutcome]:
    params = msgspec.convert(dict(ctx.params), ReduceParams)
    findings = yield from prepared(ctx)
    if findings.signature is None:
        return Finish(
            ReduceOutcome(
                verdict="not-reproduced", reason="the model passes here", message="The model passes: nothing to reduce."
            ),
            findings,
        )
    ask: Inquiry = yield from inquiry(ctx, findings)
    reduced: Reduced = yield from reduction(ask, params)
    case = reduced.case
    outcome = ReduceOutcome(
        verdict=reduced.verdict,  # type: ignore[arg-type]
        nodes_before=len(ask.index.nodes),
        nodes_after=len(case.nodes) if case else 0,
        ops=" + ".join(case.ops) if case else "",
        names=", ".join(case.nodes) if case else "",
        own=case.own if case else None,
        effect=case.effect if case else None,
        probes=reduced.probes,
        verifications=reduced.verifications,
        unresolved=sum(reduced.unresolved.values()),
        verified=case.verified if case else "",
        minimal=case.minimal if case else False,
        reason=reduced.reason or ", ".join(f"{k} {v}" for k, v in sorted(reduced.unresolved.items())),
        message=_message(reduced, ask),
    )
    return Finish(
        outcome,
        msgspec.structs.replace(findings, case=case if reduced.verdict == "reduced" else None),
        tables={"bundle": list(reduced.files), "unresolved": [reduced.unresolved] if reduced.unresolved else []},
        decisive={"case": (ask.ask(case.candidate),)} if case else {},
    )


def reduction(ask: Inquiry, params: ReduceParams, start: NodeIds | None = None) -> Sub:
    """Prove the ends, search from ``start`` (default the whole model), shrink, verify. Returns Reduced."""
    trials = Trials(ask, known={}, measured={})
    whole = frozenset(ask.everything)
    yield Note("the whole model must fail, and the reference must pass")
    verdict: Verdict = yield from trials.test(whole)
    if not verdict.failed:
        if verdict.passed and ask.signature.kind == "crash":
            # It is no longer known whether its results are right: they never came.
            died = "the engine took its process down on the whole model once, and not when looked at again"
            return Reduced(None, "unresolved", died, 0, 1, trials.unresolved())
        reason = "the whole model passes, looked at again" if verdict.passed else verdict.detail or verdict.reason
        return Reduced(None, "not-reproduced" if verdict.passed else "unresolved", reason, 0, 1, trials.unresolved())
    verifications = 1
    if not ask.ctx.check and ask.signature.kind == "accuracy":
        control: Measurement = yield ask.plain((ask.findings.sample,), engine=ask.ctx.reference)
        verifications += 1
        if not judge_whole(control, ask.criterion).passed:
            return Reduced(None, "unresolved", "the reference does not agree with itself", 0, verifications)
    if start is not None and not (yield from trials.test(start)).failed:
        start = None
    nodes: NodeIds = yield from minimise(trials, start or whole, cuts=params.search != "linear")
    probes = trials.count - 1
    fixed = ask.index.from_weights.intersection(t for n in nodes for t in ask.index.nodes[n].outputs)
    if fixed and len(nodes) > 1:
        # What makes constants is not needed where the engine is given these; fed as inputs they would not be folded and fused.
        frozen = Trials(msgspec.structs.replace(ask, frozen=fixed), known={}, measured={})
        smaller: NodeIds = yield from minimise(frozen, nodes, cuts=False)
        probes += frozen.count
        if len(smaller) < len(nodes):
            ask, trials, nodes = frozen.ask, frozen, smaller
    searched = trials.count
    minimal: bool = yield from one_minimal(trials, nodes)
    verifications += trials.count - searched
    case, files, spent = yield from settle(ask, trials, nodes, minimal, params)
    again = params.verify == 0 or not case.verified.startswith("0/")
    looks = case.verified.partition("/")[2]
    reason = "" if again else f"what was left failed once, and in none of {looks} fresh builds"
    spent += verifications
    return Reduced(
        case, "reduced" if again else "unresolved", reason, probes, spent, trials.unresolved(), files
    )  # fmt: skip


def settle(ask: Inquiry, trials: Trials, nodes: NodeIds, minimal: bool, params: ReduceParams) -> Sub:
    """Turn a failing node set into a case: exact feed beside stored, shrinks, k of n fresh builds, a passing
    neighbour, files."""
    spent = 0
    candidate = ask.candidate(nodes)
    first = trials.known[nodes]
    needs_higher = False
    if ask.feed == "stored" and not ask.ctx.check and ask.signature.kind == "accuracy":
        yield Note("what is left, fed values that were not rounded", best=len(nodes))
        exact: Measurement = yield ask.ask(candidate, feed="exact")
        spent += 1
        needs_higher = ask.verdict(exact).passed
    signature = _own_signature(ask, trials.measured[nodes], first)
    if params.shrink and not ask.ctx.check and signature is not None and signature.kind == "accuracy":
        candidate, shrunk = yield from shrink(ask, candidate, nodes, signature, params.shrink_probes)
        spent += shrunk
    files: list[dict[str, Any]] = []
    failures = 0
    # Where builds differ, more of them, and none that the search has seen.
    looks, seen = max(params.verify, ask.findings.builds) if params.verify else 0, ask.findings.builds
    for attempt in range(seen, seen + looks):
        yield Note(f"what is left in fresh builds, {attempt - seen + 1} of {looks}", best=len(nodes))
        again: Measurement = yield ask.ask(candidate, attempt=attempt, save="case" if attempt == seen else "")
        failures += _still(ask, again, candidate, signature)
        spent += 1
        if attempt == seen:
            files.append({"role": "case", "files": dict(again.artifacts)})
    good = trials.good(nodes)
    good_candidate = ask.candidate(good) if good else None
    if good_candidate is not None:
        yield Note("the largest part that passes, once more", best=len(nodes))
        heavy = weights(ask.index, ranges.decode(good_candidate.nodes)) > HEAVIEST_GOOD
        kept: Measurement = yield ask.ask(good_candidate, attempt=seen, save="" if heavy else "good")
        spent += 1
        if ask.verdict(kept).passed:
            files.append({"role": "good", "files": {} if heavy else dict(kept.artifacts)})
        else:
            good_candidate = None
    feeds, leaves = ask.index.boundary(nodes)
    case = Case(
        candidate=candidate,
        sample=ask.findings.sample,
        nodes=ask.names(sorted(nodes)),
        node_ids=ranges.encode(nodes),
        ops=ask.ops(sorted(nodes)),
        inputs=tuple(ask.index.tensors[t].name for t in feeds),
        outputs=tuple(ask.index.tensors[t].name for t in leaves),
        own=first.own or 0.0,
        effect=first.effect,
        feed=ask.feed,
        needs_higher_inputs=needs_higher,
        good=good_candidate,
        verified=f"{failures}/{looks}",
        signature=signature,
        minimal=minimal,
        found_by="reduce",
    )
    return case, tuple(files), spent


def shrink(ask: Inquiry, candidate: Candidate, nodes: NodeIds, signature: Signature, budget: int) -> Sub:
    """Simplify what is left of a case, one edit at a time, as long as it keeps failing like itself. Returns (candidate,
    probes)."""
    spent = 0
    for edit_set in _edits(ask, nodes):
        if spent >= budget:
            break
        done = {(e.kind, e.tensor, e.axis, e.node, e.attribute) for e in candidate.edits}
        if done.intersection((e.kind, e.tensor, e.axis, e.node, e.attribute) for e in edit_set):
            continue  # a stronger edit of the same thing has held
        trial = msgspec.structs.replace(candidate, edits=(*candidate.edits, *edit_set))
        yield Note("can what is left be made simpler?", best=len(nodes))
        m: Measurement = yield ask.ask(trial)
        spent += 1
        if _still(ask, m, trial, signature):
            candidate = trial
    return candidate, spent


def _edits(ask: Inquiry, nodes: NodeIds) -> list[tuple[Edit, ...]]:
    """Shrinks worth trying, most worth first: dimensions that fed tensors and weights share, down to 1 (then by half), then
    simple values for what is fed and for weights, then attributes left to their defaults.

    Of a batch the rows around the one that fails are kept."""
    index = ask.index
    row = ask.signature.sample.partition("/")[2] if "/" not in ask.findings.sample else ""
    forming = deciding(index, nodes)  # of other values a result may not fit into memory
    feeds = tuple(t for t in index.boundary(nodes)[0] if t not in forming)
    read = sorted({t for n in nodes for t in index.nodes[n].reads if index.tensors[t].kind == "weight"} - forming)
    weights = [t for t in read if index.tensors[t].floating or index.tensors[t].dtype in CODES]
    edits: list[tuple[Edit, ...]] = []
    # Sizes that are equal mostly are one dimension of the graph: of what is fed and of weights, else of what is fed alone.
    all_axes, fed_axes = _axes(index, (*feeds, *weights)), _axes(index, feeds)
    for size, places in sorted(all_axes.items(), key=lambda item: -item[0]):
        for of in dict.fromkeys((tuple(places), tuple(fed_axes.get(size, ())))):
            edits += [
                tuple(
                    _rows(t, axis, n, min(int(row or 0), size - n) if t in feeds and not axis else 0) for t, axis in of
                )
                for n in dict.fromkeys((1, size // 2) if of else ())
            ]
    large = [t for t in read if math.prod(index.tensors[t].shape or ()) > 1]
    floating = [t for t in (*feeds, *large) if index.tensors[t].floating]
    edits += [(Edit("fill", tensor=t, value=value),) for t in floating for value in SIMPLE]
    edits += [(Edit("drop-attribute", node=n, attribute=a),) for n in sorted(nodes) for a in index.nodes[n].attributes]
    return edits


def _axes(index: GraphIndex, tensors: Iterable[int]) -> dict[int, list[tuple[int, int]]]:
    """Size -> (tensor, axis) of all dimensions of that size; 1 is left out."""
    axes: dict[int, list[tuple[int, int]]] = {}
    for t in tensors:
        for axis, size in enumerate(index.tensors[t].shape or ()):
            if size > 1:
                axes.setdefault(size, []).append((t, axis))
    return axes


def _rows(tensor: int, axis: int, kept: int, start: int) -> Edit:
    return Edit("keep-rows", tensor=tensor, axis=axis, value=float(kept), start=start)


def _own_signature(ask: Inquiry, m: Measurement, verdict: Verdict) -> Signature | None:
    """The case's own signature: its outputs and its error; what check.py and every shrink must keep. What crashes or does not
    build has no errors: there it is the whole model's."""
    if ask.signature.kind in ("build", "crash"):
        return ask.signature
    if not isinstance(m, Measurement) or not m.results:
        return None
    scores = ask.row(m).outputs
    failing = {s.name: badness(s, ask.criterion) for s in scores if over(s, ask.criterion)}
    return (
        Signature(
            kind="accuracy",
            sample=ask.findings.sample,
            outputs=tuple(failing),
            errors=failing,
            nonfinite=any(s.new_nonfinite for s in scores),
            metric=ask.criterion.metric,
            tolerance=ask.criterion.tolerance,
        )
        if verdict.failed
        else None
    )


def _still(ask: Inquiry, m: Measurement, candidate: Candidate, signature: Signature | None) -> bool:
    """Whether a case fails like itself: by own error and effect, or, once edited, by its own signature."""
    if not candidate.edits or signature is None:
        return ask.verdict(m).failed
    if m.status != "ok" or not m.results:
        return False
    scores = {s.name: s for s in ask.row(m).outputs}
    same = [scores[n] for n in signature.outputs if n in scores]
    errors = [badness(s, ask.criterion) for s in same]
    worst = max(errors, default=0.0)
    return (
        any(over(s, ask.criterion) for s in same)
        and worst >= min(signature.error, 1.0) / 10
        and any(s.new_nonfinite > 0 for s in same) == signature.nonfinite
        and (worst >= HUGE) == (signature.error >= HUGE)  # a reference of zeros makes any error infinitely large
    )


def weights(index: GraphIndex, nodes: Iterable[int]) -> int:
    """Bytes of the weights that the nodes read, each counted once."""
    read = {t for n in nodes for t in index.nodes[n].reads}
    return sum(max(0, index.tensors[t].bytes) for t in read if index.tensors[t].kind == "weight")


def _message(reduced: Reduced, ask: Inquiry) -> str:
    if reduced.case is None:
        return f"Nothing to reduce: {reduced.reason}."
    case = reduced.case
    if reduced.verdict != "reduced":
        return f"No smaller part is certain: {reduced.reason}."
    more = " It needs its inputs in higher precision: fed exactly it passes." if case.needs_higher_inputs else ""
    fail = "fails" if len(case.nodes) == 1 else "fail"
    size = f"{len(case.nodes)} of {len(ask.index.nodes)} nodes {fail}"
    whole = left_whole(ask.index, ranges.decode(case.node_ids))
    return f"{size} in the same way ({case.verified} fresh builds).{more}{whole}"


def left_whole(index: GraphIndex, nodes: Iterable[int]) -> str:
    """What a case holds that is not taken apart further, as a sentence with a space in front; empty where that is nothing."""
    bodies = [index.nodes[n].op for n in nodes if index.nodes[n].holds_graphs]
    return f" The graph inside its {bodies[0]} is left whole." if bodies else ""


SPEC = StepSpec(
    name="reduce",
    version=4,
    summary="Search for the smallest part of the model that still fails in the same way.",
    run=reduce,
    outcome=ReduceOutcome,
    params=ReduceParams,
)
