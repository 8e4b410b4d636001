"""Sessions that are killed at every kind of moment end as if nothing had happened (the campaign: ``make faults``)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import campaign as faults
import fault_run

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
    ran = subprocess.run([sys.executable, SCRIPT, *map(str, words)], text=True, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    head, *records = [json.loads(line) for line in (tmp_path / "moments.jsonl").read_text().splitlines()]
    assert head["jobs"] == 2
    assert {record["scene"] for record in records} == {"precision"}
    assert sum(r["kills"] for r in records if r["manner"] in faults.KILLS) >= 6
    text = (tmp_path / "table.md").read_text()
    assert "| scene | event | worker | segv |" in text
    assert "0 wrong" in text
    again = subprocess.run(
        [sys.executable, SCRIPT, "--table", tmp_path / "moments.jsonl"], text=True, capture_output=True, check=False
    )
    assert again.stdout == text
