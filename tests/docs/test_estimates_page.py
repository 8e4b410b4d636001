"""The table of docs/logs/estimates.md is made of sessions' journals: what it counts, and what it
leaves out."""

import importlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def estimates(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "benchmarks"))
    return importlib.import_module("estimates")


def session(folder: Path, engine: str, *steps: tuple[str, float, float]) -> Path:
    """A session of steps: name, seconds expected (-1: nothing was known), seconds that came."""
    folder.mkdir(parents=True)
    (folder / "session.json").write_text(json.dumps({"problem": {"engine": engine}}))
    events = []
    for run, (step, expected, came) in enumerate(steps):
        said = {"probes": 4, "seconds": expected} if expected >= 0 else {}
        events.append(
            {"kind": "step.started", "run": run, "step": step, "engine": engine, "expected": said}
        )
        events.append(
            {"kind": "step.finished", "run": run, "probes": 5, "cached": 1, "seconds": came}
        )
    (folder / "journal.jsonl").write_text(
        "".join(json.dumps(e) + "\n" for e in events) + '{"kind": "step.fin'
    )
    return folder


def test_what_is_near_is_counted_and_what_nobody_waits_for_is_not(
    estimates: Any, tmp_path: Path
) -> None:
    session(
        tmp_path / "a" / "s1", "tensorrt:precision=fp16",
        ("compare", -1, 84.0), ("reduce", 10, 19), ("reduce", 100, 20), ("repeat", 0.1, 0.7), ("confirm", 0.2, 1.1),
    )  # fmt: skip
    session(tmp_path / "a" / "s2" / "case", "emulate", ("compare", -1, 3.0)).joinpath(
        "session.json"
    ).unlink()
    told = list(estimates.read(estimates.find_journals([tmp_path])))
    assert [(t.engine, t.step, t.probes) for t in told] == [
        ("tensorrt", s, 4) for s in ("compare", "reduce", "reduce", "repeat", "confirm")
    ]
    rows = estimates.table(told).splitlines()
    assert (
        "| tensorrt | reduce | 2 | 8 / 8 | 110.0 / 39.0 | 2 | 2, 1 | 100.0 / 20.0 |  |  |" in rows
    )
    assert "| tensorrt | compare | 1 | ? / 4 | ? / 84.0 | 1 |  |  |  |  |" in rows
    assert not any("| repeat |" in row for row in rows), "nobody waits for it"
    assert (
        "| tensorrt | confirm | 1 | 4 / 4 | 0.2 / 1.1 | 1 | 1, 1 | 0.2 / 1.1 |  |  |" in rows
    )  # by less than a second
    said = estimates.summary(told)
    assert said.startswith("1 session with 5 steps, of which 4 took a second or more")
    assert (
        "3 of 4 (75 %) were told one number, and of these 2 of 3 (67 %) came within a factor of two"
        in said
    )
    assert "1 were told no seconds, 1 of them the first look" in said
    assert "By probes, which no load changes, 4 of 4 steps" in said


@pytest.mark.parametrize(
    ("expected", "came", "right"),
    [(140, 707, False), (404, 53, False), (24, 20, True), (6, 1, True)],
)
def test_probes_are_counted_right_within_a_factor(
    estimates: Any, expected: int, came: int, right: bool
) -> None:
    assert (
        estimates.counted_right(estimates.Told("s", "e", "workaround", expected, came, 1.0, 1.0))
        is right
    )


def test_a_range_is_no_number_and_counts_by_whether_it_held(estimates: Any) -> None:
    """One that is wide is not known: however near its middle was, it does not count among the
    numbers."""
    made = [(10.0, 2.0, 80.0), (300.0, 2.0, 80.0), (10.0, 8.0, 14.0), (1.9, 0.5, 2.4)]
    told = [
        estimates.Told("s", "emulate", "reduce", 30, 30, 10.0, came, least, most)
        for came, least, most in made
    ]
    assert [t.told for t in told] == [False, False, True, True], (
        "the last two are numbers: narrow, or too short to matter"
    )
    assert [t.held for t in told[:2]] == [True, False]
    (_, _, row) = estimates.table(told).splitlines()
    assert row.endswith("| 4 | 2, 1 | 10.0 / 1.9 | 1 of 2 |  |")
    said = estimates.summary(told)
    assert "2 of 4 (50 %) were told one number, and of these 1 of 2 (50 %)" in said
    assert "2 were told two ends, and 1 came between them; 0 were told no seconds" in said


