"""Operators that ONNX's own evaluator computes wrongly, not at all, or very slowly; ours take their
place. Each says what was wrong.

What is right is what the ONNX specification says. ``tests/engines/backends/sweep.py`` holds every
operator against ONNX Runtime, and where the two differ against the node test's own numbers or
OpenVINO.
"""

from narrowdown.engines.backends.reference.operators.convolution import Conv, ConvTranspose
from narrowdown.engines.backends.reference.operators.fused import FUSED
from narrowdown.engines.backends.reference.operators.on_codes import ON_CODES
from narrowdown.engines.backends.reference.operators.pooling import (
    AveragePool,
    GlobalMaxPool,
    MaxPool,
)
from narrowdown.engines.backends.reference.operators.resize import Resize, Upsample
from narrowdown.engines.backends.reference.operators.sampling import GridSample
from narrowdown.engines.backends.reference.operators.small import (
    BatchNormalization,
    DequantizeLinear,
    Erf,
    GatherElements,
    LogSoftmax,
    Loop,
    Softmax,
)

OWN = (
    AveragePool, BatchNormalization, Conv, ConvTranspose, DequantizeLinear, Erf, GatherElements, GlobalMaxPool, GridSample,
    LogSoftmax, Loop, MaxPool, Resize, Softmax, Upsample, *FUSED, *ON_CODES,
)  # fmt: skip
# Operators that the evaluator computes wrongly in some cases and that are too seldom met to be
# written here, and attributes that it leaves out without a word: there it is no judge of the model.
WRONG = frozenset({"Hardmax", "LpPool", "RoiAlign"})
IGNORED = {"RNN": "clip", "GRU": "clip", "LSTM": "clip"}
