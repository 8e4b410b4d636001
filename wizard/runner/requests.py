"""What a client may ask of a runner: one struct a request. They travel as JSON objects whose ``do``
names the request.

The controller may ask all of them; whoever watches may ask how things stand, and add a note.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from narrowdown.engines.consent import NOTHING, Consent
from narrowdown.wizard.schedulers import LOCAL
from narrowdown.wizard.words import LONGEST

LINE = 1 << 20  # bytes of a request as it travels, and of what a program answers

Policy: TypeAlias = Literal["person", "walk", "recommended", "script"]


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a runner is to behave. Given when it starts; part of nothing that is measured.

    ``policy``: who answers; ``walk``: the recommended answers are taken until one is in doubt or a
    step is expensive, then a person answers. ``answers`` (script): node -> answer id, or one for
    each visit; ``ask`` ends with exit code 3. ``settings`` (script): node -> for each visit, the
    values that the answer carries. ``offers``: wait before each step for ``go`` or ``skip`` (a
    person sees what it will cost first). ``jobs``: probes at a time; 0: what the device allows.
    ``budget``: seconds after which the session stops; a search ends before, with its smallest part
    so far; 0: no end. ``handed``: names of variables that a checker gets beside the usual ones.
    ``executor``: ``local``, or the address of a cluster's scheduler. ``retry_unresolved``: ask again
    what ended unresolved. ``detach``: go on when the controlling client is gone. ``consent``: what
    of the user's may be run or loaded, as ``wizard.trust`` gives it; without one, nothing.
    ``first``: requests to carry out before anything else (a rewind of a session that has ended).
    """

    policy: Policy = "recommended"
    answers: dict[str, str | list[str]] = {}
    settings: dict[str, list[dict[str, Any]]] = {}
    offers: bool = False
    jobs: int = 0
    executor: str = LOCAL
    budget: float = 0.0
    handed: tuple[str, ...] = ()
    retry_unresolved: bool = False
    detach: bool = False
    consent: Consent = NOTHING
    first: tuple[dict[str, Any], ...] = ()


class Request(msgspec.Struct, frozen=True, tag_field="do", forbid_unknown_fields=True):
    """Any request. One with a field that it has not is refused: a word misspelt would be lost in
    silence."""


class Answer(Request, frozen=True, tag="answer"):
    """Answer the question that is open; of this ``node`` and ``visit`` where they are told.
    ``settings``: the values that the answer carries. ``go``: run the next step, too, unless it is
    expensive."""

    answer: str
    node: str | None = None
    visit: int | None = None
    note: str = ""
    settings: Mapping[str, str] = {}
    go: bool = False


class Go(Request, frozen=True, tag="go"):
    """Run the step that is offered; before any is, the first one, unless it is expensive."""


class Skip(Request, frozen=True, tag="skip"):
    """Do not run the step that is offered, or leave the one that runs."""


class Stop(Request, frozen=True, tag="stop"):
    """Stop after the probe that the step waits for; ``hard``: now."""

    hard: bool = False


class Settle(Request, frozen=True, tag="settle"):
    """End the search that runs, with the smallest part that fails so far."""


class Pause(Request, frozen=True, tag="pause"):
    """Start no further probe."""


class GoOn(Request, frozen=True, tag="resume"):
    """Go on after a pause."""


class Detach(Request, frozen=True, tag="detach"):
    """Go on without a client."""


class SetPolicy(Request, frozen=True, tag="policy"):
    """Who answers from now on, and whether steps are offered before they run; None: as it is."""

    policy: Policy | None = None
    offers: bool | None = None


class Rewind(Request, frozen=True, tag="rewind"):
    """Set aside everything after the event ``to``: its number; a node, or ``node#visit``: its last
    question, or the start of its step; ``back``: the question before this one."""

    to: int | str


class AddNote(Request, frozen=True, tag="note"):
    """Write a note into the journal."""

    text: str
    node: str = ""


class Status(Request, frozen=True, tag="status"):
    """How things stand."""


AnyRequest: TypeAlias = (
    Answer
    | Go
    | Skip
    | Stop
    | Settle
    | Pause
    | GoOn
    | Detach
    | SetPolicy
    | Rewind
    | AddNote
    | Status
)
FOR_ALL = (Status, AddNote)  # what a client that only watches may ask too

_NAMES = frozenset(str(kind.__struct_config__.tag) for kind in get_args(AnyRequest))


def decode(told: Mapping[str, Any]) -> AnyRequest:
    """The request that a client sent. Raises ValueError with a sentence."""
    name = told.get("do", "")
    if not isinstance(name, str) or name not in _NAMES:
        raise ValueError(f"The runner knows no request '{str(name)[:40]}'.")
    try:
        return msgspec.convert(told, AnyRequest)  # type: ignore[no-any-return]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The request '{name}' is not complete: {error}.") from None


def encode(request: Request) -> dict[str, Any]:
    """The request as it travels."""
    told: dict[str, Any] = msgspec.to_builtins(request)
    return told


def shortened(text: str) -> str:
    """What a person typed, as the journal takes it."""
    return text[:LONGEST]
