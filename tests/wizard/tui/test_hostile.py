"""Names hold anything. Nothing of it may crash a widget, be read as markup, or reach the terminal
as a control sequence."""

import asyncio
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from rich.cells import cell_len
from textual._context import active_app
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll

from narrowdown.engines.workers.executor import Slot
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.report.hand_on import Deed
from narrowdown.wizard.report.sections import (
    Bullets,
    Code,
    Facts,
    Name,
    Names,
    Says,
    Section,
    Table,
    Typed,
)
from narrowdown.wizard.report.strip import Strip
from narrowdown.wizard.report.vicinity import Spot, Vicinity
from narrowdown.wizard.session.events import Offered, QuestionAsked
from narrowdown.wizard.session.state import State, Visit
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.board import Hunt, Row
from narrowdown.wizard.tui.guide import CardWords
from narrowdown.wizard.tui.literal import ASCII, UNICODE, clean, elide, fit, literal, row
from narrowdown.wizard.tui.scene import Scene, Work
from narrowdown.wizard.tui.screens.overlays import (
    Choose,
    CommandsCard,
    Drawing,
    Entry,
    Field,
    Fields,
    Listed,
    LogCard,
    NoteCard,
    PlainCard,
    Reading,
    Welcome,
)
from narrowdown.wizard.tui.screens.overlays.card import Card
from narrowdown.wizard.tui.screens.overlays.pick import Pick
from narrowdown.wizard.tui.screens.session import TitleLine
from narrowdown.wizard.tui.sight import Sight
from narrowdown.wizard.tui.troubles import Trouble
from narrowdown.wizard.tui.widgets.answers import Answers
from narrowdown.wizard.tui.widgets.bottom import Bottom, Key
from narrowdown.wizard.tui.widgets.evidence import Evidence, Gallery, Seen, Surroundings, profile
from narrowdown.wizard.tui.widgets.finish import Banner, ReportText, Todos
from narrowdown.wizard.tui.widgets.lines import Lines, Panel, Text, pairs, paragraphs, wrap
from narrowdown.wizard.tui.widgets.route import Crumb, Route, crumb
from narrowdown.wizard.tui.widgets.trouble import ORDER, Troubles
from narrowdown.wizard.tui.widgets.work import Doing, Model, Probes, Tail

from . import scripted
from .scripted import (
    FakeSession,
    flow,
    played,
)

NASTY = [
    "[/red]",
    "[bold",
    "[@click=app.quit]x[/]",
    "\x1b[2J",
    "a\r\nb",
    "\u202eevil",
    "שלום",
    "幅の広い",
    "👩‍👩‍👧",
    "\ud800",
    "",
    " ",
    "\x00",
    "$(rm)",
    "%s{x}",
    "/layer/" + "x" * 300,
    "幅" * 300,
]
names = st.one_of(
    st.sampled_from(NASTY), st.text(st.characters(exclude_categories=()), max_size=60)
)


def harmless(text: str) -> bool:
    return all(
        unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in text if c != "\n"
    )


@given(names)
def test_clean_is_harmless_and_stable(text: str) -> None:
    assert clean(f"\x1b[0;93m{'W'}\x1b[m") == "W", "colours of a log go as a whole"
    once = clean(text)
    assert harmless(once)
    assert "\n" not in once
    assert clean(once) == once
    assert harmless(clean(text, lines=True))


@given(names, st.integers(0, 40))
def test_elide_and_fit_keep_to_their_width(text: str, width: int) -> None:
    assert cell_len(elide(text, width)) <= width
    assert cell_len(fit(text, width)) == width
    if cell_len(clean(text)) <= width:
        assert elide(text, width) == clean(text)


@given(st.lists(names, max_size=4))
def test_literal_content_says_what_it_was_given(texts: Sequence[str]) -> None:
    for text in texts:
        assert literal(text, "bold").plain == clean(text)
    assert row([(text, "bold") for text in texts]).plain == "".join(map(clean, texts))


