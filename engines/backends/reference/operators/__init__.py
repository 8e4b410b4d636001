"""Operators that ONNX's own evaluator computes wrongly, not at all, or very slowly; ours take their place. Each says what was
wrong.

What is right is what the ONNX specification says. ``tests/engines/backends/sweep.py`` holds every operator against ONNX Runtime,
and where the two differ against the node test's own numbers or OpenVINO.
"""

from engines.backends.reference.operators.activation import Erf, Hardmax, LogSoftmax, Softmax
from engines.backends.reference.operators.attention import ATTENTION
from engines.backends.reference.operators.control import Loop
from engines.backends.reference.operators.convolution import Conv, ConvTranspose
from engines.backends.reference.operators.dequantize import DequantizeLinear
from engines.backends.reference.operators.fused import FUSED
from engines.backends.reference.operators.indexing import GatherElements, Scatter
from engines.backends.reference.operators.normalization import BatchNormalization
from engines.backends.reference.operators.on_codes import ON_CODES
from engines.backends.reference.operators.pooling import AveragePool, GlobalMaxPool, LpPool, MaxPool
from engines.backends.reference.operators.regions import RoiAlign
from engines.backends.reference.operators.resize import Resize, Upsample
from engines.backends.reference.operators.sampling import GridSample

OWN = (
    AveragePool, BatchNormalization, Conv, ConvTranspose, DequantizeLinear, Erf, GatherElements, GlobalMaxPool, GridSample,
    Hardmax, LogSoftmax, Loop, LpPool, MaxPool, Resize, RoiAlign, Scatter, Softmax, Upsample, *ATTENTION, *FUSED, *ON_CODES,
)  # fmt: skip
# Attributes that the evaluator leaves out without a word: where they are given it is no judge of the model.
IGNORED = {"RNN": "clip", "GRU": "clip", "LSTM": "clip"}
