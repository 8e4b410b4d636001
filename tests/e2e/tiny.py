"""Tiny models, each with one known fault under one engine (or none), and inputs that show it."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray
OPSET = 17


def weights(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    """float32, normally distributed."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Mapping[str, Sequence[int | str]],
    constants: Mapping[str, Array] | None = None,
    *,
    dtype: int = TensorProto.FLOAT,
    opset: int = OPSET,
) -> Path:
    """Write the model; nodes without a name are named after their output."""
    for node in nodes:
        node.name = node.name or f"/{node.output[0]}"
    graph = helper.make_graph(
        list(nodes),
        path.stem,
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in outputs.items()
        ],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    _write_whole(path, lambda file: onnx.save(model, file))
    return path


def feeds(path: Path, **arrays: Array) -> Path:
    _write_whole(path, lambda file: np.savez(file, **arrays))
    return path


def _write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """At once: another process of the test run may be reading it."""
    written = path.with_name(f"{os.getpid()}-{path.name}")
    write(written)
    written.replace(path)


def faultless(folder: Path) -> Path:
    """A small perceptron that every engine computes right, at every precision."""
    node = helper.make_node
    return save(
        folder / "faultless.onnx",
        [
            node("Gemm", ["x", "w1", "b1"], ["hidden"]),
            node("Relu", ["hidden"], ["kept"]),
            node("Gemm", ["kept", "w2", "b2"], ["scores"]),
            node("Softmax", ["scores"], ["y"]),
        ],
        {"x": [2, 16]},
        {"y": [2, 4]},
        {
            "w1": weights(16, 32, scale=0.25),
            "b1": weights(32, seed=1, scale=0.1),
            "w2": weights(32, 4, seed=2, scale=0.2),
            "b2": weights(4, seed=3, scale=0.1),
        },
    )


def instance_norm(folder: Path) -> tuple[Path, Path]:
    """(model, inputs) that ONNX Runtime's own InstanceNormalization computes wrong: 1000 + 0.01 x
    noise."""
    model = save(
        folder / "instance_norm.onnx",
        [helper.make_node("InstanceNormalization", ["x", "scale", "bias"], ["y"], epsilon=1e-9)],
        {"x": [1, 3, 32, 32]},
        {"y": [1, 3, 32, 32]},
        {"scale": np.ones(3, np.float32), "bias": np.zeros(3, np.float32)},
    )
    return model, feeds(folder / "instance_norm.npz", x=1000 + 0.01 * weights(1, 3, 32, 32))


def constant_chain(folder: Path) -> Path:
    """300 x 300 / 90000 is 1, by way of a value that FP16 does not hold; folded, it is only the
    1."""
    node = helper.make_node
    return save(
        folder / "constant_chain.onnx",
        [
            node("Mul", ["side", "side"], ["area"]),
            node("Div", ["area", "whole"], ["share"]),
            node("Mul", ["x", "share"], ["scaled"]),
            node("Gemm", ["scaled", "w", "b"], ["y"]),
        ],
        {"x": [2, 16]},
        {"y": [2, 4]},
        {
            "side": np.float32([300]),
            "whole": np.float32([45000]),
            "w": weights(16, 4, scale=0.25),
            "b": weights(4, seed=1),
        },
    )


def norm(folder: Path) -> Path:
    """Pixels over their L2 norm: in FP16 the sum of squares overflows for 0..255 and not for
    0..1."""
    node = helper.make_node
    return save(
        folder / "norm.onnx",
        [
            node("Mul", ["x", "x"], ["squares"]),
            node("ReduceSum", ["squares", "axes"], ["sum"], keepdims=1),
            node("Sqrt", ["sum"], ["length"]),
            node("Div", ["x", "length"], ["unit"]),
            node("Gemm", ["unit", "w", "b"], ["y"]),
        ],
        {"x": [2, 64]},
        {"y": [2, 4]},
        {"axes": np.int64([1]), "w": weights(64, 4), "b": weights(4, seed=1)},
    )


def two_norms(folder: Path) -> Path:
    """Two branches; in FP16 the first overflows in its sum of squares, the second is merely
    rounded."""
    node = helper.make_node
    return save(
        folder / "two_norms.onnx",
        [
            node("Mul", ["x", "gain"], ["loud"]),
            node("Mul", ["loud", "loud"], ["squares"]),
            node("ReduceSum", ["squares", "axes"], ["sum"], keepdims=1),
            node("Sqrt", ["sum"], ["length"]),
            node("Div", ["loud", "length"], ["unit"]),
            node("Gemm", ["unit", "w", "b"], ["y"]),
            node("Gemm", ["x", "w", "b"], ["plain"]),
            node("Tanh", ["plain"], ["z"]),
        ],
        {"x": ["batch", 64]},
        {"y": ["batch", 4], "z": ["batch", 4]},
        {
            "gain": np.float32([100]),
            "axes": np.int64([1]),
            "w": weights(64, 4),
            "b": weights(4, seed=1),
        },
    )


