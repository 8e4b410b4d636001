"""How the faces look, as text, at the sizes that must work."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from narrowdown.wizard.report.vicinity import Spot, Vicinity
from narrowdown.wizard.session.folder import Summary
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.literal import ASCII
from narrowdown.wizard.tui.sight import Sight
from narrowdown.wizard.tui.widgets.answers import Answers

from . import golden, scripted as s
from .scripted import (
    FakeSession,
    played,
    press,
    settle,
)

Make = Callable[..., Narrowdown]
SCENES = {"offer": s.opened, "running": s.running, "ask": s.asking, "ended": s.ended}


async def shown(app: Narrowdown, face: str, size: tuple[int, int]) -> str:
    async with app.run_test(size=size) as pilot:
        await settle(pilot, lambda: app.scene is not None and app.scene.face == face)
        await settle(pilot, lambda: "k7f3" in golden.text_of(app))
        before = ""
        while (text := golden.text_of(app)) != before:  # until nothing moves any more
            before = text
            await pilot.pause(0.15)
        return text


NARROW, MEDIUM, BROAD, WIDE = (80, 24), (100, 30), (120, 40), (160, 50)


SIZES = (NARROW, MEDIUM, BROAD, WIDE)


@pytest.mark.parametrize(("face", "size"), [(face, size) for face in SCENES for size in SIZES])
async def test_face(session: FakeSession, make_app: Make, face: str, size: tuple[int, int]) -> None:
    SCENES[face](session)
    golden.check(f"{face}-{size[0]}x{size[1]}", await shown(make_app(), face, size))


@pytest.mark.parametrize(
    ("size", "there"), [(NARROW, False), (MEDIUM, False), (BROAD, True), (WIDE, True)]
)
async def test_a_tall_window_says_what_the_words_of_an_offer_mean(
    session: FakeSession, make_app: Make, size: tuple[int, int], there: bool
) -> None:
    """Half of it was blank; on few rows the words stay behind their key."""
    node = msgspec.structs.replace(
        session.flow.nodes["reproduce"], terms=("tolerance", "no-such-card")
    )
    session.flow = msgspec.structs.replace(
        session.flow, nodes={**session.flow.nodes, "reproduce": node}
    )
    s.opened(session)
    text = " ".join((await shown(make_app(), "offer", size)).split())
    assert ("Words ([t] has more)" in text) == there
    assert ("The tolerance is how far an output may be off" in text) == there
    assert "no-such-card" not in text


@pytest.mark.parametrize("size", SIZES)
async def test_sessions_and_setup(
    session: FakeSession, make_app: Make, size: tuple[int, int]
) -> None:
    entries = [
        Summary("k7f3", session.folder, "/m/resnet50.onnx", "tensorrt:precision=fp16", "layerwise", age=90.0, holder="me"),
        Summary("a1b2", session.folder / "a", "/m/bert.onnx", "onnxruntime:optimization=all", age=7200.0,
                verdict="worked-around", end="worked-around"),
        Summary("c3d4", session.folder / "c", "/m/[red].onnx", problem="Line 7 of its journal is damaged."),
    ]  # fmt: skip
    async with played(
        make_app(folder=None, entries=entries),
        lambda app: "bert.onnx" in golden.text_of(app),
        size=size,
    ) as (app, pilot):
        await pilot.pause(0.15)
        golden.check(f"sessions-{size[0]}x{size[1]}", golden.text_of(app))
        await press(pilot, "n", until=lambda: "Engine under test" in golden.text_of(app))
        await pilot.pause(0.15)
        golden.check(f"setup-{size[0]}x{size[1]}", golden.text_of(app))


@pytest.mark.parametrize(
    ("face", "size"),
    [("offer", (80, 24)), ("ask", (80, 24)), ("ended", (80, 24)), ("running", (160, 45))],
)
async def test_ascii_set_draws_ascii_alone(
    session: FakeSession, make_app: Make, face: str, size: tuple[int, int]
) -> None:
    SCENES[face](session)
    text = await shown(make_app(ASCII), face, size)
    odd = {c for c in text if not c.isascii()}
    assert odd <= {"‹", "›"}, f"not ASCII: {odd}"  # the test flow's own words hold these two


@pytest.mark.parametrize("face", ["running", "ask"])
async def test_every_width_shows_what_matters(
    session: FakeSession, make_app: Make, face: str
) -> None:
    SCENES[face](session)
    app = make_app()
    words = {
        "running": ["passes", "fails", "cannot tell"],
        "ask": ["Yes, it still fails", "recommended", "Measured"],
    }[face]
    async with app.run_test(size=(80, 30)) as pilot:
        await settle(pilot, lambda: app.scene is not None and app.scene.face == face)
        for width in (40, 60, 79, 99, 100, 139, 140, 200):
            await pilot.resize_terminal(width, 30)
            await settle(pilot, lambda: "k7f3" in golden.text_of(app))
            await pilot.pause(0.1)
            text = golden.text_of(app)
            assert max(map(len, text.splitlines())) <= width
            assert all(word in text for word in words), (width, text)


async def test_on_80_by_24_all_can_be_reached_by_scrolling(
    session: FakeSession, make_app: Make
) -> None:
    s.asking(session)
    async with played(make_app(), "ask", size=(80, 16)) as (app, pilot):
        assert "Both engines fail on the same outputs." in golden.text_of(app), (
            "the reason stands before the details"
        )
        page = app.screen.page  # type: ignore[attr-defined]
        assert page.max_scroll_y > 0 == page.scroll_y
        await press(
            pilot, "pagedown", "pagedown", "pagedown", until=lambda: page.is_vertical_scroll_end
        )
        assert isinstance(app.focused, Answers), "scrolling leaves the answers in hand"


@pytest.mark.parametrize("width", [80, 104, 160])
async def test_the_surroundings_of_a_suspect_are_drawn_once(
    session: FakeSession, make_app: Make, width: int
) -> None:
    s.asking(session)
    app = make_app()
    place = Vicinity((Spot("Conv", "/layer3/conv2/Conv", suspect=True),))
    async with app.run_test(size=(width, 60)) as pilot:
        await settle(pilot, lambda: app.scene is not None and app.scene.face == "ask")
        assert app.scene is not None
        scene = msgspec.structs.replace(app.scene, sight=Sight(places=(place,)))
        app.screen._draw(scene)  # type: ignore[attr-defined]
        await settle(pilot, lambda: "Around the suspect" in golden.text_of(app))
        assert golden.text_of(app).count("Around the suspect") == 1


async def test_no_colour(
    session: FakeSession, make_app: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    s.asking(session)
    async with played(make_app(), "ask") as (app, pilot):
        await pilot.pause(0.1)
        assert "❯ 1 Yes, it still fails" in golden.text_of(app), "the choice shows without colour"
        colours, marked = set(), False
        for strip in app.screen._compositor.render_strips():
            for filter_ in app._filters:
                strip = strip.apply_filter(filter_, app.screen.background_colors[0])
            colours |= {
                c
                for segment in strip
                if segment.style
                for c in (segment.style.color, segment.style.bgcolor)
                if c
            }
            marked = marked or any(
                s.style and s.style.reverse and "Yes, it still fails" in s.text for s in strip
            )
        assert not colours
        assert marked, "the highlighted answer is reversed"


@pytest.mark.parametrize("name", ["narrowdown-dark", "narrowdown-light", "narrowdown-ansi", "nord"])
async def test_themes(session: FakeSession, make_app: Make, name: str) -> None:
    s.running(session)
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        app.theme = name
        await settle(pilot, lambda: app.scene is not None and app.scene.face == "running")
        assert "cannot tell" in golden.text_of(app)


async def test_trouble_is_told(session: FakeSession, make_app: Make) -> None:
    s.running(session)

    def broken() -> tuple[Any, ...]:
        raise ValueError(
            "Line 7 of journal.jsonl is damaged; narrowdown resume --repair works on a copy."
        )

    async with played(make_app(), "running") as (app, pilot):
        session.poll = broken  # type: ignore[method-assign]
        await settle(pilot, lambda: "Line 7 of journal.jsonl is damaged" in golden.text_of(app))
