"""In which order nodes that the reference computes and the engine's own nodes can take turns."""

from collections.abc import Iterable

from narrowdown.engines.graph.index import GraphIndex


def order_stages(
    index: GraphIndex, inside: Iterable[int], righted: Iterable[int]
) -> tuple[tuple[int, ...], ...]:
    """The righted nodes among those inside, in groups: what the engine computes for a group depends
    on earlier groups only."""
    own, nodes = set(righted), sorted(inside)  # ids ascend in topological order
    stage: dict[int, int] = {}
    for n in nodes:
        producers = {p for t in index.nodes[n].reads if (p := index.tensors[t].producer) in stage}
        # What an engine's node reads of a righted one is there only once that group was computed.
        stage[n] = max((stage[p] + (p in own and n not in own) for p in producers), default=0)
    groups: dict[int, list[int]] = {}
    for n in nodes:
        if n in own:
            groups.setdefault(stage[n], []).append(n)
    return tuple(tuple(groups[k]) for k in sorted(groups))
