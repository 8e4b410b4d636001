"""What goes wrong is told as one of four kinds, each with a look of its own; and every state of a
step has its word."""

from collections.abc import Callable

import msgspec
import pytest
from textual.widgets import Input

from narrowdown.engines import installed
from narrowdown.engines.probe import Measurement
from narrowdown.wizard.session import events as e
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.board import Board
from narrowdown.wizard.tui.client import Watcher
from narrowdown.wizard.tui.literal import ASCII, UNICODE
from narrowdown.wizard.tui.scene import Scene, Work
from narrowdown.wizard.tui.screens.overlays import PlainCard
from narrowdown.wizard.tui.troubles import TITLES, Trouble, guess, troubles

from . import golden, scripted as s
from .scripted import (
    FakeSession,
    played,
    press,
    settle,
)

Make = Callable[..., Narrowdown]


def refused(
    session: FakeSession, error: str, *, code: int = 4, status: str = "refused", log: str = ""
) -> FakeSession:
    """``log``: what the engine wrote in its last probe, below the session's folder."""
    s.opened(session)
    session.script.add(
        e.StepStarted(run=1, node="reproduce", visit=1, step="compare", step_version=1)
    )
    if log:
        session.script.add(e.ProbeStarted(key="k", run=1, probe=s.measure("*")))
        failed = Measurement(status="build-failed", log=log)
        session.script.add(e.ProbeFinished(key="k", run=1, measurement=failed))
    session.script.add(e.StepFinished(run=1, node="reproduce", status=status, error=error))  # type: ignore[arg-type]
    session.script.add(e.SessionClosed(exit_code=code, reason=error))
    session.snapshot, session.living = {"phase": "stopped", "text": error}, False
    return session


def bad_input(session: FakeSession) -> FakeSession:
    return refused(session, "'wrong.npz' lacks the input 'image' (it has 'y').", code=2)


def engine_said_no(session: FakeSession) -> FakeSession:
    (session.folder / "logs").mkdir(exist_ok=True)
    log = "logs/001-measure-a.log"
    (session.folder / log).write_text("[E] parsing\n[E] NOT_IMPLEMENTED: Frobnicate [/red]\n")
    return refused(session, "The engine could not build the model.", log=log)


def our_bug(session: FakeSession) -> FakeSession:
    (session.folder / "logs").mkdir(exist_ok=True)
    trace = [
        "Traceback (most recent call last):",
        '  File "x.py", line 1',
        *["    deeper"] * 20,
        "KeyError: 'lost'",
    ]
    (session.folder / "logs" / "runner.log").write_text("\n".join(trace) + "\n")
    said = "The step compare failed inside narrowdown (KeyError); the trace is in logs/runner.log."
    return refused(session, said, code=70, status="failed")


KINDS: dict[str, Callable[[FakeSession], FakeSession]] = {
    "input": bad_input, "engine": engine_said_no, "worker": s.running, "ours": our_bug,
}  # fmt: skip
SAYS = {
    "input": ["lacks the input 'image'", "[Enter] to try again"],
    "engine": [
        "could not build the model",
        "Likely: The engine does not have",
        "NOT_IMPLEMENTED: Frobnicate [/red]",
        "[l] for the log",
    ],
    "worker": [
        "Worker 2 died of SIGSEGV in probe 4.",
        "'cannot tell', neither as pass nor as fail",
    ],
    "ours": [
        "failed inside narrowdown",
        "KeyError: 'lost'",
        "The session is safe",
        "[d] to read and copy",
    ],
}


FRAMES = {"input": "╍", "engine": "━", "worker": "═", "ours": "▀"}


async def drawn(app: Narrowdown, kind: str) -> str:
    async with app.run_test(size=(110, 40)) as pilot:
        await settle(pilot, lambda: TITLES[kind] in golden.text_of(app))  # type: ignore[index]
        await pilot.pause(0.2)
        return golden.text_of(app)


@pytest.mark.parametrize("kind", KINDS)
async def test_each_kind_says_what_happened_and_what_to_do(
    session: FakeSession, make_app: Make, kind: str
) -> None:
    text = await drawn(make_app(), KINDS[kind](session) and kind)
    flat = " ".join(
        text.replace("│", " ")
        .replace("║", " ")
        .replace("┃", " ")
        .replace("╎", " ")
        .replace("▌", " ")
        .split()
    )
    for words in SAYS[kind]:
        assert words in flat or words in text, (words, text)
    line = next(line for line in text.splitlines() if TITLES[kind] in line)  # type: ignore[index]
    assert line.rstrip()[-3] == FRAMES[kind], (
        "each kind has a frame of its own: told apart without colour"
    )
    assert not any(
        title in text for other, title in TITLES.items() if other not in (kind, "notice")
    )


async def test_our_own_trace_is_shown_whole_and_copied(
    session: FakeSession, make_app: Make
) -> None:
    our_bug(session)
    async with played(make_app(), lambda app: TITLES["ours"] in golden.text_of(app)) as (
        app,
        pilot,
    ):
        await press(pilot, "d", until=lambda: isinstance(app.screen, PlainCard))
        await press(
            pilot,
            "c",
            until=lambda: (
                app.clipboard.startswith("Traceback") and app.clipboard.endswith("KeyError: 'lost'")
            ),
        )


