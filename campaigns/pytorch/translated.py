"""Three faults of the translation, searched with PyTorch as the reference: the smallest part, and what
its check.py says with the fault and without it.

    python campaigns/pytorch/translated.py --torch-python PATH [--home DIR]

The exported program is right, and one node of the ONNX model is not. The session must end with exit code
14 and the node; check.py must end with 1, and with 0 once the node of the case is mended.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from campaigns.pytorch.campaign import make_home

MODELS = Path(__file__).with_name("mistranslated.py")
NARROWDOWN = Path(sys.executable).with_name("narrowdown")


def set_float(name: str, value: float) -> Callable[[Any], None]:
    def mend(graph: Any) -> None:
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.name == name:
                    attribute.f = value

    return mend


def divide_scalar(graph: Any) -> None:
    for weight in graph.initializer:
        array = numpy_helper.to_array(weight)
        if array.size == 1:
            weight.CopyFrom(numpy_helper.from_array(array / np.float32(1.3), weight.name))


# Name -> (nodes of the case, what mends them).
PLANTED = {
    "epsilon": ("node_layer_norm_3", set_float("epsilon", 1e-5)),
    "slope": ("node_leaky_relu_1", set_float("alpha", 0.05)),
    "scale": ("node_mul_7", divide_scalar),
}


def check(case: Path) -> int:
    words = [sys.executable, "check.py"]
    return subprocess.run(words, cwd=case, check=False, capture_output=True).returncode


def main() -> int:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--torch-python", default=os.environ.get("NARROWDOWN_TORCH_PYTHON", ""))
    made.add_argument("--home", help="a folder that keeps the sessions")
    words = made.parse_args()
    home, wrong = make_home(made, words.home), 0
    print(
        "| fault | exit code | node | right | check.py | once mended |",
        "|---|---|---|---|---|---|",
        sep="\n",
    )
    for name, (node, mend) in PLANTED.items():
        place = home / name
        command = ["run", f"{MODELS}:{name}", "--torch-python", words.torch_python]
        command += ["--reference", "torch", "--engine", "onnxruntime", "--session", str(place)]
        done = subprocess.run([str(NARROWDOWN), *command], check=False, capture_output=True)
        with_it, mended = check(place / "case"), home / f"{name}-mended"
        shutil.copytree(place / "case", mended)
        for file in ("model.onnx", "engine.onnx"):
            model = onnx.load(mended / file)
            mend(model.graph)
            onnx.save(model, mended / file)
        without, nodes = (
            check(mended),
            [n.name for n in onnx.load(place / "case" / "model.onnx").graph.node],
        )
        right = (done.returncode, nodes, with_it, without) == (14, [node], 1, 0)
        wrong += not right
        print(
            f"| {name} | {done.returncode} | {', '.join(nodes)} | {right} | {with_it} | {without} |",
            flush=True,
        )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
