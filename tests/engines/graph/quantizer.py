"""A small quantizer and random float models for it: every form of pair that the searches must know,
chosen by the caller."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

n = helper.make_node
WIDTH = 6
RANGES = {
    "uint8": (0, 255),
    "int8": (-127, 127),
    "int16": (-32767, 32767),
    "uint16": (0, 65535),
    "int4": (-8, 7),
}
DTYPES = {name: np.dtype(getattr(ml_dtypes, name, name)) for name in RANGES}


def float_model(ops: list[str], seed: int = 0) -> onnx.ModelProto:
    """``x`` float32 [3, 6] through these operators (MatMul, Gemm, Relu, Add: with the tensor before
    last) to ``y``."""
    rng = np.random.default_rng(seed)
    nodes, weights, names = [], [], ["x"]
    for i, op in enumerate(ops):
        reads = [names[-1]]
        if op in ("MatMul", "Gemm"):
            weights.append(
                numpy_helper.from_array(
                    rng.standard_normal((WIDTH, WIDTH)).astype(np.float32), f"w{i}"
                )
            )
            reads.append(f"w{i}")
        if op == "Gemm":
            weights.append(
                numpy_helper.from_array(rng.standard_normal(WIDTH).astype(np.float32), f"b{i}")
            )
            reads.append(f"b{i}")
        if op == "Add":
            reads.append(names[-2] if len(names) > 1 else names[-1])
        names.append("y" if i == len(ops) - 1 else f"t{i}")
        nodes.append(n(op, reads, [names[-1]], name=f"/{op}{i}"))
    shape = [3, WIDTH]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


class Quantizer:
    """Puts Q/DQ pairs into a copy of a float model. ``choose`` answers each question that has
    several right answers."""

    def __init__(
        self, model: onnx.ModelProto, choose: Callable[[list[str]], str], scale: float = 0.05
    ) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self.choose, self.scale = choose, scale
        self.nodes: list[onnx.NodeProto] = []
        self.weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.made: dict[str, str] = {}
        self.added: dict[str, np.ndarray] = {}
        self.count = 0

    def run(self) -> onnx.ModelProto:
        graph = self.model.graph
        for node in graph.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            if self.choose(["quantized", "quantized", "float"]) == "quantized":
                for i, name in enumerate(node.input):
                    copy.input[i] = (
                        self.weight(name) if name in self.weights else self.activation(name)
                    )
            self.nodes.append(copy)
        if self.choose(["output", "plain"]) == "output":
            self.nodes[-1].output[0] = "y_float"
            self.pair("y_float", "int8", "y")
        del graph.node[:]
        graph.node.extend(self.nodes)
        kept = {name for node in graph.node for name in node.input}
        del graph.initializer[:]
        graph.initializer.extend(
            numpy_helper.from_array(v, name)
            for name, v in {**self.weights, **self.added}.items()
            if name in kept
        )
        return self.model

    def activation(self, name: str) -> str:
        """The pair's output: shared with other readers or this reader's own, sometimes through two
        pairs."""
        if name not in self.made or self.choose(["shared", "own"]) == "own":
            self.made[name] = self.pair(name, self.choose(["uint8", "int8", "int16", "uint16"]))
            if self.choose(["one", "one", "two"]) == "two":
                self.made[name] = self.pair(self.made[name], "int8")
        return self.made[name]

    def pair(self, name: str, codes: str, output: str = "") -> str:
        scale, zero = self.constants(
            np.float32(self.scale * 3), np.array(3 if codes[0] == "u" else 0, DTYPES[codes])
        )
        self.count += 1
        middle, output = f"{name}_q{self.count}", output or f"{name}_dq{self.count}"
        self.nodes.append(n("QuantizeLinear", [name, scale, zero], [middle], name=f"{output}_Q"))
        self.nodes.append(
            n("DequantizeLinear", [middle, scale, zero], [output], name=f"{output}_DQ")
        )
        return output

    def weight(self, name: str) -> str:
        """The weight as stored codes (a bias in int32) behind a DequantizeLinear, or quantized in
        the model."""
        value = self.weights[name]
        form = self.choose(["codes", "codes", "in the model"])
        codes = "int32" if value.ndim == 1 else self.choose(["int8", "int16", "int4"])
        if form == "in the model":
            return self.pair(name, "int8")
        form = self.choose(["tensor", "channel", "block"]) if value.ndim == 2 else "tensor"
        shape = {"tensor": (), "channel": (WIDTH,), "block": (WIDTH // 2, WIDTH)}[form]
        scale = np.full(shape, self.scale, np.float32)
        low, high = RANGES.get(codes, (-(2**31), 2**31 - 1))
        stored = np.clip(np.rint(value / self.scale), low, high).astype(
            DTYPES.get(codes, np.dtype(np.int32))
        )
        zero = np.zeros(scale.shape, stored.dtype)
        names = self.constants(stored, scale, zero)
        self.count += 1
        output = f"{name}_w{self.count}"
        how = {"tensor": {}, "channel": {"axis": 1}, "block": {"axis": 0, "block_size": 2}}[form]
        self.nodes.append(n("DequantizeLinear", list(names), [output], name=f"{output}_DQ", **how))
        return output

    def constants(self, *values: np.ndarray) -> tuple[str, ...]:
        names = []
        for value in values:
            names.append(f"c{len(self.added)}")
            self.added[names[-1]] = np.asarray(value)
        return tuple(names)
