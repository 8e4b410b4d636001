"""Put the nodes of a function or of a body in the place of the node that holds them: copies under
names of their own.

``layer/body/iteration_3/add`` is the node ``add`` in iteration 3 of the Loop ``layer``: the name
says where it stands.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

from narrowdown.engines.graph import constants, names, protos

Attributes = Mapping[str, AttributeProto]


def copy_nodes(
    nodes: Sequence[NodeProto], prefix: str, mapping: dict[str, str], fresh: names.Fresh, attributes: Attributes | None = None
) -> list[NodeProto]:  # fmt: skip
    """Copies of the nodes, named ``prefix/...``. What they read and make is renamed by ``mapping``;
    what they make besides gets a fresh name below the prefix, which is added to ``mapping``.
    ``attributes``: the call's, for nodes of a function that refer to them; an attribute that refers
    to none is left out."""
    for node in nodes:
        for name in node.output:
            if name and name not in mapping:
                mapping[name] = fresh(f"{prefix}/{name}")
    made = []
    for i, original in enumerate(nodes):
        node = deepcopy(original)
        node.name = f"{prefix}/{original.name or f'{original.op_type}_{i}'}"
        if attributes is not None:
            fill_references(node, attributes)
        names.rename_tensors([node], mapping)
        made.append(node)
    return made


def fill_references(node: NodeProto, attributes: Attributes) -> None:
    """Put the call's attributes where the node refers to them, in its bodies too."""
    for attribute in list(node.attribute):
        if attribute.ref_attr_name:
            actual = attributes.get(attribute.ref_attr_name)
            name = attribute.name
            if actual is None:
                node.attribute.remove(attribute)
            else:
                attribute.CopyFrom(actual)
                attribute.name = name
    for body in names.bodies(node):
        for child in body.node:
            fill_references(child, attributes)


def share_weights(
    body: GraphProto, into: GraphProto, prefix: str, mapping: dict[str, str], fresh: names.Fresh
) -> list[NodeProto]:  # fmt: skip
    """Move the body's weights, Constant nodes too, to the graph around it, once for all its copies;
    ``mapping`` gets their new names. Returns the nodes that are left."""
    for tensor in body.initializer:
        weight = into.initializer.add()
        weight.CopyFrom(tensor)
        weight.name = mapping[tensor.name] = fresh(f"{prefix}/{tensor.name}")
    for sparse in body.sparse_initializer:
        other = into.sparse_initializer.add()
        other.CopyFrom(sparse)
        other.values.name = mapping[sparse.values.name] = fresh(f"{prefix}/{sparse.values.name}")
    left = []
    for node in body.node:
        constant = constants.weight_of(node)
        if constant is None:
            left.append(node)
            continue
        constant.name = mapping[node.output[0]] = fresh(f"{prefix}/{node.output[0]}")
        into.initializer.append(constant)
    return left


def identity_node(source: str, target: str, prefix: str) -> NodeProto:
    """The node that hands ``source`` on under the name ``target``."""
    return helper.make_node("Identity", [source], [target], f"{prefix}/{target}")


def add_weight(
    graph: GraphProto, value: np.ndarray[tuple[int, ...], np.dtype[np.generic]], name: str
) -> str:
    """Add a weight; returns its name."""
    tensor: TensorProto = numpy_helper.from_array(np.asarray(value), name)
    graph.initializer.append(tensor)
    return name


def drop_unread(graph: GraphProto) -> None:
    """Take the nodes out that make nothing which anybody reads."""
    wanted = {o.name for o in graph.output}
    kept = []
    for node in reversed(graph.node):
        if any(name in wanted for name in node.output):
            kept.append(node)
            wanted.update((*node.input, *names.captures(node)))
    protos.refill(graph.node, reversed(kept))
