"""``narrowdown replay SESSION... --engine E ... --python VENV ...``: which faults does an engine,
or another version of it, mend or bring? Each cell of the matrix is a replay in a process of its
own, by the interpreter of its column."""

import argparse
import contextlib
import itertools
import os
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from narrowdown.engines import installed
from narrowdown.engines.processes import run_module
from narrowdown.engines.store import write_atomically
from narrowdown.wizard import Exit, trust
from narrowdown.wizard.ladder.environments import interpreter
from narrowdown.wizard.problem_options import engine_under_test
from narrowdown.wizard.runner.table import OUTCOMES, UNTOLD
from narrowdown.wizard.schedulers import LOCAL
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.words import visible


class Cell(NamedTuple):
    """One replay. ``column``: engine and environment; ``said``: its verdict, or why there is
    none."""

    session: str
    column: str
    code: int
    said: str


def matrix(arguments: argparse.Namespace) -> int:
    """Replay every session by every engine and interpreter; a table on stdout, and the files that
    were asked for. Exit 0 where every cell is as expected, 3 where one waits for consent, 5 where
    one is not as expected, else 6 where one cannot be told."""
    places = [folders.find(name) for name in arguments.sessions]
    here = arguments.executor == LOCAL and not arguments.python
    for place, engine in itertools.product(
        places, arguments.engine or [""]
    ):  # before any cell is begun, which asks again
        named = engine_under_test(engine, here=here) if engine else ""
        trust.admit(folders.describe(place).problem, arguments.yes_run_scripts, named)
    pythons = [interpreter(name).words[0] for name in arguments.python] or [sys.executable]
    columns = list(itertools.product(arguments.engine or [""], pythons))
    cells = []
    with packages_of_ours() as ours:
        for place in places:
            for engine, python in columns:
                cells.append(cell := replayed(place, engine, python, arguments, ours))
                row = f"{cell.session:16} {visible(cell.column):40} {outcome(cell):16} {visible(cell.said[:160])}"
                print(row, flush=True)
    if arguments.junit:
        write_atomically(
            Path(arguments.junit).expanduser().absolute(),
            ElementTree.tostring(junit(cells), encoding="utf-8", xml_declaration=True),
        )
    codes = {cell.code for cell in cells}
    if (
        Exit.NEEDS_PERSON in codes
    ):  # nobody has agreed to what that session runs, so that nothing was measured there
        return Exit.NEEDS_PERSON
    return (
        Exit.DIFFERS
        if Exit.DIFFERS in codes
        else Exit.FOUND
        if codes <= {Exit.FOUND}
        else Exit.UNRESOLVED
    )


@contextlib.contextmanager
def packages_of_ours() -> Iterator[str]:
    """A folder with our packages and nothing else: where they are installed, the engines of this
    environment lie beside them, and would be taken for those of another interpreter."""
    with tempfile.TemporaryDirectory(prefix="narrowdown-") as folder:
        (Path(folder) / "narrowdown").symlink_to(installed.ROOT.resolve() / "narrowdown")
        yield folder


def replayed(
    place: Path, engine: str, python: str, arguments: argparse.Namespace, ours: str
) -> Cell:
    """One cell. The interpreter runs this very Narrowdown, from the folder ``ours``, with the
    engines and packages of its own environment."""
    words = ["replay", str(place), "--json", "--expect", arguments.expect]
    words += ["--engine", engine] if engine else []
    words += ["--keep-going"] if arguments.keep_going else []
    words += [
        word for digest in arguments.yes_run_scripts for word in ("--yes-run-scripts", digest)
    ]
    paths = [ours, *filter(None, [os.environ.get("PYTHONPATH")])]
    there = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = run_module("narrowdown", words, None, there, python=python)
    where = (
        str(Path(python).parent.parent).replace(str(Path.home()), "~", 1)
        if arguments.python
        else ""
    )
    column = " in ".join(filter(None, [engine or "as recorded", where]))
    try:
        told: dict[str, Any] = msgspec.json.decode(done.stdout)
    except ValueError:
        lines = done.stderr.strip().splitlines()
        return Cell(
            place.name,
            column,
            done.returncode or Exit.UNRESOLVED,
            lines[-1] if lines else "it said nothing",
        )
    version = next(
        (e["now"].get("version", "") for e in told.get("engines", ()) if e["role"] == "engine"), ""
    )
    verdict = f"{told['verdict']} ({version})" if version else str(told["verdict"])
    return Cell(place.name, column, done.returncode, verdict)


def outcome(cell: Cell) -> str:
    """What the cell's exit code says."""
    return OUTCOMES.get(cell.code, UNTOLD)


def junit(cells: Sequence[Cell]) -> ElementTree.Element:
    """JUnit's form: a suite a column, a case a session; not as expected is a failure, cannot tell
    an error."""
    root = ElementTree.Element("testsuites", name="narrowdown replay")
    for column in dict.fromkeys(cell.column for cell in cells):
        own = [cell for cell in cells if cell.column == column]
        failed, broken = (
            sum(outcome(cell) == word for cell in own) for word in (OUTCOMES[Exit.DIFFERS], UNTOLD)
        )
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=column,
            tests=str(len(own)),
            failures=str(failed),
            errors=str(broken),
        )
        for cell in own:
            case = ElementTree.SubElement(suite, "testcase", classname=column, name=cell.session)
            if cell.code != Exit.FOUND:
                kind = "failure" if cell.code == Exit.DIFFERS else "error"
                ElementTree.SubElement(case, kind, message=visible(cell.said)).text = outcome(cell)
    return root
