"""Rewrites compute the same: on models of ours, on ONNX's own node tests, and not where their
precondition does not hold."""

import sys
from collections import Counter
from collections.abc import Callable
from types import ModuleType

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.reference import ReferenceEvaluator

from narrowdown.engines.graph import names, rewrites
from narrowdown.engines.graph.rewrite_list import REWRITES as TOLD, STABLE_FORMS
from narrowdown.engines.graph.rewrites import OTHER_OPSET, REWRITES, keep_apart, rewrite_model
from narrowdown.engines.probe import APART, BARRIER, FIXED_SIZES, WRAPS

from ...plugins.weak.narrowdown_weak.engine import write_plainly

Node = onnx.NodeProto


def model(
    nodes: list[Node],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    shape: tuple[int, ...] = (2, 3, 4),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, k) for k, v in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def node(op: str, inputs: str, outputs: str, **attributes: object) -> Node:
    return helper.make_node(
        op, inputs.split(), outputs.split(), name=f"{op}>{outputs}", **attributes
    )


def both(
    name: str, given: onnx.ModelProto, x: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray], tuple[str, ...]]:
    """What the model gives, what it gives rewritten, and what was changed."""
    changed, done = rewrite_model(given, "", name, range(len(given.graph.node)))
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(changed))
    outputs = [o.name for o in given.graph.output]
    return (
        ReferenceEvaluator(given).run(outputs, {"x": x}),
        ReferenceEvaluator(changed).run(outputs, {"x": x}),
        done,
    )


def branch(op: str, inputs: str) -> onnx.GraphProto:
    out = helper.make_tensor_value_info("inner", TensorProto.FLOAT, (2, 3, 4))
    return helper.make_graph([node(op, inputs, "inner")], op, [], [out])


def norm() -> onnx.ModelProto:
    nodes = [
        node("ReduceMean", "x", "mean", axes=[-1]),
        node("Sub", "x mean", "d"),
        node("Pow", "d two", "sq"),
        node("ReduceMean", "sq", "var", axes=[-1]),
        node("Add", "var eps", "ve"),
        node("Sqrt", "ve", "sd"),
        node("Div", "d sd", "y"),
    ]
    return model(nodes, {"two": np.float32(2), "eps": np.float32(1e-2)})


GIVEN: dict[str, tuple[Callable[[], onnx.ModelProto], tuple[str, ...]]] = {
    "drop-identity": (
        lambda: model(
            [
                node("Transpose", "x", "a", perm=[0, 1, 2]),
                node("Cast", "a", "b", to=1),
                node("Transpose", "b", "c", perm=[0, 2, 1]),
                node("Relu", "c", "y"),
            ]
        ),
        ("Transpose>a", "Cast>b"),
    ),
    "scale-norm": (norm, ("Pow>sq",)),
    "fit-mask": (
        lambda: model(
            [node("Add", "x m", "a"), node("Softmax", "a", "y")], {"m": np.float32([0, 0, -1e9, 0])}
        ),
        ("Add>a",),
    ),
    "unfuse-reductions": (
        lambda: model(
            [
                node("ReduceL2", "x", "a", axes=[1]),
                node("ReduceLogSum", "a", "y", axes=[-1], keepdims=0),
            ]
        ),
        ("ReduceL2>a", "ReduceLogSum>y"),
    ),
    "unfuse-functions": (
        lambda: model(
            [
                node("Gelu", "x", "a", approximate="tanh"),
                node("HardSwish", "a", "b"),
                node("Celu", "b", "y", alpha=0.5),
            ],
            opset=20,
        ),
        ("Gelu>a", "HardSwish>b", "Celu>y"),
    ),
    "widen-attention": (
        lambda: model(
            [
                node("Cast", "x", "q", to=10),
                node("Transpose", "q", "k", perm=[0, 2, 1]),
                node("MatMul", "q k", "s"),
                node("Mul", "s scale", "t"),
                node("Add", "t mask", "u"),
                node("Softmax", "u", "p"),
                node("MatMul", "p q", "o"),
                node("Cast", "o", "y", to=1),
            ],
            {"scale": np.float16(0.5), "mask": np.float16([0, 0, -100])},
        ),
        ("Softmax>p",),
    ),
    STABLE_FORMS: (
        lambda: model(
            [
                node("Softplus", "x", "a"),
                node("ReduceLogSumExp", "a", "b", axes=[1]),
                node("ReduceL2", "b", "c", axes=[0], keepdims=0),
                node("ReduceLogSumExp", "c", "d", axes=[0], keepdims=0),
                node("Mul", "d x", "e"),
                node("Mul", "e e", "f"),
                node("ReduceMean", "f", "g", axes=[-1], keepdims=0),
                node("ReduceMean", "e", "h", axes=[-1], keepdims=0),
                node("Mul", "h h", "i"),
                node("Sub", "g i", "y"),
            ]
        ),
        ("Softplus>a", "ReduceLogSumExp>b", "ReduceL2>c", "ReduceLogSumExp>d", "Sub>y"),
    ),
    OTHER_OPSET: (
        lambda: model([node("Relu", "x", "a"), node("Softmax", "a", "y", axis=1)], opset=13),
        ("Relu>a", "Softmax>y"),
    ),
    "explicit-pad": (
        lambda: model(
            [node("Conv", "x w", "y", auto_pad="SAME_LOWER")],
            {"w": np.ones((3, 3, 2), np.float32)},
            shape=(2, 3, 4),
        ),
        ("Conv>y",),
    ),
}


