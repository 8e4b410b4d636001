"""Which outputs hold a value for each place of a picture or a sound: their last axis is no
classes."""

from narrowdown.engines.graph import GraphIndex

_MADE_OF_PLACES = {
    "Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv", "AveragePool", "LpPool", "MaxPool", "DepthToSpace",
    "SpaceToDepth", "GridSample", "Resize", "Upsample",
}  # fmt: skip
# What leaves the last axis where it is.
_LEAVES_IT = {
    "Abs", "Add", "BatchNormalization", "Cast", "Clip", "DequantizeLinear", "Div", "Elu", "Exp", "Gelu", "HardSigmoid",
    "HardSwish", "Identity", "InstanceNormalization", "LeakyRelu", "Log", "Mul", "Neg", "PRelu", "Pow", "QuantizeLinear", "Relu",
    "Sigmoid", "Softplus", "Sqrt", "Squeeze", "Sub", "Tanh", "Unsqueeze",
}  # fmt: skip


def holds_places(index: GraphIndex, tensor: int) -> bool:
    """Whether what makes the tensor works on pictures or sounds, and nothing behind it moves the
    last axis. False where that is not known."""
    while (made := index.tensors[tensor]).producer >= 0:
        node = index.nodes[made.producer]
        if node.domain not in ("", "ai.onnx") or node.op not in _MADE_OF_PLACES | _LEAVES_IT:
            return False
        if node.op in _MADE_OF_PLACES:
            return True
        read = (index.tensors[t] for t in node.reads)
        length = made.shape and made.shape[-1]
        same = [t.id for t in read if t.producer >= 0 and t.shape and t.shape[-1] == length]
        if not same:
            return False
        tensor = same[0]
    return False
