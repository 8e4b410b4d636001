"""sanitize: fold constants, clean up, infer shapes, and see whether the failure is still there."""

import msgspec

from engines.compare.criterion import Criterion
from engines.compare.judge import worst
from engines.probe import Measurement, Sanitize
from engines.steps.base import Findings, Finish, Note, StepContext, Steps, StepSpec
from engines.steps.outcome import SanitizeOutcome
from engines.steps.prepare import lock, prepared, whole

# Errors within a fifth of each other are called the same.
SAME = 0.2


class SanitizeParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


def sanitize(ctx: StepContext) -> Steps[SanitizeOutcome]:
    before: Findings = yield from prepared(ctx)
    yield Note("folding constants")
    done: Measurement = yield Sanitize(model=before.model)
    if done.status != "ok":
        return Finish(
            SanitizeOutcome(reason=done.message, message=f"The model could not be sanitized: {done.message}"), before
        )
    nodes_before, nodes_after = int(done.facts["nodes_before"]), int(done.facts["nodes_after"])
    clean = msgspec.structs.replace(before, model=str(done.facts["model"]), signature=None)
    yield Note("comparing the sanitized model")
    m: Measurement = yield whole(ctx, clean, runs=before.looks, exclusive=before.looks > 1)
    # An intermittent failure may sit in a later run of this build.
    runs = (m, *(msgspec.structs.replace(m, results=r, runs=()) for r in m.runs))
    locked: Findings = clean
    for run in runs:
        locked = yield from lock(ctx, clean, run)
        if locked.signature is not None:
            break
    rule = before.criterion or Criterion()
    old = before.signature.error if before.signature else 0.0
    new = locked.signature.error if locked.signature else (worst(m.results, rule)[2] if m.results else None)
    if m.status != "ok" and locked.signature is None:
        message = f"The sanitized model does not run ({m.message}); going on with the original."
        return Finish(
            SanitizeOutcome(nodes_before=nodes_before, nodes_after=nodes_after, reason=m.message, message=message),
            before,
        )
    change = "none"
    if new is not None and old:
        change = "helps" if new < (1 - SAME) * old else "hurts" if new > (1 + SAME) * old else "none"
    fails = locked.signature is not None
    said = "it still fails" if fails else "it passes now"
    if before.looks > 1 and locked.signature is not None and before.signature is not None:
        locked = msgspec.structs.replace(
            locked,
            sample=before.sample,
            signature=msgspec.structs.replace(
                locked.signature, failures=before.signature.failures, looks=before.signature.looks
            ),
        )
    return Finish(
        SanitizeOutcome(
            verdict="fails" if fails else "passes",
            nodes_before=nodes_before,
            nodes_after=nodes_after,
            error=new,
            change=change,  # type: ignore[arg-type]
            message=f"{nodes_before} nodes became {nodes_after}; {said}.",
        ),
        locked if fails else before,
        decisive={"whole": (whole(ctx, locked),)},
    )


SPEC = StepSpec(
    name="sanitize",
    version=1,
    summary="Fold constants and clean the model up, then compare again.",
    run=sanitize,
    outcome=SanitizeOutcome,
    params=SanitizeParams,
    expected=lambda _ctx, _nodes: 2,
)
