"""score, with a fake oracle: every workaround is weighed once, nothing is better than what was
measured, a budget ends it."""

from typing import Any

import pytest
from onnx import TensorProto, helper

from narrowdown.engines.asking import Described, Note, StepContext
from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.findings import Findings, Workaround
from narrowdown.engines.graph.load import build_index
from narrowdown.engines.probe import Describe, Measure, Measurement, SampleInfo, SampleResult, Score
from narrowdown.engines.problem import Problem
from narrowdown.engines.steps.base import Finish
from narrowdown.engines.steps.score import SPEC, ScoreOutcome, ScoreRow
from narrowdown.engines.views import Capability, EngineInfo

VALUE = helper.make_tensor_value_info
NODES = [
    helper.make_node(op, [a], [b])
    for op, a, b in (("Identity", "x", "a"), ("Neg", "a", "b"), ("Abs", "b", "y"))
]
INNER = helper.make_graph(
    NODES, "g", [VALUE("x", TensorProto.FLOAT, [1])], [VALUE("y", TensorProto.FLOAT, [1])]
)
GRAPH = build_index(helper.make_model(INNER, opset_imports=[helper.make_opsetid("", 17)]), "m")
CURE = Workaround("precision", "engine", keep="0-1", samples_ok=1, samples_n=1)
# What is measured by how the model runs: (error, score).
WORLD = {
    "": (0.5, 0.4),
    "0-1": (0.001, 0.9),
    "drop-identity": (0.002, 0.9),
    "barrier": (0.5, 0.4),
}


World = dict[str, tuple[float, float | None]]


def walk(
    score: str = "/s.py",
    budget: int = 0,
    world: World | None = None,
    cure: Workaround | None = CURE,
) -> tuple[Finish[ScoreOutcome], list[Measure]]:
    findings = Findings(
        model="m", inputs="i", sample="real:0", opened=True, workaround=cure, criterion=Criterion(tolerance=0.01),
        samples=(SampleInfo("real:0", "real", rows=3), SampleInfo("real:1", "real", rows=1)),
        signature=Signature("accuracy", "real:0", ("y",), {"y": 0.5}),
    )  # fmt: skip
    ctx = StepContext(
        "engine", "judge", findings, {"budget": budget}, EngineInfo(capabilities={"latency": Capability(True)}),
        problem=Problem(score=score, digests={"/s.py": "d"}),
    )  # fmt: skip
    step, asked = SPEC.run(ctx), []
    answer: Any = None
    while True:
        try:
            probe = step.send(answer)
        except StopIteration as end:
            return end.value, asked
        match probe:
            case Note():
                answer = None
            case Describe():
                answer = Described(GRAPH, Measurement())
            case Measure():
                asked.append(probe)
                answer = measure(probe, world or dict(WORLD))
            case _:
                raise AssertionError(probe)


def measure(probe: Measure, world: World) -> Measurement:
    error, score = world.get(
        probe.rewrite or probe.keep, world[""]
    )  # a rewrite that finds nothing to do leaves it as it is
    if probe.engine == "judge":
        error = 0.0
    told = {"rewritten": ["a"]} if probe.rewrite in ("drop-identity", "barrier") else {}
    if probe.score:
        assert probe.score_digest == "d"
        # The second sample is of one row, the first of three; of the reference 0.9 and 1.
        told["scores"] = {"real:0": [score, 0.9], "real:1": [score, 1.0]}
    results = tuple(SampleResult(s, (Score("y", rel_l2=error),)) for s in probe.samples)
    return Measurement(results=results, facts=told, median_seconds=0.004 if probe.keep else 0.002)


def test_each_is_weighed_and_the_best_that_passes_is_named() -> None:
    finish, asked = walk()
    rows = {row.what: row for row in finish.tables["scores"] if isinstance(row, ScoreRow)}
    assert list(rows) == [
        "the reference",
        "as it is",
        "2 nodes in FP32",
        "rewrite drop-identity",
        "rewrite barrier",
    ]
    assert rows["the reference"].score == pytest.approx((3 * 0.9 + 1.0) / 4), (
        "each sample counts by its rows"
    )
    assert {name for name, row in rows.items() if row.passes} == {
        "the reference",
        "2 nodes in FP32",
        "rewrite drop-identity",
    }
    assert rows["2 nodes in FP32"].chosen
    assert (rows["2 nodes in FP32"].seconds, rows["as it is"].seconds) == (
        pytest.approx(0.004),
        pytest.approx(0.002),
    )
    told = finish.outcome
    assert (told.verdict, told.best, told.best_score, told.passing, told.cured) == (
        "lower",
        "rewrite drop-identity",
        0.9,
        2,
        True,
    )
    assert "0.925 on the reference and 0.4 with the fault" in told.message
    assert all(not p.score for p in asked if p.runs > 1), "a run that is timed is not scored"


def test_a_better_score_goes_before_a_faster_run() -> None:
    assert walk(world={**WORLD, "0-1": (0.001, 0.95)})[0].outcome.best == "2 nodes in FP32", (
        "slower, and better"
    )


def test_without_a_score_costs_alone_are_told() -> None:
    finish, asked = walk(score="")
    assert finish.outcome.verdict == "unscored"
    assert "--score" in finish.outcome.message
    assert not any(p.score or p.score_digest for p in asked)


def test_a_score_that_is_no_number_is_the_worst_and_of_the_reference_says_nothing() -> None:
    finish, _ = walk(world={**WORLD, "": (0.5, None)})
    assert (finish.outcome.verdict, finish.outcome.engine) == ("lower", None)
    assert "no finite number with the fault" in finish.outcome.message
    assert walk(world=dict.fromkeys(WORLD, (0.5, 0.925)))[0].outcome.verdict == "same"
    assert (
        "None of 3 workarounds" in walk(world=dict.fromkeys(WORLD, (0.5, 0.925)))[0].outcome.message
    )


def test_outputs_that_cure_are_weighed_once_as_the_rewrite_that_they_are() -> None:
    cure = Workaround("barrier", "engine", switched_off=("a",), samples_ok=1, samples_n=1)
    rows = [row for row in walk(cure=cure)[0].tables["scores"] if isinstance(row, ScoreRow)]
    assert [(row.what, row.kind) for row in rows if row.chosen] == [("rewrite barrier", "rewrite")]
    assert not [row.what for row in rows if row.kind == "switch"]


@pytest.mark.parametrize("budget", [1, 2])
def test_it_ends_where_its_budget_does(budget: int) -> None:
    finish, _ = walk(budget=budget)
    assert len(finish.tables["scores"]) == 2 + budget
    assert finish.outcome.left == 3 - budget


def test_a_switch_is_weighed_as_what_it_is() -> None:
    cure = Workaround(
        "optimizer",
        "engine:disabled_optimizers=Fuse",
        switched_off=("Fuse",),
        samples_ok=1,
        samples_n=1,
    )
    rows = [row for row in walk(cure=cure)[0].tables["scores"] if isinstance(row, ScoreRow)]
    assert [(r.what, r.kind, r.chosen) for r in rows[2:3]] == [("Fuse (optimizer)", "switch", True)]
