"""Sessions as a program works on them: open one, let it run, look, answer, read the report. It runs
nothing that no person has agreed to on this machine."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from narrowdown.engines.consent import Consent
from narrowdown.wizard import BadUsage, Exit, Refusal, trust
from narrowdown.wizard.report.document import to_json
from narrowdown.wizard.report.markdown import to_markdown
from narrowdown.wizard.report.portable import handed_on
from narrowdown.wizard.report.read import Reading, read
from narrowdown.wizard.runner import progress, requests
from narrowdown.wizard.runner.client import START, Client
from narrowdown.wizard.runner.requests import Options, Policy
from narrowdown.wizard.session import folder as folders, journal, lock
from narrowdown.wizard.session.journal import Tail
from narrowdown.wizard.session.state import State, fold

_LOOK = 0.1  # seconds between two looks
LONGEST = 50.0  # seconds that a call waits at most: clients give up on one after a minute

Where = Literal["working", "asks", "ended", "stopped"]


class Choice(msgspec.Struct, frozen=True):
    """An answer that may be given. ``id`` is what ``answer`` takes."""

    id: str
    text: str
    recommended: bool


class Question(msgspec.Struct, frozen=True):
    """The open question. ``node``: its id in the flow; ``because``: why that one is recommended."""

    node: str
    ask: str
    answers: tuple[Choice, ...]
    because: str


class Standing(msgspec.Struct, frozen=True):
    """How a session stands. ``message``: what its last step found, or is doing now, or why it
    stopped. ``exit_code``: the command line's, once it has ended. ``files``: what was written at
    the end, by kind."""

    session: str
    folder: str
    state: Where
    message: str = ""
    question: Question | None = None
    verdict: str = ""
    headline: str = ""
    exit_code: int | None = None
    files: dict[str, str] = {}


class NeedsPerson(Refusal):
    """Something would run that nobody agreed to; only a person may agree, by a command."""

    def __init__(self, listed: object, command: str) -> None:
        super().__init__(
            Exit.NEEDS_PERSON,
            f"{listed}\nA program cannot agree to that. A person who has read it types: {command}",
        )


class Desk:
    """The sessions that one program works on. A session's runner ends when the desk closes;
    everything measured is kept.

    ``begin``: (model, options, how to agree) -> a new session's folder and the consent; ``typed``:
    (model, options) -> the command that begins the same; ``finish``: writes what an ended session
    hands on. The three are the command line's. Methods raise Refusal, and may be called from any
    thread.
    """

    def __init__(
        self,
        begin: Callable[[str, Mapping[str, Any]], tuple[Path, Consent]],
        typed: Callable[[str, Mapping[str, Any]], str],
        finish: Callable[[Path, int], object],
    ) -> None:
        self._begin, self._typed, self._finish = begin, typed, finish
        self._clients: dict[Path, Client] = {}
        self._finished: set[tuple[Path, int]] = set()
        self._read: dict[Path, tuple[Tail, State]] = {}
        self._turn = threading.RLock()  # a client is made once, an event is read once

    def open(self, model: str, options: Mapping[str, Any], wait: float) -> Standing:
        """Begin a session whose questions wait for ``answer`` or ``run``."""
        try:
            place, consent = self._begin(model, options)
        except trust.Untrusted as listed:
            raise NeedsPerson(listed, self._typed(model, options)) from None
        with self._turn:
            self._clients[place] = Client.start(
                place, Options(policy="person", consent=consent), name="narrowdown mcp"
            )
        return self._settle(place, wait)

    def run(self, session: str, wait: float) -> Standing:
        """Let a session go on by itself, with the recommended answers."""
        place = folders.find(session)
        if self._state(place).end:
            return self._settle(place, wait)
        request = requests.SetPolicy(policy="recommended")
        return self._settle(place, wait, self._ask(place, request, "recommended"))

    def answer(
        self, session: str, answer: str, settings: Mapping[str, str], wait: float
    ) -> Standing:
        """Answer the open question."""
        place = folders.find(session)
        request = requests.Answer(answer, settings=settings)
        return self._settle(place, wait, self._ask(place, request, "person"))

    def status(self, session: str, wait: float) -> Standing:
        """How a session stands, once it asks or ends or the time is over."""
        return self._settle(folders.find(session), wait)

    def report(self, session: str, form: Literal["md", "json"]) -> str:
        """The report as the command line writes it."""
        reading = read(folders.find(session))
        return to_json(reading.report()) if form == "json" else to_markdown(handed_on(reading))

    def close(self) -> None:
        """Leave every session."""
        for client in self._clients.values():
            client.close()

    # -- below

    def _ask(self, place: Path, request: requests.Request, policy: Policy) -> int:
        """One request to the session's runner, which is started where there is none. The event of
        the question that it answers, 0 for none. Raises Refusal for what the runner refuses."""
        client = self._hold(place, policy)
        if isinstance(request, requests.Answer):
            self._settle(place, START)  # a runner that was just started asks again
        asked = self._state(place).here
        reply = client.send(requests.encode(request))
        if not reply.get("ok"):
            raise BadUsage(str(reply.get("error", "The session did not take that.")))
        return asked.question.seq if asked and asked.question else 0

    def _hold(self, place: Path, policy: Policy) -> Client:
        with self._turn:
            client = self._clients.get(place)
            if client is None or not client.alive():
                about = folders.describe(place)
                try:
                    consent = trust.admit(about.problem)
                except trust.Untrusted as listed:
                    name = folders.name_for_command(place)
                    raise NeedsPerson(
                        listed, f"narrowdown resume {name} --yes-run-scripts DIGEST"
                    ) from None
                client = Client.open(
                    place, Options(policy=policy, consent=consent), name="narrowdown mcp"
                )
                self._clients[place] = client
            return client

    def _settle(self, place: Path, wait: float, answered: int = 0) -> Standing:
        """How it stands after at most ``wait`` seconds, ``LONGEST`` at most; sooner where it asks
        or is over. ``answered``: the event of a question that is not open any more."""
        end = time.monotonic() + min(wait, LONGEST)
        while True:
            found = self._standing(place, answered)
            if found.state != "working" or time.monotonic() >= end:
                return found
            time.sleep(_LOOK)

    def _state(self, place: Path) -> State:
        """The session's state; only what is new of its journal is read."""
        with self._turn:
            tail, state = self._read.get(place) or (Tail(place / journal.NAME), State())
            state = fold(tail.poll(), state)
            self._read[place] = tail, state
            return state

    def _standing(self, place: Path, answered: int) -> Standing:
        client = self._clients.get(place)
        alive = client.alive() if client else lock.holder(place) is not None
        state = self._state(place)  # after that: what has ended has written its last word
        here = state.here
        said = str((here.outcome or {}).get("message") or here.error) if here else ""
        if not alive:
            return self._over(place, state, said)
        asked = here.question if here and not (here.answer or state.end) else None
        if asked is not None and asked.seq > answered and self._waits(place, client):
            choices = tuple(Choice(o.id, o.text, o.recommended) for o in asked.answers)
            question = Question(asked.node, asked.ask, choices, asked.because)
            return self._tell(place, "asks", message=said, question=question)
        doing = (progress.read(place) or {}).get("text")
        return self._tell(place, "working", message=str(doing or said))

    def _waits(self, place: Path, client: Client | None) -> bool:
        """Whether the runner waits for somebody's answer, and does not give the recommended one in
        a moment."""
        asker = client or Client.attach(place, "watch", name="narrowdown mcp")
        try:
            return asker.send(requests.encode(requests.Status())).get("policy") == "person"
        finally:
            if asker is not client:
                asker.close()

    def _over(self, place: Path, state: State, said: str) -> Standing:
        """How a session stands on which nobody works."""
        closed = state.closed
        if closed is None or not closed.end:
            reason = closed.reason if closed else ""
            return self._tell(place, "stopped", message=reason or said)
        with self._turn:
            if (place, closed.seq) not in self._finished:
                self._finish(place, closed.exit_code)
                self._finished.add((place, closed.seq))
        reading = read(place)
        report = reading.report()
        return self._tell(
            place,
            "ended",
            message=said,
            verdict=report.verdict,
            headline=report.headline,
            exit_code=closed.exit_code,
            files=_list_files(reading),
        )

    def _tell(self, place: Path, state: Where, **more: Any) -> Standing:
        return Standing(place.name, str(place), state, **more)


def _list_files(reading: Reading) -> dict[str, str]:
    named = {"report": "report.html", "case": "case", "check": "case/check.py"}
    if (workaround := reading.report().workaround) and workaround.file:
        named["model"] = workaround.file
    found = {kind: reading.folder / name for kind, name in named.items()}
    with contextlib.suppress(OSError):
        return {kind: str(path) for kind, path in found.items() if path.exists()}
    return {}
