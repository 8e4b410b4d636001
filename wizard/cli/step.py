"""``narrowdown step NAME MODEL``: one step alone, as a session of one node."""

import argparse
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path, PurePath
from typing import Any

import msgspec

from narrowdown.engines import installed
from narrowdown.engines.consent import Consent
from narrowdown.engines.findings import Findings
from narrowdown.engines.nearest import suggestion
from narrowdown.engines.probe import HUGE
from narrowdown.engines.steps.base import RETIRED, StepSpec, Told
from narrowdown.engines.steps.registry import STEPS
from narrowdown.engines.steps.surroundings import TABLE
from narrowdown.engines.store import Store, atomic
from narrowdown.wizard import BadUsage, Exit, passed_variables, terminal
from narrowdown.wizard.cli import run
from narrowdown.wizard.cli.flow import writable
from narrowdown.wizard.cli.follow import Follower
from narrowdown.wizard.cli.shown import found
from narrowdown.wizard.flow.load import in_words
from narrowdown.wizard.from_pytorch import open_model
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.problem_options import problem_from, say_usual
from narrowdown.wizard.report.read import Reading, read
from narrowdown.wizard.runner.client import Client
from narrowdown.wizard.schedulers import require_cluster
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.session.single import PREFIX, single_flow
from narrowdown.wizard.session.state import Visit
from narrowdown.wizard.words import write_json


def step(arguments: argparse.Namespace) -> int:
    """Run it, say what it found; ``--json``: the object alone on stdout, all else on stderr."""
    if arguments.detach:
        raise BadUsage("A step alone cannot be detached; 'narrowdown run --detach' can.")
    params = parameters(arguments.name, wanted(arguments))
    if arguments.expect and not STEPS[arguments.name].judges:
        steps = " and ".join(sorted(name for name, spec in STEPS.items() if spec.judges))
        raise BadUsage(f"--expect is for the steps {steps}, which say whether the model fails.")
    with open_model(arguments, terminal.say) as named:
        return run.expected(arguments.expect, _walk(named, params))


def _walk(arguments: argparse.Namespace, params: dict[str, str]) -> int:
    """The step in a session of its own, or in the one that is named; the exit code."""
    problem = msgspec.structs.replace(problem_from(arguments), flow=PREFIX + arguments.name)
    if arguments.output:
        not_onto_itself(writable(arguments.output), problem)
    passed_variables.refuse(problem, arguments.pass_env, arguments.executor)
    consent = run.agreed(problem)
    text = single_flow(arguments.name, params)
    place = run.session_folder(problem, text, arguments.session)
    if said := say_usual(arguments):
        terminal.say(said)
    return follow(arguments, place, consent)


def follow(arguments: argparse.Namespace, place: Path, consent: Consent) -> int:
    """Run the step that the session in ``place`` is about, and say what it found; the exit code."""
    flow = run.flow_of(place)
    since = folders.load(place).seq
    passed = passed_variables.chosen(place, arguments.pass_env, require_cluster(arguments.executor))
    options = run.runner_options(arguments, handed=passed, consent=consent)
    shown = run.display(arguments.display, flow, sys.stderr if arguments.json else sys.stdout)
    called = folders.name_for_command(place)
    with closing(Client.open(place, options, name=f"narrowdown step {arguments.name}")) as client:
        code = Follower(client, shown, since=since, name=called).run()
    if code == Exit.STOPPED:
        terminal.say(f"the session is safe: 'narrowdown resume {place}' goes on.")
        return code
    if code == Exit.MISSING and installed.find_change():
        return code  # as ``run`` does
    from narrowdown.wizard.bundle.models import (
        write_models,  # here: neither is needed before the step has ended
    )

    reading = read(place)
    visit = reading.state.route[-1] if reading.state.route else Visit(arguments.name)
    if visit.outcome is None:
        return code
    model, good = write_models(reading, visit, arguments.output)
    if arguments.output and model is None:
        terminal.say(
            f"the step made nothing to be written, so '{arguments.output}' was not written."
        )
    _sort_artifacts(arguments, reading, visit)
    if arguments.json:
        told = result(visit, reading.table, model, good, str(place))
        if code == Exit.NOT_REPRODUCED:
            # Also where it was refused before it began: the whole model did not fail.
            told |= nothing_failed(STEPS[visit.step], told)
        sys.stdout.write(write_json(told))
    elif arguments.display in ("auto", "plain"):
        outputs = reading.table(visit.tables.get("outputs", ""))
        terminal.show(found(visit.step, visit.outcome, outputs, reading.state.findings.criterion))
        if model:
            print(f"  {'program' if model.endswith('.py') else 'model':30} {model}")
        print(f"  {'session':30} {place}")
    return code