async def test_a_skipped_step_is_no_error(session: FakeSession, make_app: Make) -> None:
    s.opened(session)
    session.script.add(
        e.StepStarted(run=1, node="reproduce", visit=1, step="compare", step_version=1)
    )
    session.script.add(
        e.StepFinished(run=1, node="reproduce", status="refused", error="Skipped by you.")
    )
    offered = s.offered(session.flow, "reproduce", "no")
    session.script.add(
        e.QuestionAsked(node="reproduce", visit=1, ask="?", answers=offered, recommended="no")
    )
    session.snapshot = {"phase": "ask"}
    async with played(
        make_app(), lambda app: "You skipped this step" in golden.text_of(app), size=(160, 50)
    ) as (app, _):
        text = golden.text_of(app)
        assert "skipped; your answer" in text
        assert TITLES["engine"] not in text


@pytest.mark.parametrize(
    ("words", "meaning"),
    [("CUDA error: out of memory", "Memory"), ("acme:Frobnicate(-1) is not a registered function/op", "operators"),
     ("Unsupported model IR version: 99", "ONNX version"), ("Got invalid dimensions for input: x", "inputs"),
     ("libnvinfer.so.10: cannot open shared object file", "library"), ("all is well", "")],
)  # fmt: skip
def test_guesses_at_a_cause(words: str, meaning: str) -> None:
    assert meaning in guess(words)
    assert bool(guess(words)) == bool(meaning)


def test_an_extra_check_that_was_left_out_is_a_note_and_no_death(session: FakeSession) -> None:
    s.running(session)
    said = "An extra check took longer than 60 s and was left out; --timeout gives it more."
    board = Board(session.folder)
    events = [event for event in session.script.events if not isinstance(event, e.WorkerDied)]
    board.extend(
        [
            *events,
            e.WorkerDied(
                seq=80, ts=1e12, worker=1, returncode=-15, key="k5", detail=said, extra=True
            ),
        ]
    )
    told = troubles(
        Scene(session.flow, session.folder, state=board.state, work=Work(phase="running"))
    )
    assert [(trouble.kind, trouble.text) for trouble in told] == [("notice", said)]
    board.extend(
        [
            e.WorkerDied(
                seq=81,
                ts=1e12,
                worker=1,
                returncode=-15,
                detail="The probe did not finish within 9 s.",
            )
        ]
    )
    told = troubles(
        Scene(session.flow, session.folder, state=board.state, work=Work(phase="running"))
    )
    assert [(trouble.kind, trouble.text) for trouble in told][1:] == [
        ("worker", "The probe did not finish within 9 s.")
    ]


def test_nothing_wrong_is_no_trouble(session: FakeSession) -> None:
    s.opened(session)
    board = Board(session.folder)
    board.extend(session.script.events)
    scene = Scene(session.flow, session.folder, state=board.state, work=Work(phase="offer"))
    assert troubles(scene) == ()
    watching = msgspec.structs.replace(scene, work=Work(phase="offer", holder="process 7 on box"))
    assert [t.kind for t in troubles(watching)] == ["notice"]
    assert isinstance(troubles(watching)[0], Trouble)


def test_a_run_that_goes_on_after_a_break_is_called_resumed(session: FakeSession) -> None:
    s.running(session)
    board = Board(session.folder)
    board.extend(session.script.events)
    assert not board.hunt.resumed
    board.extend([
        e.SessionOpened(seq=90, id="k7f3", resumed=True),
        e.StepStarted(seq=91, run=3, node="layerwise", visit=1, step="layerwise", step_version=1),
    ])  # fmt: skip
    assert board.hunt.resumed, "the run before it had not come to its end"
    board.extend([e.StepFinished(seq=92, run=3, node="layerwise", outcome={})])
    board.extend(
        [e.StepStarted(seq=93, run=4, node="layerwise", visit=2, step="layerwise", step_version=1)]
    )
    assert not board.hunt.resumed


def test_glyphs_differ_where_states_differ() -> None:
    for glyphs in (UNICODE, ASCII):
        assert (
            len({glyphs.passes, glyphs.fails, glyphs.unresolved, glyphs.running, glyphs.dot}) == 5
        )


def test_a_runner_that_was_killed_gives_no_reason_and_none_is_made_up(session: FakeSession) -> None:
    s.running(session)
    session.living = False
    scene = Watcher(session, s.FakeLibrary(session).problem(session.folder)).look()
    assert scene is not None
    assert scene.face == "stopped"
    (told,) = [trouble for trouble in troubles(scene) if trouble.kind == "notice"]
    kept = "Stopped. Everything measured is kept. The smallest part that fails so far: 48 of 412 nodes."
    assert told.text == f"The session's own process is gone. {kept}"


@pytest.mark.parametrize(
    ("changed", "title", "said"),
    [
        ("", "A fault of Narrowdown's own", "The session is safe"),
        ("It was changed.", "Narrowdown was changed while it ran", "It was changed."),
    ],
)
async def test_what_nobody_foresaw_in_a_thread_is_said(
    session: FakeSession,
    make_app: Make,
    monkeypatch: pytest.MonkeyPatch,
    changed: str,
    title: str,
    said: str,
) -> None:
    monkeypatch.setattr(installed, "say_change", lambda: changed)
    s.ended(session)
    app = make_app()

    def broken(folder: object, target: str) -> str:
        raise KeyError(f"no such thing as {target}")

    monkeypatch.setattr(app.library, "export", broken)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.scene is not None and app.scene.face == "ended")
        await press(pilot, "e", until=lambda: isinstance(app.focused, Input))
        await press(pilot, "enter", until=lambda: isinstance(app.screen, PlainCard))
        text = golden.text_of(app)
        assert title in text
        assert said in text
        await press(
            pilot, "end", until=lambda: "no such thing as case-k7f3.zip" in golden.text_of(app)
        )
        await press(pilot, "escape", until=lambda: not isinstance(app.screen, PlainCard))
