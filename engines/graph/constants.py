"""Constant nodes as weights, which no search need ask about."""

from copy import deepcopy

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

from narrowdown.engines.graph import schema


def lift_constants(graph: GraphProto) -> int:
    """Turn Constant nodes into initializers; sparse ones and those that are themselves outputs of
    the graph stay nodes."""
    final = {o.name for o in graph.output}
    kept: list[NodeProto] = []
    lifted = 0
    for node in graph.node:
        tensor = None
        if (
            node.op_type == "Constant"
            and schema.domain_of(node) == ""
            and node.output
            and node.output[0] not in final
        ):
            tensor = weight_of_constant(node)
        if tensor is None:
            kept.append(node)
        else:
            graph.initializer.append(tensor)
            lifted += 1
    if lifted:
        copies = [deepcopy(node) for node in kept]
        del graph.node[:]
        graph.node.extend(copies)
    return lifted


def weight_of_constant(node: NodeProto) -> TensorProto | None:
    """The weight, named as its output, that a Constant node is; None for a sparse one, and for one
    without a value."""
    tensor = TensorProto()
    for a in node.attribute:
        if a.name == "value" and a.type == AttributeProto.TENSOR:
            tensor.CopyFrom(a.t)
        elif a.name == "value_float":
            tensor = numpy_helper.from_array(np.array(a.f, np.float32))
        elif a.name == "value_floats":
            tensor = numpy_helper.from_array(np.array(a.floats, np.float32))
        elif a.name == "value_int":
            tensor = numpy_helper.from_array(np.array(a.i, np.int64))
        elif a.name == "value_ints":
            tensor = numpy_helper.from_array(np.array(a.ints, np.int64))
        elif a.name == "value_string":
            tensor = helper.make_tensor("", TensorProto.STRING, (), [a.s])
        elif a.name == "value_strings":
            tensor = helper.make_tensor("", TensorProto.STRING, (len(a.strings),), list(a.strings))
        else:
            continue
        tensor.name = node.output[0]
        return tensor
    return None
