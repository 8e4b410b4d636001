"""Models as graphs. As steps see them, here: ids, edges, op types, sizes, no arrays, no protobuf.
Taken in and stored: ``load``; a part of one: ``cut``; emulated and typed anew: ``emulate``,
``typed``; quantizers found and taken out: ``quantized``, ``bypass``. What is wrong with one is a
``ModelProblem``.

A worker makes the index from a model (``load``); it travels as JSON. Node ids are topological:
every input of node ``i`` is made by a node with a smaller id, or is a graph input or a weight.
"""

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from functools import cached_property
from typing import Literal, TypeAlias

import msgspec


class ModelProblem(Exception):
    """The model cannot be read, cut or converted. The message is a sentence: what happened, to
    what, what to do next."""


_ITERATION = re.compile(r"/iteration_\d+/")  # in the name of a copy (``engines.graph.unroll``)

Stated: TypeAlias = int | float | str | list[int | float | str]

# Operators that give other values each time.
DRAWS = frozenset(
    {
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
    }
)

# Values pass these unchanged, as far as which row of a table they name is concerned.
THROUGH = frozenset(
    {
        "Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten", "Slice", "Concat", "Expand", "Tile",
        "Clip", "Split",
    }
)  # fmt: skip


class Tensor(msgspec.Struct, frozen=True, array_like=True):
    """One tensor of the main graph.

    ``dtype`` is numpy's name (``float32``, ``bfloat16``, ``int64``, ``bool``), ``"string"``,
    ``"sequence"`` or ``""`` where unknown. ``shape`` is the shape *seen in the reference run* where
    there was one, else the declared one with
    -1 for symbolic dimensions, else None. ``bytes`` follows from both, -1 where unknown.
    """

    id: int
    name: str
    dtype: str
    kind: Literal["input", "weight", "node"]
    producer: int  # node id, -1 for inputs and weights
    shape: tuple[int, ...] | None = None
    bytes: int = -1

    @property
    def floating(self) -> bool:
        return self.dtype.startswith(("float", "bfloat"))


class Node(msgspec.Struct, frozen=True, array_like=True):
    """One node of the main graph. ``inputs`` holds tensor ids, -1 for an omitted optional input.

    ``captures`` are outer tensors read by the bodies of If, Loop and Scan nodes; they count as
    inputs for every cut. ``attributes`` are those that the operator could do without: stated, not
    required, no graph and no element type. ``values``: what its attributes hold, short ones alone.
    ``source``: file and line of the program that was exported, ``module`` the path and
    ``module_class`` the class of the module that it lies in; "" where unknown.
    """

    id: int
    name: str  # the original name: may be empty, repeated, or hold anything
    op: str
    domain: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    captures: tuple[int, ...] = ()
    attributes: tuple[str, ...] = ()
    values: dict[str, Stated] = {}
    source: str = ""
    module: str = ""
    module_class: str = ""

    @property
    def reads(self) -> tuple[int, ...]:
        given = (
            tuple(t for t in self.inputs if t >= 0) if -1 in self.inputs else self.inputs
        )  # asked of every node at every cut
        return given + self.captures

    @property
    def holds_graphs(self) -> bool:
        """Whether it is an If, Loop or Scan, whose bodies no search enters."""
        return self.op in ("If", "Loop", "Scan") and self.domain in ("", "ai.onnx")


