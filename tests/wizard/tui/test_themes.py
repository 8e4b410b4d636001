"""Every screen and card under every theme: text that can be read, colours of that theme alone, no
motion where none is wanted."""

import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from rich.color import Color, ColorSystem, ColorType
from rich.style import Style
from textual.containers import Vertical
from textual.widgets import Input

from narrowdown.wizard.session.folder import Summary
from narrowdown.wizard.tui import themes
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.screens.finish import FinishScreen
from narrowdown.wizard.tui.screens.overlays import Card
from narrowdown.wizard.tui.screens.sessions import SessionsScreen
from narrowdown.wizard.tui.screens.setup import SetupScreen
from narrowdown.wizard.tui.screens.step import StepScreen
from narrowdown.wizard.tui.widgets.trouble import Troubles

from . import golden, scripted as s
from .scripted import (
    FakeSession,
    press,
    settle,
)
from .test_troubles import KINDS

Make = Callable[..., Narrowdown]
STEP = 10  # between two greys of a terminal with 256 colours
LEAST = 4.5  # contrast of text that WCAG 2.1 asks for (1.4.3, level AA)
CARDS = {
    "offer": ("w", "t", "m", "n", "l", "question_mark"),
    "running": ("l", "v", "o", "q"),
    "ask": ("w", "t", "v", "m", "c", "r", "e", "o"),
    "ended": ("v", "m", "r", "e", "l"),
}


async def everything(app: Narrowdown, session: FakeSession, pilot: Any) -> AsyncIterator[str]:
    await settle(
        pilot, lambda: isinstance(app.screen, SessionsScreen) and app.screen.chosen is not None
    )
    yield "sessions"
    await press(pilot, "n", until=lambda: isinstance(app.screen, SetupScreen))
    await press(pilot, *"/no", "enter", until=lambda: "There is no model" in golden.text_of(app))
    yield "setup"
    await press(
        pilot, "f2", until=lambda: isinstance(app.screen, Card) and "emulate" in golden.text_of(app)
    )
    yield "pick"
    await pilot.press("escape", "escape")
    makers: dict[str, Callable[[FakeSession], FakeSession]] = {
        "offer": s.opened, "running": s.running, "ask": s.asking, "ended": s.ended,
        **KINDS,
    }  # fmt: skip
    for face, make in makers.items():
        session.script.events.clear()
        session.living = True
        app.watchers.clear()
        make(session)
        app.open_session(session.folder)
        wanted = FinishScreen if face == "ended" else StepScreen
        await settle(pilot, lambda wanted=wanted: isinstance(app.screen, wanted))
        if face in KINDS:
            await settle(
                pilot, lambda: any(t.region.height > 2 for t in app.screen.query(Troubles))
            )
        else:
            await settle(pilot, lambda face=face: app.scene is not None and app.scene.face == face)
        yield face
        for key in CARDS.get(face, ()):
            below = app.screen
            await press(
                pilot,
                key,
                until=lambda: (
                    isinstance(app.screen, Card) and app.screen.query(".card").first().size
                ),
            )
            yield f"{face} {key}"
            await press(pilot, "escape", until=lambda below=below: app.screen is below)


def pieces(app: Narrowdown) -> list[tuple[str, Style]]:
    """The texts in sight with their styles, as the terminal gets them; of a card's screen, the card
    alone."""
    found: list[tuple[str, Style]] = []
    cards = app.screen.query(".card").results(Vertical)
    inside = next((card.region for card in cards), app.screen.region)
    for y, strip in enumerate(app.screen._compositor.render_strips()):
        if not inside.y <= y < inside.bottom:
            continue
        for filter_ in (f for f in app._filters if f.enabled):
            strip = strip.apply_filter(filter_, app.screen.background_colors[0])
        found += [
            (segment.text, segment.style or Style())
            for segment in strip.crop(inside.x, inside.right)
        ]
    return found


