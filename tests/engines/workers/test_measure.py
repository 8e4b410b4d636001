"""Measure on real models: what is fed, what is compared, what a part's error does to the whole."""

import io
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.backends.base import EngineFault
from narrowdown.engines.backends.builds import build, clear_all
from narrowdown.engines.backends.emulate import engine as emulate
from narrowdown.engines.backends.onnxruntime.engine import Session
from narrowdown.engines.compare.judge import Criterion, Signature, judge
from narrowdown.engines.demos import magika_inputs
from narrowdown.engines.graph import load, ranges
from narrowdown.engines.probe import Candidate, Edit, Measurement
from narrowdown.engines.workers import captures, measure, part
from narrowdown.wizard.demo import MODELS

EMULATE = "emulate:precision=fp16"
EXACT = "onnxruntime"  # the reference itself as engine under test: every part of it must be exactly right

Opened = Callable[..., "object"]


def only(m: Measurement):
    assert m.status == "ok", m.message
    assert len(m.results) == 1
    return m.results[0]


def save(path: Path, nodes, inputs, outputs, weights=()) -> Path:
    """A small model of floats; inputs and outputs are name -> shape."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in dict(weights).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


@pytest.fixture
def small(tmp_path, session_of):
    def make(nodes, arrays, outputs, weights=(), shapes=None):
        shapes = shapes or {n: a.shape for n, a in arrays.items()}
        model = save(tmp_path / "m.onnx", nodes, shapes, outputs, weights)
        np.savez(tmp_path / "in.npz", **arrays)
        return session_of(tmp_path / "session", model, tmp_path / "in.npz")

    return make


def test_every_probe_of_an_emulation_reads_the_same_file_of_rounded_weights(small) -> None:
    """A file with a workaround as well."""
    rng = np.random.default_rng(0)
    w = {name: rng.standard_normal((64, 64), np.float32) for name in ("v", "w")}
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["y"]),
    ]
    session = small(nodes, {"x": w["v"][:1]}, {"y": (1, 64)}, w)
    exact, whole, part = (
        only(session.measure(engine, candidate))
        for engine, candidate in ((EXACT, None), (EMULATE, None), (EMULATE, session.nodes(1)))
    )
    written = {"written": session.model, "rest": "fp16", "keep": "0"}
    typed = only(session.measure("emulate:precision=typed", **written))
    errors = [m.outputs[0].rel_l2 for m in (exact, part, typed, whole)]
    assert 0 == errors[0] < errors[1]
    assert 0 < errors[2] < errors[3]
    names = [p.name for p in session.store.weights.iterdir()]
    assert sum(".float32-float16-float32." in name for name in names) == 1, names


def test_builds_of_a_heavy_model_are_not_held_side_by_side(
    tmp_path: Path, session_of, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference answers for every sample, then is gone before the engine is built."""
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    weights = {"w": rng.standard_normal((64, 64), np.float32)}
    model = save(tmp_path / "m.onnx", nodes, {"x": (1, 64)}, {"y": (1, 64)}, weights)
    inputs = [tmp_path / f"{i}.npz" for i in range(3)]
    for file in inputs:
        np.savez(file, x=rng.standard_normal((1, 64), np.float32))
    session = session_of(tmp_path / "session", model, *inputs)
    clear_all()
    monkeypatch.setattr(captures, "HELD", 64)
    held: list[int] = []
    make = part.build
    monkeypatch.setattr(part, "build", lambda *a: held.append(len(captures._builds)) or make(*a))
    answer = session.measure(EMULATE, samples=tuple(s["id"] for s in session.samples))
    assert len(answer.results) == len(inputs)
    assert held == [0]
    assert not len(captures._builds)


# -- every part of the reference is exactly the reference


@pytest.fixture
def all_transplanted(monkeypatch):
    """Also what is right to the bit is put into the reference run, which shows nothing but is to be
    exact."""
    monkeypatch.setattr(measure, "_same_bits", lambda *_: False)


@pytest.mark.parametrize("name", ["sort_tf_massive_m4", "shapes_cnn"])
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
@pytest.mark.usefixtures("all_transplanted")
def test_any_part_run_on_the_reference_gives_the_captured_values(
    opened, name: str, data: st.DataObject
) -> None:
    session = opened(name)
    count = len(session.index.nodes)
    nodes = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=25))
    made = [t for n in nodes for t in session.index.nodes[n].outputs if session.index.readers[t]]
    severed = data.draw(st.sets(st.sampled_from(made), max_size=5)) if made else set()
    candidate = Candidate(nodes=ranges.encode(nodes), severed=ranges.encode(severed))
    result = only(session.run(session.probe(EXACT, candidate, samples=("real:0/3",), effect=True)))
    assert result.outputs
    assert all(s.equal for s in result.outputs)
    assert [s.name for s in result.effect] == [
        session.index.tensors[t].name for t in session.index.outputs
    ]
    assert all(s.equal for s in result.effect)
    assert not result.rounded


