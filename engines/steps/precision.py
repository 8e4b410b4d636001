"""precision: the smallest set of nodes to keep in higher precision so that every sample passes."""

from typing import Literal

import msgspec

from engines.asking import StepContext
from engines.causes import find_cause
from engines.findings import Workaround
from engines.graph import ranges
from engines.probe import HUGE
from engines.search import works
from engines.search.cost import Plan, Size, Work, count_rows
from engines.search.inquiry import Inquiry, open_inquiry
from engines.search.keeping import PrecisionParams, keep_higher
from engines.search.kept import Kept, make_workaround, say_kept
from engines.search.known import holds_accused
from engines.search.looks import Looks, count_looks
from engines.search.remedy import list_cured
from engines.search.settle import Saved
from engines.search.unseen import WANTED
from engines.steps.base import BUILDS_MODELS, End, Finish, Steps, StepSpec, Told
from engines.steps.prepare import prepare_findings

# Probes for each node that a workaround keeps. Where the culprits' nodes are all that is needed, as for values that do not fit,
# delta debugging leaves each out once or twice; else the set is grown first, and more samples join. Fitted on the demos: 49 were
# expected and 57 came for sort; of magika, with 11 such nodes, 417, 418 and 707 came. But no more than so many for each node
# of the model: 93 to 148 of 38 nodes, 132 of 25. Where a set that holds was looked for before, much of that is known
# (docs/estimates.md); one that was put off for another culprit took 136 of magika, and 485 once that was known.
FITTING, GROWING, ALL, ANEW = 2, 40, 4, 0.6
# Of what the few looks at the whole model took by then, what one in a long search takes: 0.15 to 0.8 on seven models, 1 to 4 on
# two where more samples joined the search. Where stretches of the model are kept, each emulates that much less: 0.2 to 0.5.
SETTLED_IN, HALVED = 0.6, 0.25
# Accused nodes that are this part of the model are nearly all that is needed: 20 probes came for 27 of 68 nodes.
MUCH = 3
# Of a model in which nobody is accused about every third node is tried: 86 probes came for 250 nodes.
UNLED = 3
# And for each node of the model, where many others share the blame with the culprits: ResNet-50 spent its whole budget.
ANYWHERE = 3


class PrecisionOutcome(msgspec.Struct, frozen=True, kw_only=True):
    # not-enough: even with every node kept it fails; whole: with every node kept only, which is no workaround
    outcome: Literal["found", "none-needed", "not-enough", "whole"] = "not-enough"
    keep: int = 0
    names: str = ""
    minimal: bool = False
    samples_ok: int = 0
    samples: int = 0
    error: float | None = None
    margin: float | None = None
    unseen_ok: int = 0  # right, of the samples that it was not made on
    unseen: int = 0  # samples that the set was not made on
    holds: bool = False  # right on all that it was made on, and on all others
    knee: int = 0  # nodes at the knee of the curve: more of them buy little; 0: it has none
    knee_names: str = ""  # the nodes there
    knee_error: float | None = None  # the worst sample's then
    knee_ok: int = 0  # samples that are right then, of those that it was made on
    builds: int = 0
    message: str = ""


class KeptNode(msgspec.Struct, frozen=True):
    """A row of the table ``keep``."""

    node: str  # its name


def precision(ctx: StepContext) -> Steps[PrecisionOutcome]:
    params = msgspec.convert(dict(ctx.params), PrecisionParams)
    findings = yield from prepare_findings(ctx)
    if findings.signature is None:
        return Finish(
            PrecisionOutcome(outcome="none-needed", message="Nothing needs higher precision: the model passes."),
            findings,
        )
    findings = yield from count_looks(ctx, findings, Looks().most)
    ask: Inquiry = yield from open_inquiry(ctx, findings)
    kept: Kept = yield from keep_higher(ask, params)
    workaround: Workaround | None = yield from make_workaround(ask, kept)
    outcome = PrecisionOutcome(
        outcome=kept.outcome,  # type: ignore[arg-type]
        keep=len(kept.keep),
        names=", ".join(ask.names(kept.keep)),
        minimal=kept.minimal,
        samples_ok=kept.samples_ok,
        samples=kept.samples_n,
        error=kept.error if kept.error < HUGE else None,
        margin=workaround.margin if workaround else None,
        unseen_ok=kept.unseen.ok if kept.unseen else 0,
        unseen=kept.unseen.n if kept.unseen else 0,
        holds=workaround is not None and workaround.holds,
        knee=len(kept.knee.keep) if kept.knee else 0,
        knee_names=", ".join(ask.names(kept.knee.keep)) if kept.knee else "",
        knee_error=kept.knee.point.error if kept.knee and kept.knee.point.error < HUGE else None,
        knee_ok=kept.knee.ok if kept.knee else 0,
        builds=kept.builds,
        message=say_kept(ask, kept),
    )
    return Finish(
        outcome,
        msgspec.structs.replace(findings, workaround=workaround or findings.workaround),
        tables={
            "keep": [KeptNode(n) for n in ask.names(kept.keep)] if workaround else [],
            "bundle": [Saved("workaround", kept.files)],
        },
    )


