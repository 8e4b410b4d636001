"""What a worker writes for others to read: models that stand alone and arrays by name, as artifacts
or in a folder."""

import os
import secrets
from collections.abc import Collection, Mapping
from copy import deepcopy
from pathlib import Path
from typing import BinaryIO, cast

from onnx import ModelProto

from narrowdown.engines.array import Array
from narrowdown.engines.data.arrays import write_npz
from narrowdown.engines.graph import converted, external, protos, schema
from narrowdown.engines.graph.standing_alone import INSIDE, bring_weights, write_with_weights
from narrowdown.engines.store import Store
from narrowdown.engines.store.memory import SMALL

_COPY = 64 << 20  # bytes of weights that are worth copying for each check


def put_model(
    store: Store, name: str, model: ModelProto, weights_dir: str, held: Collection[str] = ()
) -> dict[str, str]:
    """Store a model under an artifact name. ``held``: locations of weights that the session keeps
    anyway; a model with much of them points there, and ``engines.workers.modelfiles`` writes it
    whole where it is wanted. All other weights are in the file, or, where protobuf cannot hold
    them, in the artifact ``<stem>.weights.bin``, to which the model points by that name."""
    copy, weights = deepcopy(model), dict[str, str]()
    beside = f"{Path(name).stem}.weights.bin"
    size = external.outside_bytes(model)

    def stays(location: str) -> bool:
        return size >= SMALL and converted.source_of(location) in held

    if size < INSIDE or all(map(stays, external.locations(model))):
        bring_weights(copy, weights_dir, stays=stays)
    else:
        with external.Incoming(store.artifacts) as incoming:
            bring_weights(copy, weights_dir, beside, incoming.append, stays)
            weights[beside] = incoming.place(store.path)
    return {name: store.put(copy.SerializeToString(deterministic=True)), **weights}


def typed_alike(one: ModelProto, other: ModelProto) -> bool:
    """Whether they have the same operators in the same order, and weights of the same types: then
    neither is the other with casts, or without its pairs."""

    def shape(model: ModelProto) -> tuple[list[str], dict[str, int]]:
        return [n.op_type for n in model.graph.node], {
            t.name: t.data_type for t in model.graph.initializer
        }

    return shape(one) == shape(other)


def put_file(store: Store, path: Path) -> str:
    """Store a file of any size; returns its digest."""
    with external.Incoming(store.artifacts) as incoming:
        incoming.append(external.read_chunks(path, 0, path.stat().st_size))
        return incoming.place(store.path)


def with_shapes(model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> ModelProto:
    """A copy whose outputs without a shape have the one that was seen: ONNX's checker asks for one,
    engines do not."""
    copy = deepcopy(model)
    for output in copy.graph.output:
        kind = output.type.tensor_type
        if (
            output.name in shapes
            and output.type.HasField("tensor_type")
            and not kind.HasField("shape")
        ):
            kind.shape.SetInParent()
            for size in shapes[output.name]:
                kind.shape.dim.add().dim_value = int(size)
    return copy


def for_viewers(model: ModelProto) -> ModelProto:
    """A copy that says type and shape of every tensor between its nodes, as far as they follow from
    its inputs: Netron and other viewers show them on the edges. Weights that lie in files stay
    there. Nothing more where inference refuses it."""
    copy = deepcopy(model)
    protos.refill(copy.graph.value_info, schema.infer_shapes(model).graph.value_info)
    return copy


def put_arrays(store: Store, arrays: Mapping[str, Array]) -> str:
    """Store arrays by name as an npz that plain numpy reads. Types that numpy lacks (bfloat16, ...)
    are widened to float32, which holds each of their values."""
    with external.Incoming(store.artifacts) as incoming:
        write_npz(cast(BinaryIO, incoming), arrays)
        return incoming.place(store.path)


def write_model(
    store: Store,
    folder: Path,
    model: ModelProto,
    weights_dir: str,
    alias: str = "",
    *,
    here: bool = False,
) -> Path:
    """A file that ONNX's own loader opens: in ``folder``, weights inside, or, where those are
    large, beside the session's weights files: no path leads upwards then, and nothing is copied.
    The second kind is the caller's to remove.

    ``alias``: a second name that the first kind gets in ``folder``. ``here``: the model lies in
    ``folder`` under both names whatever it costs, its large weights copied beside it.
    """
    path = folder / "model.onnx"
    if here or external.outside_bytes(model) < _COPY:
        write_with_weights(path, model, weights_dir, _COPY)
    else:
        path = store.models / f"check-{os.getpid()}-{secrets.token_hex(4)}.onnx"
        path.write_bytes(model.SerializeToString())
        return path
    if alias:
        (folder / alias).hardlink_to(path)
    return path
