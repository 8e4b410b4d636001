"""Some nodes of a candidate computed by the reference, from what the engine gives them in that very
run.

So a culprit is cured by its own share only: errors that the engine made before it stay in what it
hands on. This needs nothing of an engine but that it runs parts of a model.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from narrowdown.engines.array import Array
from narrowdown.engines.graph import GraphIndex
from narrowdown.engines.graph.cut import node_ids
from narrowdown.engines.graph.ranges import decode, encode
from narrowdown.engines.probe import Candidate, Measure
from narrowdown.engines.workers.part import Feed

# What these nodes give on the engine of that spec, at these tensors, fed with these values.
Run = Callable[[str, Candidate, Mapping[int, Array]], dict[int, Array]]


def sever_righted(index: GraphIndex, probe: Measure) -> Measure:
    """The probe whose candidate is fed what righted nodes give, in place of what the engine
    computes there."""
    made = {t for n in decode(probe.righted) for t in index.nodes[n].outputs}
    severed = encode(made.union(decode(probe.candidate.severed)))
    return msgspec.structs.replace(
        probe, candidate=msgspec.structs.replace(probe.candidate, severed=severed)
    )


def right_nodes(
    index: GraphIndex, probe: Measure, feed: Feed, watched: Collection[int], run: Run
) -> dict[int, Array]:
    """Tensor id -> what the reference makes of it, for each that the righted nodes hand on, or make
    where it is ``watched``. ``probe``: as ``sever_righted`` gives it; ``feed``: of its
    candidate."""
    nodes = node_ids(index, probe.candidate)
    # Of one that lies outside of the candidate the captured value is fed, as of any other node.
    righted = set(nodes).intersection(decode(probe.righted))
    outputs = {t for n in righted for t in index.nodes[n].outputs}
    fed = {t: a for t, a in {**feed.constants, **feed.arrays}.items() if t not in outputs}
    made: dict[int, Array] = {}
    for group in order_stages(index, nodes, righted):
        needs, leaves = index.boundary(group)
        seen = {t for n in group for t in index.nodes[n].outputs}.intersection(watched)
        if wanted := [t for t in needs if t not in fed]:
            fed |= run(probe.engine, _candidate(index.ancestors(wanted, stop=fed), wanted), fed)
        given = run(probe.reference, _candidate(group, seen.union(leaves)), fed)
        fed |= given
        made |= given
    return made


def _candidate(nodes: Iterable[int], outputs: Iterable[int]) -> Candidate:
    return Candidate(nodes=encode(nodes), outputs=encode(outputs))


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
