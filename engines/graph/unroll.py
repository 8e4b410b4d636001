"""If, Loop and Scan of the main graph as plain nodes: the branch that was taken, the iterations
that were run.

What was taken and run is known from a reference run of ``watched``, which makes it readable. The
nodes of a body get names that say where they stood (``layer/then_branch/add``,
``layer/body/iteration_3/add``), its weights are shared by all iterations, and the result computes
the same bits.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, helper

from narrowdown.engines.array import Array
from narrowdown.engines.graph import constants, names, plain_outputs, protos, schema, splice
from narrowdown.engines.graph.random_nodes import draw_numbers

CONTROL = frozenset({"If", "Loop", "Scan"})


@dataclass(frozen=True)
class Watched:
    """What tells how a node ran: the tensor ``name`` of the watched model. Of an If its condition,
    of a Loop the numbers of its iterations, of a Scan what it walks along ``axis``."""

    position: int
    name: str
    axis: int = 0


def nodes_with_bodies(graph: GraphProto) -> list[int]:
    """Positions of the graph's If, Loop and Scan nodes."""
    return [
        i
        for i, node in enumerate(graph.node)
        if node.op_type in CONTROL and schema.domain_of(node) == ""
    ]


def body_size(graph: GraphProto) -> int:
    """Nodes in a body, those of its own bodies too; constants count as nothing."""
    return sum(node.op_type != "Constant" for node in names.all_nodes(graph.node))


def find_inside(holder: NodeProto, path: str, op: str) -> tuple[str, NodeProto] | None:
    """The node in the bodies that is called ``path`` behind the holder's name once it is opened,
    and its name there without iterations; None for none."""
    for attribute in holder.attribute:
        if attribute.type != AttributeProto.GRAPH or not path.startswith(f"{attribute.name}/"):
            continue
        rest = path.removeprefix(f"{attribute.name}/")
        if holder.op_type != "If":
            rest = rest.partition("/")[2]  # behind the iteration
        for name, node in _name_inside(attribute.g):
            if name == rest and node.op_type == op:
                return f"{attribute.name}/{name}", node
            deeper = rest.removeprefix(f"{name}/") if node.op_type in CONTROL else rest
            if deeper != rest and (found := find_inside(node, deeper, op)) is not None:
                return f"{attribute.name}/{name}/{found[0]}", found[1]
    return None


def _name_inside(body: GraphProto) -> list[tuple[str, NodeProto]]:
    """What each node of a body is called once it is opened, behind the names of its holder, of the
    body and the iteration; without those that share a name."""
    left = [node for node in body.node if constants.weight_of(node) is None]
    called = [node.name or f"{node.op_type}_{i}" for i, node in enumerate(left)]
    return [(n, node) for n, node in zip(called, left, strict=True) if called.count(n) == 1]


def why_closed(model: ModelProto, position: int) -> str:
    """Why the node cannot be opened, in words that follow its name; "" where it can."""
    node = model.graph.node[position]
    if node.op_type == "Scan" and schema.opsets(model).get("", 0) < 9:
        return "is a Scan of opset 8, which walks whole batches"
    if any(plain_outputs.holds_sequences(body) for body in names.bodies(node)):
        return "takes sequences apart"
    # One node in a loop draws on, its copies would each begin anew.
    if node.op_type != "If" and draw_numbers([node]):
        return "draws random numbers in each iteration"
    return ""


def watch_nodes(model: ModelProto, positions: Sequence[int]) -> tuple[ModelProto, list[Watched]]:
    """A copy of the model in which the If, Loop and Scan nodes at these positions tell how they
    ran."""
    result = deepcopy(model)
    graph = result.graph
    fresh = names.Fresh(names.used(graph))
    found = []
    for i in positions:
        node = graph.node[i]
        if node.op_type == "If":
            found.append(Watched(i, node.input[0]))
        elif node.op_type == "Loop":
            found.append(Watched(i, _list_runs(node, fresh)))
        else:
            walked, axes = (
                schema.attribute_value(node, "num_scan_inputs"),
                schema.attribute_value(node, "scan_input_axes", ()),
            )
            found.append(Watched(i, node.input[len(node.input) - walked], axes[0] if axes else 0))
    return result, found


