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
from narrowdown.engines.asking.whole_model import WholeModel, name_engine
from narrowdown.engines.compare.judge import SHARE, limit, sign_failure, worst
from narrowdown.engines.findings import Findings, Replaced
from narrowdown.engines.options import families
from narrowdown.engines.probe import Measurement
from narrowdown.engines.search.determined import WITHIN, Moved, measure_moves, move_last_place
from narrowdown.engines.search.golden_reference import Trial
from narrowdown.engines.search.independent import Departure, Heard, ask_independent, find_parting
from narrowdown.engines.search.whole import choose_feed, list_failing, lock_failure

# Seconds for one run of the whole model up to which a confirmed engine serves as the reference of a
# search: each probe runs a part of the model on it, and there are hundreds. Chosen, not measured:
# at 5 s they take most of an hour.
SERVES = 5.0

# Other failing feeds that are looked at where the worst one is noise: a real failure beside it
# would fail on most of them. Chosen, not measured: each costs two runs of the reference.
OTHERS = 3


class Tried(msgspec.Struct, frozen=True):
    """``model`` and ``measurement`` to go on with: those that were given, or against
    the reference that stands in.

    ``verdict``: "" where the trial decides nothing; ``reference``: the reference is wrong or
    unsteady, and the engine may be right; ``unresolved``: there are two sides and nobody to settle
    it. ``moves``: the second run of the reference against its first. ``sides``: the engine under
    test agrees with the one engine that differs from the reference. ``doubted``: that one differs
    by far more than rounding makes, and engine and reference, which agree, share code. ``parting``:
    where the reference and that one part. ``export``: the model is not what the golden outputs
    were recorded of; ``golden``: what was found with golden outputs.
    """

    model: WholeModel
    measurement: Measurement
    given: str = ""
    heard: Heard = Heard()
    moved: Moved = Moved()
    verdict: Literal["", "reference", "unresolved", "export"] = ""
    steady: bool = True
    moves: float = 0.0
    sides: bool = False
    doubted: bool = False
    parting: Departure = Departure()
    why: str = ""  # why a reference that is wrong could not be replaced
    golden: Trial | None = None

    @property
    def searched(self) -> bool:
        """Whether there is a failure that the search goes on with."""
        failing = self.model.findings.signature is not None
        return failing and not self.verdict and not self.moved.explains


def by_golden(given: str, told: Trial) -> Tried:
    """The trial where golden outputs are the reference: it is the model that stood on trial."""
    verdicts: dict[str, Literal["", "unresolved", "export"]] = {
        "export": "export", "unclear": "unresolved", "unheard": "unresolved",
    }  # fmt: skip
    verdict = verdicts.get(told.standing, "")
    return Tried(told.model, told.measurement, given=given, verdict=verdict, golden=told)


def try_reference(model: WholeModel, m: Measurement, most_nodes: int) -> Sub[Tried]:
    """``Tried``, on the feed that the search would work on. ``m``: the engine against the reference
    on every sample; ``most_nodes``: see ``ask_independent``."""
    findings, rule = model.findings, model.rule
    feed = (
        findings.sample
        or choose_feed(findings, worst(m.results, rule)[0])
        or findings.samples[0].id,
    )
    tried = Tried(model, m, given=model.reference)
    note = "is the reference itself steady and right?"
    twice = yield from model.unlimited.compare(model.reference, samples=feed, attempt=1, note=note)
    if twice.told and twice.error > SHARE * twice.allowed:
        return msgspec.structs.replace(tried, steady=False, moves=twice.error, verdict="reference")
    failing = tuple(r.sample for r in list_failing(m.results, rule))
    moved = yield from move_last_place(model, failing)
    tried = msgspec.structs.replace(tried, moved=moved)
    if moved.explains:
        determined = yield from _find_elsewhere(model, m)
        if determined is None:
            return tried  # whoever is right about digits that nobody has
        findings, moved = determined
        model, feed = model.of(findings), (findings.sample,)
        tried = msgspec.structs.replace(tried, model=model, moved=moved)
    heard = yield from ask_independent(model, feed, m.nodes, most_nodes)
    if heard.standing == "wrong" and heard.error is not None:
        # Of an infinite failure nobody has asked yet. What rounding moves as far, no two that agree
        # decide.
        moves = yield from measure_moves(model, feed, heard.output)
        if heard.error <= WITHIN * moves:
            heard = msgspec.structs.replace(heard, standing="open", moves=moves)
    tried = msgspec.structs.replace(tried, heard=heard)
    match heard.standing:
        case "wrong":
            tried = yield from _replace_reference(model, tried, feed)
        case "alone":
            tried = yield from _weigh_alone(model, tried, feed)
        case "open" if (yield from _is_unclear(model, heard, feed)):
            return msgspec.structs.replace(tried, verdict="unresolved")
    if not tried.verdict:
        return tried
    parting = yield from find_parting(model, feed, heard.judge)
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


