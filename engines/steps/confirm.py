"""confirm (node ``minimal-case``): the case again in fresh builds, its cause named, and whether the model fails without it."""

from typing import Any, Literal

import msgspec

from engines.compare.criterion import Verdict
from engines.compare.judge import exceed, judge_whole, over, worst, worst_run
from engines.graph import ranges
from engines.graph.index import GraphIndex
from engines.probe import Measurement
from engines.steps.base import Case, Culprit, Findings, Finish, Note, StepContext, StepRefused, Steps, StepSpec, Sub
from engines.steps.cause import Cause, Inner, name_cause
from engines.steps.foretold import Place, foretold
from engines.steps.inquiry import Inquiry, inquiry
from engines.steps.outcome import ConfirmOutcome
from engines.steps.prepare import all_feeds, fed, prepared, sign
from engines.steps.reduce import Reduced, ReduceParams, reduction, settle
from engines.steps.search import Trials
from engines.steps.statistics import interval

# A tensor that loses this part of itself when it is stored cannot be fed: rounding alone costs BF16 0.004, FP8 0.06.
LOST = 0.1


class ConfirmParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    repeats: int = 5  # fresh builds
    most_culprits: int = 8  # of the session; more nodes like one that was found are not looked at alone
    shrink_others: int = 6  # probes that go into making the case of such a node simpler
    most_patches: int = 12  # steps that a patch is walked forward past values that the precision cannot hold


def confirm(ctx: StepContext) -> Steps[ConfirmOutcome]:
    params = msgspec.convert(dict(ctx.params), ConfirmParams)
    findings = yield from prepared(ctx)
    ask: Inquiry = yield from inquiry(ctx, findings)
    case = findings.case
    files: tuple[dict[str, Any], ...] = ()
    if case is None:
        # A route that named a tactic or an optimizer comes here with no smaller model yet.
        reduced: Reduced = yield from reduction(ask, ReduceParams())
        if reduced.case is None:
            raise StepRefused(f"There is no failing case to confirm: {reduced.reason}.")
        case, files = reduced.case, reduced.files
    ask = ask.lowered(case.effect)

    seen: _Seen = yield from _looked(ask, case, params.repeats)
    case, cause = seen.case, seen.cause

    # What does not build gives no values that could be patched.
    patchable = not ctx.check and ask.signature.kind != "build"
    patches, keep, fits = (yield from walk_forward(ask, case, params.most_patches)) if patchable else ((), (), True)
    if not fits and ctx.can("keep"):
        patches = ()  # its values cannot be fed: the next round keeps its nodes in FP32 instead
        keep = yield from widened(ask, keep, params.most_patches)
    culprit = Culprit(
        case=case,
        cause=cause.name,
        evidence=cause.evidence,
        patches=ranges.encode(patches),
        keep=ranges.encode(keep),
        dir=folder(len(findings.culprits) + 1),
    )
    known = any(c.case.node_ids == case.node_ids for c in findings.culprits)
    culprits = findings.culprits if known else joined(ask.index, findings.culprits, culprit)
    after = msgspec.structs.replace(findings, case=case, culprits=culprits)
    patched: float | None = None
    still = False
    others = _Others()
    if patchable and not (findings.optimizers or findings.options or findings.tactics):
        cured = () if patches else keep
        after, patched, still = yield from _cured(ask, after, patches, cured)
        if still and cause.beyond and not known and ctx.can("keep"):
            others = yield from _others(ask, culprit, cause, params)
            culprits = _with(ask.index, culprits, culprit, others)
        if others.keep:
            after = msgspec.structs.replace(after, culprits=culprits)
            after, patched, still = yield from _cured(ask, after, patches, (*cured, *others.keep))
    feed: Literal["stored", "exact"] = "exact" if case.feed == "exact" else "stored"
    low, high = interval(seen.failures, params.repeats)
    outcome = ConfirmOutcome(
        confirmed=seen.failures > 0,
        failures=seen.failures,
        looks=params.repeats,
        interval_low=low,
        interval_high=high,
        nodes=len(case.nodes),
        nodes_before=len(ask.index.nodes),
        ops=" + ".join(case.ops),
        names=", ".join(case.nodes),
        cause=cause.name,
        evidence=cause.evidence,
        own=case.own,
        effect=case.effect,
        culprits=len(culprits),
        alike=len(others.found),
        patched_fails=still and not known,
        patched_error=patched,
        message=_message(seen, params.repeats, still, known, others),
    )
    return Finish(
        outcome,
        after,
        tables={
            "bundle": [
                {"role": "case", "culprit": len(culprits) - len(others.found), "files": seen.saved},
                *({"role": "alike", "case": o.case.node_ids, "files": o.saved} for o in others.found),
                *(f for f in files if f["role"] == "good"),
            ]
        },
        decisive={
            "whole": (ask.plain((_first_sample(findings),)),) if not ctx.check else (),
            "case": (again(ask, case, 0), *(again(ask, o.case, 0) for o in others.found)),
            "good": (ask.ask(case.good, feed=feed),) if case.good else (),
        },
    )


