"""Where a user's own files lie, whatever the environment says."""

import os
import pwd
from pathlib import Path

import pytest

from narrowdown.engines.store.places import own_folder


@pytest.mark.parametrize("told", [{}, {"HOME": "."}, {"HOME": "", "XDG_STATE_HOME": "."}])
def test_no_relative_path_of_the_environment_is_taken(told: dict[str, str]) -> None:
    """A relative HOME meant the folder that one stands in: its ``trust.json`` was believed."""
    home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    assert own_folder("XDG_STATE_HOME", told) == home / ".local/state/narrowdown"


def test_whole_paths_are_taken() -> None:
    told = {"HOME": "/h", "XDG_CONFIG_HOME": "/c"}
    assert own_folder("XDG_STATE_HOME", told) == Path("/h/.local/state/narrowdown")
    assert own_folder("XDG_CONFIG_HOME", told) == Path("/c/narrowdown")
