"""``narrowdown known [SESSION]``: the table of known bugs, and which of them a failure looks
like."""

import argparse
import sys
from collections.abc import Iterable

import msgspec

from narrowdown.engines.known.entry import Bug
from narrowdown.engines.known.lookalike import say_lookalike
from narrowdown.engines.known.table import TableProblem, read_table
from narrowdown.engines.spec import name_of_engine
from narrowdown.wizard import Exit, Missing, terminal
from narrowdown.wizard.cli.sessions import read
from narrowdown.wizard.words import visible, write_json


def known(arguments: argparse.Namespace) -> int:
    """List the table, or say what a session's failure looks like (0; 6 where it looks like
    nothing). Nothing is run: the step ``known`` tries whether the bug shows here."""
    if arguments.session is None:
        return list_bugs(table(), name_of_engine(arguments.engine or ""), as_json=arguments.json)
    found = read(arguments.session).report().lookalikes
    if arguments.json:
        sys.stdout.write(write_json({"lookalikes": found}))
        return Exit.FOUND if found else Exit.UNRESOLVED
    if not found:
        print("It looks like none of the bugs in the table.")
        return Exit.UNRESOLVED
    for like in found:
        terminal.show(map(visible, (say_lookalike(like), f"  nodes: {', '.join(like.nodes)}")))
    if not any(like.confirmed for like in found):
        print(
            "To see whether it shows on this engine: narrowdown step known MODEL, with the options of the session."
        )
    return Exit.FOUND


def table() -> tuple[Bug, ...]:
    """The table. Raises Refusal (exit 4) where it is damaged."""
    try:
        return read_table()
    except TableProblem as problem:
        raise Missing(str(problem)) from None


def list_bugs(bugs: Iterable[Bug], engine: str, *, as_json: bool) -> int:
    """The entries of one engine, or of all: one a line."""
    chosen = [bug for bug in bugs if engine in ("", bug.engine)]
    if as_json:
        told = {"bugs": [{**msgspec.to_builtins(b), "tried_here": bool(b.ran)} for b in chosen]}
        sys.stdout.write(write_json(told))
        return Exit.FOUND
    for bug in chosen:
        mended = f" (fixed in {bug.mended})" if bug.mended else ""
        print(visible(f"{bug.engine:12} {bug.thread or 'no thread known':34} {bug.says}{mended}"))
    print(
        f"{len(chosen)} known bugs, {sum(bool(b.ran) for b in chosen)} of them seen in runs of our own."
    )
    return Exit.FOUND