@pytest.mark.usefixtures("all_transplanted")
def test_a_cut_anywhere_through_the_graph_is_exact(opened) -> None:
    session = opened("sort_tf_massive_m4")
    count = len(session.index.nodes)
    for middle in range(10, count, 31):
        for nodes in (range(middle), range(middle, count)):
            m = session.measure(EXACT, session.nodes(*nodes), samples=("real:0/0",), effect=True)
            assert all(s.equal for s in (*m.results[0].outputs, *m.results[0].effect)), (
                middle,
                nodes,
            )
            assert m.nodes == len(nodes)


# -- own error and effect


@pytest.mark.parametrize(("engine", "runs"), [(EXACT, 0), (EMULATE, 1)])
def test_no_effect_is_sought_of_a_part_that_is_right_to_the_bit(
    opened, monkeypatch, engine: str, runs: int
) -> None:
    session, sought = opened("sort_tf_massive_m4"), []
    real = measure._Measuring._run_downstream
    monkeypatch.setattr(
        measure._Measuring, "_run_downstream", lambda *a: sought.append(a) or real(*a)
    )
    result = only(
        session.measure(
            engine, session.nodes(session.by_op("Pow")[0]), samples=("real:0/0",), effect=True
        )
    )
    assert [s.name for s in result.effect] == [
        session.index.tensors[t].name for t in session.index.outputs
    ]
    assert all(s.equal for s in result.effect) == (not runs)
    assert len(sought) == runs


def test_every_overflowing_pow_of_the_transformer_fails_alone_and_for_the_whole(opened) -> None:
    session = opened("sort_tf_massive_m4")
    for n in session.by_op("Pow"):
        m = session.measure(EMULATE, session.nodes(n), samples=("real:0/0",), effect=True)
        result = only(m)
        assert result.outputs[0].new_nonfinite > 0
        assert result.effect[0].rel_l2 > 0.3
        verdict = judge(m, Criterion(tolerance=1e-2), signature(session))
        assert verdict.failed, verdict


def test_an_error_that_nothing_downstream_sees_is_harmless(small) -> None:
    x = np.linspace(-60, 60, 240, dtype=np.float32).reshape(1, 240)
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"], "square"),
        helper.make_node("Mul", ["square", "x"], ["cube"], "cube"),
        helper.make_node("Tanh", ["cube"], ["tanh"], "tanh"),
        helper.make_node("Mul", ["tanh", "half"], ["y"], "scale"),
    ]
    session = small(nodes, {"x": x}, {"y": x.shape}, {"half": np.float32(0.5)})
    m = session.measure(EMULATE, session.nodes(1), effect=True)
    result = only(m)
    assert result.outputs[0].new_nonfinite > 0
    assert result.effect[0].rel_l2 < 1e-3
    verdict = judge(
        m, Criterion(tolerance=1e-2), Signature("accuracy", "real:0", ("y",), {"y": 1.0})
    )
    assert (verdict.kind, verdict.reason) == ("unresolved", "harmless")


def test_most_nodes_of_the_transformer_do_no_harm(opened) -> None:
    session = opened("sort_tf_massive_m4")
    innocent = session.by_op("MatMul")[:4] + session.by_op("Softmax")[:2] + session.by_op("Add")[:4]
    for n in innocent:
        result = only(
            session.measure(EMULATE, session.nodes(n), samples=("real:0/0",), effect=True)
        )
        assert all(s.rel_l2 < 2e-2 for s in result.effect), session.index.nodes[n].name


def test_the_effect_of_several_outputs_goes_through_all_of_them_and_past_their_own_producers(
    small,
) -> None:
    # Split makes two tensors; one is transplanted, the other is still the reference's.
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 8)
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["double"], "double"),
        helper.make_node("Split", ["double"], ["left", "right"], "split", axis=1),
        helper.make_node("Mul", ["left", "right"], ["y"], "product"),
        helper.make_node("Add", ["right", "two"], ["z"], "shift"),
    ]
    session = small(nodes, {"x": x}, {"y": (1, 4), "z": (1, 4)}, {"two": np.float32(2)})
    by_name = session.index.by_name
    left = Candidate(nodes="1", outputs=ranges.encode([by_name["left"]]))
    result = only(session.measure("fake:fault=wrong,ops=Split,size=1", left, effect=True))
    # Every float result of the faulty node is doubled, only ``left`` is looked at: y doubles, z
    # stays.
    assert result.outputs[0].rel_l2 == pytest.approx(1.0)
    assert {s.name: s.rel_l2 for s in result.effect} == {"y": pytest.approx(1.0), "z": 0.0}
    both = only(
        session.measure("fake:fault=wrong,ops=Split,size=1", Candidate(nodes="1"), effect=True)
    )
    assert {s.name: round(s.rel_l2, 3) for s in both.effect} == {
        "y": 3.0,
        "z": pytest.approx(0.9, abs=0.2),
    }
    watched = only(
        session.measure(
            "fake:fault=wrong,ops=Split,size=1",
            left,
            effect=True,
            effect_on=ranges.encode([by_name["z"]]),
        )
    )
    assert [(s.name, s.equal) for s in watched.effect] == [("z", True)]