def widgets(name: str) -> list[Lines | Panel | Troubles]:
    """One of each widget, full of this name. They are shown data after mounting, by ``fill``."""
    return [
        TitleLine(id="title"),
        Crumb(),
        Route(),
        Text(name),
        Evidence(),
        Doing(),
        Probes(),
        Model(),
        Tail(),
        ReportText(),
        Todos(),
        Banner(),
        Panel(name),
        Troubles(),
        Surroundings(),
        Bottom(),
    ]


def scene(name: str, rows: tuple[Row, ...] = (), route: tuple[Visit, ...] = ()) -> Scene:
    """A scene with the name in every place that may hold one."""
    place = Vicinity((Spot(name, name), Spot(name, name, (0,), True, name)), 3, 4)
    return Scene(
        flow(),
        Path("/tmp") / "s",
        state=State(id=name, opened=1.0, route=route),
        hunt=Hunt(rows, 4, strip=Strip(2, ("wrong", "right"), frozenset({0}), (name,))),
        work=Work(text=name, expected=9, done=3, workers=(Slot(1, "busy", name, 3.0, name),)),
        sight=Sight((-3.0, -1.0), 1, (place,)),
        problem=Problem(model=name, engine=name, reference=name),
        now=9.0,
    )


def fill(app: App[None], name: str) -> None:
    """Give every widget the name in every place that may hold one."""
    plot = flow()
    offered = (Offered("yes", name, name), Offered(name, name, name))
    asked = QuestionAsked(seq=1, node="reproduce", visit=1, ask=name, answers=offered, because=name)
    visit = Visit(
        "reproduce",
        outcome={"worst_output": name},
        question=asked,
        answer=name,
        by="person",
        seconds=3,
        probes=2,
    )
    unknown = Visit(name, answer=name)
    rows = tuple(
        Row(i, name, name, state, name)
        for i, state in enumerate(("passes", "fails", "unresolved", "running", "done"), 1)
    )
    whole = scene(name, rows, (visit, unknown))
    state, hunt, work = whole.state, whole.hunt, whole.work
    app.query_one(TitleLine).tell(whole)
    app.query_one(Crumb).tell((plot, state.route, "layerwise"))
    app.query_one(Route).tell((plot, state.route, name, name))
    app.query_one(Evidence).tell(
        (
            {"message": name, "culprit": name, name: name},
            ("culprit", name, "profile"),
            "",
            Seen(Sight((-3.0, -1.0), 1), metric=name),
        )
    )
    app.query_one(Doing).show(work, hunt)
    app.query_one(Probes).show(rows, 9.0)
    app.query_one(Model).show(hunt)
    app.query_one(Tail).show([name, name])
    facts = Facts([(name, (name, Name(name), Typed(name), Names((name, name), 1)))])
    table = Table((name, name), [(name, Name(name))])
    blocks = (facts, table, Says(name), Bullets([name]), Code(name))
    app.query_one(ReportText).tell([Section(name, blocks), Section(name, blocks)])
    app.query_one(Todos).tell([Deed(name, name), Deed(name)])
    app.query_one(Banner).tell((name, name, "fails"))
    app.query_one(Panel).name_it(name)
    app.query_one(Troubles).show(
        tuple(Trouble(kind, name, name, name, (name,), name, name) for kind in ORDER)
    )
    app.query_one(Surroundings).tell(
        (Vicinity((Spot(name, name), Spot(name, name, (0,), True, name)), 3, 4),)
    )
    app.query_one(Bottom).tell((Key(name, name, name, "why"), Key(name, name, name, "log")))
    app.query_one(Answers).show(
        plot,
        (
            Offered(name, name, name, recommended=True, because=name),
            Offered("no", name, "layerwise"),
        ),
    )


class Everything(App[None]):
    glyphs = UNICODE

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield from widgets("start")
            yield Answers()


