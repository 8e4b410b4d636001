"""Pictures as text: error by depth, the probes of a search, error that arrives against error that
is added, k of n with its interval, and the neighbourhood of the suspect.

Pure functions: data, a width in cells and a glyph set give rows that are never wider. Every picture
says in words what its glyphs stand for and reads without colour; in the ASCII set it is ASCII.
"""

import math
from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from textual.content import Content

from narrowdown.wizard.report.document import Look
from narrowdown.wizard.report.figures import CEILING, FLOOR, log_error, log_sizes, resample
from narrowdown.wizard.report.strip import MEANING, STATES, Span, Strip, columns, over_time, where
from narrowdown.wizard.report.vicinity import Vicinity
from narrowdown.wizard.tui.glyphs import Glyphs
from narrowdown.wizard.tui.literal import clean, elide, fit, join_contents
from narrowdown.wizard.words import count, show_error

Part = tuple[str, str]


def _row(parts: Sequence[Part], width: int, mark: str) -> Content:
    """A row of styled pieces, cut with ``mark`` where it is too long."""
    found = join_contents(parts)
    return (
        found
        if found.cell_length <= width
        else join_contents([(elide(found.plain, width, mark), parts[0][1])])
    )


def _wrap_caption(text: str, width: int) -> list[Content]:
    """A sentence below a picture, wrapped."""
    return list(join_contents([(text, "$quiet")]).wrap(max(1, width)))


