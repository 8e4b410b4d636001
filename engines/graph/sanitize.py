"""Fold constants, drop what nothing needs, sort, infer shapes: ONNX-GraphSurgeon on a stored model
whose weights stay outside."""

import contextlib
import io
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import onnx
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto

from narrowdown.engines.graph import DRAWS, ModelProblem, external, load, names, schema
from narrowdown.engines.graph.load import Imported, StoredModel
from narrowdown.engines.store import Store
from narrowdown.engines.store.memory import HELD


def sanitize(model: StoredModel, store: Store) -> Imported:
    """Store a sanitized model beside the given one; weights that folding leaves alone are shared,
    not copied. Where nothing is folded or dropped it is the given one, of which all that was
    measured still holds.

    Names, metadata, opsets, inputs and outputs stay. Raises ``ModelProblem("could not sanitize:
    ...")``.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):  # the library prints its warnings there
            proto, inlined = _with_foldable_inside(model)
            proto = _fold_constants(proto)
    except ModelProblem:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ModelProblem(f"could not sanitize: {reason}") from error
    for tensor in proto.graph.initializer:
        original = inlined.get(tensor.name)
        if original is not None and _is_same_weight(tensor, original, model.weights_dir):
            tensor.CopyFrom(original)
    before = len(model.proto.graph.node)
    same = _is_same_graph(proto, model.proto)
    digest = model.digest if same else load.save(store, proto)
    after = before if same else len(load.load(store, digest).proto.graph.node)
    notes = []
    if after < before:
        gone = before - after
        notes.append(
            f"{gone} node{'s' if gone > 1 else ''} of {before} were folded into constants or led nowhere."
        )
    if "error" in said.getvalue().lower() or "could not" in said.getvalue().lower():
        notes.append("Some constants could not be folded and stay as nodes.")
    return Imported(digest, after, tuple(notes))


def _with_foldable_inside(model: StoredModel) -> tuple[ModelProto, dict[str, TensorProto]]:
    """A copy that holds the external weights that folding will read, the smallest ones first as far
    as they fit; and, by name, the external form of each. What does not fit stays outside, and the
    nodes that read it stay nodes."""
    proto = deepcopy(model.proto)
    constant = {t.name for t in proto.graph.initializer}
    wanted: set[str] = set()
    for node in proto.graph.node:
        reads = {name for name in (*node.input, *names.captures(node)) if name}
        if reads and reads <= constant and node.op_type not in DRAWS:
            constant.update(filter(None, node.output))
            wanted |= reads
    inlined: dict[str, TensorProto] = {}
    outside = (t for t in proto.graph.initializer if t.name in wanted and external.is_external(t))
    room = HELD
    for size, tensor in sorted(
        ((external.byte_size(t.data_type, t.dims), t) for t in outside), key=lambda x: x[0]
    ):
        room -= size
        if room < 0:
            break
        inlined[tensor.name] = model.initializers[tensor.name]
        external.make_inner(tensor, external.read_bytes(tensor, model.weights_dir))
    return proto, inlined


def _fold_constants(proto: ModelProto) -> ModelProto:
    import onnx_graphsurgeon as gs

    original = deepcopy(proto)
    count = len(proto.graph.node)
    while True:  # a fold may enable another
        graph = gs.import_onnx(schema.infer_shapes(proto))
        graph.toposort()
        graph.fold_constants(
            fold_shapes=True,
            partitioning="recursive",
            error_ok=True,
            size_threshold=HELD,
            should_exclude_node=_must_stay,
        )
        graph.cleanup(remove_unused_graph_inputs=False).toposort()
        proto = _merge_into_original(original, gs.export_onnx(graph, do_type_check=False))
        if len(proto.graph.node) >= count:
            return schema.infer_shapes(proto)
        count = len(proto.graph.node)


def _must_stay(node: Any) -> bool:
    """Must the node not be folded? One that draws random numbers would draw them once and for all;
    one that reads a weight which lies outside the model would not find it."""
    if node.op in DRAWS:
        return True
    for tensor in node.inputs:
        values = getattr(getattr(tensor, "_values", None), "tensor", None)
        if isinstance(values, TensorProto) and external.is_external(values):
            return True
    return False


def _merge_into_original(original: ModelProto, surgeon: ModelProto) -> ModelProto:
    """The surgeon's nodes, weights and types in the original's frame: it drops metadata, and knows
    no node's documentation."""
    result = deepcopy(original)
    graph = result.graph
    described = {
        next((o for o in node.output if o), ""): node
        for node in original.graph.node
        if node.doc_string or node.metadata_props
    }
    for field in ("node", "initializer", "sparse_initializer", "value_info"):
        graph.ClearField(field)
        getattr(graph, field).MergeFrom(getattr(surgeon.graph, field))
    for node in graph.node:
        source = described.get(next((o for o in node.output if o), ""))
        if source is not None and source.op_type == node.op_type:
            node.doc_string = source.doc_string
            del node.metadata_props[:]
            node.metadata_props.extend(source.metadata_props)
    have = {(o.domain, o.version) for o in result.opset_import}
    known = schema.opsets(result)
    for entry in surgeon.opset_import:
        if (entry.domain, entry.version) not in have and entry.domain not in known:
            result.opset_import.append(onnx.helper.make_opsetid(entry.domain, entry.version))
    return result


def _is_same_graph(made: ModelProto, original: ModelProto) -> bool:
    """Whether both have the same nodes, in whichever order, and the same weights; what is known of
    shapes is not compared."""
    fields = ("node", "initializer", "sparse_initializer")
    return all(
        _list_bytes(getattr(made.graph, f)) == _list_bytes(getattr(original.graph, f))
        for f in fields
    )


def _list_bytes(messages: Iterable[Message]) -> list[bytes]:
    return sorted(m.SerializeToString(deterministic=True) for m in messages)


def _is_same_weight(tensor: TensorProto, original: TensorProto, weights_dir: str) -> bool:
    return (
        tensor.data_type == original.data_type
        and list(tensor.dims) == list(original.dims)
        and tensor.raw_data == external.read_bytes(original, weights_dir)
    )
