"""One decisive probe measured again: by one look, or, where the fault comes and goes, by as many as
its rate takes."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from narrowdown.engines.compare.judge import Verdict
from narrowdown.engines.discovery import find
from narrowdown.engines.probe import AnyProbe, Measure, Measurement
from narrowdown.engines.spec import EngineSpec, parse
from narrowdown.wizard.runner.decisive import (
    Decisive,
    Shape,
    judged_as,
    recorded_tally,
    shape,
    tally,
)
from narrowdown.wizard.runner.drive import Asking
from narrowdown.wizard.runner.rates import Rule, Tally, rule
from narrowdown.wizard.runner.table import Outcome, Row, Stand
from narrowdown.wizard.session import SessionProblem
from narrowdown.wizard.words import show_error

_UNANSWERED = 3  # looks that were no answer (a crash, a refusal), after which no more are taken


class Again:
    """Measures the decisive probes of one session again, each question once. ``base``: the engine
    of the session; ``other``: the one in its place; ``recorded``: what each engine spec was when it
    recorded; ``asking``: its limit is what the session, as it ended, would let a probe take."""

    def __init__(
        self,
        base: EngineSpec,
        other: EngineSpec,
        recorded: Mapping[str, Mapping[str, Any]],
        asking: Asking,
    ) -> None:
        self._base, self._other, self._recorded = base, other, recorded
        self._asking = asking
        self._known: dict[str, Measurement] = {}

    async def rules(self, items: Sequence[Decisive]) -> list[Rule | None]:
        """How each item is judged, fixed before any look is taken; None: by one look."""
        asked: list[tuple[str, Tally, bool] | None] = []
        for item in items:
            probe = with_engine(item.probe, self._base, self._other)
            then = recorded_tally(item) if item.looks else Tally()
            asked.append(None)
            if probe is not None and then.looks:
                name = await self._asking.key(probe, 0)
                asked[-1] = (name, then, self._unchanged(item.probe, probe))
        questions = len({each[0] for each in asked if each})
        return [each and rule(each[1], questions, unchanged=each[2]) for each in asked]

    def _unchanged(self, then: AnyProbe, now: AnyProbe) -> bool:
        """Whether the engine of this question is the one that recorded: the same spec, version and
        driver. Another machine is no other engine."""
        if (
            not isinstance(then, Measure)
            or not isinstance(now, Measure)
            or then.engine != now.engine
        ):
            return False
        before = Stand.of(then.engine, self._recorded.get(then.engine, {}))
        inspected = self._asking.inspected.get(now.engine)
        here = Stand.of(now.engine, inspected.facts if inspected else {})
        return not before.version or (before.version, before.driver) == (here.version, here.driver)

    async def row(self, item: Decisive, how: Rule | None) -> Row:
        """The item's line of the table. Raises SessionProblem where it was stopped."""
        recorded = judged_as(item, item.recorded) if item.recorded else None
        row = Row(
            item.visit.node,
            item.visit.visit,
            item.role,
            _say_verdict(recorded, item.criterion.metric),
            "",
            "cannot tell",
            **_one(recorded, "recorded_"),
        )
        probe = with_engine(item.probe, self._base, self._other)
        if probe is None:
            why = f"{self._other.name} has other options than {self._base.name}"
            return msgspec.structs.replace(
                row, now="not measured", outcome="not possible", detail=why
            )
        if how is not None:
            return await self._by_rates(item, probe, how, row)
        measurement = await self._look(item, probe)
        verdict = judged_as(item, measurement)
        outcome, detail = _compared(item, recorded, verdict, measurement)
        return msgspec.structs.replace(
            row,
            now=_say_verdict(verdict, item.criterion.metric),
            outcome=outcome,
            detail=detail,
            **_one(verdict),
        )

    async def _look(self, item: Decisive, probe: AnyProbe) -> Measurement:
        """The answer, measured once however many lines ask for it."""
        name = await self._asking.key(probe, 0)
        if name not in self._known:
            began = time.monotonic()
            runs = max(1, probe.runs) if isinstance(probe, Measure) else 1
            # A step's own limit is that of one build and run: many samples of a slow model had less
            # time here than when they were recorded.
            limit = getattr(probe, "timeout", 0.0) or max(
                item.visit.timeout * runs, self._asking.limit(probe)
            )
            self._known[name] = await self._asking.pool.run(probe, limit)
            if self._known[name].status == "cancelled":
                raise SessionProblem(
                    f"The replay was stopped after {time.monotonic() - began:.0f} s of a probe."
                )
        return self._known[name]

    # -- by rates -----------------------------------------------------------------------------------------------------

    async def _by_rates(self, item: Decisive, probe: AnyProbe, how: Rule, row: Row) -> Row:
        """Look until the rule says what it is. A failure in another manner than any that was
        recorded counts as none of those."""
        recorded = shape(item, item.looks)
        known = recorded if recorded.outputs else None
        now, fails, unanswered, judged = Tally(), 0, 0, "look on"
        seen: list[Measurement] = []
        while judged == "look on" and unanswered < _UNANSWERED:
            again = msgspec.structs.replace(probe, attempt=len(seen))
            seen.append(measurement := await self._look(item, again))
            told = tally(item, measurement, known)
            unanswered += not told.looks
            if told.looks:
                fails += tally(item, measurement).failures
                now += told
                judged = how.judge(now)
        outcome, detail = _judged_by_rates(how, judged, now, fails, recorded, shape(item, seen))
        last = judged_as(item, seen[-1])
        if judged == "look on":
            outcome, detail = "cannot tell", last.detail or last.reason or seen[-1].message
        return msgspec.structs.replace(
            row,
            recorded=_rate(how.then, _worst(item, item.looks), item.criterion.metric),
            now=_rate(now, _worst(item, seen), item.criterion.metric)
            if now.looks
            else _say_verdict(last, item.criterion.metric),
            outcome=outcome,
            detail=detail,
            recorded_failures=how.then.failures,
            recorded_looks=how.then.looks,
            failures=now.failures,
            looks=now.looks,
        )


