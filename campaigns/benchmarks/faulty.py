"""Models to search in: planted faults in chains and branches, and networks of a real size with
random weights."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = [helper.make_opsetid("", 17)]
CULPRIT = "culprit_"  # how the names of guilty nodes begin
_OPS = ("Tanh", "Neg", "Sigmoid", "Abs")


def save(
    path: Path, nodes: list, inputs: list, outputs: list, weights: list = (), external: str = ""
) -> Path:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    model = helper.make_model(graph, opset_imports=OPSET, ir_version=8)
    onnx.save(model, path, save_as_external_data=bool(external), location=external or None)
    return path


def value(name: str, shape: list) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def planted(
    path: Path, reads: list[tuple[int, ...]], culprits: tuple[int, ...], width: int = 8
) -> Path:
    """Node i reads the outputs of the nodes ``reads[i]`` (one or two, all before it), or the input
    where that is empty."""
    nodes = []
    for i, before in enumerate(reads):
        name = f"{CULPRIT}{i}." if i in culprits else f"n{i}."  # the dot: no name begins another
        names = [f"t{j}" for j in before] or ["x"]
        op = _OPS[i % 4] if len(names) == 1 else "Add"
        nodes.append(helper.make_node(op, names, [f"t{i}"], name=name))
    read = {j for before in reads for j in before}
    ends = [value(f"t{i}", [1, width]) for i in range(len(reads)) if i not in read]
    return save(path, nodes, [value("x", [1, width])], ends)


def chain(path: Path, nodes: int, *culprits: int) -> Path:
    return planted(path, [(i - 1,) if i else () for i in range(nodes)], culprits)


def branches(path: Path, count: int, length: int, *culprits: int) -> Path:
    """Branches of this length from one input, written one after another, then joined two by two."""
    reads: list[tuple[int, ...]] = []
    ends = []
    for _ in range(count):
        for i in range(length):
            reads.append((len(reads) - 1,) if i else ())
        ends.append(len(reads) - 1)
    while len(ends) > 1:
        reads.append((ends[0], ends[1]))
        ends = [*ends[2:], len(reads) - 1]
    return planted(path, reads, culprits)


def lines(path: Path, count: int, length: int, width: int = 8) -> Path:
    """Lines of this many nodes from one input that carry an error on as it is, in three ways of
    writing nothing; every 250 nodes a line is averaged with the one before it; all are joined at
    the end. Node ``l<line>.<place>``."""
    nodes, ends, c = [], ["x"] * count, helper.make_tensor("c", TensorProto.FLOAT, [], [1.5])
    for place in range(length):
        before = list(ends)
        for line in range(count):
            name, reads = f"l{line}.{place}", [before[line]]
            op = ("Mul", "Div", "Neg", "Neg")[place % 4]
            if op in ("Mul", "Div"):
                reads.append("c")
            if place % 250 == 249 and line:
                op, reads = "Mean", [before[line], before[line - 1]]
            nodes.append(helper.make_node(op, reads, [name], name=name))
            ends[line] = name
    nodes.append(helper.make_node("Concat", ends, ["y"], name="joined", axis=1))
    return save(path, nodes, [value("x", [1, width])], [value("y", [1, width * count])], [c])


class _Net:
    """Nodes and random weights, one after another."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list = []
        self.weights: list = []

    def weight(self, *shape: int, scale: float | None = None, mean: float = 0.0) -> str:
        name = f"w{len(self.weights)}"
        spread = (
            scale if scale is not None else float(2 / (np.prod(shape[1:]) or 1)) ** 0.5
        )  # keeps the size through a ReLU
        drawn = self.rng.standard_normal(shape, dtype=np.float32) * np.float32(spread) + np.float32(
            mean
        )
        self.weights.append(numpy_helper.from_array(drawn, name))
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op: str, *inputs: str, name: str = "", **attributes: object) -> str:
        out = f"v{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(
                op, list(inputs), [out], name=name or f"{op}_{len(self.nodes)}", **attributes
            )
        )
        return out

    def normalized(self, x: str, channels: int) -> str:
        one, zero = np.ones(channels, np.float32), np.zeros(channels, np.float32)
        return self.add(
            "BatchNormalization", x, *(self.constant(a) for a in (one, zero, zero, one))
        )

    def convolved(self, x: str, into: int, out: int, size: int = 1, stride: int = 1) -> str:
        w = self.weight(out, into, size, size)
        x = self.add(
            "Conv", x, w, kernel_shape=[size, size], strides=[stride, stride], pads=[size // 2] * 4
        )
        return self.normalized(x, out)


def resnet50(path: Path, size: int = 224) -> Path:
    """ResNet-50's layers and sizes (25.5 million weights) with random weights, and a real failure
    in ONNX Runtime: zeros put around values that are all negative, then a maximum, which its
    optimizer joins into a maximum that knows no zeros."""
    net = _Net()
    x = net.convolved("x", 3, 64, 7, 2)
    x = net.add("Neg", net.add("Abs", x))
    pads = net.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64))
    x = net.add("Pad", x, pads, net.constant(np.zeros((), np.float32)), name="culprit_pad")
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], name="culprit_pool")
    into = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            step = stride if block == 0 else 1
            y = net.add("Relu", net.convolved(x, into, width))
            y = net.add("Relu", net.convolved(y, width, width, 3, step))
            y = net.convolved(y, width, 4 * width)
            x = net.convolved(x, into, 4 * width, 1, step) if block == 0 else x
            x, into = net.add("Relu", net.add("Add", x, y)), 4 * width
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    x = net.add("Gemm", x, net.weight(1000, 2048), net.weight(1000, scale=0.0), transB=1)
    net.nodes[-1].output[0] = "y"
    return save(
        path, net.nodes, [value("x", ["n", 3, size, size])], [value("y", ["n", 1000])], net.weights
    )


