"""What holds for all tests holds for campaigns: their limits, their hooks and their fixtures."""

from tests.conftest import (
    _own_runtime_folder,
    _own_state_home,
    pytest_collection_finish,
    pytest_runtest_setup,
    pytest_timeout_set_timer,
    small_disk,
)

__all__ = [
    "_own_runtime_folder",
    "_own_state_home",
    "pytest_collection_finish",
    "pytest_runtest_setup",
    "pytest_timeout_set_timer",
    "small_disk",
]
