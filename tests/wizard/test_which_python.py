"""A Python that is too old or too new is refused in one line, by the program and by its set-up."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def played(version: tuple[int, int]) -> subprocess.CompletedProcess[str]:
    """The program read by a Python that says that it is this one."""
    code = f"import sys; sys.version_info = ({version[0]}, {version[1]}, 0, 'final', 0); import narrowdown.wizard"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )


def test_it_takes_those_that_the_package_names_and_no_other() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest, below = (int(minor) for minor in re.findall(r"3\.(\d+)", project["requires-python"]))
    named = [int(m) for m in re.findall(r"Python :: 3\.(\d+)", " ".join(project["classifiers"]))]
    assert named == list(range(oldest, below))
    taken = {
        minor: played((3, minor)).returncode for minor in (oldest - 1, oldest, below - 1, below)
    }
    assert list(taken.values()) == [1, 0, 0, 1]


@pytest.mark.parametrize("version", [(3, 10), (3, 15)])
def test_the_program_says_which_python_it_takes(version: tuple[int, int]) -> None:
    """Played by a number: a real 3.10 said the same."""
    ran = played(version)
    assert ran.returncode == 1
    assert ran.stderr.startswith(
        f"narrowdown: this is Python {version[0]}.{version[1]}, and 3.11 to 3.14 is needed"
    )
    assert ran.stderr.count("\n") == 1


def test_the_set_up_says_so_before_anything_is_made(tmp_path: Path) -> None:
    for name in (
        "python3",
        "python3.14",
        "python3.13",
        "python3.12",
        "python3.11",
        "python",
    ):  # which is another one, whatever its name
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "dirname").symlink_to("/usr/bin/dirname")
    ran = subprocess.run(
        ["/bin/sh", ROOT / ".ci" / "setup", "demo", tmp_path / "venv"],
        capture_output=True, text=True, check=False, env={**os.environ, "PATH": str(tmp_path)},
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("No Python 3.11 to 3.14 was found")
    assert not (tmp_path / "venv").exists()
