"""Replays of a session of every end, in their three kinds; the session itself is only read."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from narrowdown.wizard import trust
from narrowdown.wizard.runner import replay as replays
from narrowdown.wizard.runner.progress import NAME as PROGRESS
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.session.lock import NAME as LOCK

from ..patience import allow
from .conftest import Walk, Walked, command, environment
from .test_every_end import ENDS, End

NAMES = [end.end for end in ENDS]
# What replaying on the same engine comes to, and its exit code with --expect same, fixed, fails.
SAME = {
    "not-reproduced": ("same", 0, 5, 5),
    "reference-suspect": ("still fails", 0, 5, 0),
    "not-determined": ("still fails", 0, 5, 0),
    "fixed-by-sanitizing": ("still fails", 0, 5, 0),
    "case-found": ("still fails", 0, 5, 0),
    "worked-around": ("still fails", 0, 5, 0),
    "unresolved": ("same", 0, 5, 0),
}
QUICK = ("not-reproduced", "worked-around")


def bytes_of(folder: Path) -> dict[str, str]:
    """Every file of a session by its digest, but for what its own process may still draw of its
    end, and the note of who holds it, which that one empties as it leaves: on a busy machine after
    the command has ended."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (PROGRESS, LOCK)
    }


def session(end: End, walk: Walk, models: Path) -> Walked:
    return walk(*end.words(models))


@pytest.mark.parametrize("end", ENDS, ids=NAMES)
def test_a_dry_replay_of_every_end(walk: Walk, models: Path, end: End) -> None:
    place = session(end, walk, models).folder
    before = bytes_of(place)
    found = replays.dry(place, keep_going=True)
    assert found.verdict == "same", [row for row in found.rows if row.outcome != "same"]
    assert found.exit_code("same") == 0
    assert bytes_of(place) == before


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(end, marks=() if end.end in QUICK else pytest.mark.slow, id=end.end)
        for end in ENDS
    ],
)
def test_a_replay_of_every_end(walk: Walk, models: Path, end: End) -> None:
    place = session(end, walk, models).folder
    before = bytes_of(place)
    consent = trust.admit(
        folders.describe(place).problem, ("all",)
    )  # the checker of one of them runs again, too
    found = replays.real(place, replays.Wanted(keep_going=True), options=Options(consent=consent))
    codes = tuple(found.exit_code(expect) for expect in ("same", "fixed", "fails"))
    assert (found.verdict, *codes) == SAME[end.end], found.rows
    assert all(row.recorded != "not measured" for row in found.rows), (
        "the session knows its own decisive probes"
    )
    assert bytes_of(place) == before


def test_on_an_engine_without_the_fault_it_is_fixed(walk: Walk, models: Path, narrowdown) -> None:
    place = session(next(e for e in ENDS if e.end == "worked-around"), walk, models).folder
    before = bytes_of(place)
    first = narrowdown("replay", place, "--engine", "onnxruntime")
    assert first.code == 5, "it stops at the first difference"
    assert first.out.count(" | ") == 1
    whole = narrowdown(
        "replay", place, "--engine", "onnxruntime", "--expect", "fixed", "--keep-going"
    )
    assert whole.code == 0, whole.out
    assert whole.out.splitlines()[-1].startswith("fixed: as expected")
    assert {"fixed", "fails"} <= set(whole.out.split())
    assert narrowdown("replay", place, "--dry", "--engine", "onnxruntime").code == 2
    assert narrowdown("replay", place, "--search", "--expect", "fixed").code == 2
    assert bytes_of(place) == before


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS, ids=NAMES)
def test_searching_again_walks_the_same_route(
    walk: Walk, models: Path, narrowdown, end: End
) -> None:
    place = session(end, walk, models).folder
    before = bytes_of(place)
    ran = narrowdown("replay", place, "--search", "--yes-run-scripts", "all")
    assert ran.code == 0, ran.out + ran.err
    assert bytes_of(place) == before


OLDER = "1.22.1"


@pytest.mark.slow
def test_under_another_version_of_the_engine_both_are_named(
    walk: Walk, models: Path, tmp_path: Path
) -> None:
    """Installed beside the one here, and found first."""
    place = session(next(e for e in ENDS if e.end == "worked-around"), walk, models).folder
    older = tmp_path / "older"
    words = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(older),
        f"onnxruntime=={OLDER}",
    ]
    if subprocess.run(
        [sys.executable, *words], check=False, capture_output=True, timeout=allow(300)
    ).returncode:
        pytest.skip(f"onnxruntime {OLDER} cannot be had here")
    path = os.pathsep.join(filter(None, [str(older), os.environ.get("PYTHONPATH")]))
    narrowdown = command({**environment(tmp_path), "PYTHONPATH": path}, tmp_path)
    found = narrowdown("replay", place, "--keep-going", "--json").json()
    engine, reference = found["engines"]
    assert (engine["role"], reference["role"]) == ("engine", "reference")
    for each in (engine, reference):
        assert each["now"]["version"] == OLDER
        assert each["recorded"]["version"] not in ("", OLDER)
        assert each["recorded"]["fingerprint"] != each["now"]["fingerprint"]
    printed = narrowdown("replay", place, "--keep-going").out
    assert f"{engine['recorded']['version']} recorded, {OLDER} now" in printed.splitlines()[0]
