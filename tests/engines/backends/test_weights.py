"""Converted weights in memory: the same bits as from files, each once in a process, and files where
memory will not do."""

import os
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.backends.base import BuildRequest, EngineFault
from narrowdown.engines.backends.builds import build, clear_all
from narrowdown.engines.backends.emulate.engine import make as make_emulate
from narrowdown.engines.backends.onnxruntime import engine, weights
from narrowdown.engines.cores import count_cores
from narrowdown.engines.graph import converted, external
from narrowdown.engines.graph.emulate import emulate_precision
from narrowdown.engines.graph.typed import to_precision
from narrowdown.engines.spec import parse

from ...patience import allow

FLOAT = TensorProto.FLOAT
HALF, WIDE = np.dtype(np.float16), np.dtype(np.float32)
SIZES = {
    "Conv": [(16, 8, 3, 3), (16,)], "ConvTranspose": [(8, 16, 3, 3), (16,)], "Gemm": [(512, 64), (64,)],
    "MatMul": [(8, 8, 64)], "LSTM": [(1, 64, 8), (1, 64, 16), (1, 128)], "Gather": [(64, 64)], "Add": [(8, 1, 64)],
    "PRelu": [(8, 1, 1)], "BatchNormalization": [(8,), (8,), (8,), (8,)], "LayerNormalization": [(64,), (64,)],
}  # fmt: skip
FED = {
    "Conv": (1, 8, 8, 8), "ConvTranspose": (1, 8, 8, 8), "Gemm": (2, 512), "LSTM": (5, 2, 8), "PRelu": (1, 8, 8, 8),
    "BatchNormalization": (1, 8, 8, 8), "MatMul": (8, 2, 8),
}  # fmt: skip
ATTRIBUTES: dict[str, dict[str, object]] = {"LSTM": {"hidden_size": 16}}


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    clear_all()


def model_of(folder: Path, op: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """One node of the operator, whose weights lie outside, all of them behind one another in a
    file."""
    rng, at, tensors = np.random.default_rng(0), 0, []
    (folder / "weights").mkdir(exist_ok=True)
    with (folder / "weights/w.bin").open("wb") as file:
        for i, size in enumerate(SIZES[op]):
            drawn = np.abs(rng.standard_normal(size, np.float32))
            file.write(drawn.tobytes())
            tensors.append(TensorProto(name=f"w{i}", data_type=FLOAT, dims=size))
            external.make_external(tensors[-1], "weights/w.bin", at, drawn.nbytes)
            at += drawn.nbytes
    feeds = {"x": rng.standard_normal(FED.get(op, (2, 8, 8)), np.float32)}
    names = ["x", *(t.name for t in tensors)]
    if op == "Gather":
        feeds, names = {"x": np.array([3, 60, 3])}, ["w0", "x"]
    if op == "LayerNormalization":
        feeds = {"x": rng.standard_normal((2, 64), np.float32)}
    if op == "Add":
        feeds = {"x": rng.standard_normal((8, 2, 64), np.float32)}
    kind = helper.np_dtype_to_tensor_dtype(feeds["x"].dtype)
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **ATTRIBUTES.get(op, {}))], "g",
        [helper.make_tensor_value_info("x", kind, feeds["x"].shape)], [helper.make_tensor_value_info("y", FLOAT, None)], tensors,
    )  # fmt: skip
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ), feeds


def count_files(folder: Path) -> int:
    return len(list((folder / "weights").iterdir()))


