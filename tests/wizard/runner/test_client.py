"""Clients: one controls, others watch; the runner outlives neither its controller nor its
usefulness."""

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from house import PROBLEM, Oracle, runner, state

from narrowdown.engines.probe import Measure
from narrowdown.engines.store import digest_file
from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.runner import client as client_module, control, progress
from narrowdown.wizard.runner.address import listening, shortened_path, socket_path
from narrowdown.wizard.runner.client import Client
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.runner.server import Server
from narrowdown.wizard.session import Held, SessionProblem, events as e, folder as folders
from narrowdown.wizard.session.journal import NAME, Journal, read
from narrowdown.wizard.session.lock import Lock
from narrowdown.wizard.session.single import single_flow

from ...patience import allow, wait_until


@contextlib.contextmanager
def at_work(place: Path, options: Options, oracle: Oracle | None = None) -> Iterator[list[int]]:
    """A runner with its server in a thread of this process; yields the list that its exit code will
    be in."""
    codes: list[int] = []

    async def go() -> None:
        made = runner(place, oracle or Oracle(), options)
        server = Server(socket_path(place), made.control.handle, made.control.controlled)
        await server.start()
        try:
            codes.append(await made.run())
        finally:
            await server.stop()

    def body() -> None:
        held = Lock.acquire(place, str(socket_path(place)))
        try:
            asyncio.run(go())
        finally:
            held.close()

    thread = threading.Thread(target=body)
    thread.start()
    try:
        yield codes
    finally:
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture
def place(tmp_path) -> Path:
    return folders.create(PROBLEM, load("accuracy").text, folder=tmp_path / "s")


def until(client: Client, phase: str, node: str = "", seconds: float = 10.0) -> None:
    begun = time.monotonic()
    while time.monotonic() - begun < allow(seconds):
        found = client.progress() or {}
        if found.get("phase") == phase and (not node or found["node"] == node):
            return
        time.sleep(0.01)
    raise AssertionError(f"never {phase} at {node}: {client.progress()}")


def attached(place: Path, role: str = "controller", name: str = "") -> Client:
    begun = time.monotonic()
    while time.monotonic() - begun < allow(10):
        client = Client.attach(place, role, name=name)
        if client.role == role and client._socket is not None:
            return client
        client.close()
        time.sleep(0.02)
    raise AssertionError("no runner came up")


def in_question(place: Path, name: str = "") -> Client:
    """The controller of a runner that asks its first question."""
    client = attached(place, name=name)
    until(client, "ask")
    return client


def stop(client: Client) -> None:
    client.send({"do": "stop", "hard": True})
    client.wait(10)
    client.close()


def test_one_controls_and_others_watch(place):
    with at_work(place, Options(policy="person")) as codes:
        first = attached(place, name="Ada")
        second = Client.attach(place, name="Bob")
        assert (second.role, second.holder) == ("watch", "Ada")
        until(first, "ask", "first")
        refused = second.send({"do": "answer", "answer": "yes"})
        assert not refused["ok"]
        assert "Ada" in refused["error"]
        assert second.send({"do": "note", "text": "seen"})["ok"]
        assert second.send({"do": "status"})["controller"] == "Ada"
        assert second.progress()["watching"]
        assert second.progress()["holder"] == "Ada"
        assert not first.progress()["watching"]
        assert not first.send({"do": "fly"})["ok"]
        assert not first.send({"do": "__init__"})["ok"]
        assert not first.send({"do": "rewind"})["ok"]
        assert first.send({"do": "answer", "answer": "no"})["ok"]
        assert first.wait(10) == 10
        assert codes == [10]
        kinds = [type(event) for event in second.poll()]
        assert kinds[-1] is e.SessionClosed
        assert e.NoteAdded in kinds
        assert second.poll() == ()
        assert "resume" in first.send({"do": "go"})["error"]
        first.close()
        second.close()


