"""A user's file comes in as it is, or one sentence says why not."""

import contextlib
import hashlib
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, strategies as st
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.graph import ModelProblem, external, load
from narrowdown.engines.store import Damaged, Store
from narrowdown.wizard.demo import MODELS

from .subjects import graph, run, subject

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
n = helper.make_node


def big(seed: int = 0, shape: tuple[int, ...] = (40, 40)) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def product() -> onnx.ModelProto:
    nodes = [n("MatMul", ["x", "w"], ["y"], "one"), n("MatMul", ["y", "v"], ["z"], "two")]
    made = graph(nodes, {"x": (FLOAT, [None, 40])}, [], {"w": big(1), "v": big(2)})
    made.graph.output.append(helper.make_tensor_value_info("z", FLOAT, [None, 40]))
    return made


def put(model: onnx.ModelProto, path: Path, **options: object) -> Path:
    onnx.save_model(model, str(path), **options)
    return path


def imported(
    model: onnx.ModelProto, store: Store, tmp_path: Path
) -> tuple[load.StoredModel, load.Imported]:
    done = load.import_model(put(model, tmp_path / "m.onnx"), store)
    return load.load(store, done.digest), done


def test_every_form_of_constant_becomes_a_weight(store: Store, tmp_path: Path) -> None:
    nodes = [
        n("Constant", [], ["t"], value=numpy_helper.from_array(np.arange(4, dtype=np.float32))),
        n("Constant", [], ["f"], value_float=2.5), n("Constant", [], ["fs"], value_floats=[1.0, 2.0]),
        n("Constant", [], ["i"], value_int=7), n("Constant", [], ["is"], value_ints=[4, 5]),
        n("Constant", [], ["s"], value_string=b"a"), n("Constant", [], ["ss"], value_strings=[b"b", b"c"]),
        n("Add", ["x", "t"], ["y"]),
    ]  # fmt: skip
    model, done = imported(graph(nodes, {"x": (FLOAT, [4])}, [f"y:{FLOAT}"]), store, tmp_path)
    assert [node.op for node in model.index.nodes] == ["Add"]
    values = {
        name: load.read_weight(model, model.index.by_name[name])
        for name in ("t", "f", "fs", "i", "is", "s", "ss")
    }
    assert values["f"] == np.float32(2.5)
    assert values["f"].shape == ()
    assert values["i"].dtype == np.int64
    np.testing.assert_array_equal(values["t"], np.arange(4))
    np.testing.assert_array_equal(values["fs"], [1, 2])
    np.testing.assert_array_equal(values["is"], [4, 5])
    assert [model.index.tensors[model.index.by_name[k]].dtype for k in ("s", "ss", "is")] == [
        "string",
        "string",
        "int64",
    ]
    assert "7 Constant nodes" in done.notes[0]


def test_sparse_constants_and_constant_outputs_stay_nodes(store: Store, tmp_path: Path) -> None:
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([3.0], np.float32), "v"), numpy_helper.from_array(np.array([1], np.int64), "i"), [4]
    )  # fmt: skip
    nodes = [
        n("Constant", [], ["t"], sparse_value=sparse),
        n("Constant", [], ["c"], value_float=1.0),
        n("Add", ["x", "t"], ["y"]),
    ]
    model, _ = imported(
        graph(nodes, {"x": (FLOAT, [4])}, [f"y:{FLOAT}", f"c:{FLOAT}"]), store, tmp_path
    )
    assert [node.op for node in model.index.nodes] == ["Constant", "Constant", "Add"]


def test_a_model_with_constants_computes_the_same(shapes: object) -> None:
    original = onnx.load(MODELS / "shapes_cnn.onnx")
    feeds = dict(np.load(MODELS / "shapes_cnn_in.npz"))
    lifted = shapes.run(shapes.cut())  # type: ignore[attr-defined]
    np.testing.assert_array_equal(run(original, feeds)["logits"], lifted["logits"])


