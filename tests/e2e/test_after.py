"""``narrowdown after``: what follows a failing case, as a session that goes on from the ended
one."""

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from narrowdown.wizard.cli.ladder import admit, prepared
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.follow_up import ALL, ask_one, begin_after, list_follow_ups
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.report.read import read
from narrowdown.wizard.session import folder as folders
from tests.docs.shown import of

from ..patience import allow
from . import tiny
from .conftest import Narrowdown
from .test_interruptions import begin, events, kill_runner, wait_for

FP16 = "emulate:precision=fp16"


def walked(narrowdown: Narrowdown, folder: Path, name: str = "bug") -> Path:
    ran = narrowdown(
        "run", tiny.two_norms(folder), "--inputs", tiny.rows(folder), "--engine", FP16, "--session", name,
    )  # fmt: skip
    assert ran.code == 0, ran.out + ran.err
    assert f"narrowdown after {folder / name}" in ran.out
    return folder / name


@pytest.mark.slow
def test_the_page_does_what_it_says(narrowdown: Narrowdown, tmp_path: Path) -> None:
    """It goes on from the findings with nothing searched again; its bundle shows the fault; it
    resumes and replays."""
    bug = walked(narrowdown, tmp_path)
    before = (bug / "journal.jsonl").read_bytes()
    shown = of("after")
    assert len(shown) >= 2
    for command in shown:
        ran = narrowdown(
            *(str(bug) if word in ("bug", "SESSION") else word for word in command.words[1:])
        )
        assert ran.code == 0, ran.out + ran.err
        assert "taken over." in ran.out
        assert "narrowdown after" not in ran.out, "it is offered once"
    made = last(tmp_path)
    old, new = read(bug).state, read(made).state
    assert [visit.step for visit in new.route] == ["known", "rewrite", "trigger", "score"]
    assert new.taken == old.findings
    handed = [place / "worked-around.onnx" for place in (bug, made)]
    assert handed[0].read_bytes() == handed[1].read_bytes(), (
        "of the workaround, not of a rewrite that cures it, too"
    )
    assert [c.case for c in new.findings.culprits] == [c.case for c in old.findings.culprits] != []
    rows = narrowdown("replay", made, "--dry", "--keep-going", "--json").json()["rows"]
    assert {row["role"] for row in rows if row["outcome"] != "same"} == set()
    assert len(rows) == 8
    assert narrowdown("replay", made, "--search").code == 4
    cases = prepared(str(bug), admit(str(bug), ()), tmp_path / "ladder")
    assert len(cases) == len(old.findings.culprits)
    assert all((case.folder / "check.py").is_file() for case in cases)
    assert len({case.key for case in cases}) == len({case.name for case in cases}) == len(cases)
    shutil.rmtree(bug)  # it needs the first session no more
    assert narrowdown("export", made, "-o", "out").code == 0
    assert narrowdown_check(tmp_path / "out") == 1
    assert (before, narrowdown("resume", made, "--rewind", "rewrite", "--display", "plain").code)[
        1
    ] == 0


def last(folder: Path) -> Path:
    return max(
        (folder / "sessions").iterdir(),
        key=lambda p: (p / "journal.jsonl").stat().st_mtime_ns if p.is_dir() else 0,
    )


def narrowdown_check(folder: Path) -> int:
    import sys

    return subprocess.run(
        [sys.executable, folder / "check.py"], check=False, capture_output=True
    ).returncode


@pytest.mark.slow
def test_it_is_stopped_in_the_middle_and_goes_on(narrowdown: Narrowdown, tmp_path: Path) -> None:
    bug = walked(narrowdown, tmp_path)
    (tmp_path / "answers.yaml").write_text("score: ask\n")
    ran = narrowdown("after", bug, "--answers", "answers.yaml")
    assert ran.code == 3, ran.out + ran.err
    made = last(tmp_path)
    assert read(made).state.route[-1].answer == ""
    asked = len(read(made).state.asked)
    again = narrowdown("resume", made)
    assert again.code == 0, again.out + again.err
    assert len(read(made).state.asked) == asked, "nothing is measured twice"


@pytest.mark.slow
def test_killed_in_each_of_its_steps_it_asks_nothing_twice(
    narrowdown: Narrowdown, surroundings: dict[str, str], tmp_path: Path
) -> None:
    """SIGKILL to the runner while a step waits for an answer, in one step after the other."""
    bug = walked(narrowdown, tmp_path)
    assert narrowdown("after", bug, "--display", "plain").code == 0
    straight = last(tmp_path)
    words: list[str | Path] = ["after", bug, "--display", "plain"]
    others = {straight}
    broken = Path()
    for step in STEPS:
        before = opened(events(broken)) if broken != Path() else 0
        process = begin(words, surroundings, tmp_path)
        try:
            broken = (
                new_folder(tmp_path / "sessions", others, process) if broken == Path() else broken
            )
            wait_for(
                broken,
                lambda found, step=step, before=before: is_asking(found, step, before),
                process,
            )
            kill_runner(broken)
            process.wait(timeout=allow(30))
        finally:
            process.kill()
        words = ["resume", broken, "--display", "plain"]
    assert narrowdown(*words).code == 0
    finished = [e["key"] for e in events(broken) if e["kind"] == "probe.finished"]
    assert len(finished) == len(set(finished)), "no probe is measured twice"
    told = [
        [(v.step, steady(v.outcome)) for v in read(place).state.route]
        for place in (straight, broken)
    ]
    assert told[0] == told[1]
    assert [step for step, _ in told[1]] == ["known", "rewrite", "trigger", "score"]


