"""The INT8 demo: a small network whose channels were scaled apart, and the Q/DQ model that
per-tensor scales make of it.

``python -P -m narrowdown.engines.demos.scaled_apart MODEL.onnx INPUTS.npz FLOAT.onnx INT8.onnx``.
Some convolutions' output channels are multiplied by 1 to 1000, what reads them is divided by the
same: in float nothing changes but the last digits, while a scale that is one for the whole tensor
leaves the small channels no steps. Deterministic: the same files in, the same models out.
"""

import contextlib
import io
import json
import logging
import sys
import tempfile
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper

from narrowdown.engines.array import Array

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


def quantize(
    model: ModelProto,
    feeds: Mapping[str, Array],
    *,
    per_channel: bool = False,
    operators: bool = False,
    **more: Any,
) -> ModelProto:
    """ONNX Runtime's own static quantization: INT8 weights with one scale for each tensor
    (``per_channel``: for each output channel), activations in UINT8 with ranges seen on ``feeds``.
    ``operators``: QLinearConv and its like in place of Q/DQ pairs. ``more`` goes to
    ``onnxruntime.quantization.quantize_static``."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    said, left = io.StringIO(), iter([feeds])
    calibration = SimpleNamespace(get_next=lambda: next(left, None))
    logging.getLogger().setLevel(
        logging.ERROR
    )  # it asks for a preprocessing that this model does not need
    with (
        tempfile.TemporaryDirectory(prefix="narrowdown-") as folder,
        contextlib.redirect_stdout(said),
    ):
        source, target = Path(folder) / "float.onnx", Path(folder) / "quantized.onnx"
        onnx.save(model, str(source))
        chosen = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, **more}
        quantize_static(
            str(source), str(target), calibration, per_channel=per_channel,
            quant_format=QuantFormat.QOperator if operators else QuantFormat.QDQ, **chosen,
        )  # fmt: skip
        return onnx.load(str(target))


def main(words: list[str]) -> int:
    """Write both models and print their sizes as JSON."""
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