def subclasses(kind: type) -> set[str]:
    """Names of all classes of ours below this one that nothing is derived from."""
    found: set[str] = set()
    for child in kind.__subclasses__():
        found |= subclasses(child)
        if child.__module__.startswith("narrowdown.wizard.") and not child.__subclasses__():
            found.add(child.__name__)
    return found


def test_no_widget_is_left_out() -> None:
    """Of the property below: a new widget or card must be put into it."""
    source = Path(__file__).read_text()
    missing = {name for name in subclasses(Lines) | subclasses(Card) if f"{name}(" not in source}
    assert missing == {"Told", "Sections", "PickFile"}, "parts of others, which are in it"


def screen_text(app: App[Any]) -> str:
    return "\n".join(
        "".join(segment.text for segment in strip)
        for strip in app.screen._compositor.render_strips()
    )


def test_every_widget_and_card_draws_nasty_names() -> None:
    draw(["".join(NASTY), "", "[/red]", "\x1b[2J", "幅" * 300])


@pytest.mark.slow
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(st.lists(names, min_size=2, max_size=4))
def test_every_widget_and_card_draws_any_name(texts: list[str]) -> None:
    draw(texts)


def draw(texts: list[str]) -> None:
    """All widgets with each of these texts, every card with the first; fails where one acts on the
    terminal."""

    async def go() -> None:
        app = Everything()
        async with app.run_test(size=(60, 200)) as pilot:
            for text in texts:
                fill(app, text)
                await pilot.pause()
                assert harmless(screen_text(app))
            text = texts[0]
            entry = Entry(text, text, text, text, keep=len(text) % 2 == 0)
            for card in (
                Reading(text, [(text, text), (text, [(text, text)])]),
                Welcome(text, [(text, text)]),
                PlainCard(text, text, before=text),
                LogCard([text], text),
                Choose(text, text, [entry]),
                Fields(text, text, [Field("a", text)]),
                NoteCard(text),
                Listed(CardWords(text, text, text), [entry], text),
                CommandsCard([entry], lambda _: text, text),
                Pick(text, [entry], text),
                Drawing(text, Gallery(scene(text))),
            ):
                app.push_screen(card)
                await pilot.pause()
                assert harmless(screen_text(app))
                app.pop_screen()

    asyncio.run(go())


class Bare(App[None]):
    """Gives lines() its glyphs."""

    glyphs = ASCII


@given(names, st.integers(12, 90))
@settings(deadline=None)
def test_lines_never_exceed_their_width(name: str, width: int) -> None:
    plot, route = flow(), (Visit("reproduce", answer=name, by="person"),)
    token = active_app.set(Bare())
    try:
        rows = [
            *crumb(plot, route, "layerwise", width, ASCII).split("\n"),
            *wrap(name, width),
            *pairs([(name, name), ("label", name)], width),
            *profile(width, ASCII, Seen(Sight((-3.0, -1.0, 0.0), 1))),
        ]
    finally:
        active_app.reset(token)
    assert all(line.cell_length <= width for line in rows)


@pytest.mark.timeout(5)
def test_a_text_of_many_lines_holds_nobody_up() -> None:
    """Joined line by line it took 12 s of a processor, at each draw."""
    assert paragraphs("x\n" * 500_000 + "\n- y") == [" ".join("x" * 500_000), "", "- y"]


@pytest.mark.parametrize(
    ("face", "name"),
    [
        ("running", "".join(NASTY)),
        ("asking", "".join(NASTY)),
        ("ended", "".join(NASTY)),
        ("asking", ""),
    ],
)
async def test_whole_screens_with_any_name(
    session: FakeSession, make_app: Callable[..., Narrowdown], face: str, name: str
) -> None:
    getattr(scripted, face)(session, name)
    async with played(make_app(), lambda app: "k7f3" in screen_text(app)) as (app, pilot):
        for key in ("l", "v", "w", "r"):
            await pilot.press(key)
            await pilot.pause(0.05)
            text = screen_text(app)
            assert harmless(text)
            assert max(map(cell_len, text.splitlines())) <= 80
            await pilot.press("escape")
