"""Every action of the terminal UI: its id, its label, its keys. Users remap them in ``keys.yaml`` beside their other settings.

Single letters, arrows, Enter and Escape only: tmux and terminals eat most control keys.
"""

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
import yaml
from textual.binding import Binding, BindingType

from wizard.tui.glyphs import Glyphs


class Action(msgspec.Struct, frozen=True):
    """``id`` is also the name of the screen's or app's ``action_<id>`` method. ``keys``: Textual's names, joined by commas."""

    id: str
    label: str
    keys: str
    help: str
    shown: bool = True  # in the bottom line
    everywhere: bool = False  # before any focused widget sees the key


ACTIONS: tuple[Action, ...] = (
    Action("answer", "answer", "enter", "Give the highlighted answer."),
    Action("go", "run it", "enter", "Run this step."),
    Action("start", "start", "enter", "Create the session and start it."),
    Action("open", "open", "enter", "Open the highlighted session."),
    Action("new", "new", "n", "Start a new session."),
    Action("back", "back", "b,escape", "Go back to the screen before. Never stops work.", shown=False),
    Action("stop", "stop", "x", "Finish the probe that is running, then stop. Nothing is lost."),
    Action("stop_now", "stop now", "X", "Kill what is running. The session is safe; that probe runs again later."),
    Action("pause", "pause", "p", "Pause before the next probe, or go on."),
    Action("skip", "skip", "s", "Do not run this step; answer its question from what is known."),
    Action("why", "why", "w", "Why this answer is recommended, and what this step is for."),
    Action("terms", "terms", "t", "The words used here, explained."),
    Action("copy", "copy", "c", "The same by hand: copies the command to the clipboard and to last-command.txt."),
    Action("log", "log", "l", "What the workers and engines wrote."),
    Action("pictures", "view", "v", "What was measured as pictures: error by depth, the search, around the suspect."),
    Action("probes", "probes", "o", "Every probe of this step, and what the engine wrote during it.", shown=False),
    Action("probe", "look", "enter", "Look into the highlighted probe: what it tried, what came out, its log."),
    Action("details", "details", "d", "The whole trace or message of an error, to read and to copy.", shown=False),
    Action("demo", "demo", "d", "A real model with a real failure, to try this out."),
    Action("map", "map", "m", "The whole flow, and where you are."),
    Action("note", "note", "n", "Write a note into the session; the report shows it."),
    Action(
        "rewind",
        "rewind",
        "r",
        "Go back to an earlier question. Measurements stay known, so nothing is measured twice.",
    ),
    Action("export", "export", "e", "Write everything into one folder or zip to hand on."),
    Action("keys_help", "help", "question_mark", "This page."),
    Action(
        "quit_session", "quit", "q", "Leave. Asks only while something runs, and can leave it running.", shown=False
    ),
    Action(
        "interrupt", "stop", "ctrl+c", "Once: stop after this probe. Twice: stop now.", shown=False, everywhere=True
    ),
    Action("retry", "go on", "R", "Start the session's runner again after it died."),
    Action("scroll_up", "scroll up", "pageup", "Scroll the page.", shown=False),
    Action("scroll_down", "scroll down", "pagedown", "Scroll the page.", shown=False),
)
BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}


def bindings(*ids: str) -> list[BindingType]:
    """Textual bindings of these actions, in this order. Raises ``KeyError`` for an unknown id."""
    return [
        Binding(a.keys, a.id, a.label, show=a.shown, id=a.id, tooltip=a.help, priority=a.everywhere)
        for a in (BY_ID[i] for i in ids)
    ]


def display(key: str, glyphs: Glyphs) -> str:
    """A key as people read it: ``question_mark`` is ``?``, ``ctrl+p`` is ``^p``."""
    names = {
        "enter": glyphs.enter,
        "escape": "Esc",
        "question_mark": "?",
        "pageup": "PgUp",
        "pagedown": "PgDn",
        "space": "Space",
    }
    if key.startswith("ctrl+"):
        return "^" + key.removeprefix("ctrl+")
    return names.get(key, key)


def config_file(environment: Mapping[str, str] | None = None) -> Path:
    """``$XDG_CONFIG_HOME/narrowdown/keys.yaml``."""
    environment = os.environ if environment is None else environment
    base = environment.get("XDG_CONFIG_HOME", "") or str(Path(environment.get("HOME", "~")).expanduser() / ".config")
    return Path(base) / "narrowdown" / "keys.yaml"


class Keymap(msgspec.Struct, frozen=True):
    """What a user's file asks for: action id -> keys, and a sentence for each thing in it that cannot be used."""

    keys: dict[str, str] = {}
    problems: tuple[str, ...] = ()


def read(path: Path) -> Keymap:
    """A user's keys. A file that is missing asks for nothing; one that is broken is said, and the default keys stay."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Keymap()
    except (OSError, UnicodeDecodeError) as error:
        return Keymap(problems=(f"{path} cannot be read ({error}); the default keys are used.",))
    try:
        data = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 (makes strings, lists and maps only)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        return Keymap(problems=(f"{path}{where} is not valid YAML; the default keys are used.",))
    if not isinstance(data, dict):
        return (
            Keymap()
            if not data
            else Keymap(problems=(f"{path} must hold lines of 'action: key'; the default keys are used.",))
        )
    keys: dict[str, str] = {}
    problems: list[str] = []
    for name, value in data.items():
        chosen = ",".join(_texts(value))
        if name not in BY_ID:
            near = difflib.get_close_matches(str(name), BY_ID, 1)
            problems.append(f"{path}: there is no action '{name}'" + (f"; did you mean '{near[0]}'?" if near else "."))
        elif not chosen:
            problems.append(f"{path}: '{name}' has no key; its default stays.")
        else:
            keys[str(name)] = chosen
    return Keymap(keys, tuple(problems))


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        return [value.strip()] if value.strip() else []
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else []
