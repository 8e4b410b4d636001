"""What steps read off a graph: names for people."""

from onnx import TensorProto, helper

from narrowdown.engines.graph.load import build_index


def test_two_nodes_of_one_name_are_told_apart() -> None:
    """'keep n and n' names nothing: a person needs what each of them makes."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], "first"),
        helper.make_node("Abs", ["a"], ["b"], "n"),
        helper.make_node("Exp", ["b"], ["c"], "n"),
        helper.make_node("Log", ["c"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 18)]
    )
    assert build_index(model, "m").shown_names == ("first", "Abs:b", "Exp:c", "Log:y")


def test_nodes_are_of_one_kind_where_a_layer_is_repeated() -> None:
    nodes = [
        helper.make_node(op, [at], [f"{at}{op}"], **more)
        for at, op, more in (
            ("x", "Exp", {}),
            ("xExp", "Log", {}),
            ("xExpLog", "Exp", {}),
            ("xExpLogExp", "Log", {}),
            ("xExpLogExpLog", "Softmax", {"axis": 0}),
        )
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])
        for name in ("x", nodes[-1].output[0])
    )
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 18)]
    )
    assert build_index(model, "m").kinds == ((0,), (1, 3), (2,), (1, 3), (4,))
