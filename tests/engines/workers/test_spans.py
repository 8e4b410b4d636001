"""On an engine whose builds serve several numbers of rows, a row alone costs a run and no build."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.backends import builds
from narrowdown.engines.backends.base import BuildRequest, EngineFault
from narrowdown.engines.data.samples import find_span
from narrowdown.engines.probe import Candidate
from narrowdown.engines.workers import captures, measure

ROWS, WIDTH = 6, 4


class Spanning:
    """ONNX Runtime, which takes any number of rows, with the shapes that it was asked for;
    ``refuses`` a range of them, with ``narrow`` only one of another dimension than rows, with
    ``watched`` only where tensors are marked."""

    narrow = watched = False

    def __init__(self, refuses: str = "") -> None:
        self._real = captures.make_engine("onnxruntime")
        self.info = msgspec.structs.replace(self._real.info, spans=True)
        self._refuses = refuses
        self.asked: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def build(self, request: BuildRequest) -> Any:
        self.asked.append((dict(request.feed_shapes), dict(request.least_shapes)))
        lengths = any(
            request.feed_shapes[x][1:] != least[1:] for x, least in request.least_shapes.items()
        )
        refused = (lengths or not self.narrow) and (bool(request.marks) or not self.watched)
        if self._refuses and request.least_shapes and refused:
            raise EngineFault(self._refuses, "no kernel for that range.")
        return self._real.build(request)


@pytest.fixture
def batch(tmp_path: Path, session_of: Any) -> Any:
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], name="a"),
        helper.make_node("Exp", ["t"], ["y"], name="b"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", WIDTH]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "m.onnx",
    )
    np.savez(tmp_path / "in.npz", x=np.random.default_rng(1).random((ROWS, WIDTH), np.float32))
    return session_of(tmp_path / "session", tmp_path / "m.onnx", tmp_path / "in.npz")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Spanning]]:
    def use(refuses: str = "") -> Spanning:
        made, usual = Spanning(refuses), captures.make_engine
        monkeypatch.setattr(
            captures,
            "make_engine",
            lambda spec: made if spec == "onnxruntime:threads=1" else usual(spec),
        )
        builds.clear_all()
        measure._refused.clear()
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


def test_the_build_does_not_depend_on_who_asked_first(
    batch: Any, engine: Callable[..., Spanning]
) -> None:
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
    assert "could not be built for several shapes at once" in m.notes[0]


def test_what_the_parser_refuses_is_refused(batch: Any, engine: Callable[..., Spanning]) -> None:
    made = engine("unsupported")
    assert batch.run(batch.probe(SPEC)).status == "unsupported"
    assert len(made.asked) == 1


def make_texts(folder: Path, session_of: Any, shape: list[int | str] | None) -> Any:
    """Samples of three lengths."""
    nodes = [helper.make_node("Tanh", ["x"], ["y"], name="a")]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        folder / "m.onnx",
    )
    paths = []
    for i, length in enumerate((7, 3, 5)):
        paths.append(folder / f"in{i}.npz")
        np.savez(paths[-1], x=np.random.default_rng(i).random((2, length, WIDTH), np.float32))
    return session_of(folder / "session", folder / "m.onnx", *paths)


@pytest.fixture
def texts(tmp_path: Path, session_of: Any) -> Any:
    """The length is open, the number of rows is not."""
    return make_texts(tmp_path, session_of, [2, "length", WIDTH])


def test_samples_of_several_lengths_are_one_build(
    texts: Any, engine: Callable[..., Spanning]
) -> None:
    made = engine()
    samples = tuple(f"real:{i}" for i in range(3))
    m = texts.measure(SPEC, samples=samples)
    assert [r.outputs[0].shape for r in m.results[::2]] == [(1, n, WIDTH) for n in (7, 3, 5)]
    assert all(r.outputs[0].equal for r in m.results)
    texts.measure(SPEC, samples=("real:1",))
    assert made.asked == [({"x": (2, 7, WIDTH)}, {"x": (2, 3, WIDTH)})]


def test_lengths_that_do_not_build_together_are_built_each(
    texts: Any, engine: Callable[..., Spanning]
) -> None:
    made = engine("build-failed")
    m = texts.measure(SPEC, samples=("real:0", "real:1"))
    assert all(r.outputs[0].equal for r in m.results)
    assert "could not be built for several shapes at once" in m.notes[0]
    together = ({"x": (2, 7, WIDTH)}, {"x": (2, 3, WIDTH)})
    assert made.asked == [together, *(({"x": (2, n, WIDTH)}, {}) for n in (7, 3))]  # asked once


def test_shapes_are_told_by_all_samples_or_by_the_rows_of_one(
    texts: Any, batch: Any, tmp_path: Path
) -> None:
    several = find_span(texts.store, texts.inputs)
    assert several is not None
    assert list(several.dims()) == [("x", 1)]
    assert find_span(texts.store, texts.inputs, "real:1") is None
    rows = find_span(batch.store, batch.inputs, "real:0/3")
    assert rows is not None
    assert (rows.least, rows.most) == ({"x": (1, WIDTH)}, {"x": (ROWS, WIDTH)})


def test_lengths_that_do_not_build_together_may_each_with_all_rows(
    tmp_path: Path, session_of: Any, engine: Callable[..., Spanning]
) -> None:
    made = engine("refused")
    made.narrow = True
    rows = make_texts(tmp_path, session_of, ["n", "length", WIDTH])
    m = rows.measure(SPEC, samples=("real:1",))
    assert all(r.outputs[0].equal for r in m.results)
    assert made.asked == [
        ({"x": (2, 7, WIDTH)}, {"x": (1, 3, WIDTH)}),
        ({"x": (2, 3, WIDTH)}, {"x": (1, 3, WIDTH)}),
    ]


def test_what_has_no_declared_shape_is_built_as_fed(
    tmp_path: Path, session_of: Any, engine: Callable[..., Spanning]
) -> None:
    made = engine()
    make_texts(tmp_path, session_of, None).measure(SPEC, samples=("real:1",))
    assert [least for _, least in made.asked] == [{}]


def test_another_build_of_the_same_shapes_is_tried_all_the_same(
    batch: Any, engine: Callable[..., Spanning]
) -> None:
    """With hundreds of tensors marked, or with some set of nodes kept, a build may fail that does
    not otherwise."""
    made = engine("build-failed")
    made.watched = True
    together = ({"x": (ROWS, WIDTH)}, {"x": (1, WIDTH)})
    watched = batch.measure(SPEC, marks=str(batch.index.by_name["t"]))
    assert made.asked == [together, ({"x": (ROWS, WIDTH)}, {})]
    assert "could not be built for several shapes at once" in watched.notes[0]
    assert not batch.measure(SPEC).notes
    assert made.asked[2:] == [together]
    assert (
        batch.measure(SPEC, marks=str(batch.index.by_name["t"]), samples=("real:0/2",)).notes
        == watched.notes
    )
    assert made.asked[3:] == [({"x": (1, WIDTH)}, {})], "what was refused is not asked again"


def test_texts_of_many_lengths_are_one_build_of_openvino(
    tmp_path: Path, session_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It compiles a model with its dimensions open, for any number: of 1,105 nodes each compilation
    took it 0.9 s."""
    engine = captures.make_engine("openvino:precision=f32")
    compiled = []
    real = type(engine).build
    monkeypatch.setattr(
        type(engine), "build", lambda self, request: compiled.append(request) or real(self, request)
    )
    m = make_texts(tmp_path, session_of, [2, "length", WIDTH]).measure("openvino:precision=f32")
    assert all(o.max_abs < 1e-6 for r in m.results for o in r.outputs)
    assert len(compiled) == 1
