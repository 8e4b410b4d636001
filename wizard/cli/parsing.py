"""argparse as this program uses it: sentences for wrong words, commands imported when they are
called."""

import argparse
import importlib
import os.path
import shlex
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple, NoReturn

from narrowdown.engines.nearest import suggestion
from narrowdown.wizard import BadUsage


class Parser(argparse.ArgumentParser):
    """argparse with sentences: a wrong word is exit 2, named, with the nearest right one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def error(self, message: str) -> NoReturn:
        raise BadUsage(f"{self._sentence(message)} ({self.prog} --help shows what is possible.)")

    def _sentence(self, message: str) -> str:
        if message.startswith("unrecognized arguments: "):
            word = message.removeprefix("unrecognized arguments: ").split()[0]
            if word.startswith("-"):
                known = [option for action in self._actions for option in action.option_strings]
                option = word.partition("=")[0]
                return f"There is no option '{option}' here.{suggestion(option, known, ' ')}"
            return f"'{word}' was not expected."
        return message[:1].upper() + message[1:] + ("" if message.endswith((".", "?")) else ".")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            if isinstance(action.choices, Steps) and (why := action.choices.why_not(str(value))):
                raise BadUsage(why)
            known = [str(choice) for choice in action.choices]
            if "open" in known and str(value).endswith(".onnx"):
                raise BadUsage(
                    f"'{value}' is a model and no command: {self.prog} open {shlex.quote(value)}"
                )
            if "open" in known and os.path.isfile(value):  # noqa: PTH113  pathlib raises for a word that is too long
                raise BadUsage(
                    f"'{value}' is a file and no command: {self.prog} open MODEL.onnx begins with a model."
                )
            if (
                isinstance(action, argparse._SubParsersAction)
                and "step" in known
                and value in Steps()
            ):
                raise BadUsage(
                    f"'{value}' is a step and no command: {self.prog} step {value} MODEL"
                )
            what = (
                "command"
                if isinstance(action, argparse._SubParsersAction)
                else _called(action, self.prog)
            )
            raise BadUsage(
                f"'{value}' is not a {what}.{suggestion(str(value), known, ' ')} Known: {', '.join(known)}."
            )


def _called(action: argparse.Action, prog: str) -> str:
    """What one value of an action is called: a step, a demo, a flow command, a value of
    --expect."""
    if action.option_strings:
        return f"value of {action.option_strings[-1]}"
    command = prog.split()[-1]
    return f"{command} command" if action.dest == "action" else command


class Option(NamedTuple):
    """A place of a command, or an option: what argparse is told of it."""

    names: tuple[str, ...]
    settings: dict[str, Any]

    def add_to(self, made: argparse._ActionsContainer) -> None:
        made.add_argument(*self.names, **self.settings)

    def without_default(self) -> "Option":
        """The same; what is not given is None."""
        return Option(self.names, {**self.settings, "default": None})


def one(*names: str, **settings: Any) -> Option:
    """A place, or an option with a value."""
    return Option(names, settings)


def each(name: str, metavar: str, text: str, **more: Any) -> Option:
    """An option that can be given several times."""
    return one(name, metavar=metavar, help=text, action="append", default=[], **more)


def flag(name: str, text: str) -> Option:
    """An option without a value."""
    return one(name, action="store_true", help=text)


class Group(NamedTuple):
    """Options that --help lists below a title."""

    title: str
    options: tuple[Option, ...]

    def add_to(self, made: argparse._ActionsContainer) -> None:
        group = made.add_argument_group(self.title)
        for option in self.options:
            option.add_to(group)


class Command(NamedTuple):
    """A command's function by name, imported when it is called."""

    module: str
    function: str

    def __call__(self, arguments: argparse.Namespace) -> int:
        function = getattr(
            importlib.import_module(f"narrowdown.wizard.cli.{self.module}"), self.function
        )
        return int(function(arguments))


class Entry(NamedTuple):
    """A command: ``text`` is what it does in a line; ``below``: the commands of its own."""

    name: str
    command: Command
    text: str
    options: tuple[Option | Group, ...]
    below: "tuple[Entry, ...]" = ()

    def add_to(self, commands: "argparse._SubParsersAction[Parser]") -> None:
        text = f"{self.text[:1].upper()}{self.text[1:]}."
        made = commands.add_parser(self.name, help=self.text, description=text)
        made.set_defaults(command=self.command, parser=made)
        for option in self.options:
            option.add_to(made)
        if self.below:
            names = "|".join(entry.name for entry in self.below)
            inside = made.add_subparsers(metavar=names, parser_class=Parser)
            for entry in self.below:
                entry.add_to(inside)


def inner(made: Parser) -> dict[str, Parser]:
    """The commands below a command, by name; none where it has none."""
    found = [action for action in made._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found[0].choices) if found else {}


class Steps:
    """The names of the steps that can be run alone, ours and those of other packages; looked up
    only when they are asked for. ``commands``: gives those of the command line, which are no
    steps."""

    def __init__(self, commands: Callable[[], Collection[str]] = tuple) -> None:
        self._commands = commands

    def __iter__(self) -> Iterator[str]:
        from narrowdown.engines.steps.registry import STEPS

        return (name for name, spec in STEPS.items() if spec.alone)

    def why_not(self, name: str) -> str:
        """Why a step of that name is there and cannot be used, as a sentence; "" where there is
        none."""
        from narrowdown.engines.steps.registry import BROKEN, STEPS

        if name not in STEPS and name in self._commands():
            return f"'{name}' is a command of its own and no step: narrowdown {name} --help says what it takes."
        if name in STEPS:
            return f"The step '{name}' only makes sense in a flow."
        return f"The step '{name}' is not usable. {BROKEN[name]}" if name in BROKEN else ""
