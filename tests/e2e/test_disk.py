"""What a session of a model with big weights takes on the disk, and that all which it keeps can be
read without more."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.graph import external
from narrowdown.engines.store import Store, digest_file, sound
from narrowdown.wizard.bundle.models import write_whole
from narrowdown.wizard.session import SessionProblem
from tests.e2e.conftest import command, environment

WIDTH, LAYERS = 1024, 14  # 56 MiB of weights
NARROW = 320  # 5.5 MiB: kept models point to them all the same


def chain(folder: Path, width: int = WIDTH) -> tuple[Path, Path, int]:
    """Matrices one after another, with a norm in the middle whose squares are beyond FP16: the
    model, its inputs, the bytes of its weights."""
    rng = np.random.default_rng(0)
    nodes, weights, x = [], [numpy_helper.from_array(np.float32(400), "400")], "x"

    def add(op: str, *reads: str, name: str, **attributes: int) -> str:
        nodes.append(helper.make_node(op, list(reads), [name], name=name, **attributes))
        return name

    for i in range(LAYERS):
        drawn = rng.standard_normal((width, width)) / width**0.5
        weights.append(numpy_helper.from_array(drawn.astype(np.float32), f"w{i}"))
        x = add("MatMul", x, f"w{i}", name=f"m{i}")
        if i == LAYERS // 2:
            large = add("Mul", x, "400", name="large")
            mean = add(
                "ReduceMean", add("Mul", large, large, name="squares"), name="mean", keepdims=1
            )
            x = add("Div", large, add("Sqrt", mean, name="root"), name="scaled")
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, width]) for name in ("x", x)]
    graph = helper.make_graph(nodes, "chain", info[:1], info[1:], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(
        made, folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=1024
    )
    np.savez(folder / "in.npz", x=rng.standard_normal((1, width)).astype(np.float32) * 2)
    return folder / "m.onnx", folder / "in.npz", (folder / "m.data").stat().st_size


def on_disk(folder: Path) -> int:
    """Bytes of the blocks that a folder's files hold; a file of two names counts once."""
    found = {
        (s.st_dev, s.st_ino): s.st_blocks
        for s in (p.lstat() for p in folder.rglob("*") if p.is_file())
    }
    return 512 * sum(found.values())


