"""The report's pictures, each one self-contained SVG element whose colours come from the page's CSS
classes, and error by depth as one line of text. An empty text where there is nothing to draw. Every
name goes through ``escape``."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from narrowdown.engines.compare.say import say_percent
from narrowdown.engines.compare.values import Values
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import HUGE
from narrowdown.wizard.report.document import Depth, Look, Report, Search
from narrowdown.wizard.report.figures import CEILING, FLOOR, draw_bars, log_error
from narrowdown.wizard.report.lost import has_place, say_values_apart, say_values_lost
from narrowdown.wizard.report.prefix import tell_apart
from narrowdown.wizard.report.probe_words import WORDS
from narrowdown.wizard.report.strip import (
    MEANING,
    Span,
    Trail,
    columns,
    name_nodes,
    nodes_of,
    parse,
)
from narrowdown.wizard.report.vicinity import Vicinity
from narrowdown.wizard.words import count, elide, number, show_error, visible

WIDTH, HEIGHT, LEFT, BOTTOM = 720, 180, 50, 18
NARROW = (
    350  # units of a picture on a telephone, which shows it unscaled: nobody has to scroll sideways
)
BLOCKS = "▁▂▃▄▅▆▇█"
MOST = 240  # probes of a search that are drawn, the last ones
COLUMNS = 240  # of error by depth: 2.7 units each


class Bar(NamedTuple):
    """One column of error by depth: the tensor that it shows, and how many others share it."""

    worst: Depth
    others: int
    bad: bool


def bars_by_depth(points: Sequence[Depth]) -> list[Bar]:
    """The columns, first tensor to last: of those that share one the worst, a culprit before any
    other."""
    size = max(1, math.ceil(len(points) / COLUMNS))
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return [
        Bar(
            max(group, key=lambda p: (p.culprit > 0, p.error)),
            len(group) - 1,
            any(p.bad for p in group),
        )
        for group in groups
    ]


def error_by_depth(
    points: Sequence[Depth],
    tolerance: float | None,
    metric: str = "",
    width: int = WIDTH,
) -> str:
    """A bar a tensor or a bucket of tensors, log scale, the tolerance as a line, each culprit
    marked below. A click on a bar goes to ``#tensor-N-I``, which holds its numbers; ``number_``
    tells apart the pictures of one page."""
    if not points:
        return ""
    shown = bars_by_depth(points)
    left = 78  # units: room for "0.000001 %"
    wide = (width - left) / len(shown)
    bars = []
    for i, bar in enumerate(shown):
        top = level(bar.worst.error)
        title = visible(
            elide(f"{bar.worst.name} ({bar.worst.op}): {show_error(bar.worst.error, metric)}", 300)
        )
        bars.append(
            f'<g><rect class="hit" x="{left + i * wide:.2f}" y="0" width="{wide:.2f}" height="{HEIGHT - BOTTOM}"/>'
            f'<rect class="{"bad" if bar.bad else "good"}" x="{left + i * wide:.2f}" y="{top:.2f}" '
            f'width="{max(wide - 0.5, 0.5):.2f}" height="{HEIGHT - BOTTOM - top:.2f}"/><title>{escape(title)}</title></g>'
        )
    limit = level(tolerance) if tolerance else -100.0
    marks = [
        f'<text class="axis" x="{left - 6}" y="{max(10.0, level(10.0**power) + 4):.1f}" text-anchor="end">'
        f"{_say_power(power, metric)}</text>"
        for power in range(int(FLOOR), int(CEILING) + 1, 2)
        if abs(level(10.0**power) - limit) > 14  # else it touches the word
    ]
    line = ""
    if tolerance:
        line = (
            f'<line class="limit" x1="{left}" x2="{width}" y1="{limit:.1f}" y2="{limit:.1f}">'
            f"<title>allowed {escape(show_error(tolerance, metric))}</title></line>"
            f'<text class="axis" x="{left - 6}" y="{max(10.0, limit + 4):.1f}" text-anchor="end">allowed</text>'
        )
    caption = (
        f'<text class="axis" x="{left - 6}" y="{HEIGHT - 4}" text-anchor="end">first node</text>'
        f'<text class="axis" x="{width}" y="{HEIGHT - 4}" text-anchor="end">last</text>'
    )
    named, bottom = _name_culprits(shown, left, width)
    label = (
        f"Error of {len(points)} tensors against the reference, in topological order, logarithmic"
    )
    return _svg(bottom, label, "".join([*marks, *bars, line, named, caption]), width)


def _say_power(power: int, metric: str) -> str:
    """A power of ten beside the axis."""
    return show_error(10.0**power, metric) if metric == "rel_l2" else f"1e{power}"


def _name_culprits(shown: Sequence[Bar], left: int, width: int) -> tuple[str, float]:
    """A mark below the first bar of each culprit, its name in a row of its own below that, and
    where all that ends."""
    first: dict[int, int] = {}
    for i, bar in enumerate(shown):
        if bar.worst.culprit:
            first.setdefault(bar.worst.culprit, i)
    lines, drawn, y, wide = [], [], float(HEIGHT), (width - left) / len(shown)
    for culprit, i in sorted(first.items()):
        x, ground = left + (i + 0.5) * wide, HEIGHT - BOTTOM
        most = min(48, width // 7 - len("culprit 10: "))  # 7 units a letter
        said = f"culprit {culprit}: {visible(elide(shown[i].worst.name, most)) or '(no name)'}"
        half = 3.5 * len(said)
        middle = min(max(x, half), width - half)
        lines.append(
            f'<path class="mark" d="M{x:.1f} {ground + 2} l4 7 l-8 0 Z"/>'
            f'<path class="edge" d="M{x:.1f} {ground + 9} L{x:.1f} {y + 3:.1f}"/>'
        )
        drawn.append(
            f'<text class="label" x="{middle:.1f}" y="{y + 14:.1f}" text-anchor="middle">{escape(said)}</text>'
        )
        y += 18
    return "".join([*lines, *drawn]), y + (
        4 if first else 0
    )  # a name lies over the line of another one


def before_and_after(report: Report) -> str:
    """How many samples are wrong as it is and with the workaround, then the largest error of each
    against what is allowed, on a log scale. Of the samples that the workaround was not made on,
    where some were tried, else of all."""
    w = report.workaround
    if w is None or not (w.unseen_n or w.samples_n):
        return ""
    counts = (
        ((w.unseen_failing, w.unseen_n), (w.unseen_n - w.unseen_ok, w.unseen_n))
        if w.unseen_n
        else ((report.samples_failing, report.samples), (w.samples_n - w.samples_ok, w.samples_n))
    )
    drawn, y = [], 6.0
    thing, things = ("other", "others") if w.unseen_n else ("sample", "samples")
    for name, (wrong, of) in zip(("as it is", "with the workaround"), counts, strict=True):
        share, all_of = WIDTH * wrong / of if of else 0.0, count(of, thing, things)
        drawn.append(
            f'<text class="axis" x="0" y="{y + 11}">{name}: {wrong:,} of {all_of} wrong, {of - wrong:,} right</text>'
            f'<rect class="good" x="0" y="{y + 16}" width="{WIDTH}" height="16"/>'
            + (
                f'<rect class="bad" x="0" y="{y + 16}" width="{share:.1f}" height="16"/>'
                if share
                else ""
            )
        )
        y += 42
    if report.error and w.error is not None and report.tolerance and report.metric != "elementwise":
        x, allowed = _along(report.tolerance), escape(show_error(report.tolerance, report.metric))
        for name, error in (("as it is", report.error), ("with the workaround", w.error)):
            ends = (y + 14, y + 30)  # over the bar, not over its words
            drawn.append(
                f'<text class="axis" x="0" y="{y + 11}">largest error {name}: {escape(show_error(error, report.metric))} '
                "(logarithmic scale)</text>"
                f'<rect class="{"bad" if error > report.tolerance else "good"}" x="0" y="{y + 16}" '
                f'width="{max(1.0, _along(error)):.1f}" height="12"/>'
                f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{ends[0]:.0f}" y2="{ends[1]:.0f}"/>'
            )
            y += 38
        anchor, aside = ("start", -3) if x < WIDTH / 2 else ("end", 3)
        drawn.append(
            f'<text class="axis" x="{x + aside:.1f}" y="{y + 8:.0f}" text-anchor="{anchor}">allowed {allowed}</text>'
        )
        y += 14
    (before, all_), (after, of) = counts
    said = f"{before} of {all_} {things} are wrong as it is, {after} of {of} with the workaround"
    return _svg(y, said, "".join(drawn), fits=True)


def _along(error: float) -> float:
    """The x of an error on a log scale over the whole width."""
    return WIDTH * (1 - level(error) / (HEIGHT - BOTTOM))


def history(search: Search, number: int = 1, most: int = MOST) -> str:
    """The probes of a search in order, the last where there are many. Where parts of the model were
    tried: the model as a strip of cells, below it a line for each part at its place, and how few
    nodes are left; a click plays it. Where nodes were kept in a higher precision: a line for each
    set. Else a mark each. ``number`` tells apart the pictures of one page."""
    looks = list(enumerate(search.looks, 1))[-most:]
    tried = [
        (n, look, parse(look.part)) for n, look in looks if look.part and look.part != ranges.ALL
    ]
    held = [
        (n, look, parse(look.kept))
        for n, look in looks
        if look.kept and look.part in ("", ranges.ALL)
    ]
    found, kept = (tried, False) if len(tried) >= len(held) else (held, True)
    if search.whole and len(found) > 1:
        return _hunt(search, found, number, kept=kept)
    return _marks(search, [look for _, look in looks]) if looks else ""


Tried = tuple[int, Look, tuple[Span, ...]]  # its number in the search, how it came out, the nodes
_COLUMNS = 169  # cells of the strip: 4 units each
_BEAT = 0.25  # seconds a probe takes when the search is played


def _hunt(search: Search, tried: Sequence[Tried], number: int, *, kept: bool) -> str:
    """``kept``: sets that make the model right are looked for, not parts that fail."""
    tall, top = min(10.0, max(2.0, 260 / len(tried))), 34.0
    bottom, trail = top + tall * len(tried), Trail(search.whole)
    drawn, shown, least, curve = [], [], search.whole, []
    for i, (nth, look, spans) in enumerate(tried):
        trail.take(look.kept if kept else look.part, look.state)
        shown.append(columns(trail.strip, _COLUMNS))
        many = nodes_of(spans)
        sought = look.state == ("passes" if kept else "fails")
        least = min(least, many) if sought else least
        curve.append(least)
        title = f"<title>probe {nth}, {name_nodes(spans)}{' kept in FP32' if kept else ''}: {_SAID[look.state]}</title>"
        kind = {"fails": "bad", "passes": "good"}.get(look.state, "soft-bar")
        bars = "".join(
            f'<rect class="{kind}" x="{_across(a, search.whole):.1f}" y="{top + i * tall:.1f}" '
            f'width="{max(1.0, _across(b + 1, search.whole) - _across(a, search.whole)):.1f}" height="{max(tall - 1, 1):.1f}"/>'
            for a, b in spans[:200]
        )
        hidden = f'<set attributeName="opacity" to="0" begin="play{number}.click" dur="{(i + 1) * _BEAT:.2f}s"/>'
        drawn.append(f"<g>{title}{bars}{hidden}</g>")
    strip = "" if kept else _strip(shown, number)
    play = (
        f'<g id="play{number}" class="play" role="button" tabindex="0">'
        '<rect class="box" x="0" y="4" width="38" height="18" rx="4"/>'
        '<text class="axis" x="19" y="17" text-anchor="middle">▶</text></g>'
    )
    last = search.whole - 1
    axis = (
        f'<text class="axis" x="{LEFT}" y="{bottom + 14:.1f}">node 0</text>'
        f'<text class="axis" x="{WIDTH}" y="{bottom + 14:.1f}" text-anchor="end">node {last:,}</text>'
    )
    label = f"The {count(len(tried), 'probe')} of {escape(visible(elide(search.step, 60)))}, {tally(search)}"
    if len(set(curve)) == 1:  # a flat curve says nothing
        return _svg(bottom + 20, label, play + strip + "".join(drawn) + axis, fits=True)
    below, high = bottom + 34, 60.0
    step = (WIDTH - LEFT) / len(curve)
    path = f"M{LEFT} {below:.1f} " + " ".join(
        f"L{LEFT + i * step:.1f} {below + high * (1 - _log_share(n, search.whole)):.1f} "
        f"L{LEFT + (i + 1) * step:.1f} {below + high * (1 - _log_share(n, search.whole)):.1f}"
        for i, n in enumerate(curve)
    )
    what = (
        "fewest nodes in FP32 of a probe that passed"
        if kept
        else "nodes of the smallest part that fails"
    )
    axis += (
        f'<path class="outline" d="{path}"/>'
        f'<text class="axis" x="{LEFT - 6}" y="{below + 5:.1f}" text-anchor="end">{search.whole:,}</text>'
        f'<text class="axis" x="{LEFT - 6}" y="{below + high:.1f}" text-anchor="end">1</text>'
        f'<text class="axis" x="{LEFT}" y="{below + high + 18:.1f}">{what}: {search.whole:,} to {curve[-1]:,}, logarithmic</text>'
    )
    return _svg(below + high + 24, label, play + strip + "".join(drawn) + axis, fits=True)


def _across(node: int, whole: int) -> float:
    return LEFT + (WIDTH - LEFT) * node / whole


def _log_share(n: int, whole: int) -> float:
    return math.log(max(n, 1)) / math.log(whole) if whole > 1 else 1.0


def _strip(shown: Sequence[Sequence[str]], number: int) -> str:
    """The cells as they are at the end, one rectangle for each run of the same; played, each shows
    what was known by then."""
    wide = (WIDTH - LEFT) / _COLUMNS
    drawn = []
    for at in _runs(shown):
        first, last = at[0], at[-1] + 1
        then, moves = "", []
        for k, cells in enumerate(shown[:-1]):
            if cells[first] != then:
                moves.append((k + 1, cells[first]))
                then = cells[first]
        ends = [k for k, _ in moves[1:]] + [len(shown)]
        sets = f'<set attributeName="class" to="{_CELL["not asked"]}" begin="play{number}.click" dur="{_BEAT:.2f}s"/>'
        sets += "".join(
            f'<set attributeName="class" to="{_CELL[state]}" begin="play{number}.click+{k * _BEAT:.2f}s" '
            f'dur="{(end - k) * _BEAT:.2f}s"/>'
            for (k, state), end in zip(moves, ends, strict=True)
            if end > k
        )
        drawn.append(
            f'<rect class="{_CELL[shown[-1][first]]}" x="{LEFT + first * wide:.1f}" y="6" '
            f'width="{(last - first) * wide:.1f}" height="16"><title>{MEANING[shown[-1][first]]}</title>{sets}</rect>'
        )
    return "".join(drawn)


def _runs(shown: Sequence[Sequence[str]]) -> list[list[int]]:
    """Neighbouring columns that were the same all along."""
    found: list[list[int]] = []
    for column in range(_COLUMNS):
        if found and all(cells[column] == cells[column - 1] for cells in shown):
            found[-1].append(column)
        else:
            found.append([column])
    return found


_CELL = {
    "wrong": "bad",
    "cannot tell": "soft-bar",
    "right": "good",
    "not needed": "box",
    "not asked": "box",
}


def _marks(search: Search, looks: Sequence[Look]) -> str:
    """Where every probe tried the same part: filled where it failed, an outline where it passed, a
    cross where it could not be told."""
    wide = min(14.0, (WIDTH - LEFT) / len(looks))
    drawn = []
    for i, look in enumerate(looks):
        x, room = LEFT + i * wide, max(wide - 2, 1.0)
        title = f"<title>{count(look.nodes or search.whole, 'node')}: {_SAID[look.state]}</title>"
        if look.state in ("passes", "fails"):
            kind = "bad" if look.state == "fails" else "outline"
            drawn.append(
                f'<rect class="{kind}" x="{x:.1f}" y="4" width="{room:.1f}" height="12">{title}</rect>'
            )
        else:
            drawn.append(
                f'<text class="axis" x="{x + room / 2:.1f}" y="14" text-anchor="middle">×{title}</text>'
            )
    end = LEFT + len(looks) * wide
    if end < LEFT + 200:  # no room for two words below so few
        drawn.append(
            f'<text class="axis" x="{LEFT}" y="32">from the first probe to the last</text>'
        )
    else:
        drawn.append(
            f'<text class="axis" x="{LEFT}" y="32">first probe</text>'
            f'<text class="axis" x="{end:.0f}" y="32" text-anchor="end">last</text>'
        )
    label = f"The {count(len(looks), 'probe')} of {escape(visible(elide(search.step, 60)))}, {tally(search)}"
    return _svg(38, label, "".join(drawn), fits=True)


def tally(search: Search) -> str:
    """``3 fail, 4 pass, 1 cannot tell``."""
    states = [look.state for look in search.looks]
    counts = {"fail": states.count("fails"), "pass": states.count("passes")}
    counts["cannot tell"] = len(states) - sum(counts.values())
    return ", ".join(f"{n} {word}" for word, n in counts.items() if n)


_SAID = {**WORDS, "done": "without a verdict"}


_LOST = {
    "i": ("inf", "∞", "infinite on the engine"),
    "n": ("nan", "N", "NaN on the engine"),
    "r": ("gone", "R", "only on the engine finite"),
}


def heat(values: Values) -> str:
    """The grid of differences: the darker a tile, the larger its worst difference, log scale; where
    only one side is finite, a colour and a letter of its own. Nothing where there is no place to
    point at: the engine has no finite value at all, one tile is all there is, or both are alike."""
    if not has_place(values):
        return ""
    rows, columns = len(values.grid), max(map(len, values.grid))
    wide = min((WIDTH - LEFT) / columns, 40.0)
    tall = min(max(wide, 12.0), 20.0, max(240 / rows, 10.0))
    # A file of an earlier version does not say what is not finite, nor where.
    lost_at = _LOST if values.kinds else {"i": (*_LOST["i"][:2], "finite on one side only")}
    tiles, met = [], set()
    for y, row in enumerate(values.grid):
        for x, worst in enumerate(row):
            place = f'x="{LEFT + x * wide:.1f}" y="{y * tall:.1f}" width="{wide:.1f}" height="{tall:.1f}"'
            if worst >= HUGE:
                letter = values.kinds[y][x] if values.kinds else "i"
                kind, sign, said = lost_at.get(letter, lost_at["i"])
                met.add(letter)
                middle = f'x="{LEFT + (x + 0.5) * wide:.1f}" y="{(y + 0.5) * tall + 3.5:.1f}"'
                tiles.append(f'<rect class="{kind}" {place}><title>{said}</title></rect>')
                tiles.append(f'<text class="on" {middle} text-anchor="middle">{sign}</text>')
            elif (share := 1 - level(worst) / (HEIGHT - BOTTOM)) > 0:
                title = f"<title>wrong by {say_percent(worst)}</title>"
                tiles.append(f'<rect class="bad" {place} fill-opacity="{share:.2f}">{title}</rect>')
    bottom = rows * tall
    frame = (
        f'<rect class="frame" x="{LEFT}" y="0" width="{columns * wide:.1f}" height="{bottom:.1f}"/>'
    )
    lines = ["the last axis runs to the right" + (", the others down" if rows > 1 else "")]
    lines += [f"{sign} {said}" for letter, (_, sign, said) in lost_at.items() if letter in met]
    caption = f'<text class="axis" x="{LEFT - 6}" y="13" text-anchor="end">first</text>' + "".join(
        f'<text class="axis" x="{LEFT}" y="{bottom + 20 * n - 4:.1f}">{line}</text>'
        for n, line in enumerate(lines, 1)
    )
    notes = escape(f"{say_values_lost(values)} {say_values_apart(values)}")
    said = f"Largest differences of {escape(visible(elide(values.output, 60)))}. {notes}"
    return _svg(
        bottom + 20 * len(lines) + 4, said.strip(), "".join([frame, *tiles, caption]), fits=True
    )


def histograms(values: Values) -> str:
    """What the reference gives as an outline over what the engine gives, filled; counts on a log
    scale. What is not finite has a bar of its own at the right."""
    gone = (values.expected_nonfinite, values.actual_nonfinite)
    most = max((*values.expected, *values.actual, *gone), default=0)
    if not most:
        return ""
    right = (
        WIDTH - 112 if any(gone) else WIDTH
    )  # room for two words in the larger letters of a telephone
    tall, wide = 120, (right - LEFT) / len(values.expected)
    ground = tall - BOTTOM

    def height(n: int) -> float:
        return math.log(n + 1) / math.log(most + 1) * (ground - 8)

    def bar(kind: str, x: float, n: int, room: float) -> str:
        place = (
            f'x="{x:.1f}" y="{ground - height(n):.1f}" width="{room:.1f}" height="{height(n):.1f}"'
        )
        return f'<rect class="{kind}" {place}><title>{n:,}</title></rect>' if n else ""

    filled = "".join(bar("bad", LEFT + i * wide, n, wide) for i, n in enumerate(values.actual))
    steps = " ".join(
        f"L{LEFT + i * wide:.1f} {ground - height(n):.1f} L{LEFT + (i + 1) * wide:.1f} {ground - height(n):.1f}"
        for i, n in enumerate(values.expected)
    )
    outline = f'<path class="outline" d="M{LEFT} {ground} {steps} L{right} {ground}"/>'
    ends = [(float(LEFT), "start", values.low), (float(right), "end", values.high)]
    if values.low == values.high:
        ends = [((LEFT + right) / 2, "middle", values.low)]
    axis = "".join(
        f'<text class="axis" x="{x:.0f}" y="{tall - 4}" text-anchor="{anchor}">{escape(number(end))}</text>'
        for x, anchor, end in ends
        if sum(values.expected) + sum(values.actual)
    )
    axis += f'<text class="axis" x="{LEFT - 6}" y="15" text-anchor="end">{most:,}</text>'
    if any(gone):
        axis += (
            bar("inf", WIDTH - 46, gone[1], 30)
            + bar("outline", WIDTH - 46, gone[0], 30)
            + f'<text class="axis" x="{WIDTH}" y="{tall - 4}" text-anchor="end">not finite</text>'
        )
    label = f"Values of {escape(visible(elide(values.output, 60)))}: the reference as an outline, the engine filled"
    return _svg(tall, label, filled + outline + axis, fits=True)


def neighbourhood(place: Vicinity, width: int = WIDTH) -> str:
    """The suspects and their neighbours, one below the other in topological order, with what each
    of them makes."""
    if not place.spots:
        return ""
    far = any(source != i - 1 for i, spot in enumerate(place.spots) for source in spot.reads)
    beside = width >= WIDTH  # what a node makes stands beside its operator, else below its name
    left, bend = ((150, 14) if beside else (60, 5)) if far else (10 if beside else 2, 0)
    high, tall = (36, 52) if beside else (50, 66)
    wide = width - left - (10 if beside else 2)
    letters = int(wide - 24) // 7  # a letter of a name is 6.6 units wide
    drawn = []
    for i, spot in enumerate(place.spots):
        for source in spot.reads:
            y1, y2 = 22 + source * tall + high, 22 + i * tall
            if source == i - 1:
                drawn.append(f'<path class="edge" d="M{left + 24} {y1} L{left + 24} {y2}"/>')
            else:
                out = left - 18 - bend * min(i - source, 8)
                drawn.append(
                    f'<path class="edge" d="M{left} {y1 - 18} C{out} {y1 - 18} {out} {y2 + 18} {left} {y2 + 18}"/>'
                )
    names = tell_apart(
        [visible(spot.name) or "(no name)" for spot in place.spots], min(58, letters)
    )
    for i, spot in enumerate(place.spots):
        y = 22 + i * tall
        facts = ", ".join(
            filter(None, ["; ".join(spot.makes[:2]), spot.note, "suspect" if spot.suspect else ""])
        )
        side = (
            f'x="{left + wide - 10}" y="{y + 15}" text-anchor="end"'
            if beside
            else f'x="{left + 12}" y="{y + 43}"'
        )
        drawn.append(
            f'<rect class="{"suspect" if spot.suspect else "box"}" x="{left}" y="{y}" width="{wide}" height="{high}" rx="5"/>'
            f'<text class="op" x="{left + 12}" y="{y + 15}">{escape(visible(elide(spot.op, min(40, letters))))}</text>'
            f'<text class="axis" {side}>{escape(visible(elide(facts, min(60, letters))))}</text>'
            f'<text class="label" x="{left + 12}" y="{y + 29}">{escape(names[i])}</text>'
        )
    bottom = 22 + len(place.spots) * tall
    told = 4 if beside else 2
    way = " → ".join([*place.way[:told], *(["…"] if len(place.way) > told else []), place.output])
    more = [f"{count(place.after, 'node')} on", f"shortest way out: {way}"][
        : 2 if place.output else 1
    ]
    rows = ["; ".join(more)] if beside else more
    if place.before:
        drawn.append(
            f'<text class="axis" x="{left}" y="12">{count(place.before, "node")} before</text>'
        )
    for n, row in enumerate(rows):
        most = 100 if beside else width // 6
        drawn.append(
            f'<text class="axis" x="{left if beside else 2}" y="{bottom + 14 * n}">{escape(visible(elide(row, most)))}</text>'
        )
    label = f"{count(len(place.spots), 'node')} around the suspect, {sum(s.suspect for s in place.spots)} of them suspected"
    return _svg(bottom + 14 * len(rows) - 6, label, "".join(drawn), width)


def _svg(height: float, label: str, drawn: str, width: int = WIDTH, *, fits: bool = False) -> str:
    """``fits``: its few words have room to be drawn larger where the page is as narrow as a
    telephone: nobody has to scroll."""
    named = ' class="fits"' if fits else ""
    return f'<svg{named} viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{label}">{drawn}</svg>'


def curve(errors: Sequence[float], width: int = 60) -> str:
    """The same in one line of block characters: the worst of each of at most ``width`` stretches,
    log scale from the smallest to the largest. Errors may be 0 or HUGE; empty text for fewer than
    two, or where all are 0."""
    logs = [log_error(error) for error in errors]
    return draw_bars(logs, width, BLOCKS) if len(logs) > 1 and max(logs) > FLOOR else ""


def level(error: float) -> float:
    """The y of an error on the log scale."""
    return (HEIGHT - BOTTOM) * (1 - (log_error(error) - FLOOR) / (CEILING - FLOOR))
