"""The bottom line at any width: no key is cut, and the way to all others is always there."""

from collections.abc import Callable

import pytest

from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.widgets.bottom import MOST, Bottom, Key

from . import golden, scripted as s
from .scripted import (
    FakeSession,
    played,
    settle,
)

Make = Callable[..., Narrowdown]


def within(shown: Callable[[], list[tuple[int, Key]]], edge: int) -> Callable[[], bool]:
    return lambda: bool(shown()) and max(at + key.width for at, key in shown()) <= edge


@pytest.mark.parametrize(
    ("scene", "first"),
    [(s.opened, "go"), (s.running, "stop"), (s.asking, "answer")],
    ids=["offer", "running", "ask"],
)
async def test_forty_columns_name_the_key_that_goes_on(
    session: FakeSession, make_app: Make, scene: Callable[[FakeSession], FakeSession], first: str
) -> None:
    """They named five keys, and not Enter."""
    scene(session)
    async with played(
        make_app(),
        lambda app: {first, "keys_help", "back", "quit_session"} <= labels(app).keys(),
        size=(40, 20),
    ) as (app, _):
        assert within(lambda: shown_by(app), 40)()


def labels(app: Narrowdown) -> dict[str, str]:
    return {key.action.removeprefix("app."): key.label for _, key in shown_by(app)}


def shown_by(app: Narrowdown) -> list[tuple[int, Key]]:
    """(first cell, key) of the bottom line as it stands, where there is one."""
    return [place for line in app.screen.query(Bottom) for place in line.standing(line.size.width)]


@pytest.mark.parametrize(
    ("scene", "steers"),
    [
        (s.opened, {"go", "skip"}),
        (s.running, {"stop", "auto", "pause"}),
        (s.asking, {"answer", "auto"}),
    ],
    ids=["offer", "running", "ask"],
)
async def test_a_window_that_only_looks_on_names_no_key_that_steers(
    session: FakeSession,
    make_app: Make,
    scene: Callable[[FakeSession], FakeSession],
    steers: set[str],
) -> None:
    scene(session)
    async with played(make_app(), lambda app: steers <= labels(app).keys(), size=(160, 50)) as (
        app,
        pilot,
    ):
        session.snapshot = {**(session.snapshot or {}), "holder": "process 7", "paused": True}
        await settle(pilot, lambda: "take_over" in labels(app))
        await settle(pilot, lambda: not steers & labels(app).keys())
        helped = {action.id for action, _ in keys.list_at_work(app.screen, app.glyphs)}
        assert {"take_over", "note", "log", "back"} <= helped
        assert not steers & helped
        assert "paused; press" not in golden.text_of(app)
        assert "to run it" not in golden.text_of(app)


@pytest.mark.parametrize(
    "scene", [s.opened, s.running, s.asking, s.ended], ids=["offer", "running", "ask", "ended"]
)
async def test_no_key_is_cut(
    session: FakeSession, make_app: Make, scene: Callable[[FakeSession], FakeSession]
) -> None:
    scene(session)
    app = make_app()

    def shown() -> list[tuple[int, Key]]:
        return shown_by(app)

    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: "keys_help" in labels(app))
        for width in (80, 64, 140, 80):
            await pilot.resize_terminal(width, 24)
            await settle(pilot, within(shown, width))
            there = labels(app).keys()
            assert {"back", "quit_session", "keys_help"} <= there
            assert len(there) <= MOST
            assert width == 64 or len(there) == MOST, "where there is room, all six"
