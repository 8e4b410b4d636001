"""Take a model into the session, store it, load it again with its index.

A stored model is ``models/<digest>.onnx``. Its tensors over ``external.INLINE`` bytes point into
``models/weights/<digest>.bin``; models made from one another share that file. The digest is the
sha256 of the stored file, which names its weights by their digests: equal content, equal digest.
"""

import functools
import hashlib
import heapq
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import onnx
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from narrowdown.engines.graph import (
    GraphIndex,
    ModelProblem,
    Node,
    Tensor,
    constants,
    dimensions,
    external,
    filekind,
    functions,
    names,
    plain_outputs,
    protos,
    schema,
    spelling,
    unroll,
    versions,
    wrong_pairs,
)
from narrowdown.engines.graph.random_nodes import list_random
from narrowdown.engines.graph.rewrites import fix_sizes
from narrowdown.engines.graph.shapelike import is_sink, shape_like
from narrowdown.engines.graph.source import find_module, find_source
from narrowdown.engines.store import Damaged, Store, keep, regular

__all__ = [
    "Imported",
    "ModelProblem",
    "StoredModel",
    "build_index",
    "import_model",
    "load",
    "read_weight",
    "save",
    "with_seen",
]  # fmt: skip

T = TypeVar("T")
Ceiling = Callable[[int, int], tuple[int, int]]

# The zero point of symmetric codes.
_MIDDLES = {
    TensorProto.INT8: 0, TensorProto.UINT8: 128, TensorProto.INT16: 0, TensorProto.UINT16: 32768,
}  # fmt: skip
MOST_NODES = 1_000_000  # functions inlined, bodies included; each costs about a KiB of every worker


class Imported(msgspec.Struct, frozen=True):
    """A model that the session now holds. ``outputs``: the names of its own. ``warnings``: what its
    owner must be told."""

    digest: str
    nodes: int
    notes: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    bodies: int = 0  # If, Loop and Scan nodes of the main graph
    random: tuple[str, ...] = ()  # nodes that draw random numbers (``engines.graph.random_nodes``)


@dataclass(frozen=True)
class StoredModel:
    """A parsed stored model: no weights over ``external.INLINE`` bytes in ``proto``, which nobody
    changes.

    ``weights_dir`` is the folder to which the external tensors' locations are relative.
    """

    digest: str
    proto: ModelProto
    weights_dir: str
    path: Path
    _memo: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def remember(self, what: str, make: Callable[[], T]) -> T:
        """What ``make`` gives, made once for the model. ``what``: which of all that is so kept."""
        if what not in self._memo:
            self._memo[what] = make()
        made: T = self._memo[what]
        return made

    @cached_property
    def index(self) -> GraphIndex:
        """Built at first use: shape inference costs some milliseconds a hundred nodes."""
        return build_index(self.proto, self.digest)

    @cached_property
    def node_protos(self) -> tuple[NodeProto, ...]:
        """By node id."""
        return tuple(self.proto.graph.node)

    @cached_property
    def engine_names(self) -> tuple[str, ...]:
        """By node id: unique, non-empty names, as engines want them; a node's own name where it is
        unique."""
        return tuple(names.unique_nodes(self.proto.graph.node))

    @cached_property
    def initializers(self) -> dict[str, TensorProto]:
        return {t.name: t for t in self.proto.graph.initializer}

    @cached_property
    def sparse(self) -> dict[str, onnx.SparseTensorProto]:
        return {s.values.name: s for s in self.proto.graph.sparse_initializer}

    @cached_property
    def inputs(self) -> dict[str, onnx.ValueInfoProto]:
        return {i.name: i for i in self.proto.graph.input}

    @cached_property
    def outputs(self) -> dict[str, onnx.ValueInfoProto]:
        return {o.name: o for o in self.proto.graph.output}

    @cached_property
    def tensor_names(self) -> frozenset[str]:
        """Every name in use, bodies included."""
        return frozenset(names.used(self.proto.graph))


