"""What to do with what was found: what to paste first, what to send and to whom. The same words in
report and screens. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from narrowdown.engines.causes import find_cause
from narrowdown.engines.discovery import find
from narrowdown.engines.spec import parse
from narrowdown.wizard.report.document import Report, Workaround
from narrowdown.wizard.words import NAME

APPLY, ISSUE = "workaround.md", "issue.md"  # of a bundle


class Deed(NamedTuple):
    """One thing to do; ``typed``: what to paste or to type, "" where there is nothing."""

    text: str
    typed: str = ""


def list_deeds(report: Report, folder: str = "", *, checkable: bool = True) -> list[Deed]:
    """What to do now, the first thing first; nothing where nothing was found, as the report's
    advice says what follows then. ``folder``: the session's, where its files are at hand.
    ``checkable``: whether check.py can run the engine."""
    made = []
    w, case = report.workaround, f"{folder}/case"
    if w is not None and w.holds and w.apply:
        there = f"{case}/{APPLY}" if folder else f"{APPLY} in the case folder"
        made.append(say_first(w, there if report.culprits else "the section on the workaround"))
    if w is not None and w.holds and w.file:
        made.append(
            Deed("Use this model in place of yours:", f"{folder}/{w.file}" if folder else w.file)
        )
    made += list_known(report)
    if report.culprits:
        whose = name_addressee(report.engine, (c.cause for c in report.culprits))
        send = f"send the case folder as a zip file to {whose}; {ISSUE} in it is the text. "
        look = "Look into it first: names, weights and inputs are those of your model."
        made.append(Deed(say_when(report, send + look)))
    if report.culprits and folder:
        shows = f"python {case}/check.py" if checkable else f"cat {case}/commands.sh"
        made.append(Deed("This shows the fault:", shows))
    if report.next:
        made.append(Deed(f"{ask_known(report)} This answers it:", report.next))
    return made


def list_known(report: Report) -> list[Deed]:
    """What to do first where somebody has reported the like of it: nobody thanks for a bug that is
    mended, or told twice."""
    if not report.lookalikes:
        return []
    like = report.lookalikes[0]
    is_it = "It is" if like.confirmed else "It looks like"
    what = like.thread or f"the known bug {like.bug}"
    if like.mended:
        declared = find(parse(report.engine).name)
        release = f"{declared.title or declared.name if declared else report.engine} {like.mended}"
        return [
            Deed(f"{is_it} {what}, which {release} has fixed: try that release, or a later one.")
        ]
    if like.thread:
        return [
            Deed(
                f"{is_it} {what}: read that first, and if it is the same, tell what you found there."
            )
        ]
    return []


def say_when(report: Report, deed: str) -> str:
    """A sentence that says to hand the case on, after the condition under which one should."""
    if not list_known(report):
        return deed[:1].upper() + deed[1:]
    return f"If it is {'still wrong there' if report.lookalikes[0].mended else 'another fault'}, {deed}"


def ask_known(report: Report) -> str:
    """What is asked after the case."""
    if not report.lookalikes:
        return "Is it a known bug, and what else fixes it?"
    return (
        "What else fixes it?"
        if report.lookalikes[0].confirmed
        else "Is it that bug, and what else fixes it?"
    )


def name_addressee(engine: str, causes: Iterable[str]) -> str:
    """Whose the fault is by its causes, with the place where they want to hear of it where the
    engine names one."""
    whose = {find_cause(cause).whose for cause in causes}
    if len(whose) == 1 and (named := whose.pop()):
        return named
    declared = find(parse(engine).name)
    url = declared.tracker.url if declared and declared.tracker else ""
    return (
        f"whoever maintains the engine ({url})"
        if url
        else "whoever maintains the engine or the model"
    )


def say_first(workaround: Workaround | None, where: str) -> Deed:
    """What to paste first of a workaround, and ``where`` the file with all of it lies. Nothing of
    one that does not hold."""
    if workaround is not None and not workaround.holds:
        return Deed(
            f"Nothing yet: it does not hold on all that was tried. To try it all the same: {where}."
        )
    tool, line = first_line(workaround)
    if not line:
        return Deed(f"{where} has the lines to paste, tool by tool.")
    return Deed(f"Paste this first ({tool}); for the rest and for other tools see {where}:", line)


def first_line(workaround: Workaround | None) -> tuple[str, str]:
    """The tool that is told of the workaround first, and the line that tells it; empty where there
    is none, or it is too long."""
    first = next(iter(workaround.apply), None) if workaround is not None else None
    if first is None:
        return "", ""
    line = first.line or first.text.rstrip().rpartition("\n")[2]
    return (first.tool, line) if len(line) <= NAME and "\n" not in line else ("", "")
