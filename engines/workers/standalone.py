"""A stored model as a file of its own: ``python -P -m engines.workers.standalone STORED.onnx OUT.onnx``."""

import sys
from pathlib import Path

import onnx

INLINE = 1_800 << 20  # bytes of weights that go into the file itself; protobuf holds no more than 2 GiB


def write_standalone(stored: Path, target: Path) -> None:
    """Write ``stored``, whose weights may lie in files below its folder, so that it can be moved. Raises OSError, ValueError."""
    write_model(onnx.load(str(stored)), target)


def write_model(model: onnx.ModelProto, target: Path) -> None:
    """Write a model that holds its weights, with a file of weights beside it where they are many. Raises OSError, ValueError."""
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    if size < INLINE:
        onnx.save(model, str(target))
    else:
        onnx.save(model, str(target), save_as_external_data=True, location=f"{target.name}.weights")


def main(words: list[str]) -> int:
    """One model; one sentence on stderr where it cannot be done."""
    if len(words) != 2:
        print("usage: python -P -m engines.workers.standalone STORED.onnx OUT.onnx", file=sys.stderr)
        return 2
    try:
        write_standalone(Path(words[0]), Path(words[1]))
    except (OSError, ValueError) as problem:
        print(f"{words[1]} cannot be written: {problem}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
