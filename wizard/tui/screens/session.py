"""What the Step and the Finish screen share: they draw the app's scene, and their keys open cards or send requests."""

from collections.abc import Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Footer

from wizard.flow import render, terms
from wizard.report.words import duration
from wizard.tui import requests
from wizard.tui.host import Hosted
from wizard.tui.literal import elide
from wizard.tui.scene import Scene, answer_text, commands, offered
from wizard.tui.screens.overlays import Choose, Field, Fields, LogCard, PlainCard, Reading
from wizard.tui.widgets.lines import Lines, row
from wizard.tui.widgets.route import title

# On every screen of a session, after the screen's own keys.
COMMON = ("why", "terms", "copy", "log", "map", "rewind", "keys_help", "note", "export")
HIDDEN = ("back", "quit_session", "interrupt", "scroll_up", "scroll_down")


class TitleLine(Lines):
    """Model and engines on the left; session and time on the right."""

    def __init__(self) -> None:
        super().__init__(id="title")
        self._scene: Scene | None = None

    def show(self, scene: Scene) -> None:
        self._scene = scene
        self.changed()

    def lines(self, width: int) -> list[Content]:
        if self._scene is None:
            return [Content()]
        scene, state, g = self._scene, self._scene.state, self.glyphs
        model = scene.problem.model.rpartition("/")[2] or scene.folder.name
        right = f"session {scene.id}"
        if state.opened and width >= 70:
            right += f" {g.dot} {duration(max(0.0, (scene.now or state.last) - state.opened))}"
        right = elide(right, max(10, width // 2), g.ellipsis)
        left = f"{model} {g.dot} {scene.problem.engine} against {scene.problem.reference}"
        left = elide(left, max(4, width - len(right) - 2), g.ellipsis)
        gap = " " * max(1, width - Content(left).cell_length - Content(right).cell_length)
        return [row([(left, "bold"), (gap, ""), (right, "$quiet")])]


class SessionScreen(Hosted):
    """Subscribes to the scene; subclasses ``draw`` it. Actions that need a choice or a text push a card and act on its result."""

    AUTO_FOCUS = ""  # focus follows the face, so that Enter always means what the bottom line says
    HELP_TEXT: ClassVar[str] = ""

    @property
    def scene(self) -> Scene | None:
        """The latest scene, None before the first."""
        return self.host.scene

    def on_mount(self) -> None:
        """Draw what is known, then every change."""
        self.host.scene_changed.subscribe(self, self._changed)
        if self.scene:
            self._changed(self.scene)

    def on_screen_resume(self) -> None:
        """Whatever happened behind an overlay is drawn now."""
        if self.scene and self.is_mounted:
            self._changed(self.scene)

    def _changed(self, scene: Scene) -> None:
        self.query_one(TitleLine).show(scene)
        self.draw(scene)
        if isinstance(self.app.screen, LogCard):
            self.app.screen.follow(scene.log)

    def draw(self, scene: Scene) -> None:
        """Show a scene."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        yield TitleLine()
        yield from self.content()
        yield Footer(compact=True)

    def on_resize(self) -> None:
        """On narrow screens the keys of the step need the palette's room; ctrl+p works all the same."""
        self.query_one(Footer).show_command_palette = self.app.size.width >= 100

    def content(self) -> ComposeResult:
        """Between the title line and the keys."""
        raise NotImplementedError

    # Cards for reading

    def action_why(self) -> None:
        """Why this answer is recommended, and what the step is for."""
        scene = self.scene
        if scene is None:
            return
        node, visit = scene.at, scene.visit
        sections: list[tuple[str, str | list[tuple[str, str]]]] = []
        chosen = next((o for o in offered(visit) if o.recommended), None)
        if chosen:
            sections.append((f"Recommended: {chosen.text}", chosen.because or "It is what the measurement says."))
        if node:
            sections.append((node.title, node.explain))
        elif scene.node in scene.flow.ends:
            sections.append((scene.flow.ends[scene.node].title, scene.flow.ends[scene.node].explain))
        self.app.push_screen(Reading("Why", sections or [("", "Nothing has been measured yet.")]))

    def action_terms(self) -> None:
        """The words used at this node."""
        scene = self.scene
        node = scene.at if scene else None
        cards = [card for name in (node.terms if node else terms.known()) if (card := terms.card(name))]
        sections = [(card.title, card.body) for card in cards]
        self.app.push_screen(Reading("Words used here", sections or [("", "No special words are used here.")]))

    def action_log(self) -> None:
        """The end of the log."""
        if self.scene:
            self.app.push_screen(LogCard(self.scene.log, str(self.scene.folder / "logs")))

    def action_map(self) -> None:
        """The whole flow as text."""
        if self.scene:
            node = self.scene.node
            drawn = render.text(self.scene.flow).replace(f"\n{node}: ", f"\n▶ {node}: ")
            self.app.push_screen(PlainCard("Map", drawn, before=f"You are at: {title(self.scene.flow, node)}"))

    def action_keys_help(self) -> None:
        """The keys that work now, and what for."""
        self.app.push_screen(Reading("Keys", [("", self.HELP_TEXT), ("Keys that work now", self.host.key_table(self))]))

    def action_copy(self) -> None:
        """The command that does the same by hand: to the clipboard, and to a file as clipboards often fail over ssh."""
        scene = self.scene
        if scene is None:
            return
        command = commands(scene)
        if not command:
            self.host.say("This step has no equivalent command.")
            return
        where = self.host.copy_command(command, scene.folder)
        self.app.push_screen(PlainCard("Same, by hand", command, before=where, hint="c copies again, Esc closes"))

    # Cards that ask

    def action_note(self) -> None:
        """Write a note into the journal."""
        scene = self.scene

        def done(values: Mapping[str, str] | None) -> None:
            if scene and values and values["note"]:
                self.host.request(requests.note(values["note"], scene.node), "Noted.")

        self.app.push_screen(
            Fields("Note", "It is kept in the session and shown in the report.", [Field("note", "Your note")]), done
        )

    def action_rewind(self) -> None:
        """Choose an earlier question to go back to."""
        scene = self.scene
        past = [visit for visit in scene.state.route if visit.answer and visit.question] if scene else []
        if scene is None or not past:
            self.host.say("There is no earlier question to go back to.")
            return
        options = [
            (str(visit.question.seq), f"{number}  {title(scene.flow, visit.node)}", answer_text(visit))
            for number, visit in enumerate(past, 1)
            if visit.question
        ]

        def done(to: str | None) -> None:
            if to:
                self.host.rewind(int(to))

        text = "Everything after the chosen question is set aside; nothing is deleted, and no probe runs twice."
        self.app.push_screen(Choose("Rewind", text, list(reversed(options))), done)

    def action_export(self) -> None:
        """Write the bundle somewhere."""
        scene = self.scene
        if scene is None:
            return
        proposal = f"case-{scene.id}.zip"

        def done(values: Mapping[str, str] | None) -> None:
            if values and values["path"]:
                self.host.export(values["path"])

        text = "A folder, or a file that ends in .zip. It holds everything that someone else needs to see the fault."
        self.app.push_screen(Fields("Export", text, [Field("path", "Where to", proposal, required=True)]), done)

    # Leaving

    def action_back(self) -> None:
        """To the sessions. The work goes on."""
        self.host.show_sessions()
