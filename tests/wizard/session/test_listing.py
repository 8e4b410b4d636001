"""The list of sessions: what did not change is not read again, and what is remembered is never
believed against the files."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session import events as e
from narrowdown.wizard.session import folder, listing
from narrowdown.wizard.session.folder import Summary
from narrowdown.wizard.session.journal import NAME, Journal
from narrowdown.wizard.session.listing import Cache, Listing
from narrowdown.wizard.session.lock import Lock

FLOW = "schema: 1\nid: f\ntitle: t\nstart: a\nnodes: {}\nends:\n  over: {title: Over, explain: It is., verdict: done}\n"
Reads = Callable[[], list[str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "sessions"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(listing, "FEWEST", 2)
    return tmp_path / "sessions"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """The names of the folders that were read since the last call."""
    seen: list[str] = []
    real = folder.summary

    def noted(place: Path) -> Summary:
        seen.append(place.name)
        return real(place)

    monkeypatch.setattr(folder, "summary", noted)

    def told() -> list[str]:
        found, seen[:] = sorted(seen), []
        return found

    return told


def made(count: int = 3) -> list[Path]:
    places = [folder.create(Problem(model=f"/m{n}.onnx"), FLOW) for n in range(count)]
    for place in places:
        journal = Journal(place / NAME)
        journal.append(e.SessionOpened(id=place.name))
        journal.close()
    return sorted(places)


def told(found: list[Summary]) -> list[dict[str, object]]:
    """What was said, but for the ages, which go on."""
    return sorted(
        ({k: v for k, v in msgspec.structs.asdict(s).items() if k != "age"} for s in found),
        key=lambda row: row["id"],
    )


def test_what_did_not_change_is_not_read_again(home: Path, reads: Reads) -> None:
    places = made()
    first = Listing()
    before = first.sessions()
    assert reads() == [p.name for p in places]
    assert told(first.sessions()) == told(before) == told(Listing().sessions())
    assert reads() == []
    assert [s.age for s in Listing().sessions()] == pytest.approx([s.age for s in before], abs=60)
    journal = Journal(places[1] / NAME)
    journal.append(e.SessionClosed(end="over", exit_code=0))
    journal.close()
    by_name = {s.path.name: s for s in first.sessions()}
    assert (by_name[places[1].name].end, by_name[places[1].name].verdict) == ("over", "done")
    assert reads() == [places[1].name]
    assert told(Listing().sessions()) == told(first.sessions())
    assert reads() == []


def test_a_change_of_any_file_is_seen_though_its_size_and_time_are_as_before(
    home: Path, reads: Reads
) -> None:
    place, _ = made(2)
    Listing().sessions()
    reads()
    for name in (folder.DESCRIPTION, folder.FLOW, NAME):
        path = place / name
        was = path.stat()
        data = bytearray(path.read_bytes())
        data[10] ^= 1
        path.write_bytes(data)
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
        Listing().sessions()
        assert reads() == [place.name], name
        data[10] ^= 1
        path.write_bytes(data)
        Listing().sessions()
        reads()


def test_who_holds_a_session_is_looked_at_each_time(home: Path, reads: Reads) -> None:
    place, _ = made(2)
    list_ = Listing()
    assert all(not s.holder for s in list_.sessions())
    reads()
    lock = Lock.acquire(place, "")
    assert {s.path for s in list_.sessions() if s.holder} == {place}
    assert {s.path for s in Listing().sessions() if s.holder} == {place}
    lock.release()
    assert all(not s.holder for s in list_.sessions())
    assert reads() == []


def test_what_cannot_be_read_is_looked_at_each_time(home: Path, reads: Reads) -> None:
    place, _ = made(2)
    (place / folder.DESCRIPTION).write_text("no json")
    for _ in range(2):
        assert next(s for s in Listing().sessions() if s.path == place).problem
    assert reads().count(place.name) == 2


@pytest.mark.parametrize(
    "kind", ["torn", "foreign", "old", "other-root", "link", "folder", "binary"]
)
def test_a_cache_that_is_not_ours_is_as_good_as_none(
    kind: str, home: Path, tmp_path: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    made()
    right = told(Listing().sessions())
    reads()
    (path,) = (tmp_path / "cache" / "narrowdown").iterdir()
    cache = msgspec.json.decode(path.read_bytes(), type=Cache)
    lies = {
        name: msgspec.structs.replace(kept, verdict="a lie") for name, kept in cache.kept.items()
    }
    lying = msgspec.structs.replace(cache, kept=lies)
    path.write_bytes(msgspec.json.encode(lying))
    assert "a lie" in {s.verdict for s in Listing().sessions()}, "the cache is used at all"
    match kind:
        case "torn":
            path.write_bytes(msgspec.json.encode(lying)[:-7])
        case "foreign":
            monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
        case "old":
            path.write_bytes(
                msgspec.json.encode(msgspec.structs.replace(lying, format=listing.FORMAT - 1))
            )
        case "other-root":
            path.write_bytes(msgspec.json.encode(msgspec.structs.replace(lying, root="/elsewhere")))
        case "link":
            path.rename(tmp_path / "elsewhere")
            path.symlink_to(tmp_path / "elsewhere")
        case "folder":
            path.unlink()
            path.mkdir()
        case "binary":
            path.write_bytes(b"\xff" * 100)
    assert told(Listing().sessions()) == right
    assert len(reads()) == 3


def test_where_no_cache_can_be_written_the_list_is_whole(
    home: Path, tmp_path: Path, reads: Reads
) -> None:
    made()
    (tmp_path / "cache").write_text("a file in its place")
    assert len(Listing().sessions()) == 3
    assert len(Listing().sessions()) == 3
    assert len(reads()) == 6


def test_few_sessions_leave_no_file_behind(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "FEWEST", 50)
    made()
    assert len(Listing().sessions()) == 3
    assert not (tmp_path / "cache").exists()
