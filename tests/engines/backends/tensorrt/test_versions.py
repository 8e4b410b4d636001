"""Every version of TensorRT: the backend uses nothing that a version lacks, and what a version
cannot do is refused or hidden with its reason. The names are those of the real bindings, recorded
by ``bindings.py``; 9 is not to be had and written from NVIDIA's reference."""

import ast
import json
from collections.abc import Callable
from typing import Any

import pytest

from narrowdown.engines import installed, options, outside
from narrowdown.engines.backends.base import EngineMissing
from narrowdown.engines.backends.tensorrt import make as tensorrt
from narrowdown.engines.backends.tensorrt.cuda import Device
from narrowdown.engines.backends.tensorrt.library import Library
from narrowdown.engines.backends.tensorrt.settings import Settings, strongly_typed
from narrowdown.engines.declaration import Cure
from narrowdown.engines.spec import parse

from . import bindings

TABLE: dict[str, dict[str, Any]] = json.loads(bindings.TABLE.read_text())
H200 = Device("NVIDIA H200", "9.0", 150 << 30, "13.0")
RTX_5090 = Device("NVIDIA GeForce RTX 5090", "12.0", 32 << 30, "13.0")
# Only TensorRT-RTX builds for another GPU; methods that a class of ours brings and the base class
# does not name.
ELSEWHERE = {
    "ComputeCapability", "ComputeCapability.SM89", "IBuilderConfig.num_compute_capabilities",
    "IBuilderConfig.set_compute_capability",
    "IOutputAllocator.notify_shape", "IOutputAllocator.reallocate_output", "IOutputAllocator.reallocate_output_async",
}  # fmt: skip
# What a name belongs to: used only where the library says that it has that.
GUARDED = {
    "weak": ("BuilderFlag.FP16", "BuilderFlag.BF16", "BuilderFlag.INT8", "BuilderFlag.FP8", "IInt8", "IBuilderConfig.int8_"),
    "constraints": (
        "BuilderFlag.OBEY_", "BuilderFlag.PREFER_", "ILayer.precision", "ILayer.set_output_type",
    ),
    "selector": ("IAlgorithm", "IBuilderConfig.algorithm_selector"),
    "editable_cache": ("BuilderFlag.EDITABLE_", "ITimingCache.query", "ITimingCache.update", "TimingCache"),
    "debug": (
        "IDebugListener", "INetworkDefinition.mark_debug", "IExecutionContext.set_debug_listener",
        "IExecutionContext.set_all_tensors_debug_state",
    ),
    "unfused_debug": ("INetworkDefinition.mark_unfused", "IExecutionContext.unfused"),
    "monitor": ("IProgressMonitor", "IBuilderConfig.progress_monitor"),
    "routes": ("IBuilderConfig.build_route", "IBuilderConfig.all_build_routes"),
}  # fmt: skip
# Asked for one by one, right where they are used.
ASKED = ("TacticSource.", "NetworkDefinitionCreationFlag.", "ParserError.node_")
BEFORE_10 = (
    *GUARDED["debug"],
    "ParserError.node_",
    "DataType.BF16",
    "DataType.INT64",
    "DataType.UINT8",
)


def names(version: str) -> set[str]:
    """The recorded names that a version has. 9.3 is 10.0 without what 10.0 brought."""
    if version == "9.3":
        return {name for name in names("10.0.1") if not name.startswith(BEFORE_10)}
    at = bindings.VERSIONS.index(version)
    span = {name: (facts["first"], facts["last"]) for name, facts in TABLE.items()}
    return {
        n
        for n, (a, b) in span.items()
        if bindings.VERSIONS.index(a) <= at <= bindings.VERSIONS.index(b)
    }


def module(version: str) -> Any:
    """A module with these names and nothing else; members of enumerations are numbers."""
    made = type("tensorrt", (), {"__version__": version})
    for number, name in enumerate(sorted(names(version))):
        owner, _, last = name.rpartition(".")
        if owner and not hasattr(made, owner):
            setattr(made, owner, type(owner, (), {}))
        if owner:
            setattr(getattr(made, owner), last, number)
        elif not hasattr(made, last):
            setattr(made, last, type(last, (), {}))
    made.init_libnvinfer_plugins = lambda *_: True  # type: ignore[attr-defined]
    return made


