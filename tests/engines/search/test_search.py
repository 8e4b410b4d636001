"""The search against planted faults and oracles that lie, refuse and flake."""

import math
import random
import time
from collections.abc import Callable, Generator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from narrowdown.engines.asking import PASSES, Answer, Note, Question, StepContext, Sub, unknown
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.asking.oracle import Oracle, make_oracle
from narrowdown.engines.asking.whole_model import probe_whole
from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.compare.statistics import CONFIDENCE, runs_to_see
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import GraphIndex, Tensor
from narrowdown.engines.graph.watched import BATCH_BYTES
from narrowdown.engines.probe import Measure
from narrowdown.engines.search.search import Trials, minimise, prove_one_minimal

from ..steps import simulated
from ..steps.conftest import walk
from ..steps.simulated import graph

Told = Callable[[frozenset[int]], Answer]


def chain(n: int) -> GraphIndex:
    return graph([(i - 1,) if i else () for i in range(n)])


FAIL, PASS = Answer("fails", own=0.5, effect=0.5), PASSES
HARMLESS, MILDER, AMPLIFIED = map(unknown, ("harmless", "milder", "amplified-downstream"))
REFUSED = unknown("build-failed", "no")


@pytest.mark.parametrize(("inputs", "sample", "reference"), [("", "", ""), ("i", "real:0", "r")])
def test_with_a_check_that_is_handed_no_inputs_no_reference_is_named(
    inputs: str, sample: str, reference: str
) -> None:
    """What is named is looked at before the first question: ONNX Runtime alone took a fifteenth of
    a small search."""
    signature = Signature(kind="check", sample=sample)
    findings = Findings(
        model="m", inputs=inputs, sample=sample, criterion=Criterion(), signature=signature
    )
    ctx = StepContext(engine="e", reference="r", findings=findings, check="./check.sh")
    asking = Inquiry(ctx, findings, chain(3), signature, Criterion(), chain(3).outputs)
    describe = next(open_inquiry(ctx, findings))
    (check,) = make_oracle(asking).list_probes(Question(frozenset((1,))))
    for probe in (check, probe_whole(ctx, findings), describe):
        assert probe.reference == reference


def over(index: GraphIndex, told: Told) -> Trials:
    """Trials over a function from node sets as their oracle."""

    def put(question: Question) -> Sub[Answer]:
        assert question.nodes is not None
        if question.note is not None:
            yield question.note
        return told(question.nodes)

    return Trials(Oracle(index, put, tuple(range(len(index.nodes)))), known={})


def run(search: Generator[Any, Any, Any]) -> Any:
    """What a search returns whose oracle answers at once."""
    try:
        while isinstance(next(search), Note):
            pass
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a search asked past its oracle")


def search(
    index: GraphIndex, told: Told, cuts: bool = True
) -> tuple[frozenset[int], bool, int, Trials]:
    trials, whole = over(index, told), frozenset(range(len(index.nodes)))
    run(trials.test(whole))
    found = run(minimise(trials, whole, cuts=cuts))
    count = trials.count
    return found, run(prove_one_minimal(trials, found)), count, trials


def needs(*culprits: int) -> Told:
    return lambda nodes: FAIL if set(culprits) <= nodes else PASS


@pytest.mark.parametrize("n", [1, 2, 3, 17, 64, 300])
@pytest.mark.parametrize("where", [0.0, 0.5, 1.0])
def test_one_culprit_in_a_chain_costs_no_more_than_two_bisections(n: int, where: float) -> None:
    culprit = round(where * (n - 1))
    found, minimal, count, _ = search(chain(n), needs(culprit))
    assert found == {culprit}
    assert minimal
    assert count - 1 <= 2 * math.ceil(math.log2(n) if n > 1 else 0) + 2


@pytest.mark.parametrize("most", [1, 2, 5, 9, 14])
def test_a_search_that_is_ended_gives_the_smallest_part_that_failed(most: int) -> None:
    """It asks no more than it may, and what it has is the smallest that was measured to fail by
    then."""
    index, whole = chain(300), frozenset(range(300))
    asked: list[frozenset[int]] = []

    def told(nodes: frozenset[int]) -> Answer:
        asked.append(nodes)
        return needs(40, 97, 200, 210)(nodes)

    trials = over(index, told)
    trials.most = most
    run(trials.test(whole))
    found = trials.smallest(run(minimise(trials, whole)))
    assert trials.ended
    assert len(asked) == trials.count == most
    assert trials.known[found].fails
    assert len(found) == min(len(nodes) for nodes, answer in trials.known.items() if answer.fails)


def test_two_distant_interacting_nodes_end_as_two_nodes() -> None:
    found, minimal, count, _ = search(chain(300), needs(40, 97))
    assert found == {40, 97}
    assert minimal
    assert count - 1 <= 6 * math.ceil(math.log2(300)), "two bisections, then delta debugging"


