"""docs/write-a-step.md, done as written in an environment that has only narrowdown."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from narrowdown.wizard.demo import MODELS

from ..docs.shown import of
from ..e2e.conftest import environment
from .conftest import TOY

ROOT = TOY.parents[2]
PAGE = ROOT / "docs" / "write-a-step.md"


def run(*words: str | Path, folder: Path, **surroundings: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env={**environment(folder), **surroundings},
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.slow
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    """Every file is written as it stands on the page, every command run as it stands there."""
    bin_ = tmp_path / "venv" / "bin"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    # A build of a copy: a wheel made in the checkout leaves a folder behind.
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns(".venv", ".git", "__pycache__", "tests", ".*_cache")
    shutil.copytree(ROOT, source, ignore=ignored)
    got = run(
        bin_ / "python",
        "-m",
        "pip",
        "install",
        "-q",
        "-c",
        ROOT / "constraints.txt",
        source,
        folder=tmp_path,
    )
    if got.returncode:
        pytest.skip(f"the packages cannot be had here: {got.stderr[-300:]}")
    text = PAGE.read_text(encoding="utf-8")
    package = tmp_path / "narrowdown-headroom"
    (package / "narrowdown_headroom").mkdir(parents=True)
    for name in (
        "pyproject.toml",
        "narrowdown_headroom/__init__.py",
        "narrowdown_headroom/room-first.yaml",
    ):
        (block,) = re.findall(
            rf"`narrowdown-headroom/{re.escape(name)}`[^`]*```\w+\n(.*?)```", text, re.DOTALL
        )
        (package / name).write_text(block, encoding="utf-8")
    shutil.copy(MODELS / "shapes_cnn.onnx", tmp_path / "model.onnx")
    path = f"{bin_}{os.pathsep}{os.environ['PATH']}"
    for command in of("a step"):
        if command.block:
            done = run("sh", "-c", command.line, folder=tmp_path, PATH=path)
            # 10: the flow ends as the model passes.
            assert done.returncode == (10 if "narrowdown run" in command.line else 0), (
                command.line,
                done.stderr,
            )
    assert "headroom" in run(bin_ / "narrowdown", "step", "--help", folder=tmp_path).stdout
    (test,) = re.findall(r"How to test it.*?```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "test_headroom.py").write_text(
        f"{test}\n\ntest_it_is_tight_near_the_largest_number()\n"
    )
    assert run(bin_ / "python", "test_headroom.py", folder=tmp_path).returncode == 0
