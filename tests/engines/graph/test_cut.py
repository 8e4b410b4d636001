"""A cut fed with captured values gives the captured values; nothing heavy is copied."""

import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.graph import ModelProblem, cut, load
from narrowdown.engines.graph.ranges import encode
from narrowdown.engines.probe import Candidate, Edit
from narrowdown.engines.store import Store
from narrowdown.wizard.demo import MODELS

from .subjects import Subject, graph, run, subject

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
n = helper.make_node
WIDTH = 20

_UNARY = ["Neg", "Tanh", "Abs", "Sigmoid"]
_BINARY = ["Add", "Mul", "Sub", "Max"]


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    """Random graphs over [3, WIDTH] tensors: arithmetic, products with a big weight, reshapes by
    computed shapes, splits, branches with captures; with repeated and empty node names and outputs
    that nothing reads."""
    nodes: list[onnx.NodeProto] = []
    rows = ["x", "x2"]
    for i in range(draw(st.integers(1, 12))):
        kind = draw(
            st.sampled_from(["unary", "binary", "product", "reshape", "split", "if", "clip"])
        )
        a, b = draw(st.sampled_from(rows)), draw(st.sampled_from(rows))
        name = draw(st.sampled_from(["", "same", f"n{i}"]))
        out = f"t{i}"
        if kind == "unary":
            nodes.append(n(draw(st.sampled_from(_UNARY)), [a], [out], name))
        elif kind == "binary":
            nodes.append(n(draw(st.sampled_from(_BINARY)), [a, b], [out], name))
        elif kind == "product":
            nodes.append(n("MatMul", [a, draw(st.sampled_from(["w", "v"]))], [out], name))
        elif kind == "clip":
            nodes.append(n("Clip", [a, "", "one"], [out], name))
        elif kind == "reshape":
            nodes += [n("Shape", [b], [f"s{i}"], name), n("Reshape", [a, f"s{i}"], [out], name)]
        elif kind == "split":
            nodes += [
                n("Split", [a, "halves"], [f"p{i}", f"q{i}"], name, axis=1),
                n("Concat", [f"q{i}", f"p{i}"], [out], name, axis=1),
            ]
        else:
            infos = [
                helper.make_tensor_value_info(o, FLOAT, [3, WIDTH]) for o in (f"th{i}", f"el{i}")
            ]
            then = helper.make_graph([n("Add", [a, "w0"], [f"th{i}"])], "then", [], infos[:1])
            other = helper.make_graph([n("Mul", [b, a], [f"el{i}"])], "else", [], infos[1:])
            nodes += [
                n("Not", ["flag"], [f"c{i}"], name),
                n("If", [f"c{i}"], [out], name, then_branch=then, else_branch=other),
            ]
        rows.append(out)
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    weights = {
        "w": rng.standard_normal((WIDTH, WIDTH), np.float32) / 5, "v": rng.standard_normal((WIDTH, WIDTH), np.float32) / 5,
        "w0": np.float32(0.25), "one": np.float32(1), "halves": np.array([8, WIDTH - 8]),
    }  # fmt: skip
    outputs = draw(st.lists(st.sampled_from(rows[2:]), min_size=1, max_size=3, unique=True))
    inputs = {"x": (FLOAT, ["n", WIDTH]), "x2": (FLOAT, ["n", WIDTH]), "flag": (BOOL, [])}
    return graph(nodes, inputs, [f"{o}:{FLOAT}" for o in outputs], weights)


_FEEDS = {
    "x": np.random.default_rng(1).standard_normal((3, WIDTH)).astype(np.float32),
    "x2": np.random.default_rng(2).standard_normal((3, WIDTH)).astype(np.float32),
    "flag": np.array(False),
}


