"""The workaround step: the fewest switches that cure, as many runs as the rate asks for, and what
stood before is not lost."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from narrowdown.engines.asking.failure_rate import RUNS, count_runs_needed
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.findings import Workaround
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Measure, Measurement
from narrowdown.engines.spec import parse
from narrowdown.engines.views import view_engine

from .answers import PRESENT, context, measured, opening
from .conftest import walk
from .simulated import Simulated, graph

CHAIN = [() if i == 0 else (i - 1,) for i in range(6)]
INFO = {
    "capabilities": {"optimizers": PRESENT},
    "optimizers": ["Breaks", "Other", "Prepares"],
    "experimental": "No release has to keep them.",
}


def fused(probe: Any) -> Any:
    """Wrong where both of two optimizers are on: microsoft/onnxruntime#32228, where one prepares
    what the other breaks."""
    if (m := opening(probe)) is not None:
        return m
    if not isinstance(probe, Measure):
        return Measurement(status="error", message="not asked here")
    off = set(parse(probe.engine).get("disabled_optimizers").split("+"))
    bad = probe.engine.startswith("ort") and not off & {"Breaks", "Prepares"}
    return measured(*((s, 0.5 if bad else 0.0) for s in probe.samples))


def switched(**rest: Any) -> Any:
    from narrowdown.engines.asking import Described
    from narrowdown.engines.probe import Describe

    from .answers import READY
    from .simulated import RULE

    index = graph(CHAIN)
    signed = Simulated.single(index, {2: 0.5}).findings().signature
    found = msgspec.structs.replace(
        READY,
        signature=signed,
        sample="real:0",
        criterion=RULE,
        optimizers=("Breaks", "Prepares"),
        **rest,
    )
    ctx = msgspec.structs.replace(context(found, engine="ort"), engine_info=view_engine(INFO))

    def answer(probe: Any) -> Any:
        return Described(index, Measurement()) if isinstance(probe, Describe) else fused(probe)

    return walk("workaround", ctx, answer)


def test_of_two_switches_that_break_it_together_one_is_switched_off() -> None:
    done = switched()
    cure = done.finish.findings.workaround
    assert cure.holds
    assert len(cure.switched_off) == 1
    assert set(cure.switched_off) < {"Breaks", "Prepares"}
    assert done.finish.findings.optimizers == ("Breaks", "Prepares"), (
        "those that cause it are still named"
    )
    assert parse(cure.engine).get("disabled_optimizers") == cure.switched_off[0]
    assert INFO["experimental"] in done.finish.outcome.message


@pytest.mark.parametrize("runs", [1, 5, 200])
def test_a_switch_is_tried_in_as_many_runs_as_the_rate_of_failure_asks_for(
    runs: int,
) -> None:
    """In each build with the switch off, alone: what a verdict looks at misses a failure once in
    400, two builds once in 160,000."""
    done = switched(looks=runs)
    cure = done.finish.findings.workaround
    tried = [
        p for p in done.probes if isinstance(p, Measure) and p.engine == cure.engine and p.attempt
    ]
    assert tried
    assert {p.runs for p in tried} == {runs}
    assert {p.exclusive for p in tried} == {runs > 1}


def test_what_was_verified_before_is_not_overwritten_by_nothing() -> None:
    """Everything kept does not cure it here, and what repeat has verified stands."""
    engine = Simulated.single(graph(CHAIN), {2: 0.5}, stubborn=frozenset({2}))
    known = Workaround(
        kind="precision", engine="e", keep="2", keep_names=("n2",), samples_ok=1, samples_n=1
    )
    findings = msgspec.structs.replace(engine.findings(), workaround=known)
    done = walk("workaround", engine.context(findings=findings), engine).finish
    assert done.findings.workaround == known
    assert "What was verified before stays: n2" in done.outcome.message
    assert done.outcome.keep == 1


def test_a_smaller_set_takes_the_place_of_what_was_foretold() -> None:
    engine = Simulated.single(graph(CHAIN), {2: 0.5})
    known = Workaround(
        kind="precision", engine="e", keep="1-4", keep_names=("n1", "n2"), samples_ok=1, samples_n=1
    )
    findings = msgspec.structs.replace(engine.findings(), workaround=known)
    done = walk("workaround", engine.context(findings=findings), engine).finish
    assert done.findings.workaround.keep == "2"


def test_threads_are_looked_at_as_often_as_the_rate_of_failure_asks_for() -> None:
    """A race that one run in three shows: alone, the step counts first, and each verdict then takes
    many runs."""
    engine = Simulated.single(graph(CHAIN), {2: 0.5}, rate=0.3, seed=3)
    locked = msgspec.structs.replace(engine.findings(), looks=1)
    for name, varies in (("e:threads=4", True), ("e:threads=1", False)):
        ctx = msgspec.structs.replace(engine.context(findings=locked), engine=name)
        found, asked = drive(count_runs_needed(WholeModel(ctx, locked), 300), engine)
        assert (found.looks > 5) == varies
        assert [p.runs for p in asked] == ([RUNS] if varies else [])


def drive(sub: Any, oracle: Any) -> tuple[Any, list[Measure]]:
    asked, answer = [], None
    while True:
        try:
            probe = sub.send(answer)
        except StopIteration as end:
            return end.value, asked
        answer = None
        if isinstance(probe, Measure):
            asked.append(probe)
            answer = oracle(probe)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from((0.15, 0.3, 0.6)))
def test_a_set_that_races_are_merely_hidden_by_is_not_kept(seed: int, rate: float) -> None:
    """Alone and with four threads: what is kept cures the node that fails in a part of the runs,
    however lucky the first were."""
    engine = Simulated.single(graph(CHAIN), {2: 0.5}, rate=rate, seed=seed)
    locked = msgspec.structs.replace(engine.findings(), looks=1)
    ctx = msgspec.structs.replace(engine.context(findings=locked), engine="e:threads=4")
    done = walk("precision", ctx, engine)
    assert max(p.runs for p in done.probes if isinstance(p, Measure)) >= RUNS
    if done.finish.outcome.outcome == "found":
        assert 2 in ranges.decode(done.finish.findings.workaround.keep)


def test_a_set_that_fails_when_it_is_run_more_often_does_not_hold() -> None:
    """The first twenty runs all failed, so a verdict was one run: one of another node that fails
    once in four was missed."""
    engine = Simulated.single(graph(CHAIN), {2: 0.5})

    def raced(probe: Any) -> Any:
        m = engine(probe)
        if not isinstance(probe, Measure) or probe.engine == "r" or 4 in ranges.decode(probe.keep):
            return m
        bad = engine(msgspec.structs.replace(probe, keep="", runs=1)).results
        return (
            m
            if probe.runs < 4
            else msgspec.structs.replace(m, runs=(bad,), varies=True, facts={"runs": probe.runs})
        )

    ctx = msgspec.structs.replace(engine.context(), engine="e:threads=4")
    done = walk("precision", ctx, raced)
    assert ranges.decode(done.finish.findings.workaround.keep) == (2,)
    assert not done.finish.outcome.holds
    assert "0 of 1 tuning samples" in done.finish.outcome.message


@pytest.mark.parametrize(
    ("reference", "low", "reason", "says"),
    [
        (
            "onnxruntime:model=made from.onnx",
            "fp16",
            "it keeps none.",
            "run 'made from.onnx' --eng",
        ),
        ("onnxruntime:model=made from.onnx", "fp32", "it keeps none.", "precision: it keeps none."),
        ("onnxruntime", "fp16", "it keeps none.", "precision: it keeps none."),
        ("onnxruntime", "fp16", "", "was found to help."),
    ],
)
def test_where_nothing_helps_it_is_said_what_would(
    reference: str, low: str, reason: str, says: str
) -> None:
    """Of a file that was converted to halves nodes are kept where it was made; else it is told why
    the engine keeps none."""
    engine = Simulated.single(graph(CHAIN), {2: 0.5})
    info = view_engine({"capabilities": {"keep": {"present": False, "reason": reason}}})
    findings = engine.findings()
    rule = msgspec.structs.replace(findings.rule, precision=low)
    ctx = engine.context(
        findings=msgspec.structs.replace(findings, criterion=rule), engine_info=info
    )
    done = walk("workaround", msgspec.structs.replace(ctx, reference=reference), engine).finish
    assert (done.outcome.holds, done.findings.workaround) == (False, None)
    assert says in done.outcome.message
    assert ("Keeping nodes" in done.outcome.message) == says.startswith("precision")
