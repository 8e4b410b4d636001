"""In which order nodes that the reference computes and the engine's own can take turns."""

import random

from hypothesis import given, strategies as st

from narrowdown.engines.workers.righting import order_stages

from ..steps.simulated import graph, random_graph


def test_a_group_waits_for_what_the_engine_makes_of_an_earlier_one() -> None:
    chain = graph([() if i == 0 else (i - 1,) for i in range(8)])
    assert order_stages(chain, range(8), (2, 3, 6)) == ((2, 3), (6,))
    assert order_stages(chain, (4, 5, 6, 7), (2, 3, 6)) == ((6,),)
    beside = graph([(), (0,), (0,), (1, 2)])
    assert order_stages(beside, range(4), (1, 2)) == ((1, 2),)
    around = graph([(), (0,), (0, 1)])  # 2 reads what the engine makes of 0 at 1, and 0 itself
    assert order_stages(around, range(3), (0, 2)) == ((0,), (2,))


@given(st.integers(1, 30), st.integers(0, 2**16))
def test_what_the_engine_makes_for_a_group_needs_no_later_one(n: int, seed: int) -> None:
    rng = random.Random(seed)
    index = random_graph(n, rng)
    righted = set(rng.sample(range(n), rng.randint(0, n)))
    groups = order_stages(index, range(n), righted)
    assert sorted(node for group in groups for node in group) == sorted(righted)
    there: set[int] = set()
    for group in groups:
        needs, leaves = index.boundary(group)
        made = set(index.ancestors(needs, stop=there))
        assert not made & righted, "the engine computes none of them"
        there.update(t for node in group for t in index.nodes[node].outputs)
        assert set(leaves) <= there
