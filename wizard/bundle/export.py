"""The whole bundle of a session: a folder a culprit, with the report, the journal and the environment beside the first."""

import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from engines import faults, outside
from engines.checker import environment
from engines.checker import private_copies as checkfiles
from engines.compare.criterion import for_parts
from engines.consent import NOTHING, Consent
from engines.data.held import NotAgreed, copy, link_others, of_command, under
from engines.findings import Culprit
from engines.options import command_options, file_options, loaded, pair_options, with_libraries
from engines.spec import parse
from engines.store import copying
from engines.store.content import Store, atomic, write_atomically
from engines.store.scratch import scratch
from wizard.bundle.case import others_eyes, write_case
from wizard.bundle.check_script import Asked, script
from wizard.bundle.issue import issue, readme
from wizard.bundle.models import find_sound, place_scripts, place_worked_around, share_worked_around, write_whole
from wizard.bundle.overlay import place_overlays
from wizard.flow.model import Flow
from wizard.machine_room import ask
from wizard.problem import Problem
from wizard.report.document import Report, Workaround, to_json
from wizard.report.gather import Table, case_files, confirmed
from wizard.report.hand_on import APPLY
from wizard.report.html import to_html
from wizard.report.markdown import how_to_apply, to_markdown
from wizard.report.overlay import draw_neighbourhood
from wizard.report.portable import Traces, portable, traces
from wizard.report.read import Reading
from wizard.session import journal
from wizard.session.problems import AGREEING, SessionProblem
from wizard.words import write_json

FIRST = "case"
KEEP_SCRIPT = "keep_fp32.py"
REPORTS = ("report.md", "report.html", "report.json")
WITHHELD = "weights.txt"
TRACES = "traces.txt"
NO_FILES = (
    "The model of this case could not be kept when it was found: check.py and the commands have nothing to run here."
)
NO_WEIGHTS = "The failing model of this case holds no weights: nothing had to be withheld, and it fails as it is."


class Occupied(SessionProblem):
    """Something else lies where the bundle is to go."""

    code = 2


class NothingToExport(SessionProblem):
    """The session holds no failing case."""

    code = 6


Weights = Literal["keep", "random", "none"]


def export(
    reading: Reading, target: Path, weights: Weights = "keep", consent: Consent = NOTHING, *, worked_around: str = ""
) -> Path:
    """Write the bundle to a folder, or to one file where ``target`` ends in ``.zip``. Whole or not at all.

    ``weights``: as they are, random ones of the same statistics in their place, or none. What became of the failure stands in the
    bundle's ``weights.txt``. To tell that, ``random`` runs the reference and the case's own check, held to ``consent``.
    ``worked_around``: as ``hand_on``.

    Raises NothingToExport, SessionProblem, OSError, MachineProblem.
    """
    try:
        return _exported(reading, target.absolute(), weights, consent, worked_around)
    except OSError as error:
        if error.errno in faults.OURS:  # whatever file it was, the disk is the target's
            raise OSError(error.errno, error.strerror, str(target)) from None
        raise


def hand_on(reading: Reading, report: Report, worked_around: str = "") -> str:
    """At an end: the report into the session's folder, and beside it the bundle, where there is a case; its folder, else "".
    ``worked_around``: the model that ``write_worked_around`` has just written there, which is the bundle's, too. Raises
    SessionProblem, OSError, MachineProblem."""
    write_atomically(reading.folder / "report.html", to_html(report, reading.flow))
    try:
        case = export(reading, reading.folder / FIRST, worked_around=worked_around)
    except NothingToExport:
        return ""
    for report_of_culprit in case.rglob("report.html"):
        copying.join_equal(reading.folder / "report.html", report_of_culprit)
    return str(case)


