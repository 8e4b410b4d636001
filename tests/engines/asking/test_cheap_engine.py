"""Searches that ask a cheap twin of the engine: what they end with fails on the engine as given,
whatever the twin says."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings, strategies as st

from narrowdown.engines import discovery
from narrowdown.engines.asking import Note, StepContext
from narrowdown.engines.asking.engine_forms import (
    CHEAPER,
    EXPENSIVE,
    fails_alike,
    find_cheap_engine,
    list_cheap_engines,
    note_expensive,
)
from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Measure, Measurement, SampleResult, Score
from narrowdown.engines.views import view_engine

from ..steps.conftest import walk
from ..steps.simulated import Simulated, random_graph

GIVEN, TWIN = "e", "e:level=1"
OPTIONS = [{"name": "level", "twin": "1"}, {"name": "other", "twin": ""}]


class Two:
    """An engine and its twin, each with errors of its own; counts who was asked."""

    def __init__(self, engine: Simulated, twin: Simulated) -> None:
        self.engine, self.twin = engine, twin
        self.asked = {GIVEN: 0, TWIN: 0, "r": 0}

    def __call__(self, probe: Any) -> Any:
        name = getattr(probe, "engine", "r")
        self.asked[name] += 1
        return self.twin(probe) if name == TWIN else self.engine(probe)

    def context(self, twin: str = TWIN, **rest: Any) -> StepContext:
        findings = rest.pop("findings", self.engine.findings())
        return self.engine.context(findings=msgspec.structs.replace(findings, cheap=twin), **rest)


def planted(n: int, seed: int) -> tuple[Simulated, int]:
    rng = random.Random(seed)
    index, guilty = random_graph(n, rng), rng.randrange(n)
    return Simulated.single(index, {guilty: 0.5}, seed=seed), guilty


sizes, seeds = st.integers(4, 40), st.integers(0, 2**16)


@settings(max_examples=60, deadline=None)
@given(sizes, seeds, st.sampled_from(["reduce", "extract"]))
def test_a_twin_that_fails_alike_is_asked_in_place_of_the_engine(
    n: int, seed: int, step: str
) -> None:
    engine, guilty = planted(n, seed)
    assume(engine.findings().signature is not None)
    two, alone = Two(engine, engine), Two(engine, engine)
    ctx, plain = two.context(), alone.context(twin="")
    if step == "extract":
        ctx, plain = (
            msgspec.structs.replace(c, findings=walk("layerwise", c, o).finish.findings)
            for c, o in ((ctx, two), (plain, alone))
        )
        assert two.asked[GIVEN] == 0, "layerwise only looks for whom to accuse"
    found, there = walk(step, ctx, two).finish, walk(step, plain, alone).finish
    assert found.findings.case is not None
    assert found.findings.case.node_ids == there.findings.case.node_ids == ranges.encode((guilty,))
    assert two.asked[GIVEN] <= alone.asked[GIVEN]
    if step == "reduce" and n > 16:
        assert two.asked[TWIN] > 0
    case = found.findings.case
    assert case.verified.startswith("3/3")
    assert all(p.engine in (GIVEN, "r") for p in found.decisive["case"] if isinstance(p, Measure))


@settings(max_examples=60, deadline=None)
@given(sizes, seeds, seeds, st.sampled_from(["reduce", "extract"]))
def test_a_twin_with_another_fault_never_decides(n: int, seed: int, other: int, step: str) -> None:
    engine, guilty = planted(n, seed)
    rng = random.Random(other)
    twin = Simulated.single(engine.index, {rng.randrange(n): 0.5 for _ in range(2)}, seed=other)
    assume(engine.findings().signature is not None and twin.findings().signature is not None)
    two = Two(engine, twin)
    ctx = two.context()
    if step == "extract":
        ctx = msgspec.structs.replace(ctx, findings=walk("layerwise", ctx, two).finish.findings)
    case = walk(step, ctx, two).finish.findings.case
    if step == "reduce":
        assert case is not None
    if case is not None:
        assert case.node_ids == ranges.encode((guilty,)), (
            "only what fails on the engine as given is a case"
        )


@pytest.mark.parametrize("step", ["layerwise", "reduce"])
def test_a_twin_is_looked_for_once_by_the_first_search_that_cuts(step: str) -> None:
    """And not by compare, repeat or what else comes before: on a CNN it took 109 s, and the cure
    was foretold."""
    engine, _ = planted(12, 3)
    two = Two(engine, engine)
    ctx = two.context(twin="")
    dear = msgspec.structs.replace(ctx.findings, expensive=EXPENSIVE)
    options = view_engine({**msgspec.to_builtins(ctx.engine_info), "options": OPTIONS})
    ctx = msgspec.structs.replace(ctx, findings=dear, engine_info=options)
    found = walk(step, ctx, two).finish.findings
    assert (found.cheap, found.expensive) == (TWIN, 0.0)
    before = two.asked[TWIN]
    again = walk("inputs", msgspec.structs.replace(ctx, findings=dear), two).finish.findings
    assert (again.cheap, again.expensive, two.asked[TWIN]) == ("", EXPENSIVE, before)


def sought(
    findings: Findings, there: Measurement, given: Measurement, options: Any = OPTIONS
) -> Findings:
    ctx = StepContext(
        engine=GIVEN,
        reference="r",
        findings=findings,
        engine_info=view_engine({"options": options}),
    )
    generator = find_cheap_engine(ctx, note_expensive(ctx, findings, given))
    try:
        while True:
            asked = next(generator)
            if not isinstance(asked, Note):
                assert asked.engine == TWIN
                generator.send(there)
    except StopIteration as end:
        return end.value


def answer(seconds: float, factor: float = 1.0, **rest: Any) -> Measurement:
    engine, _ = planted(6, 3)
    added = {k: v * factor for k, v in engine.added["real:0"].items()}
    scaled = Simulated.single(engine.index, added)
    asked = Measure(model="m", inputs="i", samples=("real:0",), engine=GIVEN, reference="r")
    return msgspec.structs.replace(scaled(asked), build_seconds=seconds, **rest)


@pytest.mark.parametrize(
    ("there", "given_seconds", "is_twin"),
    [
        (answer(EXPENSIVE / 10), EXPENSIVE, True),
        (answer(EXPENSIVE / 10), EXPENSIVE - 1, False),  # the build is no burden
        (answer(EXPENSIVE / CHEAPER + 1), EXPENSIVE, False),  # no faster
        (answer(1, factor=0.0), EXPENSIVE, False),  # it passes
        (answer(1, factor=0.45), EXPENSIVE, False),  # another failure
        (answer(1, status="crash", message="it died"), EXPENSIVE, False),
    ],
)
def test_a_twin_is_one_that_was_seen_to_fail_alike_and_to_be_faster(
    there: Measurement, given_seconds: float, is_twin: bool
) -> None:
    engine, _ = planted(6, 3)
    found = sought(engine.findings(), there, answer(given_seconds))
    assert found.cheap == (TWIN if is_twin else "")
    assert bool(found.notes) == is_twin, "what was searched on is told in the report"


def test_which_option_may_make_a_twin_is_the_declaration_s_to_say() -> None:
    options = msgspec.to_builtins(discovery.ours()["tensorrt"].options)
    level = "tensorrt:optimization_level={},precision=fp16"
    assert list_cheap_engines("tensorrt:precision=fp16", view_engine({"options": options})) == (
        level.format(1),
    )
    assert list_cheap_engines(level.format(5), view_engine({"options": options})) == (
        level.format(1),
    )
    assert list_cheap_engines(level.format(1), view_engine({"options": options})) == ()
    assert list_cheap_engines(level.format(0), view_engine({"options": options})) == ()
    assert (
        list_cheap_engines(
            "onnxruntime",
            view_engine({"options": msgspec.to_builtins(discovery.ours()["onnxruntime"].options)}),
        )
        == ()
    )


@pytest.mark.parametrize(
    ("errors", "alike"),
    [({"y": 0.5}, True), ({"y": 0.5, "z": 0.5}, False), ({"z": 0.5}, False), ({"y": 0.1}, False)],
)
def test_the_same_failure_is_of_the_same_outputs_by_as_much(
    errors: dict[str, float], alike: bool
) -> None:
    locked = Signature(kind="accuracy", sample="real:0", outputs=("y",), errors={"y": 0.5})
    outputs = tuple(Score(name, rel_l2=errors.get(name, 0.0)) for name in ("y", "z"))
    there = Measurement(results=(SampleResult("real:0", outputs),))
    assert (
        fails_alike(Findings(signature=locked, sample="real:0"), Criterion(tolerance=0.01), there)
        is alike
    )
