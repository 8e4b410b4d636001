"""Which inner tensors of a quantized network TensorRT builds as outputs, in sets and each alone:

    python campaigns/gpu/marks.py MODEL.onnx IN.npz --out FILE [--seconds 200]

One JSON line a build: the set, its tensors' number, and what became of it.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from campaigns.gpu.build import Server, build


def serve(model: Path, inputs: Path) -> None:
    """Build with the tensors that a line of standard input names; one line of answer."""
    source, feeds, timings = model.read_bytes(), dict(np.load(inputs)), b""
    for line in sys.stdin:
        built = build(source, feeds, "int1", marked=json.loads(line), timings=timings)
        timings = built.timings
        answer = {"built": built.plan is not None, "seconds": round(built.seconds, 1)}
        print(json.dumps(answer | {"said": built.said[-1:]}), flush=True)


def list_sets(model: Path) -> dict[str, list[str]]:
    """Sets by what a reader would watch: all, without codes, without what stands in the file; then
    all codes, then each node's outputs with what it reads, then each tensor alone."""
    import onnx

    graph = onnx.load(model).graph
    made = {name: node for node in graph.node for name in node.output}
    inner = [name for name in made if name not in {o.name for o in graph.output}]
    constant: set[str] = {i.name for i in graph.initializer}
    for node in graph.node:
        if all(name in constant for name in node.input if name):
            constant.update(node.output)
    codes = [n for n in inner if made[n].op_type == "QuantizeLinear"]
    backs = [n for n in inner if made[n].op_type == "DequantizeLinear"]
    moving = [n for n in inner if n not in constant]
    return {
        "all": inner,
        "no pair": [n for n in inner if n not in codes and n not in backs],
        "no codes": [n for n in inner if n not in codes],
        "no constants": moving,
        "no codes, no constants": [n for n in moving if n not in codes],
        "codes": codes,
        "codes of activations": [n for n in codes if n in moving],
        "codes of weights": [n for n in codes if n in constant],
        "values of codes": backs,
        "values of codes of weights": [n for n in backs if n in constant],
        **{f"around {n}": [*(i for i in made[n].input if i in made), n] for n in inner},
        **{f"alone {n}": [n] for n in inner},
    }


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("model", type=Path)
    reader.add_argument("inputs", type=Path)
    reader.add_argument("--out", type=Path)
    reader.add_argument("--seconds", type=float, default=200)
    given = reader.parse_args()
    if given.out is None:
        serve(given.model, given.inputs)
        return
    end = time.monotonic() + given.seconds
    words = [__file__, str(given.model), str(given.inputs)]
    server = Server(words, given.out.with_suffix(".log"))
    for label, names in list_sets(given.model).items():
        if time.monotonic() < end and len(set(names)) > ("around" in label):
            answer = server.ask(json.dumps(names), 120)
            with given.out.open("a") as rows:
                rows.write(json.dumps({"set": label, "tensors": len(names), **answer}) + "\n")


if __name__ == "__main__":
    main()
