"""Attributes of classical models (ai.onnx.ml) that hold numbers by the million, as the nodes of a tree ensemble: kept as the
bytes that the file has.

Protobuf writes each of these numbers as a field of its own and keeps five times the file in memory once it is parsed, in each
copy of the model. So a loaded model has them under a field number that NodeProto does not know (``_AWAY``), which copies take
along and nobody looks into; whoever hands a model on, to an engine or a file, puts them back (``serialize``, ``put_back``). Both
are one byte of each attribute: its tag.
"""

from collections.abc import Iterator

from onnx import AttributeProto, ModelProto, NodeProto

from engines.graph import wire

DOMAIN = "ai.onnx.ml"
LEAST = 256 << 10  # bytes of an attribute that is worth it
_ATTRIBUTE, _AWAY = 5, 15  # of NodeProto, which goes up to 10; both tags are one byte
_GRAPH, _NODE = 7, 1  # of ModelProto, of GraphProto
_DOMAIN = 7  # of NodeProto
_NUMBERS = frozenset({AttributeProto.INTS, AttributeProto.FLOATS, AttributeProto.STRINGS})


def parse(data: bytes) -> ModelProto:
    """The model, its bulky attributes put away. A field of the same number that somebody else has written is left out, so that
    nobody finds it among the node's own. Raises what protobuf raises."""
    if DOMAIN.encode() not in data:
        return ModelProto.FromString(data)
    if _has_foreign(data):
        return _known(ModelProto.FromString(data))
    changed = bytearray(data)
    if not _put_away(changed, data):
        return ModelProto.FromString(data)
    return ModelProto.FromString(bytes(changed))


def has_any(model: ModelProto) -> bool:
    """Whether the model may have attributes that were put away: nodes of the domain that have them."""
    return any(node.domain == DOMAIN for node in model.graph.node)


def serialize(model: ModelProto, *, deterministic: bool = False) -> bytes:
    """The bytes of the whole model, as it is in a file. Raises what protobuf raises."""
    data: bytes = model.SerializeToString(deterministic=deterministic)
    if not has_any(model):
        return data
    changed = bytearray(data)
    found = False
    for domain, start, end in _list_nodes(data):
        for number, at, _ in wire.iterate_fields(data, start, end) if domain == DOMAIN.encode() else ():
            if number == _AWAY:
                changed[_tag_before(data, at)] = _tag(_ATTRIBUTE)
                found = True
    return bytes(changed) if found else data


def put_back(model: ModelProto) -> ModelProto:
    """The model with all its attributes; the same object where none were put away."""
    if not has_any(model) or not any(size_away(node) for node in model.graph.node if node.domain == DOMAIN):
        return model
    return ModelProto.FromString(serialize(model))


def estimate_built(model: ModelProto) -> int:
    """Bytes that ONNX Runtime holds of such a model once it is built; 0 of any other. Of a tree ensemble of 131 MB it was
    measured to be nine times the file."""
    return 9 * int(model.ByteSize()) if has_any(model) else 0


def size_away(node: NodeProto) -> int:
    """Bytes of the node's attributes that were put away."""
    known = NodeProto()
    known.CopyFrom(node)
    known.DiscardUnknownFields()
    return int(node.ByteSize() - known.ByteSize())


def without(model: ModelProto) -> ModelProto:
    """The model without them, for what goes by its form alone; the same object where none were put away."""
    if not has_any(model):
        return model
    bare = ModelProto()
    bare.CopyFrom(model)
    return _known(bare)


def _known(model: ModelProto) -> ModelProto:
    """The model, in place, without any field that ONNX does not know."""
    model.DiscardUnknownFields()
    return model


def _has_foreign(data: bytes) -> bool:
    """Whether a node of the domain has a field of the number that is ours."""
    own = ((start, end) for domain, start, end in _list_nodes(data) if domain == DOMAIN.encode())
    return any(n == _AWAY for start, end in own for n, _, _ in wire.iterate_fields(data, start, end))


def _put_away(changed: bytearray, data: bytes) -> bool:
    """Change the tags in ``changed``, a copy of ``data``; whether there were any."""
    found = False
    for domain, start, end in _list_nodes(data):
        if domain != DOMAIN.encode():
            continue
        for number, at, upto in wire.iterate_fields(data, start, end):
            if number == _ATTRIBUTE and upto - at >= LEAST and _holds_numbers(data[at:upto]):
                changed[_tag_before(data, at)] = _tag(_AWAY)
                found = True
    return found


def _holds_numbers(content: bytes) -> bool:
    """Whether the attribute is nothing but numbers or texts: what holds a graph must be looked into."""
    attribute = AttributeProto.FromString(content)
    inside = attribute.HasField("g") or attribute.HasField("t") or attribute.graphs or attribute.tensors
    return attribute.type in _NUMBERS and not inside


def _list_nodes(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """(domain, start, end) of each node of the main graph that is large enough."""
    for field, start, end in wire.iterate_fields(data, 0, len(data)):
        if field != _GRAPH:
            continue
        for number, at, upto in wire.iterate_fields(data, start, end):
            if number == _NODE and upto - at >= LEAST:
                yield _read_domain(data, at, upto), at, upto


def _read_domain(data: bytes, start: int, end: int) -> bytes:
    return next((data[at:upto] for n, at, upto in wire.iterate_fields(data, start, end) if n == _DOMAIN), b"")


def _tag(number: int) -> int:
    return number << 3 | 2


def _tag_before(data: bytes, content: int) -> int:
    """Where the tag stands of a field whose content begins there: before the bytes of its length, all but the last of which have
    their highest bit set."""
    at = content - 2
    while data[at] & 0x80:
        at -= 1
    return at
