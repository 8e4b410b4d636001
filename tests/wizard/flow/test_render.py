"""Drawings of flows: complete, safe with any title, and within the terminal."""

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from narrowdown.wizard.flow import render
from narrowdown.wizard.flow.layout import arrange
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.flow.model import Answer, Detour, End, Flow, FlowNode, targets

ACCURACY = load("accuracy").flow
SVG = "{http://www.w3.org/2000/svg}"


def hostile(words: str) -> Flow:
    node = FlowNode(
        title=words,
        explain=words,
        ask=words,
        answers={
            "yes": Answer(
                text=words, goto="b", when={"a": 1}, detour=Detour(when={"a": 2}, goto="a")
            ),
            "no": Answer(text=words, goto="done"),
        },
        max_visits=2,
        limit="done",
    )
    return Flow(
        schema=1,
        id="hostile",
        title=words,
        start="a",
        nodes={"a": node, "b": node},
        ends={"done": End(title=words, explain=words, verdict="unresolved")},
        explain=words,
    )


WORDS = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [
            "",
            "</svg><script>alert(1)</script>",
            "]]>",
            "&amp; &#0;",
            '"]; click n0 href "x"',
            "%% comment",
            "a\nb\x00\x1b[31m",
            "\ud800",
        ]
    ),
)


def test_text_is_whole_and_fits_a_terminal() -> None:
    drawn = render.text(ACCURACY)
    assert max(len(line) for line in drawn.splitlines()) <= 80
    for name, node in ACCURACY.nodes.items():
        assert f"\n{name}: {node.title} [" in drawn
        for id_, answer in node.answers.items():
            assert re.search(rf"[├└]─ {id_} +{re.escape(answer.text.split()[0])}", drawn)
    for name, end in ACCURACY.ends.items():
        assert f"■ {name}  " in drawn
        assert end.title.split()[0] in drawn
    assert "→ layerwise, or by rule → tactics" in drawn


@given(WORDS)
def test_text_with_any_words(words: str) -> None:
    drawn = render.text(hostile(words))
    assert all(len(line) <= 80 for line in drawn.split("\n"))
    assert "\x1b" not in drawn


@given(WORDS)
def test_mermaid_with_any_words(words: str) -> None:
    lines = render.mermaid(hostile(words)).splitlines()
    assert lines[0] == "flowchart TD"
    shape = re.compile(
        r'  (n\d+\["[^"\[\]<>{}|&\\`]*"\]|n\d+\(\["[^"\[\]<>{}|&\\`]*"\]\)|n\d+ -->\|"[^"|<>]*"\| n\d+)'
    )
    assert all(shape.fullmatch(line) for line in lines[1:]), lines
    assert len(lines) == 1 + 3 + 6  # two nodes, an end, and three arrows from each node


def test_mermaid_of_the_accuracy_flow() -> None:
    drawn = render.mermaid(ACCURACY)
    assert '  n0["Does it fail here?"]\n' in drawn
    ways = {
        (n, t)
        for n, node in ACCURACY.nodes.items()
        for a in node.answers.values()
        for t in targets(a)
    }
    assert drawn.count("-->") == len(ways)


@given(WORDS)
@settings(max_examples=40)
def test_svg_is_well_formed_with_any_words(words: str) -> None:
    root = ET.fromstring(render.svg(hostile(words)))
    assert {e.tag for e in root.iter()} <= {
        SVG + n for n in ("svg", "title", "style", "rect", "text")
    }
    assert not [k for e in root.iter() for k in e.attrib if k.startswith("on") or "href" in k]


def test_svg_of_the_accuracy_flow_stands_alone() -> None:
    drawn = render.svg(ACCURACY)
    root = ET.fromstring(drawn)
    texts = [e.text or "" for e in root.iter(SVG + "text")]
    assert [text.rstrip() for text in texts] == render.text(ACCURACY).splitlines()
    assert "prefers-color-scheme: dark" in drawn
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\((?!#)|@import|<script", drawn)
    assert (root.get("role"), root.get("aria-labelledby")) == ("img", "title")


def test_every_arrow_has_a_row_of_its_own_and_lanes_of_jumps_that_meet_are_apart() -> None:
    check_layout(ACCURACY)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25, unique=True))
@settings(max_examples=60)
def test_any_graph_can_be_placed(pairs: list[tuple[int, int]]) -> None:
    nodes = {
        str(i): FlowNode(
            title=f"{i}",
            explain="",
            ask="",
            answers={f"to-{b}": Answer(text="", goto=str(b)) for a, b in pairs if a == i},
        )
        for i in range(8)
    }
    ends = {str(i): End(title=f"{i}", explain="", verdict="unresolved") for i in (8, 9)}
    flow = Flow(schema=1, id="any", title="", start="0", nodes=nodes, ends=ends)
    check_layout(flow)
    assert ET.fromstring(render.svg(flow)).tag == SVG + "svg"


def check_layout(flow: Flow) -> None:
    placed = arrange(flow, (), "")
    assert set(placed.at) == {*flow.nodes, *flow.ends}
    boxes = {row for name in flow.nodes for row in range(placed.at[name] - 1, placed.at[name] + 2)}
    rows = [way.row for way in placed.ways]
    assert len(boxes) == 3 * len(flow.nodes)
    assert len({*rows, *boxes}) == len(rows) + len(boxes) == len(placed.names) - len(placed.loose)
    assert {
        (n, t) for n, node in flow.nodes.items() for a in node.answers.values() for t in targets(a)
    } <= {(way.source, way.target) for way in placed.ways}
    jumps: dict[str, list[int]] = {}
    for way in placed.ways:
        if way.target in placed.lanes and not way.straight:
            jumps.setdefault(way.target, [placed.at[way.target]]).append(way.row)
    assert jumps.keys() == placed.lanes.keys()
    spans = [(min(rows), max(rows), placed.lanes[target]) for target, rows in jumps.items()]
    assert not [
        1
        for i, (a, b, lane) in enumerate(spans)
        for c, d, other in spans[:i]
        if lane == other and a <= d and c <= b
    ]


def test_an_empty_flow_can_be_drawn() -> None:
    empty = Flow(schema=1, id="empty", title="Empty", start="", nodes={}, ends={})
    assert ET.fromstring(render.svg(empty)).tag == SVG + "svg"
    assert render.mermaid(empty) == "flowchart TD\n"
    assert render.text(empty).startswith("Empty\n")


@pytest.mark.parametrize("draw", [render.text, render.mermaid, render.svg])
def test_drawing_twice_gives_the_same(draw: object) -> None:
    assert draw(ACCURACY) == draw(load("accuracy").flow)  # type: ignore[operator]