class GraphIndex(msgspec.Struct, frozen=True, dict=True):
    """The whole main graph. Constant nodes have become weights. ``model`` is the digest of the
    stored model."""

    model: str
    nodes: tuple[Node, ...]
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    # Tensors that decide a shape, an axis, an index list or a condition somewhere downstream
    # (integers and booleans only): fed as constants by default, as the engine would fold them.
    shape_like: tuple[int, ...] = ()
    opset: int = 0  # of ONNX's own operators; 0: not known
    centred: tuple[int, ...] = ()  # stored codes that may be zero points of symmetric pairs

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """For each tensor id the ids of the nodes that read it, ascending."""
        lists: list[list[int]] = [[] for _ in self.tensors]
        for node in self.nodes:
            for t in dict.fromkeys(node.reads):
                lists[t].append(node.id)
        return tuple(map(tuple, lists))

    @cached_property
    def by_name(self) -> dict[str, int]:
        """Tensor name -> id."""
        return {t.name: t.id for t in self.tensors}

    @cached_property
    def shown_names(self) -> tuple[str, ...]:
        """What people are told of each node, by id: its name where it is the only one of that name,
        else its operator and the first tensor that it makes (``Add:y``): "n and n" tells nobody
        which two."""
        many = Counter(node.name for node in self.nodes)
        return tuple(
            n.name if n.name and many[n.name] == 1 else f"{n.op}:{self.tensors[n.outputs[0]].name}"
            for n in self.nodes
        )

    def names(self, nodes: Iterable[int]) -> tuple[str, ...]:
        """The shown names of these nodes."""
        return tuple(self.shown_names[n] for n in nodes)

    @cached_property
    def output_order(self) -> dict[int, int]:
        """Tensor id of each output of the graph -> its place among them."""
        return {t: place for place, t in enumerate(self.outputs)}

    @cached_property
    def from_weights(self) -> frozenset[int]:
        """Ids of the tensors that nodes make of weights alone, the same in every run: an engine
        folds them into constants."""
        fixed = {t.id for t in self.tensors if t.kind == "weight"}
        weights = frozenset(fixed)
        for node in self.nodes:
            if (
                node.reads
                and node.op not in DRAWS | {"Dropout"}  # which drops while a model is trained
                and not node.holds_graphs
                and fixed.issuperset(node.reads)
            ):
                fixed.update(node.outputs)
        return frozenset(fixed) - weights

    @cached_property
    def kinds(self) -> tuple[tuple[int, ...], ...]:
        """By node id all nodes of its kind: one operator with the same attributes and sizes, fed by
        the same operators, as each layer of a model has them again."""
        return _join_alike(map(self._describe, self.nodes))

    @cached_property
    def copies(self) -> tuple[tuple[int, ...], ...]:
        """By node id the node and, of a node of a body, its copies in all iterations: an engine that
        runs the loop has one node for all of them."""
        return _join_alike(
            _ITERATION.sub("/", node.name) if _ITERATION.search(node.name) else node.id
            for node in self.nodes
        )

    def with_copies(self, nodes: Iterable[int]) -> tuple[int, ...]:
        """These nodes and all copies of them, ascending."""
        return tuple(sorted({copy for n in nodes for copy in self.copies[n]}))

    def group_copies(self, nodes: Iterable[int]) -> tuple[tuple[int, ...], ...]:
        """These nodes, ascending, those that are copies of one node in one group."""
        inside = frozenset(nodes)
        groups = dict.fromkeys(self.copies[n] for n in sorted(inside))
        return tuple(tuple(n for n in group if n in inside) for group in groups)

    def _describe(self, node: Node) -> str:
        read, made = ([self.tensors[t] for t in ids] for ids in (node.reads, node.outputs))
        fed = [
            self.nodes[t.producer].op if t.producer >= 0 else (t.kind, t.dtype, t.shape)
            for t in read
        ]
        return f"{node.op} {node.domain} {node.values} {fed} {[t.shape for t in made]}"

    def made_by(self, tensor: int) -> Node | None:
        """The node that makes the tensor; None for graph inputs and weights."""
        producer = self.tensors[tensor].producer
        return self.nodes[producer] if producer >= 0 else None

    def ancestors(self, tensors: Iterable[int], stop: Iterable[int] = ()) -> tuple[int, ...]:
        """Ids of the nodes that the tensors depend on, ascending; tensors in ``stop`` are not
        followed upwards."""
        stops, seen = set(stop), set[int]()
        todo = [t for t in tensors if t not in stops]
        while todo:
            producer = self.tensors[todo.pop()].producer
            if producer >= 0 and producer not in seen:
                seen.add(producer)
                todo.extend(t for t in self.nodes[producer].reads if t not in stops)
        return tuple(sorted(seen))

    def descendants(self, tensors: Iterable[int]) -> tuple[int, ...]:
        """Ids of the nodes that depend on any of the tensors, ascending."""
        seen = set[int]()
        todo = list(tensors)
        while todo:
            for n in self.readers[todo.pop()]:
                if n not in seen:
                    seen.add(n)
                    todo.extend(self.nodes[n].outputs)
        return tuple(sorted(seen))

    def list_recurrent(self, carried: Mapping[str, str]) -> set[int]:
        """The nodes between each of these inputs and the output that goes back into it: what they
        round is rounded again in each step."""
        ends = [(self.by_name[name], self.by_name[output]) for name, output in carried.items()]
        return {n for i, o in ends for n in {*self.descendants([i])} & {*self.ancestors([o])}}

    def boundary(self, nodes: Iterable[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(inputs, outputs) of a node set: tensors it reads and does not make, weights left out;
        tensors it makes that a node outside reads or that are outputs of the graph. Each
        ascending."""
        inside = set(nodes)
        made = {t for n in inside for t in self.nodes[n].outputs}
        final = self.output_order
        reads = {t for n in inside for t in self.nodes[n].reads} - made
        feeds = tuple(sorted(t for t in reads if self.tensors[t].kind != "weight"))
        leaves = tuple(
            sorted(t for t in made if t in final or any(r not in inside for r in self.readers[t]))
        )
        return feeds, leaves

    def first_of(self, tensors: Collection[int]) -> tuple[int, ...]:
        """Those that a node makes of none of them, ascending. A constant and an input are made by
        none."""
        among = frozenset(tensors)
        made = (t for t in sorted(among) if self.tensors[t].producer >= 0)
        return tuple(
            t for t in made if among.isdisjoint(self.nodes[self.tensors[t].producer].reads)
        )

    def with_paths(self, nodes: Iterable[int]) -> frozenset[int]:
        """The nodes, and those on every path that leaves them and comes back to them."""
        inside = frozenset(nodes)
        feeds, leaves = self.boundary(inside)
        return inside.union(set(self.descendants(leaves)).intersection(self.ancestors(feeds)))

    def ring(self, nodes: Iterable[int]) -> set[int]:
        """The nodes, those that make what they read and those that read what they make."""
        inside = set(nodes)
        feeds, leaves = self.boundary(inside)
        made = {self.tensors[t].producer for t in feeds} - {-1}
        return inside | made | {r for t in leaves for r in self.readers[t]}


def _join_alike(described: Iterable[Hashable]) -> tuple[tuple[int, ...], ...]:
    """By place all places of what is described in the same way."""
    keys = tuple(described)
    alike: dict[Hashable, list[int]] = {}
    for place, key in enumerate(keys):
        alike.setdefault(key, []).append(place)
    groups = {key: tuple(places) for key, places in alike.items()}
    return tuple(groups[key] for key in keys)