def test_what_is_told_of_is_what_can_be_done() -> None:
    assert {r.name for r in TOLD} - {*APART, FIXED_SIZES} == {*REWRITES, OTHER_OPSET} == set(GIVEN)


@pytest.mark.parametrize("name", GIVEN)
def test_it_computes_the_same(name: str) -> None:
    make, changed = GIVEN[name]
    x = np.random.default_rng(3).normal(size=(2, 3, 4)).astype(np.float32)
    before, after, done = both(name, make(), x)
    assert done == changed
    near = 2e-3 if name == "widen-attention" else 1e-6  # halves round where FP32 does not
    for a, b in zip(before, after, strict=True):
        np.testing.assert_allclose(b, a, rtol=near, atol=near)


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("op", ["ReduceLogSumExp", "ReduceL2", "Softplus", "Sub"])
def test_stable_forms_hold_where_the_plain_formula_breaks(
    op: str, keepdims: int, opset: int
) -> None:
    """By engines that compute the formula as it stands: exponents of 300, squares of 1e25, a
    variance of 1 about 4,096; and a norm of nothing but 0."""
    over: dict[str, object] = {"axes": [1]} if opset < 18 else {}
    axes, weights = ("", {}) if over else (" axes", {"axes": np.int64([1])})
    mean = [
        node("Mul", "x x", "s"),
        node("ReduceMean", f"s{axes}", "a", keepdims=keepdims, **over),
        node("ReduceMean", f"x{axes}", "m", keepdims=keepdims, **over),
        node("Mul", "m m", "b"),
        node("Sub", "a b", "y"),
    ]
    if op == "Softplus":
        given = model([node(op, "x", "y")], opset=opset)
    elif op == "Sub":
        given = model(mean, weights, opset)
    else:
        given = model([node(op, f"x{axes}", "y", keepdims=keepdims, **over)], weights, opset)
    x = np.random.default_rng(5).normal(size=(2, 3, 4)).astype(np.float32)
    x = {"ReduceL2": x * 1e25, "Sub": x + 4096}.get(op, x * 300).astype(np.float32)
    x[0, :, 0] = 0
    changed, done = rewrite_model(given, "", STABLE_FORMS, [])
    assert done == (f"{op}>y",)
    made = onnx.shape_inference.infer_shapes(changed, strict_mode=True)
    exact = np.float64(x)
    wanted = {
        "ReduceLogSumExp": lambda: np.logaddexp.reduce(exact, 1, keepdims=keepdims > 0),
        "ReduceL2": lambda: np.sqrt((exact * exact).sum(1, keepdims=keepdims > 0)),
        "Softplus": lambda: np.logaddexp(exact, 0),
        "Sub": lambda: exact.var(1, keepdims=keepdims > 0),
    }[op]()
    got = ReferenceEvaluator(write_plainly(made)).run(None, {"x": x})[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(
    ("op", "more"),
    [
        ("ConvTranspose", {"strides": [2, 2]}),
        ("ConvTranspose", {"dilations": [2, 2]}),
        ("Conv", {}),
        ("MaxPool", {"kernel_shape": [2, 4]}),
    ],
)
def test_padding_that_auto_pad_stands_for_is_stated(
    op: str, more: dict[str, object], mode: str
) -> None:
    inputs, weights = (
        ("x", {})
        if op == "MaxPool"
        else ("x w", {"w": np.random.default_rng(1).normal(size=(2, 2, 3, 4)).astype(np.float32)})
    )
    given = model([node(op, inputs, "y", auto_pad=mode, **more)], weights, shape=(1, 2, 5, 6))
    changed, done = rewrite_model(given, "", "explicit-pad", [0])
    assert done == (f"{op}>y",)
    assert "auto_pad" not in {a.name for a in changed.graph.node[0].attribute}
    x = np.random.default_rng(2).normal(size=(1, 2, 5, 6)).astype(np.float32)
    before, after = (
        ort.InferenceSession(m.SerializeToString()).run(None, {"x": x})[0] for m in (given, changed)
    )
    np.testing.assert_array_equal(before, after)


def test_padding_that_hangs_on_the_size_of_the_input_stays() -> None:
    given = model(
        [node("MaxPool", "x", "y", auto_pad="SAME_UPPER", kernel_shape=[3, 3], strides=[2, 2])],
        shape=(1, 2, 5, 6),
    )
    assert rewrite_model(given, "", "explicit-pad", [0])[1] == ()


def test_open_sizes_are_fixed_and_fixed_ones_stay() -> None:
    given = model([node("Relu", "x", "y")], shape=("n", 3))  # type: ignore[arg-type]
    changed, done = rewrites.fix_sizes(given, {"x": (4, 3)})
    assert done == ("x",)
    assert [d.dim_value for d in changed.graph.input[0].type.tensor_type.shape.dim] == [4, 3]
    assert rewrites.fix_sizes(changed, {"x": (4, 3)})[1] == ()


def test_an_attention_of_halves_is_nearer_to_the_truth_in_fp32() -> None:
    """Scores of some thousands: a half rounds them by up to 2, and its softmax goes wrong by so
    much."""
    x = (
        np.random.default_rng(3)
        .normal(scale=25, size=(2, 3, 4))
        .astype(np.float32)
        .astype(np.float16)
        .astype(np.float32)
    )
    given = GIVEN["widen-attention"][0]()
    given.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.float16(1), "scale"))
    before, after, _ = both("widen-attention", given, x)
    s = np.einsum("nij,nkj->nik", x.astype(np.float64), x.astype(np.float64)) + np.float64(
        [0, 0, -100]
    )
    p = np.exp(s - s.max(-1, keepdims=True))
    truth = (p / p.sum(-1, keepdims=True)) @ x
    assert np.abs(after[0] - truth).max() < 0.05
    assert (
        np.abs(after[0] - truth).max() < np.abs(before[0] - truth).max()
        or np.abs(before[0] - truth).max() < 0.02
    )
    shared = GIVEN["widen-attention"][0]()
    shared.graph.output.append(helper.make_tensor_value_info("s", TensorProto.FLOAT16, None))
    assert rewrite_model(shared, "", "widen-attention", ())[1] == (), "scores that others read stay"


