"""rewrite: does the model work when it is written otherwise? Each rewrite is tried, held to
the reference, and priced."""

from functools import partial
from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, Note, StepContext, Sub, asked
from narrowdown.engines.asking.failure import list_feeds
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.compare.judge import Criterion, judge_whole, worst
from narrowdown.engines.compare.say import say_many, say_most
from narrowdown.engines.findings import Workaround
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.rewrite_list import (
    REWRITES,
    Rewrite,
    find_rewrite,
    list_rewrites,
)
from narrowdown.engines.nearest import join_some
from narrowdown.engines.probe import APART, FIXED_SIZES, HUGE, Measure, Measurement
from narrowdown.engines.search.barriers import Barriers, find_barriers, list_rings
from narrowdown.engines.search.settle import Saved
from narrowdown.engines.search.unseen import find_worst, say_tried
from narrowdown.engines.search.verified import BUILDS, verify
from narrowdown.engines.steps.base import (
    BUILDS_MODELS,
    PASSES,
    Finish,
    Steps,
    StepSpec,
    comparison,
    unresolved,
)
from narrowdown.engines.steps.precision import CureOutcome
from narrowdown.engines.steps.prepare import prepare_findings


class RewriteOutcome(CureOutcome, frozen=True, kw_only=True):
    # cures: one makes every sample pass
    verdict: Literal["cures", "none", "passes", "unresolved"] = "unresolved"
    rewrite: str = ""  # the one that works
    what: str = ""  # what is done, in words
    changed: int = 0  # nodes that it changes
    tried: int = 0  # rewrites that found something to do
    left: int = 0  # rewrites that were not tried
    exact: float | None = None  # what the reference's own answer moves by


class RewriteParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    budget: Count = 0  # rewrites that are tried; 0: all


class RewriteRow(msgspec.Struct, frozen=True):
    """A row of the table ``rewrites``."""

    rewrite: str  # its name
    # `cures`: it works on every sample
    verdict: Literal["cures", "fails", "inexact", "nothing to do", "not run"]
    changed: tuple[str, ...] = ()  # nodes that it changes
    exact: float | None = None  # what the reference's own answer moves by
    error: float | None = None  # of the engine with it
    tried: str = ""  # how many samples pass, and the time of a run
    why: str = ""  # it does not do


