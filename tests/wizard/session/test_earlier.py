"""A step begins with what another step alone has measured of the same problem, and with nothing
else."""

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from narrowdown.engines.probe import AnyProbe, Check, Import, LoadInputs, Measure, Measurement
from narrowdown.engines.store import copying
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session import earlier
from narrowdown.wizard.session import events as e
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.session.earlier import is_shared, take_earlier
from narrowdown.wizard.session.journal import NAME, Journal, read
from narrowdown.wizard.session.lock import Lock
from narrowdown.wizard.session.single import single_flow
from narrowdown.wizard.session.state import fold

MODEL = "/models/net.onnx"
COMPARE = Problem(
    model=MODEL, engine="emulate:precision=fp16", digests={MODEL: "a" * 64}, flow="step-compare"
)
REDUCE = msgspec.structs.replace(COMPARE, flow="step-reduce")
LOOK = Measure(
    model="m", inputs="i", samples=("s",), engine=COMPARE.engine, reference=COMPARE.reference
)
PROBES: dict[str, AnyProbe] = {
    "whole": LOOK,
    "afresh": msgspec.structs.replace(LOOK, attempt=1),
    "many runs": msgspec.structs.replace(LOOK, runs=5),
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "home"


def measured(problem: Problem) -> Path:
    place = folders.create(problem, single_flow(problem.flow.removeprefix("step-")))
    (place / "captures" / "kept").write_text("captured")
    journal = Journal(place / NAME)
    journal.append(e.SessionOpened(id=place.name))
    for key, probe in PROBES.items():
        journal.append(e.ProbeStarted(key=key, run=1, probe=probe))
        journal.append(e.ProbeFinished(key=key, run=1, measurement=Measurement()))
    journal.close()
    return place


def begun(problem: Problem) -> tuple[Path, Path, int]:
    target = folders.create(problem, single_flow(problem.flow.removeprefix("step-")))
    return target, *take_earlier(target, problem)


def known(target: Path) -> set[str]:
    path = target / NAME
    return set(fold(read(path)).known) if path.exists() else set()


def test_another_step_on_the_same_problem_is_not_asked_again() -> None:
    before = measured(COMPARE)
    target, source, n = begun(REDUCE)
    assert (source, n, known(target)) == (before, 1, {"whole"})
    assert (target / "captures" / "kept").read_text() == "captured"
    said = [event.text for event in read(target / NAME) if isinstance(event, e.NoteAdded)]
    assert said == [
        f"Begun with what session {before.name} has measured. 1 measurement taken over."
    ]


@pytest.mark.parametrize(
    ("probe", "shared"),
    [
        (Import(path=MODEL, digest="a" * 64), True),
        (LoadInputs(model="m"), True),
        (Check(model="m", command="/bin/true"), True),
        (LOOK, True),
        (msgspec.structs.replace(LOOK, runs=0), True),
        (msgspec.structs.replace(LOOK, runs=2), False),
        (msgspec.structs.replace(LOOK, attempt=1), False),
        (msgspec.structs.replace(LOOK, exclusive=True), False),
        (Check(model="m", command="/bin/true", attempt=2), False),
    ],
)
def test_looks_that_are_repeated_are_never_shared(probe: AnyProbe, shared: bool) -> None:
    assert is_shared(probe) == shared


@pytest.mark.parametrize(
    "other",
    [
        {"flow": "step-reduce"},  # the same step again is asked to measure again
        {"flow": "accuracy"},
        {"engine": "emulate:precision=bf16"},
        {"digests": {MODEL: "b" * 64}},
        {"tolerance": {"": 0.5}},
        {"model": "/models/other.onnx"},
    ],
)
def test_nothing_is_taken_of_another_problem(other: dict[str, object]) -> None:
    place = measured(COMPARE)
    there = msgspec.structs.replace(COMPARE, **other)
    shutil.rmtree(place)
    made = folders.create(there, single_flow("compare"))
    journal = Journal(made / NAME)
    journal.append(e.ProbeStarted(key="whole", run=1, probe=LOOK))
    journal.append(e.ProbeFinished(key="whole", run=1, measurement=Measurement()))
    journal.close()
    target, _, n = begun(REDUCE)
    assert (n, known(target)) == (0, set())


def test_nothing_is_taken_of_a_session_that_somebody_works_on() -> None:
    place = measured(COMPARE)
    held = Lock.acquire(place)
    assert begun(REDUCE)[2] == 0
    held.release()
    assert begun(REDUCE)[2] == 1


def test_nothing_is_taken_of_a_session_that_another_user_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured(COMPARE)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert begun(REDUCE)[2] == 0


def test_a_damaged_session_is_no_reason_to_stop() -> None:
    place = measured(COMPARE)
    (place / NAME).write_bytes(b"{" + (place / NAME).read_bytes())
    assert begun(REDUCE)[2] == 0


def test_a_disk_that_is_full_leaves_the_session_as_new_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured(COMPARE)

    def full(_source: Path, target: Path) -> None:
        target.mkdir()
        (target / "half").write_text("")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(copying, "tree", full)
    target, _, n = begun(REDUCE)
    empty = folders.create(REDUCE, single_flow("reduce"))
    assert (n, known(target)) == (0, set())
    assert sorted(p.relative_to(target) for p in target.rglob("*") if p.is_dir()) == sorted(
        p.relative_to(empty) for p in empty.rglob("*") if p.is_dir()
    )
    assert not (target / "captures" / "half").exists()


def test_a_copy_that_would_take_much_of_the_disk_is_not_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured(COMPARE)
    monkeypatch.setattr(earlier, "_ROOM", 0.0)
    assert begun(REDUCE)[2] == 0


def test_of_sessions_of_something_else_nothing_but_the_description_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = measured(COMPARE)
    for other in (
        msgspec.structs.replace(COMPARE, model="/models/other.onnx"),
        msgspec.structs.replace(COMPARE, engine="openvino"),
        msgspec.structs.replace(COMPARE, flow="accuracy"),
        REDUCE,
    ):
        folders.create(other, single_flow("compare"))
    looked_into, summary = [], folders.summary
    monkeypatch.setattr(folders, "summary", lambda path: looked_into.append(path) or summary(path))
    assert begun(REDUCE)[1] == before
    assert looked_into == [before]
