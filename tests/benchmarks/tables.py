"""Figures as tables: on the terminal, and in the file that ``NARROWDOWN_BENCH`` names."""

import os
from collections.abc import Sequence
from pathlib import Path

from metering import load, machine, versions


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[object]], *below: str) -> None:
    """Print one table, with the machine and the versions, and append it to the file."""
    cells = [list(map(str, head)), *([_say(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    where = f"{machine()}; {versions()}; {load()}."
    text = "\n".join([f"## {title}", "", *lines, "", *below, *([""] if below else []), where, ""])
    print(f"\n{text}", flush=True)
    if target := os.environ.get("NARROWDOWN_BENCH"):
        with Path(target).open("a") as file:
            file.write(text + "\n")


def _say(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:.0f}" if abs(cell) >= 100 else f"{cell:.1f}" if abs(cell) >= 1 else f"{cell:.3g}"
    return str(cell)
