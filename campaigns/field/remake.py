"""Models of strangers as other exporters write them: with weights in BF16, or within a Loop."""

from typing import Literal

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Form = Literal["bf16", "loop"]
TURNS = 6


def remake(model: onnx.ModelProto, form: Form) -> None:
    """In place: *bf16* stores weights as BF16, with a Cast behind each; *loop* has a policy act
    ``TURNS`` times, each time on what its last action made of what it sees."""
    (_store_in_bf16 if form == "bf16" else _act_in_a_loop)(model)
    onnx.checker.check_model(model)


def _store_in_bf16(model: onnx.ModelProto) -> None:
    casts = []
    for tensor in model.graph.initializer:
        value = numpy_helper.to_array(tensor)
        if value.dtype != np.float32 or value.size < 2:
            continue
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(value.astype(ml_dtypes.bfloat16), f"{name}_bf16"))
        casts.append(
            helper.make_node("Cast", [tensor.name], [name], f"cast_{name}", to=TensorProto.FLOAT)
        )
    for cast in reversed(casts):
        model.graph.node.insert(0, cast)


def _act_in_a_loop(model: onnx.ModelProto) -> None:
    graph = model.graph
    seen, action = graph.input[0], graph.output[0]
    kind = seen.type.tensor_type
    width, narrower = kind.shape.dim[1].dim_value, action.type.tensor_type.shape.dim[1].dim_value
    wider = numpy_helper.from_array(np.array([0, 0, 0, width - narrower], np.int64), "loop_wider")
    small = numpy_helper.from_array(np.array(0.1, np.float32), "loop_small")
    turns = numpy_helper.from_array(np.array(TURNS, np.int64), "loop_turns")
    going = numpy_helper.from_array(np.array(True), "loop_going")
    for node in graph.node:
        node.input[:] = ["loop_seen" if name == seen.name else name for name in node.input]
    made = helper.make_node
    body = helper.make_graph(
        [
            *graph.node,
            made("Pad", [action.name, "loop_wider"], ["loop_wide"], "loop_pad"),
            made("Mul", ["loop_wide", "loop_small"], ["loop_step"], "loop_mul"),
            made("Add", ["loop_seen", "loop_step"], ["loop_next"], "loop_add"),
            made("Identity", ["loop_on"], ["loop_on_too"], "loop_identity"),
        ],
        "turn",
        [
            helper.make_tensor_value_info("loop_turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("loop_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("loop_seen", TensorProto.FLOAT, [1, width]),
        ],
        [
            helper.make_tensor_value_info("loop_on_too", TensorProto.BOOL, []),
            helper.make_tensor_value_info("loop_next", TensorProto.FLOAT, [1, width]),
            action,
        ],
    )
    outer = made(
        "Loop", ["loop_turns", "loop_going", seen.name], ["last_seen", "actions"], "loop", body=body
    )
    del graph.node[:], graph.output[:]
    graph.node.append(outer)
    graph.initializer.extend([wider, small, turns, going])
    graph.output.extend(
        [
            helper.make_tensor_value_info("last_seen", TensorProto.FLOAT, [1, width]),
            helper.make_tensor_value_info("actions", TensorProto.FLOAT, [TURNS, 1, narrower]),
        ]
    )
