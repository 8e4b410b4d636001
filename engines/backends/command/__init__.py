"""A program of the user's own as an engine, and PyTorch, which is one that we write: what is known of
them without starting them.

``exchange`` writes and reads the files between the program and us, ``engine`` starts it.
"""

from pathlib import Path

from narrowdown.engines.declaration import (
    NAMES,
    WORD,
    ByHand,
    CheckPart,
    Cure,
    Declaration,
    Found,
    Option,
    Recipe,
    Tracker,
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
    text = "\n".join(filter(None, (found.chosen["build"], found.chosen["run"])))
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


def check_torch(found: Found) -> CheckPart:
    """The part as PyTorch ran it, compiled in the same way."""
    source = _SOURCE.with_name("check_torch.py.txt").read_text(encoding="utf-8")
    return CheckPart(source, {"compile": found.chosen["compile"]}, "model.onnx")


# ``engines.exporting.launch`` fills its program in.
TORCH = Declaration(
    "torch",
    "PyTorch, in its own Python: it computes the program that the model was exported from, or parts of it.",
    DECLARATION.module,
    package="numpy",
    install="pip install torch",
    needs="PyTorch computes a PyTorch program: name it (model.py:build) as the model.",
    options=(
        Option(
            "compile", "str", "no", "yes: torch.compile; or the name of one of its backends, as torch_tensorrt.", plain="no",
            harmless=WORD,
        ),
        Option("program", "command", "", "What computes; it is filled in.", what="PyTorch program"),
    ),
    original=True,
    title="PyTorch",
    tracker=Tracker("https://github.com/pytorch/pytorch/issues"),
    check_part=check_torch,
)  # fmt: skip
