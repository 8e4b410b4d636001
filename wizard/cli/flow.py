"""``narrowdown flow list`` and ``narrowdown flow check|show FILE``."""

import argparse
import os
import sys
from pathlib import Path

from narrowdown.engines.store import write_atomically
from narrowdown.wizard import BadUsage, Exit, Missing
from narrowdown.wizard.flow import render
from narrowdown.wizard.flow.check import check
from narrowdown.wizard.flow.load import FlowProblem, Loaded, brought, load, shipped
from narrowdown.wizard.problem_options import flow_name
from narrowdown.wizard.words import visible


def flow(arguments: argparse.Namespace) -> int:
    """List what is shipped, lint with file:line:column (exit 2 where something is wrong), or
    draw."""
    if arguments.action == "list":
        names = (*shipped(), *brought())
        for name in names:
            try:
                title = load(name).flow.title
            except FlowProblem as problem:  # another package's
                title = f"cannot be used: {problem}"
            print(visible(f"{name:{max(map(len, names))}}  {title}"))
        return Exit.FOUND
    if arguments.file is None:
        raise BadUsage(
            f"flow {arguments.action} needs a file, or a name that 'narrowdown flow list' shows."
        )
    loaded = load(flow_name(arguments.file))
    if arguments.action == "check":
        problems = check(loaded)
        for p in problems:
            hint = f" {p.suggestion}" if p.suggestion else ""
            print(visible(f"{loaded.path}:{p.line}:{p.column}: {p.message}{hint}"))
        if problems:
            return Exit.BAD_USAGE
        nodes, ends = len(loaded.flow.nodes), len(loaded.flow.ends)
        print(f"{loaded.path}: {nodes} nodes and {ends} ends, nothing wrong.")
        return Exit.FOUND
    drawn = {"text": render.text, "mermaid": render.mermaid, "svg": render.svg}[arguments.format](
        loaded.flow
    )
    write(drawn, arguments.output)
    if fault := faults(
        loaded
    ):  # a drawing helps to see what is wrong, but must not pass for a flow that works
        raise BadUsage(fault)
    return Exit.FOUND


def faults(loaded: Loaded) -> str:
    """The first thing that keeps a flow from being used, where, and how many more there are; ""
    where it holds together."""
    problems = check(loaded)
    if not problems:
        return ""
    first, more = problems[0], len(problems) - 1
    rest = f" ({more} more: narrowdown flow check {loaded.path})" if more else ""
    return (
        f"{loaded.path}:{first.line}:{first.column}: {first.message} {first.suggestion}".rstrip()
        + rest
    )


def write(text: str, output: str | None) -> None:
    """To a file (whole or not at all), or to stdout. Raises Refusal."""
    if output is None or output == "-":
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        return
    write_atomically(Path(writable(output)).expanduser(), text)


def writable(output: str) -> str:
    """The output's path, once it is clear that a file can be written there: before the work, not
    after it. Raises Refusal."""
    path = Path(output).expanduser()
    if output == "-":
        return output
    if path.is_dir():
        raise BadUsage(f"-o: '{output}' is a folder; name a file in it.")
    parent = next(p for p in path.absolute().parents if os.path.lexists(p))
    if not parent.is_dir():
        raise BadUsage(f"-o: '{output}' cannot be written, as '{parent}' is a file and no folder.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise Missing(
            f"-o: there is no permission to write into '{parent}'; name a file elsewhere."
        )
    return output
