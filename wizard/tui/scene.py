"""One moment of a session as a screen draws it: flow, folded journal, the runner's progress, the log's end. Pure."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from wizard.flow.model import Flow, FlowNode
from wizard.tui.board import View, Visit

Face = Literal["starting", "offer", "running", "ask", "ended", "stopped"]


class Work(msgspec.Struct, frozen=True):
    """The runner's progress snapshot, as the screens use it. -1 and "" mean unknown."""

    phase: str = ""
    node: str = ""
    visit: int = 1
    step: str = ""
    text: str = ""
    done: int = 0
    expected: int = -1
    best: int = -1
    eta: float = -1.0
    seconds: float = -1.0  # the whole step, estimated before it runs
    paused: bool = False
    stopping: bool = False
    holder: str = ""  # who else controls the session; "" when we do
    command: str = ""  # the same by hand


class Scene(msgspec.Struct, frozen=True):
    """Everything a screen draws."""

    flow: Flow
    folder: Path
    view: View = View()
    work: Work = Work()
    alive: bool = True
    log: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # of the case bundle, below the session folder
    problem: Mapping[str, Any] = {}  # the PROBLEM as plain data
    trouble: str = ""  # why the session cannot be read just now, one sentence
    now: float = 0.0

    @property
    def face(self) -> Face:
        """What the person is looking at. The journal is the truth; the snapshot only says what it cannot."""
        here = self.view.here
        if self.view.end:
            return "ended"
        if here and here.asked:
            return "ask"
        if not self.alive:
            return "stopped"
        if self.work.phase == "offer":
            return "offer"
        if here and here.running:
            return "running"
        return "starting"

    @property
    def node(self) -> str:
        """The node that is offered, running or asked about; the end, once there is one."""
        if self.view.end:
            return self.view.end
        here = self.view.here
        if here and (here.asked or here.running):
            return here.node
        if self.work.phase == "offer" and self.work.node:
            return self.work.node
        if here is None:
            return self.flow.start
        answers = self.flow.nodes[here.node].answers if here.node in self.flow.nodes else {}
        return answers[here.answer].goto if here.answer in answers else here.node

    @property
    def at(self) -> FlowNode | None:
        """The flow's node here; None at an end."""
        return self.flow.nodes.get(self.node)

    @property
    def visit(self) -> Visit | None:
        """The visit being drawn; None for a node that was not entered yet."""
        here = self.view.here
        return here if here and here.node == self.node and not here.answer else None

    @property
    def busy(self) -> bool:
        """Whether leaving now would leave something running."""
        return self.alive and self.face == "running"
