"""What is left of a case is made simple, and goes on failing like itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.asking import Described
from narrowdown.engines.asking.engine_forms import SHRINK_EXPENSIVE
from narrowdown.engines.graph.ranges import decode
from narrowdown.engines.probe import Measure, Measurement

from .conftest import walk

Open = Callable[..., Any]


def loud(folder: Path, tiny: Any, rows: int | str = 4) -> tuple[Path, Path]:
    """A product that overflows in FP16, on the third row only, whatever its weights and its factor
    are exactly."""
    nodes = [
        helper.make_node("Relu", ["x"], ["kept"]),
        helper.make_node("Gemm", ["kept", "w", "b"], ["product"], alpha=2.0, transB=1),
        helper.make_node("Sigmoid", ["product"], ["share"]),
        helper.make_node("Mul", ["product", "small"], ["less"]),
        helper.make_node("Add", ["less", "share"], ["y"]),
    ]
    constants = {
        "w": 200 + tiny.weights(16, 16),
        "b": tiny.weights(16, seed=1),
        "small": np.float32(1e-5),
    }
    model = tiny.save(folder / "loud.onnx", nodes, {"x": [rows, 16]}, {"y": [rows, 16]}, constants)
    x = np.full((4, 16), 0.5, np.float32)
    x[2] = 100 + np.arange(16)
    return model, tiny.feeds(folder / "loud.npz", x=x)


def test_dims_inputs_weights_and_attributes_are_simplified(
    open_model: Open, tiny: Any, tmp_path: Path
) -> None:
    model, inputs = loud(tmp_path, tiny)
    s = open_model(model, "emulate:precision=fp16", (inputs,))
    assert s.step("compare").finish.outcome.verdict == "fails"
    done = s.step("reduce")
    case = done.finish.findings.case
    assert (case.ops, case.minimal, case.verified) == (("Gemm",), True, "3/3")
    edits = {(e.kind, e.attribute): e for e in case.candidate.edits}
    rows = edits["keep-rows", ""]
    assert (rows.value, rows.start) == (1, 2), (
        "of a batch that is fixed, the row that fails is kept"
    )
    index = next(d.index for d in s.known.values() if isinstance(d, Described))
    filled = {index.tensors[e.tensor].name for e in case.candidate.edits if e.kind == "fill"}
    assert filled >= {"kept", "w"}, "what is fed, and the weights"
    assert ("drop-attribute", "alpha") in edits
    # The files of the case hold the simple model, and it fails like the one before.
    assert [a.name for a in saved(s, done).graph.node[0].attribute if a.name == "alpha"] == []
    again = s.step("confirm").finish.outcome
    assert (again.failures, again.cause) == (again.looks, "overflow")
    assert "reaches" in again.evidence, "the cause is named from the values before the shrinks"


GIVEN, TWIN = "emulate:precision=fp16", "emulate:precision=fp16,level=1"


def test_where_the_twin_was_no_help_few_edits_are_tried_on_the_engine_as_given(
    open_model: Open, tiny: Any, tmp_path: Path
) -> None:
    """As given the part of one node that fails on the twin is right."""
    model, inputs = loud(tmp_path, tiny)
    s = open_model(model, GIVEN, (inputs,))
    s.step("compare")
    answered, edited = s.ask, list[Measure]()

    def both(probe: Any) -> Any:
        if not isinstance(probe, Measure):
            return answered(probe)
        m = answered(
            msgspec.structs.replace(probe, engine=GIVEN) if probe.engine == TWIN else probe
        )
        edited.extend([probe] if probe.candidate.edits and not probe.attempt else [])
        alone = (
            probe.engine == GIVEN
            and probe.candidate.nodes != "*"
            and len(decode(probe.candidate.nodes)) == 1
        )
        return Measurement(status="error") if alone else m

    findings = msgspec.structs.replace(s.context().findings, cheap=TWIN)
    case = walk(
        "reduce", msgspec.structs.replace(s.context(), findings=findings), both
    ).finish.findings.case
    assert len(case.nodes) > 1
    assert {p.engine for p in edited} == {GIVEN}
    assert len(edited) == SHRINK_EXPENSIVE


def saved(s: Any, done: Any) -> onnx.ModelProto:
    """The model of the case as it was kept."""
    return onnx.load_from_string(
        s.store.get(done.finish.tables["bundle"][0]["files"]["model.onnx"])
    )


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_large_weights_become_small_ones(
    open_model: Open, tiny: Any, tmp_path: Path, where: str
) -> None:
    """Every product of this layer overflows: one channel in and one out are enough, wherever its
    weights lie."""
    nodes = [
        helper.make_node("Relu", ["x"], ["kept"]),
        helper.make_node(
            "Conv", ["kept", "w", "b"], ["loud"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]
        ),
        helper.make_node("Mul", ["loud", "small"], ["y"]),
    ]
    constants = {
        "w": 900 + tiny.weights(48, 40, 3, 3),
        "b": tiny.weights(48),
        "small": np.float32(1e-6),
    }
    model = tiny.save(
        tmp_path / "m.onnx", nodes, {"x": [2, 40, 8, 8]}, {"y": [2, 48, 8, 8]}, constants
    )
    if where == "outside":
        onnx.save(
            onnx.load(model),
            model,
            save_as_external_data=True,
            location="w.bin",
            size_threshold=1024,
        )
    inputs = tiny.feeds(tmp_path / "in.npz", x=100 + np.abs(tiny.weights(2, 40, 8, 8)))
    s = open_model(model, "emulate:precision=fp16", (inputs,))
    assert s.step("compare").finish.outcome.verdict == "fails"
    done = s.step("reduce")
    case = done.finish.findings.case
    assert (case.ops, case.minimal, case.verified) == (("Conv",), True, "3/3")
    small = saved(s, done)
    assert {tuple(t.dims) for t in small.graph.initializer} == {(1, 1, 3, 3), (1,)}
    assert small.ByteSize() < 1000
    again = s.step("confirm").finish.outcome
    assert (again.failures, again.cause) == (again.looks, "overflow")


def test_a_weight_that_the_failure_needs_keeps_its_rows(
    open_model: Open, tiny: Any, tmp_path: Path
) -> None:
    """Only the sum of many terms overflows."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["sum"], name="sum"),
        helper.make_node("Mul", ["sum", "small"], ["y"]),
    ]
    constants = {"w": np.full((64, 32), 100, np.float32), "small": np.float32(1e-6)}
    model = tiny.save(tmp_path / "m.onnx", nodes, {"x": [4, 64]}, {"y": [4, 32]}, constants)
    s = open_model(
        model,
        "emulate:precision=fp16",
        (tiny.feeds(tmp_path / "in.npz", x=np.full((4, 64), 20, np.float32)),),
    )
    done = s.step("reduce")
    small = saved(s, done)
    (w,) = small.graph.initializer
    assert tuple(w.dims) == (64, 1), (
        "64 terms of 2,000 pass what FP16 holds, 32 do not; one column is enough"
    )
    assert done.finish.outcome.verified == "3/3"


