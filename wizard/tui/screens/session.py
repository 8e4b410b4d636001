"""What the Step and the Finish screen share: they draw the app's scene, and their keys open cards
or send requests."""

from collections.abc import Mapping
from typing import ClassVar

from textual import getters
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget

from narrowdown.wizard.report.gather import confirmed, journalled
from narrowdown.wizard.runner import requests
from narrowdown.wizard.tui import guide, narrative
from narrowdown.wizard.tui.client import log_of, tail
from narrowdown.wizard.tui.ending import REPORT
from narrowdown.wizard.tui.host import Hosted
from narrowdown.wizard.tui.literal import elide, row
from narrowdown.wizard.tui.scene import Scene, commands
from narrowdown.wizard.tui.screens.overlays import (
    CommandsCard,
    Drawing,
    Entry,
    Field,
    Fields,
    Listed,
    LogCard,
    NoteCard,
    PlainCard,
    Reading,
)
from narrowdown.wizard.tui.troubles import troubles
from narrowdown.wizard.tui.widgets.bottom import Bottom
from narrowdown.wizard.tui.widgets.evidence import Gallery
from narrowdown.wizard.tui.widgets.lines import Lines, Panel
from narrowdown.wizard.words import duration

# On every screen of a session, after the screen's own keys.
FIRST = ("keys_help", "back", "quit_session")  # they stand on the narrowest terminal, too
COMMON = ("why", "terms", "map", "rewind", "pictures", "copy", "log", "export", "note", "report")
HIDDEN = ("edit", "probes", "details", "interrupt", "scroll_up", "scroll_down")