@pytest.mark.parametrize(("culprits", "most"), [((40, 97, 200), 3), ((7, 40, 200, 290), 4)])
def test_few_nodes_at_a_distance_cost_a_few_bisections_each(
    culprits: tuple[int, ...], most: int
) -> None:
    found, minimal, count, _ = search(chain(300), needs(*culprits))
    assert found == set(culprits)
    assert minimal
    assert count - 1 <= 4 * most * math.ceil(math.log2(300))


def test_a_group_that_hangs_together_in_a_large_graph_costs_few_probes_and_little_time() -> None:
    group = set(range(5_000, 5_012))
    begun = time.process_time()
    found, _, count, _ = search(chain(16_384), needs(*group))
    assert found == group
    assert count < 80
    assert time.process_time() - begun < 20, "linear work for each question"


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.data())
def test_any_planted_set_is_found_one_minimal(n: int, data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 2**16))
    rng = random.Random(seed)
    index = graph(
        [tuple(sorted(rng.sample(range(i), min(i, rng.randint(0, 3))))) for i in range(n)]
    )
    culprits = data.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=4))
    found, minimal, _, _ = search(index, needs(*culprits), cuts=data.draw(st.booleans()))
    assert found == culprits
    assert minimal


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 40), st.integers(0, 2**16), st.floats(0, 0.6))
def test_an_oracle_that_refuses_at_random_never_becomes_the_answer(
    n: int, seed: int, rate: float
) -> None:
    """Candidates that the engine cannot run, harmless and milder ones are neither pass nor fail;
    the result was seen to fail."""
    rng = random.Random(seed)
    culprits = set(rng.sample(range(n), rng.randint(1, min(3, n))))
    answers: dict[frozenset[int], Answer] = {frozenset(range(n)): FAIL}

    def oracle(nodes: frozenset[int]) -> Answer:
        if nodes not in answers:
            truth = FAIL if culprits <= nodes else rng.choice([PASS, HARMLESS, MILDER, AMPLIFIED])
            answers[nodes] = (
                rng.choice([REFUSED, unknown("crash")]) if rng.random() < rate else truth
            )
        return answers[nodes]

    found, _, _, trials = search(chain(n), oracle)
    assert culprits <= found
    assert trials.known[found].fails
    for node in found:
        assert not trials.known.get(found - {node}, trials.known[found]).fails or len(found) == 1


def test_everything_unresolved_ends_with_the_whole_model() -> None:
    n = 30
    found, minimal, _, trials = search(chain(n), lambda nodes: FAIL if len(nodes) == n else REFUSED)
    assert found == frozenset(range(n))
    assert trials.unresolved()["build-failed"] > 0
    assert minimal is True  # no removal fails; that most were unresolved is said beside it


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 40), st.integers(0, 2**16))
def test_a_failure_that_is_not_monotone_still_ends_in_a_failing_set(n: int, seed: int) -> None:
    rng = random.Random(seed)
    answers: dict[frozenset[int], Answer] = {frozenset(range(n)): FAIL}
    found, minimal, _, trials = search(
        chain(n), lambda nodes: answers.setdefault(nodes, FAIL if rng.random() < 0.4 else PASS)
    )
    assert trials.known[found].fails
    assert minimal or len(found) > 1


def test_the_same_answers_give_the_same_questions() -> None:
    index = chain(50)
    asked: list[list[str]] = []
    for _ in range(2):
        log: list[str] = []

        def oracle(nodes: frozenset[int], log: list[str] = log) -> Answer:
            log.append(str(sorted(nodes)))
            return needs(13, 31)(nodes)

        search(index, oracle)
        asked.append(log)
    assert asked[0] == asked[1]


def test_a_passing_neighbour_is_kept() -> None:
    found, _, _, trials = search(chain(20), needs(4, 9))
    good = trials.good(found)
    assert trials.known[good].passes
    assert good < found


# -- faults of every shape on random graphs


def random_graph(n: int, rng: random.Random) -> GraphIndex:
    return graph([tuple(sorted(rng.sample(range(i), min(i, rng.randint(0, 3))))) for i in range(n)])


def planted(
    kind: str, n: int, rng: random.Random, index: GraphIndex
) -> Callable[[frozenset[int]], bool]:
    """Whether a node set fails. The whole graph always does."""
    some = sorted(rng.sample(range(n), min(n, 4)))
    match kind:
        case "single":
            return lambda nodes: some[0] in nodes
        case "pair":
            return lambda nodes: {some[0], some[-1]} <= nodes
        case "set":
            return lambda nodes: set(some) <= nodes
        case "branch":  # a node with all that it depends on, two levels up
            near = {some[-1]}
            for _ in range(2):
                near |= {index.tensors[t].producer for m in near for t in index.nodes[m].reads} - {
                    -1
                }
            return lambda nodes: near <= nodes
        case (
            "fused"
        ):  # any two of a group that stand together are fused, and only what is fused fails
            return lambda nodes: len(nodes.intersection(some)) >= min(2, len(some))
        case "order":  # what lies before the node decides: it fails with its whole prefix, or alone
            return lambda nodes: some[-1] in nodes and (len(nodes) == 1 or min(nodes) <= some[0])
        case _:  # not monotone: an odd number of these, or all nodes
            return lambda nodes: len(nodes) == n or len(nodes.intersection(some)) % 2 == 1


