"""The journal: what is written is read, what is torn is set aside, what is damaged is named."""

import io
import json
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from narrowdown.engines.probe import Inspect, Measure, Measurement
from narrowdown.engines.store import Store
from narrowdown.wizard.session import (
    DamagedJournal,
    NewerSession,
    SessionProblem,
    events as e,
    journal as module,
)
from narrowdown.wizard.session.journal import (
    LINE_LIMIT,
    Journal,
    Scan,
    Tail,
    encode,
    outline,
    read,
    repair,
    rewritten,
)
from narrowdown.wizard.session.state import fold

EVENTS: list[e.AnyEvent] = [
    e.SessionOpened(id="k7f3", pid=7),
    e.StepStarted(
        run=1, node="a", visit=1, step="compare", step_version=1, fingerprints={"x": "1"}
    ),
    e.ProbeStarted(key="k1", run=1, probe=Inspect(engine="x")),
    e.ProbeFinished(
        key="k1",
        run=1,
        measurement=Measurement(facts={"n": 1.5, "ß": ["\x1b", None]}),
        seconds=0.25,
    ),
    e.StepFinished(run=1, node="a", outcome={"verdict": "fails"}),
    e.QuestionAsked(
        node="a",
        visit=1,
        ask="?",
        answers=(e.Offered("yes", "Yes", "b", True), e.Offered("no", "No", "c")),
    ),
    e.QuestionAnswered(node="a", visit=1, answer="yes", by="person", note="ünïcode \u2028"),
]


def scan(data: bytes, path: Path = Path("journal.jsonl")) -> tuple[e.AnyEvent, ...]:
    return tuple(Scan(io.BytesIO(data), path))


def lines(count: int = len(EVENTS)) -> bytes:
    return b"".join(
        encode(msgspec.structs.replace(event, seq=n + 1, ts=1000.0 + n))
        for n, event in enumerate(EVENTS[:count])
    )


def written(path: Path) -> tuple[e.AnyEvent, ...]:
    ticks = iter(range(1000, 2000))
    journal = Journal(path, clock=lambda: float(next(ticks)))
    found = tuple(journal.append(event) for event in EVENTS)
    journal.close()
    return found


def test_what_append_returns_is_what_read_gives(tmp_path):
    path = tmp_path / "journal.jsonl"
    assert written(path) == read(path)
    assert [event.seq for event in read(path)] == list(range(1, len(EVENTS) + 1))
    assert [event.ts for event in read(path)] == [1000.0 + n for n in range(len(EVENTS))]
    assert path.read_bytes() == lines()


def test_every_line_carries_the_public_fields_and_a_checksum_that_anyone_can_check(tmp_path):
    written(tmp_path / "journal.jsonl")
    for line in (tmp_path / "journal.jsonl").read_bytes().splitlines():
        pairs = json.loads(line, object_pairs_hook=lambda found: found)
        fields = dict(pairs)
        assert len(fields) == len(pairs), "no field twice"
        assert {"v", "seq", "ts", "kind", "crc"} <= set(fields)
        body = line[: line.rindex(b',"crc":')] + b"}"
        assert fields["crc"] == f"{zlib.crc32(body):08x}"


@given(st.integers(0, len(lines())))
def test_a_tail_torn_at_any_byte_keeps_every_whole_line(cut):
    data = lines()[:cut]
    scan = Scan(io.BytesIO(data))
    assert len(tuple(scan)) == scan.seq == data.count(b"\n")
    assert scan.good == data.rfind(b"\n") + 1


@given(st.integers(0, len(lines()) - 1), st.integers(1, 255))
@settings(max_examples=400)
def test_a_changed_byte_is_named_by_its_line_or_is_the_tail(at, flip):
    data = bytearray(lines())
    number = data[:at].count(b"\n") + 1
    last = len(EVENTS)
    data[at] ^= flip
    # Losing the newline of the line before the last one takes the last one with it: all that
    # follows is a tail.
    tail = number == last or (number == last - 1 and lines()[at : at + 1] == b"\n")
    if tail:
        assert len(scan(bytes(data))) == number - 1
        return
    with pytest.raises(DamagedJournal) as caught:
        scan(bytes(data))
    assert caught.value.line == number
    assert f"line {number}" in str(caught.value)


