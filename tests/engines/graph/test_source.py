"""The source line of a node, as torch's dynamo exporter writes it into the node's metadata."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.graph import sanitize
from narrowdown.engines.graph.load import import_model, load
from narrowdown.engines.graph.source import CLASSES, SCOPES, STACK, find_module, find_source
from narrowdown.engines.store import Store

FRAMES = (
    'File "/home/somebody/project/train.py", line 9, in <module>\n    y = model(x)\n'
    'File "/home/somebody/project/models/vit.py", line 212, in forward\n    return x.exp()\n'
    'File "/opt/venv/lib/python3.11/site-packages/torch/nn/functional.py", line 5, in exp\n    return y'
)


def exported(frames: str) -> onnx.NodeProto:
    node = helper.make_node("Exp", ["x"], ["y"], name="node_exp")
    node.metadata_props.add(key="namespace", value=": models.vit.ViT/exp: aten.exp.default")
    node.metadata_props.add(key=STACK, value=frames)
    return node


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        (FRAMES, "models/vit.py:212"),  # the user's own frame, not torch's, and nobody's home
        ('File "vit.py", line 3, in forward', "vit.py:3"),
        (r'File "C:\work\models\vit.py", line 4, in forward', "models/vit.py:4"),
        (FRAMES.replace("project/models", "torch/models"), "models/vit.py:212"),
        ("no frame at all", ""),
        ("", ""),
    ],
)
def test_the_innermost_frame_of_the_user_s_own_is_named(frames: str, said: str) -> None:
    assert find_source(exported(frames)) == said


def test_a_node_without_metadata_comes_from_nowhere() -> None:
    assert find_source(helper.make_node("Exp", ["x"], ["y"])) == ""


@pytest.mark.parametrize(
    ("scopes", "classes", "told"),
    [
        (
            "['', 'blocks.0', 'blocks.0.n1', 'add']",
            "['Vit', 'Block', 'torch.nn.LayerNorm', 'aten.add']",
            ("blocks.0.n1", "LayerNorm"),
        ),
        ("['', 'add']", "['models.Vit', 'aten.add']", ("", "Vit")),
        ("['', 'blocks.0', 'add']", "['Vit']", ("blocks.0", "")),
        ("['add']", "['aten.add']", ("", "")),
        ("", "", ("", "")),
        ("[[[", "]]]", ("", "")),
    ],
)
def test_the_innermost_module_is_named(scopes: str, classes: str, told: tuple[str, str]) -> None:
    node = helper.make_node("Add", ["x", "x"], ["y"])
    node.metadata_props.add(key=SCOPES, value=scopes)
    node.metadata_props.add(key=CLASSES, value=classes)
    assert find_module(node) == told


def test_it_survives_being_taken_in_and_cleaned_up(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [exported(FRAMES)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10),
        tmp_path / "m.onnx",
    )
    store = Store(tmp_path / "session")
    model = load(store, import_model(tmp_path / "m.onnx", store).digest)
    assert [n.source for n in model.index.nodes] == ["models/vit.py:212"]
    clean = load(store, sanitize.sanitize(model, store).digest)
    assert [n.source for n in clean.index.nodes] == ["models/vit.py:212"]
