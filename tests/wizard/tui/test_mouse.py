"""The mouse: what is seen can be clicked, and the wheel scrolls; nothing is answered by a single
stray click."""

from collections.abc import Callable
from typing import Any

from textual import events
from textual.geometry import Offset
from textual.widgets import OptionList

from narrowdown.wizard.session.folder import Summary
from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.screens.finish import FinishScreen
from narrowdown.wizard.tui.screens.overlays import (
    Card,
    Listed,
    LogCard,
    Pick,
)
from narrowdown.wizard.tui.screens.sessions import SessionsScreen
from narrowdown.wizard.tui.screens.setup import SetupScreen
from narrowdown.wizard.tui.screens.step import StepScreen
from narrowdown.wizard.tui.widgets.bottom import Bottom

from . import golden, scripted as s
from .scripted import (
    FakeSession,
    played,
    press,
    settle,
)

Make = Callable[..., Narrowdown]


def place(app: Narrowdown, text: str) -> tuple[int, int]:
    """Where a text is on the screen, or on the card that lies over it."""
    card = next(iter(app.screen.query(".card")), app.screen).region
    for y, line in enumerate(golden.text_of(app).split("\n")):
        if (x := line.find(text, card.x)) >= 0 and card.y <= y < card.bottom:
            return x, y
    raise AssertionError(f"{text} is not on the screen:\n{golden.text_of(app)}")


async def click(pilot: Any, text: str) -> None:
    """On the first letter of a text, wherever it is on the screen; single, however soon after
    another one."""
    x, y = place(pilot.app, text)
    await pilot.click(offset=Offset(x + 1, y))
    await pilot.pause()


def key_of(app: Narrowdown, label: str) -> tuple[Bottom, tuple[int, int]]:
    """The bottom line, and where on it the last letter of this label stands."""
    line = app.screen.query_one(Bottom)
    return line, next(
        (at + key.width - 1, 0) for at, key in line.standing(line.size.width) if key.label == label
    )


async def test_a_click_chooses_an_answer_and_the_next_one_gives_it(
    session: FakeSession, make_app: Make
) -> None:
    s.asking(session)
    async with played(
        make_app(), lambda app: "❯ 1 Yes, it still fails" in golden.text_of(app), size=(104, 30)
    ) as (app, pilot):
        await click(pilot, "Yes, it still fails")
        await pilot.pause(0.1)
        assert session.sent == [], (
            "one click on the answer that is highlighted already gives nothing"
        )
        await click(pilot, "No, it improves")
        await settle(pilot, lambda: "❯ 2 No, it improves" in golden.text_of(app))
        assert session.sent == []
        await pilot.press("up", "down")
        await click(pilot, "No, it improves")
        await settle(pilot, lambda: [r.get("answer") for r in session.sent] == ["no"])


async def test_a_click_and_enter_answer(session: FakeSession, make_app: Make) -> None:
    s.asking(session)
    async with played(
        make_app(), lambda app: "❯ 1 Yes, it still fails" in golden.text_of(app), size=(104, 30)
    ) as (_, pilot):
        await click(pilot, "No, it improves")
        await press(pilot, "enter", until=lambda: [r.get("answer") for r in session.sent] == ["no"])


async def test_the_keys_of_the_bottom_line_can_be_clicked(
    session: FakeSession, make_app: Make
) -> None:
    s.opened(session)
    async with played(
        make_app(),
        lambda app: app.scene is not None and "? help" in golden.text_of(app),
        size=(140, 40),
    ) as (app, pilot):
        await pilot.click(*key_of(app, "help"))
        await settle(pilot, lambda: isinstance(app.screen, Card))
        await press(pilot, "escape", until=lambda: isinstance(app.screen, StepScreen))
        await pilot.click(*key_of(app, "run it"))
        await settle(pilot, lambda: [r["do"] for r in session.sent] == ["go"])


