"""``python -m narrowdown.wizard.schemas NAME`` prints a schema."""

import argparse
import sys
from importlib.resources import files

NAMES = ("events", "report", "replay")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m narrowdown.wizard.schemas", description="JSON Schemas of what programs read"
    )
    parser.add_argument("name", choices=NAMES, help="print this one")
    name = parser.parse_args().name
    sys.stdout.write(
        (files("narrowdown.wizard.schemas") / f"{name}.json").read_text(encoding="utf-8")
    )


if __name__ == "__main__":
    main()