def rewrite(ctx: StepContext) -> Steps[RewriteOutcome]:
    params = msgspec.convert(dict(ctx.params), RewriteParams)
    findings = yield from prepare_findings(ctx)
    if findings.signature is None:
        return Finish(
            RewriteOutcome(
                verdict="passes", message="The model passes here, so there is nothing to fix."
            ),
            findings,
        )
    ask: Inquiry = yield from open_inquiry(ctx, findings)
    feeds, known = list_feeds(findings), findings.workaround
    plain = yield from asked(ask.whole(feeds))
    tried: list[TriedRewrite] = []
    listed = list_rewrites((n.op for n in ask.index.nodes), ctx.storage)
    chosen = listed[: params.budget or len(listed)]
    for one in chosen:
        yield Note(f"written otherwise: {one.says}", best=0, tried=len(tried))
        tried.append((yield from try_rewrite(ask, one, plain)))
    rows = [t.row for t in tried]
    outcome = RewriteOutcome(
        tried=sum(r.verdict != "nothing to do" for r in rows),
        left=len(listed) - len(chosen),
        tolerance=ask.criterion.tolerance,
    )
    best = next((t for t in tried if t.cure is not None), None)
    if best is None or best.cure is None:
        message = (
            f"None of {outcome.tried} rewrites that found something to do makes it right."
            if outcome.tried
            else "No rewrite found anything to do in this model."
        )
        left = (
            f" {outcome.left} more were not tried, as the step was ended." if outcome.left else ""
        )
        outcome = msgspec.structs.replace(outcome, verdict="none", message=message + left)
        return Finish(outcome, findings, tables={"rewrites": rows})
    row = best.row
    outcome = msgspec.structs.replace(
        outcome.filled(best.cure),
        verdict="cures",
        rewrite=row.rewrite,
        what=find_rewrite(row.rewrite).says,
        changed=len(row.changed),
        exact=row.exact,
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
    return ask.whole(samples, (), engine=engine, rewrite=name, rewrite_at=at, **more)


class TriedRewrite(msgspec.Struct, frozen=True):
    """How a rewrite did. ``at``: where it was done (``place_rewrite``); ``cure``: the workaround
    that it is, its ``files``."""

    row: RewriteRow
    at: str = ""
    cure: Workaround | None = None
    files: dict[str, str] = {}


def try_rewrite(ask: Inquiry, one: Rewrite, plain: Measurement) -> Sub[TriedRewrite]:
    """How it does: on the reference (is it exact?), on the engine in fresh builds, on samples that
    it was not tried on. ``plain``: the model's answer without it."""
    at = place_rewrite(ask, one.name)
    if not at:
        return TriedRewrite(RewriteRow(one.name, "nothing to do"))
    same = yield from asked(
        rewrite_probe(ask, one.name, at, list_feeds(ask.findings), engine=ask.ctx.reference)
    )
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
    cure = Workaround("rewrite", ask.ctx.engine)
    if one.name in APART:
        fewest: Barriers = yield from find_barriers(ask, list_rings(ask), plain, one.name)
        at = ranges.encode(fewest.tensors) or at
        cure = Workaround(one.name, ask.ctx.engine, minimal=fewest.minimal)
    return (yield from _build_rewritten(ask, one, at, row, cure, plain))


def _build_rewritten(
    ask: Inquiry, one: Rewrite, at: str, row: RewriteRow, cure: Workaround, plain: Measurement
) -> Sub[TriedRewrite]:
    """How it does on the engine; ``row``, ``cure``: what is known of it, without a verdict."""
    rewritten = partial(rewrite_probe, ask, one.name, at)
    builds = max(BUILDS, ask.findings.builds)
    found, m = yield from verify(ask, cure, rewritten, plain, builds, "rewritten")
    if m.status != "ok":
        return TriedRewrite(msgspec.structs.replace(row, verdict="not run", why=m.message), at)
    changed = tuple(m.facts.get("rewritten", row.changed))
    error = found.error if found else find_worst(m, ask.criterion)
    row = msgspec.structs.replace(
        row, verdict="fails", changed=changed, error=error if error < HUGE else None
    )
    if found is None:
        return TriedRewrite(row, at)
    did = "; ".join(filter(None, (say_tried(found), found.cost)))
    row = msgspec.structs.replace(row, tried=did)
    if not found.holds:
        return TriedRewrite(
            msgspec.structs.replace(row, why="it fails on samples that it was not tried on"), at
        )
    found = msgspec.structs.replace(
        found,
        switched_off=changed if cure.kind in APART else (one.name,),
        written=f"{say_many(len(changed), one.thing)} {one.done}; {one.proof}.",
    )
    row = msgspec.structs.replace(row, verdict="cures")
    return TriedRewrite(row, at, found, dict(m.artifacts))


def say_cure(row: RewriteRow, cure: Workaround, known: Workaround | None, rule: Criterion) -> str:
    """What cures it and how it did, in sentences; ``known``: the workaround that there was
    before."""
    one = find_rewrite(row.rewrite)
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
        f"It works where {what}: {say_tried(cure)}; "
        f"{say_most(cure.error, rule)}. {one.proof[:1].upper()}{one.proof[1:]}."
        f"{''.join(text for holds, text in more if holds)}"
    )


SPEC = StepSpec(
    name="rewrite",
    version=7,
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
    ends=(PASSES, *unresolved("none")),
    labels={
        "what": "what is done",
        "changed": "nodes changed",
        "exact": "the reference moves by",
        "tried": "rewrites tried",
        "left": "rewrites not tried",
    },
    plan=3 * len(REWRITES),  # of those that find something to do, some six; of the others one
)
