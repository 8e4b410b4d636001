"""Replays of sessions whose fault comes and goes, over an engine that fails at a rate that is
known."""

import functools
import json
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from house import CONFIRMING, PROBLEM, LookOutcome, Params, measure, walk

from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.findings import Case, Culprit, Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Candidate, Inspect, Measure, Measurement, SampleResult, Score
from narrowdown.engines.steps.base import Finish, StepContext, Steps, StepSpec
from narrowdown.wizard.runner import decisive
from narrowdown.wizard.runner.replay import Teller, Wanted, real
from narrowdown.wizard.runner.table import Expect, Outcome, Replay, Row, sum_up
from narrowdown.wizard.session import folder as folders

CASE = Case(
    candidate=Candidate(nodes="3-4"), sample="real:0", verified="7/8", good=Candidate(nodes="3")
)
FINDINGS = Findings(
    model="m",
    criterion=Criterion(tolerance=0.01),
    signature=Signature(kind="accuracy", sample="real:0", outputs=("y",), errors={"y": 0.5}),
    case=CASE,
    culprits=(Culprit(case=CASE, cause="unknown"),),
    builds=8,
)


def confirm(ctx: StepContext) -> Steps[LookOutcome]:
    whole = msgspec.structs.replace(measure(()), candidate=Candidate())
    case, good = measure((3, 4)), measure((3,))
    fixed = msgspec.structs.replace(whole, engine="fake:off=a,precision=fp16")
    for question in (whole, case, good, fixed):
        for attempt in range(9):
            yield msgspec.structs.replace(question, attempt=attempt)
    return Finish(
        LookOutcome(verdict="fails"),
        FINDINGS,
        decisive={"whole": (whole,), "case": (case,), "good": (good,), "workaround": (fixed,)},
    )


STEPS = {
    "confirm": StepSpec(
        name="confirm", version=1, summary="", run=confirm, outcome=LookOutcome, params=Params
    )
}


class Wavering:
    """An engine of a version that fails at a rate where nodes 3 and 4 are together, unless its
    optimizer is off; and elsewhere at the rate ``anywhere``."""

    def __init__(
        self,
        seed: object,
        rate: float,
        version: str = "1.0",
        anywhere: float = 0.0,
        broken: bool = False,
    ):
        self._draw, self._rate, self._version = random.Random(str(seed)), rate, version
        self._anywhere, self._broken = anywhere, broken
        self.asked = 0

    async def start(self) -> None:
        pass

    async def run(self, probe, timeout: float = 0.0, log: str = "") -> Measurement:
        if isinstance(probe, Inspect):
            return Measurement(
                facts={"fingerprint": f"e-{self._version}", "version": self._version}
            )
        assert isinstance(probe, Measure)
        self.asked += 1
        nodes = (
            set(range(9))
            if probe.candidate.nodes == "*"
            else set(ranges.decode(probe.candidate.nodes))
        )
        rate = self._rate if {3, 4} <= nodes and "off=" not in probe.engine else self._anywhere
        error = 0.5 if self._draw.random() < rate else 0.0001
        score = Score(
            name="y", rel_l2=error, max_abs=error, new_nonfinite=int(self._broken and error > 0.01)
        )
        return Measurement(results=(SampleResult("real:0", outputs=(score,), effect=(score,)),))

    async def stop(self, hard: bool = False) -> None:
        pass

    def snapshot(self) -> list:
        return []


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Sessions, each recorded once: a replay leaves them as they are."""
    home = tmp_path_factory.mktemp("recorded")

    @functools.cache
    def record(seed: int, rate: float) -> Path:
        place = folders.create(
            PROBLEM, json.dumps(msgspec.to_builtins(CONFIRMING)), folder=home / f"{seed}-{rate}"
        )
        assert walk(place, Wavering(("then", seed), rate), flow=CONFIRMING, steps=STEPS) == 0
        return place

    return record


def again(place: Path, engine: Wavering, expect: Expect = "same", **how) -> Replay:
    return real(place, Wanted(expect=expect, keep_going=True), make_pool=lambda _: engine, **how)


def codes(recorded: Callable[..., Path], version: str) -> list[int]:
    """Exit codes of replays at the recorded rate, many rates."""
    found = []
    for seed in range(12):
        rate = random.Random(seed).uniform(0.1, 0.95)
        place = recorded(seed, rate)
        found += [again(place, Wavering((seed, n), rate, version)).exit_code() for n in range(5)]
    return found


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_the_same_rate_is_never_called_another_one(
    recorded: Callable[..., Path], version: str
) -> None:
    found = codes(recorded, version)
    assert 5 not in found, "2 of 1,000 are allowed, these are 60"
    assert found.count(0) > len(found) / 2


def test_one_look_would_call_it_another_one(
    recorded: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant that the test above must catch."""
    monkeypatch.setattr(decisive, "comes_and_goes", lambda _: False)
    found = codes(recorded, "1.0")
    assert found.count(5) > len(found) / 10


