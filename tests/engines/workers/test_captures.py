"""Captures: on demand, within a budget, exact, and never trusted to be there."""

import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from onnx import helper

from narrowdown.engines.graph import load
from narrowdown.engines.probe import Describe
from narrowdown.engines.workers import captures
from narrowdown.engines.workers.captures import ReferenceFailed
from narrowdown.wizard.demo import MODELS

REFERENCE = "onnxruntime"


def files(session) -> list[Path]:
    return sorted(session.store.captures.glob("*/*/*.npy"))


def named(tensors) -> set[str]:
    """What the files of these tensors are called."""
    return {str(t) for t in tensors}


def get(session, tensors, sample="real:0/0", reference=REFERENCE):
    model = load.load(session.store, session.model)
    run = captures.Run(reference, session.inputs, sample)
    return captures.capture_values(session.store, model, tensors, run)


@pytest.fixture
def fresh(tmp_path, session_of):
    """A session of its own, as these tests change what is captured."""
    return session_of(tmp_path, MODELS / "shapes_cnn.onnx", MODELS / "shapes_cnn_in.npz")


@given(
    hnp.arrays(
        st.sampled_from(
            [np.float32, np.float16, np.float64, np.int64, np.uint8, np.bool_, np.int32]
        ),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    )
)
def test_an_array_comes_back_as_it_was(tmp_path_factory, value: np.ndarray) -> None:
    path = tmp_path_factory.mktemp("a") / "1.npy"
    captures.write_array(path, value)
    back = captures.read_array(path)
    assert back is not None
    assert (back.dtype, back.shape) == (value.dtype, value.shape)
    assert back.tobytes() == value.tobytes()


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"])
def test_types_that_numpy_lacks_come_back_bit_for_bit(tmp_path: Path, dtype: str) -> None:
    value = np.arange(-8, 8).astype(np.float32).astype(getattr(ml_dtypes, dtype)).reshape(4, 4)
    for name, array in (("a", value), ("b", value[0, 0]), ("c", np.tile(value, (1 << 9, 1 << 9)))):
        captures.write_array(tmp_path / name, np.asarray(array))
        back = captures.read_array(tmp_path / name)
        assert back is not None
        assert (back.dtype, back.shape) == (array.dtype, array.shape)
        assert np.asarray(back).tobytes() == np.asarray(array).tobytes()


def test_text_comes_back(tmp_path: Path) -> None:
    captures.write_array(tmp_path / "s", np.array(["Füße", "", "a"], object))
    assert captures.read_array(tmp_path / "s").tolist() == ["Füße", "", "a"]


def test_the_first_of_a_folder_makes_it_and_one_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captures.write_array(tmp_path / "new/er/1.npy", np.arange(3))
    assert [path.name for path in (tmp_path / "new/er").iterdir()] == ["1.npy"]
    monkeypatch.setattr(
        captures.Sealed, "seal", lambda _: (_ for _ in ()).throw(OSError("no room"))
    )
    with pytest.raises(OSError, match="no room"):
        captures.write_array(tmp_path / "new/er/2.npy", np.arange(3))
    assert [path.name for path in (tmp_path / "new/er").iterdir()] == ["1.npy"]


def test_large_arrays_are_mapped_and_none_can_be_written(tmp_path: Path) -> None:
    captures.write_array(tmp_path / "big", np.zeros((1024, 1024), np.float32))
    captures.write_array(tmp_path / "small", np.zeros(4, np.float32))
    big, small = captures.read_array(tmp_path / "big"), captures.read_array(tmp_path / "small")
    assert isinstance(big, np.memmap)
    assert not isinstance(small, np.memmap)
    for array in (big, small):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_torn_file_is_no_capture(tmp_path: Path) -> None:
    captures.write_array(tmp_path / "x", np.arange(1000.0))
    whole = (tmp_path / "x").read_bytes()
    for length in (0, 5, 100, len(whole) - 13):  # what is behind the data is its checksum
        (tmp_path / "x").write_bytes(whole[:length])
        assert captures.read_array(tmp_path / "x") is None


