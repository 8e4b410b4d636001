"""A checker for both tools: runs a model on an engine and says where it is wrong, with exit status
1.

``checker.py fp16|onnxruntime MODEL [LAYERWISE.json]``: with captured values inputs and expected
outputs come from there, by name; without, inputs are random in [0, 1) and the reference runs on the
candidate itself (what Polygraphy does by default).
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from narrowdown.engines.data.polygraphy import read_inputs
from narrowdown.engines.graph.emulate import emulate_precision

TOLERANCE = {"fp16": 1e-2, "onnxruntime": 1e-3}  # relative L2


def session(model: onnx.ModelProto, level: ort.GraphOptimizationLevel) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level, options.intra_op_num_threads = level, 1
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def random(entry: onnx.ValueInfoProto) -> np.ndarray:
    kind = entry.type.tensor_type
    shape = [d.dim_value or 1 for d in kind.shape.dim]
    drawn = np.random.default_rng(1).random(shape)
    return drawn.astype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))


def main(engine: str, path: str, layerwise: str = "") -> int:
    model = onnx.load(path)
    captured = read_inputs(Path(layerwise))[0] if layerwise else {}
    fed = {i.name: captured[i.name] if layerwise else random(i) for i in model.graph.input}
    names = [o.name for o in model.graph.output]
    off, on = ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    expected = [captured[n] for n in names] if layerwise else session(model, off).run(None, fed)
    if engine == "fp16":
        stored = {
            n: a.astype(np.float16).astype(a.dtype) if a.dtype == np.float32 else a
            for n, a in fed.items()
        }
        actual = session(emulate_precision(model, "fp16", ()), off).run(None, stored)
    else:
        actual = session(model, on).run(None, fed)
    worst = 0.0
    for a, e in zip(actual, expected, strict=True):
        a, e = np.float64(a), np.float64(e)
        with np.errstate(all="ignore"):
            error = np.linalg.norm(a - e) / max(np.linalg.norm(e), 1e-30)
        worst = max(worst, error if np.isfinite(error) else np.inf)
    if worst > TOLERANCE[engine]:
        print(f"Difference exceeds tolerance: {worst}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
