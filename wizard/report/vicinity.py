"""The neighbourhood of what is suspected: a small graph around it, for every display and for the
report. Pure."""

from collections.abc import Collection, Sequence

import msgspec

from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex, Tensor


class Spot(msgspec.Struct, frozen=True):
    """One node of a small graph. ``reads``: indices of earlier spots whose values it reads.
    ``makes``: element type and shape of each of its values."""

    op: str
    name: str
    reads: tuple[int, ...] = ()
    suspect: bool = False
    note: str = ""
    makes: tuple[str, ...] = ()


class Vicinity(msgspec.Struct, frozen=True):
    """A suspect with its neighbours: never more than ``MOST`` spots. ``before`` and ``after``:
    nodes of the model that are not drawn, upstream and downstream; ``way``: operators on the
    shortest way to an output, the drawn ones left out; ``output``: where that way ends."""

    spots: tuple[Spot, ...] = ()
    before: int = 0
    after: int = 0
    way: tuple[str, ...] = ()
    output: str = ""


MOST = 12


def vicinity(index: GraphIndex, suspects: Collection[int]) -> Vicinity:
    """The suspects, what they read and who reads them, as many as ``MOST``, and what lies between
    them and an output. Ids that the graph does not have are left out."""
    chosen = sorted(n for n in set(suspects) if 0 <= n < len(index.nodes))[: MOST - 4]
    if not chosen:
        return Vicinity()
    inside = set(chosen)
    above: list[int] = []
    below: list[int] = []
    for n in chosen:
        for t in index.nodes[n].reads:
            p = index.tensors[t].producer
            if p >= 0 and p not in inside and p not in above:
                above.append(p)
        for t in index.nodes[n].outputs:
            below += [r for r in index.readers[t] if r not in inside and r not in below]
    room = MOST - len(chosen)
    keep_below = below[: max(1, room - min(len(above), room // 2))] if below else []
    keep_above = above[: room - len(keep_below)]
    keep_below = below[: room - len(keep_above)]
    drawn = sorted(inside | set(keep_above) | set(keep_below))
    place = {n: i for i, n in enumerate(drawn)}
    final = set(index.outputs)
    spots = []
    for n in drawn:
        node = index.nodes[n]
        producers = [index.tensors[t].producer for t in node.reads]
        fed = [index.tensors[t].name for t in node.reads if index.tensors[t].kind == "input"]
        ends = [index.tensors[t].name for t in node.outputs if t in final]
        notes = [f"reads input {fed[0]}"] if fed else []
        notes += [f"output {ends[0]}"] if ends else []
        reads = tuple(sorted({place[p] for p in producers if p in place}))
        makes = tuple(_form(index.tensors[t]) for t in node.outputs)
        spots.append(
            Spot(node.op, index.shown_names[n], reads, n in inside, ", ".join(notes), makes)
        )
    made = [t for n in chosen for t in index.nodes[n].outputs]
    way, output = _way(index, made, set(drawn))
    upstream = index.ancestors([t for n in chosen for t in index.nodes[n].reads])
    downstream = index.descendants(made)
    return Vicinity(
        tuple(spots),
        len(set(upstream) - set(drawn)),
        len(set(downstream) - set(drawn)),
        way,
        output,
    )


def _way(
    index: GraphIndex, tensors: Sequence[int], drawn: Collection[int]
) -> tuple[tuple[str, ...], str]:
    """Operators on a shortest way from these tensors to an output, those that are drawn left out,
    and the output's name."""
    final = set(index.outputs)
    came: dict[int, int] = dict.fromkeys(tensors, -1)
    frontier = list(tensors)
    while frontier:
        for t in frontier:
            if t in final:
                ops: list[str] = []
                at = t
                while at >= 0:
                    node = index.made_by(at)
                    if node is not None and node.id not in drawn:
                        ops.append(node.op)
                    at = came[at]
                return tuple(reversed(ops)), index.tensors[t].name
        following: list[int] = []
        for t in frontier:
            for reader in index.readers[t]:
                for made in index.nodes[reader].outputs:
                    if made not in came:
                        came[made] = t
                        following.append(made)
        frontier = following
    return (), ""


def _form(tensor: Tensor) -> str:
    """``float32 [1, 3, ?]``."""
    shape = (
        ""
        if tensor.shape is None
        else f"[{', '.join('?' if d < 0 else str(d) for d in tensor.shape)}]"
    )
    return " ".join(filter(None, [tensor.dtype, shape])) or "?"


def suspected(findings: Findings) -> tuple[str, ...]:
    """Node id ranges: of the confirmed culprits and the case at work, else of the case, else of
    what layerwise accuses."""
    found = [culprit.case.node_ids or culprit.case.candidate.nodes for culprit in findings.culprits]
    found.append(at_work(findings))
    return tuple(dict.fromkeys(nodes for nodes in found if nodes and nodes != ranges.ALL))


def at_work(findings: Findings) -> str:
    """Node id ranges of the case at work, else of what layerwise accuses; "" where there is
    neither."""
    if findings.case is not None:
        return findings.case.node_ids or findings.case.candidate.nodes
    if findings.suspects:
        return findings.suspects[0].nodes or str(findings.suspects[0].node)
    return ""


def ids(nodes: str) -> tuple[int, ...]:
    """The node ids of a text of ranges; none where it is none."""
    try:
        return ranges.decode(nodes)
    except ValueError:
        return ()
