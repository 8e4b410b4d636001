"""TensorRT-RTX builds real engines here, with no GPU: every model that it supports, and sentences
for what it refuses."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest, EngineFault
from narrowdown.engines.installed import importable
from narrowdown.wizard.demo import MODELS

from ....here import beside

pytestmark = pytest.mark.skipif(
    not importable("tensorrt_rtx"), reason="TensorRT-RTX is not installed"
)


def request(model: onnx.ModelProto, rows: int = 2, **rest: Any) -> BuildRequest:
    shapes = {
        i.name: tuple(d.dim_value or rows for d in i.type.tensor_type.shape.dim)
        for i in model.graph.input
    }
    return BuildRequest(model, "", feed_shapes=shapes, **rest)


def chain(*ops: str, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """Nodes of one input in a row, without names."""
    nodes = [helper.make_node(op, [f"t{i}"], [f"t{i + 1}"]) for i, op in enumerate(ops)]
    ends = [helper.make_tensor_value_info(f"t{i}", kind, ["n", 4]) for i in (0, len(ops))]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("precision", ["model", "fp16", "bf16"])
@pytest.mark.parametrize("name", ["shapes_cnn", "sort_tf_massive_m4"])
def test_real_models_build_in_every_precision(name: str, precision: str) -> None:
    built = make(f"tensorrt_rtx:precision={precision}").build(
        request(onnx.load(MODELS / f"{name}.onnx"))
    )
    assert built.facts["bytes"] > 100_000
    with pytest.raises(EngineFault, match="The engine was built, but"):
        built.run({})


def test_magika_builds_in_fp16(magika: Any) -> None:
    model, feeds = magika
    shapes = {name: value.shape for name, value in feeds.items()}
    built = make("tensorrt_rtx:precision=fp16").build(BuildRequest(model, "", feed_shapes=shapes))
    assert built.facts["bytes"] > 100_000


TESTS = Path(__file__).parents[3]
failures, tiny = (
    beside(TESTS / "engines" / "search" / "failures.py"),
    beside(TESTS / "e2e" / "tiny.py"),
)
# What TensorRT-RTX 1.7 does not take, and what it says of it.
REFUSED = {
    "NonMaxSuppression of scores 2e-5 apart": "has no runners that implement it",
    "Resize with antialiasing on an engine that does it otherwise": "node '/y' .Resize.: .*Antialiasing is not supported",
    "a size for Resize computed in floats": "refuses the model: node '/big' .Resize.",
}


@pytest.mark.parametrize(
    "failure", [f for f in failures.TABLE if f.build is not None], ids=lambda f: f.what
)
def test_every_small_construction_builds_or_is_refused_in_words(
    failure: Any, tmp_path: Path
) -> None:
    path, inputs = failure.build(tmp_path, tiny)
    feeds = dict(np.load(inputs)) if inputs else {}
    asked = request(onnx.load(path))
    asked = msgspec.structs.replace(
        asked, feed_shapes={n: a.shape for n, a in feeds.items()} or asked.feed_shapes
    )
    engine = make("tensorrt_rtx:precision=fp16")
    if failure.what not in REFUSED or (
        engine.info.capabilities["run"].present and "GPU" in REFUSED[failure.what]
    ):
        assert engine.build(asked).facts["bytes"] > 0
        return
    with pytest.raises(EngineFault, match=REFUSED[failure.what]) as refused:
        engine.build(asked)
    assert ".cpp" not in str(refused.value)


def marked(*marks: str) -> onnx.ModelProto:
    """Tanh, Exp, Neg in a row and a comparison beside them; ``marks`` among its outputs."""
    model = chain("Tanh", "Exp", "Neg")
    model.graph.node.append(helper.make_node("Greater", ["t1", "t2"], ["above"]))
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in marks)
    return model


@pytest.mark.parametrize("observe", ["outputs", "debug", "unfused"])
@pytest.mark.parametrize("precision", ["model", "fp16"])
def test_inner_tensors_are_marked_in_every_way_that_it_has(precision: str, observe: str) -> None:
    """The network that TensorRT-RTX's own parser made: a tensor that is listened to is found in it
    by its name, also where the model was typed and the mark itself was a cast."""
    marks = ("t1", "t2", "above")
    engine = make(f"tensorrt_rtx:precision={precision},observe={observe}")
    built = engine.build(request(marked(*marks), marks=marks))
    assert built.facts["bytes"] > 0
    assert built.facts["unobservable"] == {"above": "a boolean"}


def test_its_timing_cache_is_said_to_hold_nothing() -> None:
    info = make("tensorrt_rtx").info
    assert not info.capabilities["editable-timing-cache"].present
    assert "chooses kernels on the user's GPU" in info.capabilities["editable-timing-cache"].reason
    with pytest.raises(ValueError, match="no option 'tactics'"):
        make("tensorrt_rtx:tactics=cache")


def test_what_the_parser_refuses_is_named_by_its_node() -> None:
    with pytest.raises(EngineFault) as refused:
        make("tensorrt_rtx").build(request(onnx.load(MODELS / "pillars_add.onnx")))
    assert refused.value.status == "unsupported"
    assert "ScatterND" in str(refused.value)
    assert "with reduction is not supported" in str(refused.value)
    assert refused.value.model is not None


def test_an_operator_of_a_plugin_that_is_not_here_is_said_so() -> None:
    """NonZero is one of TensorRT-RTX's plugins; its package for Python does not bring them."""
    model = chain("Relu", "NonZero", "Relu")
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    del model.graph.node[2:]
    model.graph.node[1].output[0] = "t3"
    with pytest.raises(
        EngineFault, match=r".NonZero.: its plugin 'NonZero' is not installed here\.$"
    ) as refused:
        make("tensorrt_rtx").build(request(model))
    assert refused.value.status == "unsupported"


