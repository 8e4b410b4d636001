"""What Setup says beside each field. Pure but for looking at files; imports no engine and no onnx, except to check a flow."""

import shlex
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from wizard import given as words
from wizard.durations import read_duration
from wizard.edited import OPTIONS, change_problem, tell_options
from wizard.exits import BadUsage, Refusal
from wizard.flow.check import check as check_flow
from wizard.flow.check import errors
from wizard.flow.load import FlowProblem, load, shipped
from wizard.problem import Problem

MOST_FAULTS = 4  # of a flow file that are listed beside its field


def as_path(text: str) -> str:
    """A path as people paste it: in quotes, with escaped blanks, as a file:// address."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    if text.startswith("file://"):
        return unquote(urlsplit(text).path)
    return text.replace("\\ ", " ")


def model(text: str) -> str:
    """The absolute path. Raises Refusal."""
    if not text.strip():
        raise BadUsage("Which model? Type the path of an .onnx file.")
    return str(words.model_file(as_path(text)))


def flow(text: str) -> str:
    """The name of a shipped flow, or a file's absolute path; empty takes the default. Raises Refusal with what is wrong in the
    file and where, one fault a line."""
    if not text.strip():
        return Problem(model="").flow
    name = words.flow_name(as_path(text))
    try:
        loaded = load(name)
    except FlowProblem as problem:
        where = f"Line {problem.line}: " if problem.line else ""
        raise BadUsage(f"{where}{problem.message} {problem.suggestion}".strip()) from None
    faults = [] if name in shipped() else errors(check_flow(loaded))
    if faults:
        lines = [f"Line {fault.line}: {fault.message} {fault.suggestion}".rstrip() for fault in faults[:MOST_FAULTS]]
        more = len(faults) - len(lines)
        lines += [f"And {more} more: narrowdown flow check {loaded.path}"] if more else []
        raise BadUsage("\n".join(lines))
    return name


def timeout(text: str) -> float:
    """Seconds; empty takes the default. Raises Refusal."""
    if not text.strip():
        return float(OPTIONS["timeout"])
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise BadUsage(f"'{text.strip()}' is not a number of seconds above 0.")
    return value


def budget(text: str) -> float:
    """Seconds after which a search ends with the smallest part so far; empty: none. Raises Refusal."""
    try:
        return read_duration(text) if text.strip() else 0.0
    except ValueError as problem:
        raise BadUsage(f"{problem}.") from None


def _whole(text: str, least: int, most: int) -> int:
    if not text.strip().isdecimal() or not least <= int(text) <= most:
        raise BadUsage(f"'{text.strip()}' is not a whole number from {least} to {most}.")
    return int(text)


def _several(text: str) -> list[str]:
    """Values with blanks between, quoted as for a shell where they hold blanks. Raises Refusal."""
    try:
        return shlex.split(text)
    except ValueError as problem:
        raise BadUsage(f"'{text}' cannot be split into values: {problem}.") from None


def _each(check: Callable[[str], object]) -> Callable[[str], list[str]]:
    """A field of several values with blanks between, each checked by itself."""

    def read(text: str) -> list[str]:
        values = _several(text)
        for value in values:
            check(value)
        return values

    return read


def _parts(text: str) -> list[str]:
    """Values with commas between."""
    return [part.strip() for part in text.split(",") if part.strip()]


OF_THE_RUN = frozenset({"budget"})  # fields that change nothing of the problem
# What each field's text comes to, as the command line would have parsed it; an empty one takes the default. All raise Refusal.
FIELDS: Mapping[str, Callable[[str], object]] = {
    "model": model,
    "engine": lambda text: words.asked_engine(text.strip()),
    "reference": lambda text: (
        words.engine_spec(text.strip(), "--reference") if text.strip() else Problem(model="").reference
    ),
    "inputs": lambda text: tuple(words.input_source(as_path(part)) for part in _parts(text)),
    "tolerance": lambda text: words.bounds("--tolerance", _parts(text)),
    "flow": flow,
    "seed": lambda text: _whole(text, 0, 2**32 - 1) if text.strip() else OPTIONS["seed"],
    "input_shapes": _each(words.shape),
    "val_range": _each(words.value_range),
    "metric": lambda text: words.metric(text.strip()) or None,
    "atol": _each(lambda value: words.bounds("--atol", [value])),
    "rtol": _each(lambda value: words.bounds("--rtol", [value])),
    "postprocess": lambda text: list(words.postprocess(_several(text))),
    "score": lambda text: words.score(as_path(text)) if text.strip() else None,
    "check": lambda text: words.checker(text.strip()) if text.strip() else None,
    "fail_regex": lambda text: [words.regex(text.strip())] if text.strip() else [],
    "fail_code": lambda text: [_whole(each, 0, 255) for each in text.replace(",", " ").split()],
    "ignore_fail_code": lambda text: [_whole(each, 0, 255) for each in text.replace(",", " ").split()],
    "timeout": timeout,
    "budget": budget,
}


def problem_with(field: str, text: str) -> str:
    """The sentence to show beside a field; "" when it is fine."""
    try:
        FIELDS[field](text)
    except Refusal as refusal:
        return str(refusal)
    except OSError as error:
        return f"It cannot be read: {error.strerror or error}."
    return ""


def build(answers: Mapping[str, str], base: Problem | None = None) -> Problem:
    """The PROBLEM of what was typed into each field, by its name, with files digested; ``base`` keeps what Setup does not ask.
    Raises Refusal, ``OSError``."""
    path = model(answers["model"])
    given: dict[str, Any] = {name: FIELDS[name](answers[name]) for name in FIELDS if name not in OF_THE_RUN}
    given["tolerance"] = _parts(answers["tolerance"])
    before = base or Problem(model=path)
    typed = {name: value for name, value in given.items() if answers[name] != show_field(before, name)}
    return change_problem(before, {**typed, "model": path})


def show_field(problem: Problem, name: str) -> str:
    """What stands in a field for a PROBLEM; "" for what is its default, which is the field's placeholder."""
    if name == "model":
        return problem.model
    if name in OF_THE_RUN:
        return ""
    value = tell_options(problem)[name]
    if name in ("engine", "reference", "flow"):
        return str(value)
    if value == OPTIONS[name] or not value:
        return ""
    match name:
        case "inputs" | "tolerance":
            return ", ".join(value)
        case "fail_regex":
            return value[0] if len(value) == 1 else "|".join(f"(?:{each})" for each in value)
        case "fail_code" | "ignore_fail_code":
            return " ".join(map(str, value))
        case "input_shapes" | "val_range" | "atol" | "rtol" | "postprocess":
            return " ".join(shlex.quote(each) if not each or set(each) & set(" \t'\"\\") else each for each in value)
    return str(value)
