"""A case for others' eyes: ``python -P -m engines.workers.casefiles DIR...``.

Its arrays once more in Polygraphy's JSON, and its models without doc strings and metadata: exporters write there in which file of
whose folder a node was made.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from engines.data import polygraphy
from engines.graph.emulate import NOTE
from engines.store.content import atomic

MODELS = ("model.onnx", "engine.onnx", "good.onnx", "worked-around.onnx")


def convert_archives(folder: Path, runner: str = "reference") -> None:
    """Write ``inputs.json`` and ``expected.json`` beside the archives, where these are. Raises OSError, ValueError."""
    if not ((folder / "inputs.npz").is_file() and (folder / "expected.npz").is_file()):
        return
    with np.load(folder / "inputs.npz", allow_pickle=False) as archive:
        polygraphy.write_inputs(folder / "inputs.json", [dict(archive)])
    with np.load(folder / "expected.npz", allow_pickle=False) as archive:
        polygraphy.write_outputs(folder / "expected.json", [dict(archive)], runner)


def strip_metadata(path: Path) -> bool:
    """Take doc strings and metadata but our own out of a model and of all in it. A model without any stays as it is, byte by
    byte, and so do weights beside one. Raises OSError, and what protobuf raises."""
    model = onnx.load(path, load_external_data=False)
    stripped = False
    for part in _iterate_messages(model):
        if getattr(part, "doc_string", ""):
            part.ClearField("doc_string")
            stripped = True
        props: Any = getattr(part, "metadata_props", ())
        if others := [entry for entry in props if entry.key != NOTE]:
            for entry in others:
                props.remove(entry)
            stripped = True
    if stripped:
        with atomic(path) as temporary:
            temporary.write_bytes(model.SerializeToString())
    return stripped


def _iterate_messages(message: Any) -> Iterator[Any]:
    """The message and all messages in it."""
    todo = [message]
    while todo:
        part = todo.pop()
        yield part
        for field, value in part.ListFields():
            if field.message_type is not None:
                todo.extend([value] if hasattr(value, "ListFields") else value)


def main(words: list[str]) -> int:
    """Make these folders ready; one sentence on stderr where one cannot be."""
    if not words:
        print("usage: python -P -m engines.workers.casefiles DIR...", file=sys.stderr)
        return 2
    for word in words:
        try:
            convert_archives(Path(word))
            for name in MODELS:
                if (Path(word) / name).is_file():
                    strip_metadata(Path(word) / name)
        except Exception as problem:
            print(f"The case in {word} cannot be made ready to be handed on: {problem}", file=sys.stderr)
            return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