def two_culprits(folder: Path) -> Path:
    """Two branches, each with an output of its own, and each with a sum of squares that overflows
    in FP16: one of a single operator, the other of two, so that the one is not foretold by the
    other."""
    node = helper.make_node

    def branch(name: str, gain: str, output: str) -> list[onnx.NodeProto]:
        summed = [node("ReduceSumSquare", [f"{name}_loud"], [f"{name}_sum"], axes=[1], keepdims=1)]
        if name == "right":
            summed = [
                node("Mul", [f"{name}_loud", f"{name}_loud"], [f"{name}_squares"]),
                node("ReduceSum", [f"{name}_squares", "axes"], [f"{name}_sum"], keepdims=1),
            ]
        return [
            node("Mul", ["x", gain], [f"{name}_loud"]),
            *summed,
            node("Sqrt", [f"{name}_sum"], [f"{name}_length"]),
            node("Div", [f"{name}_loud", f"{name}_length"], [f"{name}_unit"]),
            node("Gemm", [f"{name}_unit", "w", "b"], [output]),
        ]

    return save(
        folder / "two_culprits.onnx",
        [*branch("left", "hundred", "y"), *branch("right", "eighty", "z")],
        {"x": ["batch", 64]},
        {"y": ["batch", 4], "z": ["batch", 4]},
        {
            "hundred": np.float32([100]),
            "eighty": np.float32([80]),
            "axes": np.int64([1]),
            "w": weights(64, 4),
            "b": weights(4, seed=1),
        },
    )


def rows(folder: Path) -> Path:
    """Inputs for ``two_norms`` and ``two_culprits``: four rows, the later ones louder."""
    values = weights(4, 64, seed=3) * np.float32([[0.6], [0.8], [0.9], [1]])
    return feeds(folder / "rows.npz", x=values.astype(np.float32))


def absolute_sum(folder: Path) -> Path:
    """Over the sum of absolute values, an operator of opset 13 that OpenVINO 2026.4 computes over
    all axes."""
    node = helper.make_node
    return save(
        folder / "absolute_sum.onnx",
        [
            node("Abs", ["x"], ["size"]),
            node("ReduceL1", ["size"], ["sum"], axes=[1], keepdims=1),
            node("Div", ["x", "sum"], ["y"]),
        ],
        {"x": [4, 8]},
        {"y": [4, 8]},
        opset=13,
    )


def half_constant(folder: Path) -> Path:
    """Two faults in FP16: a chain of constants that folding cures, and a sum of squares that it
    leaves."""
    node = helper.make_node
    return save(
        folder / "half_constant.onnx",
        [
            node("Mul", ["side", "side"], ["area"]),
            node("Div", ["area", "whole"], ["share"]),
            node("Mul", ["x", "share"], ["loud"]),
            node("Mul", ["loud", "loud"], ["squares"]),
            node("ReduceSum", ["squares", "axes"], ["sum"], keepdims=1),
            node("Sqrt", ["sum"], ["length"]),
            node("Div", ["loud", "length"], ["unit"]),
            node("Gemm", ["unit", "w", "b"], ["y"]),
        ],
        {"x": ["batch", 64]},
        {"y": ["batch", 4]},
        {
            "side": np.float32([300]),
            "whole": np.float32([900]),
            "axes": np.int64([1]),
            "w": weights(64, 4),
            "b": weights(4, seed=1),
        },
    )