def _sort_artifacts(arguments: argparse.Namespace, reading: Reading, visit: Visit) -> None:
    """What each check or build left, by its verdict, where it was asked for; and how they ended."""
    rows = reading.table(visit.tables.get(TABLE, ""))
    if rows and arguments.artifacts:
        for said in sort_artifacts(
            rows,
            arguments.artifacts,
            Store(reading.folder),
            Path(arguments.art_dir).expanduser(),
            reading.description.created,
            builds=not reading.description.problem.check,
        ):
            terminal.say(said)
    if rows and arguments.display != "none":
        aside = arguments.json or arguments.display == "json"
        print(tally_verdicts(rows), file=sys.stderr if aside else sys.stdout)


def wanted(arguments: argparse.Namespace) -> list[str]:
    """``--with``, and the options that are parameters of some steps. Raises Refusal (exit 2) where
    they do not go together."""
    takers = [name for name, spec in STEPS.items() if "until" in spec.params.__struct_fields__]
    if arguments.until and arguments.name not in takers:
        raise BadUsage(
            f"--until is for the step {' or '.join(takers)}; {arguments.name} knows itself when it is done."
        )
    if arguments.artifacts and not arguments.check and not arguments.until:
        raise BadUsage(
            "--artifacts sorts what each check leaves, so it needs --check; without one, only "
            f"'step {' or '.join(takers)} --until' has builds to sort."
        )
    if not arguments.until:
        return list(arguments.params)
    if arguments.until not in ("good", "bad") and not re.fullmatch(
        "0*[1-9][0-9]*", arguments.until
    ):
        raise BadUsage(
            f"--until: '{arguments.until}' is neither good nor bad nor a number of 1 or more."
        )
    return [*arguments.params, f"until={arguments.until}"]


def not_onto_itself(output: str, problem: Problem) -> None:
    """Raise Refusal (exit 2) where a result would be written over the model or the inputs that it
    comes from."""
    target = Path(output).expanduser()
    for path in problem.digests:
        if target.exists() and Path(path).exists() and target.samefile(path):
            raise BadUsage(
                f"-o: '{output}' is what the step reads; name another file for its result."
            )


def parameters(name: str, given: list[str]) -> dict[str, str]:
    """``--with key=value``, checked against what the step declares. Raises Refusal (exit 2)."""
    declared = STEPS[name].params
    params: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        declares = key in declared.__struct_fields__
        if equals and key in RETIRED and not declares:
            continue
        if not equals or not declares:
            known = list(declared.__struct_fields__)
            takes = f" It takes {', '.join(known)}." if known else " It takes none."
            raise BadUsage(
                f"--with: the step {name} has no parameter '{key}'.{suggestion(key, known, ' ')}{takes}"
            )
        params[key] = value
    try:
        msgspec.convert(params, declared, strict=False)
    except msgspec.ValidationError as problem:
        said, _, where = str(problem).partition(" - at `$.")
        key = where.rstrip("`")
        wants = in_words(said, key) if key in params else f"{said}."
        raise BadUsage(f"--with {key}={params.get(key, '')}: {wants}") from None
    return params


Table = list[dict[str, Any]]