async def test_sessions_and_the_form_by_mouse_alone(session: FakeSession, make_app: Make) -> None:
    s.ended(session)
    entries = [
        Summary(name, session.folder.with_name(name), f"{name}.onnx", node="layerwise")
        for name in ("a1b2", "k7f3")
    ]
    async with played(
        make_app(folder=None, entries=entries), lambda app: "k7f3.onnx" in golden.text_of(app)
    ) as (app, pilot):
        await pilot.click(*key_of(app, "new"))
        await settle(pilot, lambda: isinstance(app.screen, SetupScreen))
        await click(pilot, "by precision")
        assert app.focused is app.screen.query_one("#tolerance")
        await pilot.click(*key_of(app, keys.BY_ID["pick"].label))
        await settle(pilot, lambda: isinstance(app.screen, Pick) and "0.05" in golden.text_of(app))
        await click(pilot, "0.05")
        await settle(pilot, lambda: isinstance(app.screen, SetupScreen))
        assert app.screen.query_one("#tolerance").value == "0.05"  # type: ignore[attr-defined]
        await pilot.click("#start")
        await settle(pilot, lambda: "Which model" in golden.text_of(app))
        await press(pilot, "escape", until=lambda: isinstance(app.screen, SessionsScreen))
        await click(pilot, "k7f3.onnx")
        await settle(pilot, lambda: isinstance(app.screen, FinishScreen))


async def test_rows_of_probes_map_and_rewind(session: FakeSession, make_app: Make) -> None:
    s.running(session)
    async with played(
        make_app(), lambda app: "cannot tell" in golden.text_of(app), size=(104, 40)
    ) as (app, pilot):
        await press(pilot, "o", until=lambda: isinstance(app.screen, Listed))
        await click(pilot, "cannot tell  nodes 144-191")
        await settle(
            pilot, lambda: isinstance(app.screen, LogCard) and "Probe 4" in golden.text_of(app)
        )
        await press(pilot, "escape", until=lambda: isinstance(app.screen, StepScreen))
        await press(
            pilot,
            "m",
            until=lambda: (
                isinstance(app.screen, Listed) and "Check the check" in golden.text_of(app)
            ),
        )
        app.screen.query_one(OptionList).highlighted = 0
        await settle(pilot, lambda: "Its answers lead to" in golden.text_of(app))
        await click(pilot, "  Check the check")
        await settle(pilot, lambda: isinstance(app.screen, StepScreen))
    session.script.events.clear()
    s.asking(session)
    async with played(make_app(), "ask", size=(104, 40)) as (app, pilot):
        await press(pilot, "r", until=lambda: isinstance(app.screen, Listed))
        await click(pilot, "Does it fail here?")
        await settle(pilot, lambda: any(r["do"] == "rewind" for r in session.sent))


async def test_the_wheel_scrolls(session: FakeSession, make_app: Make) -> None:
    s.asking(session)
    async with played(make_app(), "ask", size=(80, 16)) as (app, pilot):
        await settle(pilot, lambda: "Measured" in golden.text_of(app))
        page = app.screen.page  # type: ignore[attr-defined]
        await wheel(pilot, page, 3)
        await settle(pilot, lambda: page.scroll_offset.y > 0)
        await press(pilot, "t", until=lambda: isinstance(app.screen, Card))
        options = app.screen.query_one(OptionList)
        await wheel(pilot, options, 5)
        await settle(pilot, lambda: options.scroll_offset.y > 0)


async def wheel(pilot: Any, widget: Any, times: int) -> None:
    region = widget.region
    x, y = region.x + region.width // 2, region.y + region.height // 2
    for _ in range(times):
        event = events.MouseScrollDown(
            None,
            x,
            y,
            delta_x=0,
            delta_y=0,
            button=0,
            shift=False,
            meta=False,
            ctrl=False,
            screen_x=x,
            screen_y=y,
        )
        pilot.app.screen._forward_event(event)
        await pilot.pause()