def test_values_that_are_not_finite_are_transplanted_as_they_are(small) -> None:
    x = np.full((1, 4), 300.0, np.float32)
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"], "square"),
        helper.make_node("ReduceMean", ["square"], ["mean"], "mean", axes=[1], keepdims=1),
        helper.make_node("Div", ["x", "mean"], ["y"], "divide"),
    ]
    session = small(nodes, {"x": x}, {"y": x.shape})
    result = only(session.measure(EMULATE, session.nodes(0), effect=True))
    assert result.outputs[0].new_nonfinite == 4
    assert result.effect[0].rel_l2 == pytest.approx(1.0)  # 300 / inf = 0


# -- the feed rule


def cancellation(small):
    """The variance as E[x^2] - E[x]^2 of values around 20 that differ by a hundredth."""
    x = (20 + 0.05 * np.random.default_rng(0).standard_normal((1, 4, 64))).astype(np.float32)
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], "mean", axes=[2], keepdims=1),
        helper.make_node("Mul", ["x", "x"], ["square"], "square"),
        helper.make_node(
            "ReduceMean", ["square"], ["mean_square"], "mean_square", axes=[2], keepdims=1
        ),
        helper.make_node("Mul", ["mean", "mean"], ["square_mean"], "square_mean"),
        helper.make_node("Sub", ["mean_square", "square_mean"], ["y"], "variance"),
    ]
    return small(nodes, {"x": x}, {"y": (1, 4, 1)})


def test_a_cancellation_shows_only_when_fed_as_stored(small) -> None:
    session = cancellation(small)
    stored = only(session.measure(EMULATE, session.nodes(4)))
    exact = only(session.measure(EMULATE, session.nodes(4), feed="exact"))
    assert stored.outputs[0].rel_l2 > 0.9  # nothing of the variance is left
    assert exact.outputs[0].rel_l2 < 1e-3
    assert set(stored.rounded) == {"mean_square", "square_mean"}
    assert all(0 < r < 1e-3 for r in stored.rounded.values())
    assert exact.rounded == {}
    assert stored.unrepresentable == ()


def test_the_models_own_inputs_are_never_rounded(small) -> None:
    session = cancellation(small)
    assert only(session.measure(EMULATE, session.nodes(0))).rounded == {}


def test_what_a_kept_node_hands_to_a_kept_node_is_not_rounded(small) -> None:
    session = cancellation(small)
    probe = session.probe(EMULATE, session.nodes(4))
    kept = only(session.run(msgspec.structs.replace(probe, keep="2-4")))
    assert kept.rounded == {}
    assert kept.outputs[0].equal
    producers = only(session.run(msgspec.structs.replace(probe, keep="2-3")))
    assert set(producers.rounded) == {"mean_square", "square_mean"}


def test_a_value_that_the_precision_cannot_hold_is_said(small) -> None:
    x = np.full((1, 4), 300.0, np.float32)
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"], "square"),
        helper.make_node("Sqrt", ["square"], ["y"], "root"),
    ]
    session = small(nodes, {"x": x}, {"y": x.shape})
    result = only(session.measure(EMULATE, session.nodes(1)))
    assert result.unrepresentable == ("square",)
    assert result.outputs[0].new_nonfinite == 4
    assert only(session.measure(EMULATE, session.nodes(1), feed="exact")).unrepresentable == ()


