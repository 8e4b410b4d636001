"""``--pass-env`` from the command line to the checker, at every start of a session."""

import shlex
import sys
from pathlib import Path

import pytest

from narrowdown.wizard.demo import MODELS

from .conftest import command
from .test_interruptions import events

MODEL = MODELS / "pillars_add.onnx"


@pytest.fixture
def surroundings(surroundings: dict[str, str]) -> dict[str, str]:
    return {**surroundings, "HF_TOKEN": "planted-1", "KUBECONFIG": "planted-2"}


@pytest.fixture
def check(tmp_path: Path) -> str:
    """Fails where the token is not there. Writes down what it sees."""
    script = tmp_path / "checks.py"
    script.write_text(
        "import os, pathlib\n"
        "with open(pathlib.Path(__file__).with_name('seen'), 'a') as seen: seen.write(str(dict(os.environ)))\n"
        "print(os.environ['HF_TOKEN'][:2])\n"
    )
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(script))}"


def test_a_variable_is_handed_on_and_no_other(
    tmp_path: Path, surroundings: dict[str, str], check: str
) -> None:
    narrowdown, session, seen = command(surroundings, tmp_path), tmp_path / "s", tmp_path / "seen"
    ran = narrowdown(
        "run",
        MODEL,
        "--check",
        check,
        "--pass-env",
        "HF_TOKEN",
        "--session",
        session,
        "--display",
        "plain",
    )
    assert ran.code == 10, ran.out + ran.err
    assert "planted-1" in seen.read_text()
    assert "planted-2" not in seen.read_text()
    kept = b"".join(path.read_bytes() for path in session.rglob("*") if path.is_file())
    assert b"planted" not in kept
    assert b"HF_TOKEN" not in kept
    # A replay by who began it measures in the same surroundings; without the variable it does not
    # begin.
    seen.unlink()
    assert narrowdown("replay", session).code == 0
    assert "planted-1" in seen.read_text()
    seen.unlink()
    without = {name: value for name, value in surroundings.items() if name != "HF_TOKEN"}
    ran = command(without, tmp_path)("replay", session)
    assert (ran.code, seen.exists()) == (2, False)
    assert "'HF_TOKEN' is not set here" in ran.err


def test_who_forgets_it_is_told(tmp_path: Path, surroundings: dict[str, str], check: str) -> None:
    narrowdown, session = command(surroundings, tmp_path), tmp_path / "s"
    ran = narrowdown(
        "step", "compare", MODEL, "--check", check, "--session", session, "--display", "plain"
    )
    told = "begin a new session with --pass-env HF_TOKEN."
    assert told in ran.said + ran.err
    assert [told in e["text"] for e in events(session) if e["kind"] == "note.added"] == [True], (
        "once"
    )
    # Now it must not be mixed in.
    ran = narrowdown("resume", session, "--pass-env", "HF_TOKEN", "--display", "plain")
    assert ran.code == 2
    assert "Begin a new session with --pass-env HF_TOKEN." in ran.err
    # A session with another set-up may be given it, and asks the checker again.
    ran = narrowdown("edit", session, "--pass-env", "HF_TOKEN", "--display", "none")
    assert "changed: variables for the checker; nothing of it holds" in ran.out
    (again,) = (tmp_path / "sessions").iterdir() if (tmp_path / "sessions").exists() else ()
    note = next(e["text"] for e in events(again) if e["kind"] == "note.added")
    assert "Nothing that was measured there serves here." in note, ran.out + ran.err


def test_it_is_refused_before_a_session_exists(
    tmp_path: Path, surroundings: dict[str, str]
) -> None:
    ran = command(surroundings, tmp_path)("run", MODEL, "--pass-env", "HF_TOKEN")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "--check" in ran.err
    assert not (tmp_path / "sessions").exists()
