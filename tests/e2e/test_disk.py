"""What a session of a model with big weights takes on the disk, and that all which it keeps can be read without more."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

WIDTH, LAYERS = 1024, 14  # 56 MiB of weights


def chain(folder: Path) -> tuple[Path, Path, int]:
    """Matrices one after another, with a norm in the middle whose squares are beyond FP16: the model, its inputs, the bytes of
    its weights."""
    rng = np.random.default_rng(0)
    nodes, weights, x = [], [numpy_helper.from_array(np.float32(400), "400")], "x"

    def add(op: str, *reads: str, name: str, **attributes: int) -> str:
        nodes.append(helper.make_node(op, list(reads), [name], name=name, **attributes))
        return name

    for i in range(LAYERS):
        drawn = rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5
        weights.append(numpy_helper.from_array(drawn.astype(np.float32), f"w{i}"))
        x = add("MatMul", x, f"w{i}", name=f"m{i}")
        if i == LAYERS // 2:
            large = add("Mul", x, "400", name="large")
            mean = add("ReduceMean", add("Mul", large, large, name="squares"), name="mean", keepdims=1)
            x = add("Div", large, add("Sqrt", mean, name="root"), name="scaled")
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, WIDTH]) for name in ("x", x)]
    graph = helper.make_graph(nodes, "chain", info[:1], info[1:], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=1024)
    np.savez(folder / "in.npz", x=rng.standard_normal((1, WIDTH)).astype(np.float32) * 2)
    return folder / "m.onnx", folder / "in.npz", (folder / "m.data").stat().st_size


def on_disk(folder: Path) -> int:
    """Bytes of the blocks that a folder's files hold; a file of two names counts once."""
    found = {(s.st_dev, s.st_ino): s.st_blocks for s in (p.lstat() for p in folder.rglob("*") if p.is_file())}
    return 512 * sum(found.values())


@pytest.mark.slow
def test_weights_lie_in_a_session_twice_at_most_and_all_it_keeps_is_written_whole(narrowdown, tmp_path: Path) -> None:
    """The way to the workaround; then a resume, a copy of the session elsewhere, an export, and an export of damaged weights."""
    model, inputs, weights = chain(tmp_path)
    place, case = tmp_path / "s", tmp_path / "case"
    ran = narrowdown("run", model, "--engine", "emulate:precision=fp16", "--inputs", inputs, "--session", place)
    assert ran.code == 0, ran.out[-3000:] + ran.err
    assert "overflow" in ran.out
    # The weights, and the model that comes of it, in FP16: in the bundle and, the same file, beside it.
    assert on_disk(place) <= 1.7 * weights, sorted((p.stat().st_size, p) for p in place.rglob("*") if p.is_file())[-6:]
    assert on_disk(place / "artifacts") < weights / 20
    assert (place / "worked-around.onnx").samefile(place / "case/worked-around.onnx")

    before = narrowdown("show", place, "--canonical").out
    assert narrowdown("resume", place).code == 0
    assert narrowdown("show", place, "--canonical").out == before
    assert on_disk(place) <= 1.7 * weights

    moved = tmp_path / "moved"
    shutil.copytree(place, moved)
    shutil.rmtree(place)
    model.with_name("m.data").unlink()
    assert narrowdown("export", moved, "-o", case).code == 0
    for name in ("model", "engine", "worked-around"):
        whole = onnx.load(case / f"{name}.onnx", load_external_data=False)
        onnx.checker.check_model(whole)
        assert {t.data_location for t in whole.graph.initializer} <= {TensorProto.DEFAULT}, name
    written = {t.name: t for t in onnx.load(case / "worked-around.onnx").graph.initializer}
    first = numpy_helper.to_array(written["w0"])
    drawn = np.random.default_rng(0).standard_normal((WIDTH, WIDTH)) / WIDTH**0.5
    assert first.tobytes() == drawn.astype(np.float32).astype(np.float16).tobytes()
    assert (case / "worked-around.onnx").read_bytes() == (moved / "case/worked-around.onnx").read_bytes()

    stored = next((moved / "models/weights").glob("*.bin"))
    with stored.open("r+b") as file:
        file.seek(weights // 2)
        file.write(b"damaged!")
    told = narrowdown("export", moved, "-o", tmp_path / "other")
    assert told.code == 4
    assert f"models/weights/{stored.name}' is damaged" in told.err
    assert not (tmp_path / "other").exists()
