"""``?`` on a screen tells of its panes and keys, on a card what the card shows and its keys."""

import re
from collections.abc import Callable

import pytest
from textual.widgets import Input

from narrowdown.wizard.session.folder import Summary
from narrowdown.wizard.tui import guide
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.scene import Scene
from narrowdown.wizard.tui.screens.finish import FinishScreen
from narrowdown.wizard.tui.screens.overlays import Card, Reading
from narrowdown.wizard.tui.screens.session import SessionScreen
from narrowdown.wizard.tui.screens.step import StepScreen
from narrowdown.wizard.tui.widgets.lines import Panel, Text

from . import golden, scripted as s
from .scripted import (
    FakeSession,
    played,
    press,
    settle,
)

Make = Callable[..., Narrowdown]
CARDS = {
    "w": "Why the recommended answer is recommended",
    "t": "Words explained",
    "m": "Every step of the flow",
    "r": "Going back to one sets aside",
    "v": "Error by depth: one column a tensor",
    "c": "The same step done by other tools",
    "l": "Each try in one line",
    "o": "The tries of this step",
}


async def test_every_card_says_what_it_shows(session: FakeSession, make_app: Make) -> None:
    s.asking(session)
    async with played(make_app(), "ask") as (app, pilot):
        for key, told in CARDS.items():
            await press(pilot, key, until=lambda: isinstance(app.screen, Card))
            assert "[?] explains" in golden.text_of(app)
            await press(pilot, "question_mark", until=lambda: bool(app.screen.query(".card-help")))
            said = app.screen.query_one(".card-help", Text).text
            assert said.startswith(told) or told in said, key
            assert "{" not in said
            await press(pilot, "question_mark", until=lambda: not app.screen.query(".card-help"))
            await press(pilot, "escape", until=lambda: isinstance(app.screen, StepScreen))
    assert session.sent == []


async def test_where_one_types_a_question_mark_is_typed_and_f1_explains(
    session: FakeSession, make_app: Make
) -> None:
    s.asking(session)
    async with played(make_app(), "ask") as (app, pilot):
        await press(pilot, "n", until=lambda: isinstance(app.focused, Input))
        await press(
            pilot, "question_mark", "f1", until=lambda: bool(app.screen.query(".card-help"))
        )
        assert app.screen.query_one(Input).value == "?"
        assert "[F1] explains" in golden.text_of(app)


@pytest.mark.parametrize(
    ("scene", "parts"),
    [
        (s.opened, ["What will run", "What [Enter] starts"]),
        (s.running, ["Probes", "Working"]),
        (s.asking, ["Your answer (has the keyboard)", "Measured", "Why this is recommended"]),
        (s.ended, ["What to do now", "What fails", "The workaround", "To share"]),
    ],
    ids=["offer", "running", "ask", "ended"],
)
async def test_the_screen_tells_of_its_panes(
    session: FakeSession,
    make_app: Make,
    scene: Callable[[FakeSession], FakeSession],
    parts: list[str],
) -> None:
    scene(session)
    async with played(
        make_app(),
        lambda app: isinstance(app.screen, SessionScreen) and bool(app.screen.query(Panel)),
        size=(100, 120),
    ) as (app, pilot):
        await settle(pilot, lambda: app.scene is not None and app.scene.face != "starting")
        await press(pilot, "question_mark", until=lambda: isinstance(app.screen, Reading))
        text = golden.text_of(app)
        for part in [*parts, "Keys that work now"]:
            assert part in text, part
        assert "{" not in text
        await press(pilot, "question_mark", until=lambda: isinstance(app.screen, SessionScreen))


async def test_every_pane_is_explained_and_no_other(session: FakeSession, make_app: Make) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        there = set()
        scene = Scene(session.flow, session.folder)
        for screen in (StepScreen(scene), FinishScreen(scene)):
            await app.push_screen(screen)
            await pilot.pause()
            there |= {(panel.id or "") for panel in screen.query(Panel) if panel.id}
    assert there == set(guide.PANELS)


async def test_the_list_says_how_to_come_back(session: FakeSession, make_app: Make) -> None:
    s.asking(session)
    long = "logits is wrong by 111 % (up to 1 % is normal for FP16). Worst: sample 11, and this sentence has no end"
    mine = Summary(
        "k7f3",
        session.folder,
        "m.onnx",
        node="layerwise",
        verdict=long,
        holder="process 7 on here",
        age=60.0,
    )
    other = Summary("other", session.folder.parent / "other", "m.onnx", holder="process 8 on there")
    async with played(make_app(entries=[other, mine]), "ask") as (app, pilot):
        await press(
            pilot,
            "b",
            until=lambda: "to go back to k7f3, which stays as it is" in golden.text_of(app),
        )
        await settle(pilot, lambda: "open here" in golden.text_of(app))
        text = golden.text_of(app)
        assert "open in another window" in text
        assert "process 7" not in text
        assert re.search(r"…  \w+, open here", text), "what is cut says so"
        assert app.screen.chosen.id == "k7f3", (
            "Enter does lead there, though another one is younger"
        )
