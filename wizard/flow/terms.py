"""Term cards: ``flows/terms/<term>.md``, a ``# Title`` line and paragraphs."""

import functools
from collections.abc import Mapping
from importlib.resources import files

import msgspec


class Card(msgspec.Struct, frozen=True):
    """One term explained: what it is, why it matters here, a small picture, where to read on.
    ``body`` is Markdown."""

    term: str
    title: str
    body: str


@functools.cache
def _shipped() -> Mapping[str, Card]:
    """All cards: nobody changes them while the program runs, and a screen asks for all of them at
    once."""
    cards = {}
    for file in (files("narrowdown.flows") / "terms").iterdir():
        if file.name.endswith(".md"):
            term = file.name.removesuffix(".md")
            head, _, body = file.read_text(encoding="utf-8").lstrip().partition("\n")
            cards[term] = Card(term, head.lstrip("# ").strip() or term, body.strip())
    return cards


def known() -> tuple[str, ...]:
    """The terms that have a card."""
    return tuple(sorted(_shipped()))


def card(term: str) -> Card | None:
    """The card of a term; None where there is none."""
    return _shipped().get(term)