def _exported(reading: Reading, target: Path, weights: Weights, consent: Consent, worked_around: str) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    with scratch(f".{target.name}.narrowdown-", target.parent) as folder:
        made = folder / FIRST
        _write(reading, made, weights, consent, worked_around)
        if target.suffix == ".zip":
            with atomic(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
                for path in sorted(made.rglob("*")):
                    if path.is_file():
                        archive.write(path, path.relative_to(made.parent))
            return target
        _move_into_place(made, target)
    return target


def _move_into_place(made: Path, target: Path) -> None:
    """Move a finished bundle into place; an earlier bundle there is replaced, anything else is left alone. Whoever is killed on
    the way leaves a whole bundle or none: the earlier one goes by its name first, its files with the folder of ``made``."""
    if target.exists():
        if not target.is_dir():
            raise Occupied(f"'{target}' is there and is no folder; name another one.")
        if any(target.iterdir()) and not (target / "check.py").is_file():
            raise Occupied(f"'{target}' is not empty and holds no bundle; name another folder.")
        target.rename(made.with_name("before"))
    made.rename(target)


def _write(reading: Reading, folder: Path, weights: Weights, consent: Consent, worked_around: str) -> None:
    report = reading.report()
    culprits = confirmed(reading.state, reading.flow)
    if not culprits:
        raise NothingToExport(
            f"The session {reading.description.id} has found no failing case yet, so there is nothing to export; "
            "'narrowdown report' says what it knows."
        )
    problem = reading.description.problem
    criterion = reading.state.findings.criterion
    if criterion is None:
        raise SessionProblem(f"The session {reading.description.id} does not say how the failure was judged.")
    found = traces(reading)
    asked = Asked(
        engine=found.spec(problem.engine),
        found_with=found.clean(found_with(reading)),
        criterion=for_parts(criterion),
        looks=reading.state.findings.looks,
        check=found.command(problem.check) if problem.check else "",
        needs=tuple(found.file(w) for w in shlex.split(problem.check)[1:] if w.startswith("/"))
        if problem.check
        else (),
        timeout=problem.timeout,
        version=reading.state.version(problem.engine),
    )
    store = Store(reading.folder)

    def table(digest: str) -> Table:
        """What of a case was kept. Where that is gone, so is the case: its bundle would be one with nothing to run in it."""
        find_sound(store, {"the list of what a case holds": digest})
        return reading.table(digest)

    places: dict[Path, Culprit] = {}
    of_case: dict[Path, Asked] = {}
    models: list[Path] = []
    for number, (culprit, files) in enumerate(
        zip(culprits, case_files(reading.state, table, culprits), strict=True), 1
    ):
        place = folder if number == 1 else folder / f"culprit-{number}"
        paths = find_sound(store, files)
        of_case[place] = asked
        if engine := culprit.case.engine:
            with_it = found.clean(found_with(reading, engine))
            of_case[place] = msgspec.structs.replace(asked, engine=found.spec(engine), found_with=with_it)
        write_case(place, culprit, paths, of_case[place])
        models += [place / name for name in paths if (place / name).suffix == ".onnx" and (place / name).is_file()]
        places[place] = culprit
    if (reading.folder / journal.NAME).is_file():
        with (folder / journal.NAME).open("wb") as record:
            record.writelines(journal.rewritten(reading.folder / journal.NAME, found.cleaned, found.touches))
    write_whole(store, {model: model for model in models})
    whole = [place for place in places if (place / "model.onnx").is_file()]
    held: dict[Path, int] = {}
    if weights != "keep" and whole:
        agreed = Consent(files={p: consent.files[p] for _, p in loaded(problem.reference) if p in consent.files})
        words = (msgspec.json.encode(agreed).decode(), weights, problem.reference)
        counts = ask("engines.workers.withheld", *words, *map(str, whole)).split()
        held = dict(zip(whole, map(int, counts), strict=True))
    if weights == "keep" and worked_around:
        share_worked_around(Path(worked_around), folder)
    elif weights == "keep":
        place_worked_around(reading, folder)
    place_scripts(reading, folder)
    others_eyes(list(dict.fromkeys([*places, folder])))
    report = portable(report, found)
    for place, culprit in places.items():
        told = report
        if place not in whole:
            told = msgspec.structs.replace(told, notes=(NO_FILES, *told.notes))
        elif weights != "keep":
            said = NO_WEIGHTS
            if held[place]:
                said = found.clean(withheld(place, weights, held_check(culprit, of_case[place], problem, consent)))
            (place / WITHHELD).write_text(said + "\n", encoding="utf-8")
            told = msgspec.structs.replace(told, notes=(said, *told.notes))
        _write_report(place, told, reading.flow)
        _write_issue(place, told, of_case[place])
    _share(folder, [place for place in places if place != folder])
    place_overlays(
        reading, folder, draw_neighbourhood(report.culprits[0].around) if report.culprits else "", found.clean
    )
    if text := keep_script(report.workaround, asked.version):
        (folder / KEEP_SCRIPT).write_text(text, encoding="utf-8")
    if report.workaround and report.workaround.apply:
        (folder / APPLY).write_text(how_to_apply(report.workaround), encoding="utf-8")
    if said := say_traces_left(found, folder):
        (folder / TRACES).write_text(said + "\n", encoding="utf-8")


def _share(folder: Path, others: Sequence[Path]) -> None:
    """Give each further culprit's folder the same journal, and one file where it tells the same: links, which a copy or an
    archive of the bundle makes whole files of."""
    for place in others:
        if (folder / journal.NAME).is_file():
            copying.link(folder / journal.NAME, place / journal.NAME)
        for name in REPORTS:
            copying.join_equal(folder / name, place / name)


def keep_script(workaround: Workaround | None, version: str) -> str:
    """A precision workaround as a script that Polygraphy runs over the network; empty where the workaround keeps no layers, or
    not in an engine that is told by layer. ``version``: of the engine."""
    if workaround is None or workaround.kind != "precision" or not workaround.keep_higher:
        return ""
    return outside.keep_script(outside.found(parse(workaround.engine), version), workaround.keep_higher)


def say_traces_left(found: Traces, folder: Path) -> str:
    """What of a bundle still tells whose it is, in a sentence that does not; "" where nothing does."""
    names = found.left(folder)
    if not names:
        return ""
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    verb = "names" if len(names) == 1 else "name"
    return f"Look before you send: {', '.join(names[:6])}{more} still {verb} a folder, a user or a host."


def _write_report(place: Path, report: Report, flow: Flow) -> None:
    texts = (to_markdown(report), to_html(report, flow), to_json(report))
    for name, text in zip(REPORTS, texts, strict=True):
        (place / name).write_text(text, encoding="utf-8")
    (place / "environment.json").write_text(write_json(report.environment), encoding="utf-8")


def _write_issue(place: Path, report: Report, asked: Asked) -> None:
    """``issue.md`` and ``README.txt`` of the culprit whose folder it is."""
    number = int(place.name.removeprefix("culprit-")) if place.name.startswith("culprit-") else 1
    culprit = report.culprits[number - 1]
    commands = (place / "commands.sh").read_text(encoding="utf-8")
    (place / "issue.md").write_text(issue(report, culprit, asked, commands), encoding="utf-8")
    kept = (place / "model.onnx").is_file()
    (place / "README.txt").write_text(readme(culprit, asked, "" if kept else NO_FILES), encoding="utf-8")


class Trial(NamedTuple):
    """What a case's own check is run with: its text ("": as it lies there), the folder that it runs in, what it reads there."""

    text: str = ""
    folder: Path | None = None
    laid: checkfiles.Laid = checkfiles.Laid("")


def withheld(place: Path, weights: Weights, held: Callable[[Path], Trial] = lambda _: Trial()) -> str:
    """What a case is worth without its weights, in a sentence; its own check is run for it, in a copy of the case. ``held``:
    makes the trial, with private copies of what was agreed to below the folder that it is given."""
    if weights == "none":
        return "The weights were left out: whoever has them can put them back; nobody else can run this case."
    with scratch("narrowdown-trial-") as folder:
        case = folder / FIRST
        shutil.copytree(place, case)
        try:
            trial = held(folder)
            if trial.text:
                (case / "check.py").write_text(trial.text, encoding="utf-8")
            done = subprocess.run(
                [sys.executable, "-P", case.absolute() / "check.py"],
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
                cwd=trial.folder if trial.folder and trial.folder.is_dir() else case,
                env=environment.for_checker(os.environ),
            )
            checkfiles.check_unchanged(trial.laid)
        except NotAgreed as problem:
            raise SessionProblem(f"{problem} {AGREEING}") from None
    if done.returncode == 1:
        return "The weights are random ones of the same mean, spread and extremes; the failure survives that."
    if done.returncode == 0:
        return (
            "The weights are random ones of the same mean, spread and extremes, and with them the failure is GONE: this case "
            "does not show it. It depends on the true weights."
        )
    why = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return f"The weights are random ones; whether the failure survives that could not be told here ({why[-1] if why else '?'})."


def held_check(culprit: Culprit, asked: Asked, problem: Problem, consent: Consent) -> Callable[[Path], Trial]:
    """The case's check as it is run where the session is: with private copies of its libraries, and of what its check command
    names, in the user's folder. Called, it raises NotAgreed."""

    def make(place: Path) -> Trial:
        engine, command = parse(culprit.case.engine or problem.engine), problem.check
        laid, folder = checkfiles.Laid(command), Path(problem.folder) if problem.folder else None
        user = place / "user"
        user.mkdir()
        with under(consent):
            for option in file_options(engine.name) if not command else ():
                if option.type == "library" and (paths := engine.get(option.name)):
                    engine = engine.with_option(option.name, "+".join(str(copy(path)) for path in paths.split("+")))
            for option in pair_options(engine.name) if not command else ():
                if pairs := engine.get(option.name):
                    placed = with_libraries(pairs.split("+"), lambda path: str(copy(path)))
                    engine = engine.with_option(option.name, "+".join(placed))
            for option in command_options(engine.name) if not command else ():
                if words := engine.get(option.name):
                    each = checkfiles.lay_out(words, folder or user, user, of_command(words), (), place)
                    engine = engine.with_option(option.name, each.command)
                    laid = laid._replace(in_place={**laid.in_place, **each.in_place})
            if command:
                if command != consent.check or problem.folder != consent.folder:
                    raise NotAgreed("The check command was not agreed to; nothing was run.", command)
                files = {path: consent.files[path] for path in consent.check_files}
                laid = checkfiles.lay_out(command, folder or user, user, files, (), place)
            if folder and any(user.iterdir()) and not laid.in_place:
                link_others(folder, user)
                folder = user
        own = msgspec.structs.replace(asked, engine=str(engine), check=laid.command, needs=())
        return Trial(script(culprit, own), folder, laid)

    return make


def found_with(reading: Reading, engine: str = "") -> str:
    """``ENGINE:option=value 1.31.1 on CPU``. ``engine``: the spec that a case was seen to fail on, where it is another."""
    if reading.description.problem.check:
        return "an external checker"
    spec = reading.description.problem.engine
    version, device = reading.state.version(spec), reading.state.engines.get(spec, {}).get("device", "")
    return " ".join(filter(None, [engine or spec, version])) + (f" on {device}" if device else "")
