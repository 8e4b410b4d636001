"""Let the search into the bodies of If, Loop and Scan: the working model becomes one with plain
nodes in their place.

Only where the engine shows the same failure then, by about as much: without a loop around them an
engine joins and rounds other operators, and a fault of the loop's own may leave a small error behind
that fails too. Where it does not, the fault rests on the control
flow itself, or on what the engine makes of it, and the node stays whole.
"""

import msgspec

from narrowdown.engines.asking import Note, StepContext, Sub, asked
from narrowdown.engines.compare.criterion import Signature
from narrowdown.engines.compare.judge import judge_whole
from narrowdown.engines.compare.say import join_some, wrong_by
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import Measurement, Unroll
from narrowdown.engines.search.control_flow import list_opened, say_while
from narrowdown.engines.search.twin import ALIKE
from narrowdown.engines.search.whole import keep_rate, lock_failure, look_at_whole, say_other

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
    yield Note("does it fail with their nodes in the open?")
    opened = yield from look_at_whole(ctx, clean).run_as_needed()
    m = opened.measurement
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
            f"{said} Then it {why}, so that the fault may rest on the control flow itself: they stay whole.",
            *kept,
        )
    left = len(findings.samples) - len(agreed)
    some = (
        f" {left} of {len(findings.samples)} samples run in another way and are left out of the search."
        if left
        else ""
    )
    inside = msgspec.structs.replace(keep_rate(locked, signature), rests=say_while(made) or ALWAYS)
    return _noted(inside, f"{said} It fails so too, and the search goes on inside.{some}", *kept)


def _is_right(findings: Findings, m: Measurement) -> bool:
    """Whether the engine built it and, where it can run it, gave the right values."""
    if m.status != "ok":
        return False
    return not m.results or judge_whole(m, findings.rule).passed


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


def _other(before: Signature, after: Signature | None, m: Measurement) -> str:
    """What is different about the failure, in words that follow "then it"; "" where it is the same
    one."""
    other = say_other(before, after, m)
    if other or after is None:
        return other or "passes"
    if before.kind != "accuracy":
        return ""
    if not set(before.outputs) & set(after.outputs):
        return "is wrong at other outputs"
    if after.error * ALIKE < before.error:
        return f"is {wrong_by(after.error, after.metric)} where it was {wrong_by(before.error, before.metric)}"
    return ""


def _told(made: Measurement) -> str:
    """What was opened: ``If 'choice' takes its then_branch, Loop 'steps' runs 8 iterations.``"""
    return (
        f"{join_some([one.told() for one in list_opened(made)])}: these nodes stand in their place."
    )
