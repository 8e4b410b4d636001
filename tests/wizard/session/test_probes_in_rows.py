"""A journal read at once, where probes in a row are taken in together: the same state as one by one."""

import functools
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from narrowdown.engines.probe import (
    Candidate,
    Check,
    Describe,
    Import,
    Inspect,
    Measure,
    Measurement,
)
from narrowdown.wizard.session import DamagedJournal, SessionProblem, events as e, folder, journal
from narrowdown.wizard.session.journal import NAME, Tail, encode, rewritten
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
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("session") / NAME


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


@given(st.lists(_events(), max_size=24))
@settings(max_examples=150)
def test_probes_in_a_row_are_what_they_are_one_by_one(
    place: Path, events: list[e.AnyEvent]
) -> None:
    place.write_bytes(lines(events))
    one_by_one = functools.reduce(advance, journal.read(place), State())
    assert told(place) == plain(one_by_one)


@given(st.lists(_events(), max_size=16))
def test_a_tail_goes_on_behind_what_it_has_given(place: Path, events: list[e.AnyEvent]) -> None:
    place.write_bytes(lines(events))
    tail = Tail(place)
    assert [event.seq for event in tail.poll()] == list(range(1, len(events) + 1))
    with place.open("ab") as file:
        file.write(encode(e.NoteAdded(text="later", seq=len(events) + 1, ts=3000.0)))
    assert [event.seq for event in tail.poll()] == [len(events) + 1]


def test_what_travels_is_not_damaged_unseen(place: Path) -> None:
    whole = lines([e.SessionOpened(id="s"), e.NoteAdded(text="n"), e.NoteAdded(text="last")])
    place.write_bytes(whole)
    assert b"".join(rewritten(place, lambda fields: fields)) == whole
    place.write_bytes(whole.replace(b'"n"', b'"m"'))
    with pytest.raises(DamagedJournal):
        list(rewritten(place, lambda fields: fields))