def depth(
    logs: Sequence[float],
    width: int,
    glyphs: Glyphs,
    *,
    height: int = 5,
    tolerance: float | None = None,
    here: int = -1,
    metric: str = "",
) -> list[Content]:
    """Error by depth: ``logs`` are log10 of the error of each tensor (or bin), first to last; the
    worst of each column shows.

    ``height``: rows of bars. ``tolerance``: drawn as a line. ``here``: index in ``logs`` of the
    culprit, marked below. Nothing for fewer than two values.
    """
    values = [min(CEILING, max(FLOOR, value)) for value in logs if math.isfinite(value)]
    side = 10 if metric == "rel_l2" else 7  # "0.000001 %", "   1e-6"
    room = width - side - 1
    if len(values) < 2 or room < 4 or height < 1:
        return []
    wide = max(1, min(4, room // len(values)))  # cells of one value, where there are few
    values = [value for value in values for _ in range(wide)]
    here = here * wide if here >= 0 else -1
    points = resample(values, room)
    limit = None if tolerance is None else log_error(tolerance)
    marks = [*points, *([] if limit is None else [limit])]
    low = math.floor(min(marks))
    step = max(
        1, math.ceil((max(marks) - low) / height)
    )  # decades a row, so that every label is a power of ten
    height = min(height, max(1, math.ceil((max(marks) - low + 1e-9) / step)))
    told = f"error by depth, first node to last; each row up is {10**step:,} times as much"
    rows = [_row([(elide(told, width, glyphs.ellipsis), "$quiet")], width, "")]
    for line in range(height - 1, -1, -1):
        floor, ceiling = low + line * step, low + (line + 1) * step
        at_limit = limit is not None and (
            floor <= limit < ceiling or (line == height - 1 and limit >= ceiling)
        )
        name = (
            "allowed"
            if at_limit
            else show_error(10.0**floor, metric)
            if metric == "rel_l2"
            else f"1e{floor:.0f}"
        )
        parts: list[Part] = [
            (f"{name:>{side}}", "bold" if at_limit else "$quiet"),
            (glyphs.line, "$quiet"),
        ]
        for value in points:
            if value >= ceiling:
                cell = glyphs.full
            elif value > floor or (line == 0):
                share = (value - floor) / step
                cell = glyphs.levels[
                    max(0, min(len(glyphs.levels) - 1, int(share * len(glyphs.levels))))
                ]
            else:
                cell = glyphs.between if at_limit else " "
            over = limit is not None and value > limit
            parts.append(
                (cell, "bold" if cell == glyphs.between else "$fails" if over else "$passes")
            )
        rows.append(join_contents(parts))
    foot = [" "] * len(points)
    if 0 <= here < len(values):
        foot[min(len(points) - 1, here * len(points) // len(values))] = glyphs.up
        rows.append(_row([(" " * (side + 1), ""), ("".join(foot), "bold $fails")], width, ""))
        rows.append(
            _row(
                [(" " * (side + 1) + f"{glyphs.up} the suspect", "$quiet")], width, glyphs.ellipsis
            )
        )
    return rows


def history(
    looks: Sequence[Look], width: int, glyphs: Glyphs, whole: int = 0, total: int = 0
) -> list[Content]:
    """The probes of a search in order: a bar for the size of each part (log scale, from 1 node to
    ``whole``), its verdict below. The last ones where there are more than fit; ``total`` counts
    those of before too."""
    if not looks or width < 12:
        return []
    room = width - 9
    shown = looks[-room:]
    marks = {
        "passes": glyphs.passes,
        "fails": glyphs.fails,
        "unresolved": glyphs.unresolved,
        "running": glyphs.running,
    }
    marks["done"] = glyphs.dot
    styles = {"passes": "$passes", "fails": "$fails", "unresolved": "$unsure"}
    sizes = "".join(
        glyphs.levels[round(share * (len(glyphs.levels) - 1))] if share else " "
        for share in log_sizes(shown, whole)
    )
    rows = []
    total = max(total, len(looks))
    if len(shown) < total:
        rows.append(
            _row(
                [(f"the last {len(shown)} of {count(total, 'probe')}", "$quiet")],
                width,
                glyphs.ellipsis,
            )
        )
    if sizes.strip():
        rows.append(join_contents([(f"{'nodes':<9}", "$quiet"), (sizes, "")]))
    rows.append(
        join_contents([
            (f"{'verdict':<9}", "$quiet"),
            *((marks.get(look.state, glyphs.dot), styles.get(look.state, "$quiet")) for look in shown),
        ])
    )  # fmt: skip
    known = [
        (word, sum(look.state == state for look in looks))
        for state, word in (
            ("passes", "passes"),
            ("fails", "fails"),
            ("unresolved", "cannot tell"),
            ("running", "running"),
            ("done", "without a verdict"),
        )
    ]
    told = ", ".join(
        f"{marks[state]} {n} {word}" for (word, n), state in zip(known, marks, strict=True) if n
    )
    if told:
        rows += [join_contents([(" " * 9, "")]) + row for row in _wrap_caption(told, width - 9)]
    return rows


def strip(model: Strip, trying: Sequence[Span], width: int, glyphs: Glyphs) -> list[Content]:
    """The model as a strip of cells, first node to last; below it the smallest part that fails and
    the part that is tried now, and what the cells mean. Nothing before a part was tried."""
    if width < 12 or not (model.said or trying):
        return []
    wide = model.whole * max(1, min(4, width // model.whole)) if model.whole <= width else width
    marks = dict(zip(STATES, glyphs.cells, strict=True))
    shown = columns(model, wide)
    rows = [join_contents([(marks[state], _CELLS[state]) for state in shown])]
    for spans, name, style in (
        (model.suspects, "suspects", "bold $fails"),
        (tuple(trying), "trying now", ""),
    ):
        if spans:
            rows.append(
                _span_row(where(spans, model.whole, wide), name, style, max(wide, width), glyphs)
            )
    there = [state for state in STATES if state in shown]
    parts: list[Part] = []
    for state in there:
        parts += [(marks[state], _CELLS[state]), (f" {MEANING[state]}   ", "$quiet")]
    told = (
        f"{glyphs.cells[0]} is about {count(round(model.whole / len(shown)), 'node')}"
        if len(shown) < model.whole
        else ""
    )
    if told and sum(cell_len(text) for text, _ in parts) + cell_len(told) <= width:
        parts.append((told, "$quiet"))
    return [*rows, *join_contents(parts).wrap(width)]


_CELLS = {
    "wrong": "$fails",
    "cannot tell": "$unsure",
    "right": "$passes",
    "not needed": "$quiet",
    "not asked": "$quiet",
}


def _span_row(inside: frozenset[int], name: str, style: str, width: int, glyphs: Glyphs) -> Content:
    """A line below the columns that are meant, and its name beside it."""
    line = "".join(glyphs.across if column in inside else " " for column in range(max(inside) + 1))
    if len(line) + 1 + len(name) <= width:
        return join_contents([(line + " " + name, style)])
    before = min(inside) - 1 - len(name)
    if before >= 0:
        return join_contents([(" " * before + name + " " + line.lstrip(), style)])
    return join_contents(
        [(f"{name} {line[len(name) + 1 :]}"[:width], style)]
    )  # no room beside it: over its beginning


def shrinking(
    best: Sequence[tuple[int, float]],
    whole: int,
    began: float,
    now: float,
    width: int,
    glyphs: Glyphs,
    height: int = 1,
) -> list[Content]:
    """Nodes of the smallest part that fails, over the time of the search: as tall as the part is
    large."""
    if width < 12 or whole <= 0:
        return []
    values = over_time(best, whole, began, now, width)
    levels, rows = len(glyphs.levels), []
    for line in range(height - 1, -1, -1):
        filled = [
            min(levels, max(0, math.ceil(value / whole * height * levels) - line * levels))
            for value in values
        ]
        rows.append(
            join_contents([("".join(glyphs.levels[n - 1] if n else " " for n in filled), "$fails")])
        )
    left, right = count(whole, "node"), f"{values[-1]:,} now"
    gap = width - cell_len(left) - cell_len(right)
    return [
        *rows,
        join_contents([(left + " " * gap + right, "$quiet")] if gap > 0 else [(right, "$quiet")]),
    ]


def bars(
    rows: Sequence[tuple[str, float | None]],
    width: int,
    glyphs: Glyphs,
    allowed: float | None = None,
    metric: str = "",
) -> list[Content]:
    """Errors as bars on one log scale, the tolerance among them: what arrives at a node against
    what it adds. ``None``: "?"."""
    drawn = [*rows, *([("allowed", allowed)] if allowed else [])]
    known = [log_error(value) for _, value in drawn if value is not None and value > 0]
    if not known or width < 20:
        return []
    labels = min(max(cell_len(clean(label)) for label, _ in drawn), max(4, (width - 14) // 2))
    room = width - labels - 2 - 12
    low, high = math.floor(min(known)) - 1, max(known)
    found = []
    for label, value in drawn:
        text = show_error(value, metric)
        size = (
            0
            if value is None or value <= 0 or room < 3
            else round((log_error(value) - low) / (high - low) * room)
        )
        over = allowed is not None and value is not None and value > allowed
        glyph, style = (
            (glyphs.between, "bold")
            if label == "allowed"
            else (glyphs.full, "$fails" if over else "$passes")
        )
        found.append(
            join_contents([
                (fit(label, labels, glyphs.ellipsis) + "  ", "$quiet"),
                (fit(text, 12, glyphs.ellipsis), "bold" if over else ""),
                (glyph * size, style),
            ])
        )  # fmt: skip
    return found


def interval(k: int, n: int, low: float, high: float, width: int, glyphs: Glyphs) -> list[Content]:
    """k of n with its 95 % interval on a line from 0 to 100 %. Nothing below two looks: one says
    nothing of how often."""
    if n < 2 or not 0 <= low <= high <= 1:
        return []
    left, right = "0 % ", " 100 %"
    room = max(3, width - len(left) - len(right))
    at = [
        min(room - 1, max(0, round(share * (room - 1))))
        for share in (low, min(1.0, max(0.0, k / n)), high)
    ]
    cells = [glyphs.between] * room
    for i in range(at[0], at[2] + 1):
        cells[i] = glyphs.full
    cells[at[1]] = glyphs.mark
    line = "".join(cells)
    rows = _wrap_caption(
        f"{k} of {n} failed: the true rate is {100 * low:.0f} % to {100 * high:.0f} %, with 95 % confidence",
        width,
    )
    if width >= len(left) + len(right) + 3:
        a, b = at[0], at[2] + 1
        rows.append(
            join_contents(
                [
                    (left, "$quiet"),
                    (line[:a], "$quiet"),
                    (line[a:b], "$fails"),
                    (line[b:], "$quiet"),
                    (right, "$quiet"),
                ]
            )
        )
    return rows


def graph(place: Vicinity, width: int, glyphs: Glyphs) -> list[Content]:
    """The neighbourhood drawn: one row a node, edges in columns at the left; a node right below
    another in the same column reads it. The suspects carry a mark and the word."""
    if not place.spots or width < 20:
        return []
    gutters = _gutters(
        [spot.reads for spot in place.spots], glyphs, [spot.suspect for spot in place.spots]
    )
    wide = min(max(map(len, gutters)), max(4, width // 3))
    column = min(max(cell_len(clean(spot.op)) for spot in place.spots), max(6, width // 4))
    rows = []
    if place.before:
        rows.append(
            _row(
                [(f"{glyphs.ellipsis} {count(place.before, 'node')} before", "$quiet")],
                width,
                glyphs.ellipsis,
            )
        )
    for spot, gutter in zip(place.spots, gutters, strict=True):
        word = "  suspect" if spot.suspect else ""
        note = f"  {clean(spot.note)}" if spot.note else ""
        room = max(4, width - wide - column - 3 - len(word))
        name = elide(
            spot.name or "(no name)", max(4, room - min(cell_len(note), room // 2)), glyphs.ellipsis
        )
        style = "bold $fails" if spot.suspect else ""
        rows.append(
            _row(
                [
                    (fit(gutter, wide, glyphs.ellipsis) + " ", style or "$quiet"),
                    (fit(spot.op, column, glyphs.ellipsis) + "  ", style),
                    (name, style),
                    (word, "bold $fails"),
                    (
                        elide(
                            note,
                            max(0, width - wide - column - 3 - cell_len(name) - len(word)),
                            glyphs.ellipsis,
                        ),
                        "$quiet",
                    ),
                ],
                width,
                glyphs.ellipsis,
            )
        )
    if place.way:
        ops = [clean(op) for op in place.way]
        ops = ops if len(ops) <= 5 else [*ops[:3], glyphs.ellipsis, ops[-1]]
        way = f" {glyphs.arrow} ".join([*ops, clean(place.output)])
        rows += _wrap_caption(
            f"{glyphs.ellipsis} {count(place.after, 'node')} on; shortest way out: {way}", width
        )
    elif place.after:
        rows.append(
            _row(
                [(f"{glyphs.ellipsis} {count(place.after, 'node')} on", "$quiet")],
                width,
                glyphs.ellipsis,
            )
        )
    return rows


def _gutters(reads: Sequence[Sequence[int]], glyphs: Glyphs, marked: Sequence[bool]) -> list[str]:
    """The edge columns of each row. A column carries one node's values until its last reader; a
    node takes the column of an input that ends with it, else a new one that the row before did not
    use."""
    last: dict[int, int] = {}
    for reader, sources in enumerate(reads):
        for source in sources:
            last[source] = max(last.get(source, 0), reader)
    column: dict[int, int] = {}  # open source -> its column
    before: set[int] = set()
    rows = []
    for at, sources in enumerate(reads):
        mine = sorted(column[s] for s in sources if s in column)
        ending = sorted(column[s] for s in sources if s in column and last[s] == at)
        taken = set(column.values())
        own = (
            ending[0]
            if ending
            else next(c for c in range(len(reads) + 1) if c not in taken and c not in before)
        )
        span = range(min([own, *mine]), max([own, *mine]) + 1)
        cells = []
        for c in range(max([own, *taken], default=0) + 1):
            run = glyphs.across if c in span and c + 1 in span else " "
            if c == own:
                mark = glyphs.here if marked[at] else glyphs.node
            elif c in mine:
                mark = (glyphs.close if c in ending else glyphs.right) if c > own else glyphs.left
            elif c in taken:
                mark = glyphs.cross if c in span else glyphs.line
            else:
                mark = glyphs.across if c in span else " "
            cells.append(mark + run)
        rows.append("".join(cells).rstrip())
        column = {s: c for s, c in column.items() if last[s] > at}
        before = {own}
        if last.get(at, 0) > at:
            column[at] = own
    return rows


def outcome_looks(outcome: Mapping[str, object]) -> tuple[int, int, float, float] | None:
    """(k, n, low, high) of an outcome that counted failures, whatever step it came from; None for
    any other."""
    k, low, high = (
        outcome.get("failures"),
        outcome.get("interval_low"),
        outcome.get("interval_high"),
    )
    of_one_build = outcome.get("behaviour") == "same-engine" or (
        outcome.get("builds") == 1 and outcome.get("runs")
    )
    n = next(
        (
            outcome[name]
            for name in (("runs",) if of_one_build else ("builds", "looks", "runs"))
            if outcome.get(name)
        ),
        0,
    )
    if (
        isinstance(k, int)
        and isinstance(n, int)
        and isinstance(low, int | float)
        and isinstance(high, int | float)
        and n
    ):
        return (k, n, float(low), float(high)) if k <= n else None
    return None
