"""Files that are none, and files without an end, are refused at once by the function that opens
them."""

import contextlib
import errno
import gc
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from narrowdown.engines.store import regular

SPECIAL: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (os.mkfifo, "it is a pipe, and what comes out of one can be read only once"),
    "a link to a device": (
        lambda path: path.symlink_to("/dev/zero"),
        "it is a device and no file; name a file",
    ),
    "a link to a full device": (
        lambda path: path.symlink_to("/dev/full"),
        "it is a device and no file; name a file",
    ),
    "a socket": (
        lambda path: socket.socket(socket.AF_UNIX).bind(str(path)),
        "it is a socket and no file",
    ),
    "a folder": (lambda path: path.mkdir(), "it is a folder"),
    "a terabyte of nothing": (
        lambda path: (path.touch(), os.truncate(path, 1 << 40)),
        "it has 1,024.0 GiB, and no more than 256.0 GiB are read",
    ),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_regular_file(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    make, said = SPECIAL[kind]
    path = Path("x")
    make(path)
    for opening in (regular.opened, regular.size, lambda p: regular.read(p, regular.LARGEST)):
        with pytest.raises(regular.Unfit) as refused:
            opening(path)
        assert (refused.value.strerror or "").startswith(said)
        assert refused.value.filename == "x"
    assert regular.fault(path) == (
        "" if kind == "a folder" else (refused.value.strerror or "").removeprefix("it ")
    )


@pytest.mark.timeout(20)
def test_a_pipe_that_takes_a_files_place_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(path)
    file.write_bytes(b"1")
    there = file.stat()
    monkeypatch.setattr(
        regular.Path, "stat", lambda *_, **__: there
    )  # what was looked at was a file
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(regular.Unfit):
        regular.opened(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before, "nothing stays open"


def test_a_regular_file_and_a_link_to_one(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"content")
    link.symlink_to(file)
    assert regular.read(file, 7) == regular.read(link) == b"content"
    assert regular.size(link) == 7
    for opening in (regular.opened, regular.read, regular.size):
        with pytest.raises(OSError, match="it is a link") as refused:
            opening(link, 7, links=False)
        assert refused.value.errno == errno.ELOOP
    with pytest.raises(regular.Unfit, match="it has 7 bytes, and no more than 6 bytes are read"):
        regular.read(file, 6)
    assert regular.fault(file) == regular.fault(tmp_path / "nothing") == ""
    with pytest.raises(FileNotFoundError):
        regular.opened(tmp_path / "nothing")


def test_a_ctrl_c_at_any_moment_comes_out_and_leaves_nothing_open(tmp_path: Path) -> None:
    """Raised before each operation of the opening in turn, in the standard library's frames too."""
    path = tmp_path / "x"
    path.write_bytes(b"some")
    moments = 0
    gc.collect()
    while True:
        before = count_open()
        try:
            with interrupted_at(moments):
                regular.opened(path).close()
        except KeyboardInterrupt:
            moments += 1
            gc.collect(0)  # what was just made: the whole heap 600 times took half a minute
            # Where the Ctrl-C comes as the opener hands over what it has opened nobody owns that:
            # one is left.
            assert count_open() <= before + 1
            continue
        break
    assert moments > 100


def count_open() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@contextlib.contextmanager
def interrupted_at(moment: int) -> Iterator[None]:
    """A Ctrl-C at the traced moment of this number, counted from 0."""
    left = moment

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_name == "__exit__":
            return None
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if left == -1 and event == "opcode":
            raise KeyboardInterrupt
        return trace

    sys._getframe().f_trace_opcodes = (
        True  # Python 3.12 looks for this as tracing begins, and at no later frame
    )
    gc.disable()  # a Ctrl-C in somebody's callback of it would come out nowhere
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)
        gc.enable()
