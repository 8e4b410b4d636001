"""What comes next: ``decide(flow, state)``, purely. The runner does it, every display shows it, replay checks it."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from wizard.flow.check import destination, holds
from wizard.flow.model import Answer, Flow, FlowNode
from wizard.flow.template import render
from wizard.session.events import Offered
from wizard.session.state import State, Visit

# The contract's exit code of each verdict that an end may have. ``done`` is the end of a single step.
EXIT_CODES: Final[dict[str, int]] = {
    "minimal-case": 0,
    "worked-around": 0,
    "done": 0,
    "not-reproduced": 10,
    "input-sensitive": 11,
    "fixed-by-sanitizing": 12,
    "reference-suspect": 13,
    "unresolved": 6,
}
_TEXT_LIMIT = 4000  # characters of one text in a question: a journal line holds all of them


class RunStep(msgspec.Struct, frozen=True):
    """Run the step of this node. ``params`` are the flow's ``with`` values."""

    node: str
    visit: int
    step: str
    params: dict[str, Any] = {}


class Ask(msgspec.Struct, frozen=True):
    """Ask the question of this node. ``asked``: it has been asked already and only wants its answer."""

    node: str
    visit: int
    ask: str
    answers: tuple[Offered, ...]
    recommended: str
    because: str = ""
    asked: bool = False


class Ended(msgspec.Struct, frozen=True):
    """The route is at its end."""

    end: str
    verdict: str
    exit_code: int


Decision: TypeAlias = RunStep | Ask | Ended


def decide(flow: Flow, state: State) -> Decision:
    """The next thing to do. Raises ``ValueError`` for a state that does not belong to this flow."""
    here = state.here
    if here is None:
        return _enter(flow, state, flow.start)
    node = _node(flow, here.node)
    if here.answer:
        if here.answer not in node.answers:
            raise ValueError(f"The question '{here.node}' of the flow '{flow.id}' has no answer '{here.answer}'.")
        return _enter(flow, state, _goto(node.answers[here.answer], here.outcome or {}))
    if here.question is not None:
        q = here.question
        return Ask(here.node, here.visit, q.ask, q.answers, q.recommended, q.because, asked=True)
    if here.stepped or node.step is None:
        return question(node, here)
    return RunStep(here.node, here.visit, node.step.use, dict(node.step.with_))


def question(node: FlowNode, here: Visit) -> Ask:
    """The node's question after its step: the first answer whose ``when`` holds is recommended. A step that failed is an answer
    too: the last one, which asks for nothing measured."""
    outcome = here.outcome or {}
    last = next(reversed(node.answers))
    chosen = last
    if here.outcome is not None and here.status != "failed":
        chosen = next((id_ for id_, answer in node.answers.items() if _applies(answer, outcome)), last)
    elif node.step is None:
        chosen = next((id_ for id_, answer in node.answers.items() if answer.when is None), last)
    offered = tuple(
        Offered(
            id=id_,
            text=_said(answer.text, here),
            goto=_goto(answer, outcome),
            recommended=id_ == chosen,
            because=_because(answer, here) if id_ == chosen else "",
        )
        for id_, answer in node.answers.items()
    )
    because = next(o.because for o in offered if o.recommended)
    return Ask(here.node, here.visit, _said(node.ask, here), offered, chosen, because)


def _applies(answer: Answer, outcome: Mapping[str, Any]) -> bool:
    return answer.when is None or holds(answer.when, outcome)


def _goto(answer: Answer, outcome: Mapping[str, Any]) -> str:
    """Where the answer leads; a detour needs an outcome to look at."""
    return destination(answer, outcome) if outcome else answer.goto


def _said(text: str, here: Visit) -> str:
    """A text of the flow with what was measured filled in; as it stands in the flow where that was not measured."""
    if "{{" not in text:
        return text[:_TEXT_LIMIT]
    try:
        return render(text, here.outcome or {})[:_TEXT_LIMIT]
    except ValueError:
        return ""


def _because(answer: Answer, here: Visit) -> str:
    if here.error:
        return here.error[:_TEXT_LIMIT]
    return _said(answer.because, here) or str((here.outcome or {}).get("message", ""))[:_TEXT_LIMIT]


def _enter(flow: Flow, state: State, name: str) -> Decision:
    if name in flow.ends:
        return _ended(flow, name)
    node = _node(flow, name)
    visit = state.visits(name) + 1
    if visit > node.max_visits:
        return _ended(flow, node.limit) if node.limit in flow.ends else Ended("limit", "unresolved", 6)
    if node.step is not None:
        return RunStep(name, visit, node.step.use, dict(node.step.with_))
    return question(node, Visit(name, visit))


def _ended(flow: Flow, name: str) -> Ended:
    verdict = flow.ends[name].verdict
    return Ended(name, verdict, EXIT_CODES.get(verdict, 6))


def _node(flow: Flow, name: str) -> FlowNode:
    if name not in flow.nodes:
        raise ValueError(f"The flow '{flow.id}' has no node '{name}'.")
    return flow.nodes[name]
