"""The pages that tell how something is added, performed as they are written, in a copy of the
project."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import narrowdown
from narrowdown import engines, flows, wizard
from narrowdown.wizard.demo import MODELS

from .shown import of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "add-a-metric-or-a-cause.md"
INSERTED = re.compile(
    r"^In `(?P<file>[^`]+)`, (?P<where>above|below) `(?P<line>[^`]+)`:\n\n```python\n(?P<text>.*?)```$",
    re.M | re.S,
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the packages, as installed, and of their tests; with what is compiled, or each
    program compiles it again."""
    for package in (wizard, engines, flows):
        there = Path(str(package.__path__[0]))
        shutil.copytree(there, tmp_path / there.name)
        (tmp_path / "narrowdown").mkdir(exist_ok=True)
        (tmp_path / "narrowdown" / there.name).symlink_to(tmp_path / there.name)
    for name in ("__init__.py", "__main__.py"):
        shutil.copy(Path(str(narrowdown.__path__[0])) / name, tmp_path / "narrowdown")
    shutil.copytree(
        ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copytree(
        ROOT / "campaigns",
        tmp_path / "campaigns",
        ignore=lambda folder, names: [n for n in names if not n.endswith(".md")],
    )
    return tmp_path


def perform(title: str, root: Path) -> int:
    """Make every insertion of that section; how many there were."""
    section = PAGE.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    insertions = list(INSERTED.finditer(section))
    for insertion in insertions:
        path = root / insertion["file"]
        lines = path.read_text(encoding="utf-8").split("\n")
        # The page shows the beginning of a line: what follows it, a comment or so, is of no
        # interest there.
        places = [n for n, line in enumerate(lines) if line.startswith(insertion["line"])]
        assert len(places) == 1, (
            f"{title}: {insertion['line']!r} is there {len(places)} times in {insertion['file']}"
        )
        at = places[0] + (insertion["where"] == "below")
        lines[at:at] = insertion["text"].removesuffix("\n").split("\n")
        path.write_text("\n".join(lines), encoding="utf-8")
    return len(insertions)


def python(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, "PYTHONPATH": str(root), "NARROWDOWN_HOME": str(root / "home")}
    return subprocess.run(
        [sys.executable, "-P", *words],
        cwd=root,
        env=surroundings,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("title", ["Add a metric", "Add a cause"])
def test_what_a_page_adds_fits_the_code_of_today(copy: Path, title: str) -> None:
    """Its places are there, and no name that it uses is gone: both are noticed at once, and not by
    the slow tests alone."""
    assert perform(title, copy) > 3
    undefined = python(
        copy,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--no-cache",
        "--select",
        "F821",
        "engines",
        "tests/engines",
    )
    assert undefined.returncode == 0, undefined.stdout


@pytest.mark.slow
def test_a_metric_is_added_as_its_page_says(copy: Path) -> None:
    (shown,) = of("metric")
    for file in ("shapes_cnn.onnx", "shapes_cnn_in.npz"):
        shutil.copy(MODELS / file, copy)
    command = ["-m", "narrowdown", *shown.words[1:]]
    before = python(copy, *command)
    assert (before.returncode, "'mean_abs' is not a metric" in before.stderr) == (2, True)
    assert perform("Add a metric", copy) == 5
    strict = [*command[: command.index("--tolerance") + 1], "1e-9", "--json"]
    passing, failing = python(copy, *command), python(copy, *strict)
    assert (passing.returncode, failing.returncode) == (10, 0), passing.stderr + failing.stderr
    said = json.loads(failing.stdout)
    scores = [score for sample in said["samples"] for score in sample["outputs"]]
    assert any(score["mean_abs"] > 0 for score in scores), "the number is in the JSON"
    assert all(score["mean_abs"] <= score["max_abs"] for score in scores)


@pytest.mark.slow
def test_a_cause_is_added_as_its_page_says(copy: Path) -> None:
    (shown,) = of("cause")
    suite = [
        *shown.words[1:3],
        "-q",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        *shown.words[3:],
    ]
    assert perform("Add a cause", copy) == 4
    named = python(copy, *suite, "-k", "cause_is_named and never")
    assert re.search(r"\b1 passed", named.stdout), named.stdout
    tables = python(copy, *suite, "-k", "document")
    assert "2 failed" in tables.stdout, "the tables ask for the new rows"
    rules = python(copy, *suite, "-k", "catalogue or card")
    assert re.search(r"\b[2-9] passed", rules.stdout), rules.stdout