def test_an_engine_is_told_whether_it_builds_the_whole_or_a_part(
    small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a whole model must have, Q/DQ nodes for INT8 say, a part of it need not."""
    session = cancellation(small)
    told: list[bool] = []
    build = emulate.Engine.build

    def listening(self, request):
        told.append(request.part)
        return build(self, request)

    monkeypatch.setattr(emulate.Engine, "build", listening)
    clear_all()  # another test may have asked for the same
    whole = session.probe(EMULATE, Candidate())
    cut = session.probe(EMULATE, session.nodes(0))
    severed = session.probe(EMULATE, Candidate(edits=(Edit(kind="fill", tensor=0, value=1.0),)))
    for probe in (whole, cut, severed, msgspec.structs.replace(whole, keep="0")):
        only(session.run(probe))
    assert told == [False, True, True, True]


@pytest.mark.parametrize("needs", [False, True])
def test_a_cut_leaves_open_what_the_model_does_unless_the_engine_needs_it(
    small, monkeypatch, needs: bool
) -> None:
    """OpenVINO's ConvTranspose is wrong for an open batch alone: with the size that was seen each
    part of it was right."""
    shapes = {"x": ("n", 3)}
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg" if needs else "Abs", ["a"], ["y"]),
    ]
    session = small(nodes, {"x": np.ones((2, 3), np.float32)}, {"y": ("n", 3)}, shapes=shapes)
    asked = []

    def record(engine, request):
        sizes = [d.dim_value for d in request.model.graph.input[0].type.tensor_type.shape.dim]
        asked.append(sizes)
        if needs and not sizes[0]:
            raise EngineFault("refused", "It wants to know the batch.")
        return build(engine, request)

    monkeypatch.setattr(part, "build", record)
    assert session.measure(EMULATE, session.nodes(1)).results
    assert asked == ([[0, 3], [2, 3]] if needs else [[0, 3]])


def test_keeping_every_node_makes_the_emulation_exact(opened) -> None:
    session = opened("sort_tf_massive_m4")
    m = session.measure(EMULATE, keep="*", samples=("real:0/0",))
    assert m.results[0].outputs[0].equal
    norms = [
        n.id for n in session.index.nodes if any(part in n.name for part in ("/l1/", "/l2/", "/l/"))
    ]
    better = session.measure(EMULATE, keep=ranges.encode(norms), samples=("real:0/0",))
    assert better.results[0].outputs[0].rel_l2 < 1e-2
    assert session.measure(EMULATE, samples=("real:0/0",)).results[0].outputs[0].rel_l2 > 0.9


def test_everything_kept_is_what_the_reference_gave_and_is_not_run(
    opened, small, monkeypatch
) -> None:
    session = opened("shapes_cnn")
    real, builds = measure._Measuring._build, []
    monkeypatch.setattr(
        measure._Measuring,
        "_build",
        lambda self, *rest: builds.append(self.keep) or real(self, *rest),
    )
    whole, plain = (session.measure(EMULATE, keep=keep, samples=("real:0",)) for keep in ("*", ""))
    assert builds == [frozenset()]
    assert all(s.equal for r in whole.results for s in r.outputs)
    assert [(r.sample, len(r.outputs)) for r in whole.results] == [
        (r.sample, len(r.outputs)) for r in plain.results
    ]
    assert whole.nodes == plain.nodes
    everything = len(session.index.nodes)
    session.measure(EMULATE, keep="*", samples=("real:0/0",), attempt=1)
    session.measure(EMULATE, keep=f"1-{everything - 1}", samples=("real:0/0",))
    session.measure(EMULATE, keep="*", samples=("real:0/0",), reference="reference")
    session.measure(f"{EMULATE.partition(':')[0]}:precision=typed", keep="*", samples=("real:0/0",))
    assert len(builds) == 5  # each of these may give something else


@pytest.mark.parametrize("other", ["draws", "quantized"])
def test_everything_kept_is_run_where_it_may_give_something_else(
    small, monkeypatch, other: str
) -> None:
    """Random numbers are others in each run; pairs of a quantized model may go with the layers that
    are kept."""
    draws = [
        helper.make_node("RandomNormalLike", ["x"], ["r"], "r"),
        helper.make_node("Add", ["x", "r"], ["y"], "y"),
    ]
    pair = [
        helper.make_node("QuantizeLinear", ["x", "scale"], ["q"], "q"),
        helper.make_node("DequantizeLinear", ["q", "scale"], ["d"], "d"),
        helper.make_node("Neg", ["d"], ["y"], "y"),
    ]
    x = np.ones((2, 3), np.float32)
    weights = {} if other == "draws" else {"scale": np.array(0.5, np.float32)}
    session = small(draws if other == "draws" else pair, {"x": x}, {"y": (2, 3)}, weights)
    real, builds = measure._Measuring._build, []
    monkeypatch.setattr(
        measure._Measuring,
        "_build",
        lambda self, *rest: builds.append(self.keep) or real(self, *rest),
    )
    session.measure(EMULATE, keep="*")
    assert len(builds) == 1


def test_a_culprit_patched_with_reference_values_is_cut_off(opened) -> None:
    session = opened("sort_tf_massive_m4")
    # Of one LayerNorm even the mean of the squares overflows; all the square roots can be held.
    roots = [t for n in session.by_op("Sqrt") for t in session.index.nodes[n].outputs]
    means = [t for n in session.by_op("Sqrt") for t in session.index.nodes[n].inputs]
    assert len(roots) == 7
    patched = only(
        session.measure(
            EMULATE, Candidate(severed=ranges.encode(roots)), samples=("real:0/0",), effect=True
        )
    )
    assert patched.outputs[0].rel_l2 < 1e-2
    assert patched.effect[0].rel_l2 == patched.outputs[0].rel_l2
    assert patched.unrepresentable == ()
    early = only(
        session.measure(EMULATE, Candidate(severed=ranges.encode(means)), samples=("real:0/0",))
    )
    assert early.unrepresentable == ("/l/Add_output_0",)
    assert early.outputs[0].rel_l2 > 0.1
    one = only(
        session.measure(EMULATE, Candidate(severed=ranges.encode(roots[:1])), samples=("real:0/0",))
    )
    assert one.outputs[0].rel_l2 > 0.5


# -- samples, rows, runs


def test_a_whole_feed_gives_one_result_a_row_and_a_row_is_its_own_feed(opened) -> None:
    session = opened("shapes_cnn")
    rows = session.samples[0]["rows"]
    whole = session.measure("onnxruntime:optimization=all")
    assert [r.sample for r in whole.results] == [f"real:0/{i}" for i in range(rows)]
    alone = session.measure("onnxruntime:optimization=all", samples=("real:0/1", "real:0/2"))
    assert [r.sample for r in alone.results] == ["real:0/1", "real:0/2"]
    for got, expected in zip(alone.results, whole.results[1:3], strict=True):
        assert got.outputs[0].shape[0] == 1
        assert got.outputs[0].rel_l2 == pytest.approx(expected.outputs[0].rel_l2, rel=1e-2)


def test_a_part_whose_rows_cannot_be_told_apart_gives_one_result(small) -> None:
    x = np.ones((4, 6), np.float32)
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["line"], "flatten"),
        helper.make_node("Reshape", ["line", "back"], ["y"], "restore"),
    ]
    weights = {"flat": np.array([-1], np.int64), "back": np.array([-1, 6], np.int64)}
    session = small(nodes, {"x": x}, {"y": ("n", 6)}, weights, {"x": ("n", 6)})
    assert [r.sample for r in session.measure(EXACT).results] == [f"real:0/{i}" for i in range(4)]
    assert [r.sample for r in session.measure(EXACT, session.nodes(0)).results] == ["real:0"]


def test_what_is_inside_the_reference_is_seen_without_running_it_again(opened, monkeypatch) -> None:
    session = opened("shapes_cnn")
    inner = [
        t for t in session.index.tensors if t.kind == "node" and t.id not in session.index.outputs
    ]
    seen = session.measure(EMULATE, keep="*", marks="*", samples=("real:0/0",))
    monkeypatch.setattr(measure._Measuring, "_build", lambda *_: pytest.fail("built again"))
    m = session.measure(EXACT, marks="*", samples=("real:0/0",))
    assert m.nodes == seen.nodes
    assert [s.name for s in m.results[0].marks] == [t.name for t in inner]
    assert m.results == seen.results


def test_the_reference_answers_rows_as_they_are_once(opened, monkeypatch) -> None:
    session, ran = opened("shapes_cnn"), []
    real = Session.run
    monkeypatch.setattr(
        Session, "run", lambda self, *a, **k: ran.append(self) or real(self, *a, **k)
    )
    m = session.measure(EXACT, vary="repeated")
    assert len(ran) == 1
    assert max(s.rel_l2 for r in m.results for s in r.outputs) < 1e-5


def test_marks_are_compared_beside_the_outputs(opened) -> None:
    session = opened("shapes_cnn")
    m = session.measure(EMULATE, keep="*", marks="*", samples=("real:0/0",))
    assert (
        len(m.results[0].marks) == len([t for t in session.index.tensors if t.kind == "node"]) - 1
    )
    assert all(s.equal for s in m.results[0].marks)


def test_repeated_runs_keep_what_differs(small) -> None:
    session = cancellation(small)
    steady = session.measure(EXACT, runs=5)
    assert (steady.varies, steady.runs, steady.facts["runs"]) == (False, (), 5)
    moody = session.measure("fake:fault=wrong,rate=0.5,per=run,size=1", runs=12)
    assert moody.varies
    assert 0 < len(moody.runs) < 12
    again = session.measure("fake:fault=wrong,rate=0.5,per=run,size=1", runs=12)
    assert again.runs == moody.runs  # a build of its own: the same question has the same answer


def test_samples_of_one_shape_share_a_build(opened) -> None:
    session = opened("shapes_cnn")
    first = session.measure(EXACT, session.nodes(3, 4, 5), samples=("real:0/0",))
    second = session.measure(EXACT, session.nodes(3, 4, 5), samples=("real:0/1",))
    third = session.measure(EXACT, session.nodes(3, 4, 5), samples=("real:0/1",), attempt=1)
    assert first.build_seconds == second.build_seconds
    assert third.build_seconds != first.build_seconds


def test_constants_belong_to_their_sample(small) -> None:
    """An index list that depends on the data is baked in; another sample must not get the first
    one's."""
    x = np.array([[3, 1, 2, 0], [0, 1, 2, 3]], np.float32)
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["values", "indices"], "topk", axis=1),
        helper.make_node("GatherElements", ["x", "indices"], ["y"], "gather", axis=1),
    ]
    session = small(
        nodes, {"x": x}, {"y": ("n", 2)}, {"k": np.array([2], np.int64)}, {"x": ("n", 4)}
    )
    for constants in (None, ranges.encode([session.index.by_name["indices"]]), ""):
        m = session.measure(
            EXACT,
            Candidate(nodes="1", constants=constants),
            samples=("real:0/0", "real:0/1"),
            effect=True,
        )
        assert all(s.equal for r in m.results for s in (*r.outputs, *r.effect))


