"""What a step is expected to take, in the words of both displays."""

import msgspec
import pytest

from narrowdown.engines.search.cost import Cost
from narrowdown.wizard.words import fold_price, price, say_span, say_time_left


@pytest.mark.parametrize(
    ("least", "most", "said"),
    [
        (0.2, 3.4, "up to 3 s"), (1.2, 7.0, "1 to 7 s"), (2.0, 40.0, "2 to 40 s"), (20.0, 240.0, "20 s to 4 min"),
        (100.0, 5_000.0, "2 to 83 min"), (100.0, 9_000.0, "2 min to 2 h"), (6_000.0, 40_000.0, "2 to 11 h"),
        (0.0, 0.3, "under 1 s"), (24.6, 25.4, "about 25 s"),
    ],
)  # fmt: skip
def test_a_range_is_as_exact_as_it_is(least: float, most: float, said: str) -> None:
    assert say_span(least, most) == said


def test_a_search_is_offered_as_a_range() -> None:
    """How many probes it takes depends on what it finds, so one number alone would say more than is
    known."""
    cost = Cost(
        53,
        53,
        60,
        31.0,
        1 << 20,
        least=20.0,
        most=240.0,
        least_probes=1,
        most_probes=4_000,
        each=0.31,
    )
    said = (
        "not known yet, 20 s to 4 min, about 53 probes of about 0.3 s, at most 1.0 MiB more on disk"
    )
    assert price(cost) == said
    assert len(f"    expected: {said.partition(', at most')[0]}") <= 80
    vague = msgspec.structs.replace(cost, least=1.0, each=-1.0, disk=-1)
    assert price(vague) == "not known yet, up to 4 min, about 53 probes, disk space not known yet"


@pytest.mark.parametrize(
    "cost",
    [
        Cost(9, 9, 60, -1.0, 129 << 20), Cost(53, 53, 60, 31.0, 1 << 20, least=20.0, most=240.0, each=0.31),
        Cost(6, 6, 60, -1.0, 1 << 20, unit=84.0), Cost(1_053, 1_053, 16_000, 31.0, 1 << 30, least=20.0, most=60.0),
        Cost(0, 0, 0, 0.0, 0), Cost(53, 53, 60, 31.0, -1, least=20.0, most=2_400.0, each=0.01),
    ],
)  # fmt: skip
def test_what_is_expected_fits_a_terminal_of_80_columns(cost: Cost) -> None:
    lines = fold_price(cost, "    expected: ")
    assert all(len(line) <= 80 for line in lines)
    assert " ".join(line.strip() for line in lines) == f"expected: {price(cost)}"


def test_what_takes_next_to_nothing_is_not_told_of_each_probe() -> None:
    """Most of the time goes into a few others: "up to 5 s, 8 probes of less than 0.1 s" would not
    add up."""
    assert "of less" not in price(Cost(8, 8, 8, 1.0, 0, least=0.3, most=4.9, each=0.01))


def test_a_narrow_range_is_told_as_one_number() -> None:
    cost = Cost(53, 53, 60, 31.0, 1 << 20, least=20.0, most=79.0, least_probes=12, most_probes=90)
    assert price(cost).startswith("about 53 probes (53 builds, 60 runs), about 31 s")
    soon = Cost(5, 5, 5, 0.4, 1 << 20, least=0.1, most=1.9, least_probes=2, most_probes=30)
    assert price(soon).startswith("about 5 probes (5 builds, 5 runs), about 0.4 s")
    at_once = msgspec.structs.replace(soon, seconds=0.02)
    assert price(at_once).startswith("about 5 probes (5 builds, 5 runs), less than 0.1 s, ")


def test_where_no_seconds_are_known_none_are_told() -> None:
    cost = Cost(6, 6, 60, -1.0, 1 << 20, unit=84.0)
    assert (
        price(cost)
        == "not known yet, about 6 builds; the first took 1 min 24 s, at most 1.0 MiB more on disk"
    )
    unknown = Cost(9, 9, 60, -1.0, 1 << 20, least_probes=1, most_probes=40)
    assert (
        price(unknown)
        == "not known yet, about 9 probes; this step finds out what they take, at most 1.0 MiB more on disk"
    )


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ((12.0, 8.0, 20.0), "~12 s left"), ((0.4, 0.1, 0.9), "under 1 s left"), ((-1.0, 20.0, 240.0), "20 s to 4 min left"),
        ((-1.0, 2.0, 240.0), "up to 4 min left"), ((-1.0, -1.0, -1.0), "how long is not known yet"),
    ],
    ids=["a number", "soon", "two ends", "vague", "nothing"],
)  # fmt: skip
def test_the_time_left_is_told_as_far_as_it_is_known(
    left: tuple[float, float, float], said: str
) -> None:
    assert say_time_left(*left) == said
