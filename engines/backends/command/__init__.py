"""A program of the user's own as an engine: what is known of it without starting it.

``exchange`` writes and reads the files between the program and us, ``engine`` starts it.
"""

from pathlib import Path

from narrowdown.engines.declaration import (
    NAMES,
    ByHand,
    CheckPart,
    Cure,
    Declaration,
    Found,
    Option,
    Recipe,
)

FORMS = ("npz", "json", "npy")
_SOURCE = Path(__file__).with_name("check.py.txt")


def check_part(found: Found) -> CheckPart:
    """The commands, and how values travel."""
    chosen = found.chosen
    settings = {key: chosen[key] for key in ("run", "build", "version", "io") if chosen[key]}

    return CheckPart(_SOURCE.read_text(encoding="utf-8"), settings)


def apply(found: Found, cure: Cure) -> list[Recipe]:
    """The program with the model that has the workaround in it."""
    if not cure.file:
        return []
    named = {
        "{model}": cure.file,
        "{inputs}": "inputs.npz",
        "{outputs}": "outputs.npz",
        "{engine}": "model.engine",
    }
    lines = (
        [found.chosen["build"], found.chosen["run"]]
        if found.chosen["build"]
        else [found.chosen["run"]]
    )
    text = "\n".join(lines)
    for hole, file in named.items():
        text = text.replace(hole, file)
    return [Recipe("your program", "sh", text, text.partition("\n")[0])]


DECLARATION = Declaration(
    "command",
    "A program of your own: it is given a model and inputs in files, and writes outputs.",
    "narrowdown.engines.backends.command.engine",
    package="numpy",
    install="pip install numpy",
    needs="It needs a program: command:run=PROGRAM {model} {inputs} {outputs}.",
    options=(
        Option(
            "run", "command", "", "What runs it: PROGRAM {model} {inputs} {outputs}; with build= {engine} in place of {model}.",
            what="engine command", holes=("inputs", "outputs"),
        ),
        Option(
            "build", "command", "", "What builds it once, before the first run: COMPILER {model} {engine}.", what="build command",
            holes=("model", "engine"),
        ),
        Option("version", "command", "", "What prints its version.", what="version command"),
        Option("io", "str", "npz", "In which form values travel: npz and json are files, npy folders of NAME.npy.", FORMS),
        Option(
            "precision", "str", "fp32", "What the program computes in; decides the tolerance.",
            ("fp32", "tf32", "fp16", "bf16", "fp64"),
        ),
        Option(
            "typed", "bool", False,
            "precision=fp16, bf16: the model is converted, casts and all, and the program computes in the model's types.",
        ),

        Option("device", "str", "", "What it runs on, for reports.", harmless=NAMES),
    ),
    required=("run",),

    title="a program of your own",
    check_part=check_part,
    by_hand=ByHand(apply=apply),
)  # fmt: skip
