"""INT8 and FP8 in a weakly typed build: which flags a model's Q/DQ nodes need, and INT8 by a
calibration cache without any.

A strongly typed network takes both types from its Q/DQ nodes and has no flags.
"""

from typing import Any, NamedTuple

import onnx
from onnx import TensorProto, numpy_helper

from narrowdown.engines.backends.base import EngineFault
from narrowdown.engines.backends.tensorrt.library import Library
from narrowdown.engines.backends.tensorrt.settings import FLAGS, Settings
from narrowdown.engines.data import held
from narrowdown.engines.graph import schema
from narrowdown.engines.graph.bypass import is_dequantize, is_quantize
from narrowdown.engines.graph.external import is_external

# The precision that a weakly typed build needs for codes of each type; FP8 is E4M3 alone, the other
# is refused by the parser.
_CODES = {
    int(TensorProto.INT8): "int8",
    int(TensorProto.UINT8): "int8",
    int(TensorProto.FLOAT8E4M3FN): "fp8",
}
_SAID = {"int8": "INT8", "fp8": "FP8"}
# Options of ONNX Runtime's quantize_static.
_SYMMETRIC = (
    "activation_type=QuantType.QInt8, "
    "extra_options={'ActivationSymmetric': True, 'WeightSymmetric': True, 'QuantizeBias': False}"
)


def coded_types(model: onnx.ModelProto) -> frozenset[str]:
    """What the model's Q/DQ nodes quantize to: ``int8``, ``fp8``, both or nothing."""
    pairs = [n for n in model.graph.node if is_quantize(n) or is_dequantize(n)]
    if not pairs:
        return frozenset()
    types = schema.element_types(model)
    codes = {types.get(n.output[0] if is_quantize(n) else n.input[0], 0) for n in pairs}
    return frozenset(_CODES[c] for c in codes if c in _CODES)


def builder_flags(
    model: onnx.ModelProto, settings: Settings, strong: bool, part: bool
) -> tuple[str, ...]:
    """The builder flags of the precision. ``part``: the model is a piece of the user's, or an
    edited one; where it quantizes nothing it is built without the flag, as it is in the whole.
    Raises ``EngineFault`` where a whole model has nothing that its INT8 or FP8 could go by."""
    precision = settings.precision
    if strong:
        return ()
    if precision not in _SAID or settings.calibration:
        return FLAGS[precision]
    found = coded_types(model)
    if precision in found:
        return FLAGS[precision]
    if part:
        return ()
    if found:
        other = min(found)
        raise EngineFault(
            "refused",
            f"The model's Q/DQ nodes are of {_SAID[other]}, not of {_SAID[precision]}: use precision={other}, or "
            "precision=model.",
        )
    if precision == "fp8":
        raise EngineFault(
            "refused",
            "FP8 goes by Q/DQ nodes of that type (FLOAT8E4M3FN, from opset 19 on), and this model has none: quantize it to FP8 "
            "first, or choose another precision.",
        )
    raise EngineFault(
        "refused",
        "INT8 needs to know how large each tensor gets: give a calibration cache (calibration=FILE), or a model with "
        "Q/DQ nodes and precision=model.",
    )


def say_untaken(model: onnx.ModelProto, *, unsigned: bool = False) -> str:
    """What to quantize otherwise where the model has pairs of kinds that TensorRT does not take (an
    unsigned code, a zero point that is not 0, a bias of int32 codes, a stored scalar, as a Pad fills
    in), as a sentence with a space in front; empty where it has none. ``quantize_static`` of ONNX
    Runtime makes all of them unless told otherwise. ``unsigned``: codes without a sign are taken,
    as by TensorRT-RTX."""
    found = _find_untaken(model, unsigned)
    if not any(found):
        return ""
    kinds, anew, options = list[str](), list[str](), list[str]()
    if found.shifted:
        without_sign = "" if unsigned else "unsigned codes or "
        kinds.append(f"{found.shifted} with {without_sign}a zero point other than 0")
    if found.biases:
        kinds.append(f"{found.biases} of a bias in int32")
    if found.shifted or found.biases:
        anew.append("with signed symmetric codes and the bias left in float")
        options.append(_SYMMETRIC)
    if found.scalars:
        kinds.append(f"{found.scalars} of a stored scalar")
        anew.append("without the nodes that read a stored scalar")
        options.append(f"nodes_to_exclude={found.readers}")
    return (
        f" The model has pairs that TensorRT does not take: {' and '.join(kinds)}. Quantize it anew {' and '.join(anew)}; "
        f"with ONNX Runtime: quantize_static(..., {', '.join(options)})."
    )


