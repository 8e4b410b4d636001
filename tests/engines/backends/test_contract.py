"""What every installed engine must do, whatever it is. A new backend is added to ENGINES and has to pass."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from engines import options
from engines.backends import importable, make
from engines.backends.base import BuildRequest, Engine, EngineFault, EngineInfo

node = helper.make_node
FLOAT, INT64, BOOL, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
Array = np.ndarray[Any, Any]
Small = Callable[..., onnx.ModelProto]

ENGINES = [
    "onnxruntime",
    "onnxruntime:optimization=all,threads=2",
    "emulate",
    "emulate:precision=bf16",
    "reference",
    "reference:precision=fp16",
    "reference:precision=bf16",
    "reference:precision=fp64",
    "openvino",
    "openvino:precision=bf16",
    "fake",
]
CAPABILITIES = {"build", "run", "mark", "keep", "optimizers", "tactics", "rebuild", "threads"}
STATUSES = {"build-failed", "invalid-model", "unsupported", "out-of-memory", "refused", "error"}


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    name = request.param.partition(":")[0]
    if not importable(options.declared_as(name).package):
        pytest.skip(f"{name} is not installed")
    return make(request.param)


def once(engine: Engine, model: onnx.ModelProto, feeds: dict[str, Array], **request: Any) -> dict[str, Array]:
    built = engine.build(BuildRequest(model, request.pop("weights_dir", ""), **request))
    try:
        return built.run(feeds)
    finally:
        built.close()


def once_or_fault(engine: Engine, model: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
    """What the run gives; nothing where the engine refuses, which only OpenVINO may: it lacks some kinds of tensors."""
    if engine.info.name != "openvino":
        return once(engine, model, feeds)
    status = "ok"
    try:
        return once(engine, model, feeds)
    except EngineFault as fault:
        status = fault.status
    assert status in STATUSES
    return {}


def test_the_info_is_complete_and_plain(engine: Engine) -> None:
    info = engine.info
    assert info.name
    assert info.version
    assert info.device
    assert info.fingerprint.startswith(info.name)
    assert info.precision in ("fp16", "bf16", "tf32", "fp32", "fp64")
    assert info.storage in ("float16", "bfloat16", "float32", "float64")
    assert info.capabilities.keys() >= CAPABILITIES
    for capability in info.capabilities.values():
        assert capability.present or capability.reason.endswith("."), capability
    assert info.slots >= 1
    again = msgspec.json.decode(msgspec.json.encode(info), type=EngineInfo)
    assert msgspec.json.encode(again) == msgspec.json.encode(info)


def test_the_fingerprint_is_stable_and_follows_the_options(engine: Engine) -> None:
    assert make(engine.info.spec).info.fingerprint == engine.info.fingerprint
    others = {
        s: make(s).info.fingerprint for s in ENGINES if importable(options.declared_as(s.partition(":")[0]).package)
    }
    assert len(set(others.values())) == len(others)


def test_a_default_written_out_changes_no_fingerprint(engine: Engine) -> None:
    from engines.spec import parse

    spec = parse(engine.info.spec)
    for option in options.declared_as(spec.name).options:
        if option.type in ("int", "str") and not spec.get(option.name):
            assert make(spec.with_option(option.name, str(option.default))).info.fingerprint == engine.info.fingerprint


def test_every_output_by_its_name(engine: Engine, small: Small) -> None:
    model = small([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["z"])], {"x": (FLOAT, [2, 3])}, ["z", "y"])
    x = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)
    got = once(engine, model, {"x": x})
    assert set(got) == {"y", "z"}
    np.testing.assert_array_equal(got["y"], np.maximum(x, 0))
    np.testing.assert_array_equal(got["z"], -x)


def test_only_the_outputs_that_are_asked_for(engine: Engine, small: Small) -> None:
    model = small([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["z"])], {"x": (FLOAT, [2])}, ["z", "y"])
    built = engine.build(BuildRequest(model, ""))
    assert set(built.run({"x": np.ones(2, np.float32)}, ["y"])) == {"y"}
    with pytest.raises(EngineFault, match="no output 'w'"):
        built.run({"x": np.ones(2, np.float32)}, ["w"])


def test_results_of_one_run_outlive_the_next(engine: Engine, small: Small) -> None:
    model = small([node("Neg", ["x"], ["y"])], {"x": (FLOAT, [3])}, ["y"])
    built = engine.build(BuildRequest(model, ""))
    first = built.run({"x": np.ones(3, np.float32)})["y"]
    built.run({"x": np.full(3, 7, np.float32)})
    built.close()
    np.testing.assert_array_equal(first, np.full(3, -1))


def test_marks_are_given_beside_the_outputs(engine: Engine, small: Small) -> None:
    chain = [node("Neg", ["x"], ["a"]), node("Abs", ["a"], ["b"]), node("Sqrt", ["b"], ["y"])]
    model = small(chain, {"x": (FLOAT, [2])}, ["y"])
    before = model.SerializeToString()
    got = once(engine, model, {"x": np.array([4, 9], np.float32)}, marks=("a", "b"))
    assert set(got) == {"a", "b", "y"}
    np.testing.assert_array_equal(got["a"].astype(np.float32), [-4, -9])
    np.testing.assert_array_equal(got["y"].astype(np.float32), [2, 3])
    assert model.SerializeToString() == before


@pytest.mark.parametrize(
    ("nodes", "inputs", "feeds", "expected"),
    [
        pytest.param(
            [node("ReduceSum", ["x"], ["y"], keepdims=0)],
            {"x": (FLOAT, [3])},
            {"x": np.array([1, 2, 4], np.float32)},
            np.array(7, np.float32),
            id="scalar",
        ),
        pytest.param(
            [node("Neg", ["x"], ["y"])],
            {"x": (FLOAT, [0, 3])},
            {"x": np.zeros((0, 3), np.float32)},
            np.zeros((0, 3), np.float32),
            id="zero-size",
        ),
        pytest.param(
            [node("Greater", ["x", "z"], ["y"])],
            {"x": (FLOAT, [2]), "z": (FLOAT, [2])},
            {"x": np.array([1, 2], np.float32), "z": np.array([2, 1], np.float32)},
            np.array([False, True]),
            id="bool",
        ),
        pytest.param(
            [node("Add", ["x", "z"], ["y"])],
            {"x": (INT64, [2]), "z": (INT64, [2])},
            {"x": np.array([1, -5]), "z": np.array([2, 3])},
            np.array([3, -2]),
            id="int64",
        ),
        pytest.param(
            [node("Not", ["x"], ["y"])],
            {"x": (BOOL, [2])},
            {"x": np.array([True, False])},
            np.array([False, True]),
            id="bool-input",
        ),
        pytest.param(
            [node("Identity", ["x"], ["y"])],
            {"x": (STRING, [2])},
            {"x": np.array(["ä", "longer text"], object)},
            np.array(["ä", "longer text"], object),
            id="string",
        ),
    ],
)  # fmt: skip
def test_outputs_of_every_kind(
    engine: Engine, small: Small, nodes: Any, inputs: Any, feeds: dict[str, Array], expected: Array
) -> None:
    """Right, or refused with a sentence; never another exception, never something else."""
    got = once_or_fault(engine, small(nodes, inputs, ["y"]), feeds).get("y")
    if got is None:
        return
    assert isinstance(got, np.ndarray)
    assert got.shape == expected.shape
    assert got.tolist() == expected.tolist()


def test_a_sequence_is_left_out_and_the_rest_is_given(engine: Engine, small: Small) -> None:
    model = small(
        [node("SequenceConstruct", ["x", "x"], ["s"]), node("Neg", ["x"], ["y"])], {"x": (FLOAT, [2])}, ["s", "y"]
    )
    got = once_or_fault(engine, model, {"x": np.ones(2, np.float32)})
    assert set(got) == {"y"} or engine.info.name == "openvino"
    assert "s" not in got


def test_bfloat16_and_float16_pass_through(engine: Engine, small: Small) -> None:
    model = small(
        [node("Cast", ["x"], ["b"], to=TensorProto.BFLOAT16), node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16)],
        {"x": (FLOAT, [3])},
        ["b", "h"],
    )
    got = once(engine, model, {"x": np.array([1, 2.0078125, -3], np.float32)})
    if engine.info.name != "openvino":
        assert got["b"].dtype == ml_dtypes.bfloat16
        assert got["h"].dtype == np.float16
    assert got["b"].astype(np.float32).tolist() == [1, 2, -3]


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([node("Add", ["x", "nowhere"], ["y"])], id="undefined-name"),
        pytest.param([node("MatMul", ["x", "x"], ["y"])], id="shapes-do-not-fit"),
        pytest.param([node("NoSuchOperator", ["x"], ["y"])], id="unknown-operator"),
        pytest.param([node("Relu", ["x"], ["z"])], id="output-that-nothing-makes"),
        pytest.param([node("Nothing", ["x"], ["y"], domain="com.nobody")], id="custom-domain"),
    ],
)
def test_an_invalid_model_is_an_engine_fault(engine: Engine, small: Small, nodes: Any) -> None:
    model = small(nodes, {"x": (FLOAT, [2, 3])}, ["y"], domains={"com.nobody": 1})
    with pytest.raises(EngineFault) as caught:
        once(engine, model, {"x": np.zeros((2, 3), np.float32)})
    assert caught.value.status in STATUSES
    text = str(caught.value)
    assert "\n" not in text
    assert text[0].isupper() or text.startswith("'")
    assert text.endswith((".", "!", "?"))


def test_an_unknown_operator_is_unsupported(engine: Engine, small: Small) -> None:
    model = small(
        [node("Nothing", ["x"], ["y"], domain="com.nobody")], {"x": (FLOAT, [2])}, ["y"], domains={"com.nobody": 1}
    )
    with pytest.raises(EngineFault, match="Nothing") as caught:
        once(engine, model, {"x": np.zeros(2, np.float32)})
    assert caught.value.status == "unsupported"


def test_a_missing_input_is_refused(engine: Engine, small: Small) -> None:
    model = small([node("Add", ["x", "z"], ["y"])], {"x": (FLOAT, [2]), "z": (FLOAT, [2])}, ["y"])
    with pytest.raises(EngineFault, match="'z'") as caught:
        once(engine, model, {"x": np.zeros(2, np.float32)})
    assert caught.value.status == "refused"


def test_closing_twice_is_fine_and_running_afterwards_is_refused(engine: Engine, small: Small) -> None:
    built = engine.build(BuildRequest(small([node("Neg", ["x"], ["y"])], {"x": (FLOAT, [2])}, ["y"]), ""))
    built.close()
    built.close()
    with pytest.raises(EngineFault):
        built.run({"x": np.zeros(2, np.float32)})


def test_keep_is_honoured_or_the_capability_is_absent(engine: Engine, small: Small) -> None:
    """x*x of 300 overflows FP16 and is 90,000 in FP32; a kept pair of nodes exchanges it exactly."""
    model = small(
        [node("Mul", ["x", "x"], ["a"], name="square"), node("Sqrt", ["a"], ["y"], name="root")],
        {"x": (FLOAT, [2])},
        ["y"],
    )
    x = np.array([300, 1000.1], np.float32)
    present = engine.info.capabilities["keep"].present
    plain = once(engine, model, {"x": x})["y"].astype(np.float64)
    if not present:
        if engine.info.precision in ("fp32", "fp64"):
            np.testing.assert_allclose(once(engine, model, {"x": x}, keep=frozenset({0, 1}))["y"], x, rtol=1e-5)
        elif engine.info.capabilities.get("casts", engine.info.capabilities["keep"]).present:
            # Casts are put into the model, and the engine is free to ignore them: it runs, and no more is promised.
            assert once(engine, model, {"x": x}, keep=frozenset({0, 1}))["y"].shape == x.shape
        else:
            with pytest.raises(EngineFault, match="precision") as caught:
                once(engine, model, {"x": x}, keep=frozenset({0}))
            assert caught.value.status == "unsupported"
        return
    kept = once(engine, model, {"x": x}, keep=frozenset({0, 1}))["y"].astype(np.float64)
    np.testing.assert_allclose(kept, x, rtol=1e-6)
    assert np.abs(plain / x - 1).max() > 1e-5  # without them the precision shows
    if engine.info.precision == "fp16":
        assert np.isinf(plain).all()
        assert np.isinf(once(engine, model, {"x": x}, keep=frozenset({1}))["y"]).all()


def test_weights_outside_stay_outside(engine: Engine, outside: tuple[onnx.ModelProto, Array], tmp_path: Path) -> None:
    model, weight = outside
    before = model.SerializeToString()
    built = engine.build(BuildRequest(model, str(tmp_path)))
    got = built.run({"x": np.ones(4096, np.float32)})["y"].astype(np.float32)
    tolerance = {"fp16": 1e-3, "bf16": 8e-3}.get(engine.info.precision, 1e-7)
    np.testing.assert_allclose(got, weight, rtol=tolerance, atol=tolerance)
    assert model.SerializeToString() == before
    assert built.model.ByteSize() < 2000
    assert not [p for p in tmp_path.iterdir() if p.is_file()]  # nothing lies about where the weights are
    built.close()


def test_a_missing_weights_file_is_an_engine_fault(
    engine: Engine, outside: tuple[onnx.ModelProto, Array], tmp_path: Path
) -> None:
    (tmp_path / "weights/w.bin").unlink()
    with pytest.raises(EngineFault) as caught:
        once(engine, outside[0], {"x": np.ones(4096, np.float32)}, weights_dir=str(tmp_path))
    assert caught.value.status in STATUSES
