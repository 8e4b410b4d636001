"""The survey as one line of JSON: ``python -P -m narrowdown.engines.backends`` asks every engine in
a process of its own, with names those, here and now."""

import json
import os
import sys

from narrowdown.engines import discovery
from narrowdown.engines.backends.survey import describe_engine, survey_engines


def main(names: list[str]) -> int:
    """Print the answer as the last line; what native libraries print meanwhile goes to stderr."""
    if unknown := [name for name in names if name not in discovery.engines()]:
        print(f"There is no engine '{unknown[0]}'.", file=sys.stderr)
        return 2
    answer = os.dup(1)
    os.dup2(2, 1)
    rows = [describe_engine(name) for name in names] if names else survey_engines()
    with os.fdopen(answer, "w") as out:
        out.write(json.dumps(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
