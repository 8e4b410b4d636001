"""One session, several programs: the first holds it, the others only watch."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ..patience import allow

SCRIPT = Path(sys.executable).with_name("narrowdown")
DISPLAYS = ("plain", "json")


def begin(
    words: list[str | Path], surroundings: dict[str, str], cwd: Path
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [SCRIPT, *map(str, words)], env=surroundings, cwd=cwd, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def test_the_second_only_watches_and_says_how_to_take_over(
    narrowdown, surroundings, shapes, tmp_path
) -> None:
    model, inputs = shapes
    session = tmp_path / "s"
    slow = ["--engine", "fake:fault=hang,at=run,seconds=900", "--timeout", "900"]
    first = begin(
        ["run", model, "--inputs", inputs, *slow, "--session", session], surroundings, tmp_path
    )
    others: dict[str, subprocess.Popen[str]] = {}
    try:
        end = time.monotonic() + allow(60)
        while not _hanging(session):
            assert time.monotonic() < end
            assert first.poll() is None, first.communicate()
            time.sleep(0.05)
        for display in DISPLAYS:
            others[display] = begin(
                ["resume", session, "--display", display], surroundings, tmp_path
            )
        others["watch"] = begin(["watch", session, "--display", "plain"], surroundings, tmp_path)
        others["run"] = begin(
            ["run", model, "--inputs", inputs, *slow, "--session", session], surroundings, tmp_path
        )
        first_words = {
            name: process.stderr.readline() for name, process in others.items() if name != "watch"
        }
        assert others["watch"].stdout.readline()  # it looks on, too
        others["run"].send_signal(signal.SIGINT)  # a watcher's Ctrl-C stops nothing
        others.pop("run").communicate(timeout=allow(60))
        assert first.poll() is None
        os.kill(first.pid, signal.SIGKILL)
        said = {name: process.communicate(timeout=allow(60)) for name, process in others.items()}
    finally:
        for process in (first, *others.values()):
            process.kill()
    for words in first_words.values():
        assert (
            "the session is open in another window (narrowdown run), so this one only looks on"
            in words
        )
    for _, err in said.values():
        assert "Traceback" not in err
        assert "only looks on" not in err, "said once"
        assert f"'narrowdown resume {session}' takes over" in err.splitlines()[-1], err
    lines = [json.loads(line) for line in said["json"][0].splitlines()]
    assert any(line.get("watching") for line in lines)
    kinds = [
        line["kind"]
        for line in map(json.loads, (session / "journal.jsonl").read_text().splitlines())
    ]
    assert kinds.count("session.opened") == 1, "nobody else ever worked on it"


def _hanging(session: Path) -> bool:
    try:
        return b'"op":"measure"' in (session / "journal.jsonl").read_bytes()
    except OSError:
        return False
