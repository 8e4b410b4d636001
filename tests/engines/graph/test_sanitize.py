"""Sanitizing folds and cleans, and changes no result; what folding leaves alone is shared."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.graph import ModelProblem, external, load, sanitize as module
from narrowdown.engines.graph.sanitize import sanitize
from narrowdown.engines.store import Store

from .subjects import Subject, graph, run, subject

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
n = helper.make_node


def test_real_models_compute_the_same_with_fewer_nodes(
    sort: Subject, shapes: Subject, file_types: Subject
) -> None:
    for case, fewer in ((sort, True), (shapes, True), (file_types, False)):
        done = sanitize(case.model, case.store)
        clean = load.load(case.store, done.digest)
        assert done.nodes == len(clean.index.nodes)
        assert (done.nodes < len(case.index.nodes)) == fewer
        feeds = case.feeds
        got = run(clean.proto, feeds, clean.weights_dir)
        for t in case.index.outputs:
            np.testing.assert_array_equal(got[case.index.tensors[t].name], case.values[t])
        assert {n.name for n in clean.index.nodes} <= {n.name for n in case.index.nodes}
        onnx.checker.check_model(str(clean.path))


def heavy(folder: Path) -> Subject:
    """A weight that folding leaves alone, one that it transposes, dead nodes, metadata, repeated
    names."""
    rng = np.random.default_rng(0)
    nodes = [
        n("Transpose", ["v"], ["vt"], "same", perm=[1, 0]), n("MatMul", ["x", "w"], ["a"], "same"),
        n("MatMul", ["a", "vt"], ["b"], ""),
        n("Neg", ["b"], ["dead"], "dead"), n("Identity", ["b"], ["kept"], "kept"), n("Add", ["one", "one"], ["two"], "sum"),
        n("Mul", ["kept", "two"], ["y"], "last"),
    ]  # fmt: skip
    weights = {
        "w": rng.standard_normal((200, 300), np.float32), "v": rng.standard_normal((50, 300), np.float32), "one": np.float32(1),
    }  # fmt: skip
    model = graph(
        nodes,
        {"x": (FLOAT, ["n", 200]), "unused": (FLOAT, [1])},
        [f"y:{FLOAT}"],
        weights,
        producer_name="me",
    )
    helper.set_model_props(model, {"author": "someone"})
    model.graph.node[6].doc_string = "the end"
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    feeds = {"x": rng.standard_normal((2, 200), np.float32), "unused": np.zeros(1, np.float32)}
    return subject(folder / "m.onnx", Store(folder / "s"), feeds)


def test_weights_are_shared_folded_ones_are_new_and_metadata_stays(tmp_path: Path) -> None:
    case = heavy(tmp_path)
    before = {p.name for p in case.store.weights.iterdir()}
    clean = load.load(case.store, sanitize(case.model, case.store).digest)
    assert [node.op for node in clean.index.nodes if node.op != "Identity"] == [
        "MatMul",
        "MatMul",
        "Mul",
    ]
    assert clean.proto.metadata_props[0].value == "someone"
    assert clean.proto.producer_name == "me"
    assert clean.proto.graph.node[-1].doc_string == "the end"
    assert [i.name for i in clean.proto.graph.input] == ["x", "unused"]
    assert clean.initializers["w"] == case.model.initializers["w"]
    (new,) = {p.name for p in case.store.weights.iterdir()} - before
    assert (case.store.weights / new).stat().st_size == 50 * 300 * 4
    np.testing.assert_array_equal(
        run(clean.proto, case.feeds, clean.weights_dir)["y"], case.values[case.index.by_name["y"]]
    )


def test_nothing_is_printed_on_stdout(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    case = heavy(tmp_path)
    capfd.readouterr()
    sanitize(case.model, case.store)
    assert capfd.readouterr().out == ""


def test_sanitizing_twice_changes_nothing(sort: Subject) -> None:
    once = sanitize(sort.model, sort.store)
    twice = sanitize(load.load(sort.store, once.digest), sort.store)
    assert twice.nodes == once.nodes
    assert twice.digest == once.digest


def test_a_failure_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = heavy(tmp_path)

    def broken(_: object) -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(module, "_fold_constants", broken)
    with pytest.raises(ModelProblem, match="could not sanitize: first line second line"):
        sanitize(case.model, case.store)


def test_what_cannot_be_folded_stays(tmp_path: Path) -> None:
    nodes = [
        n("Odd", ["w"], ["o"], domain="odd"),
        n("RandomNormal", [], ["r"], shape=[2]),
        n("Add", ["x", "r"], ["y"]),
    ]
    model = graph(
        nodes,
        {"x": (FLOAT, [2])},
        [f"y:{FLOAT}", f"o:{FLOAT}"],
        {"w": np.ones((40, 40), np.float32)},
    )
    model.opset_import.append(helper.make_opsetid("odd", 1))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    store = Store(tmp_path / "s")
    stored = load.load(store, load.import_model(tmp_path / "m.onnx", store).digest)
    done = sanitize(stored, store)
    clean = load.load(store, done.digest)
    assert sorted(node.op for node in clean.index.nodes) == ["Add", "Odd", "RandomNormal"]
    assert clean.initializers["w"] == stored.initializers["w"]


def test_folding_reads_no_more_weights_than_it_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three weights that could be folded the two smallest fit; the third is not read and its
    node stays."""
    monkeypatch.setattr(module, "HELD", 3 * 40 * 40 * 4)
    weights = {
        name: np.ones((rows * 40, 40), np.float32) for name, rows in (("u", 2), ("v", 1), ("w", 1))
    }
    nodes = [n("Neg", [name], [f"-{name}"]) for name in weights]
    nodes += [n("MatMul", [f"-{name}", "x"], [f"y{name}"]) for name in weights]
    model = graph(nodes, {"x": (FLOAT, [40, 1])}, [f"y{name}:{FLOAT}" for name in weights], weights)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    store = Store(tmp_path / "s")
    read: list[str] = []
    monkeypatch.setattr(
        module.external,
        "read_bytes",
        lambda t, at, real=external.read_bytes: read.append(t.name) or real(t, at),
    )
    stored = load.load(store, load.import_model(tmp_path / "m.onnx", store).digest)
    clean = load.load(store, sanitize(stored, store).digest)
    assert sorted(node.op for node in clean.index.nodes) == ["MatMul", "MatMul", "MatMul", "Neg"]
    assert clean.initializers["u"] == stored.initializers["u"]
    assert set(read) == {"v", "w"}


def test_what_loses_nothing_is_the_model_itself(tmp_path: Path) -> None:
    # In another order than the library sorts, with no shape stated of what lies between.
    nodes = [
        n("Relu", ["x"], ["a"]),
        n("Neg", ["x"], ["b"]),
        n("Mul", ["b", "w"], ["c"]),
        n("Add", ["a", "c"], ["y"]),
    ]
    store = Store(tmp_path / "session")
    for more, same in (([], True), ([n("Neg", ["a"], ["d"])], False)):
        path = tmp_path / f"{same}.onnx"
        weights = {"w": np.arange(3, dtype=np.float32)}
        onnx.save(graph([*nodes, *more], {"x": (FLOAT, [3])}, [f"y:{FLOAT}"], weights), path)
        given = load.load(store, load.import_model(path, store).digest)
        done = sanitize(given, store)
        assert (done.digest == given.digest, done.nodes) == (same, 4)
