"""A function of a user's Python script: found, run in the folder that the user chose, and blamed by
line where it stops. What runs is what was agreed to (``engines.data.held``)."""

import contextlib
import importlib.util
import sys
import traceback
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from narrowdown.engines.data import InputProblem, held
from narrowdown.engines.nearest import nearest
from narrowdown.engines.store import digest_file


class ScriptProblem(InputProblem):
    """A user's script, or what the user gave in its place, could not be applied."""


# How a user's script may end, beside returning.
ENDS = (Exception, SystemExit, KeyboardInterrupt)


@contextlib.contextmanager
def open_script(kind: str, file: Path, function: str, folder: str) -> Iterator[Any]:
    """What ``file`` calls ``function``, which can be called. Its folder is importable meanwhile,
    and its module is forgotten afterwards. Its code, and nothing else, runs in ``folder``.
    ``kind``: for people, ``data loader``. Raises ``ScriptProblem``; ``NotAgreed`` where it, or what
    it imports of its folder, is not what was agreed to."""
    name = f"_narrowdown_script_{uuid.uuid4().hex}"
    spec = importlib.util.spec_from_file_location(name, file, loader=held.Loader(name, str(file)))
    if spec is None or spec.loader is None:
        raise ScriptProblem(f"'{file.name}' cannot be loaded as a Python script.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with contextlib.ExitStack() as stack:
        stack.callback(sys.modules.pop, name, None)
        stack.enter_context(held.importing(file.parent))
        try:
            with contextlib.chdir(folder):
                spec.loader.exec_module(module)
        except held.NotAgreed:
            raise
        except ENDS as error:
            raise ScriptProblem(blame_line(kind, file, error)) from error
        found = getattr(module, function, None)
        if not callable(found):
            there = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
            near = nearest(function, there)
            raise ScriptProblem(
                f"'{file.name}' has no function '{function}'{f': did you mean {near}?' if near else '.'}"
            )
        yield found


def call_function(
    kind: str, file: Path, function: str, found: Any, folder: str, takes: str, *given: Any
) -> Any:
    """What the script's ``function``, open as ``found``, returns of what is ``given``; it runs in
    ``folder``. ``takes``: what it must take, for people. Raises ``ScriptProblem``."""
    try:
        with contextlib.chdir(folder):
            return found(*given)
    except ENDS as error:
        if _refuses_arguments(error):
            said = say_error(error)[:-1]
            raise ScriptProblem(
                f"{function}() in '{file.name}' must take {takes} ({said})."
            ) from error
        raise ScriptProblem(blame_line(kind, file, error)) from error


def run_script(
    kind: str, file: Path, function: str, folder: str, digest: str, takes: str, *given: Any
) -> Any:
    """What a function of the script, or an object of a class of it, returns of what is ``given``.
    The script is loaded afresh for every call, as Polygraphy does: nothing of an earlier call is
    left in it. ``digest``: as ``refuse_changed`` has it. Raises as ``open_script`` does."""
    refuse_changed(kind, file, digest)
    with open_script(kind, file, function, folder) as found:
        if isinstance(found, type):
            found = call_function(kind, file, function, found, folder, takes)
        return call_function(kind, file, function, found, folder, takes, *given)


def refuse_changed(kind: str, file: Path, digest: str) -> None:
    """Raise ``ScriptProblem`` where the script is gone, or no longer of this digest ("": any)."""
    if not file.is_file():
        raise ScriptProblem(f"There is no {kind} '{file}'.")
    if digest and digest_file(file) != digest:
        raise ScriptProblem(
            f"'{file.name}' has changed since this session was opened; open a new session for the new content."
        )


def _refuses_arguments(error: BaseException) -> bool:
    """Whether the function never began: it does not take what it was called with."""
    return (
        isinstance(error, TypeError)
        and error.__traceback__ is not None
        and error.__traceback__.tb_next is None
    )


def blame_line(kind: str, file: Path, error: BaseException) -> str:
    """Where in the script it happened: the deepest frame that lies in it, or the line of a syntax
    error."""
    if isinstance(error, SyntaxError):
        where = f", line {error.lineno}," if error.lineno else ""
        return f"The {kind} '{file.name}'{where} is not Python: {make_sentence(error.msg)}"
    line = None
    for frame in traceback.extract_tb(error.__traceback__):
        if Path(frame.filename) == file:
            line = frame.lineno
    where = f", line {line}," if line else ""
    said = (
        f"{type(error).__name__}: {say_error(error)}" if str(error) else f"{type(error).__name__}."
    )
    return f"The {kind} '{file.name}'{where} stopped with {said}"


def say_error(error: BaseException) -> str:
    """What an error says, as one sentence of one line."""
    return make_sentence(str(error) or type(error).__name__)


def make_sentence(text: str) -> str:
    """The text as one line that ends in a full stop, at most 300 characters of it."""
    text = " ".join(text.split())[:300]
    return text if text.endswith(".") else f"{text}."
