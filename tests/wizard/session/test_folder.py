"""Session folders: made quickly, found by any name, listed even when one is damaged; one runner at
a time."""

import errno
import importlib.metadata
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from narrowdown.engines.probe import Measurement
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.runner import progress
from narrowdown.wizard.session import (
    AmbiguousSession,
    DamagedJournal,
    Held,
    NewerSession,
    NoSuchSession,
    OtherProblem,
    SessionProblem,
    events as e,
    folder,
    lock,
)
from narrowdown.wizard.session.journal import NAME, Journal, read
from narrowdown.wizard.session.state import fold

PROBLEM = Problem(
    model="/models/m.onnx", tolerance={"": 1e-3}, digests={"/models/m.onnx": "0" * 64}
)
FLOW = load("accuracy").text


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "sessions"))
    return tmp_path / "sessions"


def walked(path: Path, *events: e.AnyEvent) -> None:
    journal = Journal(path / NAME)
    for event in events:
        journal.append(event)
    journal.close()


OPENED = e.SessionOpened(id="x")
STARTED = e.StepStarted(run=1, node="reproduce", visit=1, step="compare", step_version=1)
FINISHED = e.StepFinished(run=1, node="reproduce", outcome={"message": "off by 0.5"})


def test_home(monkeypatch, tmp_path):
    monkeypatch.delenv("NARROWDOWN_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert folder.home() == tmp_path / "narrowdown" / "sessions"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert folder.home() == Path.home() / ".local/state/narrowdown/sessions"
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "h"))
    assert folder.home() == tmp_path / "h"


def test_creating_is_quick_and_whole(home):
    began = time.process_time()
    made = folder.create(PROBLEM, FLOW)
    assert time.process_time() - began < 0.5
    about = folder.describe(made)
    assert made == home / about.id
    assert about.problem == PROBLEM
    assert about.versions["narrowdown"]
    assert (made / "flow.yaml").read_text() == FLOW
    assert folder.load(made).here is None
    assert json.loads((made / "session.json").read_text())["format"] == 1


