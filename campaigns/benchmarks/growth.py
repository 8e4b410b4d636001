"""How processor time and memory grow with the nodes, the weights, the samples and the probes of a
session. Between two rows stands the exponent: 1 is linear."""

from collections.abc import Callable
from pathlib import Path

import achieved
import faulty
import journals
import numpy as np
import onnx
from metering import Cost
from test_beside_reduce import narrowdown
from test_scale import gathered

HEAD = ("size", "cpu s", "MiB")
NODES = (1_000, 10_000, 50_000)
GIB = (0.125, 0.5, 2, 8, 20)
SAMPLES = (1, 10, 100, 1_000)
PROBES = (1, 1_000, 10_000, 30_000)


def nodes(count: int, folder: Path) -> Cost:
    model, inputs = faulty.lines(folder / "m.onnx", 50, count // 50), folder / "in.npz"
    np.savez(inputs, x=np.random.default_rng(0).standard_normal((1, 8), dtype=np.float32))
    engine = f"fake:fault=wrong,nodes=l25.{count // 100},size=0.5"
    words = [model, "--inputs", inputs, "--engine", engine, "--json", "--session", folder / "s"]
    return narrowdown("step", "reduce", *words, folder=folder)


def gib(size: float, folder: Path) -> Cost:
    """The weights are a sparse file: what is read and named by its digest is all of it, what is
    written next to nothing."""
    gathered(folder / "m.onnx", size)
    inputs = folder / "in.npz"
    np.savez(
        inputs,
        x=np.random.default_rng(0).standard_normal((1, 4, 16, 64), dtype=np.float32),
        ids=np.arange(4),
    )
    words = [
        folder / "m.onnx",
        "--inputs",
        inputs,
        "--engine",
        "onnxruntime:optimization=all",
        "--json",
    ]
    return narrowdown("step", "reduce", *words, "--session", folder / "s", folder=folder)


def samples(count: int, folder: Path) -> Cost:
    model, inputs = faulty.pooled(folder / "m.onnx", 40), folder / "in.npz"
    opened = onnx.load(model)
    for value in (*opened.graph.input, *opened.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(opened, model)
    np.savez(
        inputs, x=np.random.default_rng(0).standard_normal((count, 3, 16, 16), dtype=np.float32)
    )
    words = [
        model,
        "--inputs",
        inputs,
        "--engine",
        "onnxruntime:optimization=all",
        "--json",
        "--session",
        folder / "s",
    ]
    return narrowdown("step", "compare", *words, folder=folder)


def probes(count: int, folder: Path) -> Cost:
    journals.lengthen(achieved.walked(folder), folder / "long", count)
    return narrowdown("show", folder / "long", folder=folder)


KINDS: dict[str, tuple[str, tuple[float, ...], Callable[..., Cost]]] = {
    "nodes": ("Growth: nodes of the model, `step reduce`", NODES, nodes),
    "gib": ("Growth: GiB of weights, `step reduce`", GIB, gib),
    "samples": ("Growth: samples, `step compare`", SAMPLES, samples),
    "probes": ("Growth: probes of a session, `show`", PROBES, probes),
}