def test_what_is_told_on_the_way_is_held_to_what_came(
    estimates: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests = [estimates.Rest(0.1, left, 9.0) for left in (8.0, 4.0, -1.0, 19.0)]
    assert [r.near for r in rests] == [True, False, False, False]
    told = [
        estimates.Told("s", "e", "reduce", 3, 3, 9.0, 10.0, 2.0, 80.0, rests=(r,)) for r in rests
    ]
    said = estimates.say_rests(told)
    assert (
        "fter 10 % of the seconds 3 of 4 were told one, 1 right so, and 0 two ends, 0 right so, after 25 %"
        in said
    )
    assert (
        "**While it ran** 3 of these 4 were told one, half of them before 10 % of their seconds had passed, and 1 of these"
        in (estimates.summary(told))
    )
    with zipfile.ZipFile(ROOT / "tests" / "sessions" / "format-1.zip") as held:
        held.extractall(tmp_path)
    (journal,) = estimates.find_journals([tmp_path])
    monkeypatch.setattr(estimates, "SOON", 0.01)
    watched = [t for t in estimates.price_again([journal]) if t.seconds >= estimates.SOON]
    assert watched
    for t in watched:
        parts = [r.part for r in t.rests]
        assert len(parts) == estimates.GRID
        assert set(estimates.PARTS) <= set(parts)
        assert [r.came for r in t.rests] == pytest.approx(
            [(1 - p) * t.seconds for p in parts], abs=0.01
        )


def test_the_table_takes_its_own_place_in_a_page(estimates: Any, tmp_path: Path) -> None:
    session(tmp_path / "s", "emulate", ("reduce", 2, 3))
    page = tmp_path / "page.md"
    page.write_text(f"before\n{estimates.BEGIN}\nold\n{estimates.END}\nafter\n")
    assert estimates.main([str(tmp_path / "s"), "--as-said", "--page", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "| emulate | reduce |" in text
    assert "\nold\n" not in text


def test_a_step_is_priced_again_by_what_its_journal_knew(estimates: Any, tmp_path: Path) -> None:
    """A whole session of an earlier version: what came is the sum of a step's own probes, each at
    the fewest seconds that any walk of it took, and later steps are priced by those."""
    with zipfile.ZipFile(ROOT / "tests" / "sessions" / "format-1.zip") as held:
        held.extractall(tmp_path)
    (journal,) = estimates.find_journals([tmp_path])
    took = {key: seconds for key, seconds, _ in estimates._list_answers(journal)}
    told = {t.step: t for t in estimates.price_again([journal])}
    assert told["compare"].expected == -1, "nothing was known"
    assert told["workaround"].expected > 0
    assert 0 < sum(t.seconds for t in told.values()) <= sum(took.values()) + 0.01
    again = {
        t.step: t
        for t in estimates.price_session(journal, {key: (s / 4, None) for key, s in took.items()})
    }
    for step in ("confirm", "layerwise", "workaround"):
        assert again[step].seconds == pytest.approx(told[step].seconds / 4, abs=0.01)
        assert again[step].expected < told[step].expected
    alone = tmp_path / "alone.jsonl"  # as it comes from a machine that is gone
    alone.write_bytes(journal.read_bytes())
    assert [
        (t.session, t.step) for t in estimates.price_again(estimates.find_journals([alone]))
    ] == [("alone", step) for step in told]


def test_the_page_has_a_place_for_it(estimates: Any) -> None:
    text = (ROOT / "docs" / "logs" / "estimates.md").read_text(encoding="utf-8")
    assert text.count(estimates.BEGIN) == text.count(estimates.END) == 1
