"""Declarations with something changed, what of them can be changed together, and the program that
makes them."""

import json
import runpy
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest

from narrowdown.engines.graph.construct import construct, draw_feed
from narrowdown.engines.graph.model_problem import ModelProblem
from narrowdown.engines.known.entry import Construction, MadeNode, MadeTensor
from narrowdown.engines.known.generator import Program, name_parameters, write_generator
from narrowdown.engines.known.table import read_table
from narrowdown.engines.known.varied import ABSENT, FEW, Factor, Level, Place, vary
from narrowdown.engines.search.factors import list_factors
from narrowdown.engines.views import EngineView, OptionView
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
VIEW = EngineView(
    options=(OptionView("threads", 1), OptionView("precision", "f32", choices=("f32", "bf16")))
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
    tied = {f.name: f for f in every(HEADS) if f.kind == "size"}
    varied = vary(vary(HEADS, tied["to[2]"], 5), tied["to[3]"], 8)
    assert varied.inputs["x"].shape == (2, 5, 40)
    assert varied.weights["to"].values == [2, 5, 5, 8]
    assert len(construct(varied).graph.node) == 2


def every(made: Construction) -> list[Factor]:
    return list(list_factors(made, find_sizes(made, REFERENCE), "onnxruntime", VIEW))


@pytest.mark.parametrize("made", [GEMM, POOL, HEADS])
def test_every_level_changes_the_case_and_what_is_no_model_says_so(made: Construction) -> None:
    models = 0
    for factor in every(made):
        assert factor.base not in factor.levels
        for level in factor.levels:
            varied = vary(made, factor, level)
            assert factor.kind == "option" or varied != made, (factor.name, level)
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


def test_a_size_moves_along_with_the_attribute_that_states_it(tmp_path: Path) -> None:
    """Blocks of 16 and of 64 need a weight of another size: changed alone, the attribute only makes
    a model that is none."""
    every_one = every(BLOCKS)
    (block,) = (f for f in every_one if f.name == "DequantizeLinear block_size")
    assert block.base == 32
    assert {16, 64} <= set(block.levels)
    for level in (16, 64):
        assert vary(BLOCKS, block, level).weights["b"].shape == (2 * level, 8)
    space = run_generator(
        BLOCKS, [f for f in every_one if f.kind == "size"], [[(block, 64)], []], tmp_path
    )
    model, feeds = space["make"](**space["FIRES"][1])
    assert feeds["x"].shape == (3, 128)
    assert [list(w.dims) for w in model.graph.initializer] == [[128, 8], [2, 8]]


def test_what_the_model_leaves_open_stays_so_in_the_case_and_its_program(tmp_path: Path) -> None:
    made = msgspec.structs.replace(
        HEADS, inputs={"x": MadeTensor("float32", (2, 5, 12), open=(0,))}
    )
    stated = state_model(construct(made), "", draw_feed(made, 1))
    assert stated.inputs["x"].open == (0,)
    sizes = next(f for f in every(stated) if f.kind == "open")
    assert (sizes.base, sizes.levels) == ("open", ("fixed",))
    space = run_generator(stated, [sizes], [[], [(sizes, "fixed")]], tmp_path)
    for row, size in ((space["FIRES"][0], 0), (space["PASSES"][0], 2)):
        model, _ = space["make"](**row)
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
    levels = {f.name: f.levels for f in every(top) if f.kind == "number"}
    assert levels["s"][0] == 0.03
    assert {n < 0 for n in levels["s"] if not isinstance(n, str)} == {True, False}
    assert 36 in levels["k"]
    holds = next(f for f in every(top) if f.name == "x holds")
    drawn = draw_feed(vary(top, holds, FEW), 1)["x"]
    assert 1 < len(np.unique(drawn)) < 8


def test_levels_stay_within_what_a_machine_builds_at_once() -> None:
    made = msgspec.structs.replace(HEADS, inputs={"x": MadeTensor("float32", (600, 5, 12))})
    first = Factor("n", "size", 600, places=(Place("dim", "x", 0),))
    rows = next(
        f for f in list_factors(made, [first.places], "onnxruntime", VIEW) if f.kind == "size"
    )
    assert max(map(int, rows.levels)) == 2400
    wide = msgspec.structs.replace(HEADS, inputs={"x": MadeTensor("float32", (600, 50, 12))})
    rows = next(
        f for f in list_factors(wide, [first.places], "onnxruntime", VIEW) if f.kind == "size"
    )
    assert max(map(int, rows.levels)) * 50 * 12 <= 1 << 20


@pytest.mark.parametrize(
    ("asked", "computes", "levels"),
    [
        ("f16", "fp16", ["f32"]),
        ("bf16", "bf16", ["f32"]),  # f16 has the longer mantissa and the smaller range
        ("default", "bf16", ["f32"]),
        ("f32", "fp32", []),
        ("f16", "fp32", []),  # a hint that this processor cannot follow
    ],
)
def test_a_case_is_moved_to_wider_precisions_alone(
    asked: str, computes: str, levels: list[str]
) -> None:
    """In a narrower one it would fail of rounding and overflow, on processors that have it, and
    that would be called the bug."""
    options = (OptionView("precision", "default", choices=("default", "f32", "f16", "bf16")),)
    listed = list_factors(
        GEMM, [], f"openvino:precision={asked}", EngineView(precision=computes, options=options)
    )
    assert [list(f.levels) for f in listed if f.key == "precision"] == ([levels] if levels else [])


def test_of_large_numbers_small_ones_are_tried_too_and_of_small_ones_none_are_smaller_still() -> (
    None
):
    for most, has in ((2.0**36, True), (1.0, False)):
        made = msgspec.structs.replace(
            GEMM, inputs={"a": MadeTensor("float32", (4, 4), (-most, most))}
        )
        scale = next(f for f in every(made) if f.kind == "scale")
        assert (int(scale.base) - 30 in scale.levels) == has


def test_a_size_of_a_case_with_values_repeats_them() -> None:
    made = msgspec.structs.replace(
        GEMM, inputs={"a": MadeTensor("float32", (2, 2), values=[1, 2, 3, 4])}
    )
    wider = Factor("n", "size", 2, places=(Place("dim", "a", 1),))
    assert vary(made, wider, 3).inputs["a"].values == [1, 2, 3, 4, 1, 2]


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


def run_generator(
    made: Construction, factors: list[Factor], rows: list[list[tuple[Factor, Level]]], at: Path
) -> Any:
    """The program's names. ``rows``: settings that fire, settings that pass."""
    fires, passes = (tuple((f.name, level) for f, level in levels) for levels in rows)
    said = ('A "case"', "fires iff a >= 2\\n")
    text = write_generator(Program(made, tuple(factors), fires, passes, (), *said))
    path = at / "make_case.py"
    path.write_text(text, encoding="utf-8")
    return runpy.run_path(str(path))


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
    factors = [
        f
        for f in every(POOL)
        if f.kind == "size" or f.name in ("p", "Pad mode", "opset", "the type")
    ]
    size = next(f for f in factors if f.name == "x.shape[2]")
    pads, mode = (next(f for f in factors if f.name == name) for name in ("p", "Pad mode"))
    none: Level = json.dumps([0] * 8)
    made = msgspec.structs.replace(
        POOL, inputs={"x": MadeTensor("float32", (1, 1, 4, 4), (-2.0, -1.0))}
    )
    space = run_generator(
        made, factors, [[(size, 7), (mode, ABSENT)], [(pads, none), (mode, "edge")]], tmp_path
    )
    assert [set(row) for row in space["FIRES"]] == [set(), {"x_shape_2"}, {"pad_mode"}]
    assert len(space["PASSES"]) == 2
    for row in space["FIRES"]:
        assert off(*space["make"](**row)) > 0.5, row
    for row in space["PASSES"]:
        assert off(*space["make"](**row)) == 0.0, row
    model, feeds = space["make"](x_shape_2=9, the_type="float64")
    assert feeds["x"].shape == (1, 1, 9, 4)
    assert feeds["x"].dtype == np.float64
    assert model.opset_import[0].version == POOL.opset


def test_the_program_keeps_out_what_it_has_no_parameter_for(tmp_path: Path) -> None:
    threads = Factor("threads", "option", "1", ("2",), key="threads")
    space = run_generator(
        GEMM, [f for f in every(GEMM) if f.kind == "size"], [[(threads, "2")], []], tmp_path
    )
    assert space["FIRES"] == [{}]
    model, feeds = space["make"](a_shape_0=6, a_shape_1=3)
    assert feeds["a"].shape == (6, 3)
    assert [list(w.dims) for w in model.graph.initializer] == [[3, 4], [4]]


def test_the_program_multiplies_what_is_a_product(tmp_path: Path) -> None:
    space = run_generator(HEADS, [f for f in every(HEADS) if f.kind == "size"], [[], []], tmp_path)
    _, feeds = space["make"](to_2=5, to_3=8)
    assert feeds["x"].shape == (2, 5, 40)


def test_parameters_have_names_that_python_takes_and_no_two_the_same() -> None:
    odd = [
        Factor("/a/b.shape[0]", "size", 1),
        Factor("a b shape 0", "size", 1),
        Factor("1x", "size", 1),
    ]
    names = list(name_parameters(odd).values())
    assert all(name.isidentifier() for name in names)
    assert len(set(names)) == 3
