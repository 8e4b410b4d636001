"""How good a model's outputs are, as the user counts: a function of a script, called with the
outputs and their sample, or a file of labels that the largest values are held against."""

import hashlib
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from narrowdown.engines.array import Array
from narrowdown.engines.data import scripting
from narrowdown.engines.data.postprocess import writable_copy
from narrowdown.engines.data.scripting import ScriptProblem
from narrowdown.engines.sources import score_script, split_function
from narrowdown.engines.store import regular
from narrowdown.engines.store.memory import HELD

FUNCTION = "score"
_KIND = "score script"


class Sample(dict[str, Any]):
    """What the outputs were computed from, as a script is given it: the inputs by name, writable
    copies. ``id``: ``real:0`` and so on; ``index``: its number among those of its kind."""

    def __init__(self, inputs: Mapping[str, Array], name: str) -> None:
        super().__init__({key: writable_copy(value) for key, value in inputs.items()})
        self.id = name
        self.index = int(name.partition(":")[2].partition("/")[0] or 0)


def apply_score(
    score: str, outputs: Mapping[str, Array], sample: Sample, digest: str = ""
) -> float | None:
    """The score of these outputs: what the script's function returns, or the share of rows whose
    largest value is where the label says. None where that is no finite number, as of outputs that
    are NaN. ``digest``: of the file, "" where it does not matter. A script runs in its own folder.
    Raises ``ScriptProblem``."""
    path = score_script(score)
    if not path:
        return hold_to_labels(_read_labels(Path(score), digest), outputs, sample.index)
    file, function = Path(path), split_function(score)[1] or FUNCTION
    given = {name: writable_copy(value) for name, value in outputs.items()}
    takes = "two arguments, the outputs by name and the sample"
    returned = scripting.run_script(
        _KIND, file, function, str(file.absolute().parent), digest, takes, given, sample
    )
    return _check_returned(returned, f"{function}() in '{file.name}'")


# -- labels


def hold_to_labels(labels: Array, outputs: Mapping[str, Array], index: int) -> float:
    """The share of rows whose largest value along the last axis of the one output of class scores
    is at the label. ``labels``: whole numbers, one a row; the rows of sample 0 first, then those of
    sample 1, of as many rows each. Raises ``ScriptProblem`` where there is no such output or are
    several, and where labels are missing."""
    scores = {
        name: a
        for name, a in outputs.items()
        if a.ndim and a.shape[-1] > 1 and a.dtype.kind not in "OSUTb"
    }
    if len(scores) != 1:
        found = ", ".join(f"'{name}'" for name in list(scores)[:4]) or "none"
        raise ScriptProblem(
            f"--score: labels are held against the one output of class scores, and the model has {len(scores)} ({found}). "
            "Write a score.py that says which."
        )
    ((name, value),) = scores.items()
    chosen = np.asarray(value).argmax(axis=-1).reshape(-1)
    mine = labels[index * len(chosen) : (index + 1) * len(chosen)]
    if len(mine) < len(chosen):
        raise ScriptProblem(
            f"--score: sample {index} has {len(chosen)} rows in '{name}', and of {len(labels)} labels {len(mine)} are left. "
            "Give one label for each row, in the order of the samples."
        )
    return float(np.mean(chosen == mine))


def _read_labels(file: Path, digest: str) -> Array:
    try:
        data = regular.read(file, HELD)
    except (OSError, ValueError) as error:
        raise ScriptProblem(f"The labels in '{file.name}' could not be read: {error}") from None
    if digest and hashlib.sha256(data).hexdigest() != digest:
        raise ScriptProblem(
            f"'{file.name}' has changed since this session was opened; open a new session for the new content."
        )
    try:
        labels = (
            np.load(io.BytesIO(data), allow_pickle=False)
            if file.suffix == ".npy"
            else np.array([int(word) for word in data.decode().replace(",", " ").split()], np.int64)
        )
    except (ValueError, OSError, EOFError) as error:
        raise ScriptProblem(
            f"The labels in '{file.name}' cannot be read: {scripting.say_error(error)} "
            "Give whole numbers, as a .npy array or as text."
        ) from None
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iu":
        raise ScriptProblem(f"The labels in '{file.name}' are no whole numbers.")
    return labels.reshape(-1)


def _check_returned(returned: Any, who: str) -> float | None:
    try:
        value = float(returned)
    except (TypeError, ValueError, OverflowError):
        what = "nothing" if returned is None else f"a value of type {type(returned).__name__}"
        raise ScriptProblem(
            f"{who} returned {what}; let it return one number, the larger the better."
        ) from None
    return value if math.isfinite(value) else None
