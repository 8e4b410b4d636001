"""Nodes counted in a file's bytes: as many as the parsed model has, and quickly."""

import itertools
from pathlib import Path

import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto

from narrowdown.engines.graph import functions, load, wire
from narrowdown.engines.graph.model_problem import ModelProblem
from narrowdown.engines.store.content import Store
from narrowdown.wizard import demo

MODELS = sorted(demo.MODELS.glob("*.onnx"))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_as_many_as_there_are(path: Path) -> None:
    count = len(onnx.load(path).graph.node)
    assert wire.iterate_nodes(path, 10**9) == count
    assert wire.iterate_nodes(path, count) == count
    assert wire.iterate_nodes(path, count - 1) == count
    assert wire.iterate_nodes(path, 3) == 4


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_whatever_the_bytes_are(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """It never fails; where the model can be parsed, the count is right."""
    good = bytearray(MODELS[0].read_bytes()[:3000])
    for at in data.draw(st.lists(st.integers(0, len(good) - 1), max_size=3)):
        good[at] = data.draw(st.integers(0, 255))
    raw = bytes(good) if data.draw(st.booleans()) else data.draw(st.binary(max_size=80))
    path = tmp_path_factory.getbasetemp() / "any.onnx"
    path.write_bytes(raw)
    found = wire.iterate_nodes(path, 10**9)
    try:
        model = ModelProto.FromString(raw)
    except DecodeError:
        return
    assert found == sum(
        1
        for _ in functions._nodes_with_bodies(
            [*model.graph.node, *(n for f in model.functions for n in f.node)]
        )
    )


def test_bodies_and_functions_count(tmp_path: Path) -> None:
    """Nodes in the branches of an If, in the body of a Loop inside a branch, and in functions that
    nobody calls."""
    node = onnx.helper.make_node
    inner = onnx.helper.make_graph(
        [node("Relu", ["h"], ["a"]), node("Neg", ["a"], ["b"])], "inner", [], []
    )
    loop = node("Loop", ["n", "yes", "h"], ["c"], body=inner)
    branch = onnx.helper.make_graph([loop, node("Abs", ["c"], ["d"])], "branch", [], [])
    graph = onnx.helper.make_graph(
        [node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch)], "g", [], []
    )
    imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("own", 1)]
    function = onnx.helper.make_function(
        "own", "F", ["a"], ["b"], [node("Neg", ["a"], ["b"])], imports[:1]
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(
        onnx.helper.make_model(
            graph, functions=[function], opset_imports=imports
        ).SerializeToString()
    )
    assert wire.iterate_nodes(path, 100) == 1 + 2 * (2 + 2) + 1
    assert wire.iterate_nodes(path, 9) == 10


@pytest.mark.timeout(60)
def test_a_graph_of_fields_that_are_no_nodes(tmp_path: Path) -> None:
    """It is not read to its end: a hole of a gigabyte is none of ours, and numbers without end are
    too many."""
    for piece, said in ((b"\0" * 1000, 0), (b"\x10\x01" * 1000, 11)):
        path = tmp_path / "m.onnx"
        path.write_bytes(b"\x3a" + bytes([0x80 | 1000 * len(piece) & 0x7F, 0x80 | 1000 * len(piece) >> 7 & 0x7F,
                                          1000 * len(piece) >> 14]) + piece * 1000)  # fmt: skip
        assert wire.iterate_nodes(path, 10) == said


def chain(path: Path, calls: int, count: int, *, round_: bool = False) -> Path:
    """``count`` functions, each of which calls the one before it ``calls`` times; ``round_``: and
    the first one the last."""
    imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("own", 1)]

    def function(i: int) -> onnx.FunctionProto:
        op, domain = (
            (f"F{i - 1}", "own") if i else (f"F{count - 1}", "own") if round_ else ("Neg", "")
        )
        tensors = ["a", *(f"t{n}" for n in range(1, calls)), "b"]
        nodes = [
            onnx.helper.make_node(op, [a], [b], domain=domain)
            for a, b in itertools.pairwise(tensors)
        ]
        return onnx.helper.make_function("own", f"F{i}", ["a"], ["b"], nodes, imports)

    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(f"F{count - 1}", ["x"], ["y"], domain="own")],
        "g",
        [info[0]],
        [info[1]],
    )
    functions = [function(i) for i in range(count)]
    model = onnx.helper.make_model(graph, functions=functions, opset_imports=imports, ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("calls", "count", "round_", "said"),
    [
        (
            2,
            40,
            False,
            "has 1,099,511,627,776 nodes once its own functions are inlined, and no more than 1,000,000 can be",
        ),
        (9, 99, False, r"has about 10\^94 nodes once its own functions are inlined"),
        (1, 101, False, "more than 100 call one another in a row \\('F100' does\\); inline some"),
        (2, 3, True, "The model's own function 'F0' calls itself"),
    ],
)
def test_functions_count_as_what_they_hold(
    tmp_path: Path, calls: int, count: int, round_: bool, said: str
) -> None:
    path = chain(tmp_path / "m.onnx", calls, count, round_=round_)
    with pytest.raises(ModelProblem, match=said):
        load.import_model(path, Store(tmp_path))
    store = Store(tmp_path / "stored")
    digest = load.save(store, onnx.load(path))
    with pytest.raises(ModelProblem, match=said):
        load.load(store, digest)


def test_functions_that_are_not_too_much(tmp_path: Path) -> None:
    path = chain(tmp_path / "m.onnx", 2, 10)
    assert functions.count_expanded_nodes(onnx.load(path)) == 1 << 10
    assert load.import_model(path, Store(tmp_path)).nodes == 1 << 10


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


def test_more_nodes_than_can_be_searched_are_refused_unparsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = endless(tmp_path / "m.onnx", 1_100_000)
    assert wire.iterate_nodes(path, 50) == 51
    monkeypatch.setattr(ModelProto, "FromString", None)
    with pytest.raises(
        ModelProblem, match="has more than 1,000,000 nodes, and no more can be searched"
    ):
        load.import_model(path, Store(tmp_path))
