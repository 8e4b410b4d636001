"""What a step measured: the flow's evidence fields with their labels; the field ``profile`` is
drawn as error by depth. And every picture of a session, each under its heading: for the pictures'
card and the last screen."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from textual.content import Content

from narrowdown.wizard.facts import label, say_fact, show_value
from narrowdown.wizard.report import pictures
from narrowdown.wizard.report.document import groups
from narrowdown.wizard.report.vicinity import Vicinity
from narrowdown.wizard.tui.literal import Glyphs, elide, paint, row
from narrowdown.wizard.tui.scene import Scene
from narrowdown.wizard.tui.sight import Sight
from narrowdown.wizard.tui.widgets.lines import Lines, pairs, wrap
from narrowdown.wizard.words import count

# So many of so many: one line, not two.
_OF: Mapping[str, str] = {
    "samples_failing": "samples",
    "samples_ok": "samples",
    "real_failing": "real_samples",
    "random_failing": "random_samples",
    "unseen_ok": "unseen",
}
# Where these are 0 or "no", there is nothing to tell.
_ONLY_IF = frozenset(
    {
        "skipped",
        "harmless",
        "grown",
        "needs_higher_inputs",
        "unresolved",
        "keep",
        "alike",
        "unseen_failing",
        "foretold",
        "steps",
        "near_tie",
    }
)
# Where these were not measured, nobody waits for them.
_IF_MEASURED = frozenset({"real_error", "first_step", "own_error", "token_step"})
SHARE = "rel_l2"  # the usual metric: what is said in per cent needs no name
LONGEST = 160  # characters of a value; the report has it whole
LIST = 40  # characters from which on a value is too long to be read twice
SENTENCES = re.compile(r"(?<=\.) +(?=\S)")


class Seen(msgspec.Struct, frozen=True):
    """What the picture needs beside the outcome."""

    sight: Sight = Sight()
    tolerance: float | None = None
    metric: str = ""
    height: int = 5


def see(scene: Scene, outcome: Mapping[str, Any] | None = None, height: int = 5) -> Seen:
    """What it needs of a scene; ``outcome``: whose metric it is before the session has one."""
    criterion = scene.state.findings.criterion
    if criterion is None:
        return Seen(scene.sight, None, str((outcome or {}).get("metric") or ""), height)
    return Seen(scene.sight, criterion.tolerance, criterion.metric, height)


class Evidence(Lines[tuple[Mapping[str, Any], Sequence[str], str, Seen]]):
    """``message`` first, then label and value of each field, then error by depth."""

    def rows(
        self, told: tuple[Mapping[str, Any], Sequence[str], str, Seen], width: int
    ) -> list[Content]:
        """Of (outcome, fields, step, what the picture needs). ``fields``: which to show and in which
        order; ``message`` has a place of its own."""
        outcome, fields, step, seen = told
        rows: list[Content] = []
        if message := str(outcome.get("message", "")):
            rows += wrap(message, width)
        # An empty text means that there is nothing to name.
        plain = [n for n in fields if n not in ("message", "profile") and outcome.get(n) != ""]
        rows += pairs(facts(outcome, plain, step, seen.metric), width)
        if "profile" in fields:
            rows += profile(width, self.glyphs, seen)
        return rows


def drop_said(outcome: Mapping[str, Any], because: str) -> dict[str, Any]:
    """The outcome without the sentences that the recommendation right above it says already, and
    without the lists of names that its own message holds."""
    told = {name: str(outcome[name]) for name in ("message", "evidence") if outcome.get(name)}
    left = {
        name: " ".join(s for s in SENTENCES.split(text) if s not in because)
        for name, text in told.items()
    }
    message = left.get("message", "")
    listed = {
        name: ""
        for name, value in outcome.items()
        if name != "message" and len(show_value(value)) > LIST and show_value(value) in message
    }
    return {**outcome, **left, **listed}


def shorten(text: str) -> str:
    """Of a name that is too long both ends; of several sentences those that fit in twice the room,
    each whole."""
    first, *others = SENTENCES.split(text)
    if not others or len(text) <= LONGEST:
        return elide(text, LONGEST)
    kept = [elide(first, LONGEST)]
    for said in others:
        if len(said) + sum(map(len, kept)) > 2 * LONGEST:
            return " ".join([*kept, "…"])
        kept.append(said)
    return " ".join(kept)


def facts(
    outcome: Mapping[str, Any], fields: Sequence[str], step: str, metric: str = ""
) -> list[tuple[str, str]]:
    """Label and value of each field: a count with what it is counted of in one line, none that says
    nothing; last, in one line, what was not measured."""
    whole = {_OF[name] for name in fields if name in _OF}
    rows, missing, precision = [], [], str(outcome.get("precision") or "")
    for name in fields:
        value, of = outcome.get(name), outcome.get(_OF.get(name, ""))
        if (
            name in whole
            or (name in _ONLY_IF and value in (0, False))
            or of == 0
            or (name, value) == ("metric", SHARE)
            or (name in ("looks", "failures") and outcome.get("looks") == 1)
        ):
            continue
        if value is None and (
            name in _IF_MEASURED or (name == "emulated_error" and precision == "fp32")
        ):
            continue
        if value is None:
            missing.append(label(name, step, precision))
            continue
        counted = f" of {show_value(of)}" if of is not None else ""
        named, shown = say_fact(outcome, name, step, metric)
        rows.append((named, shorten(shown) + counted))
    return rows + ([("not measured", ", ".join(missing))] if missing else [])


def profile(width: int, glyphs: Glyphs, seen: Seen) -> list[Content]:
    """Error by depth, tensor by tensor, or by step of a loop; nothing where the table is gone."""
    sight = seen.sight
    marks = [(sight.here, "the suspect")] if sight.here >= 0 else []
    drawn = pictures.Profile(sight.logs, seen.tolerance, seen.metric, marks, sight.along)
    return paint(pictures.depth(drawn, width, glyphs, seen.height))


class Gallery(Lines[Scene]):
    """What can be drawn of a session so far; a sentence where that is nothing."""

    def rows(self, told: Scene, width: int) -> list[Content]:
        drawn = [
            ("Around the suspect", surroundings(told.sight.places, width, self.glyphs)),
            ("Errors", profile(width, self.glyphs, see(told, height=8))),
            (
                "The model, first node to last",
                paint(pictures.strip(told.hunt.strip, (), width, self.glyphs)),
            ),
        ]
        rows: list[Content] = []
        for heading, picture in drawn:
            if picture:
                rows += [
                    *([Content()] if rows else []),
                    row([(heading, "bold $recommended")]),
                    *picture,
                ]
        return rows or wrap("Nothing has been measured yet that could be drawn.", width)


class Surroundings(Lines[tuple[Vicinity, ...]]):
    """The neighbourhood of each suspect; of those that look the same, the first. It takes no room
    where there is none."""

    def rows(self, told: tuple[Vicinity, ...], width: int) -> list[Content]:
        return surroundings(told, width, self.glyphs)


def surroundings(places: Sequence[Vicinity], width: int, glyphs: Glyphs) -> list[Content]:
    """One drawing each; places alike are drawn once and counted."""
    rows: list[Content] = []
    for first, *like in groups(
        tuple((spot.op, spot.suspect, spot.reads) for spot in place.spots) for place in places
    ):
        rows += [
            *([Content()] if rows else []),
            *paint(pictures.graph(places[first], width, glyphs)),
        ]
        if like:
            looks = "look" if len(like) > 1 else "looks"
            rows += wrap(f"{count(len(like), 'more place')} {looks} the same", width, "$quiet")
    return rows
