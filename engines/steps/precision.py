"""precision: the smallest set of nodes to keep in higher precision so that every sample passes."""

from typing import Literal, Self

import msgspec

from narrowdown.engines.asking import StepContext
from narrowdown.engines.asking.failure_rate import Runs, count_runs_needed
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.findings import Unseen, Workaround
from narrowdown.engines.probe import HUGE
from narrowdown.engines.search.keeping import Keeping, Kept, PrecisionParams, say_kept
from narrowdown.engines.search.settle import Saved
from narrowdown.engines.search.workaround_facts import holds_accused
from narrowdown.engines.steps.base import BUILDS_MODELS, End, Finish, Outcome, Steps, StepSpec, Told
from narrowdown.engines.steps.prepare import prepare_findings


class CureOutcome(Outcome, frozen=True, kw_only=True):
    """What each step that finds a workaround says of it."""

    holds: bool = False  # every tuning and held-out sample passes
    keep: int = 0  # nodes that are kept
    names: str = ""  # which
    minimal: bool = False
    samples_ok: int = 0
    samples: int = 0  # tuning samples
    unseen_ok: int = 0  # held-out samples that pass
    unseen: int = 0  # held-out samples
    undetermined: int = 0  # samples not counted: too close to call
    error: float | None = None
    tolerance: float = 0.0
    margin: float | None = None
    cost: str = ""  # what it does to time or size, one phrase

    def filled(self, cure: Workaround) -> Self:
        """The outcome with what is known of the workaround."""
        unseen = cure.unseen or Unseen()
        return msgspec.structs.replace(
            self,
            holds=cure.holds,
            keep=len(cure.keep_names),
            names=", ".join(cure.keep_names),
            minimal=cure.minimal,
            samples_ok=cure.samples_ok,
            samples=cure.samples_n,
            unseen_ok=unseen.ok,
            unseen=unseen.n,
            undetermined=cure.undetermined + unseen.undetermined,
            error=cure.error if cure.error < HUGE else None,
            margin=cure.margin,
            cost=cure.cost,
        )


class PrecisionOutcome(CureOutcome, frozen=True, kw_only=True):
    # not-enough: fails with everything kept; whole: passes only so
    outcome: Literal["found", "none-needed", "not-enough", "whole"] = "not-enough"
    builds: int = 0


def precision(ctx: StepContext) -> Steps[PrecisionOutcome]:
    params = msgspec.convert(dict(ctx.params), PrecisionParams)
    findings = yield from prepare_findings(ctx)
    if findings.signature is None:
        message = "Nothing needs higher precision: the model passes."
        return Finish(PrecisionOutcome(outcome="none-needed", message=message), findings)
    findings = yield from count_runs_needed(WholeModel(ctx, findings), Runs().most)
    ask: Inquiry = yield from open_inquiry(ctx, findings)
    kept: Kept = yield from Keeping(ask, params).run()
    outcome = PrecisionOutcome(
        outcome=kept.outcome,  # type: ignore[arg-type]
        builds=kept.builds,
        tolerance=ask.criterion.tolerance,
        message=say_kept(ask, kept),
    ).filled(kept.tried)
    found = kept.found
    return Finish(
        msgspec.structs.replace(outcome, holds=found is not None and found.holds),
        msgspec.structs.replace(findings, workaround=found or findings.workaround),
        tables={
            "keep": [{"node": n} for n in found.keep_names] if found else [],
            "bundle": [Saved("workaround", kept.files)],
        },
    )


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
    version=21,
    summary="Find the smallest set of nodes to keep in FP32 so that every sample passes.",
    run=precision,
    outcome=PrecisionOutcome,
    params=PrecisionParams,
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
