"""The fewest nodes, over a dictionary of what each node brings on each sample."""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from narrowdown.engines.asking import Sub
from narrowdown.engines.search.keep_fewest import JOINED, MARGIN, REFUSED, Hunt, keep_fewest

TIGHT = 1 / MARGIN


class Told:
    """``brings``: sample -> node -> what it brings while it is not kept, 1 being all that is
    allowed. ``harms``: (node, other): the one kept, all is wrong unless the other is, too."""

    def __init__(
        self, n: int, brings: Mapping[str, Mapping[int, float]], harms: tuple[int, int] = (-1, -1)
    ) -> None:
        self.everything, self.singly, self.timed = tuple(range(n)), False, False
        self.brings, self.harms, self.spent = brings, harms, 0
        self.asked: list[tuple[tuple[int, ...], tuple[str, ...]]] = []
        self.refused: Any = lambda _keep: False
        self.near: Any = lambda _nodes: ()

    def list_near(self, nodes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        return self.near(nodes)  # type: ignore[no-any-return]

    def use(self, keep: tuple[int, ...], samples: Sequence[str]) -> Sub[Mapping[str, float] | None]:
        self.spent += not self.asked or self.asked[-1][0] != keep
        self.asked.append((keep, tuple(samples)))
        if self.refused(keep):
            return None
        node, other = self.harms
        if node in keep and other not in keep:
            return dict.fromkeys(samples, 9.0)
        inside = set(keep)
        return {
            s: math.hypot(*(b for n, b in self.brings[s].items() if n not in inside))
            for s in samples
        }
        yield


def run(search: Any) -> Any:
    with pytest.raises(StopIteration) as ended:
        next(search)
    return ended.value.value


def fewest(search: Hunt, likely: tuple[int, ...] = ()) -> Any:
    keep = run(search.find(likely))
    return keep if keep == search.sets.everything else run(search.trim(keep))


def hunt(told: Told, limit: int = 400, order: tuple[int, ...] = (), **samples: Any) -> Hunt:
    """The search, which is told this order, or what each node brings on the first sample."""
    allowed = samples or dict.fromkeys(told.brings, TIGHT)
    brings = told.brings[next(iter(told.brings))]

    def rank() -> Sub[tuple[int, ...]]:
        return order or tuple(sorted(told.everything, key=lambda n: -brings.get(n, 0.0)))
        yield

    return Hunt(told, allowed, list(allowed)[:1], limit, rank)


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 120), st.integers(0, 2**16))
def test_what_is_found_cures_every_sample_and_each_node_of_it_is_needed(n: int, seed: int) -> None:
    rng = random.Random(seed)
    brings = {
        f"s{i}": {rng.randrange(n): rng.choice((0.05, 0.3, 2.0)) for _ in range(6)}
        for i in range(3)
    }
    told = Told(n, brings)
    search = hunt(told, 4000)
    keep = fewest(search)
    used = run(told.use(keep, tuple(brings)))
    assert max(used.values()) <= TIGHT
    if len(keep) < n:
        assert search.each
        for node in keep:
            less = tuple(k for k in keep if k != node)
            assert max(run(told.use(less, tuple(brings))).values()) > TIGHT


def test_what_is_likely_and_cures_is_not_weighed() -> None:
    told = Told(200, {"s": {7: 2.0, 50: 2.0}})
    assert fewest(hunt(told), (7, 50, 90)) == (7, 50)
    assert told.spent <= 8


def test_few_heavy_nodes_among_many_light_ones_cost_a_bisection_each() -> None:
    light = dict.fromkeys(range(300), 0.01)
    told = Told(300, {"s": {**light, 3: 2.0, 150: 2.0, 299: 2.0}})
    assert fewest(hunt(told)) == (3, 150, 299)
    assert told.spent < 60


@pytest.mark.parametrize(
    ("order", "most"),
    [
        ((60, 5, *(n for n in range(64) if n not in (5, 60))), 12),
        ((5, 31, *(n for n in range(64) if n not in (5, 31, 60)), 60), 40),
    ],
    ids=["known", "wrong"],
)
def test_an_order_costs_questions_where_it_is_wrong_and_decides_nothing(
    order: tuple[int, ...], most: int
) -> None:
    told = Told(64, {"s": {5: 2.0, 60: 2.0}})
    assert fewest(hunt(told, order=order)) == (5, 60)
    assert told.spent < most


