"""The list of sessions is looked at now and again: one look at a time, and none while another
screen is in front."""

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from narrowdown.wizard.session.folder import Summary
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.screens import sessions
from narrowdown.wizard.tui.screens.sessions import SessionsScreen
from narrowdown.wizard.tui.screens.setup import SetupScreen

from . import golden
from .scripted import (
    FakeSession,
    press,
    settle,
)

Make = Callable[..., Narrowdown]


async def test_looks_never_pile_up_and_end_behind_another_screen(
    session: FakeSession, make_app: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "REFRESH", 0.02)
    found = [Summary("a1b2", session.folder, "m.onnx", node="layerwise", age=90.0)]
    app = make_app(folder=None, entries=found)
    looks, together, most = 0, 0, 0
    slow = threading.Event()

    def entries(_also: object = ()) -> Sequence[Summary]:
        nonlocal looks, together, most
        looks, together = looks + 1, together + 1
        most = max(most, together)
        slow.wait(10.0)
        together -= 1
        return found

    monkeypatch.setattr(app.library, "entries", entries)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: looks == 1)
        assert isinstance(app.screen, SessionsScreen)
        for _ in range(5):
            app.screen.look()
        await asyncio.sleep(0.1)
        assert (looks, most) == (1, 1)
        slow.set()
        await settle(pilot, lambda: looks > 3)
        assert most == 1
        assert "a1b2" in golden.text_of(app)
        await press(pilot, "n", until=lambda: isinstance(app.screen, SetupScreen))
        await asyncio.sleep(0.1)
        before = looks
        await asyncio.sleep(0.3)
        assert looks == before
        await press(pilot, "escape", until=lambda: looks > before + 2)
