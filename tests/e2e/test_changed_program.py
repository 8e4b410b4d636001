"""The program is updated, or removed, while a session of it runs: nothing is taken for an answer,
and a resume goes on."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from narrowdown import wizard

from ..patience import allow
from . import tiny
from .test_interruptions import events

PACKAGE = Path(wizard.__file__).parents[1]
# What feeds a model, or checks it: while it is at work for the first time, a part of the program
# goes.
MOVES = """
import os, sys
if os.path.exists({part!r}) and not os.path.exists({away!r}):
    os.rename({part!r}, {away!r})
"""
FEEDS = """
import numpy as np
def load_data():
    yield {"x": np.linspace(0, 255, 128, dtype=np.float32).reshape(2, 64)}
"""
CHECK = """
with open(sys.argv[1], "rb") as model:
    sys.exit(b"Sqrt" in model.read())
"""


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("wizard", ["step", "reduce", "--check", f"{sys.executable} {{script}} {{{{model}}}}"]),
        (
            "engines",
            ["step", "compare", "--engine", "emulate:precision=fp16", "--inputs", "{script}"],
        ),
    ],
)
def test_nothing_is_answered_for_it(
    surroundings: dict[str, str], tmp_path: Path, part: str, words: list[str]
) -> None:
    """What the display loads last is gone: "Narrowdown itself failed, which is our fault". What a
    worker loads is: the journal said of an engine that it does not load, and the session went
    another way for it."""
    place, script, session = tmp_path / "installation", tmp_path / "script.py", tmp_path / "session"
    shutil.copytree(PACKAGE, place / "narrowdown")  # as it is compiled, too
    moves = MOVES.format(part=str(place / "narrowdown" / part), away=str(tmp_path / "away"))
    script.write_text(moves + (CHECK if "--check" in words else FEEDS))

    def run(*words: str | Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-P", "-m", "narrowdown", *map(str, words)], env=surroundings | {"PYTHONPATH": str(place)},
            cwd=tmp_path, text=True, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=allow(120),
        )  # fmt: skip

    given = [word.format(script=script) for word in words]
    ran = run(*given[:2], tiny.norm(tmp_path), *given[2:], "--session", session)
    assert ran.returncode == 4, ran.stderr
    assert "Narrowdown was changed while it ran" in ran.stderr
    assert "failed" not in ran.stderr
    (tmp_path / "away").rename(place / "narrowdown" / part)
    (tmp_path / "away").mkdir()
    ran = run("resume", session)
    assert ran.returncode == 0, ran.stderr
    assert {
        e["measurement"].get("status", "ok")
        for e in events(session)
        if e["kind"] == "probe.finished"
    } == {"ok"}
    assert [e["kind"] for e in events(session)].count("step.finished") == 1