def made(model: onnx.ModelProto, folder: Path) -> Subject:
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return subject(folder / "m.onnx", Store(folder / "s"), _FEEDS)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(model=models(), data=st.data())
def test_any_candidate_reproduces_the_captured_values(
    tmp_path_factory: pytest.TempPathFactory, model: onnx.ModelProto, data: st.DataObject
) -> None:
    case = made(model, tmp_path_factory.mktemp("random"))
    index = case.index
    ids = data.draw(st.sets(st.sampled_from(range(len(index.nodes))), min_size=1), label="nodes")
    inner = [t.id for t in index.tensors if t.kind == "node"]
    severed = data.draw(st.sets(st.sampled_from(inner), max_size=4), label="severed")
    constants = data.draw(st.sampled_from([None, "", encode(inner)]), label="constants")
    candidate = Candidate(nodes=encode(ids), severed=encode(severed), constants=constants)
    one = case.check(candidate)
    assert sorted(i for i in one.node_ids if i >= 0) == sorted(ids)
    assert [case.model.engine_names[i] for i in one.node_ids] == [
        node.name for node in one.model.graph.node
    ]
    again = case.cut(candidate)
    assert again.model.SerializeToString(deterministic=True) == one.model.SerializeToString(
        deterministic=True
    )


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(model=models(), data=st.data())
def test_a_severed_reader_sees_the_fed_value_and_the_producer_still_runs(
    tmp_path_factory: pytest.TempPathFactory, model: onnx.ModelProto, data: st.DataObject
) -> None:
    case = made(model, tmp_path_factory.mktemp("random"))
    index = case.index
    read = [
        t.id
        for t in index.tensors
        if t.kind == "node" and t.dtype == "float32" and index.readers[t.id]
    ]
    if not read:
        return
    t = data.draw(st.sampled_from(read))
    producer, reader = index.tensors[t].producer, index.readers[t][0]
    results = index.nodes[reader].outputs
    both = Candidate(nodes=encode([producer, reader]), severed=str(t), constants="")
    one = cut.cut(case.model, both, {}, case.types, [*results, t])
    (fed_name,) = (name for name, i in one.feeds.items() if i == t)
    assert fed_name != index.tensors[t].name
    other = np.full_like(case.values[t], 0.5)
    got = run(one.model, case.fed(one) | {fed_name: other}, case.model.weights_dir)
    np.testing.assert_array_equal(got[index.tensors[t].name], case.values[t])
    alone = cut.cut(case.model, Candidate(nodes=str(reader), constants=""), {}, case.types, results)
    expected = run(
        alone.model, case.fed(alone) | {index.tensors[t].name: other}, case.model.weights_dir
    )
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value)


def test_real_models_cut_anywhere(sort: Subject, shapes: Subject, file_types: Subject) -> None:
    rng = np.random.default_rng(0)
    for case in (sort, shapes, file_types):
        count = len(case.index.nodes)
        for round_ in range(12):
            low, high = sorted(rng.integers(0, count, 2))
            ids = (
                range(low, high + 1)
                if round_ % 2
                else rng.choice(count, rng.integers(1, count), replace=False).tolist()
            )
            case.check(Candidate(nodes=encode(map(int, ids))))


def test_every_single_node_of_a_real_model(sort: Subject) -> None:
    for node in sort.index.nodes[::5]:
        sort.check(Candidate(nodes=str(node.id)))


def test_the_whole_model_is_the_models_own(sort: Subject) -> None:
    one = sort.cut()
    assert list(one.feeds) == ["ids", "mask"]
    assert one.outputs == {"logits": sort.index.by_name["logits"]}
    assert one.node_ids == tuple(range(247))
    original = onnx.load(MODELS / "sort_tf_massive_m4.onnx")
    assert list(one.model.graph.input) == list(original.graph.input)
    assert list(one.model.graph.output) == list(original.graph.output)
    path = sort.store.models / "whole.onnx"
    path.write_bytes(one.model.SerializeToString())
    onnx.checker.check_model(str(path), full_check=True)