def import_model(
    path: Path,
    store: Store,
    ceiling: Ceiling | None = None,
    content: bytes | None = None,
) -> Imported:
    """Take a user's ONNX file, with its external data, into the session.

    Constant nodes of the main graph become weights, calls of the model's own functions become what
    is in them, nodes are sorted where they were not, weights listed among the inputs (old IR
    versions) stop being inputs, dimensions that say nothing are open; names and metadata stay. Weights are copied as a stream.

    ``ceiling``: (IR version, opset) -> the newest that the usual engine takes; a model that is
    newer is restated in those where that means exactly the same. ``content``: the file's bytes,
    where they were read already. Raises ``ModelProblem`` with one sentence,
    ``OSError`` where the session's disk is full.
    """
    proto = _parse(path, content)
    notes: list[str] = []
    spelling.refuse_odd_names(proto, path.name)
    _check_header(proto, path)
    _refuse_compiled(proto, path.name)
    _refuse_endless(proto, path.name)
    warnings = [*(_restate_if_newer(proto, ceiling) if ceiling else ())]
    _check_external(proto, path)
    warnings += _flatten(proto, notes)
    graph = proto.graph
    check_names(graph)
    if _sort_nodes(graph):
        notes.append("The nodes were not in topological order; they were sorted.")
    if not graph.node:
        raise ModelProblem(f"The model '{path.name}' has no nodes: there is nothing to search.")
    if wrong := wrong_pairs.say_wrong_pairs(proto):
        warnings.append(wrong)
    digest = save(store, proto, str(path.parent))
    if complaint := _checker_complaint(store.models / f"{digest}.onnx"):
        notes.append(f"ONNX's own checker objects: {complaint}")
    return Imported(
        digest,
        len(graph.node),
        tuple(notes),
        tuple(o.name for o in graph.output),
        tuple(warnings),
        len(unroll.nodes_with_bodies(graph)),
        list_random(graph),
    )


def _flatten(proto: ModelProto, notes: list[str]) -> Iterator[str]:
    """Functions, Constant nodes and weights among the inputs become what a search knows;
    warnings."""
    graph = proto.graph
    if inlined := functions.inline(proto):
        notes.append(
            f"{inlined} call{'s' if inlined > 1 else ''} of the model's own functions became what is in them."
        )
    yield from plain_outputs.flatten_outputs(proto)
    notes += dimensions.open_unknown(proto)
    if lifted := constants.lift_constants(graph):
        notes.append(f"{lifted} Constant node{'s' if lifted > 1 else ''} became weights.")
    weights = {t.name for t in graph.initializer} | {
        s.values.name for s in graph.sparse_initializer
    }
    doubled = [i for i in graph.input if i.name in weights]
    for info in doubled:
        graph.input.remove(info)
    if doubled:
        notes.append(
            f"{len(doubled)} weights were also listed as inputs (an old IR version); they are fed no more."
        )


def save(store: Store, proto: ModelProto, weights_from: str = "") -> str:
    """Store a model; returns its digest. ``proto`` is changed: its big tensors are moved out.

    ``weights_from``: the folder to which its external tensors' locations are relative; ``""``: they
    are the store's own already and stay where they are. Raises ``ModelProblem``, also where a file
    of weights was changed meanwhile; ``OSError``.
    """
    source = Path(weights_from) if weights_from else store.models
    read: dict[Path, tuple[int, ...]] = {}
    with external.Writer(store.models) as writer:
        for tensor in external.held_initializers(proto):
            own = external.is_external(tensor) and not weights_from
            size = external.byte_size(tensor.data_type, tensor.dims)
            if own or size < 0:
                continue
            if external.is_external(tensor):
                if size <= external.INLINE:
                    external.make_inner(tensor, external.read_bytes(tensor, source))
                else:
                    location, offset, _ = external.external_span(tensor)
                    path = external.resolve(source, location)
                    read.setdefault(path, _stamp(path))
                    writer.add(tensor, external.read_chunks(path, offset, size))
            elif size > external.INLINE:
                writer.add(tensor, [_raw_bytes(tensor)])
        for tensor in external.attribute_tensors(proto):
            if external.is_external(tensor):
                external.make_inner(tensor, external.read_bytes(tensor, source))
        if changed := next((path for path, stamp in read.items() if _stamp(path) != stamp), None):
            raise ModelProblem(
                f"'{changed.name}' was changed while it was copied into the session: the copy may be half of one model and half "
                "of another. Start again once whatever writes it is done."
            )
        writer.finish()
    try:
        data = proto.SerializeToString(deterministic=True)
    except (EncodeError, ValueError) as error:
        raise ModelProblem(
            "The model is over 2 GB even without its weights; ONNX cannot hold it."
        ) from error
    digest = hashlib.sha256(data).hexdigest()
    keep(store.models / f"{digest}.onnx", data)
    return digest


