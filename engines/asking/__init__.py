"""How steps and searches ask: a search puts a Question and is told an Answer; underneath, both are
generators of probes, which the runner answers.

They see ids, names and numbers; never a model, an array, a clock, a random source or the number of
jobs. Given the same answers they ask the same questions in the same order: resume is running them
again with the answers known.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from enum import IntEnum
from typing import Annotated, Literal, TypeAlias, TypeVar, overload

import msgspec

from narrowdown.engines.compare.judge import Off, Signature
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import GraphIndex, ranges
from narrowdown.engines.probe import (
    AnyProbe,
    Candidate,
    Check,
    Construct,
    Describe,
    Edit,
    Import,
    Inspect,
    LoadInputs,
    Measure,
    Measurement,
    Recall,
    Requantize,
    Sanitize,
    Score,
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
    missing or cannot do this, or as nothing can be proven (``narrowdown.wizard.Exit``)."""

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


NodeIds: TypeAlias = frozenset[int]
Feed: TypeAlias = Literal["stored", "exact"]


class Fed(msgspec.Struct, frozen=True):
    """The whole model is fed these samples, each of which is told, in place of the one that the
    search works on. ``inputs``: digest of the inputs that hold them, "": the session's. ``runs`` of
    the build, 0: as many as a verdict needs. ``nudge``: inputs are moved by one unit in the last
    place, another draw in each run. ``apart``: each step of a loop is fed the reference's state, and
    told."""

    samples: tuple[str, ...]
    inputs: str = ""
    runs: int = 0
    nudge: Literal["", "inputs"] = ""
    apart: bool = False


class Question(msgspec.Struct, frozen=True):
    """Does this part of the model fail as the model does? Ids only, so that a dictionary can answer.

    ``nodes``: the part that is cut out, fed with what the reference has there; None: the whole
    model, held against the reference by its own outputs. ``outputs``: the tensors that are judged,
    as a rule what the rest of the model reads. ``alone``: each of the nodes by itself, all in one
    build. ``edits``: with these simplifications; ``like``: it must then fail as this part did.
    ``part``: the cut as a case holds it, in place of one that is made of ``nodes``; one that was made
    simpler fails by the outputs of ``like``. ``fed``: other samples than the one that the search
    works on. ``right``: tensors that are given their true values where they are made; ``keep``:
    nodes in FP32; ``righted``: nodes that the reference computes; all beside what earlier culprits
    are cured by, unless ``uncured``. ``rewrite``: what is done to the whole model, and where
    (``engines.graph.rewrites``). ``off``: what is switched off in the engine; ``choose``: kernels
    that the build takes, by layer; ``avoid``: those that it does not. ``feed``: values as the engine
    would have stored them, or exactly. ``watch``: tensors whose scores are wanted, too. ``build``:
    this fresh build alone; None: as many as a verdict needs. ``save``: keep what was built under
    this name. ``reference``: of the reference, not the engine. ``note``: what people are told where
    it has to be asked.

    What the layers alone set: ``record``: the build tells which kernels it chose; ``runs`` of it, 0:
    none; ``exclusive``: nothing else runs meanwhile.
    """

    nodes: NodeIds | None = None
    outputs: tuple[int, ...] = ()
    alone: bool = False
    part: Candidate | None = None
    fed: Fed | None = None
    right: NodeIds = frozenset()
    keep: NodeIds = frozenset()
    righted: NodeIds = frozenset()
    uncured: bool = False
    rewrite: tuple[str, str] = ("", ranges.ALL)
    off: frozenset[str] = frozenset()
    choose: Mapping[str, str] = {}
    avoid: Mapping[str, tuple[str, ...]] = {}
    edits: tuple[Edit, ...] = ()
    like: Signature | None = None
    feed: Feed = "stored"
    watch: tuple[int, ...] = ()
    build: int | None = None
    save: str = ""
    reference: bool = False
    note: Note | None = None
    record: bool = False
    runs: int = 1
    exclusive: bool = False


# Reasons that say where the fault is, not that the engine could not run the part.
DIRECTIONAL = ("harmless", "milder", "amplified-downstream", "unrepresentable-input")


NOTHING = Measurement(status="unsupported")  # nothing was measured


class Answer(Off, frozen=True):
    """All that a search may read. ``unknown`` is neither: it never counts as a failure or a pass,
    and ``why`` says in a word what kept it from one.

    ``reach``: the effect in the worst run, 0 where it is
    within what is allowed. ``lost``: what was fed holds values that the engine cannot store.
    ``signature``: what this part's own failure looks like. ``scores``: of what was
    watched, and of nodes side by side.
    ``files``: digests of what was kept. ``choices``: kernels that the build chose, by layer.
    ``measured``: all of it, for whoever tells samples apart; not ok where nothing was. ``probes``:
    how many it took.
    """

    kind: Literal["fails", "passes", "unknown"]
    why: str = ""
    detail: str = ""
    reach: float = 0.0
    lost: bool = False
    signature: Signature | None = None
    scores: Mapping[str, Score] = {}
    files: Mapping[str, str] = {}
    choices: Mapping[str, str] = {}
    measured: Measurement = NOTHING
    probes: int = 0

    @property
    def fails(self) -> bool:
        return self.kind == "fails"

    @property
    def passes(self) -> bool:
        return self.kind == "passes"

    @property
    def clean(self) -> bool:
        """Whether nothing that makes the failure lies in here: it passes, or its error does not
        come to it."""
        return self.passes or self.why in DIRECTIONAL


FAILS, PASSES = Answer("fails"), Answer("passes")


def unknown(why: str, detail: str = "") -> Answer:
    """An answer that cost nothing and says nothing."""
    measured = msgspec.structs.replace(NOTHING, message=detail)
    return Answer("unknown", why, detail, measured=measured)


Ask: TypeAlias = Callable[[Question], Sub[Answer]]