VERSIONS = ("9.3", *bindings.VERSIONS)
ABLE = {  # version -> weak, strong, constraints, selector, editable_cache, debug, unfused_debug, monitor, routes
    "9.3": "weak strong constraints selector monitor",
    "10.0.1": "weak strong constraints selector monitor debug",
    "10.6.0": "weak strong constraints selector monitor debug",
    "10.8.0.43": "weak strong constraints selector monitor debug editable_cache",
    "10.12.0.36": "weak strong constraints selector monitor debug editable_cache unfused_debug",
    "10.15.1.29": "weak strong constraints selector monitor debug editable_cache unfused_debug",
    "11.0.0.114": "strong monitor debug editable_cache unfused_debug",
    "11.2.1.2": "strong monitor debug editable_cache unfused_debug routes",
    "11.4.0.106": "strong monitor debug editable_cache unfused_debug routes",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_version_can_do_is_read_from_its_names(version: str) -> None:
    found = Library("tensorrt", module(version))
    able = {name for name in (*GUARDED, "strong") if getattr(found, name)}
    assert able == set(ABLE[version].split())


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_used_that_the_version_lacks(version: str) -> None:
    """A name that is missing belongs to an ability that the library says is missing."""
    found, here = Library("tensorrt", module(version)), names(version)
    used = {
        f"{owner}.{name}" if owner else name
        for owner, members in bindings.used().items()
        for name in members
    }
    missing = used - here - ELSEWHERE
    unguarded = {
        name
        for name in missing
        if not name.startswith(ASKED)
        and not any(
            name.startswith(marks) and not getattr(found, ability)
            for ability, marks in GUARDED.items()
        )
        and not (version == "9.3" and name.startswith("DataType."))  # names of a table, not uses
    }
    assert not unguarded


def test_tensorrt_rtx_has_what_is_used_of_it() -> None:
    if not installed.importable("tensorrt_rtx"):
        pytest.skip("TensorRT-RTX is not installed")
    here = bindings.dump("tensorrt_rtx")
    used = {
        f"{owner}.{name}" if owner else name
        for owner, members in bindings.used().items()
        for name in members
    }
    lacking = {name for name in used - set(here) - ELSEWHERE if not name.startswith(ASKED)}
    absent = [*GUARDED["weak"], *GUARDED["constraints"], *GUARDED["selector"]]
    assert {name for name in lacking if not name.startswith(tuple(absent))} == set()
    assert {
        "IBuilderConfig.set_compute_capability",
        "IBuilderConfig.num_compute_capabilities",
    } <= set(here)
    stated = {name: bindings.takes(signature) for name, signature in here.items() if name in TABLE}
    other = {
        n: t
        for n, t in stated.items()
        if t is not None and "takes" in TABLE[n] and TABLE[n]["takes"] != t
    }
    assert other == {}


def test_the_record_knows_every_name_that_is_used() -> None:
    used = {
        f"{owner}.{name}" if owner else name
        for owner, members in bindings.used().items()
        for name in members
    }
    assert used - set(TABLE) == ELSEWHERE, "run python tests/engines/backends/tensorrt/bindings.py"
    assert bindings.unclassified() == set(), "say in bindings.CLASSES what these variables hold"


def calls() -> list[tuple[str, str, int, tuple[str, ...]]]:
    """(module, function of TensorRT's, positional arguments, keywords) of every call in the
    backend."""
    made = []
    for path in sorted(bindings.BACKEND.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            holder = ast.unparse(node.func.value)
            owner = bindings.OTHERWISE.get((path.stem, holder), bindings.CLASSES.get(holder))
            name = f"{owner}.{node.func.attr}" if owner else node.func.attr
            if owner is not None and name in TABLE:
                made.append(
                    (path.stem, name, len(node.args), tuple(k.arg or "**" for k in node.keywords))
                )
    return made


def test_every_call_fits_the_signature_that_the_bindings_state() -> None:
    checked = 0
    for place, name, count, keywords in calls():
        if (takes := TABLE[name].get("takes")) is None:
            continue
        needed = [parameter for parameter in takes if not parameter.endswith("=")]
        assert len(needed) <= count + len(keywords) <= len(takes), f"{place}: {name} takes {takes}"
        assert set(keywords) <= {parameter.rstrip("=") for parameter in takes}, (
            f"{place}: {name} takes {takes}"
        )
        checked += 1
    assert checked > 30


def test_what_we_override_takes_what_tensorrt_hands_over() -> None:
    ours = {
        node.name: len(node.args.args) - 1
        for path in bindings.BACKEND.glob("*.py")
        for outer in ast.walk(ast.parse(path.read_text()))
        if isinstance(outer, ast.ClassDef)
        for node in outer.body
        if isinstance(node, ast.FunctionDef)
    }
    bases = ("IDebugListener", "IProgressMonitor", "IAlgorithmSelector", "IInt8EntropyCalibrator2")
    handed = {
        n.rpartition(".")[2]: f["takes"]
        for n, f in TABLE.items()
        if n.startswith(bases) and "takes" in f
    }
    assert len(handed) == 10
    for name, takes in handed.items():
        assert ours[name] == len(takes), f"{name} is handed {takes}"


# What is asked of which version, and the words of its refusal; the others take it.
REFUSED: dict[str, dict[tuple[str, ...], str]] = {
    "tensorrt:precision=fp16,typing=weak": {("11.",): "no weakly typed networks. .*use typing=strong, and precision=fp16"},
    "tensorrt:precision=bf16,typing=weak": {("11.",): "no weakly typed networks"},
    "tensorrt:precision=fp16,typing=strong": {},
    "tensorrt:precision=fp16": {},
    "tensorrt:precision=int8": {("11.",): "int8 comes from the model's Q/DQ nodes, not from a flag: use precision=model"},
    "tensorrt:precision=fp8": {("11.",): "fp8 comes from the model's Q/DQ nodes, not from a flag: use precision=model"},
    "tensorrt:precision=int8,calibration=/c": {("11.",): "int8 comes from the model's Q/DQ nodes"},
    "tensorrt:precision=model": {},
    "tensorrt:tactics=selector": {("11.",): "no algorithm selector; use tactics=cache"},
    "tensorrt:tactics=cache": {("9.", "10.0", "10.6"): "no editable timing cache .10.8 brought it."},
    "tensorrt:observe=debug": {("9.",): "no debug tensors .10.0 brought them."},
    "tensorrt:observe=unfused": {("9.", "10.0", "10.6", "10.8"): "no unfused debug tensors .10.12 brought them."},
    "tensorrt:tactic_sources=CUDNN": {("11.",): "no tactic source 'CUDNN'. It has EDGE_MASK_CONVOLUTIONS, JIT_CONV"},
}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("text", REFUSED)
def test_what_a_version_cannot_do_is_refused_in_words(text: str, version: str) -> None:
    found = Library("tensorrt", module(version))
    spec = parse(text)
    chosen = Settings.of(spec.name, options.values(spec), found, H200)
    words = next(
        (words for versions, words in REFUSED[text].items() if version.startswith(versions)), ""
    )
    if words:
        with pytest.raises(ValueError, match=words):
            strongly_typed(chosen, found)
        return
    assert strongly_typed(chosen, found) is (not found.weak or "strong" in text or "model" in text)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The engine of a version on a GPU, as its ``EngineInfo``."""

    def info(version: str, text: str = "tensorrt", gpu: Device = H200) -> Any:
        library = Library(parse(text).name, module(version))
        monkeypatch.setattr(tensorrt.cuda, "device", lambda: (gpu, ""))
        monkeypatch.setattr(tensorrt.library, "load", lambda _: library)
        return tensorrt.make(parse(text)).info

    return info


# Branches of the flows and what they stand on; version -> the reason that a report gives where
# there is none.
HIDDEN = {
    "weakly-typed": {"11.": "has no weakly typed precision flags"},
    "strongly-typed": {},
    "tactics": {},
    "editable-timing-cache": {
        "9.": "no editable timing cache (10.8 brought it)", "10.0": "no editable timing cache",
        "10.6": "no editable timing cache",
    },
    "debug-tensors": {"9.": "no debug tensors (10.0 brought them)"},
    "unfused-debug-tensors": {
        "9.": "no unfused debug tensors", "10.0": "no unfused debug tensors", "10.6": "no unfused debug tensors",
        "10.8": "no unfused debug tensors (10.12 brought them)",
    },
    "keep": {},
}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_branches_that_a_version_lacks_are_hidden_with_the_reason(
    version: str, engine: Callable[..., Any]
) -> None:
    able = engine(version, "tensorrt:precision=fp16").capabilities
    for branch, missing in HIDDEN.items():
        reason = next((words for start, words in missing.items() if version.startswith(start)), "")
        assert able[branch].present is not bool(reason), branch
        assert reason in able[branch].reason
        assert able[branch].present or able[branch].reason.startswith(f"TensorRT {version} ")


def test_tensorrt_rtx_has_no_tactics_whatever_its_names_say(engine: Callable[..., Any]) -> None:
    info = engine("11.4.0.106", "tensorrt_rtx", RTX_5090)
    assert info.capabilities["run"].present
    for branch in ("tactics", "editable-timing-cache"):
        assert not info.capabilities[branch].present
        assert "chooses kernels on the user's GPU" in info.capabilities[branch].reason
    assert not engine("11.4.0.106", "tensorrt_rtx", H200).capabilities["run"].present


def test_a_library_that_does_not_load_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> Any:
        raise ImportError(
            "libnvinfer.so.10: cannot open shared object file: No such file or directory"
        )

    monkeypatch.setattr(tensorrt.cuda, "device", lambda: (H200, ""))
    monkeypatch.setattr(tensorrt.library, "load", broken)
    words = r"does not load here: libnvinfer.so.10: .*LD_LIBRARY_PATH.*-m pip install "
    with pytest.raises(EngineMissing, match=words):
        tensorrt.make(parse("tensorrt"))


@pytest.mark.parametrize(
    ("spec", "other"),
    [
        ("tensorrt:precision=fp16", True),
        ("tensorrt:precision=fp16,typing=strong", False),
        ("tensorrt", False),  # nothing is kept
    ],
)
def test_answers_about_kept_nodes_are_not_taken_from_a_session_that_kept_them_otherwise(
    spec: str, other: bool, engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = engine("10.6.0", spec).fingerprint
    monkeypatch.setattr(tensorrt, "_KEPT", "1")
    assert (engine("10.6.0", spec).fingerprint != now) is other


@pytest.mark.parametrize("version", bindings.VERSIONS)
@pytest.mark.parametrize(
    ("engine", "cures"),
    [
        ("tensorrt:precision=fp16", Cure(keep=("a",), file="worked-around.onnx")),
        ("tensorrt:precision=fp16,typing=strong", Cure(file="worked-around.onnx")),
        (
            "tensorrt:precision=model,tf32=off,optimization_level=0,workspace=64"
            ",tactic_sources=JIT_CONVOLUTIONS",
            Cure(file="worked-around.onnx"),
        ),
        ("emulate:precision=fp16", Cure(keep=("a",), file="worked-around.onnx")),
    ],
)
def test_python_that_is_printed_to_be_pasted_names_nothing_that_a_version_lacks(
    engine: str, cures: Cure, version: str
) -> None:
    """It is run with TensorRT-RTX alone: of TensorRT's own package the names are looked up."""
    weak = "fp16" in engine and "strong" not in engine and engine.startswith("tensorrt")
    if weak and bindings.VERSIONS.index(version) >= bindings.VERSIONS.index("11.0.0.114"):
        pytest.skip("11 has no weak typing")
    told = outside.apply(outside.found(parse(engine), version), cures)
    texts = [recipe.text for recipe in told if " as trt\n" in recipe.text]
    assert texts
    for text in texts:
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Attribute):
                continue
            holder = ast.unparse(node.value)
            if holder in bindings.CLASSES:
                owner = bindings.CLASSES[holder]
            elif holder.startswith("trt."):
                owner = holder.removeprefix("trt.")
            else:
                assert holder.startswith(("open(", "keep_fp32", "parser.get_error(")), holder
                continue
            name = f"{owner}.{node.attr}" if owner else node.attr
            assert name in names(version), name
