"""Q/DQ nodes that are wrong in the file itself: each is named with what is wrong, and none that a
quantizer makes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.graph import load
from narrowdown.engines.graph.quantized import LOOK_WRONG
from narrowdown.engines.graph.wrong_pairs import say_wrong_pairs
from narrowdown.engines.store import Store
from narrowdown.wizard.demo import MODELS

DQ = "(DequantizeLinear)"
SCALE, ZERO = np.float32(0.02), np.uint8(7)


def pair(**changed: object) -> onnx.ModelProto:
    """x -> Q -> DQ -> y and a weight of stored codes; ``changed``: values of ``q_scale``,
    ``q_zero``, ``dq_scale``, ``dq_zero``, ``w_scale``, ``w_zero``."""
    codes = np.arange(-4, 4, dtype=np.int8).reshape(2, 4)
    values = {
        "q_scale": SCALE, "q_zero": ZERO, "dq_scale": SCALE, "dq_zero": ZERO, "w": codes, "w_scale": np.float32([0.5, 0.25]),
        "w_zero": np.zeros(2, np.int8), **changed,
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "q_scale", "q_zero"], ["c"], "q"),
        helper.make_node("DequantizeLinear", ["c", "dq_scale", "dq_zero"], ["d"], "dq"),
        helper.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["v"], "dw", axis=0),
        helper.make_node("Add", ["d", "v"], ["y"], "add"),
    ]
    for node in nodes:
        node.input[:] = [name for name in node.input if values.get(name, 0) is not None]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in "xy")
    held = [
        numpy_helper.from_array(np.asarray(value), name)
        for name, value in values.items()
        if value is not None
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"q_scale": np.float32(0), "dq_scale": np.float32(0)}, [
            "'q' (QuantizeLinear) has a scale of 0", f"'dq' {DQ} has a scale of 0",
        ]),
        ({"w_scale": np.float32([0.5, np.nan])}, [f"'dw' {DQ} has a scale that is infinite or NaN"]),
        ({"w_scale": np.float32([0.5, -1])}, [f"'dw' {DQ} has a negative scale"]),
        ({"w_zero": np.zeros(3, np.int8)}, [f"'dw' {DQ} has 2 scales and 3 zero points"]),
        ({"w_zero": np.zeros(2, np.uint8)}, [f"'dw' {DQ} has a zero point of uint8 for codes of int8"]),
        ({"dq_zero": np.int8(7)}, [f"'dq' {DQ} has a zero point of int8 for codes of uint8"]),
        ({"dq_zero": np.uint8(8)}, [f"'dq' {DQ} reads with another zero point than 'q' has written with"]),
        ({"dq_scale": np.float32(0.03)}, [f"'dq' {DQ} reads with another scale than 'q' has written with"]),
        ({"dq_zero": None}, [f"'dq' {DQ} has no zero point, other than 'q' has written with"]),
        ({"q_zero": None, "dq_zero": ZERO}, [f"'dq' {DQ} has a zero point, other than 'q' has written with"]),
        ({"w": np.full((2, 4), 2**31 - 1, np.int32), "w_zero": np.zeros(2, np.int32)}, [
            f"'dw' {DQ} has 8 of 8 codes cut off at the end of int32, 2,147,483,647",
        ]),
        ({"q_zero": np.int32(7), "dq_zero": np.int32(7)}, ["'q' (QuantizeLinear) has a zero point of int32, and"]),
    ],
)  # fmt: skip
def test_each_fault_is_named(changed: dict[str, object], said: list[str]) -> None:
    told = say_wrong_pairs(pair(**changed))
    assert told.startswith(LOOK_WRONG + "; ".join(said)), told
    assert told.count("Linear) ") == len(said), "and no other node"
    assert ". Repair that first" in told


def bias_in_int32() -> onnx.ModelProto:
    model = pair()
    model.graph.initializer.extend(
        numpy_helper.from_array(value, name)
        for name, value in {
            "b": np.int32([[1, 2, 3, 4]]), "b_scale": np.float32(1e-4), "b_zero": np.int32(0),
        }.items()
    )  # fmt: skip
    model.graph.node.insert(
        0, helper.make_node("DequantizeLinear", ["b", "b_scale", "b_zero"], ["bias"], "db")
    )
    return model


@pytest.mark.parametrize(
    "made", [pair, bias_in_int32, lambda: onnx.load(MODELS / "shapes_cnn.onnx")]
)
def test_what_a_quantizer_makes_is_not_accused(made: Callable[[], onnx.ModelProto]) -> None:
    assert say_wrong_pairs(made()) == ""


def test_scales_that_are_computed_or_lie_elsewhere_are_not_looked_at() -> None:
    model = pair(q_scale=np.float32(0))
    scale = next(t for t in model.graph.initializer if t.name == "q_scale")
    model.graph.initializer.remove(scale)
    assert "q_scale" not in say_wrong_pairs(model)
    scale.ClearField("raw_data")
    scale.data_location = TensorProto.EXTERNAL
    entry = scale.external_data.add()
    entry.key, entry.value = "location", "elsewhere.bin"
    model.graph.initializer.append(scale)
    assert "'q'" not in say_wrong_pairs(model)


def test_whoever_reads_the_model_in_is_told(tmp_path: Path) -> None:
    onnx.save(pair(dq_scale=np.float32(0.03)), tmp_path / "m.onnx")
    warnings = load.import_model(tmp_path / "m.onnx", Store(tmp_path / "s")).warnings
    assert [warning.startswith(LOOK_WRONG) for warning in warnings] == [True]
    assert (
        sum(
            "more. Repair" in said
            for said in (say_wrong_pairs(many()), say_wrong_pairs(pair(q_scale=SCALE * 2)))
        )
        == 1
    )


def many() -> onnx.ModelProto:
    model = pair(q_scale=np.float32(0), dq_scale=np.float32(0), w_scale=np.float32([0, 0]))
    for i in range(2, 6):
        read, made = ["w", "w_scale", "w_zero"], [f"v{i}"]
        again = helper.make_node("DequantizeLinear", read, made, f"dw{i}", axis=0)
        model.graph.node.append(again)
    return model
