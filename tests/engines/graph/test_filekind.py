"""What a file is that was given as a model, from its first bytes; and that no bytes at all confuse
it."""

from pathlib import Path

import onnx
import pytest
from hypothesis import given, strategies as st

from narrowdown.engines.graph import filekind
from narrowdown.wizard.demo import MODELS

PILLARS = MODELS / "pillars_add.onnx"


def test_a_real_model_has_no_complaint() -> None:
    assert filekind.explain_no_model(PILLARS) == ""


def test_fields_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "later.onnx"
    later = (
        b"\xd0\x3e\x07" + b"\xda\x3e\x02ab" + b"\xd5\x3e1234" + b"\xd1\x3e12345678"
    )  # fields 1002 to 1003 of every kind
    path.write_bytes(PILLARS.read_bytes() + later)
    onnx.load(path)
    assert filekind.explain_no_model(path) == ""
    path.write_bytes(PILLARS.read_bytes() + later[:-1])
    assert "ends too early" in filekind.explain_no_model(path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x08",
        b"\x89PNG\r\n\x1a\n",
        b"PK\x03\x04",
        b"\x08\x07",
        b"\x3a\xff\xff\xff\xff\x0f",
        b"\xff" * 40,
        b"hello",
    ],
)
def test_other_files_do_not(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(data)
    assert filekind.explain_no_model(path).startswith("'x.onnx' ")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x89PNG\r\n", "a PNG image"),
        (b"\xff\xd8\xff\xe0\x00\x10", "a JPEG image"),
        (b"GIF89a", "a GIF image"),
        (b"%PDF-1", "a PDF document"),
        (b"\x93NUMPY", "a numpy array"),
    ],
)
def test_six_bytes_tell_what_a_file_is(tmp_path: Path, data: bytes, what: str) -> None:
    path = tmp_path / "photo.onnx"
    path.write_bytes(data)
    said = filekind.explain_no_model(path)
    assert said.startswith(f"'photo.onnx' is {what}, not an ONNX model")
    assert "copy it again" not in said


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kinds") / "x.onnx"


@given(st.binary(max_size=200))
def test_any_bytes_are_answered(scratch: Path, data: bytes) -> None:
    scratch.write_bytes(data)
    said = filekind.explain_no_model(scratch)
    assert said == "" or (
        said.startswith("'x.onnx' ") and said.endswith(".") and said.isprintable()
    )


@pytest.mark.parametrize("first", [b"PK\x03\x04", b"\x80\x02"])
def test_who_has_only_pytorchs_file_reads_how_to_export_it(tmp_path: Path, first: bytes) -> None:
    path = tmp_path / "net.PT"
    path.write_bytes(first + bytes(60))
    assert "torch.onnx.export(model, (example,), 'net.onnx')" in filekind.explain_no_model(path)
    inputs = tmp_path / "in.npz"
    inputs.write_bytes(b"PK\x03\x04" + bytes(60))
    assert "belongs to the inputs" in filekind.explain_no_model(inputs)


def test_a_file_of_tensorflows_is_told_what_converts_it(tmp_path: Path) -> None:
    """Its graphs have the ending that ONNX's tensors have, too."""
    for name, said in (("frozen.pb", "tf2onnx"), ("model.onnx", "export the model to ONNX")):
        (tmp_path / name).write_bytes(b"\x0a\x05hello")
        assert said in filekind.explain_no_model(tmp_path / name)
