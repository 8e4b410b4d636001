"""precision: the smallest set of nodes to keep in higher precision so that every sample passes."""

from typing import Literal

import msgspec

from narrowdown.engines.asking import StepContext
from narrowdown.engines.findings import Workaround
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import HUGE
from narrowdown.engines.search import works
from narrowdown.engines.search.cost import Plan, Size, Work
from narrowdown.engines.search.emulation import find_emulation
from narrowdown.engines.search.inquiry import Inquiry, open_inquiry
from narrowdown.engines.search.keeping import PrecisionParams, keep_higher
from narrowdown.engines.search.kept import Kept, make_workaround, say_kept
from narrowdown.engines.search.known import holds_accused
from narrowdown.engines.search.looks import Looks, count_looks
from narrowdown.engines.search.remedy import list_cured
from narrowdown.engines.search.settle import Saved
from narrowdown.engines.search.timings import count_rows
from narrowdown.engines.search.unseen import WANTED
from narrowdown.engines.steps.base import BUILDS_MODELS, End, Finish, Steps, StepSpec, Told
from narrowdown.engines.steps.prepare import prepare_findings

# Probes of a search for nodes to keep, as a rule, and how few and how many mostly come. Of 23 to
# 250 nodes 32 to 277 came, for one node that is accused as for many: what the search finds on other
# samples counts for more than where it began (docs/estimates.md). Where a set that holds was looked
# for before, much of that is known.
USUAL, FEW, MANY, ANEW = 70, 10, 300, 0.4
# Of what the few looks at the whole model took by then, what one in a long search takes: 0.15 to
# 0.8 on seven models, 1 to 4 on five where more samples joined the search. Where stretches of the
# model are kept, each emulates that much less: 0.2 to 0.5.
SETTLED_IN, HALVED = 0.8, 0.5
# Questions to an emulation, in a few orders of at most ``TOLD`` each and what is left out then: 12
# to 420 came.
DRAFTED, ORDERS = 100, 7
# Where kernels are timed and the emulation tells what is worth a build: 7 to 110 builds came, on 8
# nodes 13 to 24. They took 0.3 to 2 times what the engine's later builds had before, on six models
# of 8 to 425 nodes.
BUILT, BUILT_FEW, BUILT_MANY = 35, 6, 140
BUILT_A_NODE = 3
TIMED_TIMES, TIMED_SPAN = 0.6, (0.3, 2.8)
# Everything kept, where that was not built yet: of the first build, 0.02 to 0.25 on eight models.
IN_FP32, IN_FP32_SPAN = 0.12, (0.2, 2.0)


class PrecisionOutcome(msgspec.Struct, frozen=True, kw_only=True):
    # not-enough: fails with every node kept; whole: passes only so
    outcome: Literal["found", "none-needed", "not-enough", "whole"] = "not-enough"
    keep: int = 0
    names: str = ""
    minimal: bool = False
    foretold: int = 0  # nodes shown to be needed by an emulation or a larger set, not by a build
    samples_ok: int = 0
    samples: int = 0
    error: float | None = None
    margin: float | None = None
    unseen_ok: int = 0  # held-out samples that pass
    unseen: int = 0  # samples that the set was not made on
    slight: int = 0  # samples not counted: wrong on nearly nothing
    holds: bool = False  # every tuning and held-out sample passes
    knee: int = 0  # nodes at the knee of the curve; 0: it has none
    knee_names: str = ""  # the nodes there
    knee_error: float | None = None  # the worst sample's then
    knee_ok: int = 0  # tuning samples that pass then
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
            PrecisionOutcome(
                outcome="none-needed", message="Nothing needs higher precision: the model passes."
            ),
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
        foretold=kept.foretold,
        samples_ok=kept.samples_ok,
        samples=kept.samples_n,
        error=kept.error if kept.error < HUGE else None,
        margin=workaround.margin if workaround else None,
        unseen_ok=kept.unseen.ok if kept.unseen else 0,
        unseen=kept.unseen.n if kept.unseen else 0,
        slight=len(kept.slight) + (kept.unseen.slight if kept.unseen else 0),
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
    """Nothing and everything kept, on all samples; then a search among what brings the most, on the
    samples that the culprits were found on, and those that join it. Where nobody is accused and the
    blame is shared its budget is spent."""
    findings = ctx.findings
    culprits = findings.culprits
    again = (
        findings.workaround is not None and findings.workaround.holds and not list_cured(findings)
    )
    seeds = {n for c in culprits for n in ranges.decode(c.keep or c.case.node_ids)}
    wanted = budget if findings.spread and not seeds else int(ANEW * USUAL) if again else USUAL
    fed = count_rows({c.case.sample for c in culprits} | {findings.sample}, findings.samples)
    times = HALVED if findings.spread and not seeds else SETTLED_IN
    search = Work("whole", min(budget, wanted), fed, ahead=True, times=times)
    few, many = 0 if again else FEW, MANY
    drafted: tuple[Work, ...] = ()
    if find_emulation(ctx, findings):
        drafted = (works.between(Work("emulated", DRAFTED, fed), 0, ORDERS * DRAFTED),)
        built = min(BUILT, BUILT_A_NODE * size.nodes) if size.nodes else BUILT
        search, few, many = msgspec.structs.replace(search, probes=built), BUILT_FEW, BUILT_MANY
    if ctx.engine_info.gpus:
        search = msgspec.structs.replace(
            search, rows=0, times=TIMED_TIMES, span=TIMED_SPAN, timed=True
        )
    # A small budget is spent twice, where sets are tried on several samples.
    search = works.between(search, few, min(2 * budget, many))
    ends = works.on_all(ctx, probes=2)
    if ctx.engine_info.gpus and findings.dear and not list_cured(findings):
        whole = msgspec.structs.replace(
            ends, probes=1, told=IN_FP32 * findings.dear, span=IN_FP32_SPAN
        )
        both: tuple[Work, ...] = (msgspec.structs.replace(ends, probes=1), whole)
    else:
        both = (ends,)
    # The result on samples that it was not made on, with it and without it, and as a file on both.
    made = Work("whole", 1, 0 if ctx.engine_info.gpus else WANTED, timed=bool(ctx.engine_info.gpus))
    after = (works.fresh(made), made, *((works.on_all(ctx), made) if ctx.engine_info.typed else ()))
    asked = (
        *works.before(ctx, size),
        Work("read"),
        *both,
        *drafted,
        search,
        *works.timed(ctx),
        *after,
    )
    return Plan(asked, size.weights + size.captured, size.captured)


def kept_json(told: Told) -> dict[str, object]:
    """The outcome, the names of the nodes that are kept, whether they are all that are accused, and
    on how many samples they were made and tried."""
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
    version=15,
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
