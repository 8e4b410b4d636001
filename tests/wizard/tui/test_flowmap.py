"""The flowchart of a flow: every answer has its arrow, lines meet where they lead to, and nothing
is wider than the place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrowdown.wizard.flow.layout import title
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.flow.model import targets
from narrowdown.wizard.session.state import Visit
from narrowdown.wizard.tui.flowmap import Chart, draw_flow
from narrowdown.wizard.tui.glyphs import ASCII, UNICODE, Glyphs

FLOW = load("accuracy").flow
ROUTE = tuple(
    Visit(node=node, visit=1, answer=answer)
    for node, answer in (
        ("reproduce", "yes"),
        ("sanitize", "yes"),
        ("real-inputs", "no"),
        ("intermittent", "no"),
    )
)
HERE = "layerwise"
# Characters that lead up, right, down and left.
UP, RIGHT, DOWN, LEFT = (
    "│┃└┗├┣┠┘┛┤┫┨┴┻┼╂┿╋╵╹",
    "─━┌┏└┗├┣┠┬┳┴┻┼╂┿╋╶╺",
    "│┃┌┏┐┓├┣┠┤┫┨┬┳┼╂┿╋╷╻",
    "─━┐┓┘┛┤┫┨┬┳┴┻┼╂┿╋╴╸",
)


def drawn(width: int, glyphs: Glyphs = UNICODE) -> Chart:
    return draw_flow(FLOW, ROUTE, HERE, width, glyphs)


@given(st.integers(1, 200), st.sampled_from([UNICODE, ASCII]))
def test_it_fits_and_every_place_has_its_row(width: int, glyphs: Glyphs) -> None:
    chart = drawn(width, glyphs)
    assert len(chart.rows) == len(chart.names)
    assert {*chart.at} == {*FLOW.nodes, *FLOW.ends}
    assert all(chart.names[row] == name for name, row in chart.at.items())
    assert max(row.cell_length for row in chart.rows) <= width
    if glyphs is ASCII:
        assert all(row.plain.isascii() for row in chart.rows)


def test_every_answer_is_an_arrow_to_where_it_leads() -> None:
    text = [row.plain for row in drawn(180).rows]
    order = list(FLOW.nodes)
    for name, node in FLOW.nodes.items():
        for answer in node.answers.values():
            for target in targets(answer):
                lines = [
                    line for line in text if answer.text in line and title(FLOW, target) in line
                ]
                straight = (
                    order.index(name) + 1 < len(order) and order[order.index(name) + 1] == target
                )
                assert lines or straight, (name, answer.text, target)


@pytest.mark.parametrize("width", [72, 110, 180])
def test_no_line_ends_in_nothing(width: int) -> None:
    """What a line leads to leads back, or is an arrow's tip, a box or a text."""
    rows = [row.plain.ljust(width) for row in drawn(width).rows]
    for y, row in enumerate(rows):
        for x, c in enumerate(row):
            below = rows[y + 1][x] if y + 1 < len(rows) else " "
            beside = row[x + 1] if x + 1 < width else " "
            if c in DOWN and below not in UP:
                assert below in "▼" or below.isalnum(), (y, x, row)
            if c in RIGHT and beside not in LEFT:
                assert beside in "▶ ", (y, x, row)


def test_the_way_that_was_walked_is_heavy_from_box_to_box() -> None:
    chart = drawn(110)
    assert "▶ Compare layer by layer" in chart.rows[chart.at[HERE]].plain
    assert "you are here" in chart.rows[chart.at[HERE]].plain
    text = [row.plain for row in chart.rows]
    (jump,) = [line for line in text if "✓ Yes, it fails here" in line]
    assert "┏━" in jump  # it turns into its lane, across those of other answers
    straight = [i for i, line in enumerate(text) if "▼ ✓" in line]
    assert [chart.names[i] for i in straight] == ["sanitize", "real-inputs"]
    assert all("┏━━" in text[i + 1] for i in straight)  # into a box that was visited
    unvisited = text[chart.at["reduce"]]
    assert "│   Reduce the model" in unvisited
    ended = draw_flow(FLOW, ROUTE[:1], "not-reproduced", 110, UNICODE)
    assert not [
        row for row in ended.rows if "you are here" in row.plain
    ]  # that answer leads elsewhere
    told = draw_flow(
        FLOW, (Visit(node="reproduce", visit=1, answer="no"),), "not-reproduced", 110, UNICODE
    )
    assert len([row for row in told.rows if "▶ you are here" in row.plain]) == 1