def _list_runs(node: NodeProto, fresh: names.Fresh) -> str:
    """Let the Loop give the number of each iteration; returns the name of what holds them."""
    body = schema.attribute_value(node, "body")
    number, numbers = (fresh(f"{node.name}__{word}") for word in ("number", "numbers"))
    lacking = [""] * (len(body.output) - 1 - len(node.output))
    body.node.append(helper.make_node("Identity", [body.input[0].name], [number]))
    body.output.append(helper.make_value_info(number, body.input[0].type))
    # ONNX Runtime 1.31.1 dies of a Loop whose state is not asked for.
    given = [name or fresh(f"{numbers}_unread") for name in (*node.output, *lacking)]
    node.output[:] = [*given, numbers]
    return numbers


def how_it_ran(node: NodeProto, value: Array, axis: int) -> int:
    """How the node ran, by the value that was watched: 0 or 1 for the else or then branch, else the
    number of iterations."""
    return int(bool(value.reshape(-1)[0])) if node.op_type == "If" else int(value.shape[axis])


def open_nodes(
    model: ModelProto, runs: Mapping[int, int], empty: Mapping[str, Array]
) -> ModelProto:
    """A copy of the model with plain nodes in place of those at the positions of ``runs`` (how each
    ran). ``empty``: values of the outputs of loops that ran no iteration, by name. Nodes that
    nothing reads any more are gone."""
    result = deepcopy(model)
    graph = result.graph
    fresh = names.Fresh(names.used(graph))
    listed = names.unique_nodes(graph.node)
    versions = schema.opsets(result)
    nodes: list[NodeProto] = []
    for i, node in enumerate(graph.node):
        if i not in runs:
            nodes.append(node)
        elif node.op_type == "If":
            nodes += _splice_branch(graph, node, listed[i], bool(runs[i]), fresh)
        else:
            nodes += _Rolled(graph, node, listed[i], fresh, versions.get("", 1)).unrolled(
                runs[i], empty
            )
    protos.refill(graph.node, nodes)
    splice.drop_unread(graph)
    return result


def _splice_branch(
    graph: GraphProto, node: NodeProto, name: str, taken: bool, fresh: names.Fresh
) -> list[NodeProto]:
    which = "then_branch" if taken else "else_branch"
    body, prefix = schema.attribute_value(node, which), f"{name}/{which}"
    mapping: dict[str, str] = {}
    left = splice.share_weights(body, graph, prefix, mapping, fresh)
    return _splice_body(
        left,
        prefix,
        mapping,
        fresh,
        [(o.name, t) for o, t in zip(body.output, node.output, strict=False)],
    )


def _splice_body(
    nodes: list[NodeProto], prefix: str, mapping: dict[str, str], fresh: names.Fresh, handed: list[tuple[str, str]]
) -> list[NodeProto]:  # fmt: skip
    """The body's nodes, and what hands its values on: ``handed`` are (name in the body, name
    outside; "" for none)."""
    made = {name for node in nodes for name in node.output if name}
    later = []
    for inner, outer in handed:
        if not outer:
            continue
        if inner in made and inner not in mapping:
            mapping[inner] = outer
        else:
            later.append((inner, outer))
    copies = splice.copy_nodes(nodes, prefix, mapping, fresh)
    return copies + [
        splice.identity_node(mapping.get(inner, inner), outer, prefix) for inner, outer in later
    ]