class TitleLine(Lines[Scene]):
    """Model and engines on the left; session and time on the right."""

    def rows(self, told: Scene, width: int) -> list[Content]:
        scene, g = told, self.glyphs
        model = scene.problem.model.rpartition("/")[2] or scene.folder.name
        stands = scene.standing
        style = "bold $fails" if stands in ("paused", "stopped") else "$quiet"
        stands += " by itself" if scene.work.walking and scene.alive else ""
        # While it is paused nobody knows how much of the running step was work.
        shown = scene.worked > 0 and width >= 70 and scene.standing != "paused"
        clock = f" {g.dot} {duration(scene.worked)}" if shown else ""
        named = elide(f"session {scene.id}", max(10, width // 3), g.ellipsis) + f" {g.dot} "
        room = width - Content(named + stands + clock).cell_length
        left = f"{model} {g.dot} {scene.problem.engine} against {scene.problem.reference}"
        left = elide(left, max(4, room - 2), g.ellipsis)
        gap = " " * max(1, room - Content(left).cell_length)
        said = [(named, "$quiet"), (stands, style), (clock, "$quiet")]
        return [row([(left, "bold"), (gap, ""), *said])]


def _read_log(scene: Scene, key: str) -> tuple[tuple[str, ...], str] | None:
    """(lines, where they are from) of the step as a whole, or of one of its probes: what is known
    of it and the end of what the engine wrote meanwhile. None where the probe is not listed (any
    more)."""
    logs = scene.folder / "logs"
    if not key:
        return narrative.log(scene), str(logs)
    row = next((row for row in scene.hunt.rows if row.key == key), None)
    if row is None:
        return None
    running = row.state == "running" and scene.work.log
    path = log_of(scene.folder, scene.work.log if running else row.log)
    written = tail(path) if path else ()
    said = (
        ("", "what the engine wrote meanwhile:", *written)
        if written
        else ("The engine wrote nothing during this probe.",)
    )
    facts = (fact for fact in narrative.probe_facts(row) if not fact.startswith("log "))
    return (*facts, *said), str(path or logs)


class SessionScreen(Hosted):
    """Subscribes to the scene; subclasses ``draw`` it. Actions that need a choice or a text push a
    card and act on its result."""

    AUTO_FOCUS = ""  # focus follows the face, so that Enter always means what the bottom line says
    HELP_TEXT: ClassVar[str] = ""
    page = getters.query_one("#page", VerticalScroll)

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.scene = scene  # the latest; of another session once that one is there

    def on_mount(self) -> None:
        """Draw what is known, then every change."""
        self.host.scene_changed.subscribe(self, self._changed)
        self._draw(self.scene)

    def on_screen_resume(self) -> None:
        """Whatever happened behind an overlay is drawn now."""
        if self.is_mounted:
            self._draw(self.scene)
            self.app.call_later(self.host.catch_up)

    def _changed(self, scene: Scene) -> None:
        """Behind a card nothing is drawn: whoever reads it wants its keys answered at once."""
        self.scene = scene
        if self.app.screen is self:
            self._draw(scene)
        elif isinstance(card := self.app.screen, LogCard) and (log := _read_log(scene, card.probe)):
            card.follow(*log)

    def _draw(self, scene: Scene) -> None:
        if not self.is_attached:  # the program ends, and what it would be drawn on goes
            return
        self.query_one(TitleLine).tell(scene)
        self.draw(scene)

    def draw(self, scene: Scene) -> None:
        """Show a scene."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        yield TitleLine(id="title")
        yield from self.content()
        yield Bottom()

    def content(self) -> ComposeResult:
        """Between the title line and the keys."""
        raise NotImplementedError

    # Cards for reading

    def action_why(self) -> None:
        """Why this answer is recommended, and what the step is for."""
        self.app.push_screen(Reading("Why", narrative.why(self.scene), about=guide.WHY))

    def action_terms(self) -> None:
        """The words used at this node, then all others."""
        entries, here = narrative.words(self.scene)
        used = "The first is used" if here == 1 else f"The first {here} are used"
        others = f"{used} here; the others are all other words that have a card."
        text = others if 0 < here < len(entries) else ""
        self.app.push_screen(Listed(guide.TERMS, entries, text))

    def action_log(self) -> None:
        """What the probes did and the engines wrote, live."""
        self.look_into("")

    def action_pictures(self) -> None:
        """Everything that can be drawn."""
        self.app.push_screen(Drawing("Pictures", Gallery(self.scene), about=guide.PICTURES))

    def action_map(self) -> None:
        """The whole flow, the route in it, and the branches that were not taken."""
        entries, here = narrative.places(self.scene, self.host.glyphs)
        self.app.push_screen(Listed(guide.MAP, entries, f"{self.scene.flow.title}.", at=here))

    def action_probes(self) -> None:
        """The probes of this step; Enter opens the log of one."""
        if not self.scene.hunt.rows:
            self.host.say(f"{narrative.nothing(self.scene).capitalize()}.")
            return
        entries = narrative.probe_entries(self.scene)
        self.app.push_screen(Listed(guide.PROBES, entries), self.look_into)

    def look_into(self, key: str | None) -> None:
        """One probe: what it tried and what the engine wrote meanwhile; "" for the whole step."""
        scene = self.scene
        if key is None or not (log := _read_log(scene, key)):
            return
        number = next((f"Probe {row.number}" for row in scene.hunt.rows if row.key == key), "Log")
        self.app.push_screen(LogCard(*log, number, probe=key))

    def action_details(self) -> None:
        """An error as a whole, to read and to copy."""
        scene = self.scene
        found = [t for t in troubles(scene) if t.kind != "notice"]
        if not found:
            self.host.say("There is no error here.")
            return
        worst = found[-1]
        lines = (
            scene.trace
            if worst.kind == "ours"
            else scene.log
            if worst.kind == "engine"
            else worst.lines
        )
        told = [
            worst.text,
            worst.guess,
            self.host.fill_in_keys(worst.next),
            f"From {worst.where}" if worst.where else "",
        ]
        before = "\n\n".join(filter(None, told))
        text = "\n".join(lines) or worst.text
        self.app.push_screen(
            PlainCard(
                worst.title,
                text,
                before=before,
                hint="{copy} copies, {close} closes",
                about=guide.DETAILS,
            )
        )

    def action_keys_help(self) -> None:
        """What the focused pane is, the keys that work now, and what else is on the screen."""
        told = {
            panel: self.host.fill_in_keys(guide.PANELS[name])
            for panel in self.query(Panel)
            if (name := (panel.id or "")) in guide.PANELS
            and all(node.display for node in panel.ancestors_with_self if isinstance(node, Widget))
        }
        focused = next(
            (p for p in told if self.focused is not None and p in self.focused.ancestors_with_self),
            None,
        )
        here = [(f"{focused.called} (has the keyboard)", told.pop(focused))] if focused else []
        self.app.push_screen(
            Reading(
                "Help",
                [
                    ("", self.host.fill_in_keys(self.HELP_TEXT)),
                    *here,
                    ("Keys that work now", self.host.key_table(self)),
                    *((panel.called, text) for panel, text in told.items()),
                ],
            )
        )

    def action_copy(self) -> None:
        """The command that does the same by hand: to the clipboard, and to a file as clipboards
        often fail over ssh."""
        folder, made = self.scene.folder, commands(self.scene)
        if not made:
            self.host.say("This step has no equivalent command.")
            return
        entries = [
            Entry(
                c.tool,
                c.tool,
                "" if c.text else "cannot be written",
                c.text or c.problem,
                keep=True,
            )
            for c in made
        ]
        said = (
            f"{made[0].tool}: {self.host.copy_command(made[0].text, folder)}"
            if made[0].text
            else made[0].problem
        )
        self.app.push_screen(
            CommandsCard(entries, lambda text: self.host.copy_command(text, folder), said)
        )

    # Cards that ask

    def action_note(self) -> None:
        scene = self.scene

        def done(values: Mapping[str, str] | None) -> None:
            if values and values["note"]:
                self.host.request(requests.AddNote(values["note"], scene.node), "Noted.")

        before = [f"- {note}" for note in journalled(scene.state, scene.flow)[-5:]]
        text = "It is kept in the session and shown in the report." + (
            "\n\n" + "\n".join(before) if before else ""
        )
        self.app.push_screen(NoteCard(text), done)

    def action_rewind(self) -> None:
        """Choose an earlier question to go back to; each says what that sets aside."""
        entries = narrative.rewinds(self.scene)
        if not entries:
            self.host.say("There is no earlier question to go back to.")
            return

        def done(to: str | None) -> None:
            if to:
                self.host.rewind(int(to))

        text = "Nothing is deleted: what was measured stays known, and is not measured again."
        self.app.push_screen(Listed(guide.REWIND, entries, text), done)

    def action_edit(self) -> None:
        """Another set-up, as a new session."""
        self.host.edit_setup()

    def action_export(self) -> None:
        scene = self.scene
        if not confirmed(scene.state, scene.flow):
            told = (
                f"{scene.folder / REPORT} tells what was found."
                if scene.state.end
                else "The search has not come so far yet."
            )
            self.host.say(f"There is no failing case to share. {told}")
            return
        proposal = f"case-{scene.id}.zip"

        def done(values: Mapping[str, str] | None) -> None:
            if values and values["path"]:
                self.host.export(values["path"])

        text = "A folder, or a file that ends in .zip. It holds everything that someone else needs to see the fault."
        self.app.push_screen(
            Fields("Export", text, [Field("path", "Where to", proposal, required=True)]), done
        )

    def action_scroll_up(self) -> None:
        self.page.scroll_page_up(animate=False)

    def action_scroll_down(self) -> None:
        self.page.scroll_page_down(animate=False)
