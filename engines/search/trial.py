"""The reference on trial: is it steady, is what fails determined at all, do independent engines
agree with it, and what becomes of the session where they do not.

Found wrong, it is replaced by the engine that was confirmed against it, and the failure is locked
anew; where the engine under test is right by that one there is no failure, and where it cannot
stand in the session cannot go on. A reference and an engine that share code may be wrong alike,
which nothing but a third computation can see. Where the session cannot go on, it is looked for
where the reference and who speaks against it part.
"""

from typing import Literal

import msgspec

from narrowdown.engines.asking import Note, StepContext, Sub, asked
from narrowdown.engines.compare.criterion import Criterion
from narrowdown.engines.compare.judge import exceed, limit, sign_failure, worst
from narrowdown.engines.findings import Findings, Replaced
from narrowdown.engines.options import families
from narrowdown.engines.probe import Measurement
from narrowdown.engines.search.golden_reference import Trial
from narrowdown.engines.search.noise import WITHIN, Moved, measure_moves, move_last_place
from narrowdown.engines.search.parting import Parting, find_parting
from narrowdown.engines.search.voices import (
    CLEARLY,
    CONFIRMED,
    Bounds,
    Heard,
    hear_voices,
    name_voice,
)
from narrowdown.engines.search.whole import (
    choose_feed,
    is_exact_unoptimized,
    list_failing,
    lock_failure,
    probe_whole,
)

# Seconds for one run of the whole model up to which a confirmed voice serves as the reference of a
# search: each probe runs a part of the model on it, and there are hundreds. Chosen, not measured:
# at 5 s they take most of an hour.
SERVES = 5.0

# Other failing feeds that are looked at where the worst one is noise: a real failure beside it
# would fail on most of them. Chosen, not measured: each costs two runs of the reference.
OTHERS = 3


class Tried(msgspec.Struct, frozen=True):
    """``ctx``, ``findings`` and ``measurement`` to go on with: those that were given, or against
    the reference that stands in.

    ``verdict``: "" where the trial decides nothing; ``reference``: the reference is wrong or
    unsteady, and the engine may be right; ``unresolved``: there are two sides and nobody to settle
    it. ``moves``: the second run of the reference against its first. ``sides``: the engine under
    test agrees with the one voice that differs from the reference. ``doubted``: that voice differs
    by far more than rounding makes, and engine and reference, which agree, share code. ``parting``:
    where the reference and that voice part. ``export``: the model is not what the golden outputs
    were recorded of; ``golden``: what was found with golden outputs.
    """

    ctx: StepContext
    findings: Findings
    measurement: Measurement
    given: str = ""
    heard: Heard = Heard()
    moved: Moved = Moved()
    verdict: Literal["", "reference", "unresolved", "export"] = ""
    steady: bool = True
    moves: float = 0.0
    sides: bool = False
    doubted: bool = False
    parting: Parting = Parting()
    why: str = ""  # why a reference that is wrong could not be replaced
    golden: Trial | None = None


def by_golden(given: str, told: Trial) -> Tried:
    """The trial where golden outputs are the reference: it is the model that stood on trial."""
    verdicts: dict[str, Literal["", "unresolved", "export"]] = {
        "export": "export", "unclear": "unresolved", "unheard": "unresolved",
    }  # fmt: skip
    verdict = verdicts.get(told.standing, "")
    return Tried(
        told.ctx, told.findings, told.measurement, given=given, verdict=verdict, golden=told
    )


def try_reference(
    ctx: StepContext, findings: Findings, m: Measurement, bounds: Bounds
) -> Sub[Tried]:
    """``Tried``, on the feed that the search would work on."""
    rule = findings.criterion or Criterion()
    feed = (
        findings.sample
        or choose_feed(findings, worst(m.results, rule)[0])
        or findings.samples[0].id,
    )
    tried = Tried(ctx, findings, m, given=ctx.reference)
    yield Note("is the reference itself steady and right?")
    twice = yield from asked(
        probe_whole(ctx, findings, samples=feed, engine=ctx.reference, attempt=1)
    )
    _, output, moves = worst(twice.results, rule) if twice.status == "ok" else ("", "", 0.0)
    if moves > CONFIRMED * limit(rule, output):
        return msgspec.structs.replace(tried, steady=False, moves=moves, verdict="reference")
    failing = tuple(r.sample for r in list_failing(m.results, rule))
    moved = yield from move_last_place(ctx, findings, bounds.seconds, failing)
    tried = msgspec.structs.replace(tried, moved=moved)
    if moved.explains:
        determined = yield from _find_elsewhere(ctx, findings, m, bounds)
        if determined is None:
            return tried  # whoever is right about digits that nobody has
        findings, moved = determined
        feed = (findings.sample,)
        tried = msgspec.structs.replace(tried, findings=findings, moved=moved)
    heard = yield from hear_voices(ctx, findings, feed, m.nodes, bounds)
    if heard.standing == "wrong" and heard.error is not None:
        # Of an infinite failure nobody has asked yet. What rounding moves as far, no two that agree
        # decide.
        moves = yield from measure_moves(ctx, findings, feed, heard.output, bounds.seconds)
        if heard.error <= WITHIN * moves:
            heard = msgspec.structs.replace(heard, standing="open", moves=moves)
    tried = msgspec.structs.replace(tried, heard=heard)
    if heard.standing == "wrong":
        tried = yield from _replace_reference(tried, feed, bounds)
    elif heard.standing == "alone":
        tried = yield from _weigh_alone(tried, feed, bounds)
    elif heard.standing == "open" and findings.signature is not None:
        # Computations that differ among themselves by as much as the engine differs from one of
        # them accuse nobody, unless all are within what is allowed.
        unclear = (
            heard.spread >= limit(rule, heard.output)
            and findings.signature.error < CLEARLY * heard.spread
        )
        if unclear and findings.signature.error >= WITHIN * heard.spread:
            unclear = not (yield from is_exact_unoptimized(ctx, findings, feed))
        return msgspec.structs.replace(tried, verdict="unresolved" if unclear else "")
    if not tried.verdict:
        return tried
    parting = yield from find_parting(
        ctx, findings, feed, ctx.reference, heard.judge, bounds.seconds
    )
    return msgspec.structs.replace(tried, parting=parting)


