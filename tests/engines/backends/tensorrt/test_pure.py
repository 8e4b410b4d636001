"""The parts of the TensorRT backend that need no TensorRT: names, choices, inspection, options, and
a library of each version."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from onnx import TensorProto, helper

from narrowdown.engines import options, outside
from narrowdown.engines.backends.base import Capability
from narrowdown.engines.backends.tensorrt import choices, configure, layers, network
from narrowdown.engines.backends.tensorrt.cuda import Device
from narrowdown.engines.backends.tensorrt.outside import precision_flags
from narrowdown.engines.backends.tensorrt.settings import Settings, strongly_typed
from narrowdown.engines.spec import parse

H200 = Device("NVIDIA H200", "9.0", 150 << 30, "13.0")


def library(
    weak: bool = True,
    strong: bool = True,
    rtx: bool = False,
    flags: tuple[str, ...] = ("FP16", "BF16", "INT8", "TF32"),
) -> Any:
    """What the settings ask of an installed version."""
    title, version = ("TensorRT-RTX", "1.7") if rtx else ("TensorRT", "10.6.0" if weak else "11.2")
    source = SimpleNamespace(CUBLAS=0, CUDNN=1)
    return SimpleNamespace(
        weak=weak, strong=strong, rtx=rtx, title=title, trt=SimpleNamespace(TacticSource=source),
        has_flag=lambda name: name in flags, lacks=lambda what: f"{title} {version} has no {what}.", selector=weak,
        debug_tensors=Capability(weak, "no listener here."), unfused_tensors=Capability(not weak, "no unfused ones here."),
        editable=Capability(not weak, "no editable cache here."),
    )  # fmt: skip


def settings(text: str, found: Any) -> Settings:
    spec = parse(text)
    return Settings.of(spec.name, options.values(spec), found, H200)


@pytest.mark.parametrize(
    ("spec", "found", "strong"),
    [
        ("tensorrt", library(), False),
        ("tensorrt:precision=fp16", library(), False),
        ("tensorrt:precision=fp16", library(weak=False), True),
        ("tensorrt:precision=fp16,typing=strong", library(), True),
        ("tensorrt:precision=model", library(), True),
        ("tensorrt:precision=model,typing=weak", library(), False),
        ("tensorrt_rtx:precision=fp16", library(weak=False, rtx=True), True),
    ],
)
def test_auto_typing_follows_the_version(spec: str, found: Any, strong: bool) -> None:
    assert strongly_typed(settings(spec, found), found) is strong


@pytest.mark.parametrize(
    ("spec", "precision", "cleared"),
    [
        ("tensorrt", "tf32", []),
        ("tensorrt:tf32=off", "fp32", ["TF32"]),  # held to FP32's tolerance, as it is what is left
        ("tensorrt:precision=fp32", "fp32", ["TF32"]),
        ("tensorrt:precision=fp16", "fp16", []),
        ("tensorrt:precision=fp16,tf32=off", "fp16", ["TF32"]),
    ],
)
def test_tf32_can_be_left_out(
    spec: str, precision: str, cleared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, gone = library(), list[str]()
    config = SimpleNamespace(clear_flag=gone.append, set_flag=lambda _: None)
    found.trt.BuilderFlag = SimpleNamespace(TF32="TF32")
    found.trt.ProfilingVerbosity = SimpleNamespace(DETAILED=2)
    monkeypatch.setattr(configure, "_make_profile", lambda *_: None)
    chosen = settings(spec, found)
    builder = SimpleNamespace(create_builder_config=lambda: config)
    configure.configure_build(found, builder, None, chosen, (), configure.Sizes())
    assert (chosen.precision, gone) == (precision, cleared)


@pytest.mark.parametrize(
    ("spec", "shapes", "profile"),
    [
        (
            "tensorrt",
            (8, 3),
            ((1, 3), (8, 3), (8, 3)),
        ),  # one engine for all rows, and for each of them alone
        (
            "tensorrt:min_shapes=x:2x3,opt_shapes=x:4x3,max_shapes=x:9x3",
            (8, 3),
            ((2, 3), (4, 3), (9, 3)),
        ),
        ("tensorrt:max_shapes=x:16x3", (8, 3), ((1, 3), (8, 3), (16, 3))),
        ("tensorrt:profile=twice", (8, 3), ((1, 3), (16, 3), (16, 3))),
        ("tensorrt:profile=twice,opt_shapes=x:9x3", (8, 3), ((1, 3), (9, 3), (16, 3))),
    ],
)
def test_one_profile_goes_from_one_row_to_all(
    spec: str, shapes: tuple[int, ...], profile: tuple[tuple[int, ...], ...]
) -> None:
    said, added = list[Any](), list[Any]()
    found = library()
    found.trt.ProfilingVerbosity = SimpleNamespace(DETAILED=2)
    tensor = SimpleNamespace(name="x", shape=(-1, 3), is_shape_tensor=False)
    made = SimpleNamespace(set_shape=lambda *asked: said.append(asked))
    builder = SimpleNamespace(
        create_builder_config=lambda: SimpleNamespace(
            add_optimization_profile=lambda p: added.append(p) or 0
        ),
        create_optimization_profile=lambda: made,
    )
    of_one = SimpleNamespace(num_inputs=1, get_input=lambda _: tensor)
    configure.configure_build(
        found,
        builder,
        of_one,
        settings(spec, found),
        (),
        configure.Sizes({"x": shapes}, {"x": (1, 3)}),
    )
    assert (said, added) == ([("x", *profile)], [made])


@pytest.mark.parametrize(
    ("spec", "found", "words"),
    [
        (
            "tensorrt:typing=weak",
            library(weak=False),
            "TensorRT 11.2 has no weakly typed networks. .*typing=strong",
        ),
        ("tensorrt:typing=strong", library(strong=False), "has no strongly typed networks"),
        ("tensorrt:precision=fp8", library(), "has no builder flag FP8"),
        ("tensorrt:precision=int8", library(weak=False), "Q/DQ nodes"),
        ("tensorrt:observe=unfused", library(), "no unfused ones here"),
        ("tensorrt:observe=debug", library(weak=False), "no listener here"),
        ("tensorrt:tactics=cache", library(), "no editable cache here"),
        (
            "tensorrt:tactics=selector",
            library(weak=False),
            "has no algorithm selector; use tactics=cache",
        ),
        (
            "tensorrt:precision=fp16,calibration=/c",
            library(),
            "is for precision=int8, not for fp16",
        ),
        (
            "tensorrt:tactic_sources=CUBLAS_LT",
            library(),
            "has no tactic source 'CUBLAS_LT'. It has CUBLAS, CUDNN",
        ),
    ],
)
def test_what_a_version_lacks_is_refused_with_the_reason(spec: str, found: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        strongly_typed(settings(spec, found), found)


def test_shapes_are_read_by_input() -> None:
    found = settings("tensorrt:min_shapes=x:1x3+a:b:2,max_shapes=x:8x3+n:", library())
    assert found.smallest == {"x": (1, 3), "a:b": (2,)}
    assert found.largest == {"x": (8, 3), "n": ()}


names = st.sampled_from(["", "a", "b", "a__1", "Relu__0", "Relu"])


@given(st.lists(names, min_size=1, max_size=8))
def test_every_node_gets_a_name_of_its_own(given_names: list[str]) -> None:
    nodes = [
        helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"], name=name)
        for i, name in enumerate(given_names)
    ]
    ends = [helper.make_tensor_value_info(f"t{i}", TensorProto.FLOAT, [1]) for i in (0, len(nodes))]
    model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:]))
    renamed, positions = network.name_nodes(model)
    found = [n.name for n in renamed.graph.node]
    assert len(set(found)) == len(found)
    assert "" not in found
    assert [positions[name] for name in found] == list(range(len(found)))
    own = [i for i, name in enumerate(given_names) if name and given_names.count(name) == 1]
    assert all(found[i] == given_names[i] for i in own), "what no other node is called stays"


def test_marks_get_the_type_that_the_parser_wants() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Strange", ["r"], ["s"], domain="own"),
    ]
    nodes.append(helper.make_node("Neg", ["r"], ["y"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:]), opset_imports=opsets
    )
    marked, skipped = network.expose_marks(model, ("r", "s"))
    assert {o.name: o.type.tensor_type.elem_type for o in marked.graph.output} == {"y": 1, "r": 1}
    assert skipped == {"s": "of an unknown type"}
    assert [o.name for o in model.graph.output] == ["y"]


def test_layers_tell_their_nodes() -> None:
    assert network.node_names("[ONNX Layer: a/b]\x1e[ONNX Layer: c]\x1f[ONNX Layer: a/b]") == (
        "a/b",
        "c",
    )
    assert network.node_names("") == ()


def layer(name: str, form: str, *nodes: str) -> dict[str, Any]:
    outputs = [{"Name": "fp16_t", "Format/Datatype": form}]
    return {
        "Name": name,
        "Metadata": "".join(f"[ONNX Layer: {n}]" for n in nodes),
        "Outputs": outputs,
    }


INSPECTED = json.dumps(
    {
        "Layers": [
            layer("one", "Row major linear FP32", "a"),
            layer("two", "Row major linear FP16 format", "b"),
            layer("cd", "Half", "c", "d"),
            "only a name",
        ]
    }
)


def test_layers_are_read_by_name() -> None:
    built = layers.layers_of(INSPECTED)
    assert [layer.name for layer in built] == ["one", "two", "cd", "only a name"]


def test_the_inspector_of_11_says_type_and_format_apart() -> None:
    """Fields and words as TensorRT-RTX 1.7, of the same family, writes them into its log."""
    outputs = [{"Name": "t", "Datatype": "Half", "Format": "(NHWC) Channel major format"}]
    entry = {
        "Name": "conv0_myl0_1",
        "LayerType": "correlation",
        "Outputs": outputs,
        "TacticName": "__myelin_CASK_STUB",
    }
    entry["Metadata"] = "[ONNX Layer: conv0]\x1f[ONNX Layer: tanh0]"
    (built,) = layers.layers_of(
        json.dumps({"Layers": [entry], "I/O Tensors": [{"Name": "x", "DataType": "Float"}]})
    )
    assert (built.nodes, built.formats) == (("conv0", "tanh0"), ("Half",))


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", '{"Layers": 3}'])
def test_an_engine_that_tells_nothing_has_no_layers(text: str) -> None:
    assert layers.layers_of(text) == ()


@given(
    st.lists(st.sampled_from("abcd"), max_size=6),
    st.sampled_from(["", "a", "z"]),
    st.lists(st.sampled_from("abcd")),
)
def test_a_forced_choice_is_the_only_one_and_a_forbidden_one_is_none(
    offered: list[str], wanted: str, forbidden: list[str]
) -> None:
    taken = choices.allowed_positions(offered, wanted, forbidden)
    if wanted:
        assert all(offered[i] == wanted for i in taken)
    else:
        assert [offered[i] for i in taken] == [o for o in offered if o not in forbidden]


NO_TACTIC = (
    "[optimizer.cpp::computeCosts::4181] Error Code 10: Internal Error "
    "(Could not find any implementation for node conv1.)"
)
NO_MEMORY = "Requested amount of GPU memory could not be allocated: insufficient memory"


@pytest.mark.parametrize(
    ("lines", "status", "words"),
    [
        ([NO_TACTIC], "build-failed", "Could not find any implementation for node conv1"),
        ([NO_MEMORY, NO_TACTIC], "build-failed", "Could not find any implementation"),
        ([NO_MEMORY], "out-of-memory", "ran out of memory"),
        ([], "build-failed", "it gave no reason"),
        (
            ["IBuilder::buildSerializedNetwork: Error Code 1: Cask (no further information)"],
            "build-failed",
            "Cask (no further information).",
        ),
        (
            [
                "Error Code 2: Internal Error (Assertion !impls.empty() failed. nms has no runners. In check at a.cpp:12)"
            ],
            "build-failed",
            "could not build the engine: Assertion !impls.empty() failed. nms has no runners.",
        ),
        (
            ["Error Code 2: Internal Error (a (b).)"],
            "build-failed",
            "could not build the engine: a (b).",
        ),
    ],
)
def test_why_a_build_failed_is_one_line(lines: list[str], status: str, words: str) -> None:
    found = SimpleNamespace(
        title="TensorRT", log=SimpleNamespace(errors=lambda: lines, warnings=list)
    )
    fault = configure.make_fault(found)
    assert fault.status == status
    assert words in str(fault)
    assert "cpp" not in str(fault)


def test_a_failure_without_a_reason_on_a_full_gpu_is_laid_to_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent = SimpleNamespace(
        errors=lambda: ["Error Code 1: Cask (no further information)"], warnings=list
    )
    monkeypatch.setattr(configure.cuda, "memory_room", lambda: (700 << 20, 143000 << 20))
    fault = configure.make_fault(SimpleNamespace(title="TensorRT", log=silent))  # type: ignore[arg-type]
    assert fault.status == "out-of-memory"
    assert "only 700 MiB of 143,000 MiB free" in str(fault)
    warned = SimpleNamespace(
        errors=lambda: ["Error Code 1: Cask (no further information)"], warnings=lambda: [NO_MEMORY]
    )
    fault = configure.make_fault(SimpleNamespace(title="TensorRT", log=warned))  # type: ignore[arg-type]
    assert "ran out of memory while it built: Requested amount" in str(fault)


def test_a_build_tells_how_many_layers_are_timed() -> None:
    """The phases of TensorRT 10.6 (campaigns/logs/fresh-builds.jsonl): the innermost begins anew for
    each layer."""
    said: list[str] = []
    found = SimpleNamespace(
        monitor=True,
        trt=SimpleNamespace(IProgressMonitor=type("Base", (), {"__init__": lambda _: None})),
    )
    monitor = configure.watch_build(found, SimpleNamespace(), said.append)  # type: ignore[arg-type]
    monitor.phase_start("Computing profile costs", "Building engine", 5)
    monitor.phase_start("Timing graph nodes", "Computing profile costs", 48)
    monitor.step_complete("Timing graph nodes", 29)
    monitor.phase_start("Measuring tactic time", "Timing graph nodes", 4)
    monitor.step_complete("Measuring tactic time", 0)
    monitor.phase_finish("Measuring tactic time")
    monitor.step_complete("Measuring tactic time", 1)
    monitor.phase_finish("Timing graph nodes")
    monitor.step_complete("Computing profile costs", 0)
    monitor.phase_start("turned on itself", "turned on itself", 20)
    monitor.step_complete("turned on itself", 1)
    assert said == [
        "building: Timing graph nodes, 30 of 48",
        "building: Timing graph nodes, 30 of 48",
        "building: Computing profile costs, 1 of 5",
        "building: turned on itself, 2 of 20",
    ]


def test_a_profile_that_was_given_stands_in_what_builds_the_whole_model() -> None:
    """A part has inputs of its own, so its commands lack it."""
    spec = parse("tensorrt:precision=fp16,min_shapes=x:1x3+y:1,max_shapes=x:8x3+y:8")
    whole = outside.found(spec)
    _, words = outside.flags(whole)
    assert words == ["--fp16", "--minShapes=x:1x3,y:1", "--maxShapes=x:8x3,y:8"]
    ours, theirs = precision_flags(whole)
    assert not [word for word in (*ours, *theirs) if "Shapes" in word]
