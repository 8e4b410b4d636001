"""Operators that onnx's evaluator has wrong, against ONNX Runtime; and the sweep over all of them,
with its page."""

import collections
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest, EngineFault

from ...here import beside

PAGE = Path(__file__).parents[3] / "campaigns" / "evaluator.md"
RNG = np.random.default_rng(7)


def f(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def one(
    op: str, opset: int, feeds: dict[str, Any], outputs: int = 1, **attributes: Any
) -> onnx.ModelProto:
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(
        op, ["" if v is None else k for k, v in feeds.items()], names, **attributes
    )
    given = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in feeds.items()
        if v is not None
    ]
    made = [onnx.ValueInfoProto(name=name) for name in names]
    return helper.make_model(
        helper.make_graph([node], "g", given, made),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )


def both(model: onnx.ModelProto, feeds: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    fed = {k: v for k, v in feeds.items() if v is not None}
    built = make("reference").build(BuildRequest(model=model, weights_dir="."))
    got = built.run(fed)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    right = ort.InferenceSession(model.SerializeToString(), options).run(None, fed)
    return [got[o.name] for o in model.graph.output], right


def codes(*shape: int) -> Any:
    return RNG.integers(-128, 128, shape).astype(np.int8)


CHANNEL = {"s": f(3), "b": f(3), "m": f(3), "v": np.abs(f(3))}
CASES = [
    *(pytest.param("BatchNormalization", v, {"x": f(2, 3, 4), **CHANNEL}, {"momentum": m}, id=f"batch-normalization-{v}-{m}")
      for v in (7, 9, 13, 15) for m in (0.9, 0.5)),
    pytest.param("BatchNormalization", 9, {"x": f(2, 3, 4), **CHANNEL}, {}, id="batch-normalization-defaults"),
    *(pytest.param(op, v, {"x": f(2, 3, 4)}, {"axis": a}, id=f"{op}-{v}-{a}")
      for op in ("Softmax", "LogSoftmax") for v in (9, 11, 13) for a in (0, 1, 2)),
    pytest.param("Softmax", 11, {"x": f(2, 3, 4)}, {}, id="softmax-default-axis"),
    pytest.param("GlobalMaxPool", 13, {"x": f(2, 3, 5)}, {}, id="global-max-pool"),
    *(pytest.param("MaxPool", 12, {"x": f(1, 2, 7, 7)}, {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": p},
                   id=f"max-pool-{p}") for p in ("SAME_LOWER", "SAME_UPPER", "VALID")),
    pytest.param("AveragePool", 18, {"x": f(1, 1, 8, 8)},
                 {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4, "ceil_mode": 1, "count_include_pad": 1},
                 id="average-pool-beyond-its-padding"),
    *(pytest.param("ConvTranspose", 11, {"x": f(1, 4, 5, 5), "w": f(4, 3, 3, 3), "b": f(3 * g)},
                   {"group": g, "strides": [2, 2], "pads": [1, 0, 0, 1], "output_padding": [1, 1]}, id=f"conv-transpose-{g}")
      for g in (1, 2, 4)),
    *(pytest.param("Conv", 11, {"x": f(2, 4, 8, 9), "w": f(6, 4 // g, 3, 2), "b": f(6)}, {"group": g, **how}, id=f"conv-{g}-{i}")
      for g in (1, 2) for i, how in enumerate((
          {}, {"strides": [2, 3], "pads": [1, 0, 2, 1]}, {"dilations": [2, 3]}, {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
          {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, {"auto_pad": "VALID", "strides": [1, 2]}))),
    pytest.param("Conv", 11, {"x": f(2, 3, 5, 5), "w": f(4, 3, 1, 1)}, {}, id="conv-of-single-elements"),
    pytest.param("Conv", 11, {"x": f(2, 3, 5, 5), "w": f(4, 3, 1, 1)}, {"strides": [2, 1], "pads": [1] * 4}, id="conv-skips"),
    pytest.param("Conv", 11, {"x": f(1, 4, 20), "w": f(4, 1, 5)}, {"group": 4, "pads": [4, 0]}, id="conv-depthwise-1d"),
    pytest.param("Conv", 11, {"x": f(1, 2, 4, 5, 6), "w": f(3, 2, 2, 3, 2)}, {}, id="conv-3d"),
    pytest.param("Erf", 13, {"x": f(3, 4)}, {}, id="erf"),
    *(pytest.param("Resize", 13, {"x": f(1, 1, 5, 7), "roi": None, "scales": np.float32([1, 1, 1.7, 0.6])},
                   {"mode": m, "coordinate_transformation_mode": c}, id=f"resize-{m}-{c}")
      for m in ("nearest", "linear", "cubic") for c in ("align_corners", "half_pixel", "asymmetric", "pytorch_half_pixel")),
    *(pytest.param("Resize", 13, {"x": f(1, 1, 1, n), "roi": None, "scales": None, "sizes": np.int64([1, 1, 1, m])},
                   {"mode": "nearest", "nearest_mode": "round_prefer_ceil"}, id=f"resize-tie-{n}-{m}")
      for n, m in ((20, 6), (28, 2))),  # 14.5 of 4.5 / (6 / 20) is no tie in FP32
    *(pytest.param("DequantizeLinear", v, {"x": codes(2, 3, 4), "s": np.array(0.03, np.float32), "z": np.array(-5, np.int8)}, {},
                   id=f"dequantize-{v}") for v in (10, 13, 17, 19, 23)),
    *(pytest.param("DequantizeLinear", 13, {"x": codes(2, 3, 4), "s": f(4 if a < 0 else 3), "z": None}, {"axis": a},
                   id=f"dequantize-along-{a}") for a in (1, -1)),
    pytest.param("DequantizeLinear", 17, {"x": np.int32([1 << 20, -7, 3]), "s": f(3), "z": None}, {"axis": 0},
                 id="dequantize-bias"),
    *(pytest.param("DequantizeLinear", 21, {"x": codes(4, 6), "s": f(*n), "z": codes(*n)}, {"axis": a, "block_size": b},
                   id=f"dequantize-in-blocks-{a}") for a, b, n in ((0, 2, (2, 6)), (-1, 4, (4, 2)))),
    pytest.param("Upsample", 9, {"x": f(1, 1, 3, 4), "scales": np.float32([1, 1, 2, 2])}, {"mode": "linear"},
                 id="upsample-linear"),
    pytest.param("GatherElements", 13, {"x": f(3, 4), "i": np.int64([[1, 0], [3, 2]])}, {"axis": -1}, id="gather-elements"),
    *(pytest.param("GridSample", 16, {"x": f(1, 2, 5, 6), "g": (2.2 * RNG.random((1, 3, 4, 2)) - 1.1).astype(np.float32)},
                   {"mode": m, "padding_mode": p, "align_corners": a}, id=f"grid-sample-{m}-{p}-{a}")
      for m in ("bilinear", "nearest", "bicubic") for p in ("zeros", "border", "reflection") for a in (0, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "opset", "feeds", "attributes"), CASES)
def test_our_own_operators(
    op: str, opset: int, feeds: dict[str, Any], attributes: dict[str, Any]
) -> None:
    got, right = both(one(op, opset, feeds, **attributes), feeds)
    for a, b in zip(got, right, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("opset", [11, 16])
@pytest.mark.parametrize("condition", [False, True])
def test_a_loop_runs_as_often_as_it_says(opset: int, condition: bool) -> None:
    """Without a condition it runs to its count; what each iteration gives is stacked along a new
    dimension."""
    n = helper.make_node
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            n("Add", ["a", "x"], ["b"]),
            n("Identity", ["go"], ["on"]),
            n("Mul", ["b", "b"], ["each"]),
        ],
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("go", TensorProto.BOOL, []),
            value("a", TensorProto.FLOAT, [2, 3]),
        ],
        [
            value("on", TensorProto.BOOL, []),
            value("b", TensorProto.FLOAT, [2, 3]),
            value("each", TensorProto.FLOAT, [2, 3]),
        ],
    )
    x = f(2, 3)
    feeds = {"n": np.array(4), "go": np.array(True) if condition else None, "x": x}
    names = ["n", "go" if condition else "", "x"]
    given = [
        value(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in feeds.items()
        if v is not None
    ]
    outputs = [onnx.ValueInfoProto(name="last"), onnx.ValueInfoProto(name="all")]
    graph = helper.make_graph([n("Loop", names, ["last", "all"], body=body)], "g", given, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    got, right = both(model, feeds)
    assert got[1].shape == (4, 2, 3)
    for a, b in zip(got, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_the_judge_abstains_where_it_is_known_to_be_wrong(op: str) -> None:
    """The evaluator leaves the clip of recurrent operators out without a word."""
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    feeds = {"x": f(2, 1, 3), "w": f(1, gates * 4, 3), "r": f(1, gates * 4, 4)}
    plain, clipped = (one(op, 14, feeds, hidden_size=4, **more) for more in ({}, {"clip": 0.5}))
    make("reference").build(BuildRequest(model=plain, weights_dir="."))
    with pytest.raises(EngineFault, match=f"clip of the {op}") as caught:
        make("reference").build(BuildRequest(model=clipped, weights_dir="."))
    assert caught.value.status == "unsupported"


def test_the_judge_abstains_on_operators_that_it_may_compute_wrongly() -> None:
    model = one("Hardmax", 11, {"x": f(2, 3)}, axis=1)
    with pytest.raises(EngineFault, match="not trusted with the Hardmax") as caught:
        make("reference").build(BuildRequest(model=model, weights_dir="."))
    assert caught.value.status == "unsupported"


# -- every operator ------------------------------------------------------------------------------------------------------

# Operators of which the evaluator is known to be wrong or silent still, and what becomes of a
# session then: the judge abstains or stands alone, and is named. The sweep fails where another one
# joins them.
LEFT: frozenset[tuple[str, str]] = frozenset(
    (op, "refused")
    for op in (
        "Scan",
        "DFT",
        "MaxUnpool",
        "RNN",
        "GRU",
        "LSTM",
        "Hardmax",
        "LpPool",
        "RoiAlign",
        "Scatter",
    )
)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_sweep_over_every_operator() -> None:
    """Writes campaigns/evaluator.md with NARROWDOWN_WRITE_DOCS=1."""
    sweep = beside(Path(__file__).with_name("sweep.py"))
    rows: dict[tuple[str, int, str], list[Any]] = collections.defaultdict(list)
    counts: collections.Counter[str] = collections.Counter()
    ops = set()
    for case in sweep.cases():
        told = sweep.compare(case)
        counts[told.verdict] += 1
        ops.add((case.op, case.since))
        if told.verdict not in ("agree", "not-run"):
            rows[case.op, case.since, told.verdict].append(told)
    text = sweep.page(rows, counts, len(ops))
    if os.environ.get("NARROWDOWN_WRITE_DOCS"):
        _, mark, contrib = PAGE.read_text().partition("<!-- com.microsoft -->")
        PAGE.write_text(f"{text}\n{mark}{contrib}")
    wrong = {(op, verdict) for op, _, verdict in rows if verdict in ("ours", "refused")}
    assert wrong <= LEFT
    assert len(ops) > 150
    assert counts["agree"] > 5000
