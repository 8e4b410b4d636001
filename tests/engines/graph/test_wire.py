"""Nodes counted in a file's bytes: as many as the parsed model has, and quickly."""

from pathlib import Path

import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto

from engines.data.store import Store
from engines.graph import load, wire
from engines.graph.problem import ModelProblem

MODELS = sorted((Path(__file__).parents[2] / "models").glob("*.onnx"))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_as_many_as_there_are(path: Path) -> None:
    count = len(onnx.load(path).graph.node)
    assert wire.nodes(path, 10**9) == count
    assert wire.nodes(path, count) == count
    assert wire.nodes(path, count - 1) == count
    assert wire.nodes(path, 3) == 4


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_whatever_the_bytes_are(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """It never fails; where the model can be parsed, the count is right."""
    good = bytearray(MODELS[0].read_bytes()[:3000])
    for at in data.draw(st.lists(st.integers(0, len(good) - 1), max_size=3)):
        good[at] = data.draw(st.integers(0, 255))
    raw = bytes(good) if data.draw(st.booleans()) else data.draw(st.binary(max_size=80))
    path = tmp_path_factory.getbasetemp() / "any.onnx"
    path.write_bytes(raw)
    found = wire.nodes(path, 10**9)
    try:
        model = ModelProto.FromString(raw)
    except DecodeError:
        return
    assert found == len(model.graph.node)


def endless(path: Path, count: int) -> Path:
    """A chain of so many Identity nodes, written without a graph in memory."""
    node = onnx.helper.make_node("Identity", ["x"], ["x"]).SerializeToString()
    head = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [])).SerializeToString()
    size, length = count * (len(node) + 2), b""
    while size >= 0x80:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    with path.open("wb") as file:
        file.write(head + b"\x3a" + length + bytes([size]))
        for _ in range(count // 100_000):
            file.write((b"\x0a" + bytes([len(node)]) + node) * 100_000)
    return path


def test_more_nodes_than_can_be_searched_are_refused_unparsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = endless(tmp_path / "m.onnx", 1_100_000)
    assert wire.nodes(path, 50) == 51
    monkeypatch.setattr(ModelProto, "FromString", None)
    with pytest.raises(ModelProblem, match="has more than 1,000,000 nodes, and no more can be searched"):
        load.import_model(path, Store(tmp_path))
