"""Walking along with a session on a text display: events out, answers in, Ctrl-C understood."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

import msgspec

from narrowdown.engines.store import decoding
from narrowdown.wizard import Exit, terminal
from narrowdown.wizard.flow.model import Flow
from narrowdown.wizard.plain import Display, Refused, json_line
from narrowdown.wizard.runner import requests
from narrowdown.wizard.runner.client import Client
from narrowdown.wizard.session.events import (
    AnyEvent,
    QuestionAnswered,
    QuestionAsked,
    Rewound,
    SessionClosed,
    SessionOpened,
)
from narrowdown.wizard.words import price, visible, window

INTERVAL = 0.1  # seconds between two looks
PATIENCE = 2.0  # seconds: of a runner that is gone, to have its last words read; of a probe, to end once we are to stop


class JsonPrompt:
    """A program answers, a JSON object a line: ``{"do": "answer", "answer": ID}``, with
    ``settings`` where the answer takes values; ``{"do": "rewind", "to": NODE}``, or ``"back"`` for
    the question before; ``{"do": "stop"}``. What cannot be taken is said as ``{"kind": "refused",
    ...}``, and the question stays open."""

    def answer(self, question: QuestionAsked) -> dict[str, Any] | None:
        while True:
            try:
                if not (line := sys.stdin.readline(requests.LINE + 1)):
                    return None
                wish = decoding.decode(line.encode(), _WISHES)
            except ValueError as error:
                self.refused(f"That is no answer: {error}.")
                continue
            if isinstance(wish, requests.Answer):
                meant = (wish.node or question.node, wish.visit or question.visit)
                if meant != (question.node, question.visit):
                    self.refused(f"The open question is '{question.node}', visit {question.visit}.")
                    continue
                wish = msgspec.structs.replace(wish, node=question.node, visit=question.visit)
            return requests.encode(wish)

    def refused(self, sentence: str) -> None:
        print(json_line(msgspec.to_builtins(Refused(sentence))), end="", flush=True)


# What a program may ask here; all else that a client may is of no use to one that only answers.
_WISHES: Any = requests.Answer | requests.Rewind | requests.Stop


class Prompt:
    """Numbered prompts: a number, an answer's id, or nothing for the recommended answer; ``?``
    explains; ``back``, or ``back NODE``, returns to an earlier question."""

    def __init__(self, flow: Flow, read: TextIO | None = None, out: TextIO | None = None) -> None:
        self._flow = flow
        self._read, self._out = read or sys.stdin, out or sys.stdout

    def answer(self, question: QuestionAsked) -> dict[str, Any] | None:
        """The request that answers the question; None when there is nobody (end of input)."""
        ids = [offer.id for offer in question.answers]
        node = self._flow.nodes.get(question.node)
        while True:
            more = ", more shows all" if any(offer.out for offer in question.answers) else ""
            typed = self._line(
                f"    answer (1-{len(ids)}, Enter: {question.recommended or ids[0]}{more}, ? explains, back returns): "
            )
            if typed is None:
                return None
            if typed == "?" and node is not None:
                self._say(visible(node.explain.strip(), keep="\n"))
                continue
            if typed == "more" and more and "more" not in ids:
                for position, offer in enumerate(question.answers, 1):
                    if offer.out:
                        self._say(
                            f"      {position}  {visible(offer.text)}  ({visible(offer.out)})"
                        )
                continue
            word, _, where = typed.partition(" ")
            if word == "back" and typed not in ids:
                return requests.encode(requests.Rewind(where.strip() or "back"))
            chosen = typed or question.recommended or ids[0]
            if chosen.isdigit() and 1 <= int(chosen) <= len(ids):
                chosen = ids[int(chosen) - 1]
            if chosen in ids:
                break
            self._say(
                f"    '{visible(typed)}' is not one of the answers: a number, or one of {', '.join(ids)}."
            )
        settings: dict[str, str] = {}
        for name, text in (node.answers[chosen].settings if node else {}).items():
            value = self._line(f"    {visible(text)} (Enter: as it is): ")
            if value:
                settings[name] = value
        return requests.encode(
            requests.Answer(chosen, question.node, question.visit, settings=settings, go=True)
        )

    def offer(self, told: Mapping[str, Any]) -> dict[str, Any] | None:
        """The request that runs the step that waits as it is expensive, or leaves it out; None when
        there is nobody."""
        cost = price(int(told.get("expected", -1)), float(told.get("seconds", -1.0)))
        self._say(f"    this step takes long: {cost}")
        typed = self._line("    run it? (Enter runs it, skip leaves it out): ")
        if typed is None:
            return None
        return requests.encode(requests.Skip() if typed == "skip" else requests.Go())

    def refused(self, sentence: str) -> None:
        terminal.say(sentence)

    def _line(self, text: str) -> str | None:
        self._out.write(text)
        self._out.flush()
        line = self._read.readline()
        if not line:
            self._out.write("\n")
        return line.strip() if line else None

    def _say(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


class Follower:
    """Follows one runner until it ends. ``since``: events up to this number are from before and are
    not shown again; ``name`` of the session, for what is said of it. ``watched``: another program
    holds the session, or did, and this one only looked.
    """

    def __init__(
        self,
        client: Client,
        display: Display,
        *,
        prompt: "Prompt | JsonPrompt | None" = None,
        since: int = 0,
        name: str = "SESSION",
        say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
    ) -> None:
        self._client, self._display, self._prompt, self._since = client, display, prompt, since
        self._name, self._say = name, say
        self.watched = False
        self._open: QuestionAsked | None = None
        self._asked: dict[int, QuestionAsked] = {}
        self._shown = 0  # the number of the question that was shown last
        self._waiting = 0.0  # since when a question from before waits to be shown again
        self._closed: SessionClosed | None = None
        self._interrupts = 0
        self._interrupted_at = 0.0
        self._left_to_nobody = False
        self._offered: tuple[Any, Any] | None = None  # the step that waited last

    def run(self, *, controls: bool = True) -> int:
        """The session's exit code. ``controls`` False: only watch; Ctrl-C leaves and stops nothing.
        So it is, too, where another program holds the session, which is said."""
        gone = 0.0
        self.watched = not controls
        taken = False
        try:
            while True:
                try:
                    if controls and self._client.role == "watch":
                        controls, taken = False, self._client.taken
                        self._watch_only()
                    elif (
                        taken and self._client.role == "controller"
                    ):  # whoever took over has left, and we have it again
                        controls, taken, self.watched = True, False, False
                        self._say("narrowdown: the other window has left, and this one goes on.")
                    if self._look() and self._closed is not None:
                        return self._ended(self._closed)
                    if not self._client.alive():
                        gone = gone or time.monotonic()
                        if time.monotonic() - gone > PATIENCE:
                            return self._lost()
                    else:
                        gone = 0.0
                    if (
                        controls
                        and self._prompt is not None
                        and not self._left_to_nobody
                        and (question := self._in_sight())
                    ):
                        self._ask(self._prompt, question)
                    elif controls and isinstance(self._prompt, Prompt):
                        self._offer(self._prompt)
                    time.sleep(INTERVAL)
                    if self._interrupts == 1 and time.monotonic() - self._interrupted_at > PATIENCE:
                        self._interrupted()
                except KeyboardInterrupt:
                    if not controls:
                        return Exit.STOPPED
                    self._interrupted()
        finally:
            self._display.close()

    def _look(self) -> bool:
        """Take in what is new; whether there was anything."""
        events = self._client.poll()
        for event in events:
            if not (
                isinstance(event, SessionClosed) and self._since < event.seq <= self._client.earlier
            ):
                self._take(event)
        self._display.progress(self._client.progress())
        return bool(events)

    def _watch_only(self) -> None:
        self.watched = True
        if self._client.taken:
            self._say(
                "narrowdown: another window has taken over this session, so this one only looks on; "
                f"'narrowdown resume {self._name}' and T take it back."
            )
            return
        self._say(
            f"narrowdown: the session is open in {visible(window(self._client.holder))}, so this one only looks on; "
            f"once that has ended, 'narrowdown resume {self._name}' takes over."
        )

    def _take(self, event: AnyEvent) -> None:
        match event:
            case QuestionAsked():
                self._open = self._asked[event.seq] = event
            case QuestionAnswered():
                self._open = None
            case Rewound():
                self._open = self._asked.get(event.to)
            case SessionOpened() if event.seq > self._since:
                self._closed = None  # taken up again
            case SessionClosed() if event.seq > self._since:
                self._closed = event
        if event.seq > self._since:
            self._show(event)
            # A question that is open again, or was left open, is shown once more: nobody asks it anew.
            if self._open is not None and isinstance(event, Rewound | SessionOpened):
                self._show(self._open)

    def _show(self, event: AnyEvent) -> None:
        self._display.event(event)
        if isinstance(event, QuestionAsked):
            self._shown = event.seq

    def _in_sight(self) -> QuestionAsked | None:
        """The open question, once it was shown. One from before is shown once the
        runner says that it goes on; one that is at work already says nothing, so then it is shown
        after a while."""
        if self._open is None or self._open.seq == self._shown:
            self._waiting = 0.0
            return self._open
        self._waiting = self._waiting or time.monotonic()
        if time.monotonic() - self._waiting >= PATIENCE:
            self._show(self._open)
        return None

    def _ask(self, prompt: Prompt | JsonPrompt, question: QuestionAsked) -> None:
        request = prompt.answer(question)
        if request is None:
            self._left_to_nobody = True
            self._say(
                "narrowdown: the input ended before the question was answered; 'narrowdown resume' asks it again."
            )
            self._client.send(requests.encode(requests.Stop()))
            return
        reply = self._client.send(request)
        if reply.get("ok"):
            self._open = None
        else:
            prompt.refused(str(reply.get("error", "the answer was refused")))

    def _offer(self, prompt: Prompt) -> None:
        """Ask about a step that waits, once."""
        told = self._client.progress() or {}
        step = (told.get("node"), told.get("visit"))
        if told.get("phase") != "offer" or self._left_to_nobody or step == self._offered:
            return
        self._offered = step
        request = prompt.offer(told)
        self._left_to_nobody = request is None
        reply = self._client.send(request or requests.encode(requests.Stop()))
        if not reply.get("ok"):
            prompt.refused(str(reply.get("error", "")))

    def _interrupted(self) -> None:
        self._interrupts += 1
        self._interrupted_at = time.monotonic()
        hard = self._interrupts > 1
        self._say(
            "narrowdown: stopping now."
            if hard
            else f"narrowdown: stopping after this probe, in {PATIENCE:.0f} s at the latest; Ctrl-C again stops now."
        )
        try:
            self._client.send(requests.encode(requests.Stop(hard=hard)))
        except (OSError, ValueError):
            return  # the runner is gone already, which the next look finds out

    def _ended(self, closed: SessionClosed) -> int:
        if self._left_to_nobody:
            return Exit.NEEDS_PERSON
        if closed.exit_code and closed.reason and closed.exit_code != Exit.STOPPED:
            self._say(f"narrowdown: {visible(closed.reason)}")
        elif self.watched and not closed.end:
            why = closed.reason if closed.reason not in ("", "stopped") else "it was stopped"
            self._say(
                f"narrowdown: the session rests ({visible(why)}); 'narrowdown resume {self._name}' takes over."
            )
        return closed.exit_code

    def _lost(self) -> int:
        """The runner is gone and has not closed the session: it was killed, or it refused to begin
        and has said why."""
        said = self._client.progress() or {}
        text = str(said.get("text") or "") if said.get("phase") == "stopped" else ""
        from narrowdown.engines import installed  # of one command in a thousand

        changed, code = installed.say_change(), self._client.exit_code()
        lost, ours = "The runner ended unexpectedly", Exit.OUR_FAULT
        if (
            self.watched
        ):  # whose program it was, and what ended it, is no fault of the one who looks
            lost, ours = (
                f"nothing on this machine works on this session now; 'narrowdown resume {self._name}' takes over.",
                Exit.STOPPED,
            )
        elif changed:
            ours = Exit.MISSING
        elif code is None and not self._client.crashed():
            lost, ours = (
                f"{lost}: it was killed, by somebody or by a system that ran out of memory.",
                Exit.STOPPED,
            )
        else:
            lost = f"{lost}. What was measured is kept: 'narrowdown resume {self._name}' goes on."
        self._say(f"narrowdown: {visible(text) or changed or lost}")
        return code or ours
