"""On an engine whose builds serve several numbers of rows, a row alone costs a run and no build."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from engines.backends import builds
from engines.backends.base import BuildRequest, EngineFault
from engines.probe import Candidate
from engines.workers import captures

ROWS, WIDTH = 6, 4


class Spanning:
    """ONNX Runtime, which takes any number of rows, with the shapes that it was asked for; ``refuses`` a range of them."""

    def __init__(self, refuses: str = "") -> None:
        self._real = captures.make_engine("onnxruntime")
        self.info = msgspec.structs.replace(self._real.info, spans=True)
        self._refuses = refuses
        self.asked: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def build(self, request: BuildRequest) -> Any:
        self.asked.append((dict(request.feed_shapes), dict(request.least_shapes)))
        if self._refuses and request.least_shapes:
            raise EngineFault(self._refuses, "no kernel for that range.")
        return self._real.build(request)


@pytest.fixture
def batch(tmp_path: Path, session_of: Any) -> Any:
    nodes = [helper.make_node("Tanh", ["x"], ["t"], name="a"), helper.make_node("Exp", ["t"], ["y"], name="b")]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", WIDTH]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", x=np.random.default_rng(1).random((ROWS, WIDTH), np.float32))
    return session_of(tmp_path / "session", tmp_path / "m.onnx", tmp_path / "in.npz")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Spanning]]:
    def use(refuses: str = "") -> Spanning:
        made, usual = Spanning(refuses), captures.make_engine
        monkeypatch.setattr(
            captures, "make_engine", lambda spec: made if spec == "onnxruntime:threads=1" else usual(spec)
        )
        builds.clear_all()
        return made

    yield use
    builds.clear_all()


SPEC = "onnxruntime:threads=1"


def test_all_rows_and_each_alone_are_one_build(batch: Any, engine: Callable[..., Spanning]) -> None:
    made = engine()
    everything = batch.measure(SPEC)
    assert [len(r.outputs) for r in everything.results] == [1] * ROWS
    for row in (0, 3, ROWS - 1):
        alone = batch.measure(SPEC, samples=(f"real:0/{row}",))
        assert alone.results[0].outputs[0].equal
        assert alone.results[0].outputs[0].shape == (1, WIDTH)
    assert made.asked == [({"x": (ROWS, WIDTH)}, {"x": (1, WIDTH)})]


def test_the_build_does_not_depend_on_who_asked_first(batch: Any, engine: Callable[..., Spanning]) -> None:
    made = engine()
    batch.measure(SPEC, samples=("real:0/2",))
    batch.measure(SPEC)
    assert made.asked == [({"x": (ROWS, WIDTH)}, {"x": (1, WIDTH)})]


def test_parts_are_built_for_what_they_are_fed(batch: Any, engine: Callable[..., Spanning]) -> None:
    """A cut tensor has the shape that was captured."""
    made = engine()
    batch.measure(SPEC, batch.nodes(1), samples=("real:0/2",))
    batch.measure(SPEC, Candidate(severed=str(batch.index.by_name["t"])), samples=("real:0/2",))
    assert [least for _, least in made.asked] == [{}, {}]


@pytest.mark.parametrize("status", ["build-failed", "out-of-memory", "refused"])
def test_what_does_not_build_for_a_range_is_built_as_fed(
    batch: Any, engine: Callable[..., Spanning], status: str
) -> None:
    made = engine(status)
    m = batch.measure(SPEC)
    assert all(r.outputs[0].equal for r in m.results)
    assert made.asked[0] == ({"x": (ROWS, WIDTH)}, {"x": (1, WIDTH)})
    assert made.asked[-1] == ({"x": (ROWS, WIDTH)}, {})
    assert "could not be built for 1 to 6 rows at once" in m.notes[0]


def test_what_the_parser_refuses_is_refused(batch: Any, engine: Callable[..., Spanning]) -> None:
    made = engine("unsupported")
    assert batch.run(batch.probe(SPEC)).status == "unsupported"
    assert len(made.asked) == 1
