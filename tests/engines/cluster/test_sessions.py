"""Whole sessions on real clusters: whatever becomes of hosts, wires and the session's own machine,
the result is the same."""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from narrowdown.wizard.demo import MODELS

pytest.importorskip("distributed", reason="needs Dask distributed: pip install '.[cluster]'")

from narrowdown.wizard.session.events import AnyEvent, NoteAdded, ProbeFinished, SessionOpened
from narrowdown.wizard.session.journal import NAME, read

from ...patience import allow

SCRIPT = str(Path(sys.executable).with_name("narrowdown"))
WORDS = (
    "run", str(MODELS / "shapes_cnn.onnx"), "--engine", "onnxruntime:optimization=all",
    "--inputs", str(MODELS / "shapes_cnn_in.npz"), "--display", "none",
)  # fmt: skip
ENOUGH = 25  # finished probes after which the middle of a session is reached

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def started(home: Path, *words: str) -> "subprocess.Popen[str]":
    """``narrowdown`` as on a machine of its own: sessions, trust and sockets below ``home``."""
    home.mkdir(exist_ok=True)
    surroundings = {
        **os.environ,
        "NARROWDOWN_HOME": str(home / "sessions"),
        "XDG_STATE_HOME": str(home / "state"),
        "PYTHONSAFEPATH": "1",
    }
    return subprocess.Popen(
        [SCRIPT, *words],
        env=surroundings,
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ran(home: Path, *words: str) -> str:
    """What it printed; it must have ended well."""
    process = started(home, *words)
    out, err = process.communicate(timeout=allow(500))
    assert process.returncode == 0, err
    assert "Traceback" not in err
    return out


def canonical(home: Path, session: Path) -> str:
    return ran(home, "show", str(session), "--canonical")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The canonical result of one machine."""
    home = tmp_path_factory.mktemp("alone")
    ran(home, *WORDS, "--session", str(home / "s"), "--jobs", "1")
    return canonical(home, home / "s")


def events(session: Path) -> tuple[AnyEvent, ...]:
    return tuple(read(session / NAME)) if (session / NAME).exists() else ()


def finished(session: Path) -> list[str]:
    return [event.key for event in events(session) if isinstance(event, ProbeFinished)]


def in_the_middle(session: Path, process: "subprocess.Popen[str]") -> None:
    end = time.monotonic() + 200
    while len(finished(session)) < ENOUGH:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.1)


def told(process: "subprocess.Popen[str]") -> None:
    _, err = process.communicate(timeout=allow(500))
    assert process.returncode == 0, err


def test_a_host_that_goes_down_and_one_that_comes_change_nothing(
    tmp_path: Path, cluster, alone: str
) -> None:
    session = tmp_path / "s"
    cluster.add("a")
    cluster.add("b")
    cluster.ready()
    process = started(tmp_path / "m", *WORDS, "--session", str(session), "--executor", cluster.url)
    in_the_middle(session, process)
    cluster.kill("a")
    cluster.add("c")
    told(process)
    assert canonical(tmp_path / "m", session) == alone
    assert len(finished(session)) == len(set(finished(session)))
    again = ran(tmp_path / "m", "replay", str(session), "--executor", cluster.url)
    assert again == ran(tmp_path / "m", "replay", str(session)), (
        "hosts measure what this machine does"
    )
    assert again.splitlines()[-1].endswith("as expected (--expect same)")
    assert not cluster.fetched("b", "*"), "a replay leaves nothing on a host"


def test_a_session_killed_here_is_resumed_elsewhere(tmp_path: Path, cluster, alone: str) -> None:
    """Its folder is copied to another machine, which uses the same hosts."""
    session, elsewhere = tmp_path / "s", tmp_path / "copied"
    cluster.add("a")
    cluster.add("b")
    cluster.ready()
    process = started(tmp_path / "m1", *WORDS, "--session", str(session), "--executor", cluster.url)
    in_the_middle(session, process)
    runner = next(event.pid for event in events(session) if isinstance(event, SessionOpened))
    os.kill(runner, signal.SIGKILL)
    process.kill()
    process.communicate()
    shutil.copytree(session, elsewhere, ignore=shutil.ignore_patterns("lock"))
    before = finished(elsewhere)
    resumed = started(
        tmp_path / "m2", "resume", str(elsewhere), "--executor", cluster.url, "--display", "none"
    )
    told(resumed)
    assert canonical(tmp_path / "m2", elsewhere) == alone
    after = finished(elsewhere)
    assert after[: len(before)] == before
    assert len(after) == len(set(after)), "nothing finished is measured twice"


@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs two cores, to make a host that has one"
)
def test_a_host_with_another_engine_is_named_and_left_out(tmp_path: Path, cluster) -> None:
    session = tmp_path / "s"
    cluster.add("a")
    cluster.add("b")
    cluster.add("odd", prefix=("taskset", "-c", "0"))
    cluster.ready()
    words = [w.replace("optimization=all", "optimization=all,threads=0") for w in WORDS]
    ran(tmp_path / "m", *words, "--session", str(session), "--executor", cluster.url)
    notes = [event.text for event in events(session) if isinstance(event, NoteAdded)]
    assert any("is left out" in note and "threads=0" in note for note in notes)
    ran(tmp_path / "m", *words, "--session", str(tmp_path / "here"), "--jobs", "1")
    assert canonical(tmp_path / "m", session) == canonical(tmp_path / "m", tmp_path / "here")


# -- wires


class Wire:
    """A network namespace with one wire to this machine, which can be cut; ``number`` tells several
    from one another."""

    def __init__(self, number: int = 0) -> None:
        self.here, self.there = (f"10.213.77.{4 * number + end}" for end in (1, 2))
        self.name, self._near, self._far = (
            f"{what}{number}" for what in ("narrowdown-test", "ndnear", "ndfar")
        )

    def __enter__(self) -> "Wire":
        self._ip("netns", "add", self.name)
        self._ip(
            "link", "add", self._near, "type", "veth", "peer", "name", self._far, "netns", self.name
        )
        self._ip("addr", "add", f"{self.here}/30", "dev", self._near)
        self._ip("link", "set", self._near, "up")
        self._ip("-n", self.name, "addr", "add", f"{self.there}/30", "dev", self._far)
        self._ip("-n", self.name, "link", "set", self._far, "up")
        self._ip("-n", self.name, "link", "set", "lo", "up")
        self._ip("-n", self.name, "route", "add", "default", "via", self.here)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self._ip("link", "del", self._near)
        self._ip("netns", "del", self.name)

    @property
    def inside(self) -> tuple[str, ...]:
        """Words before a command that is to run at the other end."""
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        self._ip("link", "set", self._near, "down")

    def mend(self) -> None:
        self._ip("link", "set", self._near, "up")

    @staticmethod
    def _ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def lay() -> Iterator[Callable[[], Wire]]:
    """``lay()``: a wire more."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("needs root and the command 'ip', to make a network namespace")
    with contextlib.ExitStack() as laid:
        numbers = itertools.count()

        def lay() -> Wire:
            try:
                return laid.enter_context(Wire(next(numbers)))
            except subprocess.CalledProcessError as error:
                pytest.skip(
                    f"this machine makes no network namespaces: {error.stderr.decode().strip()}"
                )

        yield lay


@pytest.fixture
def wire(lay: Callable[[], Wire]) -> Wire:
    return lay()


@pytest.mark.parametrize("mended", [False, True])
def test_a_host_behind_a_cut_wire_is_done_without(
    tmp_path: Path, wire: Wire, make_cluster: Callable[..., object], alone: str, mended: bool
) -> None:
    cluster = make_cluster(wire.here, DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP="12s")
    session = tmp_path / "s"
    cluster.add("near")
    cluster.add("far", prefix=wire.inside)
    cluster.ready()
    process = started(tmp_path / "m", *WORDS, "--session", str(session), "--executor", cluster.url)
    in_the_middle(session, process)
    wire.cut()
    if mended:
        time.sleep(8)
        wire.mend()
    told(process)
    assert canonical(tmp_path / "m", session) == alone
    assert len(finished(session)) == len(set(finished(session)))


def test_of_two_hosts_each_behind_a_wire_one_goes_on_alone(
    tmp_path: Path, lay: Callable[[], Wire], make_cluster: Callable[..., object], alone: str
) -> None:
    """Nothing but the scheduler is on this machine, and the hosts do not see each other."""
    first, second = lay(), lay()
    cluster = make_cluster(first.here, DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP="12s")
    session = tmp_path / "s"
    cluster.add("one", prefix=first.inside)
    cluster.add("two", prefix=second.inside)
    cluster.ready()
    process = started(tmp_path / "m", *WORDS, "--session", str(session), "--executor", cluster.url)
    in_the_middle(session, process)
    first.cut()
    told(process)
    assert canonical(tmp_path / "m", session) == alone
    assert len(finished(session)) == len(set(finished(session)))


def test_a_scheduler_that_goes_away_and_comes_back(tmp_path: Path, cluster, alone: str) -> None:
    """Every task is forgotten with it; the session asks again."""
    session = tmp_path / "s"
    cluster.add("a")
    cluster.ready()
    process = started(tmp_path / "m", *WORDS, "--session", str(session), "--executor", cluster.url)
    in_the_middle(session, process)
    cluster.kill("a")
    cluster.begin_again()
    cluster.add("b")
    told(process)
    assert canonical(tmp_path / "m", session) == alone
    assert len(finished(session)) == len(set(finished(session)))
