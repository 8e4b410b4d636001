"""``narrowdown ladder CASE... --install PACKAGE:1.20..1.23``: since when does a case fail, and
where is it fixed?"""

import argparse
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from narrowdown.engines import discovery
from narrowdown.engines.checker.private_copies import Laid
from narrowdown.engines.consent import Consent
from narrowdown.engines.data import held
from narrowdown.engines.store.scratch import scratch
from narrowdown.wizard import BadUsage, Exit, passed_variables, terminal, trust
from narrowdown.wizard.bundle.withheld import Trial, held_check
from narrowdown.wizard.cli.sessions import read
from narrowdown.wizard.ladder import table
from narrowdown.wizard.ladder.checks import Answer, Case, ask
from narrowdown.wizard.ladder.environments import Place, interpreter, releases, root, site
from narrowdown.wizard.ladder.rungs import expect_rungs, next_rung
from narrowdown.wizard.session import SessionProblem, folder as folders
from narrowdown.wizard.trust.command_files import command_files
from narrowdown.wizard.trust.reading import digests, head, texts
from narrowdown.wizard.words import count, size, visible, write_json

CHECK = "check.py"


def ladder(arguments: argparse.Namespace) -> int:
    """Exit 0 where every case was told of at least one release, else 6. Raises Refusal,
    Untrusted."""
    # Before anything of any case is made, run or installed.
    agreed = [admit(name, arguments.yes_run_scripts) for name in arguments.cases]
    places = asked_places(arguments)
    with ExitStack() as stack:
        cases: list[Case] = []
        for name, admitted in zip(arguments.cases, agreed, strict=True):
            cases += prepared(name, admitted, stack.enter_context(scratch("narrowdown-ladder-")))
        for case in cases:
            stack.callback(case.trial.clear)
        announce(places, cases, every=arguments.every)
        climbs = [climb(case, places, arguments) for case in cases]
    sys.stdout.write(write_json({"cases": climbs}) if arguments.json else table.text(climbs))
    told = all(
        any(rung.tried and rung.outcome != "cannot tell" for rung in case.rungs) for case in climbs
    )
    return Exit.FOUND if told else Exit.UNRESOLVED


def asked_places(arguments: argparse.Namespace) -> list[Place]:
    """The releases in the order in which they are compared. Raises Refusal."""
    kinds = [bool(arguments.python), bool(arguments.site), bool(arguments.install)]
    if sum(kinds) != 1:
        raise BadUsage(
            "Say where the releases are, in one way: --python VENV..., --site DIR... or --install RELEASES."
        )
    if arguments.install:
        return releases(arguments.install)
    return [interpreter(name) for name in arguments.python] + [
        site(name) for name in arguments.site
    ]


def admit(name: str, yes: Iterable[str]) -> Consent | dict[str, str]:
    """Let a case pass only where somebody here has agreed to what it runs: all that a session
    names; the whole folder of a bundle, path -> sha256, with the scripts elsewhere that its
    check.py names. Raises Refusal, Untrusted, SessionProblem."""
    bundle = Path(name).expanduser().absolute()
    if not (bundle / CHECK).is_file():
        if bundle.is_file():
            raise BadUsage(
                f"'{name}' is a file; unpack the bundle, and name the folder with its check.py."
            )
        return trust.admit_session(folders.find(name), yes)
    path = str(bundle / CHECK)
    files = {str(bundle / file): found for file, found in digests(bundle).items()}
    for text in texts(bundle / CHECK):
        files |= command_files(text, "")
    trust.admit_items([trust.Item("check of a bundle", path, "", files, path, head(path, 5))], yes)
    return files


def prepared(name: str, admitted: Consent | Mapping[str, str], scratched: Path) -> list[Case]:
    """The check of an admitted case in private copies of what was agreed to: a bundle's own, or
    those of a session's culprits, which are written anew. Raises Refusal, SessionProblem."""
    try:
        if isinstance(admitted, Consent):
            return _of_session(name, admitted, scratched)
        return [_of_bundle(Path(name).expanduser().absolute(), admitted, scratched / "case")]
    except held.NotAgreed as problem:
        raise SessionProblem(
            f"{problem} Give the command once more: it asks about what is there now."
        ) from None


def _of_bundle(bundle: Path, files: Mapping[str, str], folder: Path) -> Case:
    """All of it and nothing else. Raises NotAgreed."""
    own = {path: digest for path, digest in files.items() if Path(path).is_relative_to(bundle)}
    for path, digest in own.items():
        target = folder / Path(path).relative_to(bundle)
        target.parent.mkdir(parents=True, exist_ok=True)
        held.write_copy(path, target, digest)
    elsewhere = {path: digest for path, digest in files.items() if path not in own}
    return Case(visible(bundle.name), folder, Trial(laid=Laid("", in_place=elsewhere)))


def _of_session(name: str, consent: Consent, scratched: Path) -> list[Case]:
    """Raises NotAgreed, SessionProblem, Refusal."""
    from narrowdown.wizard.bundle.export import FIRST, write_cases

    place, made = folders.find(name), []
    problem = folders.describe(place).problem
    consent = consent.handing(passed_variables.remembered(place, problem) or ())
    written = write_cases(read(name), scratched / FIRST)
    for number, case in enumerate(written, 1):
        (private := scratched / f"private-{number}").mkdir()
        try:
            trial = held_check(case.culprit, case.asked, problem, consent)(private)
        except ValueError as fault:  # an engine that is not known here
            raise SessionProblem(str(fault)) from None
        (case.folder / CHECK).write_text(trial.text, encoding="utf-8")
        called = place.name if number == 1 else f"{place.name} {case.folder.name}"
        made.append(Case(visible(called), case.folder, trial))
    return made


def announce(places: list[Place], cases: list[Case], *, every: bool) -> None:
    """What it will cost, before it does."""
    tries = len(places) if every else expect_rungs(len(places))
    terminal.say(
        f"{count(len(places), 'release')}, {count(len(cases), 'case')}: about {tries} releases are tried for each case."
    )
    new = [place for place in places if place.folder is not None and not place.folder.is_dir()]
    if new:
        declared = (d for d in discovery.engines().values() if d.package == new[0].package)
        each = next((f", some {size(d.weighs)} each" for d in declared), "")
        terminal.say(
            f"{count(len(new), 'release')} would be installed when needed{each}, into {root()}; "
            "they stay there for the next time, until you remove that folder."
        )


def climb(case: Case, places: list[Place], arguments: argparse.Namespace) -> table.Climbed:
    """Ask release after release, as each answer says."""
    names = [place.name for place in places]
    answers: dict[int, Answer] = {}
    while True:
        told = {rung: answer.outcome for rung, answer in answers.items()}
        if arguments.every:
            rung = next((r for r in range(len(places)) if r not in answers), None)
        else:
            rung = next_rung(told, len(places), found_at(places, answers))
        if rung is None:
            break
        answer = answers[rung] = ask(case, places[rung], arguments.timeout)
        terminal.say(f"{case.name}: {answer.outcome} in {names[rung]}: {answer.said}")
    return table.climbed(case.name, names, answers)


def found_at(places: list[Place], answers: dict[int, Answer]) -> int | None:
    """Which of the releases the case was found with, as its check says; None where it is none of
    them."""
    found = next((answer.found for answer in answers.values() if answer.found), "")
    return next(
        (
            i
            for i, place in enumerate(places)
            if place.version and f" {place.version} " in f"{found} "
        ),
        None,
    )