class _Seen(msgspec.Struct, frozen=True):
    """A case in fresh builds: in how many it failed, the files of the first, and what makes it fail."""

    case: Case
    cause: Cause
    failures: int = 0
    saved: dict[str, str] = {}


def _looked(ask: Inquiry, case: Case, repeats: int) -> Sub:
    failures, saved, inner, watched, said = yield from _again(ask, case, repeats)
    findings, storage = ask.findings, ask.ctx.engine_info.get("storage", "float32")
    suspect = next((s for s in findings.suspects if s.node in ranges.decode(case.node_ids)), None)
    cause = name_cause(findings, case, inner, storage, suspect, watched, said)
    return _Seen(msgspec.structs.replace(case, verified=f"{failures}/{repeats}"), cause, failures, saved)


class _Others(msgspec.Struct, frozen=True):
    """Where the reference foretells the same fault. ``found``: fails there too, alone, each with its nodes to keep (``keeps``);
    ``silent``: alone it is right, as the engine may compute it otherwise among others; ``beyond``: fails alone, and there are
    culprits enough; ``own``: node ids around the first culprit that its ``keep`` lacks; ``keep``: those around all."""

    found: tuple[_Seen, ...] = ()
    keeps: tuple[tuple[int, ...], ...] = ()
    silent: tuple[Place, ...] = ()
    beyond: tuple[Place, ...] = ()
    own: tuple[int, ...] = ()
    keep: tuple[int, ...] = ()


def _others(ask: Inquiry, culprit: Culprit, cause: Cause, params: ConfirmParams) -> Sub:
    """Every place of which the reference foretells the same, looked at alone."""
    inside = ranges.decode(culprit.case.node_ids)
    node = next((n for n in inside if ask.names([n])[0] == cause.beyond), None)
    if node is None:
        return _Others()
    everywhere: tuple[Place, ...] = yield from foretold(ask, ask.ctx.engine_info.get("storage", "float32"))
    op = ask.index.nodes[node].op
    places = tuple(p for p in everywhere if ask.index.nodes[p.node].op == op)
    cured = {*inside, *ranges.decode(ask.findings.keep)}
    own_keep = {n for p in places if p.node in inside for n in p.keep} - set(ranges.decode(culprit.keep))
    places = tuple(p for p in places if p.node not in cured)
    found: list[_Seen] = []
    keeps: list[tuple[int, ...]] = []
    silent: list[Place] = []
    beyond: list[Place] = []
    for place in places:
        suspect = next((s for s in ask.findings.suspects if s.node == place.node), None)
        lowered = ask.lowered(suspect.effect if suspect else None)
        trials = Trials(lowered, known={}, measured={})
        verdict: Verdict = yield from trials.test(frozenset({place.node}))
        if verdict.passed:
            silent.append(place)
        if not verdict.failed:
            continue
        if len(ask.findings.culprits) + 1 + len(found) >= params.most_culprits:
            beyond.append(place)
            continue
        shrunk = ReduceParams(verify=0, shrink_probes=params.shrink_others)
        case, _, _ = yield from settle(lowered, trials, frozenset({place.node}), True, shrunk)
        seen: _Seen = yield from _looked(lowered, msgspec.structs.replace(case, found_by="confirm"), params.repeats)
        if seen.failures:
            found.append(seen)
            keeps.append(place.keep)
    keep = own_keep.union(*keeps, *(p.keep for p in (*silent, *beyond)))
    return _Others(
        tuple(found), tuple(keeps), tuple(silent), tuple(beyond), tuple(sorted(own_keep)), tuple(sorted(keep))
    )


