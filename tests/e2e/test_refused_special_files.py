"""What is no file where a file is expected (pipes, devices, sockets) and files of a terabyte of
nothing: refused at once, with a sentence, wherever a stranger or a slip of the hand can put one."""

import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from . import tiny
from .test_refused_sessions import walked

__all__ = ["walked"]

AT_ONCE = 20  # seconds, on a machine that is busy with other things


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    """The device itself where we may make one, else a link to it."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except OSError:
        path.symlink_to("/dev/zero")


def linked(path: Path) -> None:
    path.symlink_to("/dev/full")


def listener(path: Path) -> None:
    """A socket; its path may be longer than a socket's address."""
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def giant(path: Path) -> None:
    """A terabyte that takes no room, with what the file began with."""
    if not path.exists():
        path.touch()
    os.truncate(path, 1 << 40)


SPECIAL: dict[str, tuple[Callable[[Path], None], str]] = {
    "pipe": (pipe, "is a pipe"),
    "device": (device, "is a device"),
    "link to a device": (linked, "is a device"),
    "socket": (listener, "is a socket"),
    "giant": (giant, "has 1,024.0 GiB"),
}
# Each file of a session, and one that is none of its own.
PARTS = (
    "session.json", "flow.yaml", "journal.jsonl", "lock", "progress.json", "artifacts", "models", "weights", "inputs", "captures",
    "logs/runner.log", "stray",
)  # fmt: skip
# In the fast suite each part once, with another kind from one to the next.
PAIRS = [
    pytest.param(part, kind, marks=[] if (i + j) % len(SPECIAL) == 0 else [pytest.mark.slow])
    for i, part in enumerate(PARTS)
    for j, kind in enumerate(SPECIAL)
]
COMMANDS = (
    ["show"], ["show", "--json"], ["report"], ["resume"], ["resume", "--repair"], ["watch"], ["replay"], ["replay", "--dry"],
    ["export", "-o", "case"],
)  # fmt: skip


def place(session: Path, part: str) -> Path:
    """The path of such a part: of a folder's, the first file in it, or one beside which nothing
    lies."""
    folders = {
        "models": "models",
        "weights": "models/weights",
        "artifacts": "artifacts",
        "inputs": "inputs",
    }
    if part == "captures":
        made = session / "captures" / "a" / "b"
        made.mkdir(parents=True)
        return made / "1.npy"
    if part in folders:
        return next(
            (f for f in sorted((session / folders[part]).rglob("*")) if f.is_file()),
            session / folders[part] / "x",
        )
    return session / part


@pytest.mark.timeout(AT_ONCE * len(COMMANDS))
@pytest.mark.parametrize(("part", "kind"), PAIRS)
def test_a_session_with_one(narrowdown, walked, tmp_path: Path, part: str, kind: str) -> None:
    """Every command ends with 4 and names it, and the list names the session still, and its
    neighbour."""
    make, said = SPECIAL[kind]
    home = tmp_path / "sessions"
    home.mkdir()
    session = Path(shutil.copytree(walked[0], home / "forged"))
    shutil.copytree(walked[0], home / "sound")
    path = place(session, part)
    if kind != "giant":
        path.unlink(missing_ok=True)
    make(path)
    for command, *rest in COMMANDS:
        display = ["--display", "none"] if command in ("resume", "watch") else []
        ran = narrowdown(command, session, *rest, *display)
        assert ran.code == 4, (command, ran.out, ran.err)
        assert path.name in ran.err, (command, ran.err)
        told = (said, "is a link", "which no flow is")
        assert any(words in ran.err for words in told), (command, ran.err)
        assert ran.err.count("\n") == 1, ran.err
    listed = narrowdown("sessions")
    assert listed.code == 0
    assert len(listed.out.splitlines()) == 2, listed.out
    assert len(list(home.iterdir())) == 2, "no copy was begun"


