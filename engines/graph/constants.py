"""Constant nodes as weights, which no search need ask about."""

from collections.abc import Mapping

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

from narrowdown.engines.graph import protos, schema


def lift_constants(graph: GraphProto) -> int:
    """Turn Constant nodes into initializers; sparse ones and those that are themselves outputs of
    the graph stay nodes."""
    final = {o.name for o in graph.output}
    kept: list[NodeProto] = []
    lifted = 0
    for node in graph.node:
        tensor = None if final.intersection(node.output) else weight_of(node)
        if tensor is None:
            kept.append(node)
        else:
            graph.initializer.append(tensor)
            lifted += 1
    protos.refill(graph.node, kept)
    return lifted


# Attributes of a Constant node -> the numpy type of the weight that it is.
_DTYPES: Mapping[str, type[np.generic] | type[np.object_]] = {
    "value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64,
    "value_string": np.object_, "value_strings": np.object_,
}  # fmt: skip


def weight_of(node: NodeProto) -> TensorProto | None:
    """The weight, named as its output, that a Constant node is; None for a sparse one, for one
    without a value, and for every other node."""
    if node.op_type != "Constant" or schema.domain_of(node) or not node.output:
        return None
    for a in node.attribute:
        tensor = TensorProto()
        if a.name == "value" and a.type == AttributeProto.TENSOR:
            tensor.CopyFrom(a.t)
        elif a.name in _DTYPES:
            value = np.array(helper.get_attribute_value(a), _DTYPES[a.name])
            tensor = numpy_helper.from_array(value)
        else:
            continue
        tensor.name = node.output[0]
        return tensor
    return None
