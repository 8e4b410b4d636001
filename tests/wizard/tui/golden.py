"""Text goldens: a screen as plain lines, compared with a file. ``NARROWDOWN_GOLDEN=update`` writes
the files anew."""

import difflib
import os
from pathlib import Path

from textual.app import App

FOLDER = Path(__file__).parent / "goldens"


def text_of(app: App[int]) -> str:
    """What the terminal shows now, one line a row, blanks at line ends cut."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"


def check(name: str, found: str) -> None:
    file = FOLDER / f"{name}.txt"
    if os.environ.get("NARROWDOWN_GOLDEN") == "update":
        FOLDER.mkdir(exist_ok=True)
        file.write_text(found, encoding="utf-8")
    assert file.exists(), f"there is no golden {file}; NARROWDOWN_GOLDEN=update writes it"
    expected = file.read_text(encoding="utf-8")
    assert found == expected, "\n".join(
        difflib.unified_diff(expected.splitlines(), found.splitlines(), lineterm="")
    )
