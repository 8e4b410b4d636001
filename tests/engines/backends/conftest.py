"""Small models and ways to run them, for every backend's tests."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engines.backends import make
from engines.backends.base import BuildRequest

Array = np.ndarray[Any, Any]
MODELS = Path(__file__).parents[2] / "models"


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    outputs: Sequence[str],
    weights: Mapping[str, Array] | None = None,
    opset: int = 17,
    domains: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in (domains or {}).items())]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


@pytest.fixture(scope="session")
def small() -> Callable[..., onnx.ModelProto]:
    """Makes a model: nodes, inputs (name -> (element type, shape)), outputs (no type stated), weights, opset, domains."""
    return _model


@pytest.fixture(scope="session")
def run() -> Callable[..., dict[str, Array]]:
    """Builds a model on an engine spec and runs it once."""

    def built(spec: str, model: onnx.ModelProto, feeds: Mapping[str, Array], **request: Any) -> dict[str, Array]:
        session = make(spec).build(BuildRequest(model, request.pop("weights_dir", ""), **request))
        try:
            return session.run(feeds)
        finally:
            session.close()

    return built


@pytest.fixture(scope="session")
def real() -> Callable[[str], tuple[onnx.ModelProto, dict[str, Array]]]:
    """A real model of tests/models with its inputs."""

    def load(name: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
        with np.load(MODELS / f"{name}_in.npz") as archive:
            return onnx.load(MODELS / f"{name}.onnx"), dict(archive)

    return load


@pytest.fixture(scope="session")
def magika() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The file-type model from PyPI, and four files: two of text, one of repeated bytes, one of noise."""
    package = pytest.importorskip("magika")
    folder = Path(package.__file__).parent
    texts = (Path(__file__).read_bytes(), (MODELS / "README.md").read_bytes(), b"ab\n" * 900)
    noise = np.random.default_rng(1).integers(0, 256, 4000, np.uint8).tobytes()
    rows = np.full((4, 2048), 256, np.int32)
    for row, text in zip(rows, (*texts, noise), strict=True):
        head, tail = np.frombuffer(text[:1024], np.uint8), np.frombuffer(text[-1024:], np.uint8)
        row[: head.size], row[2048 - tail.size :] = head, tail
    return onnx.load(folder / "models/standard_v3_3/model.onnx"), {"bytes": rows}


@pytest.fixture
def outside(tmp_path: Path) -> tuple[onnx.ModelProto, Array]:
    """A model whose one weight lies in ``weights/w.bin`` below ``tmp_path``, and that weight."""
    values = np.linspace(-1, 1, 4096, dtype=np.float32)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/w.bin").write_bytes(bytes(64) + values.tobytes())
    model = _model([helper.make_node("Mul", ["x", "w"], ["y"], name="mul")], {"x": (TensorProto.FLOAT, [4096])}, ["y"])
    weight = model.graph.initializer.add()
    weight.name, weight.data_type, weight.data_location = "w", TensorProto.FLOAT, TensorProto.EXTERNAL
    weight.dims.append(4096)
    for key, value in (("location", "weights/w.bin"), ("offset", "64"), ("length", str(values.nbytes))):
        weight.external_data.add(key=key, value=value)
    return model, values


def relative(actual: Array, expected: Array) -> float:
    """Largest difference over the largest magnitude of the reference; infinite where values are not finite."""
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    return float(np.abs(a - b).max() / np.abs(b).max()) if np.isfinite(a).all() else float("inf")


@pytest.fixture(scope="session")
def error() -> Callable[[Array, Array], float]:
    return relative