# -- edits


def test_an_edited_part_is_its_own_reference(small) -> None:
    session = cancellation(small)
    tensors = session.index.by_name
    fewer = Candidate(
        nodes="4",
        edits=tuple(
            Edit("keep-rows", tensor=tensors[n], axis=1, value=2)
            for n in ("mean_square", "square_mean")
        ),
    )
    result = session.measure(EXACT, fewer, effect=True).results[0]
    assert result.outputs[0].shape == (1, 2, 1)
    assert result.outputs[0].equal
    assert result.effect == ()
    filled = Candidate(nodes="4", edits=(Edit("fill", tensor=tensors["square_mean"], value=0.5),))
    result = session.measure(EXACT, filled).results[0]
    assert result.outputs[0].equal
    assert result.outputs[0].absmax > 300  # about 400 - 0.5, not a variance of 0.0025


# -- files


@pytest.mark.parametrize("name", ["sort_tf_massive_m4", "shapes_cnn", "pillars_add"])
def test_what_is_saved_can_be_looked_at(opened, name: str) -> None:
    """Netron shows names, and the type and shape of what runs between the nodes: all are in the
    file."""
    session = opened(name)
    original = onnx.load(MODELS / f"{name}.onnx")
    named = {node.output[0]: node for node in original.graph.node}
    m = session.measure(
        EXACT,
        Candidate(),
        samples=("real:0" if name == "pillars_add" else "real:0/3",),
        save="case",
    )
    model = onnx.load_from_string(session.store.get(m.artifacts["model.onnx"]))
    onnx.checker.check_model(model, full_check=True)
    for node in model.graph.node:
        of = named[node.output[0]]
        assert (node.name, node.op_type, list(node.input)) == (
            of.name or node.name,
            of.op_type,
            list(of.input),
        )
    made = {t for node in model.graph.node for t in node.output if t} - {
        o.name for o in model.graph.output
    }
    told = {i.name: i.type.tensor_type for i in model.graph.value_info}
    assert set(told) == made
    assert all(kind.elem_type and kind.HasField("shape") for kind in told.values())
    ran = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with np.load(io.BytesIO(session.store.get(m.artifacts["inputs.npz"]))) as feeds:
        ran.run(None, dict(feeds))


