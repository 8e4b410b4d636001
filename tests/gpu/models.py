"""Models of the GPU campaign that are built, not committed."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.demos.scaled_apart import quantize, scale_apart
from narrowdown.wizard.demo import MODELS


def _save(
    path: Path,
    nodes: list[onnx.NodeProto],
    weights: dict[str, np.ndarray],
    shape: tuple[int | str, ...],
    beside: dict[str, tuple[int | str, ...]] | None = None,
    outputs: tuple[str, ...] = ("y",),
) -> Path:
    """``shape``: of the input x, without the batch; ``beside``: those of further inputs."""
    inputs = {"x": shape, **(beside or {})}
    ins = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", *s]) for n, s in inputs.items()
    ]
    outs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    graph = helper.make_graph(
        nodes, path.stem, ins, outs, [numpy_helper.from_array(a, n) for n, a in weights.items()]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return path


def layernorm(folder: Path, scale: float = 3000.0, width: int = 64) -> tuple[Path, Path]:
    """Two projections with a LayerNorm from primitives behind each; activations in the thousands,
    so that the squares of the first leave FP16. (model, inputs)"""
    rng = np.random.default_rng(7)
    weights: dict[str, np.ndarray] = {
        "two": np.array(2, np.float32), "eps": np.array(1e-5, np.float32),
    }  # fmt: skip
    nodes: list[onnx.NodeProto] = []
    value = "x"
    for block in range(2):
        p = f"block{block}"
        weights[f"{p}.w"] = (rng.standard_normal((width, width)) / np.sqrt(width)).astype(
            np.float32
        )
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
    """A chain of which one part alone needs FP32: 3000 is added and taken away again. (model,
    inputs)"""
    rng = np.random.default_rng(3)
    weights: dict[str, np.ndarray] = {"far": np.array(3000.0, np.float32)}
    nodes: list[onnx.NodeProto] = []
    value = "x"
    for layer in range(4):
        weights[f"w{layer}"] = (rng.standard_normal((width, width)) / np.sqrt(width)).astype(
            np.float32
        )
        nodes.append(
            helper.make_node(
                "MatMul", [value, f"w{layer}"], [f"m{layer}"], name=f"layer{layer}/MatMul"
            )
        )
        nodes.append(
            helper.make_node("Tanh", [f"m{layer}"], [f"t{layer}"], name=f"layer{layer}/Tanh")
        )
        value = f"t{layer}"
        if layer == 1:
            nodes.append(helper.make_node("Add", [value, "far"], ["raised"], name="offset/Add"))
            nodes.append(helper.make_node("Sub", ["raised", "far"], ["lowered"], name="offset/Sub"))
            value = "lowered"
    nodes.append(helper.make_node("Identity", [value], ["y"], name="end"))
    inputs = folder / "cancelling_in.npz"
    np.savez(inputs, x=rng.standard_normal((8, width)).astype(np.float32))
    return _save(folder / "cancelling.onnx", nodes, weights, (width,)), inputs


def two_ways(folder: Path, width: int = 32) -> tuple[Path, Path]:
    """Two inputs of their own dynamic sizes, two outputs: one goes through a square that leaves
    FP16, the other is right. (model, inputs)"""
    rng = np.random.default_rng(5)
    weights = {
        "w": (rng.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32),
        "v": (rng.standard_normal((width, 4)) / np.sqrt(width)).astype(np.float32),
        "two": np.array(2, np.float32), "eps": np.array(1e-5, np.float32),
    }  # fmt: skip
    steps = [
        ("MatMul", ["x", "w"], "wide", {}), ("Pow", ["wide", "two"], "square", {}),
        ("ReduceMean", ["square"], "power", {"axes": [-1]}), ("Add", ["power", "eps"], "safe", {}),
        ("Sqrt", ["safe"], "size", {}), ("Div", ["wide", "size"], "y", {}),
        ("MatMul", ["z", "v"], "narrow", {}), ("Tanh", ["narrow"], "side", {}),
    ]  # fmt: skip
    nodes = [
        helper.make_node(op, reads, [out], name=f"{op}_{out}", **rest)
        for op, reads, out, rest in steps
    ]
    inputs = folder / "two_ways_in.npz"
    x, z = rng.standard_normal((3, 7, width)) * 3000, rng.standard_normal((3, width))
    np.savez(inputs, x=x.astype(np.float32), z=z.astype(np.float32))
    return _save(
        folder / "two_ways.onnx", nodes, weights, ("s", width), {"z": (width,)}, ("y", "side")
    ), inputs


def identity(folder: Path) -> tuple[Path, Path]:
    """The model of Polygraphy's example of flaky tactics: one Identity on [1, 1, 2, 2]. (model,
    inputs)"""
    path, inputs = folder / "identity.onnx", folder / "identity_in.npz"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, 2, 2]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"], name="identity")], "g", ends[:1], ends[1:]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    np.savez(inputs, x=np.random.default_rng(1).random((1, 1, 2, 2), np.float32))
    return path, inputs


def calibration(model: Path, inputs: Path, folder: Path) -> Path:
    """A calibration cache of TensorRT's for the activations of a model: its scale (largest
    magnitude / 127) for each tensor."""
    import onnxruntime as ort

    watched = onnx.load(model)
    names = [o for n in watched.graph.node for o in n.output if o]
    present = {o.name for o in watched.graph.output}
    watched.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in present)
    session = ort.InferenceSession(watched.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = dict(np.load(inputs))
    values = feeds | dict(
        zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True)
    )
    lines = ["TRT-100600-EntropyCalibration2"]
    for name, value in values.items():
        if isinstance(value, np.ndarray) and value.dtype == np.float32 and value.size:
            scale = max(float(np.abs(value).max()), 1e-6) / 127
            lines.append(f"{name}: {np.array(scale, '>f4').tobytes().hex()}")
    path = folder / "calibration.cache"
    path.write_text("\n".join(lines) + "\n")
    return path


def convolutions(folder: Path, batch: int = 2, size: int = 16) -> tuple[Path, Path]:
    """Four small convolutions: layers for which several kernels are offered, quickly timed. (model,
    inputs)"""
    rng = np.random.default_rng(11)
    weights: dict[str, np.ndarray] = {}
    nodes: list[onnx.NodeProto] = []
    value, channels = "x", 8
    for layer in range(4):
        weights[f"w{layer}"] = (rng.standard_normal((16, channels, 3, 3)) / 8).astype(np.float32)
        nodes.append(
            helper.make_node(
                "Conv", [value, f"w{layer}"], [f"c{layer}"], name=f"conv{layer}", pads=[1, 1, 1, 1]
            )
        )
        nodes.append(helper.make_node("Tanh", [f"c{layer}"], [f"t{layer}"], name=f"tanh{layer}"))
        value, channels = f"t{layer}", 16
    nodes.append(helper.make_node("Identity", [value], ["y"], name="end"))
    stem = f"convolutions_{batch}x{size}"
    inputs = folder / f"{stem}_in.npz"
    np.savez(inputs, x=rng.standard_normal((batch, 8, size, size)).astype(np.float32))
    return _save(folder / f"{stem}.onnx", nodes, weights, (8, size, size)), inputs


def fp8(
    folder: Path, width: int = 64, clipped: bool = True, stored: bool = False
) -> tuple[Path, Path]:
    """Four projections; inputs and weights of the second and third go through Q/DQ pairs of FP8
    (E4M3), one scale a tensor. ``clipped``: the scale of what enters the third is 16 times too
    small, so most of it saturates. ``stored``: weights are codes with a DequantizeLinear alone.
    (model, inputs)

    The float original is the model with its pairs taken out: the reference
    ``onnxruntime:quantization=bypass``.
    """
    rng = np.random.default_rng(13)
    x = rng.standard_normal((16, width)).astype(np.float32)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = [
        helper.make_tensor("zero", TensorProto.FLOAT8E4M3FN, [], [0.0])
    ]
    value, seen = "x", x

    def pair(source: str, largest: float, codes: np.ndarray | None = None) -> str:
        """Quantize and dequantize, with the scale that gives 448 to the largest."""
        scale = np.float32(max(largest, 1e-6) / 448)
        weights.append(numpy_helper.from_array(np.array(scale), f"{source}.scale"))
        quantizer = [f"{source}.scale", "zero"]
        if codes is None:
            made = helper.make_node(
                "QuantizeLinear",
                [source, *quantizer],
                [f"{source}.codes"],
                name=f"{source}/Quantize",
            )
            nodes.append(made)
        else:
            raw = (codes / scale).astype(ml_dtypes.float8_e4m3fn)
            weights.append(numpy_helper.from_array(raw, f"{source}.codes"))
        nodes.append(
            helper.make_node(
                "DequantizeLinear",
                [f"{source}.codes", *quantizer],
                [f"{source}.back"],
                name=f"{source}/Dequantize",
            )
        )
        return f"{source}.back"

    for layer in range(4):
        w = (rng.standard_normal((width, width)) / np.sqrt(width) * 1.5).astype(np.float32)
        quantized = layer in (1, 2)
        if not (quantized and stored):
            weights.append(numpy_helper.from_array(w, f"w{layer}"))
        reads = [value, f"w{layer}"]
        if quantized:
            largest = float(np.abs(seen).max()) / (16 if clipped and layer == 2 else 1)
            reads = [
                pair(value, largest),
                pair(f"w{layer}", float(np.abs(w).max()), w if stored else None),
            ]
        seen = seen @ w
        nodes.append(helper.make_node("MatMul", reads, [f"m{layer}"], name=f"layer{layer}/MatMul"))
        nodes.append(
            helper.make_node("Relu", [f"m{layer}"], [f"r{layer}"], name=f"layer{layer}/Relu")
        )
        value, seen = f"r{layer}", np.maximum(seen, 0)
    nodes.append(helper.make_node("Identity", [value], ["y"], name="end"))
    stem = "fp8" + ("" if clipped else "_right") + ("_stored" if stored else "")
    path, inputs = folder / f"{stem}.onnx", folder / f"{stem}_in.npz"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width]) for name in "xy"]
    graph = helper.make_graph(nodes, stem, ends[:1], ends[1:], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), path
    )
    np.savez(inputs, x=x)
    return path, inputs


def scaled_apart(folder: Path) -> tuple[Path, Path]:
    """The network of the INT8 demo with its channels scaled apart, as ``float.onnx`` and quantized
    so that TensorRT takes it: signed symmetric codes, biases in float, and no pair before its Pad.
    (quantized model, inputs)"""
    from onnxruntime.quantization import QuantType

    inputs = MODELS / "shapes_cnn_in.npz"
    floats = scale_apart(onnx.load(MODELS / "shapes_cnn.onnx"))
    symmetric = {"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False}
    codes = quantize(
        floats,
        dict(np.load(inputs)),
        activation_type=QuantType.QInt8,
        extra_options=symmetric,
        nodes_to_exclude=[n.name for n in floats.graph.node if n.op_type == "Pad"],
    )
    onnx.save(floats, folder / "float.onnx")
    onnx.save(codes, folder / "int8.onnx")
    return folder / "int8.onnx", inputs


def plant_overflow(model: Path, inputs: Path, folder: Path, reach: float = 64 * 65504.0) -> Path:
    """A real CNN in whose middle one depthwise 1x1 convolution scales up by a power of two, so far
    that its largest value reaches ``reach`` or more on ``inputs``, and a second one scales down
    again: the same function in FP32, to the bit, and infinities in FP16. No other node is touched,
    so ``planted/up`` is the truth."""
    import onnxruntime

    made = onnx.load(model)
    graph = made.graph
    convs = [i for i, n in enumerate(graph.node) if n.op_type == "Conv"]
    at = convs[len(convs) // 2]
    value = graph.node[at].output[0]
    watched = onnx.ModelProto()
    watched.CopyFrom(made)
    watched.graph.output.append(onnx.ValueInfoProto(name=value))
    session = onnxruntime.InferenceSession(
        watched.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (seen,) = session.run([value], dict(np.load(inputs)))
    channels = seen.shape[1]
    factor = 2.0 ** np.ceil(np.log2(reach / np.abs(seen).max()))
    for node in graph.node:
        for k, name in enumerate(node.input):
            if name == value:
                node.input[k] = "planted.down"
    shape = (channels, 1, 1, 1)
    for name, number in (("planted.w_up", factor), ("planted.w_down", 1 / factor)):
        graph.initializer.append(numpy_helper.from_array(np.full(shape, number, np.float32), name))
    up = helper.make_node(
        "Conv", [value, "planted.w_up"], ["planted.up"], name="planted/up", group=channels
    )
    down = helper.make_node(
        "Conv",
        ["planted.up", "planted.w_down"],
        ["planted.down"],
        name="planted/down",
        group=channels,
    )
    graph.node.insert(at + 1, up)
    graph.node.insert(at + 2, down)
    path = folder / f"{model.stem}_planted.onnx"
    onnx.save(made, path)
    return path


RATED = """
<ir_version: 8, opset_import: ["":17]>
g (float[1,4] x, int64 sr) => (float[1,n] y) {
  wide = Constant <value: tensor = int64 {16000}> ()
  [is_wide] w = Equal (sr, wide)
  [choice] h = If (w) <
    then_branch = a () => (float[1,n] p) { [double] p = Add (x, x) },
    else_branch = b () => (float[1,n] q) { [turn] u = Unique <sorted = 1> (x)
      axis = Constant <value: tensor = int64[1] {0}> ()
      [row] q = Unsqueeze (u, axis) }>
  [after] y = Abs (h)
}
"""


def rated(folder: Path) -> tuple[Path, Path]:
    """An If of which the branch that is not taken holds an operator that no TensorRT has: the whole
    model is refused for it."""
    onnx.save(onnx.parser.parse_model(RATED), folder / "rated.onnx")
    np.savez(folder / "rated_in.npz", x=np.array([[1, -2, 3, 4]], np.float32), sr=np.int64(16000))
    return folder / "rated.onnx", folder / "rated_in.npz"
