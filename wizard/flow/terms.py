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
    found = (f for f in (files("narrowdown.flows") / "terms").iterdir() if f.name.endswith(".md"))
    cards = (_read(f.name.removesuffix(".md"), f.read_text(encoding="utf-8")) for f in found)
    return {card.term: card for card in cards}


def known() -> tuple[str, ...]:
    """The terms that have a card."""
    return tuple(sorted(_shipped()))


def card(term: str) -> Card | None:
    """The card of a term; None where there is none."""
    return _shipped().get(term)


def _read(term: str, text: str) -> Card:
    head, _, body = text.lstrip().partition("\n")
    return Card(term, head.lstrip("# ").strip() or term, body.strip())
