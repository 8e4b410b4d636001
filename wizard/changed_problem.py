"""A PROBLEM with some of its options given anew: those that are not given stay as they were
recorded."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from narrowdown.engines.sources import split_function
from narrowdown.wizard import BadUsage, passed_variables
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.problem import BOUNDS, OPTIONS, Problem
from narrowdown.wizard.problem_options import problem_from
from narrowdown.wizard.schedulers import LOCAL
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.session.editing import edit
from narrowdown.wizard.words import listing

# What stands for "not given" on the command line.
UNSET: Final[Mapping[str, Any]] = {
    name: [] if value in ((), {}) else None if isinstance(value, str) and name != "flow" else value
    for name, value in msgspec.structs.asdict(Problem(model="")).items()
    if name in OPTIONS
}
VARIABLES: Final = "variables for the checker"  # as a change: --pass-env is no part of a PROBLEM
# What runs in the folder where the user stood.
_STARTED: Final = frozenset({"engine", "reference", "inputs", "postprocess", "check"})


def change_problem(base: Problem, given: Mapping[str, Any], executor: str = LOCAL) -> Problem:
    """``base`` with the options in ``given``, as the command line parses them, in place of its own;
    a ``model`` likewise. Files are digested anew. ``executor``: where it will be measured. Raises
    Refusal as ``problem_from`` does, for what was recorded too: a file may be gone since."""
    _refuse_gone(base, given)
    own = {"flow": UNSET["flow"]}  # one's own flow is kept in the session: its file may be gone
    told = problem_from(
        argparse.Namespace(**{**tell_options(base), **own, **given, "executor": executor})
    )
    kept = {name: getattr(base, name) for name in OPTIONS if name not in given}
    folder = told.folder if _STARTED & given.keys() or not base.folder else base.folder
    exported = told.exported if "model" in given else base.exported
    return msgspec.structs.replace(told, **kept, folder=folder, exported=exported)


def _refuse_gone(base: Problem, given: Mapping[str, Any]) -> None:
    """Raise Refusal for a file of the session that is gone, where no other is given: nobody has
    typed its path now."""
    for option, places in {"model": (base.model,), "inputs": base.inputs}.items():
        for text in () if option in given else places:
            path = split_function(text)[0]
            if not any(Path(place).exists() for place in (path, path.partition("=")[2] or path)):
                what = "model" if option == "model" else "inputs file"
                where = f"Put it back, or say where it is now: --{option} FILE."
                raise BadUsage(
                    f"The {what} of this session is not there any more: '{path}'. {where}"
                )


def begin(source: Path, problem: Problem, passed: Sequence[str] = ()) -> tuple[Path, int]:
    """A new session of this PROBLEM, and how many measurements of the session in ``source`` it took
    over. It walks the flow that the session keeps, unless the PROBLEM names another. ``passed``:
    variables for its checker; where these are others than in that session, nothing holds that was
    measured. What the new session may run is admitted and agreed to before (``trust``). Raises
    FlowProblem, SessionProblem, ``OSError``."""
    base = folders.describe(source).problem
    changed = list_changes(source, base, problem, passed)
    loaded = load(source / folders.FLOW if base.flow == problem.flow else problem.flow)
    return edit(
        source,
        problem,
        loaded.text,
        listing(changed) if changed else "",
        alike=VARIABLES not in changed,
    )


def tell_options(problem: Problem) -> dict[str, Any]:
    """The PROBLEM as the command line would have parsed it."""
    bounds = {
        name: [_named(key, repr(limit)) for key, limit in getattr(problem, name).items()]
        for name in BOUNDS
    }
    return {
        **{name: getattr(problem, name) for name in OPTIONS},
        **bounds,
        "model": problem.model,
        "input_shapes": [f"{name}:{_listed(dims)}" for name, dims in problem.input_shapes.items()],
        "val_range": [_named(name, _listed(ends)) for name, ends in problem.val_range.items()],
    }


def changes(before: Problem, after: Problem) -> tuple[str, ...]:
    """The options that differ, as words for people; ``model`` or ``inputs`` also where only the
    file's content does."""
    names = ["model", *OPTIONS]
    found = [name for name in names if getattr(before, name) != getattr(after, name)]
    files = before.digests.keys() & after.digests.keys()
    if (
        "model" not in found
        and (after.model in files)
        and before.digests[after.model] != after.digests[after.model]
    ):
        found.insert(0, "model")
    others = files - {before.model, after.model}
    if "inputs" not in found and any(
        before.digests[path] != after.digests[path] for path in others
    ):
        found.append("inputs")
    return tuple(name.replace("_", " ") for name in found)


def list_changes(
    source: Path, before: Problem, after: Problem, passed: Sequence[str]
) -> tuple[str, ...]:
    """What differs from the session in ``source``, whose PROBLEM is ``before``: as ``changes``, and
    whether its checker is given other variables."""
    other = after.check and passed_variables.differ(source, before, passed)
    return (*changes(before, after), *((VARIABLES,) if other else ()))


def _named(name: str, value: str) -> str:
    return f"{name}:{value}" if name else value


def _listed(numbers: tuple[int | float, ...]) -> str:
    return f"[{','.join(map(repr, numbers))}]"
