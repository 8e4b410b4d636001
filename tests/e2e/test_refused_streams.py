"""What a process is started with that it did not choose: closed streams, streams of ASCII, names
that are not UTF-8, a Python that lacks a package. Each is a sentence and a documented exit code, or
changes nothing."""

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from narrowdown.wizard.cli.streams import escaped
from narrowdown.wizard.demo import MODELS

from ..patience import allow
from . import tiny
from .conftest import SCRIPT, Ran
from .test_refused_sessions import walked

__all__ = ["walked"]

# A sitecustomize that hides packages as if they were not installed.
HIDING = """
import os, sys
hidden = os.environ["HIDDEN"].split()
class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = map(Hiding, sys.meta_path)
"""


def shell(line: str, surroundings: dict[str, str], folder: Path, **more: str) -> Ran:
    """A shell's line, in which ``narrowdown`` is the program and ``MODEL`` a small model."""
    words = line.replace("narrowdown", str(SCRIPT)).replace(
        "MODEL", str(MODELS / "shapes_cnn.onnx")
    )
    environment = {**surroundings, **more}
    environment.pop("PYTHONUNBUFFERED", None)  # so that what is buffered meets its end late
    done = subprocess.run(
        ["sh", "-c", words],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=allow(120),
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    assert "Exception ignored" not in done.stderr
    assert "Narrowdown itself failed" not in done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("narrowdown flow show accuracy >&- 2>&-", 0, ""),
        ("narrowdown flow show accuracy 2>&- >/dev/null", 0, ""),
        ("narrowdown nonsense 2>&-", 2, ""),
        ("narrowdown sessions <&-", 0, ""),
        ("narrowdown <&-", 0, ""),
        ("narrowdown flow list >/dev/full", 4, "narrowdown: The disk is full."),
        ("narrowdown --help >/dev/full", 4, "narrowdown: The disk is full."),
        ("narrowdown step sanitize MODEL --json --display none <&- >&- 2>&-", 0, ""),
        ("narrowdown step sanitize MODEL --json --display none <&- 2>&- >/dev/null", 0, ""),
    ],
)
def test_streams_that_are_closed_or_full(
    surroundings, tmp_path: Path, line: str, code: int, said: str
) -> None:
    ran = shell(line, surroundings, tmp_path)
    assert ran.code == code, ran.err
    assert ran.err.startswith(said), ran.err
    assert ran.err.count("\n") <= 1
    if said or "2>&-" in line:
        assert not ran.out, "what is meant for stderr never lands on stdout"


def test_a_session_keeps_its_files_where_streams_are_closed(surroundings, tmp_path: Path) -> None:
    """The numbers 0 to 2 are not given to the session's own files, into which somebody's print
    would go."""
    words = f"narrowdown step sanitize MODEL --session {tmp_path}/s --display none <&- >&- 2>&-"
    assert shell(words, surroundings, tmp_path).code == 0
    for line in (tmp_path / "s" / "journal.jsonl").read_bytes().splitlines():
        assert json.loads(line)["crc"]
    assert shell(f"narrowdown show {tmp_path}/s", surroundings, tmp_path).code == 0


@pytest.mark.parametrize(
    "line", ["flow show accuracy", "flow show accuracy --format svg", "engines", "sessions"]
)
def test_an_output_of_ascii(surroundings, tmp_path: Path, line: str) -> None:
    ran = shell(f"narrowdown {line}", surroundings, tmp_path, PYTHONIOENCODING="ascii")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.isascii()


def test_what_an_encoding_lacks_is_written_as_json_escapes_it() -> None:
    for text in ("a ‹b› c", "\U0001f600!", "x\udcffy"):
        with pytest.raises(UnicodeEncodeError) as refused:
            text.encode("ascii")
        error = refused.value
        made, end = escaped(error)
        assert json.loads(f'"{made}"') == text[error.start : error.end]
        assert end == error.end


