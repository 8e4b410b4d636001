"""Small models made on the spot, imported into a session's store."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from narrowdown.engines.graph import load
from narrowdown.engines.store import Store

Dims = list[int | str | None]
Make = Callable[..., load.StoredModel]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "session")


@pytest.fixture
def make(tmp_path: Path, store: Store) -> Make:
    """A model of the given inputs {name: (element type, dims)}; each goes through Identity, or the
    given nodes make ``y``."""

    def build(
        inputs: dict[str, tuple[int, Dims]],
        nodes: list[onnx.NodeProto] | None = None,
        weights: dict[str, np.ndarray] | None = None,
        outputs: dict[str, tuple[int, Dims]] | None = None,
    ) -> load.StoredModel:
        own = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in inputs]
        outs = outputs or {f"{name}_out": declared for name, declared in inputs.items()}
        graph = helper.make_graph(
            nodes or own,
            "g",
            [helper.make_tensor_value_info(n, t, d) for n, (t, d) in inputs.items()],
            [helper.make_tensor_value_info(n, t, d) for n, (t, d) in outs.items()],
            [numpy_helper.from_array(v, n) for n, v in (weights or {}).items()],
        )
        path = tmp_path / "model.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
        return load.load(store, load.import_model(path, store).digest)

    return build
