"""Three networks after public threads, beside the four of ../shared/cases/make_tensorrt.py, and what
is wrong with each, shown without a line of the product:

    python campaigns/gpu/networks.py FOLDER    writes NAME.onnx, NAME_in.npz, NAME_fresh.npz; prints the truth

- ``rotary``: positions up to 6,000 times frequencies, then Cos and Sin (rotary embeddings that drift
  in FP16, as told of FLUX and long prompts): the product loses whole turns.
- ``padded``: an attention mask of -3.4e38 where a prompt is padded, plus scores, twice over
  (huggingface's finfo.min): -inf in FP16, and rows that are padded whole become NaN.
- ``power``: the spectrum of 16-bit sound, re * re + im * im, then its root and a mask (a noise
  suppressor): overflow beyond 256.

The truth: the graph on onnx's own evaluator, every float value rounded to FP16, but for the nodes
that are said to be to blame.
"""

import sys
from collections.abc import Collection
from pathlib import Path

import numpy as np
import onnx
from onnx import parser
from onnx.reference import ReferenceEvaluator

Feeds = dict[str, np.ndarray]
HEAD = '<ir_version: 9, opset_import: ["":17]>'
TO_BLAME = {
    "rotary": ("column", "angle", "cosine", "sine"),
    "padded": ("gap", "mask0", "scores_masked0", "weights0", "mask1", "scores_masked1", "weights1"),
    "power": ("re2", "im2", "energy", "magnitude"),
}


