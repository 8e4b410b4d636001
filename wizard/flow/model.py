"""A flow: a directed graph of nodes, as frozen data. The JSON Schema in ``flows/schema.json`` is
generated from these structs."""

import re
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

# ``when``: {field: value} | {field: {ge|gt|le|lt|ne|in: value}} | {all: [...]} | {any: [...]} |
# {not: {...}}; data, never evaluated as code.
When: TypeAlias = dict[str, Any]
LARGEST: Final = (
    1 << 20
)  # bytes of a flow, or of a card, that is read; the shipped ones are below 64 KiB
WIDTH: Final = 80  # columns of a terminal
TOO_LARGE: Final = 1 << 63  # the first whole number that no journal holds
HALF: Final = re.compile(
    "[\ud800-\udfff]"
)  # of a character beyond the first 65,536; alone it is none
Identifier = Annotated[
    str, Meta(pattern="^[a-z0-9][a-z0-9-]*$", description="lower case letters, digits and hyphens")
]


class StepUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"with_": "with"}):
    """The step that a node runs and the values that it gets; checked against what the step
    declares."""

    use: str
    with_: dict[str, Any] = {}


class Detour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another way for an answer to lead on: where ``when`` holds on the step's outcome, ``goto``
    here wins over the answer's own."""

    when: When
    goto: str


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer. Answers are tried in file order and the first whose ``when`` holds is
    recommended; the last has no ``when``.

    Where it leads is said by ``wizard.flow.rules.destination(answer, outcome)``, never by ``goto``
    alone, as there may be a ``detour``. ``settings`` are asked for with the answer; ``sets`` go
    with it unasked; both are named like the fields of the PROBLEM and the params of the steps
    (``tolerance``, ``metric``, ``fail_regex``, ``sample``, ``seed``, ``search``) and hold for the
    steps that follow.
    """

    text: str
    goto: str
    when: When | None = None
    because: str = ""
    detour: Detour | tuple[Detour, ...] | None = None  # of several the first that holds
    settings: dict[str, str] = {}  # name -> prompt
    sets: dict[str, Any] = {}  # name -> value


def detours(answer: Answer) -> tuple[Detour, ...]:
    """The other ways for an answer to lead on, in the order in which they are tried."""
    if isinstance(answer.detour, Detour):
        return (answer.detour,)
    return answer.detour or ()


def targets(answer: Answer) -> tuple[str, ...]:
    """Every node or end that an answer may lead to."""
    return (answer.goto, *(d.goto for d in detours(answer)))


class FlowNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Explains, may run one step, asks one question; its answers lead on.

    A node is entered at most ``max_visits`` times; the next entry goes to the end ``limit``
    instead. Nodes and ends share one namespace: ``goto`` names either.
    """

    title: str
    explain: str
    ask: str
    answers: dict[str, Answer]
    step: StepUse | None = None
    evidence: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    commands: dict[str, str] = {}  # "polygraphy>=0.53": template
    max_visits: int = 1
    limit: str = ""  # the end that is reached when max_visits are spent


class End(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a route may end. ``verdict`` is one of the contract's verdicts; exit codes follow from
    it."""

    title: str
    explain: str
    verdict: str


class Flow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole. ``reference``: the engine spec that takes the place of the usual reference where
    the user names none."""

    schema: int
    id: Identifier
    title: str
    start: str
    nodes: dict[str, FlowNode]
    ends: dict[str, End]
    explain: str = ""
    params: dict[str, Any] = {}
    reference: str = ""


def title(flow: Flow, node: str) -> str:
    """A node's or an end's title as the flow words it; its id where the flow does not know it."""
    place = flow.nodes.get(node) or flow.ends.get(node)
    return place.title if place else node
