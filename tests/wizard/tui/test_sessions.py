"""The list of sessions: found, sorted, deleted; and it never moves under the cursor."""

import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from textual.widgets import Input, OptionList

from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session.folder import Summary
from narrowdown.wizard.session.naming import shared_names, telling_name
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.screens.overlays import Choose, Fields
from narrowdown.wizard.tui.screens.sessions import SessionsScreen, arranged, kept
from narrowdown.wizard.tui.screens.setup import SetupScreen
from narrowdown.wizard.tui.screens.step import StepScreen
from narrowdown.wizard.tui.widgets.lines import Text

from . import golden, scripted as s
from .scripted import (
    FakeSession,
    press,
    settle,
)

Make = Callable[..., Narrowdown]


def entry(
    name: str, model: str, *, node: str = "layerwise", verdict: str = "", age: float = 9.0
) -> Summary:
    return Summary(
        name,
        Path("/s") / name,
        model,
        "emulate:precision=fp16",
        node,
        verdict,
        "end" * bool(verdict),
        age=age,
    )


LISTED = [
    entry("aaaaa", "/m/zebra.onnx"),
    entry("bbbbb", "/m/apple.onnx", verdict="not-reproduced"),
    entry("ccccc", "/m/magika/model.onnx", age=1e8),
]


def test_a_list_keeps_its_places_while_it_is_looked_at() -> None:
    before = [LISTED[2].path, LISTED[0].path]
    assert [e.id for e in arranged(LISTED, before)] == ["ccccc", "aaaaa", "bbbbb"], (
        "what is new comes last"
    )


def test_sessions_are_found_by_what_their_lines_say() -> None:
    assert [e.id for e in kept(LISTED, "APPLE not rep")] == ["bbbbb"]
    assert [e.id for e in kept(LISTED, "layer by layer magika")] == ["ccccc"]
    assert kept(LISTED, "nothing of this") == ()


def test_a_model_is_named_so_that_it_is_told_from_others() -> None:
    assert telling_name("/m/magika/model.onnx", ()) == "magika/model.onnx"
    assert telling_name("/a/x.onnx", shared_names(["/a/x.onnx", "/a/x.onnx"])) == "x.onnx"
    assert telling_name("/a/x.onnx", shared_names(["/a/x.onnx", "/b/x.onnx"])) == "a/x.onnx"


async def test_sessions_are_filtered_and_deleted_by_keys(
    session: FakeSession, make_app: Make
) -> None:
    app = make_app(folder=None)
    app.library.listed = list(LISTED)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(
            pilot, lambda: isinstance(app.screen, SessionsScreen) and app.screen.chosen is not None
        )
        screen = app.screen
        assert "Compare layer by layer" in golden.text_of(app), "the step's title, not its id"
        await press(pilot, "slash", until=lambda: isinstance(app.screen, Fields))
        await press(
            pilot,
            *"magika",
            "enter",
            until=lambda: app.screen is screen and [e.id for e in screen._entries] == ["ccccc"],
        )
        await settle(pilot, lambda: "Your sessions: those with 'magika'" in golden.text_of(app))
        await press(pilot, "D", until=lambda: isinstance(app.screen, Choose))
        assert "18 MiB: inputs 12 MiB" in golden.text_of(app)
        await press(pilot, "enter", until=lambda: app.screen is screen)
        assert len(app.library.listed) == 3, "Enter at once deletes nothing"
        await press(pilot, "D", until=lambda: isinstance(app.screen, Choose))
        await press(pilot, "down", "enter", until=lambda: len(app.library.listed) == 2)
        await settle(
            pilot, lambda: "None of 2 holds 'magika'" in screen.query_one("#empty", Text).text
        )
        await press(pilot, "slash", until=lambda: isinstance(app.screen, Fields))
        app.screen.query_one(Input).value = ""
        await press(
            pilot, "enter", until=lambda: app.screen is screen and len(screen._entries) == 2
        )
        assert screen.query_one(OptionList).option_count == 2


async def test_a_session_that_is_at_work_elsewhere_is_not_deleted(
    session: FakeSession, make_app: Make
) -> None:
    app = make_app(folder=None)
    app.library.listed = [msgspec.structs.replace(each, holder="process 7") for each in LISTED[:2]]
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(
            pilot, lambda: isinstance(app.screen, SessionsScreen) and app.screen.chosen is not None
        )
        text = golden.text_of(app)
        assert text.count("open in another window") == 2
        said = "aaaaa is open in another window; leave it there first."
        await press(pilot, "D", until=lambda: [n.message for n in app._notifications] == [said])
        assert isinstance(app.screen, SessionsScreen), "nothing is asked that would be refused"


async def test_who_waits_for_a_session_sees_which_and_may_go_to_the_list(
    session: FakeSession, make_app: Make
) -> None:
    s.asking(session)
    let = threading.Event()
    app = make_app(entries=LISTED)
    opened = app.library.open
    app.library.open = lambda *given: let.wait(60) and opened(*given)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: "Opening k7f3." in golden.text_of(app))
        assert "q quit" in golden.text_of(app)
        await press(
            pilot,
            "b",
            until=lambda: isinstance(app.screen, SessionsScreen) and app.screen.chosen is not None,
        )
        let.set()
        await settle(pilot, lambda: isinstance(app.screen, StepScreen))


@pytest.mark.parametrize("key", ["b", "escape"])
async def test_the_list_is_made_when_one_comes_to_it(
    session: FakeSession, make_app: Make, key: str
) -> None:
    s.asking(session)
    began = (
        make_app(entries=LISTED)
        if key == "b"
        else make_app(entries=LISTED, folder=None, setup=Problem("m.onnx"))
    )
    async with began.run_test(size=(80, 24)) as pilot:
        await settle(
            pilot, lambda: isinstance(began.screen, StepScreen if key == "b" else SetupScreen)
        )
        assert not any(isinstance(screen, SessionsScreen) for screen in began.screen_stack)
        await press(
            pilot,
            key,
            until=lambda: (
                isinstance(began.screen, SessionsScreen) and began.screen.chosen is not None
            ),
        )
        listed = began.screen
        began.open_session(session.folder)
        await settle(pilot, lambda: isinstance(began.screen, StepScreen))
        await press(pilot, "b", until=lambda: began.screen is listed)


async def test_enter_leads_back_before_the_sessions_are_listed(
    session: FakeSession, make_app: Make
) -> None:
    s.asking(session)
    let = threading.Event()
    app = make_app(entries=LISTED)
    entries = app.library.entries
    app.library.entries = lambda *given: let.wait(60) and entries(*given)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: isinstance(app.screen, StepScreen))
        await press(pilot, "b", until=lambda: "go back to k7f3" in golden.text_of(app))
        await press(pilot, "enter", until=lambda: isinstance(app.screen, StepScreen))
        let.set()
