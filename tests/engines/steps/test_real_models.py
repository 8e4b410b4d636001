"""The simple steps on real engines and the committed models, whose failures are known."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.asking import whole_model
from narrowdown.engines.known.construct import construct
from narrowdown.engines.known.table import read_table
from narrowdown.engines.probe import Measure

Open = Callable[..., Any]
ORT = "onnxruntime:optimization=all"
WRONG = "fake:fault=wrong,ops=Sqrt"


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    **weights: np.ndarray,
) -> Path:
    def info(items: dict[str, Any]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(n, kind, dims) for n, (kind, dims) in items.items()]

    graph = helper.make_graph(
        nodes,
        "g",
        info(inputs),
        info(outputs),
        [numpy_helper.from_array(v, n) for n, v in weights.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return path


def test_a_fusion_bug_from_reproduce_to_its_optimizer(session: Open) -> None:
    s = session("shapes_cnn", ORT, tolerance={"": 1e-3})
    compared = s.step("compare").finish.outcome
    assert (compared.verdict, compared.precision, compared.explanation) == (
        "fails",
        "fp32",
        "engine",
    )
    assert compared.reference_judge
    assert compared.reference_error < 1e-5
    assert s.findings.sample.startswith("real:0/")
    clean = s.step("sanitize").finish.outcome
    assert (clean.verdict, clean.nodes_after < clean.nodes_before) == ("fails", True)
    inputs = s.step("inputs").finish.outcome
    assert (inputs.real_samples, inputs.real_failing > 0) == (16, True)
    assert s.step("repeat").finish.outcome.behaviour == "steady"
    tactics = s.step("tactics")
    assert (
        tactics.finish.outcome.suspects,
        tactics.finish.outcome.necessary,
        tactics.finish.outcome.sufficient,
    ) == (
        "Pad_Fusion",
        True,
        True,
    )
    assert len(tactics.probes) <= 14


def test_what_an_optimizer_makes_unloadable_is_offered_a_way_around(
    open_model: Open, tmp_path: Path
) -> None:
    """ONNX Runtime fuses Relu and a Clip of float16 into what it refuses."""
    made = next(bug.make for bug in read_table() if bug.id == "ort-relu-clip-type")
    onnx.save(construct(made), tmp_path / "m.onnx")
    s = open_model(tmp_path / "m.onnx", ORT, ())
    assert s.step("compare").finish.outcome.verdict == "refused"
    confirmed = s.step("confirm").finish.outcome
    assert (confirmed.cause, confirmed.fixable) == ("build-failure", True)
    assert s.step("workaround").finish.outcome.what == "FuseReluClip"
    assert s.findings.optimizers == ("FuseReluClip",)


def test_fp16_breaks_the_transformer_by_its_own_limits(session: Open) -> None:
    s = session("sort_tf_massive_m4", "emulate:precision=fp16")
    outcome = s.step("compare", judge_reference=False).finish.outcome
    assert (outcome.verdict, outcome.samples, outcome.samples_failing, outcome.tolerance) == (
        "fails",
        8,
        8,
        1e-2,
    )
    assert (outcome.explanation, outcome.nonfinite) == ("precision", False)
    assert outcome.error > 0.9


def test_a_sound_engine_passes_after_many_looks(session: Open) -> None:
    s = session("sort_tf_massive_m4", ORT, inputs=False)
    done = s.step("compare", look_again={"most": 40, "batches": [20, 20]})
    assert (
        done.finish.outcome.verdict,
        done.finish.outcome.looks,
        done.finish.outcome.failures,
    ) == ("passes", 40, 0)
    assert done.finish.findings.signature is None
    assert s.step("inputs").finish.outcome.verdict == "none-given"


def test_division_in_integers(open_model: Open, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Div", ["one", "x"], ["r"]),
        helper.make_node("Mul", ["r", "w"], ["y"]),
    ]
    shape = (TensorProto.INT32, ["n"])
    path = save(
        tmp_path / "m.onnx",
        nodes,
        {"x": shape, "w": shape},
        {"y": shape},
        one=np.array([1], np.int32),
    )
    np.savez(tmp_path / "in.npz", x=np.arange(2, 10, dtype=np.int32), w=np.full(8, 100, np.int32))
    s = open_model(path, ORT, (tmp_path / "in.npz",))
    assert s.step("compare").finish.outcome.verdict == "fails"
    tactics = s.step("tactics").finish.outcome
    assert (tactics.found, tactics.suspects) == (True, "DivMulFusion")


def test_fusions_that_stand_in_for_each_other(open_model: Open, tmp_path: Path) -> None:
    """A normalization that broadcasts along the wrong axis of a square input is fused as if it did
    not, by two fusions."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[-1], keepdims=0),
        helper.make_node("Sub", ["x", "m"], ["c"]),
        helper.make_node("Pow", ["c", "two"], ["p"]),
        helper.make_node("ReduceMean", ["p"], ["v"], axes=[-1], keepdims=0),
        helper.make_node("Add", ["v", "epsilon"], ["ve"]),
        helper.make_node("Sqrt", ["ve"], ["s"]),
        helper.make_node("Div", ["c", "s"], ["q"]),
        helper.make_node("Mul", ["q", "g"], ["y"]),
    ]
    shape = (TensorProto.FLOAT, [8, 8])
    weights = {"two": np.float32(2), "epsilon": np.float32(1e-5), "g": np.ones(8, np.float32)}
    s = open_model(save(tmp_path / "m.onnx", nodes, {"x": shape}, {"y": shape}, **weights), ORT)
    assert s.step("compare").finish.outcome.verdict == "fails"
    assert "/" not in s.findings.sample  # the batch is fixed: no row can be fed alone
    tactics = s.step("tactics").finish.outcome
    assert (tactics.found, tactics.necessary) == (True, True)
    assert all("LayerNorm" in name for name in tactics.suspects.split(", "))


