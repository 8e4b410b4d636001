"""Sessions of every format that was released: later versions open them, decide the same from them,
and hand them on.

``tests/sessions/format-N.zip`` is a real session without what is made again (captures, logs,
models, inputs), beside what ``show --canonical`` said of it. One is added for each format; none is
ever changed.
"""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from narrowdown.wizard.session.folder import FORMAT

from .conftest import check

SESSIONS = Path(__file__).parents[1] / "sessions"


@pytest.fixture(params=sorted(path.stem for path in SESSIONS.glob("format-*.zip")))
def released(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with zipfile.ZipFile(SESSIONS / f"{request.param}.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path


def test_the_present_format_has_one() -> None:
    assert (SESSIONS / f"format-{FORMAT}.zip").is_file()


def test_it_opens_and_says_the_same(narrowdown, released: Path) -> None:
    session = released / "session"
    assert (
        narrowdown("show", session, "--canonical").out == (released / "canonical.txt").read_text()
    )
    assert "worked-around" in narrowdown("report", session, "--format", "md").out
    found = json.loads(narrowdown("report", session, "--format", "json").out)
    assert (found["verdict"], found["nodes"]) == ("worked-around", ["/sum"])
    assert narrowdown("resume", session, "--display", "none").code == 0, (
        "it has ended, and stays so"
    )


def test_every_decision_can_be_derived_again(narrowdown, released: Path) -> None:
    """A step that has changed since may word its outcome anew; what it asks and what it decides is
    in the journal."""
    ran = narrowdown("replay", released / "session", "--dry", "--keep-going")
    assert ran.code in (0, 5), ran.err
    for lost in (
        "asks what the journal does not hold",
        "a file of the session is missing",
        "the step fails",
        "refused:",
    ):
        assert lost not in ran.out


def test_its_case_is_handed_on_and_still_fails(narrowdown, released: Path) -> None:
    assert narrowdown("export", released / "session", "-o", released / "case").code == 0
    still = check(released / "case")
    assert still.returncode == 1, still.stdout + still.stderr


def test_its_case_without_the_weights(narrowdown, released: Path) -> None:
    ran = narrowdown(
        "export", released / "session", "-o", released / "case.zip", "--weights", "random"
    )
    assert (ran.code, "holds no weights" in ran.out) == (0, True), ran.err
    ran = narrowdown("export", released / "session", "-o", released / "case", "--weights", "none")
    assert (ran.code, "holds no weights" in ran.out) == (0, True), ran.err


@pytest.mark.slow
def test_polygraphy_takes_the_commands_of_its_case(narrowdown, released: Path) -> None:
    pytest.importorskip("polygraphy")
    assert narrowdown("export", released / "session", "-o", released / "case").code == 0
    (line,) = [
        x for x in (released / "case/commands.sh").read_text().splitlines() if "--onnxrt" in x
    ]
    place = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["sh", "-c", line],
        cwd=released / "case",
        env={**os.environ, "PATH": place},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Accuracy Summary" in ran.stdout + ran.stderr, (
        "it read the model, the inputs and the expected values"
    )
    assert (ran.returncode, "FAILED" in ran.stdout + ran.stderr) == (1, True), (
        "and found what is wrong"
    )
