"""The smallest failing part, over functions as oracles: the ends, a cheap form that lies, where a
search starts again."""

import random
from collections.abc import Callable, Iterable

import msgspec
from hypothesis import given, settings, strategies as st

from narrowdown.engines.asking import PASSES, Answer, Note, Question, Sub, unknown
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.compare.judge import Signature
from narrowdown.engines.probe import Edit, Score
from narrowdown.engines.search.smallest import ReduceParams, Smallest, find_smallest

from ..steps.simulated import graph

N = 60
FAILS = Answer("fails", own=1.0, effect=1.0, signature=Signature("accuracy", "s"), probes=1)
INDEX = graph([(i - 1,) if i else () for i in range(N)])


class Asked(msgspec.Struct):
    """An oracle over ``told``, and what was asked of it."""

    told: Callable[[Question], Answer]
    questions: list[Question] = []

    def put(self, question: Question) -> Sub[Answer]:
        self.questions.append(question)
        return self.told(question)
        yield

    def oracle(self, cheap: "Asked | None" = None) -> Oracle:
        there = cheap.oracle() if cheap else None
        return Oracle(INDEX, self.put, tuple(range(N)), cheap=there)


def needs(nodes: Iterable[int]) -> Asked:
    """Fails wherever all of these are; alone in one build each of a single one is wrong."""
    needed = frozenset(nodes)

    def told(question: Question) -> Answer:
        if question.reference:
            return PASSES
        if question.alone:
            names = [INDEX.tensors[t].name for t in question.outputs
                     if needed == {INDEX.tensors[t].producer}]  # fmt: skip
            return Answer("unknown", scores={n: Score(n, rel_l2=0.5) for n in names}, probes=1)
        return FAILS if needed <= (question.nodes or frozenset()) else PASSES

    return Asked(told, [])


def run(oracle: Oracle, *, alone: bool = True, **params: str | int) -> Smallest:
    given = ReduceParams(**{"shrink_probes": 0, **params})  # type: ignore[arg-type]
    asking = find_smallest(oracle, given, alone=alone)
    try:
        while isinstance(next(asking), Note):
            pass
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("it asked past its oracle")


def found(smallest: Smallest) -> frozenset[int]:
    assert smallest.settled is not None
    return smallest.settled.question.nodes or frozenset()


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, N - 1), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_what_is_needed_is_found_and_shown(nodes: set[int], halve: bool, alone: bool) -> None:
    smallest = run(needs(nodes).oracle(), alone=alone, search="bisect" if halve else "linear")
    assert found(smallest) == nodes
    assert smallest.minimal
    assert smallest.settled is not None
    assert smallest.settled.failures == smallest.settled.builds == 3


def test_a_single_culprit_is_found_by_one_build_of_all_nodes_side_by_side() -> None:
    asked = needs({37})
    assert found(run(asked.oracle())) == {37}
    assert len(asked.questions) < 12


def test_a_model_that_passes_and_a_reference_that_differs_from_itself_end_the_search() -> None:
    passing = run(Asked(lambda _: PASSES, []).oracle())
    assert (passing.settled, passing.answer.passes, passing.checks) == (None, True, 1)
    unsteady = run(Asked(lambda q: FAILS, []).oracle())
    assert (unsteady.settled, unsteady.answer.why) == (None, "varies")
    dead = run(Asked(lambda _: unknown("crash"), []).oracle())
    assert (dead.settled, dead.answer.why) == (None, "crash")


def test_the_cheap_form_searches_and_the_engine_as_given_decides() -> None:
    given_, cheap = needs({20, 21}), needs({20, 21})
    smallest = run(given_.oracle(cheap))
    assert found(smallest) == {20, 21}
    assert smallest.cheaply
    assert len(given_.questions) < len(cheap.questions)
    assert not any(q.save or q.build for q in cheap.questions), "fresh builds are the engine's own"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**16))
def test_whatever_the_cheap_form_says_what_is_found_fails_as_given(seed: int) -> None:
    rng = random.Random(seed)
    true = frozenset(rng.sample(range(N), 3))
    lies: dict[frozenset[int], Answer] = {}

    def told(question: Question) -> Answer:
        if question.reference:
            return PASSES
        nodes = question.nodes or frozenset()
        return lies.setdefault(nodes, rng.choice((FAILS, PASSES, unknown("crash"))))

    smallest = run(needs(true).oracle(Asked(told, [])), alone=False)
    assert true <= found(smallest)


def test_a_search_that_may_try_few_parts_gives_the_smallest_that_failed() -> None:
    smallest = run(needs({5, 50}).oracle(), alone=False, budget=4)
    assert smallest.stopped
    assert not smallest.minimal
    assert {5, 50} <= found(smallest) < set(range(N))


def test_edits_are_kept_while_the_part_fails_like_itself() -> None:
    def told(question: Question) -> Answer:
        if any(e.kind == "fill" for e in question.edits):
            assert question.like == FAILS.signature
            return msgspec.structs.replace(PASSES, probes=1)
        return needs({9}).told(question)

    smallest = run(Asked(told, []).oracle(), shrink_probes=32)
    assert smallest.settled is not None
    edits = smallest.settled.question.edits
    assert edits
    assert all(isinstance(e, Edit) and e.kind != "fill" for e in edits)
