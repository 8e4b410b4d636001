"""Every door that a session can come in by: the commands and their options from the command line's
own grammar, the calls of the terminal UI from its own interface. What has no door here, and no
reason for that, fails a test.
"""

import argparse
import contextlib
import functools
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from narrowdown.wizard import Refusal
from narrowdown.wizard.agent.desk import Desk
from narrowdown.wizard.cli import arguments, entry, mcp
from narrowdown.wizard.follow_up import ALL
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.schedulers import LOCAL
from narrowdown.wizard.tui.library import Sessions

# Options whose values do not choose what is done with a session, and what stands for the others.
_ASIDE = (
    "--help",
    "--yes-run-scripts",
    "--display",
    "--jobs",
    "--output",
    "--pass-env",
)
_VALUES = {
    "--engine": "onnxruntime",
    "--executor": LOCAL,
    "--answers": "{answers}",
    "--rewind": "sanitize",
    "--budget": "10m",
    "--score": "{score}",
    "--python": sys.prefix,
    "--site": sys.prefix,
    "--install": "onnxruntime==0",  # of which there is none, should it ever be asked for
    "--most": "1",
    "--timeout": "1m",
    "--junit": "{answers}.xml",
}
RELEASES = (
    ["--python"],
    ["--site"],
    ["--install"],
)  # the options that say where a ladder's releases are
SAID: list[str] = []  # what the last call at a door of the command line has printed
_SESSIONS = (
    "session",
    "sessions",
    "other",
    "cases",
)  # what an argument that is a session is called
# All options of ``edit`` that change the set-up go one way: this one stands for them.
_ONE = {"edit": ["--seed", "9"]}
# Commands that take a model or nothing, and what of a stranger's they can be pointed at.
_NAMED = {
    "open": ["--session"],
    "run": ["--session"],
    "step": ["--session"],
    "demo": ["--session"],
    "sessions": [],
    "engines": None,  # takes nothing of anybody's
    "help": None,  # likewise
    "flow": ["check", "{session}/flow.yaml"],
    "diff-tactics": ["--dir", "{session}"],
    "mcp": None,  # its tools have doors of their own
}


class Door:
    """``words`` of a command line, or a ``call`` of the terminal UI's. ``gated``: where a session
    that would run something must be refused with exit code 3; else nothing is run there at all."""

    def __init__(
        self, name: str, call: Callable[[Path, Path, tuple[str, ...]], int], *, gated: bool
    ) -> None:
        self.name, self.call, self.gated = name, call, gated


@functools.cache
def commands() -> dict[str, argparse.ArgumentParser]:
    """The command line's own commands; 8 ms to make, and asked for at each call of a door."""
    top = arguments.parser()
    found = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction))
    return dict(found.choices)


def of_the_command_line() -> Iterator[Door]:
    """One door for each command that takes a session, and one more for each option and choice that
    it has."""
    for name, parser in commands().items():
        if not any(
            action.dest in _SESSIONS and not action.option_strings for action in parser._actions
        ):
            continue
        gated = any("--yes-run-scripts" in action.option_strings for action in parser._actions)
        for words in [_ONE[name]] if name in _ONE else [[], *options(parser)]:
            shut = gated and "--dry" not in words and (name != "export" or "random" in words)
            yield Door(" ".join([name, *words]), command(name, words, gated), gated=shut)
    for name, words in _NAMED.items():
        if words is not None and words != ["--session"]:
            yield Door(name, command(name, words, False, session=False), gated=False)


def options(parser: argparse.ArgumentParser) -> Iterator[list[str]]:
    for action in parser._actions:
        option = next((text for text in action.option_strings if text.startswith("--")), "")
        if not option or option in _ASIDE:
            continue
        if action.nargs == 0:
            yield [option]
        elif action.choices:
            yield from ([option, str(choice)] for choice in action.choices)
        else:
            yield [option, _VALUES[option]]


