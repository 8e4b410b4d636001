"""Failures that hide when they are watched, that no single node makes, and that only a hint for the
whole model cures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import helper

from narrowdown.engines.asking import Answer, Described, Note, Question, Sub
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.compare.judge import Signature
from narrowdown.engines.findings import Case, Culprit
from narrowdown.engines.graph import GraphIndex, Node, Tensor, ranges
from narrowdown.engines.probe import (
    BARRIER,
    HUGE,
    Candidate,
    Describe,
    LoadInputs,
    Measure,
    Measurement,
    SampleResult,
    Score,
)
from narrowdown.engines.search.accuse import PARTS, is_spread, measure_shares
from narrowdown.engines.search.cured import Cut, measure_without
from narrowdown.engines.search.unseen import WANTED

from .simulated import graph

Open = Callable[..., Any]
LOCKED = Signature(
    kind="accuracy", sample="real:0", outputs=("y",), errors={"y": 0.5}, tolerance=0.01
)


# -- marking cures it


@pytest.mark.parametrize("marks", ["cure", "keep"])
def test_what_watching_cures_is_reduced_and_called_a_fusion(
    open_model: Open, tiny: Any, tmp_path: Path, marks: str
) -> None:
    """The fault needs two neighbours; with ``cure`` it is gone as soon as any tensor is
    observed."""
    model, inputs = tiny.parts(tmp_path, 3)
    engine = f"fake:fault=wrong,size=0.5,nodes=/scaled1+/gate1,marks={marks}"
    s = open_model(model, engine, (inputs,))
    watched = s.step("layerwise").finish.outcome
    assert watched.observer == ("improves" if marks == "cure" else "reproduces")
    reduced = s.step("reduce").finish.outcome
    assert (reduced.verdict, reduced.names) == ("reduced", "/scaled1, /gate1")
    confirmed = s.step("confirm").finish.outcome
    assert (confirmed.confirmed, confirmed.patched_fails) == (True, False)
    assert (confirmed.cause == "fusion") == (marks == "cure")
    if marks == "cure":
        assert (
            "With its inner tensors watched the case is wrong by 0 % instead of 50 %"
            in confirmed.evidence
        )


def joined(open_model: Open, tiny: Any, folder: Path, more: str = "") -> Any:
    """A session whose engine joins two neighbours wrongly, unless what is between them is an output
    of the model."""
    model, inputs = tiny.parts(folder, 3)
    return open_model(
        model, f"fake:fault=wrong,size=0.5,nodes=/scaled1+/gate1,marks=split{more}", (inputs,)
    )


def test_what_watching_cures_is_cured_by_the_one_output_between(
    open_model: Open, tiny: Any, tmp_path: Path
) -> None:
    s = joined(open_model, tiny, tmp_path)
    for step in ("layerwise", "reduce", "confirm"):
        s.step(step)
    done = s.step("workaround").finish
    told, cure = done.outcome, done.findings.workaround
    assert (told.holds, told.kind, told.what, told.minimal) == (True, "barrier", "scaled1", True)
    assert (told.samples_ok, told.unseen_ok, told.unseen_failing) == (told.samples, WANTED, WANTED)
    assert cure.switched_off == ("scaled1",)
    assert "scaled1 is an output, too" in told.message
    assert "before" in told.cost
    (probe,) = done.decisive["workaround"]
    assert (probe.rewrite, probe.keep) == (BARRIER, "")
    (row,) = done.tables["bundle"]
    written = onnx.load_model_from_string(s.store.get(row["files"]["engine.onnx"]))
    assert [o.name for o in written.graph.output] == ["y", "scaled1"]


def test_where_an_output_does_not_part_them_nodes_that_change_nothing_do(
    open_model: Open, tiny: Any, tmp_path: Path
) -> None:
    """An engine that joins across an output and not across another node: the model's outputs stay
    as they are."""
    model, inputs = tiny.parts(tmp_path, 3)
    s = open_model(model, "fake:fault=wrong,size=0.5,nodes=/scaled1+/gate1,marks=parted", (inputs,))
    s.step("layerwise")
    s.findings = msgspec.structs.replace(s.findings, hidden=True)
    done = s.step("workaround").finish
    told, cure = done.outcome, done.findings.workaround
    assert (told.holds, told.kind, told.what, told.minimal) == (
        True,
        "wrap-reshape",
        "scaled1",
        True,
    )
    assert (told.samples_ok, told.unseen_ok, told.unseen_failing) == (told.samples, WANTED, WANTED)
    assert (cure.switched_off, cure.in_file) == (("scaled1",), True)
    assert "laid flat and brought back to shape" in told.message
    assert "before" in told.cost
    (probe,) = done.decisive["workaround"]
    assert (probe.rewrite, probe.keep) == ("wrap-reshape", "")
    (row,) = done.tables["bundle"]
    written = onnx.load_model_from_string(s.store.get(row["files"]["engine.onnx"]))
    assert [o.name for o in written.graph.output] == ["y"]
    assert [n.op_type for n in written.graph.node].count("Reshape") == 2


def test_without_a_case_the_output_that_cures_is_found_among_all(
    open_model: Open, tiny: Any, tmp_path: Path
) -> None:
    """Nothing smaller fails, as a part that is cut out is not joined: what watching has shown is
    enough."""
    s = joined(open_model, tiny, tmp_path)
    assert s.step("layerwise").finish.outcome.observer == "improves"
    stop = s.step("double-check").finish.outcome
    assert (stop.hidden, stop.culprits) == (True, 0)
    told = s.step("workaround").finish.outcome
    assert (told.holds, told.kind, told.what, told.known) == (True, "barrier", "scaled1", False)


@pytest.mark.parametrize("seed", range(3))
def test_what_comes_and_goes_and_hides_is_looked_at_again(
    open_model: Open, tiny: Any, tmp_path: Path, seed: int
) -> None:
    s = joined(open_model, tiny, tmp_path, f",rate=0.5,per=run,seed={seed}")
    s.findings = msgspec.structs.replace(s.findings, looks=12)
    for step in ("repeat", "layerwise", "workaround"):
        told = s.step(step).finish.outcome
    assert (told.holds, told.kind, told.what) == (True, "barrier", "scaled1")


def test_a_listener_that_cures_is_no_barrier(open_model: Open, tiny: Any, tmp_path: Path) -> None:
    """Where watching cures and outputs do not, nothing is claimed."""
    model, inputs = tiny.parts(tmp_path, 3)
    s = open_model(model, "fake:fault=wrong,size=0.5,nodes=/scaled1+/gate1,marks=cure", (inputs,))
    s.step("layerwise")
    told = s.step("workaround").finish.outcome
    assert (told.holds, told.kind) == (False, "none")


# -- nobody makes it alone


def test_an_error_that_many_layers_share_is_called_spread(
    open_model: Open, tiny: Any, tmp_path: Path
) -> None:
    model, inputs = tiny.drift(tmp_path)
    s = open_model(model, "emulate:precision=bf16", (inputs,))
    done = s.step("layerwise")
    outcome, found = done.finish.outcome, done.finish.findings
    assert (outcome.observer, outcome.spread, outcome.culprit) == ("reproduces", True, "")
    assert found.spread
    assert found.suspects == ()
    assert outcome.message.startswith("The error is spread over many layers")
    errors = [row["error"] for row in done.finish.tables["tensors"] if row["error"] is not None]
    assert errors[-1] > 0.05 > errors[0]
    assert len(outcome.profile.split(",")) == 60

    # Beside a culprit that was named before it is what is left.
    s.findings = msgspec.structs.replace(
        found, culprits=(Culprit(Case(Candidate("0"), "real:0"), "overflow"),)
    )
    assert s.step("layerwise").finish.outcome.message.startswith(
        "What is left of the error is spread over many layers"
    )


def test_one_real_culprit_among_many_small_errors_is_named(
    open_model: Open, tiny: Any, tmp_path: Path
) -> None:
    model, inputs = tiny.drift(tmp_path, culprit=30)
    s = open_model(model, "emulate:precision=bf16", (inputs,))
    watched = s.step("layerwise").finish
    outcome = watched.outcome
    assert (outcome.spread, outcome.culprit) == (False, "/norm/Unshift")
    rows = {row["node"]: row for row in watched.tables["tensors"]}
    assert all(
        row["inherited"] is not None and row["added"] is not None for row in rows.values()
    ), "of every tensor"
    difference = rows["/norm/Unshift"]
    assert difference["added"] > 100 * difference["added_exact"], (
        "right fed exactly, wrong fed as stored: it amplifies rounding"
    )
    plain = rows["/block5/Residual"]
    assert plain["added"] < 0.01
    assert plain["inherited"] > plain["added"], "what arrives is told from what is added"
    assert outcome.bad > 50, "what follows the culprit is wrong too"
    assert s.step("extract").finish.outcome.names == "/norm/Shift, /norm/Unshift"


@pytest.mark.parametrize(
    ("shares", "spread"),
    [
        ([1 / 8] * 8, True),
        ([0.35] * 8, True),  # independent errors add up as squares
        ([0.05, 0.1, 0.15, 0.2, 0.2, 0.15, 0.1, 0.05], True),
        ([0, 0, 0, 1.0, 0, 0, 0, 0], False),  # one culprit
        ([0.1] * 7 + [0.9], False),  # one culprit among noise
        ([0.5, 0, 0, 0, 0, 0, 0, 0.5], False),  # two culprits
        ([0.01] * 8, False),  # two neighbours that were cut apart
        ([], False),
    ],
)
def test_when_shares_of_a_failure_mean_that_itis_spread(shares: list[float], spread: bool) -> None:
    assert is_spread(shares) == spread


@pytest.mark.parametrize(("error", "effect", "share"), [(0.5, 0.2, 0.4), (1000.0, 4.0, 0.4)])
def test_a_part_has_its_share_of_a_failure_and_of_ten_times_the_reference_at_most(
    error: float, effect: float, share: float
) -> None:
    """How far beyond that an error is depends on the values: it is shared by parts that bring four
    times the reference each."""

    def put(_question: Question) -> Sub[Answer]:
        return Answer("fails", effect=effect)
        yield

    failure = Signature(kind="accuracy", sample="real:0", errors={"y": error})
    oracle = Oracle(graph([()]), put, tuple(range(2 * PARTS)), failure)
    assert _finish(measure_shares(oracle, ())) == (share,) * PARTS


def _finish(sub: Any) -> Any:
    reply = None
    while True:
        try:
            sub.send(reply)
        except StopIteration as ended:
            return ended.value
        reply = Measurement()  # to notes, too, which do not read it


# -- only a hint for the whole model cures it


INDEX = GraphIndex(
    "m",
    tuple(Node(i, f"n{i}", "Mul", "", (i,), (i + 1,)) for i in range(3)),
    tuple(
        Tensor(i, "xaby"[i], "float32", "node" if i else "input", i - 1, (3, 2), 24)
        for i in range(4)
    ),
    (0,),
    (3,),
)


def hinted(answers: Any, hint: float) -> Any:
    """The engine is off by ``hint`` with its precision hint at f32; by 0.1 % more on samples that
    are made near the given one."""

    def answer(probe: Any) -> Any:
        if isinstance(probe, Describe):
            return Described(INDEX, Measurement())
        if isinstance(probe, LoadInputs):
            made = [{"id": f"near:{i}", "source": "near"} for i in range(probe.near)]
            return Measurement(facts={"inputs": "near", "samples": made})
        assert isinstance(probe, Measure)
        error = hint if "precision=f32" in probe.engine else 0.5
        return answers.measured(
            *((sample, error + (probe.inputs == "near") / 1000) for sample in probe.samples)
        )

    return answer


@pytest.mark.parametrize(("hint", "holds"), [(0.0, True), (0.3, False)])
def test_a_precision_hint_is_tried(answers: Any, walk: Any, hint: float, holds: bool) -> None:
    part = Candidate(nodes="0-1")
    case = Case(part, "real:0", nodes=("n0", "n1"), node_ids="0-1", ops=("Mul", "Mul"))
    findings = msgspec.structs.replace(
        answers.READY,
        signature=LOCKED,
        sample="real:0",
        culprits=(Culprit(case=case, cause="overflow", keep="0-1"),),
    )
    capabilities = {"precision-hint": answers.PRESENT, "keep": answers.ABSENT}
    context = answers.context(findings, engine="openvino:precision=bf16", capabilities=capabilities)
    done = walk("workaround", context, hinted(answers, hint))
    outcome = done.finish.outcome
    assert (outcome.holds, outcome.kind, outcome.what) == (
        (True, "option", "precision=f32") if holds else (False, "none", "")
    )
    assert (outcome.unseen_ok, outcome.unseen) == ((WANTED, WANTED) if holds else (0, 0))
    assert not holds or outcome.error == pytest.approx(hint + 0.001), (
        "the worst of all that was tried"
    )


# -- the next round


def test_the_next_round_searches_on_the_batch_that_was_seen_to_fail(answers: Any) -> None:
    """A row may fail in its batch only."""
    findings = msgspec.structs.replace(
        answers.READY,
        signature=LOCKED,
        sample="real:0/1",
    )
    ask = Inquiry(answers.context(findings), findings, INDEX, LOCKED, answers.RULE, (3,))
    generator = measure_without(ask, Cut((0,), patches=(1,)))
    assert isinstance(next(generator), Note)
    asked = next(generator)
    assert asked.candidate.severed == ranges.encode((1,))
    with pytest.raises(StopIteration) as end:
        generator.send(answers.measured(("real:0/0", 0.0), ("real:0/1", 0.001), ("real:0/2", 0.2)))
    left = end.value.value
    assert (left.still, left.error) == (True, 0.2)
    assert (left.findings.sample, left.findings.round_signature.sample) == ("real:0", "real:0/2")


@pytest.mark.parametrize("off", [0.001, 0.05])
def test_no_further_culprit_is_accused_of_what_is_wrong_on_nearly_nothing(
    answers: Any, off: float
) -> None:
    """1.55 % of 1.3, where others are 589: half of the nodes were accused of that once the first
    culprit was cured."""
    findings = msgspec.structs.replace(answers.READY, signature=LOCKED, sample="real:0")
    ask = Inquiry(answers.context(findings), findings, INDEX, LOCKED, answers.RULE, (3,))
    slight = Score("y", rel_l2=0.0155, max_abs=0.02, absmax=1.3)
    others = Score("y", rel_l2=off, max_abs=589 * off, absmax=589.0)
    generator = measure_without(ask, Cut((0,), patches=(1,)))
    assert isinstance(next(generator), Note)
    next(generator)
    with pytest.raises(StopIteration) as end:
        generator.send(
            Measurement(
                results=(SampleResult("real:0", (slight,)), SampleResult("real:1", (others,)))
            )
        )
    left = end.value.value
    assert (left.error, left.still) == (off, off > answers.RULE.tolerance)
    assert (left.findings.sample == "real:1") == left.still, (
        "the next round searches on what counts"
    )


@pytest.mark.parametrize(
    ("first", "moved", "still"), [(HUGE, 0.2, False), (HUGE, 0.001, True), (0.5, 0.2, True)]
)
def test_what_rounding_moves_as_far_is_no_further_culprit(
    answers: Any, first: float, moved: float, still: bool
) -> None:
    """Of what is infinite nobody asks whether rounding makes it: a detector's sorted boxes were
    left, and two TopK accused."""
    signature = msgspec.structs.replace(LOCKED, errors={"y": first})
    findings = msgspec.structs.replace(answers.READY, signature=signature, sample="real:0")
    ask = Inquiry(answers.context(findings), findings, INDEX, signature, answers.RULE, (3,))
    generator, answer, nudged = measure_without(ask, Cut((0,), patches=(1,))), None, False
    while True:
        try:
            asked = generator.send(answer)
        except StopIteration as end:
            found = end.value
            break
        nudge = isinstance(asked, Measure) and bool(asked.nudge)
        nudged = nudged or nudge
        answer = (
            None
            if isinstance(asked, Note)
            else answers.measured(("real:0", moved if nudge else 0.3))
        )
    assert (found.error, found.still) == (0.3, still)
    assert nudged == (first == HUGE), "what was asked about is not asked about again"


# -- a culprit that itself looks right


def channels(folder: Path, tiny: Any) -> tuple[Path, Path]:
    """Eight channels divided by their deviation; one of them hardly moves, and only there does the
    epsilon matter."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["mixed"], kernel_shape=[1]),
        node("ReduceMean", ["mixed"], ["mean"], axes=[-1], keepdims=1),
        node("Sub", ["mixed", "mean"], ["centred"]),
        node("Mul", ["centred", "centred"], ["squares"]),
        node("ReduceMean", ["squares"], ["variance"], axes=[-1], keepdims=1),
        node("Add", ["variance", "epsilon"], ["safe"]),
        node("Sqrt", ["safe"], ["deviation"]),
        node("Div", ["centred", "deviation"], ["normal"]),
        node("Mul", ["normal", "gain"], ["scaled"]),
        node("Sigmoid", ["scaled"], ["y"]),
    ]
    mixing = np.eye(8, dtype=np.float32)[:, :, None]
    mixing[3] *= 1e-4
    constants = {"w": mixing, "epsilon": np.float32(1e-12), "gain": np.float32(2)}
    shape = [1, 8, 64]
    model = tiny.save(folder / "channels.onnx", nodes, {"x": shape}, {"y": shape}, constants)
    return model, tiny.feeds(folder / "channels.npz", x=tiny.weights(*shape))