def test_a_function_is_taken_apart_where_it_is_accused() -> None:
    given = GIVEN["unfuse-functions"][0]()
    changed, done = rewrite_model(given, "", "unfuse-functions", (1,))
    assert done == ("HardSwish>b",)
    assert (
        {"Gelu", "Celu", "HardSigmoid", "Mul"}
        >= {n.op_type for n in changed.graph.node}
        >= {"Gelu", "Celu"}
    )
    assert "HardSwish" not in {n.op_type for n in changed.graph.node}


def test_an_opset_is_changed_only_of_a_model_that_is_all_onnx_s_own() -> None:
    assert (
        rewrite_model(GIVEN[OTHER_OPSET][0](), "", OTHER_OPSET, ())[0].opset_import[0].version == 21
    )
    late = model([node("Relu", "x", "y")], opset=21)
    assert rewrite_model(late, "", OTHER_OPSET, ())[0].opset_import[0].version == 20
    old = model([node("Softmax", "x", "y")], opset=11)
    assert rewrite_model(old, "", OTHER_OPSET, ())[1] == (), "ONNX's converter takes another axis"
    foreign = model([helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")])
    foreign.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert rewrite_model(foreign, "", OTHER_OPSET, ())[1] == ()


def test_what_another_norm_squares_is_left_alone() -> None:
    """Where the square is read by others, too, or the quotient is of something else, scaling would
    change the answer."""
    shared = norm()
    shared.graph.output.append(helper.make_tensor_value_info("sq", TensorProto.FLOAT, None))
    assert rewrite_model(shared, "", "scale-norm", ())[1] == ()
    other = norm()
    other.graph.node[-1].input[0] = "x"
    assert rewrite_model(other, "", "scale-norm", ())[1] == ()


def test_an_fp16_norm_overflows_no_more() -> None:
    """300 squared is beyond 65,504, and 300 / 64 squared is not."""
    x = np.random.default_rng(3).normal(scale=300, size=(2, 3, 4)).astype(np.float32)
    changed, _ = rewrite_model(norm(), "", "scale-norm", ())
    changed.graph.output.extend([helper.make_tensor_value_info("sq", TensorProto.FLOAT, None)])
    assert float(np.max(ReferenceEvaluator(changed).run(["sq"], {"x": x})[0])) < 65_504 / 100


def test_nothing_is_done_where_nothing_fits() -> None:
    plain = model([node("Relu", "x", "y")])
    for name in REWRITES:
        changed, done = rewrite_model(plain, "", name, range(1))
        assert (done, changed.SerializeToString()) == ((), plain.SerializeToString()), name


STEMS = (
    "test_reduce_l", "test_reduce_sum_sq",
    "test_attention", "test_gelu", "test_hardswish", "test_rms_normalization", "test_group_normalization", "test_elu", "test_mvn",
    "test_celu", "test_clip", "test_leakyrelu", "test_logsoftmax", "test_prelu", "test_selu", "test_softplus", "test_swish",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("unfuse-reductions", 20),
        ("unfuse-functions", 60),
        (OTHER_OPSET, 60),
    ],
)
def test_it_holds_on_onnx_s_own_node_tests(name: str, least: int) -> None:
    tried = 0
    for case in load_model_tests(kind="node"):
        if case.model is None or not case.name.startswith(STEMS):
            continue
        changed, done = rewrites.rewrite_model(
            case.model, "", name, range(len(case.model.graph.node))
        )
        if not done or "_expanded" in case.name or ReferenceEvaluator(changed).functions_:
            continue
        for given, wanted in case.data_sets:
            feeds = dict(zip([i.name for i in case.model.graph.input], given, strict=False))
            got = ReferenceEvaluator(changed).run(None, feeds)
            np.testing.assert_allclose(got[0], wanted[0], rtol=1e-3, atol=1e-5, err_msg=case.name)
        tried += 1
    assert tried >= least, tried


def test_a_barrier_adds_typed_outputs_and_changes_no_node() -> None:
    """Each once; what is an output already, and what nothing tells the type of, stays as it is."""
    made = model(
        [
            node("Neg", "x", "a"),
            node("Shape", "a", "b"),
            node("Cast", "b", "c", to=1),
            node("Reshape", "c b", "y"),
        ]
    )
    before = made.SerializeToString(deterministic=True)
    changed, added = keep_apart(made, "", BARRIER, ["b", "a", "y", "b", "nobody"])
    assert made.SerializeToString(deterministic=True) == before
    assert added == ("b", "a")
    types = {o.name: o.type.tensor_type.elem_type for o in changed.graph.output}
    assert types == {"y": TensorProto.FLOAT, "b": TensorProto.INT64, "a": TensorProto.FLOAT}
    assert list(changed.graph.node) == list(made.graph.node)


@pytest.mark.parametrize("form", WRAPS)
def test_a_wrapped_tensor_is_handed_on_to_all_that_read_it(form: str) -> None:
    """Nodes, the branches of an If, and the model's own outputs, which keep their names; what
    nobody reads or makes stays."""
    branches = {"then_branch": branch("Neg", "a"), "else_branch": branch("Abs", "a")}
    nodes = [
        node("Cast", "x", "flag", to=TensorProto.BOOL), node("ReduceMax", "x", "top", keepdims=0),
        node("Greater", "top zero", "c"), node("Neg", "x", "a"), node("If", "c", "b", **branches), node("Add", "b a", "y"),
    ]  # fmt: skip
    made = model(nodes, {"zero": np.float32(0)})
    made.graph.output.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, (2, 3, 4)))
    before = made.SerializeToString(deterministic=True)
    changed, done = keep_apart(made, "", form, ["a", "x", "top", "y", "flag", "a", "nobody"])
    assert made.SerializeToString(deterministic=True) == before
    assert done == ("a", "top")
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(changed), full_check=True)
    assert [o.name for o in changed.graph.output] == ["y", "a"]
    assert not any(
        "a" in (*n.input, *names.captures(n))
        for n in changed.graph.node
        if n.name in {"If>b", "Add>y"}
    )
    for sign in (1, -1):
        x = sign * np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 7], np.float32).repeat(
            4
        ).reshape(2, 3, 4)
        ours, theirs = (ReferenceEvaluator(m).run(None, {"x": x}) for m in (changed, made))
        assert [a.tobytes() for a in ours] == [a.tobytes() for a in theirs]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_wrapped_everywhere_onnx_s_own_node_tests_give_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of every type and rank that an operator's definition has inside, zero dimensions among
    them."""
    for pool in (
        "averagepool",
        "lppool",
        "maxpool",
    ):  # of no such definition, and the most work to make tests of
        monkeypatch.setitem(sys.modules, f"onnx.backend.test.case.node.{pool}", ModuleType(pool))
    tried = Counter[str]()
    for case in load_model_tests(kind="node"):
        if (
            "_expanded" not in case.name
            or "bernoulli" in case.name
            or len(case.model.graph.node) > 40
        ):
            continue  # the one draws numbers
        inner = [out for n in case.model.graph.node for out in n.output if out]
        tries = {form: keep_apart(case.model, "", form, inner) for form in WRAPS}
        wrapped = {form: changed for form, (changed, done) in tries.items() if done}
        if not wrapped:
            continue
        given = dict(
            zip([i.name for i in case.model.graph.input], case.data_sets[0][0], strict=False)
        )
        try:
            wanted = ReferenceEvaluator(case.model).run(None, given)
        except Exception:  # an operator that the evaluator does not have
            continue
        for form, changed in wrapped.items():
            got = ReferenceEvaluator(changed).run(None, given)
            for a, b in zip(got, wanted, strict=True):
                for ours, theirs in zip(a, b, strict=True) if isinstance(b, list) else ((a, b),):
                    np.testing.assert_array_equal(ours, theirs, err_msg=f"{case.name}, {form}")
            tried[form] += 1
    assert tried["wrap-reshape"] >= 250, tried
    assert tried["wrap-max"] >= 200, tried
