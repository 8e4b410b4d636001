"""rebuild: an engine that was built elsewhere, held against the like of it built here from the
model."""

import shlex
from typing import Literal

import msgspec

from narrowdown.engines.asking import Note, StepContext, asked
from narrowdown.engines.asking.engine_forms import fails_alike
from narrowdown.engines.asking.whole_model import probe_whole
from narrowdown.engines.compare.judge import judge_whole, worst
from narrowdown.engines.compare.say import wrong_by
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import Measurement
from narrowdown.engines.steps.base import (
    Finish,
    Need,
    NoParams,
    Outcome,
    Steps,
    StepSpec,
    comparison,
)
from narrowdown.engines.steps.prepare import prepare_findings


class RebuildOutcome(Outcome, frozen=True, kw_only=True):
    # alike: the same outputs fail by as much; otherwise: other outputs, or another error;
    # refused: it does not build or run
    verdict: Literal["alike", "otherwise", "passes", "refused", "unresolved"] = "unresolved"
    spec: str = ""  # what was built
    error: float | None = None  # of what was built here
    error_before: float | None = None  # of the engine as it came
    tolerance: float = 0.0
    samples: int = 0
    samples_failing: int = 0


def rebuild(ctx: StepContext) -> Steps[RebuildOutcome]:
    findings: Findings = yield from prepare_findings(ctx)
    spec = ctx.engine_info.rebuilt
    yield Note(f"building {spec} from the model")
    # Several builds may choose otherwise; one of them is what was asked for: the like of one that
    # was built once.
    m = yield from asked(probe_whole(ctx, findings, engine=spec))
    return Finish(_tell(findings, spec, m), findings)


def _tell(findings: Findings, spec: str, m: Measurement) -> RebuildOutcome:
    rule = findings.rule
    before = findings.signature
    known = RebuildOutcome(
        spec=spec,
        tolerance=rule.tolerance,
        error_before=before.error if before and before.kind == "accuracy" else None,
    )
    if m.status != "ok":
        return msgspec.structs.replace(
            known,
            verdict="unresolved" if m.status in ("cancelled", "timeout") else "refused",
            message=f"{spec} cannot be built from the model here, or not run: {m.message}",
        )
    failing = sum(
        judge_whole(msgspec.structs.replace(m, results=(r,)), rule).failed for r in m.results
    )
    error = worst(m.results, rule)[2]
    known = msgspec.structs.replace(
        known, error=error, samples=len(m.results), samples_failing=failing
    )
    off = wrong_by(error, rule.metric)
    if not failing:
        return msgspec.structs.replace(
            known,
            verdict="passes",
            message=f"Built from the model as {spec}, it is right on all that was tried ({off}): the fault is in how the engine "
            "that you have was built. What cannot be read off it: the builder's other options, and which model it was made of.",
        )
    alike = before is not None and fails_alike(findings, rule, m)
    word = "It fails alike" if alike else "It fails too, but not in the same way"
    return msgspec.structs.replace(
        known,
        verdict="alike" if alike else "otherwise",
        message=f"{word}, built from the model as {spec}: {off}. Search on in that one, which can be taken apart: narrowdown "
        f"edit SESSION --engine {shlex.quote(spec)}",
    )


SPEC = StepSpec(
    name="rebuild",
    version=1,
    summary="Build the like of an engine that was built elsewhere from the model, and see whether it fails alike.",
    run=rebuild,
    outcome=RebuildOutcome,
    params=NoParams,
    needs=(
        Need(
            "an engine that was built elsewhere",
            lambda ctx: bool(ctx.engine_info.rebuilt),
            lambda ctx: (
                f"{ctx.engine} is built from the model already; name a built engine: --engine tensorrt:plan=FILE."
            ),
            code=2,
        ),
        comparison(
            "An external check chooses its own engine, so what it was built as cannot be told."
        ),
    ),
    labels={
        "spec": "built here as",
        "error": "wrong by, built here",
        "error_before": "wrong by, as it came",
        "samples_failing": "samples that fail",
    },
    plan=1,  # all samples once
)
