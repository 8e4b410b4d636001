"""Cut a candidate out of a stored model: plain protobuf over the index, linear in the candidate, no
weight copied."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import (
    GraphProto,
    ModelProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from narrowdown.engines.graph import (
    GraphIndex,
    ModelProblem,
    Tensor,
    external,
    names,
    protos,
    schema,
)
from narrowdown.engines.graph.load import StoredModel, np_dtype, read_weight
from narrowdown.engines.graph.ranges import ALL, decode
from narrowdown.engines.probe import Candidate, Edit
from narrowdown.engines.store import atomic
from narrowdown.engines.store.memory import SMALL

Types = Mapping[int, tuple[np.dtype[Any], tuple[int, ...]]]


@dataclass(frozen=True)
class Cut:
    """A model cut out of another, ready for an engine.

    ``feeds``: input name -> tensor id whose value is fed. ``outputs``, ``marks``: graph output name
    -> tensor id. ``node_ids``: position in ``model.graph.node`` -> node id, -1 for a node that the
    cut added (an Identity in front of an output that is itself an input).
    """

    model: ModelProto
    feeds: dict[str, int]
    outputs: dict[str, int]
    marks: dict[str, int] = field(default_factory=dict)
    node_ids: tuple[int, ...] = ()


def node_ids(index: GraphIndex, candidate: Candidate) -> tuple[int, ...]:
    """The candidate's node ids, ascending. Raises ``ModelProblem`` for ids that the model does not
    have."""
    if candidate.nodes == ALL:
        return tuple(range(len(index.nodes)))
    ids = decode(candidate.nodes)
    if ids and ids[-1] >= len(index.nodes):
        raise ModelProblem(f"The model has no node {ids[-1]}; it has {len(index.nodes)}.")
    return ids


def severed_of(index: GraphIndex, candidate: Candidate) -> tuple[int, ...]:
    """Severed tensors that the candidate makes and reads; others are nothing special."""
    wanted = decode(candidate.severed)
    if not wanted:
        return ()
    inside = set(node_ids(index, candidate))
    return tuple(
        t
        for t in wanted
        if index.tensors[t].producer in inside and any(r in inside for r in index.readers[t])
    )


def feeds_of(index: GraphIndex, candidate: Candidate) -> tuple[int, ...]:
    """Tensor ids that must have a value: model inputs, cut and severed tensors, ascending, before
    the constants rule.

    The whole model takes all its inputs, read or not.
    """
    if candidate.nodes == ALL:
        fed = set(index.inputs)
    else:
        inside = node_ids(index, candidate)
        made = {t for n in inside for t in index.nodes[n].outputs}
        fed = {
            t
            for n in inside
            for t in index.nodes[n].reads
            if t not in made and index.tensors[t].kind != "weight"
        }
    fed.update(severed_of(index, candidate))
    return tuple(sorted(fed))


def outputs_of(index: GraphIndex, candidate: Candidate) -> tuple[int, ...]:
    """The judged outputs by ``Candidate``'s rule: those it names; else the model's own that it
    makes, in the model's order; else its boundary; else (nothing reads what it makes) what it makes
    and does not read."""
    if candidate.outputs:
        return decode(candidate.outputs)
    if candidate.nodes == ALL:
        return index.outputs
    inside = node_ids(index, candidate)
    made = {t for n in inside for t in index.nodes[n].outputs}
    own = tuple(sorted(made & index.output_order.keys(), key=index.output_order.__getitem__))
    if own:
        return own
    _, leaves = index.boundary(inside)
    read = {t for n in inside for t in index.nodes[n].reads}
    return leaves or tuple(sorted(made - read))


def cut(
    model: StoredModel, candidate: Candidate, constants: Mapping[int, np.ndarray[Any, Any]], types: Types, outputs: Sequence[int],
    marks: Sequence[int] = (),
) -> Cut:  # fmt: skip
    """Cut the candidate.

    ``constants``: fed tensors that are baked in, with their values. ``types``: (dtype, shape) of
    tensors as they will be fed, by id; a dimension below 0 is left open. Without an entry the
    index's dtype and shape count. The model's own inputs keep their declaration, unless the
    candidate keeps fewer rows. Raises ``ModelProblem``, for instance where a cut tensor's type is
    not known.

    A cut tensor's input has the tensor's name; a severed one's a fresh name, so that its producer
    may still give the original name as an output. ``drop-attribute``, and what is done to weights,
    are done here; edits of inputs are the feeds' business.
    """
    index = model.index
    ids = node_ids(index, candidate)
    severed = set(severed_of(index, candidate))
    fresh = names.Fresh(model.tensor_names)
    feed_names = {
        t: fresh(f"{index.tensors[t].name}__fed") if t in severed else index.tensors[t].name
        for t in feeds_of(index, candidate)
    }
    wanted = tuple(dict.fromkeys((*outputs, *marks)))
    if not wanted:
        raise ModelProblem("The candidate has no output to compare.")
    made = {t for i in ids for t in index.nodes[i].outputs}
    passed_on = [t for t in wanted if t not in made]  # what it is fed or holds, and gives out again
    read = {t for i in ids for t in index.nodes[i].reads}.difference(made)
    weights = {t for t in read.union(passed_on) if index.tensors[t].kind == "weight"}
    feed_names |= {
        t: index.tensors[t].name for t in passed_on if t not in weights and t not in feed_names
    }

    result = empty_like(model)
    graph = result.graph
    _copy_nodes(
        model,
        graph,
        ids,
        {index.tensors[t].name: feed_names[t] for t in sorted(severed)},
        candidate.edits,
    )
    out_names = {t: index.tensors[t].name for t in wanted}
    out_names |= _pass_on(index, graph, passed_on, feed_names, fresh)
    _add_weights(model, graph, sorted(weights), candidate.edits)
    rows = any(e.kind == "keep-rows" for e in candidate.edits)
    _add_feeds(model, graph, feed_names, constants, types, rows)
    for t, name in out_names.items():
        declared = (
            model.outputs[name]
            if t in index.output_order and t in made and not rows
            else _declare_output(name, index.tensors[t], types, rows)
        )
        graph.output.append(declared)
    _state_types(index, graph, ids, types, stated=set(out_names.values()))
    return Cut(
        result,
        feeds={name: t for t, name in sorted(feed_names.items()) if t not in constants},
        outputs={out_names[t]: t for t in outputs},
        marks={out_names[t]: t for t in marks},
        node_ids=(*ids, *(-1,) * len(passed_on)),
    )


def _copy_nodes(
    model: StoredModel,
    graph: GraphProto,
    ids: Sequence[int],
    renamed: dict[str, str],
    edits: Sequence[Edit],
) -> None:
    """The nodes under the names that engines get. ``renamed``: what they read in the place of a
    tensor."""
    dropped: dict[int, set[str]] = {}
    for edit in edits:
        if edit.kind == "drop-attribute":
            dropped.setdefault(edit.node, set()).add(edit.attribute)
    for i in ids:
        node = graph.node.add()
        node.CopyFrom(model.node_protos[i])
        node.name = model.engine_names[i]
        if renamed:
            names.rename_reads(node, renamed)
        if i in dropped:
            protos.refill(node.attribute, [a for a in node.attribute if a.name not in dropped[i]])


def _pass_on(
    index: GraphIndex,
    graph: GraphProto,
    tensors: Iterable[int],
    feed_names: Mapping[int, str],
    fresh: names.Fresh,
) -> dict[int, str]:
    """An Identity for each tensor that is given out and not made, as no input may be an output.
    Tensor id -> output name."""
    given: dict[int, str] = {}
    for t in tensors:
        name = index.tensors[t].name
        node = graph.node.add(op_type="Identity", name=fresh(f"{name}__identity"))
        node.input.append(feed_names.get(t, name))
        given[t] = fresh(f"{name}__out")
        node.output.append(given[t])
    return given


def _add_feeds(
    model: StoredModel, graph: GraphProto, feed_names: Mapping[int, str], constants: Mapping[int, np.ndarray[Any, Any]],
    types: Types, rows: bool,
) -> None:  # fmt: skip
    """What is fed: baked in, or an input, the model's own as it declares it unless fewer ``rows``
    are kept."""
    for t, name in sorted(feed_names.items()):
        tensor = model.index.tensors[t]
        if t in constants:
            value = constants[t]
            graph.initializer.append(
                numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name)
            )
        elif tensor.kind == "input" and not (rows and t in types):
            graph.input.add().CopyFrom(model.inputs[name])
        else:
            graph.input.append(_declare_tensor(name, tensor, types))


def _state_types(
    index: GraphIndex, graph: GraphProto, ids: Iterable[int], types: Types, stated: Collection[str]
) -> None:
    """The element types of inner tensors, as far as they are known; ``stated``: names that have one
    as outputs."""
    for tensor in (index.tensors[t] for i in ids for t in index.nodes[i].outputs):
        kind = _element_type(tensor, types)
        if kind > 0 and tensor.name not in stated:
            graph.value_info.add(name=tensor.name).type.tensor_type.elem_type = kind


def empty_like(model: StoredModel) -> ModelProto:
    """The model's header, with a graph that has nothing in it."""
    source = model.proto
    result = ModelProto()
    for name in (
        "ir_version",
        "producer_name",
        "producer_version",
        "domain",
        "model_version",
        "doc_string",
    ):
        if source.HasField(name):
            setattr(result, name, getattr(source, name))
    result.opset_import.MergeFrom(source.opset_import)
    result.metadata_props.MergeFrom(source.metadata_props)
    result.graph.name = source.graph.name or "graph"
    return result


