"""OpenVINO's own model files (IR: ``NAME.xml`` with its weights in ``NAME.bin``) as the model under
test.

All else here works on ONNX, which an IR cannot be made into. So an ONNX model of one node stands in
its place: its inputs and outputs are those of the IR, its attribute is the text, and the weights
are one tensor that it reads. It is stored, cut whole and carried along as any model; OpenVINO alone
can run it.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino as ov
from onnx import TensorProto, helper

from narrowdown.engines.backends.ceiling import SURE_OPSET
from narrowdown.engines.graph import ModelProblem, external
from narrowdown.engines.store import regular

DOMAIN, OP = "org.openvino", "IR"
_TEXT, _WEIGHTS = "xml", "openvino/weights"
_TYPES = {
    "f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16, "f64": TensorProto.DOUBLE,
    "i8": TensorProto.INT8, "i16": TensorProto.INT16, "i32": TensorProto.INT32, "i64": TensorProto.INT64,
    "u8": TensorProto.UINT8, "u16": TensorProto.UINT16, "u32": TensorProto.UINT32, "u64": TensorProto.UINT64,
    "boolean": TensorProto.BOOL,
}  # fmt: skip


def stand_in(path: Path) -> onnx.ModelProto:
    """The model of one node for the IR in this file; its weights stay where they are, as external
    data beside it. Raises ``ModelProblem`` with a sentence, ``OSError``."""
    weights = path.with_suffix(".bin")
    text = regular.read(path)
    if b'type="Const"' in text and not weights.exists():
        raise ModelProblem(
            f"'{path.name}' has its weights in '{weights.name}', which is not beside it: copy that file there."
        )
    size = regular.size(weights) if weights.exists() else 0
    try:
        model = ov.Core().read_model(str(path))
    except RuntimeError as error:
        said = " ".join(str(error).split())[-300:]
        raise ModelProblem(
            f"OpenVINO {ov.__version__} does not read '{path.name}': {said}"
        ) from error
    inputs = [_describe(port) for port in model.inputs]
    outputs = list({port.get_any_name(): _describe(port) for port in model.outputs}.values())
    held = []
    if size:
        held.append(TensorProto(name=_WEIGHTS, data_type=TensorProto.UINT8, dims=[size]))
        external.make_external(held[0], weights.name, 0, size)
    node = helper.make_node(
        OP,
        [i.name for i in inputs] + [t.name for t in held],
        [o.name for o in outputs],
        name=path.stem,
        domain=DOMAIN,
    )
    node.attribute.append(helper.make_attribute(_TEXT, text))
    graph = helper.make_graph([node], path.stem, inputs, outputs, held)
    opsets = [helper.make_opsetid("", SURE_OPSET), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="OpenVINO")


def read_stand_in(core: Any, model: onnx.ModelProto, weights_dir: str) -> Any:
    """The IR that this model stands for, as OpenVINO's own model; None where it is an ONNX model
    like any other. Raises ``RuntimeError`` where OpenVINO does not read it."""
    if len(model.graph.node) != 1 or (model.graph.node[0].domain, model.graph.node[0].op_type) != (
        DOMAIN,
        OP,
    ):
        return None
    text = next(a.s for a in model.graph.node[0].attribute if a.name == _TEXT)
    held = next(
        (external.read(t, weights_dir) for t in model.graph.initializer if t.name == _WEIGHTS), None
    )
    return core.read_model(
        text, ov.Tensor(np.empty(0, np.uint8) if held is None else np.ascontiguousarray(held))
    )


def _describe(port: Any) -> onnx.ValueInfoProto:
    """The port as ONNX says it."""
    kind, name = port.get_element_type().get_type_name(), port.get_any_name()
    if kind not in _TYPES:
        raise ModelProblem(
            f"'{name}' of the IR holds {kind}, which cannot be fed or compared here."
        )
    shape = port.get_partial_shape()
    dims: list[int | str] | None = None
    if shape.rank.is_static:
        dims = [d.get_length() if d.is_static else f"{name}_{i}" for i, d in enumerate(shape)]
    info: onnx.ValueInfoProto = helper.make_tensor_value_info(name, _TYPES[kind], dims)
    return info