def test_of_the_neighbour_that_passes_the_model_alone_is_kept(opened) -> None:
    session = opened("shapes_cnn")
    part = session.nodes(session.by_op("Conv")[0])
    case, good = (
        session.measure(EXACT, part, samples=("real:0/3",), save=save).artifacts
        for save in ("case", "good")
    )
    assert good == {"model.onnx": case["model.onnx"]}
    assert "inputs.npz" in case


def test_a_run_that_is_held_up_does_not_count_as_the_time_of_a_run(small, monkeypatch) -> None:
    session = small(
        [helper.make_node("Mul", ["x", "x"], ["y"])],
        {"x": np.ones((1, 3), np.float32)},
        {"y": (1, 3)},
    )
    calls, true = [], measure.feeds_by_name

    def held_up(*given):
        calls.append(given)
        time.sleep(1.0 if len(calls) == 3 else 0)
        return true(*given)

    monkeypatch.setattr(measure, "feeds_by_name", held_up)
    m = session.measure(EXACT, runs=5)
    assert m.run_seconds > 1.0
    assert 0 < m.median_seconds < m.run_seconds / 5 / 2, "their mean is a fifth"
    assert session.measure(EXACT).median_seconds == 0, "one run has no middle"


def test_what_is_saved_runs_again_without_us(opened) -> None:
    session = opened("sort_tf_massive_m4")
    n = session.by_op("Pow")[0]
    m = session.measure(EMULATE, session.nodes(n, n + 1), samples=("real:0/0",), save="case")
    files = {name: session.store.get(digest) for name, digest in m.artifacts.items()}
    assert set(files) == {
        "model.onnx",
        "engine.onnx",
        "inputs.npz",
        "expected.npz",
        "actual.npz",
        "values.json",
    }
    arrays = {
        name: dict(np.load(io.BytesIO(files[f"{name}.npz"])))
        for name in ("inputs", "expected", "actual")
    }
    for name, wanted in (("engine.onnx", "actual"), ("model.onnx", "expected")):
        model = onnx.load_from_string(files[name])
        assert not any(t.external_data for t in model.graph.initializer)
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        run = ort.InferenceSession(files[name], options, providers=["CPUExecutionProvider"])
        outputs = [o.name for o in run.get_outputs()]
        got = dict(zip(outputs, run.run(None, arrays["inputs"]), strict=True))
        assert set(got) == set(arrays[wanted])
        for output, value in got.items():
            if wanted == "actual":
                np.testing.assert_array_equal(value, arrays[wanted][output])
            else:  # the feed is rounded, what is expected is not
                np.testing.assert_allclose(value, arrays[wanted][output], rtol=5e-3)