def test_a_session_that_another_machine_works_on_is_looked_at(place, monkeypatch):
    """A shared disk brings its lock here, and no socket: the screen waited for one 40 seconds and
    showed nothing."""
    monkeypatch.setattr(socket, "gethostname", lambda: "there")
    held = Lock.acquire(place, str(socket_path(place)))
    monkeypatch.undo()
    try:
        client = Client.open(place, Options())
        assert (client.role, client.holder) == ("watch", "a runner on there")
        assert client.alive()
        progress.write(
            place, progress.Snapshot(phase="step", pid=1, holder="narrowdown run", control=1)
        )
        found = client.progress()
        assert (found["watching"], found["holder"], found["free"]) == (
            True,
            "a runner on there",
            False,
        )
        for reply in (
            client.send({"do": "go"}),
            client.send({"do": "note", "text": "x"}),
            client.take_over(),
        ):
            assert reply == {"ok": False, "error": reply["error"]}
            assert (
                "A runner on there works on this session, and cannot be asked from here."
                in reply["error"]
            )
        client.close()
    finally:
        held.close()


ODD = [None, True, -1, 2**63, 1e308, "", "\x1b[31m", "x" * 70_000, [], [[]], {}, {"a": [None]}]
GARBAGE = [
    b"corrupted double-linked list", b"\xff\xfe\x00", b"{", b"null", b"[1]", b'{"do": "hello", "do": 1}', b"[" * 5000,
    b'{"do": "note", "text": ' + b"[" * 5000, b'{"do": "note", "text": "\\ud800"}', b'{"do": "note"}', b'{"do": "_reply"}',
    *(json.dumps({"do": value}).encode() for value in ODD),
    *(json.dumps({"do": "answer", key: value}).encode() for key in ("answer", "node", "visit") for value in ODD),
    *(json.dumps({"do": "answer", "answer": "no", "settings": v}).encode() for v in ODD if v and not isinstance(v, dict)),
    *(json.dumps({"do": do, key: v}).encode() for do in ("policy", "rewind", "note") for key in (do, "to", "node") for v in ODD),
]  # fmt: skip


def test_garbage_on_the_socket_hurts_nobody(place):
    """Every line is answered, be it from one who watches or from the controller; the session still
    takes its answer."""
    with at_work(place, Options(policy="person")) as codes:
        attached(place, "watch").close()
        with socket.socket(socket.AF_UNIX) as controller, socket.socket(socket.AF_UNIX) as watcher:
            for wire, role in ((controller, "controller"), (watcher, "watch")):
                wire.settimeout(10)
                with shortened_path(socket_path(place)) as name:
                    wire.connect(name)
                replies = wire.makefile("rb")
                for line in (json.dumps({"do": "hello", "role": role}).encode(), *GARBAGE):
                    wire.sendall(line + b"\n")
                    assert "ok" in json.loads(replies.readline())
            wire, replies = controller, controller.makefile("rb")
            wire.sendall(b'{"do": "answer", "answer": "no"}\n')
            assert json.loads(replies.readline()) == {"ok": True}
            assert replies.readline() == b""
    assert codes == [10]


def test_a_runner_ends_with_its_controller(place, monkeypatch):
    monkeypatch.setattr(control, "GRACE", 0.1)
    with at_work(place, Options(policy="person")) as codes:
        in_question(place).close()
    assert codes == [130]
    assert "controlled" in state(place).closed.reason


def test_a_detached_runner_goes_on_and_takes_the_next_controller(place, monkeypatch):
    monkeypatch.setattr(control, "GRACE", 0.1)
    with at_work(place, Options(policy="person")) as codes:
        client = in_question(place)
        assert client.send({"do": "detach"})["ok"]
        client.close()
        time.sleep(1.0)
        other = attached(place, name="later")
        assert other.send({"do": "policy", "policy": "recommended"})["ok"]
        assert other.wait(10) == 0
        other.close()
    assert codes == [0]


def test_a_question_with_nobody_there_ends_the_runner(place, monkeypatch):
    monkeypatch.setattr(control, "IDLE", 0.3)
    monkeypatch.setattr(control, "GRACE", 60.0)
    with at_work(place, Options(policy="person")) as codes:
        in_question(place).close()
    assert codes == [3]
    assert (state(place).here.question is not None, state(place).here.answer) == (True, "")


