"""The telemetry clients of ONNX Runtime and OpenVINO write below the home folder as they load: not
in our processes."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from narrowdown.wizard.demo import MODELS

from ..patience import allow
from .conftest import SCRIPT, Walk


def left_at_home(
    line: list[str | Path], home: Path, surroundings: dict[str, str]
) -> tuple[int, list[str]]:
    """The exit code, and the files below a home folder that was empty."""
    home.mkdir()
    given = {
        name: value
        for name, value in surroundings.items()
        if name not in ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    }
    ran = subprocess.run(
        list(map(str, line)),
        env={**given, "HOME": str(home)},
        cwd="/",
        capture_output=True,
        timeout=allow(120),
        check=False,
    )
    return ran.returncode, [
        str(path.relative_to(home))
        for path in home.rglob("*")
        if {"Microsoft", "intel"} & {*path.parts}
    ]


@pytest.mark.parametrize(
    "engine", ["openvino", pytest.param("onnxruntime", marks=pytest.mark.slow)]
)
def test_a_session_tells_nobody(surroundings: dict[str, str], tmp_path: Path, engine: str) -> None:
    if find_spec(engine) is None:
        pytest.skip("it is not installed")
    words = ["step", "compare", MODELS / "shapes_cnn.onnx", "--display", "none", "--engine", engine]
    code, left = left_at_home([SCRIPT, *words], tmp_path / "home", surroundings)
    assert (code in (0, 10), left) == (True, [])  # 10: it fails there


def test_nor_does_the_check_of_a_bundle(walk: Walk, tmp_path: Path) -> None:
    walked = walk(MODELS / "shapes_cnn.onnx", "--inputs", MODELS / "shapes_cnn_in.npz")
    line = [sys.executable, "-P", walked.folder / "case" / "check.py"]
    assert left_at_home(line, tmp_path / "home", dict(os.environ)) == (1, [])
