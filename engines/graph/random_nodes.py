"""Which nodes of a model draw random numbers that its outputs depend on."""

from collections.abc import Iterable, Mapping

from onnx import GraphProto, NodeProto, TensorProto, numpy_helper

from narrowdown.engines.graph import DRAWS, names


def list_random(graph: GraphProto) -> tuple[str, ...]:
    """``name (Operator)`` of each, in the order of the graph; of a body the node that holds it."""
    weights = {t.name: t for t in graph.initializer}
    wanted = {o.name for o in graph.output}
    found: list[str] = []
    for node in reversed(graph.node):  # they are in topological order
        if not wanted.intersection(node.output):
            continue
        wanted.update(node.input)
        for body in names.bodies(node):
            wanted.update(name for inner in names.all_nodes(body.node) for name in inner.input)
        random = next((n for n in names.all_nodes([node]) if _draws_numbers(n, weights)), None)
        if random is not None:
            found.append(f"{node.name or node.output[0]} ({random.op_type})")
    return tuple(reversed(found))


def draw_numbers(nodes: Iterable[NodeProto]) -> bool:
    """Whether one of the nodes, or a node of their bodies, may draw random numbers."""
    return any(map(may_draw, names.all_nodes(nodes)))


def may_draw(node: NodeProto) -> bool:
    """Whether the node by itself may draw random numbers."""
    return node.op_type in DRAWS or (node.op_type == "Dropout" and len(node.input) > 2)


def _draws_numbers(node: NodeProto, weights: Mapping[str, TensorProto]) -> bool:
    """Whether it does, where a weight says so of a Dropout."""
    if not may_draw(node) or node.domain not in ("", "ai.onnx"):
        return False
    training = weights.get(node.input[2]) if node.op_type == "Dropout" else None
    return node.op_type in DRAWS or (
        training is not None and bool(numpy_helper.to_array(training).any())
    )