def _stamp(path: Path) -> tuple[int, ...]:
    """What of a file is another one once somebody has written to it, has put another in its place
    or none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def load(store: Store, digest: str) -> StoredModel:
    """The stored model; parsed once a process. Raises ``Damaged`` where it, or its weights, are
    gone or not what was stored."""
    return _load(store.root, digest)


@functools.lru_cache(maxsize=6)
def _load(root: Path, digest: str) -> StoredModel:
    store = Store(root)
    name = f"models/{digest}.onnx"
    try:
        path = store.model_path(digest)
        data = regular.read(path, regular.MODEL)
    except regular.Unfit as error:
        raise Damaged(name, f"cannot be read: {error.strerror}") from error
    except (OSError, ValueError) as error:
        raise Damaged(name, "is gone") from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise Damaged(name, "is damaged: its bytes are not those that were written")
    model = StoredModel(digest, ModelProto.FromString(data), str(store.models.resolve()), path)
    _refuse_compiled(model.proto, name)
    _refuse_endless(model.proto, name)
    _weights_reach(model)
    return model


def _refuse_compiled(proto: ModelProto, name: str) -> None:
    """Raise ``ModelProblem`` for a node that holds, or names, what an engine compiled elsewhere:
    loading it may run its code."""
    for nodes in (proto.graph.node, *(f.node for f in proto.functions)):
        for node in names.all_nodes(nodes):
            if node.op_type == "EPContext":
                raise ModelProblem(
                    f"'{name}' holds an engine that was compiled elsewhere (the EPContext node '{node.name}'), which is never "
                    "loaded. Take the model from before it was compiled."
                )


def _weights_reach(model: StoredModel) -> None:
    """Raise ``Damaged`` where a weights file of the session is gone or ends too early: an engine
    would only say that it cannot build."""
    ends: dict[str, int] = {}
    for tensor in (
        *external.held_initializers(model.proto),
        *external.attribute_tensors(model.proto),
    ):
        if external.is_external(tensor):
            location, offset, _ = external.external_span(tensor)
            ends[location] = max(
                ends.get(location, 0), offset + external.byte_size(tensor.data_type, tensor.dims)
            )
    for location, end in ends.items():
        try:
            size = external.resolve(model.weights_dir, location).stat().st_size
        except OSError as error:
            raise Damaged(f"models/{location}", "is gone") from error
        if size < end:
            raise Damaged(
                f"models/{location}",
                f"is cut short: it ends at byte {size}, and {end} belong in it",
            )


def read_weight(model: StoredModel, tensor_id: int) -> np.ndarray[Any, Any]:
    """A weight's values: memory-mapped read-only where external. Raises ``ModelProblem``,
    ``KeyError`` for what is no weight."""
    name = model.index.tensors[tensor_id].name
    if name in model.sparse:
        return _make_dense(model.sparse[name])
    return external.read(model.initializers[name], model.weights_dir)


def with_seen(index: GraphIndex, seen: Mapping[int, tuple[str, tuple[int, ...]]]) -> GraphIndex:
    """The index with (dtype name, shape) as seen in a run in place of what was declared or
    inferred, by tensor id."""
    tensors = tuple(
        msgspec.structs.replace(
            t, dtype=seen[t.id][0], shape=tuple(seen[t.id][1]), bytes=_count_bytes(*seen[t.id])
        )
        if t.id in seen
        else t
        for t in index.tensors
    )
    updated = msgspec.structs.replace(index, tensors=tensors)
    return msgspec.structs.replace(updated, shape_like=shape_like(updated, index.shape_like))


def sizes_for(model: StoredModel, fed: Mapping[str, tuple[int, ...]]) -> Mapping[str, int]:
    """Bytes of the main graph's tensors by name, where the inputs have these shapes; what inference
    cannot tell is left out."""
    return model.remember(f"sizes {sorted(fed.items())}", lambda: _infer_sizes(model.proto, fed))


def _infer_sizes(proto: ModelProto, fed: Mapping[str, tuple[int, ...]]) -> Mapping[str, int]:
    types, shapes = _infer_types(fix_sizes(proto, fed)[0])
    told = {
        name: _count_bytes(_dtype_name(types.get(name, 0)), shape) for name, shape in shapes.items()
    }
    return {name: size for name, size in told.items() if size >= 0}


def _is_centred(tensor: TensorProto) -> bool:
    """Whether it may be the zero point of a symmetric pair for a whole tensor, or for channels."""
    middle = _MIDDLES.get(tensor.data_type)
    if middle is None or len(tensor.dims) > 1 or external.is_external(tensor):
        return False
    return bool((numpy_helper.to_array(tensor) == middle).all())


def build_index(proto: ModelProto, digest: str) -> GraphIndex:
    """The graph as steps see it. Node ids are positions in ``graph.node`` (topological in stored
    models); tensor ids: inputs, weights, then node outputs in order. Types and shapes come from
    what the model declares and from shape inference, whose failure is tolerated."""
    graph = proto.graph
    types, shapes = _infer_types(proto)
    versions = schema.opsets(proto)
    tensors: list[Tensor] = []
    ids: dict[str, int] = {}

    def add(name: str, kind: Any, producer: int) -> int:
        dtype, shape = _dtype_name(types.get(name, 0)), shapes.get(name)
        ids[name] = len(tensors)
        tensors.append(
            Tensor(len(tensors), name, dtype, kind, producer, shape, _count_bytes(dtype, shape))
        )
        return ids[name]

    inputs = tuple(add(i.name, "input", -1) for i in graph.input)
    for name in (
        *(t.name for t in graph.initializer),
        *(s.values.name for s in graph.sparse_initializer),
    ):
        add(name, "weight", -1)
    nodes: list[Node] = []
    deciding: set[str] = set()
    for i, node in enumerate(graph.node):
        reads = tuple(ids[name] if name else -1 for name in node.input)
        outer = names.captures(node)
        captured = tuple(ids[name] for name in outer if name in ids)
        if outer:
            deciding.update(_captured_deciders(node))
        outputs = tuple(add(name, "node", i) for name in node.output if name)
        droppable = schema.droppable_attributes(node, versions)
        values, domain = schema.short_attributes(node), schema.domain_of(node)
        module, kind = find_module(node)
        nodes.append(
            Node(
                i,
                node.name,
                node.op_type,
                domain,
                reads,
                outputs,
                captured,
                droppable,
                values,
                find_source(node),
                module,
                kind,
            )
        )
    outputs = tuple(dict.fromkeys(ids[o.name] for o in graph.output))
    centred = tuple(ids[t.name] for t in graph.initializer if _is_centred(t))
    index = GraphIndex(
        digest,
        tuple(nodes),
        tuple(tensors),
        inputs,
        outputs,
        opset=versions.get("", 0),
        centred=centred,
    )
    seeds = [ids[name] for name in deciding if name in ids]
    return msgspec.structs.replace(index, shape_like=shape_like(index, seeds))


# -- reading the user's file


def _parse(path: Path, content: bytes | None = None) -> ModelProto:
    if not path.exists():
        raise ModelProblem(f"There is no file '{path}'.")
    if path.is_dir():
        raise ModelProblem(f"'{path}' is a folder; name the .onnx file in it.")
    try:
        if regular.size(path) > regular.MODEL:
            raise ModelProblem(
                f"'{path.name}' is over 2 GB; save it again with its weights as external data."
            )
        if complaint := filekind.explain_no_model(path):
            raise ModelProblem(complaint)
        data = regular.read(path, regular.MODEL) if content is None else content
    except OSError as error:
        raise ModelProblem(f"'{path}' cannot be read: {error.strerror}.") from error
    try:
        proto = ModelProto.FromString(data)
    except DecodeError as error:
        raise ModelProblem(
            f"'{path.name}' is a damaged ONNX model; export or copy it again."
        ) from error
    except ValueError as error:
        raise ModelProblem(
            f"'{path.name}' is over 2 GB; save it again with its weights as external data."
        ) from error
    if not proto.HasField("graph") or not proto.ir_version:
        raise ModelProblem(
            f"'{path.name}' is a damaged ONNX model: it has no graph or no IR version; export it again."
        )
    return proto


def _refuse_endless(proto: ModelProto, name: str) -> None:
    """Raise ``ModelProblem`` for a model of more nodes, once its functions are inlined, than a
    worker can hold."""
    if (many := functions.count_expanded_nodes(proto)) > MOST_NODES:
        told = f"{many:,}" if many < 10**15 else f"about 10^{math.log10(many):.0f}"
        inlined = " once its own functions are inlined" if proto.functions else ""
        raise ModelProblem(
            f"'{name}' has {told} nodes{inlined}, and no more than {MOST_NODES:,} can be searched. "
            "Cut a part out of it first."
        )


def _check_header(proto: ModelProto, path: Path) -> None:
    known = schema.opsets(proto)
    newest = versions.newest_opset()
    if not proto.opset_import:
        raise ModelProblem(f"'{path.name}' states no opset version; export it again.")
    if "" in known and not 1 <= known[""] <= newest:
        raise ModelProblem(
            f"'{path.name}' uses opset {known['']}; the onnx {onnx.__version__} that is installed knows 1 to {newest}. "
            "Export it with an opset in that range, or install a newer onnx and onnxruntime."
        )
    for opset in (*proto.opset_import, *(o for f in proto.functions for o in f.opset_import)):
        if not 0 <= opset.version < 1 << 31:  # onnx looks up no other
            raise ModelProblem(
                f"'{path.name}' imports opset {opset.version} of the domain '{opset.domain}', and there is no such opset; "
                "export it again."
            )
    if proto.ir_version > versions.NEWEST_IR:
        raise ModelProblem(
            f"'{path.name}' has IR version {proto.ir_version}; the onnx {onnx.__version__} that is installed knows up to "
            f"{versions.NEWEST_IR}. Save it with an older IR version, or install a newer onnx and onnxruntime."
        )
    if not proto.graph.output:
        raise ModelProblem(
            f"'{path.name}' has no outputs, or it was cut short; export or copy it again."
        )


def _restate_if_newer(proto: ModelProto, ceiling: Ceiling) -> tuple[str, ...]:
    """Restate a model that is newer than the usual engine; what to say about it."""
    ir, opset = int(proto.ir_version), schema.opsets(proto).get("", 0)
    to_ir, to_opset = ceiling(ir, opset)
    said = []
    for what, has, takes in (("IR version", ir, to_ir), ("opset", opset, to_opset)):
        if has == takes:
            continue
        obstacle = versions.restate(proto, to_ir, takes if what == "opset" else opset)
        done = (
            f"cannot be restated in {what} {takes}: {obstacle}"
            if obstacle
            else f"was restated in {what} {takes}, which changes nothing"
        )
        said.append(f"The model has {what} {has}, newer than ONNX Runtime takes, and {done}.")
    return tuple(said)


def _check_external(proto: ModelProto, path: Path) -> None:
    """Every external tensor's file is there and long enough, every inner tensor holds as many bytes
    as it should."""
    for sparse in (
        sparse for graph in external.held_graphs(proto) for sparse in graph.sparse_initializer
    ):
        if any(map(external.is_external, (sparse.values, sparse.indices))):
            raise ModelProblem(
                f"The sparse weight '{sparse.values.name}' of '{path.name}' lies in a file of its own, which no engine reads; "
                "export the model with that weight inside, or with a dense one."
            )
    sizes: dict[str, int] = {}
    for tensor in (*external.held_initializers(proto), *external.attribute_tensors(proto)):
        outside = external.is_external(tensor)
        needed = external.byte_size(tensor.data_type, tensor.dims)
        location, offset, held = external.external_span(tensor) if outside else ("", 0, -1)
        if tensor.HasField("raw_data") and not outside:
            held = len(tensor.raw_data)
        if (
            any(d < 0 for d in tensor.dims)
            or (needed < 0 and outside)
            or (needed >= 0 and held not in (-1, needed))
        ):
            raise ModelProblem(
                f"The weight '{tensor.name}' of '{path.name}' does not hold what its type and shape say: {max(0, held)} bytes "
                f"where {max(0, needed)} belong; export the model again."
            )
        if not outside:
            continue
        if location not in sizes:
            sizes[location] = _weights_file(path, location).stat().st_size
        if offset + needed > sizes[location]:
            raise ModelProblem(
                f"The weights file '{location}' of '{path.name}' is cut short: '{tensor.name}' ends at byte {offset + needed}, "
                f"the file at {sizes[location]}; copy it again."
            )


def _weights_file(path: Path, location: str) -> Path:
    """The file that an external tensor names. Raises where it is missing, is no file, or is a link
    that leads out of the model's folder (or out of the one that the model itself is a link into, as
    in a download cache)."""
    file = external.resolve(path.parent, location)
    if not os.path.lexists(file):
        raise ModelProblem(
            f"'{path.name}' keeps weights in '{location}', which is not in '{path.parent}'; copy that file there."
        )
    within = {path.parent.resolve(), path.resolve().parent}
    if not any(file.resolve().is_relative_to(folder) for folder in within):
        raise ModelProblem(
            f"The weights file '{location}' of '{path.name}' is a link that leads out of '{path.parent}'; "
            "copy the file itself there."
        )
    if not file.is_file():
        raise ModelProblem(
            f"The weights file '{location}' of '{path.name}' is no regular file, or a link to one that is gone; copy the right "
            f"one to '{file}'."
        )
    return file


def check_names(graph: GraphProto) -> None:
    """Every tensor has one maker and every read has something to read. Raises ``ModelProblem``."""
    seen: set[str] = set()
    sources = (
        *(i.name for i in graph.input),
        *(t.name for t in graph.initializer),
        *(s.values.name for s in graph.sparse_initializer),
        *(name for node in graph.node for name in node.output if name),
    )
    for name in sources:
        if name in seen:
            raise ModelProblem(f"The tensor '{name}' is made twice; the model is not valid ONNX.")
        seen.add(name)
    for node in graph.node:
        for name in (*node.input, *names.captures(node)):
            if name and name not in seen:
                raise ModelProblem(
                    f"The {node.op_type} node '{node.name}' reads '{name}', which nothing in the model makes."
                )
    for output in graph.output:
        if output.name not in seen:
            raise ModelProblem(
                f"The output '{output.name}' is made by nothing in the model; was the file cut short?"
            )


def _sort_nodes(graph: GraphProto) -> bool:
    """Sort the nodes so that each comes after what it reads; the order of independent nodes stays.
    Raises for a cycle."""
    makers = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    needs = [
        {makers[name] for name in (*node.input, *names.captures(node)) if name in makers}
        for node in graph.node
    ]
    if all(max(reads, default=-1) < i for i, reads in enumerate(needs)):
        return False
    sorter = TopologicalSorter(dict(enumerate(needs)))
    try:
        sorter.prepare()
    except CycleError as error:
        name = graph.node[error.args[1][0]].name
        raise ModelProblem(
            f"The model has a cycle through the node '{name}'; it is not valid ONNX."
        ) from None
    order: list[int] = []
    ready: list[int] = []
    while sorter.is_active():
        for i in sorter.get_ready():
            heapq.heappush(ready, i)
        order.append(heapq.heappop(ready))
        sorter.done(order[-1])
    protos.refill(graph.node, [graph.node[i] for i in order])
    return True


def _checker_complaint(path: Path) -> str:
    try:
        onnx.checker.check_model(str(path))
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return lines[0][:300] if lines else type(error).__name__
    return ""


# -- tensors


def _raw_bytes(tensor: TensorProto) -> bytes:
    """The raw little-endian bytes of an inner tensor. Raises ``ModelProblem``."""
    if tensor.HasField("raw_data"):
        return bytes(tensor.raw_data)
    return bytes(numpy_helper.from_array(external.inner_values(tensor)).raw_data)


def _make_dense(sparse: onnx.SparseTensorProto) -> np.ndarray[Any, Any]:
    values, positions = external.inner_values(sparse.values), external.inner_values(sparse.indices)
    try:
        dense = np.zeros(tuple(sparse.dims), values.dtype)
        if positions.ndim == 1:
            dense.reshape(-1)[positions] = values
        else:
            dense[tuple(positions.T)] = values
    except (ValueError, TypeError, IndexError, MemoryError, OverflowError) as error:
        raise ModelProblem(
            f"The sparse weight '{sparse.values.name}' does not fit its shape ({error})."
        ) from error
    return dense


# -- the index


def _infer_types(proto: ModelProto) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    """(element types, shapes) of the main graph's tensors by name."""
    full = schema.infer_shapes(proto)
    shapes: dict[str, tuple[int, ...]] = {}
    for info in (*full.graph.value_info, *full.graph.output, *full.graph.input):
        if info.type.HasField("tensor_type") and info.type.tensor_type.HasField("shape"):
            shapes[info.name] = tuple(
                d.dim_value if d.HasField("dim_value") else -1
                for d in info.type.tensor_type.shape.dim
            )
    shapes.update((t.name, tuple(t.dims)) for t in proto.graph.initializer)
    shapes.update((s.values.name, tuple(s.dims)) for s in proto.graph.sparse_initializer)
    return schema.element_types(full), shapes