def test_an_epsilon_that_a_converter_changed_is_found_before_the_first_bad_tensor(
    open_model: Open, tiny: Any, tmp_path: Path
) -> None:
    """The sum with another epsilon is right to a millionth and passes alone; its root is the first
    tensor that is bad."""
    model, inputs = channels(tmp_path, tiny)
    s = open_model(model, "fake:fault=shifted,size=1e-6,nodes=/safe", (inputs,))
    assert s.step("compare").finish.outcome.verdict == "fails"
    watched = s.step("layerwise")
    rows = {row["node"]: row for row in watched.finish.tables["tensors"]}
    assert watched.finish.outcome.first_bad == "deviation"
    assert rows["/safe"]["added"] < 1e-5, "a tenth of what is allowed"
    assert watched.finish.outcome.culprit == "/safe"
    assert (
        "adds a small error, which grows on its way to the outputs"
        in watched.finish.outcome.message
    )
    extracted = s.step("extract").finish.outcome
    assert (extracted.reproduced, extracted.names) == (True, "/safe, /deviation")
    assert extracted.grown > 0
    reduced = s.step("reduce").finish.outcome
    assert (reduced.names, reduced.minimal, reduced.verified) == ("/safe, /deviation", True, "3/3")
    confirmed = s.step("confirm").finish.outcome
    assert (confirmed.failures, confirmed.cause, confirmed.patched_fails) == (5, "kernel", False)
    assert " alone explains an error of" in confirmed.evidence
    assert (
        "It begins at /safe (Add): from equal inputs it is wrong by up to 1e-06"
        in confirmed.evidence
    )