def _build(text: str, weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    model = parser.parse_model(f"{HEAD} g {text}")
    for name, value in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    for node in model.graph.node:
        node.name = node.output[0]
    onnx.checker.check_model(model)
    return model


def make_rotary(random: np.random.Generator) -> tuple[onnx.ModelProto, list[Feeds]]:
    """(model, [inputs of 4 rows, 16 others])."""
    wide, half = 64, 32
    weights = {
        "frequency": (1e4 ** (-np.arange(half) / half)).astype("f4")[None, None],
        "wq": random.normal(0, wide**-0.5, (wide, wide)).astype("f4"),
        "wk": random.normal(0, wide**-0.5, (wide, wide)).astype("f4"),
        "wv": random.normal(0, wide**-0.5, (wide, wide)).astype("f4"),
        "scale": np.float32(0.5 * wide**-0.5), "last": np.array([2]), "halves": np.array([half, half]),
    }  # fmt: skip
    turn = (
        "{x}1, {x}2 = Split <axis=2> ({x}, halves) {x}a = Mul ({x}1, cosine) {x}b = Mul ({x}2, sine)"
        " {x}c = Mul ({x}2, cosine) {x}d = Mul ({x}1, sine) {x}e = Sub ({x}a, {x}b)"
        " {x}f = Add ({x}c, {x}d) {x}r = Concat <axis=2> ({x}e, {x}f)"
    )
    text = (
        "(float[N,24,64] tokens, float[N,24] positions) => (float[N,24,64] mixed) {"
        " column = Unsqueeze (positions, last) angle = Mul (column, frequency)"
        " cosine = Cos (angle) sine = Sin (angle)"
        " q = MatMul (tokens, wq) k = MatMul (tokens, wk) v = MatMul (tokens, wv) "
        + turn.format(x="q") + " " + turn.format(x="k")
        + " kt = Transpose <perm=[0,2,1]> (kr) scores = MatMul (qr, kt) scaled = Mul (scores, scale)"
        " weights = Softmax <axis=-1> (scaled) mixed = MatMul (weights, v) }"
    )  # fmt: skip

    def draw(rows: int) -> Feeds:
        positions = np.sort(random.choice(6000, (rows, 24), replace=True), axis=1)
        tokens = random.normal(0, 2, (rows, 24, wide))
        return {"tokens": tokens.astype("f4"), "positions": positions.astype("f4")}

    return _build(text, weights), [draw(4), draw(16)]


def make_padded(random: np.random.Generator) -> tuple[onnx.ModelProto, list[Feeds]]:
    """(model, [inputs of 4 rows, 16 others]): some rows of every sample are padded whole."""
    wide = 48
    weights: dict[str, np.ndarray] = {
        "one": np.float32(1), "least": np.float32(np.finfo(np.float32).min),
        "scale": np.float32(wide**-0.5), "first": np.array([1]),
    }  # fmt: skip
    text = "(float[N,20,48] x, float[N,20] keep) => (float[N,20,48] y) { row = Unsqueeze (keep, first) gap = Sub (one, row) "
    value = "x"
    for i in range(2):
        for w in "qkvo":
            weights[f"w{w}{i}"] = random.normal(0, wide**-0.5, (wide, wide)).astype("f4")
        last = "y" if i == 1 else f"x{i}"
        text += (
            f"q{i} = MatMul ({value}, wq{i}) k{i} = MatMul ({value}, wk{i}) v{i} = MatMul ({value}, wv{i})"
            f" kt{i} = Transpose <perm=[0,2,1]> (k{i}) scores{i} = MatMul (q{i}, kt{i})"
            f" scaled{i} = Mul (scores{i}, scale) mask{i} = Mul (gap, least)"
            f" scores_masked{i} = Add (scaled{i}, mask{i}) weights{i} = Softmax <axis=-1> (scores_masked{i})"
            f" o{i} = MatMul (weights{i}, v{i}) p{i} = MatMul (o{i}, wo{i}) {last} = Add ({value}, p{i}) "
        )
        value = last

    def draw(rows: int) -> Feeds:
        keep = (np.arange(20) < random.integers(0, 20, (rows, 1))).astype("f4")
        keep[0] = 0  # a row of the batch that holds no prompt
        return {"x": random.normal(0, 1, (rows, 20, wide)).astype("f4"), "keep": keep}

    return _build(text + "}", weights), [draw(4), draw(16)]


def make_power(random: np.random.Generator) -> tuple[onnx.ModelProto, list[Feeds]]:
    """(model, [inputs of 4 rows, 16 others])."""
    bins = 64
    weights = {
        "w1": random.normal(0, bins**-0.5, (bins, bins)).astype("f4"),
        "w2": random.normal(0, bins**-0.5, (bins, bins)).astype("f4"),
        "small": np.float32(1e-3),
    }
    text = (
        "(float[N,30,64] re, float[N,30,64] im) => (float[N,30,64] mask) {"
        " re2 = Mul (re, re) im2 = Mul (im, im) energy = Add (re2, im2) magnitude = Sqrt (energy)"
        " quiet = Mul (magnitude, small) hidden = MatMul (quiet, w1) bent = Tanh (hidden)"
        " raw = MatMul (bent, w2) mask = Sigmoid (raw) }"
    )

    def draw(rows: int) -> Feeds:
        loud = np.exp(random.uniform(2, 9, (rows, 30, 1)))
        return {
            k: (random.normal(0, 1, (rows, 30, bins)) * loud).astype("f4") for k in ("re", "im")
        }

    return _build(text, weights), [draw(4), draw(16)]


MAKE = {"rotary": make_rotary, "padded": make_padded, "power": make_power}


def run_in_fp16(model: onnx.ModelProto, feeds: Feeds, keep: Collection[str]) -> Feeds:
    """The graph node by node, every float value rounded to FP16, but what ``keep`` computes and what
    it reads of constants and inputs of the model."""
    constants = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    wide: Feeds = {**constants, **feeds}  # before it is rounded

    def narrow(value: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return (
                value.astype(np.float16).astype(np.float32) if value.dtype == np.float32 else value
            )

    known = {name: narrow(value) for name, value in wide.items()}
    for node in model.graph.node:
        kept = node.name in keep
        reads = {n: (wide if kept and n in wide else known)[n] for n in node.input}
        got = _run_node(node, reads)
        for name, value in got.items():
            known[name] = value if kept else narrow(value)
    return {o.name: known[o.name] for o in model.graph.output}


def _run_node(node: onnx.NodeProto, reads: Feeds) -> Feeds:
    values = [
        onnx.helper.make_tensor_value_info(
            n, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape
        )
        for n, v in reads.items()
    ]
    outputs = [onnx.helper.make_empty_tensor_value_info(n) for n in node.output]
    graph = onnx.helper.make_graph([node], "one", values, outputs)
    alone = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    with np.errstate(all="ignore"):
        return dict(zip(node.output, ReferenceEvaluator(alone).run(None, reads), strict=True))


def measure(got: Feeds, want: Feeds) -> float:
    """The relative L2 error of the worst row of the worst output; NaN counts as infinite."""
    worst = 0.0
    for name, right in want.items():
        for a, b in zip(got[name], right, strict=True):
            far = float(np.linalg.norm((a - b).ravel()) / max(np.linalg.norm(b.ravel()), 1e-12))
            worst = max(worst, far if np.isfinite(far) else np.inf)
    return worst


def main() -> int:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, make) in enumerate(MAKE.items(), 20261130):
        model, (given, fresh) = make(np.random.default_rng(seed))
        onnx.save(model, folder / f"{name}.onnx")
        np.savez(folder / f"{name}_in.npz", **given)
        np.savez(folder / f"{name}_fresh.npz", **fresh)
        want = dict(
            zip(
                [o.name for o in model.graph.output],
                ReferenceEvaluator(model).run(None, fresh),
                strict=True,
            )
        )
        everything = [n.name for n in model.graph.node]
        for label, keep in (("none", ()), ("to blame", TO_BLAME[name]), ("all", everything)):
            print(f"{name}: {label} kept: {measure(run_in_fp16(model, fresh, keep), want):.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