def test_a_chosen_folder_is_reused_for_the_same_problem_only(tmp_path):
    place = tmp_path / "mine"
    assert not folder.reuse(place, PROBLEM, FLOW)
    folder.create(PROBLEM, FLOW, folder=place)
    assert folder.reuse(place, PROBLEM, FLOW)
    with pytest.raises(OtherProblem, match="tolerance differs"):
        folder.reuse(place, msgspec.structs.replace(PROBLEM, tolerance={"": 1e-2}), FLOW)
    with pytest.raises(OtherProblem, match="a file's content differs"):
        folder.reuse(place, msgspec.structs.replace(PROBLEM, digests={}), FLOW)
    with pytest.raises(OtherProblem, match="version of the flow"):
        folder.reuse(place, PROBLEM, FLOW + "\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(OtherProblem, match="not empty"):
        folder.create(PROBLEM, FLOW, folder=tmp_path / "full")


def test_what_is_no_session_is_said(home: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for place in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(NoSuchSession, match=r"it is no folder with a session\.json"):
            folder.find(str(place))


def test_finding_by_path_id_and_prefix(home):
    first, second = folder.create(PROBLEM, FLOW), folder.create(PROBLEM, FLOW)
    shutil.move(first, home / "aaab")
    shutil.move(second, home / "aabc")
    assert (
        folder.find("aaab")
        == folder.find("aaa")
        == folder.find(str(home / "aaab"))
        == home / "aaab"
    )
    with pytest.raises(AmbiguousSession, match="aaab, aabc"):
        folder.find("aa")
    with pytest.raises(NoSuchSession, match="no session 'zz'"):
        folder.find("zz")
    with pytest.raises(NoSuchSession):
        folder.find("")


def test_the_list_bears_every_kind_of_damage(home):
    assert folder.list_sessions() == []
    good, torn, bad, alien, newer = (folder.create(PROBLEM, FLOW) for _ in range(5))
    walked(good, OPENED, STARTED, e.ProbeFinished(key="k", run=1, measurement=Measurement()), FINISHED,
           e.SessionClosed(end="not-reproduced", exit_code=10))  # fmt: skip
    walked(torn, OPENED, STARTED, FINISHED)
    with (torn / NAME).open("ab") as file:
        file.write(b'{"v":1')
    walked(bad, OPENED, STARTED, FINISHED)
    data = bytearray((bad / NAME).read_bytes())
    data[30] ^= 1
    (bad / NAME).write_bytes(data)
    (alien / "session.json").write_text("no json")
    (newer / "session.json").write_text('{"format": 2}')
    by_path = {s.path: s for s in folder.list_sessions()}
    assert len(by_path) == 5
    assert (by_path[good].verdict, by_path[good].exit_code, by_path[good].node) == (
        "not-reproduced",
        10,
        "reproduce",
    )
    assert (by_path[torn].verdict, by_path[torn].exit_code) == ("off by 0.5", None)
    assert by_path[bad].model == PROBLEM.model
    assert "damaged" in by_path[alien].problem
    assert "newer" in by_path[newer].problem
    with pytest.raises(DamagedJournal, match="line 1"):
        folder.load(bad)
    with pytest.raises(NewerSession):
        folder.describe(newer)
    with pytest.raises(SessionProblem):
        folder.describe(alien)


def test_repair_works_on_a_copy(home):
    made = folder.create(PROBLEM, FLOW)
    walked(made, OPENED, STARTED, e.ProbeFinished(key="k", run=1, measurement=Measurement()), FINISHED,
           e.ProbeFinished(key="l", run=1, measurement=Measurement()))  # fmt: skip
    data = bytearray((made / NAME).read_bytes())
    data[data.index(b"off by")] ^= 1
    (made / NAME).write_bytes(data)
    copy, said = folder.repair(made)
    assert said == (NAME,)
    assert (made / NAME).read_bytes() == bytes(data)
    assert set(folder.load(copy).known) == {"k", "l"}
    assert folder.load(copy).here.status == "running"
    assert (copy / "journal.lost").read_bytes().count(b"\n") == 1
    assert folder.find(str(copy)) == copy
    assert len(read(copy / NAME)) == 4


@pytest.mark.parametrize("why", [errno.EACCES, errno.EROFS, errno.ENOENT])
def test_where_no_session_can_be_made_another_folder_is_named(home, monkeypatch, why):
    """It said to check a path that nobody had typed, and not that one session can lie elsewhere."""

    def refuse(*_):
        raise OSError(why, os.strerror(why), str(home / "abcde"))

    monkeypatch.setattr(folder, "_fill", refuse)
    with pytest.raises(
        SessionProblem,
        match=r"^No session can be made in '.*sessions': .*\. Name a folder .* --session DIR",
    ):
        folder.create(PROBLEM, FLOW)
    with pytest.raises(
        OSError, match=os.strerror(why)
    ):  # this one was typed, and is named as it is
        folder.create(PROBLEM, FLOW, folder=home / "typed")


def test_a_repaired_copy_follows_no_link_that_a_checker_was_given(home, tmp_path):
    """All that a stranger's link in ``checks`` names was copied, be it the whole disk; a circle of
    links ended the repair."""
    made = folder.create(PROBLEM, FLOW)
    walked(made, OPENED)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "id_rsa").write_text("private")
    (made / "checks").mkdir()
    (made / "checks" / "out").symlink_to(tmp_path / "mine")
    (made / "checks" / "circle").symlink_to(made / "checks" / "circle")
    copy, _ = folder.repair(made)
    assert not (copy / "checks").exists()
    assert len(read(copy / NAME)) == 1


def test_one_holder_at_a_time(tmp_path):
    assert lock.holder(tmp_path) is None
    held = lock.Lock.acquire(tmp_path, "/run/x.sock")
    who = lock.holder(tmp_path)
    assert who is not None
    assert (who.pid, who.socket) == (os.getpid(), "/run/x.sock")
    with pytest.raises(Held, match="open in another window"):
        lock.Lock.acquire(tmp_path, patience=0.05)
    held.close()
    held.close()
    assert lock.holder(tmp_path) is None
    lock.Lock.acquire(tmp_path).close()


def test_a_killed_holder_holds_nothing(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from narrowdown.wizard.session.lock import Lock\n"
        "held = Lock.acquire(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        who = lock.holder(tmp_path)
        assert who is not None
        assert who.pid == process.pid
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / "lock").read_bytes(), "the note is still there"
    assert lock.holder(tmp_path) is None


def test_clients_load_no_engine():
    code = (
        "import sys, narrowdown.wizard.session.folder, narrowdown.wizard.runner.client, narrowdown.wizard.runner.process, narrowdown.wizard.runner.replay\n"  # noqa: E501
        "import narrowdown.engines.steps.registry\n"
        "print([m for m in ('numpy', 'onnx', 'onnxruntime', 'openvino', 'tensorrt', 'textual') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("made", range(9))
def test_a_creation_that_was_killed_is_begun_again(tmp_path, monkeypatch, made):
    """However far it got: ``--session DIR`` must not stand before its own ruins."""

    class Killed(BaseException):
        pass

    count = iter(range(100))

    def dying(real):
        def call(*args, **rest):
            if next(count) == made:
                raise Killed
            return real(*args, **rest)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", dying(Path.mkdir))
        patched.setattr(Path, "replace", dying(Path.replace))
        with pytest.raises(Killed):
            folder.create(PROBLEM, "flow", folder=tmp_path / "s")
    assert not (tmp_path / "s" / folder.DESCRIPTION).exists()
    assert folder.describe(folder.create(PROBLEM, "flow", folder=tmp_path / "s")).problem == PROBLEM


def test_a_users_own_files_are_no_ruins(tmp_path):
    (tmp_path / folder.FLOW).write_text("mine")
    with pytest.raises(OtherProblem):
        folder.create(PROBLEM, "flow", folder=tmp_path)
    assert (tmp_path / folder.FLOW).read_text() == "mine"


def test_a_lock_that_a_reboot_left_holds_nothing(tmp_path):
    """The note names a process that runs again, on this host: another one, with the same number."""
    made = folder.create(PROBLEM, "flow", folder=tmp_path / "s")
    left = lock.Holder(os.getpid(), socket.gethostname(), "/tmp/gone.sock", 1.0)
    (made / lock.NAME).write_bytes(msgspec.json.encode(left))
    assert lock.holder(made) is None
    assert folder.summary(made).holder == ""
    held = lock.Lock.acquire(made)
    held.close()


def test_a_clock_that_jumps_back_changes_no_order(tmp_path):
    times = iter([2e9, 1e9, 5.0, 1.5e9])
    book = Journal(tmp_path / NAME, clock=lambda: next(times))
    for text in ("a", "b", "c"):
        book.append(e.NoteAdded(text=text))
    book.close()
    events = read(tmp_path / NAME)
    assert [(event.seq, event.text) for event in events] == [(1, "a"), (2, "b"), (3, "c")]
    assert [note.text for note in fold(events).notes] == ["a", "b", "c"]
    assert Journal(tmp_path / NAME, clock=lambda: 1.0).append(e.NoteAdded(text="d")).seq == 4


def test_what_is_nested_too_deeply_is_one_sentence(home):
    """A stranger's file: 20,000 objects in one another are no error of ours."""
    path = folder.create(PROBLEM, FLOW)
    nested = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
    (path / progress.NAME).write_bytes(nested)
    assert progress.read(path) is None
    (path / folder.DESCRIPTION).write_bytes(nested)
    with pytest.raises(SessionProblem, match=r"session\.json is damaged: it is nested too deeply"):
        folder.describe(path)


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/x", "", "a b", "\x1b[31mred", "x\n", "x" * 65, "é"]
)
def test_an_id_that_is_a_path_or_acts_on_a_terminal_is_none(tmp_path, name: str) -> None:
    """It names a folder on each host of a cluster, and stands on the screen; who wrote the session
    wrote its checksum, too."""
    path = folder.create(PROBLEM, FLOW, folder=tmp_path / "s") / folder.DESCRIPTION
    head = {**json.loads(path.read_bytes()), "id": name}
    del head["crc"]
    path.write_text(json.dumps({**head, "crc": folder.checksum(head)}), encoding="utf-8")
    with pytest.raises(SessionProblem, match=r"its id .* is none that narrowdown gives") as refused:
        folder.describe(path.parent)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("role", ["engine", "reference"])
def test_a_session_of_no_engine_is_damaged(tmp_path, role: str) -> None:
    """``replay`` and a rewind of it ended with 70."""
    path = folder.create(PROBLEM, FLOW, folder=tmp_path / "s") / folder.DESCRIPTION
    head = json.loads(path.read_bytes())
    del head["crc"]
    head["problem"][role] = "\x1b]0;x"
    path.write_text(json.dumps({**head, "crc": folder.checksum(head)}), encoding="utf-8")
    with pytest.raises(SessionProblem, match=r"its engine .* is none") as refused:
        folder.describe(path.parent)
    assert str(refused.value).isprintable()


def test_versions_are_those_of_the_packages():
    found = folder.versions()
    assert {"narrowdown", "onnx", "numpy", "onnxruntime"} <= found.keys()
    assert found == {name: importlib.metadata.version(name) for name in found}
