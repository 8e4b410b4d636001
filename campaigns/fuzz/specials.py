"""Things that are no files, put where a stranger or a slip of the hand may put them; each must be
refused, by its kind."""

import ctypes
import os
import random
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path


def fill(path: Path, kind: str) -> None:
    """Put a thing of this kind there, in place of what there is."""
    if kind == "giant":
        if path.is_symlink() or (path.exists() and not path.is_file()):
            ctypes.CDLL(None).unlink(os.fsencode(path))
        path.touch()
        os.truncate(path, 1 << 40)
        return
    ctypes.CDLL(None).unlink(os.fsencode(path))  # as below: what was put there before may be a link
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            here = Path.cwd()
            os.chdir(path.parent)  # a socket's address is short
            try:
                with socket.socket(socket.AF_UNIX) as made:
                    made.bind(path.name)
            finally:
                os.chdir(here)
        case "device":
            _link(random.Random(str(path)).choice(("/dev/zero", "/dev/full", "/dev/tty")), path)
        case "link":
            (path.parent.parent / "secret").write_text("the words of somebody else")
            _link(str(path.parent.parent / "secret"), path)


def _link(target: str, path: Path) -> None:
    """By the C library: that the campaign makes a link is not what its watch is to see."""
    assert ctypes.CDLL(None).symlink(os.fsencode(target), os.fsencode(path)) == 0


# In a session a link is none of its files, whatever it leads to; a file that a user names may be
# one.
IN_SESSIONS = {
    "pipe": "is a pipe",
    "socket": "is a socket",
    "giant": "GiB",
    "device": "is a link",
    "link": "is a link",
}
NAMED = {"pipe": "is a pipe", "socket": "is a socket", "giant": "GiB", "device": "is a device"}


def session(data: bytes, folder: Path, recorded: Path) -> str:
    """One, two or three of a session's files are none, or others stand beside them: no command
    waits, all refuse, and the list names it beside its neighbour."""
    from . import commands

    chance = random.Random(data)
    home = folder / "home"
    place = Path(shutil.copytree(recorded, home / "forged"))
    shutil.copytree(recorded, home / "sound")
    kinds = [chance.choice(list(IN_SESSIONS)) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
    for kind in kinds:
        within = [
            path for path in sorted(place.rglob("*")) if path.is_file() and not path.is_symlink()
        ]
        beside = [
            place / name
            for name in (
                "lock",
                "progress.json",
                "logs/x.log",
                "models/x.onnx",
                "captures/x",
                "stray",
            )
        ]
        main = [place / name for name in ("session.json", "flow.yaml", "journal.jsonl", "lock")]
        path = chance.choice(chance.choice((within, beside, main)))
        path.parent.mkdir(exist_ok=True)
        fill(path, kind)
    said = ""
    for words in (
        ["show"],
        ["show", "--canonical"],
        ["report"],
        ["watch"],
        ["replay", "--dry"],
        ["resume", "--repair"],
    ):
        display = ["--display", "none"] if words[0] in ("watch", "resume") else []
        ended = commands.run([words[0], str(place), *words[1:], *display])
        assert ended.code in (2, 4), (kinds, words, ended)
        assert any(IN_SESSIONS[kind] in ended.err for kind in kinds), (kinds, words, ended)
        said = f"refused: {ended.code}"
    listed = commands.run(["sessions"], NARROWDOWN_HOME=str(home))
    assert (listed.code, listed.out.count("\n")) == (0, 2), listed
    return said


def named(data: bytes, folder: Path, model: Path) -> str:
    """One that the user names, as model, inputs, flow, answers or script."""
    from . import commands

    chance = random.Random(data)
    kind = chance.choice(list(NAMED))
    run = ["run", str(model)]
    words, name = chance.choice(list(_asking(run)))
    path = folder / name
    fill(path, kind)
    ended = commands.run(
        [word.replace("GIVEN", str(path)) for word in words], NARROWDOWN_HOME=str(folder / "home")
    )
    assert ended.code == 2, (kind, words, ended)
    assert NAMED[kind] in ended.err or "larger than 1,048,576 bytes" in ended.err, (
        kind,
        words,
        ended,
    )
    assert not (folder / "home").exists()
    return f"refused: {ended.code}"


def _asking(run: list[str]) -> Iterator[tuple[list[str], str]]:
    yield ["run", "GIVEN"], "m.onnx"
    yield ["step", "reduce", "GIVEN"], "m.onnx"
    for ending in (".json", ".npz", ".npy", ".py", ".png"):
        yield [*run, "--inputs", "GIVEN"], f"x{ending}"
    yield [*run, "--inputs", "x=GIVEN"], "x.npy"
    yield [*run, "--flow", "GIVEN"], "f.yaml"
    yield [*run, "--answers", "GIVEN"], "a.yaml"
    yield [*run, "--postprocess", "GIVEN"], "p.py"
    yield [*run, "--reference", "onnxruntime:model=GIVEN"], "o.onnx"
    yield [*run, "--engine", "onnxruntime:custom_ops=GIVEN"], "c.so"
    yield ["flow", "check", "GIVEN"], "f.yaml"
    yield ["flow", "show", "GIVEN"], "f.yaml"
    yield ["diff-tactics", "--good", "GIVEN"], "t.json"