STEPS = ("known", "rewrite", "trigger")  # score asks nothing that is not known by then


def opened(found: list[dict[str, Any]]) -> int:
    """How many runners have opened the session."""
    return sum(e["kind"] == "session.opened" for e in found)


def is_asking(found: list[dict[str, Any]], step: str, before: int) -> bool:
    """Whether one more runner than ``before`` has asked something, in this step or (an earlier kill
    came late) behind it."""
    if opened(found) <= before:
        return False
    runner = max(n for n, e in enumerate(found) if e["kind"] == "session.opened")
    started = [e["step"] for e in found if e["kind"] == "step.started"]
    there = bool(started) and started[-1] in STEPS[STEPS.index(step) :]
    return there and any(e["kind"] == "probe.started" for e in found[runner:])


def new_folder(home: Path, others: set[Path], process: "subprocess.Popen[str]") -> Path:
    """The session that the process has begun, once it has a journal."""
    end = time.monotonic() + allow(120)
    while time.monotonic() < end and process.poll() is None:
        for place in home.iterdir():
            if place not in others and (place / "journal.jsonl").exists():
                return place
        time.sleep(0.05)
    raise AssertionError("no session was begun")


def steady(outcome: dict[str, Any]) -> dict[str, Any]:
    """What a step said, without times, which differ from run to run."""
    timed = ("seconds", "best_seconds", "cost", "message", "best")
    return {k: v for k, v in outcome.items() if k not in timed}


def test_nothing_follows_what_has_not_ended_or_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from narrowdown.wizard import Refusal
    from narrowdown.wizard.session import events as e
    from narrowdown.wizard.session.journal import NAME, Journal

    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path))
    place = folders.create(Problem(model="/m.onnx"), load("accuracy").text, tmp_path)
    with pytest.raises(Refusal, match=r"not come to its end. 'narrowdown resume") as refused:
        begin_after(place)
    assert refused.value.code == 2
    journal = Journal(place / NAME)
    journal.append(e.SessionClosed(end="not-reproduced", exit_code=10))
    journal.close()
    with pytest.raises(Refusal, match="No failure was found") as refused:
        begin_after(place)
    assert refused.value.code == 10


def test_it_makes_nothing_where_the_engine_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks first; hosts of a cluster are asked by the session itself."""
    from narrowdown.engines import installed
    from narrowdown.wizard import Refusal, follow_up

    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(
        installed, "importable", lambda package: package not in ("tensorrt", "openvino")
    )
    monkeypatch.setattr(follow_up, "why_nothing_follows", lambda state, problem: "")
    text = load("accuracy").text
    for engine, reference, missing in (
        (
            "tensorrt:precision=fp16",
            "onnxruntime",
            "tensorrt is not installed here; .* -m pip install tensorrt",
        ),
        (
            "onnxruntime:optimization=all",
            "openvino",
            "openvino is not installed here; .* -m pip install openvino",
        ),
        ("of-somebody", "onnxruntime", "There is no engine 'of-somebody'"),
    ):
        place = folders.create(Problem(model="/m.onnx", engine=engine, reference=reference), text)
        before = sorted(folders.home().iterdir())
        with pytest.raises(Refusal, match=f"{place.name}: {missing}") as refused:
            begin_after(place)
        assert refused.value.code == 4
        assert sorted(folders.home().iterdir()) == before
        made, _ = begin_after(place, executor="tcp://host:8786")
        assert sorted(folders.home().iterdir()) == sorted([*before, made])


def test_each_question_that_is_offered_has_a_price_and_is_a_session_of_its_own(
    narrowdown: Narrowdown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug = walked(narrowdown, tmp_path)
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "sessions"))
    offered = {each.step: each for each in list_follow_ups(bug)}
    assert {"known", "rewrite", "trigger", "score", ALL} <= set(offered)
    assert all("runs" in each.price for each in offered.values() if each.step)
    assert not {v.step for v in folders.load(bug).route} & set(offered), "what it has asked itself"
    made = ask_one(bug, "known")
    assert folders.summary(made).parent == folders.describe(bug).id
    assert narrowdown("resume", made, "--display", "plain").code == 0
    state = folders.load(made)
    assert [visit.step for visit in state.route] == ["known"]
    assert read(made).report().verdict == read(bug).report().verdict, "it takes no verdict away"
    assert not list_follow_ups(narrowdown_passes(narrowdown, tmp_path))


def narrowdown_passes(narrowdown: Narrowdown, folder: Path) -> Path:
    """A session that found no failure."""
    narrowdown("run", tiny.two_norms(folder), "--inputs", tiny.rows(folder), "--session", "fine")
    return folder / "fine"
