"""Names that are no text, or giant ones, are refused in a sentence."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.graph import ModelProblem
from narrowdown.engines.graph.load import import_model, load
from narrowdown.engines.store import Store

PLACES = ("TENSOR", "NODE", "DIM", "INNER", "ARG", "Own", "own")


def data_with(old: str, new: bytes) -> bytes:
    """A model with a body and a function, in which one name, everywhere, is another one."""

    def info(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["DIM", 4])

    inner = helper.make_graph([helper.make_node("Neg", ["b"], ["INNER"])], "b", [], [info("INNER")])
    nodes = [
        helper.make_node("Own", ["x"], ["TENSOR"], name="NODE", domain="own"),
        helper.make_node("Abs", ["TENSOR"], ["b"]),
        helper.make_node("If", ["yes"], ["y"], then_branch=inner, else_branch=inner),
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    function = helper.make_function(
        "own", "Own", ["ARG"], ["r"], [helper.make_node("Neg", ["ARG"], ["r"])], imports[:1]
    )
    yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
    graph = helper.make_graph(nodes, "g", [info("x")], [info("y")], [yes])
    model = helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=10)
    assert old.encode() in model.SerializeToString()
    return model.SerializeToString().replace(old.encode(), new)


def take(data: bytes, folder: Path) -> list[str]:
    (folder / "m.onnx").write_bytes(data)
    store = Store(folder / "s")
    return [
        node.name for node in load(store, import_model(folder / "m.onnx", store).digest).index.nodes
    ]


@pytest.mark.parametrize("place", PLACES)
def test_a_name_in_another_encoding_is_refused(place: str, tmp_path: Path) -> None:
    """protobuf gives it as bytes: such a model ended as a failure of the program's own."""
    with pytest.raises(ModelProblem, match=r"the name b'.*\\xe4' in it is no text in UTF-8"):
        take(data_with(place, place[:-1].encode() + b"\xe4"), tmp_path)


def test_a_giant_name_is_refused(tmp_path: Path) -> None:
    model = onnx.load_model_from_string(data_with("TENSOR", b"TENSOR"))
    model.graph.node[0].output[0] = model.graph.node[1].input[0] = "n" * 70_000
    with pytest.raises(ModelProblem, match=r"has a name of 70,000 characters \(n{40}\.\.\.\)"):
        take(model.SerializeToString(), tmp_path)


def test_a_name_with_any_letters_is_taken(tmp_path: Path) -> None:
    assert take(data_with("NODE", "NO\u00e4".encode()), tmp_path)[0] == "NO\u00e4/Neg_0"