def _plan(ctx: StepContext, size: Size) -> Plan:
    """A search for nodes to keep."""
    return plan_of_keeping(ctx, size, msgspec.convert(dict(ctx.params), PrecisionParams).budget)


def plan_of_keeping(ctx: StepContext, size: Size, budget: int) -> Plan:
    """Nothing and everything kept, on all samples; the culprits' nodes and what surrounds them, grown in a few rings; then
    delta debugging over what is kept, on the samples that the culprits were found on. Where nobody is accused: over the model."""
    findings = ctx.findings
    culprits = findings.culprits
    seeds = {n for c in culprits for n in ranges.decode(c.keep or c.case.node_ids)}
    each = FITTING if all(find_cause(c.cause).unfit for c in culprits) else GROWING
    # Six: none and all kept on all samples, all kept with the margin, the seeds, and the result twice.
    wanted = 6 + (each * len(seeds) if seeds else size.nodes // UNLED)
    if seeds and (findings.spread or works.rounding_counts(ctx)):
        wanted = ANYWHERE * size.nodes
    elif each == GROWING and size.nodes:
        wanted = 6 + (len(seeds) if MUCH * len(seeds) >= size.nodes else min(each * len(seeds), ALL * size.nodes))
    if findings.spread and not seeds:
        wanted = budget
    if list_cured(findings):
        wanted = 6 + FITTING * len(list_cured(findings))
    elif findings.workaround is not None and findings.workaround.holds:
        wanted = int(ANEW * wanted)
    fed = count_rows({c.case.sample for c in culprits} | {findings.sample}, findings.samples)
    # Kernels that are timed are timed anew for each set.
    times = 1.0 if ctx.engine_info.gpus else HALVED if findings.spread and not seeds else SETTLED_IN
    search = Work("whole", min(budget, wanted), fed, ahead=True, times=times)
    # At the least each of those that are accused is left out once, where that is not known from an earlier search; at the
    # most the budget is spent, twice where sets are tried on several samples.
    least = 0 if findings.workaround is not None else 4 + len(seeds)
    search = works.between(search, least, max(2 * budget if seeds else budget, wanted))
    # The result on samples that it was not made on, with it and without it, and as a file on both.
    made = Work("whole", 1, WANTED)
    after = (works.fresh(made), made, *((works.on_all(ctx, real=True), made) if ctx.engine_info.typed else ()))
    asked = (
        *works.before(ctx, size),
        Work("read"),
        works.on_all(ctx, probes=2, real=True),
        search,
        *works.timed(ctx),
        *after,
    )
    return Plan(asked, size.weights + size.captured, size.captured)


def kept_json(told: Told) -> dict[str, object]:
    """The outcome, the names of the nodes that are kept, whether they are all that are accused, and on how many samples they were
    made and tried."""
    cure = told.findings.workaround
    return {
        **told.outcome,
        "keep_higher": [row["node"] for row in told.tables.get("keep", [])],
        "samples_n": told.outcome.get("samples", 0),
        "held_out_ok": told.outcome.get("unseen_ok", 0),
        "held_out_n": told.outcome.get("unseen", 0),
        "accused_inside": holds_accused(told.findings, cure) if cure is not None else None,
    }


SPEC = StepSpec(
    name="precision",
    version=12,
    summary="Find the smallest set of nodes to keep in FP32 so that every sample passes.",
    run=precision,
    outcome=PrecisionOutcome,
    params=PrecisionParams,
    plan=_plan,
    needs=(BUILDS_MODELS,),
    sets=("workaround", "looks"),
    makes=("workaround",),
    ends=(
        End("outcome", "none-needed", "not-reproduced"),
        End("outcome", "not-enough", "unresolved"),
        End("outcome", "whole", "unresolved"),
    ),
    json=kept_json,
)