def test_outputs_rule(sort: Subject) -> None:
    index = sort.index
    last = len(index.nodes) - 1
    assert cut.outputs_of(index, Candidate(nodes=f"{last - 3}-{last}")) == index.outputs
    feeds, leaves = index.boundary(range(10, 20))
    assert cut.outputs_of(index, Candidate(nodes="10-19")) == leaves
    assert set(cut.feeds_of(index, Candidate(nodes="10-19"))) == set(feeds)
    assert (
        cut.outputs_of(index, Candidate(nodes="10-19", outputs=str(index.nodes[10].outputs[0])))
        == index.nodes[10].outputs[:1]
    )


def test_outputs_that_are_inputs_or_weights_pass_through_an_identity(
    store: Store, tmp_path: Path
) -> None:
    model = graph(
        [n("Neg", ["x"], ["y"])],
        {"x": (FLOAT, [2])},
        [f"y:{FLOAT}", f"w:{FLOAT}", f"x:{FLOAT}"],
        {"w": np.ones(2, np.float32)},
    )
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    case = subject(tmp_path / "m.onnx", store, {"x": np.array([1, 2], np.float32)})
    one = cut.cut(case.model, Candidate(), {}, case.types, case.index.outputs)
    got = {one.outputs[k]: v for k, v in case.run(one).items()}
    by = case.index.by_name
    np.testing.assert_array_equal(got[by["w"]], [1, 1])
    np.testing.assert_array_equal(got[by["x"]], [1, 2])
    np.testing.assert_array_equal(got[by["y"]], [-1, -2])
    assert one.node_ids == (0, -1, -1)


def test_a_name_that_looks_like_ours_is_not_taken(store: Store, tmp_path: Path) -> None:
    nodes = [
        n("Neg", ["x"], ["a"]),
        n("Abs", ["a"], ["a__fed"]),
        n("Add", ["a", "a__fed"], ["y"], "Neg#0"),
    ]
    (tmp_path / "m.onnx").write_bytes(
        graph(nodes, {"x": (FLOAT, [2])}, [f"y:{FLOAT}"]).SerializeToString()
    )
    case = subject(tmp_path / "m.onnx", store, {"x": np.array([1, 2], np.float32)})
    one = case.check(Candidate(severed="1-2"))
    assert len(one.feeds) == 3
    assert len({node.name for node in one.model.graph.node}) == 3


def test_severing_reaches_into_bodies(store: Store, tmp_path: Path) -> None:
    loop = helper.make_graph(
        [n("Identity", ["go"], ["going"]), n("Add", ["state", "a"], ["next"])], "body",
        [helper.make_tensor_value_info("i", INT64, []), helper.make_tensor_value_info("go", BOOL, []),
         helper.make_tensor_value_info("state", FLOAT, [2])],
        [helper.make_tensor_value_info("going", BOOL, []), helper.make_tensor_value_info("next", FLOAT, [2])],
    )  # fmt: skip
    nodes = [n("Neg", ["x"], ["a"]), n("Loop", ["trips", "", "x"], ["y"], body=loop)]
    model = graph(nodes, {"x": (FLOAT, [2])}, [f"y:{FLOAT}"], {"trips": np.int64(3)})
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    case = subject(tmp_path / "m.onnx", store, {"x": np.array([1, 2], np.float32)})
    a = case.index.by_name["a"]
    case.check(Candidate(nodes="1"))
    one = cut.cut(case.model, Candidate(severed=str(a)), {}, case.types, case.index.outputs)
    feeds = {
        name: np.array([10, 10], np.float32) if t == a else case.values[t]
        for name, t in one.feeds.items()
    }
    np.testing.assert_array_equal(run(one.model, feeds)["y"], [31, 32])


