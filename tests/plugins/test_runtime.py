"""A runtime of one's own, with no package: the program of docs/write-an-engine.md finds its wrong
Tanh."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from ..docs.shown import of
from ..e2e.conftest import command, environment
from .test_engine import ROOT, model, python

TOY = Path(__file__).with_name("toy")
PAGE = ROOT / "docs" / "write-an-engine.md"
MENDED = "np.tanh(x.astype(np.float32)).astype(x.dtype)"


def test_the_page_shows_the_program() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("\n## A package\n")[0]
    shown = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert shown == [(TOY / name).read_text(encoding="utf-8") for name in ("toy.py", "run_toy.py")]
    assert shown[1].count("\n") < 25, "a wrapper of some 20 lines"


@pytest.mark.slow  # some hundred runs, each of which starts a Python
@pytest.mark.timeout(900)
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    """The whole route, the case where there is no Narrowdown, the mended runtime, and a replay."""
    model(tmp_path / "net.onnx", 16, 2.0)
    for file in TOY.glob("*.py"):
        shutil.copy(file, tmp_path)
    env = environment(tmp_path)
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    env.pop("PYTHONSAFEPATH")  # a script of the user's finds what lies beside it
    narrowdown = command(env, tmp_path)
    (shown,) = of("a runtime")
    ran = narrowdown(*shown.words[1:], "--session", tmp_path / "s")
    assert ran.code == 0, ran.err
    assert "1 of 5 nodes fails: squash (overflow)" in ran.out
    assert "workaround (precision): keep 1 node in higher precision: squash" in ran.out
    assert (
        "worked-around.onnx (your model with 1 node in FP32), loaded and run: right on"
        in " ".join(ran.out.split())
    )
    assert "paste this first (your program)" in ran.out
    (line,) = (
        line for line in ran.out.splitlines() if "worked-around.onnx inputs.npz outputs.npz" in line
    )
    assert line.split()[:2] == ["python", "run_toy.py"]
    alone = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "s/case", alone)
    lacking = python("-P", alone / "check.py", env=env, folder=alone)
    assert (lacking.returncode, "put it beside" in lacking.stdout) == (2, True), lacking.stdout
    for file in TOY.glob("*.py"):
        shutil.copy(file, alone)
    assert python("-P", alone / "check.py", env=env, folder=Path("/")).returncode == 1
    for place in (alone, tmp_path):
        text = (place / "toy.py").read_text()
        (place / "toy.py").write_text(
            text.replace("((power - 1) / (power + 1),)", f"({MENDED},)").replace('"0.3"', '"0.4"')
        )
    mended = python("-P", alone / "check.py", env=env, folder=Path("/"))
    assert mended.returncode == 0, mended.stdout
    assert "on python 0.4" in mended.stdout
    asked = narrowdown("replay", "s")
    assert asked.code == 3, "the script is another one now"
    assert "version command" in asked.err
    narrowdown(
        "run", "net.onnx", *shown.words[3:], "--session", tmp_path / "t"
    )  # typed again: agreed to
    again = narrowdown("replay", "s", "--expect", "fixed")
    assert again.code == 0, again.out + again.err
