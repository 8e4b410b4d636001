"""What clients have asked of a runner, and who is there. The walk reads it between two things that
it does, and waits on it."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal, TypeVar, assert_never

from narrowdown.wizard import Exit
from narrowdown.wizard.durations import MINUTE
from narrowdown.wizard.flow.model import Flow
from narrowdown.wizard.runner import requests
from narrowdown.wizard.runner.drive import Stopped
from narrowdown.wizard.runner.ledger import Session
from narrowdown.wizard.runner.requests import AnyRequest
from narrowdown.wizard.runner.server import Client, Reply
from narrowdown.wizard.runner.settings import fault
from narrowdown.wizard.session.events import (
    NoteAdded,
    QuestionAnswered,
    QuestionAsked,
)
from narrowdown.wizard.session.state import State
from narrowdown.wizard.words import window

IDLE = MINUTE  # seconds that a question, or a pause, waits with nobody connected before the runner ends; a resume goes on from it
GRACE = 1.0  # seconds that a controller may be away
CONNECT = MINUTE  # seconds that the first controller may take; it tries fifty times a second where the machine lets it

Result = TypeVar("Result")
Phase = Literal["starting", "running", "offer", "ask", "ended", "stopped"]
_YES: Reply = {"ok": True}


class Closing(Exception):
    """The session is to be closed with this exit code. ``reason`` is a sentence; ``end``: the
    flow's end, "" where it came to none."""

    def __init__(self, code: int, reason: str = "", end: str = "") -> None:
        super().__init__(reason)
        self.code, self.reason, self.end = code, reason, end


