"""Tests of the runner share one small world, ``house.py``."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch):
    """Hundreds of journals are written here, and no machine loses power."""
    monkeypatch.setattr(os, "fsync", lambda _fd: None)
