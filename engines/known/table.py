"""The table of known bugs, ``flows/known/*.yaml``, a file an entry."""

import functools
from collections.abc import Iterable
from importlib import resources
from typing import Any

import msgspec

from narrowdown.engines.known.entry import Bug


class TableProblem(Exception):
    """The table, or a file of it, cannot be used: one sentence."""


@functools.cache
def read_table() -> tuple[Bug, ...]:
    """All entries by id. Raises TableProblem where a file is none."""
    folder = resources.files("narrowdown.flows").joinpath("known")
    files = (file for file in folder.iterdir() if file.name.endswith(".yaml"))
    found = (parse_bug(file.name, file.read_bytes()) for file in files)
    return tuple(sorted(found, key=lambda bug: bug.id))


def parse_bug(name: str, content: bytes) -> Bug:
    """One file. Raises TableProblem where it is no entry."""
    import yaml  # here: each worker loads this module, and few read the table

    # In C where there is one: each report reads the table, and the one in Python takes a second for
    # it.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return msgspec.convert(loader(content).get_single_data(), Bug)
    except (yaml.YAMLError, msgspec.ValidationError) as problem:
        raise TableProblem(
            f"{name}: {' '.join(str(problem).split())}. Install narrowdown again."
        ) from None


def recall(engine: str, ops: Iterable[str]) -> tuple[Bug, ...]:
    """Bugs of an engine whose pattern has no operators but these. Raises TableProblem."""
    held = set(ops)
    return tuple(
        b
        for b in read_table()
        if b.engine == engine and all(held.intersection(n.op) for n in b.looks)
    )
