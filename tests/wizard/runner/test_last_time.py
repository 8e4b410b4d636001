"""What a step took is told the next time that the same problem is looked into, and then only."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from house import PROBLEM, Oracle, walk

from narrowdown.engines.asking import Note
from narrowdown.engines.search.cost import Cost, Plan, Work
from narrowdown.engines.search.timings import Seen
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.runner import last_time
from narrowdown.wizard.runner.estimate import Estimate, estimate_rest
from narrowdown.wizard.runner.last_time import (
    PLACES,
    PROBLEMS,
    LastTime,
    find_file,
    is_straight,
    keep_seconds,
    name_problem,
    read_seconds,
    settle_took,
    tell_last_time,
)
from narrowdown.wizard.runner.options import Options
from narrowdown.wizard.session.events import StepStarted
from narrowdown.wizard.session.journal import NAME, read
from narrowdown.wizard.session.state import Known, State, Visit

OPEN = Estimate(Plan((Work("whole", 6),)), Cost(6, 6, 6, 10.0, 0, least=2.0, most=80.0))
KNOWN = msgspec.structs.replace(PROBLEM, digests={PROBLEM.model: "a" * 64})


def started(folder: Path) -> list[StepStarted]:
    return [e for e in read(folder / NAME) if isinstance(e, StepStarted)]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_the_same_problem_is_known_by_its_content() -> None:
    problem = Problem(
        model="/a/m.onnx", inputs=("/a/in.npz",), digests={"/a/m.onnx": "1", "/a/in.npz": "2"}
    )
    named = name_problem(problem, {"e": "1", "r": "2"})
    moved = Problem(
        model="/b/m.onnx",
        inputs=("/b/in.npz",),
        digests={"/b/in.npz": "2", "/b/m.onnx": "1"},
        folder="/b",
    )
    assert name_problem(moved, {"r": "2", "e": "1"}) == named
    for other in (
        {"engine": "x"},
        {"tolerance": {"": 0.1}},
        {"flow": "precision"},
        {"inputs": ()},
        {"seed": 2},
    ):
        assert (
            name_problem(msgspec.structs.replace(problem, **other), {"e": "1", "r": "2"}) != named
        ), other
    changed = msgspec.structs.replace(problem, digests={"/a/m.onnx": "3", "/a/in.npz": "2"})
    assert name_problem(changed, {"e": "1", "r": "2"}) != named
    scored = msgspec.structs.replace(
        problem, score="/s.py", digests={**problem.digests, "/s.py": "3"}
    )
    edited = msgspec.structs.replace(scored, digests={**problem.digests, "/s.py": "4"})
    assert name_problem(scored, {}) != name_problem(edited, {})
    assert name_problem(problem, {"e": "another driver", "r": "2"}) != named
    assert name_problem(msgspec.structs.replace(problem, digests={}), {}) == "", (
        "nobody knows what the model holds"
    )


def test_what_was_kept_is_read_and_the_oldest_goes() -> None:
    assert read_seconds("p", "compare 1") == -1
    keep_seconds("p", "compare 1", 84.4)
    keep_seconds("p", "repeat 1", 9.0)
    keep_seconds("p", "repeat 1", 0.0)
    keep_seconds("", "compare 1", 3.0)
    assert [read_seconds("p", at) for at in ("compare 1", "repeat 1", "repeat 2")] == [
        84.4,
        9.0,
        -1,
    ]
    assert read_seconds("", "compare 1") == -1
    assert find_file().stat().st_mode & 0o777 == 0o600
    for i in range(PROBLEMS - 1):
        keep_seconds(f"q{i}", "compare 1", 1.0)
    keep_seconds("p", "compare 1", 80.0)  # met again: it stays, and the oldest of the others goes
    keep_seconds("last", "compare 1", 1.0)
    assert (read_seconds("p", "compare 1"), read_seconds("q0", "compare 1")) == (80.0, -1)
    assert read_seconds("q1", "compare 1") == 1.0
    for i in range(PLACES + 5):
        keep_seconds("p", f"extract {i}", 1.0)
    assert read_seconds("p", f"extract {PLACES + 4}") == -1
    assert read_seconds("p", "repeat 1") == 9.0


def test_several_programs_at_once_lose_nothing() -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: keep_seconds("p", f"step {i}", 1.0 + i), range(24)))
    assert [read_seconds("p", f"step {i}") for i in range(24)] == [1.0 + i for i in range(24)]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"p": {"compare 1": "long"}}', '{"p": null}'])
def test_what_is_no_memory_tells_nothing_and_is_written_anew(text: str) -> None:
    find_file().parent.mkdir(parents=True)
    find_file().write_text(text)
    assert read_seconds("p", "compare 1") == -1
    keep_seconds("p", "compare 1", 2.0)
    assert read_seconds("p", "compare 1") == 2.0


def test_where_nothing_can_be_written_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    find_file().mkdir(parents=True)
    keep_seconds("p", "compare 1", 2.0)
    assert read_seconds("p", "compare 1") == -1
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    keep_seconds("p", "compare 1", 2.0)
    assert read_seconds("p", "compare 1") == -1


def test_what_others_may_write_is_not_believed() -> None:
    keep_seconds("p", "compare 1", 2.0)
    find_file().chmod(0o622)
    assert read_seconds("p", "compare 1") == -1


@pytest.mark.parametrize(
    ("each", "passed", "took"),
    [((), 3.0, 0.0), ((1.0, 2.0), 9.0, 3.0), ((4.0,) * 4, 6.0, 6.0), ((80.0, 1.0), 2.0, 80.0)],
)
def test_a_step_took_what_it_was_waited_for(
    each: tuple[float, ...], passed: float, took: float
) -> None:
    """Paused; four at a time; a first build that was begun while somebody read."""
    answers = [Known(seq=8 + i, seconds=s) for i, s in enumerate(each)]
    assert settle_took(answers, 7, passed) == took
    assert settle_took([Known(seq=7, seconds=50.0), *answers], 7, passed) == took, (
        "what was known costs nothing"
    )


def test_a_session_is_straight_until_a_step_ran_twice() -> None:
    route = (
        Visit("first", run=1, step="look"),
        Visit("asked"),
        Visit("second", run=2, step="search"),
    )
    assert is_straight(State())
    assert is_straight(State(runs=2, route=route))
    assert not is_straight(State(runs=3, route=route)), "resumed"
    assert not is_straight(State(runs=2, route=route[:2])), "rewound"


def test_an_engine_that_keeps_its_timings_is_told_by_its_third_session() -> None:
    """The first one pays for the timings that the second one finds."""
    told = []
    for took in (109.0, 8.0, 9.0):
        session = LastTime(KNOWN)
        told.append(
            [
                session.tell(OPEN, {"e": "1"}, True, place).last
                for place in ("compare 1", "repeat 1")
            ]
        )
        session.keep({"e": "1"}, True, "compare 1", took)
        told[-1].append(session.tell(OPEN, {"e": "1"}, True, "compare 1").last)
    assert [t[0] for t in told] == [-1, -1, 8.0]
    assert LastTime(KNOWN).tell(OPEN, {"e": "1"}, True, "compare 1").last == 9.0
    assert LastTime(KNOWN).tell(OPEN, {"e": "2"}, True, "compare 1").last == -1
    assert LastTime(KNOWN).tell(OPEN, {"e": "1"}, False, "compare 1").last == 109.0
    kept = msgspec.json.decode(find_file().read_bytes())
    find_file().write_bytes(msgspec.json.encode(dict(list(kept.items())[1:])))
    assert LastTime(KNOWN).tell(OPEN, {"e": "1"}, True, "compare 1").last == 9.0, (
        "the first one was dropped as the oldest"
    )
    nobody = LastTime(PROBLEM)
    nobody.keep({}, True, "compare 1", 5.0)
    assert nobody.tell(OPEN, {}, True, "compare 1") is OPEN


def test_it_is_told_only_where_the_session_knows_no_number() -> None:
    told = tell_last_time(OPEN, 30.0)
    assert (told.cost.open, told.cost.seconds, told.cost.least, told.cost.most, told.last) == (
        False,
        30.0,
        15.0,
        60.0,
        30.0,
    )
    assert told.cost.probes == 6
    nothing = Estimate(OPEN.plan, Cost(6, 6, 6, -1.0, 0, unit=84.0))
    assert (tell_last_time(nothing, 0.4).cost.seconds, tell_last_time(nothing, 0.4).cost.unit) == (
        0.4,
        -1,
    )
    for made in (
        Estimate(),
        Estimate(Plan(), Cost(0, 0, 0, 0.0)),
        Estimate(OPEN.plan, Cost(6, 6, 6, 10.0, 0, least=6, most=18)),
    ):
        assert tell_last_time(made, 30.0) is made
    assert tell_last_time(OPEN, -1.0) is OPEN


def test_while_it_runs_it_is_told_as_long_as_most_of_it_is_left() -> None:
    made = tell_last_time(Estimate(Plan((Work("whole", 6),)), Cost(6)), 30.0)
    rest = estimate_rest(made, (), 0, Note(""), 10.0)
    assert (rest.probes, rest.seconds, rest.least, rest.most) == (6, 20.0, 5.0, 50.0)
    assert estimate_rest(made, (), 0, Note(""), 13.0).seconds == -1
    assert estimate_rest(made, (Seen("read", 1, 1, 4.0),), 1, Note(""), 9.0).seconds == -1, (
        "its probes before count, too"
    )
    limited = Note("", limit=12.0)
    assert estimate_rest(made, (), 0, limited, 10.0).seconds == 2.0


def test_a_second_session_is_told_what_the_first_one_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it has measured anything; a resumed one, of which much is known, tells and keeps
    nothing."""
    assert walk(tmp_path / "one", Oracle(), problem=KNOWN) == 0
    assert [e.expected.seconds for e in started(tmp_path / "one") if e.node == "first"] == [-1]
    (kept,) = msgspec.json.decode(find_file().read_bytes(), type=last_time.Kept).values()
    assert set(kept) == {"first 1", "second 1"}
    assert walk(tmp_path / "two", Oracle(), problem=KNOWN) == 0
    (first,) = (e for e in started(tmp_path / "two") if e.node == "first")
    assert first.expected.seconds == pytest.approx(kept["first 1"], abs=0.001)
    before = find_file().read_bytes()
    again = Options(detach=True, first=[{"do": "rewind", "to": first.seq}])
    assert walk(tmp_path / "two", Oracle(), again, problem=KNOWN) == 0
    assert find_file().read_bytes() == before
    assert (
        walk(
            tmp_path / "three",
            Oracle(),
            problem=msgspec.structs.replace(KNOWN, tolerance={"": 0.5}),
        )
        == 0
    )
    assert [e.expected.seconds for e in started(tmp_path / "three") if e.node == "first"] == [-1]
