"""Small models and ways to run them, for every backend's tests."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from narrowdown.engines.backends import make
from narrowdown.engines.backends.base import BuildRequest
from narrowdown.engines.contract import model_with_weights_outside, small_model
from narrowdown.wizard.demo import MODELS

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="session")
def small() -> Callable[..., onnx.ModelProto]:
    """Makes a model: nodes, inputs (name -> (element type, shape)), outputs (no type stated),
    weights, opset, domains."""
    return small_model


@pytest.fixture(scope="session")
def run() -> Callable[..., dict[str, Array]]:

    def built(
        spec: str, model: onnx.ModelProto, feeds: Mapping[str, Array], **request: Any
    ) -> dict[str, Array]:
        session = make(spec).build(BuildRequest(model, request.pop("weights_dir", ""), **request))
        try:
            return session.run(feeds)
        finally:
            session.close()

    return built


@pytest.fixture(scope="session")
def real() -> Callable[[str], tuple[onnx.ModelProto, dict[str, Array]]]:

    def load(name: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
        with np.load(MODELS / f"{name}_in.npz") as archive:
            return onnx.load(MODELS / f"{name}.onnx"), dict(archive)

    return load


@pytest.fixture(scope="session")
def magika() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The file-type model from PyPI, and four files: two of text, one of repeated bytes, one of
    noise."""
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
    return model_with_weights_outside(tmp_path)


def relative(actual: Array, expected: Array) -> float:
    """Largest difference over the largest magnitude of the reference; infinite where values are not
    finite."""
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    return float(np.abs(a - b).max() / np.abs(b).max()) if np.isfinite(a).all() else float("inf")


@pytest.fixture(scope="session")
def error() -> Callable[[Array, Array], float]:
    return relative
