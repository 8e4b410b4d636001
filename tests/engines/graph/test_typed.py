"""Typed models: valid, casts only at the borders of islands, types by the operators' own rules."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from narrowdown.engines.graph import converted, external
from narrowdown.engines.graph.emulate import PRECISIONS
from narrowdown.engines.graph.typed import to_float64, to_precision
from narrowdown.engines.store import Store

from .subjects import Subject, graph, layer_norm, relative, run, subject
from .test_cut import _FEEDS, models

FLOAT, HALF, BF16, DOUBLE, INT64 = (
    TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE, TensorProto.INT64,
)  # fmt: skip
n = helper.make_node


def inferred(model: onnx.ModelProto) -> dict[str, int]:
    """Element types by ONNX's strict inference: raises where two types meet that may not."""
    full = shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    infos = (*full.graph.value_info, *full.graph.input, *full.graph.output)
    return {i.name: i.type.tensor_type.elem_type for i in infos} | {
        t.name: t.data_type for t in full.graph.initializer
    }


def casts(model: onnx.ModelProto) -> int:
    return sum(node.op_type == "Cast" for node in model.graph.node)


def test_islands_exchange_their_own_type() -> None:
    model, _ = layer_norm(1)
    everything = to_precision(model, "fp16", [])
    assert casts(everything) == 2  # the input and the output
    island = to_precision(model, "fp16", [2, 3, 4, 5, 6, 7])
    types = inferred(island)
    inner = ("centred", "squares", "variance", "safe", "deviation", "normal")
    assert {types[name] for name in inner} == {FLOAT}
    assert {types[name] for name in ("y", "mean", "x__fp16")} == {HALF}
    assert casts(island) == 2 + 3  # y and mean go in, normal comes out
    assert casts(to_precision(model, "fp16", range(9))) == 0
    assert [
        o.type.tensor_type.elem_type for o in (island.graph.input[0], island.graph.output[0])
    ] == [FLOAT, FLOAT]
    assert {t.name: t.data_type for t in island.graph.initializer} == {
        "w": HALF,
        "v": HALF,
        "two": FLOAT,
        "eps": FLOAT,
    }


def test_kept_outputs_need_no_cast_and_shared_weights_come_in_both_types() -> None:
    nodes = [n("Add", ["x", "w"], ["a"]), n("Mul", ["a", "w"], ["y"])]
    model = graph(nodes, {"x": (FLOAT, [2])}, [], {"w": np.array([0.1, 0.2], np.float32)})
    for name in ("y", "a"):
        model.graph.output.append(helper.make_tensor_value_info(name, FLOAT, [2]))
    made = to_precision(model, "fp16", [1])
    types = inferred(made)
    assert types["y"] == FLOAT
    assert {"w", "w__fp32"} <= {t.name for t in made.graph.initializer}
    onnx.checker.check_model(made, full_check=True)
    x = np.array([1, 2], np.float32)
    w = np.array([0.1, 0.2], np.float32)
    a = (x.astype(np.float16) + w.astype(np.float16)).astype(np.float32)
    y, got_a = ReferenceEvaluator(made).run(None, {"x": x})
    np.testing.assert_array_equal(got_a, a)
    np.testing.assert_array_equal(y, a * w)


