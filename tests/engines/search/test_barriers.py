"""The search for barriers under oracles that are honest, lie, or do not answer: what it claims was
measured to cure."""

import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from narrowdown.engines.asking import Note, StepContext
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.findings import Case, Culprit, Findings
from narrowdown.engines.graph import GraphIndex, Node, Tensor, ranges
from narrowdown.engines.graph.watched import BATCH_BYTES
from narrowdown.engines.probe import (
    APART,
    BARRIER,
    Candidate,
    Measure,
    Measurement,
    SampleInfo,
    SampleResult,
    Score,
)
from narrowdown.engines.search.barriers import BUDGET, Barriers, find_barriers, list_rings

RIGHT, WRONG = 1e-4, 0.5
Answer = Callable[[tuple[int, ...]], str]  # tensors that are outputs -> pass | fail | build-failed


def chain(nodes: int, size: int = 4) -> GraphIndex:
    """Tensor 0 is the input, the last one the output; each node reads the one before it."""
    kinds = ("input", *("node",) * nodes)
    return GraphIndex(
        "m",
        tuple(Node(i, f"n{i}", "Neg", "", (i,), (i + 1,)) for i in range(nodes)),
        tuple(Tensor(i, f"t{i}", "float32", k, i - 1, (1,), size) for i, k in enumerate(kinds)),
        inputs=(0,),
        outputs=(nodes,),
    )


def inquiry(nodes: int, *, samples: int = 1, size: int = 4, **known: object) -> Inquiry:
    findings = Findings(
        model="m",
        inputs="i",
        sample="real:0",
        samples=tuple(SampleInfo(f"real:{i}", "real") for i in range(samples)),
        criterion=Criterion(tolerance=0.01),
        signature=Signature("accuracy", "real:0", ("y",), {"y": WRONG}),
    )
    findings = msgspec.structs.replace(findings, **known)
    index = chain(nodes, size)
    signature, criterion = findings.signature, findings.criterion
    assert signature is not None
    assert criterion is not None
    return Inquiry(
        StepContext("engine", "judge", findings),
        findings,
        index,
        signature,
        criterion,
        index.outputs,
    )


def accused(*nodes: int) -> tuple[Culprit, ...]:
    return (Culprit(Case(Candidate(), "real:0", node_ids=ranges.encode(nodes)), "fusion"),)


def search(
    ask: Inquiry, answer: Answer, wrong_on: frozenset[str] = frozenset(), form: str = BARRIER
) -> tuple[Barriers, dict[tuple[int, ...], str]]:
    """What is found, and every answer that was given; a set that cures stays wrong on
    ``wrong_on``."""
    feeds = tuple(s.id for s in ask.findings.samples)
    told: dict[tuple[int, ...], str] = {}

    def measured(probe: Measure, kind: str) -> Measurement:
        if kind == "build-failed":
            return Measurement(status="build-failed", message="no")
        wrong = kind == "fail"
        rows = (
            SampleResult(s, (Score("y", rel_l2=WRONG if wrong or s in wrong_on else RIGHT),))
            for s in probe.samples
        )
        return Measurement(results=tuple(rows), facts={"rewritten": ["t"]})

    plain = Measurement(results=tuple(SampleResult(s, (Score("y", rel_l2=WRONG),)) for s in feeds))
    step = find_barriers(ask, list_rings(ask), plain, form)
    sent: Measurement | None = None
    while True:
        try:
            probe = step.send(sent)
        except StopIteration as end:
            return end.value, told
        if isinstance(probe, Note):
            sent = None
            continue
        assert isinstance(probe, Measure)
        assert (probe.rewrite, probe.engine, probe.keep) == (form, "engine", "")
        tensors = ranges.decode(probe.rewrite_at)
        kind = told[tensors] = answer(tensors)
        sent = measured(probe, kind)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 60), st.data())