@pytest.mark.parametrize("root", [True, False])
def test_one_value_that_vanishes_among_others_is_one_fault(
    open_model: Open, tiny: Any, tmp_path: Path, root: bool
) -> None:
    """One silent row in a batch: its epsilon cannot be fed to who reads it either, so that is no
    second culprit."""
    node = helper.make_node
    behind = (
        [node("Sqrt", ["v"], ["s"]), node("Div", ["x", "s"], ["y"])]
        if root
        else [node("Div", ["x", "v"], ["y"])]
    )
    nodes = [
        node("Mul", ["x", "x"], ["sq"]),
        node("ReduceSum", ["sq", "axes"], ["sum"]),
        node("Add", ["sum", "e"], ["v"]),
    ]
    constants = {"axes": np.int64([1]), "e": np.float32(1e-8)}
    model = tiny.save(
        tmp_path / "m.onnx", [*nodes, *behind], {"x": [4, 8]}, {"y": [4, 8]}, constants
    )
    x = tiny.weights(4, 8)
    x[2] = 0
    s = open_model(
        model,
        "emulate:precision=fp16",
        (tiny.feeds(tmp_path / "in.npz", x=x),),
        tolerance={"": 0.01},
    )
    assert s.step("compare").finish.outcome.verdict == "fails"
    s.step("layerwise")
    assert s.step("extract").finish.outcome.names == "/v"
    confirmed = s.step("confirm").finish.outcome
    assert (confirmed.cause, confirmed.patched_fails) == ("epsilon-underflow", False)
    assert ranges.decode(s.findings.culprits[0].keep) == (2, 3)