class _Untaken(NamedTuple):
    """How many pairs are shifted, how many are of a bias of int32 codes and of a stored scalar, and
    the names of the nodes that read such scalars."""

    shifted: int
    biases: int
    scalars: int
    readers: list[str]


def _find_untaken(model: onnx.ModelProto, unsigned: bool) -> _Untaken:
    weights = {t.name: t for t in model.graph.initializer}
    shifted = biases = 0
    scalars = set()  # what is dequantized from a stored code without dimensions
    for node in model.graph.node:
        if not (is_quantize(node) or is_dequantize(node)):
            continue
        codes = weights.get(node.input[0])
        biases += codes is not None and codes.data_type == TensorProto.INT32
        if codes is not None and not codes.dims and is_dequantize(node):
            scalars.add(node.output[0])
        zero = weights.get(node.input[2]) if len(node.input) > 2 else None
        if zero is not None and not is_external(zero):
            without_sign = zero.data_type == TensorProto.UINT8 and not unsigned
            shifted += without_sign or bool(numpy_helper.to_array(zero).astype(int).any())
    readers = [n.name for n in model.graph.node if scalars.intersection(n.input)]
    return _Untaken(shifted, biases, len(scalars), readers)


def hint_at_types(model: onnx.ModelProto, settings: Settings, strong: bool) -> str:
    """What may be wrong where a weakly typed build failed and the model has Q/DQ nodes of a type
    that was not asked for; empty where nothing is."""
    found = coded_types(model) if not strong else frozenset()
    if found <= {settings.precision}:
        return ""
    kinds = " and ".join(_SAID[kind] for kind in sorted(found))
    return (
        f" The model has Q/DQ nodes of {kinds}: a weakly typed build takes one such type, with precision={min(found)}; a "
        "strongly typed one takes all, with precision=model."
    )


def make_calibrator(found: Library, config: Any, settings: Settings, strong: bool) -> Any:
    """TensorRT's own calibrator, reading the user's cache; it must live as long as the build. None
    where there is no cache. Raises ``EngineFault`` where it is of no use.

    The cache is what trtexec (--calib), Polygraphy (--calibration-cache) and the application write:
    tensors by name, so it fits every part of the model too.
    """
    if strong or not settings.calibration:
        return None
    try:
        content = held.content(settings.calibration)
    except (OSError, held.NotAgreed) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise EngineFault(
            "refused", f"The calibration cache '{settings.calibration}' cannot be read: {why}"
        ) from error
    # Its first line names the algorithm: TRT-100600-EntropyCalibration2.
    algorithm = content.split(b"\n", 1)[0].rpartition(b"-")[2].decode("ascii", "replace").strip()
    base = getattr(found.trt, f"IInt8{algorithm.replace('Calibration', 'Calibrator')}", None)
    if base is None:
        known = hasattr(found.trt, "IInt8EntropyCalibrator2")
        why = (
            "is no calibration cache of TensorRT's"
            if known
            else f"is of no use: {found.lacks('calibration')}"
        )
        raise EngineFault("unsupported", f"'{settings.calibration}' {why}.")

    class Calibrator(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()

        def get_batch_size(self) -> int:
            return 1

        def get_batch(self, _names: list[str]) -> None:
            return None  # nothing but the cache

        def read_calibration_cache(self) -> bytes:
            return content

        def write_calibration_cache(self, _cache: Any) -> None:
            return

    calibrator = Calibrator()
    config.int8_calibrator = calibrator
    return calibrator
