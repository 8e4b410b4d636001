"""``progress.json`` as others read it: what a runner wrote, whatever its version, or nothing."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from narrowdown.wizard.plain import progress_line
from narrowdown.wizard.runner import progress

BUSY = {"worker": 1, "state": "busy", "text": "building: Timing tactics, 3 of 40", "seconds": 2.5}


def test_what_a_runner_writes_is_read_with_what_a_later_one_adds(tmp_path: Path) -> None:
    progress.write(
        tmp_path, progress.Snapshot(phase="running", text="trying", done=3, workers=(BUSY,))
    )
    found = msgspec.json.decode((tmp_path / progress.NAME).read_bytes())
    (tmp_path / progress.NAME).write_bytes(msgspec.json.encode({**found, "mood": "good"}))
    read = progress.read(tmp_path)
    assert read is not None
    assert (read["done"], read["workers"], read["mood"]) == (3, [BUSY], "good")


@pytest.mark.parametrize(
    "changed",
    [
        {"done": "x"}, {"phase": 5}, {"workers": "abc"}, {"workers": [1]}, {"workers": [{"text": 5}]},
        {"workers": [{**BUSY, "seconds": "x"}]}, {"expected": 10**30},
    ],
)  # fmt: skip
def test_what_a_stranger_wrote_in_its_place_is_none(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    """``watch`` ended with a failure of the program's own."""
    sound = {"phase": "running", "text": "trying", "done": 3, "workers": [BUSY]}
    (tmp_path / progress.NAME).write_bytes(msgspec.json.encode({**sound, **changed}))
    assert progress.read(tmp_path) is None
    assert progress_line(progress.read(tmp_path) or {}) == ""
