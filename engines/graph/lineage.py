"""What the value of a tensor follows from, as a digest: tensors of two models that compute alike
have the same."""

import hashlib
from collections.abc import Iterator

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from narrowdown.engines.graph import external, names, random_nodes
from narrowdown.engines.graph.index import GraphIndex


def trace(proto: ModelProto, index: GraphIndex) -> tuple[str, ...]:
    """By tensor id: operators with their versions and attributes, weights by their bytes or by
    their place in a file that is named by its content, inputs by name. Empty for a model that may
    draw random numbers: its values belong to one run."""
    graph = proto.graph
    if any(random_nodes.may_draw(node) for node in _with_bodies(graph)):
        return ()
    opsets = sorted((o.domain, o.version) for o in proto.opset_import)
    base = _digest(
        repr(opsets).encode(), *(f.SerializeToString(deterministic=True) for f in proto.functions)
    )
    weights = {t.name: _know_weight(t) for t in graph.initializer}
    weights |= {
        s.values.name: s.SerializeToString(deterministic=True) for s in graph.sparse_initializer
    }
    found = [_digest(t.kind.encode(), weights.get(t.name, t.name.encode())) for t in index.tensors]
    for node, written in zip(index.nodes, graph.node, strict=True):
        reads = [found[t] if t >= 0 else "" for t in (*node.inputs, *node.captures)]
        places = {name: at for at, name in enumerate(written.output)}
        own = _digest(base.encode(), _know_operator(written), *(read.encode() for read in reads))
        for t in node.outputs:
            found[t] = _digest(own.encode(), str(places[index.tensors[t].name]).encode())
    return tuple(found)


def _know_weight(tensor: TensorProto) -> bytes:
    kind = (tensor.data_type, tuple(tensor.dims))
    if external.is_external(tensor):
        return repr((kind, external.external_span(tensor))).encode()
    bare = TensorProto()
    bare.CopyFrom(tensor)
    bare.ClearField("name")
    bare.ClearField("doc_string")
    return bytes(bare.SerializeToString(deterministic=True))


def _know_operator(node: NodeProto) -> bytes:
    """Without its names, but for those inside bodies, which say what is read from outside."""
    bare = NodeProto(
        op_type=node.op_type, domain=node.domain, overload=node.overload, attribute=node.attribute
    )
    given = [
        bool(name) for name in node.output
    ]  # an output that nobody asks for may choose the computation
    return (
        bytes(bare.SerializeToString(deterministic=True))
        + repr((given, names.captures(node))).encode()
    )


def _with_bodies(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for body in names.bodies(node):
            yield from _with_bodies(body)


def _digest(*parts: bytes) -> str:
    known = hashlib.sha256()
    for part in parts:
        known.update(len(part).to_bytes(8, "little"))
        known.update(part)
    return known.hexdigest()[:32]
