"""Which inner tensors of a quantized network TensorRT builds as outputs, each alone, then together:

    python campaigns/gpu/marks.py MODEL.onnx IN.npz --out FILE [--at-once 6] [--seconds 200]

One JSON line a build: the tensor, the operator that makes it, what reads it, and what became of it.
"""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from campaigns.gpu.build import build


def try_marks(model: str, inputs: str, names: list[str]) -> str:
    """ "ok", or what was said, in this process."""
    try:
        built = build(Path(model).read_bytes(), dict(np.load(inputs)), "int81", marked=names)
    except KeyError as missing:
        return f"no such tensor: {missing}"
    return "ok" if built.plan is not None else f"refused: {built.said[-1] if built.said else ''}"


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("model")
    reader.add_argument("inputs")
    reader.add_argument("--out", type=Path, required=True)
    reader.add_argument("--at-once", type=int, default=6)
    reader.add_argument("--seconds", type=float, default=200)
    reader.add_argument("--only")
    given = reader.parse_args()
    if given.only is not None:
        print(json.dumps(try_marks(given.model, given.inputs, json.loads(given.only))))
        return
    import onnx

    graph = onnx.load(given.model).graph
    made = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[str]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node.op_type)
    end = time.monotonic() + given.seconds

    def ask(names: list[str]) -> str:
        if time.monotonic() > end:
            return "not asked"
        words = [sys.executable, __file__, given.model, given.inputs, "--out", "-", "--only", json.dumps(names)]  # fmt: skip
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        try:
            return str(json.loads(done.stdout.splitlines()[-1]))
        except (ValueError, IndexError):
            return f"exit {done.returncode}"

    outputs = {o.name for o in graph.output}
    inner = [name for name in made if name not in outputs]
    with ThreadPoolExecutor(given.at_once) as pool, given.out.open("a") as rows:
        answers = dict(zip(inner, pool.map(lambda name: ask([name]), inner), strict=True))
        for name, said in answers.items():
            op, read_by = made[name].op_type, readers.get(name)
            row = {"tensor": name, "op": op, "read by": read_by, "said": said}
            rows.write(json.dumps(row) + "\n")
        good = [name for name, said in answers.items() if said == "ok"]
        codes = [n for n in inner if made[n].op_type == "QuantizeLinear"]
        backs = [n for n in inner if made[n].op_type == "DequantizeLinear"]
        groups = {
            "all that built alone": good,
            "but pairs": [n for n in inner if n not in codes and n not in backs],
            "all but codes": [n for n in inner if n not in codes],
            "all codes": codes,
            "what pairs give": backs,
            **{f"pair {n}": [made[n].input[0], n] for n in backs if made[n].input[0] in made},
            **{
                f"{n} and its reader": [n, o]
                for n in inner
                for o in inner
                if n in made[o].input and made[o].op_type != "DequantizeLinear"
            },
        }
        for label, said in zip(groups, pool.map(ask, groups.values()), strict=True):
            row = {"set": label, "count": len(groups[label]), "said": said}
            rows.write(json.dumps(row) + "\n")
            print(label, len(groups[label]), said)


if __name__ == "__main__":
    main()