def test_digits_that_fp32_does_not_have(open_model: Open, tmp_path: Path) -> None:
    """The mean is far above the spread: one unit in the last place of the inputs is as much as the
    engines are apart."""
    nodes = [helper.make_node("InstanceNormalization", ["x", "s", "b"], ["y"], epsilon=1e-9)]
    shape = (TensorProto.FLOAT, ["n", 3, 16, 16])
    weights = {"s": np.ones(3, np.float32), "b": np.zeros(3, np.float32)}
    path = save(tmp_path / "m.onnx", nodes, {"x": shape}, {"y": shape}, **weights)
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "in.npz",
        x=(1000 + 0.01 * rng.standard_normal((2, 3, 16, 16))).astype(np.float32),
    )
    outcome = open_model(path, "reference", (tmp_path / "in.npz",)).step("compare").finish.outcome
    assert outcome.verdict == "noise"
    assert outcome.error > 1e-3
    assert "changing the inputs by one rounding step moves it by" in outcome.message


@pytest.mark.parametrize(
    ("engine", "verdict"), [(WRONG, "unresolved"), ("openvino:precision=f32", "reference")]
)
def test_where_a_reference_and_its_only_judge_part(
    open_model: Open,
    tiny: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    verdict: str,
) -> None:
    """One that shares the reference's code passes, another has the judge on its side: either way
    the node is named."""
    if engine != WRONG:
        pytest.importorskip("openvino")
    monkeypatch.setattr(whole_model, "INDEPENDENT", (whole_model.FLOAT64,))
    s = open_model(tiny.norm(tmp_path), engine)
    s.reference = WRONG
    outcome = s.step("compare").finish.outcome
    assert (outcome.verdict, outcome.departs, outcome.departs_node) == (
        verdict,
        "length",
        "/length",
    )
    assert "The first tensor that differs is length, which /length makes." in outcome.message


@pytest.fixture
def raced(tmp_path: Path) -> Path:
    """Sums into the same few rows from many updates: several threads lose some."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node(
            "ScatterND", ["zeros", "where", "x"], ["sums"], name="sum_up", reduction="add"
        ),
        helper.make_node("Relu", ["sums"], ["y"], name="relu"),
    ]
    return save(
        tmp_path / "race.onnx",
        nodes,
        {"x": (TensorProto.FLOAT, [20000, 64])},
        {"y": (TensorProto.FLOAT, [100, 64])},
        zeros=np.zeros((100, 64), np.float32),
        where=rng.integers(0, 100, (20000, 1)),
    )


def test_a_race_is_found_and_one_thread_cures_it(open_model: Open, raced: Path) -> None:
    s = open_model(raced, "onnxruntime:optimization=all,threads=2")
    compared = s.step("compare").finish.outcome
    assert compared.verdict == "fails"
    # What else runs on the machine can hide a race: look again, longer, up to a bound.
    for runs in (20, 60, 150, 290):
        done = s.step("nondeterminism", runs=runs).finish
        if done.outcome.nondeterministic:
            break
    assert (done.outcome.nondeterministic, done.outcome.first_node, done.outcome.first_op) == (
        True,
        "sum_up",
        "ScatterND",
    )
    assert [suspect.node for suspect in done.findings.suspects] == [0]
    # Whatever rate was met: with one thread it is run as often as a verdict needs, in each of two
    # builds.
    s.findings = msgspec.structs.replace(s.findings, looks=max(5, s.findings.looks))
    cured = s.step("workaround")
    assert (cured.finish.outcome.kind, cured.finish.outcome.holds) == ("threads", True)
    tried = [
        p
        for p in cured.probes
        if isinstance(p, Measure) and "threads=1" in p.engine and p.attempt == 1
    ]
    assert [p.runs for p in tried] == [min(300, s.findings.looks)]
