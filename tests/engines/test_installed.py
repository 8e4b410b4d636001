"""Whether our own files are still those that a process began with."""

import os
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from narrowdown.engines import installed
from narrowdown.engines.backends.base import EngineMissing
from narrowdown.engines.probe import Inspect
from narrowdown.engines.store import Store
from narrowdown.engines.workers import operations


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installation of ours, an hour older than this process."""
    root = tmp_path / "site-packages"
    for name in (
        "narrowdown/wizard/cli/run.py",
        "narrowdown/engines/spec.py",
        "narrowdown/flows/__init__.py",
        "narrowdown-0.2.0.dist-info/RECORD",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    monkeypatch.setattr(installed, "ROOT", root)
    begun = max(path.stat().st_ctime for path in root.rglob("*.py"))
    monkeypatch.setattr(
        installed,
        "_BEGUN",
        max(begun, (root / "narrowdown-0.2.0.dist-info/RECORD").stat().st_ctime),
    )
    time.sleep(0.02)  # twice what the clock of a file system ticks in
    return root


def test_what_stays_as_it_was_is_no_change(ours: Path) -> None:
    (ours / "narrowdown/wizard/__pycache__").mkdir()
    (ours / "narrowdown/wizard/__pycache__/run.py").write_text("")
    (ours / "theirs").mkdir()
    (ours / "theirs/run.py").write_text("")
    assert installed.find_change() == installed.say_change() == ""


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "narrowdown/wizard/cli/run.py").write_text("x = 1\n"),
        lambda root: (
            (root / "new").write_text(""),
            (root / "new").rename(root / "narrowdown/wizard/cli/run.py"),
        ),
        # An archive gives files the time that they had where they were packed.
        lambda root: (
            (root / "narrowdown/wizard/cli/run.py").write_text("x"),
            os.utime(root / "narrowdown/wizard/cli/run.py", (1e9, 1e9)),
        ),
    ],
)
def test_a_file_that_was_written_since_is_named(ours: Path, change) -> None:
    change(ours)
    assert installed.find_change() == "narrowdown/wizard/cli/run.py"
    assert (
        "Narrowdown was changed while it ran, as an update or an edit does ('narrowdown/wizard/cli/run.py')"
        in installed.say_change()
    )
    assert installed.say_change(installed.OF_WORKERS) == "", (
        "a worker loads nothing of it: what an engine refuses stays its answer"
    )


def test_an_installer_that_links_files_from_its_cache_is_known_by_its_record(
    ours: Path, tmp_path: Path
) -> None:
    """As uv: files of an old time and of several names, and a record of its own."""
    os.utime(ours / "narrowdown/engines/spec.py", (1e9, 1e9))
    (tmp_path / "another").hardlink_to(ours / "narrowdown/engines/spec.py")
    assert installed.find_change() == "", "an installation elsewhere links to the same file"
    (ours / "narrowdown-0.2.0.dist-info/RECORD").write_text("narrowdown/engines/spec.py,,\n")
    assert installed.find_change() == "narrowdown-0.2.0.dist-info/RECORD"


def test_a_file_of_tomorrow_says_nothing(ours: Path) -> None:
    """A clock that was set back since the installation must not stop every session."""
    os.utime(ours / "narrowdown/engines/spec.py", (time.time() + 86400,) * 2)
    (ours / "another").hardlink_to(ours / "narrowdown/engines/spec.py")
    assert installed.find_change() == ""


def test_a_module_whose_file_is_gone(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("narrowdown.engines.gone")
    module.__file__ = str(ours / "narrowdown/engines/gone.py")
    monkeypatch.setitem(sys.modules, "narrowdown.engines.gone", module)
    assert installed.find_change() == "narrowdown/engines/gone.py"


def test_what_fails_after_a_change_is_no_answer(
    ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine whose module is gone was "installed but does not load" for the journal, and the
    session ended without it."""

    def lacks(spec: str) -> None:
        raise EngineMissing("reference is installed but does not load")

    monkeypatch.setattr(
        operations.captures, "make_engine", lacks
    )  # which knows an engine that was asked for before
    probe, store = Inspect(engine="reference:precision=fp64"), Store(ours)
    answer = operations.execute_probe(probe, store, lambda _: None)
    assert (answer.status, "does not load" in answer.message) == ("unsupported", True)
    (ours / "narrowdown/engines/spec.py").write_text("x = 1\n")
    answer = operations.execute_probe(probe, store, lambda _: None)
    assert (answer.status, answer.message) == ("fault", installed.say_change())
