"""Files appear whole or not at all; what is no file is written into, never replaced."""

import io
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from narrowdown.engines import store
from narrowdown.engines.graph import external
from narrowdown.engines.store import atomic, write_atomically, write_pieces
from narrowdown.engines.store.sound import Sealed


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file"
    with atomic(target) as temporary:
        temporary.write_text("whole")
        assert not target.exists()
    assert target.read_text() == "whole"
    with pytest.raises(ZeroDivisionError), atomic(target) as temporary:
        temporary.write_text(str(1 / 0))
    assert target.read_text() == "whole"
    assert list(target.parent.iterdir()) == [target]


def test_a_pipe_is_written_into_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    with atomic(pipe) as temporary:
        temporary.write_text("through")
    reader.join(10)
    assert got == ["through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


class Sizes(io.BytesIO):
    def __init__(self) -> None:
        super().__init__()
        self.each: list[int] = []

    def write(self, data: Any) -> int:
        self.each.append(len(data))
        return super().write(data)


@pytest.mark.parametrize("length", [0, 1, 256 << 10, (256 << 10) + 1, 3 << 20])
@pytest.mark.parametrize(
    "write", [write_pieces, lambda file, data: Sealed(file).write(data), external.write_sparse]
)
def test_what_is_large_is_written_a_little_at_a_time(
    write: Callable[..., Any], length: int
) -> None:
    """Pieces of 1 MiB and more take Linux several times as long."""
    file, data = Sizes(), bytes(range(256)) * (length // 256) + bytes(length % 256)
    write(file, data)
    assert file.getvalue() == data
    assert max(file.each, default=0) <= 256 << 10


def test_a_file_is_written_so_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "write_pieces", lambda file, data: file.write(b"pieces of " + data))
    write_atomically(tmp_path / "f", "it")
    assert (tmp_path / "f").read_text() == "pieces of it"
