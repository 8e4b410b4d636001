"""The small constructions of known failures: each a model, inputs that show it, the engine that
fails, what must be said of it.

The table of ``campaigns/failures.md`` is written from ``TABLE`` (``test_causes`` holds the two together).
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import msgspec
import numpy as np
from onnx import TensorProto, helper

FP16, BF16 = "emulate:precision=fp16", "emulate:precision=bf16"
Made = tuple[Path, Path | None]
node = helper.make_node


class Failure(msgspec.Struct, frozen=True):
    """``said``: what the evidence must hold, numbers included. ``nodes``: the case that must be
    left. ``cause`` is empty where nothing may fail. ``check`` names another test, where this one
    does not run it."""

    what: str
    engine: str
    cause: str
    said: str
    build: Callable[[Path, ModuleType], Made] | None = None
    nodes: str = ""
    check: str = "test_causes.py"


def epsilon(value: float, *, fixed: bool = False) -> Callable[[Path, ModuleType], Made]:
    """A norm over rows, one of which is constant: its variance is 0, and all that keeps it from 0/0
    is the epsilon."""

    def build(folder: Path, tiny: ModuleType) -> Made:
        rows = 4 if fixed else "rows"
        x = tiny.weights(4, 16, scale=1)
        x[1] = 0.5
        nodes = [
            node("ReduceMean", ["x"], ["mean"], axes=[-1], keepdims=1),
            node("Sub", ["x", "mean"], ["centred"]),
            node("Mul", ["centred", "centred"], ["squares"]),
            node("ReduceMean", ["squares"], ["variance"], axes=[-1], keepdims=1),
            node("Add", ["variance", "eps"], ["safe"]),
            node("Sqrt", ["safe"], ["deviation"]),
            node("Div", ["centred", "deviation"], ["y"]),
        ]
        model = tiny.save(
            folder / "m.onnx",
            nodes,
            {"x": [rows, 16]},
            {"y": [rows, 16]},
            {"eps": np.float32(value)},
        )
        return model, tiny.feeds(folder / "in.npz", x=x)

    return build


def mask(value: float, kept: int = 5) -> Callable[[Path, ModuleType], Made]:
    """(1 - keep) x a large negative constant: 0 x -inf is NaN, also where all of the eight are
    kept."""

    def build(folder: Path, tiny: ModuleType) -> Made:
        keep = np.ones((2, 8), np.float32)
        keep[:, kept:] = 0
        nodes = [
            node("Gemm", ["x", "w", "b"], ["scores"]),
            node("Sub", ["one", "keep"], ["drop"]),
            node("Mul", ["drop", "low"], ["bias"]),
            node("Add", ["scores", "bias"], ["masked"]),
            node("Softmax", ["masked"], ["y"], axis=-1),
        ]
        constants = {
            "one": np.float32(1),
            "low": np.float32(value),
            "w": tiny.weights(16, 8),
            "b": tiny.weights(8, seed=1),
        }
        model = tiny.save(
            folder / "m.onnx", nodes, {"x": ["n", 16], "keep": ["n", 8]}, {"y": ["n", 8]}, constants
        )
        return model, tiny.feeds(folder / "in.npz", x=tiny.weights(2, 16), keep=keep)

    return build


def positions(last: int) -> Callable[[Path, ModuleType], Made]:
    """Angles of positions, half as large, that the storage rounds to whole ones."""

    def build(folder: Path, tiny: ModuleType) -> Made:
        nodes = [
            node("Mul", ["p", "half"], ["angle"]),
            node("Sin", ["angle"], ["wave"]),
            node("Mul", ["wave", "w"], ["y"]),
        ]
        constants = {"half": np.float32(0.5), "w": tiny.weights(16)}
        model = tiny.save(folder / "m.onnx", nodes, {"p": [1, 16]}, {"y": [1, 16]}, constants)
        return model, tiny.feeds(
            folder / "in.npz", p=np.arange(last - 15, last + 1, dtype=np.float32)[None]
        )

    return build


def _close(tiny: ModuleType) -> np.ndarray:
    """Eight columns that differ by 2e-5 of themselves: FP16 cannot tell their products apart."""
    column = np.abs(tiny.weights(16, 1, seed=9)).repeat(8, 1)
    return (column * (1 + 2e-5 * np.arange(8)[None])).astype(np.float32)


def arg_max(folder: Path, tiny: ModuleType) -> Made:
    nodes = [
        node("MatMul", ["x", "w"], ["scores"]),
        node("ArgMax", ["scores"], ["best"], axis=-1, keepdims=0),
        node("Gather", ["boxes", "best"], ["y"]),
    ]
    constants = {"w": _close(tiny), "boxes": 100 * np.abs(tiny.weights(8, 4))}
    model = tiny.save(folder / "m.onnx", nodes, {"x": ["n", 16]}, {"y": ["n", 4]}, constants)
    return model, tiny.feeds(folder / "in.npz", x=np.abs(tiny.weights(4, 16)))


def top_k(folder: Path, tiny: ModuleType) -> Made:
    nodes = [
        node("MatMul", ["x", "w"], ["scores"]),
        node("TopK", ["scores", "k"], ["best", "which"], axis=-1),
        node("Gather", ["boxes", "which"], ["y"]),
    ]
    constants = {"w": _close(tiny), "boxes": 100 * np.abs(tiny.weights(8, 4)), "k": np.int64([3])}
    model = tiny.save(folder / "m.onnx", nodes, {"x": ["n", 16]}, {"y": ["n", 3, 4]}, constants)
    return model, tiny.feeds(folder / "in.npz", x=np.abs(tiny.weights(4, 16)))


def suppression(folder: Path, tiny: ModuleType) -> Made:
    nodes = [
        node("MatMul", ["x", "w"], ["scores"]),
        node("Unsqueeze", ["scores", "one"], ["by_class"]),
        node("NonMaxSuppression", ["boxes", "by_class", "most", "iou", "least"], ["kept"]),
        node("Slice", ["kept", "two", "three", "one"], ["which"]),
        node("Squeeze", ["which", "one"], ["flat"]),
        node("Gather", ["table", "flat"], ["y"]),
    ]
    left = 5.0 * np.arange(8, dtype=np.float32)
    table = np.stack([left, np.zeros(8, np.float32), left + 10, np.full(8, 10, np.float32)], axis=1)
    constants = {
        "w": _close(tiny), "boxes": table[None], "table": table, "most": np.int64([3]), "iou": np.float32([0.5]),
        "least": np.float32([0]), "one": np.int64([1]), "two": np.int64([2]), "three": np.int64([3]),
    }  # fmt: skip
    model = tiny.save(folder / "m.onnx", nodes, {"x": [1, 16]}, {"y": ["k", 4]}, constants)
    return model, tiny.feeds(folder / "in.npz", x=np.abs(tiny.weights(1, 16)))


def pixels(folder: Path, tiny: ModuleType) -> Made:
    nodes = [
        node("ReduceSum", ["x", "axes"], ["sum"], keepdims=1),
        node("Mul", ["sum", "share"], ["mean"]),
        node("Sub", ["x", "mean"], ["y"]),
    ]
    shape = ["n", 1, 32, 32]
    constants = {"axes": np.int64([2, 3]), "share": np.float32(1 / 1024)}
    model = tiny.save(folder / "m.onnx", nodes, {"x": shape}, {"y": shape}, constants)
    x = np.random.default_rng(0).uniform(0, 255, (2, 1, 32, 32)).astype(np.float32)
    return model, tiny.feeds(folder / "in.npz", x=x)


def scores(folder: Path, tiny: ModuleType) -> Made:
    nodes = [
        node("MatMul", ["q", "k"], ["scores"]),
        node("Mul", ["scores", "scale"], ["scaled"]),
        node("Softmax", ["scaled"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v"], ["y"]),
    ]
    constants = {"scale": np.float32(1e-5), "v": tiny.weights(8, 16)}
    model = tiny.save(
        folder / "m.onnx", nodes, {"q": [8, 64], "k": [64, 8]}, {"y": [8, 16]}, constants
    )
    return model, tiny.feeds(
        folder / "in.npz", q=400 * tiny.weights(8, 64), k=100 * tiny.weights(64, 8, seed=1)
    )


def bare_exp(folder: Path, tiny: ModuleType) -> Made:
    nodes = [
        node("Gemm", ["x", "w", "b"], ["logits"]),
        node("Exp", ["logits"], ["powers"]),
        node("ReduceSum", ["powers", "axes"], ["sum"], keepdims=1),
        node("Div", ["powers", "sum"], ["y"]),
    ]
    constants = {"w": 3 * tiny.weights(16, 8), "b": 8 + tiny.weights(8), "axes": np.int64([1])}
    model = tiny.save(folder / "m.onnx", nodes, {"x": [2, 16]}, {"y": [2, 8]}, constants)
    return model, tiny.feeds(folder / "in.npz", x=tiny.weights(2, 16))


def gate(folder: Path, tiny: ModuleType) -> Made:
    nodes = [
        node("MatMul", ["x", "wg"], ["gated"]),
        node("Sigmoid", ["gated"], ["share"]),
        node("Mul", ["gated", "share"], ["silu"]),
        node("MatMul", ["x", "wu"], ["up"]),
        node("Mul", ["silu", "up"], ["product"]),
        node("MatMul", ["product", "wd"], ["y"]),
    ]
    constants = {
        "wg": 200 * np.abs(tiny.weights(16, 32)),
        "wu": 50 * tiny.weights(16, 32, seed=1),
        "wd": 1e-5 * tiny.weights(32, 16, seed=2),
    }
    model = tiny.save(folder / "m.onnx", nodes, {"x": ["n", 16]}, {"y": ["n", 16]}, constants)
    return model, tiny.feeds(folder / "in.npz", x=np.abs(tiny.weights(2, 16)))


def norm(folder: Path, tiny: ModuleType) -> Made:
    return tiny.norm(folder), tiny.feeds(folder / "in.npz", x=60 * tiny.weights(2, 64))


def narrowed(folder: Path, tiny: ModuleType) -> Made:
    """A hash of ids that needs 64 bits."""
    nodes = [
        node("Mul", ["id", "stride"], ["offset"]),
        node("Mod", ["offset", "buckets"], ["bucket"]),
        node("Gather", ["table", "bucket"], ["y"]),
    ]
    constants = {"stride": np.int64(1000003), "buckets": np.int64(97), "table": tiny.weights(97, 4)}
    model = tiny.save(
        folder / "m.onnx", nodes, {"id": ["n"]}, {"y": ["n", 4]}, constants, dtype=TensorProto.INT64
    )  # fmt: skip
    return model, tiny.feeds(folder / "in.npz", id=np.arange(5000, 5008, dtype=np.int64))


def gelu(folder: Path, tiny: ModuleType) -> Made:
    """tanh-GELU, whose cube overflows beyond 40 and is absorbed, in front of a norm whose square is
    not."""
    nodes = [
        node("Pow", ["x", "three"], ["cube"]),
        node("Mul", ["cube", "share3"], ["term"]),
        node("Add", ["x", "term"], ["inner"]),
        node("Mul", ["inner", "root"], ["scaled"]),
        node("Tanh", ["scaled"], ["tanh"]),
        node("Add", ["tanh", "one"], ["opened"]),
        node("Mul", ["opened", "half"], ["share"]),
        node("Mul", ["x", "share"], ["gelu"]),
        node("Mul", ["gelu", "gain"], ["loud"]),
        node("Mul", ["loud", "loud"], ["squares"]),
        node("ReduceMean", ["squares"], ["power"], axes=[1], keepdims=1),
        node("Sqrt", ["power"], ["length"]),
        node("Div", ["loud", "length"], ["y"]),
    ]
    constants = {
        "three": np.float32(3), "share3": np.float32(0.044715), "root": np.float32(0.7978846), "one": np.float32(1),
        "half": np.float32(0.5), "gain": np.float32(10),
    }  # fmt: skip
    model = tiny.save(folder / "m.onnx", nodes, {"x": [2, 32]}, {"y": [2, 32]}, constants)
    return model, tiny.feeds(folder / "in.npz", x=30 * tiny.weights(2, 32))


def absorbed(folder: Path, tiny: ModuleType) -> Made:
    """A mask of the lowest float32, infinite in FP16, that softmax absorbs, in front of a sum of
    squares that overflows."""
    nodes = [
        node("MatMul", ["x", "w"], ["scores"]),
        node("Greater", ["seen", "zero"], ["keep"]),
        node("Where", ["keep", "scores", "low"], ["masked"]),
        node("Softmax", ["masked"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v"], ["mixed"]),
        node("Mul", ["mixed", "mixed"], ["squares"]),
        node("ReduceSum", ["squares", "axes"], ["sum"], keepdims=1),
        node("Sqrt", ["sum"], ["length"]),
        node("Div", ["mixed", "length"], ["y"]),
    ]
    constants = {
        "w": tiny.weights(16, 8), "zero": np.float32(-0.5), "low": np.finfo(np.float32).min, "v": 400 * tiny.weights(8, 16),
        "axes": np.int64([1]),
    }  # fmt: skip
    model = tiny.save(
        folder / "m.onnx", nodes, {"x": [2, 16], "seen": [2, 8]}, {"y": [2, 16]}, constants
    )
    return model, tiny.feeds(folder / "in.npz", x=tiny.weights(2, 16), seen=tiny.weights(2, 8))


def first_axis(folder: Path, tiny: ModuleType) -> Made:
    return tiny.absolute_sum(folder), None


def running(folder: Path, tiny: ModuleType) -> Made:
    """A running sum: every step of it is rounded, where the sum itself is kept in the storage
    type."""
    nodes = [
        node("Abs", ["x"], ["steps"]),
        node("CumSum", ["steps", "axis"], ["run"]),
        node("Mul", ["run", "share"], ["y"]),
    ]
    constants = {"axis": np.int64(1), "share": np.float32(1 / 2048)}
    model = tiny.save(folder / "m.onnx", nodes, {"x": [1, 2048]}, {"y": [1, 2048]}, constants)
    return model, tiny.feeds(folder / "in.npz", x=tiny.weights(1, 2048))


def long_sum(folder: Path, tiny: ModuleType) -> Made:
    """A sum of so many terms that one more no longer moves it."""
    nodes = [
        node("Abs", ["x"], ["terms"]),
        node("ReduceSum", ["terms", "axes"], ["sum"], keepdims=1),
        node("Mul", ["sum", "share"], ["y"]),
    ]
    constants = {"axes": np.int64([1]), "share": np.float32(1 / 16384)}
    model = tiny.save(folder / "m.onnx", nodes, {"x": [2, 16384]}, {"y": [2, 1]}, constants)
    return model, tiny.feeds(folder / "in.npz", x=tiny.weights(2, 16384))


def product(folder: Path, tiny: ModuleType) -> Made:
    """Half of the weights are near 1 and half near -1: of values of 50 next to nothing is left. The
    weights are rounded, too, so that feeding it exactly does not make it right."""
    signs = np.repeat(np.float32([1, -1]), 32)[:, None]
    weights = {"far": np.float32(50), "w": signs + tiny.weights(64, 16, scale=0.01)}
    nodes = [
        node("Relu", ["x"], ["some"]),
        node("Add", ["some", "far"], ["high"]),
        node("MatMul", ["high", "w"], ["y"]),
    ]
    model = tiny.save(folder / "m.onnx", nodes, {"x": [4, 64]}, {"y": [4, 16]}, weights)
    return model, tiny.feeds(folder / "in.npz", x=tiny.weights(4, 64, scale=0.3))


def normalized(folder: Path, tiny: ModuleType) -> Made:
    """Values around 60 that differ by 1."""
    weights = {
        "far": np.float32(60),
        "one": np.ones(64, np.float32),
        "zero": np.zeros(64, np.float32),
    }
    nodes = [
        node("Add", ["x", "far"], ["high"]),
        node("LayerNormalization", ["high", "one", "zero"], ["y"]),
    ]
    model = tiny.save(folder / "m.onnx", nodes, {"x": [4, 64]}, {"y": [4, 64]}, weights)
    return model, tiny.feeds(folder / "in.npz", x=tiny.weights(4, 64))


def resized(folder: Path, tiny: ModuleType) -> Made:
    """A scale computed in floats, a little above the one that gives another pixel."""
    nodes = [
        node("Mul", ["s", "factor"], ["scales"]),
        node("Resize", ["x", "", "scales"], ["big"], mode="nearest", axes=[2, 3]),
        node("ReduceSum", ["big", "axes"], ["y"], keepdims=0),
    ]
    constants = {"factor": np.float32([1.1, 1.1]), "axes": np.int64([2, 3])}
    # Two axes alone: made-up scales of a batch or of channels end ONNX Runtime's process on some
    # processors.
    model = tiny.save(
        folder / "m.onnx", nodes, {"x": [1, 1, 2, 2], "s": [2]}, {"y": [1, 1]}, constants, opset=18
    )
    s = np.float32([6 / 1.1 + 1e-5, 6 / 1.1 + 1e-5])
    return model, tiny.feeds(folder / "in.npz", x=np.ones((1, 1, 2, 2), np.float32), s=s)


def sampled(folder: Path, tiny: ModuleType) -> Made:
    """The nearest of 2,048 points at places that are computed: rounded, they lie nearer to another
    one."""
    nodes = [
        node("Mul", ["p", "share"], ["where"]),
        node("GridSample", ["x", "where"], ["picked"], mode="nearest", align_corners=1),
        node("Mul", ["picked", "two"], ["y"]),
    ]
    constants = {"share": np.float32(1 / 2048), "two": np.float32(2)}
    model = tiny.save(
        folder / "m.onnx",
        nodes,
        {"x": [1, 1, 1, 2048], "p": [1, 1, 64, 2]},
        {"y": [1, 1, 1, 64]},
        constants,
    )
    p = np.zeros((1, 1, 64, 2), np.float32)
    p[..., 0] = np.random.default_rng(0).uniform(-2048, 2048, 64)
    return model, tiny.feeds(folder / "in.npz", x=tiny.weights(1, 1, 1, 2048), p=p)


def antialiased(folder: Path, tiny: ModuleType) -> Made:
    nodes = [
        node("Neg", ["x"], ["turned"]),
        node("Resize", ["turned", "", "scales"], ["y"], mode="linear", antialias=1),
    ]
    constants = {"scales": np.float32([1, 1, 0.5, 0.5])}
    shapes = {"x": [1, 1, 16, 64]}, {"y": [1, 1, 8, 32]}
    model = tiny.save(folder / "m.onnx", nodes, *shapes, constants, opset=18)
    return model, tiny.feeds(folder / "in.npz", x=tiny.weights(1, 1, 16, 64))


def divided(folder: Path, tiny: ModuleType) -> Made:
    """Large ids over small numbers: an engine that divides in FP32 loses the last one."""
    nodes = [
        node("Div", ["n", "d"], ["q"]),
        node("Mod", ["q", "buckets"], ["bucket"]),
        node("Gather", ["table", "bucket"], ["y"]),
    ]
    constants = {"buckets": np.int64(97), "table": tiny.weights(97, 4)}
    model = tiny.save(
        folder / "m.onnx",
        nodes,
        {"n": ["k"], "d": ["k"]},
        {"y": ["k", 4]},
        constants,
        dtype=TensorProto.INT64,
    )
    n, d = 3 * 2**24 + 3 * np.arange(1, 9, dtype=np.int64), np.full(8, 3, np.int64)
    return model, tiny.feeds(folder / "in.npz", n=n, d=d)


def log_sum(op: str) -> Callable[[Path, ModuleType], Made]:
    def build(folder: Path, tiny: ModuleType) -> Made:
        nodes = [
            node("Abs", ["x"], ["size"]),
            node(op, ["size"], ["sum"], axes=[0], keepdims=1),
            node("Neg", ["sum"], ["y"]),
        ]
        model = tiny.save(folder / "m.onnx", nodes, {"x": [4, 8]}, {"y": [1, 8]})
        return model, tiny.feeds(folder / "in.npz", x=tiny.weights(4, 8))

    return build


def variance(folder: Path, tiny: ModuleType) -> Made:
    """A BatchNormalization whose channel 1 varied by 9.8e7 when it was trained: Paddle models have
    such."""
    weights = {
        "scale": np.array([1, 9000, 1], np.float32),
        "bias": np.zeros(3, np.float32),
        "mean": np.zeros(3, np.float32),
        "variance": np.array([1, 9.8e7, 1], np.float32),
    }
    nodes = [
        node("Relu", ["x"], ["kept"]),
        node("BatchNormalization", ["kept", *weights], ["normed"]),
        node("ReduceSum", ["normed", "axes"], ["y"], keepdims=1),
    ]
    weights["axes"] = np.array([1], np.int64)
    model = tiny.save(
        folder / "m.onnx", nodes, {"x": ["n", 3, 4, 4]}, {"y": ["n", 1, 4, 4]}, weights
    )
    x = np.abs(tiny.weights(2, 3, 4, 4)) + 0.1
    x[:, 1] *= 100
    return model, tiny.feeds(folder / "in.npz", x=x)


def small(folder: Path, tiny: ModuleType) -> Made:
    """Values around 1e-6, scaled up again behind."""
    nodes = [
        node("Tanh", ["x"], ["t"]),
        node("Mul", ["t", "tiny"], ["faint"]),
        node("Mul", ["faint", "large"], ["y"]),
    ]
    weights = {"tiny": np.float32(1e-3), "large": np.float32(6e4)}
    model = tiny.save(folder / "m.onnx", nodes, {"x": ["n", 16]}, {"y": ["n", 16]}, weights)
    return model, tiny.feeds(folder / "in.npz", x=1e-3 * tiny.weights(4, 16))


UNDERFLOW = "float16 makes 0 of what is below 3e-08"
TABLE = (
    Failure("LayerNorm, RMSNorm or L2 norm: the square overflows", FP16, "overflow", r"/sum \(ReduceSum\) reaches [\d,]{7}",
            norm, "/sum"),
    Failure("scores before scaling", FP16, "overflow", r"/scores \(MatMul\) reaches 807,396", scores, "/scores"),
    Failure("exp without taking the maximum away", FP16, "overflow", r"/powers \(Exp\) reaches 13,260,656,640", bare_exp,
            "/powers"),
    Failure("a sum over height x width", FP16, "overflow", r"/sum \(ReduceSum\) reaches 134,366", pixels, "/sum"),
    Failure("gate x up, outliers", FP16, "overflow", r"/product \(Mul\) reaches 732,846", gate, "/product"),
    Failure("a mask constant of -1e9", FP16, "mask-constant", r"a constant as far from 0 as 1,000,000,000", mask(-1e9),
            "/bias"),
    Failure("a mask constant of the lowest float32", FP16, "mask-constant", r"a constant as far from 0 as 3\.4e\+38",
            mask(float(np.finfo(np.float32).min)), "/bias"),
    Failure("a mask constant where nothing is masked", FP16, "mask-constant", r"a constant of 3\.4e\+38.*0 times that is NaN",
            mask(float(np.finfo(np.float32).min), 8), "/bias"),
    Failure("a mask constant of -1e4", FP16, "", "", mask(-1e4)),
    Failure("an epsilon of 1e-8", FP16, "epsilon-underflow", rf"values up to 1e-08 \(1 of them\), and {UNDERFLOW}",
            epsilon(1e-8), "/safe"),
    Failure("an epsilon of 1e-12", "reference:precision=fp16", "epsilon-underflow", rf"up to 1e-12 .*{UNDERFLOW}",
            epsilon(1e-12), "/safe"),
    Failure("an epsilon of 1e-8, one row of a batch that is fixed", FP16, "epsilon-underflow", rf"up to 1e-08 .*{UNDERFLOW}",
            epsilon(1e-8, fixed=True), "/safe"),
    Failure("a BatchNormalization variance of 9.8e7", FP16, "weight-overflow",
            "reads the weight variance, which reaches 98,000,000; float16 ends at 65,504, so it is infinite there",
            variance, "/normed"),
    Failure("values of 1e-6", FP16, "underflow", "at most; below 6e-05 float16 has steps of 6e-08", small, "/faint"),
    Failure("positions beyond 2048", FP16, "rounding", r"Mul\) makes values up to 2,048, which are rounded by up to 0\.5",
            positions(4096), "/angle, /wave"),
    Failure("positions beyond 256", BF16, "rounding", r"Mul\) makes values up to 256, which are rounded by up to 0\.5",
            positions(512), "/angle, /wave"),
    Failure("ArgMax of scores 2e-5 apart", FP16, "rounding", r"/best \(ArgMax\) makes 100 % other results of values .* 0\.00",
            arg_max, "/scores, /best"),
    Failure("TopK of scores 2e-5 apart", FP16, "rounding", r"/best \(TopK\) makes 66\.7 % other results", top_k,
            "/scores, /best"),
    Failure("NonMaxSuppression of scores 2e-5 apart", FP16, "rounding", r"\(NonMaxSuppression\) makes 33\.3 % other results",
            suppression, "/by_class, /kept"),
    Failure("64-bit integers on an engine that computes in 32", "openvino:precision=f32", "integer-narrowing",
            r"computes with int64 up to 5,002,015,006; 32 bits end at 2,147,483,647", narrowed, "/offset"),
    Failure("ReduceL1 that ignores its axes", "openvino:precision=f32", "kernel",
            r"/sum \(ReduceL1\) gives an output of another shape", first_axis, "/sum"),
    Failure("ReduceLogSum that ignores its axes", "openvino:precision=f32", "kernel",
            r"/sum \(ReduceLogSum\) gives an output of another shape", log_sum("ReduceLogSum"), "/sum"),
    Failure("ReduceLogSumExp that ignores its axes", "openvino:precision=f32", "kernel",
            r"/sum \(ReduceLogSumExp\) gives an output of another shape", log_sum("ReduceLogSumExp"), "/sum"),
    Failure("Div of 64-bit integers on an engine that divides in FP32", "openvino:precision=f32", "integer-narrowing",
            r"integers up to 50,331,6.* and is wrong by up to 1, as their rounding to float32", divided, "/q"),
    Failure("Resize with antialiasing on an engine that does it otherwise", "openvino:precision=f32", "kernel",
            r"FP32 alone explains an error of .*; the engine is wrong by .* %", antialiased, "/y"),
    Failure("a size for Resize computed in floats", FP16, "rounding",
            r"/big \(Resize\) makes a result of another shape of values that are wrong by 0\.06", resized, "/scales, /big"),
    Failure("the nearest of 2,048 points (GridSample)", FP16, "rounding",
            r"/picked \(GridSample\) makes results wrong by 7.* % of values that are wrong by 0\.0", sampled, "/where, /picked"),
    Failure("a running sum (CumSum) kept in FP16", "reference:precision=fp16", "accumulation",
            r"/run \(CumSum\) is wrong by 1.* % from inputs that are right; with its sums kept in FP32", running, "/run"),
    Failure("a sum of 16,384 terms kept in BF16", "reference:precision=bf16", "accumulation",
            r"/sum \(ReduceSum\) is wrong by 9.* % from inputs that are right; with its sums of 16,384 terms each kept in FP32",
            long_sum, "/sum"),
    Failure("tanh-GELU's cube overflows and is absorbed; a square behind it is not", FP16, "overflow",
            r"/squares \(Mul\) reaches 168,050", gelu, "/squares"),
    Failure("an infinite mask that softmax absorbs; a square behind it is not", FP16, "overflow",
            r"/squares \(Mul\) reaches 162,455", absorbed, "/squares"),
    Failure("E[x^2] - E[x]^2; a large number added and taken away", BF16, "cancellation", "takes the difference",
            lambda folder, tiny: tiny.drift(folder, 24, culprit=12), "/norm/Shift, /norm/Unshift"),
    Failure("a product whose terms cancel", BF16, "cancellation",
            r"/y \(MatMul\) adds up terms, of values up to 50.*, that nearly cancel: it leaves at most .* times larger than it",
            product, "/y"),
    Failure("LayerNormalization of values that differ by little", BF16, "cancellation",
            r"takes the mean off values up to 6.*, which are wrong by 0\.1.*, and leaves at most", normalized, "/high, /y"),
    Failure("half a rounding step lost in every layer", BF16, "accumulation", "no node: the curve over depth is drawn",
            check="test_observed.py"),
    Failure("an epsilon that a converter changed", "fake", "kernel",
            "small in itself, it grows further down; it begins where equal inputs give other values", check="test_observed.py"),
    Failure("two nodes wrong only where nothing between them is watched", "fake", "fusion",
            "with its inner tensors watched it is right", check="test_observed.py"),
    Failure("Pad(0) + MaxPool fused", "onnxruntime:optimization=all", "optimizer", "Pad_Fusion off: passes; on alone: fails",
            check="test_real_models.py"),
    Failure("LayerNorm with keepdims=0 fused", "onnxruntime:optimization=all", "optimizer",
            "LayerNormFusionL1, L2 and SimplifiedLayerNormFusion, each can do it", check="test_real_models.py"),
    Failure("int32 (1/x) * w made w/x", "onnxruntime:optimization=all", "optimizer", "DivMulFusion off: passes; on alone: fails",
            check="test_real_models.py"),
    Failure("ScatterND with duplicate indices, 2 threads", "onnxruntime:threads=2", "nondeterminism",
            "runs of one build differ; one thread cures it", check="test_real_models.py"),
    Failure("InstanceNormalization of 1000 + 0.01 x noise", "reference", "reference",
            "the reference is off from float64, the engine is not", check="test_real_models.py"),
    Failure("INT8, one scale over channels that differ 300-fold", "onnxruntime", "quantization",
            "the SQNR of what the pair gives back", check="test_quantization.py"),
    Failure("shapes_cnn, a trained CNN", "onnxruntime:optimization=all", "optimizer",
            "Pad_Fusion; the case is one Pad and one MaxPool of 61 nodes", check="tests/e2e/test_whole_routes.py"),
    Failure("sort_tf_massive_m4, a trained transformer", FP16, "overflow", "a Pow in a LayerNorm of primitives",
            check="tests/e2e/test_whole_routes.py"),
    Failure("pillars_add, 25 nodes, 2 threads", "onnxruntime:optimization=all,threads=2", "nondeterminism",
            "k of n runs fail; ScatterND; one thread cures it", check="tests/e2e/test_engine_routes.py"),
    Failure("magika: sum of squares in LayerNorm_1, variance in LayerNorm_0", FP16, "overflow, then cancellation",
            "two rounds, two cases", check="tests/e2e/test_whole_routes.py"),
)  # fmt: skip


def rows() -> str:
    lines = ["| failure | engine | cause named | evidence | checked by |", "|---|---|---|---|---|"]
    for f in TABLE:
        said = f.said.replace("\\", "").replace("|", "/") or "passes, and nothing is accused"
        lines.append(
            f"| {f.what} | `{f.engine}` | {f.cause or 'none'} | {_plain(said)} | `{f.check}` |"
        )
    return "\n".join(lines)


def _plain(pattern: str) -> str:
    """An expression as a reader takes it."""
    return pattern.replace("[d,]{7}", "...").replace(".*", "...").replace("d+", "...")