class _Rolled:
    """A Loop or a Scan, to be unrolled."""

    def __init__(
        self, graph: GraphProto, node: NodeProto, name: str, fresh: names.Fresh, opset: int
    ) -> None:
        self.graph, self.node, self.prefix, self.fresh, self.opset = (
            graph,
            node,
            f"{name}/body",
            fresh,
            opset,
        )
        self.body = schema.attribute_value(node, "body")
        self.loop = node.op_type == "Loop"
        walked = 0 if self.loop else schema.attribute_value(node, "num_scan_inputs")
        self.start = [*node.input[2 if self.loop else 0 : len(node.input) - walked]]
        self.walked = [*node.input[len(node.input) - walked :]] if walked else []
        self.first = 2 if self.loop else 0  # of the body's inputs that are carried
        self.carried = [o.name for o in self.body.output[self.loop : self.loop + len(self.start)]]
        self.listed = [o.name for o in self.body.output[self.loop + len(self.start) :]]
        given = [*node.output, *[""] * (len(self.carried) + len(self.listed) - len(node.output))]
        self.finals, self.stacked = given[: len(self.carried)], given[len(self.carried) :]

    def unrolled(self, count: int, empty: Mapping[str, Array]) -> list[NodeProto]:
        if count == 0:
            for name in filter(None, self.stacked):
                splice.add_weight(self.graph, empty[name], name)
            return [
                splice.identity_node(s, f, self.prefix)
                for s, f in zip(self.start, self.finals, strict=True)
                if f
            ]
        shared: dict[str, str] = {}
        left = splice.share_weights(self.body, self.graph, self.prefix, shared, self.fresh)
        nodes: list[NodeProto] = []
        state, rows = self.start, [list[str]() for _ in self.listed]
        for k in range(count):
            prefix = f"{self.prefix}/iteration_{k}"
            mapping = dict(shared)
            nodes += self._feed_iteration(k, count, prefix, mapping, state)
            last = k == count - 1
            handed = [*zip(self.carried, self.finals, strict=True)] if last else []
            nodes += _splice_body(left, prefix, mapping, self.fresh, handed)
            state = [mapping.get(name, name) for name in self.carried]
            for row, name in zip(rows, self.listed, strict=True):
                row.append(mapping.get(name, name))
        for position, (row, target) in enumerate(zip(rows, self.stacked, strict=True)):
            if target:
                nodes += self._stack_outputs(position, row, target)
        return nodes

    def _feed_iteration(
        self, k: int, count: int, prefix: str, mapping: dict[str, str], state: list[str]
    ) -> list[NodeProto]:
        """Name in ``mapping`` what the body is given in iteration ``k``; the nodes that make it."""
        inputs = [i.name for i in self.body.input]
        made = []
        if self.loop:
            for info, value in zip(self.body.input[:2], (np.int64(k), np.True_), strict=False):
                shaped = np.asarray(value).reshape([1] * len(info.type.tensor_type.shape.dim))
                mapping[info.name] = splice.add_weight(
                    self.graph, shaped, self.fresh(f"{prefix}/{info.name}")
                )
        mapping.update(zip(inputs[self.first :], state, strict=False))
        axes, backwards = (
            schema.attribute_value(self.node, f"scan_input_{word}", ())
            for word in ("axes", "directions")
        )
        for i, (source, inner) in enumerate(
            zip(self.walked, inputs[len(state) :] if not self.loop else [], strict=False)
        ):
            at = count - 1 - k if i < len(backwards) and backwards[i] else k
            index = splice.add_weight(
                self.graph, np.array(at, np.int64), self.fresh(f"{prefix}/{inner}/index")
            )
            mapping[inner] = self.fresh(f"{prefix}/{inner}")
            axis = axes[i] if i < len(axes) else 0
            made.append(
                helper.make_node(
                    "Gather",
                    [source, index],
                    [mapping[inner]],
                    f"{prefix}/{inner}/Gather",
                    axis=axis,
                )
            )
        return made

    def _stack_outputs(self, position: int, row: list[str], target: str) -> list[NodeProto]:
        """What each iteration gave, joined along a new axis."""
        axes, backwards = (
            schema.attribute_value(self.node, f"scan_output_{word}", ())
            for word in ("axes", "directions")
        )
        axis = axes[position] if position < len(axes) else 0
        if position < len(backwards) and backwards[position]:
            row = row[::-1]
        nodes, parts = [], []
        if self.opset >= 13:
            which = splice.add_weight(
                self.graph, np.array([axis], np.int64), self.fresh(f"{self.prefix}/{target}/axis")
            )
        for i, name in enumerate(row):
            part = target if len(row) == 1 else self.fresh(f"{self.prefix}/{target}/{i}")
            label = f"{self.prefix}/{target}/Unsqueeze_{i}"
            if self.opset >= 13:
                nodes.append(helper.make_node("Unsqueeze", [name, which], [part], label))
            else:
                nodes.append(helper.make_node("Unsqueeze", [name], [part], label, axes=[axis]))
            parts.append(part)
        if len(row) > 1:
            nodes.append(
                helper.make_node(
                    "Concat", parts, [target], f"{self.prefix}/{target}/Concat", axis=axis
                )
            )
        return nodes
