"""A model that cannot be read: one sentence that names the file, what it is and what to do, before
a session exists where the file itself tells it; and a session that goes on once what was missing is
there."""

import gzip
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from . import tiny


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny.faultless(tmp_path)


def zipped(path: Path, data: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model.onnx", data)


TENSOR = numpy_helper.from_array(np.zeros((3, 4), np.float32), "t").SerializeToString()
FILES: dict[str, tuple[Callable[[Path, bytes], object], tuple[str, ...]]] = {
    "empty": (lambda p, _: p.write_bytes(b""), ("is empty", "export or copy")),
    "text": (lambda p, _: p.write_text("this is text\n"), ("text file", "name the .onnx file")),
    "html": (lambda p, _: p.write_text("<!DOCTYPE html>"), ("text file",)),
    "json": (lambda p, _: p.write_text('{"a": 1}'), ("text file",)),
    "lfs": (
        lambda p, _: p.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"),
        ("pointer of git-lfs", "git lfs pull"),
    ),
    "zip": (zipped, ("zip archive", "export the model")),
    "tflite": (lambda p, _: p.write_bytes(struct.pack("<I", 28) + b"TFL3" + bytes(99)), ("TensorFlow Lite", "tf2onnx")),
    "safetensors": (
        lambda p, _: p.write_bytes(struct.pack("<Q", 70) + b'{"w":{"dtype":"F32"}}'.ljust(70) + bytes(4)),
        ("weights alone (safetensors)", "export it to ONNX"),
    ),
    "gguf": (lambda p, _: p.write_bytes(b"GGUF" + bytes(99)), ("llama.cpp", "to ONNX")),
    "gzip": (lambda p, d: p.write_bytes(gzip.compress(d)), ("gzip", "gunzip")),
    "pickle": (lambda p, _: p.write_bytes(pickle.dumps({"a": 1})), ("pickle", "never opened")),
    "engine": (lambda p, _: p.write_bytes(b"ptrt" + bytes(99)), ("TensorRT has built",)),
    "array": (lambda p, _: np.save(p.open("wb"), np.zeros(3)), ("numpy array", "belongs to the inputs")),
    "tensor": (lambda p, _: p.write_bytes(TENSOR), ("do not read as one",)),
    "graph": (lambda p, d: p.write_bytes(onnx.load_from_string(d).graph.SerializeToString()), ("do not read as one",)),
    "noise": (lambda p, _: p.write_bytes(bytes(range(255, 0, -1))), ("do not read as one",)),
    "cut": (lambda p, d: p.write_bytes(d[:-1]), ("ends too early", "copy it again")),
    "half": (lambda p, d: p.write_bytes(d[: len(d) // 2]), ("ends too early",)),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("command", ["run", "open"])
def test_what_a_file_is_that_is_no_model(
    narrowdown, model: Path, tmp_path: Path, kind: str, command: str
) -> None:
    make, said = FILES[kind]
    path = tmp_path / f"{kind}.onnx"
    make(path, model.read_bytes())
    ran = narrowdown(command, path, "--display", "plain")
    assert ran.code == 2, ran.err
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert all(word in ran.err for word in (f"'{path.name}'", *said)), ran.err
    assert not (tmp_path / "sessions").exists(), "no session is left behind"


def test_a_path_that_is_no_file(narrowdown, model: Path, tmp_path: Path) -> None:
    (tmp_path / "gone.onnx").symlink_to("nowhere")
    folder = tmp_path / "folder"
    folder.mkdir()
    model.rename(folder / "faultless.onnx")
    session = tmp_path / "session"
    session.mkdir()
    (session / "session.json").write_text("{}")
    for path, said in (
        (
            session,
            f"'{session}' is a session, not a model; 'narrowdown resume {session}' goes on with it.",
        ),
        (
            folder,
            f"'{folder}' is a folder; name the ONNX file inside it, '{folder}/faultless.onnx'",
        ),
        (folder / "faultles.onnx", "Did you mean 'faultless.onnx'?"),
        (tmp_path / "gone.onnx", "It is a link to a file that is gone."),
        (tmp_path / "none" / "x.onnx", "Check the path."),
        (Path("/dev/null"), "'/dev/null' is a device and no file; name a file"),
    ):
        ran = narrowdown("run", path)
        assert ran.code == 2
        assert said in ran.err
    ran = narrowdown("run", "")
    assert (ran.code, "MODEL is empty" in ran.err) == (2, True)


def cast_anew(model: onnx.ModelProto) -> None:
    """An operator that the newest opset defines anew, so that no older one means the same."""
    node = helper.make_node("Cast", ["hidden"], ["kept"], name="anew", to=int(TensorProto.FLOAT))
    model.graph.node[1].CopyFrom(node)


@pytest.mark.parametrize(
    ("edit", "code", "said"),
    [
        (cast_anew, 4, "The model has opset"),
        (None, 10, ""),
    ],
    ids=["not-restated", "restated"],
)
def test_versions_newer_than_the_engine_knows(
    narrowdown, model: Path, edit: Callable[[onnx.ModelProto], None] | None, code: int, said: str
) -> None:
    proto = onnx.load(model)
    proto.ir_version, proto.opset_import[0].version = (
        int(onnx.IR_VERSION),
        onnx.defs.onnx_opset_version(),
    )
    if edit:
        edit(proto)
    onnx.save(proto, model)
    ran = narrowdown("run", model, "--engine", "onnxruntime:optimization=disabled")
    assert ran.code == code, ran.err
    assert said in ran.err
    if code == 10:
        assert "was restated in opset" in ran.out
    else:
        assert "Install a newer onnxruntime, or export the model with opset" in ran.err


def test_absent_external_data_and_the_session_that_waited_for_it(
    narrowdown, model: Path, tmp_path: Path
) -> None:
    apart = tmp_path / "apart"
    apart.mkdir()
    onnx.save(
        onnx.load(model),
        apart / "m.onnx",
        save_as_external_data=True,
        location="m.weights",
        size_threshold=0,
    )
    (apart / "m.weights").rename(tmp_path / "aside")
    session = tmp_path / "s"
    ran = narrowdown("run", apart / "m.onnx", "--session", session, "--display", "none")
    assert ran.code == 2
    assert (
        f"'m.onnx' keeps weights in 'm.weights', which is not in '{apart}'; copy that file there."
        in ran.err
    )
    (tmp_path / "aside").rename(apart / "m.weights")
    assert narrowdown("resume", session, "--display", "none").code == 10, (
        "the cause is gone: the same end as ever"
    )


def test_a_bound_on_an_output_that_is_not_there(narrowdown, model: Path) -> None:
    ran = narrowdown("run", model, "--tolerance", "yy:1e-3")
    assert ran.code == 2
    assert "--tolerance: the model has no output 'yy'. Did you mean 'y'? It has 'y'." in ran.err
