"""Where the search for the fewest nodes begins: the sets that it tries first, the samples that it
works on, in which order."""

from collections.abc import Sequence

from narrowdown.engines.findings import Findings
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.graph.quantized import find_layers
from narrowdown.engines.search.inquiry import Inquiry


def list_starts(
    ask: Inquiry,
    everything: tuple[int, ...],
    tries: Sequence[tuple[int, ...]],
    known: tuple[int, ...],
) -> list[tuple[int, ...]]:
    """The sets to begin with, of what can be kept, growing, each with what was needed so far. A
    pair stands for the layers that it serves."""
    can = set(everything)
    serves: dict[int, set[int]] = {}
    for layer in find_layers(ask.index) if len(can) < len(ask.index.nodes) else ():
        for n in layer.around:
            serves.setdefault(n, set()).add(layer.node)
    sets = [{m for n in t for m in ({n} | serves.get(n, set())) & can} | set(known) for t in tries]
    return [
        t for t in dict.fromkeys(tuple(sorted(s)) for s in sets) if 0 < len(t) < len(everything)
    ]


def list_hardest(findings: Findings) -> tuple[str, ...]:
    """The samples that the culprits were found on: what cures them cures most; the others are
    verified, and join when they fail."""
    found = [*(c.case.sample for c in findings.culprits), findings.sample]
    return tuple(dict.fromkeys(found))


def list_growing(index: GraphIndex, seeds: tuple[int, ...], rings: int) -> list[tuple[int, ...]]:
    """Node sets to try before the whole model, growing: the seeds, and what is around them."""
    nodes = set(seeds)
    tries = [tuple(sorted(nodes))]
    for _ in range(rings):
        nodes = index.ring(nodes)
    return [*tries, tuple(sorted(nodes))] if nodes else []


def likely_last(nodes: Sequence[int], likely: Sequence[int]) -> tuple[int, ...]:
    """Delta debugging drops early items first: put the nodes least likely to be needed first.
    ``likely``: the likeliest last."""
    inside = set(nodes)
    return (*(n for n in nodes if n not in set(likely)), *(n for n in likely if n in inside))
