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

from narrowdown.engines.asking import Sub
from narrowdown.engines.asking.failure import choose_feed, lock_failure
from narrowdown.engines.asking.whole_model import Distance, WholeModel, name_engine
from narrowdown.engines.compare.judge import SHARE, limit, list_failing, sign_failure, worst
from narrowdown.engines.findings import Findings, Replaced
from narrowdown.engines.options import families
from narrowdown.engines.probe import Measurement
from narrowdown.engines.search.determined import WITHIN, Moved, measure_moves, move_last_place
from narrowdown.engines.search.independent import Heard, Parting, ask_independent, find_parting

# Other failing feeds that are looked at where the worst one is noise: a real failure beside it
# would fail on most of them. Chosen, not measured: each costs two runs of the reference.
OTHERS = 3

Verdict = Literal["", "reference", "unresolved", "export", "noise"]


class Tried(msgspec.Struct, frozen=True):
    """``model`` and ``measurement`` to go on with: those that were given, or against
    the reference that stands in.

    ``heard``: what was found of the reference, or with golden outputs of the model. ``verdict``: ""
    where that decides nothing; ``reference``: the reference is wrong or unsteady, and the engine
    may be right; ``export``: the model is not what the golden outputs were recorded of;
    ``unresolved``: there are two sides and nobody to settle it; ``noise``: what fails is not
    determined, as rounding moves it or as it is drawn. ``parting``: where the two sides part.
    """

    model: WholeModel
    measurement: Measurement
    heard: Heard = Heard()
    verdict: Verdict = ""
    moved: Moved = Moved()
    parting: Parting = Parting()


def try_reference(model: WholeModel, m: Measurement) -> Sub[Tried]:
    """``Tried``, on the feed that the search would work on. ``m``: the engine against the reference
    on every sample."""
    findings, rule = model.findings, model.rule
    feed = (
        findings.sample
        or choose_feed(findings, worst(m.results, rule)[0])
        or findings.samples[0].id,
    )
    note = "is the reference itself steady and right?"
    twice = yield from model.unlimited.compare(model.reference, samples=feed, attempt=1, note=note)
    if twice.told and twice.error > SHARE * twice.allowed:
        return Tried(model, m, Heard("unsteady", moves=twice.error), "reference")
    failing = tuple(r.sample for r in list_failing(m.results, rule))
    moved = yield from move_last_place(model, failing)
    if moved.explains:
        determined = yield from _find_elsewhere(model, m)
        if determined is None:
            # Whoever is right about digits that nobody has.
            return Tried(model, m, verdict="noise", moved=moved)
        findings, moved = determined
        model, feed = model.of(findings), (findings.sample,)
    heard = yield from ask_independent(model, feed)
    if heard.standing == "wrong":
        # Of an infinite failure nobody has asked yet. What rounding moves as far, no two that agree
        # decide.
        moves = yield from measure_moves(model, feed, heard.output)
        if (heard.error or 0.0) <= WITHIN * moves:
            heard = heard.stand("rounding", moves=moves)
    tried = Tried(model, m, heard, moved=moved)
    match heard.standing:
        case "wrong":
            tried = yield from _replace_reference(tried, feed)
        case "alone":
            tried = yield from _weigh_alone(tried, feed)
        case "open" | "rounding" if (yield from _is_unclear(model, heard, feed)):
            return msgspec.structs.replace(tried, verdict="unresolved")
    if not tried.verdict:
        return tried
    parting = yield from find_parting(model, feed, model.reference, heard.judge)
    return msgspec.structs.replace(tried, parting=parting)


def _is_unclear(model: WholeModel, heard: Heard, feed: tuple[str, ...]) -> Sub[bool]:
    """Computations that differ among themselves by as much as the engine differs from one of them
    accuse nobody, unless all are within what is allowed."""
    failure = model.findings.signature
    if failure is None or heard.spread < limit(model.rule, heard.output):
        return False
    if failure.error < WITHIN * heard.spread:
        return True
    near = SHARE * failure.error < heard.spread
    return near and not (yield from model.is_exact_unoptimized(feed))


