"""One screen draws every node: what will run (offer), running, what was measured and the question
(ask)."""

import re
import time
from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec
from textual import getters
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll

from narrowdown.wizard.flow.commands import Command
from narrowdown.wizard.flow.layout import title
from narrowdown.wizard.report.stage import UNMEASURED, stage
from narrowdown.wizard.runner import requests
from narrowdown.wizard.tui import keys, narrative
from narrowdown.wizard.tui.board import Hunt
from narrowdown.wizard.tui.scene import Face, Scene, commands, offered
from narrowdown.wizard.tui.screens.overlays import Choose, Field, Fields
from narrowdown.wizard.tui.screens.session import COMMON, HIDDEN, SessionScreen
from narrowdown.wizard.tui.troubles import troubles
from narrowdown.wizard.tui.widgets.answers import Answers
from narrowdown.wizard.tui.widgets.evidence import Evidence, Seen, drop_said
from narrowdown.wizard.tui.widgets.gallery import Surroundings
from narrowdown.wizard.tui.widgets.lines import Panel, Text
from narrowdown.wizard.tui.widgets.route import Crumb, Route
from narrowdown.wizard.tui.widgets.trouble import ORDER, Troubles
from narrowdown.wizard.tui.widgets.work import Doing, Model, Probes, Smallest, Tail
from narrowdown.wizard.words import count, price, size

_TOOL = re.compile(r"[A-Za-z]\w*")  # the name in "polygraphy>=0.50; ..."
_NAMES = {"polygraphy": "Polygraphy", "trtexec": "trtexec", "narrowdown": "Narrowdown"}
LOCATED = (
    "culprit",
    "names",
    "first_node",
)  # fields of an outcome that name nodes: then their surroundings are drawn
WAITING = (
    "Waiting for the session's own process. Engines are looked at first, which takes a few seconds."
)
ENDING = "The end of the route. What was found is being written."
TWICE = 1.0  # seconds within which the same key is taken for a slip
FACES: tuple[Face, ...] = ("starting", "offer", "running", "ask", "stopped")
# Actions that only make sense on some faces; the others are always there.
WHERE: Mapping[str, tuple[Face, ...]] = {
    "go": ("offer",),
    "skip": ("offer",),
    "answer": ("ask",),
    "why": ("offer", "ask", "running"),
    "copy": ("offer", "ask", "running"),
    "probes": ("ask", "running", "stopped"),
    "details": ("ask", "stopped", "running"),
    "stop": ("running",),
    "stop_now": ("running",),
    "pause": ("running",),
    "rewind": ("offer", "ask", "stopped"),
    "export": ("ask", "stopped"),
    "edit": ("offer", "ask", "stopped"),
    "note": ("offer", "ask", "running"),
    "retry": ("stopped",),
}
# What only the window does that steers the session.
STEERING = frozenset({"go", "skip", "answer", "stop", "stop_now", "pause", "rewind"})
DOING: Mapping[Face, str] = {
    "starting": "starting",
    "offer": "ready to run",
    "running": "running",
    "ask": "your answer",
    "stopped": "stopped",
    "ended": "done",
}


class Why(Panel):
    """Why the recommended answer is recommended."""

    def __init__(self, id: str) -> None:  # noqa: A002 (the name is Textual's)
        super().__init__("Why this is recommended", Text(), id=id)

    def show(self, because: str) -> None:
        self.query_one(Text).show(because)


def say_other_forms(made: Sequence[Command], first: Command | None) -> str:
    """Which other tools do the same, in one line; "" where there is none. Keys stand in braces."""
    others = [command.tool for command in made if command is not first]
    named = dict.fromkeys(
        _NAMES.get(word, word) for tool in others for word in _TOOL.findall(tool)[:1]
    )
    shows = "both forms" if len(made) == 2 else "all forms"
    return f"# Also with {', '.join(named)} ({{copy}} shows {shows})" if others else ""


