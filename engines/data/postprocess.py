"""What is done to a model's outputs before they are compared, in Polygraphy's two forms: the
indices of the largest values, or a function of a user's script, called as Polygraphy calls it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from narrowdown.engines.array import Array
from narrowdown.engines.data import scripting
from narrowdown.engines.data.scripting import ScriptProblem
from narrowdown.engines.sources import TopK, postprocess_script, split_function, top_k

FUNCTION = "postprocess_outputs"
_KIND = "postprocess script"


class IterationResult(dict[str, Any]):
    """One run's outputs by name, as a script is given them: writable copies, in the model's order.
    ``runner_name`` is the spec of the engine; ``runtime``, in seconds, is not measured here."""

    def __init__(self, outputs: Mapping[str, Array], runner_name: str) -> None:
        super().__init__(outputs)
        self.runner_name, self.runtime = runner_name, 0.0


def apply_postprocess(
    postprocess: Sequence[str],
    outputs: Mapping[str, Array],
    runner: str,
    *,
    folder: str = "",
    digest: str = "",
) -> dict[str, Array]:
    """The outputs after ``postprocess``: one script, ``SCRIPT.py[:FUNCTION]``, or any number of
    top-K. ``folder``: where the script runs, if it is there, else its own. ``digest``: of the
    script, "" where it does not matter. Raises ``ScriptProblem``."""
    path = postprocess_script(postprocess)
    if not path:
        return _largest_indices([found for text in postprocess if (found := top_k(text))], outputs)
    file = Path(path)
    source = next(text for text in postprocess if top_k(text) is None)
    function = split_function(source)[1] or FUNCTION
    where = folder if folder and Path(folder).is_dir() else str(file.absolute().parent)
    given = IterationResult({name: writable_copy(a) for name, a in outputs.items()}, runner)
    takes = "one argument, the outputs by name"
    returned = scripting.run_script(_KIND, file, function, where, digest, takes, given)
    return _check_returned(returned, f"{function}() in '{file.name}'")


# -- top-K


def _largest_indices(chosen: Sequence[TopK], outputs: Mapping[str, Array]) -> dict[str, Array]:
    by_output = {each.output: each for each in chosen}
    for name in by_output:
        if name and name not in outputs:
            there = ", ".join(f"'{n}'" for n in list(outputs)[:6])
            raise ScriptProblem(f"--postprocess: the model has no output '{name}'. It has {there}.")
    made = dict(outputs)
    for name, value in outputs.items():
        if (each := by_output.get(name) or by_output.get("")) is not None:
            made[name] = top_indices(name, value, each.k, each.axis)
    return made


def top_indices(name: str, value: Array, k: int, axis: int) -> Array:
    """int64: where along ``axis`` the ``k`` largest values are, the largest first, of equal ones
    the first; all where there are fewer; NaN last. Raises ``ScriptProblem`` for strings, and
    where there is no such axis."""
    if value.dtype.kind in "OSUT" or not -value.ndim <= axis < value.ndim:
        what = (
            "holds strings"
            if value.dtype.kind in "OSUT"
            else f"has {value.ndim} dimensions, so no axis {axis}"
        )
        raise ScriptProblem(
            f"--postprocess: the output '{name}' {what}; top-{k} cannot be taken of it."
        )
    # Integers and booleans are turned around bit by bit: a minus sign would wrap around.
    falling = ~value if value.dtype.kind in "biu" else -writable_copy(value)
    order = np.argsort(falling, axis=axis, kind="stable")
    return np.take(order, np.arange(min(k, value.shape[axis])), axis=axis).astype(np.int64)


# -- scripts


def writable_copy(value: Array) -> Array:
    """A writable copy in a dtype of numpy's own: BF16 and FP8 as float32."""
    wide = value.dtype.isbuiltin == 2 and "float" in value.dtype.name
    return np.array(value, np.float32) if wide else np.array(value)


def _check_returned(returned: Any, who: str) -> dict[str, Array]:
    if returned is None or not hasattr(returned, "items"):
        what = "nothing" if returned is None else f"a value of type {type(returned).__name__}"
        raise ScriptProblem(f"{who} returned {what}; let it return the outputs, arrays by name.")
    try:
        made = {name: np.asarray(value) for name, value in returned.items()}
    except Exception as error:
        raise ScriptProblem(
            f"{who} returned what cannot be turned into arrays by name: {scripting.say_error(error)}"
        ) from error
    if not made:
        raise ScriptProblem(
            f"{who} returned no outputs; let it return those to compare, arrays by name."
        )
    for name, value in made.items():
        if not isinstance(name, str):
            raise ScriptProblem(f"{who} returned an output named {name!r:.80}; names are texts.")
        strings = value.dtype.kind == "O" and all(isinstance(x, str) for x in value.ravel())
        if value.dtype.kind not in "biufSUT" and value.dtype.isbuiltin != 2 and not strings:
            raise ScriptProblem(
                f"{who} returned '{name}', which is not an array of numbers or strings."
            )
    return made
