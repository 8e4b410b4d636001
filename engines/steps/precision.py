"""precision: the smallest set of nodes to keep in higher precision so that every sample passes."""

from typing import Literal

import msgspec

from narrowdown.engines.asking import StepContext
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.findings import Workaround
from narrowdown.engines.probe import HUGE
from narrowdown.engines.search.intermittent import Runs, count_runs_needed
from narrowdown.engines.search.keeping import PrecisionParams, keep_higher
from narrowdown.engines.search.kept import Kept, make_workaround, say_kept
from narrowdown.engines.search.settle import Saved
from narrowdown.engines.search.whole import look_at_whole
from narrowdown.engines.search.workaround_facts import holds_accused
from narrowdown.engines.steps.base import BUILDS_MODELS, End, Finish, Steps, StepSpec, Told
from narrowdown.engines.steps.prepare import prepare_findings


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
    findings = yield from count_runs_needed(look_at_whole(ctx, findings), Runs().most)
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
    version=16,
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
