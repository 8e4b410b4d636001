"""The bottom line at any width: no key is cut, and the way to all others is always there."""

from collections.abc import Callable

import pytest
from textual.widgets._footer import FooterKey

from wizard.tui.app import Narrowdown
from wizard.tui.widgets.bottom import Bottom, fitting

from . import scripted as s
from .scripted import FakeSession, settle

Make = Callable[..., Narrowdown]


def within(shown: Callable[[], list[FooterKey]], edge: int) -> Callable[[], bool]:
    return lambda: bool(shown()) and max(key.region.right for key in shown()) <= edge


def test_what_fits() -> None:
    assert fitting([5, 5, 5], [False, False, True], 15) == [True, True, True]
    assert fitting([5, 5, 5], [False, False, True], 12) == [True, False, True]
    assert fitting([5, 9, 2], [False, False, True], 12) == [True, False, True], "no smaller one takes its place"
    assert fitting([5, 5], [True, True], 3) == [True, True]


@pytest.mark.parametrize("scene", [s.opened, s.running, s.asking, s.ended], ids=["offer", "running", "ask", "ended"])
async def test_no_key_is_cut(session: FakeSession, make_app: Make, scene: Callable[[FakeSession], FakeSession]) -> None:
    scene(session)
    app = make_app()

    def shown() -> list[FooterKey]:
        return list(app.screen.query(FooterKey)) if app.screen.query(Bottom) else []

    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: any(key.action == "keys_help" for key in shown()))
        for width in (80, 64, 140, 80):
            await pilot.resize_terminal(width, 24)
            await settle(pilot, within(shown, width))
            there = {key.action for key in shown()}
            assert {"why", "terms", "back", "quit_session", "keys_help"} <= there
            assert ("note" in there) == (width == 140)
