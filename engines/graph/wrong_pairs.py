"""Pairs of QuantizeLinear and DequantizeLinear that are wrong in the file itself, whatever an
engine makes of them: some engines take them in silence and compute something, others refuse the
model in words about something else."""

from collections.abc import Iterator

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from narrowdown.engines.array import Array
from narrowdown.engines.graph import external, schema
from narrowdown.engines.graph.quantized import DEQUANTIZE, DOMAINS, LOOK_WRONG, QUANTIZE
from narrowdown.engines.nearest import join_some
from narrowdown.engines.store.memory import SMALL

_LAST = 2**31 - 1  # code of a bias
_ROUNDED = 2**7  # half a step of float32 there: what a quantizer computed in it may end before
_NO_CODES = frozenset(
    {
        TensorProto.INT32,
        TensorProto.INT64,
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
        TensorProto.DOUBLE,
    }
)


def say_wrong_pairs(model: ModelProto) -> str:
    """The faults of the model's own pairs and what to do, in two sentences; "" where there are
    none. Only what is stored in the model is looked at."""
    found = list(_find_faults(model))
    if not found:
        return ""
    return (
        f"{LOOK_WRONG}{join_some(found, '; ')}. Repair that first, or quantize the model anew: engines differ in what "
        "they make of it."
    )


def _find_faults(model: ModelProto) -> Iterator[str]:
    held = {t.name: t for t in model.graph.initializer}
    pairs = [
        node
        for node in model.graph.node
        if node.op_type in (QUANTIZE, DEQUANTIZE)
        and schema.domain_of(node) in DOMAINS
        and len(node.input) > 1
    ]
    quantizers = {node.output[0]: node for node in pairs if node.op_type == QUANTIZE}
    for node in pairs:
        made_by = quantizers.get(node.input[0])
        fault = _find_fault(node, made_by, held)
        if made_by is not None and node.op_type != QUANTIZE and not fault:
            fault = _find_unlike(node, made_by, held)
        if fault:
            yield f"'{node.name or node.output[0]}' ({node.op_type}) {fault}"


def _find_fault(node: NodeProto, made_by: NodeProto | None, held: dict[str, TensorProto]) -> str:
    """What is wrong with the node; "" where nothing is. ``made_by``: the QuantizeLinear whose codes
    it reads."""
    scale, zero = held.get(node.input[1]), _zero_point(node, held)
    values = _read(scale)
    steps = np.ones(1) if values is None else values
    stored = held.get(node.input[0])
    codes = stored or _zero_point(made_by, held)
    cut = _count_cut_off(stored)
    cases = [
        (
            cut,
            f"has {cut:,} of {0 if stored is None else _size(stored):,} codes cut off at the end of int32, {_LAST:,}: "
            "the scale is too small for this bias",
        ),
        (not np.isfinite(steps).all(), "has a scale that is infinite or NaN"),
        ((steps == 0).any(), "has a scale of 0"),
        ((steps < 0).any(), "has a negative scale"),
    ]
    if zero is not None:
        of, kind = 1 if scale is None else _size(scale), _type(zero)
        cases += [
            (
                scale is not None and of != _size(zero),
                f"has {of:,} scales and {_size(zero):,} zero points",
            ),
            (
                node.op_type == QUANTIZE and zero.data_type in _NO_CODES,
                f"has a zero point of {kind}, and codes are of its type",
            ),
            (
                node.op_type != QUANTIZE
                and codes is not None
                and codes.data_type != zero.data_type,
                f"has a zero point of {kind} for codes of {'' if codes is None else _type(codes)}",
            ),
        ]
    return next((said for holds, said in cases if holds), "")


def _find_unlike(node: NodeProto, made_by: NodeProto, held: dict[str, TensorProto]) -> str:
    """In what a DequantizeLinear differs from the QuantizeLinear whose codes it reads; "" where in
    nothing that is known."""
    by = f"than '{made_by.name or made_by.output[0]}' has written with"
    if _differ(_read(held.get(node.input[1])), _read(held.get(made_by.input[1]))):
        return f"reads with another scale {by}"
    zero, codes = _zero_point(node, held), _zero_point(made_by, held)
    one = _read(zero if codes is None else codes)
    if (zero is None) != (codes is None) and one is not None and one.any():
        lacks = "has no zero point" if len(node.input) < 3 else "has a zero point"
        return f"{lacks}, other {by}: {one.flat[0]:g} in the one, 0 in the other"
    alike = zero is not None and codes is not None and zero.data_type == codes.data_type
    if alike and _differ(_read(zero), _read(codes)):
        return f"reads with another zero point {by}"
    return ""


def _count_cut_off(stored: TensorProto | None) -> int:
    """How many codes of a bias lie at the ends of their type, or where float32 rounds these to."""
    if stored is None or stored.data_type != TensorProto.INT32:
        return 0
    codes = _read(stored)
    return 0 if codes is None else int((np.abs(codes) >= _LAST - _ROUNDED).sum())


def _zero_point(node: NodeProto | None, held: dict[str, TensorProto]) -> TensorProto | None:
    return held.get(node.input[2]) if node is not None and len(node.input) > 2 else None


def _read(tensor: TensorProto | None) -> Array | None:
    """The values of a scale or a zero point; None of what is not stored in the model itself."""
    if tensor is None or external.is_external(tensor) or _size(tensor) > SMALL:
        return None
    return np.asarray(numpy_helper.to_array(tensor), np.float64)


def _differ(values: Array | None, others: Array | None) -> bool:
    """Whether both are known and are not the same."""
    return values is not None and others is not None and not np.array_equal(values, others)


def _size(tensor: TensorProto) -> int:
    return int(np.prod(tensor.dims, dtype=np.int64))


def _type(tensor: TensorProto) -> str:
    return str(TensorProto.DataType.Name(tensor.data_type)).lower()
