"""One culprit's folder: models, inputs and expected values in two forms, the check, the
commands."""

import shlex
import shutil
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from narrowdown.engines.checker.command import DEBUG_MODEL, words
from narrowdown.engines.findings import Culprit
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Candidate
from narrowdown.engines.spec import parse
from narrowdown.wizard.bundle.check_script import Asked, script
from narrowdown.wizard.machine_room import ask
from narrowdown.wizard.manual_commands import commands
from narrowdown.wizard.words import ACTING, count

FILES = (
    "model.onnx",
    "engine.onnx",
    "good.onnx",
    "inputs.npz",
    "expected.npz",
    "actual.npz",
    "model.weights.bin",
    "engine.weights.bin",
    "weights.bin",
    "inputs.json",
    "expected.json",
)
GOOD = "good.txt"


def write_case(folder: Path, culprit: Culprit, files: Mapping[str, Path], asked: Asked) -> None:
    """Write the culprit's files into ``folder``, which is made. ``files``: name in the bundle ->
    where its bytes lie.

    The rest is ``others_eyes``'s. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if name in files:
            shutil.copyfile(files[name], folder / name)
    good = culprit.case.good
    if good is not None and "good.onnx" not in files:
        (folder / GOOD).write_text(left_out(good) + "\n", encoding="utf-8")
    check = folder / "check.py"
    check.write_text(script(culprit, asked), encoding="utf-8")
    check.chmod(0o755)
    lines = commands(
        parse(asked.engine), asked.criterion, culprit.case.inputs, asked.version, asked.looks,
        rounded=culprit.case.needs_higher_inputs,
    )  # fmt: skip
    if asked.check:
        lines = [
            "# the check that comes with the case: exit 1 while the fault lasts",
            "python check.py",
            "",
            *checker(asked.check),
        ]
    text = "\n".join(["#!/bin/sh", "# Run these one by one, in this folder.", *lines]) + "\n"
    (folder / "commands.sh").write_text(printable(text), encoding="utf-8")


def printable(lines: str) -> str:
    """Shell text that a terminal shows and does not obey: each acting character, which quoting has
    put between single quotes, is printed by the shell."""
    return "".join(
        f"""'"$(printf '{"".join(f"{chr(92)}{byte:03o}" for byte in c.encode(errors="replace"))}')"'"""
        if c != "\n" and unicodedata.category(c) in ACTING
        else c
        for c in lines
    )


def left_out(good: Candidate) -> str:
    """What there is to say where the passing neighbour of a case was too heavy to be kept."""
    many = len(ranges.decode(good.nodes))
    return (
        f"There is no good.onnx here: the largest part of the model that passes ({count(many, 'node')}: {good.nodes}, counted "
        "from 0 in topological order) holds too many weights to be copied beside the case. Whoever has the model has that part."
    )


def others_eyes(folders: Sequence[Path]) -> None:
    """These cases as others read them, in one process for all: ``inputs.json`` and
    ``expected.json`` beside the archives, models without what exporters write into them for whoever
    wrote the model. Raises MachineProblem."""
    if folders:
        ask("narrowdown.engines.workers.modelfiles", "ready", *map(str, folders))


def checker(command: str) -> list[str]:
    """The external checker on this case, as a shell line."""
    places = (Path("model.onnx"), Path("inputs.json"), Path("expected.json"), Path())
    return [
        "# the external checker; some look for the model under this name",
        f"cp model.onnx {DEBUG_MODEL}",
        shlex.join(words(command, *places)),
    ]