FAULTS = ("single", "pair", "set", "branch", "fused", "order", "parity")


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FAULTS), st.integers(2, 48), st.integers(0, 2**16), st.booleans())
def test_removing_any_node_of_the_result_makes_the_failure_vanish_or_change(
    kind: str, n: int, seed: int, cuts: bool
) -> None:
    rng = random.Random(seed)
    index = random_graph(n, rng)
    fails = planted(kind, n, rng, index)
    other = rng.choice([PASS, HARMLESS, MILDER, AMPLIFIED])
    found, minimal, count, trials = search(
        index, lambda nodes: FAIL if fails(nodes) else other, cuts=cuts
    )
    assert fails(found)
    assert minimal
    assert [node for node in found if len(found) > 1 and fails(found - {node})] == []
    assert trials.known[found].fails
    assert count <= 4 * math.ceil(math.log2(n)) + 2 * n + len(found) ** 2 + 8


BROKEN = [
    REFUSED,
    unknown("crash"),
    unknown("timeout"),
    unknown("out-of-memory"),
    HARMLESS,
    MILDER,
]


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(FAULTS), st.integers(2, 32), st.integers(0, 2**16), st.floats(0, 0.9))
def test_an_engine_that_breaks_on_most_candidates_costs_time_and_no_truth(
    kind: str, n: int, seed: int, rate: float
) -> None:
    """Crash, timeout, refusal, memory, another failure: the answer is a set that was seen to fail,
    and the search ends."""
    rng = random.Random(seed)
    index = random_graph(n, rng)
    fails = planted(kind, n, rng, index)
    answers: dict[frozenset[int], Answer] = {frozenset(range(n)): FAIL}

    def oracle(nodes: frozenset[int]) -> Answer:
        if nodes not in answers:
            answers[nodes] = (
                rng.choice(BROKEN) if rng.random() < rate else FAIL if fails(nodes) else PASS
            )
        return answers[nodes]

    found, minimal, count, trials = search(index, oracle)
    assert answers[found] is FAIL
    assert fails(found)
    assert sum(trials.unresolved().values()) == sum(answers[s] not in (FAIL, PASS) for s in answers)
    assert count <= n**2 + 12 * math.ceil(math.log2(n)) + 8
    if minimal and len(found) > 1:
        assert all(answers[found - {node}] is not FAIL for node in found)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 40), st.integers(0, 2**16), st.floats(0.05, 0.9))
def test_a_fault_that_comes_and_goes_is_looked_at_often_enough(
    n: int, seed: int, rate: float
) -> None:
    """With as many runs a verdict as its rate asks for, a probe misses the fault with a chance of 1
    - CONFIDENCE squared at most; what is found failed in a run, whatever was missed."""
    rng = random.Random(seed)
    culprits = set(rng.sample(range(n), rng.randint(1, min(3, n))))
    looks = 2 * runs_to_see(rate)
    assert (1 - rate) ** looks <= (1 - CONFIDENCE) ** 2 + 1e-12
    missed = 0

    def oracle(nodes: frozenset[int]) -> Answer:
        nonlocal missed
        if not culprits <= nodes:
            return PASS
        seen = any(rng.random() < rate for _ in range(looks))
        missed += not seen
        return FAIL if seen or len(nodes) == n else PASS

    found, minimal, count, trials = search(index := chain(n), oracle)
    assert trials.known[found].fails
    assert culprits <= found
    assert count <= n**2 + 12 * math.ceil(math.log2(n)) + 8
    if not missed:
        assert (found, minimal) == (culprits, True)
    assert len(index.nodes) == n


@pytest.mark.parametrize(("bytes_", "kept"), [(1 << 20, True), (BATCH_BYTES, False)])
def test_a_passing_neighbour_is_kept_as_a_model_unless_it_is_heavy(bytes_: int, kept: bool) -> None:
    """Every node of a chain reads a weight of its own; the last one is wrong."""
    index = simulated.graph([(i - 1,) if i else () for i in range(12)])
    first = len(index.tensors)
    weights = tuple(
        Tensor(first + i, f"w{i}", "float32", "weight", -1, (bytes_ // 4,), bytes_)
        for i in range(12)
    )
    nodes = tuple(msgspec.structs.replace(n, inputs=(*n.inputs, first + n.id)) for n in index.nodes)
    index = msgspec.structs.replace(index, nodes=nodes, tensors=(*index.tensors, *weights))
    engine = simulated.Simulated.single(index, {11: 0.5})
    done = walk("reduce", engine.context(), engine)
    good = done.finish.findings.case.good
    assert good is not None
    saved = {p.save: p.candidate for p in done.probes if isinstance(p, Measure) and p.save}
    assert saved.get("good") == (good if kept else None)
    assert "case" in saved
