"""An engine that was built elsewhere: run as it is, told by its inspector, refused in words. On a
stand-in for TensorRT's runtime and the GPU's memory; what TensorRT-RTX itself says of plans is
asked of the real one, which needs no GPU to refuse."""

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest, Capability, EngineFault, EngineMissing
from narrowdown.engines.backends.tensorrt import built_file, execution, make as tensorrt
from narrowdown.engines.backends.tensorrt.cuda import Device
from narrowdown.engines.consent import NOTHING
from narrowdown.engines.data import held
from narrowdown.engines.installed import importable
from narrowdown.engines.spec import parse

from ....consents import to_files
from .test_listening import Memory

GPU = Device("NVIDIA H200", "9.0", 150 << 30, "13.0")
RUNS, NO_GPU = Capability(True), Capability(False, "there is no GPU here.")
HALF = {"Format/Datatype": "Row major linear FP16 format"}
INSPECTED = {
    "detailed": json.dumps({"Layers": [{"Name": "all", "Metadata": "[ONNX Layer: a]\x1e[ONNX Layer: b]", "Outputs": [HALF]}]}),
    "names only": json.dumps({"Layers": ["a", "b"]}),
}  # fmt: skip


class Context:
    """y = 2x, computed where the addresses say."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()
        self.at: dict[str, int] = {}

    def set_input_shape(self, _name: str, shape: tuple[int, ...]) -> bool:
        self.shape = shape
        return shape[0] <= 4

    def get_tensor_shape(self, _name: str) -> tuple[int, ...]:
        return self.shape

    def set_tensor_address(self, name: str, address: int) -> None:
        self.at[name] = address

    def execute_async_v3(self, _handle: int) -> bool:
        size = int(np.prod(self.shape))
        fed = np.frombuffer(ctypes.string_at(self.at["x"], 4 * size), np.float32)
        ctypes.memmove(self.at["y"], (fed * 2).tobytes(), 4 * size)
        return True


class Runtime:
    """Takes what begins with ``ptrt good``; says of anything else what ``said`` holds."""

    def __init__(self, _logger: Any) -> None: ...

    def deserialize_cuda_engine(self, content: bytes) -> Any:
        if not content.startswith(b"ptrt good"):
            return None
        modes = {"x": "in", "y": "out"}
        text = INSPECTED["names only" if content.endswith(b"names") else "detailed"]
        inspector = SimpleNamespace(get_engine_information=lambda _: text)
        return SimpleNamespace(
            num_io_tensors=2, get_tensor_name=lambda i: "xy"[i], get_tensor_mode=modes.get,
            get_tensor_shape=lambda _: (-1, 3), get_tensor_profile_shape=lambda *_: [(1, 3), (2, 3), (4, 3)],
            get_tensor_dtype=lambda _: SimpleNamespace(name="FLOAT"), get_tensor_location=lambda _: "gpu",
            create_engine_inspector=lambda: inspector, create_execution_context=Context,
        )  # fmt: skip


def library(said: list[str], *, weak: bool = True) -> Any:
    trt = SimpleNamespace(
        Runtime=Runtime, TensorIOMode=SimpleNamespace(INPUT="in", OUTPUT="out"), TensorLocation=SimpleNamespace(HOST="host"),
        LayerInformationFormat=SimpleNamespace(JSON=1),
    )  # fmt: skip
    log = SimpleNamespace(logger=None, clear=lambda: None, errors=lambda: said)
    return SimpleNamespace(
        trt=trt, log=log, name="tensorrt", title="TensorRT", version="10.6.0", rtx=False, routes=False, strong=True, weak=weak,
        selector=False, tactics=RUNS, debug_tensors=RUNS, unfused_tensors=RUNS, editable=RUNS, has_flag=lambda _: True,
        lacks=str,
    )  # fmt: skip


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """The engine of a file with this content, agreed to, on a GPU; ``options`` stand behind
    ``plan=``."""
    monkeypatch.setattr(tensorrt.cuda, "device", lambda: (GPU, ""))
    monkeypatch.setattr(execution, "Stream", Memory)

    def made(
        content: bytes = b"ptrt good", options: str = "", said: list[str] | None = None, **how: Any
    ) -> Any:
        monkeypatch.setattr(tensorrt.library, "load", lambda _: library(said or [], **how))
        path = tmp_path / "model.plan"
        path.write_bytes(content)
        with held.under(to_files(path)):
            return tensorrt.make(parse(f"tensorrt:plan={path}{options}"))

    return made


def model(given: str = "x", gives: str = "y") -> onnx.ModelProto:
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in (given, gives)
    ]
    graph = helper.make_graph([helper.make_node("Relu", [given], [gives])], "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_it_runs_as_it_is_and_tells_its_precision_and_layers(engine: Callable[..., Any]) -> None:
    made = engine()
    assert (made.info.precision, made.info.storage) == ("fp16", "float16")
    assert (
        made.info.rebuilt
        == "tensorrt:max_shapes=x:4x3,min_shapes=x:1x3,opt_shapes=x:2x3,precision=fp16"
    )
    assert not made.info.notes
    built = made.build(BuildRequest(model(), ""))
    fed = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert built.run({"x": fed})["y"].tolist() == (2 * fed).tolist()
    (layer,) = built.facts["layers"]
    assert (layer["layer"], layer["nodes"]) == ("all", ("a", "b"))
    with pytest.raises(EngineFault, match=r"take input 'x' with shape \(5, 3\)"):
        built.run({"x": np.zeros((5, 3), np.float32)})


def test_what_its_layers_do_not_say_is_said_and_can_be_told(engine: Callable[..., Any]) -> None:
    silent = engine(b"ptrt good names")
    assert silent.info.precision == "tf32"
    assert "does not say what its layers compute in" in silent.info.notes[0]
    assert "precision=" not in silent.info.rebuilt
    told = engine(b"ptrt good names", ",precision=fp16")
    assert told.info.precision == "fp16"
    assert "precision=fp16" in told.info.rebuilt
    assert "precision=fp16" in engine(options=",precision=fp32").info.rebuilt, (
        "its layers know better than who typed"
    )


@pytest.mark.parametrize(
    "asked", [{"part": True}, {"keep": frozenset({0})}, {"marks": ("t",)}, {"force": {"a": "k"}}], ids=lambda a: next(iter(a))
)  # fmt: skip
def test_no_part_of_it_is_asked(engine: Callable[..., Any], asked: dict[str, Any]) -> None:
    made = engine()
    with pytest.raises(
        EngineFault, match=r"runs whole, and only as it is. .*--engine tensorrt:.*precision=fp16"
    ) as refused:
        made.build(BuildRequest(model(), "", **asked))
    assert refused.value.status == "unsupported"
    able = made.info.capabilities
    assert not any(
        able[name].present for name in ("mark", "keep", "optimizers", "tactics", "rebuild")
    )
    assert {o.name for o in made.info.options} == {"plan", "precision"}


@pytest.mark.parametrize(
    ("other", "words"),
    [(model("z"), "the engine has the input 'x'"), (model(gives="z"), "the model has the output 'z'")],
)  # fmt: skip
def test_another_models_engine_is_refused(
    engine: Callable[..., Any], other: onnx.ModelProto, words: str
) -> None:
    with pytest.raises(EngineFault, match=words):
        engine().build(BuildRequest(other, ""))


# What TensorRT says (of a version: 10 and 8; of the GPU; TensorRT-RTX 1.7 of a file cut short) ->
# what we say.
SAID = [
    ("not compatible with this version of TensorRT, expecting library version 10.6.0 got 10.7.0", "another version"),
    ("Version tag does not match. Note: Current Version: 239, Serialized: 232", "by another version than"),
    ("generated on an incompatible device, expecting compute 8.6 got compute 9.0", "built for another GPU"),
    ("Serialization assertion plan.header.size == blobSize failed. In parsePlan", "damaged or not whole"),
    ("something else.", "TensorRT 10.6.0 does not take .*: something else.$"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "words"), SAID, ids=[words for _, words in SAID])
def test_what_the_library_does_not_take_is_one_sentence(
    engine: Callable[..., Any], said: str, words: str
) -> None:
    with pytest.raises((EngineMissing, ValueError), match=words) as refused:
        engine(b"ptrt bad", said=[said])
    assert str(refused.value).count("\n") == 0


def test_what_is_no_engine_never_reaches_the_library(
    engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Runtime, "deserialize_cuda_engine", lambda *_: pytest.fail("native code saw it")
    )
    with pytest.raises(ValueError, match=r"is no engine that TensorRT has built\.$"):
        engine(b"\x08\x08 an ONNX file")
    with pytest.raises(ValueError, match="one of tensorrt_rtx: --engine tensorrt_rtx:plan="):
        engine(b"vtrt")


def test_options_of_a_build_are_refused_beside_it(engine: Callable[..., Any]) -> None:
    with pytest.raises(
        ValueError, match="optimization_level= says how to build, and plan= is built already"
    ):
        engine(options=",optimization_level=3")


def test_version_11_takes_it_and_rebuilds_it_from_the_files_types(
    engine: Callable[..., Any],
) -> None:
    assert engine(b"ptrt good names", ",precision=int8", weak=False).info.precision == "int8"
    spec = engine(b"ptrt good names", ",precision=int8", weak=False).info.rebuilt
    assert "precision=model" in spec


def test_nobody_agreed_nothing_is_read(engine: Callable[..., Any], tmp_path: Path) -> None:
    engine()
    with held.under(NOTHING), pytest.raises(held.NotAgreed):
        built_file.read_file(library([]), str(tmp_path / "model.plan"), RUNS)


@pytest.mark.skipif(not importable("tensorrt_rtx"), reason="TensorRT-RTX is not installed")
def test_tensorrt_rtx_itself_takes_no_half_of_what_it_built(tmp_path: Path) -> None:
    """A real plan. Whole, it asks for a GPU where there is none; cut short it is damaged; other
    bytes are no engine."""
    import tensorrt_rtx as trt

    builder = trt.Builder(log := trt.Logger(trt.Logger.ERROR))
    network = builder.create_network(0)
    assert trt.OnnxParser(network, log).parse(model().SerializeToString())
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 3), (2, 3), (4, 3))
    config.add_optimization_profile(profile)
    config.num_compute_capabilities = 1
    config.set_compute_capability(trt.ComputeCapability.SM89, 0)
    plan = bytes(builder.build_serialized_network(network, config))
    path = tmp_path / "model.plan"

    def read(content: bytes) -> Any:
        path.write_bytes(content)
        with held.under(to_files(path)):
            return make(f"tensorrt_rtx:plan={path}")

    with pytest.raises(ValueError, match="damaged or not whole"):
        read(plan[: len(plan) // 2])
    with pytest.raises(ValueError, match="is no engine that TensorRT-RTX has built"):
        read(plan[1:])
    if tensorrt.cuda.device()[0] is None:
        with pytest.raises(EngineMissing, match="cannot be read here: there is no GPU here"):
            read(plan)