@pytest.mark.parametrize("together", [True, False])
def test_external_data_gives_the_same_digest_as_inner_data(
    store: Store, tmp_path: Path, together: bool
) -> None:
    (tmp_path / "a").mkdir()
    inside = load.import_model(put(product(), tmp_path / "in.onnx"), store).digest
    outside = put(
        product(), tmp_path / "a" / "out.onnx", save_as_external_data=True, all_tensors_to_one_file=together, size_threshold=0
    )  # fmt: skip
    assert load.import_model(outside, store).digest == inside
    assert len(list(store.weights.iterdir())) == 1
    # and also for weights stored as typed lists of floats
    listed = product()
    for tensor in listed.graph.initializer:
        tensor.float_data.extend(numpy_helper.to_array(tensor).reshape(-1))
        tensor.ClearField("raw_data")
    assert load.import_model(put(listed, tmp_path / "listed.onnx"), store).digest == inside


def test_the_stored_model_loads_by_path_and_its_name_is_its_digest(
    store: Store, tmp_path: Path
) -> None:
    model, done = imported(product(), store, tmp_path)
    assert hashlib.sha256(model.path.read_bytes()).hexdigest() == done.digest
    onnx.checker.check_model(str(model.path), full_check=True)
    np.testing.assert_array_equal(
        numpy_helper.to_array(onnx.load(model.path).graph.initializer[0]), big(1)
    )
    assert isinstance(load.read_weight(model, model.index.by_name["v"]), np.memmap)
    location, offset, length = external.external_span(model.initializers["v"])
    assert offset % external.ALIGN == 0
    assert length == 40 * 40 * 4
    assert (
        location
        == f"weights/{hashlib.sha256((store.models / location).read_bytes()).hexdigest()}.bin"
    )


def test_a_sparse_weights_file_stays_sparse(store: Store, tmp_path: Path) -> None:
    """What takes no room beside the user's model takes none in the session; the values are the
    same, the last bytes too."""
    rows = 5 * external.PIECE // 1024 + 3
    weights = [TensorProto(name=name, data_type=FLOAT, dims=[rows, 256]) for name in "vw"]
    for i, tensor in enumerate(weights):
        external.make_external(tensor, "w.bin", i * rows * 1024, rows * 1024)
    nodes = [n("Gather", [w, "i"], [w + w]) for w in "vw"]
    model = graph(nodes, {"i": (INT64, [1])}, [f"vv:{FLOAT}", f"ww:{FLOAT}"], {})
    model.graph.initializer.extend(weights)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with (tmp_path / "w.bin").open("wb") as file:
        file.seek(rows * 1024 + 4096)
        file.write(np.float32(3).tobytes())
        file.truncate(2 * rows * 1024)
    stored = load.load(store, load.import_model(tmp_path / "m.onnx", store).digest)
    (kept,) = store.weights.iterdir()
    assert kept.stat().st_size == 2 * rows * 1024
    assert kept.stat().st_blocks * 512 <= 3 * external.PIECE
    assert kept.stem == hashlib.sha256(kept.read_bytes()).hexdigest()
    assert not load.read_weight(stored, stored.index.by_name["v"]).any()
    w = load.read_weight(stored, stored.index.by_name["w"])
    assert (w[4, 0], np.count_nonzero(w)) == (3, 1)


