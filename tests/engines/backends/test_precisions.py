"""emulate, reference and openvino on real models: FP16 and BF16 must do to them what a true engine
of that precision does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest, EngineFault
from narrowdown.engines.contract import model_with_weights_outside
from narrowdown.engines.graph import external
from narrowdown.engines.installed import importable

node = helper.make_node
FLOAT = TensorProto.FLOAT
Array = np.ndarray[Any, Any]
Real = Callable[[str], tuple[onnx.ModelProto, dict[str, Array]]]
Run = Callable[..., dict[str, Array]]
Error = Callable[[Array, Array], float]
Magika = tuple[onnx.ModelProto, dict[str, Array]]


def layer_norms(model: onnx.ModelProto) -> frozenset[int]:
    """All nodes of the modules that hold a Pow: in this model the seven decomposed
    normalizations."""
    modules = {n.name.rpartition("/")[0] + "/" for n in model.graph.node if n.op_type == "Pow"}
    assert len(modules) == 7
    return frozenset(i for i, n in enumerate(model.graph.node) if n.name.startswith(tuple(modules)))


def test_magika_in_fp16_names_the_wrong_file_types(magika: Magika, run: Run, error: Error) -> None:
    model, feeds = magika
    right = run("onnxruntime", model, feeds)["target_label"]
    wrong = run("emulate", model, feeds)["target_label"]
    assert error(wrong, right) > 0.5
    assert (wrong.argmax(1) != right.argmax(1)).any()
    norms = frozenset(i for i, n in enumerate(model.graph.node) if "LayerNorm" in n.name)
    assert 0 < len(norms) < len(model.graph.node)
    assert error(run("emulate", model, feeds, keep=norms)["target_label"], right) < 1e-2


def test_magika_in_bf16_too(magika: Magika, run: Run, error: Error) -> None:
    model, feeds = magika
    right = run("onnxruntime", model, feeds)["target_label"]
    assert error(run("emulate:precision=bf16", model, feeds)["target_label"], right) > 0.2


def test_sort_in_fp16_is_wrong_and_finite_in_both(real: Real, run: Run, error: Error) -> None:
    model, feeds = real("sort_tf_massive_m4")
    right = run("onnxruntime", model, feeds)["logits"]
    for spec in ("emulate", "reference:precision=fp16"):
        wrong = run(spec, model, feeds)["logits"]
        assert np.isfinite(wrong).all()
        assert error(wrong, right) > 0.5, spec
        kept = run(spec, model, feeds, keep=layer_norms(model))["logits"]
        assert error(kept, right) < 2e-2, spec


@pytest.mark.parametrize(("precision", "limit"), [("fp16", 3e-3), ("bf16", 2e-2)])
def test_emulated_and_typed_agree_where_the_precision_suffices(
    precision: str, limit: float, real: Real, run: Run, error: Error
) -> None:
    model, feeds = real("shapes_cnn")
    right = run("onnxruntime", model, feeds)["logits"]
    for spec in (f"emulate:precision={precision}", f"reference:precision={precision}"):
        assert 1e-5 < error(run(spec, model, feeds)["logits"], right) < limit, spec


def test_the_evaluator_runs_magika(magika: Magika, run: Run, error: Error) -> None:
    """With its own GlobalMaxPool it fails at a Squeeze: see operators.pooling."""
    model, feeds = magika
    one = {"bytes": feeds["bytes"][:1]}
    right = run("onnxruntime", model, one)["target_label"]
    assert error(run("reference", model, one)["target_label"], right) < 1e-3
    double = run("reference:precision=fp64", model, one)["target_label"]
    assert double.dtype == np.float32  # as every other engine gives it out
    assert error(double, right) < 1e-3


@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 2, 4, 3), (2, 2, 2, 3, 2)])
def test_the_evaluators_global_maximum(shape: tuple[int, ...], small: Any, run: Run) -> None:
    model = small([node("GlobalMaxPool", ["x"], ["y"])], {"x": (FLOAT, shape)}, ["y"])
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    got = run("reference", model, {"x": x})["y"]
    np.testing.assert_array_equal(got, run("onnxruntime", model, {"x": x})["y"])
    assert got.shape == (*shape[:2], *[1] * (len(shape) - 2))


def test_fp64_judges_the_reference(small: Any, run: Run, error: Error) -> None:
    """A normalization of 1000 + 0.01 * noise: FP32 loses digits there, doubles do not."""
    rng = np.random.default_rng(1)
    x = (1000 + 0.01 * rng.normal(size=(1, 2, 64, 64))).astype(np.float32)
    model = small(
        [node("InstanceNormalization", ["x", "s", "b"], ["y"], epsilon=1e-5)], {"x": (FLOAT, x.shape)}, ["y"],
        {"s": np.ones(2, np.float32), "b": np.zeros(2, np.float32)},
    )  # fmt: skip
    wide = x.astype(np.float64)
    mean, var = wide.mean((2, 3), keepdims=True), wide.var((2, 3), keepdims=True)
    truth = (wide - mean) / np.sqrt(var + 1e-5)
    assert error(run("reference:precision=fp64", model, {"x": x})["y"], truth) < 1e-6
    assert error(run("onnxruntime", model, {"x": x})["y"], truth) > 1e-3


def test_the_evaluator_computes_typed_models_in_their_own_types(small: Any, run: Run) -> None:
    """ONNX Runtime's CPU provider runs FP16 additions in FP32 between nodes; the evaluator
    overflows as it should."""
    half = TensorProto.FLOAT16
    model = small(
        [node("Add", ["x", "x"], ["a"]), node("Sub", ["a", "x"], ["y"])], {"x": (half, [1])}, ["y"]
    )
    got = run("reference", model, {"x": np.array([40000], np.float16)})["y"]
    assert got.dtype == np.float16
    assert np.isinf(got).all()


def test_the_evaluator_names_the_operator_it_lacks(small: Any, run: Run) -> None:
    model = small(
        [node("Odd", ["x"], ["y"], domain="com.x")],
        {"x": (FLOAT, [1])},
        ["y"],
        domains={"com.x": 1},
    )
    with pytest.raises(EngineFault, match="does not implement the operator Odd") as caught:
        run("reference", model, {"x": np.zeros(1, np.float32)})
    assert caught.value.status == "unsupported"


@pytest.mark.parametrize("spec", ["emulate:precision=bf16", "reference:precision=bf16"])
def test_a_precision_that_the_model_cannot_hold_is_unsupported(
    spec: str, small: Any, run: Run
) -> None:
    model = small([node("Relu", ["x"], ["y"])], {"x": (FLOAT, [1])}, ["y"], opset=11)
    with pytest.raises(EngineFault, match="opset 13") as caught:
        run(spec, model, {"x": np.zeros(1, np.float32)})
    assert caught.value.status == "unsupported"


def test_weights_beyond_a_bound_are_refused_before_any_is_read(
    small: Any, run: Run, tmp_path: Path
) -> None:
    """Of 1.5 GiB of weights in a file that is not there: in double they are 3 GiB. In FP32 they
    would be read."""
    x, w = np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32)
    model = small([node("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, [1, 1])}, ["y"], {"w": w})
    (weight,) = model.graph.initializer
    weight.ClearField("raw_data")
    weight.dims[:] = [1, 3 << 27]
    external.make_external(weight, "gone.bin", 0, 3 << 29)
    with pytest.raises(
        EngineFault, match=r"in FP64 this model's are 3\.0 GiB, more than the 1 GiB"
    ) as caught:
        run("reference:precision=fp64", model, {"x": x})
    assert caught.value.status == "unsupported"
    with pytest.raises(EngineFault, match="weights cannot be read"):
        run("reference:precision=fp32", model, {"x": x}, weights_dir=str(tmp_path))


def test_overflow_prints_no_warning(small: Any, run: Run, recwarn: pytest.WarningsRecorder) -> None:
    model = small(
        [node("Exp", ["x"], ["a"]), node("Sub", ["a", "a"], ["y"])], {"x": (FLOAT, [1])}, ["y"]
    )
    assert np.isnan(run("reference", model, {"x": np.array([1000], np.float32)})["y"]).all()
    assert not recwarn.list


openvino = pytest.mark.skipif(not importable("openvino"), reason="openvino is not installed")


@openvino
def test_openvino_says_what_it_really_computes_in() -> None:
    """A hint that the processor has no instructions for may be dropped: what counts is what the
    compiled model says."""
    import openvino as ov

    native = ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    default = make("openvino").info
    assert default.precision == ("bf16" if "BF16" in native else "fp32")
    assert default.capabilities["precision-hint"].present == (default.precision != "fp32")
    assert make("openvino:precision=f32").info.precision == "fp32"
    half = make("openvino:precision=f16").info
    # A processor with BF16 and without FP16 computes what was asked for in FP16 in BF16.
    assert half.precision == ("fp16" if "FP16" in native else default.precision)
    assert half.fingerprint != default.fingerprint
    low = make("openvino:precision=bf16").info
    assert (low.precision, low.storage) in (("bf16", "bfloat16"), ("fp32", "float32"))


@openvino
@pytest.mark.parametrize(
    ("asked", "ran", "said"),
    [
        ("bf16", "f32", "in FP32: this CPU has no instructions for BF16, which was asked for"),
        ("f16", "f32", "try emulate:precision=fp16"),
        ("f16", "bf16", "in BF16: this CPU has no instructions for FP16, which was asked for"),
        ("default", "f32", "no BF16 instructions, with which its default would be BF16"),
        ("default", "bf16", ""),
        ("bf16", "bf16", ""),
        ("f32", "f32", ""),
    ],
)
def test_openvino_says_that_a_precision_cannot_be_shown(asked: str, ran: str, said: str) -> None:
    from narrowdown.engines.backends.openvino.engine import _note_limits

    notes = _note_limits(asked, ran)
    assert len(notes) == bool(said)
    assert all(said in note for note in notes)


@openvino
def test_what_openvino_says_of_itself_is_what_it_measured_here() -> None:
    default = make("openvino").info
    assert bool(default.notes) == (default.precision == "fp32")
    low = make("openvino:precision=bf16").info
    assert bool(low.notes) == (low.precision == "fp32")
    assert low.capabilities["casts"].present == (low.precision != "fp32")


@openvino
def test_casts_in_the_model_do_not_overrule_openvinos_hint(
    magika: Magika, run: Run, error: Error
) -> None:
    if make("openvino:precision=bf16").info.precision != "bf16":
        pytest.skip("no BF16 here, emulated or not")
    model, feeds = magika
    right = run("onnxruntime", model, feeds)["target_label"]
    keep = frozenset(i for i, n in enumerate(model.graph.node) if "LayerNorm" in n.name)
    assert len(keep) > 20
    assert (
        error(run("openvino:precision=bf16", model, feeds, keep=keep)["target_label"], right) > 5e-2
    )


@openvino
def test_openvino_agrees_in_fp32_and_fails_in_bf16(magika: Magika, run: Run, error: Error) -> None:
    model, feeds = magika
    right = run("onnxruntime", model, feeds)["target_label"]
    assert error(run("openvino:precision=f32", model, feeds)["target_label"], right) < 1e-3
    if make("openvino:precision=bf16").info.precision != "bf16":
        pytest.skip("no BF16 here, emulated or not")
    assert error(run("openvino:precision=bf16", model, feeds)["target_label"], right) > 5e-2


@openvino
def test_openvino_is_not_trusted_with_text(small: Any, run: Run) -> None:
    model = small([node("Identity", ["x"], ["y"])], {"x": (TensorProto.STRING, [1])}, ["y"])
    with pytest.raises(EngineFault, match="text") as caught:
        run("openvino", model, {"x": np.array(["word"], object)})
    assert caught.value.status == "unsupported"


def test_weights_outside_are_converted_in_memory_and_written_only_for_who_opens_files(
    tmp_path: Path,
) -> None:
    model, values = model_with_weights_outside(tmp_path)
    files = [tmp_path / "weights/w.bin"]
    x = {"x": np.full(4096, 3.0, np.float32)}
    built = make("reference:precision=fp64").build(BuildRequest(model, str(tmp_path)))
    got = built.run(x)["y"]
    assert list((tmp_path / "weights").iterdir()) == files
    assert got.tobytes() == (values.astype(np.float64) * 3).astype(np.float32).tobytes()
    for spec, more in (("onnxruntime", 1), ("onnxruntime:optimization=all", 1)):
        again = make(spec).build(BuildRequest(built.model, str(tmp_path)))
        assert len(list((tmp_path / "weights").iterdir())) == 1 + more
        assert again.run(x)["y"].tobytes() == got.tobytes()


@openvino
@pytest.mark.parametrize(
    "kind", ["BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT4E2M1", "INT4", "UINT4"]
)
def test_openvino_gives_and_takes_values_of_types_that_numpy_lacks_and_no_codes(
    kind: str, small: Callable[..., onnx.ModelProto], run: Run
) -> None:
    """OpenVINO's own numpy gives 64 for a 2.0 in FP8, and two values of four bits as one: such an
    output was told as wrong by 15,617 %."""
    coded = getattr(TensorProto, kind)
    x = np.array([1, 2, 3, 0, 4], np.float32)
    model = small([node("Cast", ["x"], ["y"], to=coded)], {"x": (FLOAT, [5])}, ["y"], opset=23)
    got = run("openvino:precision=f32", model, {"x": x})["y"]
    assert got.dtype == external.dtype_of(coded)
    assert got.astype(np.float32).tolist() == x.tolist()
    model = small([node("Cast", ["x"], ["y"], to=FLOAT)], {"x": (coded, [5])}, ["y"], opset=23)
    assert run("openvino:precision=f32", model, {"x": got})["y"].tolist() == x.tolist()


def test_a_model_that_nothing_is_rounded_in_says_so(small: Callable[..., onnx.ModelProto]) -> None:
    whole = small([node("Neg", ["x"], ["y"])], {"x": (TensorProto.INT32, [3])}, ["y"])
    floats = small([node("Neg", ["x"], ["y"])], {"x": (FLOAT, [3])}, ["y"])
    built = [make("emulate").build(BuildRequest(model, "")) for model in (whole, floats)]
    assert [b.facts for b in built] == [{"untouched": True}, {}]


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_everything_kept_gives_the_bits_of_the_engine_that_it_names(
    precision: str, magika: Magika
) -> None:
    model, feeds = magika
    emulated = make(f"emulate:precision={precision}")
    literal = make(emulated.info.kept_whole).build(BuildRequest(model, "")).run(feeds)
    kept = BuildRequest(model, "", keep=frozenset(range(len(model.graph.node))))
    given = emulated.build(kept).run(feeds)
    assert {n: a.tobytes() for n, a in given.items()} == {
        n: a.tobytes() for n, a in literal.items()
    }
    assert make("emulate:precision=typed").info.kept_whole == ""