def _with(index: GraphIndex, culprits: tuple[Culprit, ...], first: Culprit, others: _Others) -> tuple[Culprit, ...]:
    """The culprits with those that are like the ``first``; it takes along what has no case of its own."""
    more = (*others.silent, *others.beyond)
    if more or others.own:
        around = {*ranges.decode(first.keep), *others.own, *(n for p in more for n in p.keep)}
        also = tuple(index.nodes[p.node].name or index.nodes[p.node].op for p in more)
        said = f"{first.evidence}{_kept_along(others)}"
        wider = msgspec.structs.replace(first, keep=ranges.encode(around), also=also, evidence=said)
        culprits = tuple(wider if c == first else c for c in culprits)
    for seen, keep in zip(others.found, others.keeps, strict=True):
        other = Culprit(
            case=seen.case,
            cause=seen.cause.name,
            evidence=seen.cause.evidence,
            keep=ranges.encode(keep),
            dir=folder(len(culprits) + 1),
        )
        culprits = (*culprits, other)
    return culprits


def folder(number: int) -> str:
    """Where the bundle of the culprit of that number, from 1 on, lies below the session folder."""
    return "case" if number == 1 else f"case/culprit-{number}"


def joined(index: GraphIndex, earlier: tuple[Culprit, ...], new: Culprit) -> tuple[Culprit, ...]:
    """The culprits with one more. The same cause at a neighbouring node, found on another sample, is the same culprit met further
    on (a square that overflows on one row, its sum on another): it widens what is to be kept and is not counted again."""
    nodes = set(ranges.decode(new.keep or new.case.node_ids))
    near = _neighbours(index, nodes)
    for i, old in enumerate(earlier):
        kept = set(ranges.decode(old.keep or old.case.node_ids))
        if old.cause == new.cause and kept & near:
            patches = {*ranges.decode(old.patches), *ranges.decode(new.patches)}
            wider = msgspec.structs.replace(old, keep=ranges.encode(kept | nodes), patches=ranges.encode(patches))
            return (*earlier[:i], wider, *earlier[i + 1 :])
    return (*earlier, new)


def again(ask: Inquiry, case: Case, attempt: int, save: str = "", marks: tuple[int, ...] = ()) -> Any:
    """The probe that looks at a case once more."""
    feed: Literal["stored", "exact"] = "exact" if case.feed == "exact" else "stored"
    return ask.ask(case.candidate, feed=feed, attempt=attempt, save=save, marks=marks)


def _again(ask: Inquiry, case: Case, repeats: int) -> Sub:
    """(failures, saved files, inner tensors, own error when watched, what the engine said): the case in ``repeats`` fresh builds,
    the first kept, then once with its inside watched. Where watching cures it the inner tensors say nothing and are left out;
    else the error is None."""
    failures, saved, said = 0, dict[str, str](), ""
    for attempt in range(repeats):
        yield Note(f"building the case afresh, {attempt + 1} of {repeats}")
        m: Measurement = yield again(ask, case, attempt + 1, save="confirmed" if attempt == 0 else "")
        failures += _fails(ask, case, m)
        saved = saved or dict(m.artifacts)
        said = said or (m.message if m.status != "ok" else "")
    inner: list[Inner] = []
    if not ask.ctx.check and ask.signature.kind != "build":
        nodes = ranges.decode(case.node_ids)
        made = tuple(t for n in nodes for t in ask.index.nodes[n].outputs if t >= 0 and ask.index.tensors[t].name)
        cut_at, _ = ask.index.boundary(nodes)
        # The numbers that name the cause are the model's own: those of the part as it was cut, before it was shrunk.
        cut = msgspec.structs.replace(case, candidate=msgspec.structs.replace(case.candidate, edits=()))
        yield Note("the case once more, with its inside watched")
        watched: Measurement = yield again(ask, cut, 0, marks=(*made, *cut_at))
        verdict = ask.verdict(watched)
        if watched.status == "ok" and failures and len(nodes) > 1 and ask.findings.looks == 1 and not verdict.failed:
            return failures, saved, [], verdict.own, said
        if watched.status == "ok" and watched.results:
            row = ask.row(watched)
            scores = {s.name: s for s in (*row.outputs, *row.marks)}
            for t in cut_at:
                if ask.index.tensors[t].name in scores:
                    inner.append(Inner("", "", scores[ask.index.tensors[t].name]))
            for t in made:
                node = ask.index.made_by(t)
                if node is not None and ask.index.tensors[t].name in scores:
                    reads = tuple(ask.index.tensors[r].name for r in node.reads)
                    inner.append(Inner(node.op, ask.names([node.id])[0], scores[ask.index.tensors[t].name], reads))
    return failures, saved, inner, None, said


