"""``narrowdown flow check|show FILE``."""

import argparse
import sys
from pathlib import Path

from engines.data.store import atomic
from wizard.cli.exits import BAD_USAGE, FOUND, Refusal
from wizard.cli.problem import flow_name


def flow(arguments: argparse.Namespace) -> int:
    """Lint with file:line:column (exit 2 where something is wrong), or draw."""
    from wizard.flow.check import check
    from wizard.flow.load import FlowProblem, load

    try:
        loaded = load(flow_name(arguments.file))
    except FlowProblem as problem:
        raise Refusal(BAD_USAGE, str(problem)) from None
    if arguments.action == "check":
        problems = check(loaded)
        for p in problems:
            hint = f" {p.suggestion}" if p.suggestion else ""
            print(f"{loaded.path}:{p.line}:{p.column}: {p.message}{hint}")
        if problems:
            return BAD_USAGE
        nodes, ends = len(loaded.flow.nodes), len(loaded.flow.ends)
        print(f"{loaded.path}: {nodes} nodes and {ends} ends, nothing wrong.")
        return FOUND
    from wizard.flow import render

    drawn = {"text": render.text, "mermaid": render.mermaid, "svg": render.svg}[arguments.format](loaded.flow)
    write(drawn, arguments.output)
    return FOUND


def write(text: str, output: str | None) -> None:
    """To a file (whole or not at all), or to stdout."""
    if output is None or output == "-":
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        return
    with atomic(Path(output).expanduser()) as temporary:
        temporary.write_text(text, encoding="utf-8")
