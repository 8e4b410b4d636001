"""What is condensed of a long journal: the same state as without it, whatever became of the
journal, the cache or the disk."""

import contextlib
import functools
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from narrowdown.engines.probe import (
    Candidate,
    Check,
    Describe,
    Import,
    Inspect,
    Measure,
    Measurement,
)
from narrowdown.engines.store.content import write_own
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.report import portable
from narrowdown.wizard.session import condensed, folder, journal, removal
from narrowdown.wizard.session import events as e
from narrowdown.wizard.session.journal import NAME, Journal, Tail, encode, rewritten, verify
from narrowdown.wizard.session.problems import DamagedJournal, SessionProblem
from narrowdown.wizard.session.state import State, advance

MEASURE = Measure(
    model="m",
    candidate=Candidate("0-3"),
    engine="onnxruntime",
    reference="reference",
    inputs="i",
    samples=("0",),
)
PROBES = (
    Inspect(engine="x"),
    Describe(model="m"),
    Import(path="/m.onnx", digest="d"),
    MEASURE,
    Check(model="m", candidate=Candidate("0"), command="c"),
    None,
)
KEYS = ("k1", "k2", "k3", "k4")


def _answers() -> st.SearchStrategy[Measurement | None]:
    facts = st.sampled_from(
        [{}, {"nodes": 7}, {"fingerprint": "f2", "version": "1.2"}, {"started": False}]
    )
    return st.none() | st.builds(
        Measurement,
        status=st.sampled_from(["ok", "crash", "refused"]),
        facts=facts,
        build_seconds=st.sampled_from([0.0, 1.5, 3.25]),
    )


def _events() -> st.SearchStrategy[e.AnyEvent]:
    key, run = st.sampled_from(KEYS), st.integers(0, 3)
    blob = st.sampled_from(["", "b" * 64])
    started = st.builds(
        e.ProbeStarted,
        key=key,
        run=run,
        probe=st.sampled_from(PROBES),
        blob=blob,
        speculative=st.booleans(),
    )
    seconds = st.sampled_from([0.0, 0.5, 9.75])
    finished = st.builds(
        e.ProbeFinished, key=key, run=run, measurement=_answers(), blob=blob, seconds=seconds
    )
    others: list[e.AnyEvent] = [
        e.SessionOpened(id="s"), e.SessionOpened(id="s", resumed=True), e.SessionOpened(id="s", retry_unresolved=True),
        e.StepStarted(run=1, node="a", visit=1, step="none-such", step_version=1, fingerprints={"x": "1"}),
        e.StepFinished(run=1, node="a", outcome={"verdict": "fails"}),
        e.StepFinished(run=1, node="a", status="refused", error="why"),
        e.StepStarted(run=2, node="b", visit=1, step="none-such", step_version=1, engine="x", engine_info={"version": "3"}),
        e.StepCancelled(run=2, node="b"), e.NoteAdded(text="n"), e.WorkerDied(worker=1, key="k1"),
        e.QuestionAsked(node="a", visit=1, ask="?", answers=(e.Offered("yes", "Yes", "b"),)),
        e.QuestionAnswered(node="a", visit=1, answer="yes", by="person"), e.Rewound(to=2), e.SessionClosed(end="over"),
    ]  # fmt: skip
    return started | finished | started | finished | st.sampled_from(others)


def lines(events: list[e.AnyEvent]) -> bytes:
    numbered = (
        msgspec.structs.replace(event, seq=n, ts=1000.0 + n) for n, event in enumerate(events, 1)
    )
    return b"".join(map(encode, numbered))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a session's journal is to be. Everything is worth keeping here."""
    folder = tmp_path_factory.mktemp("session")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(condensed, "WORTH", 1)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield folder / NAME


def kept_file(path: Path) -> Path:
    return condensed.cache_file(path.absolute(), "journal", "bin")


def forget(path: Path) -> None:
    """As a process is that never read this journal, on a machine where nobody has."""
    condensed._latest.clear()
    kept_file(path).unlink(missing_ok=True)


def another_process() -> None:
    condensed._latest.clear()


def told(path: Path) -> Any:
    """The state, or what is said instead, as data: the probes and their answers among it."""
    try:
        state = folder.load(path.parent)
    except (SessionProblem, ValueError) as error:
        return type(error).__name__, str(error)
    return plain(state)


