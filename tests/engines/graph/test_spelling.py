"""Models whose names are written in another encoding than UTF-8."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.graph.load import import_model, load
from narrowdown.engines.graph.model_problem import ModelProblem
from narrowdown.engines.graph.source import STACK
from narrowdown.engines.graph.spelling import respell
from narrowdown.engines.store.content import Store


def info(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["BATCH", 4])


def named_in(encoding: str) -> bytes:
    """A model whose tensors, nodes and dimensions are all called something with a letter that this
    encoding has."""
    inner = helper.make_graph(
        [helper.make_node("Neg", ["HID"], ["INNER"], name="TURNED")], "b", [], [info("INNER")]
    )
    yes = numpy_helper.from_array(np.array(True), "YES")
    weights = numpy_helper.from_array(np.ones(4, np.float32), "WEIGHTS")
    nodes = [
        helper.make_node("Own", ["XIN"], ["FIRST"], name="CALL", domain="own"),
        helper.make_node("Add", ["FIRST", "WEIGHTS"], ["HID"], name="ADDED"),
        helper.make_node(
            "If", ["YES"], ["YOUT"], name="CHOSEN", then_branch=inner, else_branch=inner
        ),
    ]
    nodes[1].metadata_props.add(key=STACK, value='File "/home/me/PATH.py", line 3')
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    function = helper.make_function(
        "own", "Own", ["ARG"], ["RES"], [helper.make_node("Neg", ["ARG"], ["RES"])], imports[:1]
    )
    graph = helper.make_graph(
        nodes, "g", [info("XIN")], [info("YOUT")], [yes, weights], value_info=[info("HID")]
    )
    made = helper.make_model(
        graph, opset_imports=imports, functions=[function], ir_version=10
    ).SerializeToString()
    letter = "\u00e4".encode(encoding)
    for word in (b"HID", b"INNER", b"TURNED", b"YES", b"WEIGHTS", b"XIN", b"FIRST", b"CALL", b"ADDED", b"CHOSEN", b"YOUT",
                 b"ARG", b"RES", b"BATCH", b"PATH"):  # fmt: skip
        made = made.replace(word, word[: -len(letter)] + letter)
    return made


def taken(data: bytes, tmp_path: Path):
    (tmp_path / "m.onnx").write_bytes(data)
    store = Store(tmp_path / "s")
    imported = import_model(tmp_path / "m.onnx", store)
    return imported, load(store, imported.digest).index


def test_names_in_another_encoding_are_spelt_as_text(tmp_path: Path) -> None:
    """protobuf gives them as bytes: such a model ended as a failure of the program's own. ONNX
    Runtime runs it."""
    imported, index = taken(named_in("latin-1"), tmp_path)
    assert [node.name for node in index.nodes] == ["CAL\\xe4/Neg_0", "ADDE\\xe4", "CHOSE\\xe4"]
    assert [index.tensors[i].name for i in (*index.inputs, *index.outputs)] == [
        "XI\\xe4",
        "YOU\\xe4",
    ]
    assert index.nodes[1].source == "me/PAT\ufffd.py:3"
    assert any("no text in UTF-8" in note for note in imported.notes)


def test_what_is_text_stays_as_it_is(tmp_path: Path) -> None:
    model = onnx.load_model_from_string(named_in("utf-8"))
    before = model.SerializeToString()
    assert respell(model, "m.onnx") == 0
    assert model.SerializeToString() == before
    assert [node.name for node in taken(before, tmp_path)[1].nodes] == [
        "CA\u00e4/Neg_0",
        "ADD\u00e4",
        "CHOS\u00e4",
    ]


@pytest.mark.parametrize("word", [b"Add", b"If", b"then_branch", b"own", b"Own"])
def test_what_a_node_does_has_a_name_that_is_text(tmp_path: Path, word: bytes) -> None:
    whole = named_in("latin-1")
    with pytest.raises(
        ModelProblem,
        match=r"is a damaged ONNX model: .* is no name of an operator; export or copy it again",
    ):
        taken(whole.replace(word, word[:-1] + b"\xff"), tmp_path)
