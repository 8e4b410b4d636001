"""A workaround in the words of NVIDIA ModelOpt AutoCast, by the real tool."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from narrowdown.engines.declaration import Cure
from narrowdown.wizard.demo import MODELS
from tests.engines.test_apply import recipes


@pytest.mark.slow
@pytest.mark.timeout(3000)  # it brings PyTorch along
def test_autocast_keeps_them(tmp_path: Path) -> None:
    """The real tool, in an environment of its own, as its line is printed."""
    from onnx.reference import ReferenceEvaluator

    subprocess.run([sys.executable, "-m", "venv", tmp_path / "v"], check=True)
    pip = subprocess.run(
        [tmp_path / "v/bin/python", "-m", "pip", "install", "-q", "nvidia-modelopt[onnx]"],
        check=False,
    )
    if pip.returncode:
        pytest.skip("ModelOpt cannot be installed here")
    given = MODELS / "sort_tf_massive_m4.onnx"
    norms = re.compile(r"/l\d?/(Pow|ReduceMean_1|Add|Sqrt)$")
    kept = tuple(n.name for n in onnx.load(given).graph.node if norms.search(n.name))
    shutil.copy(given, tmp_path / "model.onnx")
    told = recipes("emulate:precision=fp16", Cure(keep=kept))
    line = next(r.text for tool, r in told.items() if "AutoCast" in tool)
    words = [str(tmp_path / "v/bin/python"), *shlex.split(line)[1:]]
    feeds = {
        name: value[:2] for name, value in np.load(MODELS / "sort_tf_massive_m4_in.npz").items()
    }
    right = onnxruntime.InferenceSession(str(given)).run(None, feeds)[0]

    def error(words: list[str]) -> float:
        """Of the file that it writes, computed literally in the types that it states."""
        subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
        made = np.asarray(
            ReferenceEvaluator(str(tmp_path / "converted.onnx")).run(None, feeds)[0], np.float64
        )
        return float(np.linalg.norm(made - right) / np.linalg.norm(right))

    assert error(words) < 0.01
    # Its own guards keep what goes beyond as well; without them the names alone must do it.
    off = ["--data_max", "1e30", "--init_max", "1e30"]
    assert error([*words, *off]) < 0.02
    bare = words[: words.index("--nodes_to_exclude")]
    assert not error([*bare, *off]) < 0.5, "with none kept it is wrong"