def test_a_shrink_that_changes_the_failure_is_not_taken(
    open_model: Open, tiny: Any, tmp_path: Path
) -> None:
    """A difference of nearly equal numbers needs these numbers."""
    nodes = [
        helper.make_node("Add", ["x", "large"], ["shifted"]),
        helper.make_node("Sub", ["shifted", "large"], ["y"]),
    ]
    shape = {"x": [2, 8]}, {"y": [2, 8]}
    model = tiny.save(tmp_path / "m.onnx", nodes, *shape, {"large": 3000 + np.abs(tiny.weights(8))})
    inputs = tiny.feeds(tmp_path / "in.npz", x=tiny.weights(2, 8, seed=3))
    s = open_model(model, "emulate:precision=fp16", (inputs,))
    s.step("compare")
    case = s.step("reduce").finish.findings.case
    assert case.ops == ("Sub",)
    large = [e.value for e in case.candidate.edits if e.kind == "fill" and e.tensor != 0]
    assert large == [], "with 1 or 300 in its place nothing cancels"
    assert case.verified == "3/3"


def test_what_only_makes_a_constant_is_left_out(
    open_model: Open, tiny: Any, tmp_path: Path
) -> None:
    """The engine folds the 1 and fuses what divides it; fed with the 1 as an input it fuses nothing
    and is right."""
    nodes = [
        helper.make_node("Sub", ["three", "two"], ["one"], name="one"),
        helper.make_node("Div", ["one", "x"], ["share"], name="share"),
        helper.make_node("Mul", ["share", "w"], ["whole"], name="whole"),
        helper.make_node("Add", ["whole", "three"], ["sum"], name="sum"),
        helper.make_node("Cast", ["sum"], ["y"], name="last", to=TensorProto.FLOAT),
    ]
    constants = {"three": np.array([3], np.int32), "two": np.array([2], np.int32)}
    model = tiny.save(
        tmp_path / "m.onnx",
        nodes,
        {"x": ["n"], "w": ["n"]},
        {"y": ["n"]},
        constants,
        dtype=TensorProto.INT32,
    )
    inputs = tiny.feeds(
        tmp_path / "in.npz", x=np.arange(2, 10, dtype=np.int32), w=np.full(8, 100, np.int32)
    )
    s = open_model(model, "onnxruntime:optimization=all", (inputs,))
    assert s.step("compare").finish.outcome.verdict == "fails"
    done = s.step("reduce")
    case = done.finish.findings.case
    assert (case.nodes, case.minimal, case.verified) == (("share", "whole"), True, "3/3")
    small = saved(s, done)
    assert [i.name for i in small.graph.input] == ["x", "w"]
    assert "one" in {t.name for t in small.graph.initializer}


