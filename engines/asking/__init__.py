"""How steps and searches ask: generators of probes, which the runner answers.

They see ids, names and numbers; never a model, an array, a clock, a random source or the number of
jobs. Given the same answers they ask the same questions in the same order: resume is running them
again with the answers known.
"""

from collections.abc import Generator, Mapping, Sequence
from enum import IntEnum
from typing import Annotated, TypeAlias, TypeVar, overload

import msgspec

from narrowdown.engines.findings import Findings
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.probe import (
    AnyProbe,
    Check,
    Construct,
    Describe,
    Import,
    Inspect,
    LoadInputs,
    Measure,
    Measurement,
    Recall,
    Requantize,
    Sanitize,
    State,
    Unroll,
)
from narrowdown.engines.problem import Problem
from narrowdown.engines.views import EngineInfo

T = TypeVar("T")

# A parameter of a step that says how many: a negative one was taken, and the search ended before it
# began.
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
# One that says how much: with a negative margin no error was small enough, and a search spent all
# of its builds.
Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """Progress for people: what is being tried, the smallest failing node count so far.
    ``expected``: probes still to come until the step ends, the one that is announced among them;
    -1: as planned. ``tried``: parts that a search has tried, -1 where none may be ended now.
    ``best`` 0: no part is looked for, but a list is tried, one after the other, and may end
    early."""

    text: str
    expected: int = -1
    best: int = -1
    tried: int = -1


class Spent(Exception):
    """The budget is gone."""


class Tries:
    """What was tried, and whether one more may be. ``most`` 0: as many as there are."""

    def __init__(self, most: int = 0) -> None:
        self.most, self.done = most, 0

    @property
    def over(self) -> bool:
        return 0 < self.most <= self.done

    def note(self, text: str) -> Note:
        """Progress; what is tried from here on may be left out."""
        return Note(text, best=0, tried=self.done)


class StepContext(msgspec.Struct, frozen=True, dict=True):
    """All that a step may know. ``params`` are the flow's ``with`` values, checked against the
    step's ``params`` struct. ``settings``: what answers on the way here have set."""

    engine: str
    reference: str
    findings: Findings
    params: Mapping[str, object] = {}
    engine_info: EngineInfo = EngineInfo()
    reference_info: EngineInfo = EngineInfo()
    check: str = ""  # the external check command, "" when outputs are compared
    seed: int = 1
    visit: int = 1  # how many times this node was entered
    settings: Mapping[str, object] = {}
    problem: Problem = Problem()

    @property
    def storage(self) -> str:
        """What the engine holds values in between nodes, as numpy calls it."""
        return self.engine_info.storage

    def can(self, what: str, *, untold: bool = False) -> bool:
        """Whether the engine has a capability; ``untold``: what an engine that says nothing of it
        is taken for."""
        return self.engine_info.can(what, untold=untold)


# What the runner sends back for what a step has yielded: nothing for a Note.
Reply: TypeAlias = "Measurement | Described | None"
# A step, or a part of one: it yields questions, is sent answers, and ends in a T.
Sub: TypeAlias = Generator[AnyProbe | Note, Reply, T]


# A row of a table that a step leaves (evidence, report, JSON), stored as the JSON object that it
# is.
Row: TypeAlias = msgspec.Struct | Mapping[str, object]
Tables: TypeAlias = Mapping[str, Sequence[Row]]


class Refused(IntEnum):
    """Exit codes of a session that is refused: for what was given, as an engine, file or checker is
    missing or cannot do this, or as nothing can be proven (``narrowdown.wizard.exits``)."""

    BAD_INPUT = 2
    MISSING = 4
    UNPROVEN = 6


class StepRefused(Exception):
    """The step cannot run here; the message is a sentence for the user (what, why, what to do).

    ``code``: the exit code it ends with when it stops the session.
    """

    def __init__(self, message: str, code: int = Refused.MISSING) -> None:
        super().__init__(message)
        self.code = code


class Described(msgspec.Struct, frozen=True):
    """The runner's answer to a Describe probe."""

    index: GraphIndex
    measurement: Measurement


@overload
def asked(probe: Describe) -> Sub[Described | Measurement]: ...
@overload
def asked(
    probe: Inspect
    | Import
    | Sanitize
    | Unroll
    | Requantize
    | LoadInputs
    | Recall
    | Construct
    | State
    | Measure
    | Check,
) -> Sub[Measurement]: ...
def asked(probe: AnyProbe) -> Sub[Described | Measurement]:
    """Ask one probe: ``m = yield from asked(Measure(...))``. A Describe that worked is answered
    with the graph's index.

    Raises TypeError for an answer that is none, which no runner gives.
    """
    answer = yield probe
    if isinstance(answer, Measurement) or (
        isinstance(answer, Described) and isinstance(probe, Describe)
    ):
        return answer
    raise TypeError(f"{type(probe).__name__} was answered with {type(answer).__name__}")