def test_a_question_ends_the_runner_where_nobody_ever_came(place, monkeypatch):
    """A terminal that was closed while its session started left the runner for ever: the question
    waited already when the runner saw that nobody comes."""
    monkeypatch.setattr(control, "IDLE", 0.3)
    monkeypatch.setattr(control, "CONNECT", 1.0)
    with at_work(place, Options(policy="person", detach=True)) as codes:
        pass
    assert codes == [3]
    assert (state(place).here.question is not None, state(place).here.answer) == (True, "")


def test_a_pause_with_nobody_there_ends_the_runner(place, monkeypatch):
    """A window that is closed on a paused session left its runner and workers for ever."""
    monkeypatch.setattr(control, "IDLE", 0.3)
    with at_work(place, Options(policy="person", detach=True, first=({"do": "pause"},))) as codes:
        attached(place).close()
    assert codes == [130]
    assert "paused" in state(place).closed.reason


def test_a_controller_that_never_comes_is_not_waited_for(place, monkeypatch):
    monkeypatch.setattr(control, "CONNECT", 0.2)
    oracle = Oracle()
    with at_work(place, Options(policy="person"), oracle) as codes:
        pass
    assert codes == [130]


# Plants folders and files under names that a runner might want, as another user, and holds them.
PLANTER = """
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for path in sys.argv[1:]:
    try:
        os.mkdir(path, 0o777)
    except OSError as error:
        sys.exit(f"{path}: {error}")
"""


@pytest.fixture
def everybodys():
    """A folder as /tmp is: anybody may make something in it."""
    with tempfile.TemporaryDirectory(prefix="nd-", dir="/tmp") as made:
        Path(made).chmod(0o1777)
        yield Path(made)


def planted(*paths):
    if os.getuid() != 0:
        pytest.skip("becoming another user takes root")
    subprocess.run(
        [sys.executable, "-I", "-c", PLANTER, *map(str, paths)], check=True, timeout=allow(30)
    )


@pytest.mark.parametrize("before", [True, False], ids=["planted", "not yet"])
def test_another_user_is_not_in_the_way(tmp_path, place, everybodys, monkeypatch, before):
    """Nor when what was planted comes only once the runner listens, or goes then."""
    name = everybodys / f"narrowdown-{os.getuid()}"
    for variable in ("XDG_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.setenv(variable, str(everybodys))
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "home"))
    if before:
        planted(name)
    with at_work(place, Options(policy="person")):
        if before:
            name.rmdir()
        else:
            planted(name)
        stop(attached(place))
    assert socket_path(place).is_relative_to(tmp_path / "home")


def test_where_sessions_are_everybodys_too_the_users_own_folder_serves(
    tmp_path, place, everybodys, monkeypatch
):
    for variable in ("XDG_RUNTIME_DIR", "TMPDIR", "NARROWDOWN_HOME"):
        monkeypatch.setenv(variable, str(everybodys))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    planted(everybodys / f"narrowdown-{os.getuid()}")
    assert socket_path(place).is_relative_to(tmp_path / "state")
    (tmp_path / "state" / "narrowdown").rename(tmp_path / "away")
    (tmp_path / "state" / "narrowdown").write_text("in the way")
    with pytest.raises(
        SessionProblem, match="Set XDG_RUNTIME_DIR to a folder that only you may write to"
    ):
        socket_path(place)


