"""A decoder of a real width whose weights lie outside the model, and the inputs of one step of its
generation.

Token ids and the keys and values of earlier tokens go in, logits and the new keys and values come
out; the batch and the number of earlier tokens are open.
"""

from pathlib import Path

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

from narrowdown.engines.graph import external

WIDTH, HEADS, INNER, WORDS, PAST = 2048, 16, 5632, 32_000, 64
HEAD = WIDTH // HEADS


class _Decoder:
    """Nodes, small constants, and big weights one after another in a file that is written as they
    come."""

    def __init__(self, weights: Path, overflowing: int) -> None:
        self.overflowing = overflowing
        self.file = weights.open("wb")
        self.nodes: list[object] = []
        self.constants: list[TensorProto] = []
        # One tile of noise, repeated: random enough for a matrix, and made in an instant.
        self.tile = (
            np.random.default_rng(0).standard_normal((1 << 24) - 3, np.float32) * 0.02
        ).tobytes()

    def add(self, op: str, *reads: str, name: str, outputs: int = 1, **attributes: object) -> str:
        made = [name if i == 0 else f"{name}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(reads), made, name=name, **attributes))
        return name

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def weight(self, name: str, *shape: int) -> str:
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
        left = 4 * int(np.prod(shape))
        external.make_external(tensor, "w.bin", self.file.tell(), left)
        while left:
            left -= self.file.write(self.tile[:left])
        self.constants.append(tensor)
        return name

    def normed(self, x: str, name: str) -> str:
        square = self.add("Mul", x, x, name=f"{name}/square")
        mean = self.add("ReduceMean", square, name=f"{name}/mean", axes=[-1])
        root = self.add(
            "Sqrt", self.add("Add", mean, "epsilon", name=f"{name}/shift"), name=f"{name}/root"
        )
        return self.add("Div", x, root, name=f"{name}/scale")

    def heads(self, x: str, name: str) -> str:
        split = self.add("Reshape", x, "split", name=f"{name}/split")
        return self.add("Transpose", split, name=f"{name}/turn", perm=[0, 2, 1, 3])

    def layer(self, x: str, n: int) -> str:
        at = f"/layer.{n}"
        large = self.add("Mul", x, "400", name=f"{at}/large") if n == self.overflowing else x
        y = self.normed(large, f"{at}/before")
        q, k, v = (
            self.heads(
                self.add("MatMul", y, self.weight(f"{at}/{p}.w", WIDTH, WIDTH), name=f"{at}/{p}"),
                f"{at}/{p}",
            )
            for p in "qkv"
        )
        k = self.add("Concat", f"past.{n}.k", k, name=f"present.{n}.k", axis=2)
        v = self.add("Concat", f"past.{n}.v", v, name=f"present.{n}.v", axis=2)
        turned = self.add("Transpose", k, name=f"{at}/turned", perm=[0, 1, 3, 2])
        scores = self.add(
            "Div", self.add("MatMul", q, turned, name=f"{at}/scores"), "root", name=f"{at}/scaled"
        )
        seen = self.add(
            "MatMul", self.add("Softmax", scores, name=f"{at}/softmax"), v, name=f"{at}/seen"
        )
        flat = self.add("Transpose", seen, name=f"{at}/back", perm=[0, 2, 1, 3])
        flat = self.add("Reshape", flat, "flat", name=f"{at}/flat")
        out = self.add("MatMul", flat, self.weight(f"{at}/o.w", WIDTH, WIDTH), name=f"{at}/o")
        x = self.add("Add", x, out, name=f"{at}/attended")
        y = self.normed(x, f"{at}/after")
        gate = self.add("MatMul", y, self.weight(f"{at}/gate.w", WIDTH, INNER), name=f"{at}/gate")
        gate = self.add(
            "Mul", gate, self.add("Sigmoid", gate, name=f"{at}/sigmoid"), name=f"{at}/silu"
        )
        up = self.add("MatMul", y, self.weight(f"{at}/up.w", WIDTH, INNER), name=f"{at}/up")
        both = self.add("Mul", gate, up, name=f"{at}/gated")
        down = self.add(
            "MatMul", both, self.weight(f"{at}/down.w", INNER, WIDTH), name=f"{at}/down"
        )
        return self.add("Add", x, down, name=f"{at}/out")


def _floats(name: str, shape: list[str | int]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def decoder(path: Path, layers: int, overflowing: int = -1) -> int:
    """Write the model and its weights; the bytes of the weights. ``overflowing``: the layer whose
    first norm gets values 400 times as large, which it divides by 400 again: the same results, but
    for a square beyond FP16."""
    net = _Decoder(path.with_name("w.bin"), overflowing)
    net.constant("400", np.array(400.0, np.float32))
    net.constant("epsilon", np.array(1e-5, np.float32))
    net.constant("root", np.array(HEAD**0.5, np.float32))
    net.constant("split", np.array([0, 0, HEADS, HEAD], np.int64))
    net.constant("flat", np.array([0, 0, WIDTH], np.int64))
    x = net.add("Gather", net.weight("words", WORDS, WIDTH), "ids", name="/embedded")
    for n in range(layers):
        x = net.layer(x, n)
    net.add("MatMul", net.normed(x, "/last"), net.weight("answer.w", WIDTH, WORDS), name="logits")
    size = net.file.tell()
    net.file.close()
    caches = [f"{n}.{kind}" for n in range(layers) for kind in "kv"]
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", 1])]
    inputs += [_floats(f"past.{c}", ["batch", HEADS, "past", HEAD]) for c in caches]
    outputs = [_floats("logits", ["batch", 1, WORDS])]
    outputs += [_floats(f"present.{c}", ["batch", HEADS, "total", HEAD]) for c in caches]
    graph = helper.make_graph(net.nodes, "decoder", inputs, outputs, net.constants)
    path.write_bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ).SerializeToString()
    )
    return size


def generation(path: Path, layers: int) -> Path:
    """The inputs of one step of generation: a token, and what earlier ones left."""
    rng, shape = np.random.default_rng(1), (1, HEADS, PAST, HEAD)
    past = {
        f"past.{n}.{kind}": rng.standard_normal(shape, np.float32)
        for n in range(layers)
        for kind in "kv"
    }
    np.savez(path, ids=np.array([[17]]), **past)
    return path
