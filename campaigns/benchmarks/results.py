"""What benchmarks gave, as lines of JSON, and the page made of it.

    python campaigns/benchmarks/results.py    makes campaigns/benchmarks.md of campaigns/benchmarks.jsonl

Each line is one row of one table, with the day, the machine, the versions and how busy the machine
was. A row that is measured again takes the place of the one of its name. ``campaigns/benchmarks.md`` is
``page.md`` here with the tables put in, and nothing else.
"""

import itertools
import json
import math
import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from metering import machine, versions

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "campaigns" / "benchmarks.jsonl"
TEMPLATE = Path(__file__).with_name("page.md")
PAGE = ROOT / "campaigns" / "benchmarks.md"
_PLACE = re.compile(r"^\{\{ (.+) \}\}$", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """``name``: of the row in its table. ``cells``: as they are printed. ``size``: what a growth is
    measured against, 0 where it is none. ``cpu``: seconds of the processor, for the exponent.
    ``load``: the load average when it was measured, -1 where that was not noted."""

    table: str
    name: str
    head: tuple[str, ...]
    cells: tuple[str, ...]
    size: float = 0.0
    cpu: float = 0.0
    day: str = ""
    where: str = ""
    load: float = -1.0


def say(cell: object) -> str:
    """A number with as many digits as it is worth; a share of nothing is nothing."""
    if isinstance(cell, float):
        return (
            f"{cell:,.0f}"
            if abs(cell) >= 100
            else f"{cell:.1f}"
            if abs(cell) >= 1
            else f"{cell:.2g}"
        )
    return str(cell)


def made(
    table: str,
    name: str,
    head: Sequence[str],
    cells: Sequence[object],
    size: float = 0.0,
    cpu: float = 0.0,
) -> Row:
    """A row that was measured just now."""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    texts = tuple(map(say, cells))
    return Row(
        table,
        name,
        tuple(head),
        texts,
        size,
        cpu,
        day,
        f"{machine()}; {versions()}",
        round(os.getloadavg()[0], 1),
    )


def read(path: Path) -> list[Row]:
    """Raises ValueError for a line that is none of ours."""
    if not path.exists():
        return []
    found = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line)
    return [
        Row(**{**fields, "head": tuple(fields["head"]), "cells": tuple(fields["cells"])})
        for fields in found
    ]


def write(path: Path, rows: Iterable[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(asdict(row), ensure_ascii=False) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def merged(before: Iterable[Row], now: Iterable[Row]) -> list[Row]:
    """Rows measured again take the places of those before; new ones follow."""
    found = {(row.table, row.name): row for row in before}
    return list((found | {(row.table, row.name): row for row in now}).values())


def exponents(rows: Sequence[Row]) -> list[str]:
    """Of each row against the one before it, where both were measured against a size: 1 is
    linear."""
    told = [""]
    for one, two in itertools.pairwise(rows):
        known = min(one.size, two.size, one.cpu, two.cpu) > 0 and two.size > one.size
        told.append(
            f"{math.log(two.cpu / one.cpu) / math.log(two.size / one.size):.2f}" if known else ""
        )
    return told


def table(rows: Sequence[Row]) -> str:
    """Markdown. Below it, when and how busy the machine was, where that was noted."""
    head, grows = list(rows[0].head), any(row.size for row in rows)
    rows = sorted(rows, key=lambda row: row.size)
    cells = [list(row.cells) for row in rows]
    if grows:
        head.append("exponent")
        cells = [[*row, more] for row, more in zip(cells, exponents(rows), strict=True)]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(_line(row) for row in cells)]
    noted = [row for row in rows if row.load >= 0]
    if noted:
        days = sorted({row.day for row in noted})
        loads = sorted(row.load for row in noted)
        busy = f"{loads[0]:.1f}" if loads[0] == loads[-1] else f"{loads[0]:.1f} to {loads[-1]:.1f}"
        wheres = sorted({row.where for row in noted})
        lines += [
            "",
            f"Measured {' and '.join(days)}, load average {busy}: {'; or: '.join(wheres)}.",
        ]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def page(template: str, rows: Sequence[Row]) -> str:
    """The page; tables that have no place in it follow at its end. Raises KeyError for a place that
    nothing was measured for."""
    tables: dict[str, list[Row]] = {}
    for row in rows:
        tables.setdefault(row.table, []).append(row)
    placed = set(_PLACE.findall(template))
    text = _PLACE.sub(lambda place: table(tables[place[1]]), template)
    more = [
        f"\n## {name}\n\n{table(found)}\n" for name, found in tables.items() if name not in placed
    ]
    return "".join([text, *more])


if __name__ == "__main__":
    PAGE.write_text(page(TEMPLATE.read_text(encoding="utf-8"), read(KEPT)), encoding="utf-8")
