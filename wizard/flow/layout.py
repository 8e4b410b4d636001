"""Where the boxes and arrows of a small directed graph go: in layers from top to bottom, with few crossings.

The classic steps: arrows that close a cycle are set apart, nodes are put into layers, long arrows get a bend in each layer they
pass, layers are sorted by the middle of their neighbours, and then shifted towards them.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

_GAP: Final = (26.0, 62.0)  # between boxes of a layer, and between layers
_LANE: Final = 26.0  # width of a bend, and of a lane for an arrow back
_MARGIN: Final = 32.0
_SWEEPS: Final = 12


class Box(NamedTuple):
    """The centre of a box."""

    x: float
    y: float


class Edge(NamedTuple):
    """An arrow through its points, and where its label goes (its centre; of ``back`` its end).

    ``back``: it closes a cycle and runs along the side.
    """

    points: tuple[tuple[float, float], ...]
    label: tuple[float, float]
    back: bool


class Drawing(NamedTuple):
    boxes: Mapping[str, Box]
    edges: tuple[Edge, ...]  # in the order given
    width: float
    height: float


def arrange(names: Sequence[str], edges: Sequence[tuple[str, str]], box: tuple[float, float]) -> Drawing:
    """Place ``names`` (distinct, in reading order) and ``edges`` between them; ``box`` is the size of every box."""
    back = _back(names, edges)
    forward = [e for e in edges if e not in back]
    layer = _layers(names, forward)
    chains = _chains(forward, layer)
    rows = _rows(names, layer, chains)
    _sort(rows, chains)
    at, right = _places(rows, chains, box)
    boxes = {name: Box(at[name], _MARGIN + box[1] / 2 + layer[name] * (box[1] + _GAP[1])) for name in names}
    drawn: list[Edge] = []
    lane = right + _LANE
    for edge in edges:
        if edge in back:
            apart = 6.0 * (sum(e.back for e in drawn) % 4)
            drawn.append(_side(boxes[edge[0]], boxes[edge[1]], lane, apart, box))
            lane += _LANE
        else:
            drawn.append(_down([(at[n], _depth(n, layer, box)) for n in chains[edge]], box))
    height = 2 * _MARGIN + (max(layer.values(), default=0) + 1) * (box[1] + _GAP[1]) - _GAP[1]
    return Drawing(boxes, tuple(drawn), (lane if back else right) + _MARGIN, height)


def _back(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Arrows against the order of the names that lie on a cycle: every cycle holds one, so the others close none."""
    order = {name: i for i, name in enumerate(names)}
    return {(a, b) for a, b in edges if order[b] <= order[a] and a in _reach(b, edges)}


def _reach(start: str, edges: Sequence[tuple[str, str]]) -> list[str]:
    found = [start]
    for here in found:
        found += dict.fromkeys(b for a, b in edges if a == here and b not in found)
    return found


