"""Schedulers that are not there, are something else, or go away: a sentence each, on every display,
and nobody left behind."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="needs Dask distributed: pip install '.[cluster]'")

from narrowdown.engines.cluster import executor as ends
from narrowdown.engines.cluster.executor import Cluster, first_unencrypted
from narrowdown.engines.workers.executor import ExecutorLost
from narrowdown.engines.workers.pool import Telling
from narrowdown.wizard.runner import progress
from narrowdown.wizard.session.events import NoteAdded
from narrowdown.wizard.session.journal import NAME, read

from ...patience import allow
from .test_sessions import SCRIPT, WORDS, finished, started


@contextlib.contextmanager
def listening(reply: bytes) -> Iterator[int]:
    """A port that accepts and says this, or nothing, for ever."""
    held: list[socket.socket] = []
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(16)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    held.append(server.accept()[0])
                    if reply:
                        held[-1].sendall(reply)

        threading.Thread(target=serve, daemon=True).start()
        yield int(server.getsockname()[1])
        for one in held:
            one.close()


HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("scheme", "reply", "why"),
    [
        ("tcp", b"", "nothing in .* s; a scheduler listens at port 8786"),
        ("tcp", HTTP, ""),
        ("tls", b"", "it wants certificates: set DASK_DISTRIBUTED__COMM__TLS__CA_FILE"),
        ("ws", HTTP, ""),
    ],
)
def test_what_is_no_scheduler_is_a_sentence_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, reply: bytes, why: str
) -> None:
    monkeypatch.setattr(ends, "_CALL", 0.5)

    async def ask(url: str) -> None:
        cluster = Cluster(url, tmp_path, session="s")
        assert cluster.waited_for().startswith(f"the scheduler at {url}")
        try:
            await cluster.start()
        finally:
            await cluster.stop(hard=True)

    with (
        listening(reply) as port,
        pytest.raises(ExecutorLost, match=f"No cluster answers at {scheme}://.*{why}"),
    ):
        asyncio.run(asyncio.wait_for(ask(f"{scheme}://127.0.0.1:{port}"), 30))


def runners(folder: Path) -> list[int]:
    """Processes of sessions below this folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in place.read_bytes():
                found.append(int(place.parent.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_silent_port_ends_the_session_and_so_does_ctrl_c(
    tmp_path: Path, interrupted: bool
) -> None:
    session = tmp_path / "s"
    with listening(b"") as port:
        process = started(
            tmp_path / "m",
            *WORDS,
            "--session",
            str(session),
            "--executor",
            f"tcp://127.0.0.1:{port}",
        )
        if interrupted:
            end = time.monotonic() + 60
            while "waiting for the scheduler" not in str(
                (progress.read(session) or {}).get("text")
            ):
                assert time.monotonic() < end
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=allow(120))
    assert process.returncode == (130 if interrupted else 4), err
    assert "Traceback" not in err
    assert ("Stopped before it had begun" if interrupted else "No cluster answers at") in err
    end = time.monotonic() + 20
    while runners(tmp_path) and time.monotonic() < end:
        time.sleep(0.1)
    assert runners(tmp_path) == []


@pytest.mark.slow
def test_a_lost_scheduler_is_said_at_once_and_on_every_display(tmp_path: Path, cluster) -> None:
    session = tmp_path / "s"
    cluster.add("a")
    cluster.ready()
    words = [*WORDS[:-1], "plain", "--session", str(session), "--executor", cluster.url]
    process = started(tmp_path / "m", *words)
    end = time.monotonic() + 120
    while len(finished(session)) < 5:
        assert time.monotonic() < end
        time.sleep(0.1)
    cluster.lose_the_scheduler()
    said = ""
    while "waiting for the scheduler at" not in said:
        assert time.monotonic() < end + 60, said
        said = str((progress.read(session) or {}).get("text"))
        time.sleep(0.1)
    assert "Dask's workers end with their scheduler" in said
    while not [
        e for e in read(session / NAME) if isinstance(e, NoteAdded) and "does not answer" in e.text
    ]:
        assert time.monotonic() < end + 60
        time.sleep(0.1)
    time.sleep(6.0)  # what is not a terminal gets a line of progress every five seconds
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(1.0)
    out, err = process.communicate(timeout=allow(60))
    assert process.returncode == 130, err
    assert "waiting for the scheduler at" in out
    assert "does not answer" in out


@pytest.mark.slow
def test_a_host_without_narrowdown_is_named(tmp_path: Path, cluster) -> None:
    bare = tmp_path / "bare" / "narrowdown"
    bare.mkdir(parents=True)
    (bare / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'narrowdown'\", name='narrowdown')"
    )
    cluster.add("bare", PYTHONPATH=str(bare.parent))
    cluster.ready()
    notes: list[str] = []

    async def ask() -> None:
        executor = Cluster(
            cluster.url, tmp_path / "s", session="s", telling=Telling(tell=notes.append)
        )
        try:
            await executor.start()
        finally:
            await executor.stop(hard=True)

    with pytest.raises(
        ExecutorLost,
        match="has no worker that can take part: narrowdown is not installed on tcp://127",
    ):
        asyncio.run(ask())
    cluster.add("whole")
    cluster.ready("whole")
    asyncio.run(ask())
    assert [
        note
        for note in notes
        if note.startswith("A host is left out: narrowdown is not installed on tcp://127")
    ]


def test_wires_to_other_machines_in_the_open_are_noticed() -> None:
    assert (
        first_unencrypted(
            ["tcp://127.0.0.1:8786", "tcp://127.0.1.1:1", "tcp://[::1]:4", "tcp://localhost:8786"]
        )
        == ""
    )
    assert first_unencrypted(["tls://gpu-7:8786", "wss://10.0.0.1:443"]) == ""
    assert (
        first_unencrypted(["tcp://127.0.0.1:8786", "tcp://10.0.0.7:4711"]) == "tcp://10.0.0.7:4711"
    )
    assert first_unencrypted(["ws://gpu-7:8786"]) == "ws://gpu-7:8786"
    assert first_unencrypted(["tcp://[2001:db8::1]:8786"]) == "tcp://[2001:db8::1]:8786"


def test_an_open_wire_is_said_once(tmp_path: Path) -> None:
    notes: list[str] = []
    executor = Cluster(
        "tcp://127.0.0.1:8786", tmp_path, session="s", telling=Telling(tell=notes.append)
    )
    executor._warn_of_open_wires(["tcp://127.0.0.1:9"])
    assert notes == []
    executor._warn_of_open_wires(["tcp://10.0.0.7:9"])
    executor._warn_of_open_wires(["tcp://10.0.0.7:9"])
    (said,) = notes
    assert "not encrypted" in said
    assert "on this machine" in said


@pytest.fixture
def certificates(tmp_path: Path) -> dict[str, str]:
    """Made as the page says, by its own script, and the environment that it says."""
    try:
        subprocess.run(["openssl", "version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the program openssl, to make certificates")
    script = Path(__file__).parents[3] / "docs" / "cluster-tls.sh"
    made = tmp_path / "certificates"
    subprocess.run(
        ["sh", str(script), str(made), "2"], check=True, capture_output=True, timeout=allow(120)
    )
    assert {oct(path.stat().st_mode & 0o777) for path in made.iterdir()} == {"0o600"}
    shown = subprocess.run(
        ["sh", "-c", f". '{made}/environment'; env"],
        check=True,
        capture_output=True,
        text=True,
        timeout=allow(20),
    )
    told = dict(
        line.split("=", 1) for line in shown.stdout.splitlines() if line.startswith("DASK_")
    )
    assert len(told) == 8
    return told


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_session_over_tls_by_the_recipe_is_the_same_as_here(
    tmp_path: Path, make_cluster: Callable[..., object], certificates: dict[str, str]
) -> None:
    cluster = make_cluster(scheme="tls", **certificates)
    cluster.add("a")
    cluster.ready()
    assert cluster.url.startswith("tls://")
    home = tmp_path / "m"
    home.mkdir()
    surroundings = {
        **os.environ, "NARROWDOWN_HOME": str(home / "sessions"), "XDG_STATE_HOME": str(home / "state"), "PYTHONSAFEPATH": "1",
    }  # fmt: skip

    def ran(*words: str, **more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [SCRIPT, *words],
            env={**surroundings, **more},
            cwd=home,
            capture_output=True,
            text=True,
            timeout=allow(400),
        )

    there = ran(
        *WORDS, "--session", str(tmp_path / "there"), "--executor", cluster.url, **certificates
    )
    assert there.returncode == 0, there.stderr
    assert not [
        e
        for e in read(tmp_path / "there" / NAME)
        if isinstance(e, NoteAdded) and "not encrypted" in e.text
    ]
    assert ran(*WORDS, "--session", str(tmp_path / "here"), "--jobs", "1").returncode == 0
    shown = [ran("show", str(tmp_path / name), "--canonical").stdout for name in ("there", "here")]
    assert shown[0] == shown[1]
    assert re.search(r"\bcase\b", shown[0])
    # Who has no certificate of the authority's is not let in, and neither is who speaks in the
    # open.
    plain = cluster.url.replace("tls://", "tcp://")
    for url in (cluster.url, plain):
        refused = ran(*WORDS, "--session", str(tmp_path / url[:3]), "--executor", url)
        assert refused.returncode == 4, refused.stderr
        assert "No cluster answers at" in refused.stderr


def test_the_recipe_is_a_script_that_the_shell_can_read() -> None:
    script = Path(__file__).parents[3] / "docs" / "cluster-tls.sh"
    assert subprocess.run(["sh", "-n", str(script)], check=False, timeout=allow(20)).returncode == 0