def _judged_by_rates(
    how: Rule, judged: str, now: Tally, fails: int, recorded: Shape, shown: Shape
) -> tuple[Outcome, str]:
    """``fails``: looks that fail in any manner."""
    then, otherwise = how.then.failures, fails - now.failures
    other = f"{recorded} recorded, {shown} now" if otherwise else ""
    if judged == "same":
        return ("still fails" if then else "still passes"), other
    if judged == "differs" and not then:
        return "fails now", other
    if judged == "differs" and fails:
        return "fails differently", other or "another rate"
    if judged == "differs":
        return "fixed", f"{now.looks:,} tries, no failure"
    if how.unchanged and then and otherwise:
        return "still fails", other
    if how.unchanged and then:
        return (
            "cannot tell",
            "the engine is the one that recorded; where the load decides, try again on a busy machine",
        )
    if then and not fails:
        return "cannot tell", "too few tries were recorded to call it fixed"
    return "cannot tell", f"{now.looks} tries do not tell these rates apart"


def _rate(told: Tally, worst: Verdict | None, metric: str) -> str:
    """``7 of 8 tries fail (30 %)``."""
    return f"{told.failures} of {told.looks} tries fail{_size(worst, metric)}"


def _worst(item: Decisive, looks: Iterable[Measurement]) -> Verdict | None:
    """The worst of the verdicts that are answers."""
    told = [verdict for m in looks if (verdict := judged_as(item, m)).kind != "unresolved"]
    return max(told, key=lambda verdict: (verdict.failed, verdict.own or 0.0), default=None)


# -- by one look --------------------------------------------------------------------------------------------------------


def _one(verdict: Verdict | None, prefix: str = "") -> dict[str, Any]:
    """The counts of one look."""
    answered = verdict is not None and verdict.kind != "unresolved"
    return {
        f"{prefix}failures": int(verdict is not None and verdict.failed),
        f"{prefix}looks": int(answered),
    }


def _say_verdict(verdict: Verdict | None, metric: str) -> str:
    if verdict is None:
        return "not measured"
    said = {"fail": "fails", "pass": "passes", "unresolved": verdict.reason or "unresolved"}[
        verdict.kind
    ]
    return said + ("" if verdict.kind == "unresolved" else _size(verdict, metric))


def _size(verdict: Verdict | None, metric: str) -> str:
    own = verdict.own if verdict else None
    return "" if own is None else f" ({show_error(own, metric)})"


def _compared(
    item: Decisive, recorded: Verdict | None, now: Verdict, measurement: Measurement
) -> tuple[Outcome, str]:
    if now.kind == "unresolved" or recorded is None:
        same = recorded is not None and (recorded.kind, recorded.reason) == (now.kind, now.reason)
        return ("same", "") if same else ("cannot tell", now.detail or measurement.message)
    if recorded.kind == "unresolved":
        return "differs", f"{recorded.reason or 'unresolved'} before"
    if recorded.passed:
        return ("still passes", "") if now.passed else ("fails now", now.detail)
    if now.passed:
        return "fixed", ""
    before, after = shape(item, [item.recorded]), shape(item, [measurement])
    if before != after:
        return "fails differently", f"{before} recorded, {after} now"
    return "still fails", ""


# -- another engine -----------------------------------------------------------------------------------------------------


def with_engine(probe: AnyProbe, base: EngineSpec, other: EngineSpec) -> AnyProbe | None:
    """The probe on the other engine. What a probe changed about the recorded engine (an optimizer
    off) is changed there too; None where that engine knows no such option."""
    if base == other or not isinstance(probe, Measure):
        return probe
    mine = parse(probe.engine)
    if mine == base:
        return msgspec.structs.replace(probe, engine=str(other))
    if mine.name != base.name:
        return probe  # another engine on purpose: a judge, an emulation
    if other.name != base.name:
        return None
    declared = find(other.name)
    single = (
        {option.name for option in declared.options if option.type != "list"} if declared else set()
    )
    for name, value in mine.options:
        if base.get(name) != value:
            # Of two lists (``a+b``) both, each value once.
            both = dict.fromkeys([*filter(None, other.get(name).split("+")), *value.split("+")])
            other = other.with_option(name, value if name in single else "+".join(both))
    return msgspec.structs.replace(probe, engine=str(other))
