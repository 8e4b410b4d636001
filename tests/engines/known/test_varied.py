"""Declarations with something changed, what of them can be changed together, and the program that
makes them."""

import runpy
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest

from narrowdown.engines.graph import ModelProblem
from narrowdown.engines.known.construct import construct, draw_feed
from narrowdown.engines.known.entry import Construction, MadeNode, MadeTensor
from narrowdown.engines.known.factors import FEW, Factor, list_factors
from narrowdown.engines.known.generator import Program, write_generator
from narrowdown.engines.known.table import read_table
from narrowdown.engines.known.varied import Place, resize
from narrowdown.engines.workers.stating import find_sizes, state_model

GEMM = next(
    bug.make for bug in read_table() if bug.id == "ort-gemm-identity-transpose" and bug.make
)
POOL = next(bug.make for bug in read_table() if bug.id == "ort-pad-maxpool-fusion" and bug.make)
REFERENCE = "onnxruntime:optimization=disabled"
HEADS = Construction(
    opset=17,
    inputs={"x": MadeTensor("float32", (2, 5, 12))},
    weights={"to": MadeTensor("int64", (4,), values=[2, 5, 3, 4])},
    nodes=(
        MadeNode("Reshape", ("x", "to"), ("h",)),
        MadeNode("Softmax", ("h",), ("y",), {"axis": -1}),
    ),
    outputs={"y": "float32"},
)


def sizes(made: Construction) -> list[set[str]]:
    return [
        {f"{p.of}{p.key}[{p.at}]*{p.times}" for p in tied} for tied in find_sizes(made, REFERENCE)
    ]


def test_sizes_that_must_be_equal_are_tied_and_no_others() -> None:
    """All of a square case are 4: what follows from what shows only when it is changed."""
    tied = sizes(GEMM)
    assert {"a[0]*1"} in tied
    assert {"a[1]*1", "w[0]*1"} in tied
    assert {"w[1]*1", "b[0]*1"} in tied
    assert len(tied) == 3


def test_a_dimension_that_a_reshape_splits_takes_its_parts_along() -> None:
    tied = sizes(HEADS)
    assert {"x[0]*1", "to[0]*1"} in tied
    assert {"x[1]*1", "to[1]*1"} in tied
    assert {"to[2]*1", "x[2]*4"} in tied  # 12 is 3 heads of 4
    assert {"to[3]*1", "x[2]*3"} in tied


def test_heads_and_their_size_change_one_dimension_together() -> None:
    heads, each = (
        next(tied for tied in find_sizes(HEADS, REFERENCE) if Place("entry", "to", at) in tied)
        for at in (2, 3)
    )
    varied = resize(resize(HEADS, heads, 3, 5), each, 4, 8)
    assert varied.inputs["x"].shape == (2, 5, 40)
    assert varied.weights["to"].values == [2, 5, 5, 8]
    assert len(construct(varied).graph.node) == 2


def every(made: Construction) -> dict[str, Factor]:
    return {f.name: f for f in list_factors(made, find_sizes(made, REFERENCE))}


@pytest.mark.parametrize("made", [GEMM, POOL, HEADS])
def test_every_level_changes_the_case_and_what_is_no_model_says_so(made: Construction) -> None:
    models = 0
    for factor in every(made).values():
        assert factor.base not in factor.levels
        for level in factor.levels:
            varied = factor.at(level)
            assert varied != made, (factor.name, level)
            try:
                model = construct(varied)
            except (ModelProblem, ValueError):
                continue
            models += 1
            feed = draw_feed(varied, 1)
            assert set(feed) == {i.name for i in model.graph.input}
    assert models > 20


BLOCKS = Construction(
    opset=21,
    inputs={"x": MadeTensor("float32", (3, 64))},
    weights={
        "b": MadeTensor("int8", (64, 8), (-8, 7)),
        "s": MadeTensor("float32", (2, 8), (0.01, 0.1)),
    },
    nodes=(
        MadeNode("DequantizeLinear", ("b", "s"), ("w",), {"axis": 0, "block_size": 32}),
        MadeNode("MatMul", ("x", "w"), ("y",)),
    ),
    outputs={"y": "float32"},
)


def test_a_size_moves_along_with_the_attribute_that_states_it() -> None:
    """Blocks of 16 and of 64 need a weight of another size: changed alone, the attribute only makes
    a model that is none."""
    block = every(BLOCKS)["DequantizeLinear block_size"]
    assert block.base == 32
    assert {16, 64} <= set(block.levels)
    for level in (16, 64):
        assert block.at(level).weights["b"].shape == (2 * level, 8)
    model = construct(block.at(64))
    assert [list(w.dims) for w in model.graph.initializer] == [[128, 8], [2, 8]]


def test_what_the_model_leaves_open_stays_so_in_the_case_and_its_program(tmp_path: Path) -> None:
    made = msgspec.structs.replace(
        HEADS, inputs={"x": MadeTensor("float32", (2, 5, 12), open=(0,))}
    )
    stated = state_model(construct(made), "", draw_feed(made, 1))
    assert stated.inputs["x"].open == (0,)
    sizes = every(stated)["the sizes of inputs"]
    assert (sizes.base, sizes.levels) == ("open", ("fixed",))
    for case, size in ((stated, 0), (sizes.at("fixed"), 2)):
        model, _ = run_generator(case, tmp_path)
        assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == size


