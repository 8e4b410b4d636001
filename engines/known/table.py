"""The table of known bugs, ``flows/known/*.yaml``: read, held against its digests, and nothing else
of it used.

``flows/known/DIGESTS`` names each file with its sha256. That shows a file that was changed, added
or lost after the package was made: a half-written installation, an edit by hand. It is no proof of
who wrote the table: whoever can change the files can change the list, too. ``python -m
narrowdown.engines.known`` writes it anew, once a file was added.
"""

import functools
import hashlib
from collections.abc import Iterable
from importlib import resources
from typing import Any

import msgspec

from narrowdown.engines.known.entry import Bug
from narrowdown.engines.known.variant import vary_declared

DIGESTS = "DIGESTS"


class TableProblem(Exception):
    """The table, or a file of it, cannot be used: one sentence."""


@functools.cache
def read_table() -> tuple[Bug, ...]:
    """All entries by id. Raises TableProblem where a file is none, or is not what the digests
    say."""
    stated = read_digests()
    found = dict(list_files())
    if strange := sorted(set(found) ^ set(stated)):
        what = "is not in its list of digests" if strange[0] in found else "is missing"
        raise TableProblem(
            f"The table of known bugs is damaged: {strange[0]} {what}. Install narrowdown again."
        )
    for name, content in found.items():
        if hashlib.sha256(content).hexdigest() != stated[name]:
            raise TableProblem(
                f"The table of known bugs is damaged: {name} was changed. Install narrowdown again."
            )
    return tuple(
        sorted(
            (parse_bug(name, content) for name, content in found.items()), key=lambda bug: bug.id
        )
    )


def list_files() -> list[tuple[str, bytes]]:
    """(name, content) of each file of the table."""
    folder = resources.files("narrowdown.flows").joinpath("known")
    return sorted((f.name, f.read_bytes()) for f in folder.iterdir() if f.name.endswith(".yaml"))


def read_digests() -> dict[str, str]:
    """File name to sha256, as ``sha256sum`` writes it. Raises TableProblem."""
    try:
        text = (
            resources.files("narrowdown.flows")
            .joinpath("known", DIGESTS)
            .read_text(encoding="utf-8")
        )
    except OSError:
        raise TableProblem(
            "The table of known bugs has no list of digests. Install narrowdown again."
        ) from None
    return {name: digest for digest, name in (line.split() for line in text.splitlines() if line)}


def write_digests(files: Iterable[tuple[str, bytes]]) -> str:
    """The list of digests of these files."""
    return "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files)


def parse_bug(name: str, content: bytes) -> Bug:
    """One file. Raises TableProblem where it is no entry, or is not called like it."""
    import yaml  # here: each worker loads this module, and few read the table

    # In C where there is one: each report reads the table, and the one in Python takes a second for
    # it.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        bug = msgspec.convert(loader(content).get_single_data(), Bug)
    except (yaml.YAMLError, msgspec.ValidationError) as problem:
        raise TableProblem(f"{name}: {' '.join(str(problem).split())}") from None
    if name != f"{bug.id}.yaml":
        raise TableProblem(f"{name}: its id is '{bug.id}', so it must be called {bug.id}.yaml.")
    for place, node in enumerate(bug.looks):
        if any(not 0 <= r < place for r in node.reads):
            raise TableProblem(
                f"{name}: node {place} of the pattern reads one that does not come before it."
            )
    for variant in (*bug.fires, *bug.beside):
        try:
            same = bug.make is None or vary_declared(bug.make, variant) == bug.make
        except ValueError as problem:
            raise TableProblem(f"{name}: of its trigger {problem}.") from None
        if same:
            raise TableProblem(
                f"{name}: {variant} of its trigger changes nothing of its construction."
            )
    return bug


def recall(engine: str, ops: Iterable[str]) -> tuple[Bug, ...]:
    """Bugs of an engine whose pattern has no operators but these. Raises TableProblem."""
    held = set(ops)
    return tuple(
        b
        for b in read_table()
        if b.engine == engine and all(held.intersection(n.op) for n in b.looks)
    )
