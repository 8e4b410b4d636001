"""One moment of a session as a screen draws it: flow, folded journal, the runner's progress, the
log's end. Pure."""

from pathlib import Path
from typing import Literal

import msgspec

from narrowdown.wizard.flow.commands import Command, by_hand, known_versions, values
from narrowdown.wizard.flow.model import Flow, FlowNode
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.runner.progress import Snapshot
from narrowdown.wizard.session.decide import Ended, RunStep, decide
from narrowdown.wizard.session.events import Offered, QuestionAsked
from narrowdown.wizard.session.state import State, Visit
from narrowdown.wizard.standing import name_standing
from narrowdown.wizard.tui.board import Hunt
from narrowdown.wizard.tui.sight import Sight

Face = Literal["starting", "offer", "running", "ask", "ended", "stopped"]


class Work(Snapshot, frozen=True):
    """The runner's snapshot as the screens use it: those of its fields that ``USED`` names, and who
    else controls the session. ``taken``: they took over from us; ``free``: whoever controlled it
    has gone, and the next request takes over."""

    phase: str = ""
    taken: bool = False
    free: bool = False


# What else a snapshot says changes from look to look, and nothing of it is drawn.
USED = frozenset({
    "phase", "text", "done", "expected", "best", "tried", "nodes", "seconds", "paused", "stopping",
    "walking", "expensive",
    "holder", "log", "workers", "taken", "free",
})  # fmt: skip


class Scene(msgspec.Struct, frozen=True, eq=False):
    """Everything a screen draws. Two scenes are told apart by identity; comparing whole journals
    costs too much."""

    flow: Flow
    folder: Path
    state: State = State()
    hunt: Hunt = Hunt()
    work: Work = Work()
    alive: bool = True
    log: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # of the case bundle, below the session folder
    sight: Sight = Sight()  # what the pictures show
    trace: tuple[str, ...] = ()  # the end of the runner's own log, where narrowdown itself failed
    problem: Problem = Problem(model="")
    trouble: str = ""  # why the session cannot be read just now, one sentence
    now: float = 0.0

    @property
    def id(self) -> str:
        """The session's id, or its folder's name while the journal is empty."""
        return self.state.id or self.folder.name

    @property
    def face(self) -> Face:
        """What the person is looking at. The journal is the truth; the snapshot only says what it
        cannot."""
        here = self.state.here
        if self.state.end:
            return "ended"
        if here and asked(here):
            return "ask"
        if not self.alive:
            return "stopped"
        if self.work.phase == "offer":
            return "offer"
        if here and here.status == "running":
            return "running"
        return "starting"

    @property
    def standing(self) -> str:
        """Where the session stands, in one word."""
        phase = self.face if self.alive else ""
        return name_standing(ended=bool(self.state.end), phase=phase, paused=self.work.paused)

    @property
    def worked(self) -> float:
        """Seconds in which steps ran."""
        running = self.face == "running" and self.hunt.began
        now = max(0.0, self.now - self.hunt.began) if running else 0.0
        return sum(visit.seconds for visit in self.state.route) + now

    @property
    def node(self) -> str:
        """The node that is offered, running or asked about; the end, once there is one."""
        if self.state.end:
            return self.state.end
        try:
            match decide(self.flow, self.state):
                case RunStep(node=name) | QuestionAsked(node=name) | Ended(end=name):
                    return name
        except ValueError:  # the journal belongs to another version of the flow
            return self.state.here.node if self.state.here else self.flow.start

    @property
    def at(self) -> FlowNode | None:
        """The flow's node here; None at an end."""
        return self.flow.nodes.get(self.node)

    @property
    def visit(self) -> Visit | None:
        """The visit being drawn; None for a node that was not entered yet."""
        here = self.state.here
        return here if here and not here.answer else None

    @property
    def held(self) -> bool:
        """Whether another window steers it, so that this one only looks on."""
        return self.alive and bool(self.work.holder)

    @property
    def busy(self) -> bool:
        """Whether leaving now would leave something running."""
        return self.alive and self.face == "running"


def asked(visit: Visit) -> bool:
    """Whether its question waits for an answer."""
    return visit.question is not None and not visit.answer


def offered(visit: Visit | None) -> tuple[Offered, ...]:
    """The answers of its question, none while it has not been asked."""
    return visit.question.answers if visit and visit.question else ()


def answer_text(visit: Visit) -> str:
    """Its answer as it was worded, "" while there is none."""
    return next((o.text for o in offered(visit) if o.id == visit.answer), visit.answer)


def chosen_freely(visit: Visit) -> bool:
    """Whether somebody chose otherwise than the measurement recommends."""
    return (
        visit.question is not None
        and bool(visit.answer)
        and visit.answer != visit.question.recommended
    )


def commands(scene: Scene) -> tuple[Command, ...]:
    """What does this node's work by hand, one command a tool, for the versions that are here; at an
    end the last node's. None where the flow names none."""
    node = scene.at or (
        scene.flow.nodes.get(scene.state.route[-1].node) if scene.state.route else None
    )
    if node is None:
        return ()
    have = known_versions(scene.problem, scene.state.engines)
    return tuple(
        by_hand(node, values(scene.problem, scene.state.findings, have), have, scene.problem.engine)
    )
