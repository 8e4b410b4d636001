"""The whole bundle of a session: a folder a culprit, with the report, the journal and the
environment beside the first."""

import shlex
import shutil
import unicodedata
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from narrowdown.engines import faults, outside
from narrowdown.engines.checker.command import DEBUG_MODEL, words
from narrowdown.engines.compare.judge import for_parts
from narrowdown.engines.consent import NOTHING, Consent
from narrowdown.engines.findings import Culprit
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Candidate
from narrowdown.engines.spec import parse
from narrowdown.engines.store import Store, atomic, copying, write_atomically
from narrowdown.engines.store.scratch import scratch
from narrowdown.wizard import BadUsage
from narrowdown.wizard.bundle.check_script import Asked, script
from narrowdown.wizard.bundle.issue import issue, readme
from narrowdown.wizard.bundle.models import (
    find_sound,
    place_scripts,
    place_worked_around,
    share_worked_around,
    write_whole,
)
from narrowdown.wizard.bundle.withheld import (
    NO_WEIGHTS,
    WITHHELD,
    Weights,
    held_check,
    replace_weights,
    withheld,
)
from narrowdown.wizard.machine_room import ask
from narrowdown.wizard.manual_commands import commands
from narrowdown.wizard.report.document import Culprit as Told, Report, Workaround, to_json
from narrowdown.wizard.report.gather import Table, case_files, confirmed
from narrowdown.wizard.report.hand_on import APPLY
from narrowdown.wizard.report.html import to_html
from narrowdown.wizard.report.markdown import how_to_apply, to_markdown
from narrowdown.wizard.report.portable import Traces, portable, traces
from narrowdown.wizard.report.read import Reading
from narrowdown.wizard.session import SessionProblem, journal
from narrowdown.wizard.words import ACTING, count, write_json

FIRST = "case"
KEEP_SCRIPT = "keep_fp32.py"
REPORTS = ("report.md", "report.html", "report.json")
TRACES = "traces.txt"
NO_FILES = "The model of this case could not be kept when it was found: check.py and the commands have nothing to run here."


class NothingToExport(SessionProblem):
    """The session holds no failing case."""

    code = 6