def test_a_runner_started_in_other_surroundings_is_found(tmp_path, place, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    there = socket_path(place)
    with at_work(place, Options(policy="person")):
        while not there.exists():
            time.sleep(0.01)
        monkeypatch.delenv("XDG_RUNTIME_DIR")
        assert not socket_path(place).is_relative_to(tmp_path / f"narrowdown-{os.getuid()}")
        stop(attached(place))


def test_a_session_does_not_say_where_to_connect(tmp_path, place, monkeypatch):
    """But for a folder of this user's alone and the name that belongs to the session."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    for said in (
        "/run/docker.sock",
        str(tmp_path / "other.sock"),
        "relative.sock",
        str(tmp_path / "open" / socket_path(place).name),
    ):
        held = Lock.acquire(place, said)
        assert listening(place) == socket_path(place)
        held.close()


def test_the_socket_is_private_and_its_path_may_be_long(tmp_path, place, monkeypatch):
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    path = socket_path(place)
    assert path.is_relative_to(deep)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path == socket_path(place)
    assert path != socket_path(tmp_path / "other")
    with at_work(place, Options(policy="person")):
        stop(attached(place))
    assert not path.exists()
    path.parent.chmod(0o777)
    assert not socket_path(place).is_relative_to(deep), (
        "a folder that others can write to is not used"
    )


def test_several_slots_share_out_the_gpus_of_one_kind(monkeypatch):
    from narrowdown.engines.workers import gpus
    from narrowdown.wizard.runner.executors import shared_out

    def gpu(name, kind="NVIDIA H200", capability="9.0"):
        return gpus.Gpu(name, kind, capability)

    said = []
    monkeypatch.setattr(
        gpus, "list_gpus", lambda: (gpu("GPU-a"), gpu("GPU-b", "NVIDIA T4", "7.5"), gpu("GPU-c"))
    )
    assert shared_out(4, said.append) == ("GPU-a", "GPU-c")
    assert said == [
        "Not used here: NVIDIA T4. Verdicts of another kind of GPU than NVIDIA H200 would not be comparable."
    ]
    assert shared_out(1, said.append) == ()
    monkeypatch.setattr(gpus, "list_gpus", lambda: (gpu("GPU-a"),))
    assert shared_out(4, said.append) == ()
    monkeypatch.setattr(gpus, "list_gpus", lambda: ())
    assert shared_out(4, said.append) == ()
    assert len(said) == 1


def test_the_socket_file_is_0600(place):
    with at_work(place, Options(policy="person")):
        client = attached(place)
        assert stat.S_IMODE(socket_path(place).stat().st_mode) == 0o600
        stop(client)
    assert not socket_path(place).exists()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (errno.EACCES, "There is no permission to write into the"),
        (errno.EROFS, "read-only that holds the"),
    ],
)
def test_what_cannot_be_written_to_says_why_and_that_a_copy_can_be_resumed(
    place, monkeypatch, error, said
):
    def closed(*_):
        raise OSError(error, os.strerror(error), str(place))

    monkeypatch.setattr(client_module.processes, "start", closed)
    with pytest.raises(
        SessionProblem, match=f"{said} session '{place}'. Copy its folder to where you may write"
    ):
        Client.start(place)


def test_nothing_starts_on_a_held_session(place):
    held = Lock.acquire(place)
    try:
        with pytest.raises(Held):
            Client.start(place)
    finally:
        held.close()


def test_where_a_runner_could_write_nothing_the_disk_is_named_and_not_what_one_before_said(
    place, monkeypatch
):
    """A resume on a full disk ended with 4 and "A person is needed", which the runner before had
    closed the session with."""
    progress.write(place, progress.Snapshot(phase="stopped", text="A person is needed.", pid=1))
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place))
    monkeypatch.setattr("narrowdown.engines.faults.find_full_disk", lambda *_: full)
    client = Client(place)
    client._process = SimpleNamespace(pid=2, poll=lambda: 4)
    assert "is full" in client.progress()["text"]
    client._process = SimpleNamespace(pid=1, poll=lambda: 4)
    assert client.progress()["text"] == "A person is needed."


# -- the real thing -----------------------------------------------------------------------------------------------------


@pytest.fixture
def shapes(tmp_path) -> Path:
    model, inputs = (MODELS / "shapes_cnn.onnx").resolve(), (MODELS / "shapes_cnn_in.npz").resolve()
    problem = Problem(
        model=str(model),
        inputs=(str(inputs),),
        tolerance={"": 1e-3},
        digests={str(p): digest_file(p) for p in (model, inputs)},
    )
    return folders.create(problem, single_flow("compare"), folder=tmp_path / "shapes")


def test_a_process_of_its_own_walks_a_real_model(shapes, tmp_path):
    """Started in a folder that holds packages of the user's by our names."""
    for name in ("engines", "wizard", "narrowdown"):
        (shapes / name).mkdir()
        (shapes / name / "__init__.py").write_text("raise RuntimeError('the wrong package')")
    client = Client.start(shapes)
    assert client.alive()
    assert client.wait(120) == 0
    kinds = [str(event.__struct_config__.tag) for event in client.poll()]
    assert kinds[0] == "session.opened"
    assert kinds[-1] == "session.closed"
    assert client.flow.id == "step-compare"
    assert folders.load(shapes).route[0].outcome["verdict"] == "fails"
    assert not client.alive()
    client.close()


def test_kill_9_of_the_runner_leaves_nobody_and_resume_measures_nothing_twice(shapes):
    client = Client.start(shapes, Options(detach=True))
    pid = client._process.pid
    while not any(isinstance(event, e.ProbeFinished) for event in client.poll()):
        assert client.alive()
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    assert client.wait(10) is None
    # Workers die with their runner.
    pgrep = ["pgrep", "-f", str(shapes)]
    wait_until(lambda: not subprocess.run(pgrep, capture_output=True, check=False).stdout, 5)
    assert (
        "ended" in client.send({"do": "stop"})["error"]
        or "No runner" in client.send({"do": "stop"})["error"]
    )
    client.close()
    again = Client.start(shapes)
    assert again.wait(120) == 0
    again.close()
    keys = [event.key for event in read(shapes / NAME) if isinstance(event, e.ProbeFinished)]
    assert len(keys) == len(set(keys))
    opened = [event for event in read(shapes / NAME) if isinstance(event, e.SessionOpened)]
    assert [event.resumed for event in opened] == [False, True]


def test_the_runner_ends_when_the_program_that_started_it_is_killed(shapes):
    code = (
        "import sys, time; from pathlib import Path; from narrowdown.wizard.runner.client import Client\n"
        "from narrowdown.wizard.runner.requests import Options\n"
        "c = Client.start(Path(sys.argv[1]), Options(policy='person', offers=True))\n"
        "print(c._process.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(shapes)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    assert parent.stdout.readline()
    watcher = Client(shapes)
    until(watcher, "offer")
    parent.kill()
    parent.wait()
    wait_until(lambda: not watcher.alive())
    assert folders.load(shapes).closed.exit_code == 130


def test_a_runner_that_takes_long_to_listen_is_greeted_all_the_same(shapes, monkeypatch):
    """On a machine with other work it took more than 20 seconds; nobody came then, and the session
    stopped as if we had gone."""
    monkeypatch.setattr(client_module, "START", 0.0)
    client = Client.start(shapes, Options(policy="person", offers=True))
    wait_until(lambda: client._socket is not None, 20)
    client.close()
    assert client.wait(allow(20)) == 130


def test_a_flow_that_is_gone_starts_no_runner(shapes):
    (shapes / "flow.yaml").unlink()
    with pytest.raises(SessionProblem, match=r"flow\.yaml is damaged or gone"):
        Client.start(shapes)


def test_one_who_only_watches_never_takes_over(place, monkeypatch):
    monkeypatch.setattr(control, "GRACE", 0.1)
    with at_work(place, Options(policy="person", detach=True)) as codes:
        first = in_question(place, "Ada")
        watcher, second = attached(place, "watch", name="Eve"), Client.attach(place, name="Bob")
        assert watcher.progress()["watching"]
        first.close()
        wait_until(lambda: second.progress()["free"], 5)  # the one who held it has gone
        for asked in (
            {"do": "answer", "answer": "no"},
            {"do": "stop"},
            {"do": "rewind", "to": "first"},
        ):
            assert not watcher.send(asked)["ok"]
        watcher._disconnect()  # as after a broken connection: it comes back as what it was
        assert not watcher.send({"do": "stop"})["ok"]
        assert watcher.role == "watch"
        assert watcher.progress()["watching"], "still, though nobody holds it"
        assert second.send({"do": "answer", "answer": "no"})["ok"], (
            "who asked for control has it now"
        )
        assert second.role == "controller"
        assert not second.progress()["free"]
        assert second.wait(10) == 10
        for client in (watcher, second):
            client.close()
    assert codes == [10]


def test_a_runner_that_is_ending_is_waited_for(place, monkeypatch):
    """A resume in the second after its predecessor was killed does not die with the old runner."""
    monkeypatch.setattr(control, "GRACE", 0.3)
    oracle = Oracle()
    oracle.hold = asyncio.Event()  # never set: a probe that takes long
    with at_work(place, Options(), oracle) as codes:
        client = attached(place, name="Ada")
        wait_until(lambda: any(isinstance(probe, Measure) for probe in oracle.ran))
        assert client.send({"do": "stop"})["ok"]
        client.close()
        started: list[bool] = []
        monkeypatch.setattr(
            Client, "start", classmethod(lambda cls, *a, **k: started.append(codes != []) or client)
        )
        Client.open(place)
        assert started
    assert codes == [130]


def test_a_runner_whose_session_is_closed_is_waited_for_and_followed(place, monkeypatch):
    """A script that resumes at once is not told again what the first runner, on its way out,
    said."""
    leave = threading.Event()

    class Lingering(Oracle):
        async def stop(self, hard: bool = False) -> None:
            await super().stop(hard)
            until = time.monotonic() + allow(10)
            while not leave.is_set() and time.monotonic() < until:
                await asyncio.sleep(0.01)

    with at_work(place, Options(), Lingering()) as codes:
        client = attached(place)
        wait_until(lambda: any(isinstance(event, e.SessionClosed) for event in client.poll()))
        threading.Timer(0.2, leave.set).start()
        started: list[bool] = []
        monkeypatch.setattr(
            Client, "start", classmethod(lambda cls, *a, **k: started.append(codes != []) or client)
        )
        Client.open(place)
        assert started
        client.close()
    assert codes


def test_what_a_killed_runner_offered_is_no_offer_of_the_next(place, monkeypatch):
    """Seen by real keys: Enter on the old offer was lost, as the new runner did not offer anything
    yet."""
    progress.write(place, progress.Snapshot(phase="offer", node="first", pid=4_000_000))
    monkeypatch.setattr(Client, "_greet", lambda self: None)
    monkeypatch.setattr(subprocess, "Popen", beginning := Beginning())
    client = Client.start(place)
    assert client.progress() is None
    progress.write(place, progress.Snapshot(phase="offer", node="first", pid=beginning.pid))
    assert client.progress()["phase"] == "offer"
    beginning.code = 0
    progress.write(place, progress.Snapshot(phase="stopped", pid=4_000_000))
    assert client.progress()["phase"] == "stopped", "of another, once ours has ended"


class Beginning:
    """A process that has started, and nothing else."""

    pid, code = 4_000_001, None

    def __call__(self, *_: object, **__: object) -> "Beginning":
        return self

    def poll(self) -> int | None:
        return self.code


def test_taking_over_relieves_the_other_which_can_take_it_back(place):
    with at_work(place, Options(policy="person")) as codes:
        first, second = (
            attached(place, name="Ada"),
            Client.attach(place, name="Ada"),
        )  # names tell nobody apart
        until(first, "ask")
        for mine, other in ((second, first), (first, second), (second, first)):
            assert mine.progress()["watching"]
            assert mine.take_over() == {"ok": True}
            assert not mine.progress()["watching"]
            told = other.progress()
            assert (told["watching"], told["taken"], other.role) == (True, True, "watch")
            assert not other.send({"do": "answer", "answer": "no"})["ok"], (
                "what it sends changes nothing"
            )
        assert second.take_over() == {"ok": True}, "twice is fine"
        assert second.send({"do": "answer", "answer": "no"})["ok"]
        assert second.wait(10) == 10
        for client in (first, second):
            client.close()
    assert codes == [10]
    assert [
        event.answer for event in read(place / NAME) if isinstance(event, e.QuestionAnswered)
    ] == ["no"]


@pytest.mark.parametrize("detach", [False, True])
def test_control_goes_back_where_whoever_took_it_has_gone(place, monkeypatch, detach):
    monkeypatch.setattr(
        control, "GRACE", 0.0
    )  # a runner that thought itself abandoned would end at once
    with at_work(place, Options(policy="person", detach=detach)) as codes:
        first, second, third = (
            attached(place, name="Ada"),
            Client.attach(place),
            Client.attach(place),
        )
        until(first, "ask")
        assert second.take_over()["ok"]
        assert third.take_over()["ok"]
        second._disconnect()  # as by a kill: it has nothing to give back any more
        third._disconnect()
        wait_until(lambda: not first.progress()["watching"])
        told = first.progress()
        assert (first.role, told["watching"], told["taken"], told["free"]) == (
            "controller",
            False,
            False,
            False,
        )
        assert first.send({"do": "answer", "answer": "no"})["ok"]
        assert first.wait(10) == 10
        first.close()
    assert codes == [10]


@pytest.mark.slow
def test_a_runner_that_does_not_answer_is_not_taken_over(shapes, monkeypatch):
    """Real processes: it hangs while control is asked for, then goes on: whoever had control has it
    still."""
    first = Client.start(shapes, Options(policy="person", detach=True))
    until(first, "ask", seconds=120)
    (opened, *_), pid = first.poll(), first.progress()["pid"]
    second = Client.attach(shapes)
    try:
        os.kill(pid, signal.SIGSTOP)
        monkeypatch.setattr("narrowdown.wizard.runner.client._SOON", 0.2)
        refused = second.take_over()
        assert not refused["ok"]
        assert f"kill {pid}" in refused["error"]
        os.kill(pid, signal.SIGCONT)
        monkeypatch.undo()
        assert first.send({"do": "status"})[
            "ok"
        ]  # the wish of the one that gave up has been read by then
        assert first.send({"do": "note", "text": "mine"})["ok"]
        wait_until(lambda: not first.progress()["watching"])
        assert second.take_over()["ok"]
        os.kill(pid, signal.SIGKILL)  # in the middle: nobody holds it, and nothing is lost
        for client in (first, second):
            client.wait(10)
            assert not client.alive()
            assert not client.take_over()["ok"]
    finally:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        for client in (first, second):
            client.close()
    assert isinstance(opened, e.SessionOpened)
    events = read(shapes / NAME)
    assert [event.seq for event in events] == list(range(1, len(events) + 1)), "one writer"
    assert [type(event) for event in events].count(e.SessionOpened) == 1


@pytest.mark.parametrize(
    "ask", [Client.take_over, lambda client: client.send({"do": "stop"})], ids=["take over", "send"]
)
@pytest.mark.parametrize("greeted", [False, True])
def test_a_runner_that_does_not_answer_is_there_all_the_same(place, monkeypatch, ask, greeted):
    """Its socket takes what is sent, as the system does for a process that hangs or was stopped."""
    monkeypatch.setattr(client_module, "_REPLY", 0.05)
    monkeypatch.setattr(client_module, "_SOON", 0.05)
    path = socket_path(place)
    held = Lock.acquire(place, str(path))
    try:
        with socket.socket(socket.AF_UNIX) as deaf, shortened_path(path) as name:
            deaf.bind(name)
            deaf.listen()
            client = Client(place)
            if greeted:
                with monkeypatch.context() as before:
                    before.setattr(client, "_hello", lambda _: None)
                    client._connect_locked("controller", 1.0, 0.05)
                client.role = "controller"
            said = ask(client)
            assert not said["ok"]
            assert f"own process ({os.getpid()}) has not answered" in said["error"]
            assert f"'kill {os.getpid()}'" in said["error"]
            assert client._socket is None, (
                "what it answers later belongs to nothing that is asked then"
            )
    finally:
        path.unlink(missing_ok=True)
        held.close()


def test_what_was_closed_before_ours_took_it_up_is_from_before(place, monkeypatch):
    """A runner that is left alone closes the session while the next one starts: which of the two it
    was the journal tells."""
    monkeypatch.setattr("narrowdown.wizard.session.lock.holder", lambda _: None)
    written = Journal(place / NAME)
    client = Client(place)
    client._process = ours = SimpleNamespace(pid=4_000_000, poll=lambda: None)
    written.append(e.SessionOpened(id="a", pid=3_999_999))
    closed = written.append(e.SessionClosed(exit_code=130))
    client.poll()
    assert client.earlier >= closed.seq, "ours is only beginning"
    opened = written.append(e.SessionOpened(id="a", pid=ours.pid, resumed=True))
    client.poll()
    assert client.earlier == opened.seq
    ended = written.append(e.SessionClosed(exit_code=130))
    client.poll()
    assert client.earlier < ended.seq
    never = Client(place)
    never._process = SimpleNamespace(pid=4_000_001, poll=lambda: 4)
    never.poll()
    assert never.earlier == 0, "ours has ended, and what the journal says last holds"
    written.close()
