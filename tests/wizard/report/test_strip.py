"""What a search has shown of each node: the smallest part decides, the window shrinks, and every
sentence is true."""

import pytest
from hypothesis import given, strategies as st

from narrowdown.engines.graph import ranges
from narrowdown.wizard.report.strip import (
    STATES,
    Trail,
    columns,
    name_nodes,
    where,
)

sets = st.sets(st.integers(0, 99), min_size=1, max_size=99)


def take(*probes: tuple[str, str], whole: int = 248) -> Trail:
    trail = Trail(whole)
    for part, outcome in probes:
        trail.take(part, outcome)  # type: ignore[arg-type]
    return trail


def test_cells_follow_the_probes() -> None:
    strip = take(
        ("*", "fails"),
        ("0-123", "passes"),
        ("52-200", "fails"),
        ("70-80", "unresolved"),
        ("52-73", "passes"),
    ).strip
    assert strip.suspects == set(range(52, 201))
    assert [strip.cells[n] for n in (0, 52, 73, 74, 80, 81, 123, 124, 200, 201)] == [
        "right", "right", "cannot tell", "cannot tell", "cannot tell", "right", "right", "wrong", "wrong", "not needed",
    ]  # fmt: skip
    assert set(Trail(9).strip.cells) == {"not asked"}


def test_a_part_whose_pieces_are_right_alone_is_wrong_as_a_whole() -> None:
    probes = [("10-12", "fails"), ("10-11", "passes")]
    assert take(*probes).strip.cells[9:14] == (
        "not needed",
        "right",
        "right",
        "wrong",
        "not needed",
    )
    probes += [("11-12", "passes"), ("10,12", "unresolved")]
    assert take(*probes).strip.cells[9:14] == (
        "not needed",
        "wrong",
        "wrong",
        "wrong",
        "not needed",
    )


def test_each_probe_is_said_in_words() -> None:
    said = take(
        ("0-123", "passes"), ("52-126", "fails"), ("52-73", "passes"), ("70", "unresolved")
    ).strip.said
    assert said == (
        "Nodes 0 to 123 alone are right, so the fault needs some of nodes 124 to 247.",
        "Nodes 52 to 126 alone are still wrong, so 75 of 248 nodes are left.",
        "Nodes 52 to 73 alone are right, so the fault needs some of nodes 74 to 126.",
        "Node 70: cannot tell.",
    )
    said = take(("3-4", "fails"), ("3", "passes"), ("4", "passes")).strip.said
    assert said[1:] == (
        "Node 3 alone is right, so the fault needs node 4.", "Node 4 alone is right, so the fault needs node 3."
    )  # fmt: skip


@given(st.lists(st.tuples(sets, st.sampled_from(["passes", "fails", "unresolved"])), max_size=12))
def test_the_window_is_the_smallest_part_that_fails(probes: list[tuple[set[int], str]]) -> None:
    strip = take(*((ranges.encode(nodes), outcome) for nodes, outcome in probes), whole=100).strip
    fails = [len(nodes) for nodes, outcome in probes if outcome == "fails" and len(nodes) < 100]
    assert len(strip.suspects) == min(fails, default=0)
    assert all(n in strip.suspects for n, state in enumerate(strip.cells) if state == "wrong")


@given(st.integers(1, 3000), st.integers(1, 200), st.data())
def test_columns_hold_every_suspect(whole: int, width: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, whole - 1))
    last = data.draw(st.integers(first, whole - 1))
    strip = take((f"{first}-{last}", "fails"), whole=whole).strip
    shown = columns(strip, width)
    assert len(shown) == width
    assert set(shown) <= set(STATES)
    marked = where(range(first, last + 1), whole, width)
    assert marked
    assert marked <= set(range(width))
    if last - first + 1 < whole:
        assert marked == {i for i, state in enumerate(shown) if state == "wrong"}, (
            "the line lies below what it names"
        )


def test_nodes_are_named_shortly() -> None:
    assert [name_nodes(ranges.decode(p)) for p in ("7", "52-73", "3,5-9,12", "1,3,5,7-9")] == [
        "node 7", "nodes 52 to 73", "nodes 3, 5 to 9 and 12", "6 nodes from 1 to 9",
    ]  # fmt: skip


@pytest.mark.parametrize("part", ["\N{SUPERSCRIPT TWO}-3", "9" * 5_000, "1-2,x", "-"])
def test_what_is_no_part_of_a_model_is_none(part: str) -> None:
    """A stranger's journal holds any text in its place: digits that are no number, and more of them
    than Python reads."""
    assert not take((part, "fails")).strip.suspects
