"""Observed tensors as graph outputs: the only way to see inside, for engines that take ONNX as it
is."""

from collections.abc import Sequence
from copy import deepcopy

import onnx


def with_outputs(model: onnx.ModelProto, marks: Sequence[str]) -> onnx.ModelProto:
    """The model with ``marks`` among its outputs; the same object where they are already."""
    present = {o.name for o in model.graph.output}
    lacking = [name for name in dict.fromkeys(marks) if name not in present]
    if not lacking:
        return model
    copy = deepcopy(model)
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in lacking)
    return copy
