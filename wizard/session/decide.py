"""What comes next: ``decide(flow, state)``, purely. The runner does it, every display shows it,
replay checks it."""

from typing import Any, Final, TypeAlias

import msgspec

from narrowdown.wizard import BY_VERDICT, Exit
from narrowdown.wizard.facts import say_fact, say_wanted
from narrowdown.wizard.flow.expressions import TemplateProblem, render
from narrowdown.wizard.flow.model import Answer, Flow, FlowNode
from narrowdown.wizard.flow.rules import Outcome, contradicting, destination, judge, recommend
from narrowdown.wizard.session.events import Offered, QuestionAsked
from narrowdown.wizard.session.state import State, Visit
from narrowdown.wizard.words import TEXT

_EXIT_CODES: Final = {**BY_VERDICT, "done": Exit.FOUND}  # the end of a single step


class RunStep(msgspec.Struct, frozen=True):
    """Run the step of this node. ``params`` are the flow's ``with`` values."""

    node: str
    visit: int
    step: str
    params: dict[str, Any] = {}


class Ended(msgspec.Struct, frozen=True):
    """The route is at its end."""

    end: str
    exit_code: int


# A question with a number has been asked already, and only wants its answer.
Decision: TypeAlias = RunStep | QuestionAsked | Ended


def decide(flow: Flow, state: State) -> Decision:
    """The next thing to do. Raises ``ValueError`` for a state that does not belong to this flow."""
    here = state.here
    if here is None:
        return _enter(flow, state, flow.start)
    node = _node(flow, here.node)
    if here.answer:
        if here.answer not in node.answers:
            raise ValueError(
                f"The question '{here.node}' of the flow '{flow.id}' has no answer '{here.answer}'."
            )
        return _enter(flow, state, destination(node.answers[here.answer], here.outcome))
    if here.question is not None:
        return here.question
    if here.stepped or node.step is None:
        return question(node, here, _metric(state))
    return RunStep(here.node, here.visit, node.step.use, dict(node.step.with_))


def question(node: FlowNode, here: Visit, metric: str = "") -> QuestionAsked:
    """The node's question after its step: the first answer whose ``when`` holds is recommended. A
    step that failed is an answer too: the last one, which asks for nothing measured. ``metric``:
    what errors are measured by."""
    told = {"metric": metric, **here.outcome} if here.outcome is not None else None
    if here.status == "failed":
        chosen, because = next(reversed(node.answers)), here.error
    else:
        chosen, because = recommend(node, told)
        because = here.error or because or str((here.outcome or {}).get("message", ""))
    measured = here.outcome if here.status == "done" else None
    offered = tuple(
        Offered(
            id=id_,
            text=_fill_in(answer.text, told),
            goto=destination(answer, here.outcome),
            recommended=id_ == chosen,
            because=because[:TEXT] if id_ == chosen else "",
            out=_rule_out(answer, measured, here.step, metric)[:TEXT] if id_ != chosen else "",
        )
        for id_, answer in node.answers.items()
    )
    return QuestionAsked(
        here.node,
        here.visit,
        _fill_in(node.ask, told),
        offered,
        chosen,
        because[:TEXT],
        doubt=_doubt(node, here, chosen)[:TEXT],
    )


def _rule_out(answer: Answer, measured: Outcome | None, step: str, metric: str) -> str:
    """Why the measurement rules an answer out: the conditions of its rule that it contradicts. ""
    where it does not, and where nothing was measured."""
    if measured is None or judge(answer.when, measured) is not False:
        return ""
    said = []
    for field, wanted, holds in dict.fromkeys(
        (field, say_wanted(field, wanted, metric), holds)
        for field, wanted, holds in contradicting(answer.when, measured)
    ):
        name, value = say_fact(measured, field, step, metric)
        wanted = wanted if holds else f"not {wanted}"
        said.append(f"{name}: {'none' if value == '?' else value}, needed: {wanted}")
    return "; ".join(said)


def _doubt(node: FlowNode, here: Visit, chosen: str) -> str:
    """Why the recommended answer is not the measurement's own: the step broke, what an answer before
    it depends on could not be told, or it needs a value that only a person has. "" where it is."""
    if here.status == "failed":
        return "The step failed, so no measurement speaks for any answer."
    for id_, answer in node.answers.items():
        if id_ == chosen:
            break
        if here.status == "done" and judge(answer.when, here.outcome) is None:
            return f"It could not be measured whether '{answer.text}' is right."
    return "This answer needs a value from you." if node.answers[chosen].settings else ""


def _fill_in(text: str, told: dict[str, Any] | None) -> str:
    """A text of the flow with what was measured filled in; as it stands in the flow where that was
    not measured."""
    if "{{" not in text:
        return text[:TEXT]
    try:
        return render(text, told or {})[:TEXT]
    except TemplateProblem:
        return ""


def _metric(state: State) -> str:
    """What errors on the route are measured by: what the last step that compared says; "" before
    any did."""
    said = (visit.outcome.get("metric") for visit in reversed(state.route) if visit.outcome)
    return next((str(metric) for metric in said if metric), "")


def _enter(flow: Flow, state: State, name: str) -> Decision:
    if name in flow.ends:
        return _ended(flow, name)
    node = _node(flow, name)
    visit = state.visits(name) + 1
    if visit > node.max_visits:
        return (
            _ended(flow, node.limit) if node.limit in flow.ends else Ended("limit", Exit.UNRESOLVED)
        )
    if node.step is not None:
        return RunStep(name, visit, node.step.use, dict(node.step.with_))
    return question(node, Visit(name, visit), _metric(state))


def _ended(flow: Flow, name: str) -> Ended:
    return Ended(name, _EXIT_CODES.get(flow.ends[name].verdict, Exit.UNRESOLVED))


def _node(flow: Flow, name: str) -> FlowNode:
    if name not in flow.nodes:
        raise ValueError(f"The flow '{flow.id}' has no node '{name}'.")
    return flow.nodes[name]
