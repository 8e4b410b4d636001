"""``python -m narrowdown.wizard.schemas NAME`` prints a schema; ``--write`` rewrites the shipped
ones, in a checkout."""

import argparse
import sys
from importlib.resources import files
from pathlib import Path

from narrowdown.wizard.schemas import NAMES, committed, generate


def main() -> None:
    """Print one, or rewrite them all."""
    parser = argparse.ArgumentParser(
        prog="python -m narrowdown.wizard.schemas", description="JSON Schemas of what programs read"
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("name", nargs="?", choices=NAMES, help="print this one")
    what.add_argument(
        "--write", action="store_true", help="rewrite the shipped ones, in a checkout"
    )
    arguments = parser.parse_args()
    if not arguments.write:
        sys.stdout.write(committed(arguments.name))
        return
    for name in NAMES:
        target = Path(str(files("narrowdown.wizard.schemas") / f"{name}.json"))
        target.write_text(generate(name), encoding="utf-8")
        print(target)


if __name__ == "__main__":
    main()
