"""Term cards: ``flows/terms/<term>.md``, a ``# Title`` line and paragraphs. A flow of the user may
bring ``terms`` of its own."""

import contextlib
import functools
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import msgspec

from narrowdown.engines.store import regular
from narrowdown.wizard.flow.model import LARGEST, Flow


class Card(msgspec.Struct, frozen=True):
    """One term explained: what it is, why it matters here, a small picture, where to read on.
    ``body`` is Markdown."""

    term: str
    title: str
    body: str


@functools.cache
def _shipped() -> Mapping[str, Card]:
    """All shipped cards: nobody changes them while the program runs, and a screen asks for all of
    them at once."""
    found = (f for f in (files("narrowdown.flows") / "terms").iterdir() if f.name.endswith(".md"))
    cards = (_read(f.name.removesuffix(".md"), f.read_text(encoding="utf-8")) for f in found)
    return {card.term: card for card in cards}


def known(folder: str = "") -> tuple[str, ...]:
    """The terms that have a card: the shipped ones and those in ``folder``/terms."""
    own = {f.stem for f in (Path(folder) / "terms").glob("*.md")} if folder else set()
    return tuple(sorted(_shipped().keys() | own))


def pin(flow: Flow, source: str, target: Path) -> None:
    """Copy the user's own cards of the words that a flow uses into ``target``/terms, so that a
    session keeps them. Raises ``OSError``."""
    for term in {term for node in flow.nodes.values() for term in node.terms}:
        own = _own(term, source)
        if own is not None and own.is_file():
            (target / "terms").mkdir(exist_ok=True)
            (target / "terms" / own.name).write_bytes(regular.read(own, LARGEST, links=False))


def _own(term: str, folder: str) -> Path | None:
    return Path(folder) / "terms" / f"{term}.md" if folder and _is_term(term) else None


def _is_term(term: str) -> bool:
    return bool(term) and all(c.isascii() and (c.isalnum() or c == "-") for c in term)


def card(term: str, folder: str = "") -> Card | None:
    """The card of a term, the user's own first, where that can be read; None where there is none.
    ``term`` never leads out of its folder."""
    if (own := _own(term, folder)) is not None:
        with contextlib.suppress(OSError):
            return _read(term, regular.read(own, LARGEST, links=False).decode("utf-8", "replace"))
    return _shipped().get(term)


def _read(term: str, text: str) -> Card:
    head, _, body = text.lstrip().partition("\n")
    return Card(term, head.lstrip("# ").strip() or term, body.strip())