def test_small_external_tensors_come_inside(store: Store, tmp_path: Path) -> None:
    model = graph(
        [n("Add", ["x", "w"], ["y"])],
        {"x": (FLOAT, [3])},
        [f"y:{FLOAT}"],
        {"w": np.ones(3, np.float32)},
    )
    path = put(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    stored = load.load(store, load.import_model(path, store).digest)
    assert not external.is_external(stored.initializers["w"])
    np.testing.assert_array_equal(load.read_weight(stored, stored.index.by_name["w"]), np.ones(3))


def test_external_constants_of_bodies_come_along(store: Store, tmp_path: Path) -> None:
    then = helper.make_graph([n("Add", ["x", "inner"], ["t"])], "then", [], [helper.make_tensor_value_info("t", FLOAT, None)],
                             [numpy_helper.from_array(big(5), "inner")])  # fmt: skip
    other = helper.make_graph(
        [n("Constant", [], ["k"], value=numpy_helper.from_array(big(6))), n("Sub", ["x", "k"], ["e"])], "else", [],
        [helper.make_tensor_value_info("e", FLOAT, None)],
    )  # fmt: skip
    nodes = [n("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    model = graph(nodes, {"x": (FLOAT, [40, 40]), "c": (BOOL, [])}, [f"y:{FLOAT}"])
    path = put(model, tmp_path / "m.onnx")
    inner = onnx.load(path)
    onnx.external_data_helper.convert_model_to_external_data(
        inner, True, "w.bin", 0, convert_attribute=True
    )
    onnx.save_model(inner, str(tmp_path / "external.onnx"))
    for source in (path, tmp_path / "external.onnx"):
        made = subject(source, store, {"x": big(7), "c": np.array(True)})
        np.testing.assert_array_equal(made.values[made.index.by_name["y"]], big(7) + big(5))
        made = subject(source, store, {"x": big(7), "c": np.array(False)})
        np.testing.assert_array_equal(made.values[made.index.by_name["y"]], big(7) - big(6))


def breaks(path: Path, store: Store, *words: str) -> None:
    with pytest.raises(ModelProblem) as caught:
        load.import_model(path, store)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith((".", "?"))
    for word in words:
        assert word in sentence


def test_what_is_not_a_model_is_one_sentence(store: Store, tmp_path: Path) -> None:
    breaks(tmp_path / "none.onnx", store, "no file")
    breaks(tmp_path, store, "folder")
    for name, data in {
        "empty": b"",
        "text": b"hello, this is no model",
        "zip": b"PK\x03\x04" + bytes(64),
        "zeros": bytes(99),
    }.items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(data)
        breaks(path, store, f"{name}.onnx")
    assert not list(store.models.glob("*.onnx"))


@given(cut=st.integers(0, 1 << 30))
def test_a_truncated_model_is_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    data = product().SerializeToString()
    path = folder / "m.onnx"
    path.write_bytes(data[: cut % len(data)])
    caught = contextlib.nullcontext()
    if len(data) - cut % len(data) >= 32:  # the last bytes are only the header's
        caught = pytest.raises(ModelProblem, match=r"^[^\n]*\.$")
    with contextlib.suppress(ModelProblem), caught:
        load.import_model(path, Store(folder / "s"))


def test_broken_external_data_is_one_sentence(store: Store, tmp_path: Path) -> None:
    path = put(
        product(),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    whole = (tmp_path / "w.bin").read_bytes()
    (tmp_path / "w.bin").write_bytes(whole[:-1])
    breaks(path, store, "w.bin", "cut short")
    (tmp_path / "w.bin").unlink()
    breaks(path, store, "w.bin", f"is not in '{tmp_path}'")
    (tmp_path / "w.bin").mkdir()
    breaks(path, store, "w.bin", "no regular file")
    (tmp_path / "w.bin").rmdir()
    (tmp_path / "w.bin").symlink_to("gone.bin")
    breaks(path, store, "w.bin", "a link to one that is gone")
    outside = tmp_path.parent / f"{tmp_path.name}-outside.bin"
    outside.write_bytes(whole)
    (tmp_path / "w.bin").unlink()
    (tmp_path / "w.bin").symlink_to(outside)
    breaks(path, store, "w.bin", "a link that leads out of")
    cache = tmp_path / "snapshot"
    cache.mkdir()  # as download caches lay files out: links into one folder of blobs
    for name, blob in (("m.onnx", tmp_path / "m.onnx"), ("w.bin", tmp_path / "blob.bin")):
        (cache / name).symlink_to(blob)
    (tmp_path / "blob.bin").write_bytes(whole)
    assert load.import_model(cache / "m.onnx", store).nodes
    for location in ("../w.bin", "/etc/hostname", "a/../../w.bin", "..\\w.bin", "C:\\w.bin"):
        model = onnx.load(path, load_external_data=False)
        for tensor in model.graph.initializer:
            external.make_external(tensor, location, 0, 6400)
        (tmp_path / "evil.onnx").write_bytes(model.SerializeToString())
        breaks(tmp_path / "evil.onnx", store, "outside")


@pytest.mark.parametrize("place", ["a branch", "a branch in a function", "a sparse weight"])
def test_no_link_out_of_the_folder_is_followed_wherever_the_weight_stands(
    store: Store, tmp_path: Path, place: str
) -> None:
    """A file of the user's own that a stranger's link names would be copied into the session, and
    from there into the bundle."""
    (tmp_path / "in").mkdir()
    (tmp_path / "mine.bin").write_bytes(bytes(6400))
    (tmp_path / "in" / "w.bin").symlink_to(tmp_path / "mine.bin")
    weight = TensorProto(name="w", data_type=FLOAT, dims=[40, 40])
    external.make_external(weight, "w.bin", 0, 6400)
    branch = helper.make_graph(
        [n("Add", ["x", "w"], ["z"])], "b", [], [helper.make_empty_tensor_value_info("z")]
    )
    branch.initializer.append(weight)
    other = helper.make_graph(
        [n("Identity", ["x"], ["z"])], "c", [], [helper.make_empty_tensor_value_info("z")]
    )
    chosen = n("If", ["c"], ["y"], then_branch=branch, else_branch=other)
    made = {
        "a branch": chosen,
        "a branch in a function": n("F", ["x", "c"], ["y"], domain="own"),
        "a sparse weight": n("Add", ["x", "w"], ["y"]),
    }
    model = graph([made[place]], {"x": (FLOAT, [40, 40]), "c": (BOOL, [])}, ["y"])
    if place == "a branch in a function":
        opsets = [helper.make_opsetid("", 17)]
        model.functions.append(
            helper.make_function("own", "F", ["x", "c"], ["y"], [chosen], opsets)
        )
        model.opset_import.append(helper.make_opsetid("own", 1))
    if place == "a sparse weight":
        values = TensorProto(name="w", data_type=FLOAT, dims=[1600])
        external.make_external(values, "w.bin", 0, 6400)
        ids = numpy_helper.from_array(np.arange(1600), "ids")
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, ids, [40, 40]))
    (tmp_path / "in" / "m.onnx").write_bytes(model.SerializeToString())
    said = "in a file of its own" if "sparse" in place else "a link that leads out of"
    breaks(tmp_path / "in" / "m.onnx", store, said)


def test_wrong_versions_and_broken_graphs_are_one_sentence(store: Store, tmp_path: Path) -> None:
    model = product()
    model.opset_import[0].version = 999
    (tmp_path / "new.onnx").write_bytes(model.SerializeToString())
    breaks(
        tmp_path / "new.onnx",
        store,
        "opset 999",
        f"the onnx {onnx.__version__} that is installed knows 1 to",
    )
    model = product()
    model.opset_import.append(helper.make_opsetid("own", 1 << 56))
    (tmp_path / "own.onnx").write_bytes(model.SerializeToString())
    breaks(
        tmp_path / "own.onnx",
        store,
        f"imports opset {1 << 56} of the domain 'own', and there is no such opset",
    )
    model.opset_import[1].version = 1
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", -1)]
    model.functions.append(
        helper.make_function(
            "own", "F", ["x"], ["y"], [helper.make_node("Neg", ["x"], ["y"])], imports
        )
    )
    (tmp_path / "function.onnx").write_bytes(model.SerializeToString())
    breaks(tmp_path / "function.onnx", store, "imports opset -1 of the domain 'own'")
    model = product()
    model.ir_version = 99
    (tmp_path / "ir.onnx").write_bytes(model.SerializeToString())
    breaks(
        tmp_path / "ir.onnx",
        store,
        "IR version 99",
        f"the onnx {onnx.__version__} that is installed knows up to",
    )
    del model.opset_import[:]
    (tmp_path / "no.onnx").write_bytes(model.SerializeToString())
    breaks(tmp_path / "no.onnx", store, "opset")
    model = product()
    model.graph.initializer[0].raw_data = b"123"
    (tmp_path / "raw.onnx").write_bytes(model.SerializeToString())
    breaks(tmp_path / "raw.onnx", store, "'w'", "3 bytes")
    model = product()
    model.graph.node[0].input[0] = "nobody"
    (tmp_path / "dangling.onnx").write_bytes(model.SerializeToString())
    breaks(tmp_path / "dangling.onnx", store, "'nobody'")
    model = product()
    model.graph.node[1].output[0] = "y"
    (tmp_path / "twice.onnx").write_bytes(model.SerializeToString())
    breaks(tmp_path / "twice.onnx", store, "twice")
    model = product()
    model.graph.node[0].input[0] = "z"
    (tmp_path / "cycle.onnx").write_bytes(model.SerializeToString())
    breaks(tmp_path / "cycle.onnx", store, "cycle")


def test_unsorted_nodes_are_sorted_and_independent_ones_keep_their_order(
    store: Store, tmp_path: Path
) -> None:
    nodes = [
        n("Neg", ["b"], ["c"], "3"),
        n("Abs", ["x"], ["a"], "1"),
        n("Relu", ["a"], ["b"], "2"),
        n("Sin", ["x"], ["d"], "4"),
    ]
    model, done = imported(
        graph(nodes, {"x": (FLOAT, [2])}, [f"c:{FLOAT}", f"d:{FLOAT}"]), store, tmp_path
    )
    assert [node.name for node in model.index.nodes] == ["1", "2", "3", "4"]
    assert any("sorted" in note for note in done.notes)


def test_weights_listed_as_inputs_are_weights(store: Store, tmp_path: Path) -> None:
    model = product()
    for name in ("w", "v"):
        model.graph.input.append(helper.make_tensor_value_info(name, FLOAT, [40, 40]))
    stored, done = imported(model, store, tmp_path)
    assert [stored.index.tensors[i].name for i in stored.index.inputs] == ["x"]
    assert stored.index.tensors[stored.index.by_name["w"]].kind == "weight"
    assert any("old IR" in note for note in done.notes)


def test_names_metadata_and_versions_survive(store: Store, tmp_path: Path) -> None:
    hostile = [
        "",
        "",
        "same",
        "same",
        "[/encoder]",
        "a\nb\t\x1b[31m",
        "'; rm -rf /",
        "名前🦊",
        "x" * 5000,
    ]
    nodes = [n("Neg", [f"t{i}"], [f"t{i + 1}"], name) for i, name in enumerate(hostile)]
    model = graph(
        nodes,
        {"t0": (FLOAT, [2])},
        [f"t9:{FLOAT}"],
        producer_name="me",
        producer_version="7",
        opset=15,
    )
    helper.set_model_props(model, {"author": "someone", "": "empty"})
    stored, _ = imported(model, store, tmp_path)
    assert [node.name for node in stored.index.nodes] == hostile
    assert stored.proto.producer_name == "me"
    assert {p.key: p.value for p in stored.proto.metadata_props} == {
        "author": "someone",
        "": "empty",
    }
    assert [(o.domain, o.version) for o in stored.proto.opset_import] == [("", 15)]
    assert len(set(stored.engine_names)) == len(hostile)
    assert all(stored.engine_names)
    assert stored.engine_names[4:] == tuple(hostile[4:])


def test_ids_are_inputs_then_weights_then_outputs(sort: object) -> None:
    index = sort.index  # type: ignore[attr-defined]
    kinds = [t.kind for t in index.tensors]
    assert kinds == sorted(kinds, key=["input", "weight", "node"].index)
    assert [t.id for t in index.tensors] == list(range(len(kinds)))
    assert len(index.nodes) == 247
    for node in index.nodes:
        assert all(index.tensors[t].producer < node.id for t in node.reads)
        assert all(index.tensors[t].producer == node.id for t in node.outputs)


def test_shape_like_follows_shapes_not_data(sort: object, shapes: object) -> None:
    index = sort.index  # type: ignore[attr-defined]
    marked = {index.tensors[t].name for t in index.shape_like}
    assert not marked & {"ids", "mask"}
    assert "/b.0/Shape_output_0" in marked
    assert "/b.0/Concat_output_0" in marked
    for t in index.shape_like:
        assert index.tensors[t].dtype in ("int64", "int32", "bool")
        assert index.tensors[t].kind == "node"
    # every Reshape's target is marked, or a weight
    for node in index.nodes:
        if node.op in ("Reshape", "Expand"):
            target = index.tensors[node.inputs[1]]
            assert target.kind == "weight" or target.id in index.shape_like
    pads = shapes.index  # type: ignore[attr-defined]
    assert {"/pad/Concat_output_0", "/pad/Cast_output_0"} <= {
        pads.tensors[t].name for t in pads.shape_like
    }


def test_shape_like_of_gather_depends_on_its_data(store: Store, tmp_path: Path) -> None:
    nodes = [
        n("Cast", ["ids"], ["tokens"], to=INT64), n("Gather", ["table", "tokens"], ["embedded"]),
        n("Shape", ["embedded"], ["shape"]), n("Gather", ["shape", "which"], ["dim"]), n("Identity", ["pick"], ["which"]),
        n("Cast", ["dim"], ["real"], to=FLOAT), n("Mul", ["real", "half"], ["scaled"]), n("Floor", ["scaled"], ["floored"]),
        n("Cast", ["floored"], ["size"], to=INT64), n("Concat", ["size", "minus"], ["target"], axis=0),
        n("Reshape", ["embedded", "target"], ["y"]), n("Equal", ["tokens", "zero"], ["mask"]),
        n("Where", ["mask", "w0", "w1"], ["z"]),
    ]  # fmt: skip
    weights = {"table": big(1), "half": np.float32(0.5), "minus": np.array([-1]), "zero": np.int64(0), "w0": np.float32(0),
               "w1": np.float32(1)}  # fmt: skip
    inputs = {"ids": (TensorProto.INT32, [6]), "pick": (INT64, [1])}
    model, _ = imported(
        graph(nodes, inputs, [f"y:{FLOAT}", f"z:{FLOAT}"], weights), store, tmp_path
    )
    names = {model.index.tensors[t].name for t in model.index.shape_like}
    assert names == {"shape", "dim", "which", "size", "target"}


def test_bodies_capture_and_their_sinks_count(store: Store, tmp_path: Path) -> None:
    inner = helper.make_graph(
        [n("Reshape", ["x", "target"], ["t"])],
        "inner",
        [],
        [helper.make_tensor_value_info("t", FLOAT, None)],
    )
    middle = helper.make_graph([n("If", ["c"], ["m"], then_branch=inner, else_branch=inner)], "middle", [],
                               [helper.make_tensor_value_info("m", FLOAT, None)])  # fmt: skip
    plain = helper.make_graph(
        [n("Neg", ["x"], ["e"])], "plain", [], [helper.make_tensor_value_info("e", FLOAT, None)]
    )
    nodes = [
        n("Abs", ["given"], ["target"]),
        n("Not", ["b"], ["c"]),
        n("If", ["c"], ["y"], "if", then_branch=middle, else_branch=plain),
    ]
    inputs = {"x": (FLOAT, [4]), "given": (INT64, [2]), "b": (BOOL, [])}
    model, _ = imported(graph(nodes, inputs, [f"y:{FLOAT}"]), store, tmp_path)
    index = model.index
    assert {index.tensors[t].name for t in index.nodes[2].captures} == {"x", "target", "c"}
    assert {index.tensors[t].name for t in index.shape_like} == {"target", "c"}


def test_seen_types_replace_declared_ones(sort: object) -> None:
    index = sort.index  # type: ignore[attr-defined]
    seen = {t: (v.dtype.name, v.shape) for t, v in sort.values.items()}  # type: ignore[attr-defined]
    updated = load.with_seen(index, seen)
    assert set(updated.shape_like) == set(index.shape_like)
    for t, value in sort.values.items():  # type: ignore[attr-defined]
        assert updated.tensors[t].shape == value.shape
        assert updated.tensors[t].bytes == value.nbytes
        assert updated.tensors[t].dtype == index.tensors[t].dtype or not index.tensors[t].dtype


def test_odd_weights_are_read_back(store: Store, tmp_path: Path) -> None:
    half = big(1).astype(ml_dtypes.bfloat16)
    packed = helper.make_tensor("nibbles", TensorProto.INT4, [65, 65], np.arange(65 * 65) % 16 - 8)
    flat = np.zeros((50, 50), np.float32)
    flat[3, 4] = 2
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([2.0], np.float32), "sparse"),
        numpy_helper.from_array(np.array([154], np.int64), ""), [50, 50],
    )  # fmt: skip
    weights = {
        "half": half,
        "scalar": np.float32(3),
        "nothing": np.zeros((0, 7), np.float32),
        "flags": np.arange(4000) % 2 == 0,
    }
    model = graph(
        [n("Neg", ["x"], ["y"])],
        {"x": (FLOAT, [2])},
        [f"y:{FLOAT}"],
        weights,
        opset=21,
        ir_version=10,
    )
    model.graph.initializer.append(packed)
    model.graph.sparse_initializer.append(sparse)
    stored, _ = imported(model, store, tmp_path)
    got = {
        name: load.read_weight(stored, stored.index.by_name[name])
        for name in (*weights, "nibbles", "sparse")
    }
    for name, expected in weights.items():
        assert got[name].dtype == expected.dtype
        assert got[name].shape == expected.shape
        np.testing.assert_array_equal(got[name], expected)
    np.testing.assert_array_equal(
        got["nibbles"].astype(int).reshape(-1), np.arange(65 * 65) % 16 - 8
    )
    np.testing.assert_array_equal(got["sparse"], flat)
    assert stored.index.tensors[stored.index.by_name["half"]].dtype == "bfloat16"


