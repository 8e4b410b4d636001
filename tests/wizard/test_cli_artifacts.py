"""What checks leave, sorted by verdict."""

from pathlib import Path
from typing import Any

import pytest

from narrowdown.engines.store import Store
from narrowdown.wizard.cli.step import sort_artifacts, tally_verdicts


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    store = Store(tmp_path)
    verdicts = ("pass", "fail", "unresolved", "fail")
    return [
        {
            "iteration": i,
            "verdict": verdict,
            "artifacts": {"logs/look.txt": store.put(f"look {i}".encode())},
        }
        for i, verdict in enumerate(verdicts)
    ]


def test_names_and_folders(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    assert (
        sort_artifacts(rows, ["logs/look.txt"], Store(tmp_path), tmp_path / "art", began=0.0) == []
    )
    found = {
        str(p.relative_to(tmp_path / "art")): p.read_text()
        for p in (tmp_path / "art").rglob("*")
        if p.is_file()
    }
    stamps = {name.split("look_")[1].rpartition("_N")[0] for name in found}
    assert len(stamps) == 1
    stamp = stamps.pop()
    assert len(stamp) == len("01-01-70_00-00-00")
    assert found == {
        f"good/look_{stamp}_N0.txt": "look 0",
        f"bad/look_{stamp}_N1.txt": "look 1",
        f"unresolved/look_{stamp}_N2.txt": "look 2",
        f"bad/look_{stamp}_N3.txt": "look 3",
    }


def test_sorting_again_changes_nothing(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    place = tmp_path / "art"
    assert sort_artifacts(rows, ["logs/look.txt"], Store(tmp_path), place, began=5.0) == []
    assert sort_artifacts(rows, ["logs/look.txt"], Store(tmp_path), place, began=5.0) == []
    (changed,) = place.glob("good/*")
    changed.write_text("mine")
    (said,) = sort_artifacts(rows, ["logs/look.txt"], Store(tmp_path), place, began=5.0)
    assert "other content" in said
    assert changed.read_text() == "mine"
    assert len([p for p in place.rglob("*") if p.is_file()]) == 4


def test_what_was_not_there_is_said_once(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    (said,) = sort_artifacts(rows, ["none.txt"], Store(tmp_path), tmp_path / "art", began=0.0)
    assert said == "The artifact 'none.txt' was not there 4 times: was it meant to be made?"
    assert not (tmp_path / "art").exists()


@pytest.mark.parametrize(
    ("builds", "words"),
    [(True, "No 'replay.json' was made 4 times: a tactic replay holds"), (False, "was it meant")],
)
def test_a_replay_of_an_engine_without_a_selector_is_explained(
    tmp_path: Path, rows: list[dict[str, Any]], builds: bool, words: str
) -> None:
    """TensorRT 11 has none; a checker of the user's may well have forgotten it."""
    (said,) = sort_artifacts(
        rows, ["replay.json"], Store(tmp_path), tmp_path / "art", began=0.0, builds=builds
    )
    assert words in said


def test_the_last_words(rows: list[dict[str, Any]]) -> None:
    assert (
        tally_verdicts(rows)
        == "Finished 4 iteration(s) | Passed: 1/4 | Pass Rate: 25.0% | Unresolved: 1"
    )
    assert tally_verdicts(rows[:1]) == "Finished 1 iteration(s) | Passed: 1/1 | Pass Rate: 100.0%"