def _element_type(tensor: Tensor, types: Types) -> int:
    """The tensor's ONNX element type as given, else as the index knows it; 0 where unknown, below 0
    for what is no tensor."""
    if tensor.id in types:
        return external.elem_type_of(np.dtype(types[tensor.id][0]))
    if tensor.dtype == "sequence":
        return schema.NOT_TENSOR
    if tensor.dtype == "string":
        return int(TensorProto.STRING)
    return external.elem_type_of(np_dtype(tensor.dtype)) if tensor.dtype else 0


def _declare_tensor(name: str, tensor: Tensor, types: Types) -> ValueInfoProto:
    kind = _element_type(tensor, types)
    if kind < 0:
        raise ModelProblem(
            f"'{tensor.name}' is a sequence, not a tensor; the model cannot be cut there."
        )
    if kind == 0:
        raise ModelProblem(
            f"The element type of '{tensor.name}' is not known; capture it in a run first."
        )
    return _declare_output(name, tensor, types, rows=False)


def _declare_output(name: str, tensor: Tensor, types: Types, rows: bool) -> ValueInfoProto:
    """What is known; an output may do without a type. Fewer rows make the seen shapes void."""
    kind = _element_type(tensor, types)
    if kind <= 0:
        return ValueInfoProto(name=name)
    shape = None if rows else types[tensor.id][1] if tensor.id in types else tensor.shape
    return helper.make_tensor_value_info(
        name, kind, None if shape is None else [d if d >= 0 else None for d in shape]
    )