def test_an_engine_is_for_the_capability_that_was_asked_for() -> None:
    old, new = (make(f"tensorrt_rtx:compute_capability={c}") for c in ("sm86", "sm120"))
    assert old.info.fingerprint != new.info.fingerprint
    for engine in (old, new):
        assert engine.build(request(chain("Tanh", "Exp"))).facts["bytes"] > 0


def test_kept_nodes_are_islands_of_casts() -> None:
    built = make("tensorrt_rtx:precision=fp16").build(
        request(chain("Tanh", "Exp", "Neg"), keep=frozenset({1}))
    )
    kinds = [n.op_type for n in built.model.graph.node]
    assert kinds.count("Cast") >= 3  # in, around the island, out
    assert "Exp" in kinds


def test_shapes_out_of_their_profile_are_refused_in_words() -> None:
    engine = make("tensorrt_rtx:min_shapes=t0:1x4,opt_shapes=t0:2x4,max_shapes=t0:4x4")
    engine.build(request(chain("Tanh"), rows=3))
    with pytest.raises(EngineFault, match="outside of its profile"):
        engine.build(request(chain("Tanh"), rows=9))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("tensorrt_rtx:precision=int8", "int8 is not one of"),
        ("tensorrt_rtx:min_shapes=t0", "is not NAME:DIMxDIM"),
        ("tensorrt_rtx:typing=weak", "no option 'typing'"),
        ("tensorrt_rtx:compute_capability=sm70", "sm70 is not one of"),
    ],
)
def test_wrong_options_are_sentences(spec: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make(spec)


def test_what_it_cannot_do_here_is_said() -> None:
    info = make("tensorrt_rtx").info
    assert info.capabilities["build"].present
    if not info.capabilities["run"].present:
        assert "GPU" in info.capabilities["run"].reason
    assert not info.capabilities["tactics"].present
    assert not info.capabilities["weakly-typed"].present


def test_weights_outside_of_the_model_are_found(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy"]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(
        model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    outside = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    built = make("tensorrt_rtx").build(
        BuildRequest(outside, str(tmp_path), feed_shapes={"x": (2, 4)})
    )
    assert built.facts["bytes"] > 0


def weighed(
    kind: int, opset: int, *, block: int = 0, scale: int = TensorProto.FLOAT
) -> onnx.ModelProto:
    """x @ DequantizeLinear(w), 32 x 32; ``block``: rows of w for each scale, 0: one scale for
    all."""
    values = [(i % 5) - 2 for i in range(32 * 32)]
    scales = ([32 // block, 32], [1.0] * (32 // block * 32)) if block else ([], [1.0])
    by_block = {"axis": 0, "block_size": block} if block else {}
    typed = {"output_dtype": TensorProto.FLOAT} if scale == TensorProto.FLOAT8E8M0 else {}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["f"], "dq", **by_block, **typed),
        helper.make_node("MatMul", ["x", "f"], ["y"], "product"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 32]) for n in "xy"]
    weights = [
        helper.make_tensor("w", kind, [32, 32], values),
        helper.make_tensor("s", scale, *scales),
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


P = TensorProto
# Weights of each narrow type, for which GPU: built, or the words of the refusal. docs/tensorrt.md
# tells it.
NARROW = {
    "INT8": (weighed(P.INT8, 21), "sm89", ""),
    "INT4": (weighed(P.INT4, 21), "sm89", ""),
    "INT4 in blocks of 32": (weighed(P.INT4, 21, block=32), "sm89", ""),
    "UINT4 in blocks of 32": (weighed(P.UINT4, 21, block=32), "sm89", "it does not take the type of the weight 'w'"),
    "FP8": (weighed(P.FLOAT8E4M3FN, 21), "sm89", ""),
    "FP8 in blocks of 32": (weighed(P.FLOAT8E4M3FN, 23, block=32), "sm89", ""),
    "FP8 in blocks of 32, scales of E8M0": (
        weighed(P.FLOAT8E4M3FN, 23, block=32, scale=P.FLOAT8E8M0), "sm120", "it does not take the type of the weight 's'",
    ),
    "FP4 in blocks of 16": (weighed(P.FLOAT4E2M1, 23, block=16), "sm120", ""),
    "FP4 in blocks of 16, on an older GPU": (weighed(P.FLOAT4E2M1, 23, block=16), "sm89", "sm89.*fp4_e2m1"),
}  # fmt: skip


@pytest.mark.parametrize("what", NARROW)
def test_narrow_weights_build_or_are_refused_in_words(what: str) -> None:
    model, target, words = NARROW[what]
    engine = make(f"tensorrt_rtx:precision=model,compute_capability={target}")
    asked = BuildRequest(model, "", feed_shapes={"x": (4, 32)})
    if not words:
        assert engine.build(asked).facts["bytes"] > 0
        return
    with pytest.raises(EngineFault, match=words):
        engine.build(asked)
