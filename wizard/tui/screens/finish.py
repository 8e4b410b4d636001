"""The end of the route, whichever end it is."""

from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll

from narrowdown.wizard.flow.model import title
from narrowdown.wizard.report.hand_on import Deed
from narrowdown.wizard.report.sections import list_culprits, tell_workaround
from narrowdown.wizard.report.stage import stage
from narrowdown.wizard.session.following import offer
from narrowdown.wizard.standing import choose_tone
from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.ending import (
    effect,
    list_todo,
    report,
    say_case,
    say_found,
)
from narrowdown.wizard.tui.scene import Scene
from narrowdown.wizard.tui.screens.session import COMMON, FIRST, HIDDEN, SessionScreen
from narrowdown.wizard.tui.widgets.evidence import Evidence, Surroundings, see
from narrowdown.wizard.tui.widgets.finish import Banner, ReportText, Todos
from narrowdown.wizard.tui.widgets.lines import Panel, Text
from narrowdown.wizard.tui.widgets.route import Route

WRITING = "The report and the case are being written. What to do with them will stand here."


class FinishScreen(SessionScreen):
    """Verdict, culprits, workaround, the way here, the files."""

    BINDINGS: ClassVar[list[BindingType]] = keys.bindings(
        "export", "after", *FIRST, *(name for name in COMMON if name != "export"), *HIDDEN
    )
    HELP_TEXT = (
        "This is the end of the route: what was found, then what to do now, then how it was found. Press {export} to write "
        "the case into one folder or zip to share, {rewind} to go back to an earlier question, {terms} for the words."
    )

    _drawn: Path | None = None  # the session that is shown: another one may have other keys

    def content(self) -> ComposeResult:
        told = self.host.fill_in_keys
        with Horizontal(id="body"), Vertical(id="centre"), VerticalScroll(id="page"):
            yield Banner(id="banner")
            yield Panel(
                "What was found",
                Text(id="result"),
                Text(id="effect"),
                Text(id="end-explain", classes="quiet"),
                id="verdict-panel",
            )
            yield Text(WRITING, id="writing", classes="quiet")
            yield Panel("What to do now", Todos(id="todo"), id="todo-panel")
            yield Panel("What fails", ReportText(id="culprits"), id="culprits-panel")
            yield Panel("What decided it", Evidence(id="decided"), id="decided-panel")
            yield Panel("What stood in the way", Text(id="way"), id="way-panel")
            yield Panel(
                told("Where it is ({pictures} shows more)"),
                Surroundings(id="where"),
                id="where-panel",
            )
            yield Panel("The workaround", ReportText(id="cure"), id="cure-panel")
            yield Panel(
                told("How you got here ({rewind} rewinds)"),
                Route(id="route"),
                id="route-panel",
            )
            yield Panel(told("To share ({export} exports)"), Text(id="files"), id="files-panel")

    def on_mount(self) -> None:
        """The page takes the arrows."""
        super().on_mount()
        self.page.focus()

    def draw(self, scene: Scene) -> None:
        state, end = scene.state, scene.flow.ends.get(scene.state.end)
        if not state.end:
            return
        self.query_one("#route", Route).tell((scene.flow, state.route, state.end, scene.standing))
        verdict = end.verdict if end else ""
        if scene.folder != self._drawn:
            self._drawn = scene.folder
            self.page.scroll_home(animate=False)
            self.refresh_bindings()
        said = report(scene)
        holds = said.workaround is None or said.workaround.holds
        title_ = end.title if end else state.end
        named = "" if verdict == "done" else verdict.replace("-", " ")
        self.query_one("#banner", Banner).tell((title_, named, choose_tone(verdict, holds=holds)))
        self.query_one("#result", Text).show("\n\n".join(say_found(said)), "bold")
        self.query_one("#effect", Text).show(effect(said))
        self.query_one("#end-explain", Text).show(end.explain if end else "")
        writing = scene.folder in self.host.writing
        self.query_one("#writing").display = writing
        self.query_one("#todo-panel").display = not writing
        self.query_one("#todo", Todos).tell(
            [
                Deed(self.host.fill_in_keys(deed.text), deed.typed)
                for deed in list_todo(scene, verdict, said)
            ]
        )
        found = bool(state.findings.culprits)
        self.query_one("#culprits-panel", Panel).tell([*list_culprits(said)] if found else [])
        self.query_one("#cure-panel", Panel).tell(tell_workaround(said))
        self._decided(scene)
        self.query_one("#where-panel", Panel).tell(scene.sight.places if found else ())
        self.query_one("#files", Text).show(say_case(scene))
        self.query_one("#files-panel").display = bool(said.culprits) and not writing

    def _decided(self, scene: Scene) -> None:
        """Where no part of the model is at fault, the measurement that ended the route; and the
        steps that had no answer."""
        state = scene.state
        last = next((visit for visit in reversed(state.route) if visit.outcome), None)
        shown = not state.findings.culprits and last is not None
        if last is not None and shown:
            node, seen = scene.flow.nodes.get(last.node), see(scene, last.outcome)
            # Its message stands above, and no search goes on from here.
            told = {
                name: value for name, value in (last.outcome or {}).items() if name != "message"
            }
            fields = [name for name in (node.evidence if node else ()) if name != "goes_on"]
            self.query_one("#decided", Evidence).tell((told, fields, last.step, seen))
            self.query_one("#decided-panel", Panel).name_it(
                f"What decided it: {title(scene.flow, last.node)}"
            )
        self.query_one("#decided-panel").display = shown
        way = [
            f"- {title(scene.flow, v.node)}: {stage(v)}. {v.error}".rstrip()
            for v in state.route
            if v.error and v.stepped
        ]
        self.query_one("#way", Text).show("\n".join(way))
        self.query_one("#way-panel").display = bool(way)

    def action_details(self) -> None:
        """Open the lists that are folded away, or an error as a whole."""
        texts = [text for text in self.query(ReportText) if text.folds]
        for text in texts:
            text.unfold()
        if not texts:
            super().action_details()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What follows is offered where there is something to ask."""
        if action == "after":
            return offer(self.scene.state, self.scene.problem)
        return super().check_action(action, parameters)

    def action_after(self) -> None:
        """What else can be asked, each with its price."""
        self.host.list_what_follows()
