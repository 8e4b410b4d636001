"""The route so far, down the left side; and the same as one crumb line where there is no room for a
side."""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from textual.content import Content

from narrowdown.engines.reach import reach
from narrowdown.wizard.flow.model import Flow, title
from narrowdown.wizard.report.stage import UNMEASURED, stage
from narrowdown.wizard.session.state import Visit
from narrowdown.wizard.tui.literal import Glyphs, elide, row
from narrowdown.wizard.tui.scene import answer_text, chosen_freely
from narrowdown.wizard.tui.widgets.lines import Lines


def ahead(flow: Flow, visited: Sequence[str], here: str) -> list[str]:
    """Nodes that may still come: reachable from ``here``, not visited yet, in the flow's order."""

    def lead(name: str) -> Iterable[str]:
        answers = flow.nodes[name].answers if name in flow.nodes else {}
        return (answer.goto for answer in answers.values())

    later = reach([here], lead).difference([*visited, here])
    return [name for name in flow.nodes if name in later]


class Route(Lines[tuple[Flow, tuple[Visit, ...], str, str]]):
    """A line a visit, with its answer where there is room; where we are with what happens there in a
    word or two (running, your answer); and what may follow."""

    here_row = 0  # of the drawn text: where we are

    def rows(self, told: tuple[Flow, tuple[Visit, ...], str, str], width: int) -> list[Content]:
        flow, route, here, doing = told
        g = self.glyphs
        rows: list[Content] = []

        def stop(glyph: str, style: str, name: str, then: str, then_style: str = "$quiet") -> None:
            """One line: the name, and as much of what came of it as fits."""
            room = max(4, width - 2)
            shown = elide(name, room, g.ellipsis)
            left = room - cell_len(shown) - 2
            beside = (
                elide(then, left, g.ellipsis) if then and left >= min(8, cell_len(then)) else ""
            )
            rows.append(
                row(
                    [
                        (f"{glyph} ", style),
                        (shown, style),
                        (f"  {beside}" if beside else "", then_style),
                    ]
                )
            )

        past = [visit for visit in route if visit.answer]
        for visit in past:
            how = stage(visit)
            notes = [
                *(["your choice"] if chosen_freely(visit) else []),
                *([how] if how in UNMEASURED else []),
            ]
            mark = f" ({', '.join(notes)})" if notes else ""
            glyph = g.done if how not in UNMEASURED else g.dot if how == "skipped" else g.fails
            stop(glyph, "$foreground", title(flow, visit.node), answer_text(visit) + mark)
        self.here_row = len(rows)
        if here:
            stop(g.here, "bold $recommended", title(flow, here), doing, "bold")
        later = ahead(flow, [visit.node for visit in past], here) if here in flow.nodes else []
        if later:
            rows += [Content(), row([("may follow", "$quiet")])]
        for name in later:
            stop(g.ahead, "$quiet", title(flow, name), "")
        return rows


STOP = 24  # cells of an earlier stop in the line of a narrow screen


def crumb(flow: Flow, route: Sequence[Visit], here: str, width: int, glyphs: Glyphs) -> Content:
    """The route on one line: as many of the last stops as fit, and where we are."""
    arrow = f" {glyphs.arrow} "
    name = elide(title(flow, here), max(1, width - 2), glyphs.ellipsis)
    now = f"{glyphs.here} {name}"
    room = width - cell_len(now)
    shown: list[str] = []
    past = [visit for visit in route if visit.answer]
    for visit in reversed(past):
        piece = f"{glyphs.done} {elide(title(flow, visit.node), STOP, glyphs.ellipsis)}{arrow}"
        hidden = len(past) - len(shown) - 1
        mark = f"{glyphs.ellipsis} "
        if cell_len(piece) > room - (cell_len(mark) if hidden else 0):
            if cell_len(mark) <= room:
                shown.append(mark)
            break
        room -= cell_len(piece)
        shown.append(piece)
    return row([("".join(reversed(shown)), "$quiet"), (now, "bold $recommended")])


class Crumb(Lines[tuple[Flow, tuple[Visit, ...], str]]):
    """The crumb line of narrow screens."""

    def rows(self, told: tuple[Flow, tuple[Visit, ...], str], width: int) -> list[Content]:
        return [crumb(*told, width, self.glyphs)]