def test_of_what_is_joined_one_tensor_each_is_left(nodes: int, data: st.DataObject) -> None:
    """Stretches of the graph are joined wrongly, and each comes right where any tensor within is an
    output."""
    edges = data.draw(
        st.lists(st.integers(1, nodes), min_size=2, max_size=6, unique=True).map(sorted)
    )
    joined = [range(a, b) for a, b in zip(edges[::2], edges[1::2], strict=False)]
    found, told = search(
        inquiry(nodes, hidden=True),
        lambda ts: "pass" if all(set(j) & set(ts) for j in joined) else "fail",
        form=data.draw(st.sampled_from(APART)),
    )
    assert len(found.tensors) == len(joined)
    assert found.minimal
    assert all(set(j) & set(found.tensors) for j in joined)
    assert told[found.tensors] == "pass"


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 80), st.integers())
def test_what_it_claims_was_measured_whatever_the_answers_are(nodes: int, seed: int) -> None:
    chance = random.Random(seed)
    kinds = chance.choices(
        ("pass", "fail", "build-failed"), (chance.random(), chance.random(), 0.2), k=997
    )
    found, told = search(inquiry(nodes, hidden=True), lambda ts: kinds[hash(ts) % 997])
    assert len(told) <= BUDGET
    assert not found.tensors or told[found.tensors] == "pass"
    if not found.tensors:
        assert "pass" not in told.values()
    elif found.minimal and len(found.tensors) > 1:
        for t in found.tensors:
            assert told[tuple(x for x in found.tensors if x != t)] != "pass"


def test_the_search_ends_when_its_builds_are_spent() -> None:
    """Two hundred tensors each of which is needed: what is left cures, and is not called
    minimal."""
    every = frozenset(range(1, 200))
    found, told = search(
        inquiry(200, hidden=True), lambda ts: "pass" if set(ts) >= every else "fail"
    )
    assert len(told) == BUDGET
    assert set(found.tensors) == every
    assert not found.minimal


def test_the_likeliest_are_tried_first() -> None:
    """Around the accused nodes; all, where watching is known to cure."""
    fusion = inquiry(9, culprits=accused(4, 5))
    assert list_rings(fusion) == ((4, 5, 6), tuple(range(1, 9))), "a case that is called a fusion"
    assert list_rings(inquiry(9))[0] == tuple(range(1, 9)), "nobody is accused"
    other = (msgspec.structs.replace(accused(4, 5)[0], cause="overflow"),)
    assert list_rings(inquiry(9, culprits=other)) == ((4, 5, 6),), (
        "nothing says that watching cures"
    )
    assert search(fusion, lambda ts: "pass" if 5 in ts else "fail")[0].tensors == (5,)


def test_what_cannot_be_held_at_once_is_tried_in_parts() -> None:
    ask = inquiry(9, size=BATCH_BYTES // 3, hidden=True)
    assert list_rings(ask) == ((1, 2, 3), (4, 5, 6), (7, 8))
    found, _ = search(ask, lambda ts: "build-failed" if 1 in ts else "pass" if 5 in ts else "fail")
    assert found.tensors == (5,)


@pytest.mark.parametrize(("samples", "cured"), [(4, False), (8, True)])
def test_samples_that_are_set_apart_do_not_steer_it(samples: int, cured: bool) -> None:
    """Of eight samples every second is kept for the proof: that nothing cures those is not known to
    the search."""
    apart = frozenset(f"real:{i}" for i in range(1, samples, 2))
    found, _ = search(inquiry(5, samples=samples, hidden=True), lambda ts: "pass", apart)
    assert bool(found.tensors) == cured


def test_a_fault_that_comes_and_goes_is_looked_at_as_often_as_a_verdict_needs() -> None:
    """In each of three fresh builds, and in the runs of each."""
    ask = inquiry(3, hidden=True, looks=7, builds=3)
    asked: list[Measure] = []
    step = find_barriers(
        ask, ((1, 2),), Measurement(results=(SampleResult("real:0", (Score("y", rel_l2=WRONG),)),))
    )
    sent = None
    while True:
        try:
            probe = step.send(sent)
        except StopIteration as end:
            found = end.value
            break
        sent = None
        if isinstance(probe, Measure):
            asked.append(probe)
            # The third build of whatever lacks tensor 2 fails.
            wrong = 2 not in ranges.decode(probe.rewrite_at) and probe.attempt == 2
            sent = Measurement(
                results=(SampleResult("real:0", (Score("y", rel_l2=WRONG if wrong else RIGHT),)),)
            )
    assert found.tensors == (2,)
    assert {p.runs for p in asked} == {7}
    assert {p.attempt for p in asked if p.rewrite_at == "2"} == {0, 1, 2}
