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
def test_the_page_does_what_it_says(
    shapes: tuple[Path, Path], surroundings: dict[str, str], tmp_path: Path
) -> None:
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
    """Beside the loop over the cases, which is run below, it installs what ``check.py`` needs for
    ONNX Runtime."""
    workflow = yaml.safe_load((DOCS / "ci-workflow.yml").read_text())
    assert set(workflow) == {"name", True, "jobs"}, (
        "YAML 1.1 reads the word on as true, and GitHub knows that"
    )
    assert set(workflow[True]) == {"pull_request", "schedule"}
    (job,) = workflow["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert len(commands) == 2
    assert commands[0].split() == ["python", "-m", "pip", "install", "numpy", "onnxruntime"]
    assert {step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step} == {
        "actions/checkout",
        "actions/setup-python",
    }


def every_case(surroundings: dict[str, str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """The workflow's own step, as GitHub runs it."""
    steps = yaml.safe_load((DOCS / "ci-workflow.yml").read_text())["jobs"]["cases"]["steps"]
    (step,) = [s for s in steps if "name" in s]
    path = f"{Path(sys.executable).parent}{os.pathsep}{surroundings['PATH']}"
    words = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
    return subprocess.run(
        words,
        cwd=folder,
        env={**surroundings, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("found", "known", "code"),
    [
        ({}, "", 0),
        ({"a": 0, "b c": 0}, "", 0),
        ({"a": 1}, "bugs/a/check.py\n", 0),
        ({"a": 1}, "", 1),
        ({"a": 1}, "bugs/ab/check.py\n", 1),
        ({"a": 0}, "bugs/a/check.py\n", 1),
        ({"a": 2}, "", 2),
        ({"a": 2}, "bugs/a/check.py\n", 2),
        ({"a": 2, "b": 1}, "", 1),
        ({"a": 0, "a/culprit-2": 1}, "", 1),
        ({"a": 0, "a/culprit-2": 1}, "bugs/a/culprit-2/check.py\n", 0),
        ({"a": 127}, "", 2),
    ],
)
def test_the_workflow_is_green_as_long_as_all_is_as_expected(
    found: dict[str, int], known: str, code: int, surroundings: dict[str, str], tmp_path: Path
) -> None:
    for name, status in found.items():
        (tmp_path / "bugs" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "bugs" / name / "check.py").write_text(
            f"print('ran'); raise SystemExit({status})\n"
        )
    if known:
        (tmp_path / "bugs/known").write_text(known)
    done = every_case(surroundings, tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stdout.count("ran") == len(found), "every culprit's check"
    (tmp_path / "bugs").mkdir(exist_ok=True)
    assert every_case(surroundings, tmp_path).returncode == code


def test_the_workflow_sees_a_real_case_fail_and_mended(
    narrowdown, surroundings: dict[str, str], tmp_path: Path
) -> None:
    with zipfile.ZipFile(ROOT / "tests/sessions/format-1.zip") as archive:
        archive.extractall(tmp_path)
    case = tmp_path / "bugs" / "norm"
    assert narrowdown("export", tmp_path / "session", "-o", case).code == 0
    still = every_case(surroundings, tmp_path)
    assert still.returncode == 1
    assert "The fault is still there: /sum" in still.stdout, still.stdout + still.stderr
    (tmp_path / "bugs/known").write_text("bugs/norm/check.py\n")
    assert every_case(surroundings, tmp_path).returncode == 0
    # The engine's own arithmetic in place of the rounding one: the fault is gone.
    (case / "engine.onnx").write_bytes((case / "model.onnx").read_bytes())
    gone = every_case(surroundings, tmp_path)
    assert gone.returncode == 1
    assert "The fault is gone" in gone.stdout
    (tmp_path / "bugs/known").write_text("")
    assert every_case(surroundings, tmp_path).returncode == 0
