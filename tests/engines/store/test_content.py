"""Files appear whole or not at all; what is no file is written into, never replaced."""

import os
import stat
import threading
from pathlib import Path

import pytest

from engines.store.content import atomic


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
