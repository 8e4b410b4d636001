"""Every card of flows/terms can be read by a newcomer in a terminal, and leads to cards that
exist."""

import re

import pytest

from narrowdown.wizard.flow.load import load, shipped
from narrowdown.wizard.flow.terms import card, known


@pytest.mark.parametrize("term", known())
def test_each_card_is_whole(term: str) -> None:
    made = card(term)
    assert made is not None
    assert made.title
    assert len(made.title) <= 40
    paragraphs = made.body.split("\n\n")
    assert 3 <= len(paragraphs) <= 8
    prose = [p for p in paragraphs[:-1] if not p.startswith("    ")]
    assert prose[:1] == paragraphs[:1], "first, what it is"
    assert len(prose[0]) <= 240
    assert len(prose) >= 2, "then why it matters here"
    assert sum(map(len, prose[1:])) >= 100
    assert any(line.startswith("    ") for line in made.body.splitlines()), (
        "a card has a small picture"
    )
    assert paragraphs[-1].startswith("Read on: ")
    lines = made.body.splitlines()
    assert max(map(len, lines)) <= 135
    assert max(len(line) for line in lines if line.startswith("    ")) <= 74, (
        "the picture fits a card of 80 columns"
    )


@pytest.mark.parametrize("term", known())
def test_read_on_names_cards_that_exist(term: str) -> None:
    made = card(term)
    assert made is not None
    titles = {c.title.lower() for c in map(card, known()) if c}
    last = made.body.split("\n\n")[-1].replace("\n", " ")
    named = re.search(r"the terms? ((?:\"[^\"]+\"(?:, | and )?)+)", last)
    for name in re.findall(r'"([^"]+)"', named[1]) if named else []:
        wanted = name.lower()
        assert wanted.replace(" ", "-") in known() or any(wanted in t for t in titles), (
            f"{term} sends its reader to '{name}'"
        )


def test_every_card_is_used_by_a_flow() -> None:
    used = {t for name in shipped() for node in load(name).flow.nodes.values() for t in node.terms}
    assert set(known()) == used


@pytest.mark.parametrize(
    "term", ["", "no-such", "../accuracy", "/etc/passwd", "a/b", "a\x00b", "..", "."]
)
def test_names_that_are_no_cards(term: str) -> None:
    assert card(term) is None