@pytest.mark.slow
def test_weights_lie_in_a_session_twice_at_most_and_all_it_keeps_is_written_whole(
    narrowdown, tmp_path: Path
) -> None:
    """The way to the workaround; then a resume, a copy of the session elsewhere, an export, and an
    export of damaged weights."""
    model, inputs, weights = chain(tmp_path)
    place, case = tmp_path / "s", tmp_path / "case"
    ran = narrowdown(
        "run", model, "--engine", "emulate:precision=fp16", "--inputs", inputs, "--session", place
    )
    assert ran.code == 0, ran.out[-3000:] + ran.err
    assert "overflow" in ran.out
    # The weights, and the model that comes of it, in FP16: in the bundle and, the same file, beside
    # it.
    assert on_disk(place) <= 1.7 * weights, sorted(
        (p.stat().st_size, p) for p in place.rglob("*") if p.is_file()
    )[-6:]
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
    assert (case / "worked-around.onnx").read_bytes() == (
        moved / "case/worked-around.onnx"
    ).read_bytes()

    stored = next((moved / "models/weights").glob("*.bin"))
    with stored.open("r+b") as file:
        file.seek(weights // 2)
        file.write(b"damaged!")
    told = narrowdown("export", moved, "-o", tmp_path / "other")
    assert told.code == 4
    assert all(said in told.err for said in (f"models/weights/{stored.name}", "is damaged"))
    assert not (tmp_path / "other").exists()


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session that came to its workaround, of a model whose weights lie in a file; whoever breaks
    it takes a copy."""
    folder = tmp_path_factory.mktemp("ended")
    model, inputs, _ = chain(folder, NARROW)
    words = (
        "run",
        model,
        "--engine",
        "emulate:precision=fp16",
        "--inputs",
        inputs,
        "--session",
        folder / "s",
    )
    ran = command(environment(folder), folder)(*words)
    assert ran.code == 0, ran.out[-3000:] + ran.err
    return folder / "s"


@pytest.fixture
def session(ended: Path, tmp_path: Path) -> Path:
    shutil.copytree(ended, tmp_path / "sessions/s")
    return tmp_path / "sessions/s"


def weights_of(session: Path) -> Path:
    """The one file of weights that is not converted."""
    (stored,) = (p for p in (session / "models/weights").glob("*.bin") if p.name.count(".") == 1)
    return stored


@pytest.mark.slow
def test_a_model_that_points_to_weights_is_written_whole_or_not_at_all_where_the_disk_is_full(
    narrowdown, session: Path, small_disk, tmp_path: Path
) -> None:
    """Room for the skeletons of the models and for less, for half of their weights, for nearly
    all."""
    assert narrowdown("export", session, "-o", tmp_path / "case").code == 0
    onnx.checker.check_model(onnx.load(tmp_path / "case/worked-around.onnx"))
    whole = on_disk(tmp_path / "case") // 1024
    for kib, names in (
        (64, ("case", "case.zip")),
        (whole // 2, ("case",)),
        (whole - 128, ("case.zip",)),
    ):
        place = small_disk(kib)
        for name in names:
            told = narrowdown("export", session, "-o", place / name)
            assert told.code == 4, told.out + told.err
            assert f"The disk of '{place / name}' is full" in told.err, told.err
            assert not list(place.iterdir()), "a part of a bundle is no bundle"
    assert narrowdown("export", session, "-o", small_disk(whole + 1024) / "case").code == 0


@pytest.mark.parametrize(
    "left", [0, 4096, -4096], ids=["nothing", "its beginning", "all but its end"]
)
def test_torn_weights_are_told_and_nothing_is_written_from_them(
    narrowdown, session: Path, tmp_path: Path, left: int
) -> None:
    stored = weights_of(session)
    true = stored.read_bytes()
    os.truncate(stored, left if left >= 0 else len(true) + left)
    told = narrowdown("export", session, "-o", tmp_path / "case")
    assert told.code == 4
    assert all(said in told.err for said in (f"models/weights/{stored.name}", "is damaged"))
    assert not (tmp_path / "case").exists()
    again = narrowdown("resume", session, "--repair")
    assert again.code == 4, again.out
    assert stored.name in again.out + again.err
    stored.write_bytes(true)
    assert narrowdown("export", session, "-o", tmp_path / "case").code == 0


def test_a_torn_model_that_points_to_weights_is_told(
    narrowdown, session: Path, tmp_path: Path
) -> None:
    """What a worker killed while it wrote leaves has no name yet; one torn afterwards is no longer
    what its name says."""
    (session / "artifacts/.incoming.1-abcd.tmp").write_bytes(b"half")
    pointing = [
        p for p in (session / "artifacts").glob("*/*") if b"weights/" in p.read_bytes()[: 1 << 16]
    ]
    assert pointing
    for path in pointing:
        os.truncate(path, path.stat().st_size // 2)
    told = narrowdown("export", session, "-o", tmp_path / "case")
    assert told.code == 4
    assert "is damaged" in told.err
    assert not (tmp_path / "case").exists()


def test_what_was_handed_on_outlives_the_session_that_is_pruned(
    narrowdown, session: Path, tmp_path: Path
) -> None:
    """The bundle beside it, and the worked-around model that the session held as one file with its
    own bundle."""
    case = tmp_path / "case"
    assert narrowdown("export", session, "-o", case).code == 0
    shutil.copy(session / "worked-around.onnx", tmp_path / "mine.onnx")
    told = narrowdown("sessions", "prune", "--older-than", "1s", "--yes")
    assert told.code == 0, told.err
    assert not list(session.parent.glob("*"))
    for path in (case / "model.onnx", case / "worked-around.onnx", tmp_path / "mine.onnx"):
        onnx.checker.check_model(onnx.load(path))
    assert (
        subprocess.run(
            [sys.executable, "-P", case / "check.py"], capture_output=True, check=False
        ).returncode
        == 1
    )


@pytest.mark.slow
def test_a_kept_model_of_more_than_protobuf_holds_is_written_with_its_weights_beside_it(
    tmp_path: Path, small_disk
) -> None:
    """1.9 GiB that are holes but for their ends; the kept model points to them."""
    store = Store(tmp_path / "s")
    wide, size = 1 << 14, 1_900 << 20
    rows = size // (4 * wide)
    store.weights.mkdir(parents=True)
    with (store.weights / "new.bin").open("wb") as file:
        file.truncate(size)
        for at in (0, size - 4):
            file.seek(at)
            file.write(np.float32(1.5).tobytes())
    digest = digest_file(store.weights / "new.bin")
    (store.weights / "new.bin").rename(store.weights / f"{digest}.bin")
    table = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[rows, wide])
    external.make_external(table, f"weights/{digest}.bin", 0, size)
    info = [
        helper.make_tensor_value_info("i", TensorProto.INT64, [1]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, wide]),
    ]
    graph = helper.make_graph(
        [helper.make_node("Gather", ["w", "i"], ["y"], "take")], "g", info[:1], info[1:], [table]
    )
    kept = store.path(
        store.put(
            helper.make_model(
                graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
            ).SerializeToString()
        )
    )
    assert sound.weights_of(kept) == (f"models/weights/{digest}.bin",)

    target = tmp_path / "out/model.onnx"
    target.parent.mkdir()
    write_whole(store, {target: kept})
    beside = target.with_name("model.weights.bin")
    assert beside.stat().st_size >= size
    session = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])
    first, last = (session.run(None, {"i": np.array([at])})[0][0] for at in (0, rows - 1))
    assert (first[0], first[1:].any(), last[-1], last[:-1].any()) == (1.5, False, 1.5, False)
    del session
    shutil.rmtree(target.parent)

    full = small_disk(64) / "model.onnx"
    with pytest.raises(OSError, match="No space left") as refused:
        write_whole(store, {full: kept})
    assert Path(refused.value.filename) == full
    assert not list(full.parent.iterdir())
    os.truncate(store.weights / f"{digest}.bin", size - 4)
    with pytest.raises(SessionProblem, match="is damaged"):
        write_whole(store, {target: kept})