def plain(state: State) -> Any:
    asked = [
        (k, a.kind, a.blob, a.run, a.seq, a.speculative, a.probe) for k, a in state.asked.items()
    ]
    known = [
        (k, n.resolved, n.blob, n.run, n.seq, n.seconds, n.measurement)
        for k, n in state.known.items()
    ]
    return msgspec.structs.replace(state, asked={}, known={}), asked, known  # type: ignore[arg-type]


def read_count(path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many lines are decoded to read it."""
    seen: list[bytes] = []
    real = journal.decode
    with monkeypatch.context() as patch:
        patch.setattr(
            journal,
            "decode",
            lambda line, *more, **rest: seen.append(line) or real(line, *more, **rest),
        )
        told(path)
    return len(seen)


@given(st.lists(_events(), max_size=24))
@settings(max_examples=150)
def test_probes_in_a_row_are_what_they_are_one_by_one(
    place: Path, events: list[e.AnyEvent]
) -> None:
    forget(place)
    place.write_bytes(lines(events))
    one_by_one = functools.reduce(advance, journal.read(place), State())
    assert told(place) == plain(one_by_one)
    another_process()
    assert told(place) == plain(one_by_one)


@given(st.lists(_events(), max_size=24), st.integers(0, 24))
@settings(max_examples=150)
def test_the_state_is_the_same_with_it(place: Path, events: list[e.AnyEvent], first: int) -> None:
    forget(place)
    place.write_bytes(lines(events))
    without = told(place)
    forget(place)
    place.write_bytes(lines(events)[: len(lines(events[:first]))])
    told(place)  # condenses the beginning
    place.write_bytes(lines(events))
    assert told(place) == without, "in the process that has made it"
    another_process()
    assert told(place) == without
    another_process()
    assert told(place) == without, "once all of it is condensed"


@given(st.lists(_events(), min_size=1, max_size=16), st.data())
@settings(max_examples=150)
def test_a_journal_that_was_cut_or_changed_since_says_the_same_with_it(
    place: Path, events: list[e.AnyEvent], data: st.DataObject
) -> None:
    whole = lines(events)
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = data.draw(
        st.sampled_from(
            [
                whole[:at],
                whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :],
            ]
        )
    )
    forget(place)
    place.write_bytes(damaged)
    without = told(place)
    forget(place)
    place.write_bytes(whole)
    told(place)
    place.write_bytes(damaged)
    assert told(place) == without, "in the process that has made it"
    forget(place)
    place.write_bytes(whole)
    told(place)
    another_process()
    place.write_bytes(damaged)
    assert told(place) == without


EVENTS: list[e.AnyEvent] = [
    e.SessionOpened(id="s"),
    e.StepStarted(run=1, node="a", visit=1, step="none-such", step_version=1),
    *(
        event
        for key in KEYS
        for event in (
            e.ProbeStarted(key=key, run=1, probe=MEASURE),
            e.ProbeFinished(
                key=key,
                run=1,
                measurement=Measurement(facts={"from": f"/home/somebody/{key}"}),
                seconds=1.0,
            ),
        )
    ),
    e.StepFinished(run=1, node="a", outcome={"verdict": "fails"}),
    e.ProbeStarted(key="k5", run=1, probe=MEASURE),
    e.ProbeFinished(key="k5", run=1, measurement=Measurement()),
]
DECISIVE = 3  # events of these that are no probes


@pytest.fixture
def kept(place: Path) -> Path:
    """The cache of a journal, whole."""
    forget(place)
    place.write_bytes(lines(EVENTS))
    told(place)
    another_process()
    return kept_file(place)


def test_no_probe_is_decoded_twice(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget(place)
    place.write_bytes(lines(EVENTS))
    assert read_count(place, monkeypatch) == len(EVENTS)
    assert read_count(place, monkeypatch) == DECISIVE
    another_process()
    assert read_count(place, monkeypatch) == DECISIVE
    with place.open("ab") as file:
        file.write(encode(e.NoteAdded(text="n", seq=len(EVENTS) + 1, ts=2000.0)))
    assert read_count(place, monkeypatch) == DECISIVE + 1


def test_little_is_not_worth_keeping(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget(place)
    monkeypatch.setattr(condensed, "WORTH", len(lines(EVENTS)) + 1)
    place.write_bytes(lines(EVENTS))
    told(place)
    assert not kept_file(place).exists()
    assert not condensed._latest


def test_a_cache_with_any_byte_changed_or_cut_is_as_good_as_none(
    place: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without, content = told(place), kept.read_bytes()
    chance = random.Random(0)
    for at in (*range(40), *chance.sample(range(len(content)), 60)):
        for bad in (
            content[:at],
            content[:at] + bytes([content[at] ^ chance.randint(1, 255)]) + content[at + 1 :],
        ):
            kept.write_bytes(bad)
            another_process()
            monkeypatch.setattr(condensed, "WORTH", 1 << 60)  # it stays so
            assert read_count(place, monkeypatch) == len(EVENTS)
            assert told(place) == without


@pytest.mark.parametrize(
    "change", [{"maker": b"another"}, {"path": "/elsewhere/journal.jsonl"}, {"digest": b"0" * 32}]
)
def test_one_of_another_version_or_of_another_file_is_as_good_as_none(
    place: Path, kept: Path, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.open("rb") as file:
        found = condensed._read(file, place)
    assert found is not None
    body = condensed._encoder.encode(msgspec.structs.replace(found, **change))
    write_own(kept, hashlib.sha256(body).digest() + body)
    assert read_count(place, monkeypatch) == len(EVENTS)


def test_what_others_may_write_is_not_believed(
    place: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.chmod(0o666)
    assert read_count(place, monkeypatch) == len(EVENTS)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file to somebody else")
def test_what_somebody_else_owns_is_not_believed(
    place: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(kept, 65534, 65534)
    assert read_count(place, monkeypatch) == len(EVENTS)


def test_a_link_in_its_place_is_not_followed(
    place: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside = kept.with_suffix(".aside")
    kept.rename(aside)
    kept.symlink_to(aside)
    assert read_count(place, monkeypatch) == len(EVENTS)
    aside.unlink()


def test_nothing_of_the_kind_in_a_session_is_read(
    place: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is this user's own, and no part of a session, which somebody else may have made."""
    (place.parent / kept.name).write_bytes(kept.read_bytes())
    kept.unlink()
    assert read_count(place, monkeypatch) == len(EVENTS)
    (place.parent / kept.name).unlink()


def test_a_journal_of_the_same_length_is_not_taken_for_it(place: Path, kept: Path) -> None:
    """Nor is one that a stranger gave the same checksums."""
    other = lines(
        [
            msgspec.structs.replace(event, run=2) if hasattr(event, "run") else event
            for event in EVENTS
        ]
    )
    assert len(other) == len(lines(EVENTS))
    place.write_bytes(other)
    state = told(place)
    assert {run for _, _, _, run, *_ in state[1]} == {2}


def test_a_full_disk_leaves_nothing_and_takes_nothing(
    place: Path, small_disk: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(place)
    place.write_bytes(lines(EVENTS))
    without = told(place)
    disk = small_disk(8)
    (disk / "narrowdown").mkdir()
    with contextlib.suppress(OSError):
        (disk / "filling").write_bytes(b"x" * 8192)
    monkeypatch.setenv("XDG_CACHE_HOME", str(disk))
    another_process()
    assert told(place) == without
    assert list((disk / "narrowdown").iterdir()) == []
    assert told(place) == without, "by what this process has kept"


def test_where_no_cache_can_be_there_is_none(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget(place)
    place.write_bytes(lines(EVENTS))
    without = told(place)
    another_process()
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))  # a file
    assert told(place) == without


WRITE = """
import sys
from pathlib import Path
from narrowdown.wizard.session import condensed, journal
condensed.WORTH = 1
path = Path(sys.argv[1])
while True:
    condensed._latest.clear()
    kept_file(path).unlink(missing_ok=True)
    print("again", flush=True)
    for _ in journal.states(path):
        pass
"""


def test_killed_while_it_is_written_it_is_whole_or_not_there(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(place)
    place.write_bytes(lines(EVENTS))
    without = told(place)
    chance = random.Random(0)
    for _ in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", WRITE, str(place)], stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(chance.uniform(0.0, 0.02))
            child.send_signal(signal.SIGKILL)
        another_process()
        assert told(place) == without


def test_a_user_without_a_home_has_none(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number alone."""
    forget(place)
    place.write_bytes(lines(EVENTS))
    without = told(place)
    another_process()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda _: {}[0])
    with pytest.raises(RuntimeError):
        Path.home()
    assert told(place) == without
    condensed.forget(place)


def test_it_goes_with_its_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "sessions"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = folder.create(Problem(model="/m.onnx"), "flow")
    (made / NAME).write_bytes(lines(EVENTS))
    told(made / NAME)
    assert len(list((tmp_path / "cache" / "narrowdown").iterdir())) == 1
    removal.remove(made)
    assert list((tmp_path / "cache" / "narrowdown").iterdir()) == []


def test_no_more_than_a_few_are_kept(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(condensed, "KEPT", 2)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for number in range(4):
        path = tmp_path / str(number) / NAME
        path.parent.mkdir()
        path.write_bytes(lines(EVENTS))
        told(path)
        os.utime(kept_file(path), (number, number))
    left = {path.name for path in (tmp_path / "cache" / "narrowdown").iterdir()}
    assert left == {kept_file(tmp_path / str(number) / NAME).name for number in (2, 3)}


@given(st.lists(_events(), max_size=16), st.integers(0, 16), st.integers(0, 17))
def test_a_tail_that_begins_behind_what_is_known_gives_the_same_with_it(
    place: Path, events: list[e.AnyEvent], first: int, brief: int
) -> None:
    forget(place)
    place.write_bytes(lines(events))
    without = Tail(place, brief=brief).poll()
    place.write_bytes(lines(events)[: len(lines(events[:first]))])
    told(place)
    place.write_bytes(lines(events))
    tail = Tail(place, brief=brief)
    assert tail.poll() == without
    with place.open("ab") as file:
        file.write(encode(e.NoteAdded(text="later", seq=len(events) + 1, ts=3000.0)))
    assert [event.seq for event in tail.poll()] == [len(events) + 1]
    assert verify(place) == len(events) + 1


def test_a_runner_takes_a_session_up_by_it(
    place: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.open("ab") as file:
        file.write(b'{"v":1,"torn')
    opened = Journal(place)
    assert opened.torn is not None
    written = opened.append(e.NoteAdded(text="n"))
    opened.close()
    assert written.seq == len(EVENTS) + 1
    another_process()
    with_it = told(place)
    forget(place)
    assert with_it == told(place)
    for torn in place.parent.glob("journal.torn-*"):
        torn.unlink()


def test_what_travels_is_the_same_with_it(place: Path, kept: Path) -> None:
    found = portable.Traces()
    whole = b"".join(rewritten(place, found.cleaned, found.touches))
    forget(place)
    assert b"".join(rewritten(place, found.cleaned, found.touches)) == whole != lines(EVENTS)


def test_what_travels_is_not_damaged_unseen_behind_it(place: Path, kept: Path) -> None:
    more = encode(e.NoteAdded(text="n", seq=len(EVENTS) + 1, ts=2000.0))
    place.write_bytes(
        lines(EVENTS)
        + more.replace(b'"n"', b'"m"')
        + encode(e.NoteAdded(text="n", seq=len(EVENTS) + 2, ts=2000.0))
    )
    with pytest.raises(DamagedJournal):
        list(rewritten(place, lambda fields: fields, lambda _: False))


def test_a_file_that_took_the_others_place_is_read_itself(place: Path, tmp_path: Path) -> None:
    path, other = tmp_path / NAME, tmp_path / "other"
    path.write_bytes(lines(EVENTS))
    without = told(path)
    other.write_bytes(lines(EVENTS))
    (tmp_path / "before").hardlink_to(path)
    other.replace(path)
    (tmp_path / "before").write_bytes(b"\0" * len(lines(EVENTS)))
    assert told(path) == without


def test_a_version_that_keeps_something_else_of_a_probe_is_another_maker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before, other = condensed.maker(), tmp_path / "state.py"
    other.write_bytes(Path(str(condensed.state.__file__)).read_bytes() + b"# another\n")
    monkeypatch.setattr(condensed.state, "__file__", str(other))
    condensed.maker.cache_clear()
    assert condensed.maker() != before
    condensed.maker.cache_clear()
