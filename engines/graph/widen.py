"""A model in half precision as it was before: every FP16 and BF16 tensor is FP32, and weights may
be those of the original.

As all of them change, no cast is needed, and a cast that a converter put in does nothing any more.
Names stay.
"""

from collections.abc import Mapping
from copy import deepcopy

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, numpy_helper

from narrowdown.engines.graph import converted, external, names, schema

HALVES = frozenset({int(TensorProto.FLOAT16), int(TensorProto.BFLOAT16)})
_FLOAT = int(TensorProto.FLOAT)


def widen_halves(model: ModelProto, originals: Mapping[str, TensorProto]) -> ModelProto:
    """A copy with no half in it. ``originals``: by the name of a weight of the main graph what it
    was before. Raises ``ModelProblem`` where a weights file is damaged."""
    copy = deepcopy(model)
    for tensor in copy.graph.initializer:
        if (before := originals.get(tensor.name)) is not None:
            name = tensor.name
            tensor.CopyFrom(before)
            tensor.name = name
    _widen_graph(copy.graph)
    return copy


def _widen_graph(graph: GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        _widen_type(value.type)
    for node in graph.node:
        _widen_attributes(node)
        for body in names.bodies(node):
            _widen_graph(body)


def _widen_attributes(node: NodeProto) -> None:
    special = schema.DTYPE_ATTRIBUTE.get(node.op_type)
    for attribute in node.attribute:
        if special is not None and attribute.name == special[0] and attribute.i in HALVES:
            attribute.i = _FLOAT
        if attribute.HasField("t"):
            _widen_tensor(attribute.t)


def _widen_type(declared: TypeProto) -> None:
    kind = declared.WhichOneof("value")
    if kind == "tensor_type" and declared.tensor_type.elem_type in HALVES:
        declared.tensor_type.elem_type = _FLOAT
    elif kind == "sequence_type":
        _widen_type(declared.sequence_type.elem_type)
    elif kind == "optional_type":
        _widen_type(declared.optional_type.elem_type)


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type not in HALVES:
        return
    if not external.is_external(tensor):
        value = numpy_helper.to_array(tensor).astype(np.float32).reshape(tuple(tensor.dims))
        tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
        return
    converted.convert_weight(tensor, np.dtype(np.float32))