def transformer(
    path: Path,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    length: int = 128,
    *,
    opened: bool = False,
) -> Path:
    """An encoder of BERT's base size (85 million weights) with random weights and LayerNorms from
    primitives. The middle layer's feed-forward is large enough for a square to overflow in FP16.
    ``opened``: any length will do."""
    net = _Net(1)
    scale, eps, two = (
        net.constant(np.array(v, np.float32)) for v in ((width // heads) ** -0.5, 1e-5, 2.0)
    )
    split = net.constant(np.array([0, 0, heads, width // heads], np.int64))
    merge = net.constant(np.array([0, 0, width], np.int64))

    def dense(x: str, a: int, b: int, gain: float = 1.0) -> str:
        return net.add(
            "Add",
            net.add("MatMul", x, net.weight(a, b, scale=gain * a**-0.5)),
            net.weight(b, scale=0.01),
        )

    def layer_norm(x: str, tag: str) -> str:
        centred = net.add("Sub", x, net.add("ReduceMean", x, axes=[-1]))
        square = net.add("Pow", centred, two, name=f"{tag}_pow")
        spread = net.add("Sqrt", net.add("Add", net.add("ReduceMean", square, axes=[-1]), eps))
        x = net.add("Mul", net.add("Div", centred, spread), net.weight(width, scale=0.01, mean=1.0))
        return net.add("Add", x, net.weight(width, scale=0.01))

    def rows(x: str, perm: list[int]) -> str:
        return net.add("Transpose", net.add("Reshape", x, split), perm=perm)

    x = "x"
    for layer in range(layers):
        q, k, v = (dense(x, width, width) for _ in range(3))
        scores = net.add(
            "Mul", net.add("MatMul", rows(q, [0, 2, 1, 3]), rows(k, [0, 2, 3, 1])), scale
        )
        mixed = net.add("MatMul", net.add("Softmax", scores, axis=-1), rows(v, [0, 2, 1, 3]))
        mixed = net.add("Reshape", net.add("Transpose", mixed, perm=[0, 2, 1, 3]), merge)
        x = layer_norm(net.add("Add", x, dense(mixed, width, width)), f"l{layer}a")
        hidden = net.add("Relu", dense(x, width, 4 * width))
        guilty = layer == layers // 2
        more = dense(hidden, 4 * width, width, 800.0 if guilty else 1.0)
        x = layer_norm(net.add("Add", x, more), "culprit" if guilty else f"l{layer}b")
    net.nodes[-1].output[0] = "y"
    shape = ["n", "length" if opened else length, width]
    return save(path, net.nodes, [value("x", shape)], [value("y", shape)], net.weights)


def pooled(path: Path, nodes: int) -> Path:
    """A chain of convolutions and their like with ResNet-50's failure in its middle: small, and
    many nodes."""
    net = _Net(2)
    x = net.convolved("x", 3, 8, 3)
    guilty = False
    while len(net.nodes) < nodes:
        if len(net.nodes) >= nodes // 2 and not guilty:
            guilty = True
            x = net.add("Neg", net.add("Abs", x))
            pads = net.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64))
            x = net.add("Pad", x, pads, net.constant(np.zeros((), np.float32)), name="culprit_pad")
            x = net.add("MaxPool", x, kernel_shape=[3, 3], name="culprit_pool")
        x = net.add("LeakyRelu", net.convolved(x, 8, 8, 3))
    net.nodes[-1].output[0] = "y"
    return save(
        path, net.nodes, [value("x", [1, 3, 16, 16])], [value("y", [1, 8, 16, 16])], net.weights
    )
