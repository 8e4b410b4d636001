"""What our operators share: they know which version of the operator the model asks for."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, defs
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]


def read_ints(given: dict[str, Any], name: str, count: int, default: int = 1) -> list[int]:
    """An attribute that holds so many numbers; as many of the default where it is not stated."""
    return [int(v) for v in given.get(name) or [default] * count]


def read_pads(
    given: dict[str, Any], sizes: tuple[int, ...], reach: list[int], strides: list[int]
) -> tuple[list[int], list[int]]:
    """What is padded (before, after) each dimension, by ``auto_pad`` or ``pads``. ``reach``: how
    far a window goes."""
    auto = str(given.get("auto_pad") or "NOTSET")
    if auto.startswith("SAME"):
        over = [
            max(0, (-(-n // s) - 1) * s + r - n)
            for n, r, s in zip(sizes, reach, strides, strict=True)
        ]
        less, more = [o // 2 for o in over], [o - o // 2 for o in over]
        return (less, more) if auto == "SAME_UPPER" else (more, less)
    pads = read_ints(given if auto == "NOTSET" else {}, "pads", 2 * len(sizes), 0)
    return pads[: len(sizes)], pads[len(sizes) :]


def view_windows(
    x: Array, many: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Array:  # fmt: skip
    """[samples, channels, *windows, *kernel]: what each of so many windows reads of ``x``, which
    nothing is copied of."""
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    every = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(2, x.ndim)))
    steps = [slice(None, n * s, s) for n, s in zip(many, strides, strict=True)]
    taps = [slice(None, None, d) for d in dilations]
    return every[(slice(None), slice(None), *steps, *taps)]


class Operator(OpRun):  # type: ignore[misc]
    """Attributes that are not given have the defaults of the model's own operator set: the
    evaluator takes those of the newest (the axis of Softmax was 1 before it was -1). ``since``: the
    version of the operator."""

    op_domain = ""

    def __init__(self, node: NodeProto, run_params: dict[str, Any]) -> None:
        schema = defs.get_schema(
            node.op_type, run_params["opsets"].get("", defs.onnx_opset_version()), ""
        )
        self.since: int = schema.since_version
        super().__init__(node, run_params, schema=schema)