@pytest.mark.parametrize("limit", [1, 5, 20, 60])
def test_with_few_questions_what_is_given_cures_all_the_same(limit: int) -> None:
    rng = random.Random(limit)
    brings = {f"s{i}": {rng.randrange(100): 2.0 for _ in range(8)} for i in range(3)}
    told = Told(100, brings)
    keep = fewest(hunt(told, limit))
    assert max(run(told.use(keep, tuple(brings))).values()) <= TIGHT


def test_an_engine_that_refuses_one_set_after_the_other_is_left_in_peace() -> None:
    told = Told(100, {"s": dict.fromkeys(range(0, 100, 3), 2.0)})
    told.refused = lambda keep: 20 < len(keep) < 96
    keep = fewest(hunt(told))
    assert max(run(told.use(keep, ("s",))).values()) <= TIGHT
    assert sum(20 < len(k) < 96 for k, _ in told.asked) <= 100 + REFUSED


def test_a_node_that_harms_without_another_is_kept_with_it_or_not_at_all() -> None:
    told = Told(30, {"s": {4: 2.0, 9: 2.0}}, harms=(20, 9))
    assert fewest(hunt(told)) == (4, 9)


def test_a_fault_of_each_layer_is_found_by_the_kinds_of_one_whatever_the_order() -> None:
    """Six layers of 20 nodes, in each of which two are needed together; one of them was found. What
    each brings alone puts these last."""
    needed = {n for n in range(120) if n % 20 in (7, 9)}
    told = Told(120, {"s": dict.fromkeys(needed, 2.0)})
    kinds = [tuple(range(k, 120, 20)) for k in range(20)]
    told.near = lambda nodes: sorted(kinds, key=lambda k: abs(k[0] - nodes[0] % 20))
    order = tuple(sorted(range(120), key=lambda n: n in needed))
    search = hunt(told, order=order)
    assert set(run(search.find((27,)))) == needed
    assert told.spent < 16
    told.near, told.spent = lambda _nodes: (), 0
    assert set(run(hunt(told, order=order).find((27,)))) == needed
    assert told.spent > 24


@pytest.mark.parametrize(("own", "most"), [(1, JOINED), (40, 1)])
def test_what_joins_and_needs_most_of_the_model_is_not_run_after(own: int, most: int) -> None:
    told = Told(100, {"s": dict.fromkeys(range(own), 2.0), "t": dict.fromkeys(range(90), 2.0)})
    took: list[int] = []

    def try_on(_keep: tuple[int, ...], _batch: int) -> Sub[Mapping[str, float]]:
        took.append(told.spent)
        return (yield from _give({"t": TIGHT}))

    order = tuple(sorted(range(100), key=lambda n: 7 * n % 100))
    best = run(keep_fewest(hunt(told, s=TIGHT, order=order), tuple(range(own)), try_on, 4))
    assert best.keep == tuple(range(own))
    assert told.spent - took[0] <= most


def _give(more: Mapping[str, float]) -> Sub[Mapping[str, float]]:
    return more
    yield


def test_what_is_wrong_elsewhere_joins_and_little_is_added() -> None:
    told = Told(40, {"s": {4: 2.0}, "t": {4: 2.0, 30: 2.0}, "u": {}})
    search = hunt(told, s=TIGHT)
    batches: list[tuple[int, ...]] = []

    def try_on(keep: tuple[int, ...], batch: int) -> Sub[Mapping[str, float]]:
        batches.append(keep)
        return {"t": TIGHT, "u": TIGHT} if not batch else {}
        yield

    best = run(keep_fewest(search, (), try_on, 4))
    assert batches == [(4,), (4, 30)]  # nothing of that set can go, so it is not tried once more
    assert best.keep == (4, 30)
    assert best.each