def luminance(colour: Any) -> float:
    """Relative luminance as WCAG 2.1 defines it."""
    parts = [v / 255 for v in colour.get_truecolor()]
    red, green, blue = (v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def shift(colour: Color) -> int:
    """By how much a terminal of 256 colours shows another one, of 255 in a channel."""
    shown = colour.downgrade(ColorSystem.EIGHT_BIT).get_truecolor()
    return max(abs(a - b) for a, b in zip(colour.get_truecolor(), shown, strict=True))


def contrast(style: Style) -> float:
    """Of a text against what lies behind it."""
    front, back = style.color, style.bgcolor
    assert front is not None, style
    assert back is not None, style
    light, dark = sorted((luminance(front), luminance(back)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def says_something(text: str) -> bool:
    """Whether it holds letters, digits or signs, and not lines and blocks alone."""
    return bool(re.search(r"[^\s\u2500-\u259f]", text))


ENTRIES = (
    ("a1b2", {"node": "layerwise", "verdict": "fails", "holder": "me"}),
    ("c3d4", {"end": "minimal", "verdict": "minimal-case"}),
    ("e5f6", {"problem": "Its journal cannot be read."}),
)


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["dark", "light"])
async def test_every_text_stands_out(session: FakeSession, make_app: Make, theme: str) -> None:
    entries = tuple(
        Summary(name, session.folder / name, "m.onnx", **more) for name, more in ENTRIES
    )  # type: ignore[arg-type]
    app = make_app(folder=None, entries=entries)
    app.theme = f"narrowdown-{theme}"
    faint: set[tuple[str, str, float]] = set()
    mixed: set[tuple[str, str]] = set()
    seen = []
    async with app.run_test(size=(104, 60)) as pilot:
        async for name in everything(app, session, pilot):
            seen.append(name)
            await pilot.pause(0.05)
            for text, style in pieces(app):
                if says_something(text) and contrast(style) < LEAST:
                    faint.add((name, text.strip(), round(contrast(style), 2)))
                colours = (style.color, style.bgcolor) if text.strip() else (style.bgcolor,)
                mixed |= {(name, c.name) for c in colours if c and shift(c) > STEP}
    assert not faint, "\n".join(map(str, sorted(faint)))
    assert not mixed, sorted(mixed)
    assert len(seen) == 7 + len(KINDS) + sum(map(len, CARDS.values()))


@pytest.mark.slow
async def test_the_terminals_own_sixteen_colours_and_no_others(
    session: FakeSession, make_app: Make
) -> None:
    app = make_app(
        folder=None, entries=[Summary("a1b2", session.folder, "m.onnx", node="layerwise")]
    )
    odd: set[tuple[str, str, str]] = set()
    hidden: set[tuple[str, str]] = set()
    async with app.run_test(size=(104, 60)) as pilot:
        app.theme = themes.ANSI.name
        async for name in everything(app, session, pilot):
            for text, style in pieces(app):
                colours = [colour for colour in (style.color, style.bgcolor) if colour]
                odd |= {
                    (name, text, str(c))
                    for c in colours
                    if c.type not in (ColorType.DEFAULT, ColorType.STANDARD)
                }
                hues = [
                    None if c.is_default else c.number % 8
                    for c in colours
                    if c.number is not None or c.is_default
                ]
                if (
                    says_something(text) and len(hues) == 2 and hues[0] == hues[1] is not None
                ):  # bright blue on blue, too
                    hidden.add((name, text))
    assert not odd, "\n".join(map(str, sorted({(name, c) for name, _, c in odd})))
    assert not hidden, sorted(hidden)


async def test_nothing_moves_where_no_motion_is_wanted(
    session: FakeSession, make_app: Make
) -> None:
    s.running(session)
    app = make_app()
    app.animation_level = "none"
    async with app.run_test(size=(104, 30)) as pilot:
        await settle(pilot, lambda: app.scene is not None and app.scene.face == "running")
        await pilot.pause(0.3)
        for key in ("", "n"):  # the face, a card with a field
            if key:
                await pilot.press(key)
                await pilot.pause(0.3)
            fields = [field for field in app.screen.query(Input) if field.has_focus]
            assert len(fields) == (key == "n")
            assert all(not field.cursor_blink and field._cursor_visible for field in fields)
            before = pieces(app)
            await pilot.pause(0.6)  # a cursor blinks every half second
            assert pieces(app) == before, key


async def test_a_cursor_blinks_where_nobody_minds(session: FakeSession, make_app: Make) -> None:
    app = make_app(folder=None)
    app.animation_level = "full"
    async with app.run_test(size=(80, 24)) as pilot:
        app.action_new()
        await settle(pilot, lambda: isinstance(app.focused, Input))
        assert app.focused.cursor_blink  # type: ignore[union-attr]


def test_colours_of_states_keep_apart_from_the_ground() -> None:
    """The variables that the style sheet and the widgets name, on each ground that text is written
    on."""
    for theme in (themes.DARK, themes.LIGHT):
        named = {**theme.to_color_system().generate(), **theme.variables}
        for ground in (
            "background",
            "panel",
            "block-cursor-background",
            "block-cursor-blurred-background",
        ):
            for word in (
                "foreground",
                "passes",
                "fails",
                "unsure",
                "quiet",
                "recommended",
                "fixed",
                "case",
            ):
                style = Style(color=named[word], bgcolor=named[ground])
                assert contrast(style) >= LEAST, (theme.name, word, ground)
        assert len({named[word] for word in ("fixed", "case", "quiet")}) == 3
        assert named["fails"] != named["passes"]
