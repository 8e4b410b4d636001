"""Keys: every action has one that can be changed in the settings, mistakes are said, and what is
shown is what works."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.dom import DOMNode

from narrowdown.wizard.session.folder import Summary
from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.literal import ASCII, UNICODE
from narrowdown.wizard.tui.screens.finish import FinishScreen
from narrowdown.wizard.tui.screens.overlays import CommandsCard, LogCard, PlainCard, Reading
from narrowdown.wizard.tui.screens.sessions import SessionsScreen
from narrowdown.wizard.tui.screens.setup import SetupScreen
from narrowdown.wizard.tui.screens.step import FACES, WHERE, StepScreen
from narrowdown.wizard.tui.widgets.answers import Answers
from narrowdown.wizard.tui.widgets.bottom import Bottom

from . import golden, scripted as s
from .scripted import (
    FakeSession,
    played,
    press,
    settle,
)

Make = Callable[..., Narrowdown]
HOLDERS: tuple[type[DOMNode], ...] = (
    SessionsScreen, SetupScreen, StepScreen, FinishScreen, Answers, LogCard, PlainCard, CommandsCard,
)  # fmt: skip
# A key that nothing has by default for every action.
NEW = {
    action.id: f"alt+{letter}" if number < 26 else f"ctrl+alt+{letter}"
    for number, (action, letter) in enumerate(
        zip(keys.ACTIONS, itertools.cycle("abcdefghijklmnopqrstuvwxyz"), strict=False)
    )
}


def bound(kind: type[DOMNode]) -> dict[str, str]:
    """Action id -> the method that its binding runs."""
    return {b.id: b.action for _, b in kind._merge_bindings() if b.id in keys.BY_ID}


def actions_at_once() -> dict[str, list[str]]:
    """Ids of the actions that work at the same time, by face of a step or class of another screen
    or card."""
    faces: dict[str, list[str]] = {}
    for face in FACES:
        held = bound(Answers) if face == "ask" else {}
        faces[face] = [i for i in (*held, *bound(StepScreen)) if face in WHERE.get(i, FACES)]
    others = (SessionsScreen, SetupScreen, FinishScreen, LogCard, PlainCard, CommandsCard)
    return {**faces, **{screen.__name__: list(bound(screen)) for screen in others}}


def written(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> keys.Keymap:
    """What settings with these keys ask for."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    file = folder / "narrowdown" / "config.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text("keys:\n" + "".join(f"  {line}\n" for line in text.splitlines()))
    return keys.of_user()


def test_every_action_is_on_a_screen_and_has_its_method() -> None:
    for kind in HOLDERS:
        for action in bound(kind).values():
            place, _, method = action.rpartition(".")
            owner = Narrowdown if place == "app" else kind
            assert hasattr(owner, f"action_{method}"), (kind, action)
    assert set().union(*(bound(kind) for kind in HOLDERS)) == set(keys.BY_ID)
    assert set(itertools.chain(*actions_at_once().values())) == set(keys.BY_ID)
    assert set(WHERE) <= set(keys.BY_ID)


def test_no_two_actions_that_work_together_share_a_key() -> None:
    for place, ids in actions_at_once().items():
        held = [key for i in dict.fromkeys(ids) for key in keys.BY_ID[i].keys.split(",")]
        assert sorted(held) == sorted(set(held)), place


def test_only_keys_that_reach_us() -> None:
    for action in keys.ACTIONS:
        for key in action.keys.split(","):
            assert not key.startswith("ctrl+") or key == "ctrl+c", (
                "terminals and tmux eat control keys"
            )


# The settings


def test_keys_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert keys.of_user() == keys.Keymap()
    text = "note: [N, f4]\nexport: ?, comma\nmap: ','\nskip: Space\n"
    found = written(monkeypatch, tmp_path, text)
    assert found.keys == {
        "note": "N,f4",
        "export": "question_mark,comma",
        "map": "comma",
        "skip": "space",
    }
    assert found.problems == ()
    assert found.of("note") == ("N", "f4")
    assert found.of("why") == ("w",)


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("# mine\nanser: x\n", 2, "did you mean 'answer'"),
        ("why:\n", 1, "'why' has no key"),
        ("log: [l, supr]\n", 1, "'supr' cannot be a key of 'log': there is no such key"),
        ("log: paegup\n", 1, "did you mean 'pageup'"),
        ("log: hyper+x\n", 1, "there is no such key"),
        ("map: m\nlog: 3\n", 2, "what it does is fixed"),
        ("log: tab\n", 1, "what it does is fixed"),
        ("pick: p\n", 1, "it works where you type"),
        ("close: space\n", 1, "it works where you type"),
        ("why: {a: b}\n", 1, "'why' has no key"),
    ],
)
def test_a_mistake_is_said_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, line: int, part: str
) -> None:
    (said,) = written(monkeypatch, tmp_path, text).problems
    assert said.startswith(f"{tmp_path / 'narrowdown' / 'config.yaml'}:{line + 1}:")
    assert part in said[:1].lower() + said[1:].replace("Did", "did")
    assert said.endswith((".", "?"))


