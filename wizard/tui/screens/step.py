"""One screen draws every node: what will run (offer), running, what was measured and the question
(ask)."""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import msgspec
from textual import getters
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll

from narrowdown.wizard.flow.model import title
from narrowdown.wizard.report.stage import UNMEASURED, stage
from narrowdown.wizard.runner import requests
from narrowdown.wizard.tui import keys, narrative
from narrowdown.wizard.tui.board import Hunt
from narrowdown.wizard.tui.scene import Face, Scene, offered
from narrowdown.wizard.tui.screens.overlays import Choice, Field, Fields
from narrowdown.wizard.tui.screens.session import COMMON, FIRST, HIDDEN, SessionScreen
from narrowdown.wizard.tui.troubles import troubles
from narrowdown.wizard.tui.widgets.answers import Answers
from narrowdown.wizard.tui.widgets.evidence import Evidence, Surroundings, drop_said, see
from narrowdown.wizard.tui.widgets.lines import Panel, Text
from narrowdown.wizard.tui.widgets.route import Crumb, Route
from narrowdown.wizard.tui.widgets.trouble import ORDER, Troubles
from narrowdown.wizard.tui.widgets.work import Doing, Model, Probes, Tail
from narrowdown.wizard.words import count, price

LOCATED = (
    "culprit",
    "names",
    "first_node",
)  # fields of an outcome that name nodes: then their surroundings are drawn
WAITING = (
    "Waiting for the session's own process. Engines are looked at first, which takes a few seconds."
)
ENDING = "The end of the route. What was found is being written."
SLIP = 1.0  # seconds within which the same key again is a slip
FACES: tuple[Face, ...] = ("starting", "offer", "running", "ask", "stopped")
# Actions that only make sense on some faces; the others are always there.
WHERE: Mapping[str, tuple[Face, ...]] = {
    "go": ("offer",),
    "skip": ("offer", "running"),
    "auto": ("offer", "ask", "running", "stopped"),
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
STEERING = frozenset({"go", "auto", "skip", "answer", "stop", "stop_now", "pause", "rewind"})
DOING: Mapping[Face, str] = {
    "starting": "starting",
    "offer": "ready to run",
    "running": "running",
    "ask": "your answer",
    "stopped": "stopped",
    "ended": "done",
}


class StepScreen(SessionScreen):
    """Drawn from the scene alone; which parts show follows from its face (a class on the
    screen)."""

    BINDINGS: ClassVar[list[BindingType]] = keys.bindings(
        "take_over",
        "go",
        "stop",
        "retry",
        *FIRST,
        "auto",
        "pause",
        "skip",
        "stop_now",
        *COMMON,
        *HIDDEN,
    )
    HELP_TEXT = (
        "Each step measures something and then asks one question. The answer that the measurement supports is preselected: "
        "press {answer} to take it and to run the next step. Press {auto} to have it go on by itself. You may always choose "
        "otherwise, and go back later with {rewind}. Nothing you do here can lose a measurement."
    )

    _drawn: tuple[str, str, int] = ("", "", 0)
    _held = False  # another window steers: what the bottom line was made by
    _began = False  # Enter was pressed on the offer that is still shown
    _pressed: tuple[str, str, float] = ("", "", 0.0)
    route = getters.query_one("#route", Route)
    crumb = getters.query_one("#crumb", Crumb)
    question = getters.query_one("#question", Panel)
    answers = getters.query_one(Answers)

    def content(self) -> ComposeResult:
        told = self.host.fill_in_keys
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
                    yield Panel("Probes", Probes(id="probes"), id="probes-panel")
                    yield Panel("Why this is recommended", Text(id="because"), id="why")
                    yield Panel("Measured", Evidence(id="evidence"), id="measured-panel")
                    yield Troubles(
                        "worker", id="deaths"
                    )  # counted already: below what was measured
                    yield Panel("Log", Tail(id="tail"), id="log-panel")
                    yield Panel(
                        told("Around the suspect ({pictures} shows more)"),
                        Surroundings(),
                        id="around",
                    )
                    yield Panel("Noted", Text(id="noted"), id="noted-panel")
                    yield Panel(
                        told("Words ({terms} has more)"),
                        Text(id="words"),
                        id="words-panel",
                    )
                yield Panel("Your answer", Answers(), id="answers-panel")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Keys that make no sense on this face are neither shown nor obeyed."""
        scene = self.scene
        if action == "take_over":
            return scene.held
        if action in STEERING and scene.held:
            return False
        if action == "rewind" and not any(v.answer for v in scene.state.route):
            return False
        if action in WHERE:
            # Pressed before the screen could show what Enter began, it stops that all the same.
            return scene.face in WHERE[action] or (
                scene.face == "offer" and self._began and action in ("stop", "stop_now")
            )
        return True

    def draw(self, scene: Scene) -> None:
        face, node, visit = scene.face, scene.at, scene.visit
        if face == "ended":
            return
        self.update_classes(
            {
                **{f"-{name}": name == face for name in FACES},
                "-bare": not (visit and visit.outcome),
                "-words": face == "offer" and bool(node and node.terms),
            }
        )
        self._head(scene)
        self._keep_keys(scene)
        found = troubles(scene)
        self.query_one("#troubles", Troubles).show(found)
        self.query_one("#deaths", Troubles).show(found)
        notes = "\n".join(f"- {text}" for text in narrative.noted(scene))
        self._show_panel("noted", "#noted-panel", notes)
        self._plan(scene)
        self._work(scene)
        because = next((o.because for o in offered(visit) if o.recommended), "")
        doubt = visit.question.doubt if visit and visit.question else ""
        because = "\n\n".join(filter(None, (doubt, because))) if face == "ask" else ""
        self._show_panel("because", "#why", because)
        self._measured(scene, because)
        self._take_focus(scene)

    def _show_panel(self, text: str, panel: str, said: str) -> None:
        """A panel of one text, gone where there is nothing to say."""
        self.query_one(f"#{text}", Text).show(said)
        self.query_one(panel).display = bool(said)

    def _head(self, scene: Scene) -> None:
        """Where we are, and what is asked here."""
        here, node, visit, route = scene.node, scene.at, scene.visit, scene.state.route
        self.route.tell((scene.flow, route, here, self._doing(scene)))
        self.crumb.tell((scene.flow, route, here))
        entries = scene.state.visits(here) + (visit is None)
        known = len(scene.state.findings.culprits)  # each is patched, and the next one looked for
        again = f", for culprit {known + 1}" if known else f", visit {entries}"
        number = self._number(scene)
        called = f"Step {number}: {node.title}{again if entries > 1 else ''}" if node else ""
        self.question.name_it(called or title(scene.flow, here))
        asking = visit.question.ask if visit and visit.question else (node.ask if node else "")
        self.query_one("#ask", Text).show(asking, "bold")
        explain = node.explain if node else ""
        short = explain.split("\n\n")[0] if scene.face != "offer" else explain
        self.query_one("#explain", Text).show(short)

    def _number(self, scene: Scene) -> int:
        return sum(bool(visit.answer) for visit in scene.state.route) + 1

    def _keep_keys(self, scene: Scene) -> None:
        """Another step begins at its top; other keys work there, and where another window took
        over."""
        drawn = (scene.node, scene.face, self._number(scene))
        if drawn != self._drawn:
            self._drawn, self._began = drawn, False
            self.page.scroll_home(animate=False)
            self.call_after_refresh(self._follow)
            self.refresh_bindings()
        elif scene.held != self._held:
            self.refresh_bindings()
        self._held = scene.held

    def _measured(self, scene: Scene, because: str) -> None:
        """What the step found, and where."""
        node, visit = scene.at, scene.visit
        outcome: Mapping[str, Any] = (visit.outcome if visit else None) or {}
        asks = scene.face == "ask" and visit is not None
        fields = node.evidence if node else ()
        self.query_one("#measured-panel").display = asks and bool(outcome or fields)
        places = scene.sight.places if asks and any(outcome.get(name) for name in LOCATED) else ()
        self.query_one("#around", Panel).tell(places[scene.sight.now :][:1])
        if visit is None or not asks:
            return
        seen = see(scene, outcome, height=5 if self.app.size.height >= 32 else 3)
        told = drop_said(outcome, because)
        self.query_one("#evidence", Evidence).tell((told, fields, visit.step, seen))

    def _take_focus(self, scene: Scene) -> None:
        """The keyboard follows the face, so that Enter always means what the bottom line says."""
        visit = scene.visit
        if scene.face == "ask" and visit:
            self.answers.show(scene.flow, offered(visit), measured=bool(visit.step))
        if scene.face == "ask" and not scene.held:
            if not self.answers.has_focus and self.app.screen is self:
                self.answers.focus()
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
            self.host.library.summary(node.step.use)
            if node and node.step
            else "Nothing runs here; it only asks."
        )
        self.query_one("#plan", Text).show(summary)
        cost = price(work.expected, work.seconds)
        cost = f"{cost[:1].upper()}{cost[1:]}"
        cost += ". This is long, so it waits for you." if work.expensive else ""
        self.query_one("#cost", Text).show(cost)
        self.query_one("#words", Text).show(narrative.define_words(scene))
        how = (
            ""
            if scene.work.holder
            else "Press {go} to run it, {auto} to have it go on by itself, {skip} to skip it."
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
        self.query_one("#model-panel").display = model.show(
            hunt if scene.face == "running" else msgspec.structs.replace(hunt, trying=())
        )
        if scene.face == "stopped":  # what the search has found stays in sight
            return
        self.query_one("#doing", Doing).show(work, hunt, whole, scene.now)
        probes = self.query_one("#probes", Probes)
        probes.most = max(5, min(20, rows - 28))
        probes.show(hunt.rows, scene.now)
        self.query_one("#tail", Tail).show(written)

    def _once(self, what: str) -> bool:
        """False for a key that was pressed twice before the runner could answer the first."""
        asked = (what, self.scene.node, time.monotonic())
        before, self._pressed = self._pressed, asked
        return asked[:2] != before[:2] or asked[2] - before[2] > SLIP

    # Keys of this screen

    def action_go(self) -> None:
        if self._once("go"):
            self._began = True
            self.host.request(requests.Go())

    def action_auto(self) -> None:
        """Let it go on by itself, or ask again."""
        scene = self.scene
        if not self._once("auto"):
            return
        walk = requests.SetPolicy("person" if scene.work.walking else "walk")
        if scene.face == "stopped":
            self.host.restart((requests.SetPolicy("walk"),))
        elif scene.work.walking:
            self.host.request(walk, "From the next question on it asks you again.")
        else:
            self.host.request(walk, "It goes on by itself.")

    def action_skip(self) -> None:
        """Do not run it; leave one that runs, after asking."""
        skip = partial(self.host.request, requests.Skip())
        if self.scene.face == "running":
            known = "its question is answered from what is known"
            options = [Choice("Let it run"), Choice("Leave this step", known, skip)]
            self.host.choose("Leave the step that runs?", "", options)
        elif self._once("skip"):
            skip()

    def action_stop(self) -> None:
        """Soft stop; in a search that has found a smaller part, ask whether that will do."""
        stop = partial(self.host.request, requests.Stop(), "Stopping after this probe.")
        work = self.scene.work
        listed = work.best == 0  # no part is looked for: a list is tried, one after the other
        if not work.tried or work.stopping or not (listed or 0 < work.best < work.nodes):
            stop()
            return
        smallest = f"Use the smallest so far ({work.best:,} of {count(work.nodes, 'node')})"
        said = "what was found so far" if listed else "the smallest part so far"
        options = [
            Choice(
                f"Use what was found so far ({work.tried:,} tried)" if listed else smallest,
                "the next steps use it",
                partial(self.host.request, requests.Settle(), f"Going on with {said}."),
            ),
            Choice("Search on", "more may be found" if listed else "a smaller part may be found"),
            Choice("Stop", "everything measured is kept; it can go on later", stop),
        ]
        self.host.choose("The search is not through", "", options)

    def action_stop_now(self) -> None:
        self.host.request(requests.Stop(hard=True), "Stopping now; the session is safe.")

    def action_pause(self) -> None:
        paused = self.scene.work.paused
        self.host.request(
            requests.GoOn() if paused else requests.Pause(),
            "Going on." if paused else "Pausing before the next probe.",
        )

    def action_take_over(self) -> None:
        """Ask once, then steer it from here."""
        back = "the other window looks on then, and can take it back"
        options = [
            Choice("Go on looking", "the other window keeps it"),
            Choice("Take it over", back, self.host.take_over),
        ]
        text = "What runs goes on as it is, and nothing is lost. An answer that is being chosen there is not given."
        self.host.choose("Steer this session from this window?", text, options)

    def action_retry(self) -> None:
        """Start the runner again, with the step at hand."""
        self.host.restart((requests.Go(),))

    def on_answers_chosen(self, event: Answers.Chosen) -> None:
        """Ask for the values that the answer carries, then give it."""
        node, visit = self.scene.at, self.scene.visit
        if visit is None:
            return
        wanted = (
            node.answers[event.answer].settings if node and event.answer in node.answers else {}
        )

        def done(values: Mapping[str, str] | None) -> None:
            if values is not None:
                self.host.request(
                    requests.Answer(event.answer, visit.node, visit.visit, settings=values, go=True)
                )

        if wanted:
            fields = [Field(name, prompt, required=True) for name, prompt in wanted.items()]
            self.app.push_screen(Fields("What should it be?", "", fields), done)
        elif self._once(event.answer):
            done({})
