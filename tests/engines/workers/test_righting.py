"""Nodes computed by the reference from what the engine gives them: whatever part is run and
whatever is watched of it, all is as on an engine on which these nodes are right."""

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Candidate, Measurement

SIZE = 9


def dag(path: Path) -> Path:
    """Nine nodes, of which some are read twice and some give outputs of the model."""
    reads = {
        "a": ("x",), "b": ("a",), "c": ("a", "b"), "d": ("c",), "e": ("b", "d"), "f": ("d",), "g": ("e", "f"), "h": ("c", "g"),
        "i": ("h",),
    }  # fmt: skip
    nodes = [
        helper.make_node("Add" if len(inputs) == 2 else "Abs", inputs, [name], f"/{name}")
        for name, inputs in reads.items()
    ]
    shape = [3, 4]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "f", "i")
    ]
    graph = helper.make_graph(nodes, "dag", values[:1], values[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    np.savez(
        path.with_suffix(".npz"),
        x=np.random.default_rng(0).standard_normal(shape).astype(np.float32),
    )
    return path


def errors(m: Measurement) -> dict[str, float]:
    kinds = ("outputs", "marks", "effect")
    return {
        f"{r.sample} {kind} {s.name}": s.rel_l2
        for r in m.results
        for kind in kinds
        for s in getattr(r, kind)
    }


def test_a_righted_node_is_right_wherever_one_looks(session_of, tmp_path: Path) -> None:
    session = session_of(tmp_path / "s", dag(tmp_path / "m.onnx"), tmp_path / "m.npz")
    names = [n.name for n in session.index.nodes]
    assert len(names) == SIZE

    def engine(faulty: set[int]) -> str:
        also = "+".join(f"{names[n]}*0.{n + 1}" for n in sorted(faulty))
        return f"fake:fault=wrong,nodes=/none,also={also}" if faulty else "onnxruntime"

    rng = random.Random(0)
    for _ in range(24):
        faulty, righted = ({n for n in range(SIZE) if rng.random() < 0.5} for _ in range(2))
        inside = rng.sample(range(SIZE), rng.randint(1, SIZE))
        part = Candidate(nodes=ranges.ALL if len(inside) == SIZE else ranges.encode(inside))
        how = {"marks": ranges.ALL, "effect": True}
        cured = session.measure(engine(faulty), part, righted=ranges.encode(righted), **how)
        right = session.measure(engine(faulty - righted), part, **how)
        assert errors(cured) == pytest.approx(errors(right), abs=1e-6), (faulty, righted, inside)
