"""The INT8 demo: a small network whose channels were scaled apart, and the Q/DQ model that
per-tensor scales make of it.

``python -P -m narrowdown.engines.demos.scaled_apart MODEL.onnx INPUTS.npz FLOAT.onnx INT8.onnx``.
Some convolutions' output channels are multiplied by 1 to 1000, what reads them is divided by the
same: in float nothing changes but the last digits, while a scale that is one for the whole tensor
leaves the small channels no steps. Deterministic: the same files in, the same models out.
"""

import json
import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper

from narrowdown.engines.array import Array
from narrowdown.engines.backends.onnxruntime.quantizer import quantize

# One stream of shapes_cnn between two activations: it is written by the first two and read by the
# last two; all of it is linear.
WRITERS = ("/b/b.1/f/f.6/Conv", "/b/b.2/f/f.6/Conv")
READERS = ("/b/b.2/f/f.0/Conv", "/b/b.3/f/f.0/Conv")
SPREAD = 1000.0


def scale_apart(model: ModelProto) -> ModelProto:
    """A copy that computes the same: output channels of the convolutions ``WRITERS`` times 1 to
    ``SPREAD``, input channels of ``READERS`` divided by it. Constant nodes become weights. Raises
    ``KeyError`` for a node that is not there."""
    result = deepcopy(model)
    graph = result.graph
    for node in [n for n in graph.node if n.op_type == "Constant"]:
        value = next(a.t for a in node.attribute if a.name == "value")
        value.name = node.output[0]
        graph.initializer.append(value)
        graph.node.remove(node)
    nodes = {n.name: n for n in graph.node}
    weights = {t.name: t for t in graph.initializer}

    def change(name: str, factor: Array) -> None:
        weights[name].CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(weights[name]) * factor, name)
        )

    channels = weights[nodes[WRITERS[0]].input[1]].dims[0]
    factor = np.geomspace(1.0, SPREAD, channels).astype(np.float32)
    for name in WRITERS:
        change(nodes[name].input[1], factor.reshape(-1, 1, 1, 1))
        change(nodes[name].input[2], factor)
    for name in READERS:
        change(nodes[name].input[1], 1 / factor.reshape(1, -1, 1, 1))
    return result


def main(words: list[str]) -> int:
    source, inputs, floats, quantized = map(Path, words)
    apart = scale_apart(onnx.load(str(source)))
    with np.load(inputs, allow_pickle=False) as archive:
        feeds = {name: archive[name] for name in archive.files}
    onnx.save(apart, str(floats))
    onnx.save(quantize(apart, feeds), str(quantized))
    print(json.dumps({"float": floats.stat().st_size, "quantized": quantized.stat().st_size}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