class ByHand(Panel):
    """The same by hand. Of several commands the first is shown; the card lists them all."""

    def __init__(self, id: str, title: str) -> None:  # noqa: A002
        super().__init__(title, Text(keep=True), id=id)

    def show(self, made: Sequence[Command]) -> None:
        first = next((command for command in made if command.text), None)
        more = str(getattr(self.app, "fill_in_keys", str)(say_other_forms(made, first)))
        self.query_one(Text).show("\n".join(filter(None, (first.text if first else "", more))))


class StepScreen(SessionScreen):
    """Drawn from the scene alone; which parts show follows from its face (a class on the
    screen)."""

    BINDINGS: ClassVar[list[BindingType]] = keys.bindings(
        "take_over", "go", "skip", "stop", "stop_now", "pause", "retry", *COMMON, *HIDDEN
    )
    HELP_TEXT = (
        "Each step measures something and then asks one question. The answer that the measurement supports is preselected: Enter "
        "takes it. You may always choose otherwise, and go back later with rewind. Nothing you do here can lose a measurement."
    )

    _drawn: tuple[str, str, int] = ("", "", 0)
    _keys_by = (False, False)  # only looks on, paused: what the bottom line was made by
    _began = False  # Enter was pressed on the offer that is still shown
    _pressed: tuple[str, str, float] = ("", "", 0.0)
    route = getters.query_one("#route", Route)
    crumb = getters.query_one("#crumb", Crumb)
    question = getters.query_one("#question", Panel)
    answers = getters.query_one(Answers)
    around = getters.query_one("#around", Panel)
    around_beside = getters.query_one("#around-beside", Panel)
    why = getters.query_one("#why", Why)
    why_beside = getters.query_one("#why-beside", Why)
    by_hand = getters.query_one("#by-hand", ByHand)
    by_hand_beside = getters.query_one("#by-hand-beside", ByHand)

    def content(self) -> ComposeResult:
        around = self.host.fill_in_keys("Around the suspect ({pictures} shows more)")
        by_hand = self.host.fill_in_keys("Same, by hand ({copy} copies)")
        yield Crumb(id="crumb")
        with Horizontal(id="body"):
            with VerticalScroll(id="rail", can_focus=False):
                yield Route(id="route")
            with Vertical(id="centre"):
                with VerticalScroll(id="page", can_focus=False):
                    yield Panel(
                        "", Text(id="ask"), Text(id="explain", classes="quiet"), id="question"
                    )
                    yield Troubles(*(kind for kind in ORDER if kind != "worker"), id="troubles")
                    yield Panel(
                        "What will run",
                        Text(id="plan"),
                        Text(id="cost"),
                        Text(id="how", classes="key-hint"),
                        id="plan-panel",
                    )
                    yield Panel("Working", Doing(id="doing"), id="doing-panel")
                    yield Panel(
                        "The model, first node to last", Model(id="model"), id="model-panel"
                    )
                    with Horizontal(id="hunt"):
                        yield Panel("Probes", Probes(id="probes"), id="probes-panel")
                        yield Panel(
                            "Smallest that fails", Smallest(id="smallest"), id="smallest-panel"
                        )
                    yield Why("why")
                    yield Panel("Measured", Evidence(id="evidence"), id="measured-panel")
                    yield Troubles(
                        "worker", id="deaths"
                    )  # counted already: below what was measured
                    yield Panel("Log", Tail(id="tail"), id="log-panel")
                    yield Panel(around, Surroundings(), id="around")
                    yield Panel("Noted", Text(id="noted"), id="noted-panel")
                    yield ByHand("by-hand", by_hand)
                    yield Panel(
                        self.host.fill_in_keys("Words ({terms} has more)"),
                        Text(id="words"),
                        id="words-panel",
                    )
                yield Panel("Your answer", Answers(), id="answers-panel")
            with VerticalScroll(id="side", can_focus=False):
                yield Why("why-beside")
                yield ByHand("by-hand-beside", by_hand)
                yield Panel(around, Surroundings(), id="around-beside")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Keys that make no sense on this face are neither shown nor obeyed."""
        if action == "rewind" and not (
            self.scene and any(visit.answer for visit in self.scene.state.route)
        ):
            return False
        if action == "take_over":
            return self.scene is not None and self.scene.alive and bool(self.scene.work.holder)
        if action in WHERE:
            face = self.scene.face if self.scene else "starting"
            # Pressed before the screen could show what Enter began, it stops that all the same.
            return face in WHERE[action] or (
                face == "offer" and self._began and action in ("stop", "stop_now")
            )
        return True

    def label_of(self, action: str, label: str) -> str:
        """What a key does now: one that another window has to press does nothing here, though it
        says so when pressed."""
        work = self.scene.work if self.scene and self.scene.alive else None
        if work is None or action not in STEERING:
            return label
        return "" if work.holder else "go on" if action == "pause" and work.paused else label

    def draw(self, scene: Scene) -> None:
        face = scene.face
        if face == "ended":
            return
        here, node, visit, route = scene.node, scene.at, scene.visit, scene.state.route
        measured = bool(visit and visit.outcome)
        because = scene.short(
            next((o.because for o in offered(visit) if o.recommended), "") if face == "ask" else ""
        )
        made = commands(scene) if face in ("offer", "ask") else ()
        names_nodes = (
            face == "ask"
            and visit is not None
            and any((visit.outcome or {}).get(name) for name in LOCATED)
        )
        shown = {
            "-bare": not measured,
            "-because": bool(because),
            "-words": face == "offer" and bool(node and node.terms),
            "-by-hand": any(command.text for command in made),
            "-located": names_nodes and bool(scene.sight.places),
        }
        self.update_classes({**{f"-{name}": name == face for name in FACES}, **shown})
        self.route.tell((scene.flow, route, here, self._doing(scene)))
        self.crumb.tell((scene.flow, route, here))
        number = len([v for v in route if v.answer]) + 1
        entries = scene.state.visits(here) + (visit is None)
        known = len(
            scene.state.findings.culprits
        )  # each is patched from here on, and the next one is looked for
        again = (
            "" if entries < 2 else f", for culprit {known + 1}" if known else f", visit {entries}"
        )
        self.question.name_it(
            f"Step {number}: {node.title}{again}" if node else title(scene.flow, here)
        )
        if (here, face, number) != self._drawn:
            self._drawn = (here, face, number)
            self._began = False
            self.page.scroll_home(animate=False)
            self.call_after_refresh(self._follow)
            self.refresh_bindings()
        elif (
            bool(scene.work.holder),
            scene.work.paused,
        ) != self._keys_by:  # another window took over, or gave it back
            self.refresh_bindings()
        self._keys_by = (bool(scene.work.holder), scene.work.paused)
        asking = visit.question.ask if visit and visit.question else (node.ask if node else "")
        self.query_one("#ask", Text).show(scene.short(asking), "bold")
        explain = node.explain if node else ""
        self.query_one("#explain", Text).show(
            explain.split("\n\n")[0] if face != "offer" else explain
        )
        found = scene.short(troubles(scene))
        self.query_one("#troubles", Troubles).show(found)
        self.query_one("#deaths", Troubles).show(found)
        notes = scene.short("\n".join(f"- {text}" for text in narrative.noted(scene)))
        self.query_one("#noted", Text).show(notes)
        self.query_one("#noted-panel").display = bool(notes)
        self._plan(scene)
        self._work(scene)
        if visit and face == "ask":
            criterion = scene.state.findings.criterion
            height = 5 if self.app.size.height >= 32 else 3
            tolerance = criterion.tolerance if criterion else None
            metric = (
                criterion.metric if criterion else str((visit.outcome or {}).get("metric") or "")
            )
            seen = Seen(scene.sight, tolerance, metric, scene.hunt, scene.hunt.whole, height)
            outcome = drop_said(scene.short(visit.outcome or {}), because)
            named = scene.names_left_out if scene.sight.names.in_sight(visit.outcome) else ""
            self.query_one("#measured-panel", Panel).name_it("Measured", named, needed=True)
            self.query_one("#evidence", Evidence).show(
                outcome, node.evidence if node else (), visit.step, seen
            )
        if shown["-located"]:
            for panel in (self.around, self.around_beside):
                panel.query_one(Surroundings).tell(scene.sight.places[scene.sight.now :][:1])
        self.query_one("#measured-panel").display = face == "ask" and (
            measured or bool(node and node.evidence)
        )
        for why, by_hand in ((self.why, self.by_hand), (self.why_beside, self.by_hand_beside)):
            why.show(because)
            by_hand.show(made)
        if face == "ask" and visit:
            self.answers.show(scene.flow, scene.short(offered(visit)), measured=bool(visit.step))
            if not self.answers.has_focus and self.app.screen is self:
                self.answers.focus()
        elif face == "running":
            if self.app.screen is self and not self.query_one(Probes).has_focus:
                self.query_one(Probes).focus()
        elif self.focused is not None:
            self.set_focus(None)

    def _doing(self, scene: Scene) -> str:
        """The state of the step at hand, in a word or two."""
        visit = scene.visit
        if scene.face == "running" or (
            visit and visit.status in ("cancelled", "refused", "failed") and scene.face != "ask"
        ):
            return stage(visit)
        if scene.face == "ask" and visit and (how := stage(visit)) in UNMEASURED:
            return f"{how}; your answer"
        return DOING[scene.face]

    def _follow(self) -> None:
        """Keep the place where we are in sight on a long route."""
        rail = self.query_one("#rail", VerticalScroll)
        rail.scroll_to(y=max(0, self.route.here_row - rail.size.height // 2), animate=False)

    def _plan(self, scene: Scene) -> None:
        if scene.face != "offer":
            return
        work, node = scene.work, scene.at
        summary = work.text or (
            self.host.summary(node.step.use)
            if node and node.step
            else "Nothing runs here; it only asks."
        )
        self.query_one("#plan", Text).show(summary)
        taken, free = scene.disk
        disk = f" The session takes {size(taken)} on disk; {size(free)} are free." if free else ""
        self.query_one("#cost", Text).show(
            f"Expected: {price(work.expected, work.seconds, work.each)}.{disk}"
        )
        self.query_one("#words", Text).show(narrative.define_words(scene))
        how = (
            "" if scene.work.holder else "{go} runs it; {skip} skips it."
        )  # else the other window does
        self.query_one("#how", Text).show(self.host.fill_in_keys(how), "bold $recommended")

    def _work(self, scene: Scene) -> None:
        written = [line for line in scene.log if line.strip()] if scene.face == "running" else []
        self.query_one("#log-panel").display = bool(written)
        if scene.face == "starting":
            said = scene.work.phase == "running" or (
                scene.work.phase == "starting" and scene.work.text
            )
            text = ENDING if scene.at is None else WAITING
            waiting = scene.work if said else msgspec.structs.replace(scene.work, text=text)
            self.query_one("#doing", Doing).show(waiting, Hunt())
        if scene.face not in ("running", "stopped"):
            self.query_one("#model-panel").display = False
            return
        hunt, work = scene.hunt, scene.work
        whole, rows = hunt.whole, self.app.size.height
        model = self.query_one("#model", Model)
        model.most = 1 if rows < 28 else 2 if rows < 36 else 4
        model.show(hunt if scene.face == "running" else msgspec.structs.replace(hunt, trying=()))
        self.query_one("#model-panel").display = model.known
        if scene.face == "stopped":  # what the search has found stays in sight
            return
        self.query_one("#doing", Doing).show(work, hunt, whole, scene.now)
        probes = self.query_one("#probes", Probes)
        probes.most = max(5, min(20, rows - 28))
        probes.show(hunt.rows, scene.now)
        smallest = self.query_one("#smallest", Smallest)
        smallest.height = 1 if rows < 32 else 4
        smallest.show(hunt, work, whole, scene.now)
        self.query_one("#smallest-panel").display = smallest.known
        self.query_one("#tail", Tail).show(written)

    def _once(self, what: str) -> bool:
        """False for a key that was pressed twice before the runner could answer the first."""
        asked = (what, self.scene.node if self.scene else "", time.monotonic())
        before, self._pressed = self._pressed, asked
        return asked[:2] != before[:2] or asked[2] - before[2] > TWICE

    # Keys of this screen

    def on_probes_opened(self, event: Probes.Opened) -> None:
        """Enter on a probe."""
        if (
            time.monotonic() - self._pressed[2] > TWICE
        ):  # Enter pressed twice to run a step asks for no card
            self.look_into(event.key)

    def action_go(self) -> None:
        """Run what is offered."""
        if self._once("go"):
            self._began = True
            self.host.request(requests.Go())

    def action_skip(self) -> None:
        """Do not run it."""
        if self._once("skip"):
            self.host.request(requests.Skip())

    def action_stop(self) -> None:
        """Soft stop; in a search that has found a smaller part, ask whether that will do."""
        work = self.scene.work if self.scene else None
        listed = (
            work is not None and work.best == 0
        )  # no part is looked for: a list is tried, one after the other
        if (
            work is None
            or not work.tried
            or work.stopping
            or not (listed or 0 < work.best < work.nodes)
        ):
            self.host.request(requests.Stop(), "Stopping after this probe.")
            return

        def done(wanted: str | None) -> None:
            if wanted == "use":
                said = "what was found so far" if listed else "the smallest part so far"
                self.host.request(requests.Settle(), f"Going on with {said}.")
            elif wanted == "stop":
                self.host.request(requests.Stop(), "Stopping after this probe.")

        smallest = f"Use the smallest so far ({work.best:,} of {count(work.nodes, 'node')})"
        options = [
            (
                "use",
                f"Use what was found so far ({work.tried:,} tried)" if listed else smallest,
                "it goes on with that",
            ),
            ("on", "Search on", "more may be found" if listed else "a smaller part may be found"),
            ("stop", "Stop", "everything measured is kept; it can go on later"),
        ]
        self.app.push_screen(Choose("The search is not through", "", options), done)

    def action_stop_now(self) -> None:
        """Hard stop."""
        self.host.request(requests.Stop(hard=True), "Stopping now; the session is safe.")

    def action_pause(self) -> None:
        """Pause, or go on."""
        if self.scene:
            paused = self.scene.work.paused
            self.host.request(
                requests.GoOn() if paused else requests.Pause(),
                "Going on." if paused else "Pausing before the next probe.",
            )

    def action_take_over(self) -> None:
        """Ask once, then steer it from here."""

        def done(wanted: str | None) -> None:
            if wanted == "take":
                self.host.take_over()

        options = [
            ("look", "Go on looking", "the other window keeps it"),
            ("take", "Take it over", "the other window looks on then, and can take it back"),
        ]
        text = "What runs goes on as it is, and nothing is lost. An answer that is being chosen there is not given."
        self.app.push_screen(Choose("Steer this session from this window?", text, options), done)

    def action_retry(self) -> None:
        """Start the runner again."""
        self.host.restart()

    def on_answers_chosen(self, event: Answers.Chosen) -> None:
        """Ask for the values that the answer carries, then give it."""
        scene = self.scene
        visit = scene.visit if scene else None
        if scene is None or visit is None:
            return
        node = scene.at
        wanted = (
            node.answers[event.answer].settings if node and event.answer in node.answers else {}
        )
        if not wanted:
            if not self._once(event.answer):
                return
            self.host.request(requests.Answer(event.answer, visit.node, visit.visit))
            return
        fields = [Field(name, prompt, required=True) for name, prompt in wanted.items()]

        def done(values: Mapping[str, str] | None) -> None:
            if values is not None:
                self.host.request(
                    requests.Answer(event.answer, visit.node, visit.visit, settings=values)
                )

        self.app.push_screen(Fields("What should it be?", "", fields), done)
