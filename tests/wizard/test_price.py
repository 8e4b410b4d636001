"""What a step is expected to take, in the words of both displays."""

import pytest

from engines.search.cost import Cost
from wizard.words import price, say_span


@pytest.mark.parametrize(
    ("least", "most", "said"),
    [
        (0.2, 3.4, "up to 3 s"), (1.2, 7.0, "1 to 7 s"), (2.0, 40.0, "2 to 40 s"), (20.0, 240.0, "20 s to 4 min"),
        (100.0, 5_000.0, "2 to 83 min"), (100.0, 9_000.0, "2 min to 2 h"), (6_000.0, 40_000.0, "2 to 11 h"),
    ],
)  # fmt: skip
def test_a_range_is_as_exact_as_it_is(least: float, most: float, said: str) -> None:
    assert say_span(least, most) == said


def test_a_search_is_offered_as_a_range() -> None:
    """How many probes it takes depends on what it finds, so one number alone would say more than is known."""
    cost = Cost(53, 53, 60, 31.0, 1 << 20, least=20.0, most=240.0, least_probes=12, most_probes=400)
    said = "about 31 s; as the search goes 20 s to 4 min (12 to 400 probes), at most 1.0 MiB more on disk"
    assert price(cost) == said
    assert len(f"    expected: {said.partition(', at most')[0]}") <= 80


def test_a_narrow_range_is_told_as_one_number() -> None:
    cost = Cost(53, 53, 60, 31.0, 1 << 20, least=20.0, most=79.0, least_probes=12, most_probes=90)
    assert price(cost).startswith("about 53 probes (53 builds, 60 runs), about 31 s")
    soon = Cost(5, 5, 5, 0.4, 1 << 20, least=0.1, most=1.9, least_probes=2, most_probes=30)
    assert price(soon).startswith("about 5 probes (5 builds, 5 runs), about 0.4 s")


def test_where_no_seconds_are_known_none_are_told() -> None:
    cost = Cost(53, 53, 60, -1.0, 1 << 20, unit=84.0, least_probes=12, most_probes=400)
    assert price(cost).startswith("about 53 probes")
    assert price(cost).endswith("The first build took 1 min 24 s, later ones mostly take less")
