"""It goes on by itself, the answers behind the fold, keys in sentences, the palette by plain words,
the report by a key."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from textual.command import CommandPalette
from textual.widgets import OptionList

import narrowdown.wizard.tui
from narrowdown.wizard.session import events as e
from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.palette import match
from narrowdown.wizard.tui.screens.overlays import Choose, Reading
from narrowdown.wizard.tui.widgets.answers import Answers
from narrowdown.wizard.tui.widgets.route import Route

from . import golden, scripted as s
from .scripted import (
    FakeSession,
    face,
    played,
    press,
    settle,
)

Make = Callable[..., Narrowdown]


def last_question(session: FakeSession, **changes: object) -> None:
    """The open question, otherwise than the script has it."""
    asked = session.script.events[-1]
    assert isinstance(asked, e.QuestionAsked)
    session.script.events[-1] = msgspec.structs.replace(asked, **changes)


def with_a_fold(session: FakeSession) -> None:
    s.asking(session)
    more = tuple(
        e.Offered(name, name.capitalize(), "unresolved", out=f"verdict: fails, needed: {name}")
        for name in ("export", "noise")
    )
    answers = session.script.events[-1].answers  # type: ignore[union-attr]
    last_question(session, answers=(more[0], *answers, more[1]))


async def test_answers_that_are_out_stand_behind_a_fold(
    session: FakeSession, make_app: Make
) -> None:
    with_a_fold(session)
    async with played(make_app(), "ask", size=(100, 30)) as (app, pilot):
        answers = app.screen.query_one(Answers)
        assert answers.option_count == 3, "two that are open, and the fold"
        assert answers.chosen is not None
        assert answers.chosen.id == "yes"
        assert "needed: noise" not in golden.text_of(app)
        await press(pilot, "3", "enter", until=lambda: answers.option_count == 4)
        assert session.sent == [], "to open the fold is no answer"
        assert answers.chosen.id == "export"
        await settle(pilot, lambda: "needed: noise" in golden.text_of(app))
        await press(pilot, "4", "enter", until=lambda: bool(session.sent))
    assert [request["answer"] for request in session.sent] == ["noise"]


async def test_enter_answers_and_runs_the_next_step(session: FakeSession, make_app: Make) -> None:
    s.asking(session)
    async with played(make_app(), "ask", size=(100, 30)) as (_, pilot):
        await press(pilot, "enter", until=lambda: bool(session.sent))
    assert [(r["do"], r["go"]) for r in session.sent] == [("answer", True)]


@pytest.mark.parametrize("scene", [s.opened, s.running, s.asking])
async def test_a_lets_it_go_on_by_itself_and_ends_that(
    session: FakeSession, make_app: Make, scene: Callable[[FakeSession], FakeSession]
) -> None:
    scene(session)
    async with played(
        make_app(), lambda app: face(app) in ("offer", "running", "ask"), size=(100, 30)
    ) as (app, pilot):
        await press(pilot, "A", until=lambda: len(session.sent) == 1)
        session.snapshot = {**(session.snapshot or {}), "walking": True}
        await settle(pilot, lambda: app.scene is not None and app.scene.work.walking)
        app.screen._pressed = ("", "", 0.0)  # type: ignore[attr-defined]  (not a slip of the finger)
        await press(pilot, "A", until=lambda: len(session.sent) == 2)
    assert [(r["do"], r["policy"]) for r in session.sent] == [
        ("policy", "walk"),
        ("policy", "person"),
    ]


async def test_the_question_says_why_a_person_is_to_look(
    session: FakeSession, make_app: Make
) -> None:
    s.asking(session)
    last_question(session, doubt="It could not be measured whether so.")
    app = make_app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: "could not be measured" in golden.text_of(app))


async def test_an_expensive_step_says_that_it_waits(session: FakeSession, make_app: Make) -> None:
    s.opened(session)
    async with played(make_app(), "offer", size=(100, 30)) as (app, pilot):
        before = golden.text_of(app)
        session.snapshot = {**(session.snapshot or {}), "expensive": True}
        await settle(pilot, lambda: golden.text_of(app) != before)
        assert "waits for you" in golden.text_of(app)


async def test_enter_goes_on_from_stopped_with_the_step_at_hand(
    session: FakeSession, make_app: Make
) -> None:
    s.running(session)
    session.script.add(e.StepCancelled(run=2, node="layerwise", reason="stopped"))
    session.script.add(e.SessionClosed(exit_code=130, reason="stopped"))
    session.snapshot, session.living = {"phase": "stopped"}, False
    async with played(make_app(), "stopped", size=(100, 30)) as (app, pilot):
        await pilot.press("enter")
        await settle(pilot, lambda: len(app.library.opened) == 2)  # type: ignore[attr-defined]
    assert [r["do"] for r in app.library.opened[-1]] == ["go"]  # type: ignore[attr-defined]


async def test_a_step_that_runs_is_left_only_after_a_question(
    session: FakeSession, make_app: Make
) -> None:
    s.running(session)
    async with played(make_app(), "running", size=(100, 30)) as (app, pilot):
        await press(pilot, "s", until=lambda: isinstance(app.screen, Choose))
        await press(pilot, "enter", until=lambda: not isinstance(app.screen, Choose))
        assert session.sent == []
        await press(pilot, "s", until=lambda: isinstance(app.screen, Choose))
        await press(pilot, "down", "enter", until=lambda: bool(session.sent))
    assert [r["do"] for r in session.sent] == ["skip"]


@pytest.mark.parametrize("size", [(100, 30), (120, 40), (160, 50)])
async def test_the_route_is_a_line_a_step(
    session: FakeSession, make_app: Make, size: tuple[int, int]
) -> None:
    s.asking(session)
    async with played(make_app(), "ask", size=size) as (app, pilot):
        await pilot.pause()
        drawn = app.screen.query_one(Route).lines(size[0] // 3)
        assert len(drawn) == 2 + 2 + 1, "two steps, what may follow below a blank line"


# Keys in sentences


def sentences() -> list[tuple[str, str]]:
    """(file, text) of every string of the terminal UI that names an action's key."""
    found = []
    for file in Path(narrowdown.wizard.tui.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            elif isinstance(node, ast.JoinedStr):  # doubled braces come as one
                parts = (p.value for p in node.values if isinstance(p, ast.Constant))
                text = "x".join(str(part) for part in parts)
            else:
                continue
            if re.search(r"\{(\w+)\}", text) and not text.startswith(('"""', "A text of ours")):
                found.append((file.name, text))
    return found


def test_no_sentence_begins_with_a_key() -> None:
    named = [text for _, text in sentences() if re.search(r"\{(?:why|auto|rewind|copy)\}", text)]
    assert len(named) > 10, "they are found"
    begins = re.compile(r"(?:^|[.!?;:] )\{(\w+)\} (?!closes|copies|or \[)")  # labels of a card may
    bad = [
        (file, text)
        for file, text in sentences()
        for found in begins.finditer(text)
        if found[1] in keys.BY_ID
    ]
    assert not bad


def test_a_key_in_a_sentence_is_drawn_as_a_key() -> None:
    from narrowdown.wizard.tui.literal import UNICODE
    from narrowdown.wizard.tui.widgets.lines import wrap

    for name in keys.BY_ID:
        said = keys.fill_in_keys(f"Press {{{name}}} now.", keys.Keymap(), UNICODE)
        (line,) = wrap(said, 80)
        assert [line.plain[span.start : span.end] for span in line.spans] == [said[6:-5]], said
    assert not wrap("The shape [1, 3] and [0]", 80)[0].spans


# The palette


@pytest.mark.parametrize(
    ("typed", "action"),
    [
        ("auto", "auto"),
        ("go on by yourself", "auto"),
        ("workaround", "report"),
        ("open report", "report"),
        ("browser", "report"),
        ("known", "after"),
        ("Undo", "rewind"),
    ],
)
def test_an_action_is_found_by_plain_words(typed: str, action: str) -> None:
    best = max(keys.ACTIONS, key=lambda one: match(typed, one))
    hits = {one.id for one in keys.ACTIONS if match(typed, one)}
    assert action in hits
    assert typed != "auto" or best.id == "auto"
    assert len(hits) <= 4, hits


async def test_the_palette_does_what_it_finds(session: FakeSession, make_app: Make) -> None:
    s.asking(session)
    async with played(make_app(), "ask", size=(100, 30)) as (app, pilot):
        await press(pilot, "ctrl+p", until=lambda: isinstance(app.screen, CommandPalette))
        await press(
            pilot,
            *"auto",
            until=lambda: (
                isinstance(app.screen, CommandPalette)
                and app.screen.query_one(OptionList).option_count == 1
            ),
        )
        await press(pilot, "enter", until=lambda: bool(session.sent))
    assert [(r["do"], r["policy"]) for r in session.sent] == [("policy", "walk")]


@pytest.mark.parametrize("window", [True, False])
async def test_a_key_opens_the_report(
    session: FakeSession, make_app: Make, monkeypatch: pytest.MonkeyPatch, window: bool
) -> None:
    s.asking(session)
    opened: list[str] = []
    monkeypatch.setattr(Narrowdown, "open_url", lambda self, url: opened.append(url))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    if window:
        monkeypatch.setenv("DISPLAY", ":0")
    async with played(make_app(), "ask", size=(100, 30)) as (app, pilot):
        await pilot.press("O")
        if window:
            await settle(pilot, lambda: bool(opened))
        else:
            await settle(pilot, lambda: isinstance(app.screen, Reading))
            await settle(pilot, lambda: "report.html" in golden.text_of(app))
    assert [url.endswith("report.html") for url in opened] == [True] * window
