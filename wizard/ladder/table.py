"""The ladder's table, release by case: for the terminal and as JSON."""

from collections.abc import Mapping, Sequence

import msgspec

from narrowdown.wizard.ladder.checks import Answer
from narrowdown.wizard.ladder.rungs import Outcome, sentence, tell_story
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