def test_a_culprit_that_makes_the_outputs_is_cured_by_patching_them(
    open_model: Open, tiny: Any, tmp_path: Path
) -> None:
    """Nothing reads what it gives; fed with reference values its outputs are right, and there is no
    other culprit."""
    model, inputs = tiny.parts(tmp_path, 3)
    s = open_model(model, "fake:fault=wrong,size=0.5,nodes=/y", (inputs,))
    assert s.step("extract").finish.outcome.names == "/y"
    confirmed = s.step("confirm").finish.outcome
    assert (confirmed.confirmed, confirmed.patched_fails, confirmed.patched_error) == (
        True,
        False,
        0.0,
    )


def test_another_culprit_beside_patched_outputs_is_found(
    open_model: Open, tiny: Any, tmp_path: Path
) -> None:
    """Each of two outputs is a difference that BF16 does not survive."""
    node = helper.make_node
    nodes = [
        node("Add", ["x", "large"], ["up"]), node("Sub", ["up", "large"], ["a"]),
        node("Add", ["z", "larger"], ["higher"]), node("Sub", ["higher", "larger"], ["b"]),
    ]  # fmt: skip
    constants = {"large": np.float32(320), "larger": np.float32(3072)}
    shape = [2, 8]
    model = tiny.save(
        tmp_path / "m.onnx", nodes, {"x": shape, "z": shape}, {"a": shape, "b": shape}, constants
    )
    inputs = tiny.feeds(tmp_path / "in.npz", x=tiny.weights(2, 8), z=tiny.weights(2, 8, seed=1))
    s = open_model(model, "emulate:precision=bf16", (inputs,))
    found = []
    for _ in range(2):
        s.step("layerwise")
        s.step("extract")
        found.append(s.step("confirm").finish.outcome)
    assert [f.names for f in found] == ["/up, /a", "/higher, /b"]
    assert [f.cause for f in found] == ["cancellation", "cancellation"]
    assert [f.patched_fails for f in found] == [True, False]