@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp64"])
def test_attributes_that_decide_types_are_converted(precision: str) -> None:
    nodes = [
        n("Cast", ["i"], ["c"], to=FLOAT), n("ConstantOfShape", ["shape"], ["z"]),
        n("ConstantOfShape", ["shape"], ["o"], value=numpy_helper.from_array(np.array([1.5], np.float32))),
        n("ConstantOfShape", ["shape"], ["k"], value=numpy_helper.from_array(np.array([2], np.int64))),
        n("EyeLike", ["i"], ["eye"], dtype=FLOAT), n("RandomNormal", [], ["r"], shape=[2, 2], seed=1.0),
        n("Add", ["c", "z"], ["s1"]), n("Add", ["s1", "o"], ["s2"]), n("Add", ["s2", "eye"], ["s3"]),
        n("Mul", ["r", "z"], ["r0"]),
        n("Add", ["s3", "r0"], ["s4"]), n("Cast", ["s4"], ["y"], to=INT64), n("Add", ["y", "k"], ["final"]),
        n("CastLike", ["i", "s4"], ["like"]), n("Add", ["like", "s4"], ["w"]),
    ]  # fmt: skip
    model = graph(
        nodes, {"i": (INT64, [2, 2])}, [], {"shape": np.array([2, 2])}, opset=20, ir_version=9
    )
    model.graph.output.append(helper.make_tensor_value_info("final", INT64, [2, 2]))
    model.graph.output.append(helper.make_tensor_value_info("w", FLOAT, [2, 2]))
    made = to_float64(model) if precision == "fp64" else to_precision(model, precision, [])
    target = DOUBLE if precision == "fp64" else PRECISIONS[precision][0]
    types = inferred(made)
    for name in ("z", "o", "s1", "s2", "s3", "s4"):
        assert types[name] == target, name
    for name in ("c", "like"):  # the model's own casts of INT64 round, and so they do in its judge
        assert types[name] == (FLOAT if precision == "fp64" else target), name
    assert types["k"] == INT64
    for name in ("eye", "r"):  # at this opset without BF16
        assert types[name] == (FLOAT if precision == "bf16" else target)
    onnx.checker.check_model(made, full_check=True)
    final, w = ReferenceEvaluator(made).run(None, {"i": np.array([[1, 2], [3, 4]])})
    np.testing.assert_array_equal(
        final, np.array([[4, 5], [6, 8]]) + 0 * final + np.array([[1, 0], [0, 0]])
    )
    assert w.dtype == np.float32
    np.testing.assert_array_equal(w, [[4.5, 5.5], [7.5, 10.5]])


def test_operators_without_the_type_stay_with_casts(tmp_path: Path) -> None:
    nodes = [
        n("Mul", ["boxes", "one"], ["b"]), n("Mul", ["scores", "one"], ["s"]),
        n("NonMaxSuppression", ["b", "s", "count", "iou"], ["chosen"]),
        n("QuantizeLinear", ["s", "scale", "zero"], ["q"]), n("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        n("Add", ["d", "s"], ["y"]),
        n("Range", ["start", "stop", "step"], ["range"]), n("Mul", ["range", "one"], ["r"]),
    ]  # fmt: skip
    weights = {
        "one": np.float32(1), "count": np.array([5]), "iou": np.array([0.5], np.float32), "scale": np.float32(0.003),
        "zero": np.uint8(3), "start": np.float32(0), "stop": np.float32(1), "step": np.float32(0.1),
    }  # fmt: skip
    model = graph(
        nodes, {"boxes": (FLOAT, [1, 3, 4]), "scores": (FLOAT, [1, 1, 3])}, [], weights, opset=13
    )
    for name, kind, shape in (
        ("chosen", INT64, [None, 3]),
        ("y", FLOAT, [1, 1, 3]),
        ("r", FLOAT, [None]),
    ):
        model.graph.output.append(helper.make_tensor_value_info(name, kind, shape))
    made = to_precision(model, "fp16", [])
    types = inferred(made)
    assert (types["d"], types["range"], types["b"]) == (FLOAT, FLOAT, HALF)
    onnx.checker.check_model(made, full_check=True)
    feeds = {
        "boxes": np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11]]], np.float32),
        "scores": np.array([[[0.9, 0.75, 0.6]]], np.float32),
    }  # fmt: skip
    expected, got = run(model, feeds), run(made, feeds)
    np.testing.assert_array_equal(got["chosen"], expected["chosen"])
    assert got["r"].shape == (10,)
    for name in ("y", "r"):
        assert got[name].dtype == np.float32
        assert relative(got[name], expected[name]) < 2e-3


