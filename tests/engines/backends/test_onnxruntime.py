"""ONNX Runtime: real faults of its optimizers, element types that numpy lacks, errors as
statuses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from narrowdown.engines import options, outside
from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest, EngineFault, EngineMissing
from narrowdown.engines.backends.onnxruntime.engine import Settings, _find_precision
from narrowdown.engines.contract.suite import small_model

node = helper.make_node
FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32
Array = np.ndarray[Any, Any]
Small = Callable[..., onnx.ModelProto]
Run = Callable[..., dict[str, Array]]
Error = Callable[[Array, Array], float]

# -- faults of ONNX Runtime 1.31 itself


def test_padding_fused_into_a_pooling_breaks_a_trained_model(
    real: Any, run: Run, error: Error
) -> None:
    """Pad with zeros and MaxPool become a MaxPool that pads with minus infinity."""
    model, feeds = real("shapes_cnn")
    right = run("onnxruntime", model, feeds)["logits"]
    assert 5e-3 < error(run("onnxruntime:optimization=all", model, feeds)["logits"], right) < 5e-2
    cured = run("onnxruntime:optimization=all,disabled_optimizers=Pad_Fusion", model, feeds)[
        "logits"
    ]
    assert error(cured, right) < 1e-5


def test_marking_one_tensor_cures_the_padding(real: Any, run: Run, error: Error) -> None:
    model, feeds = real("shapes_cnn")
    pad = next(n for n in model.graph.node if n.op_type == "Pad")
    right = run("onnxruntime", model, feeds)["logits"]
    marked = run("onnxruntime:optimization=all", model, feeds, marks=(pad.output[0],))
    assert error(marked["logits"], right) < 1e-5


def test_a_reciprocal_of_integers_is_not_a_quotient(small: Small, run: Run) -> None:
    """(1/x)*w is 0 for int32 x > 1; fused it becomes w/x."""
    model = small(
        [node("Div", ["one", "x"], ["r"]), node("Mul", ["r", "w"], ["y"])],
        {"x": (INT32, [3]), "w": (INT32, [3])},
        ["y"],
        {"one": np.array(1, np.int32)},
    )
    feeds = {"x": np.array([1, 2, 3], np.int32), "w": np.array([6, 6, 6], np.int32)}
    assert run("onnxruntime", model, feeds)["y"].tolist() == [6, 0, 0]
    assert run("onnxruntime:optimization=basic", model, feeds)["y"].tolist() == [6, 3, 2]
    off = "onnxruntime:optimization=basic,disabled_optimizers=DivMulFusion"
    assert run(off, model, feeds)["y"].tolist() == [6, 0, 0]


def test_a_layer_norm_without_kept_dimensions_is_not_a_layer_norm(
    small: Small, run: Run, error: Error
) -> None:
    """On a square input the mean over the last axis, its dimension dropped, is broadcast over the
    wrong one: legal, and not what the fusion makes of it."""
    model = small(
        [
            node("ReduceMean", ["x"], ["mean"], axes=[-1], keepdims=0),
            node("Sub", ["x", "mean"], ["d"]),
            node("Pow", ["d", "two"], ["square"]),
            node("ReduceMean", ["square"], ["var"], axes=[-1], keepdims=0),
            node("Add", ["var", "eps"], ["safe"]),
            node("Sqrt", ["safe"], ["std"]),
            node("Div", ["d", "std"], ["n"]),
            node("Mul", ["n", "gamma"], ["g"]),
            node("Add", ["g", "beta"], ["y"]),
        ],
        {"x": (FLOAT, [8, 8])},
        ["y"],
        {
            "two": np.float32(2), "eps": np.float32(1e-5), "gamma": np.linspace(1, 2, 8, dtype=np.float32),
            "beta": np.zeros(8, np.float32),
        },
    )  # fmt: skip
    feeds = {"x": np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32)}
    right = run("onnxruntime", model, feeds)["y"]
    assert error(run("onnxruntime:optimization=all", model, feeds)["y"], right) > 0.1
    off = "LayerNormFusionL1+LayerNormFusionL2+SimplifiedLayerNormFusion"
    assert (
        error(
            run(f"onnxruntime:optimization=all,disabled_optimizers={off}", model, feeds)["y"], right
        )
        < 1e-5
    )
    # One of them alone stands in for the others.
    one = run("onnxruntime:optimization=all,disabled_optimizers=LayerNormFusionL1", model, feeds)[
        "y"
    ]
    assert error(one, right) > 0.1


def test_the_reference_gives_the_same_bits_each_time(real: Any, run: Run) -> None:
    model, feeds = real("pillars_add")
    first = run("onnxruntime", model, feeds)["heat"]
    for _ in range(3):
        assert run("onnxruntime", model, feeds)["heat"].tobytes() == first.tobytes()


# -- element types that numpy lacks

EXOTIC = {
    TensorProto.BFLOAT16: ml_dtypes.bfloat16, TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2, TensorProto.INT4: ml_dtypes.int4, TensorProto.UINT4: ml_dtypes.uint4,
}  # fmt: skip


@pytest.mark.parametrize("kind", EXOTIC, ids=[np.dtype(d).name for d in EXOTIC.values()])
def test_a_type_that_numpy_lacks_goes_in_and_comes_out(kind: int, small: Small, run: Run) -> None:
    model = small(
        [node("Cast", ["x"], ["f"], to=FLOAT), node("Cast", ["f"], ["y"], to=kind)],
        {"x": (kind, [5])},
        ["y", "f"],
        opset=21,
    )
    x = np.array([0, 1, 2, 3, 5], np.float32).astype(EXOTIC[kind])
    got = run("onnxruntime", model, {"x": x})
    assert got["y"].dtype == EXOTIC[kind]
    assert got["y"].shape == (5,)
    assert got["y"].astype(np.float32).tolist() == got["f"].tolist() == [0, 1, 2, 3, 5]


def test_text_beside_a_type_that_numpy_lacks(small: Small, run: Run) -> None:
    """Text cannot be wrapped and BF16 not be unwrapped: what can be an array is given."""
    model = small(
        [
            node("Identity", ["t"], ["text"]),
            node("Cast", ["x"], ["b"], to=TensorProto.BFLOAT16),
            node("Neg", ["x"], ["y"]),
        ],
        {"t": (TensorProto.STRING, [1]), "x": (FLOAT, [2])},
        ["text", "b", "y"],
    )
    got = run("onnxruntime", model, {"t": np.array(["word"]), "x": np.ones(2, np.float32)})
    assert got["text"].tolist() == ["word"]
    assert got["y"].tolist() == [-1, -1]


# -- what goes wrong


def test_statuses_say_what_kind_of_no_it_was(small: Small, run: Run) -> None:
    def status(model: onnx.ModelProto, feeds: dict[str, Array]) -> str:
        with pytest.raises(EngineFault) as caught:
            run("onnxruntime", model, feeds)
        return caught.value.status

    x = np.zeros((2, 3), np.float32)
    inputs = {"x": (FLOAT, [2, 3])}
    assert (
        status(small([node("Add", ["x", "nowhere"], ["y"])], inputs, ["y"]), {"x": x})
        == "invalid-model"
    )
    assert (
        status(
            small([node("Odd", ["x"], ["y"], domain="com.x")], inputs, ["y"], domains={"com.x": 1}),
            {"x": x},
        )
        == "unsupported"
    )
    assert (
        status(small([node("MatMul", ["x", "x"], ["y"])], inputs, ["y"]), {"x": x})
        == "invalid-model"
    )
    assert status(small([node("Relu", ["x"], ["z"])], inputs, ["y"]), {"x": x}) == "invalid-model"
    negated = small([node("Neg", ["x"], ["y"])], inputs, ["y"])
    assert status(negated, {"x": x.astype(np.float64)}) == "refused"
    assert status(negated, {"x": x[:1]}) == "refused"
    outside = small(
        [node("Gather", ["x", "i"], ["y"])], {**inputs, "i": (TensorProto.INT64, [1])}, ["y"]
    )
    assert status(outside, {"x": x, "i": np.array([7])}) == "error"
    huge = small(
        [node("Expand", ["x", "s"], ["y"])],
        {"x": (FLOAT, [1]), "s": (TensorProto.INT64, [3])},
        ["y"],
    )
    assert (
        status(huge, {"x": np.zeros(1, np.float32), "s": np.array([1 << 20, 1 << 20, 64])})
        == "out-of-memory"
    )


def test_messages_hold_no_prefix_and_no_path_of_a_build_machine(small: Small, run: Run) -> None:
    model = small([node("Add", ["x", "nowhere"], ["y"])], {"x": (FLOAT, [2])}, ["y"])
    with pytest.raises(EngineFault) as caught:
        run("onnxruntime", model, {"x": np.zeros(2, np.float32)})
    assert "[ONNXRuntimeError]" not in str(caught.value)
    assert "/onnxruntime_src" not in str(caught.value)
    assert "nowhere" in str(caught.value)


def test_an_operator_of_somebody_s_own_is_told_with_what_it_needs(small: Small, run: Run) -> None:
    model = small(
        [node("Odd", ["x"], ["y"], domain="com.x")],
        {"x": (FLOAT, [2])},
        ["y"],
        domains={"com.x": 1},
    )
    with pytest.raises(
        EngineFault,
        match=r"com\.x:Odd.* An operator of your own needs its library: onnxruntime:custom_ops=",
    ):
        run("onnxruntime", model, {"x": np.zeros(2, np.float32)})


def test_a_provider_or_library_that_is_not_here_is_missing() -> None:
    with pytest.raises(EngineMissing, match="no provider 'qnn'; it has cpu"):
        make("onnxruntime:provider=qnn")
    with pytest.raises(EngineMissing, match=r"no library of custom operators 'nowhere\.so'"):
        make("onnxruntime:custom_ops=nowhere.so")


def test_a_library_that_is_none_is_missing_before_any_model(tmp_path: Path) -> None:
    library = tmp_path / "ops.so"
    library.write_text("no library")
    with pytest.raises(
        EngineMissing, match=r"cannot load '.*ops\.so' as a library of custom operators"
    ):
        make(f"onnxruntime:custom_ops={library}")


def test_optimizers_can_be_searched_only_where_they_run() -> None:
    off, on = make("onnxruntime").info, make("onnxruntime:optimization=extended").info
    assert not off.capabilities["optimizers"].present
    assert off.optimizers == ()
    assert on.capabilities["optimizers"].present
    assert "Pad_Fusion" in on.optimizers
    assert "NchwcTransformer" not in on.optimizers


def test_every_option_reaches_the_fingerprint() -> None:
    base = "onnxruntime:optimization=all"
    changes = [
        "threads=2",
        "threads=0",
        "execution=parallel",
        "prepacking=false",
        "deterministic=true",
        "disabled_optimizers=NhwcTransformer",
    ]
    prints = {make(text).info.fingerprint for text in (base, *(f"{base},{c}" for c in changes))}
    assert len(prints) == len(changes) + 1


def test_prepacking_follows_the_optimization_unless_told(
    outside: tuple[onnx.ModelProto, Array], tmp_path: Path
) -> None:
    assert (
        make("onnxruntime").info.fingerprint == make("onnxruntime:prepacking=off").info.fingerprint
    )
    assert (
        make("onnxruntime:optimization=all").info.fingerprint
        == make("onnxruntime:optimization=all,prepacking=on").info.fingerprint
    )
    model, weight = outside
    for spec in ("onnxruntime:optimization=all", "onnxruntime:optimization=all,prepacking=no"):
        got = (
            make(spec)
            .build(BuildRequest(model, str(tmp_path)))
            .run({"x": np.ones(4096, np.float32)})["y"]
        )
        np.testing.assert_array_equal(got, weight)


def test_entries_of_the_session_reach_it() -> None:
    """One that ONNX Runtime cannot read is refused by it; a sound one is handed to check.py too."""
    model = small_model([node("Neg", ["x"], ["y"])], {"x": (FLOAT, [1])}, ["y"])
    wrong = "onnxruntime:session_config=session.intra_op_thread_affinities=nonsense,threads=3"
    with pytest.raises(EngineFault):
        make(wrong).build(BuildRequest(model, ""))
    told = "onnxruntime:session_config=session.intra_op.allow_spinning=0,threads=3"
    assert make(told).build(BuildRequest(model, "")).run({"x": np.ones(1, np.float32)})[
        "y"
    ].tolist() == [-1]
    part, _ = outside.check_part(outside.found(options.check(told)))
    assert part is not None
    assert part.settings["config"]["session.intra_op.allow_spinning"] == "0"
    assert make(told).info.fingerprint != make("onnxruntime:threads=3").info.fingerprint


@pytest.mark.parametrize(
    ("provider", "says"),
    [
        ("CUDAExecutionProvider", "has no CUDAExecutionProvider"),
        ("AzureExecutionProvider", "takes no node"),
    ],
)
def test_check_py_cannot_tell_of_a_provider_that_computes_nothing(
    provider: str, says: str, tmp_path: Path
) -> None:
    """One that this package lacks, and one that it has and that takes no node: the CPU would
    compute it all, and be right."""
    if (provider in onnxruntime.get_available_providers()) != ("Azure" in provider):
        pytest.skip("another package of ONNX Runtime")
    onnx.save(
        small_model([node("Neg", ["x"], ["y"])], {"x": (FLOAT, [1])}, ["y"]),
        tmp_path / "engine.onnx",
    )
    part, _ = outside.check_part(outside.found(options.check("onnxruntime:provider=cuda")))

    assert part is not None

    def cannot_tell(why: str) -> None:
        raise LookupError(why)

    for asked, wanted in ((provider, says), ("CPUExecutionProvider", "")):
        settings = {
            **part.settings,
            "providers": [asked, "CPUExecutionProvider"][: 1 + (asked == provider)],
        }
        scope = {
            "HERE": tmp_path,
            "MODEL": "engine.onnx",
            "SETTINGS": settings,
            "cannot_tell": cannot_tell,
        }
        exec(part.source, scope)
        if wanted:
            with pytest.raises(LookupError, match=wanted):
                scope["start"]()
        else:
            assert scope["start"]()[0]({"x": np.ones(1, np.float32)})["y"].tolist() == [-1]


@pytest.mark.parametrize(
    ("spec", "precision"),
    [
        ("provider=cuda", "tf32"),
        ("provider=cuda,provider_options=use_tf32=0", "fp32"),
        ("provider=tensorrt", "tf32"),
        ("provider=tensorrt,provider_options=trt_fp16_enable=1", "fp16"),
        ("provider=tensorrt,provider_options=trt_bf16_enable=true", "bf16"),
    ],
)
def test_options_of_a_provider_decide_what_it_computes_in(spec: str, precision: str) -> None:
    chosen = options.values(options.check(f"onnxruntime:{spec}"))
    assert _find_precision(msgspec.convert({**chosen, "prepacking": False}, Settings)) == precision
