"""A copy has the same bytes and takes no more room."""

import errno
import os
from pathlib import Path

import pytest

from narrowdown.engines.store import copying


def written(path: Path, spans: dict[int, bytes], size: int) -> Path:
    with path.open("wb") as file:
        for at, data in spans.items():
            file.seek(at)
            file.write(data)
        file.truncate(size)
    return path


@pytest.mark.parametrize("in_kernel", [True, False])
@pytest.mark.parametrize(
    ("spans", "size"),
    [
        ({}, 0),
        ({}, 5 << 20),
        ({0: b"a" * 5000}, 5000),
        ({3 << 20: b"b" * 70_000}, 20 << 20),
        ({0: b"c", 9 << 20: b"d"}, (9 << 20) + 1),
    ],
)
def test_holes_stay_holes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spans: dict[int, bytes],
    size: int,
    in_kernel: bool,
) -> None:
    if not in_kernel:

        def refuse(*_: object) -> int:
            raise OSError(errno.EXDEV, "not here")

        monkeypatch.setattr(os, "copy_file_range", refuse)
    source = written(tmp_path / "a", spans, size)
    source.chmod(0o640)
    copying.copy(source, tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == source.read_bytes()
    assert (tmp_path / "b").stat().st_blocks <= source.stat().st_blocks + 8
    assert (tmp_path / "b").stat().st_mode == source.stat().st_mode


def test_a_source_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        copying.copy(tmp_path / "none", tmp_path / "b")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    os.mkfifo(tmp_path / "from" / "pipe")
    with pytest.raises(OSError, match="it is a pipe"):
        copying.tree(tmp_path / "from", tmp_path / "to")


def test_a_folder_is_copied_up_to_the_first_file_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "from" / "inner").mkdir(parents=True)
    for name in ("a", "b", "inner/c"):
        (tmp_path / "from" / name).write_bytes(b"x")
    copying.tree(tmp_path / "from", tmp_path / "whole")
    assert (tmp_path / "whole" / "inner" / "c").read_bytes() == b"x"
    tried = []

    def full(source: str, _target: str) -> None:
        tried.append(source)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(copying, "copy", full)
    with pytest.raises(OSError, match="No space left") as raised:
        copying.tree(tmp_path / "from", tmp_path / "to")
    assert raised.value.errno == errno.ENOSPC, "the sentence for a full disk can be said"
    assert len(tried) == 1