def test_what_is_packed_is_what_was_read(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(
        b"".join(encode(msgspec.structs.replace(e, seq=n, ts=1.0)) for n, e in enumerate(EVENTS, 1))
    )
    held = fold(read(path))
    known, asked = held.known["k1"], held.asked["k1"]
    assert known.measurement == EVENTS[3].measurement
    assert asked.probe == EVENTS[2].probe
    assert (asked.asks(Inspect), asked.asks(Measure)) == (True, False)
    path.write_bytes(path.read_bytes().replace(b'"n":1.5', b'"n":7.5'))
    with pytest.raises(DamagedJournal, match="line 4"):
        read(path)


def test_lines_are_found_up_to_a_torn_one(tmp_path):
    torn = lines() + b'{"v":1,'
    found = Scan(io.BytesIO(torn))
    assert [event.seq for event in found] == list(range(1, len(EVENTS) + 1))
    assert found.good == len(lines())
    (tmp_path / "journal.jsonl").write_bytes(torn)
    assert b"".join(rewritten(tmp_path / "journal.jsonl", lambda fields: fields)) == lines()


@pytest.mark.parametrize("line", [1, 2, 3, 5])
def test_a_number_that_nothing_can_reckon_with_is_named_by_its_line(tmp_path, line):
    """All lines of a block are looked through at once."""
    events = [
        e.ProbeFinished(
            key="0" * 64, run=1, measurement=Measurement(facts={"n": 0.1234567890123456789})
        )
        for _ in range(5)
    ]
    events[line - 1] = msgspec.structs.replace(events[0], measurement=Measurement(facts={"n": 7}))
    data = b"".join(
        encode(msgspec.structs.replace(event, seq=n, ts=1.0)) for n, event in enumerate(events, 1)
    )
    assert len(scan(data)) == 5
    body = data.splitlines()[line - 1].replace(b'"n":7', b'"n":' + b"7" * 400)[
        : -len(',"crc":"00000000"}')
    ]
    changed = b'%s,"crc":"%08x"}' % (body, zlib.crc32(body + b"}"))
    parts = data.splitlines()
    with pytest.raises(DamagedJournal, match="more than 64 bits") as caught:
        scan(b"".join(part + b"\n" for part in (*parts[: line - 1], changed, *parts[line:])))
    assert caught.value.line == line


def test_a_missing_line_is_damage():
    parts = lines().splitlines(keepends=True)
    with pytest.raises(DamagedJournal) as caught:
        scan(b"".join(parts[:2] + parts[3:]))
    assert caught.value.line == 3


def test_opening_moves_a_torn_tail_aside_once_and_goes_on(tmp_path):
    path = tmp_path / "journal.jsonl"
    written(path)
    path.write_bytes(path.read_bytes()[:-5])
    journal = Journal(path)
    assert journal.torn == tmp_path / "journal.torn-1"
    assert journal.torn.read_bytes().startswith(b'{"v":1,"seq":7')
    assert journal.state.seq == 6
    assert journal.append(EVENTS[-1]).seq == 7
    journal.close()
    assert Journal(path).torn is None
    assert len(read(path)) == 7
    with path.open("ab") as file:
        file.write(b"{")
    assert Journal(path).torn == tmp_path / "journal.torn-2"


def test_a_newer_format_is_said_and_not_guessed_at(tmp_path):
    body = b'{"v":2,"seq":1,"ts":1.0,"kind":"session.dreamt"}'
    line = body[:-1] + b',"crc":"%08x"}\n' % zlib.crc32(body)
    with pytest.raises(NewerSession, match="newer narrowdown"):
        scan(line, tmp_path)


def test_large_payloads_move_to_artifacts(tmp_path):
    path, store = tmp_path / "journal.jsonl", Store(tmp_path)
    journal = Journal(path)
    big = Measurement(facts={"text": "x" * LINE_LIMIT})
    found = journal.append(e.ProbeFinished(key="k", run=1, measurement=big))
    assert isinstance(found, e.ProbeFinished)
    assert found.measurement is None
    assert msgspec.json.decode(store.get(found.blob), type=Measurement) == big
    outcome = {"names": "y" * LINE_LIMIT, "verdict": "reduced"}
    step = journal.append(e.StepFinished(run=1, node="a", outcome=outcome, seconds=2.0))
    assert isinstance(step, e.StepFinished)
    assert (step.outcome, step.seconds) == (outcome, 2.0)
    assert read(path)[1] == step
    assert Tail(path).poll()[1] == step
    assert all(len(line) <= LINE_LIMIT for line in path.read_bytes().splitlines(keepends=True))


def test_what_no_line_can_hold_is_refused_and_leaves_no_trace(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    with pytest.raises(ValueError, match="does not fit"):
        journal.append(e.NoteAdded(text="x" * LINE_LIMIT))
    with pytest.raises(DamagedJournal):  # JSON has no infinity
        journal.append(
            e.ProbeFinished(key="k", run=1, measurement=Measurement(run_seconds=float("inf")))
        )
    assert (tmp_path / "journal.jsonl").read_bytes() == b""
    assert journal.append(e.NoteAdded(text="x")).seq == 1


def test_a_full_disk_leaves_no_half_line(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(EVENTS[0])
    import os

    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[: len(data) // 2]))
    with pytest.raises(OSError, match="No space"):
        journal.append(EVENTS[1])
    monkeypatch.undo()
    assert journal.append(EVENTS[1]).seq == 2
    assert len(read(tmp_path / "journal.jsonl")) == 2


def test_the_lines_of_a_second_writer_stay_whole_and_the_first_one_stops(tmp_path):
    """Two machines on one folder, whose disk brings no lock from one to the other."""
    first = Journal(tmp_path / module.NAME)
    first.append(e.NoteAdded(text="first"))
    second = Journal(tmp_path / module.NAME)
    second.append(e.NoteAdded(text="second"))
    with pytest.raises(SessionProblem, match="Somebody else writes to the session"):
        first.append(e.NoteAdded(text="lost"))
    second.append(e.NoteAdded(text="third"))
    assert [event.text for event in read(tmp_path / module.NAME)] == ["first", "second", "third"]


def test_a_journal_that_was_removed_takes_no_more(tmp_path):
    journal = Journal(tmp_path / module.NAME)
    journal.append(e.NoteAdded(text="first"))
    (tmp_path / module.NAME).unlink()
    with pytest.raises(SessionProblem, match="was removed while it was being worked on"):
        journal.append(e.NoteAdded(text="lost"))


@given(st.lists(st.integers(1, 400), max_size=12))
def test_a_tail_gives_each_event_once_however_the_bytes_arrive(sizes):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path, data = Path(folder) / "journal.jsonl", lines()
        tail, found, done = Tail(path), [], 0
        assert tail.poll() == ()
        for size in (*sizes, len(data)):
            with path.open("ab") as file:
                file.write(data[done : done + size])
            done += size
            found.extend(tail.poll())
        assert tuple(found) == scan(data)


def test_the_outline_leaves_probes_out(tmp_path):
    written(tmp_path / "journal.jsonl")
    assert [event.seq for event in outline(tmp_path / "journal.jsonl")] == [1, 2, 5, 6, 7]


def test_repair_keeps_what_was_before_and_what_was_measured_after(tmp_path):
    data = bytearray(
        lines(5)
        + b"".join(
            encode(msgspec.structs.replace(event, seq=6 + n, ts=1.0))
            for n, event in enumerate(
                [e.ProbeFinished(key="k2", run=1, measurement=Measurement()), EVENTS[6]]
            )
        )
    )
    at = data.index(b'"seq":5')
    data[at + 9] ^= 1
    kept, lost = repair(bytes(data), tmp_path)
    events = scan(kept)
    assert [type(event) for event in events] == [type(event) for event in EVENTS[:4]] + [
        e.ProbeFinished
    ]
    assert [event.seq for event in events] == [1, 2, 3, 4, 5]
    assert lost.count(b"\n") == 2


def test_a_step_that_cannot_have_ended_so_is_damage(tmp_path):
    """Whatever its checksum: the report, the displays and the flow read the fields of an outcome by
    name and type."""
    path = tmp_path / "journal.jsonl"
    started = e.StepStarted(run=1, node="reproduce", visit=1, step="compare", step_version=1)
    cases = [
        e.StepFinished(run=1, node="reproduce", outcome={"samples_failing": "*"}),
        e.StepFinished(run=1, node="reproduce", findings={"case": "none"}),
    ]
    for damaged in cases:
        events = [
            EVENTS[0],
            started,
            damaged,
            e.ProbeFinished(key="k", run=1, measurement=Measurement()),
        ]
        data = b"".join(
            encode(msgspec.structs.replace(event, seq=n, ts=1.0))
            for n, event in enumerate(events, 1)
        )
        path.write_bytes(data)
        with pytest.raises(
            DamagedJournal, match="line 3: the step compare of this version does not end so"
        ):
            read(path)
        with pytest.raises(DamagedJournal, match="line 3"):
            Journal(path)
        kept, lost = repair(data, path)
        path.write_bytes(kept)
        assert [type(event) for event in read(path)] == [
            e.SessionOpened,
            e.StepStarted,
            e.ProbeFinished,
        ]
        assert b'"kind":"step.finished"' in lost


def test_repair_leaves_out_an_event_whose_part_is_gone(tmp_path):
    path = tmp_path / "journal.jsonl"
    events = [
        EVENTS[0],
        e.StepFinished(run=1, node="a", blobs={"outcome": "0" * 64}),
        e.NoteAdded(text="later"),
    ]
    data = b"".join(
        encode(msgspec.structs.replace(event, seq=n, ts=1.0)) for n, event in enumerate(events, 1)
    )
    kept, lost = repair(data, path)
    path.write_bytes(kept)
    assert [type(event) for event in read(path)] == [e.SessionOpened]
    assert lost.count(b"\n") == 2