def test_scalars_and_empty_tensors_are_fed(store: Store, tmp_path: Path) -> None:
    nodes = [n("ReduceSum", ["x"], ["s"], keepdims=0), n("Mul", ["s", "s"], ["p"]), n("Slice", ["x", "zero", "zero"], ["none"]),
             n("Concat", ["none", "x"], ["y"], axis=0)]  # fmt: skip
    model = graph(nodes, {"x": (FLOAT, [2])}, [f"y:{FLOAT}", f"p:{FLOAT}"], {"zero": np.array([0])})
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    case = subject(tmp_path / "m.onnx", store, {"x": np.array([1, 2], np.float32)})
    assert case.values[case.index.by_name["none"]].shape == (0,)
    case.check(Candidate(nodes="1,3"))
    case.check(Candidate(nodes="1,3", constants=encode(t.id for t in case.index.tensors)))


def test_marks_come_beside_the_outputs(sort: Subject) -> None:
    inner = sort.index.nodes[40].outputs[0]
    one = sort.cut(marks=[inner, sort.index.outputs[0]])
    assert list(one.outputs.values()) == list(sort.index.outputs)
    assert set(one.marks.values()) == {inner, sort.index.outputs[0]}
    np.testing.assert_array_equal(sort.run(one)[sort.index.tensors[inner].name], sort.values[inner])


@pytest.mark.parametrize(("shape", "value"), [((8, 8), 2.0), ((700, 700), 0.0), ((700, 700), 1.5)])
def test_fill_and_drop_edits(
    store: Store, tmp_path: Path, shape: tuple[int, int], value: float
) -> None:
    nodes = [n("Gemm", ["x", "w"], ["y"], alpha=3.0)]
    model = graph(
        nodes,
        {"x": (FLOAT, [2, shape[0]])},
        [f"y:{FLOAT}"],
        {"w": np.random.default_rng(0).random(shape).astype(np.float32)},
    )
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    x = np.ones((2, shape[0]), np.float32)
    case = subject(tmp_path / "m.onnx", store, {"x": x})
    edits = (
        Edit("fill", tensor=case.index.by_name["w"], value=value),
        Edit("drop-attribute", node=0, attribute="alpha"),
    )
    one = case.cut(Candidate(edits=edits))
    np.testing.assert_allclose(case.run(one)["y"], np.full((2, shape[1]), value * shape[0]))
    assert not one.model.graph.node[0].attribute
    assert one.model.ByteSize() < 10_000
    assert case.model.proto.graph.node[0].attribute  # the stored model is as it was


def test_kept_rows_take_the_given_shapes(store: Store, tmp_path: Path) -> None:
    model = graph([n("Neg", ["x"], ["y"])], {"x": (FLOAT, [8, 2])}, [])
    model.graph.output.append(helper.make_tensor_value_info("y", FLOAT, [8, 2]))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    case = subject(tmp_path / "m.onnx", store, {"x": np.ones((8, 2), np.float32)})
    x = case.index.by_name["x"]
    candidate = Candidate(edits=(Edit("keep-rows", value=3),))
    one = cut.cut(
        case.model, candidate, {}, {x: (np.dtype(np.float32), (3, 2))}, case.index.outputs
    )
    assert run(one.model, {"x": np.ones((3, 2), np.float32)})["y"].shape == (3, 2)


def test_open_dimensions_serve_many_shapes(sort: Subject) -> None:
    node = next(x for x in sort.index.nodes if x.op == "Softmax")
    types = {t: (v.dtype, (-1, *v.shape[1:])) for t, v in sort.values.items()}
    one = cut.cut(sort.model, Candidate(nodes=str(node.id)), {}, types, node.outputs)
    (name,) = one.feeds
    value = sort.values[node.inputs[0]]
    for rows in (1, 3, 8):
        np.testing.assert_array_equal(
            run(one.model, {name: value[:rows]})[sort.index.tensors[node.outputs[0]].name],
            sort.values[node.outputs[0]][:rows],
        )