def _weigh_alone(tried: Tried, feed: tuple[str, ...], bounds: Bounds) -> Sub[Tried]:
    """The trial where the one voice that is heard differs from the reference.

    An engine under test that fails is no voice, but where it gives what that one gives there are
    two against the reference. An engine that passes says nothing for a reference that it shares
    code with. Where ONNX's own operators do not bear the voice out, it accuses nobody.
    """
    ctx, findings, heard = tried.ctx, tried.findings, tried.heard
    rule = findings.criterion or Criterion()
    off, signature = heard.error or 0.0, findings.signature
    if signature is None:
        agree = not families(ctx.engine) & families(ctx.reference)
        if off <= limit(rule, heard.output) or agree or heard.beside is False:
            return tried
        moves = yield from measure_moves(ctx, findings, feed, heard.output, bounds.seconds)
        doubted = off > CLEARLY * moves
        return msgspec.structs.replace(
            tried, doubted=doubted, verdict="unresolved" if doubted else ""
        )
    engine = yield from asked(
        probe_whole(ctx, findings, samples=feed, reference=heard.judge, timeout=bounds.seconds)
    )
    if engine.status != "ok" or not engine.results:
        return tried
    _, output, error = worst(engine.results, rule)
    if error > limit(rule, output) or error * CLEARLY > signature.error:
        return tried
    return msgspec.structs.replace(
        tried, sides=True, verdict="unresolved" if heard.beside is False else "reference"
    )


def _find_elsewhere(
    ctx: StepContext, findings: Findings, m: Measurement, bounds: Bounds
) -> Sub[tuple[Findings, Moved] | None]:
    """The failure on another feed, where rounding does not explain it; None where it explains all
    that were asked."""
    rule = findings.criterion or Criterion()
    here = findings.sample.partition("/")[0]
    failing = list_failing(m.results, rule)
    others = [r for r in failing if r.sample.partition("/")[0] != here]
    others.sort(key=lambda r: -worst((r,), rule)[2])
    for result in others[:OTHERS]:
        on_it = msgspec.structs.replace(
            findings,
            signature=sign_failure(result, rule, result.sample),
            sample=result.sample.partition("/")[0],
        )
        moved = yield from move_last_place(
            ctx, on_it, bounds.seconds, tuple(r.sample for r in failing)
        )
        if not moved.explains:
            return on_it, moved
    return None


def _replace_reference(tried: Tried, feed: tuple[str, ...], bounds: Bounds) -> Sub[Tried]:
    """The trial of a reference that two voices agree against, gone on with the first of them where
    that can stand in."""
    ctx, before, heard = tried.ctx, tried.findings, tried.heard
    rule = before.criterion or Criterion()
    against = msgspec.structs.replace(ctx, reference=heard.judge)
    fresh = msgspec.structs.replace(before, signature=None, sample="")
    yield Note(f"the engine against {name_voice(heard.judge)}")
    alone = yield from asked(
        probe_whole(against, fresh, samples=feed, engine=heard.judge, timeout=bounds.seconds)
    )
    m = yield from asked(probe_whole(against, fresh, timeout=bounds.seconds))
    alike = before.signature is None
    if m.status != "ok" or alone.status != "ok" or alone.run_seconds > SERVES:
        slow = (
            f"one run takes {alone.run_seconds:.0f} s"
            if alone.status == m.status == "ok"
            else (m.message or alone.message)
        )
        why = f"{name_voice(heard.judge)} cannot stand in for it: {slow.rstrip('.')}."
        engine = yield from asked(
            probe_whole(ctx, fresh, samples=feed, reference=heard.judge, timeout=bounds.seconds)
        )
        wrong = engine.status == "ok" and exceed(engine.results, rule)
        found = msgspec.structs.replace(before, alike=alike and wrong)
        return msgspec.structs.replace(tried, findings=found, verdict="reference", why=why)
    locked = yield from lock_failure(against, fresh, m)
    if locked.signature is None:
        # By those who are right the engine is right. Where it passed against the reference, too,
        # its verdict stands.
        _, output, _ = worst(m.results, rule)
        stands = alike and (heard.error or 0.0) <= limit(rule, output)
        return msgspec.structs.replace(tried, verdict="" if stands else "reference")
    why = f"{name_voice(heard.judge)} and {name_voice(heard.other)} agree against it"
    found = msgspec.structs.replace(
        locked, replaced=Replaced(ctx.reference, heard.judge, why), alike=alike
    )
    return msgspec.structs.replace(tried, ctx=against, findings=found, measurement=m)