def test_a_mended_engine_is_found_mended_and_its_own_never(recorded: Callable[..., Path]) -> None:
    place = recorded(1, 0.9)
    mended = again(place, Wavering(1, 0.0, "2.0"), expect="fixed")
    assert [row.outcome for row in mended.rows] == [
        "fixed",
        "fixed",
        "still passes",
        "still passes",
    ]
    assert mended.exit_code("fixed") == 0
    assert (mended.rows[1].failures, mended.rows[1].recorded_looks) == (0, 8)
    assert mended.rows[1].detail == f"{mended.rows[1].looks} tries, no failure"
    quiet = again(place, Wavering(1, 0.0))
    assert [row.outcome for row in quiet.rows][:2] == ["cannot tell", "cannot tell"]
    assert "is the one that recorded" in quiet.rows[0].detail
    assert [quiet.exit_code(expect) for expect in ("same", "fixed", "fails")] == [6, 6, 6]


def test_what_fails_now_and_passed_is_found_on_any_engine(recorded: Callable[..., Path]) -> None:
    place = recorded(2, 0.6)
    for version in ("1.0", "2.0"):
        found = again(place, Wavering(2, 0.6, version, anywhere=0.95))
        assert [row.outcome for row in found.rows][2:] == ["fails now", "fails now"]
        assert found.exit_code() == 5
    rare = again(place, Wavering(3, 0.6, anywhere=0.1))
    assert {row.outcome for row in rare.rows[2:]} <= {"cannot tell", "still passes"}


def test_another_rate_and_another_manner_are_found_on_another_engine(
    recorded: Callable[..., Path],
) -> None:
    place = recorded(3, 1.0)
    rarer = again(place, Wavering(3, 0.05, "2.0"))
    assert {row.outcome for row in rarer.rows[:2]} <= {"fails differently", "fixed"}
    broken = again(place, Wavering(3, 0.95, "2.0", broken=True))
    assert [row.outcome for row in broken.rows][:2] == ["fails differently", "fails differently"]
    assert "not finite now" in broken.rows[0].detail
    assert [broken.exit_code(expect) for expect in ("same", "fixed", "fails")] == [5, 5, 0]


def test_on_its_own_engine_the_first_failure_settles_it(recorded: Callable[..., Path]) -> None:
    place = recorded(4, 0.95)
    engine = Wavering(4, 1.0)
    notes: list[str] = []

    class Heard(Teller):
        def note(self, said: str) -> None:
            notes.append(said)

    found = again(place, engine, teller=Heard())
    assert [(row.failures, row.looks) for row in found.rows] == [(1, 1), (1, 1), (0, 9), (0, 9)]
    assert [row.recorded_looks for row in found.rows] == [9, 8, 9, 9], (
        "the look that chose the case does not count"
    )
    assert engine.asked == 20
    (said,) = notes
    assert said == "The fault comes and goes: each question is tried 64 times at most."


def test_a_line_that_was_hardly_looked_at_does_not_hide_that_the_rest_is_fixed() -> None:
    def row(outcome: Outcome, failures: int = 0, recorded: int = 1) -> Row:
        return Row(
            "n",
            1,
            "whole",
            "",
            "",
            outcome,
            failures=failures,
            looks=64,
            recorded_failures=recorded,
            recorded_looks=21,
        )

    fixed, weak = row("fixed", recorded=8), row("cannot tell")
    assert Replay((weak, fixed), sum_up((weak, fixed))).exit_code("fixed") == 0
    assert sum_up((weak, fixed)) == "fixed"
    for rows in (
        (weak,),
        (row("cannot tell", failures=1), fixed),
        (row("cannot tell", recorded=0), fixed),
    ):
        assert sum_up(rows) == "cannot tell"
        assert Replay(rows, "cannot tell").exit_code("fixed") == 6
    assert Replay((weak, fixed), "fixed").exit_code("same") == 5
