"""The recipe of docs/ci.md and its workflow: their own commands, run as they stand."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.docs.shown import of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.mark.slow
def test_the_page_does_what_it_says(shapes: tuple[Path, Path], surroundings: dict[str, str], tmp_path: Path) -> None:
    model, inputs = shapes
    model.rename(tmp_path / "model.onnx")
    inputs.rename(tmp_path / "inputs.npz")
    path = f"{Path(sys.executable).parent}{os.pathsep}{surroundings['PATH']}"
    found = of("ci")
    assert len(found) == 8
    for command in found:
        done = subprocess.run(
            ["sh", "-c", command.line],
            cwd=tmp_path,
            env={**surroundings, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == command.exit, (command.line, done.stdout, done.stderr)


def test_the_workflow_runs_nothing_else() -> None:
    """Beside the loop over the cases, which is run below, it installs what ``check.py`` needs for ONNX Runtime."""
    workflow = yaml.safe_load((DOCS / "ci-workflow.yml").read_text())
    assert set(workflow) == {"name", True, "jobs"}, "YAML 1.1 reads the word on as true, and GitHub knows that"
    assert set(workflow[True]) == {"pull_request", "schedule"}
    (job,) = workflow["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert len(commands) == 2
    assert commands[0].split() == ["python", "-m", "pip", "install", "numpy", "onnxruntime"]
    assert {step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step} == {
        "actions/checkout",
        "actions/setup-python",
    }


def test_the_workflow_fails_while_a_case_does(inside, surroundings: dict[str, str], tmp_path: Path) -> None:
    with zipfile.ZipFile(ROOT / "tests/sessions/format-1.zip") as archive:
        archive.extractall(tmp_path)
    case = tmp_path / "bugs" / "norm"
    assert inside("export", tmp_path / "session", "-o", case).code == 0
    (step,) = [
        s for s in yaml.safe_load((DOCS / "ci-workflow.yml").read_text())["jobs"]["cases"]["steps"] if "name" in s
    ]
    path = f"{Path(sys.executable).parent}{os.pathsep}{surroundings['PATH']}"

    def run() -> subprocess.CompletedProcess[str]:
        words = ["bash", "-e", "-c", step["run"]]
        return subprocess.run(
            words, cwd=tmp_path, env={**surroundings, "PATH": path}, capture_output=True, text=True, check=False
        )

    still = run()
    assert (still.returncode, "The fault is still there: /sum" in still.stdout) == (1, True), (
        still.stdout + still.stderr
    )
    # The engine's own arithmetic in place of the rounding one: the fault is gone.
    (case / "engine.onnx").write_bytes((case / "model.onnx").read_bytes())
    gone = run()
    assert (gone.returncode, "The fault is gone" in gone.stdout) == (0, True), gone.stdout + gone.stderr