class Control:
    """Takes requests, one at a time, and keeps what they change.

    ``phase`` and ``asking`` (the open question) are set by the walk, as they decide what may be
    asked. ``changed`` wakes whoever waits; ``urgent`` what must not wait for a probe. ``rewind``:
    the event to go back to. ``skip``, ``go``: of the step at hand; ``ahead``: run the next one, too.
    ``answer``: to the open question. ``redraw``: called after each request. ``export``: (session folder, target) -> what
    was written; None where there is no writer.
    """

    def __init__(self, session: Session) -> None:
        options = session.options
        self._flow, self._ledger = session.flow, session.ledger
        self.policy, self.offers, self.detached = options.policy, options.offers, options.detach
        self.changed, self.urgent = asyncio.Event(), asyncio.Event()
        self.stopping: Literal["", "soft", "hard"] = ""
        self.reason = ""
        self.closing = (
            False  # the session is closed: this runner takes nothing up any more, and ends
        )
        self.paused = self.skip = self.go = self.ahead = False
        self.rewind: int | None = None
        self.answer: QuestionAnswered | None = None
        self.asking: QuestionAsked | None = None
        self.phase: Phase = "starting"
        self.controller, self.control = "", 0  # name and number of the client that controls
        # Nobody has come yet; who is to come has longer than who was here.
        self.alone_since: float | None = time.monotonic() + CONNECT - GRACE
        self.redraw: Callable[[], None] = lambda: None
        self.tried: Callable[[], int] = lambda: (
            0
        )  # probes of the search at work, where it can be ended now
        self.settle = 0  # probes at which it is ended

    # -- requests

    async def handle(self, told: Mapping[str, Any], client: Client | None) -> Reply:
        """One request as it travels, and its reply. ``client`` None: the runner's own options. Only
        the controller may change anything but add a note."""
        try:
            request = requests.decode(told)
        except ValueError as error:
            return _no(str(error))
        if (
            client is not None
            and client.role != "controller"
            and not isinstance(request, requests.FOR_ALL)
        ):
            held = (
                f"{window(self.controller)} steers it"
                if self.controller
                else "say hello as its controller first"
            )
            return _no(f"Nothing was changed: this one only looks on; {held}.")
        reply = self._carry_out(request)
        self.changed.set()
        self.redraw()
        return reply

    def _carry_out(self, request: AnyRequest) -> Reply:
        match request:
            case requests.Answer():
                return self._take_answer(request)
            case requests.Go():
                return self._run_offered()
            case requests.Skip():
                return self._skip_step()
            case requests.Stop(hard=hard):
                self.stop(hard=hard)
            case requests.Settle():
                return self.settle_search()
            case requests.Pause():
                self.paused = True
            case requests.GoOn():
                self.paused = False
            case requests.Detach():
                self.detached = True
            case requests.SetPolicy(policy=policy, offers=offers):
                self.policy = self.policy if policy is None else policy
                self.offers = self.offers if offers is None else offers
            case requests.Rewind(to=to):
                return self._go_back_to(to)
            case requests.AddNote(text=text, node=node):
                self._ledger.emit(NoteAdded(text=requests.shortened(text), node=node))
            case requests.Status():
                return {
                    "ok": True,
                    "phase": self.phase,
                    "policy": self.policy,
                    "offers": self.offers,
                    "detached": self.detached,
                    "paused": self.paused,
                    "stopping": self.stopping,
                    "closing": self.closing,
                    "controller": self.controller,
                    "seq": self._ledger.state.seq,
                    "pid": os.getpid(),
                }
            case _:
                assert_never(request)
        return _YES

    def _take_answer(self, request: requests.Answer) -> Reply:
        ask = self.asking
        if ask is None:
            return _no("No question is open now.")
        node = ask.node if request.node is None else request.node
        if (node, ask.visit if request.visit is None else request.visit) != (ask.node, ask.visit):
            return _no("That question is not open any more.")
        if request.answer not in {offer.id for offer in ask.answers}:
            known = ", ".join(offer.id for offer in ask.answers)
            return _no(f"'{request.answer}' is not one of the answers: {known}.")
        settings = request.settings
        if said := fault(settings, self._ledger.state.findings):
            return _no(said)
        note = requests.shortened(request.note)
        self.answer = answer_question(
            self._flow, ask, request.answer, "person", note=note, settings=settings
        )
        self.ahead = request.go
        return _YES

    def _run_offered(self) -> Reply:
        if self.phase == "starting":
            self.ahead = True
            return _YES
        if self.phase != "offer":
            return _no("No step is offered now.")
        self.go, self.paused = True, False  # whoever runs a step wants it to run
        return _YES

    def _skip_step(self) -> Reply:
        if self.phase not in ("offer", "running"):
            return _no("No step is offered or running now.")
        self.skip = True
        if self.phase == "running":
            self.urgent.set()
        return _YES

    def settle_search(self) -> Reply:
        """End the search at work with the smallest part so far."""
        tried = self.tried() if self.phase == "running" else 0
        if not tried:
            return _no("No search is running that has found a smaller part.")
        self.settle, self.paused = tried, False
        self.urgent.set()
        return _YES

    def _go_back_to(self, to: int | str) -> Reply:
        try:
            self.rewind = find_anchor(self._ledger.state, to)
        except LookupError as error:
            return _no(str(error.args[0]))
        self.ahead = False  # whoever goes back looks before anything runs
        self.urgent.set()
        return _YES

    def stop(self, *, hard: bool, reason: str = "") -> None:
        """Stop after the probe that the step waits for, or now."""
        self.stopping = "hard" if hard or self.stopping == "hard" else "soft"
        self.reason = self.reason or reason
        if hard:
            self.urgent.set()
        self.changed.set()

    # -- who is there

    def controlled(self, client: Client | None) -> None:
        """Who controls now; None: nobody. One that does reads it in the snapshot as soon as it has
        its reply."""
        self.controller, self.control = (client.name, client.number) if client else ("", 0)
        self.alone_since = None if client else time.monotonic()
        self.changed.set()
        if client:
            self.redraw()

    @property
    def abandoned(self) -> bool:
        """Whether the client that this runner works for has gone away."""
        return (
            self.alone_since is not None
            and not self.detached
            and time.monotonic() - self.alone_since > GRACE
        )

    # -- waiting

    async def wake(self) -> None:
        """Wait for a request. Raises Closing when nobody has been there for long."""
        if not await self._wait_for_somebody():
            raise Closing(Exit.NEEDS_PERSON, "A question waits and nobody is there to answer it.")

    async def _wait_for_somebody(self) -> bool:
        """Wait for a request, or that somebody comes or goes; False when nobody has been there for
        long."""
        self.changed.clear()
        left = None
        if self.alone_since is not None:
            left = max(0.0, self.alone_since + IDLE - time.monotonic())
        try:
            await asyncio.wait_for(self.changed.wait(), left)
        except TimeoutError:
            return False
        return True

    async def gate(self) -> None:
        """Before a probe starts: wait while paused. Raises Stopped, also where nobody has been
        there for long: whoever closed the window of a paused session would leave a process that
        holds memory, and a GPU, for ever."""
        while True:
            if self.stopping:
                raise Stopped
            if not self.paused:
                return
            if not await self._wait_for_somebody():
                self.stop(
                    hard=False, reason="It was paused, and nobody was there to go on with it."
                )

    @property
    def open(self) -> bool:
        """Whether probes may start."""
        return not (self.stopping or self.paused)

    async def interruptible(self, work: Coroutine[Any, Any, Result]) -> Result | None:
        """The result of the work; None when a rewind or a skip came first. Raises Stopped on a hard
        stop."""
        task = asyncio.ensure_future(work)
        urgent = asyncio.create_task(self.urgent.wait())
        try:
            await asyncio.wait({task, urgent}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if self.stopping == "hard":
                raise Stopped
            return None
        finally:
            urgent.cancel()
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Stopped):
                    await task
            self.urgent.clear()


def answer_question(
    flow: Flow,
    ask: QuestionAsked,
    answer: str,
    by: Literal["person", "recommended", "script"],
    *,
    note: str = "",
    settings: Mapping[str, Any] | None = None,
) -> QuestionAnswered:
    """The event of an answer: what the flow sets with it, and what was set by hand."""
    sets = flow.nodes[ask.node].answers[answer].sets
    return QuestionAnswered(
        node=ask.node,
        visit=ask.visit,
        answer=answer,
        by=by,
        note=note,
        settings={**sets, **(settings or {})},
    )


def find_anchor(state: State, to: int | str) -> int:
    """The event that a rewind goes to (see ``requests.Rewind``). Raises LookupError with a
    sentence."""
    if isinstance(to, str) and not to.isdigit():
        name, _, number = to.partition("#")
        visits = [v for v in state.route if v.node == name and number in ("", str(v.visit))]
        if to == "back" and not visits:
            visits = [v for v in state.route if v.answer]
        if not visits:
            been = ", ".join(f"{v.node}#{v.visit}" if v.visit > 1 else v.node for v in state.route)
            raise LookupError(
                f"The route has not been at '{to}'; it has been at {been or 'no question yet'}."
            )
        to = visits[-1].question.seq if visits[-1].question else visits[-1].seq
    if int(to) not in state.anchors:
        raise LookupError(f"Event {to} is no question and no start of a step on this route.")
    return int(to)


def _no(sentence: str) -> Reply:
    return {"ok": False, "error": sentence}
