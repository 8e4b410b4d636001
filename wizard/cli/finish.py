"""The end of a run: report, bundle and worked-around model are written into the session's folder,
and the last lines say what was found and where it lies."""

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

from narrowdown.wizard import Exit, Refusal, terminal
from narrowdown.wizard.bundle.check_script import can_check
from narrowdown.wizard.bundle.export import TRACES, hand_on
from narrowdown.wizard.bundle.models import write_worked_around
from narrowdown.wizard.ladder.offer import offer_ladder
from narrowdown.wizard.machine_room import MachineProblem
from narrowdown.wizard.report.document import Report
from narrowdown.wizard.report.hand_on import (
    APPLY,
    ISSUE,
    ask_known,
    list_known,
    name_addressee,
    say_first,
    say_when,
)
from narrowdown.wizard.report.portable import handed_on
from narrowdown.wizard.report.read import Reading, read
from narrowdown.wizard.report.summary import summary
from narrowdown.wizard.session import SessionProblem, folder as folders, lock, of_system
from narrowdown.wizard.session.following import offer, offer_like
from narrowdown.wizard.words import visible


class Written(NamedTuple):
    """What an end leaves beside the report; "" for what there is none of, or what could not be
    written."""

    case: str = ""  # the folder of the bundle
    model: str = ""  # the file of the model with the workaround
    report: bool = True  # whether the report and the bundle could be written


def finish(place: Path, code: int, *, text: bool) -> int:
    """Hand on what the session at ``place`` has found; ``code``: how its runner ended, ``text``:
    whether people read its output. The exit code: 4 in place of ``code`` where the report or the
    bundle could not be written.

    A session that is not at its end is only told about. Raises SessionProblem where one of its
    files is gone, once all else is written.
    """
    reading = read(place)
    if code in (Exit.STOPPED, Exit.NEEDS_PERSON):
        terminal.say(
            f"the session is safe: 'narrowdown resume {folders.name_for_command(place)}' goes on ({place})."
        )
        return code
    if not reading.state.end:
        # A runner that has closed the session holds it for a moment still, and goes on with
        # nothing.
        if reading.state.closed is None and lock.holder(place) is not None:
            name = folders.name_for_command(place)
            terminal.say(
                f"the work goes on: 'narrowdown resume {name}' comes back to it, 'narrowdown watch {name}' looks on."
            )
        return code
    report = handed_on(reading)
    written = _write(reading, report)
    # Whoever sees output and errors on one terminal has read there already what the display said.
    seen = text and sys.stdout.isatty() and sys.stderr.isatty()
    if code == Exit.UNRESOLVED and _answered_nothing(reading) and not seen:
        terminal.say(
            report.explanation
        )  # what the checker printed last, where it answers nothing or passes nothing
    if text:
        _tell(reading, report, written)
    return code if written.report else Exit.MISSING


def _write(reading: Reading, report: Report) -> Written:
    """Model, report and bundle: what cannot be written is said, and keeps nothing else from being
    written."""
    model, case, told = "", "", True
    lost: SessionProblem | None = None
    try:
        model = write_worked_around(reading)
    except SessionProblem as problem:
        lost = problem
    except (MachineProblem, OSError) as error:
        terminal.say(f"the model with the workaround could not be written: {_say_why(error)}")
    try:
        case = hand_on(reading, report, model)
    except (Refusal, OSError) as error:
        told = False
        terminal.say(f"the report or the bundle could not be written: {_say_why(error)}")
    if lost is not None:
        raise lost
    return Written(case, model, told)


def _say_why(error: Exception) -> object:
    return of_system(error) if isinstance(error, OSError) else error


def _answered_nothing(reading: Reading) -> bool:
    """Whether it was over with the first question, which an external check should have answered."""
    return bool(reading.description.problem.check) and len(reading.state.route) == 1


def _tell(reading: Reading, report: Report, written: Written) -> None:
    """What was found, what there is to hand on, and the commands that go on from here. What may be
    pasted stays in one row."""
    place, problem, state = reading.folder, reading.description.problem, reading.state
    end = reading.flow.ends.get(report.end)
    headed = end is not None and report.headline == end.title  # by the display, already
    tell = partial(terminal.show, most=terminal.PAGE)
    tell(map(visible, summary(report)[1 if headed else 0 :]))
    if written.case and (Path(written.case) / APPLY).is_file():
        first = say_first(report.workaround, str(Path(written.case) / APPLY))
        text = first.text[0].lower() + first.text[1:] if first.typed else first.text
        tell([f"  apply    {visible(text)}"])
        if first.typed:
            print(f"           {visible(first.typed)}")
    if written.case:
        check = shlex.quote(str(Path(written.case) / "check.py"))
        shows = (
            f"python {check} shows the fault again"
            if can_check(problem)
            else "commands.sh says how to see it"
        )
        print(f"  case     {written.case}\n           {shows}")
        whose = name_addressee(report.engine, [c.cause for c in report.culprits])
        for deed in list_known(report):
            tell([f"  known    {visible(deed.text)}"])
        send = say_when(report, f"send it as a zip file to {whose}; {ISSUE} in it is the text")
        tell([f"  send     {send.removeprefix('Send ')}"])
        if (Path(written.case) / TRACES).is_file():
            traces = (Path(written.case) / TRACES).read_text(encoding="utf-8").strip()
            tell([f"           {visible(traces)}"])
    if written.model:
        print(f"  model    {written.model}\n           (with the workaround applied)")
    name = folders.name_for_command(place)
    if written.report:
        print(f"  report   {place / 'report.html'}")
    else:
        print(f"  report   narrowdown resume {name}")
        print("           (writes what could not be written, once it can)")
    print(f"  session  {place}")
    asked = ask_known(report)
    follows = [
        (
            f"narrowdown after {name}" if offer(state, problem) else "",
            f"{asked[:1].lower()}{asked[1:]}",
        ),
        (
            visible(offer_like(state, problem, name)),
            "built from the model it can be taken apart",
        ),
        (
            offer_ladder(state, problem, name),
            "since when, and is it fixed? It installs releases and says first how large they are",
        ),
    ]
    for line, why in follows:
        if line:
            print(f"  next     {line}")
            tell([f"           ({why})"])
