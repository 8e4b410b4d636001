"""``narrowdown trigger CASE``: what triggers the case of a session, or of a bundle?"""

import argparse
from pathlib import Path
from typing import Any

from narrowdown.engines.consent import Consent
from narrowdown.engines.store import decoding, regular
from narrowdown.wizard import passed_variables, trust
from narrowdown.wizard.cli import run
from narrowdown.wizard.cli.flow import writable
from narrowdown.wizard.cli.step import follow, one
from narrowdown.wizard.exits import BadUsage
from narrowdown.wizard.follow_up import begin_after
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session import folder as folders

STEP = "trigger"
_CHECK, _MODEL, _INPUTS, _REPORT = "check.py", "model.onnx", "inputs.npz", "report.json"


def trigger(arguments: argparse.Namespace) -> int:
    """Run the step ``trigger`` on the first case of an ended session, or on a bundle's. Raises
    Refusal, Untrusted, SessionProblem."""
    if arguments.output:
        writable(arguments.output)
    params = {"budget": str(arguments.most)} if arguments.most else {}

    def admit(problem: Problem) -> Consent:
        consent = trust.admit(
            problem, arguments.yes_run_scripts
        )  # of what was read, nothing was typed
        if arguments.detach:
            raise BadUsage("This cannot be detached; stopped, 'narrowdown resume' goes on with it.")
        return consent

    bundle = Path(arguments.session).expanduser().absolute()
    if bundle.is_file():
        raise BadUsage(
            f"'{arguments.session}' is a file. Of a model: narrowdown step trigger MODEL. Of a bundle: unpack it, and name its "
            "folder."
        )
    if (bundle / _CHECK).is_file():
        return one(_of_bundle(arguments, bundle), params, admit)
    source = folders.find(arguments.session)
    base = folders.describe(source).problem
    admit(base)  # before anything of it is made
    passed_variables.refuse(base, arguments.pass_env, run.executor(arguments))
    place, _ = begin_after(source, step=STEP, params=params, executor=run.executor(arguments))
    ours: dict[str, Any] = {"name": STEP, "artifacts": [], "expect": None}
    problem = folders.describe(place).problem
    return follow(argparse.Namespace(**{**vars(arguments), **ours}), place, problem, admit(problem))


def _of_bundle(arguments: argparse.Namespace, bundle: Path) -> argparse.Namespace:
    """The words of ``narrowdown step trigger`` for a bundle: its model, its inputs, and what its
    report says of the failure. Raises Refusal."""
    from narrowdown.wizard.cli.arguments import parse

    told = _read_report(bundle)
    if not (bundle / _MODEL).is_file() or not (bundle / _INPUTS).is_file():
        raise BadUsage(
            f"'{bundle}' holds no {_MODEL} with {_INPUTS}, so there is no case to be varied."
        )
    words = ["step", STEP, str(bundle / _MODEL), "--inputs", str(bundle / _INPUTS)]
    words += [f"--engine={told['engine']}", f"--reference={told['reference']}"]
    if told["metric"]:
        words += [f"--metric={told['metric']}"]
        words += ["--tolerance", str(told["tolerance"])] if told["metric"] != "elementwise" else []
    ours = vars(parse(words))
    kept = {
        name: value
        for name, value in vars(arguments).items()
        if name in ours and name not in ("session", "command")
    }
    return argparse.Namespace(**{**ours, **kept, "session": None})


def _read_report(bundle: Path) -> dict[str, Any]:
    """Engine, reference, metric and tolerance. Raises Refusal where the bundle does not say
    them."""
    try:
        report = decoding.decode(regular.read(bundle / _REPORT))
        environment = report["environment"]
        specs = {name: str(environment[name]["spec"]) for name in ("engine", "reference")}
        return {**specs, "metric": str(report["metric"]), "tolerance": float(report["tolerance"])}
    except (OSError, ValueError, KeyError, TypeError):
        raise BadUsage(
            f"'{bundle}' does not say in {_REPORT} which engine it fails on; narrowdown step trigger {_MODEL} takes --engine."
        ) from None