def test_equal_arrays_are_one_artifact(opened) -> None:
    session = opened("shapes_cnn")
    once = session.measure(EXACT, session.nodes(0), samples=("real:0/0",), save="a")
    twice = session.measure(EXACT, session.nodes(0), samples=("real:0/0",), save="b", attempt=1)
    assert once.artifacts == twice.artifacts


# -- what goes wrong


@pytest.mark.parametrize(
    ("engine", "reference", "status", "words"),
    [
        ("fake:fault=build-failed,at=build", "onnxruntime", "build-failed", "fake"),
        ("fake:fault=out-of-memory", "onnxruntime", "out-of-memory", "fake"),
        ("fake:fault=memory,mib=64", "onnxruntime", "out-of-memory", "memory"),
        ("fake:fault=error", "onnxruntime", "error", "fake"),
        ("onnxruntim", "onnxruntime", "refused", "onnxruntime"),
        ("openvino:device=NPU.7", "onnxruntime", "unsupported", "npu"),
        ("onnxruntime", "fake:fault=error", "reference-failed", "reference"),
        ("onnxruntime", "nonsense", "reference-failed", "nonsense"),
    ],
)
def test_every_failure_is_a_status_and_a_sentence(
    small, engine: str, reference: str, status: str, words: str
) -> None:
    session = cancellation(small)
    m = session.run(session.probe(engine, reference=reference))
    assert m.status == status, m.message
    assert words in m.message.lower()
    assert "Traceback" not in m.message


def test_a_sample_that_does_not_exist_is_refused(small) -> None:
    session = cancellation(small)
    m = session.run(session.probe(EXACT, samples=("real:9",)))
    assert (m.status, "real:9" in m.message) == ("refused", True)


def test_captures_come_from_the_whole_model_not_from_the_part(opened) -> None:
    session = opened("shapes_cnn")
    model = load.load(session.store, session.model)
    last = session.index.outputs[0]
    value = captures.capture_values(
        session.store, model, [last], captures.Run("onnxruntime", session.inputs, "real:0")
    )[last]
    image = np.load(MODELS / "shapes_cnn_in.npz")["image"]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    run = ort.InferenceSession(MODELS / "shapes_cnn.onnx", options)
    np.testing.assert_allclose(value, run.run(None, {"image": image})[0], rtol=1e-5, atol=1e-6)


def signature(session) -> Signature:
    return Signature("accuracy", "real:0/0", ("logits",), {"logits": 1.0}, tolerance=1e-2)


# -- magika: one true culprit, harmless overflows, a cancellation


@pytest.fixture(scope="module")
def magika(tmp_path_factory, session_of):
    package = pytest.importorskip("magika")
    root = tmp_path_factory.mktemp("magika")
    np.savez(
        root / "in.npz",
        bytes=np.stack([magika_inputs.features(c) for c in magika_inputs.WRITTEN.values()]),
    )
    model = Path(package.__file__).parent / "models" / "standard_v3_3" / "model.onnx"
    return session_of(root / "session", model, root / "in.npz")


def named(session, ending: str) -> int:
    return next(n.id for n in session.index.nodes if n.name.endswith(ending))


def test_magikas_sum_of_squares_is_guilty_and_its_gelu_is_not(magika) -> None:
    rows = [r.outputs[0].rel_l2 for r in magika.measure(EMULATE).results]
    assert sum(e > 0.9 for e in rows) >= 6

    def alone(ending: str):
        return only(
            magika.measure(
                EMULATE, magika.nodes(named(magika, ending)), samples=("real:0/9",), effect=True
            )
        )

    guilty = alone("LayerNorm_1/Sum_1")
    assert guilty.outputs[0].new_nonfinite == 1
    assert guilty.effect[0].rel_l2 > 0.9
    for ending in ("ApplyActivation_1/Mul_2", "ApplyActivation_1/Mul_3"):
        harmless = alone(ending)
        assert harmless.outputs[0].new_nonfinite > 0
        assert harmless.effect[0].rel_l2 < 1e-5


