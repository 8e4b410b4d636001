"""What is typed ahead goes where it belongs: the keys are posted at once, as a terminal does that
sends them in one write."""

from collections.abc import Callable

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.suggester import SuggestFromList
from textual.widgets import Input

from narrowdown.wizard.session import events as e
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.screens.overlays import Field, Fields, NoteCard, Reading
from narrowdown.wizard.tui.screens.step import StepScreen
from narrowdown.wizard.tui.widgets.answers import Answers
from narrowdown.wizard.tui.widgets.typed_line import TypedLine

from .scripted import (
    FakeSession,
    asking,
    offered,
    opened,
    press,
    running,
    settle,
)


def typed(app: Narrowdown, *keys: str) -> None:
    """All of them before the first is looked at."""
    for key in keys:
        name = {
            "/": "slash",
            "\r": "enter",
            "\x1b": "escape",
            "\x01": "home",
            "?": "question_mark",
        }.get(key, key)
        app.post_message(events.Key(name, key))


async def test_text_after_the_key_that_opens_its_field(
    session: FakeSession, make_app: Callable[..., Narrowdown]
) -> None:
    asking(session)
    async with make_app().run_test(size=(104, 30)) as pilot:
        await settle(pilot, lambda: isinstance(pilot.app.screen, StepScreen))
        typed(pilot.app, "n", *"weak", " ", *"quiet and mean", "\r")
        await settle(pilot, lambda: bool(session.sent))
        assert [request["text"] for request in session.sent if request["do"] == "note"] == [
            "weak quiet and mean"
        ]


async def test_text_after_an_answer_that_asks_for_a_value(
    session: FakeSession, make_app: Callable[..., Narrowdown]
) -> None:
    opened(session)
    node = session.flow.nodes["double-check"]
    session.script.add(
        e.QuestionAsked(
            node="double-check",
            visit=1,
            ask=node.ask,
            answers=offered(session.flow, "double-check", "stop"),
        )
    )
    async with make_app().run_test(size=(104, 30)) as pilot:
        await settle(pilot, lambda: isinstance(pilot.app.screen, StepScreen))
        await settle(pilot, lambda: isinstance(pilot.app.focused, Answers))
        typed(pilot.app, "1", "\r", *"0.125", "\r")
        await settle(pilot, lambda: bool(session.sent))
        (answer,) = [request for request in session.sent if request["do"] == "answer"]
        assert (answer["answer"], answer["settings"]) == ("tolerance", {"tolerance": "0.125"})


async def test_keys_of_a_card_after_the_key_that_opens_it(
    session: FakeSession, make_app: Callable[..., Narrowdown]
) -> None:
    """Open the log, close it, write half a note and leave it, open why, close it, open the help."""
    running(session)
    async with make_app().run_test(size=(104, 30)) as pilot:
        await settle(pilot, lambda: isinstance(pilot.app.screen, StepScreen))
        typed(pilot.app, "l", "\x1b", "n", *"odd w")
        await settle(
            pilot,
            lambda: (
                isinstance(pilot.app.screen, NoteCard)
                and pilot.app.screen.query_one(Input).value == "odd w"
            ),
        )
        typed(pilot.app, "\x1b", "w", "b", "?")
        await settle(
            pilot,
            lambda: (
                isinstance(pilot.app.screen, Reading)
                and pilot.app.screen._title not in ("Why", "Log")
            ),
        )
        assert [type(screen) for screen in pilot.app.screen_stack[1:]] == [StepScreen, Reading]


async def test_fields_one_after_the_other(
    session: FakeSession, make_app: Callable[..., Narrowdown]
) -> None:
    asking(session)
    async with make_app().run_test(size=(104, 30)) as pilot:
        await settle(pilot, lambda: isinstance(pilot.app.screen, StepScreen))
        given: list[object] = []
        pilot.app.push_screen(
            Fields("Two", "", [Field("a", "One"), Field("b", "Other")]), given.append
        )
        typed(pilot.app, *"first", "\r", *"second", "\r", "w")
        await settle(pilot, lambda: isinstance(pilot.app.screen, Reading))
        assert given == [{"a": "first", "b": "second"}]


@pytest.mark.parametrize(
    "text", ["a\x1b[2J\x1b[31mb\nc\td.onnx", "\x07\x9b2J\u202eevil\u2028x", "plain"]
)
async def test_a_field_draws_nothing_that_a_terminal_obeys(text: str) -> None:
    """The name of a file that was chosen from the list cleared the screen; the value is still that
    name."""

    class One(App[None]):
        def compose(self) -> ComposeResult:
            yield TypedLine(text, suggester=SuggestFromList([f"{text}\x1b[2Jmore"]), compact=True)

    app = One()
    async with app.run_test(size=(60, 5)) as pilot:
        line = app.query_one(TypedLine)
        await press(pilot, "end", until=lambda: bool(line._suggestion))
        for row in range(line.size.height):
            strip = line.render_line(row)
            assert all(segment.text.isprintable() for segment in strip), strip
            assert strip.cell_length == Input.render_line(line, row).cell_length
        assert line.value == text