def _fails(ask: Inquiry, case: Case, m: Measurement) -> bool:
    if case.candidate.edits and case.signature is not None:
        results = [r for run in m.each_run for r in run]
        scores = [s for r in results for s in r.outputs if s.name in case.signature.outputs]
        return any(over(s, ask.criterion) for s in scores)
    return ask.verdict(m).failed


def walk_forward(ask: Inquiry, case: Case, most: int) -> Sub:
    """(patches, keep, fits): the tensors that cut this case off when fed with reference values, the nodes up to them, and
    whether the case's own outputs could be fed at once.

    A value that the engine's storage cannot hold (an overflowing sum, an epsilon that becomes 0) cannot be fed as a patch: the
    patch moves to the outputs of its readers, and those readers join the nodes that a workaround would have to keep in higher
    precision.
    """
    index = ask.index
    nodes = set(ranges.decode(case.node_ids))
    _, leaves = index.boundary(nodes)
    patches = set(leaves)
    earlier = set(ranges.decode(ask.findings.patches))
    fits = True
    for _ in range(most):
        yield Note("the whole model, with right values put in after the case")
        m: Measurement = yield ask.whole((case.sample,), patches=patches | earlier)
        if m.status != "ok":
            break
        lost = {n for r in m.results for n in (*r.unrepresentable, *(k for k, v in r.rounded.items() if v > LOST))}
        stuck = {index.by_name[n] for n in lost if n in index.by_name} & patches
        if not stuck:
            break
        fits = False
        readers = {r for t in stuck for r in index.readers[t]}
        nodes |= readers
        patches = (patches - stuck) | {t for r in readers for t in index.nodes[r].outputs if index.readers[t]}
    return tuple(sorted(patches)), tuple(sorted(nodes)), fits


def widened(ask: Inquiry, keep: tuple[int, ...], most: int) -> Sub:
    """The nodes to keep with those beside them that overflow on other samples: the square of a sum of squares on one row, its sum
    on another. A neighbour joins when it gives non-finite values from finite ones while ``keep`` is kept.
    """
    index = ask.index
    own, earlier = set(keep), set(ranges.decode(ask.findings.keep))
    for _ in range(most):
        yield Note("the whole model, with the case kept in higher precision")
        m: Measurement = yield ask.whole(all_feeds(ask.findings), keep=own | earlier)
        if m.status != "ok" or judge_whole(m, ask.criterion).passed:
            break
        sample = worst(m.results, ask.criterion)[0]
        near = _neighbours(index, own) - own - earlier
        marks = {t for n in near for t in (*index.nodes[n].outputs, *index.nodes[n].reads)}
        made = {t for t in marks if index.tensors[t].producer >= 0}
        seen: Measurement = yield ask.whole(
            (_fed(ask.findings, sample),), keep=own | earlier, marks=ranges.encode(made)
        )
        if seen.status != "ok":
            break
        broken = {index.by_name[s.name] for r in seen.results for s in (*r.marks, *r.outputs) if s.new_nonfinite}
        fresh = {
            n
            for n in near
            if broken.intersection(index.nodes[n].outputs) and not broken.intersection(index.nodes[n].reads)
        }
        if not fresh:
            break
        own |= fresh
    return tuple(sorted(own))


