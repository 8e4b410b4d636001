"""Options that several commands take, with the words that --help says of them."""

from narrowdown.wizard.cli.parsing import Group, Option, each, flag, one
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

SESSION = "a session's folder, its id, or the beginning of its id"

MODEL = (
    one(
        "model",
        metavar="MODEL",
        help="an ONNX file; or a PyTorch program: model.py:build, package.module:attribute, file.pt2",
    ),
    one(
        "--torch-python",
        metavar="PATH",
        help="the Python that has torch, for a PyTorch program; default: this one, or the first on the PATH",
    ),
)
ONE_SESSION = one("session", metavar="SESSION", help=SESSION)
ANSWERS = one(
    "--answers", metavar="FILE", help="YAML: node: answer id, or a list, one for each visit"
)
AUTO = flag(
    "--auto",
    "go on by itself with the recommended answers, until one is in doubt or a step takes long",
)
DISPLAY = one(
    "--display",
    metavar="tui|plain|json|none",
    help="default: tui in a terminal, plain elsewhere and where CI=true",
    choices=("auto", "tui", "plain", "json", "none"),
    default="auto",
)
EXECUTOR = one(
    "--executor",
    metavar="URL|local",
    help="where probes run: the scheduler of a Dask cluster (tcp://host:8786); default: this machine",
    type=read_executor,
    default=LOCAL,
)
PASS_ENV = each(
    "--pass-env",
    "NAME",
    "a variable of your environment that the checker of --check gets, too (repeatable)",
)
CONSENT = each("--yes-run-scripts", "SHA256|all", "run scripts of a session that is not yours")
EXPECT = one(
    "--expect",
    choices=("pass", "fail"),
    help="for CI: exit 0 where the model passes or fails as expected, 5 where it does not, 6 where that cannot be told",
)
SCORE = one(
    "--score",
    metavar="SCRIPT.py[:func]|LABELS",
    help="how good outputs are, for you: a function of the outputs and the sample that gives a number, or a file of labels",
)
AS_JSON = flag("--json", "the same as JSON")


def _run_as(*folder: Option) -> Group:
    """How a session runs; ``folder``: and where it lives, where that is not told already."""
    return Group(
        "session",
        (
            DISPLAY,
            *folder,
            one(
                "--jobs",
                metavar="N",
                help="probes at a time; default: what the device allows",
                type=read_count,
                default=0,
            ),
            EXECUTOR,
            PASS_ENV,
            one(
                "--budget",
                metavar="DURATION",
                help="such as 10m: the session stops then; a search ends a fifth earlier, with the smallest part so far",
                type=read_span,
                default=0.0,
            ),
            flag("--detach", "leave the runner at work when this program ends"),
            CONSENT,
        ),
    )


RUNNING = _run_as()
RUNNING_ANEW = _run_as(
    one(
        "--session",
        metavar="DIR",
        help="where the session lives; goes on with it if it is the same one",
    )
)
PROBLEM = Group(
    "problem",
    (
        one(
            "--engine",
            metavar="ENGINE",
            help="engine under test: NAME[:key=value,...], lists joined with +",
        ),
        one(
            "--reference",
            metavar="ENGINE",
            help="or golden:FILE, what it gave where it is right; default: onnxruntime, FP32, no optimizations, one thread",
        ),
        each(
            "--inputs",
            "FILE|SCRIPT.py[:func]",
            ".npz, .safetensors, .npy, .pb, [NAME:]raw.bin, images, a folder of them, Polygraphy's JSON, ONNX's test data, or a "
            "loader script (repeatable); default: random",
        ),
        one(
            "--seed",
            metavar="N",
            help="of the random inputs; default: 1",
            type=read_seed,
            default=1,
        ),
        each("--input-shapes", "name:[d,d]", "what open dimensions of an input are"),
        each("--val-range", "name:[lo,hi]", "random values of an input lie in here"),
        each(
            "--carry",
            "OUTPUT:INPUT",
            "an output that goes back into an input at the next step, * for the same text in both: 'present.*:past.*' "
            "(repeatable)",
        ),
        each(
            "--carry-token",
            "OUTPUT:INPUT=argmax",
            "the token that the scores choose goes back: logits:input_ids=argmax (repeatable)",
        ),
        one(
            "--steps",
            metavar="N",
            help="steps of such a loop; default: as many as the inputs have, else 64",
            type=read_count,
            default=0,
        ),
        one(
            "--force",
            metavar="reference|free",
            help="each step is fed the reference's state, or the engine its own tokens, too; default: own state, the "
            "reference's tokens",
            choices=("reference", "free"),
        ),
        one("--metric", metavar="NAME", help="what an output is judged by; default: rel_l2"),
        each("--atol", "[output:]X", "an absolute tolerance for each element"),
        each("--rtol", "[output:]X", "a relative one, beside it"),
        each(
            "--tolerance",
            "[output:]X",
            "of the metric, for a whole output; default: by the precision",
        ),
        each(
            "--postprocess",
            "SCRIPT.py[:func]|[output:]top-K[,axis=A]",
            "done to outputs before they are compared: a script, or the indices of the K largest values (repeatable)",
        ),
        SCORE,
        one("--check", metavar='"CMD"', help="an external checker in place of the comparison"),
        each("--fail-regex", "REGEX", "with --check: it fails where this is in what it prints"),
        each("--fail-code", "N", "with --check: only these exit codes fail", type=read_exit_code),
        each("--ignore-fail-code", "N", "with --check: these exit codes pass", type=read_exit_code),
        one("--timeout", metavar="SECONDS", help="of one probe", type=read_seconds, default=0.0),
        one(
            "--capture-bytes",
            metavar="SIZE",
            help="disk for captures; default: 4GiB",
            type=read_bytes,
            default=0,
        ),
        one(
            "--artifact-bytes",
            metavar="SIZE",
            help="disk for saved models and logs, beyond which what is not needed any more goes; default: 8GiB",
            type=read_bytes,
            default=0,
        ),
        one(
            "--flow",
            metavar="FILE|NAME",
            help="the questions to walk; default: accuracy",
            default="accuracy",
        ),
    ),
)
# What is not given is None, and stays as the session has it.
CHANGED_PROBLEM = Group(
    PROBLEM.title, tuple(option.without_default() for option in PROBLEM.options)
)
NEW_SESSION = (*MODEL, PROBLEM, RUNNING_ANEW)
