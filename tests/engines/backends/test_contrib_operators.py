"""Operators of the domain com.microsoft: ours against ONNX Runtime, one node each, and where the
judge abstains."""

import collections
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest, EngineFault
from narrowdown.engines.backends.reference.operators.fused import FUSED
from narrowdown.engines.backends.reference.operators.on_codes import ON_CODES

RNG = np.random.default_rng(11)
PAGE = Path(__file__).parents[3] / "campaigns" / "evaluator.md"
CONTRIB = "<!-- com.microsoft -->"  # where this sweep's part of the page begins: the other one leaves it as it is


def f(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def u(*shape: int) -> Any:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def i(*shape: int) -> Any:
    """Seven bits: on a processor with AVX2 and without VNNI ONNX Runtime's products of U8 and S8
    saturate beyond them."""
    return RNG.integers(-64, 64, shape).astype(np.int8)


def s(value: float) -> Any:
    return np.array(value, np.float32)


def z(value: int, kind: Any = np.uint8) -> Any:
    return np.array(value, kind)


def n(values: Any, kind: Any = np.int32) -> Any:
    return np.array(values, kind)


# Operator, what it reads (None: left out), its attributes, outputs.
CASES: list[tuple[str, list[Any], dict[str, Any], int]] = [
    ("Gelu", [3 * f(4, 5)], {}, 1),
    ("FastGelu", [3 * f(4, 5)], {}, 1),
    ("FastGelu", [3 * f(4, 5), f(5)], {}, 1),
    ("BiasGelu", [3 * f(2, 4, 5), f(5)], {}, 1),
    ("QuickGelu", [3 * f(4, 5)], {}, 1),
    ("QuickGelu", [3 * f(4, 5)], {"alpha": 0.7}, 1),
    ("FusedMatMul", [f(2, 3, 4), f(2, 4, 5)], {"alpha": 0.3}, 1),
    ("FusedMatMul", [f(2, 4, 3), f(2, 5, 4)], {"transA": 1, "transB": 1}, 1),
    ("FusedMatMul", [f(4, 3), f(4, 5)], {"transA": 1, "alpha": -2.0}, 1),
    ("SkipLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8)], {}, 1),
    ("SkipLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8), f(8), f(8)], {"epsilon": 0.1}, 1),
    ("SkipLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8), None, f(8)], {"epsilon": 1e-5}, 4),
    ("SkipSimplifiedLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8)], {"epsilon": 1e-5}, 1),
    ("SkipSimplifiedLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8), f(8)], {"epsilon": 0.1}, 4),
    *(("FusedConv", [f(1, 3, 6, 6), f(4, 3, 3, 3), f(4)], {"pads": [1, 1, 1, 1], "activation": a, **more}, 1)
      for a, more in (("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("LeakyRelu", {"activation_params": [0.2]}),
                      ("Clip", {"activation_params": [0.0, 1.0]}), ("HardSigmoid", {"activation_params": [0.2, 0.5]}))),
    ("FusedConv", [f(1, 3, 6, 6), f(4, 3, 3, 3), f(4), f(1, 4, 6, 6)], {"pads": [1, 1, 1, 1], "activation": "Relu"}, 1),
    ("FusedConv", [f(1, 4, 6, 6), f(4, 2, 3, 3)], {"group": 2, "strides": [2, 2], "activation": "Relu"}, 1),
    ("QLinearAdd", [u(3, 4), s(0.0517), z(120), u(3, 4), s(0.0231), z(7), s(0.0613), z(100)], {}, 1),
    ("QLinearAdd", [i(3, 4), s(0.0517), z(3, np.int8), i(4), s(0.0231), z(0, np.int8), s(0.0613), z(-5, np.int8)], {}, 1),
    ("QLinearMul", [u(3, 4), s(0.0517), z(120), u(3, 4), s(0.0231), z(7), s(0.0613), z(100)], {}, 1),
    ("QLinearSigmoid", [u(3, 4), s(0.0517), z(120), s(1 / 256), z(0)], {}, 1),
    ("QLinearLeakyRelu", [u(3, 4), s(0.0517), z(120), s(0.04), z(60)], {"alpha": 0.2}, 1),
    ("QLinearGlobalAveragePool", [u(1, 3, 4, 5), s(0.0517), z(120), s(0.0231), z(110)], {"channels_last": 0}, 1),
    ("QLinearGlobalAveragePool", [u(1, 4, 5, 3), s(0.0517), z(120), s(0.0231), z(110)], {"channels_last": 1}, 1),
    ("QLinearConcat", [s(0.0613), z(100), u(2, 3), s(0.0517), z(120), u(2, 2), s(0.0231), z(7)], {"axis": 1}, 1),
    ("MatMulIntegerToFloat", [u(3, 8), i(8, 4), s(0.05), s(0.01), z(120), z(3, np.int8)], {}, 1),
    ("MatMulIntegerToFloat", [u(3, 8), i(8, 4), s(0.05), np.abs(f(4)), z(120), None, f(4)], {}, 1),
    ("DynamicQuantizeMatMul", [f(3, 8), i(8, 4), s(0.01), z(3, np.int8)], {}, 1),
    ("DynamicQuantizeMatMul", [f(3, 8) + 2, i(8, 4), np.abs(f(4)), np.zeros(4, np.int8), f(4)], {}, 1),
    ("MatMulNBits", [f(3, 32), u(5, 2, 8), np.abs(f(10))], {"K": 32, "N": 5, "bits": 4, "block_size": 16}, 1),
    ("TransposeMatMul", [f(2, 4, 3), f(2, 4, 5)], {"transA": 1, "alpha": 0.3}, 1),
    ("FusedGemm", [f(3, 4), f(4, 5), f(5)], {"activation": "Relu", "alpha": 0.5, "beta": -2.0}, 1),
    ("FusedGemm", [f(4, 3), f(5, 4)], {"activation": "Tanh", "transA": 1, "transB": 1}, 1),
    ("FusedGemm", [f(3, 4), f(4, 5), f(3, 1)], {"activation": "LeakyRelu", "activation_alpha": 0.2}, 1),
    ("FusedGemm", [f(3, 4), f(4, 5)], {"activation": "HardSigmoid", "activation_alpha": 0.2, "activation_beta": 0.5}, 1),
    ("QGemm", [u(3, 8), s(0.05), z(120), i(8, 4), s(0.01), z(3, np.int8), None, s(0.4), z(100)], {}, 1),
    ("QGemm", [u(8, 3), s(0.05), z(120), i(4, 8), np.abs(f(4)), np.zeros(4, np.int8), n([9, -700, 40, 3])],
     {"transA": 1, "transB": 1, "alpha": 0.3}, 1),
    ("QLinearSoftmax", [u(3, 4, 5), s(0.0517), z(120), s(1 / 256), z(0)], {"opset": 13, "axis": 1}, 1),
    ("QLinearSoftmax", [u(3, 4, 5), s(0.0517), z(120), s(1 / 256), z(0)], {"opset": 11, "axis": 1}, 1),
    ("QLinearWhere", [f(3, 4) > 0, u(3, 4), s(0.0517), z(120), u(4), s(0.0231), z(7), s(0.0613), z(100)], {}, 1),
    ("MatMulNBits", [f(3, 40), u(5, 3, 8), np.abs(f(15)), u(10)], {"K": 40, "N": 5, "bits": 4, "block_size": 16}, 1),
]  # fmt: skip


def one(
    op: str, given: list[Any], attributes: dict[str, Any], outputs: int
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    feeds = {f"x{k}": v for k, v in enumerate(given) if v is not None}
    names = ["" if v is None else f"x{k}" for k, v in enumerate(given)]
    # The two in the middle of four are for training: ONNX Runtime's CPU kernels leave them empty.
    made = [f"y{k}" if k in (0, 3) or outputs < 4 else "" for k in range(outputs)]
    node = helper.make_node(op, names, made, "the node", domain="com.microsoft", **attributes)
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in feeds.items()
    ]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=n) for n in made if n])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), feeds


def run_onnxruntime(model: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return dict(zip((o.name for o in model.graph.output), session.run(None, feeds), strict=True))


def is_near(got: Any, right: Any) -> bool:
    """In codes a half may fall either way in FP32: one code, and seldom."""
    if (got.shape, got.dtype) != (right.shape, right.dtype):
        return False
    if right.dtype.kind in "iu":
        apart = np.abs(got.astype(int) - right.astype(int))
        return bool(apart.max() <= 1 and (apart > 0).mean() <= 0.1)
    return np.allclose(got, right, rtol=2e-4, atol=2e-5 * float(np.abs(right).max()))


@pytest.mark.parametrize(
    ("op", "given", "attributes", "outputs"), CASES, ids=lambda v: v if isinstance(v, str) else ""
)
@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_as_onnx_runtime_computes_it(
    op: str, given: list[Any], attributes: dict[str, Any], outputs: int, precision: str
) -> None:
    model, feeds = one(op, given, attributes, outputs)
    right = run_onnxruntime(model, feeds)
    got = (
        make(f"reference:precision={precision}")
        .build(BuildRequest(model=model, weights_dir="."))
        .run(feeds)
    )
    assert set(right) == set(got) != set()
    for name in right:
        assert is_near(got[name], right[name]), (got[name], right[name])


def test_each_of_ours_is_held_against_onnx_runtime() -> None:
    assert {c.__name__ for c in (*FUSED, *ON_CODES)} == {case[0] for case in CASES}


@pytest.mark.parametrize(
    ("op", "given", "attributes", "said"),
    [
        (
            "FusedMatMul",
            [f(2, 3, 4), f(2, 4, 5)],
            {"transBatchA": 1},
            "FusedMatMul 'the node' with batches transposed",
        ),
        ("PackedAttention", [f(1, 2, 8)], {"num_heads": 2}, "PackedAttention"),
        (
            "MatMulNBits",
            [f(3, 32), u(5, 2, 4), np.abs(f(10))],
            {"K": 32, "N": 5, "bits": 2, "block_size": 16},
            "MatMulNBits 'the node' with 2 bits",
        ),
    ],
)
def test_the_judge_abstains_and_says_for_which_node(
    op: str, given: list[Any], attributes: Any, said: str
) -> None:
    model, feeds = one(op, given, attributes, 1)
    with pytest.raises(EngineFault, match=said) as caught:
        make("reference:precision=fp64").build(BuildRequest(model=model, weights_dir=".")).run(
            feeds
        )
    assert caught.value.status == "unsupported"
    assert "the node" in str(caught.value)


# What each attribute is changed to in the sweep, where an operator has it; whether that makes sense
# ONNX Runtime will say.
CHANGES: dict[str, list[Any]] = {
    **{name: [0, 1] for name in ("unidirectional", "interleaved", "transA", "transB", "transBatchA", "transBatchB",
                                 "channels_last", "do_rotary", "is_packed_batching",
                                 "rotary_interleaved", "smooth_softmax")},
    "alpha": [0.5, -2.0], "scale": [0.3, 2.0], "mask_filter_value": [-50.0, -1.0], "epsilon": [1e-5, 0.1], "axis": [0, 1, -1],
    "num_heads": [1, 2, 4], "rotary_embedding_dim": [2, 4], "strides": [[1, 1], [2, 3]], "dilations": [[1, 2]],
    "pads": [[0, 0, 0, 0], [1, 0, 2, 1]], "auto_pad": ["SAME_UPPER", "SAME_LOWER", "VALID"], "group": [1, 2],
    "softcap": [2.0], "local_window_size": [-1, 2], "kv_num_heads": [1, 2], "opset": [11, 13], "activation_alpha": [0.3],
    "activation_beta": [0.6], "beta": [0.5], "mask_index_type": [0], "activation": ["Relu", "Tanh", "Sigmoid"],
    "accuracy_level": [0, 1, 4], "qkv_hidden_sizes": [[8, 8, 8], [12, 4, 8]],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_sweep_over_com_microsoft() -> None:
    """Every case with each attribute changed, in FP32 and in doubles. Writes its part of
    campaigns/evaluator.md with NARROWDOWN_WRITE_DOCS=1."""
    schemas = {s.name: s for s in get_all_operator_schema() if s.domain == "com.microsoft"}
    agree: collections.Counter[str] = collections.Counter()
    silent: dict[str, set[str]] = collections.defaultdict(set)
    off = []
    for op, given, attributes, outputs in CASES:
        changes = [
            (name, value) for name in schemas[op].attributes for value in CHANGES.get(name, [])
        ]
        for changed in ({}, *({name: value} for name, value in changes)):
            model, feeds = one(op, given, {**attributes, **changed}, outputs)
            try:
                right = run_onnxruntime(model, feeds)
            except Exception:
                continue  # none that ONNX Runtime runs
            for precision in ("fp32", "fp64"):
                try:
                    built = make(f"reference:precision={precision}").build(
                        BuildRequest(model=model, weights_dir=".")
                    )
                    got = built.run(feeds)
                except EngineFault as fault:
                    if fault.status != "unsupported" or "the node" not in str(fault):
                        raise
                    silent[op].add(", ".join(changed))
                    continue
                agree[op] += (near := all(is_near(got[name], right[name]) for name in right))
                off += [] if near else [(op, attributes, changed, precision)]
    assert not off
    assert sum(agree.values()) > 300
    if os.environ.get("NARROWDOWN_WRITE_DOCS"):
        rows = [
            f"| {op} | {count} | {', '.join(sorted(silent[op])) or 'nothing'} |"
            for op, count in sorted(agree.items())
        ]
        others = sorted(set(schemas) - set(agree))
        part = [
            CONTRIB, "", "## Operators of ONNX Runtime's own domain", "",
            "Of `com.microsoft` ours are held against ONNX Runtime without optimizations: each case in FP32 and in doubles,",
            "with one attribute changed.", "",
            "| operator | agree | it abstains with |", "| --- | --- | --- |", *rows, "",
            f"It abstains on the other {len(others)} kinds that ONNX Runtime {ort.__version__} knows, and names the node: "
            + ", ".join(f"`{op}`" for op in others) + ".", "",
            "Written by `NARROWDOWN_WRITE_DOCS=1 make test-slow ARGS=tests/engines/backends/test_contrib_operators.py`.", "",
        ]  # fmt: skip
        PAGE.write_text(PAGE.read_text().partition(CONTRIB)[0] + "\n".join(part))


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_among_others_in_a_model_it_judges(precision: str) -> None:
    """Between operators whose types follow from the schema, in doubles too."""
    info, make_node = helper.make_tensor_value_info, helper.make_node
    nodes = [
        make_node("MatMul", ["x", "w"], ["a"], "in"),
        make_node("BiasGelu", ["a", "b"], ["g"], "gelu", domain="com.microsoft"),
        make_node(
            "SkipLayerNormalization", ["g", "x", "s", "s"], ["n"], "norm", domain="com.microsoft"
        ),
        make_node("MatMul", ["n", "w"], ["y"], "out"),
    ]
    kinds = {
        k: onnx.numpy_helper.from_array(v, k)
        for k, v in {"w": f(8, 8), "b": f(8), "s": f(8)}.items()
    }
    shape = (onnx.TensorProto.FLOAT, [2, 8])
    graph = helper.make_graph(
        nodes, "g", [info("x", *shape)], [info("y", *shape)], list(kinds.values())
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    feeds = {"x": f(2, 8)}
    right = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, feeds
    )[0]
    got = (
        make(f"reference:precision={precision}")
        .build(BuildRequest(model=model, weights_dir="."))
        .run(feeds)["y"]
    )
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)
