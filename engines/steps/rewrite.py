"""rewrite: does the model come right when it is written otherwise? Each rewrite is tried, held to
the reference, priced, and seen not to be undone by the engine's own optimizers."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, Note, StepContext, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.compare.criterion import Criterion
from narrowdown.engines.compare.judge import by_sample, judge_whole, margin, worst
from narrowdown.engines.compare.say import say_most
from narrowdown.engines.findings import Unseen, Workaround
from narrowdown.engines.graph import ranges
from narrowdown.engines.nearest import join_some
from narrowdown.engines.probe import APART, BARRIER, FIXED_SIZES, HUGE, WRAPS, Measure, Measurement
from narrowdown.engines.search.barriers import Barriers, find_barriers, list_rings
from narrowdown.engines.search.latency import measure_seconds, say_seconds
from narrowdown.engines.search.rewrites import (
    Rewrite,
    find_rewrite,
    list_rewrites,
)
from narrowdown.engines.search.settle import Saved
from narrowdown.engines.search.switches import list_switches
from narrowdown.engines.search.unseen import Basis, Tried, count_plain, set_apart, try_unseen
from narrowdown.engines.search.whole import list_feeds
from narrowdown.engines.steps.base import (
    BUILDS_MODELS,
    PASSES,
    Finish,
    Steps,
    StepSpec,
    comparison,
    unresolved,
)
from narrowdown.engines.steps.prepare import prepare_findings

CLEARLY = 0.9  # times the seconds of a run: what is less than that faster is as fast, for all that a busy machine shows
BUILDS = 2  # fresh builds that must pass, as of any workaround: the second is no accident where builds choose alike


class RewriteOutcome(msgspec.Struct, frozen=True, kw_only=True):
    # cures: one makes every sample pass; undone: one would, and the engine's optimizers take
    # it back
    verdict: Literal["cures", "undone", "none", "passes", "unresolved"] = "unresolved"
    rewrite: str = ""  # the one that cures
    what: str = ""  # what is done, in words
    changed: int = 0  # nodes that it changes
    tried: int = 0  # rewrites that found something to do
    left: int = 0  # rewrites that were not tried
    samples_ok: int = 0
    samples: int = 0
    unseen_ok: int = 0  # right, of the samples that it was not made on
    unseen: int = 0  # that it was not made on
    error: float | None = None
    tolerance: float = 0.0
    exact: float | None = None  # what the reference's own answer moves by
    cost: str = ""  # what it does to time, one phrase
    kept: int = 0  # nodes that the other workaround keeps in FP32
    message: str = ""


class RewriteParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    budget: Count = 0  # rewrites that are tried; 0: all


class RewriteRow(msgspec.Struct, frozen=True):
    """A row of the table ``rewrites``."""

    rewrite: str  # its name
    # undone: by the engine's optimizers
    verdict: Literal["cures", "undone", "fails", "inexact", "nothing to do", "not run"]
    changed: tuple[str, ...] = ()  # nodes that it changes
    exact: float | None = None  # what the reference's own answer moves by
    error: float | None = None  # of the engine with it
    samples_ok: int = 0  # tuning samples that pass
    samples_n: int = 0  # of so many
    held_out_ok: int = 0  # held-out samples that pass
    held_out_n: int = 0  # of so many
    seconds: float | None = None  # of a run with it; `null` where times say nothing
    before: float | None = None  # of a run without it
    why: str = ""  # it does not do


def rewrite(ctx: StepContext) -> Steps[RewriteOutcome]:
    params = msgspec.convert(dict(ctx.params), RewriteParams)
    findings = yield from prepare_findings(ctx)
    if findings.signature is None:
        return Finish(
            RewriteOutcome(
                verdict="passes", message="The model passes here, so nothing is to be cured."
            ),
            findings,
        )
    ask: Inquiry = yield from open_inquiry(ctx, findings)
    feeds, known = list_feeds(findings), findings.workaround
    plain = yield from asked(ask.plain(feeds))
    tried: list[TriedRewrite] = []
    listed = list_rewrites((n.op for n in ask.index.nodes), ctx.storage)
    chosen = listed[: params.budget or len(listed)]
    apart = ""  # tensors that cure it as outputs, else those that are tried first: wrapped they may do it, too
    for one in chosen:
        yield Note(f"written otherwise: {one.says}", best=0, tried=len(tried))
        at = apart if one.name in WRAPS else ""
        tried.append((yield from try_rewrite(ask, one, plain, at)))
        apart = tried[-1].at if one.name == BARRIER else apart
    rows = [t.row for t in tried]
    outcome = RewriteOutcome(
        tried=sum(r.verdict != "nothing to do" for r in rows),
        left=len(listed) - len(chosen),
        tolerance=ask.criterion.tolerance,
        kept=len(known.keep_names) if known else 0,
    )
    best = name_first([t for t in tried if t.cure is not None])
    if best is None or best.cure is None:
        return Finish(_tell_none(outcome, rows), findings, tables={"rewrites": rows})
    row = best.row
    outcome = msgspec.structs.replace(
        outcome,
        verdict="cures",
        rewrite=row.rewrite,
        what=find_rewrite(row.rewrite).says,
        changed=len(row.changed),
        samples_ok=row.samples_ok,
        samples=row.samples_n,
        unseen_ok=row.held_out_ok,
        unseen=row.held_out_n,
        error=row.error,
        exact=row.exact,
        cost=best.cure.cost,
        message=say_cure(row, best.cure, known, ask.criterion),
    )
    beside = known is not None and known.holds
    saved = [Saved("rewrite" if beside else "workaround", best.files)] if best.files else []
    return Finish(
        outcome,
        findings if beside else msgspec.structs.replace(findings, workaround=best.cure),
        tables={"rewrites": rows, "bundle": saved},
        decisive={"workaround": (rewrite_probe(ask, row.rewrite, best.at, feeds),)},
    )


def place_rewrite(ask: Inquiry, name: str) -> str:
    """What the rewrite is about: the nodes of the culprits, or all of the model's; of what keeps
    layers apart the tensors that are tried first."""
    if name == FIXED_SIZES:
        return ranges.ALL
    if name in APART:
        return ranges.encode(next(iter(list_rings(ask)), ()))
    accused = {n for c in ask.findings.culprits for n in ranges.decode(c.case.node_ids)}
    return ranges.encode(accused) if accused else ranges.ALL


def rewrite_probe(
    ask: Inquiry, name: str, at: str, samples: tuple[str, ...], *, engine: str = "", **more: object
) -> Measure:
    """The whole model with this rewrite done there (``place_rewrite``), on these samples."""
    return ask.plain(samples, engine=engine, rewrite=name, rewrite_at=at, **more)


class TriedRewrite(msgspec.Struct, frozen=True):
    """How a rewrite did. ``at``: where it was done (``place_rewrite``); ``cure``: the workaround
    that it is, its ``files``."""

    row: RewriteRow
    at: str = ""
    cure: Workaround | None = None
    files: dict[str, str] = {}


def name_first(cures: Sequence[TriedRewrite]) -> TriedRewrite | None:
    """Of those that cure, in the order in which they were tried, the first that none is clearly
    faster than; None where none does."""
    best = cures[0] if cures else None
    for other in cures[1:]:
        if best and (other.row.seconds or HUGE) < CLEARLY * (best.row.seconds or 0.0):
            best = other
    return best


def try_rewrite(ask: Inquiry, one: Rewrite, plain: Measurement, at: str = "") -> Sub[TriedRewrite]:
    """How it does: on the reference (is it exact?), on the engine in fresh builds, on samples that
    it was not tried on. ``plain``: the model's answer without it. ``at``: of what keeps layers
    apart the only tensors to try."""
    rings = (ranges.decode(at),) if at else list_rings(ask) if one.name in APART else ()
    at = at or place_rewrite(ask, one.name)
    if not at:
        return TriedRewrite(RewriteRow(one.name, "nothing to do"))
    feeds = list_feeds(ask.findings)
    same = yield from asked(rewrite_probe(ask, one.name, at, feeds, engine=ask.ctx.reference))
    changed = tuple(same.facts.get("rewritten", ()))
    if same.status != "ok":
        return TriedRewrite(RewriteRow(one.name, "not run", why=same.message))
    if not changed:
        return TriedRewrite(RewriteRow(one.name, "nothing to do"))
    exact = worst(same.results, ask.criterion)[2]
    row = RewriteRow(one.name, "inexact", changed, exact if exact < HUGE else None)
    if not judge_whole(same, ask.criterion).passed:
        why = "the reference gives another answer with it, so it does not compute the same here"
        return TriedRewrite(msgspec.structs.replace(row, why=why), at)
    if one.name not in APART:
        return (yield from _build_rewritten(ask, one, at, row, plain))
    fewest: Barriers = yield from find_barriers(ask, rings, plain, one.name)
    tried: TriedRewrite = yield from _build_rewritten(
        ask, one, ranges.encode(fewest.tensors) or at, row, plain
    )
    if tried.cure is None:
        return tried
    return msgspec.structs.replace(
        tried, cure=msgspec.structs.replace(tried.cure, minimal=fewest.minimal)
    )


def _build_rewritten(
    ask: Inquiry, one: Rewrite, at: str, row: RewriteRow, plain: Measurement
) -> Sub[TriedRewrite]:
    """How it does on the engine; ``row``: what is known of it, without a verdict."""
    findings, rule = ask.findings, ask.criterion
    feeds = list_feeds(findings)
    measured: list[Measurement] = []
    for attempt in range(max(BUILDS, findings.builds)):
        save = "" if attempt else "rewritten"
        m = yield from asked(rewrite_probe(ask, one.name, at, feeds, attempt=attempt, save=save))
        if m.status != "ok":
            return TriedRewrite(msgspec.structs.replace(row, verdict="not run", why=m.message), at)
        measured.append(m)
        if not judge_whole(m, rule).passed:
            break
    error = max(worst(m.results, rule)[2] for m in measured)
    results = by_sample(measured[0])
    changed = tuple(measured[0].facts.get("rewritten", row.changed))
    row = msgspec.structs.replace(
        row, changed=changed, error=error if error < HUGE else None, samples_n=len(results)
    )
    if not all(judge_whole(m, rule).passed for m in measured):
        undone = yield from _is_undone(ask, one, at, feeds)
        return TriedRewrite(
            msgspec.structs.replace(row, verdict="undone" if undone else "fails", why=undone), at
        )

    def elsewhere(inputs: str, samples: tuple[str, ...]) -> Sub[Measurement]:
        return (yield from asked(rewrite_probe(ask, one.name, at, samples, inputs=inputs)))

    held, oracle = set_apart(findings, results), make_oracle(ask)
    tried: Tried = yield from try_unseen(oracle, elsewhere, measured[0], Basis(plain, held))
    seconds, before = yield from measure_seconds(
        ask, lambda sample: rewrite_probe(ask, one.name, at, sample)
    )
    holds, most = tried.unseen.ok == tried.unseen.n, max(error, tried.unseen.error)
    row = msgspec.structs.replace(
        row,
        verdict="cures" if holds else "fails",
        samples_ok=len(results) - len(held),
        samples_n=len(results) - len(held),
        held_out_ok=tried.unseen.ok,
        held_out_n=tried.unseen.n,
        error=most if most < HUGE else None,
        seconds=seconds,
        before=before,
        why="" if holds else "it fails on samples that it was not tried on",
    )
    if not holds:
        return TriedRewrite(row, at)
    unseen: Unseen = yield from count_plain(oracle, tried, tried.unseen)
    return TriedRewrite(row, at, _as_workaround(ask, row, unseen), dict(measured[0].artifacts))


def _is_undone(ask: Inquiry, one: Rewrite, at: str, feeds: tuple[str, ...]) -> Sub[str]:
    """A sentence where it cures with the engine's optimizers off, and the model as it is fails so:
    they take it back. "" else."""
    can = list_switches(ask.ctx.engine, ask.ctx.engine_info)
    if not can.optimizers:
        return ""
    off = can.without(can.optimizers)
    with_it = yield from asked(rewrite_probe(ask, one.name, at, feeds, engine=off))
    if not judge_whole(with_it, ask.criterion).passed:
        return ""
    without = yield from asked(ask.plain(feeds, engine=off))
    if not judge_whole(without, ask.criterion).failed:
        return ""
    return "with the engine's optimizers off it cures, with them on it does not: they take it back"


def _as_workaround(ask: Inquiry, row: RewriteRow, unseen: Unseen) -> Workaround:
    error, one = row.error or 0.0, find_rewrite(row.rewrite)
    apart = row.rewrite in APART
    many = f"{len(row.changed)} {one.thing}{'' if len(row.changed) == 1 else 's'}"
    return Workaround(
        kind=row.rewrite if apart else "rewrite",
        engine=ask.ctx.engine,
        switched_off=row.changed if apart else (row.rewrite,),
        samples_ok=row.samples_ok,
        samples_n=row.samples_n,
        error=error,
        margin=margin(ask.criterion, error),
        cost=say_seconds(row.seconds, row.before),
        unseen=unseen,
        written=f"{many} {one.done}; {one.proof}.",
    )


def say_cure(row: RewriteRow, cure: Workaround, known: Workaround | None, rule: Criterion) -> str:
    """What cures it and how it did, in sentences; ``known``: the workaround that there was
    before."""
    one = find_rewrite(row.rewrite)
    others = f" and {row.held_out_ok} of {row.held_out_n} others" if row.held_out_n else ""
    are = "is an output" if len(row.changed) == 1 else "are outputs"
    what = one.cures.format(says=one.says, names=join_some(row.changed), is_an_output=are)
    kept = len(known.keep_names) if known else 0
    costs = f": {known.cost}" if known and known.cost else ""
    more = (
        (row.exact, f" The reference's own answer moves by {row.exact or 0.0:.2g}."),
        (cure.cost, f" {cure.cost[:1].upper()}{cure.cost[1:]}."),
        (kept, f" The other way keeps {kept} nodes in FP32{costs}."),
    )
    return (
        f"It comes right where {what}: right on {row.samples_ok} of {row.samples_n} samples{others}; "
        f"{say_most(cure.error, rule)}. {one.proof[:1].upper()}{one.proof[1:]}."
        f"{''.join(text for holds, text in more if holds)}"
    )


def _tell_none(outcome: RewriteOutcome, rows: Sequence[RewriteRow]) -> RewriteOutcome:
    undone = next((r for r in rows if r.verdict == "undone"), None)
    if undone is not None:
        message = f"{find_rewrite(undone.rewrite).says}: {undone.why}. Switch these off, too."
        return msgspec.structs.replace(
            outcome, verdict="undone", rewrite=undone.rewrite, message=message
        )
    none = f"None of {outcome.tried} rewrites that found something to do makes it right."
    message = none if outcome.tried else "No rewrite found anything to do in this model."
    left = f" {outcome.left} more were not tried, as the step was ended." if outcome.left else ""
    return msgspec.structs.replace(outcome, verdict="none", message=message + left)


SPEC = StepSpec(
    name="rewrite",
    version=4,
    summary="Write the model otherwise, where that computes the same, and see whether the engine then gets it right.",
    run=rewrite,
    outcome=RewriteOutcome,
    params=RewriteParams,
    needs=(
        BUILDS_MODELS,
        comparison(
            "An external check shows no values, so whether a rewrite computes the same cannot be told."
        ),
    ),
    sets=("workaround",),
    makes=("workaround",),
    ends=(PASSES, *unresolved("none", "undone")),
    labels={
        "what": "what is done",
        "changed": "nodes changed",
        "exact": "the reference moves by",
        "tried": "rewrites tried",
        "left": "rewrites not tried",
    },
)
