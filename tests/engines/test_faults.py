"""What the machine refuses, in whatever words it comes: no answer of an engine, and what is said of
it."""

import errno
import resource
from pathlib import Path

import numpy as np
import pytest

from narrowdown.engines import faults


def test_a_disk_that_fills_while_numpy_writes_is_a_fault_of_the_machine(tmp_path: Path) -> None:
    """numpy says how many values went into the file and keeps no errno: a probe ended as an error
    of the engine's for it."""
    most, room = resource.getrlimit(resource.RLIMIT_FSIZE), 100_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, most[1]))  # bytes; stands for the disk
    try:
        with pytest.raises(
            OSError, match="80000 requested and 12484 written"
        ) as told:  # 100,000 less the head, by 8
            np.save(tmp_path / "a.npy", np.zeros(80_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert told.value.errno is None
    found = faults.find_fault(told.value)
    assert found is not None
    assert found.errno == errno.ENOSPC
    assert "of '/somewhere' is full" in faults.say_fault(found, "/somewhere")


def test_an_error_without_a_number_is_no_fault_of_the_machine() -> None:
    assert faults.find_fault(OSError("3 requested and none given")) is None