GIVEN = {
    "model": (["run", "GIVEN.onnx"], 2),
    "model of a step": (["step", "sanitize", "GIVEN.onnx"], 2),
    "inputs .json": (["run", "MODEL", "--inputs", "GIVEN.json"], 2),
    "inputs .npz": (["run", "MODEL", "--inputs", "GIVEN.npz"], 2),
    "inputs .npy": (["run", "MODEL", "--inputs", "x=GIVEN.npy"], 2),
    "inputs .py": (["run", "MODEL", "--inputs", "GIVEN.py"], 2),
    "postprocess": (["run", "MODEL", "--postprocess", "GIVEN.py"], 2),
    "flow": (["run", "MODEL", "--flow", "GIVEN.yaml"], 2),
    "flow check": (["flow", "check", "GIVEN.yaml"], 2),
    "flow show": (["flow", "show", "GIVEN.yaml"], 2),
    "answers": (["run", "MODEL", "--answers", "GIVEN.yaml"], 2),
    "another model": (["run", "MODEL", "--reference", "onnxruntime:model=GIVEN.onnx"], 2),
    "custom operators": (["run", "MODEL", "--engine", "onnxruntime:custom_ops=GIVEN.so"], 2),
    "tactics": (["diff-tactics", "--good", "GIVEN.json", "--bad", "good"], 2),
}


@pytest.mark.timeout(AT_ONCE)
@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("what", GIVEN)
def test_a_file_that_the_user_names(narrowdown, tmp_path: Path, kind: str, what: str) -> None:
    words, code = GIVEN[what]
    make, said = SPECIAL[kind]
    model = tiny.faultless(tmp_path)
    word = next(word for word in words if "GIVEN" in word)
    path = tmp_path / f"GIVEN{Path(word).suffix}"
    make(path)
    ran = narrowdown(
        *(
            str(model) if word == "MODEL" else word.replace("GIVEN", str(tmp_path / "GIVEN"))
            for word in words
        )
    )
    assert ran.code == code, ran.err
    assert said in ran.err or (kind == "giant" and "larger than 1,048,576 bytes" in ran.err), (
        ran.err
    )
    assert ran.err.count("\n") == 1, ran.err
    assert not (tmp_path / "sessions").exists() or not list((tmp_path / "sessions").iterdir()), (
        "no session is begun"
    )


@pytest.mark.timeout(AT_ONCE)
@pytest.mark.parametrize(
    "words", [["run", "PIPE"], ["flow", "check", "PIPE"], ["run", "MODEL", "--inputs", "PIPE"]]
)
def test_what_a_shell_hands_over_as_a_pipe(narrowdown, tmp_path: Path, words: list[str]) -> None:
    """``<(command)`` names a pipe of the shell's, ``/dev/stdin`` may: neither can be read twice, or
    by another process."""
    model = tiny.faultless(tmp_path)
    ends = os.pipe()
    try:
        shell = f"/dev/fd/{ends[0]}"
        ran = narrowdown(*({"MODEL": str(model), "PIPE": shell}.get(word, word) for word in words))
        assert ran.code == 2
        assert (
            "is a pipe, and what comes out of one can be read only once; save that in a file and name the file"
            in ran.err
        )
    finally:
        for end in ends:
            os.close(end)


@pytest.mark.timeout(AT_ONCE)
def test_the_list_of_the_terminal_ui(
    walked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for the same summaries: each bad session is a line with its reason."""
    from narrowdown.wizard.tui.library import Sessions

    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("NARROWDOWN_HOME", str(home))
    shutil.copytree(walked[0], home / "sound")
    for kind, (make, _) in SPECIAL.items():
        for part in ("session.json", "journal.jsonl", "flow.yaml", "lock"):
            session = Path(shutil.copytree(walked[0], home / f"{kind}-{part}"))
            if kind != "giant":
                (session / part).unlink(missing_ok=True)
            make(session / part)
    listed = {summary.path.name: summary for summary in Sessions().entries()}
    assert len(listed) == 21
    assert not listed["sound"].problem
    for kind, (_, said) in SPECIAL.items():
        for part in ("session.json", "journal.jsonl"):
            problem = listed[f"{kind}-{part}"].problem
            assert said in problem or "is a link" in problem, (kind, part, problem)


def test_an_array_that_claims_a_terabyte(narrowdown, tmp_path: Path) -> None:
    """A sparse .npy file with a true header."""
    model = tiny.faultless(tmp_path)
    path = tmp_path / "x.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 36, 16)}
        )
        file.truncate(file.tell() + (1 << 42))
    ran = narrowdown("run", model, "--inputs", path)
    assert ran.code == 2
    assert "has 4,096.0 GiB" in ran.err
