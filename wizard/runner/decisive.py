"""The probes that decided a recorded session, which a replay asks again, and what its journal says
to each."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from narrowdown.engines.compare.judge import (
    Criterion,
    Verdict,
    exceed,
    judge_check,
    judge_recorded,
    judge_shrunk,
    over,
    restrict,
)
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import AnyProbe, Check, Measure, Measurement, is_given
from narrowdown.engines.store import Store, decoding
from narrowdown.wizard.runner.ledger import asked_probe, known_measurement
from narrowdown.wizard.runner.rates import Tally
from narrowdown.wizard.session.state import State, Visit


class Decisive(msgspec.Struct, frozen=True):
    """One probe that a replay measures again. ``recorded``: what the session measured; ``looks``:
    what it measured of the same question all in all, where the fault comes and goes."""

    visit: Visit
    role: str
    probe: AnyProbe
    recorded: Measurement | None
    looks: tuple[Measurement, ...] = ()

    @property
    def findings(self) -> Findings:
        """What its step had found."""
        return self.visit.findings or Findings()

    @property
    def criterion(self) -> Criterion:
        """What it was judged by then."""
        return self.findings.criterion or Criterion()


def decisive(state: State, store: Store) -> list[Decisive]:
    """The decisive probes of the recorded route, in its order."""
    varies = comes_and_goes(state)
    found = []
    for visit in state.route:
        for row in _rows(state, visit, store):
            probe: AnyProbe = row["probe"]
            if varies:
                found.append(_looked_at(state, store, visit, row["role"], probe))
                continue
            measurement = known_measurement(state, row["key"], store)
            if measurement is None:
                measurement = next((m for _, m in _alike(state, probe, store)), None)
            found.append(Decisive(visit, row["role"], probe, measurement))
    return found


def _rows(state: State, visit: Visit, store: Store) -> Iterator[dict[str, Any]]:
    if "decisive" in visit.tables:
        with contextlib.suppress(OSError, ValueError):
            for row in decoding.decode(store.get(visit.tables["decisive"])):
                yield {**row, "probe": msgspec.convert(row["probe"], AnyProbe)}
            return
    for role, keys in visit.decisive.items():
        for name in keys:
            if (probe := asked_probe(state, name, store)) is not None:
                yield {"role": role, "key": name, "probe": probe}


# -- where the fault comes and goes -----------------------------------------------------------------------------------


def comes_and_goes(state: State) -> bool:
    """Whether the session found that its fault shows in some looks only."""
    return any(_varies(visit.findings) for visit in state.route if visit.findings is not None)


def _varies(findings: Findings) -> bool:
    cases = [c.case for c in findings.culprits] + [findings.case]
    verified = [_verified(case.verified) for case in cases if case is not None]
    return (
        findings.looks > 1
        or findings.builds > 1
        or (
            findings.signature is not None
            and findings.signature.failures < findings.signature.looks
        )
        or any(c.cause == "nondeterminism" for c in findings.culprits)
        or any(0 < tally.failures < tally.looks for tally in verified)
    )


def _verified(text: str) -> Tally:
    """The ``k/n`` of a case."""
    k, _, n = text.partition("/")
    return Tally(int(k), int(n)) if k.isdigit() and n.isdigit() else Tally()


def _looked_at(state: State, store: Store, visit: Visit, role: str, probe: AnyProbe) -> Decisive:
    """The question as the session asked it when it looked hardest: on the real inputs where there
    are any, alone on the machine, with as many runs of a build as it ever took."""
    asked = _plain(probe)
    if isinstance(asked, Measure) and isinstance(probe, Measure):
        real = tuple(s for s in probe.samples if is_given(s))
        asked = msgspec.structs.replace(asked, samples=real or probe.samples)
    answers = list(_alike(state, asked, store))
    if role == "case":
        # The search took this case because it failed when first looked at; what was looked at later
        # was not chosen so.
        answers = [(p, m) for p, m in answers if p.attempt] or answers
    if isinstance(asked, Measure) and isinstance(probe, Measure):
        runs = (
            max([asked.runs, *(p.runs for p, _ in answers if isinstance(p, Measure))])
            if probe.runs
            else 0
        )
        asked = msgspec.structs.replace(asked, runs=runs)
    asked = msgspec.structs.replace(asked, exclusive=True, timeout=getattr(probe, "timeout", 0.0))
    hardest = [m for p, m in answers if getattr(p, "runs", 0) == getattr(asked, "runs", 0)]
    looks = tuple(m for _, m in answers)
    return Decisive(visit, role, asked, next(iter(hardest or looks), None), looks)


def recorded_tally(item: Decisive) -> Tally:
    """How often it failed then, of the looks that are as long as a look now."""
    full = item.probe.runs if isinstance(item.probe, Measure) else 1
    looks = (tally(item, m) for m in item.looks if _runs(m) >= full)
    seen = sum(looks, start=Tally())
    case = item.findings.case
    verified = _verified(case.verified) if item.role == "case" and case is not None else Tally()
    return verified if verified.looks > seen.looks else seen  # the journal may have lost some


def tally(item: Decisive, measurement: Measurement, known: "Shape | None" = None) -> Tally:
    """One look; nothing where it was no answer. A failure that is not like the ``known`` ones
    counts as none."""
    judged = [
        judged_as(item, msgspec.structs.replace(measurement, results=run, runs=()))
        for run in measurement.each_run
    ]
    fails = any(verdict.failed for verdict in judged)
    answered = fails or any(verdict.passed for verdict in judged)
    alike = fails and (known is None or shape(item, [measurement]).within(known))
    return Tally(int(alike), int(answered))


def _runs(measurement: Measurement) -> int:
    told = measurement.facts.get("runs")
    return max(1 + len(measurement.runs), int(told) if isinstance(told, int) else 1)


# -- the same question in another manner --------------------------------------------------------------------------------


def _plain(probe: AnyProbe) -> AnyProbe:
    """The question alone: not how often, how long, on which of its samples, or what is kept of
    it."""
    changes: dict[str, Any] = {
        "attempt": 0, "exclusive": False, "timeout": 0.0, "save": "", "runs": 1, "samples": (), "record": False, "artifacts": (),
    }  # fmt: skip
    return msgspec.structs.replace(probe, **{k: v for k, v in changes.items() if hasattr(probe, k)})


def _alike(state: State, probe: AnyProbe, store: Store) -> Iterator[tuple[AnyProbe, Measurement]]:
    """What the session measured of the same question asked in another manner: with its files kept,
    alone on the machine, in several runs, or of more samples than these."""
    wanted = _plain(probe)
    for name in state.asked:
        other = asked_probe(state, name, store)
        if other is None or type(other) is not type(probe) or _plain(other) != wanted:
            continue
        measurement = known_measurement(state, name, store)
        if measurement is None or not isinstance(probe, Measure) or not isinstance(other, Measure):
            found = measurement
        elif set(probe.samples) <= set(other.samples):
            found = restrict(measurement, probe.samples)
        else:
            continue
        if found is not None:
            yield other, found


# -- verdicts ---------------------------------------------------------------------------------------------------------


class Shape(msgspec.Struct, frozen=True):
    """What a failure looks like: the outputs over tolerance, and whether values became
    non-finite."""

    outputs: tuple[str, ...] = ()
    broken: bool = False

    def within(self, other: "Shape") -> bool:
        """Whether nothing fails but what fails in the other."""
        return set(self.outputs) <= set(other.outputs) and self.broken <= other.broken

    def __str__(self) -> str:
        named = ", ".join(self.outputs[:4]) or "no output"
        return named + (" not finite" if self.broken else " over tolerance")


def shape(item: Decisive, measurements: Iterable[Measurement | None]) -> Shape:
    """What fails in any run of these."""
    answered = (m for m in measurements if m is not None)
    runs = [run for m in answered for run in m.each_run if exceed(run, item.criterion)]
    scores = [s for run in runs for r in run for s in r.outputs if over(s, item.criterion)]
    return Shape(tuple(sorted({s.name for s in scores})), any(s.new_nonfinite for s in scores))


def judged_as(item: Decisive, measurement: Measurement) -> Verdict:
    """By the recorded findings: what counted as failing then counts now."""
    findings, criterion = item.findings, item.criterion
    if isinstance(item.probe, Check):
        return judge_check(measurement, criterion)
    signature = findings.round_signature or findings.signature
    whole = isinstance(item.probe, Measure) and item.probe.candidate.nodes == ranges.ALL
    case = findings.case
    if (
        item.role == "case"
        and case is not None
        and case.candidate.edits
        and case.signature is not None
    ):
        return judge_shrunk(measurement, criterion, case.signature)
    return judge_recorded(measurement, criterion, signature, whole=whole)
