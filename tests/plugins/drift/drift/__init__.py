"""drift: an inference engine in numpy. It looks Tanh up in a table, which is too coarse."""

import numpy as np
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

__version__ = "1.0"
ENTRIES = 9


class Tanh(OpRun):
    op_domain = ""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        at = np.linspace(-4, 4, ENTRIES)
        return (np.interp(x, at, np.tanh(at)).astype(x.dtype),)


def load(model: ModelProto, tanh: str = "table") -> ReferenceEvaluator:
    """The model, ready to run."""
    return ReferenceEvaluator(model, new_ops=[Tanh] if tanh == "table" else [])
