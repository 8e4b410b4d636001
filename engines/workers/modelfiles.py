"""Model files for others' eyes, made in a process of its own: ``python -P -m
narrowdown.engines.workers.modelfiles``

whole MODELS STORED.onnx OUT.onnx ...  stored models, their weights in them or beside them, so that
they can be moved ready
DIR...                           cases to be handed on

``MODELS`` is the folder of a session below which weights lie. What is handed on has its arrays once
more in Polygraphy's JSON, and models without doc strings and metadata: exporters write there in
which file of whose folder a node was made.
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from narrowdown.engines.data import polygraphy
from narrowdown.engines.graph import external
from narrowdown.engines.graph.protos import iterate_messages
from narrowdown.engines.graph.standing_alone import INSIDE, bring_weights
from narrowdown.engines.store import atomic, write_atomically

MODELS = ("model.onnx", "engine.onnx", "good.onnx", "worked-around.onnx")


def write_whole(models: Path, stored: Path, target: Path) -> None:
    """Write a model of a session whole, with ``<stem>.weights.bin`` beside it where its weights are
    many. ``target`` may be the file itself. Raises OSError, ValueError, ModelProblem."""
    model = onnx.load(stored, load_external_data=False)
    beside = target.with_name(f"{target.stem}.weights.bin")
    if any(map(_lies_beside, external.locations(model))) or external.outside_bytes(model) < INSIDE:
        bring_weights(model, models, stays=_lies_beside)
    else:
        with atomic(beside) as temporary, temporary.open("wb") as file:
            bring_weights(model, models, beside.name, partial(external.append_aligned, file))
            file.truncate()
    write_atomically(target, model.SerializeToString())


def _lies_beside(location: str) -> bool:
    """Whether it is no weights file of the session."""
    return not location.startswith(f"{external.FOLDER}/")


def convert_archives(folder: Path) -> None:
    """Write ``inputs.json`` and ``expected.json`` beside the archives, where these are. Raises
    OSError, ValueError."""
    if not ((folder / "inputs.npz").is_file() and (folder / "expected.npz").is_file()):
        return
    with np.load(folder / "inputs.npz", allow_pickle=False) as archive:
        polygraphy.write_inputs(folder / "inputs.json", [dict(archive)])
    with np.load(folder / "expected.npz", allow_pickle=False) as archive:
        polygraphy.write_outputs(folder / "expected.json", [dict(archive)], "reference")


def strip_metadata(path: Path) -> bool:
    """Take doc strings and metadata but our own out of a model and of all in it. A model without
    any stays as it is, byte by byte, and so do weights beside one. Raises OSError, and what
    protobuf raises."""
    model = onnx.load(path, load_external_data=False)
    stripped = False
    for part in iterate_messages(model):
        for field in ("doc_string", "metadata_props"):
            if getattr(part, field, ()):
                part.ClearField(field)
                stripped = True
    if stripped:
        write_atomically(path, model.SerializeToString())
    return stripped


def main(words: list[str]) -> int:
    """One sentence on stderr where it cannot be done."""
    try:
        match words:
            case ["whole", models, *files]:
                for stored, target in zip(files[::2], files[1::2], strict=True):
                    write_whole(Path(models), Path(stored), Path(target))
            case ["ready", *folders]:
                for folder in map(Path, folders):
                    convert_archives(folder)
                    for path in (folder / name for name in MODELS):
                        if path.is_file():
                            strip_metadata(path)
    except Exception as problem:  # whatever onnx and protobuf raise of a damaged file
        print(f"{' '.join(words[1:])} cannot be made ready: {problem}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