def kept_rows(value: np.ndarray[Any, Any], edit: Edit) -> np.ndarray[Any, Any]:
    """What ``keep-rows`` leaves of an array; all of one that has no such dimension."""
    if value.ndim <= edit.axis:
        return value
    kept = [slice(None)] * value.ndim
    kept[edit.axis] = slice(edit.start, edit.start + int(edit.value))
    return np.ascontiguousarray(value[tuple(kept)])


def _add_weights(
    model: StoredModel, graph: Any, weights: Sequence[int], edits: Sequence[Edit]
) -> None:
    fills = {e.tensor: e.value for e in edits if e.kind == "fill"}
    rows: dict[int, list[Edit]] = {}
    for e in edits:
        if e.kind == "keep-rows":
            rows.setdefault(e.tensor, []).append(e)
    for t in weights:
        name = model.index.tensors[t].name
        if t in fills:
            graph.initializer.append(_fill_weight(model, name, fills[t], rows.get(t, ())))
        elif t in rows:
            graph.initializer.append(_slice_weight(model, t, rows[t]))
        elif name in model.sparse:
            graph.sparse_initializer.add().CopyFrom(model.sparse[name])
        else:
            graph.initializer.add().CopyFrom(model.initializers[name])


def _slice_weight(model: StoredModel, tensor: int, rows: Sequence[Edit]) -> TensorProto:
    """A weight with fewer rows, held by the model itself. Raises ``ModelProblem`` where that is
    still large: no probe copies weights."""
    name = model.index.tensors[tensor].name
    value = read_weight(model, tensor)
    for edit in rows:
        value = kept_rows(value, edit)
    if value.nbytes > SMALL:
        raise ModelProblem(f"What is left of the weight '{name}' is too large to be copied.")
    return numpy_helper.from_array(np.ascontiguousarray(value), name)


def _fill_weight(model: StoredModel, name: str, value: float, rows: Sequence[Edit]) -> TensorProto:
    """A weight of the same dtype, and of the same shape but for the rows that go, that holds one
    value everywhere. It stays an initializer, however large: a ConstantOfShape in its place would
    change what an engine folds and fuses."""
    dims = list(model.sparse[name].dims if name in model.sparse else model.initializers[name].dims)
    for edit in rows:
        if edit.axis < len(dims):
            dims[edit.axis] = min(int(edit.value), dims[edit.axis] - edit.start)
    kind = int(
        model.sparse[name].values.data_type
        if name in model.sparse
        else model.initializers[name].data_type
    )
    dtype = external.dtype_of(kind)
    size = external.byte_size(kind, dims)
    if size <= SMALL or size != int(np.prod(dims)) * dtype.itemsize:
        return numpy_helper.from_array(np.full(dims, value, dtype), name)
    one = np.array(value, dtype)
    location = f"{external.FOLDER}/fill-{dtype.name}-{one.tobytes().hex()}-{size}.bin"
    target = external.resolve(model.weights_dir, location)
    if not target.exists():
        with atomic(target) as temporary:
            values = np.memmap(temporary, dtype, "w+", shape=(size // dtype.itemsize,))
            if any(one.tobytes()):  # zeros take no space
                values[:] = one
            values.flush()
    tensor = TensorProto(name=name, data_type=kind, dims=dims)
    external.make_external(tensor, location, 0, size)
    return tensor
