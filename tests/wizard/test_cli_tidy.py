"""Sessions removed, pruned and renamed: real folders, a real lock held by another process."""

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from narrowdown.wizard.cli import main
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session import folder, lock, removal


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def begun(home: Path, days: float = 0.0) -> Path:
    """A session that nothing has happened in for some days."""
    place = folder.create(Problem(model="/m.onnx"), "schema: 1\n", home)
    if days:
        about = folder._described(place)  # the flow is none, and no part of this
        fields = msgspec.to_builtins(about) | {"created": time.time() - days * 86400}
        (place / folder.DESCRIPTION).write_bytes(
            msgspec.json.encode(fields | {"crc": folder.checksum(fields)})
        )
    return place


def test_rm_takes_the_named_ones_with_yes_alone(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other, third = begun(home), begun(home), begun(home)
    assert main(["sessions", "rm", one.name, str(other)]) == 3
    assert "Remove 2 sessions" in capsys.readouterr().err
    assert one.exists()
    assert main(["sessions", "rm", one.name, str(other), "--yes"]) == 0
    assert [place.name for place in home.iterdir()] == [third.name]


def test_one_that_is_worked_on_is_never_lost(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held, free = begun(home, days=90), begun(home, days=90)
    code = "import sys, pathlib\nfrom narrowdown.wizard.session.lock import Lock\nheld = Lock.acquire(pathlib.Path(sys.argv[1]))\n"  # noqa: E501
    code += "print('held', flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(held)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == b"held\n"
        before = sorted(held.rglob("*"))
        assert main(["sessions", "rm", free.name, held.name, "--yes"]) == 4
        assert "is open in another window; stop it there first" in capsys.readouterr().err
        assert free.exists(), "all or none"
        assert main(["sessions", "rename", held.name, "other"]) == 4
        with pytest.raises(lock.Held):  # what was free when it was asked may be held a moment later
            removal.remove(held)
        assert main(["sessions", "prune", "--yes"]) == 0
        assert "so it stays" in capsys.readouterr().err
        assert sorted(held.rglob("*")) == before
        assert not free.exists()
        runner.communicate(b"")
    assert main(["sessions", "rm", held.name, "--yes"]) == 0


def test_prune_keeps_the_young_the_latest_and_the_damaged(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, older, young, damaged = begun(home, 40), begun(home, 50), begun(home), begun(home, 60)
    (damaged / folder.DESCRIPTION).write_text("{")
    os.utime(damaged / folder.DESCRIPTION, (time.time() - 60 * 86400,) * 2)
    assert main(["sessions", "prune", "--keep", "2", "--yes"]) == 0
    assert {place.name for place in home.iterdir()} == {old.name, young.name, damaged.name}
    assert "cannot be read" in capsys.readouterr().err
    assert main(["sessions", "prune", "--older-than", "100d", "--yes"]) == 0
    assert old.exists()
    assert not older.exists()
    assert main(["sessions", "prune", "--older-than", "soon"]) == 2


def test_a_renamed_session_is_the_same_one(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, other = begun(home), begun(home)
    before = {path.relative_to(place) for path in place.rglob("*")}
    for wrong in ("../x", "-x", ".x", "", other.name, "a b"):
        assert main(["sessions", "rename", place.name, wrong]) == 2, wrong
    assert main(["sessions", "rename", place.name, "resnet-fp16"]) == 0
    renamed = folder.find("resnet")
    assert renamed == home / "resnet-fp16"
    assert folder.describe(renamed).id == "resnet-fp16"
    assert {path.relative_to(renamed) for path in renamed.rglob("*")} - {
        Path(lock.NAME)
    } == before - {Path(lock.NAME)}
    capsys.readouterr()


def test_a_removal_that_was_killed_leaves_nothing_in_the_list(home: Path) -> None:
    place = begun(home)
    going = place.rename(home / f".removed-{place.name}")
    assert list(folder.below(home)) == []
    going.rename(place)
    (home / f".removed-{place.name}").mkdir()
    removal.remove(place)
    assert list(home.iterdir()) == []


def test_resume_without_an_id_takes_the_last_one(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume"]) == 2
    assert "no session in" in capsys.readouterr().err
    begun(home, 3)
    latest = begun(home, 1)
    begun(home, 2)
    assert main(["resume", "--display", "none"]) != 0  # its flow is none
    assert f"the last session, {latest.name} (m.onnx, " in capsys.readouterr().err


def test_a_file_with_several_names_is_weighed_once(tmp_path: Path) -> None:
    (tmp_path / "case").mkdir()
    (tmp_path / "journal.jsonl").write_bytes(bytes(5000))
    (tmp_path / "case" / "journal.jsonl").hardlink_to(tmp_path / "journal.jsonl")
    (tmp_path / "case" / "copy.jsonl").write_bytes(bytes(5000))
    assert removal.weight(tmp_path) == 10000
    (tmp_path / "models").symlink_to(
        tmp_path / "case"
    )  # of somebody else's session, where it may name the whole disk
    assert removal.weight(tmp_path / "models") == 0
