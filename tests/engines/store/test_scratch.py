"""A folder of one's own, also where the file system has no locks."""

import errno
import fcntl
from pathlib import Path

import pytest

from narrowdown.engines.store.scratch import scratch


def test_without_locks_there_is_a_folder_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with scratch("ours-", tmp_path) as first:
        with scratch("ours-", tmp_path) as second:
            assert first.is_dir(), "what cannot be seen to be left by a dead one stays"
            assert second != first
        assert not second.exists()
    assert not list(tmp_path.iterdir())
