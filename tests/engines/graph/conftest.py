"""Fixtures of the graph tests."""

from pathlib import Path

import magika
import numpy as np
import onnx
import pytest

from narrowdown.engines.store import Store
from narrowdown.wizard.demo import MODELS

from .subjects import Subject, file_bytes, subject


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "session")


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("session"))


@pytest.fixture(scope="session")
def sort(shared_store: Store) -> Subject:
    return subject(
        MODELS / "sort_tf_massive_m4.onnx",
        shared_store,
        np.load(MODELS / "sort_tf_massive_m4_in.npz"),
    )


@pytest.fixture(scope="session")
def shapes(shared_store: Store) -> Subject:
    return subject(MODELS / "shapes_cnn.onnx", shared_store, np.load(MODELS / "shapes_cnn_in.npz"))


@pytest.fixture(scope="session")
def file_types(shared_store: Store) -> Subject:
    folder = Path(magika.__file__).parent
    files = [
        folder / "magika.py", folder / "config" / "content_types_kb.min.json", MODELS / "shapes_cnn_in.npz", MODELS / "README.md",
        MODELS.parents[1] / "LICENSE",
        MODELS / "sort_tf_massive_m4.onnx", Path(onnx.__file__).parent / "onnx.proto", Path(np.__file__), Path(onnx.__file__),
    ]  # fmt: skip
    feeds = {"bytes": np.array([file_bytes(f) for f in files if f.exists()], np.int32)}
    return subject(folder / "models" / "standard_v3_3" / "model.onnx", shared_store, feeds)
