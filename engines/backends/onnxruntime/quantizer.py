"""ONNX Runtime's own static quantization, and what of its settings may make a model right."""

import contextlib
import io
import logging
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

from narrowdown.engines.array import Array


def quantize(
    model: ModelProto,
    feeds: Mapping[str, Array] | Iterable[Mapping[str, Array]],
    *,
    per_channel: bool = False,
    operators: bool = False,
    **more: Any,
) -> ModelProto:
    """INT8 weights with one scale for each tensor (``per_channel``: for each output channel),
    activations in UINT8 with ranges seen on ``feeds``. ``operators``: QLinearConv and its like in
    place of Q/DQ pairs. ``more`` goes to ``onnxruntime.quantization.quantize_static``; types and
    methods are named. The model holds its weights."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """SmoothQuant copies it, what is left as well, and goes through the copy."""

        def __init__(self) -> None:
            self.left = iter([feeds] if isinstance(feeds, Mapping) else list(feeds))

        def get_next(self) -> Mapping[str, Array] | None:
            return next(self.left, None)

    chosen = {"activation_type": "QUInt8", "weight_type": "QInt8", **more}
    for kind, enum in (
        ("activation_type", QuantType),
        ("weight_type", QuantType),
        ("calibrate_method", CalibrationMethod),
    ):
        if isinstance(chosen.get(kind), str):
            chosen[kind] = getattr(enum, chosen[kind])
    # It asks for a preprocessing that these models do not need.
    logging.getLogger().setLevel(logging.ERROR)
    with (
        tempfile.TemporaryDirectory(prefix="narrowdown-") as folder,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        source, target = Path(folder) / "float.onnx", Path(folder) / "quantized.onnx"
        onnx.save(model, str(source))
        quantize_static(
            str(source), str(target), Reader(), per_channel=per_channel,
            quant_format=QuantFormat.QOperator if operators else QuantFormat.QDQ, **chosen,
        )  # fmt: skip
        return onnx.load(str(target))
