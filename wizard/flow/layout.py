"""Where the boxes and arrows of a flow go, in rows and lanes; ``wizard/tui/flowmap.py`` draws them.

Boxes stand below one another in the order of the flow. An answer that leads to the next box goes
straight down, one that leads to an end goes to the right, every other one runs along a lane at the
left: arrows into the same box share it. Pure.
"""

from collections.abc import Iterable, Sequence

import msgspec

from narrowdown.wizard.flow.model import Flow, targets


class Way(msgspec.Struct, frozen=True):
    """One arrow: where it comes from and leads to, how it is worded, whether it was walked, whether
    it goes straight down."""

    source: str
    target: str
    text: str
    walked: bool
    straight: bool
    row: int = 0


class Layout(msgspec.Struct, frozen=True):
    """``names``: the node or end that each row belongs to; ``at``: the row of each, of a box the
    middle one of its three; ``lanes``: the lane of each node that is jumped to; ``loose``: the ends
    that no answer leads to."""

    names: list[str]
    at: dict[str, int]
    ways: list[Way]
    lanes: dict[str, int]
    loose: list[str]


def title(flow: Flow, node: str) -> str:
    """A node's or an end's title as the flow words it; its id where the flow does not know it."""
    if node in flow.nodes:
        return flow.nodes[node].title
    return flow.ends[node].title if node in flow.ends else node


def arrange(flow: Flow, route: Sequence[tuple[str, str]], here: str) -> Layout:
    """Place every node, end and arrow. ``route``: the nodes and the answers given there, ``here``:
    where it led to."""
    names: list[str] = []
    at: dict[str, int] = {}
    ways: list[Way] = []
    order = list(flow.nodes)
    walked = _walked(route, here)
    for name, following in zip(order, [*order, ""][1:], strict=True):
        at[name] = len(names) + 1
        names += [name] * 3
        for way in _ways(flow, name, following, walked):
            ways.append(msgspec.structs.replace(way, row=len(names)))
            at.setdefault(way.target, len(names)) if way.target in flow.ends else None
            names.append(way.target if way.target in flow.ends else name)
    loose = [end for end in flow.ends if end not in at]
    for end in loose:
        at[end] = len(names)
        names.append(end)
    return Layout(names, at, ways, _lanes(flow, ways, at), loose)


def _walked(route: Sequence[tuple[str, str]], here: str) -> set[tuple[str, str, str]]:
    """(node, answer, where that led) of every answer."""
    after = [*(node for node, _ in route), here][1:]
    return {(node, answer, led) for (node, answer), led in zip(route, after, strict=True) if answer}


def _ways(flow: Flow, name: str, following: str, walked: set[tuple[str, str, str]]) -> list[Way]:
    """The arrows of a node, those to ends first, those straight down last."""
    node = flow.nodes[name]
    found = []
    for id_, answer in node.answers.items():
        for number, target in enumerate(dict.fromkeys(targets(answer))):
            text = answer.text if not number else f"{answer.text} (by rule)"
            found.append(
                Way(name, target, text, (name, id_, target) in walked, target == following)
            )
    if node.limit:
        times = "once" if node.max_visits == 1 else f"{node.max_visits} times"
        led = any(a == name and to == node.limit for a, _, to in walked)
        limited = led and not any(w.walked for w in found)
        found.append(
            Way(name, node.limit, f"asked {times} already", limited, node.limit == following)
        )
    return sorted(
        found, key=lambda w: (w.straight - (w.target in flow.ends), w.straight and w.walked)
    )


def _lanes(flow: Flow, ways: Iterable[Way], at: dict[str, int]) -> dict[str, int]:
    """The lane of each node that arrows jump to, 0 the one nearest to the boxes: short ones lie
    within long ones."""
    spans: dict[str, list[int]] = {}
    for way in ways:
        if way.target in flow.nodes and not way.straight:
            spans.setdefault(way.target, [at[way.target]]).append(way.row)
    taken: list[list[tuple[int, int]]] = []
    lanes = {}
    for target, rows in sorted(spans.items(), key=lambda item: max(item[1]) - min(item[1])):
        span = min(rows), max(rows)
        free = (
            i
            for i, others in enumerate(taken)
            if all(span[1] < a or b < span[0] for a, b in others)
        )
        lane = next(free, len(taken))
        taken += [[]] * (lane == len(taken))
        taken[lane] = [*taken[lane], span]
        lanes[target] = lane
    return lanes