@pytest.mark.parametrize("kind", ["conv", "less"])
def test_a_crowd_of_small_errors_is_not_accused_where_one_node_is_most_of_it(
    open_model: Open, tmp_path: Path, kind: str
) -> None:
    """Each of the layers before it is wrong by its rounding, and six of them by more than the
    tolerance: halving ended there."""
    rng = np.random.default_rng(3)
    text, held = [], {}
    last = "x"
    for i in range(24):
        held |= {
            f"k{i}": rng.uniform(1, 1.9, (1, 16, 1, 1)),
            f"b{i}": rng.uniform(-0.2, 0.2, (1, 16, 1, 1)),
        }
        text.append(f"m{i} = Mul ({last}, k{i}) a{i} = Add (m{i}, b{i}) t{i} = Tanh (a{i})")
        last = f"t{i}"
    weights = rng.normal(0, 1, (16, 16, 3, 3))
    if kind == "conv":
        held["w"] = weights - 0.9993 * weights.mean(axis=(2, 3), keepdims=True)
        text.append(f"[conv] y = Conv <pads = [1, 1, 1, 1]> ({last}, w)")
    else:
        held["n"] = np.full((1, 1, 1, 1), -0.97)
        text.append(f"turned = Mul ({last}, n) [less] y = Add ({last}, turned)")
    graph = f'<ir_version: 9, opset_import: ["":17]> g (float[1,16,8,8] x) => (float[1,16,8,8] y) {{ {" ".join(text)} }}'
    model = onnx.parser.parse_model(graph)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(v.astype(np.float32), k) for k, v in held.items()
    )
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", x=rng.uniform(0.2, 1, (1, 16, 8, 8)).astype(np.float32))
    allowed = 2e-4 if kind == "conv" else 4e-4
    s = open_model(
        tmp_path / "m.onnx",
        "emulate:precision=fp16",
        (tmp_path / "in.npz",),
        tolerance={"": allowed},
    )
    s.step("compare")
    assert s.step("reduce").finish.outcome.names == kind