def test_magikas_variance_needs_its_inputs_in_higher_precision(magika) -> None:
    node = magika.nodes(named(magika, "LayerNorm_0/Sub"))
    stored = only(magika.measure(EMULATE, node, samples=("real:0/9",)))
    exact = only(magika.measure(EMULATE, node, samples=("real:0/9",), feed="exact"))
    assert stored.outputs[0].rel_l2 > 50 * exact.outputs[0].rel_l2
    assert len(stored.rounded) == 2


def test_any_part_of_magika_run_on_the_reference_is_exact(magika) -> None:
    count = len(magika.index.nodes)
    for start in range(0, count, 9):
        inside = range(start, min(count, start + 14))
        result = only(
            magika.measure(EXACT, magika.nodes(*inside), samples=("real:0/4",), effect=True)
        )
        assert all(s.equal for s in (*result.outputs, *result.effect)), start


# -- what is done to outputs before they are scored


def two_outputs(small):
    """y = x * 1000 (rounded in FP16), z = -y."""
    nodes = [helper.make_node("Mul", ["x", "gain"], ["y"]), helper.make_node("Neg", ["y"], ["z"])]
    x = np.random.default_rng(0).uniform(0.1, 1.7, (3, 8)).astype(np.float32)
    return small(nodes, {"x": x}, {"y": [3, 8], "z": [3, 8]}, {"gain": np.float32([1000])})


def test_the_whole_model_is_scored_after_the_script(small, tmp_path) -> None:
    session = two_outputs(small)
    (tmp_path / "post.py").write_text(
        "def postprocess_outputs(r):\n    return {'sum': r['y'] + r['z'], 'y': r['y']}\n"
    )
    raw = session.ok(session.probe(EMULATE)).results[0]
    assert not any(s.equal for s in raw.outputs)
    probe = session.probe(EMULATE, postprocess=(str(tmp_path / "post.py"),))
    made = {s.name: s for s in session.ok(probe).results[0].outputs}
    assert made["sum"].equal
    assert made["y"] == next(s for s in raw.outputs if s.name == "y")


def test_of_a_part_only_the_effect_is_postprocessed(small, tmp_path) -> None:
    session = two_outputs(small)
    (tmp_path / "post.py").write_text(
        "def postprocess_outputs(r):\n    return {'sum': r['y'] + r['z']}\n"
    )
    post = (str(tmp_path / "post.py"),)
    mul = session.nodes(*session.by_op("Mul"))
    plain = session.ok(session.probe(EMULATE, mul, effect=True)).results[0]
    watched = ranges.encode([session.index.by_name["y"]])
    made = session.ok(
        session.probe(EMULATE, mul, effect=True, effect_on=watched, postprocess=post)
    ).results[0]
    assert made.outputs == plain.outputs
    assert [s.name for s in plain.effect] == ["y", "z"]
    assert [(s.name, s.equal) for s in made.effect] == [("sum", True)], (
        "the script is given all outputs"
    )


def test_rows_are_told_apart_by_what_is_compared(small) -> None:
    session = two_outputs(small)
    m = session.run(session.probe(EMULATE, postprocess=("top-1",)))
    assert [r.sample for r in m.results] == [
        r.sample for r in session.run(session.probe(EMULATE)).results
    ]
    flat = session.run(session.probe(EMULATE, postprocess=("top-1,axis=0",)))
    assert [r.sample for r in flat.results] == ["real:0"]
    assert flat.results[0].outputs[0].shape == (1, 8)


def test_outputs_for_one_side_only_are_refused(small, tmp_path) -> None:
    session = two_outputs(small)
    (tmp_path / "post.py").write_text(
        "def postprocess_outputs(r):\n    return {r.runner_name.partition(':')[0]: r['y']}\n"
    )
    m = session.run(session.probe(EMULATE, postprocess=(str(tmp_path / "post.py"),)))
    assert (m.status, m.facts) == ("refused", {"script": True})
    assert m.message.startswith(
        "The postprocess script gave the output 'emulate' for emulate:precision=fp16 and not for"
    )


@pytest.mark.parametrize(
    ("values", "distance", "overflows", "vanishes"),
    [
        ([0.0, 1.0], 0.0, False, False),
        ([0.0, 1e-9, 1.0], 1e-9, False, True),
        ([1.0, 1e5], 0.0, True, False),
        ([1.0 + 2**-12], 2**-12, False, False),
    ],
)
def test_what_storing_does_to_values(
    values: list[float], distance: float, overflows: bool, vanishes: bool
) -> None:
    """An exact zero is none that vanished, and lies in another chunk than what did."""
    array = np.array(values, np.float32)
    stored, *said = measure._round(array, np.dtype(np.float16))
    assert said == [pytest.approx(distance, rel=1e-3), overflows, vanishes]
    with np.errstate(over="ignore"):
        assert np.array_equal(stored, array.astype(np.float16).astype(np.float32))
