"""What Setup says beside each field. Pure but for looking at files; imports no engine and no onnx."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

from engines.data.store import digest_file
from wizard.cli import problem as words
from wizard.cli.exits import Refusal
from wizard.problem import Problem

# Field numbers of onnx.ModelProto and their wire types: enough to tell a model from any other file without parsing it.
_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_GRAPH = 7


def looks_like_onnx(path: Path) -> bool:
    """Whether the file's outermost layer is a ModelProto with a graph. Reads a few bytes of however many. Raises ``OSError``."""
    size = path.stat().st_size
    graph = False
    with path.open("rb") as file:
        while file.tell() < size:
            key = _varint(file)
            field, wire = key >> 3, key & 7
            if key < 0 or _FIELDS.get(field) != wire:
                return False
            if wire == 0:
                if _varint(file) < 0:
                    return False
                continue
            length = _varint(file)
            if length < 0 or file.tell() + length > size:
                return False
            graph = graph or field == _GRAPH
            file.seek(length, 1)
    return graph


def _varint(file: BinaryIO) -> int:
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


class Answers(msgspec.Struct, frozen=True):
    """What was typed into Setup, as text."""

    model: str = ""
    engine: str = ""
    reference: str = ""
    inputs: str = ""  # several, separated by commas
    tolerance: str = ""


def model(text: str) -> str:
    """The absolute path. Raises Refusal."""
    if not text.strip():
        raise Refusal(2, "Which model? Type the path of an .onnx file.")
    path = words.model_file(text.strip())
    if not looks_like_onnx(path):
        raise Refusal(
            2, f"'{path.name}' is not an ONNX model: its first bytes do not read as one. Export it to ONNX first."
        )
    return str(path)


def engine(text: str) -> str:
    """The canonical spec of the engine under test; empty takes the default. Raises Refusal."""
    return words.engine_spec(text.strip(), "engine") if text.strip() else Problem(model="").engine


def reference(text: str) -> str:
    """The canonical spec of the reference; empty takes the default. Raises Refusal."""
    return words.engine_spec(text.strip(), "reference") if text.strip() else Problem(model="").reference


def inputs(text: str) -> tuple[str, ...]:
    """Absolute sources. Raises Refusal for the first that cannot be used."""
    return tuple(words.input_source(part.strip()) for part in text.split(",") if part.strip())


def tolerance(text: str) -> dict[str, float]:
    """By output name, "" for all; empty leaves it to the engine's precision. Raises Refusal."""
    return words.bounds("tolerance", [part.strip() for part in text.split(",") if part.strip()])


FIELDS: Mapping[str, Callable[[str], object]] = {
    "model": model,
    "engine": engine,
    "reference": reference,
    "inputs": inputs,
    "tolerance": tolerance,
}


def problem_with(field: str, text: str) -> str:
    """The sentence to show beside a field; "" when it is fine."""
    try:
        FIELDS[field](text)
    except Refusal as refusal:
        return str(refusal)
    except OSError as error:
        return f"It cannot be read: {error.strerror or error}."
    return ""


def build(answers: Answers, base: Problem | None = None) -> Problem:
    """The PROBLEM of these answers, with files digested; ``base`` keeps what Setup does not ask. Raises Refusal, ``OSError``."""
    path = model(answers.model)
    sources = inputs(answers.inputs)
    digests = {path: digest_file(Path(path))}
    for source in sources:
        file = Path(words.source_path(source))
        if file.is_file():
            digests[str(file)] = digest_file(file)
    return msgspec.structs.replace(
        base or Problem(model=path),
        model=path,
        engine=engine(answers.engine),
        reference=reference(answers.reference),
        inputs=sources,
        tolerance=tolerance(answers.tolerance),
        digests=digests,
    )
