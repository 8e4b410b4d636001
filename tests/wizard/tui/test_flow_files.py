"""A flow file that this repository has never seen: a loop, a node without a step, twelve answers, a
term without a card."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from narrowdown.wizard.flow.load import load
from narrowdown.wizard.flow.model import Flow
from narrowdown.wizard.session import events as e
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.screens.overlays import Card
from narrowdown.wizard.tui.screens.step import StepScreen

from . import golden, scripted as s
from .scripted import (
    FakeSession,
    played,
    press,
)

Make = Callable[..., Narrowdown]
NUMBERS = (
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
)
ANSWERS = "\n".join(
    f'      a{i}: {{text: "The {name} [/red] way", goto: measure}}'
    for i, name in enumerate(NUMBERS, 1)
)
FILE = f"""
schema: 1
id: odd
title: A flow of my own
start: look
nodes:
  look:
    title: Look first
    explain: "‹Frobnication› is a word that nobody explains."
    ask: Which way?
    terms: [frobnication]
    max_visits: 3
    limit: stop
    answers:
{ANSWERS}
  measure:
    title: Measure
    explain: The whole model runs.
    step: {{use: compare}}
    ask: Once more?
    answers:
      enough: {{text: Enough, goto: stop, when: {{verdict: passes}}}}
      again: {{text: Once more, goto: look}}
ends:
  stop: {{title: The end of my flow, explain: You asked for it., verdict: unresolved}}
"""


@pytest.fixture
def odd(tmp_path: Path) -> Flow:
    file = tmp_path / "odd.yaml"
    file.write_text(FILE)
    return load(file).flow


def walked(session: FakeSession, flow: Flow, rounds: int) -> None:
    """``rounds`` times round the loop, then at the node that only asks."""
    session.flow = flow
    script = session.script.add(e.SessionOpened(id="k7f3"))
    for visit in range(1, rounds + 2):
        look = e.QuestionAsked(
            node="look", visit=visit, ask="Which way?", answers=s.offered(flow, "look", "a1")
        )
        script.add(look)
        if visit > rounds:
            break
        script.add(e.QuestionAnswered(node="look", visit=visit, answer="a12", by="person"))
        script.add(
            e.StepStarted(run=visit, node="measure", visit=visit, step="compare", step_version=1)
        )
        script.add(
            e.StepFinished(run=visit, node="measure", outcome={"verdict": "fails"}, seconds=1)
        )
        script.add(
            e.QuestionAsked(
                node="measure",
                visit=visit,
                ask="Once more?",
                answers=s.offered(flow, "measure", "again"),
            )
        )
        script.add(e.QuestionAnswered(node="measure", visit=visit, answer="again", by="person"))
    session.snapshot = {"phase": "ask"}


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
async def test_a_flow_never_seen_before(
    session: FakeSession, make_app: Make, odd: Flow, size: tuple[int, int]
) -> None:
    walked(session, odd, rounds=2)
    async with played(make_app(), lambda app: "Which way?" in golden.text_of(app), size=size) as (
        app,
        pilot,
    ):
        text = golden.text_of(app)
        assert "visit 3" in text, "the loop is counted"
        assert "The first [/red] way" in text
        assert "Frobnication" in text, "a word without a card is text like any other"
        await press(
            pilot,
            "9",
            "down",
            "down",
            "down",
            until=lambda: "The twelfth [/red] way" in golden.text_of(app),
        )
        for key in (
            "t",
            "w",
            "m",
        ):  # a word without a card, a node without a step, a map with a loop
            await press(pilot, key, until=lambda: isinstance(app.screen, Card))
            assert golden.text_of(app).strip()
            await press(pilot, "escape", until=lambda: isinstance(app.screen, StepScreen))
        await press(pilot, "enter", until=lambda: bool(session.sent))
    sent: dict[str, Any] = session.sent[0]
    assert (sent["answer"], sent["visit"]) == ("a12", 3)
