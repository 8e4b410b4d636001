"""INT8 and FP8 on TensorRT: what a model's Q/DQ nodes ask of a weakly typed build, and
TensorRT-RTX's real builder on FP8."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest, EngineFault
from narrowdown.engines.backends.tensorrt import configure, quantization
from narrowdown.engines.backends.tensorrt.settings import Settings
from narrowdown.engines.demos.scaled_apart import quantize
from narrowdown.engines.installed import importable

INT8, UINT8, FP8, E5M2 = (
    TensorProto.INT8,
    TensorProto.UINT8,
    TensorProto.FLOAT8E4M3FN,
    TensorProto.FLOAT8E5M2,
)


def model(
    *kinds: int, opset: int = 19, stated: bool = False, stored: bool = False
) -> onnx.ModelProto:
    """A row of Q/DQ pairs of these types behind a Tanh. ``stated``: the type is an attribute, there
    is no zero point. ``stored``: only the DequantizeLinear of a weight."""
    nodes = [helper.make_node("Tanh", ["x"], ["t0"])]
    weights = [numpy_helper.from_array(np.array(0.5, np.float32), "scale")]
    for i, kind in enumerate(kinds):
        zero = [] if stated else [f"zero{i}"]
        rest = {"output_dtype": kind} if stated else {}
        if not stated:
            weights.append(helper.make_tensor(f"zero{i}", kind, [], [0]))
        if stored:
            weights.append(helper.make_tensor(f"codes{i}", kind, [4], [1, 2, 3, 4]))
            nodes.append(
                helper.make_node("DequantizeLinear", [f"codes{i}", "scale", *zero], [f"w{i}"])
            )
            nodes.append(helper.make_node("Mul", [f"t{i}", f"w{i}"], [f"t{i + 1}"]))
            continue
        nodes.append(
            helper.make_node("QuantizeLinear", [f"t{i}", "scale", *zero], [f"codes{i}"], **rest)
        )
        nodes.append(
            helper.make_node("DequantizeLinear", [f"codes{i}", "scale", *zero], [f"t{i + 1}"])
        )
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4])
        for name in ("x", f"t{len(kinds)}")
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    onnx.checker.check_model(made, full_check=True)
    return made


@pytest.mark.parametrize(
    ("subject", "found"),
    [
        (model(), set()),
        (model(INT8), {"int8"}),
        (model(UINT8, INT8), {"int8"}),
        (model(FP8), {"fp8"}),
        (model(FP8, INT8), {"fp8", "int8"}),
        (model(E5M2), set()),  # TensorRT has E4M3 alone
        (model(FP8, stored=True), {"fp8"}),
        (model(FP8, opset=21, stated=True), {"fp8"}),
        (model(FP8, opset=23), {"fp8"}),
    ],
)
def test_the_type_of_the_codes_is_read_wherever_it_stands(
    subject: onnx.ModelProto, found: set[str]
) -> None:
    assert quantization.coded_types(subject) == found


@pytest.mark.parametrize(
    ("precision", "subject", "strong", "part", "expected"),
    [
        ("fp16", model(), False, False, ("FP16",)),
        ("tf32", model(INT8), False, False, ()),
        ("int8", model(INT8), False, False, ("INT8",)),
        ("fp8", model(FP8), False, False, ("FP8",)),
        ("fp8", model(FP8), True, False, ()),  # strongly typed: no flag, whatever the model has
        ("fp8", model(), False, True, ()),  # a piece with no pair in it computes in FP32
        ("fp8", model(INT8), False, True, ()),
        ("int8", model(), False, True, ()),
    ],
)
def test_flags_follow_the_model(
    precision: str, subject: onnx.ModelProto, strong: bool, part: bool, expected: tuple[str, ...]
) -> None:
    assert (
        quantization.builder_flags(subject, Settings(precision=precision), strong, part) == expected
    )


@pytest.mark.parametrize(
    ("precision", "subject", "words"),
    [
        (
            "fp8",
            model(),
            "FP8 goes by Q/DQ nodes of that type .*this model has none: quantize it to FP8",
        ),
        ("fp8", model(E5M2), "this model has none"),
        ("fp8", model(INT8), "are of INT8, not of FP8: use precision=int8, or precision=model"),
        ("int8", model(FP8), "are of FP8, not of INT8: use precision=fp8, or precision=model"),
        ("int8", model(), "give a calibration cache .*or a model with Q/DQ nodes"),
    ],
)
def test_a_whole_model_with_nothing_to_go_by_is_refused(
    precision: str, subject: onnx.ModelProto, words: str
) -> None:
    with pytest.raises(EngineFault, match=words) as refused:
        quantization.builder_flags(subject, Settings(precision=precision), strong=False, part=False)
    assert refused.value.status == "refused"


def test_a_failed_build_tells_of_pairs_that_nobody_asked_for() -> None:
    log = SimpleNamespace(
        errors=lambda: ["Error Code 4: int8 is not configured in the builder"], warnings=list
    )
    found: Any = SimpleNamespace(title="TensorRT", log=log)
    hint = quantization.hint_at_types(model(INT8), Settings(precision="fp16"), strong=False)
    fault = configure.make_fault(found, hint)
    assert str(fault).endswith(
        "not configured in the builder. The model has Q/DQ nodes of INT8: a weakly typed build takes one such type, with "
        "precision=int8; a strongly typed one takes all, with precision=model."
    )
    for precision in ("fp16", "int8", "fp8"):
        both = quantization.hint_at_types(
            model(FP8, INT8), Settings(precision=precision), strong=False
        )
        assert "Q/DQ nodes of FP8 and INT8: a weakly typed build takes one such type" in both
    assert quantization.hint_at_types(model(INT8), Settings(precision="int8"), strong=False) == ""
    assert quantization.hint_at_types(model(INT8), Settings(precision="fp16"), strong=True) == ""
    assert quantization.hint_at_types(model(), Settings(precision="fp16"), strong=False) == ""


CACHE = "TRT-100600-EntropyCalibration2\nx: 3c55f9cf\n"


def calibrate(path: str, classes: tuple[str, ...] = ("IInt8EntropyCalibrator2",)) -> Any:
    """(the calibrator, the configuration) on a version that has these classes."""
    base = type("Base", (), {"__init__": lambda self: None})
    found: Any = SimpleNamespace(
        trt=SimpleNamespace(**dict.fromkeys(classes, base)), lacks=lambda what: f"It has no {what}."
    )
    config = SimpleNamespace(int8_calibrator=None)
    given = Settings(precision="int8", typing="weak", calibration=path)
    assert quantization.builder_flags(model(), given, strong=False, part=False) == ("INT8",)
    return quantization.make_calibrator(found, config, given, strong=False), config


def test_int8_reads_the_users_calibration(tmp_path: Path) -> None:
    path = tmp_path / "calibration.cache"
    path.write_text(CACHE)
    calibrator, config = calibrate(str(path))
    assert config.int8_calibrator is calibrator
    assert calibrator.read_calibration_cache() == CACHE.encode()
    assert calibrator.get_batch(["x"]) is None  # nothing is calibrated anew


@pytest.mark.parametrize(
    ("text", "classes", "status", "words"),
    [
        ("", ("IInt8EntropyCalibrator2",), "refused", "cannot be read"),
        (
            "nonsense",
            ("IInt8EntropyCalibrator2",),
            "unsupported",
            "is no calibration cache of TensorRT's",
        ),
        (CACHE, (), "unsupported", "is of no use: It has no calibration"),
    ],
)
def test_a_cache_that_is_of_no_use_is_refused(
    text: str, classes: tuple[str, ...], status: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "calibration.cache"
    if text:
        path.write_text(text)
    with pytest.raises(EngineFault, match=words) as refused:
        calibrate(str(path), classes)
    assert refused.value.status == status


@pytest.mark.skipif(not importable("tensorrt_rtx"), reason="TensorRT-RTX is not installed")
@pytest.mark.parametrize("precision", ["model", "fp16"])
@pytest.mark.parametrize("stored", [False, True])
def test_tensorrt_rtx_builds_fp8_pairs(precision: str, stored: bool) -> None:
    built = make(f"tensorrt_rtx:precision={precision}").build(
        BuildRequest(model(FP8, FP8, stored=stored), "", feed_shapes={"x": (2, 4)})
    )
    assert built.facts["bytes"] > 0


def test_the_reference_computes_fp8_as_ml_dtypes_does() -> None:
    """What FP8 outputs are compared with, and how they come: as ml_dtypes' arrays."""
    subject = model(FP8)
    subject.graph.output.append(helper.make_tensor_value_info("codes0", FP8, ["n", 4]))
    x = np.linspace(-3, 3, 8, dtype=np.float32).reshape(2, 4)
    got = make("onnxruntime").build(BuildRequest(subject, "")).run({"x": x})
    codes = (np.tanh(x) / np.float32(0.5)).astype(ml_dtypes.float8_e4m3fn)
    assert got["codes0"].dtype == ml_dtypes.float8_e4m3fn
    np.testing.assert_array_equal(got["codes0"].astype(np.float32), codes.astype(np.float32))
    np.testing.assert_array_equal(got["t1"], codes.astype(np.float32) * np.float32(0.5))


