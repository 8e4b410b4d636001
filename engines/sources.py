"""What an inputs source names, by its text alone: ``[NAME=]PATH`` or ``[NAME=]SCRIPT.py:FUNCTION``;
and what postprocesses outputs: ``SCRIPT.py[:FUNCTION]`` or ``[OUTPUT:]top-K[,axis=A]``. Opens
nothing."""

import re
from collections.abc import Iterable
from typing import NamedTuple

IMAGES = (".png", ".jpg", ".jpeg")
# Nothing but values, as trtexec's --loadInputs takes them; type and shape are the model's to say.
RAW = (".bin",)
INPUT_KINDS = (".json", ".npz", ".npy", ".safetensors", ".pb", ".py", *RAW, *IMAGES)


def split_function(source: str) -> tuple[str, str]:
    """(path, function); the function is ``""`` where none is named."""
    path, colon, function = source.rpartition(":")
    return (path, function) if colon and path.endswith(".py") else (source, "")


def paths(source: str) -> tuple[str, ...]:
    """Every path that the source may mean: as it stands, and what follows ``NAME=``. Which of them
    is read depends on the model's inputs and on what is on disk. What begins with ``/`` is a path
    and names no input."""
    path, _ = split_function(source)
    if path.startswith("/"):
        return (path,)
    rest = path.partition("=")[2]
    return (path, rest) if rest else (path,)


def scripts(source: str) -> tuple[str, ...]:
    """The Python files among them: what would run."""
    return tuple(path for path in paths(source) if path.lower().endswith(".py"))


def score_script(score: str) -> str:
    """The path of the script that scores, "" where none does: labels are a file that nothing of is
    run."""
    path, _ = split_function(score)
    return path if path.lower().endswith(".py") else ""


# What a worker says that it does meanwhile, so that its end is not taken for the engine's.
POSTPROCESSING = "postprocessing the outputs"
SCORING = "scoring the outputs"


class TopK(NamedTuple):
    """The indices of the ``k`` largest values along ``axis``, of one output or (``""``) of all that
    are not named."""

    output: str
    k: int
    axis: int


def top_k(text: str) -> TopK | None:
    """``[OUTPUT:]top-K[,axis=A]``, the last axis where none is told; None for what reads
    otherwise."""
    match = re.fullmatch(
        r"(?:(?P<output>.+):)?top-(?P<k>[1-9]\d{0,8})(?:,axis=(?P<axis>-?\d{1,2}))?", text
    )
    return match and TopK(match["output"] or "", int(match["k"]), int(match["axis"] or -1))


def postprocess_script(postprocess: Iterable[str]) -> str:
    """The path of the script among them, "" where there is none."""
    return next((split_function(text)[0] for text in postprocess if top_k(text) is None), "")