def test_what_cannot_be_cut_is_one_sentence(store: Store, tmp_path: Path, sort: Subject) -> None:
    with pytest.raises(ModelProblem, match="no node 999"):
        sort.cut(Candidate(nodes="999"))
    nodes = [n("SplitToSequence", ["x"], ["s"]), n("SequenceAt", ["s", "zero"], ["y"]), n("Odd", ["y"], ["o"], domain="odd"),
             n("Neg", ["o"], ["z"])]  # fmt: skip
    model = graph(nodes, {"x": (FLOAT, [2])}, [f"z:{FLOAT}"], {"zero": np.int64(0)})
    model.opset_import.append(helper.make_opsetid("odd", 1))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    stored = load.load(store, load.import_model(tmp_path / "m.onnx", store).digest)
    with pytest.raises(ModelProblem, match="'s' is a sequence"):
        cut.cut(stored, Candidate(nodes="1"), {}, {}, stored.index.nodes[1].outputs)
    with pytest.raises(ModelProblem, match="'o' is not known"):
        cut.cut(stored, Candidate(nodes="3"), {}, {}, stored.index.nodes[3].outputs)


def test_custom_domains_functions_and_metadata_come_along(store: Store, tmp_path: Path) -> None:
    function = helper.make_function(
        "local", "Twice", ["a"], ["b"], [n("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    model = graph(
        [n("Neg", ["x"], ["y"]), n("Twice", ["y"], ["z"], domain="local")],
        {"x": (FLOAT, [2])},
        [f"z:{FLOAT}"],
    )
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.functions.append(function)
    helper.set_model_props(model, {"k": "v"})
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    case = subject(tmp_path / "m.onnx", store, {"x": np.array([1, 2], np.float32)})
    one = case.check(Candidate(nodes="1"))
    assert one.model.metadata_props[0].value == "v"


def test_a_cut_of_a_heavy_model_copies_no_weights(store: Store, tmp_path: Path) -> None:
    layers, width = 16, 1024  # 64 MiB
    rng = np.random.default_rng(0)
    nodes = [n("MatMul", [f"t{i}", f"w{i}"], [f"t{i + 1}"], f"n{i}") for i in range(layers)]
    weights = {f"w{i}": rng.standard_normal((width, width), np.float32) / 32 for i in range(layers)}
    path = tmp_path / "m.onnx"
    path.write_bytes(
        graph(
            nodes, {"t0": (FLOAT, ["n", width])}, [f"t{layers}:{FLOAT}"], weights
        ).SerializeToString()
    )
    case = subject(path, store, {"t0": rng.standard_normal((2, width), np.float32)})
    path.unlink()
    files = {p: p.stat().st_mtime_ns for p in store.root.rglob("*") if p.is_file()}
    assert case.model.proto.ByteSize() < 20_000
    times = []
    for low in range(layers):
        candidate = Candidate(nodes=f"{low}-{layers - 1}")
        start = time.process_time()
        one = case.cut(candidate)
        times.append(time.process_time() - start)
        assert one.model.ByteSize() < 20_000
        assert len(one.model.graph.initializer) == layers - low
    assert np.median(times) < 0.05  # some 0.3 ms; the bound only says that no weight was touched
    case.check(Candidate(nodes="3-4"))
    assert {p: p.stat().st_mtime_ns for p in store.root.rglob("*") if p.is_file()} == files
    (store.models / "cut.onnx").write_bytes(
        case.cut(Candidate(nodes="3-4")).model.SerializeToString()
    )
    onnx.checker.check_model(str(store.models / "cut.onnx"))
    session = ort.InferenceSession(
        str(store.models / "cut.onnx"), providers=["CPUExecutionProvider"]
    )
    assert session.run(None, {"t3": np.ones((2, width), np.float32)})[0].shape == (2, width)
    loaded = onnx.load(store.models / "cut.onnx")
    np.testing.assert_array_equal(numpy_helper.to_array(loaded.graph.initializer[0]), weights["w3"])
