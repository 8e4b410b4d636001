"""Models of the GPU campaign that are built, not committed."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def _save(path: Path, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], shape: tuple[int, ...]) -> Path:
    """``shape``: of the input, without the batch."""
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph(
        nodes, path.stem, ends[:1], ends[1:], [numpy_helper.from_array(a, n) for n, a in weights.items()]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def layernorm(folder: Path, scale: float = 3000.0, width: int = 64) -> tuple[Path, Path]:
    """Two projections with a LayerNorm from primitives behind each; activations in the thousands, so that the squares of the
    first leave FP16. (model, inputs)"""
    rng = np.random.default_rng(7)
    weights: dict[str, np.ndarray] = {
        "two": np.array(2, np.float32), "eps": np.array(1e-5, np.float32),
    }  # fmt: skip
    nodes: list[onnx.NodeProto] = []
    value = "x"
    for block in range(2):
        p = f"block{block}"
        weights[f"{p}.w"] = (rng.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32)
        weights[f"{p}.gamma"] = np.ones(width, np.float32)
        weights[f"{p}.beta"] = np.zeros(width, np.float32)
        steps = [
            ("MatMul", [value, f"{p}.w"], "mm", {}), ("ReduceMean", [f"{p}.mm"], "mean", {"axes": [-1]}),
            ("Sub", [f"{p}.mm", f"{p}.mean"], "centred", {}), ("Pow", [f"{p}.centred", "two"], "square", {}),
            ("ReduceMean", [f"{p}.square"], "var", {"axes": [-1]}), ("Add", [f"{p}.var", "eps"], "vareps", {}),
            ("Sqrt", [f"{p}.vareps"], "std", {}), ("Div", [f"{p}.centred", f"{p}.std"], "normed", {}),
            ("Mul", [f"{p}.normed", f"{p}.gamma"], "scaled", {}), ("Add", [f"{p}.scaled", f"{p}.beta"], "shifted", {}),
            ("Relu", [f"{p}.shifted"], "out", {}),
        ]  # fmt: skip
        nodes += [
            helper.make_node(op, inputs, [f"{p}.{out}"], name=f"{p}/{op}_{out}", **attributes)
            for op, inputs, out, attributes in steps
        ]
        value = f"{p}.out"
    nodes.append(helper.make_node("Identity", [value], ["y"], name="end"))
    inputs = folder / "layernorm_in.npz"
    np.savez(inputs, x=(rng.standard_normal((8, width)) * scale).astype(np.float32))
    return _save(folder / "layernorm.onnx", nodes, weights, (width,)), inputs


def cancelling(folder: Path, width: int = 64) -> tuple[Path, Path]:
    """A chain of which one part alone needs FP32: 3000 is added and taken away again. (model, inputs)"""
    rng = np.random.default_rng(3)
    weights: dict[str, np.ndarray] = {"far": np.array(3000.0, np.float32)}
    nodes: list[onnx.NodeProto] = []
    value = "x"
    for layer in range(4):
        weights[f"w{layer}"] = (rng.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32)
        nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], [f"m{layer}"], name=f"layer{layer}/MatMul"))
        nodes.append(helper.make_node("Tanh", [f"m{layer}"], [f"t{layer}"], name=f"layer{layer}/Tanh"))
        value = f"t{layer}"
        if layer == 1:
            nodes.append(helper.make_node("Add", [value, "far"], ["raised"], name="offset/Add"))
            nodes.append(helper.make_node("Sub", ["raised", "far"], ["lowered"], name="offset/Sub"))
            value = "lowered"
    nodes.append(helper.make_node("Identity", [value], ["y"], name="end"))
    inputs = folder / "cancelling_in.npz"
    np.savez(inputs, x=rng.standard_normal((8, width)).astype(np.float32))
    return _save(folder / "cancelling.onnx", nodes, weights, (width,)), inputs


def convolutions(folder: Path) -> tuple[Path, Path]:
    """Four small convolutions: layers for which several kernels are offered, quickly timed. (model, inputs)"""
    rng = np.random.default_rng(11)
    weights: dict[str, np.ndarray] = {}
    nodes: list[onnx.NodeProto] = []
    value, channels = "x", 8
    for layer in range(4):
        weights[f"w{layer}"] = (rng.standard_normal((16, channels, 3, 3)) / 8).astype(np.float32)
        nodes.append(
            helper.make_node("Conv", [value, f"w{layer}"], [f"c{layer}"], name=f"conv{layer}", pads=[1, 1, 1, 1])
        )
        nodes.append(helper.make_node("Tanh", [f"c{layer}"], [f"t{layer}"], name=f"tanh{layer}"))
        value, channels = f"t{layer}", 16
    nodes.append(helper.make_node("Identity", [value], ["y"], name="end"))
    inputs = folder / "convolutions_in.npz"
    np.savez(inputs, x=rng.standard_normal((2, 8, 16, 16)).astype(np.float32))
    return _save(folder / "convolutions.onnx", nodes, weights, (8, 16, 16)), inputs
