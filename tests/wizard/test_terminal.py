"""Which terminals get screens, and what the real program does on each: in a pseudo-terminal, in a
pipe, with none at all."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from narrowdown.wizard import terminal
from narrowdown.wizard.demo import MODELS

from .tui.terminal import Terminal

SHAPES = [str(MODELS / "shapes_cnn.onnx"), "--inputs", str(MODELS / "shapes_cnn_in.npz")]


@pytest.mark.parametrize("name", ["xterm-256color", "screen", "tmux-256color", "linux", "vt100"])
def test_terminals_that_draw(name: str) -> None:
    assert terminal.draws_screens({"TERM": name})
    assert terminal.why_text({"TERM": name}) == ""


@pytest.mark.parametrize("environment", [{}, {"TERM": ""}, {"TERM": "dumb"}, {"TERM": "unknown"}])
def test_terminals_that_do_not(environment: dict[str, str]) -> None:
    assert not terminal.draws_screens(environment)
    said = terminal.why_text(environment)
    assert "plain text" in said
    assert (environment.get("TERM") or "not set") in said


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def begin(*words: str, size: tuple[int, int] = (80, 24), **environ: str | None) -> Terminal:
        opened.append(Terminal(list(words), tmp_path, size, **environ))
        return opened[-1]

    yield begin
    for one in opened:
        one.close()


def colours(raw: str) -> set[str]:
    """Of text and ground: ``16``, ``256`` and ``true``."""
    codes = re.findall(r"\x1b\[([0-9;]*)m", raw)
    found = {"true" for code in codes if re.search(r"[34]8;2;", code)}
    found |= {"256" for code in codes if re.search(r"[34]8;5;", code)}
    plain = {
        part for code in codes if "8;" not in code for part in code.split(";") if part.isdigit()
    }
    return found | {"16" for part in plain if 30 <= int(part) <= 37 or 90 <= int(part) <= 97}


@pytest.mark.parametrize(
    ("name", "more", "wanted", "ascii_alone"),
    [
        ("linux", {}, "16", True),
        ("screen-256color", {}, "256", False),
        (
            "screen-256color",
            {"TMUX": "/tmp/tmux-0/default,1,0", "LANG": None, "LC_ALL": None},
            "256",
            True,
        ),
        ("xterm-256color", {"COLORTERM": "truecolor", "LANG": "C.UTF-8"}, "true", False),
    ],
)
def test_screens_keep_to_what_the_terminal_knows(
    start: Callable[..., Terminal],
    name: str,
    more: dict[str, str | None],
    wanted: str,
    ascii_alone: bool,
) -> None:
    """Its colours and no more of them; ASCII where other characters would not show."""
    shown = start(TERM=name, **{"COLORTERM": None, "LANG": "C.UTF-8", "LC_ALL": None, **more})
    shown.until("to start a new session")
    shown.press("n")
    shown.together("Engine under test", "Start")
    shown.resize(104, 30)
    shown.together("Engine under test", "Start")
    shown.press("\x1b")
    shown.until("to start a new session")
    shown.press("q")
    assert shown.code() == 0
    assert colours(shown.raw) == {wanted}
    assert all(character.isascii() for character in shown.raw) == ascii_alone


@pytest.mark.parametrize("name", [None, "dumb", "unknown"])
def test_lines_alone_get_text_and_one_sentence(
    start: Callable[..., Terminal], name: str | None
) -> None:
    shown = start(TERM=name, size=(200, 24))
    shown.until("There is no session in")
    assert shown.code() == 0
    assert shown.raw.count("so this terminal gets plain text") == 1
    assert (name or "not set") in shown.raw
    assert "\x1b" not in shown.raw


@pytest.mark.slow
def test_a_question_in_plain_text_and_once_more_after_resuming(
    start: Callable[..., Terminal], tmp_path: Path
) -> None:
    """Without TERM nothing is rewritten in place, and the question comes before its prompt."""
    first = start(
        "open", *SHAPES, "--engine", "onnxruntime:optimization=all", TERM=None, size=(160, 60)
    )
    first.until("answer (1-")
    first.press("\x04")
    assert first.code() == 3
    (session,) = (tmp_path / "sessions").iterdir()
    again = start("resume", session.name, TERM=None, size=(160, 60))
    again.until("answer (1-")
    again.press("\x04")
    assert again.code() == 3
    assert again.raw.index("Does the failure show here?") < again.raw.index("answer (1-")
    for shown in (first, again):
        assert "\x1b" not in shown.raw
        assert shown.raw.count("so this terminal gets plain text") == 1
        assert "the input ended before the question was answered" in shown.raw


def narrowdown(
    *words: str, home: Path, typed: str | None = None
) -> subprocess.CompletedProcess[str]:
    """The command in a pipe. ``typed`` None: its input is empty."""
    start = "import sys; from narrowdown.wizard.cli import main; sys.exit(main())"
    environment = {
        **os.environ,
        "NARROWDOWN_HOME": str(home / "sessions"),
        "XDG_STATE_HOME": str(home / "state"),
    }
    environment |= {"TERM": "xterm-256color"}
    return subprocess.run(
        [sys.executable, "-P", "-c", start, *words],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        input=typed or "",
        check=False,
    )


def test_in_a_pipe_there_are_no_screens(tmp_path: Path) -> None:
    ran = narrowdown(home=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "There is no session in" in ran.stdout
    refused = narrowdown("open", *SHAPES, "--display", "tui", home=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "--display plain asks the same questions as text" in refused.stderr
    assert not (tmp_path / "sessions").exists(), "refused before anything was made"


def test_open_with_nobody_to_answer_says_how_to_go_on(tmp_path: Path) -> None:
    ran = narrowdown("open", *SHAPES, home=tmp_path)
    assert ran.returncode == 3
    assert "\x1b" not in ran.stdout
    assert "Does the failure show here?" in ran.stdout
    assert "'narrowdown resume' asks it again" in ran.stderr
    assert "the session is safe" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.slow
def test_the_demo_in_a_pipe_comes_to_its_end_by_itself(tmp_path: Path) -> None:
    ran = narrowdown("demo", "shapes", home=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "\x1b" not in ran.stdout
    assert "Pad_Fusion" in ran.stdout


@pytest.mark.parametrize("minor", [10, 15])
def test_another_python_is_refused_in_one_line_with_the_reason(minor: int) -> None:
    code = f"import sys; sys.version_info = (3, {minor}, 1); import narrowdown.wizard.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"narrowdown: this is Python 3.{minor}, and 3.11 to 3.14 is needed: "
    )
    assert done.stderr.count("\n") == 1


def test_nobody_is_waited_for_at_the_terminal_that_a_ci_job_gives(
    start: Callable[..., Terminal],
) -> None:
    """GitLab and Buildkite give one: the screens opened there and waited for a key until the job
    was ended."""
    listed = start(CI="true", size=(160, 24))
    listed.until("so this is plain text")
    assert listed.code() == 0
    assert "\x1b[?1049h" not in listed.raw
