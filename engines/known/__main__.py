"""``python -m narrowdown.engines.known``: check the files of the table and write their digests
anew."""

import sys
from importlib import resources
from pathlib import Path

from narrowdown.engines.known.table import (
    DIGESTS,
    TableProblem,
    list_files,
    parse_bug,
    write_digests,
)


def main() -> int:
    """Exit 0, or 2 with a sentence where a file is no entry."""
    files = list_files()
    try:
        for name, content in files:
            parse_bug(name, content)
    except TableProblem as problem:
        print(problem, file=sys.stderr)
        return 2
    Path(str(resources.files("narrowdown.flows").joinpath("known", DIGESTS))).write_text(
        write_digests(files), encoding="utf-8"
    )
    print(f"{len(files)} known bugs, digests written.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