# -- builds that differ


@pytest.mark.parametrize("seed", [1, 2])
def test_a_fault_that_some_builds_have_is_reduced_to_its_nodes(
    open_model: Open, tiny: Any, tmp_path: Path, seed: int
) -> None:
    """Half of the builds are right: each verdict takes as many as show the fault with 95 %
    confidence."""
    model, inputs = tiny.parts(tmp_path, 3)
    s = open_model(
        model,
        f"fake:fault=wrong,size=0.5,nodes=/scaled1+/gate1,rate=0.6,per=build,seed={seed}",
        (inputs,),
    )
    assert s.step("compare").finish.outcome.verdict == "fails"
    repeated = s.step("repeat", builds=10).finish
    assert repeated.outcome.behaviour == "rebuilds-differ"
    assert repeated.findings.builds > 1
    reduced = s.step("reduce").finish.outcome
    assert (reduced.names, reduced.minimal) == ("/scaled1, /gate1", True)
    failed, looks = map(int, reduced.verified.split("/"))
    assert 0 < failed < looks


def test_an_output_that_no_node_makes_accuses_no_node() -> None:
    """A constant that the precision cannot hold, or an input handed on: the last node of the model
    has nothing to do with it."""
    assert not graph([(), (0,)]).first_of([0])
    assert tuple(graph([(), (0,)]).first_of([1, 2])) == (1,)