@functools.cache
def _dtype_name(elem_type: int) -> str:
    if elem_type == schema.NOT_TENSOR:
        return "sequence"
    if elem_type == TensorProto.STRING:
        return "string"
    try:
        return external.dtype_of(elem_type).name if elem_type else ""
    except KeyError:
        return ""


def _count_bytes(dtype: str, shape: tuple[int, ...] | None) -> int:
    if shape is None or -1 in shape or dtype in ("", "string", "sequence"):
        return -1
    return np_dtype(dtype).itemsize * math.prod(shape)


def np_dtype(name: str) -> np.dtype[Any]:
    """numpy's dtype of an index's dtype name (``bfloat16`` and its like come from ml_dtypes).
    Raises ``ModelProblem``."""
    import ml_dtypes

    try:
        return np.dtype(getattr(ml_dtypes, name, name))
    except TypeError as error:
        raise ModelProblem(f"The element type '{name}' is not known here.") from error


def _captured_deciders(node: NodeProto) -> set[str]:
    """Outer tensors that decide a form inside the node's bodies."""
    outer = set(names.captures(node))
    found: set[str] = set()
    for body in names.bodies(node):
        own = names.defined(body)
        for child in body.node:
            for i, name in enumerate(child.input):
                if (
                    name in outer
                    and name not in own
                    and is_sink(child.op_type, schema.domain_of(child), i)
                ):
                    found.add(name)
            found |= {n for n in _captured_deciders(child) if n in outer and n not in own}
    return found