@pytest.mark.parametrize("timed", [False, True])
def test_leaving_out_each_takes_as_many_builds_again_where_they_take_seconds(timed: bool) -> None:
    """Kept in pairs, of which one is needed: to see that of 40 each needs more than 80 builds."""
    told = Told(100, {"s": dict.fromkeys(range(0, 80, 2), 2.0)})
    told.near = lambda _nodes: tuple((n, n + 1) for n in range(0, 100, 2))
    took: list[int] = []

    def try_on(_keep: tuple[int, ...], _batch: int) -> Sub[Mapping[str, float]]:
        took.append(told.spent)
        return (yield from _give({}))

    told.timed = timed
    best = run(keep_fewest(hunt(told, s=TIGHT), (), try_on, 4))
    assert (took[1] <= 2 * took[0] + 1) == timed  # the set itself is asked, too
    assert best.each != timed


@pytest.mark.parametrize("batches", [2, 3, 4])
def test_a_set_that_was_made_small_and_is_wrong_elsewhere_gives_way_to_the_one_before(
    batches: int,
) -> None:
    """On what is seen node 4 is enough. Node 20 can go only once node 9 has."""
    told = Told(40, {"s": {4: 2.0}, "t": {4: 2.0, 20: 2.0}}, harms=(9, 20))
    search = hunt(told, s=TIGHT)
    tried: list[tuple[int, ...]] = []

    def try_on(keep: tuple[int, ...], _batch: int) -> Sub[Mapping[str, float]]:
        tried.append(keep)
        return {} if 20 in keep else {"t": TIGHT}
        yield

    best = run(keep_fewest(search, (4, 9, 20), try_on, batches))
    assert tried == [(4, 20), (4,), (4, 20)][:batches]
    assert (best.keep, best.each) == ((4, 20), False)


def test_where_only_everything_cures_there_is_no_set() -> None:
    told = Told(12, {"s": dict.fromkeys(range(12), 2.0)})
    assert run(keep_fewest(hunt(told), (), lambda *_: iter(()), 4)) is None  # type: ignore[arg-type, return-value]


class Lies(Told):
    """Right on each sample that is asked about alone, wrong on all of them together."""

    def use(self, keep: tuple[int, ...], samples: Sequence[str]) -> Sub[Mapping[str, float] | None]:
        used = yield from super().use(keep, samples)
        lies = len(samples) > 1 and keep != self.everything
        return dict.fromkeys(samples, 9.0) if lies else used


def test_answers_that_contradict_one_another_end_the_search() -> None:
    told = Lies(8, {"a": {0: 9.0}, "b": {0: 9.0}})
    assert fewest(hunt(told)) == told.everything


class Signed(Told):
    """What nodes bring has a sign, so that it may cancel."""

    def use(self, keep: tuple[int, ...], samples: Sequence[str]) -> Sub[Mapping[str, float] | None]:
        self.spent += 1
        return {s: abs(sum(b for n, b in self.brings[s].items() if n not in keep)) for s in samples}
        yield


@pytest.mark.parametrize(("singly", "kept"), [(True, (5, 6)), (False, (0, 1, 2, 3))])
def test_layers_are_added_one_by_one_where_fewer_do(singly: bool, kept: tuple[int, ...]) -> None:
    """Four in order cure, and each of them is needed; two others do as well, as 4 cancels the rest."""
    told = Signed(7, {"s": dict.fromkeys(range(4), 1.0) | {4: -4.0, 5: 2.0, 6: 2.0}})
    told.singly = singly
    assert run(hunt(told, order=tuple(range(7)), s=0.5).find(())) == kept


def test_what_brought_nothing_is_not_asked_again() -> None:
    told = Signed(20, {"s": {0: 4.0, 1: 3.0, 2: 2.0, 3: 1.5} | dict.fromkeys(range(4, 20), 0.01)})
    told.singly = True
    assert run(hunt(told, order=tuple(range(20)), s=0.5).find(())) == (0, 1, 2, 3)
    assert told.spent < 2 * 20


@pytest.mark.parametrize(
    ("brings", "kept"), [({2: 2.0}, (1, 2)), ({2: 2.0, 3: 2.0}, tuple(range(6)))]
)
def test_what_joins_adds_as_many_layers_again_and_no_more(
    brings: dict[int, float], kept: tuple[int, ...]
) -> None:
    told = Told(6, {"s": {1: 2.0}, "t": {1: 2.0, **brings}})
    told.singly = True
    search = hunt(told, order=tuple(range(6)), s=TIGHT, t=TIGHT)
    search.join(("t",))
    assert run(search.find((), (1,))) == kept
