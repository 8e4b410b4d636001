"""What is laid over a graph: each node once, by a key that the viewers know, with the colours of
what it is."""

import json

from narrowdown.engines.findings import Case, Culprit, Findings
from narrowdown.engines.probe import HUGE, Candidate
from narrowdown.wizard.report.overlay import (
    CULPRIT,
    FAR,
    FINE,
    OVER,
    draw_neighbourhood,
    list_overlaid,
    write_node_data,
)
from narrowdown.wizard.report.vicinity import Spot, Vicinity
from narrowdown.wizard.session.state import State, Visit

ROWS = [
    {"name": "a", "node": "/first", "error": 1e-6, "inherited": 0.0, "added": 1e-6},
    {"name": "b", "node": "/split", "error": 0.001},
    {"name": "c", "node": "/split", "error": 0.2, "inherited": 0.1, "added": 0.15},
    {"name": "d", "node": "Relu:d", "error": 5.0},
    {"name": "e", "node": "/lost", "error": None},
]
CASE = Case(Candidate(), "real:0", nodes=("/split", "/unseen"))


def state() -> State:
    return State(
        route=(
            Visit(
                "layerwise",
                tables={"tensors": "t"},
                findings=Findings(culprits=(Culprit(CASE, "overflow"),)),
            ),
        )
    )


def test_each_node_is_there_once_with_its_worst_output() -> None:
    rows = {r.node or r.tensor: r for r in list_overlaid(state(), lambda _: ROWS)}
    assert list(rows) == ["/first", "/split", "d", "/lost", "/unseen"]
    assert (rows["/split"].error, rows["/split"].culprit) == (0.2, True)
    assert rows["d"].node == "", "it has no name of its own"
    assert rows["/unseen"].culprit, "a culprit that was not watched is shown, too"


def test_node_data_says_what_is_over_and_who_is_to_blame() -> None:
    rows = list_overlaid(state(), lambda _: [*ROWS, {"name": "z", "node": "/nan", "error": 1e308}])
    data = json.loads(write_node_data(rows, 0.01, "rel_l2"))
    assert {name: one["value"] for name, one in data["results"].items()} == {
        "/first": 1e-6, "/split": 0.2, "d": 5.0, "/unseen": 0.01, "/nan": HUGE,
    }  # fmt: skip
    assert {name for name, one in data["results"].items() if one.get("bgColor") == CULPRIT} == {
        "/split",
        "/unseen",
    }
    assert [t["bgColor"] for t in data["thresholds"]] == [FINE, OVER, FAR]
    assert [t["value"] for t in data["thresholds"]] == [0.01, 0.1, HUGE]
    assert "rel_l2" in data["name"]


def test_the_picture_stands_by_itself() -> None:
    spots = (
        Spot(op="Neg", name="<n>&", reads=(), suspect=True),
        Spot(op="Relu", name="r", reads=(0,), suspect=False),
    )
    drawn = draw_neighbourhood(Vicinity(spots=spots))
    assert drawn.startswith("<svg")
    assert 'xmlns="http://www.w3.org/2000/svg"' in drawn
    assert "<style>" in drawn
    assert "<n>" not in drawn
    assert draw_neighbourhood(Vicinity()) == ""
