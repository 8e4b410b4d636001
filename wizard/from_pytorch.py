"""A model that is named as a PyTorch program: exported once, before the session begins, into the
folder of the session. What the user typed runs; nothing of it runs again."""

import argparse
import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from narrowdown.engines.exporting import launch
from narrowdown.engines.options import original
from narrowdown.engines.problem import Exported, Problem
from narrowdown.engines.sources import split_function
from narrowdown.wizard import BadUsage, Missing, problem_options
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.words import count, listing

FLOW = "pytorch"  # what is walked where nobody names another
ROLES = ("engine", "reference")


@contextlib.contextmanager
def open_model(
    arguments: argparse.Namespace, tell: Callable[[str], None]
) -> Iterator[argparse.Namespace]:
    """The arguments with an ONNX file as ``model``, the inputs as it takes them, and ``exported``,
    where a PyTorch program was named; as they are, otherwise. The folder of the export goes where
    no session came of it. Raises Refusal."""
    computes = any(original(getattr(arguments, role, None) or "") for role in ROLES)
    if not launch.is_program(arguments.model):
        if computes:
            raise BadUsage(
                "PyTorch computes a PyTorch program: name it (model.py:build) as the model."
            )
        yield arguments
        return
    request = launch.Request(
        place_source(arguments.model), place_inputs(arguments.inputs), program=computes
    )
    chosen = Path(arguments.session).expanduser().absolute() if arguments.session else None
    if chosen and (chosen / folders.DESCRIPTION).exists():
        taken = _take_over(arguments, folders.describe(chosen).problem, request.source)
        if computes:
            python = find_python(arguments.torch_python or "")
            taken = _name_engines(taken, python, chosen / folders.EXPORT)
        yield taken
        return
    python = find_python(arguments.torch_python or "")
    place = chosen or folders.reserve()
    export = place / folders.EXPORT
    if chosen and chosen.exists() and any(chosen.iterdir()):
        raise BadUsage(f"'{chosen}' is not empty and holds no session; name a new folder.")
    export.mkdir(parents=True, exist_ok=True)
    tell(f"exporting {arguments.model} with PyTorch ({python})")
    try:
        exported = _export(python, request, export, tell)
        changed = {
            **vars(arguments),
            "model": launch.find_model(export),
            "inputs": launch.list_inputs(export),
            "exported": exported,
            "session": str(place),
        }
        if changed.get("flow") == Problem(model="").flow:
            changed["flow"] = FLOW
        yield _name_engines(argparse.Namespace(**changed), python, export)
    finally:
        if not (place / folders.DESCRIPTION).exists():
            shutil.rmtree(place if chosen is None else export, ignore_errors=True)


def find_python(named: str) -> str:
    """The interpreter that exports, as ``launch`` finds it. Raises Refusal."""
    try:
        return launch.find_python(named)
    except launch.NoTorch as problem:
        raise Missing(str(problem)) from None


def _export(
    python: str, request: launch.Request, folder: Path, tell: Callable[[str], None]
) -> Exported:
    try:
        found = launch.run_export(python, request, folder)
    except launch.ExportFault as problem:
        raise BadUsage(f"The PyTorch module could not be exported: {problem}") from None
    tell(
        f"exported {found.module} with PyTorch {found.torch}; "
        f"{count(found.pairs, 'value')} inside of it recorded"
    )
    if found.training:
        tell("the module came in train mode and was put into eval mode, as for inference")
    return found


def _name_engines(arguments: argparse.Namespace, python: str, export: Path) -> argparse.Namespace:
    """The arguments with PyTorch as an engine or a reference by what it is started with. Raises
    Refusal."""
    named = vars(arguments)
    try:
        told = {r: launch.name_engine(named[r], python, export) for r in ROLES if named.get(r)}
    except ValueError as problem:
        raise BadUsage(str(problem)) from None
    return argparse.Namespace(**{**named, **told})


def _take_over(arguments: argparse.Namespace, there: Problem, source: str) -> argparse.Namespace:
    """The arguments about the export that a session holds. Raises Refusal where that is of another
    program."""
    exported = there.exported
    if exported is None or exported.source != source:
        raise BadUsage(
            f"'{arguments.session}' holds a session of another model; name a new folder for this one."
        )
    return argparse.Namespace(
        **{
            **vars(arguments),
            "model": there.model,
            "inputs": list(there.inputs),
            "exported": exported,
            "flow": there.flow,
        }
    )


def place_source(text: str) -> str:
    """The program with its path absolute. Raises Refusal."""
    path, function = split_function(text)
    if not function and not path.endswith(".pt2"):
        return text
    return problem_options.place_script(text, "", "There is no PyTorch program")


def place_inputs(texts: list[str]) -> tuple[str, ...]:
    """The files of example inputs, their paths absolute. Raises Refusal."""
    found = []
    for text in texts:
        path = Path(text).expanduser()
        problem_options.require_file(path, "--inputs: ", f"There is no inputs file '{text}'")
        if path.suffix.lower() not in launch.INPUT_KINDS:
            raise BadUsage(
                f"--inputs: '{text}' cannot be given to a PyTorch module; give {listing(list(launch.INPUT_KINDS))}."
            )
        found.append(str(path.resolve()))
    return tuple(found)
