"""A program of the user's own as an engine: what is known of it without starting it.

``doors`` puts casts at the model's inputs and outputs for a program that takes few types,
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
)

FORMS = ("npz", "json", "npy")
# Element type -> those that may carry it to and from a program that does not take it, the first one
# that it takes. All hold every value of it; but for int64, whose values are mostly sizes and
# indices: those that do not fit are refused where they are fed.
CARRIERS = {
    "float16": ("float32", "float64"),
    "bfloat16": ("float32", "float64"),
    "float32": ("float64",),
    "float64": (),
    "bool": ("uint8", "int8", "int32", "int64", "float32"),
    "uint8": ("int32", "int64", "float32"),
    "int8": ("int32", "int64", "float32"),
    "int16": ("int32", "int64", "float32"),
    "int32": ("int64", "float64"),
    "int64": ("int32",),
}
_SOURCE = Path(__file__).with_name("check.py.txt")


def _dtypes(names: tuple[str, ...]) -> tuple[str, ...]:
    """Raises ``ValueError`` for what is no element type."""
    for name in names:
        if name not in CARRIERS:
            raise ValueError(f"command: dtypes: '{name}' is not one of {', '.join(CARRIERS)}.")
    return tuple(sorted(names, key=list(CARRIERS).index))


def check_part(found: Found) -> CheckPart:
    """The commands, and how values travel."""
    chosen = found.chosen
    settings = {key: chosen[key] for key in ("run", "build", "version", "io") if chosen[key]}
    if chosen["dtypes"]:
        settings["carried"] = {
            name: next((c for c in carriers if c in chosen["dtypes"]), name)
            for name, carriers in CARRIERS.items()
            if name not in chosen["dtypes"]
        }
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
        Option(
            "dtypes", "list", (), "Element types that the program takes and gives, joined with +; others are carried by these, "
            "with casts in the model. Default: all.", harmless=WORD,
        ),
        Option("device", "str", "", "What it runs on, for reports.", harmless=NAMES),
    ),
    required=("run",),
    lists={"dtypes": _dtypes},
    title="a program of your own",
    check_part=check_part,
    by_hand=ByHand(apply=apply),
)  # fmt: skip