def test_a_small_array_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    path, one, two = tmp_path / "x", np.arange(4.0), np.arange(4.0) + 1
    captures.write_array(path, one)
    assert captures.read_array(path).tolist() == one.tolist()
    captures.write_array(path, two)
    assert captures.read_array(path).tolist() == two.tolist()
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    assert captures.read_array(path) is None
    path.write_bytes(whole)
    assert captures.read_array(path).tolist() == two.tolist()
    path.unlink()
    assert captures.read_array(path) is None


def test_describe_captures_every_tensor_once(fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = [t.id for t in fresh.index.tensors if t.kind == "node"]
    assert {f.stem for f in files(fresh)} == named(inner)
    monkeypatch.setattr(
        captures._Captures, "_run_model", lambda *_: pytest.fail("the reference ran once more")
    )
    assert len(get(fresh, inner, "real:0")) == len(inner)


def test_describe_tells_the_shapes_of_the_run(fresh) -> None:
    values = get(fresh, [t.id for t in fresh.index.tensors if t.kind != "weight"], "real:0")
    for t, value in values.items():
        tensor = fresh.index.tensors[t]
        assert (tensor.dtype, tensor.shape, tensor.bytes) == (
            value.dtype.name,
            value.shape,
            value.nbytes,
        )


def test_what_was_evicted_is_made_again_the_same(fresh) -> None:
    inner = [t.id for t in fresh.index.tensors if t.kind == "node"]
    before = {t: a.copy() for t, a in get(fresh, inner).items()}
    for file in files(fresh):
        file.unlink()
    for t, value in get(fresh, inner).items():
        assert value.tobytes() == before[t].tobytes()


def test_rows_and_feeds_are_kept_apart(fresh) -> None:
    last = fresh.index.outputs[0]
    whole, row = get(fresh, [last], "real:0")[last], get(fresh, [last], "real:0/3")[last]
    assert row.shape[0] == 1
    np.testing.assert_allclose(whole[3:4], row, rtol=1e-4, atol=1e-5)


def test_for_an_inner_tensor_no_more_is_computed_than_leads_to_it(
    fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = [
        t.id for t in fresh.index.tensors if t.kind == "node" and t.id not in fresh.index.outputs
    ]
    before = get(fresh, inner)
    real, built = captures.build, []
    monkeypatch.setattr(
        captures, "build", lambda engine, request: built.append(request) or real(engine, request)
    )
    monkeypatch.setattr(captures._Captures, "find_cheap", lambda *_: [])
    for t in (inner[0], inner[len(inner) // 2]):
        for file in files(fresh):
            file.unlink()
        built.clear()
        assert get(fresh, [t])[t].tobytes() == before[t].tobytes()
        leading = [fresh.index.nodes[n].op for n in fresh.index.ancestors([t])]
        assert [[n.op_type for n in request.model.graph.node] for request in built] == [leading]


def test_another_reference_has_captures_of_its_own(fresh) -> None:
    last = fresh.index.outputs[0]
    one, other = (
        get(fresh, [last])[last],
        get(fresh, [last], reference="fake:fault=wrong,size=1")[last],
    )
    assert not np.array_equal(one, other)
    assert np.array_equal(get(fresh, [last])[last], one)


def test_of_a_sample_that_only_a_verdict_is_wanted_of_the_outputs_are_kept(fresh) -> None:
    before = set(files(fresh))
    get(fresh, fresh.index.outputs, "real:0/3")
    assert {f.stem for f in set(files(fresh)) - before} == named(fresh.index.outputs)
    inner = [t.id for t in fresh.index.tensors if t.kind == "node"]
    get(fresh, inner[:1], "real:0/3")
    assert {f.stem for f in set(files(fresh)) - before} == named(inner), (
        "one of them is wanted: all others are next"
    )


def edited(session, folder: Path, edit) -> "SimpleNamespace":
    model = onnx.load(MODELS / "shapes_cnn.onnx")
    edit(model)
    onnx.save(model, folder / "edited.onnx")
    digest = load.import_model(folder / "edited.onnx", session.store).digest
    index = load.load(session.store, digest).index
    return SimpleNamespace(store=session.store, model=digest, inputs=session.inputs, index=index)


def rename(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        node.name, node.doc_string = f"other/{node.name}", "cleaned"
    model.graph.node.append(helper.make_node("Neg", [model.graph.input[0].name], ["dead"], "dead"))
    model.graph.output.append(onnx.ValueInfoProto(name="dead"))


def test_another_model_shares_nothing(fresh, tmp_path: Path) -> None:
    cleaned = edited(fresh, tmp_path, rename)
    get(fresh, [fresh.index.outputs[0]])
    before = set(files(fresh))
    get(cleaned, [cleaned.index.outputs[0]])
    assert set(files(fresh)) > before


@pytest.mark.parametrize("limit", [0, 1, 200_000])
def test_the_budget_holds_and_never_fails(fresh, monkeypatch, limit: int) -> None:
    monkeypatch.setenv("NARROWDOWN_CAPTURE_BYTES", str(limit))
    inner = [t.id for t in fresh.index.tensors if t.kind == "node"]
    for sample in ("real:0/1", "real:0/2", "real:0"):
        values = get(fresh, inner, sample)
        assert len(values) == len(inner)
        assert all(np.isfinite(v).all() for v in values.values() if v.dtype.kind == "f")
        assert sum(f.stat().st_size for f in files(fresh)) <= limit


def test_a_disk_that_is_nearly_full_is_left_to_the_others(fresh, monkeypatch) -> None:
    """What finds no room is given and not kept; the journal and the models need the rest of the
    disk."""
    inner = [t.id for t in fresh.index.tensors if t.kind == "node"]
    kept = {file.name for file in files(fresh)}
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: SimpleNamespace(total=1 << 40, free=100 << 20)
    )
    assert len(get(fresh, inner, "real:0/1")) == len(inner)
    assert {file.name for file in files(fresh)} == kept
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: SimpleNamespace(total=1 << 40, free=1 << 30)
    )
    get(fresh, inner, "real:0/1")
    assert sum(file.parent.name.startswith("real_0_1") for file in files(fresh)) == len(inner)


def test_the_least_recently_used_go_first(fresh, monkeypatch) -> None:
    inner = [t.id for t in fresh.index.tensors if t.kind == "node"]
    old = time.time() - 1000
    for file in files(fresh):
        os.utime(file, (old, old))
    used = sorted(inner, key=lambda t: fresh.index.tensors[t].bytes)[:5]
    get(fresh, used, "real:0")
    total = sum(f.stat().st_size for f in files(fresh))
    monkeypatch.setenv("NARROWDOWN_CAPTURE_BYTES", str(total // 2))
    monkeypatch.setattr(captures, "_spent", {})
    get(fresh, [fresh.index.outputs[0]], "real:0/0")
    left = {(f.parent.name, f.stem) for f in files(fresh)}
    folder = next(f.parent.name for f in files(fresh) if f.parent.name.startswith("real_0-"))
    assert {(folder, name) for name in named(used)} <= left
    assert sum(f.stat().st_size for f in files(fresh)) <= total // 2


def test_a_full_disk_costs_time_only(fresh, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for file in files(fresh):
        file.unlink()
    monkeypatch.setattr(captures, "write_array", full)
    inner = [t.id for t in fresh.index.tensors if t.kind == "node"]
    assert len(get(fresh, inner)) == len(inner)
    assert files(fresh) == []


def test_a_model_of_large_tensors_is_captured_in_batches(fresh, monkeypatch) -> None:
    for file in files(fresh):
        file.unlink()
    inner = [t.id for t in fresh.index.tensors if t.kind == "node"]
    largest = max(fresh.index.tensors[t].bytes for t in inner)
    monkeypatch.setattr(captures, "HELD", largest)
    batches = []
    real = captures._Captures._run_model

    def spy(self, marks, **how):
        batches.append(sum(fresh.index.tensors[t].bytes for t in marks))
        return real(self, marks, **how)

    monkeypatch.setattr(captures._Captures, "_run_model", spy)
    assert (
        fresh.run(
            Describe(model=fresh.model, sample="real:0", inputs=fresh.inputs, reference=REFERENCE)
        ).status
        == "ok"
    )
    assert len(batches) > 3
    assert max(batches) <= 2 * largest  # the sizes of some are a guess before the first run
    assert {f.stem for f in files(fresh)} == named(inner)


def test_a_model_of_many_nodes_is_built_few_times_for_its_values(
    tmp_path: Path, session_of, monkeypatch
) -> None:
    """As many as are marked at once, whoever the reference is."""
    monkeypatch.setattr(captures, "_MOST_MARKS", 100)
    count = 200
    nodes = [
        helper.make_node("Neg", [f"t{i}" if i else "x"], [f"t{i + 1}"]) for i in range(count + 1)
    ]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2])
        for name in ("x", f"t{count + 1}")
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "m.onnx",
    )
    np.savez(tmp_path / "in.npz", x=np.ones(2, np.float32))
    marked, known = [], captures._Captures._run_model
    monkeypatch.setattr(
        captures._Captures,
        "_run_model",
        lambda self, marks, **how: marked.append(len(marks)) or known(self, marks, **how),
    )
    session = session_of(tmp_path / "s", tmp_path / "m.onnx", tmp_path / "in.npz")
    assert marked == [0, count // 2, count // 2]
    marked.clear()
    session.ok(
        Describe(model=session.model, sample="real:0", inputs=session.inputs, reference="reference")
    )
    assert marked == [0, count // 2, count // 2]


def test_sizes_that_nothing_tells_do_not_make_a_run_of_each_tensor(
    tmp_path, session_of, monkeypatch
) -> None:
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(30)]
    ends = [helper.make_tensor_value_info(name, 1, ["a", "b", "c"]) for name in ("t0", "t30")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "m.onnx",
    )
    np.savez(tmp_path / "in.npz", t0=np.ones((1, 64, 256), np.float32))
    session = session_of(tmp_path / "s", tmp_path / "m.onnx", tmp_path / "in.npz")
    shutil.rmtree(session.store.captures, ignore_errors=True)
    monkeypatch.setattr(captures, "HELD", 1 << 20)
    monkeypatch.setattr(captures._Captures, "_inferred_sizes", {})
    runs = []
    real = captures._Captures._run_model

    def spy(self, marks, **how):
        runs.append(len(marks))
        return real(self, marks, **how)

    monkeypatch.setattr(captures._Captures, "_run_model", spy)
    probe = Describe(
        model=session.model, sample="real:0", inputs=session.inputs, reference=REFERENCE
    )
    assert session.run(probe).status == "ok"
    assert sum(runs) == 29
    assert len(runs) == 4  # the outputs alone, eight at first, then what fits into one run


@pytest.mark.parametrize("small", [True, False])
def test_what_is_not_asked_for_is_captured_only_where_it_takes_little(
    fresh, monkeypatch, small: bool
) -> None:
    model = load.load(fresh.store, fresh.model)
    made = [t for t in model.index.tensors if t.kind == "node"]
    room = captures.budget_bytes() // 100
    size = room // len(made) * (1 if small else 2)
    monkeypatch.setattr(captures._Captures, "_estimate_size", lambda *_: size)
    before = len(files(fresh))  # of another sample
    get(fresh, [made[0].id])
    assert len(files(fresh)) - before == (len(made) if small else 1)


def test_a_reference_that_cannot_run_says_so(fresh) -> None:
    with pytest.raises(ReferenceFailed, match="fake"):
        get(fresh, [fresh.index.outputs[0]], reference="fake:fault=error")


def test_session_files_hold_no_pickle(fresh) -> None:
    captures.write_array(fresh.root / "x.npy", np.array(["a"], object))
    np.load(fresh.root / "x.npy", allow_pickle=False)
