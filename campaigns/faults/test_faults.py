"""Sessions that are killed at every kind of moment end as if nothing had happened (the campaign:
``make faults``)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from campaigns.faults import campaign as faults, fault_mutants, fault_run
from narrowdown import wizard

SCRIPT = Path(fault_run.__file__)


@pytest.fixture
def campaign(tmp_path: Path) -> faults.Campaign:
    return faults.Campaign(tmp_path, fault_run.surroundings(tmp_path))


def test_a_few_kills_of_each_kind(campaign: faults.Campaign, tmp_path: Path) -> None:
    """The campaign's little sibling: one session is killed in one manner after another."""
    scene = fault_run.scenes(tmp_path / "scenes")["precision"]
    tally = faults.Tally(scene.name, "all")
    order = [("tree", 0.6), ("torn", 5), ("runner", 6), ("clock", 4), ("paused", 5)]
    campaign.disturbed(scene, "mixed", iter(order), len(order), tally)
    assert tally.kills >= 3
    assert tally.wrong == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_campaign_runs_side_by_side_and_prints_its_tables(tmp_path: Path) -> None:
    words = [
        "--kills",
        "6",
        "--jobs",
        "2",
        "--scenes",
        "precision",
        "--manners",
        "event,worker,segv",
        "--out",
        tmp_path,
    ]
    ran = subprocess.run(
        [sys.executable, SCRIPT, *map(str, words)], text=True, capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    head, *records = [
        json.loads(line) for line in (tmp_path / "moments.jsonl").read_text().splitlines()
    ]
    assert head["jobs"] == 2
    assert {record["scene"] for record in records} == {"precision"}
    assert sum(r["kills"] for r in records if r["manner"] in faults.KILLS) >= 6
    text = (tmp_path / "table.md").read_text()
    assert "| scene | event | worker | segv |" in text
    assert "0 wrong" in text
    again = subprocess.run(
        [sys.executable, SCRIPT, "--table", tmp_path / "moments.jsonl"],
        text=True,
        capture_output=True,
        check=False,
    )
    assert again.stdout == text


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("size", [1, 6, 14, 27, 36])
def test_a_disk_that_is_full_again_and_again(tmp_path: Path, size: int) -> None:
    """A session on a disk of its own comes to its undisturbed end, however often it is full on the
    way."""
    campaign = faults.Campaign(tmp_path, fault_run.surroundings(tmp_path), size)
    scene = fault_run.scenes(tmp_path / "scenes")["precision"]
    tally = faults.Tally(scene.name, "disk")
    campaign.filled(scene, size, tally)
    if tally.skipped:
        pytest.skip(tally.skipped)
    assert tally.kills, "it was never full"
    assert tally.wrong == []


PRODUCT = Path(str(wizard.__path__[0])).parent  # the checkout, or where the wheel is installed


def test_every_mutant_still_applies() -> None:
    for mutant in fault_mutants.MUTANTS:
        for file, text, instead in mutant.changes:
            source = (PRODUCT / file).read_text()
            compile(fault_mutants.changed(mutant.name, file, source, text, instead), file, "exec")


def test_a_mutant_that_no_longer_applies_is_named() -> None:
    for source in ("", "a a"):
        with pytest.raises(ValueError, match=r"the mutant m no longer applies: f\.py"):
            fault_mutants.changed("m", "f.py", source, "a", "b")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_mutant_is_noticed_and_goes_into_the_table(tmp_path: Path) -> None:
    script = Path(fault_mutants.__file__)
    words = [
        sys.executable,
        script,
        "--jobs",
        "2",
        "--only",
        "no-disk-named,torn-tail-dropped",
        "--out",
        tmp_path,
    ]
    ran = subprocess.run(list(map(str, words)), text=True, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    text = (tmp_path / "table.md").read_text()
    assert (
        "| `torn-tail-dropped` | a torn line is set aside, never thrown away | torn, precision |"
        in text
    )
    assert "survived" not in text
    assert ", 0 wrong." in text
    before = (tmp_path / "mutants.jsonl").read_text()
    subprocess.run(list(map(str, words)), check=True, capture_output=True)
    assert (tmp_path / "mutants.jsonl").read_text() == before, "what is known is not examined again"


def test_a_mutant_that_survives_is_said() -> None:
    mutant = fault_mutants.MUTANTS[0]
    record = {
        "mutant": mutant.name,
        "scene": "a",
        "manner": "b",
        "sessions": 12,
        "wrong": [],
        "skipped": "",
    }
    assert "**survived**" in fault_mutants.table([mutant], [record])
    assert "not begun in time" in fault_mutants.table([mutant], [{**record, "sessions": 0}])
    assert not fault_mutants.noticed([mutant], [record])
    assert fault_mutants.noticed(
        [mutant], [record, {**record, "wrong": ["x-abcdef: another route"]}]
    )
    assert not fault_mutants.noticed([mutant], []), "one that was not examined is not noticed"