def _weigh_alone(model: WholeModel, tried: Tried, feed: tuple[str, ...]) -> Sub[Tried]:
    """The trial where the one independent engine that answers differs from the reference.

    An engine under test that fails is no judge, but where it gives what that one gives there are
    two against the reference. An engine that passes says nothing for a reference that it shares
    code with. Where ONNX's own operators do not bear the other out, it accuses nobody.
    """
    heard, signature = tried.heard, model.findings.signature
    off = heard.error or 0.0
    if signature is None:
        agree = not families(model.engine) & families(model.reference)
        if off <= limit(model.rule, heard.output) or agree or heard.beside is False:
            return tried
        moves = yield from measure_moves(model, feed, heard.output)
        if SHARE * off <= moves:
            return tried
        return msgspec.structs.replace(tried, doubted=True, verdict="unresolved")
    engine = yield from model.compare(reference=heard.judge, samples=feed)
    if not engine.told or engine.error > engine.allowed or engine.error > SHARE * signature.error:
        return tried
    return msgspec.structs.replace(
        tried, sides=True, verdict="unresolved" if heard.beside is False else "reference"
    )


def _find_elsewhere(model: WholeModel, m: Measurement) -> Sub[tuple[Findings, Moved] | None]:
    """The failure on another feed, where rounding does not explain it; None where it explains all
    that were asked."""
    findings, rule = model.findings, model.rule
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
        moved = yield from move_last_place(model.of(on_it), tuple(r.sample for r in failing))
        if not moved.explains:
            return on_it, moved
    return None


def _replace_reference(model: WholeModel, tried: Tried, feed: tuple[str, ...]) -> Sub[Tried]:
    """The trial of a reference that two others agree against, gone on with the first of them where
    that can stand in."""
    before, heard = model.findings, tried.heard
    fresh = msgspec.structs.replace(before, signature=None, sample="")
    against = model.of(fresh, heard.judge)
    judge = name_engine(heard.judge)
    alone = yield from against.compare(
        heard.judge, samples=feed, note=f"the engine against {judge}"
    )
    whole = yield from against.compare()
    m, alike, seconds = whole.measurement, before.signature is None, alone.measurement.run_seconds
    answered = m.status == alone.measurement.status == "ok"
    if not answered or seconds > SERVES:
        slow = f"one run takes {seconds:.0f} s" if answered else (whole.why or alone.why)
        why = f"{judge} cannot stand in for it: {slow.rstrip('.')}."
        engine = yield from model.of(fresh).compare(reference=heard.judge, samples=feed)
        found = msgspec.structs.replace(before, alike=alike and engine.exceeds)
        return msgspec.structs.replace(tried, model=model.of(found), verdict="reference", why=why)
    locked = yield from lock_failure(against.ctx, fresh, m)
    if locked.signature is None:
        # By those who are right the engine is right. Where it passed against the reference, too,
        # its verdict stands.
        stands = alike and (heard.error or 0.0) <= whole.allowed
        return msgspec.structs.replace(tried, verdict="" if stands else "reference")
    why = f"{judge} and {name_engine(heard.other)} agree against it"
    found = msgspec.structs.replace(
        locked, replaced=Replaced(model.reference, heard.judge, why), alike=alike
    )
    return msgspec.structs.replace(tried, model=against.of(found), measurement=m)
