"""The rewrites that may cure a model: which there are, what each needs to find in the graph, and
how exact it is. Their doing is ``engines.graph.rewrites``, by the same names."""

from collections.abc import Iterable

import msgspec

from narrowdown.engines.probe import BARRIER, FIXED_SIZES, WRAPS

WRAP_RESHAPE, WRAP_MAX = WRAPS
STABLE_FORMS = "stable-forms"


class Rewrite(msgspec.Struct, frozen=True):
    """``says``: what is done, in words. ``ops``: one of these must be there. ``proof``: why what is
    computed stays the same. ``low``: it helps only where values are stored in a half. ``thing``,
    ``done``: what is changed, and how; ``cures``: where it comes right, with the names of these."""

    name: str
    says: str
    ops: tuple[str, ...]
    proof: str
    low: bool = False
    thing: str = "node"
    done: str = "changed"
    cures: str = "{says} ({names})"


# Operators of which opset 14 to 21 brought another version: without one of them the conversion
# changes a number alone.
_CHANGED = (
    "Add", "AveragePool", "BatchNormalization", "Cast", "ConstantOfShape", "CumSum", "DequantizeLinear", "Div",
    "Equal", "Flatten", "GRU", "GreaterOrEqual", "Identity", "If", "IsInf", "IsNaN", "LSTM", "LeakyRelu",
    "LessOrEqual", "Loop", "LpPool", "Mul", "PRelu", "Pad", "Pow", "QLinearMatMul", "QuantizeLinear", "RNN",
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSumSquare", "Relu", "Reshape", "Resize", "RoiAlign", "Scan", "ScatterElements", "ScatterND", "Shape",
    "Size", "Split", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where",
)  # fmt: skip
# In the order in which they are tried: what takes nodes out costs nothing, a barrier keeps the
# engine from joining.
REWRITES = (
    Rewrite(
        "drop-identity",
        "nodes that return what they are given are taken out",
        ("Transpose", "Identity", "Cast", "Pad"),
        "exact: they move, change and add nothing",
    ),
    Rewrite(
        "unfuse-reductions",
        "reductions with a function inside are written as that function and ReduceSum",
        ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare"),
        "exact by their definition",
    ),
    Rewrite(
        "scale-norm",
        "what a written-out norm squares is scaled by 2^-6, its epsilon by 2^-12",
        ("Sqrt",),
        "a power of two rounds nothing, and (s x) / sqrt(s^2 var + s^2 eps) is x / sqrt(var + eps)",
        low=True,
    ),
    Rewrite(
        "fit-mask",
        "constants of masks that FP16 cannot hold become +-30,000",
        ("Add", "Where", "Mul"),
        "near: a softmax gives 0 behind either; held against the reference on every sample",
        low=True,
    ),
    Rewrite(
        "explicit-pad",
        "padding that auto_pad leaves to the engine is stated",
        ("AveragePool", "Conv", "ConvTranspose", "MaxPool"),
        "exact by the definition of auto_pad",
    ),
    Rewrite(
        STABLE_FORMS,
        "sums of exponents, norms and variances are written in a form that neither overflows nor cancels",
        ("ReduceLogSumExp", "ReduceL2", "Softplus", "Sub"),
        "near: equal in real numbers; held against the reference on every sample",
    ),
    Rewrite(
        "unfuse-functions",
        "operators found at fault that ONNX defines by others are written as these",
        (
            "Attention",
            "Gelu",
            "GroupNormalization",
            "InstanceNormalization",
            "RMSNormalization",
            "MeanVarianceNormalization",
            "HardSwish",
            "Mish",
            "Celu",
            "Elu",
            "Selu",
            "LeakyRelu",
            "PRelu",
            "Softplus",
            "Softsign",
            "LogSoftmax",
            "Clip",
            "Swish",
        ),
        "exact by their definition in ONNX's own standard",
    ),
    Rewrite(
        "widen-attention",
        "a written-out attention of halves is computed in FP32, with Casts around it",
        ("Softmax",),
        "exact: the same nodes in a wider type; held against the reference on every sample",
    ),
    Rewrite(
        "other-opset",
        "the whole model is converted to opset 21, or to 20 where it is of 21 or later",
        _CHANGED,
        "exact by ONNX's own converter; held against the reference on every sample",
    ),
    Rewrite(
        FIXED_SIZES,
        "the inputs' open dimensions have the sizes that are fed: one file for each",
        (),
        "exact: no node changes",
        thing="input",
    ),
    Rewrite(
        BARRIER,
        "the fewest inner tensors that fix it are outputs too, so that the engine does not join layers across them",
        (),
        "exact: no node changes",
        thing="tensor",
        done="made an output",
        cures="{names} {is_an_output}, too, so that the engine joins no layers there",
    ),
    Rewrite(
        WRAP_RESHAPE,
        "the fewest inner tensors that fix it are laid flat and brought back to their shape, so that the engine does not join "
        "layers across them",
        (),
        "exact: the values are not touched",
        thing="tensor",
        done="wrapped",
        cures="{names} is laid flat and brought back to shape, so that the engine joins no layers there",
    ),
    Rewrite(
        WRAP_MAX,
        "the fewest inner tensors that fix it go through a Max of themselves, so that the engine does not join layers across "
        "them",
        (),
        "exact: the greater of a number and itself is that number",
        thing="tensor",
        done="wrapped",
        cures="{names} goes through a Max of itself, so that the engine joins no layers there",
    ),
)


def list_rewrites(ops: Iterable[str], storage: str) -> tuple[Rewrite, ...]:
    """Those that may find something to do in a graph of these operators. ``storage``: what the
    engine holds values in."""
    held = set(ops)
    half = storage in ("float16", "bfloat16")
    return tuple(
        r for r in REWRITES if (not r.ops or held.intersection(r.ops)) and (half or not r.low)
    )


def find_rewrite(name: str) -> Rewrite:
    return next(r for r in REWRITES if r.name == name)