def test_of_a_number_the_other_sign_is_tried_first_and_of_a_count_the_sizes_it_may_meet() -> None:
    top = Construction(
        opset=17,
        inputs={"x": MadeTensor("float32", (1, 36))},
        weights={
            "k": MadeTensor("int64", (1,), values=[12]),
            "s": MadeTensor("float32", (1,), values=[-0.03]),
        },
        nodes=(MadeNode("Mul", ("x", "s"), ("t",)), MadeNode("TopK", ("t", "k"), ("v", "at"))),
        outputs={"v": "float32", "at": "int64"},
    )
    factors = every(top)
    levels = factors["s"].levels
    assert levels[0] == 0.03
    assert {n < 0 for n in levels if not isinstance(n, str)} == {True, False}
    assert 36 in factors["k"].levels
    drawn = draw_feed(factors["x holds"].at(FEW), 1)["x"]
    assert 1 < len(np.unique(drawn)) < 8


def test_levels_stay_within_what_a_machine_builds_at_once() -> None:
    rows = [Place("dim", "x", 0)]
    for width, most in ((5, 2400), (50, (1 << 20) // (50 * 12))):
        made = msgspec.structs.replace(HEADS, inputs={"x": MadeTensor("float32", (600, width, 12))})
        size = list_factors(made, [rows])[0]
        assert size.name == "x.shape[0]"
        assert most / 2 < max(map(int, size.levels)) <= most


def test_values_are_made_larger_and_smaller_as_far_as_their_type_holds_them() -> None:
    for dtype, most, levels in (
        ("float32", 1.0, ("16", "0.0625", "4,100", "0.000244", "1,070,000,000", "9.31e-10")),
        ("float32", 2.0**50, ("1.8e+16", "7.04e+13", "275,000,000,000", "1,050,000")),
        ("int32", 100.0, ("1,600", "6.25", "410,000")),
    ):  # fmt: skip
        made = msgspec.structs.replace(GEMM, inputs={"a": MadeTensor(dtype, (4, 4), (-most, most))})
        scale = every(made)["the largest |a|"]
        assert scale.levels == levels
        assert scale.at(scale.levels[0]).inputs["a"].range == (-16 * most, 16 * most)


def test_a_size_of_a_case_with_values_repeats_them() -> None:
    made = msgspec.structs.replace(
        GEMM, inputs={"a": MadeTensor("float32", (2, 2), values=[1, 2, 3, 4])}
    )
    wider = resize(made, [Place("dim", "a", 1)], 2, 3)
    assert wider.inputs["a"].values == [1, 2, 3, 4, 1, 2]


def test_a_case_read_back_is_the_case() -> None:
    """Declared, made, and stated from the model and its feed again."""
    for made in (GEMM, POOL, HEADS):
        model, feed = construct(made), draw_feed(made, 1)
        stated = state_model(model, "", feed)
        assert construct(stated).graph.node == model.graph.node
        again = draw_feed(stated, 7)
        assert all(np.array_equal(again[n], feed[n]) for n in feed)


def test_drawn_values_reach_both_ends_whatever_the_size() -> None:
    for many in (2, 3, 100):
        made = msgspec.structs.replace(
            HEADS, inputs={"x": MadeTensor("float32", (many,), (-3.0, 2.0))}
        )
        value = draw_feed(made, 5)["x"]
        assert (value.min(), value.max()) == (-3.0, 2.0)
    one = msgspec.structs.replace(HEADS, inputs={"x": MadeTensor("float32", (1,), (-3.0, 2.0))})
    assert draw_feed(one, 5)["x"].tolist() == [-3.0]


def test_what_cannot_be_said_in_a_few_lines_is_refused() -> None:
    tensor = onnx.helper.make_tensor("v", onnx.TensorProto.FLOAT, [1], [3.0])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("ConstantOfShape", ["s"], ["y"], value=tensor)],
        "g",
        [onnx.helper.make_tensor_value_info("s", onnx.TensorProto.INT64, [1])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    with pytest.raises(ModelProblem, match="holds a tensor or a graph"):
        state_model(model, "", {"s": np.array([2], np.int64)})


# -- the program


def run_generator(made: Construction, at: Path) -> Any:
    """The (model, feeds) of the program."""
    text = write_generator(Program(made, 'A "case"', "fails with a >= 2\\n"))
    path = at / "make_case.py"
    path.write_text(text, encoding="utf-8")
    space = runpy.run_path(str(path))
    return space["make"](**space["CASE"])


def off(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> float:
    """How far ONNX Runtime is from itself with its optimizers off."""
    answers = []
    for level in (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    ):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        answers.append(session.run(None, feeds)[0])
    return float(np.abs(answers[0] - answers[1]).max())


def test_the_program_makes_what_fires_and_what_passes(tmp_path: Path) -> None:
    made = msgspec.structs.replace(
        POOL, inputs={"x": MadeTensor("float32", (1, 1, 4, 4), (-2.0, -1.0))}
    )
    factors = every(made)
    wide, edge = factors["x.shape[2]"].at(7), factors["Pad mode"].at("edge")
    assert off(*run_generator(made, tmp_path)) > 0.5
    assert off(*run_generator(wide, tmp_path)) > 0.5
    assert off(*run_generator(edge, tmp_path)) == 0.0
    model, feeds = run_generator(factors["the type"].at("float64"), tmp_path)
    assert feeds["x"].shape == (1, 1, 4, 4)
    assert feeds["x"].dtype == np.float64
    assert model.opset_import[0].version == POOL.opset


@pytest.mark.parametrize("made", [GEMM, POOL, HEADS, BLOCKS])
def test_the_program_makes_the_case(made: Construction, tmp_path: Path) -> None:
    model, feeds = run_generator(made, tmp_path)
    ours = construct(made)
    assert [n.op_type for n in model.graph.node] == [n.op_type for n in ours.graph.node]
    assert [list(w.dims) for w in model.graph.initializer] == [
        list(w.dims) for w in ours.graph.initializer
    ]
    assert {n: (a.shape, a.dtype) for n, a in feeds.items()} == {
        n: (a.shape, a.dtype) for n, a in draw_feed(made, 1).items()
    }