def test_bf16_stays_out_of_operators_that_lack_it() -> None:
    nodes = [n("Conv", ["x", "w"], ["c"]), n("Relu", ["c"], ["y"])]
    w = np.random.default_rng(0).standard_normal((2, 1, 3, 3), np.float32)
    model = graph(nodes, {"x": (FLOAT, [1, 1, 5, 5])}, [], {"w": w})
    model.graph.output.append(helper.make_tensor_value_info("y", FLOAT, [1, 2, 3, 3]))
    made = to_precision(model, "bf16", [])
    onnx.checker.check_model(made, full_check=True)
    types = inferred(made)
    assert types["c"] == FLOAT
    assert {t.name: t.data_type for t in made.graph.initializer} == {"w": FLOAT}
    x = np.random.default_rng(1).standard_normal((1, 1, 5, 5), np.float32)
    assert (
        relative(ReferenceEvaluator(made).run(None, {"x": x})[0], run(model, {"x": x})["y"]) < 5e-3
    )


def test_layer_normalization_keeps_its_statistics_in_float32() -> None:
    nodes = [
        n("LayerNormalization", ["x", "g"], ["y", "mean", "inverse"]),
        n("Mul", ["mean", "inverse"], ["z"]),
    ]
    model = graph(nodes, {"x": (FLOAT, [2, 8])}, [], {"g": np.ones(8, np.float32)})
    for name, shape in (("y", [2, 8]), ("z", [2, 1])):
        model.graph.output.append(helper.make_tensor_value_info(name, FLOAT, shape))
    for precision in ("fp16", "bf16"):
        types = inferred(to_precision(model, precision, []))
        assert (types["mean"], types["inverse"]) == (FLOAT, FLOAT)
        assert types["z__" + precision] == PRECISIONS[precision][0]


def test_sequences_keep_their_own_type() -> None:
    nodes = [
        n("Neg", ["x"], ["a"]),
        n("SequenceConstruct", ["a", "x"], ["s"]),
        n("SequenceAt", ["s", "zero"], ["b"]),
        n("Abs", ["b"], ["y"]),
    ]
    model = graph(nodes, {"x": (FLOAT, [3])}, [], {"zero": np.int64(0)})
    model.graph.output.append(helper.make_tensor_value_info("y", FLOAT, [3]))
    made = to_precision(model, "fp16", [])
    onnx.checker.check_model(made, full_check=True)
    x = np.array([1.1, -2.2, 3.3], np.float32)
    np.testing.assert_array_equal(
        ReferenceEvaluator(made).run(None, {"x": x})[0],
        np.abs(x.astype(np.float16)).astype(np.float32),
    )


@settings(max_examples=40)
@given(model=models(), data=st.data())
def test_random_models_stay_valid_and_near(
    tmp_path_factory: pytest.TempPathFactory, model: onnx.ModelProto, data: st.DataObject
) -> None:
    for output in model.graph.output:
        output.CopyFrom(helper.make_tensor_value_info(output.name, FLOAT, ["n", 20]))
    keep = sorted(data.draw(st.sets(st.sampled_from(range(len(model.graph.node))))))
    folder = tmp_path_factory.mktemp("typed")
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    case = subject(folder / "m.onnx", Store(folder / "s"), _FEEDS)
    made = case.cut()
    for target in ("fp16", "fp64"):
        path = case.store.models / f"{target}.onnx"
        typed = (
            to_float64(made.model) if target == "fp64" else to_precision(made.model, target, keep)
        )
        converted.write_files(
            external.initializers_with_bodies(typed.graph), case.model.weights_dir
        )
        path.write_bytes(typed.SerializeToString())
        onnx.checker.check_model(str(path), full_check=True)
        with np.errstate(all="ignore"):
            values = ReferenceEvaluator(onnx.load(path)).run(None, _FEEDS)
        for output, value in zip(typed.graph.output, values, strict=True):
            expected = case.values[made.outputs[output.name]]
            assert value.dtype == np.float32
            if np.abs(expected).max() < 1e3:
                np.testing.assert_allclose(
                    value, expected, rtol=0.05, atol=0.05 if target == "fp16" else 1e-4
                )


