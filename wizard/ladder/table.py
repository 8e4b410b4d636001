"""The ladder's table, release by case: for the terminal, as JSON, as a page."""

import html
from collections.abc import Mapping, Sequence

import msgspec

from narrowdown.wizard.ladder.checks import Answer
from narrowdown.wizard.ladder.rungs import Outcome, sentence, tell_story
from narrowdown.wizard.report.markdown import literal, table
from narrowdown.wizard.words import visible


class Rung(msgspec.Struct, frozen=True):
    """One release. ``tried`` False with an outcome: inferred from those around it; without: not
    asked."""

    release: str
    outcome: Outcome | None
    tried: bool
    engine: str = ""
    said: str = ""
    seconds: float = 0.0


class Climbed(msgspec.Struct, frozen=True):
    """One case. ``last_good`` and ``first_bad`` of the first turn for the worse, ``last_bad`` and
    ``mended_in`` of the last one for the better that no worse one follows; "" where there was none.
    ``monotone``: it turned at most once."""

    case: str
    found_with: str
    message: str
    last_good: str
    first_bad: str
    last_bad: str
    mended_in: str
    monotone: bool
    tried: int
    rungs: tuple[Rung, ...]


def climbed(case: str, names: Sequence[str], answers: Mapping[int, Answer]) -> Climbed:
    """What is told of one case."""
    told = {rung: answer.outcome for rung, answer in answers.items()}
    story = tell_story(told)
    began = next((turn for turn in story.turns if turn.change == "began"), None)
    mended = story.turns[-1] if story.turns and story.turns[-1].change == "mended" else None
    rungs = []
    for rung, name in enumerate(names):
        if answer := answers.get(rung):
            rungs.append(
                Rung(name, answer.outcome, True, answer.engine, answer.said, answer.seconds)
            )
        else:
            rungs.append(Rung(name, story.inferred.get(rung), False))
    return Climbed(
        case=case,
        found_with=next((answer.found for answer in answers.values() if answer.found), ""),
        message=sentence(names, told),
        last_good=names[began.before] if began else "",
        first_bad=names[began.after] if began else "",
        last_bad=names[mended.before] if mended else "",
        mended_in=names[mended.after] if mended else "",
        monotone=len(story.turns) <= 1,
        tried=len(answers),
        rungs=tuple(rungs),
    )


def cell(rung: Rung) -> str:
    """One cell: what was not tried stands in parentheses."""
    if rung.outcome is None:
        return "not tried"
    return rung.outcome if rung.tried else f"({rung.outcome})"


def text(cases: Sequence[Climbed]) -> str:
    """For the terminal."""
    names = [rung.release for rung in cases[0].rungs]
    wide = max(map(len, [*names, "release"]))
    widths = [max(len(case.case), 11) for case in cases]
    lines = [
        "  ".join(
            [f"{'release':{wide}}", *(f"{c.case:{w}}" for c, w in zip(cases, widths, strict=True))]
        )
    ]
    for place, name in enumerate(names):
        cells = [f"{cell(case.rungs[place]):{w}}" for case, w in zip(cases, widths, strict=True)]
        lines.append("  ".join([f"{name:{wide}}", *cells]).rstrip())
    return (
        "\n".join(
            visible(line)
            for line in [*lines, "", *(f"{case.case}: {case.message}" for case in cases)]
        )
        + "\n"
    )


def markdown(cases: Sequence[Climbed]) -> str:
    """As a page, for an issue."""
    rows = [
        (literal(rung.release), *(cell(case.rungs[place]) for case in cases))
        for place, rung in enumerate(cases[0].rungs)
    ]
    head = ("release", *(literal(case.case) for case in cases))
    said = [f"- {literal(case.case)}: {literal(case.message)}" for case in cases]
    return "\n".join([f"# {TITLE}", "", *said, "", table(head, rows), "", PARENTHESES, ""])


def page(cases: Sequence[Climbed]) -> str:
    """As a page of HTML: no network, no script, every name escaped."""

    def row(tag: str, cells: Sequence[tuple[str, str]]) -> str:
        return (
            "<tr>"
            + "".join(
                f'<{tag} class="{kind}">{html.escape(visible(c))}</{tag}>' for c, kind in cells
            )
            + "</tr>"
        )

    body = [row("th", [("release", ""), *((case.case, "") for case in cases)])]
    for place, rung in enumerate(cases[0].rungs):
        cells = [
            (cell(case.rungs[place]), (case.rungs[place].outcome or "").partition(" ")[0])
            for case in cases
        ]
        body.append(row("td", [(rung.release, ""), *cells]))
    said = "".join(
        f"<li><b>{html.escape(visible(c.case))}</b>: {html.escape(visible(c.message))}</li>"
        for c in cases
    )
    return _PAGE.format(title=TITLE, said=said, body="\n".join(body), note=PARENTHESES)


TITLE = "Releases and cases"
PARENTHESES = "What stands in parentheses was not tried: the releases around it that were agree."
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }}
table {{ border-collapse: collapse }} td, th {{ border: 1px solid #8886; padding: .25rem .75rem; text-align: left }}
.fails {{ background: #d4444433; font-weight: 600 }} .passes {{ background: #44a06a33 }}
</style></head><body><h1>{title}</h1><ul>{said}</ul><table>
{body}
</table><p>{note}</p></body></html>
"""