def test_names_that_are_not_utf_8(surroundings, tmp_path: Path) -> None:
    """Refused before anything is made: a session could not write them down."""
    odd = os.fsencode(tmp_path) + b"/m\xff.onnx"
    shutil.copyfile(tiny.faultless(tmp_path), odd)
    for words in (
        ["run", odd], ["open", odd, "--display", "plain"], ["step", "sanitize", odd, "--json"],
        ["run", "m.onnx", "--inputs", odd],
        ["show", odd], ["flow", "check", odd], ["run", tmp_path / "faultless.onnx", "--session", odd], ["report", "x", "-o", odd],
    ):  # fmt: skip
        done = subprocess.run(
            [SCRIPT, *words],
            env=surroundings,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert (
            "m\\udcff.onnx' is not UTF-8 text, and a session writes no other. Rename that file"
            in done.stderr
        )
        assert done.stderr.count("\n") == 1
    assert not Path(surroundings["NARROWDOWN_HOME"]).exists()
    place = os.fsdecode(os.fsencode(tmp_path) + b"/d\xfe")
    Path(place).mkdir()
    for environment, folder in (
        ({**surroundings, "NARROWDOWN_HOME": place}, tmp_path),
        (surroundings, Path(place)),
    ):
        words = [SCRIPT, "run", tmp_path / "faultless.onnx", "--display", "none"]
        done = subprocess.run(
            words, env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
        assert (done.returncode, "d\\udcfe' is not UTF-8 text" in done.stderr) == (2, True), (
            done.stderr
        )


def test_a_session_whose_folder_has_such_a_name(surroundings, walked, tmp_path: Path) -> None:
    home = Path(surroundings["NARROWDOWN_HOME"])
    home.mkdir()
    folder = os.fsdecode(os.fsencode(home) + b"/odd\xff")
    shutil.copytree(walked[0], folder)
    broken = Path(shutil.copytree(walked[0], os.fsdecode(os.fsencode(home) + b"/bad\xff")))
    (broken / "session.json").write_text("{")
    assert len(shell("narrowdown sessions", surroundings, tmp_path).out.splitlines()) == 2
    listed = shell("narrowdown sessions --json", surroundings, tmp_path)
    assert sorted(row["path"] for row in listed.json()) == [
        f"{home}/bad\\udcff",
        f"{home}/odd\\udcff",
    ]
    for command in (
        "show odd",
        "report odd",
        "show odd --canonical",
        "replay odd --dry",
        "watch odd --display plain",
    ):
        ran = shell(f"narrowdown {command}", surroundings, tmp_path)
        assert ran.code in (0, 10), (command, ran.err)


NAMED = "--engine onnxruntime:optimization=all --display none"


@pytest.mark.parametrize(
    ("hidden", "line", "installs"),
    [
        ("msgspec", "sessions", "msgspec"),
        ("yaml", "flow list", "pyyaml"),
        ("jinja2", "flow check accuracy", "jinja2"),
        ("jinja2", f"run MODEL {NAMED}", "jinja2"),
        ("onnx", f"step sanitize MODEL {NAMED} --json", "onnx"),
        ("numpy", f"step sanitize MODEL {NAMED} --json", "numpy"),
        ("onnxruntime", f"run MODEL {NAMED}", "onnxruntime"),
    ],
)
def test_a_package_that_is_missing(
    surroundings, tmp_path: Path, hidden: str, line: str, installs: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDING)
    ran = shell(
        f"narrowdown {line}", surroundings, tmp_path, PYTHONPATH=str(tmp_path), HIDDEN=hidden
    )
    assert ran.code == 4, ran.out + ran.err
    assert f"'{hidden}'" in ran.err or f"{hidden} is not installed" in ran.err
    assert f"{sys.executable} -m pip install {installs}" in ran.err, ran.err
    assert ran.err.count("\n") == 1, ran.err


def test_the_terminal_ui_without_its_package(surroundings, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDING)
    here, there = pty.openpty()
    environment = {
        **surroundings,
        "PYTHONPATH": str(tmp_path),
        "HIDDEN": "textual",
        "TERM": "xterm",
    }
    environment.pop("CI", None)  # with it the list would be plain text
    done = subprocess.run(
        [SCRIPT],
        env=environment,
        stdin=there,
        stdout=there,
        stderr=subprocess.PIPE,
        text=True,
        timeout=allow(60),
        check=False,
    )
    os.close(here)
    os.close(there)
    assert done.returncode == 4
    assert done.stderr.endswith(f"install it with: {sys.executable} -m pip install textual\n")