def test_doubles_judge_the_reference(sort: Subject, shapes: Subject) -> None:
    for case in (sort, shapes):
        made = to_float64(case.cut().model)
        path = case.store.models / "double.onnx"
        path.write_bytes(made.SerializeToString())
        converted.write_files(external.initializers_with_bodies(made.graph), case.model.weights_dir)
        onnx.checker.check_model(str(path), full_check=True)
        (value,) = ReferenceEvaluator(onnx.load(path)).run(None, case.feeds)
        assert value.dtype == np.float32
        assert 0 < relative(value, case.values[case.index.outputs[0]]) < 1e-5
        own = {v.name for v in (*made.graph.input, *made.graph.output)}
        own |= {
            node.output[0] for node in case.cut().model.graph.node if node.op_type == "Cast"
        }  # of integers
        assert not any(
            t == FLOAT for name, t in inferred(onnx.load(path)).items() if name not in own
        )


def test_a_half_model_is_judged_in_doubles() -> None:
    nodes = [
        n("Mul", ["x", "w"], ["a"]),
        n("Cast", ["a"], ["b"], to=FLOAT),
        n("Add", ["b", "v"], ["y"]),
    ]
    weights = {"w": np.array([0.1, 0.2], np.float16), "v": np.array([1e-3, 1e-4], np.float32)}
    model = graph(nodes, {"x": (HALF, [2])}, [], weights)
    model.graph.output.append(helper.make_tensor_value_info("y", FLOAT, [2]))
    made = to_float64(model)
    types = inferred(made)
    assert {t for name, t in types.items() if name not in ("x", "y")} == {DOUBLE}
    assert (types["x"], types["y"]) == (HALF, FLOAT)
    (y,) = ReferenceEvaluator(made).run(None, {"x": np.array([1.5, 2.5], np.float16)})
    exact = np.array([1.5, 2.5]) * weights["w"].astype(float) + weights["v"].astype(float)
    np.testing.assert_array_equal(y, exact.astype(np.float32))


def test_the_models_own_casts_round_in_doubles_too() -> None:
    """Rewritten, Cast(to=FLOAT16) of 1e5 would stay 1e5 in the judge, and the reference be off by
    infinity."""
    nodes = [
        n("Cast", ["x"], ["h"], to=HALF), n("Mul", ["h", "h"], ["hh"]), n("Cast", ["hh"], ["wide"], to=FLOAT),
        n("Cast", ["x"], ["whole"], to=INT64), n("Cast", ["whole"], ["back"], to=FLOAT), n("Mul", ["back", "wide"], ["y"]),
    ]  # fmt: skip
    model = graph(nodes, {"x": (FLOAT, [3])}, [], {})
    for name in ("h", "back", "y"):
        model.graph.output.append(
            helper.make_tensor_value_info(name, HALF if name == "h" else FLOAT, [3])
        )
    made = to_float64(model)
    onnx.checker.check_model(made, full_check=True)
    types = inferred(made)
    assert (types["h"], types["hh"], types["wide"], types["back"]) == (HALF, DOUBLE, DOUBLE, FLOAT)
    x = np.array([1e5, 2049, 1 / 3], np.float32)
    with np.errstate(over="ignore"):
        h, back, y = ReferenceEvaluator(made).run(None, {"x": x})
    assert h.tolist() == [np.inf, 2048, np.float16(x[2])]
    assert (back.tolist(), y.tolist()) == ([100000, 2049, 0], [np.inf, 2049 * 2048.0**2, 0])