def _weigh_alone(tried: Tried, feed: tuple[str, ...]) -> Sub[Tried]:
    """The trial where the one independent engine that answers differs from the reference.

    An engine under test that fails is no judge, but where it gives what that one gives there are
    two against the reference. An engine that passes says nothing for a reference that it shares
    code with. Where ONNX's own operators do not bear the other out, it accuses nobody.
    """
    model, heard = tried.model, tried.heard
    signature, off = model.findings.signature, heard.error or 0.0
    if signature is None:
        agree = not families(model.engine) & families(model.reference)
        if off <= limit(model.rule, heard.output) or agree or heard.beside is False:
            return tried
        moves = yield from measure_moves(model, feed, heard.output)
        if SHARE * off <= moves:
            return tried
        return msgspec.structs.replace(tried, heard=heard.stand("doubted"), verdict="unresolved")
    engine = yield from model.compare(reference=heard.judge, samples=feed)
    if not engine.told or engine.error > engine.allowed or engine.error > SHARE * signature.error:
        return tried
    verdict: Verdict = "unresolved" if heard.beside is False else "reference"
    return msgspec.structs.replace(tried, heard=heard.stand("sides"), verdict=verdict)


def _find_elsewhere(model: WholeModel, m: Measurement) -> Sub[tuple[Findings, Moved] | None]:
    """The failure on another feed, where rounding does not explain it; None where it explains all
    that were asked."""
    findings, rule = model.findings, model.rule
    here = findings.sample.partition("/")[0]
    failing = list_failing(m.results, rule)
    others = [r for r in failing if r.sample.partition("/")[0] != here]
    others.sort(key=lambda r: -worst((r,), rule)[2])
    for result in others[:OTHERS]:
        signature, feed = sign_failure(result, rule, result.sample), result.sample.partition("/")[0]
        on_it = msgspec.structs.replace(findings, signature=signature, sample=feed)
        moved = yield from move_last_place(model.of(on_it), tuple(r.sample for r in failing))
        if not moved.explains:
            return on_it, moved
    return None


def stand_in(model: WholeModel, judge: str, why: str) -> Sub[tuple[Distance, WholeModel]]:
    """The engine against ``judge`` on every sample, and the model with that one as the reference
    and its failure locked anew."""
    fresh = msgspec.structs.replace(model.findings, signature=None, sample="")
    against = model.of(fresh, judge)
    engine = yield from against.compare()
    locked = yield from lock_failure(against.ctx, fresh, engine.measurement)
    replaced = Replaced(model.reference, judge, why)
    return engine, against.of(msgspec.structs.replace(locked, replaced=replaced))


def _replace_reference(tried: Tried, feed: tuple[str, ...]) -> Sub[Tried]:
    """The trial of a reference that two others agree against, gone on with the first of them where
    that can stand in."""
    model, heard = tried.model, tried.heard
    judge, passed = name_engine(heard.judge), model.findings.signature is None
    agree = f"{judge} and {name_engine(heard.other)} agree against it"
    engine, against = yield from stand_in(model, heard.judge, agree)
    if not engine.told:
        why = f"{judge} cannot stand in for it: {engine.why.rstrip('.')}."
        engine = yield from model.compare(reference=heard.judge, samples=feed)
        found = msgspec.structs.replace(model.findings, alike=passed and engine.exceeds)
        heard = msgspec.structs.replace(heard, why=why)
        return msgspec.structs.replace(
            tried, model=model.of(found), heard=heard, verdict="reference"
        )
    if against.findings.signature is None:
        # By those who are right the engine is right. Where it passed against the reference, too,
        # its verdict stands.
        stands = passed and (heard.error or 0.0) <= engine.allowed
        return msgspec.structs.replace(tried, verdict="" if stands else "reference")
    found = msgspec.structs.replace(against.findings, alike=passed)
    return Tried(against.of(found), engine.measurement, heard.stand("replaced"), moved=tried.moved)
