"""A model in half precision against the one that it was made of: docs/golden.md."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.graph.typed import to_float32
from narrowdown.wizard.demo import MODELS

from ..docs.shown import of
from .conftest import Narrowdown

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
node = helper.make_node


def original() -> onnx.ModelProto:
    """Nine nodes; the square in the middle goes beyond 65,504, its root does not."""
    rng = np.random.default_rng(3)
    weights = {
        "w1": rng.normal(size=(64, 64)) * 0.3, "b1": rng.normal(size=64), "gain": np.full(64, 900.0),
        "w2": rng.normal(size=(64, 8)) * 0.1,
    }  # fmt: skip
    nodes = [
        node("MatMul", ["x", "w1"], ["h"], name="fc1"), node("Add", ["h", "b1"], ["hb"], name="bias1"),
        node("Tanh", ["hb"], ["t"], name="act"), node("Mul", ["t", "gain"], ["g"], name="scale"),
        node("Mul", ["g", "g"], ["sq"], name="square"), node("ReduceMean", ["sq"], ["m"], name="mean", axes=[-1]),
        node("Sqrt", ["m"], ["r"], name="root"), node("Div", ["g", "r"], ["nrm"], name="norm"),
        node("MatMul", ["nrm", "w2"], ["y"], name="fc2"),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", FLOAT, [4, 64])],
        [helper.make_tensor_value_info("y", FLOAT, [4, 8])],
        [
            numpy_helper.from_array(array.astype(np.float32), name)
            for name, array in weights.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def converted(model: onnx.ModelProto) -> onnx.ModelProto:
    """As AutoCast leaves it: halves inside, casts at both ends, and a weight under another name."""
    half = onnx.ModelProto()
    half.CopyFrom(model)
    for tensor in half.graph.initializer:
        name = "w2_fp16" if tensor.name == "w2" else tensor.name
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), name)
        )
    nodes = list(half.graph.node)
    nodes[0].input[0], nodes[-1].input[1], nodes[-1].output[0] = "x_cast", "w2_fp16", "y_half"
    first = node("Cast", ["x"], ["x_cast"], name="cast_in", to=HALF)
    last = node("Cast", ["y_half"], ["y"], name="cast_out", to=FLOAT)
    nodes = [first, *(n for n in nodes), last]
    del half.graph.node[:]
    half.graph.node.extend(nodes)
    onnx.checker.check_model(half)
    return half


def test_a_widened_model_has_no_half_in_it() -> None:
    """Bodies too; and where an original's weight is given it is that."""
    body = helper.make_graph(
        [node("Cast", ["i"], ["o"], to=HALF)], "body", [], [helper.make_tensor_value_info("o", HALF, [2])],
        [numpy_helper.from_array(np.ones(2, np.float32), "i")],
    )  # fmt: skip
    model = converted(original())
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "c"))
    model.graph.node.append(node("If", ["c"], ["z"], name="if", then_branch=body, else_branch=body))
    model.graph.output.append(helper.make_tensor_value_info("z", HALF, [2]))
    before = numpy_helper.from_array(np.full((64, 64), 1 / 3, np.float32), "w1")
    wide = to_float32(model, {"w1": before})
    onnx.checker.check_model(wide, full_check=True)
    assert b"\x10\x0a" not in wide.graph.output[-1].SerializeToString()
    kinds = {t.data_type for t in wide.graph.initializer} | {
        o.type.tensor_type.elem_type for o in wide.graph.output
    }
    assert HALF not in kinds
    assert [a.i for n in wide.graph.node if n.op_type == "Cast" for a in n.attribute] == [
        FLOAT,
        FLOAT,
    ]
    assert numpy_helper.to_array(wide.graph.initializer[0])[0, 0] == np.float32(1 / 3)
    assert model.graph.initializer[0].data_type == HALF, "the model itself is not changed"


