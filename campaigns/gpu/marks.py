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
from typing import Any


def build(model: str, inputs: str, names: list[str]) -> str:
    """ "ok", or what was said, in this process."""
    import numpy as np
    import tensorrt as trt

    said: list[str] = []

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, text: str) -> None:
            if severity <= trt.Severity.ERROR:
                said.append(text[:200])

    logger = Log()
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(model):
        return f"parser: {parser.get_error(0).desc()[:200]}"
    tensors = {
        layer.get_output(k).name: layer.get_output(k)
        for layer in (network.get_layer(i) for i in range(network.num_layers))
        for k in range(layer.num_outputs)
    }
    missing = [name for name in names if name not in tensors]
    if missing:
        return f"no such tensor: {missing[0]}"
    for name in names:
        network.mark_output(tensors[name])
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.INT8)
    config.builder_optimization_level = 1
    profile, feeds = builder.create_optimization_profile(), np.load(inputs)
    for i in range(network.num_inputs):
        shape = feeds[network.get_input(i).name].shape
        profile.set_shape(network.get_input(i).name, shape, shape, shape)
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    return "ok" if plan is not None else f"refused: {said[-1] if said else ''}"


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
        print(json.dumps(build(given.model, given.inputs, json.loads(given.only))))
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
        plain = [name for name in inner if not made[name].op_type.endswith("Linear")]
        groups = {"all that built alone": good, "but pairs": plain}
        for label, said in zip(groups, pool.map(ask, groups.values()), strict=True):
            row = {"set": label, "count": len(groups[label]), "said": said}
            rows.write(json.dumps(row) + "\n")
            print(label, len(groups[label]), said)


if __name__ == "__main__":
    main()
