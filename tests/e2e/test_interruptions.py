"""Kill it anywhere, stop it anywhere: the session goes on, and ends as if nothing had happened."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from narrowdown.wizard.cli.follow import Follower
from narrowdown.wizard.plain import JsonDisplay
from narrowdown.wizard.runner.client import Client
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.session import folder

from ..patience import allow

SCRIPT = Path(sys.executable).with_name("narrowdown")


def begin(
    words: list[str | Path], surroundings: dict[str, str], cwd: Path
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [SCRIPT, *map(str, words)], env=surroundings, cwd=cwd, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def events(session: Path) -> list[dict]:
    lines = (
        (session / "journal.jsonl").read_bytes().splitlines()
        if (session / "journal.jsonl").exists()
        else []
    )
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def wait_for(
    session: Path, ready, process: "subprocess.Popen[str]", seconds: float = 180.0
) -> list[dict]:
    end = time.monotonic() + allow(seconds)
    while time.monotonic() < end:
        found = events(session)
        if ready(found):
            return found
        if process.poll() is not None:
            pytest.fail(f"it ended early with {process.returncode}: {process.communicate()}")
        time.sleep(0.05)
    pytest.fail("what the test waits for never happened")
    return []


def kill_runner(session: Path) -> None:
    """SIGKILL to the runner alone: its workers must notice by themselves."""
    opened = [e for e in events(session) if e["kind"] == "session.opened" and e.get("pid")]
    os.kill(opened[-1]["pid"], signal.SIGKILL)


@pytest.mark.parametrize(
    ("name", "command", "words", "probes"),
    [
        ("shapes", ["step", "reduce"], ["--tolerance", "1e-3"], 12),
        pytest.param(
            "shapes", ["run"], ["--tolerance", "1e-3"], 35, marks=pytest.mark.slow
        ),  # amid a reduction
        pytest.param(
            "sort", ["run"], ["--engine", "emulate:precision=fp16"], 60, marks=pytest.mark.slow
        ),
    ],
)
def test_kill_9_and_resume(
    narrowdown, surroundings, tmp_path, request, name, command, words, probes
) -> None:
    model, inputs = request.getfixturevalue(name)
    words = [*command, model, *words, "--inputs", inputs]
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    assert narrowdown(*words, "--session", straight).code == 0

    process = begin([*words, "--session", broken], surroundings, tmp_path)
    try:
        wait_for(
            broken,
            lambda found: sum(e["kind"] == "probe.finished" for e in found) >= probes,
            process,
        )
        kill_runner(broken)
        process.wait(timeout=allow(30))
    finally:
        process.kill()
    before = {e["key"] for e in events(broken) if e["kind"] == "probe.finished"}
    assert narrowdown("resume", broken, "--display", "plain").code == 0
    finished = [e["key"] for e in events(broken) if e["kind"] == "probe.finished"]
    assert len(finished) == len(set(finished)), "no probe is measured twice"
    assert before <= set(finished)
    assert (
        narrowdown("show", straight, "--canonical").out
        == narrowdown("show", broken, "--canonical").out
    )


def workers_of(runner: int) -> list[int]:
    """Process ids of a runner's workers; its watchdog is none."""
    children = Path(f"/proc/{runner}/task/{runner}/children").read_text().split()
    return [
        int(pid)
        for pid in children
        if b"watchdog.py" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_a_killed_worker_costs_one_probe(narrowdown, surroundings, sort, tmp_path) -> None:
    """A worker that dies of a signal in the middle of a search: one probe is lost, the screen says
    so, the case is found."""
    model, inputs = sort
    session = tmp_path / "s"
    words = [
        "step",
        "reduce",
        model,
        "--engine",
        "emulate:precision=fp16",
        "--inputs",
        inputs,
        "--session",
        session,
    ]
    process = begin(
        [*words, "--jobs", "1"], surroundings, tmp_path
    )  # one worker, which runs nothing ahead of the search
    answered = 0

    def searching(found: list[dict]) -> bool:
        """A candidate of the search itself is being measured, by a worker that has answered before:
        one that dies as it starts says nothing of a probe, and the session stops with 4."""
        asked = [e for e in found if e["kind"] == "probe.started"]
        last = asked[-1] if asked else {}
        nodes = ((last.get("probe") or {}).get("candidate") or {}).get("nodes", "*")
        return (
            nodes != "*"
            and found[-1]["kind"] == "probe.started"
            and count_answers(found) > answered
        )

    try:
        for _ in range(
            50
        ):  # a probe may end between the look and the kill: then another one is waited for
            found = wait_for(session, searching, process)
            runner = next(e["pid"] for e in found if e["kind"] == "session.opened" and e.get("pid"))
            answered = count_answers(found)
            for pid in workers_of(runner):
                os.kill(pid, signal.SIGSEGV)
            wait_for(
                session,
                lambda found, before=answered: died(found) or count_answers(found) > before,
                process,
            )
            if crashed(session):
                break
        out, err = process.communicate(timeout=allow(180))
    finally:
        process.kill()
    assert process.returncode == 0, out + err
    assert "Traceback" not in out + err
    assert [(key, signal.SIGSEGV) for key in crashed(session)] == died(events(session))
    assert len(crashed(session)) == 1
    assert "SIGSEGV" in out
    assert "Pow" in out


def count_answers(found: list[dict]) -> int:
    return sum(e["kind"] == "probe.finished" for e in found)


def died(found: list[dict]) -> list[tuple[str, int]]:
    """(probe, signal) of each worker that died at work."""
    return [(e["key"], e["signal"]) for e in found if e["kind"] == "worker.died" and e.get("key")]


def crashed(session: Path) -> list[str]:
    """The probes whose answer is that their worker died."""
    ended = (e for e in events(session) if e["kind"] == "probe.finished")
    return [e["key"] for e in ended if (e.get("measurement") or {}).get("status", "ok") == "crash"]


CHECKER = """
import os, subprocess, sys, time
# A daemon of its own session, whose parents are gone: neither group nor family leads to it.
subprocess.Popen([sys.executable, "-c", {daemon!r}], start_new_session=True)
open({started!r}, "w").close()
time.sleep(600)
"""
DAEMON = """
import os, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
open({pid!r}, "w").write(str(os.getpid()))
time.sleep(600)
"""


@pytest.mark.parametrize("victim", ["runner", "worker"])
def test_what_a_checker_has_started_does_not_outlive_kill_9(
    shapes, surroundings, tmp_path, victim
) -> None:
    model, _ = shapes
    session, started, written = tmp_path / "s", tmp_path / "started", tmp_path / "pid"
    checker = tmp_path / "checker.py"
    checker.write_text(CHECKER.format(daemon=DAEMON.format(pid=str(written)), started=str(started)))
    words = [
        "step",
        "reduce",
        model,
        "--check",
        f"{sys.executable} {checker} {{model}}",
        "--session",
        session,
    ]
    process = begin(words, surroundings, tmp_path)
    daemon = 0
    try:
        wait_for(
            session,
            lambda _: started.exists() and written.exists() and written.read_text(),
            process,
        )
        daemon = int(written.read_text())
        runner = next(e["pid"] for e in events(session) if e["kind"] == "session.opened")
        children = workers_of(runner)
        assert Path(f"/proc/{daemon}").exists()
        os.kill(runner if victim == "runner" else children[0], signal.SIGKILL)
        end = time.monotonic() + allow(10)
        while any(map(alive, (daemon, children[0]))) and time.monotonic() < end:
            time.sleep(0.02)
        assert not alive(daemon), "what the checker had started goes on"
        assert not alive(children[0])
    finally:
        process.terminate()
        process.communicate(timeout=allow(30))
        if daemon and alive(daemon):
            os.kill(daemon, signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_ctrl_c_stops_softly_and_leaves_nobody_behind(
    narrowdown, shapes, surroundings, tmp_path
) -> None:
    model, inputs = shapes
    session = tmp_path / "s"
    words = [
        "step",
        "reduce",
        model,
        "--tolerance",
        "1e-3",
        "--inputs",
        inputs,
        "--session",
        session,
    ]
    process = begin(words, surroundings, tmp_path)
    try:
        found = wait_for(session, lambda f: any(e["kind"] == "probe.finished" for e in f), process)
        runner = next(e["pid"] for e in found if e["kind"] == "session.opened")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=allow(60))
    finally:
        process.kill()
    assert process.returncode == 130, out + err
    assert "Traceback" not in out + err
    assert "resume" in out + err
    end = time.monotonic() + allow(5)
    while alive(runner):
        assert time.monotonic() < end, "the runner outlived its only client"
        time.sleep(0.05)
    assert narrowdown("resume", session, "--display", "none").code == 0


def leave_alone(shapes, surroundings, tmp_path) -> Path:
    """A session whose display was killed in the middle of a search, so that its runner is left
    alone."""
    model, inputs = shapes
    session = tmp_path / "s"
    words = [
        "step",
        "reduce",
        model,
        "--tolerance",
        "1e-3",
        "--inputs",
        inputs,
        "--session",
        session,
    ]
    process = begin(words, surroundings, tmp_path)
    try:
        wait_for(
            session, lambda found: sum(e["kind"] == "probe.finished" for e in found) >= 3, process
        )
    finally:
        process.kill()
        process.communicate(timeout=allow(30))
    return session


def test_who_resumes_at_once_after_killing_the_display_gets_the_session(
    shapes, surroundings, tmp_path
) -> None:
    """The runner that was left alone closes the session after the resume has read it and before its
    own runner opens it: it ended with 'stopped' and exit code 130, and only the next resume went
    on."""
    session = leave_alone(shapes, surroundings, tmp_path)
    since = folder.load(session).seq
    ends = time.monotonic() + allow(60)
    while not any(e["kind"] == "session.closed" for e in events(session)):
        assert time.monotonic() < ends
        time.sleep(0.05)
    client, shown = Client.open(session, Options(policy="recommended")), io.StringIO()
    try:
        assert Follower(client, JsonDisplay(shown), since=since).run() == 0
    finally:
        client.close()
    told = [json.loads(line)["kind"] for line in shown.getvalue().splitlines()]
    assert told.count("session.closed") == 1, (
        "a program that reads along would take the first for the end"
    )
    finished = [e["key"] for e in events(session) if e["kind"] == "probe.finished"]
    assert len(finished) == len(set(finished)), "no probe is measured twice"


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.4, 0.8, 1.0, 1.2, 1.6])
def test_no_moment_after_a_kill_is_too_early_for_a_resume(
    narrowdown, shapes, surroundings, tmp_path, delay
) -> None:
    session = leave_alone(shapes, surroundings, tmp_path)
    time.sleep(delay)  # what is tested: how long a person takes to type it
    ran = narrowdown("resume", session, "--display", "plain")
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.slow
def test_a_torn_tail_is_said_once(narrowdown, shapes, tmp_path) -> None:
    model, inputs = shapes
    session = tmp_path / "s"
    words = ["step", "reduce", model, "--inputs", inputs, "--tolerance", "1e-3"]
    assert narrowdown(*words, "--session", session).code == 0
    journal = session / "journal.jsonl"
    body = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(body[: len(body) // 2]) + body[len(body) // 2][:20])
    assert narrowdown("resume", session).code == 0
    assert list(session.glob("journal.torn-*"))


def test_damage_in_the_middle_is_exit_4_with_the_line(narrowdown, shapes, tmp_path) -> None:
    model, inputs = shapes
    session = tmp_path / "s"
    narrowdown(
        "step", "compare", model, "--inputs", inputs, "--tolerance", "1e-3", "--session", session
    )
    journal = session / "journal.jsonl"
    body = journal.read_bytes().splitlines(keepends=True)
    body[4] = b'{"nonsense": true}\n'
    journal.write_bytes(b"".join(body))
    ran = narrowdown("show", session)
    assert ran.code == 4
    assert "5" in ran.err
