"""The neighbourhood of what is suspected: a small graph around it, for every display and for the
report. Pure."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import GraphIndex, Tensor, ranges


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
    nodes of the model that are not drawn, upstream and downstream."""

    spots: tuple[Spot, ...] = ()
    before: int = 0
    after: int = 0


MOST = 12  # spots: with what stands around them they fit into a terminal of 24 rows


def vicinity(index: GraphIndex, suspects: Collection[int]) -> Vicinity:
    """The suspects, what they read and who reads them, as many as ``MOST``. Ids that
    the graph does not have are left out."""
    chosen = sorted(n for n in set(suspects) if 0 <= n < len(index.nodes))[: MOST - 4]
    if not chosen:
        return Vicinity()
    read = [t for n in chosen for t in index.nodes[n].reads]
    made = [t for n in chosen for t in index.nodes[n].outputs]
    drawn = sorted({*chosen, *_beside(index, chosen, read, made)})
    place = {n: i for i, n in enumerate(drawn)}
    spots = tuple(_spot(index, n, place, suspect=n in chosen) for n in drawn)
    before = len(set(index.ancestors(read)) - place.keys())
    return Vicinity(spots, before, len(set(index.descendants(made)) - place.keys()))


def _beside(
    index: GraphIndex, chosen: Collection[int], read: Sequence[int], made: Sequence[int]
) -> list[int]:
    """What makes the tensors that are read, and who reads those that are made, as far as there is
    room."""
    producers = (index.tensors[t].producer for t in read)
    above = [*dict.fromkeys(p for p in producers if p >= 0 and p not in chosen)]
    below = [*dict.fromkeys(r for t in made for r in index.readers[t] if r not in chosen)]
    room = MOST - len(chosen)
    least = max(1, room - min(len(above), room // 2))
    above = above[: room - len(below[:least])]
    return [*above, *below[: room - len(above)]]


def _spot(index: GraphIndex, n: int, place: Mapping[int, int], *, suspect: bool) -> Spot:
    node, final = index.nodes[n], set(index.outputs)
    fed = [index.tensors[t].name for t in node.reads if index.tensors[t].kind == "input"]
    ends = [index.tensors[t].name for t in node.outputs if t in final]
    notes = [f"reads input {name}" for name in fed[:1]] + [f"output {name}" for name in ends[:1]]
    notes += [f"in {node.module}"] if node.module else []
    notes += [node.source] if suspect and node.source else []
    producers = {index.tensors[t].producer for t in node.reads}
    reads = tuple(sorted(place[p] for p in producers if p in place))
    makes = tuple(_form(index.tensors[t]) for t in node.outputs)
    return Spot(node.op, index.shown_names[n], reads, suspect, ", ".join(notes), makes)


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
