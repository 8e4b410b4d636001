"""A model in stages that can be run one after the other: each takes what those before it gave,
under the same names."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from onnx import ModelProto, NodeProto, TensorProto

from narrowdown.engines.graph import names, schema

LEAST, MOST = 4, 32  # nodes of a stage: for fewer a session of their own does not pay
STAGES = 32  # of a large model, at the most


@dataclass(frozen=True)
class Stage:
    """``first``, ``last``: positions of its nodes in the whole graph, the last left out. ``model``:
    these nodes, and before them an Identity for each float tensor that an earlier stage gives, so
    that it can be treated as its node's result is. ``makers``: by position of that Identity, the
    position of this node in the whole graph. ``passing``: tensors that are needed after it,
    whichever stage gives them."""

    first: int
    last: int
    model: ModelProto
    makers: tuple[int, ...]
    passing: tuple[str, ...]

    def local(self, nodes: Collection[int]) -> frozenset[int]:
        """Positions in ``model`` of these nodes of the whole graph, and of the Identities of what
        they give."""
        shift = len(self.makers) - self.first
        own = (node + shift for node in nodes if self.first <= node < self.last)
        return frozenset((*own, *(at for at, maker in enumerate(self.makers) if maker in nodes)))


def split(model: ModelProto) -> tuple[Stage, ...]:
    """The model's stages, the whole model where it cannot be divided. A stage ends where the fewest
    tensors pass, before the graph fans out; what passes is of known type."""
    graph = model.graph
    reads = [_reads(node) for node in graph.node]
    made = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    last = {name: at for at, read in enumerate(reads) for name in read if name in made}
    last |= {o.name: len(reads) for o in graph.output if o.name in made}
    types = schema.element_types(model)
    steps, unknown = [0] * (len(reads) + 2), [0] * (len(reads) + 2)
    for name, end in last.items():
        for counted in (steps, *([unknown] if types.get(name, 0) <= 0 else [])):
            counted[made[name] + 1] += 1
            counted[end + 1] -= 1
    whole = any(o.name not in made for o in graph.output)
    ends = [] if whole else _edges(list(accumulate(steps)), list(accumulate(unknown)), len(reads))
    return tuple(
        _cut(model, a, b, [n for n in made if made[n] < b <= last.get(n, -1)], reads, made, types)
        for a, b in pairwise((0, *ends, len(reads)))
    )


def _reads(node: NodeProto) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*filter(None, node.input), *names.captures(node))))


def _edges(passing: Sequence[int], unknown: Sequence[int], nodes: int) -> list[int]:
    """Before which nodes a stage ends, of so many tensors that pass there."""
    least = max(LEAST, nodes // STAGES)
    found = [0]
    for at in range(least, nodes - least + 1):
        if at - found[-1] < least or unknown[at]:
            continue
        narrow = passing[at] < passing[at + 1] and passing[at] <= min(passing[at - least : at])
        if narrow or at - found[-1] >= max(MOST, 2 * least):
            found.append(at)
    return found[1:]


def _cut(
    model: ModelProto, first: int, last: int, passing: Sequence[str], reads: Sequence[Sequence[str]],
    made: Mapping[str, int], types: Mapping[str, int],
) -> Stage:  # fmt: skip
    graph = model.graph
    read = dict.fromkeys(name for each in reads[first:last] for name in each)
    taken = [name for name in read if made.get(name, last) < first]
    floats = [name for name in taken if types[name] == TensorProto.FLOAT]
    fresh = names.Fresh(names.used(graph))
    named = {name: fresh(f"{name}__taken") for name in floats}
    stage = ModelProto(
        ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions
    )
    part = stage.graph
    part.name = graph.name
    part.input.extend(i for i in graph.input if i.name in read)
    for name in taken:
        part.input.add(name=named.get(name, name)).type.tensor_type.elem_type = types[name]
    for name in floats:
        part.node.add(op_type="Identity", name=named[name], input=[named[name]], output=[name])
    part.node.extend(graph.node[first:last])
    part.initializer.extend(t for t in graph.initializer if t.name in read)
    part.sparse_initializer.extend(s for s in graph.sparse_initializer if s.values.name in read)
    own = {name for name, at in made.items() if first <= at < last}
    part.value_info.extend(v for v in graph.value_info if v.name in own)
    ends = {o.name: o for o in graph.output}
    for name in (name for name in passing if name in own):
        if name in ends:
            part.output.append(ends[name])
        else:
            part.output.add(name=name).type.tensor_type.elem_type = types[name]
    makers = tuple(made[name] for name in floats)
    return Stage(first, last, stage, makers, tuple(passing))
