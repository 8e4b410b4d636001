"""An int8 model that OpenVINO's CPU device computes wrongly unless LP_TRANSFORMS_MODE is NO.

    python campaigns/openvino_concat.py make FOLDER      model.onnx and in.npz
    python campaigns/openvino_concat.py check FOLDER     100 fresh inputs, with and without the switch

Two branches with signed int8 values are joined by a Concat before a convolution, all quantized as
symmetric QuantizeLinear/DequantizeLinear pairs, as for TensorRT. With unsigned values, or without
the Concat, OpenVINO is right. Found by random Q/DQ models: of 437 five had such a Concat and a
convolution behind it, and were wrong; their weights have 7 bits, as with 8 a processor without
VNNI saturates. Narrowdown is not used here: ONNX Runtime without optimizers says what is right.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FRESH = 100


def make_model(seed: int = 11) -> onnx.ModelProto:
    """A stem, two branches, their Concat and a head, on 16 x 16 pixels."""
    random = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    held: list[onnx.TensorProto] = []

    def hold(name: str, value: Any) -> str:
        held.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def quantize(x: str, name: str, scale: float) -> str:
        with_scale = [hold(f"{name}_scale", np.float32(scale)), hold(f"{name}_zero", np.int8(0))]
        nodes.append(
            helper.make_node("QuantizeLinear", [x, *with_scale], [f"{name}_q"], name=f"{name}/Q")
        )
        nodes.append(
            helper.make_node(
                "DequantizeLinear", [f"{name}_q", *with_scale], [name], name=f"{name}/DQ"
            )
        )
        return name

    def convolve(x: str, name: str, into: tuple[int, int, int], activation: str = "") -> str:
        least, most, size = into
        weight = random.standard_normal((most, least, size, size)) / np.sqrt(least * size * size)
        scale = np.float32(np.abs(weight).max() / 31)
        parts = [
            hold(f"{name}_w", np.round(weight / scale).astype(np.int8)),
            hold(f"{name}_ws", scale),
            hold(f"{name}_wz", np.int8(0)),
        ]
        nodes.append(
            helper.make_node("DequantizeLinear", parts, [f"{name}_wd"], name=f"{name}/WDQ")
        )
        nodes.append(
            helper.make_node("Conv", [x, f"{name}_wd"], [name], pads=[size // 2] * 4, name=name)
        )
        if not activation:
            return name
        nodes.append(
            helper.make_node(activation, [name], [f"{name}_a"], name=f"{name}/{activation}")
        )
        return f"{name}_a"

    stem = quantize(convolve(quantize("image", "in", 0.03), "stem", (3, 8, 3)), "stem_q", 0.03)
    left = quantize(convolve(stem, "left", (8, 8, 3)), "left_q", 0.03)
    right = quantize(convolve(stem, "right", (8, 8, 1), "Tanh"), "right_q", 0.03)
    nodes.append(helper.make_node("Concat", [left, right], ["joined"], axis=1, name="join"))
    merged = quantize(convolve("joined", "merge", (16, 8, 3), "Tanh"), "merge_q", 0.008)
    head = convolve(merged, "head", (8, 4, 1))
    nodes.append(helper.make_node("GlobalAveragePool", [head], ["pooled"], name="pool"))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["scores"], name="flat"))
    graph = helper.make_graph(
        nodes, "int8_concat",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 16, 16])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 4])], held,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def draw(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 3, 16, 16)).astype(np.float32)


def check(folder: Path) -> None:
    import onnxruntime
    import openvino

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    path, inputs = str(folder / "model.onnx"), draw(FRESH, 2026)
    want = onnxruntime.InferenceSession(path, options).run(None, {"image": inputs})[0]
    pasted = {"INFERENCE_PRECISION_HINT": "f32", "LP_TRANSFORMS_MODE": "NO"}  # what it prints
    for config in ({}, {"SNIPPETS_MODE": "DISABLE"}, {"LP_TRANSFORMS_MODE": "NO"}, pasted):
        compiled = openvino.Core().compile_model(path, "CPU", config)
        got = np.concatenate([compiled(one[None])[0] for one in inputs])
        off = np.abs(got - want).max(axis=1) / np.abs(want).max()
        print(
            f"{config or 'as it comes'}: {(off > 0.05).sum()} of {FRESH} wrong by more than 5 %, at most {off.max():.3g}"
        )
    print(f"OpenVINO {openvino.__version__}")


def main() -> None:
    what, folder = sys.argv[1], Path(sys.argv[2])
    if what == "check":
        check(folder)
        return
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(make_model(), str(folder / "model.onnx"))
    np.savez(folder / "in.npz", image=draw(4, 1))


if __name__ == "__main__":
    main()