def _neighbours(index: GraphIndex, nodes: set[int]) -> set[int]:
    """The nodes that make what these read or read what these make, and these."""
    feeds, leaves = index.boundary(nodes)
    made = {index.tensors[t].producer for t in feeds if index.tensors[t].producer >= 0}
    return nodes | made | {r for t in leaves for r in index.readers[t]}


def _cured(ask: Inquiry, findings: Findings, patches: tuple[int, ...], keep: tuple[int, ...]) -> Sub:
    """Does the whole model still fail once every culprit so far is cured? If so: lock what the next round looks for."""
    before = ask.findings
    all_patches = {*patches, *ranges.decode(before.patches)}
    all_kept = {*keep, *ranges.decode(before.keep)}
    yield Note("does the model still fail without this case?")
    m: Measurement = yield ask.whole(all_feeds(findings), patches=all_patches, keep=all_kept)
    if m.status != "ok":
        return findings, None, False
    m = worst_run(ask.unpatched(m, all_patches), ask.criterion)
    sample, _, error = worst(m.results, ask.criterion)
    still = exceed(m.results, ask.criterion)
    after = msgspec.structs.replace(findings, patches=ranges.encode(all_patches), keep=ranges.encode(all_kept))
    if not still or findings.signature is None:
        return after, error, still
    result, feed = next(r for r in m.results if r.sample == sample), _fed(findings, sample)
    if feed == sample and "/" in sample:
        # A row may fail in its batch only; then the batch is what the next round searches on.
        yield Note(f"does {sample} still fail alone?")
        alone: Measurement = yield ask.whole((sample,), patches=all_patches, keep=all_kept)
        by_itself = worst_run(ask.unpatched(alone, all_patches), ask.criterion)
        if alone.status == "ok" and exceed(by_itself.results, ask.criterion):
            result = by_itself.results[0]
        else:
            feed = sample.partition("/")[0]
    signature = sign(result, ask.criterion, sample)
    return msgspec.structs.replace(after, round_signature=signature, sample=feed), error, still


def _fed(findings: Findings, sample: str) -> str:
    """What to feed for a scored sample: its row alone where the search feeds rows alone, else the feed that holds it."""
    return fed(findings, sample) if "/" in findings.sample else sample.partition("/")[0]


def _first_sample(findings: Findings) -> str:
    """The sample that the first culprit was found on."""
    return findings.culprits[0].case.sample if findings.culprits else findings.sample


def _message(seen: _Seen, looks: int, still: bool, known: bool, others: _Others) -> str:
    also = ""
    if known:
        also = " This case was found before: patching it did not make the rest pass."
    elif still:
        also = " With it patched by reference values the model still fails: there is another culprit."
    nodes = seen.case.nodes
    size = f"{len(nodes)} node fails" if len(nodes) == 1 else f"{len(nodes)} nodes fail"
    return f"{size} in {seen.failures} of {looks} fresh builds. {seen.cause.evidence}{_alike(others)}{also}"


def _alike(others: _Others) -> str:
    """Where the same was found or is to be expected, sentences with a space in front; empty where nowhere."""
    said = ""
    if others.found:
        names = ", ".join(o.case.nodes[0] for o in others.found)
        said = f" The same is wrong at {len(others.found)} more, each a case of its own: {names}."
    return said + _kept_along(others)


def _kept_along(others: _Others) -> str:
    said = ""
    for places, why in ((others.silent, "alone they are right"), (others.beyond, "there are cases enough")):
        if places:
            nodes = "1 more node of that kind goes" if len(places) == 1 else f"{len(places)} more nodes of that kind go"
            said += f" {nodes} as far in the reference; {why}, so in FP32 they are tried together with it."
    return said


SPEC = StepSpec(
    name="confirm",
    version=3,
    summary="Build the case afresh several times, name its cause, and see whether the model still fails without it.",
    run=confirm,
    outcome=ConfirmOutcome,
    params=ConfirmParams,
    exclusive=True,
)
