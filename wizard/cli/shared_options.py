"""Options that several commands take, with the words that --help says of them."""

import argparse
from typing import Any

from narrowdown.wizard.cli.parsing import Parser
from narrowdown.wizard.readers import (
    read_bytes,
    read_count,
    read_executor,
    read_exit_code,
    read_seconds,
    read_seed,
    read_span,
)
from narrowdown.wizard.schedulers import LOCAL

DISPLAYS = ("auto", "tui", "plain", "json", "none")
SESSION = "a session's folder, its id, or the beginning of its id"


def add_one(
    made: argparse._ActionsContainer, name: str, metavar: str, text: str, **more: Any
) -> None:
    """A place of a command, or an option with a value."""
    made.add_argument(name, metavar=metavar, help=text, **more)


def add_each(
    made: argparse._ActionsContainer, name: str, metavar: str, text: str, **more: Any
) -> None:
    """An option that can be given several times."""
    add_one(made, name, metavar, text, action="append", default=[], **more)


def add_flag(made: argparse._ActionsContainer, name: str, text: str) -> None:
    """An option without a value."""
    made.add_argument(name, action="store_true", help=text)


def add_model(made: Parser) -> None:
    add_one(
        made,
        "model",
        "MODEL",
        "an ONNX file; or a PyTorch program: model.py:build, package.module:attribute, file.pt2",
    )
    add_one(
        made,
        "--torch-python",
        "PATH",
        "the Python that has torch, for a PyTorch program; default: this one, or the first on the PATH",
    )


def add_session(made: Parser) -> None:
    add_one(made, "session", "SESSION", SESSION)


def add_answers(made: Parser) -> None:
    add_one(made, "--answers", "FILE", "YAML: node: answer id, or a list, one for each visit")


def add_display(made: argparse._ActionsContainer) -> None:
    """How what happens is shown."""
    add_one(
        made,
        "--display",
        "tui|plain|json|none",
        "default: tui in a terminal, plain elsewhere and where CI=true",
        choices=DISPLAYS,
        default="auto",
    )


def add_executor(made: argparse._ActionsContainer) -> None:
    """Where probes run."""
    add_one(
        made,
        "--executor",
        "URL|local",
        "where probes run: the scheduler of a Dask cluster (tcp://host:8786); default: this machine",
        type=read_executor,
        default=LOCAL,
    )


def add_pass_env(made: Any) -> None:
    add_each(
        made,
        "--pass-env",
        "NAME",
        "a variable of your environment that the checker of --check gets, too (repeatable)",
    )


def add_consent(made: argparse._ActionsContainer) -> None:
    add_each(made, "--yes-run-scripts", "SHA256|all", "run scripts of a session that is not yours")


def add_running(made: Parser, *, folder: bool = True) -> None:
    """How a session runs; ``folder``: and where it lives, where that is not told already."""
    group = made.add_argument_group("session")
    add_display(group)
    if folder:
        add_one(
            group,
            "--session",
            "DIR",
            "where the session lives; goes on with it if it is the same one",
        )
    add_one(
        group,
        "--jobs",
        "N",
        "probes at a time; default: what the device allows",
        type=read_count,
        default=0,
    )
    add_executor(group)
    add_pass_env(group)
    add_one(
        group,
        "--budget",
        "DURATION",
        "such as 10m: the session stops then; a search ends a fifth earlier, with the smallest part so far",
        type=read_span,
        default=0.0,
    )
    add_flag(group, "--detach", "leave the runner at work when this program ends")
    add_consent(group)


def add_expect(made: Parser) -> None:
    """What is right, for CI."""
    made.add_argument(
        "--expect",
        choices=("pass", "fail"),
        help="for CI: exit 0 where the model passes or fails as expected, 5 where it does not, 6 where that cannot be told",
    )


def add_score(made: Any) -> None:
    """How good outputs are to the user."""
    add_one(
        made,
        "--score",
        "SCRIPT.py[:func]|LABELS",
        "how good outputs are, for you: a function of the outputs and the sample that gives a number, or a file of labels",
    )


def add_problem(made: Parser, *, anew: bool = False) -> None:
    """``anew``: what is not given is None, and stays as the session has it."""
    problem = made.add_argument_group("problem")
    add_one(
        problem,
        "--engine",
        "ENGINE",
        "engine under test: NAME[:key=value,...], lists joined with +",
    )
    add_one(
        problem,
        "--reference",
        "ENGINE",
        "or golden:FILE, what it gave where it is right; default: onnxruntime, FP32, no optimizations, one thread",
    )
    add_each(
        problem,
        "--inputs",
        "FILE|SCRIPT.py[:func]",
        ".npz, .safetensors, .npy, .pb, [NAME:]raw.bin, images, a folder of them, Polygraphy's JSON, ONNX's test data, or a "
        "loader script (repeatable); default: random",
    )
    add_one(
        problem,
        "--seed",
        "N",
        "of the random inputs; default: 1",
        type=read_seed,
        default=1,
    )
    add_each(problem, "--input-shapes", "name:[d,d]", "what open dimensions of an input are")
    add_each(problem, "--val-range", "name:[lo,hi]", "random values of an input lie in here")
    add_one(problem, "--metric", "NAME", "what an output is judged by; default: rel_l2")
    add_each(problem, "--atol", "[output:]X", "an absolute tolerance for each element")
    add_each(problem, "--rtol", "[output:]X", "a relative one, beside it")
    add_each(
        problem,
        "--tolerance",
        "[output:]X",
        "of the metric, for a whole output; default: by the precision",
    )
    add_each(
        problem,
        "--postprocess",
        "SCRIPT.py[:func]|[output:]top-K[,axis=A]",
        "done to outputs before they are compared: a script, or the indices of the K largest values (repeatable)",
    )
    add_score(problem)
    add_one(problem, "--check", '"CMD"', "an external checker in place of the comparison")
    add_each(
        problem, "--fail-regex", "REGEX", "with --check: it fails where this is in what it prints"
    )
    add_each(
        problem,
        "--fail-code",
        "N",
        "with --check: only these exit codes fail",
        type=read_exit_code,
    )
    add_each(
        problem,
        "--ignore-fail-code",
        "N",
        "with --check: these exit codes pass",
        type=read_exit_code,
    )
    add_one(problem, "--timeout", "SECONDS", "of one probe", type=read_seconds, default=0.0)
    add_one(
        problem,
        "--capture-bytes",
        "SIZE",
        "disk for captures; default: 4GiB",
        type=read_bytes,
        default=0,
    )
    add_one(
        problem,
        "--artifact-bytes",
        "SIZE",
        "disk for saved models and logs, beyond which what is not needed any more goes; default: 8GiB",
        type=read_bytes,
        default=0,
    )
    add_one(
        problem,
        "--flow",
        "FILE|NAME",
        "the questions to walk; default: accuracy",
        default="accuracy",
    )
    for action in problem._group_actions if anew else ():
        action.default = None