def test_what_onnx_runtime_s_quantizer_makes_by_default_is_told_with_what_to_do() -> None:
    """Real models of the real quantizer: as it makes them, and as each sentence says to make them.
    TensorRT 10.6 refused the scalar of a Pad, and the factors of a decoder's normalizations."""
    from onnxruntime.quantization import QuantType

    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((4, 3, 3, 3)), "b": rng.standard_normal(4)}
    weights |= {"half": np.array(0.5), "zero": np.array(0.0)}
    held_values = [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()]
    pads = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Mul", ["c", "half"], ["m"], "scaled"),
        helper.make_node("Pad", ["m", "pads", "zero"], ["p"], "padded"),
        helper.make_node("MaxPool", ["p"], ["y"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    ends = [
        helper.make_tensor_value_info(name, 1, [1, n, size, size])
        for name, n, size in (("x", 3, 8), ("y", 4, 5))
    ]
    held_values.append(numpy_helper.from_array(pads, "pads"))
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], held_values)
    floats = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = {"x": rng.standard_normal((1, 3, 8, 8)).astype(np.float32)}
    symmetric = {"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False}
    left = ["scaled", "padded"]
    more: dict[str, Any] = {"activation_type": QuantType.QInt8, "extra_options": symmetric}
    first = quantization.say_untaken(quantize(floats, feeds))
    assert "zero point" in first
    assert "1 of a bias in int32 and 2 of a stored scalar." in first
    assert f"QuantType.QInt8, extra_options={symmetric}, nodes_to_exclude={left})" in first
    scalars = quantize(floats, feeds, **more)
    spared = quantize(floats, feeds, nodes_to_exclude=left, **more)
    assert quantization.say_untaken(scalars) == (
        " The model has pairs that TensorRT does not take: 2 of a stored scalar. Quantize it anew without the nodes that read a "
        f"stored scalar; with ONNX Runtime: quantize_static(..., nodes_to_exclude={left})."
    )
    assert quantization.say_untaken(spared) == ""
    if importable("tensorrt_rtx"):
        engine = make("tensorrt_rtx:precision=model")
        shapes = {name: array.shape for name, array in feeds.items()}
        with pytest.raises(EngineFault, match="nodes_to_exclude"):
            engine.build(BuildRequest(scalars, "", feed_shapes=shapes))
        assert engine.build(BuildRequest(spared, "", feed_shapes=shapes)).facts["bytes"] > 0


@pytest.mark.parametrize(
    ("code", "zero", "on_rtx", "elsewhere"),
    [
        (TensorProto.UINT8, 0, "", "2 with unsigned codes or a zero point"),
        (
            TensorProto.UINT8,
            128,
            "2 with a zero point other than 0.",
            "2 with unsigned codes or a zero point",
        ),
        (
            TensorProto.INT8,
            3,
            "2 with a zero point other than 0.",
            "2 with unsigned codes or a zero point",
        ),
        (TensorProto.INT8, 0, "", ""),
    ],
)
def test_unsigned_codes_are_taken_by_tensorrt_rtx_alone(
    code: int, zero: int, on_rtx: str, elsewhere: str
) -> None:
    held_values = [helper.make_tensor("s", 1, [], [0.1]), helper.make_tensor("z", code, [], [zero])]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, 1, [1, 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], held_values)
    subject = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for unsigned, words in ((True, on_rtx), (False, elsewhere)):
        said = quantization.say_untaken(subject, unsigned=unsigned)
        assert words in said
        assert bool(said) == bool(words)
    if importable("tensorrt_rtx"):
        engine = make("tensorrt_rtx")
        request = BuildRequest(subject, "", feed_shapes={"x": (1, 4)})
        if not on_rtx:
            assert engine.build(request).facts["bytes"] > 0
            return
        with pytest.raises(EngineFault, match="zero point other than 0"):
            engine.build(request)