def two_fusions(folder: Path) -> tuple[Path, Path]:
    """(model, inputs) with two faults of ONNX Runtime's optimizers.

    Integer 1 / x * w becomes w / x, a small error; and padding, computed by a node, is fused into
    the pooling behind it once that node is folded away, a large one.
    """
    node = helper.make_node
    model = save(
        folder / "two_fusions.onnx",
        [
            node("Cast", ["x"], ["whole"], to=TensorProto.INT32),
            node("Div", ["one", "whole"], ["inverse"]),
            node("Mul", ["inverse", "weight"], ["ratio"]),
            node("Cast", ["ratio"], ["floating"], to=TensorProto.FLOAT),
            node("Mul", ["floating", "little"], ["term"]),
            node("Concat", ["sides", "sides"], ["pads"], axis=0),
            node("Pad", ["x", "pads"], ["padded"]),
            node("MaxPool", ["padded"], ["pooled"], kernel_shape=[3, 3]),
            node("Add", ["pooled", "term"], ["y"]),
        ],
        {"x": [1, 3, 8, 8]},
        {"y": [1, 3, 8, 8]},
        {
            "one": np.int32([1]),
            "weight": np.full((1, 3, 8, 8), 7, np.int32),
            "little": np.float32([0.01]),
            "sides": np.int64([0, 0, 1, 1]),
        },
    )
    values = -2 - 3 * np.random.default_rng(0).random((1, 3, 8, 8), np.float32)
    return model, feeds(folder / "two_fusions.npz", x=values)


def optional(folder: Path) -> tuple[Path, Path]:
    """(model, inputs) with a square that overflows in FP16, and an optional value, which
    ONNX-GraphSurgeon cannot read."""
    node = helper.make_node
    model = save(
        folder / "optional.onnx",
        [
            node("Mul", ["x", "x"], ["squares"]),
            node("Optional", ["squares"], ["maybe"]),
            node("OptionalGetElement", ["maybe"], ["again"]),
            node("Sqrt", ["again"], ["y"]),
        ],
        {"x": [2, 16]},
        {"y": [2, 16]},
    )
    return model, feeds(
        folder / "optional.npz", x=300 * np.random.default_rng(0).random((2, 16), np.float32)
    )


def parts(folder: Path, count: int) -> tuple[Path, Path]:
    """(model, inputs) of so many separate parts, each of which overflows in FP16 in its own
    square."""
    node = helper.make_node
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, Array] = {"small": np.float32(1e-5), "axis": np.int64([1])}
    for k in range(count):
        constants |= {f"from{k}": np.int64([4 * k]), f"to{k}": np.int64([4 * k + 4])}
        nodes += [
            node("Slice", ["x", f"from{k}", f"to{k}", "axis"], [f"part{k}"]),
            node("Mul", [f"part{k}", f"part{k}"], [f"square{k}"]),
            node("Mul", [f"square{k}", "small"], [f"scaled{k}"]),
            node("Sigmoid", [f"scaled{k}"], [f"gate{k}"]),
            node("Neg", [f"gate{k}"], [f"end{k}"]),
        ]
    nodes.append(node("Concat", [f"end{k}" for k in range(count)], ["y"], axis=1))
    model = save(
        folder / f"parts-{count}.onnx",
        nodes,
        {"x": [2, 4 * count]},
        {"y": [2, 4 * count]},
        constants,
    )
    x = np.random.default_rng(0).uniform(280, 330, (2, 4 * count)).astype(np.float32)
    return model, feeds(folder / f"parts-{count}.npz", x=x)


def drift(folder: Path, layers: int = 64, *, culprit: int = -1) -> tuple[Path, Path]:
    """(model, inputs) of a deep residual perceptron whose layers each add less than half a BF16
    step: every one is lost, and the error grows with depth. After layer ``culprit`` a large number
    is added and taken away again, which BF16 does not survive."""
    node = helper.make_node
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, Array] = {"large": np.float32(500)}
    now = "x"
    for k in range(layers):
        shares = random.uniform(0, 1, (16, 16))
        constants[f"w{k}"] = (0.0015 * shares / shares.sum(0)).astype(np.float32)
        nodes += [
            node("MatMul", [now, f"w{k}"], [f"branch{k}"], name=f"/block{k}/MatMul"),
            node("Relu", [f"branch{k}"], [f"kept{k}"], name=f"/block{k}/Relu"),
            node("Add", [now, f"kept{k}"], [f"stream{k}"], name=f"/block{k}/Residual"),
        ]
        now = f"stream{k}"
        if k == culprit:
            nodes += [
                node("Add", [now, "large"], ["shifted"], name="/norm/Shift"),
                node("Sub", ["shifted", "large"], ["back"], name="/norm/Unshift"),
            ]
            now = "back"
    nodes.append(node("Identity", [now], ["y"]))
    name = f"drift-{layers}-{culprit}"
    model = save(
        folder / f"{name}.onnx", nodes, {"x": ["batch", 16]}, {"y": ["batch", 16]}, constants
    )
    return model, feeds(folder / f"{name}.npz", x=random.uniform(1, 2, (4, 16)).astype(np.float32))
