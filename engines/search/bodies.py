"""Let the search into the bodies of If, Loop and Scan: the working model becomes one with plain
nodes in their place.

Only where the engine shows the same failure then. Where it does not, the fault rests on the control
flow itself, or on what the engine makes of it, and the node stays whole.
"""

import msgspec

from narrowdown.engines.asking import Note, StepContext, Sub, asked
from narrowdown.engines.compare.criterion import Criterion, Signature
from narrowdown.engines.compare.judge import judge_whole
from narrowdown.engines.compare.say import join_some, wrong_by
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import Measurement, Unroll
from narrowdown.engines.search.control_flow import list_opened, say_while
from narrowdown.engines.search.whole import lock_failure, probe_whole

# The failure is taken for the same where no more than this share of its error is gone: without a
# loop around them an engine joins and rounds other operators, and a fault of the loop's own may
# leave a small error behind that fails too.
SAME = 0.5
ALWAYS = "nothing of it changes"  # what rests on constants alone


def open_bodies(ctx: StepContext, findings: Findings) -> Sub[Findings]:
    """Findings with the working model opened, once a session; with a note that says what was
    opened, or why not. The failure must be locked."""
    signature = findings.signature
    if not findings.bodies or findings.opened or signature is None or not findings.inputs:
        return findings
    findings = msgspec.structs.replace(findings, opened=True)
    feeds = tuple(s.id for s in findings.samples)
    yield Note("opening If, Loop and Scan")
    made = yield from asked(
        Unroll(
            model=findings.model,
            inputs=findings.inputs,
            samples=feeds,
            sample=findings.sample or feeds[0],
            reference=ctx.reference,
        )
    )
    if made.status != "ok":
        return _noted(findings, f"The search does not enter If, Loop and Scan here: {made.message}")
    kept = tuple(made.facts["kept"])
    if not made.facts["opened"]:
        return _noted(findings, *kept)
    agreed = tuple(s for s in findings.samples if s.id in made.facts["samples"])
    clean = msgspec.structs.replace(
        findings, model=str(made.facts["model"]), samples=agreed, signature=None
    )
    looks = findings.looks
    yield Note("does it fail with their nodes in the open?")
    m = yield from asked(probe_whole(ctx, clean, runs=looks, exclusive=looks > 1))
    locked: Findings = yield from lock_failure(ctx, clean, m)
    said = _told(made)
    if signature.kind == "build" and _is_right(clean, m):
        fixable = msgspec.structs.replace(findings, fixable=say_while(made) or ALWAYS)
        return _noted(
            fixable, said, _say_way_around(ctx, made, len(agreed), len(findings.samples)), *kept
        )
    if why := _other(signature, locked.signature, m):
        return _noted(
            findings,
            f"{said} Then {why}, so that the fault may rest on the control flow itself: they stay whole.",
            *kept,
        )
    left = len(findings.samples) - len(agreed)
    some = (
        f" {left} of {len(findings.samples)} samples run in another way and are left out of the search."
        if left
        else ""
    )
    inside = msgspec.structs.replace(_counted(locked, signature), rests=say_while(made) or ALWAYS)
    return _noted(inside, f"{said} It fails so too, and the search goes on inside.{some}", *kept)


def _is_right(findings: Findings, m: Measurement) -> bool:
    """Whether the engine built it and, where it can run it, gave the right values."""
    if m.status != "ok":
        return False
    return not m.results or judge_whole(m, findings.criterion or Criterion()).passed


def _say_way_around(ctx: StepContext, made: Measurement, agreed: int, samples: int) -> str:
    """What to do where an engine takes the model once its control flow is fixed: the file is
    written, and was tried."""
    deciding = [
        f"'{o.node}' ({o.op}) is decided by {' and '.join(o.by)}" for o in list_opened(made) if o.by
    ]
    told = f"{join_some(deciding, '; ')}. " if deciding else ""
    held = (
        "on your sample"
        if samples == 1
        else f"on {'all' if agreed == samples else f'{agreed} of'} {samples} samples"
    )
    held += "" if agreed == samples else " (the others are decided otherwise)"
    tried = (
        f"builds and is right {held}"
        if ctx.can("run", untold=True)
        else f"builds; it runs alike {held}"
    )
    rests = say_while(made)
    condition = f", and is so only while {rests}" if rests else ""
    return (
        f"A way around: with that fixed the engine takes the model. It {tried}{condition}. {told}The step 'workaround' writes it "
        "as a model and tries that on further samples."
    )


def _noted(findings: Findings, *said: str) -> Findings:
    return msgspec.structs.replace(findings, notes=(*findings.notes, *said))


def _counted(locked: Findings, before: Signature) -> Findings:
    """The failure with the rate that was measured over more looks than these."""
    if locked.looks == 1 or locked.signature is None:
        return locked
    counted = msgspec.structs.replace(
        locked.signature, failures=before.failures, looks=before.looks
    )
    return msgspec.structs.replace(locked, signature=counted)


def _other(before: Signature, after: Signature | None, m: Measurement) -> str:
    """What is different about the failure, in words that follow "then"; "" where it is the same
    one."""
    if after is None:
        return f"it does not run ({m.message.rstrip('.')})" if m.status != "ok" else "it passes"
    if after.kind != before.kind:
        return f"it fails in another way ({after.kind}: {m.message.rstrip('.')})"
    if before.kind != "accuracy":
        return ""
    if not set(before.outputs) & set(after.outputs):
        return "other outputs fail"
    if before.error and (after.error or 0.0) < SAME * before.error:
        return f"it is {wrong_by(after.error, after.metric)} where it was {wrong_by(before.error, before.metric)}"
    return ""


def _told(made: Measurement) -> str:
    """What was opened: ``If 'choice' takes its then_branch, Loop 'steps' runs 8 iterations.``"""
    return (
        f"{join_some([one.told() for one in list_opened(made)])}: these nodes stand in their place."
    )
