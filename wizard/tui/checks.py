"""What Setup says beside each field. Pure but for looking at files; imports no engine and no onnx, except to check a flow."""

from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from engines.sources import paths
from engines.store.content import digest_file
from wizard import given as words
from wizard.exits import BAD_USAGE, Refusal
from wizard.flow.check import check, errors
from wizard.flow.load import FlowProblem, load, shipped
from wizard.problem import Problem

MOST_FAULTS = 4  # of a flow file that are listed beside its field


class Answers(msgspec.Struct, frozen=True):
    """What was typed into Setup, as text."""

    model: str = ""
    engine: str = ""
    reference: str = ""
    inputs: str = ""  # several, separated by commas
    tolerance: str = ""
    flow: str = ""


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
        raise Refusal(2, "Which model? Type the path of an .onnx file.")
    return str(words.model_file(as_path(text)))


def engine(text: str) -> str:
    """The canonical spec of the engine under test; empty takes the default. Raises Refusal."""
    return words.asked_engine(text.strip())


def reference(text: str) -> str:
    """The canonical spec of the reference; empty takes the default. Raises Refusal."""
    return words.engine_spec(text.strip(), "--reference") if text.strip() else Problem(model="").reference


def inputs(text: str) -> tuple[str, ...]:
    """Absolute sources. Raises Refusal for the first that cannot be used."""
    return tuple(words.input_source(as_path(part)) for part in text.split(",") if part.strip())


def tolerance(text: str) -> dict[str, float]:
    """By output name, "" for all; empty leaves it to the engine's precision. Raises Refusal."""
    return words.bounds("--tolerance", [part.strip() for part in text.split(",") if part.strip()])


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
        raise Refusal(BAD_USAGE, f"{where}{problem.message} {problem.suggestion}".strip()) from None
    faults = [] if name in shipped() else errors(check(loaded))
    if faults:
        lines = [f"Line {fault.line}: {fault.message} {fault.suggestion}".rstrip() for fault in faults[:MOST_FAULTS]]
        more = len(faults) - len(lines)
        lines += [f"And {more} more: narrowdown flow check {loaded.path}"] if more else []
        raise Refusal(BAD_USAGE, "\n".join(lines))
    return name


FIELDS: Mapping[str, Callable[[str], object]] = {
    "model": model,
    "engine": engine,
    "reference": reference,
    "inputs": inputs,
    "tolerance": tolerance,
    "flow": flow,
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


def build(answers: Answers, base: Problem | None = None) -> Problem:
    """The PROBLEM of these answers, with files digested; ``base`` keeps what Setup does not ask. Raises Refusal, ``OSError``."""
    path = model(answers.model)
    sources = inputs(answers.inputs)
    digests = {path: digest_file(Path(path))}
    for source in (*sources, *(base.postprocess if base else ())):
        digests |= {path: digest_file(Path(path)) for path in paths(source) if Path(path).is_file()}
    return msgspec.structs.replace(
        base or Problem(model=path),
        model=path,
        engine=engine(answers.engine),
        reference=reference(answers.reference),
        inputs=sources,
        tolerance=tolerance(answers.tolerance),
        flow=flow(answers.flow),
        digests=digests,
    )