def _layers(names: Sequence[str], forward: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The longest way to each node; a node that only ends something is drawn right below what leads to it first."""
    layer = dict.fromkeys(names, 0)
    for _ in names:
        for a, b in forward:
            layer[b] = max(layer[b], layer[a] + 1)
    return layer


# A point of an arrow in a layer: a box by its name, or a bend as (arrow, layer).
_Bend = tuple[tuple[str, str], int]
_Point = str | _Bend


def _chains(forward: Sequence[tuple[str, str]], layer: Mapping[str, int]) -> dict[tuple[str, str], list[_Point]]:
    return {(a, b): [a, *(((a, b), depth) for depth in range(layer[a] + 1, layer[b])), b] for a, b in forward}


def _rows(
    names: Sequence[str], layer: Mapping[str, int], chains: Mapping[tuple[str, str], list[_Point]]
) -> list[list[_Point]]:
    rows: list[list[_Point]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    for name in names:
        rows[layer[name]].append(name)
    for chain in chains.values():
        for point in chain[1:-1]:
            rows[point[1]].append(point)  # type: ignore[index]
    return rows


def _neighbours(
    chains: Mapping[tuple[str, str], list[_Point]],
) -> tuple[dict[_Point, list[_Point]], dict[_Point, list[_Point]]]:
    above: dict[_Point, list[_Point]] = {}
    below: dict[_Point, list[_Point]] = {}
    for chain in chains.values():
        for a, b in pairwise(chain):
            below.setdefault(a, []).append(b)
            above.setdefault(b, []).append(a)
    return above, below


def _sort(rows: list[list[_Point]], chains: Mapping[tuple[str, str], list[_Point]]) -> None:
    """Sweep down and up; keep the order with the fewest crossings."""
    above, below = _neighbours(chains)
    best, fewest = [list(row) for row in rows], _crossings(rows, below)
    for sweep in range(_SWEEPS):
        near = above if sweep % 2 == 0 else below
        for index in range(len(rows)) if sweep % 2 == 0 else reversed(range(len(rows))):
            neighbour = index - 1 if sweep % 2 == 0 else index + 1
            if not 0 <= neighbour < len(rows):
                continue
            where = {point: i for i, point in enumerate(rows[neighbour])}
            old = {point: i for i, point in enumerate(rows[index])}
            rows[index].sort(key=lambda p, w=where, o=old: _middle([w[n] for n in near.get(p, ())], o[p]))  # type: ignore[misc]
        crossings = _crossings(rows, below)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    rows[:] = best


def _middle(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _crossings(rows: Sequence[Sequence[_Point]], below: Mapping[_Point, Sequence[_Point]]) -> int:
    total = 0
    for row, following in pairwise(rows):
        where = {point: i for i, point in enumerate(following)}
        ends = [(i, where[b]) for i, a in enumerate(row) for b in below.get(a, ())]
        total += sum((a - c) * (b - d) < 0 for k, (a, b) in enumerate(ends) for c, d in ends[:k])
    return total


def _places(
    rows: Sequence[Sequence[_Point]], chains: Mapping[tuple[str, str], list[_Point]], box: tuple[float, float]
) -> tuple[dict[_Point, float], float]:
    """x of every point, and the right edge. Each row is pulled towards its neighbours, its order and distances kept."""
    above, below = _neighbours(chains)
    at: dict[_Point, float] = {}
    for row in rows:
        x = 0.0
        for point in row:
            half = _half(point, box)
            at[point] = x + half
            x += 2 * half + _GAP[0]
    for sweep in range(2 * _SWEEPS):
        for row in rows if sweep % 2 == 0 else list(reversed(rows)):
            wish = [_middle([at[n] for n in (*above.get(p, ()), *below.get(p, ()))], at[p]) for p in row]
            for point, x in zip(row, _spread(wish, [_half(p, box) for p in row]), strict=True):
                at[point] = x
    left = min((x - _half(p, box) for p, x in at.items()), default=0.0) - _MARGIN
    for point in at:
        at[point] -= left
    return at, max((x + _half(p, box) for p, x in at.items()), default=0.0)


def _half(point: _Point, box: tuple[float, float]) -> float:
    return box[0] / 2 if isinstance(point, str) else _LANE / 2


def _spread(wish: Sequence[float], half: Sequence[float]) -> list[float]:
    """The places nearest to the wishes (least squares) that keep order and distances: pool neighbours that would overlap."""
    offsets = [0.0]
    for a, b in pairwise(half):
        offsets.append(offsets[-1] + a + b + _GAP[0])
    pools: list[tuple[float, int]] = []  # mean, size
    for w, offset in zip(wish, offsets, strict=False):
        mean, size = w - offset, 1
        while pools and pools[-1][0] > mean:
            before, count = pools.pop()
            mean = (before * count + mean * size) / (count + size)
            size += count
        pools.append((mean, size))
    flat = [mean for mean, size in pools for _ in range(size)]
    return [x + offset for x, offset in zip(flat, offsets, strict=False)]


def _depth(point: _Point, layer: Mapping[str, int], box: tuple[float, float]) -> float:
    index = layer[point] if isinstance(point, str) else point[1]
    return _MARGIN + box[1] / 2 + index * (box[1] + _GAP[1])


def _down(points: Sequence[tuple[float, float]], box: tuple[float, float]) -> Edge:
    (x, y), (ex, ey) = points[0], points[-1]
    way: list[tuple[float, float]] = [(x, y + box[1] / 2)]
    for px, py in points[1:-1]:
        way += [(px, py - box[1] / 2), (px, py + box[1] / 2)]
    way.append((ex, ey - box[1] / 2 - 2))
    (ax, ay), (bx, by) = way[0], way[1]
    return Edge(tuple(way), ((ax + 2 * bx) / 3, ay + (by - ay) * 0.68), back=False)


def _side(source: Box, target: Box, lane: float, apart: float, box: tuple[float, float]) -> Edge:
    """Out of the bottom of one box, through the gap below its layer, up the lane, and into the top of the other.

    ``apart`` keeps arrows that share a gap from covering each other.
    """
    inset = box[0] / 2 - 18
    low, high = source.y + box[1] / 2 + 8 + apart, target.y - box[1] / 2 - 12 - apart
    way = (
        (source.x + inset, source.y + box[1] / 2), (source.x + inset, low), (lane, low), (lane, high),
        (target.x + inset, high), (target.x + inset, target.y - box[1] / 2 - 2),
    )  # fmt: skip
    return Edge(way, (lane - 8, high - 5), back=True)
