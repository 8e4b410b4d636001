"""Float models of the campaign quantization, and what they are fed:

    python campaigns/quantization/models.py FOLDER [NAME ...]

writes FOLDER/NAME/float.onnx, calibration-NN.npz (16 samples) and fresh.npz (100 others, stacked
along a new first axis). ``shapes`` is the network of the INT8 demo, ``vit`` and ``decoder`` are of
our own making; some of their channels are scaled apart, which costs INT8 dearly. A model of a wheel
comes from campaigns/field by its name there, where it lies in FOLDER/NAME.onnx.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parents[2]))
from narrowdown.engines.demos.scaled_apart import scale_apart
from narrowdown.wizard.demo import MODELS

Array = np.ndarray
Feed = dict[str, Array]
GIVEN, FRESH = 16, 100


class Net:
    """Nodes and weights of a transformer as they are added; a node is named ``/Op_N``."""

    def __init__(self, seed: int, width: int, heads: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.width, self.heads = width, heads
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.count = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}_{self.count}"

    def hold(self, value: Array) -> str:
        name = self.name("w")
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def draw(self, *shape: int, scale: float, around: float = 0.0) -> str:
        return self.hold((around + self.rng.normal(0, scale, shape)).astype(np.float32))

    def add(self, op: str, *reads: str, **attributes: object) -> str:
        name = self.name(f"/{op}")
        self.nodes.append(
            helper.make_node(op, list(reads), [f"{name}_out"], name=name, **attributes)
        )
        return f"{name}_out"

    def product(self, x: str, inner: int, outer: int) -> str:
        y = self.add("MatMul", x, self.draw(inner, outer, scale=inner**-0.5))
        return self.add("Add", y, self.draw(outer, scale=0.1))

    def norm(self, x: str, factor: Array | float = 1.0) -> str:
        """Its outputs times ``factor``."""
        gain = (1 + self.rng.normal(0, 0.1, self.width)) * factor
        shift = self.rng.normal(0, 0.1, self.width) * factor
        held = (self.hold(v.astype(np.float32)) for v in (gain, shift))
        return self.add("LayerNormalization", x, *held, axis=-1)

    def attend(self, x: str, mask: Array | None) -> str:
        head = self.width // self.heads
        split = self.hold(np.array([0, 0, self.heads, head]))
        q, k, v = (
            self.add("Transpose", self.add("Reshape", y, split), perm=[0, 2, 1, 3])
            for y in (self.product(x, self.width, self.width) for _ in "qkv")
        )
        scores = self.add("MatMul", q, self.add("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.add("Mul", scores, self.hold(np.float32(head**-0.5)))
        if mask is not None:
            scores = self.add("Add", scores, self.hold(mask))
        seen = self.add("MatMul", self.add("Softmax", scores, axis=-1), v)
        flat = self.add("Transpose", seen, perm=[0, 2, 1, 3])
        flat = self.add("Reshape", flat, self.hold(np.array([0, 0, self.width])))
        return self.product(flat, self.width, self.width)

    def block(self, x: str, mask: Array | None, spread: float) -> str:
        """Attention and two products. ``spread``: how far the channels before these are scaled
        apart; the first product scales them back."""
        x = self.add("Add", x, self.attend(self.norm(x), mask))
        apart = self.rng.permutation(np.geomspace(1, spread, self.width))
        inner = 4 * self.width
        weight = self.rng.normal(0, self.width**-0.5, (self.width, inner)) / apart[:, None]
        y = self.add("MatMul", self.norm(x, apart), self.hold(weight.astype(np.float32)))
        y = self.add("Add", y, self.draw(inner, scale=0.1))
        half = self.add("Mul", y, self.hold(np.float32(0.5)))
        erf = self.add("Erf", self.add("Div", y, self.hold(np.float32(2**0.5))))
        y = self.add("Mul", half, self.add("Add", erf, self.hold(np.float32(1))))
        return self.add("Add", x, self.product(y, inner, self.width))

    def save(
        self, path: Path, fed: tuple[str, int, Sequence[int]], gives: str, shape: Sequence[int]
    ) -> None:
        (name, kind, size), info = fed, helper.make_tensor_value_info
        ends = [info(name, kind, size)], [info(gives, TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, path.parent.name, *ends, self.weights)
        opset = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def write_vit(path: Path) -> None:
    """A picture of 3 x 32 x 32, 16 patches, four blocks, ten classes."""
    net = Net(1, width=64, heads=4)
    patches, bias = net.draw(64, 3, 8, 8, scale=0.1), net.draw(64, scale=0.1)
    x = net.add("Conv", "image", patches, bias, kernel_shape=[8, 8], strides=[8, 8])
    x = net.add("Reshape", x, net.hold(np.array([0, 64, 16])))
    x = net.add("Add", net.add("Transpose", x, perm=[0, 2, 1]), net.draw(1, 16, 64, scale=0.3))
    for spread in (1, 300, 300, 1):
        x = net.block(x, None, spread)
    y = net.product(net.add("ReduceMean", net.norm(x), axes=[1], keepdims=0), 64, 10)
    net.save(path, ("image", TensorProto.FLOAT, [1, 3, 32, 32]), y, [1, 10])


def write_decoder(path: Path) -> None:
    """16 tokens of 100, three blocks with a causal mask, logits."""
    net = Net(2, width=48, heads=4)
    x = net.add("Gather", net.draw(100, 48, scale=1.0), "ids")
    x = net.add("Add", x, net.draw(1, 16, 48, scale=0.3))
    mask = np.triu(np.full((16, 16), -1e4, np.float32), 1)[None, None]
    for spread in (1, 300, 1):
        x = net.block(x, mask, spread)
    y = net.add("MatMul", net.norm(x), net.draw(48, 100, scale=48**-0.5))
    net.save(path, ("ids", TensorProto.INT64, [1, 16]), y, [1, 16, 100])


def write_shapes(path: Path) -> None:
    """One image at a time: no size is open."""
    model = scale_apart(onnx.load(MODELS / "shapes_cnn.onnx"))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    del model.graph.value_info[:]
    onnx.save(model, path)


def draw_shape(rng: np.random.Generator) -> Feed:
    """An image like those of shapes_cnn_in.npz."""
    y, x = np.mgrid[0:64, 0:64]
    contrast, base = rng.uniform(0.4, 1.0), rng.choice([-0.17, 0.18]) + rng.normal(0, 0.03)
    (cx, cy), size, angle = rng.uniform(22, 42, 2), rng.uniform(8, 15), rng.uniform(0, np.pi)
    u = (x - cx) * np.cos(angle) + (y - cy) * np.sin(angle)
    v = (y - cy) * np.cos(angle) - (x - cx) * np.sin(angle)
    far, across, along = np.hypot(u, v), abs(u), abs(v)
    shapes = (
        far < size,
        np.maximum(across, along) < 0.8 * size,
        (np.minimum(across, along) < 0.27 * size) & (np.maximum(across, along) < size),
        (far < size) & (far > 0.6 * size),
        (v < 0.6 * size) & (v > 1.7 * across - size),
        (across < 1.2 * size) & (along < 0.3 * size),
    )
    image = base + contrast * shapes[rng.integers(6)] + rng.normal(0, 0.15, (64, 64))
    return {"image": image.astype(np.float32)[None, None]}


def draw_picture(rng: np.random.Generator) -> Feed:
    """Noise that is smooth as pictures are: its spectrum falls by the frequency."""
    across, along = np.meshgrid(np.fft.fftfreq(32), np.fft.fftfreq(32))
    spectrum = np.fft.fft2(rng.standard_normal((3, 32, 32))) / (np.hypot(across, along) + 0.02)
    image = np.fft.ifft2(spectrum).real
    return {"image": (image / image.std()).astype(np.float32)[None]}


def draw_words(rng: np.random.Generator) -> Feed:
    """Tokens, some of which are frequent."""
    rates = np.random.default_rng(9).permutation(1 / np.arange(1, 101))
    return {"ids": rng.choice(100, (1, 16), p=rates / rates.sum()).astype(np.int64)}


OWN: dict[str, tuple[Callable[[Path], None], Callable[[np.random.Generator], Feed]]] = {
    "shapes": (write_shapes, draw_shape),
    "vit": (write_vit, draw_picture),
    "decoder": (write_decoder, draw_words),
}


def write_of_a_wheel(name: str, folder: Path, path: Path) -> Callable[[int], Feed]:
    """Shapes told and constants folded, as the quantizer asks for, and sizes that are open fixed to
    those of its samples: ModelOpt 0.47 does not read a size without a name."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    from campaigns.field.models import BY_NAME

    source = folder / f"{name}.onnx"

    def make(seed: int) -> Feed:
        return dict(BY_NAME[name].make(seed, source))

    model = onnx.load(source)
    for value, array in (
        (i, a) for i in model.graph.input for k, a in make(0).items() if k == i.name
    ):
        for dim, size in zip(value.type.tensor_type.shape.dim, array.shape, strict=True):
            dim.dim_value = size
    del model.graph.value_info[:]
    onnx.save(model, path)
    quant_pre_process(str(path), str(path), skip_symbolic_shape=True)
    return make


def write(name: str, folder: Path) -> Path:
    """The folder of one model with its files; what is there stays."""
    at = folder / name
    if (at / "fresh.npz").is_file():
        return at
    at.mkdir(parents=True, exist_ok=True)
    if name in OWN:
        make, draw = OWN[name]
        make(at / "float.onnx")

        def feed(seed: int) -> Feed:
            return draw(np.random.default_rng(seed))
    else:
        feed = write_of_a_wheel(name, folder, at / "float.onnx")
    for i in range(GIVEN):
        np.savez(at / f"calibration-{i:02}.npz", **feed(1000 + i))
    fresh = [feed(2000 + i) for i in range(FRESH)]
    np.savez(at / "fresh.npz", **{k: np.stack([f[k] for f in fresh]) for k in fresh[0]})
    return at


if __name__ == "__main__":
    for word in sys.argv[2:] or OWN:
        print(write(word, Path(sys.argv[1])))
