"""A case's arrays once more in Polygraphy's JSON: ``python -P -m engines.data.casefiles DIR...``."""

import sys
from pathlib import Path

import numpy as np

from engines.data import polygraphy


def convert(folder: Path, runner: str = "reference") -> None:
    """Write ``inputs.json`` and ``expected.json`` beside the archives. Raises OSError, ValueError."""
    with np.load(folder / "inputs.npz", allow_pickle=False) as archive:
        polygraphy.write_inputs(folder / "inputs.json", [dict(archive)])
    with np.load(folder / "expected.npz", allow_pickle=False) as archive:
        polygraphy.write_outputs(folder / "expected.json", [dict(archive)], runner)


def main(words: list[str]) -> int:
    """Convert these folders; one sentence on stderr where one cannot be."""
    if not words:
        print("usage: python -P -m engines.data.casefiles DIR...", file=sys.stderr)
        return 2
    for word in words:
        try:
            convert(Path(word))
        except (OSError, ValueError) as problem:
            print(f"The case in {word} cannot be written as JSON: {problem}", file=sys.stderr)
            return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
