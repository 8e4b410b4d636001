"""A stored model with a note on each node: ``python -P -m engines.workers.overlay STORED.onnx NOTES.json OUT.onnx``."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import ModelProto

from engines.workers.standalone import write_model

DOC = "doc"  # under which a note has its line for people; the rest are metadata properties


def annotate_model(model: ModelProto, notes: Mapping[str, Mapping[str, str]]) -> int:
    """Write the notes into the model, in place: a line at the end of each node's doc string, and metadata properties. ``notes``:
    by the node's name, or by a tensor that it makes. Returns how many nodes have one."""
    count = 0
    for node in model.graph.node:
        note = next((notes[key] for key in (node.name, *node.output) if key and key in notes), None)
        if note is None:
            continue
        count += 1
        node.doc_string = "\n".join(filter(None, (node.doc_string, note[DOC])))
        for key, value in note.items():
            if key != DOC:
                prop = node.metadata_props.add()
                prop.key, prop.value = key, value
    return count


def main(words: list[str]) -> int:
    """One model; one sentence on stderr where it cannot be done."""
    if len(words) != 3:
        print("usage: python -P -m engines.workers.overlay STORED.onnx NOTES.json OUT.onnx", file=sys.stderr)
        return 2
    try:
        model = onnx.load(words[0])
        print(annotate_model(model, json.loads(Path(words[1]).read_text(encoding="utf-8"))))
        write_model(model, Path(words[2]))
    except (OSError, ValueError) as problem:
        print(f"{words[2]} cannot be written: {problem}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
