"""Figures as tables: on the terminal, and as rows in the file that ``NARROWDOWN_BENCH`` names (JSON
lines)."""

import os
from collections.abc import Sequence
from pathlib import Path

from metering import load, machine, versions
from results import made, merged, read, say, write


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[object]], *below: str) -> None:
    """Print one table, with the machine and the versions, and keep it in the file."""
    cells = [list(map(str, head)), *([say(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    where = f"{machine()}; {versions()}; {load()}."
    text = "\n".join([f"## {title}", "", *lines, "", *below, *([""] if below else []), where, ""])
    print(f"\n{text}", flush=True)
    if target := os.environ.get("NARROWDOWN_BENCH"):
        now = [made(title, str(number), head, row) for number, row in enumerate(rows)]
        write(Path(target), merged((row for row in read(Path(target)) if row.table != title), now))
