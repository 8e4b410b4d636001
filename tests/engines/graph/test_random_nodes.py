"""Which nodes draw what the outputs depend on."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.graph.random_nodes import list_random


def graph(nodes, weights=None, outputs=("y",)):
    ends = [helper.make_tensor_value_info(name, 1, None) for name in outputs]
    x = helper.make_tensor_value_info("x", 1, [4])
    return helper.make_graph(
        nodes, "g", [x], ends, [numpy_helper.from_array(v, k) for k, v in (weights or {}).items()]
    )


@pytest.mark.parametrize("op", ["RandomNormalLike", "RandomUniformLike", "Bernoulli"])
def test_each_that_reaches_an_output(op: str) -> None:
    nodes = [
        helper.make_node(op, ["x"], ["r"], name="/draw"),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    assert list_random(graph(nodes)) == (f"/draw ({op})",)
    assert list_random(graph(nodes, outputs=("x",))) == ()


@pytest.mark.parametrize("training", [True, False])
def test_dropout_draws_while_it_trains(training: bool) -> None:
    weights = {"ratio": np.float32(0.5), "training": np.array(training)}
    nodes = [helper.make_node("Dropout", ["x", "ratio", "training"], ["y"], name="/drop")]
    assert list_random(graph(nodes, weights)) == (("/drop (Dropout)",) if training else ())


def test_one_in_a_body_is_told_by_the_node_that_holds_it() -> None:
    inner = [
        helper.make_node("RandomNormal", [], ["r"], shape=[4]),
        helper.make_node("Add", ["x", "r"], ["b"]),
    ]
    body = helper.make_graph(
        inner, "b", [], [helper.make_tensor_value_info("b", TensorProto.FLOAT, [4])]
    )
    nodes = [helper.make_node("If", ["c"], ["y"], name="/if", then_branch=body, else_branch=body)]
    assert list_random(graph(nodes, {"c": np.array(True)})) == ("/if (RandomNormal)",)