def test_the_page_about_keys_lists_every_action_with_its_keys() -> None:
    page = (Path(__file__).parents[3] / "docs" / "keys.md").read_text(encoding="utf-8")
    for action in keys.ACTIONS:
        shown = " ".join(f"`{key}`" for key in action.keys.split(","))
        assert f"| `{action.id}` | {shown} | {action.help} |" in page


def test_keys_as_people_read_them() -> None:
    shown = {
        key: keys.display(key, UNICODE)
        for key in ("enter", "escape", "question_mark", "slash", "f4", "ctrl+x")
    }
    assert shown == {
        "enter": "↵",
        "escape": "Esc",
        "question_mark": "?",
        "slash": "/",
        "f4": "F4",
        "ctrl+x": "^x",
    }
    assert keys.display("ctrl+alt+N", ASCII) == "ctrl+alt+N"
    mine = keys.Keymap({"why": "v,w"})
    assert (
        keys.fill_in_keys("{why} says why, {go} runs it, {nothing}.", mine, UNICODE)
        == "[v] says why, [Enter] runs it, {nothing}."
    )


# On the screens


def pressed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every action of ours only notes its id."""
    noted: list[str] = []

    def noting(name: str) -> Callable[[Any], None]:
        return lambda self: noted.append(name)

    for kind in HOLDERS:
        for name, method in bound(kind).items():
            monkeypatch.setattr(kind, f"action_{method}", noting(name))
    return noted


async def try_all(pilot: Any, noted: list[str], face: str) -> None:
    """Press the new key of every action: those of this face act, and no others; nor does a key of
    theirs by default."""
    noted.clear()
    for key in NEW.values():
        await pilot.press(key)
    await pilot.pause()
    # At the first step there is nothing to go back to, and nobody else has the session open.
    nowhere = {"take_over", "rewind"} if face == "offer" else {"take_over"}
    assert sorted(noted) == sorted(set(actions_at_once()[face]) - nowhere), face
    noted.clear()
    for action in (keys.BY_ID[i] for i in actions_at_once()[face] if not keys.BY_ID[i].typing):
        for key in action.keys.split(","):
            if key not in (
                "enter",
                "pageup",
                "pagedown",
                "ctrl+c",
            ):  # these do something of a widget's own
                await pilot.press(key)
    assert noted == [], face


@pytest.mark.slow
@pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_every_action_can_be_remapped_at_once(
    session: FakeSession,
    make_app: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    everywhere: bool,
) -> None:
    """Every key is pressed on every face and card; in the fast suite on a question and on the
    log."""
    text = "".join(f"{action}: {key}\n" for action, key in NEW.items())
    keymap = written(monkeypatch, tmp_path, text)
    assert keymap == keys.Keymap(NEW)
    noted = pressed(monkeypatch)
    s.opened(session)
    app = make_app(keymap=keymap, entries=(Summary("k7f3", session.folder, "resnet50.onnx"),))
    async with app.run_test(size=(140, 40)) as pilot:
        for face, step in (
            ("offer", None),
            ("running", s.running),
            ("ask", s.asking),
            ("ended", s.ended),
        ):
            if step:
                session.script.events.clear()
                step(session)
                app.open_session(session.folder)
            await settle(pilot, lambda face=face: app.scene is not None and app.scene.face == face)
            wanted = FinishScreen if face == "ended" else StepScreen
            await settle(pilot, lambda wanted=wanted: isinstance(app.screen, wanted))
            if everywhere or face == "ask":
                await try_all(pilot, noted, "FinishScreen" if face == "ended" else face)
            shown = {key for key, _ in app.key_table(app.screen)} - {"^p"}
            assert all(key.startswith(("alt+", "ctrl+alt+")) for key in shown), (
                "help shows the user's keys"
            )
            foot = [key.shown for _, key in app.screen.query_one(Bottom).standing(140)]
            assert foot
            assert all(key.startswith(("alt+", "ctrl+alt+", "^p")) for key in foot), (
                "and so does the bottom line"
            )
        for card, name in (
            (LogCard(["a", "b"], "/logs"), "LogCard"),
            (PlainCard("Title", "text"), "PlainCard"),
            (CommandsCard([], str, ""), "CommandsCard"),
            (SetupScreen(), "SetupScreen"),
        ):
            app.push_screen(card)
            await settle(pilot, lambda card=card: app.screen is card and card.is_mounted)
            if everywhere or name == "LogCard":
                await try_all(pilot, noted, name)
            app.pop_screen()
        app.show_sessions()
        await settle(
            pilot, lambda: isinstance(app.screen, SessionsScreen) and app.screen.chosen is not None
        )
        if everywhere:
            await try_all(pilot, noted, "SessionsScreen")
        assert f"{NEW['new']} starts a new session" in golden.text_of(app)


async def test_a_mistake_in_the_settings_is_shown_at_the_start(
    session: FakeSession, make_app: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s.asking(session)
    async with played(
        make_app(keymap=written(monkeypatch, tmp_path, "nonsense: z\nwhy: f9\n")),
        lambda app: len(app._notifications) == 1,
        size=(120, 30),
    ) as (app, pilot):
        told = " ".join(note.message for note in app._notifications)
        assert "there is no action 'nonsense'" in told
        await settle(pilot, lambda: app.scene is not None and app.scene.face == "ask")
        await press(pilot, "f9", until=lambda: isinstance(app.screen, Reading))