@pytest.mark.parametrize("op", SIZES)
@pytest.mark.parametrize("chain", [(HALF,), (HALF, WIDE)], ids=["halves", "rounded"])
def test_bits_are_those_of_the_files(
    op: str, chain: tuple[np.dtype, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, feeds = model_of(tmp_path, op)
    for tensor in model.graph.initializer:
        converted.convert_weight(tensor, *chain)
    if chain == (HALF,):
        feeds = {n: v.astype(np.float16) if v.dtype == WIDE else v for n, v in feeds.items()}
        for value in (*model.graph.input, *model.graph.output):
            if value.type.tensor_type.elem_type == FLOAT:
                value.type.tensor_type.elem_type = TensorProto.FLOAT16
    got = []
    for room, files in ((1 << 30, 1), (0, 2)):
        monkeypatch.setattr(weights.memory, "room", lambda room=room: room)
        session = engine.Session(model, str(tmp_path), engine.Settings())
        assert (count_files(tmp_path) > 1) == (files > 1)
        got.append([session.run(feeds)["y"].tobytes() for _ in range(2)])
        session.close()
        clear_all()
    assert got[0] == got[1]
    assert got[0][0] == got[0][1]


def test_sessions_share_a_weight_and_the_last_one_takes_it_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    known = converted.read
    monkeypatch.setattr(weights.converted, "read", lambda *of: made.append(of) or known(*of))
    model, feeds = model_of(tmp_path, "Gemm")
    emulated = make_emulate(parse("emulate:precision=fp16"))
    first, second = (emulated.build(BuildRequest(model, str(tmp_path))) for _ in range(2))
    assert len(made) == len(model.graph.initializer)
    assert weights.held() == sum(4 * int(np.prod(size)) for size in SIZES["Gemm"])
    wanted = first.run(feeds)["y"].tobytes()
    first.close()
    clear_all()
    assert weights.held() > 0, "the second session has them"
    assert second.run(feeds)["y"].tobytes() == wanted
    second.close()
    assert weights.held() == 0


def test_weights_wait_for_the_next_session_while_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    known = converted.read
    monkeypatch.setattr(weights.converted, "read", lambda *of: made.append(of) or known(*of))
    rounded = emulate_precision(model_of(tmp_path, "Gemm")[0], "fp16", ())
    size, cores = sum(4 * int(np.prod(shape)) for shape in SIZES["Gemm"]), count_cores()
    monkeypatch.setattr(weights.memory, "room", lambda: 2 * cores * size)
    for _ in range(2):
        weights.make(rounded, str(tmp_path))
        assert len(made) == 2
    monkeypatch.setattr(weights.memory, "room", lambda: 2 * cores * size // 4)
    other = emulate_precision(model_of(tmp_path, "Conv")[0], "fp16", ())
    weights.make(other, str(tmp_path))
    assert weights.held() < size, "what there is no room for any more goes"


def test_what_a_session_has_needs_no_room_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = model_of(tmp_path, "Gemm")
    rounded = emulate_precision(model, "fp16", ())
    free = 2 * count_cores() * sum(4 * int(np.prod(size)) for size in SIZES["Gemm"])
    monkeypatch.setattr(weights.memory, "room", lambda: free - 8 * count_cores())
    assert not weights.make(rounded, str(tmp_path))
    monkeypatch.setattr(weights.memory, "room", lambda: free)
    first = weights.make(rounded, str(tmp_path))
    monkeypatch.setattr(weights.memory, "room", lambda: 0)
    again = weights.make(rounded, str(tmp_path))
    assert [again.get("w0"), again.get("w1")] == [first["w0"], first["w1"]]


def test_the_same_bytes_may_have_two_shapes(tmp_path: Path) -> None:
    model, _ = model_of(tmp_path, "Gemm")
    other = model.graph.initializer.add()
    other.CopyFrom(model.graph.initializer[0])
    other.name, other.dims[:] = "flat", [512 * 64]
    for tensor in model.graph.initializer:
        converted.convert_weight(tensor, HALF, WIDE)
    shapes = {name: value.shape() for name, value in weights.make(model, str(tmp_path)).items()}
    assert shapes == {"w0": [512, 64], "w1": [64], "flat": [512 * 64]}


def test_one_weight_of_a_block_is_made_alone(tmp_path: Path) -> None:
    model, _ = model_of(tmp_path, "Gemm")
    rounded = emulate_precision(model, "fp16", ())
    del rounded.graph.initializer[1]
    values = weights.make(rounded, str(tmp_path))
    assert list(values) == ["w0"]
    assert weights.held() == 4 * 512 * 64


def test_a_weight_may_be_an_output_too(tmp_path: Path) -> None:
    model, feeds = model_of(tmp_path, "Gemm")
    model.graph.output.append(helper.make_tensor_value_info("w1", FLOAT, SIZES["Gemm"][1]))
    for tensor in model.graph.initializer:
        converted.convert_weight(tensor, HALF, WIDE)
    session = engine.Session(model, str(tmp_path), engine.Settings())
    exact = np.fromfile(tmp_path / "weights/w.bin", np.float32)[-64:]
    np.testing.assert_array_equal(
        session.run(feeds)["w1"], exact.astype(np.float16).astype(np.float32)
    )


def test_a_weight_of_a_body_has_a_file(tmp_path: Path) -> None:
    model, feeds = model_of(tmp_path, "MatMul")
    inner = TensorProto()
    inner.CopyFrom(model.graph.initializer[0])
    inner.name = "inside"
    out = helper.make_tensor_value_info("out", FLOAT, None)
    bodies = [
        helper.make_graph(
            [helper.make_node("MatMul", ["x", name], ["out"])],
            "b",
            [],
            [out],
            [inner][: name == "inside"],
        )
        for name in ("inside", "w0")
    ]
    graph = helper.make_graph(
        [helper.make_node("If", ["yes"], ["y"], then_branch=bodies[0], else_branch=bodies[1])], "g",
        [model.graph.input[0], helper.make_tensor_value_info("yes", TensorProto.BOOL, [])],
        model.graph.output, model.graph.initializer,
    )  # fmt: skip
    both = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    built = make_emulate(parse("emulate:precision=fp16")).build(BuildRequest(both, str(tmp_path)))
    assert weights.held() == 4 * 8 * 8 * 64
    assert count_files(tmp_path) == 2
    one, other = (
        built.run({**feeds, "yes": np.array(yes)})["y"].tobytes() for yes in (True, False)
    )
    assert one == other, "the same bytes, once from a file"


def test_an_onnx_runtime_that_wants_the_bytes_all_the_same_gets_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, feeds = model_of(tmp_path, "Gemm")
    emulated = make_emulate(parse("emulate:precision=fp16"))
    wanted = emulated.build(BuildRequest(model, str(tmp_path))).run(feeds)["y"].tobytes()
    assert count_files(tmp_path) == 1
    monkeypatch.setattr(weights, "add", lambda *_: None)
    assert emulated.build(BuildRequest(model, str(tmp_path))).run(feeds)["y"].tobytes() == wanted
    assert count_files(tmp_path) > 1


@pytest.mark.parametrize("left", [None, 4096], ids=["gone", "cut short"])
def test_weights_that_are_gone_are_one_sentence(tmp_path: Path, left: int | None) -> None:
    model, _ = model_of(tmp_path, "Gemm")
    if left is None:
        (tmp_path / "weights/w.bin").unlink()
    else:
        os.truncate(tmp_path / "weights/w.bin", left)
    with pytest.raises(
        EngineFault, match=r"The weights file 'weights/w.bin' is missing or cut short"
    ) as caught:
        make_emulate(parse("emulate:precision=fp16")).build(BuildRequest(model, str(tmp_path)))
    assert caught.value.status == "invalid-model"


def test_other_engines_find_a_file_for_each_weight_that_their_model_names(tmp_path: Path) -> None:
    """Those of others, too, which know nothing of converted weights."""
    model, _ = model_of(tmp_path, "Gemm")
    typed, seen = to_precision(model, "fp16", ()), []

    class Other:
        def build(self, request: BuildRequest) -> str:
            seen.extend(
                external.read(t, request.weights_dir) for t in request.model.graph.initializer
            )
            return "built"

    assert build(Other(), BuildRequest(typed, str(tmp_path))) == "built"  # type: ignore[arg-type, comparison-overlap]
    assert [a.dtype for a in seen] == [HALF, HALF]


@pytest.mark.parametrize("op", SIZES)
def test_small_weights_are_handed_over_with_the_model_and_give_the_same_bits(
    op: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, feeds = model_of(tmp_path, op)
    before = model.SerializeToString()
    held = weights.take_inside(model, str(tmp_path))
    sizes = {t.name: external.byte_size(t.data_type, t.dims) for t in model.graph.initializer}
    assert {t.name for t in held.graph.initializer if external.is_external(t)} == {
        name for name, size in sizes.items() if size > 64 << 10
    }
    assert model.SerializeToString() == before  # others hold it
    handed = engine.Session(model, str(tmp_path), engine.Settings()).run(feeds)
    monkeypatch.setattr(weights, "take_inside", lambda model, _: model)
    from_files = engine.Session(model, str(tmp_path), engine.Settings()).run(feeds)
    assert {n: a.tobytes() for n, a in handed.items()} == {
        n: a.tobytes() for n, a in from_files.items()
    }


def test_a_session_opens_no_file_of_small_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = model_of(tmp_path, "Conv")
    made: list[bytes] = []
    monkeypatch.setattr(engine.ort, "InferenceSession", lambda text, *_, **__: made.append(text))
    engine._start_session(model, str(tmp_path), engine.Settings(optimization="all"), False, {})
    assert not any(
        map(external.is_external, onnx.load_model_from_string(made[0]).graph.initializer)
    )


def test_weights_that_are_many_or_cannot_be_read_stay_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = model_of(tmp_path, "BatchNormalization")
    tensor = model.graph.initializer[1]
    external.make_external(
        tensor, "weights/w.bin", 1 << 20, 32
    )  # behind the end, as weights that are given in memory
    held = weights.take_inside(model, str(tmp_path))
    assert [external.is_external(t) for t in held.graph.initializer] == [False, True, False, False]
    monkeypatch.setattr(weights, "_TOGETHER", 127)
    assert weights.take_inside(model, str(tmp_path)) is model
    monkeypatch.undo()
    (tmp_path / "weights/w.bin").unlink()
    assert weights.take_inside(model, str(tmp_path)) is model


def test_a_pipe_in_the_place_of_a_weights_file_is_not_waited_for(tmp_path: Path) -> None:
    """A session that holds one is refused before this; what opens a file waits for none all the
    same."""
    model, _ = model_of(tmp_path, "BatchNormalization")
    (tmp_path / "weights/w.bin").unlink()
    os.mkfifo(tmp_path / "weights/w.bin")
    given: list[onnx.ModelProto] = []
    reading = threading.Thread(
        target=lambda: given.append(weights.take_inside(model, str(tmp_path))), daemon=True
    )
    reading.start()
    reading.join(allow(10))
    assert given == [model]


def test_room_is_looked_for_only_where_a_weight_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = model_of(tmp_path, "Conv")
    for tensor in model.graph.initializer:
        converted.convert_weight(tensor, HALF, WIDE)
    held = weights.make(model, str(tmp_path))
    monkeypatch.setattr(weights, "_find_room", lambda: pytest.fail("nothing is new"))
    again = weights.make(model, str(tmp_path))
    assert held
    assert {name: id(value) for name, value in again.items()} == {
        name: id(value) for name, value in held.items()
    }