def command(
    name: str, words: list[str], gated: bool, *, session: bool = True
) -> Callable[..., int]:
    def call(place: Path, work: Path, more: tuple[str, ...]) -> int:
        answers = work / "answers.yaml"
        answers.write_text("sanitize: ask\n", encoding="utf-8")
        score = work / "score.py"
        score.write_text("def score(outputs, sample):\n    return 1.0\n", encoding="utf-8")
        line = [name, *([str(place)] if session else []), *words, *(more if gated else ())]
        line = [
            word.format(session=place, answers=answers, score=score) if "{" in word else word
            for word in line
        ]
        known = {option for action in commands()[name]._actions for option in action.option_strings}
        line += ["--output", str(work / "out")] if name in ("export", "report") else []
        line += ["--display", "none"] if "--display" in known else []
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                return entry.main(line)
            finally:
                SAID[:] = [said.getvalue()]

    return call


# What the terminal UI can be asked for, and whether it takes up the session.
_ASKED: dict[str, Callable[[Sessions, Path, Path], object]] = {
    "entries": lambda library, place, work: library.entries(),
    "open": lambda library, place, work: library.open(place).close(),
    "problem": lambda library, place, work: library.problem(place),
    "summary": lambda library, place, work: library.summary("reduce"),
    "export": lambda library, place, work: library.export(place, str(work / "out")),
    "finish": lambda library, place, work: library.finish(place),
    "demos": lambda library, place, work: library.demos(),
    "edit": lambda library, place, work: library.edit(
        place, msgspec.structs.replace(library.problem(place), seed=9)
    ),
    "after": lambda library, place, work: library.after(place, ALL),
    "follow_ups": lambda library, place, work: library.follow_ups(place),
    "report": lambda library, place, work: library.report(place),
    "weight": lambda library, place, work: library.weight(place),
}
# Of what the user types, or of ours; what deletes the session, or remembers for how long it may
# search, runs nothing of it.
_OWN = ("create", "demo", "executor", "remove", "end_searches_after")


def of_the_screens() -> Iterator[Door]:
    def door(name: str, first: tuple[dict[str, object], ...] = ()) -> Door:
        def call(place: Path, work: Path, more: tuple[str, ...]) -> int:
            library = Sessions(Options(first=first), yes=more[1::2])
            try:
                _ASKED[name](library, place, work)
            except Refusal as refusal:
                return refusal.code
            return 0

        return Door(
            f"screens: {name}{' again' if first else ''}",
            call,
            gated=name in ("edit", "after") or (name == "open" and bool(first)),
        )

    yield from map(door, _ASKED)
    yield door("open", ({"do": "rewind", "to": "sanitize"},))


# What a coding agent can ask of a session, as the server's tools call it.
_TOOLS: dict[str, Callable[[Desk, Path], object]] = {
    "run": lambda desk, place: desk.run(str(place), 1.0),
    "answer": lambda desk, place: desk.answer(str(place), "yes", {}, 1.0),
    "status": lambda desk, place: desk.status(str(place), 1.0),
    "report": lambda desk, place: desk.report(str(place), "json"),
}


def of_the_agents() -> Iterator[Door]:
    """The tools of the server for coding agents, which can give no consent: nothing is run there,
    whatever has been agreed to on the way."""

    def door(name: str) -> Door:
        def call(place: Path, work: Path, more: tuple[str, ...]) -> int:
            desk = Desk(mcp.begin, mcp.typed, mcp.finish)
            try:
                _TOOLS[name](desk, place)
            except Refusal as refusal:
                return refusal.code
            finally:
                desk.close()
            return 0

        return Door(f"agents: {name}", call, gated=name == "answer")

    return map(door, _TOOLS)


def all_doors() -> list[Door]:
    return [*of_the_command_line(), *of_the_screens(), *of_the_agents()]


def forgotten() -> set[str]:
    """Commands and calls that have no door, and no reason to have none."""
    lines = {
        name
        for name, parser in commands().items()
        if not any(a.dest in _SESSIONS for a in parser._actions)
    }
    calls = {name for name in vars(Sessions) if not name.startswith("_")}
    tools = {name for name in vars(Desk) if not name.startswith("_")}
    return (
        (lines - _NAMED.keys())
        | (calls - _ASKED.keys() - set(_OWN))
        | (tools - _TOOLS.keys() - {"open", "close"})  # a model of the client's own; nothing
    )
