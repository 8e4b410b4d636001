"""For all tests: Hypothesis measures no time, as a machine that is busy with other work is no
failure of the code; and Ctrl-C reaches the programs that are tested, also where a shell has begun
the tests in the background and told them to ignore it."""

import gc
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import pytest_timeout
from hypothesis import settings

from narrowdown.engines import installed

from . import fakes
from .patience import allow

fakes.put_on_path()
settings.register_profile("untimed", deadline=None)
# make test: the same examples for everybody, and fewer where a test does not say how many.
settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("untimed")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What tests start is compiled once, as users' programs are: a shell may have told Python to keep
# nothing of that.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Seven thousand tests are some 600,000 objects that stay. Python, left to itself, searches them for
# garbage again and again, a third of what the terminal UI's tests cost. So it searches seldom, and
# never what was there before the first test.
gc.set_threshold(100_000, 50, 100)


def pytest_runtest_setup() -> None:
    """Whoever edits a checkout while its tests run changes the program under the test that runs,
    not under all that follow: what fails in there on purpose would be laid to the edit."""
    installed._BEGUN = time.time()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> bool:
    """A test's own limit is for what hangs, too: it is in seconds of a quiet machine, as all of
    ours are."""
    return pytest_timeout.pytest_timeout_set_timer(
        item, settings._replace(timeout=allow(settings.timeout))
    )


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _own_runtime_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runners listen in a folder of the tests' own, and not below the sessions of who runs the
    tests."""
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("runtime")
        place.chmod(0o700)
        patch.setenv("XDG_RUNTIME_DIR", str(place))
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is kept from session to session is not that of who runs the tests; and what steps took
    is kept of none, as a folder lies in its place: no test is told what another one took."""
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("state")
        (place / "narrowdown" / "seconds.json").mkdir(parents=True)
        patch.setenv("XDG_STATE_HOME", str(place))
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_sync() -> Iterator[None]:
    """Tens of thousands of files are written by the tests' own processes, and no machine loses
    power: none waits for a disk. What tests start does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A disk of so many KiB, a tmpfs; asked again, the same one has another size."""
    place = tmp_path / "small-disk"

    def sized(kib: int) -> Path:
        place.mkdir(exist_ok=True)
        options = f"{'remount,' * place.is_mount()}size={kib}k"
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", place], capture_output=True, check=False
        )
        if made.returncode:
            pytest.skip(f"this machine mounts no tmpfs for us: {made.stderr.decode().strip()}")
        return place

    yield sized
    if place.is_mount():
        subprocess.run(["umount", "--lazy", place], check=True)
