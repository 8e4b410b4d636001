"""Every step in every state is called by the same words on the screen, in plain text, in the report
and by ``show``."""

from collections.abc import Callable
from types import SimpleNamespace

import msgspec
import pytest

from narrowdown.engines.steps.registry import STEPS
from narrowdown.wizard.cli import sessions
from narrowdown.wizard.flow.model import Answer, End, Flow, FlowNode, StepUse
from narrowdown.wizard.plain import PlainDisplay
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.report.document import to_json
from narrowdown.wizard.report.gather import Sources, gather
from narrowdown.wizard.report.html import to_html
from narrowdown.wizard.report.markdown import to_markdown
from narrowdown.wizard.report.stage import stage
from narrowdown.wizard.session.events import (
    AnyEvent,
    Event,
    Offered,
    QuestionAnswered,
    QuestionAsked,
    SessionOpened,
    StepCancelled,
    StepFinished,
    StepStarted,
)
from narrowdown.wizard.session.state import State, fold
from narrowdown.wizard.tui.literal import ASCII
from narrowdown.wizard.tui.widgets.route import Route

NODE = "here"


def flow(step: str) -> Flow:
    node = FlowNode(
        title="A step",
        explain="",
        ask="Well?",
        answers={"no": Answer("No", "end")},
        step=StepUse(step),
    )
    ends = {"end": End("The end", "", "unresolved")}
    return Flow(schema=1, id="one", title="One", start=NODE, nodes={NODE: node}, ends=ends)


def events(step: str, *after: Event) -> tuple[AnyEvent, ...]:
    started = StepStarted(run=1, node=NODE, visit=1, step=step, step_version=1)
    made = (SessionOpened(id="k7f3"), *((started, *after) if after or step else ()))
    return tuple(msgspec.structs.replace(e, seq=i, ts=float(i)) for i, e in enumerate(made, 1))


def finished(step: str, status: str, error: str = "") -> StepFinished:
    outcome = msgspec.to_builtins(STEPS[step].outcome()) if status != "failed" else None
    return StepFinished(run=1, node=NODE, outcome=outcome, status=status, error=error)  # type: ignore[arg-type]


def again(step: str) -> tuple[Event, ...]:
    return (
        StepCancelled(run=1, node=NODE),
        StepStarted(run=2, node=NODE, visit=1, step=step, step_version=1),
    )


# The word -> what the journal says after the step's start. What waits for an answer, or has one,
# has ended.
STATES: dict[str, Callable[[str], tuple[Event, ...]]] = {
    "running": lambda _: (),
    "cancelled": lambda _: (StepCancelled(run=1, node=NODE),),
    "running again": again,
    "finished": lambda step: (finished(step, "done"),),
    "skipped": lambda step: (finished(step, "refused", "Skipped by you."),),
    "cannot run here": lambda step: (finished(step, "refused", "It has no engine."),),
    "failed": lambda step: (finished(step, "failed", "It broke."),),
}
ENDED = ("finished", "skipped", "cannot run here", "failed")
EVERY = [
    pytest.param(step, word, id=f"{step}-{word.replace(' ', '-')}")
    for step in STEPS
    for word in STATES
]


def answered(word: str) -> tuple[Event, ...]:
    asked = QuestionAsked(
        node=NODE,
        visit=1,
        ask="Well?",
        answers=(Offered("no", "No", "end", True),),
        recommended="no",
    )
    return (
        (asked, QuestionAnswered(node=NODE, visit=1, answer="no", by="person"))
        if word in ENDED
        else ()
    )


def on_the_screen(one: Flow, state: State) -> str:
    route = Route()
    word = stage(state.here)
    route._told = (one, state.route, "" if state.here and state.here.answer else NODE, word)
    return "\n".join(line.plain for line in route.lines(60))


@pytest.fixture(autouse=True)
def in_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Route, "glyphs", ASCII)


@pytest.mark.parametrize(("step", "word"), EVERY)
def test_a_state_is_called_the_same_everywhere(
    step: str, word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = flow(step)
    told = events(step, *STATES[word](step), *answered(word))
    state = fold(told)
    assert stage(state.here).startswith(word)
    report = gather(state, one, Problem(model="m.onnx"), Sources())
    monkeypatch.setattr(
        sessions, "read", lambda _: SimpleNamespace(state=state, flow=one, report=lambda: report)
    )
    sessions.show(SimpleNamespace(session="k7f3", canonical=False, json=False))  # type: ignore[arg-type]
    display = PlainDisplay(one)
    plain = "\n".join(line for event in told for line in display.lines(event))
    said = {
        "plain": plain,
        "screen": on_the_screen(one, state),
        "markdown": to_markdown(report),
        "html": to_html(report),
        "json": to_json(report),
        "show": capsys.readouterr().out,
    }
    if word == "finished":  # the usual: an answer stands there, and only the record names it
        assert "finished in" in plain
        assert '"state": "finished"' in said["json"]
        assert all(other not in text for other in STATES if other != word for text in said.values())
        return
    started = word == "running"  # in plain text the start itself is what is said
    assert {where for where, text in said.items() if word not in text} <= (
        {"plain"} if started else set()
    )
    if started:
        assert f"A step  (step {step})" in plain


def test_before_it_begins() -> None:
    assert stage(None) == "not begun"
    state = fold(events(""))
    assert (
        gather(state, flow("compare"), Problem(model="m"), Sources()).headline
        == "The session has only begun"
    )
