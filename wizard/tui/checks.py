"""What Setup says beside each field. Pure but for looking at files; imports no engine and no onnx,
except to check a flow."""

import argparse
import re
import shlex
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from narrowdown.engines import spec
from narrowdown.engines.exporting.launch import is_program
from narrowdown.engines.problem import Exported
from narrowdown.wizard import BadUsage, Refusal, problem_options as words, readers
from narrowdown.wizard.changed_problem import UNSET, change_problem, tell_options
from narrowdown.wizard.flow.check import check as check_flow
from narrowdown.wizard.flow.load import FlowProblem, load, shipped
from narrowdown.wizard.from_pytorch import ROLES, find_python, place_inputs, place_source
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.schedulers import LOCAL


def as_path(text: str) -> str:
    """A path as people paste it: in quotes, with escaped blanks, as a file:// address."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    if text.startswith("file://"):
        return unquote(urlsplit(text).path)
    return text.replace("\\ ", " ")


def model(text: str) -> str:
    """The absolute path; of a PyTorch program what names it. Raises Refusal."""
    if not text.strip():
        raise BadUsage("Which model? Type the path of an .onnx file.")
    if is_program(as_path(text)):
        return place_source(as_path(text))
    return str(words.model_file(as_path(text)))


def engine(text: str, *, here: bool = True) -> str:
    """The spec; empty takes what is usual. ``here`` False: the hosts of a cluster have it. Raises
    Refusal."""
    return words.asked_engine(text.strip(), here=here)


def reference(text: str, *, here: bool = True) -> str:
    """Likewise of the reference."""
    return (
        words.engine_spec(text.strip(), "--reference", here=here)
        if text.strip()
        else Problem(model="").reference
    )


def flow(text: str) -> str:
    """The name of a shipped flow, or a file's absolute path; empty takes the default. Raises
    Refusal with what is wrong in the file first, and where."""
    if not text.strip():
        return Problem(model="").flow
    name = words.flow_name(as_path(text))
    try:
        loaded = load(name)
    except FlowProblem as problem:
        where = f"Line {problem.line}: " if problem.line else ""
        raise BadUsage(f"{where}{problem.message} {problem.suggestion}".strip()) from None
    faults = [] if name in shipped() else check_flow(loaded)
    if faults:
        first, more = faults[0], len(faults) - 1
        said = f"Line {first.line}: {first.message} {first.suggestion}".rstrip()
        raise BadUsage(
            f"{said}\nAnd {more} more: narrowdown flow check {loaded.path}" if more else said
        )
    return name


def _typed(read: Callable[[str], object], empty: object) -> Callable[[str], object]:
    """A field as the command line reads it; an empty one takes ``empty``."""

    def take(text: str) -> object:
        try:
            return read(text.strip()) if text.strip() else empty
        except (ValueError, ArgumentTypeError) as problem:
            raise BadUsage(f"{problem}.") from None

    return take


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


def served(text: str) -> dict[str, str]:
    """Options of an engine's spec for ``name:smallest..largest`` of each open input, with blanks
    between several: x:1x3x64x64..8x3x64x64. Raises Refusal."""
    shapes: dict[str, list[str]] = {"min_shapes": [], "max_shapes": []}
    for each in _several(text):
        found = re.fullmatch(r"(.+):(\d+(?:x\d+)*)\.\.(\d+(?:x\d+)*)", each)
        if not found:
            raise BadUsage(f"'{each}' is not name:smallest..largest, as x:1x3x64x64..8x3x64x64.")
        name, *ends = found.groups()
        for of_input, end in zip(shapes.values(), ends, strict=True):
            of_input.append(f"{name}:{end}")
    return {key: "+".join(of_input) for key, of_input in shapes.items() if of_input}


def show_exported(named: argparse.Namespace) -> dict[str, str]:
    """What stands in the fields once a PyTorch program is exported; nothing for an ONNX file."""
    if not hasattr(named, "exported"):
        return {}
    told = {name: getattr(named, name) for name in ("model", "engine", "reference", "flow")}
    return {**told, "inputs": ", ".join(named.inputs)}


def split_listed(text: str) -> list[str]:
    """Values with commas between."""
    return [part.strip() for part in text.split(",") if part.strip()]


# What each field's text comes to, as the command line would have parsed it; an empty one takes the
# default. All raise Refusal.
FIELDS: Mapping[str, Callable[..., object]] = {
    "model": model,
    "engine": engine,
    "reference": reference,
    "inputs": lambda text: tuple(words.input_source(as_path(part)) for part in split_listed(text)),
    "tolerance": lambda text: words.bounds("--tolerance", split_listed(text)),
    "flow": flow,
    "seed": _typed(readers.read_seed, UNSET["seed"]),
    "input_shapes": _each(words.shape),
    "served": served,
    "val_range": _each(words.value_range),
    "carry": _several,
    "carry_token": _several,
    "steps": _typed(readers.read_count, UNSET["steps"]),
    "metric": lambda text: words.metric(text.strip()) or None,
    "atol": _each(lambda value: words.bounds("--atol", [value])),
    "rtol": _each(lambda value: words.bounds("--rtol", [value])),
    "postprocess": lambda text: list(words.postprocess(_several(text))),
    "score": lambda text: words.score(as_path(text)) if text.strip() else None,
    "check": lambda text: words.checker(text.strip()) if text.strip() else None,
    "timeout": _typed(readers.read_seconds, UNSET["timeout"]),
    "torch_python": lambda text: find_python(as_path(text)) if text.strip() else "",
}


def read(field: str, text: str, *, here: bool = True) -> object:
    """What a field's text comes to. ``here`` False: the session runs on a cluster, whose hosts may
    have engines that are not installed here. Raises Refusal, ``OSError``."""
    return FIELDS[field](text, here=here) if field in ROLES else FIELDS[field](text)


def problem_with(field: str, text: str, *, here: bool = True, model: str = "") -> str:
    """The sentence to show beside a field; "" when it is fine. ``model``: what stands in its field,
    as a PyTorch program takes other inputs."""
    try:
        if field == "inputs" and is_program(as_path(model)):
            place_inputs([as_path(part) for part in split_listed(text)])
        else:
            read(field, text, here=here)
    except Refusal as refusal:
        return str(refusal)
    except OSError as error:
        return f"It cannot be read: {error.strerror or error}."
    return ""


def build(
    answers: Mapping[str, str],
    base: Problem | None = None,
    executor: str = LOCAL,
    exported: Exported | None = None,
) -> Problem:
    """The PROBLEM of what was typed into each field, by its name, with files digested; ``base``
    keeps what Setup does not ask; ``exported``: how the model came out of PyTorch. Raises Refusal,
    ``OSError``."""
    path = model(answers["model"])
    given: dict[str, Any] = {n: read(n, answers[n], here=executor == LOCAL) for n in FIELDS}
    given["tolerance"] = split_listed(answers["tolerance"])
    before = base or Problem(model=path)
    typed = {
        name: value for name, value in given.items() if answers[name] != show_field(before, name)
    }
    if sizes := given["served"]:
        built = str(spec.parse(str(given["engine"])).with_options(sizes))
        typed["engine"] = engine(built, here=executor == LOCAL)
    return change_problem(before, {**typed, "model": path, "exported": exported}, executor)


def show_field(problem: Problem, name: str) -> str:
    """What stands in a field for a PROBLEM; "" for what is its default, which is the field's
    placeholder."""
    if name == "model":
        return problem.model
    value = tell_options(problem).get(name)  # a PROBLEM does not keep who exported its model
    if name in ("engine", "reference", "flow"):
        return str(value)
    if not value or value == UNSET[name]:
        return ""
    match name:
        case "inputs" | "tolerance":
            return ", ".join(value)
        case (
            "input_shapes" | "val_range" | "atol" | "rtol" | "postprocess" | "carry" | "carry_token"
        ):
            return " ".join(
                shlex.quote(each) if not each or set(each) & set(" \t'\"\\") else each
                for each in value
            )
    return str(value)
