"""The whole way by keyboard, against a scripted session."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.widgets import Input, Log, OptionList

from narrowdown.wizard.flow.load import load
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session import events as e
from narrowdown.wizard.session.folder import Summary
from narrowdown.wizard.session.state import Visit
from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.literal import UNICODE
from narrowdown.wizard.tui.screens.finish import FinishScreen
from narrowdown.wizard.tui.screens.overlays import (
    Card,
    Choose,
    CommandsCard,
    Fields,
    Listed,
    LogCard,
    Pick,
    PickFile,
    Reading,
)
from narrowdown.wizard.tui.screens.overlays.reading import Sections
from narrowdown.wizard.tui.screens.sessions import SessionsScreen
from narrowdown.wizard.tui.screens.setup import SetupScreen
from narrowdown.wizard.tui.screens.step import StepScreen
from narrowdown.wizard.tui.widgets.answers import Answers
from narrowdown.wizard.tui.widgets.lines import Text

from . import golden, scripted as s
from .scripted import (
    FakeSession,
    face,
    played,
    press,
    settle,
)

Make = Callable[..., Narrowdown]


def play(session: FakeSession) -> None:
    """A runner in ten lines: it measures at ``go``, asks, and takes the answers of the short
    flow."""

    def react(request: dict[str, Any]) -> None:
        script, flow = session.script, session.flow
        if request["do"] == "go":
            run = 1 + sum(isinstance(event, e.StepStarted) for event in script.events)
            node = ("reproduce", "layerwise")[run - 1]
            script.add(
                e.StepStarted(
                    run=run, node=node, visit=1, step=flow.nodes[node].step.use, step_version=1
                )
            )
            session.snapshot = {"phase": "running", "text": "measuring"}
        if request["do"] == "answer" and request["node"] == "reproduce":
            script.add(
                e.QuestionAnswered(node="reproduce", visit=1, answer=request["answer"], by="person")
            )
            session.snapshot = {"phase": "offer"}
        if request["do"] == "answer" and request["node"] == "layerwise":
            script.add(
                e.QuestionAnswered(node="layerwise", visit=1, answer=request["answer"], by="person")
            )
            script.add(e.SessionClosed(end="minimal", exit_code=0))
            session.living = False

    session.react = react


def finish_step(session: FakeSession, run: int, node: str, outcome: dict[str, Any]) -> None:
    session.script.add(
        e.StepFinished(
            run=run,
            node=node,
            outcome=outcome,
            findings=msgspec.to_builtins(s.findings()),
            seconds=2,
            probes=3,
        )
    )
    offered = s.offered(session.flow, node, "yes")
    session.script.add(
        e.QuestionAsked(
            node=node, visit=1, ask=session.flow.nodes[node].ask, answers=offered, recommended="yes"
        )
    )


async def test_offer_run_ask_answer_finish(session: FakeSession, make_app: Make) -> None:
    s.opened(session)
    play(session)
    async with played(make_app(), "offer", size=(100, 30)) as (app, pilot):
        assert isinstance(app.screen, StepScreen)
        await press(pilot, "enter", until=lambda: face(app) == "running")
        finish_step(session, 1, "reproduce", {"verdict": "fails", "error": 0.41})
        await settle(pilot, lambda: face(app) == "ask")
        assert isinstance(app.focused, Answers)
        assert app.focused.chosen is not None
        assert app.focused.chosen.id == "yes"
        await press(pilot, "enter", until=lambda: face(app) == "offer")
        await press(pilot, "enter", until=lambda: face(app) == "running")
        finish_step(session, 2, "layerwise", {"observer": "reproduces"})
        await settle(pilot, lambda: face(app) == "ask")
        await press(pilot, "enter", until=lambda: isinstance(app.screen, FinishScreen))
        await pilot.press("q")
    assert [r["do"] for r in session.sent] == ["go", "answer", "go", "answer"]
    assert [r["answer"] for r in session.sent if r["do"] == "answer"] == ["yes", "yes"]
    assert app.return_value == 0


async def test_what_enter_began_is_stopped_before_the_screen_shows_it(
    session: FakeSession, make_app: Make
) -> None:
    """A screen is up to a quarter of a second behind; the key that stops was ignored in it."""
    s.opened(session)
    session.snapshot = {"phase": "offer"}
    async with played(make_app(), "offer", size=(100, 30)) as (app, pilot):
        await press(pilot, "x", "enter", "x", "X", until=lambda: len(session.sent) == 3)
        assert face(app) == "offer"
        assert [(r["do"], r.get("hard", False)) for r in session.sent] == [
            ("go", False),
            ("stop", False),
            ("stop", True),
        ]
        play(session)
        session.react({"do": "go"})
        await settle(pilot, lambda: face(app) == "running")
        finish_step(session, 1, "reproduce", {"verdict": "fails", "error": 0.41})
        await settle(pilot, lambda: face(app) == "ask")
        await press(pilot, "enter", until=lambda: face(app) == "offer")
        await pilot.press("x")
        await pilot.pause()
    assert [r["do"] for r in session.sent] == ["go", "stop", "stop", "answer"], (
        "the next offer has nothing to stop"
    )


async def test_a_digit_chooses_and_enter_answers(session: FakeSession, make_app: Make) -> None:
    s.asking(session)
    async with played(make_app(), "ask") as (_, pilot):
        await pilot.press("2")
        assert session.sent == []
        await press(pilot, "enter", until=lambda: bool(session.sent))
    assert session.sent[0] == {
        "do": "answer",
        "node": "layerwise",
        "visit": 1,
        "answer": "no",
        "note": "",
        "settings": {},
        "go": True,
    }


async def test_answers_are_not_given_while_a_step_runs(
    session: FakeSession, make_app: Make
) -> None:
    s.running(session)
    async with played(make_app(), "running") as (app, pilot):
        await pilot.press("2", "e", "r", "enter")
        await pilot.pause(0.2)
        assert isinstance(app.screen, StepScreen)
    assert session.sent == []


@pytest.mark.parametrize(
    ("key", "request_"),
    [
        ("x", {"do": "stop", "hard": False}),
        ("X", {"do": "stop", "hard": True}),
        ("p", {"do": "pause"}),
        ("ctrl+c", {"do": "stop", "hard": False}),
    ],
)
async def test_stop_and_pause(
    session: FakeSession, make_app: Make, key: str, request_: dict[str, Any]
) -> None:
    s.running(session)
    async with played(make_app(), "running") as (_, pilot):
        await press(pilot, key, until=lambda: bool(session.sent))
    assert session.sent == [request_]


async def test_ctrl_c_twice_stops_now(session: FakeSession, make_app: Make) -> None:
    s.running(session)
    async with played(make_app(), "running") as (_, pilot):
        await press(pilot, "ctrl+c", "ctrl+c", until=lambda: len(session.sent) == 2)
    assert sorted(r["hard"] for r in session.sent) == [False, True]


CARDS = {
    "w": "Why", "t": "Words used here", "l": "Log", "v": "Pictures", "m": "Map", "o": "Probes of this step", "n": "Note",
    "r": "Rewind", "e": "Export", "question_mark": "Help",
}  # fmt: skip


async def test_cards_open_and_escape_closes(session: FakeSession, make_app: Make) -> None:
    s.asking(session)
    async with played(make_app(), "ask") as (app, pilot):
        for key, title in CARDS.items():
            await press(
                pilot,
                key,
                until=lambda title=title: (
                    isinstance(app.screen, Card) and app.screen._title == title
                ),
            )
            await press(pilot, "escape", until=lambda: isinstance(app.screen, StepScreen))
            assert isinstance(app.focused, Answers)
    assert session.sent == []


async def test_note_and_rewind(session: FakeSession, make_app: Make) -> None:
    s.asking(session)
    async with played(make_app(), "ask") as (app, pilot):
        await press(pilot, "n", *"odd", "enter", until=lambda: len(session.sent) == 1)
        await press(pilot, "r", "enter", until=lambda: len(session.sent) == 2)
        asked = next(
            event.seq for event in session.script.events if isinstance(event, e.QuestionAsked)
        )
        assert session.sent == [
            {"do": "note", "text": "odd", "node": "layerwise"},
            {"do": "rewind", "to": asked},
        ]
        session.script.add(e.Rewound(to=asked, node="reproduce"))
        await settle(pilot, lambda: app.scene is not None and app.scene.node == "reproduce")
        assert face(app) == "ask"
        assert app.scene is not None
        assert [visit.node for visit in app.scene.state.route] == ["reproduce"]


async def test_a_note_that_is_being_written_when_the_session_ends_gets_every_key(
    session: FakeSession, make_app: Make
) -> None:
    s.asking(session)
    async with played(make_app(), "ask") as (app, pilot):
        await pilot.press("n", *"odd")
        session.script.add(
            e.QuestionAnswered(node="layerwise", visit=1, answer="yes", by="recommended")
        )
        session.script.add(e.SessionClosed(end="minimal", exit_code=0))
        session.snapshot = {"phase": "ended"}
        field = app.screen.query_one(Input)
        for _ in range(1000):  # the keys come in the very moment in which the end is told
            await pilot.press("i")
            if face(app) == "ended":
                break
        await pilot.press("t", "o")
        written = field.value
        assert written.startswith("oddi")
        assert written.endswith("ito")
        assert {*written[3:-2]} == {"i"}
        await press(pilot, "enter", until=lambda: isinstance(app.screen, FinishScreen))
        await settle(
            pilot,
            lambda: [sent["text"] for sent in session.sent if sent["do"] == "note"] == [written],
        )


async def test_rewind_from_the_end_starts_a_runner_that_rewinds(
    session: FakeSession, make_app: Make
) -> None:
    s.ended(session)
    session.living = False
    async with played(make_app(), lambda app: isinstance(app.screen, FinishScreen)) as (app, pilot):
        asked = [event.seq for event in session.script.events if isinstance(event, e.QuestionAsked)]
        await press(
            pilot,
            "r",
            "enter",
            until=lambda: isinstance(app.screen, StepScreen) and face(app) == "ask",
        )
        assert isinstance(app.focused, Answers)
    assert app.library.opened == [(), ({"do": "rewind", "to": asked[-1]},)]


async def test_the_end_has_the_bundle_written(session: FakeSession, make_app: Make) -> None:
    s.asking(session)
    async with played(make_app(), "ask") as (app, pilot):
        session.script.add(e.QuestionAnswered(node="layerwise", visit=1, answer="yes", by="person"))
        session.script.add(e.SessionClosed(end="minimal", exit_code=0))
        await settle(pilot, lambda: app.library.finished == [session.folder])


async def test_an_answer_with_settings_asks_for_its_values(
    session: FakeSession, make_app: Make
) -> None:
    s.running(session)
    node = session.flow.nodes["double-check"]
    session.script.add(e.StepFinished(run=2, node="layerwise", outcome={}, seconds=1))
    session.script.add(
        e.QuestionAsked(
            node="layerwise", visit=1, ask="?", answers=s.offered(session.flow, "layerwise", "no")
        )
    )
    session.script.add(e.QuestionAnswered(node="layerwise", visit=1, answer="no", by="person"))
    session.script.add(
        e.QuestionAsked(
            node="double-check",
            visit=1,
            ask=node.ask,
            answers=s.offered(session.flow, "double-check", "tolerance"),
        )
    )
    async with played(make_app(), "ask") as (app, pilot):
        await press(pilot, "enter", until=lambda: isinstance(app.screen, Fields))
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, Fields), "an empty value is not sent"
        await press(pilot, *"0.05", "enter", until=lambda: bool(session.sent))
    assert session.sent[0]["answer"] == "tolerance"
    assert session.sent[0]["settings"] == {"tolerance": "0.05"}


async def test_copy_writes_the_file_too(session: FakeSession, make_app: Make) -> None:
    s.asking(session)
    async with played(make_app(), "ask") as (app, pilot):
        await press(pilot, "c", until=lambda: isinstance(app.screen, CommandsCard))
        assert app.clipboard == "polygraphy run /models/resnet50.onnx"
    assert (session.folder / "last-command.txt").read_text() == app.clipboard + "\n"


async def test_quit_asks_only_while_something_runs(session: FakeSession, make_app: Make) -> None:
    s.running(session)
    async with played(make_app(), "running") as (app, pilot):
        await press(pilot, "q", until=lambda: isinstance(app.screen, Choose))
        assert session.sent == []
        await press(pilot, "enter", until=lambda: not app.is_running)
    assert session.sent == [{"do": "detach"}]
    assert app.return_value == 0
    assert session.closed


async def test_quit_at_a_question_stops_the_runner(session: FakeSession, make_app: Make) -> None:
    s.asking(session)
    async with played(make_app(), "ask") as (app, pilot):
        await press(pilot, "q", until=lambda: not app.is_running)
    assert session.sent == [{"do": "stop", "hard": False}]
    assert app.return_value == 130


async def test_a_refused_request_is_said(session: FakeSession, make_app: Make) -> None:
    s.asking(session)
    session.react = lambda request: {"ok": False, "error": "Anna [on] host7 holds this session."}
    async with played(make_app(), "ask") as (app, pilot):
        await press(pilot, "enter", until=lambda: bool(app._notifications))
        assert [n.message for n in app._notifications] == ["Anna [on] host7 holds this session."]


async def test_a_runner_that_died_can_be_started_again(
    session: FakeSession, make_app: Make
) -> None:
    s.running(session)
    session.living = False
    async with played(make_app(), "stopped") as (app, pilot):
        session.living = True  # as opening the real one would
        await press(pilot, "R", until=lambda: face(app) == "running")


async def test_back_shows_the_sessions_and_enter_returns(
    session: FakeSession, make_app: Make
) -> None:
    s.asking(session)
    async with played(
        make_app(
            entries=[
                Summary(
                    "k7f3",
                    session.folder,
                    "[/red] model.onnx",
                    node="layerwise",
                    age=90.0,
                    holder="me",
                )
            ]
        ),
        "ask",
    ) as (app, pilot):
        await press(
            pilot,
            "b",
            until=lambda: isinstance(app.screen, SessionsScreen) and app.screen.chosen is not None,
        )
        assert session.sent == [], "going back never stops work"
        await press(pilot, "enter", until=lambda: isinstance(app.screen, StepScreen))


async def test_setup_says_problems_beside_the_field_and_starts(
    session: FakeSession, make_app: Make, tmp_path: Path
) -> None:
    s.opened(session)
    model = tmp_path / "tiny.onnx"
    model.write_bytes(b"\x08\x0a\x3a\x04\x0a\x02\x08\x01")
    fake = tmp_path / "photo.onnx"
    fake.write_bytes(b"\x89PNG\r\n")
    async with played(
        make_app(folder=None), lambda app: isinstance(app.screen, SessionsScreen)
    ) as (app, pilot):
        await press(pilot, "n", until=lambda: isinstance(app.screen, SetupScreen))
        field, said = (
            app.screen.query_one("#model", Input),
            app.screen.query_one("#problem-model", Text),
        )
        field.value = str(fake)
        await press(pilot, "tab", until=lambda: "'photo.onnx'" in said.text)
        field.value = str(tmp_path / "tinny.onnx")
        field.focus()
        await press(pilot, "tab", until=lambda: "tiny.onnx" in said.text)
        field.value = str(model)
        app.screen.query_one("#tolerance", Input).value = "much"
        app.screen.query_one("#start").focus()
        await pilot.press("enter")
        await settle(pilot, lambda: "much" in app.screen.query_one("#problem-tolerance", Text).text)
        assert app.library.created == []
        app.screen.query_one("#tolerance", Input).value = "logits:0.05"
        app.screen.query_one("#start").focus()
        await press(pilot, "enter", until=lambda: isinstance(app.screen, StepScreen))
    made: Problem = app.library.created[0]
    assert made.model == str(model)
    assert made.tolerance == {"logits": 0.05}
    assert set(made.digests) == {str(model)}


async def test_setup_is_filled_from_a_problem(session: FakeSession, make_app: Make) -> None:
    async with played(
        make_app(
            folder=None,
            setup=Problem(
                model="/nowhere/m.onnx", inputs=("/a.npz", "/b.npz"), tolerance={"": 0.1}
            ),
        ),
        lambda app: isinstance(app.screen, SetupScreen),
    ) as (app, pilot):
        assert app.screen.query_one("#inputs", Input).value == "/a.npz, /b.npz"
        assert app.screen.query_one("#tolerance", Input).value == "0.1"
        await settle(pilot, lambda: "no model" in app.screen.query_one("#problem-model", Text).text)


async def test_keys_can_be_remapped(session: FakeSession, make_app: Make) -> None:
    s.asking(session)
    mine = {"why": "v", "answer": ["space"], "nonsense": "z"}
    async with played(make_app(keymap=keys.chosen(mine, dict.fromkeys(mine, "here:1"))), "ask") as (
        app,
        pilot,
    ):
        await settle(pilot, lambda: bool(app._notifications))
        await pilot.press("w")
        await pilot.pause()
        assert isinstance(app.screen, StepScreen)
        await press(pilot, "v", until=lambda: isinstance(app.screen, Reading))
        await press(pilot, "escape", until=lambda: isinstance(app.screen, StepScreen))
        await press(pilot, "space", until=lambda: bool(session.sent))


async def test_the_end_over_an_open_card(session: FakeSession, make_app: Make) -> None:
    s.asking(session)
    async with played(make_app(), "ask") as (app, pilot):
        await press(pilot, "w", until=lambda: isinstance(app.screen, Reading))
        session.script.add(e.QuestionAnswered(node="layerwise", visit=1, answer="yes", by="script"))
        session.script.add(e.SessionClosed(end="minimal", exit_code=0))
        await settle(pilot, lambda: isinstance(app.screen, FinishScreen))


async def test_a_list_card_is_reached_by_keyboard(session: FakeSession, make_app: Make) -> None:
    s.asking(session)
    async with played(make_app(), "ask") as (app, pilot):
        await press(pilot, "r", until=lambda: isinstance(app.screen, Listed))
        assert isinstance(app.focused, OptionList)


async def test_a_demo_is_one_key_away(session: FakeSession, make_app: Make) -> None:
    s.opened(session)
    async with played(
        make_app(folder=None), lambda app: isinstance(app.screen, SessionsScreen)
    ) as (app, pilot):
        await press(pilot, "d", until=lambda: isinstance(app.screen, Choose))
        await press(pilot, "down", "enter", until=lambda: isinstance(app.screen, StepScreen))
    assert app.library.tried == ["sorts"]


async def test_a_probe_of_the_list_shows_what_it_tried_and_its_log(
    session: FakeSession, make_app: Make
) -> None:
    s.running(session)
    log = session.folder / "logs" / "004-measure-k4.log"
    log.write_text("[E] the kernel [/red] fell over\n")
    died = next(
        event
        for event in session.script.events
        if isinstance(event, e.ProbeFinished) and event.key == "k4"
    )
    at = session.script.events.index(died)
    measurement = msgspec.structs.replace(died.measurement, log="logs/004-measure-k4.log")
    session.script.events[at] = msgspec.structs.replace(died, measurement=measurement)
    async with played(make_app(), "running", size=(100, 30)) as (app, pilot):
        for keys_, said in (
            (["down"], "the kernel [/red] fell over"),
            (["down", "down"], "The engine wrote nothing during this probe."),
        ):
            await press(pilot, "o", until=lambda: isinstance(app.screen, Listed))
            await press(
                pilot,
                *keys_,
                "enter",
                until=lambda said=said: (
                    isinstance(app.screen, LogCard)
                    and said in "\n".join(app.screen.query_one(Log).lines)
                ),
            )
            await press(pilot, "escape", until=lambda: isinstance(app.screen, StepScreen))
    assert session.sent == []


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_card_over_a_running_step_stays_and_says_when_the_step_asks(
    session: FakeSession, make_app: Make, size: tuple[int, int]
) -> None:
    """The question must not wait behind it unseen."""
    s.running(session)
    async with played(make_app(), "running", size=size) as (app, pilot):
        await press(
            pilot,
            "l",
            until=lambda: (
                isinstance(app.screen, LogCard)
                and any("running" in line for line in app.screen.query_one(Log).lines)
            ),
        )
        card = app.screen
        s.measured_on(session)
        await settle(
            pilot, lambda: any("has ended, and asks" in n.message for n in app._notifications)
        )
        assert app.screen is card, "what is read stays"
        shown = card.query_one(Log).lines
        await settle(pilot, lambda: not any("running" in line for line in shown))
        assert any("fails" in line and "40 %" in line for line in shown)
        await press(
            pilot, "enter", until=lambda: isinstance(app.screen, StepScreen) and face(app) == "ask"
        )
    assert session.sent == []


async def test_the_card_of_a_running_probe_grows_with_what_the_engine_writes(
    session: FakeSession, make_app: Make
) -> None:
    s.running(session)
    log = session.folder / "logs" / "worker-2.log"
    session.snapshot = {**(session.snapshot or {}), "log": "logs/worker-2.log"}
    async with played(make_app(), "running") as (app, pilot):
        await press(pilot, "o", "enter", until=lambda: isinstance(app.screen, LogCard))
        log.write_text(log.read_text() + "[W] one more\n")
        await settle(pilot, lambda: "[W] one more" in app.screen.query_one(Log).lines)


async def test_the_log_follows_its_end_and_stays_where_one_reads(
    session: FakeSession, make_app: Make
) -> None:
    s.running(session)
    log = session.folder / "logs" / "worker-2.log"
    session.snapshot = {**(session.snapshot or {}), "log": "logs/worker-2.log"}
    log.write_text("".join(f"[W] line {i}\n" for i in range(200)))
    async with played(make_app(), "running") as (app, pilot):
        await settle(pilot, lambda: "[W] line 199" in (app.scene.log if app.scene else ()))
        await press(pilot, "l", until=lambda: isinstance(app.screen, LogCard))
        written = app.screen.query_one(Log)
        await settle(pilot, lambda: written.is_vertical_scroll_end and written.line_count > 200)
        log.write_text(log.read_text() + "[W] one more\n")
        await settle(
            pilot, lambda: written.lines[-1] == "[W] one more" and written.is_vertical_scroll_end
        )
        await press(pilot, "home", until=lambda: written.scroll_offset.y == 0)
        log.write_text(log.read_text() + "[W] and more\n")
        await settle(pilot, lambda: written.lines[-1] == "[W] and more")
        assert written.scroll_offset.y == 0, "a growing log stays where one reads"
        await press(pilot, "end", until=lambda: written.is_vertical_scroll_end)


async def test_the_map_is_read_by_keys(session: FakeSession, make_app: Make) -> None:
    session.flow = flow = load("accuracy").flow
    s.opened(session)
    async with played(make_app(), lambda app: app.scene is not None) as (app, pilot):
        await press(pilot, "m", until=lambda: isinstance(app.screen, Listed))
        await settle(pilot, lambda: "you are here" in golden.text_of(app))
        told = app.screen.query_one("#detail", Text)
        for keys_, place in (
            (["home"], flow.nodes["reproduce"]),
            (["end"], list(flow.ends.values())[-1]),
        ):
            await pilot.press(*keys_)
            first = " ".join(place.explain.split()[:4])
            await settle(pilot, lambda first=first: " ".join(told.text.split()).startswith(first))  # type: ignore[misc]
        await press(pilot, "home", until=lambda: "Its answers lead to:" in told.text)
        await press(pilot, "enter", until=lambda: isinstance(app.screen, StepScreen))


async def test_rewind_says_what_it_sets_aside(session: FakeSession, make_app: Make) -> None:
    s.ended(session)
    async with played(make_app(), lambda app: isinstance(app.screen, FinishScreen)) as (app, pilot):
        await press(pilot, "r", until=lambda: isinstance(app.screen, Listed))
        kept = app.screen.query_one("#detail-kept", Text)
        await settle(pilot, lambda: "Sets aside 1 answer:" in kept.text)
        assert "the end: You have a minimal failing case" in kept.text
        await press(pilot, "down", until=lambda: "Sets aside 2 answers:" in kept.text)
        assert "5 probes after it" in kept.text


async def test_commands_are_copied_one_by_one(session: FakeSession, make_app: Make) -> None:
    node = session.flow.nodes["layerwise"]
    several = {
        "narrowdown": "narrowdown step layerwise {{ model }}",
        "trtexec": "trtexec --onnx={{ model }}",
    }
    nodes = {**session.flow.nodes, "layerwise": msgspec.structs.replace(node, commands=several)}
    session.flow = msgspec.structs.replace(session.flow, nodes=nodes)
    s.asking(session)
    async with played(make_app(), "ask") as (app, pilot):
        await press(pilot, "c", until=lambda: isinstance(app.screen, CommandsCard))
        assert app.clipboard == "narrowdown step layerwise /models/resnet50.onnx"
        await press(
            pilot,
            "down",
            "c",
            until=lambda: app.clipboard == "trtexec --onnx=/models/resnet50.onnx",
        )
    assert (session.folder / "last-command.txt").read_text() == app.clipboard + "\n"


async def test_setup_lists_what_fits_into_each_field(
    session: FakeSession, make_app: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path = tmp_path / "work"
    (tmp_path / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for name in ("below/tiny.onnx", "[red].onnx", "inputs.npz", "more.npz", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    async with played(
        make_app(folder=None, setup=Problem(model="")),
        lambda app: isinstance(app.screen, SetupScreen),
    ) as (app, pilot):
        await press(
            pilot,
            "f2",
            until=lambda: isinstance(app.screen, PickFile) and len(app.screen._entries) > 1,
        )
        assert [entry.label for entry in app.screen._entries] == ["..", "[red].onnx", "below/"]
        await press(
            pilot,
            *"below",
            "enter",
            until=lambda: [entry.label for entry in app.screen._entries] == ["..", "tiny.onnx"],
        )
        await press(pilot, "enter", until=lambda: isinstance(app.screen, SetupScreen))
        assert app.screen.query_one("#model", Input).value == str(tmp_path / "below" / "tiny.onnx")
        app.screen.query_one("#model", Input).value = ""
        app.screen.query_one("#inputs", Input).focus()
        for _ in range(2):
            await press(
                pilot,
                "f2",
                until=lambda: isinstance(app.screen, PickFile) and len(app.screen._entries) == 4,
            )
            await press(pilot, "enter", until=lambda: isinstance(app.screen, SetupScreen))
        assert app.screen.query_one("#inputs", Input).value == ", ".join(
            [str(tmp_path / "inputs.npz")] * 2
        )
        for field, typed in (("engine", "emul"), ("reference", "fp64"), ("tolerance", "0.05")):
            app.screen.query_one(f"#{field}", Input).focus()
            await press(pilot, "f2", until=lambda: isinstance(app.screen, Pick))
            await pilot.press(*"zzz", "enter")
            await pilot.pause()
            assert isinstance(app.screen, Pick), "where nothing fits, nothing is taken"
            assert app.screen.query_one("#pick-detail", Text).text == "", (
                "and nothing is told of what was highlighted before"
            )
            await press(
                pilot,
                "backspace",
                "backspace",
                "backspace",
                *typed,
                "enter",
                until=lambda: isinstance(app.screen, SetupScreen),
            )
        values = [
            app.screen.query_one(f"#{field}", Input).value
            for field in ("engine", "reference", "tolerance")
        ]
        assert values == ["emulate", "reference:precision=fp64", "0.05"]
    assert app.library.created == [], "nothing runs before Start"


async def test_a_welcome_is_told_once_and_enter_goes_on(
    session: FakeSession, make_app: Make
) -> None:
    s.opened(session)
    async with played(
        make_app(welcome="A model names [/red] files wrongly. Why?"),
        lambda app: isinstance(app.screen, Reading),
    ) as (app, pilot):
        assert any("[/red]" in row.plain for row in app.screen.query_one(Sections).lines(90))
        await press(pilot, "enter", until=lambda: isinstance(app.screen, StepScreen))
        assert session.sent == [], "the same key does not run the step"
        await press(pilot, "enter", until=lambda: [r["do"] for r in session.sent] == ["go"])


async def test_the_key_that_a_welcome_names_works_there(
    session: FakeSession, make_app: Make
) -> None:
    s.opened(session)
    async with played(
        make_app(welcome="A model names files wrongly. Why?"),
        lambda app: isinstance(app.screen, Reading),
    ) as (app, pilot):
        await press(pilot, "A", until=lambda: [r.get("policy") for r in session.sent] == ["walk"])
        assert isinstance(app.screen, StepScreen)


async def test_stopping_a_step_that_tries_a_list_offers_what_it_has(
    session: FakeSession, make_app: Make
) -> None:
    s.running(session)
    assert session.snapshot is not None
    session.snapshot |= {"best": 0, "nodes": 412, "tried": 4}
    async with played(
        make_app(), lambda app: app.scene is not None and app.scene.work.tried == 4
    ) as (app, pilot):
        await press(
            pilot, "x", until=lambda: "Use what was found so far (4 tried)" in golden.text_of(app)
        )
        await press(
            pilot, "enter", until=lambda: "settle" in [request["do"] for request in session.sent]
        )


@pytest.mark.parametrize(("choice", "sent"), [("1", "settle"), ("2", None), ("3", "stop")])
async def test_stopping_a_search_offers_its_smallest_part(
    session: FakeSession, make_app: Make, choice: str, sent: str | None
) -> None:
    s.running(session)
    assert session.snapshot is not None
    session.snapshot |= {"best": 48, "nodes": 412, "tried": 4}
    async with played(
        make_app(), lambda app: app.scene is not None and app.scene.work.tried == 4
    ) as (app, pilot):
        await press(
            pilot,
            "x",
            until=lambda: "Use the smallest so far (48 of 412 nodes)" in golden.text_of(app),
        )
        await press(
            pilot,
            *["down"] * (int(choice) - 1),
            "enter",
            until=lambda: "The search is not through" not in golden.text_of(app),
        )
        asked = [r["do"] for r in session.sent if r["do"] in ("settle", "stop")]
        assert asked == ([sent] if sent else [])


@pytest.mark.parametrize("paused", [False, True])
async def test_no_time_runs_while_it_waits(
    session: FakeSession, make_app: Make, paused: bool
) -> None:
    s.running(session)
    session.snapshot = {**(session.snapshot or {}), "paused": paused}
    async with played(
        make_app(), lambda app: "session k7f3" in golden.text_of(app), size=(120, 40)
    ) as (app, _):
        title = golden.text_of(app).splitlines()[0]
        said = title.partition(f"session k7f3 {UNICODE.dot} ")[2].split(f" {UNICODE.dot} ")
        assert (said[0].strip(), len(said)) == (("paused", 1) if paused else ("running", 2))


async def test_the_clock_counts_work_and_no_page_that_stands_open(
    session: FakeSession, make_app: Make
) -> None:
    s.asking(session)
    async with played(make_app(), "ask", size=(120, 40)) as (app, _):
        assert app.scene is not None
        worked = sum(visit.seconds for visit in app.scene.state.route)
        assert worked > 0
        later = msgspec.structs.replace(app.scene, now=app.scene.now + 7_200.0)
        assert later.worked == worked == app.scene.worked
        began = later.now - 60.0
        hunt = msgspec.structs.replace(later.hunt, began=began)
        busy = Visit("layerwise", step="layerwise", status="running")
        state = msgspec.structs.replace(later.state, route=(*later.state.route[:-1], busy))
        running = msgspec.structs.replace(later, hunt=hunt, state=state)
        assert running.face == "running"
        assert running.worked - sum(v.seconds for v in state.route) == pytest.approx(60.0)


async def test_an_answer_that_finds_nobody_starts_the_process_again(
    session: FakeSession, make_app: Make
) -> None:
    """Seen by keys: killed while a question was open, Enter was refused and no key was shown that
    goes on."""
    s.asking(session)
    async with played(make_app(), "ask") as (app, pilot):
        session.living = False
        await press(pilot, "enter", until=lambda: len(app.library.opened) == 2)
        session.living = True
        assert session.sent == []
        assert "started again" in golden.text_of(app) or any(
            "started again" in n.message for n in app._notifications
        )
        await settle(pilot, lambda: face(app) == "ask")
        await pilot.pause(1.1)  # a second Enter within a second is taken for a slip
        await press(
            pilot, "enter", until=lambda: [request["do"] for request in session.sent] == ["answer"]
        )


async def test_what_a_search_has_found_stays_in_sight_when_it_is_stopped(
    session: FakeSession, make_app: Make
) -> None:
    s.running(session)
    session.script.add(e.StepCancelled(run=2, node="layerwise", reason="stopped"))
    session.living = False
    async with played(make_app(), "stopped", size=(120, 40)) as (app, _):
        text = golden.text_of(app)
        assert "The model, first node to last" in text
        assert "The smallest part that fails so far: 48 of 412 nodes." in " ".join(
            text.replace("│", " ").split()
        )
        assert "suspects" in text
        assert "trying now" not in text


async def test_what_can_be_asked_at_the_end_has_prices_and_esc_comes_back(
    session: FakeSession, make_app: Make
) -> None:
    s.ended(session)
    async with played(make_app(), lambda app: isinstance(app.screen, FinishScreen)) as (app, pilot):
        finish = app.screen
        finish.action_after()
        await settle(pilot, lambda: isinstance(app.screen, Choose))
        assert "about 30 runs" in golden.text_of(app)
        await press(pilot, "escape", until=lambda: app.screen is finish)
        assert app.library.followed == []
        finish.action_after()
        await settle(pilot, lambda: isinstance(app.screen, Choose))
        await press(
            pilot, "enter", until=lambda: app.library.followed == [(session.folder, "known")]
        )
        await settle(pilot, lambda: isinstance(app.screen, FinishScreen) and app.scene is not None)
        await press(
            pilot,
            "escape",
            until=lambda: isinstance(app.screen, FinishScreen) and app.scene is not None,
        )
        assert not any(isinstance(screen, SessionsScreen) for screen in app.screen_stack)


async def test_a_ladder_is_a_command_to_copy_and_runs_nothing(
    session: FakeSession, make_app: Make
) -> None:
    s.ended(session)
    async with played(make_app(), lambda app: isinstance(app.screen, FinishScreen)) as (app, pilot):
        app.screen.action_after()
        await settle(pilot, lambda: isinstance(app.screen, Choose))
        await press(
            pilot, "down", "enter", until=lambda: "narrowdown ladder k7f3" in golden.text_of(app)
        )
        assert app.library.followed == []
        assert "narrowdown ladder" in (session.folder / "last-command.txt").read_text()