@pytest.mark.parametrize(("casts", "tolerance"), [(0, 0.0001), (1, 0.0001), (9, 0.01)])
def test_a_model_mostly_in_halves_is_held_to_what_these_may_cost(
    narrowdown: Narrowdown, tmp_path: Path, casts: int, tolerance: float
) -> None:
    """By an engine that computes in FP32 as well; one with a cast to halves is held to FP32."""
    model = converted(original()) if casts == 9 else original()
    if casts == 1:
        model.graph.node[-1].output[0] = "y32"
        model.graph.node.append(node("Cast", ["y32"], ["half"], to=HALF))
        model.graph.node.append(node("Cast", ["half"], ["y"], to=FLOAT))
    onnx.save(model, tmp_path / "model.onnx")
    ran = narrowdown("step", "compare", tmp_path / "model.onnx", "--json")
    assert json.loads(ran.out)["tolerance"] == tolerance


@pytest.mark.slow
def test_the_page_does_what_it_says(narrowdown: Narrowdown, tmp_path: Path) -> None:
    onnx.save(original(), str(tmp_path / "float.onnx"))
    onnx.save(converted(original()), str(tmp_path / "half.onnx"))
    shown, mends = of("converted")
    ran = narrowdown(*shown.words[1:], "--session", "s")
    assert ran.code == 0, ran.err
    assert "1 of 11 nodes fails: square (overflow)" in ran.out
    assert "square (Mul) reaches 8" in ran.out
    assert "in the reference; float16 ends at 65,504" in ran.out, (
        "the file states its types, the engine computes in any"
    )
    assert f"kept in FP32: '{' '.join(mends.words)}'" in ran.out, (
        "it says how the conversion is mended"
    )
    anew = narrowdown(*mends.words[1:], "--session", "anew")
    assert anew.code == 0, anew.err
    assert "modelopt.onnx.autocast" in (tmp_path / "anew/case/workaround.md").read_text(
        encoding="utf-8"
    )
    walked = narrowdown("step", "layerwise", "half.onnx", *shown.words[3:], "--json").json()
    assert walked["culprit"] == "square"
    assert {row["name"] for row in walked["tensors"]} >= {"x_cast", "sq", "y_half"}
    told = json.loads(narrowdown("step", "compare", "half.onnx", *shown.words[3:], "--json").out)
    assert told["verdict"] == "fails"
    # Another model's outputs have other names.
    other = original()
    other.graph.output[0].name = other.graph.node[-1].output[0] = "logits"
    onnx.save(other, str(tmp_path / "float.onnx"))
    refused = narrowdown(*shown.words[1:])
    assert refused.code != 0
    assert (
        "is not the original of this model: only one of them has the output"
        in refused.err + refused.out
    )


@pytest.mark.slow
def test_what_an_original_converter_made_names_the_node(
    narrowdown: Narrowdown, tmp_path: Path
) -> None:
    """A trained transformer as onnxconverter-common leaves it, in an environment of its own,
    against what it was made of."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "v"], check=True)
    python = tmp_path / "v/bin/python"
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "onnxconverter-common", "onnx"], check=True
    )
    for name in ("sort_tf_massive_m4.onnx", "sort_tf_massive_m4_in.npz"):
        shutil.copy(MODELS / name, tmp_path)
    (tmp_path / "convert.py").write_text(
        "import onnx\nfrom onnxconverter_common import float16\n"
        "model = onnx.load('sort_tf_massive_m4.onnx')\n"
        "casts = [n.name for n in model.graph.node if n.op_type == 'Cast']\n"
        "onnx.save(float16.convert_float_to_float16(model, keep_io_types=True, node_block_list=casts), 'half.onnx')\n"
    )
    subprocess.run([python, "convert.py"], cwd=tmp_path, check=True)
    (tmp_path / "answers.yaml").write_text("minimal-case: report\n")
    given = ("half.onnx", "--engine", "reference", "--inputs", "sort_tf_massive_m4_in.npz")
    against = ("--reference", "onnxruntime:model=sort_tf_massive_m4.onnx")
    ran = narrowdown(
        "run",
        *given,
        *against,
        "--answers",
        "answers.yaml",
        "--session",
        "s",
        "--display",
        "plain",
    )
    assert ran.code == 0, ran.out + ran.err
    assert "1 of 222 nodes fails: /b.0/l2/Pow (overflow)" in ran.out
    assert "/b.0/l2/Pow (Pow) reaches 229,746 in the reference; float16 ends at 65,504." in ran.out