def export(
    reading: Reading,
    target: Path,
    weights: Weights = "keep",
    consent: Consent = NOTHING,
    *,
    worked_around: str = "",
    tell: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write the bundle to a folder, or to one file where ``target`` ends in ``.zip``. Whole or not
    at all.

    ``weights``: as they are, random ones of the same statistics in their place, or none. What
    became of the failure stands in the bundle's ``weights.txt``. To tell that, ``random`` runs the
    reference and the case's own check, held to ``consent``. ``worked_around``: as ``hand_on``.
    ``tell``: is told what became of the weights, and what still says whose the bundle is.

    Raises NothingToExport, SessionProblem, OSError, MachineProblem; BadUsage where something else
    lies there.
    """
    try:
        target = target.absolute()
        target.parent.mkdir(parents=True, exist_ok=True)
        with scratch(f".{target.name}.narrowdown-", target.parent) as folder:
            made = folder / FIRST
            _write(reading, made, weights, consent, worked_around, tell)
            (_archive if target.suffix == ".zip" else _move_into_place)(made, target)
    except OSError as error:
        if error.errno in faults.OURS:  # whatever file it was, the disk is the target's
            raise OSError(error.errno, error.strerror, str(target)) from None
        raise
    return target


def hand_on(reading: Reading, report: Report, worked_around: str = "") -> str:
    """At an end: the report into the session's folder, and beside it the bundle, where there is a
    case; its folder, else "". ``worked_around``: the model that ``write_worked_around`` has just
    written there, which is the bundle's, too. Raises SessionProblem, OSError, MachineProblem."""
    write_atomically(reading.folder / "report.html", to_html(report))
    try:
        case = export(reading, reading.folder / FIRST, worked_around=worked_around)
    except NothingToExport:
        return ""
    for report_of_culprit in case.rglob("report.html"):
        copying.join_equal(reading.folder / "report.html", report_of_culprit)
    return str(case)


def _archive(made: Path, target: Path) -> None:
    """Write a finished bundle into one file."""
    with (
        atomic(target) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for path in sorted(made.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(made.parent))


def _move_into_place(made: Path, target: Path) -> None:
    """Move a finished bundle into place; an earlier bundle there is replaced, anything else is left
    alone. Whoever is killed on the way leaves a whole bundle or none: the earlier one goes by its
    name first, its files with the folder of ``made``."""
    if target.exists():
        if not target.is_dir():
            raise BadUsage(f"'{target}' is there and is no folder; name another one.")
        if any(target.iterdir()) and not (target / "check.py").is_file():
            raise BadUsage(f"'{target}' is not empty and holds no bundle; name another folder.")
        target.rename(made.with_name("before"))
    made.rename(target)


class Place(NamedTuple):
    """A culprit's folder in a bundle."""

    folder: Path
    culprit: Culprit
    asked: Asked  # what its check is made of

    @property
    def whole(self) -> bool:
        """Whether the case's model could be kept."""
        return (self.folder / "model.onnx").is_file()


def _write(
    reading: Reading,
    folder: Path,
    weights: Weights,
    consent: Consent,
    worked_around: str,
    tell: Callable[[str], None],
) -> None:
    report, found = reading.report(), traces(reading)
    problem = reading.description.problem
    places = _write_cases(reading, folder, found)
    if (reading.folder / journal.NAME).is_file():
        with (folder / journal.NAME).open("wb") as record:
            record.writelines(journal.rewritten(reading.folder / journal.NAME, found.cleaned))
    held: dict[Path, int] = {}  # how many weights were withheld from each case
    if weights != "keep":
        held = replace_weights(
            [place.folder for place in places if place.whole], weights, problem, consent
        )
    elif worked_around:
        share_worked_around(Path(worked_around), folder)
    else:
        place_worked_around(reading, folder)
    place_scripts(reading, folder)
    others_eyes([place.folder for place in places])
    report = portable(report, found)
    for number, place in enumerate(places):
        told = report
        if not place.whole:
            told = msgspec.structs.replace(told, notes=(NO_FILES, *told.notes))
        elif weights != "keep":
            said = NO_WEIGHTS
            if held[place.folder]:
                trial = held_check(place.culprit, place.asked, problem, consent)
                said = found.clean(withheld(place.folder, weights, trial))
            (place.folder / WITHHELD).write_text(said + "\n", encoding="utf-8")
            told = msgspec.structs.replace(told, notes=(said, *told.notes))
            tell(said if len(places) == 1 else f"{place.folder.relative_to(folder.parent)}: {said}")
        texts = (to_markdown(told), to_html(told), to_json(told))
        for name, text in zip(REPORTS, texts, strict=True):
            (place.folder / name).write_text(text, encoding="utf-8")
        environment = write_json(told.environment)
        (place.folder / "environment.json").write_text(environment, encoding="utf-8")
        _write_issue(place, told, report.culprits[number])
    _share(folder, [place.folder for place in places if place.folder != folder])
    if text := keep_script(report.workaround, reading.state.version(problem.engine)):
        (folder / KEEP_SCRIPT).write_text(text, encoding="utf-8")
    if report.workaround and report.workaround.apply:
        (folder / APPLY).write_text(how_to_apply(report.workaround), encoding="utf-8")
    if said := say_traces_left(found, folder):
        (folder / TRACES).write_text(said + "\n", encoding="utf-8")
        tell(said)


def write_cases(reading: Reading, folder: Path) -> list[Place]:
    """The culprits' cases alone, as a bundle has them, in and below a folder that is made. Raises
    as ``export``."""
    places = _write_cases(reading, folder, traces(reading))
    others_eyes([place.folder for place in places])
    return places


def _write_cases(reading: Reading, folder: Path, found: Traces) -> list[Place]:
    """Each culprit's models, values and check: the first one's in ``folder``, a folder below it for
    each further one. Raises NothingToExport where there is none, SessionProblem where a file of it
    is gone."""
    culprits = confirmed(reading.state, reading.flow)
    if not culprits:
        raise NothingToExport(
            f"The session {reading.description.id} has found no failing case yet, so there is nothing to export; "
            "'narrowdown report' says what it knows."
        )
    asked = _list_asked(reading, found)
    store = Store(reading.folder)

    def table(digest: str) -> Table:
        """What of a case was kept. Where that is gone, so is the case: its bundle would be one with
        nothing to run in it."""
        find_sound(store, {"the list of what a case holds": digest})
        return reading.table(digest)

    places: list[Place] = []
    models: list[Path] = []
    kept = case_files(reading.state, table, culprits)
    for number, (culprit, files) in enumerate(zip(culprits, kept, strict=True), 1):
        place = Place(folder if number == 1 else folder / f"culprit-{number}", culprit, asked)
        if engine := culprit.case.engine:
            with_it = found.clean(found_with(reading, engine))
            asked_there = msgspec.structs.replace(
                asked, engine=found.spec(engine), found_with=with_it
            )
            place = place._replace(asked=asked_there)
        paths = find_sound(store, files)
        write_case(place.folder, culprit, paths, place.asked)
        models += [
            path
            for path in map(place.folder.joinpath, paths)
            if path.suffix == ".onnx" and path.is_file()
        ]
        places.append(place)
    write_whole(store, {model: model for model in models})
    return places


def _list_asked(reading: Reading, found: Traces) -> Asked:
    """What the checks of a bundle are made of, in words that do not tell whose it is. Raises
    SessionProblem."""
    problem, criterion = reading.description.problem, reading.state.findings.criterion
    if criterion is None:
        raise SessionProblem(
            f"The session {reading.description.id} does not say how the failure was judged."
        )
    words = shlex.split(problem.check)[1:] if problem.check else []
    return Asked(
        engine=found.spec(problem.engine),
        found_with=found.clean(found_with(reading)),
        criterion=for_parts(criterion),
        looks=reading.state.findings.looks,
        check=found.command(problem.check) if problem.check else "",
        needs=tuple(found.file(word) for word in words if word.startswith("/")),
        timeout=problem.timeout,
        version=reading.state.version(problem.engine),
    )


def _share(folder: Path, others: Sequence[Path]) -> None:
    """Give each further culprit's folder the same journal, and one file where it tells the same:
    links, which a copy or an archive of the bundle makes whole files of."""
    for place in others:
        if (folder / journal.NAME).is_file():
            copying.link(folder / journal.NAME, place / journal.NAME)
        for name in REPORTS:
            copying.join_equal(folder / name, place / name)


def keep_script(workaround: Workaround | None, version: str) -> str:
    """The script that its recipes name, which keeps layers in FP32 by name; empty where none does.
    ``version``: of the engine."""
    name = Path(KEEP_SCRIPT).stem
    if workaround is None or not any(name in recipe.text for recipe in workaround.apply):
        return ""
    return outside.keep_script(
        outside.found(parse(workaround.engine), version),
        workaround.holders or workaround.keep_higher,
    )


def say_traces_left(found: Traces, folder: Path) -> str:
    """What of a bundle still tells whose it is, in a sentence that does not; "" where nothing
    does."""
    names = found.left(folder)
    if not names:
        return ""
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    verb = "names" if len(names) == 1 else "name"
    return f"Look before you send: {', '.join(names[:6])}{more} still {verb} a folder, a user or a host."


def _write_issue(place: Place, report: Report, culprit: Told) -> None:
    """``issue.md`` and ``README.txt`` of the culprit whose folder it is."""
    folder, asked = place.folder, place.asked
    commands = (folder / "commands.sh").read_text(encoding="utf-8")
    (folder / "issue.md").write_text(issue(report, culprit, asked, commands), encoding="utf-8")
    lacking = "" if place.whole else NO_FILES
    (folder / "README.txt").write_text(readme(culprit, asked, lacking), encoding="utf-8")


def found_with(reading: Reading, engine: str = "") -> str:
    """``ENGINE:option=value 1.31.1 on CPU``. ``engine``: the spec that a case was seen to fail on,
    where it is another."""
    if reading.description.problem.check:
        return "an external checker"
    spec = reading.description.problem.engine
    version, device = (
        reading.state.version(spec),
        reading.state.engines.get(spec, {}).get("device", ""),
    )
    return " ".join(filter(None, [engine or spec, version])) + (f" on {device}" if device else "")


FILES = (
    "model.onnx",
    "engine.onnx",
    "good.onnx",
    "part.pt2",
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
        places = (Path("model.onnx"), Path("inputs.json"), Path("expected.json"), Path())
        lines = [
            "# the check that comes with the case: exit 1 while the fault lasts",
            "python check.py",
            "",
            "# the external checker; some look for the model under this name",
            f"cp model.onnx {DEBUG_MODEL}",
            shlex.join(words(asked.check, *places)),
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
