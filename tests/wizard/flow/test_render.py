"""Drawings of flows: complete, safe with any title, and within the terminal."""

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings, strategies as st

from narrowdown.wizard.flow import render
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
    assert texts == [line for line in render.text(ACCURACY).splitlines() if line]
    assert "prefers-color-scheme: dark" in drawn
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\((?!#)|@import|<script", drawn)
    assert (root.get("role"), root.get("aria-label")) == ("img", ACCURACY.title)


def test_an_empty_flow_can_be_drawn() -> None:
    empty = Flow(schema=1, id="empty", title="Empty", start="", nodes={}, ends={})
    assert ET.fromstring(render.svg(empty)).tag == SVG + "svg"
    assert render.mermaid(empty) == "flowchart TD\n"
    assert render.text(empty).startswith("Empty\n")


@pytest.mark.parametrize("draw", [render.text, render.mermaid, render.svg])
def test_drawing_twice_gives_the_same(draw: object) -> None:
    assert draw(ACCURACY) == draw(load("accuracy").flow)  # type: ignore[operator]