def result(
    visit: Visit, table: Callable[[str], Table], model: str | None, good: str | None, session: str
) -> dict[str, Any]:
    """The object of ``--json``. ``model`` and ``good``: paths of the models that were written, None
    where there is none."""
    spec, outcome = STEPS[visit.step], dict(visit.outcome or {})
    made = spec.json(
        Told(
            outcome=outcome,
            findings=visit.findings or Findings(),
            tables={
                name: table(digest) for name, digest in visit.tables.items() if name != "bundle"
            },
            speculative=visit.speculative,
            cached=visit.cached,
            builds=visit.builds,
        )
    )
    common = {"seconds": visit.seconds, "message": outcome.get("message", ""), "session": session}
    paths: dict[str, str | None] = {}
    if spec.makes:
        paths["model"] = model
    if {"case", "confirmed"}.intersection(spec.makes):
        paths["good_model"] = good
    told: dict[str, Any] = _tell_finite(
        {**made, **paths, **{k: value for k, value in common.items() if k not in made}}
    )
    return told


def nothing_failed(spec: StepSpec[Any], told: Mapping[str, Any]) -> dict[str, object]:
    """What stands for "the whole model did not fail" in the step's own fields, also where it was
    refused before it began; nothing where the step says so itself, in one of the words that it has
    for it."""
    ends = [e for e in spec.ends if e.end == "not-reproduced" and e.field in told]
    if any(told[e.field] == e.value for e in ends):
        return {}
    return {e.field: e.value for e in ends[:1]}


def _tell_finite(told: Any) -> Any:
    """The same with ``null`` for each number that is not finite. An object that has some names them
    in ``not_finite``, as what was never measured is ``null`` too."""
    if isinstance(told, Mapping):
        lost = [
            key for key, value in told.items() if isinstance(value, float) and abs(value) >= HUGE
        ]
        kept = {key: None if key in lost else _tell_finite(value) for key, value in told.items()}
        return {**kept, "not_finite": lost} if lost else kept
    if isinstance(told, (list, tuple)):
        return [_tell_finite(value) for value in told]
    return None if isinstance(told, float) and abs(told) >= HUGE else told


REPLAY = "replay.json"  # as Polygraphy's guide calls it
FOLDERS = {"pass": "good", "fail": "bad", "unresolved": "unresolved"}


def sort_artifacts(
    rows: Iterable[dict[str, Any]],
    wanted: Iterable[str],
    store: Store,
    folder: Path,
    began: float,
    *,
    builds: bool = False,
) -> list[str]:
    """Copy every artifact to
    ``folder/{good,bad,unresolved}/<stem>_<date>_<time>_N<iteration><ending>``.

    ``rows``: the step's table of iterations. ``began``: when the session was made, seconds since
    the epoch, so that sorting again makes the same names. ``builds``: they are of an engine's
    builds, of no check of the user's. Returns sentences on what could not be sorted. Raises
    OSError.
    """
    stamp = time.strftime("%m-%d-%y_%H-%M-%S", time.localtime(began))
    problems: list[str] = []
    missing: dict[str, int] = {}
    for row in rows:
        for name in wanted:
            digest = row["artifacts"].get(name)
            if digest is None:
                missing[name] = missing.get(name, 0) + 1
                continue
            path = PurePath(name)
            target = (
                folder
                / FOLDERS[row["verdict"]]
                / f"{path.stem}_{stamp}_N{row['iteration']}{path.suffix}"
            )
            source = store.path(digest)
            if target.exists():
                if target.read_bytes() != source.read_bytes():
                    problems.append(
                        f"'{target}' is there already with other content; it was left as it is."
                    )
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic(target) as temporary:
                shutil.copyfile(source, temporary)
    for name, count in missing.items():
        times = "once" if count == 1 else f"{count} times"
        if builds and name == REPLAY:
            problems.append(
                f"No '{name}' was made {times}: a tactic replay holds what an algorithm selector chose; this engine has none. "
                "'narrowdown step tactics' compares its choices, which the session keeps."
            )
        else:
            problems.append(
                f"The artifact '{name}' was not there {times}: was it meant to be made?"
            )
    return problems


def tally_verdicts(rows: Iterable[dict[str, Any]]) -> str:
    """How the iterations ended, in the words that scripts around Polygraphy look for."""
    verdicts = [row["verdict"] for row in rows]
    total, passed, unresolved = len(verdicts), verdicts.count("pass"), verdicts.count("unresolved")
    rate = 100 * passed / total if total else 0.0
    beside = f" | Unresolved: {unresolved}" if unresolved else ""
    return f"Finished {total} iteration(s) | Passed: {passed}/{total} | Pass Rate: {rate}%{beside}"
