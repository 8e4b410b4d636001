"""The table of a replay: recorded against now, line by line, and what it comes to."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from narrowdown.wizard import Exit

Outcome: TypeAlias = Literal[
    "fixed", "still fails", "fails differently", "still passes", "fails now", "same", "differs", "cannot tell",
    "not possible",
]  # fmt: skip
Expect: TypeAlias = Literal["same", "fixed", "fails"]

FINE: Mapping[Expect, tuple[Outcome, ...]] = {
    "same": ("same", "still fails", "still passes", "not possible"),
    "fixed": ("same", "fixed", "still passes", "not possible"),
    "fails": ("same", "still fails", "fails differently", "still passes", "not possible"),
}


# What an exit code says of a replay; of any other code, UNTOLD.
OUTCOMES: Mapping[int, str] = {Exit.FOUND: "as expected", Exit.DIFFERS: "not as expected"}
UNTOLD = "cannot tell"


class Row(msgspec.Struct, frozen=True):
    """One line of the table. The counts are 0 where nothing was measured."""

    node: str  # of the flow
    visit: int  # which entry into that node
    role: str  # `whole`, `case`, `good`, `workaround`, ...; `step` and `question` of a dry replay
    recorded: str  # then
    now: str  # now
    outcome: Outcome  # what the two come to
    detail: str = ""  # more of it
    recorded_failures: int = 0  # of `recorded_looks`
    recorded_looks: int = 0  # answered then; 1 unless the fault is intermittent
    failures: int = 0  # of `looks`, in a manner that was recorded
    looks: int = 0  # answered now; 0 where nothing was measured


class Stand(msgspec.Struct, frozen=True):
    """An engine, as it was or is. All empty where it was not looked at."""

    spec: str = ""  # engine spec
    version: str = ""  # of the engine
    device: str = ""  # that it computes on
    driver: str = ""  # of that device; empty where it has none
    fingerprint: str = ""  # equal where results may be compared bit by bit

    @classmethod
    def of(cls, spec: str, facts: Mapping[str, Any]) -> "Stand":
        """``facts``: those of an ``EngineInfo``."""
        told = (
            str(facts.get(name) or "") for name in ("version", "device", "driver", "fingerprint")
        )
        return cls(spec, *told)


class Compared(msgspec.Struct, frozen=True):
    """One of the session's two engines: what recorded, and what measured now (nothing, in a dry
    replay)."""

    role: Literal["engine", "reference"]  # which of the session's two
    recorded: Stand  # what recorded the session
    now: Stand  # what measured now; all empty in a dry replay

    def __str__(self) -> str:
        then, now = self.recorded, self.now
        before = then.version or "unknown"
        if not now.fingerprint:
            return f"{then.spec} {before} recorded"
        if now.spec != then.spec:
            return f"{then.spec} {before} recorded, {now.spec} {now.version} now"
        if now.version != then.version:
            return f"{then.spec} {before} recorded, {now.version} now"
        more = (
            "" if now.fingerprint == then.fingerprint else ", on another device, driver or machine"
        )
        return f"{then.spec} {before} recorded and now{more}"


class Replay(msgspec.Struct, frozen=True):
    """The table, and what it comes to: ``fixed``, ``still fails``, ``fails differently``, ``same``,
    ``differs`` or ``cannot tell``."""

    rows: tuple[Row, ...]
    verdict: Outcome
    engines: tuple[Compared, ...] = ()

    def exit_code(self, expect: Expect = "same") -> int:
        """0 as expected, 5 not, 6 cannot tell."""
        outcomes = told_outcomes(self.rows)
        if any(o != "cannot tell" and o not in FINE[expect] for o in outcomes):
            return Exit.DIFFERS
        if expect == "fails" and outcomes & {"still fails", "fails differently"}:
            return Exit.FOUND  # whatever cannot be told besides
        if "cannot tell" in outcomes or not outcomes:
            return Exit.UNRESOLVED
        if expect == "fixed" and "fixed" not in outcomes:
            return Exit.DIFFERS
        if expect == "fails" and "still passes" in outcomes and "same" not in outcomes:
            return Exit.DIFFERS  # nothing of it fails
        return Exit.FOUND


class Result(msgspec.Struct, frozen=True):
    """What ``replay --json`` writes."""

    verdict: Outcome  # of all rows together
    expected: Expect  # `--expect`
    exit_code: int  # of the command
    engines: tuple[
        Compared, ...
    ]  # the engine under test and the reference; none where a check decides
    rows: tuple[Row, ...]  # the table
    format: Literal[1] = 1  # version of this format


def told_outcomes(rows: Iterable[Row]) -> set[Outcome]:
    """The outcomes that count. Where something is fixed, a line that failed once or twice then and
    in no look now does not speak against it: too little was recorded to call it fixed by itself."""
    rows = tuple(rows)
    outcomes = {row.outcome for row in rows}
    if "fixed" not in outcomes:
        return outcomes
    return {
        r.outcome
        for r in rows
        if r.outcome != "cannot tell" or r.failures or not (r.looks and r.recorded_failures)
    }


def sum_up(rows: Iterable[Row]) -> Outcome:
    """What the table comes to: a case that is gone is fixed only when nothing else fails now."""
    outcomes = told_outcomes(rows)
    ranked: tuple[Outcome, ...] = (
        "cannot tell",
        "fails now",
        "differs",
        "fails differently",
        "still fails",
        "fixed",
    )
    return next((o for o in ranked if o in outcomes), "same")
