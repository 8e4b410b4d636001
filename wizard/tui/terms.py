"""The words that a flow uses, explained: ``flows/terms/*.md``, a title line and paragraphs."""

from collections.abc import Iterable
from importlib.resources import files


def known() -> tuple[str, ...]:
    """The ids of all terms."""
    folder = files("flows") / "terms"
    return tuple(sorted(item.name.removesuffix(".md") for item in folder.iterdir() if item.name.endswith(".md")))


def read(names: Iterable[str]) -> list[tuple[str, str]]:
    """(title, text) of each term that exists."""
    found = []
    for name in names:
        item = files("flows") / "terms" / f"{name}.md"
        if item.is_file():
            head, _, body = item.read_text(encoding="utf-8").lstrip().partition("\n")
            found.append((head.lstrip("# ").strip() or name, body.strip()))
    return found