def test_a_damaged_store_is_one_sentence(store: Store, tmp_path: Path) -> None:
    digest = load.import_model(put(product(), tmp_path / "m.onnx"), store).digest
    path = store.models / f"{digest}.onnx"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        Damaged, match=rf"models/{digest}.onnx' is damaged: its bytes are not those"
    ):
        load.load(store, digest)
    with pytest.raises(Damaged, match=rf"models/{'0' * 64}.onnx' is gone"):
        load.load(store, "0" * 64)
    assert load.import_model(tmp_path / "m.onnx", store).digest == digest
    assert load.load(store, digest).index.nodes, "taken in again, it is whole again"


@pytest.mark.parametrize("hurt", ["cut", "gone"])
def test_weights_that_are_cut_short_are_named(store: Store, tmp_path: Path, hurt: str) -> None:
    weights = {"w": np.ones((64, 64), np.float32)}
    model = graph(
        [n("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, [1, 64])}, [f"y:{FLOAT}"], weights
    )
    digest = load.import_model(put(model, tmp_path / "m.onnx"), store).digest
    (file,) = store.weights.iterdir()
    whole = file.read_bytes()
    file.unlink()
    if hurt == "cut":
        file.write_bytes(whole[:-4])
    said = (
        "is cut short: it ends at byte 16380, and 16384 belong in it"
        if hurt == "cut"
        else "is gone"
    )
    with pytest.raises(Damaged, match=f"models/weights/{file.name}' {said}"):
        load.load(store, digest)
    load.import_model(tmp_path / "m.onnx", store)
    assert file.read_bytes() == whole


@pytest.mark.parametrize("where", ["graph", "body", "function"])
def test_what_was_compiled_elsewhere_is_never_loaded(
    store: Store, tmp_path: Path, where: str
) -> None:
    compiled = n(
        "EPContext", ["x"], ["y"], "ctx", domain="com.microsoft", ep_cache_context="engine.plan"
    )
    model = graph([compiled], {"x": (FLOAT, [2])}, [f"y:{FLOAT}"])
    if where == "body":
        inner = helper.make_graph(
            [compiled], "b", [], [helper.make_tensor_value_info("y", FLOAT, [2])]
        )
        choice = n("If", ["c"], ["y"], "if", then_branch=inner, else_branch=inner)
        model = graph([choice], {"x": (FLOAT, [2]), "c": (TensorProto.BOOL, [])}, [f"y:{FLOAT}"])
    if where == "function":
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        model.functions.append(helper.make_function("mine", "F", ["x"], ["y"], [compiled], opsets))
        model.graph.node[0].CopyFrom(n("F", ["x"], ["y"], "f", domain="mine"))
    with pytest.raises(
        ModelProblem,
        match=r"compiled elsewhere \(the EPContext node 'ctx'\), which is never loaded",
    ):
        load.import_model(put(model, tmp_path / "m.onnx"), store)
    data = model.SerializeToString()
    digest = hashlib.sha256(data).hexdigest()
    store.models.mkdir(parents=True, exist_ok=True)
    (store.models / f"{digest}.onnx").write_bytes(data)
    with pytest.raises(ModelProblem, match="which is never loaded"):
        load.load(store, digest)


def test_a_model_of_too_many_nodes_is_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "MOST_NODES", 1)
    with pytest.raises(
        ModelProblem, match=r"'m.onnx' has \d+ nodes, and no more than 1 can be searched"
    ):
        load.import_model(put(product(), tmp_path / "m.onnx"), store)


def test_failed_shape_inference_is_tolerated(store: Store, tmp_path: Path) -> None:
    nodes = [n("Strange", ["x"], ["y"], domain="custom.domain"), n("Neg", ["y"], ["z"])]
    model = graph(nodes, {"x": (FLOAT, [2])}, [f"z:{FLOAT}"])
    model.opset_import.append(helper.make_opsetid("custom.domain", 1))
    stored, _ = imported(model, store, tmp_path)
    assert stored.index.tensors[stored.index.by_name["y"]].dtype == ""
