"""What a tensor follows from: nothing that changes its value is left out, no name is looked at."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.graph.lineage import trace
from narrowdown.engines.graph.load import build_index

FLOAT = TensorProto.FLOAT


def model() -> onnx.ModelProto:
    body = helper.make_graph(
        [helper.make_node("Neg", ["a"], ["n"])],
        "then",
        [],
        [helper.make_tensor_value_info("n", FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Abs", ["a"], ["m"])],
        "else",
        [],
        [helper.make_tensor_value_info("m", FLOAT, None)],
    )
    nodes = [
        helper.make_node("Add", ["x", "w"], ["a"], "add"),
        helper.make_node("Split", ["a"], ["left", "right"], "split", axis=1, num_outputs=2),
        helper.make_node("Sub", ["left", "right"], ["d"], "sub"),
        helper.make_node("If", ["yes"], ["i"], "if", then_branch=body, else_branch=other),
        helper.make_node("Softmax", ["d"], ["y"], "soft", axis=-1),
    ]
    weights = [
        numpy_helper.from_array(np.ones((1, 4), np.float32), "w"),
        numpy_helper.from_array(np.array(True), "yes"),
    ]
    info = [helper.make_tensor_value_info(name, FLOAT, None) for name in ("x", "y", "i")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def lineage(made: onnx.ModelProto) -> dict[str, str]:
    """By name of the tensor."""
    index = build_index(made, "m")
    return {t.name: known for t, known in zip(index.tensors, trace(made, index), strict=True)}


def another_weight(made: onnx.ModelProto) -> None:
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.full((1, 4), 2, np.float32), "w"))


def another_place(made: onnx.ModelProto) -> None:
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights/abc.bin")


def another_axis(made: onnx.ModelProto) -> None:
    made.graph.node[1].attribute[0].i = 0


def another_operator(made: onnx.ModelProto) -> None:
    made.graph.node[2].op_type = "Mul"


def turned_round(made: onnx.ModelProto) -> None:
    made.graph.node[2].input[:] = ["right", "left"]


def another_body(made: onnx.ModelProto) -> None:
    made.graph.node[3].attribute[0].g.node[0].op_type = "Exp"


def another_version(made: onnx.ModelProto) -> None:
    made.opset_import[0].version = 17


def another_input(made: onnx.ModelProto) -> None:
    made.graph.input[0].name = made.graph.node[0].input[0] = "z"


@pytest.mark.parametrize(
    ("change", "touched"),
    [
        (another_weight, {"w", "a", "left", "right", "d", "y", "i"}),
        (another_place, {"w", "a", "left", "right", "d", "y", "i"}),
        (another_axis, {"left", "right", "d", "y"}),
        (another_operator, {"d", "y"}),
        (turned_round, {"d", "y"}),
        (another_body, {"i"}),
        (another_version, {"a", "left", "right", "d", "y", "i"}),
        (another_input, {"a", "left", "right", "d", "y", "i"}),
    ],
)
def test_what_changes_a_value_changes_all_that_follows_from_it(
    change: Callable[[onnx.ModelProto], None], touched: set[str]
) -> None:
    before, made = lineage(model()), model()
    change(made)
    after = lineage(made)
    assert {name for name in before if after.get(name) != before[name]} - {"x"} == touched
    assert len(set(before.values())) == len(before), "no two values are the same here"


def test_names_and_notes_change_nothing() -> None:
    made = model()
    for node in made.graph.node:
        node.name, node.doc_string = f"{node.name}/other", "a note"
    for node in made.graph.node:
        for names in (node.input, node.output):
            names[:] = [{"left": "l", "d": "difference"}.get(name, name) for name in names]
    before, after = lineage(model()), lineage(made)
    assert (after["l"], after["difference"], after["y"]) == (
        before["left"],
        before["d"],
        before["y"],
    )


@pytest.mark.parametrize("inside", [False, True])
def test_a_model_that_draws_has_none(inside: bool) -> None:
    made = model()
    graph = made.graph.node[3].attribute[0].g if inside else made.graph
    graph.node.insert(0, helper.make_node("RandomNormalLike", ["a" if inside else "x"], ["noise"]))
    index = build_index(made, "m")
    assert trace(made, index) == ()
