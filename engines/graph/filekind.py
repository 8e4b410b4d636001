"""What a file is that was given as a model, told from its bytes alone. Standard library only: asked
before any engine loads."""

from pathlib import Path
from typing import BinaryIO, Final, Literal

# Field numbers of onnx.ModelProto and their wire types: enough to tell a model from any other file
# without parsing it.
_FIELDS: Final = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_GRAPH: Final = 7
_FIXED = {1: 8, 5: 4}  # wire types of so many bytes; 0 is a varint, 2 has its length in front
_LFS: Final = b"version https://git-lfs"

_PYTORCH: Final = (".pt", ".pth", ".ckpt", ".bin")
_ZIP: Final = b"PK\x03\x04"
_PICKLE: Final = b"\x80"

# (offset, first bytes, what the file is, what to do)
_KINDS: Final = (
    (4, b"TFL3", "a TensorFlow Lite model", "convert it with tf2onnx"),
    (0, _ZIP, "a zip archive (PyTorch's .pt files are such, too)", "unpack it, or export the model to ONNX"),
    (0, b"PK\x05\x06", "an empty zip archive", "export the model to ONNX"),
    (0, b"\x1f\x8b", "compressed with gzip", "unpack it with gunzip"),
    (0, b"BZh", "compressed with bzip2", "unpack it with bunzip2"),
    (0, b"\xfd7zXZ\x00", "compressed with xz", "unpack it with unxz"),
    (0, b"\x28\xb5\x2f\xfd", "compressed with zstd", "unpack it with unzstd"),
    (0, b"\x89HDF\r\n", "an HDF5 file (Keras saves such)", "convert it with tf2onnx"),
    (0, b"\x80\x02", "a Python pickle, which is never opened here", "export the model to ONNX"),
    (0, b"\x80\x03", "a Python pickle, which is never opened here", "export the model to ONNX"),
    (0, b"\x80\x04", "a Python pickle, which is never opened here", "export the model to ONNX"),
    (0, b"\x80\x05", "a Python pickle, which is never opened here", "export the model to ONNX"),
    (0, b"ptrt", "an engine that TensorRT has built", "name its ONNX file, and this one with --engine tensorrt:plan=FILE"),
    (0, b"ftrt", "an engine that TensorRT has built", "name its ONNX file, and this one with --engine tensorrt:plan=FILE"),
    (0, b"vtrt", "an engine that TensorRT-RTX has built", "name its ONNX file, and this one as tensorrt_rtx:plan=FILE"),
    (4, b"ORTM", "in ONNX Runtime's own .ort format", "name the ONNX file that it was made from"),
    (0, b"GGUF", "a model of llama.cpp (GGUF)", "export the model that it was made from to ONNX"),
    (0, b"\x93NUMPY", "a numpy array", "it belongs to the inputs, so name the model's .onnx file here"),
    (0, b"\x89PNG", "a PNG image", "it belongs to the inputs, so name the model's .onnx file here"),
    (0, b"\xff\xd8\xff", "a JPEG image", "it belongs to the inputs, so name the model's .onnx file here"),
    (0, b"GIF8", "a GIF image", "name the model's .onnx file"),
    (0, b"%PDF", "a PDF document", "name the model's .onnx file"),
    (0, b"\x7fELF", "a program or library", "name the .onnx file"),
)  # fmt: skip


def _outer_fields(path: Path) -> Literal["model", "short", "other"]:
    """What the outermost fields say: all there, ended before their time, or those of something
    else."""
    size, seen = path.stat().st_size, set[int]()
    with path.open("rb") as file:
        while file.tell() < size:
            key = _read_varint(file)
            if key < 0:
                return "short" if seen else "other"
            field, wire = key >> 3, key & 7
            # A field of a later version is passed over behind others; a known one of another type
            # makes it another message.
            known = _FIELDS.get(field, wire if seen else -1)
            if not field or wire != known or wire not in (0, 2, *_FIXED):
                return "other"
            seen.add(field)
            length = _FIXED.get(wire) or _read_varint(file)
            if length < 0 or (wire and file.tell() + length > size):
                return "short"
            file.seek(length if wire else 0, 1)
    return "model" if _GRAPH in seen else "short"


def is_ir(name: str | Path) -> bool:
    """Whether the name is that of a model in OpenVINO's own format, by its ending."""
    return str(name).lower().endswith(".xml")


def explain_no_model(path: Path) -> str:
    """Why the file cannot be a model, and what to do, as a sentence; "" where it looks like one.
    Raises ``OSError``."""
    name = path.name
    with path.open("rb") as file:
        head = file.read(64)
    if not head:
        return f"'{name}' is empty (0 bytes); export or copy the model again."
    if head.startswith(_LFS):
        return f"'{name}' is a pointer of git-lfs, not the model itself; fetch the model with 'git lfs pull'."
    if is_ir(path):
        text = b"<net" in head
        return (
            ""
            if text
            else f"'{name}' is not OpenVINO IR: it does not begin with <net; name the .xml of a model."
        )
    if path.suffix == ".bin" and path.with_suffix(".xml").is_file():
        return f"'{name}' holds the weights of '{path.stem}.xml': name that file."
    if head.startswith((_ZIP, _PICKLE)) and path.suffix.lower() in _PYTORCH:
        return (
            f"'{name}' is a file of PyTorch, not an ONNX model; where the model is made, export it with torch.onnx.export(model, "
            f"(example,), '{path.stem}.onnx')."
        )
    if head.startswith(_ZIP) and path.suffix.lower() == ".npz":
        return f"'{name}' holds arrays, not an ONNX model; it belongs to the inputs, so name the model's .onnx file here."
    for offset, magic, what, remedy in _KINDS:
        if head[offset : offset + len(magic)] == magic:
            return f"'{name}' is {what}, not an ONNX model; {remedy}."
    layer = _outer_fields(path)
    if layer == "model":
        return ""
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size:
        return (
            f"'{name}' holds weights alone (safetensors), not an ONNX model; where the model is made, load them into it and "
            "export it to ONNX."
        )
    if _is_text(head):
        return f"'{name}' is a text file, not an ONNX model; name the .onnx file."
    if layer == "short":
        size = path.stat().st_size
        held = f"{size:,} bytes" if size != 1 else "1 byte"
        return (
            f"'{name}' begins like an ONNX model but ends too early, after {held}; copy it again."
        )
    export = (
        "if it is one of TensorFlow's, convert it with tf2onnx"
        if path.suffix.lower() == ".pb"
        else "export the model to ONNX"
    )
    return f"'{name}' is not an ONNX model: its bytes do not read as one; {export}."


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # else a character that the sample has cut
            return False
        text = head[: error.start].decode("utf-8")
    return all(c.isprintable() or c in "\r\n\t" for c in text)


def _read_varint(file: BinaryIO) -> int:
    """A protobuf varint; -1 where the file ends or it is too long."""
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            return -1
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    return -1
