"""Faults planted into models of strangers: what a search has to name is known from how it was
planted.

An *overflow* (``x * k / k``) is infinite in FP16, a *cancellation* (``x + k - k``) loses digits in
FP16 and BF16, an *outlier* makes one channel of a layer ``SPREAD`` times as large and takes that
back in the next, which one scale a tensor cannot hold in INT8, and an operator that is
*unsupported* (Det) adds nothing. A *mask* adds ``0 * -1e9``, where FP16 has ``0 * -inf``; an
*epsilon* divides nothing by the root of 1e-10, which is 0 in FP16; a *logsum* takes
``log(sum(exp(x)))`` of a row with no largest value taken off before, and takes that back. In FP32
each computes what the model computed.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from campaigns.field.interpret import Array

Kind = Literal["overflow", "cancellation", "outlier", "unsupported", "mask", "epsilon", "logsum"]
# The largest value becomes 4.6 times what FP16 holds; or a sum is taken 700 times as large, of
# which FP16, of three digits, keeps none, and 60 times, of which BF16, of two, keeps none.
BEYOND, LOST, LOST_IN_BF16 = 3e5, 700.0, 60.0
SPREAD = 300.0
# exp(x) is beyond FP16 from 11.1 on.
HIGH = 12.0


class Fault(NamedTuple):
    """Behind the node at ``depth`` (0 to 1) among those of type ``op`` whose result is no output of
    the model. ``times``: what a cancellation adds, in times of the largest value."""

    kind: Kind
    op: str
    depth: float = 0.5
    times: float = LOST


def plant(model: onnx.ModelProto, fault: Fault, feed: Mapping[str, Array]) -> tuple[str, ...]:
    """Plant it, in place; the nodes of which at least one is a culprit, by name. Raises
    ``ValueError`` where nothing fits."""
    if fault.kind == "outlier":
        return _spread_channel(model)
    graph = model.graph
    outputs = {o.name for o in graph.output}
    fitting = [n for n in graph.node if n.op_type == fault.op and n.output[0] not in outputs]
    if not fitting:
        raise ValueError(f"no {fault.op} whose result is no output")
    behind = fitting[min(len(fitting) - 1, int(len(fitting) * fault.depth))]
    tensor = behind.output[0]
    largest = float(np.abs(_value(model, tensor, feed)).max())
    made = helper.make_node
    if fault.kind == "unsupported":
        graph.initializer.append(
            numpy_helper.from_array(np.array([1, 1], np.int64), "planted_size")
        )
        graph.initializer.append(
            numpy_helper.from_array(np.array(0, np.float32), "planted_nothing")
        )
        added = [
            made("ReduceSum", [tensor], ["planted_a"], "planted_sum", keepdims=0),
            made("Reshape", ["planted_a", "planted_size"], ["planted_b"], "planted_matrix"),
            made("Det", ["planted_b"], ["planted_c"], "planted_det"),
            made("Mul", ["planted_c", "planted_nothing"], ["planted_d"], "planted_zero"),
            made("Add", [tensor, "planted_d"], ["planted_end"], "planted_add"),
        ]
        culprits: tuple[str, ...] = ("planted_det",)
    elif fault.kind in ("mask", "epsilon", "logsum"):
        added, culprits, numbers = _BY_KIND[fault.kind](tensor, _value(model, tensor, feed))
        graph.initializer.extend(
            numpy_helper.from_array(np.array(value, np.float32), name)
            for name, value in numbers.items()
        )
    else:
        there, back = ("Mul", "Div") if fault.kind == "overflow" else ("Add", "Sub")
        by = BEYOND / largest if fault.kind == "overflow" else fault.times * largest
        graph.initializer.append(numpy_helper.from_array(np.array(by, np.float32), "planted_k"))
        added = [
            made(there, [tensor, "planted_k"], ["planted_a"], "planted_there"),
            made(back, ["planted_a", "planted_k"], ["planted_end"], "planted_back"),
        ]
        culprits = ("planted_there", "planted_back")
    for node in graph.node:
        node.input[:] = ["planted_end" if name == tensor else name for name in node.input]
    at = list(graph.node).index(behind) + 1
    for node in reversed(added):
        graph.node.insert(at, node)
    ort.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )  # of what pip has, not all is sorted
    return culprits


Planted = tuple[
    list[onnx.NodeProto], tuple[str, ...], dict[str, float]
]  # nodes, culprits, numbers they read


def _lost_mask(tensor: str, value: Array) -> Planted:
    made = helper.make_node
    return [
        made("IsNaN", [tensor], ["planted_a"], "planted_hidden"),
        made("Cast", ["planted_a"], ["planted_b"], "planted_mask", to=onnx.TensorProto.FLOAT),
        made("Mul", ["planted_b", "planted_k"], ["planted_c"], "planted_times"),
        made("Add", [tensor, "planted_c"], ["planted_end"], "planted_add"),
    ], ("planted_times",), {"planted_k": -1e9}  # fmt: skip


def _lost_epsilon(tensor: str, value: Array) -> Planted:
    made = helper.make_node
    return [
        made("Sub", [tensor, tensor], ["planted_a"], "planted_nothing"),
        made("Mul", ["planted_a", "planted_a"], ["planted_b"], "planted_square"),
        made("Add", ["planted_b", "planted_epsilon"], ["planted_c"], "planted_variance"),
        made("Sqrt", ["planted_c"], ["planted_d"], "planted_root"),
        made("Div", ["planted_a", "planted_d"], ["planted_e"], "planted_divide"),
        made("Add", [tensor, "planted_e"], ["planted_end"], "planted_add"),
    ], ("planted_variance", "planted_root", "planted_divide"), {"planted_epsilon": 1e-10}  # fmt: skip


def _sum_without_largest(tensor: str, value: Array) -> Planted:
    """Of rows that are brought to where their largest is ``HIGH``."""
    made = helper.make_node
    return [
        made("Mul", [tensor, "planted_k"], ["planted_a"], "planted_scaled"),
        made("Exp", ["planted_a"], ["planted_b"], "planted_exp"),
        made("ReduceSum", ["planted_b"], ["planted_c"], "planted_sum"),
        made("Log", ["planted_c"], ["planted_d"], "planted_log"),
        made("Sub", ["planted_a", "planted_d"], ["planted_e"], "planted_less"),
        made("Add", ["planted_e", "planted_d"], ["planted_f"], "planted_back"),
        made("Div", ["planted_f", "planted_k"], ["planted_end"], "planted_unscaled"),
    ], ("planted_exp", "planted_sum", "planted_log"), {"planted_k": HIGH / float(value.max())}  # fmt: skip


_BY_KIND = {"mask": _lost_mask, "epsilon": _lost_epsilon, "logsum": _sum_without_largest}


def _spread_channel(model: onnx.ModelProto) -> tuple[str, ...]:
    """The first channel between the first two products, with a bias and a Relu between them."""
    graph = model.graph
    weights = {t.name: t for t in graph.initializer}
    products = [n for n in graph.node if n.op_type == "MatMul" and n.input[1] in weights]
    if len(products) < 2:
        raise ValueError("no two products with weights")
    first, second = products[:2]
    biased = next(
        (n for n in graph.node if n.op_type == "Add" and first.output[0] in n.input), None
    )
    bias = next((name for name in biased.input if name in weights), "") if biased else ""
    for name, axis, times in (
        (first.input[1], 1, SPREAD),
        (bias, 0, SPREAD),
        (second.input[1], 0, 1 / SPREAD),
    ):
        if name:
            value = numpy_helper.to_array(weights[name]).copy()
            np.moveaxis(value, axis, 0)[0] *= times
            weights[name].CopyFrom(numpy_helper.from_array(value, name))
    return first.name, second.name


def _value(model: onnx.ModelProto, tensor: str, feed: Mapping[str, Array]) -> Array:
    told = onnx.ModelProto()
    told.CopyFrom(model)
    told.graph.output.append(helper.make_empty_tensor_value_info(tensor))
    session = ort.InferenceSession(told.SerializeToString(), providers=["CPUExecutionProvider"])
    value: Array = session.run([tensor], dict(feed))[0]
    return value
