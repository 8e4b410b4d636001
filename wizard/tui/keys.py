"""Every action of the terminal UI: its id, its label, its keys. Users remap them in their settings
(docs/keys.md).

Single letters, arrows, Enter and Escape only: tmux and terminals eat most control keys.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from textual.binding import Binding, BindingType
from textual.keys import Keys, _character_to_key, format_key
from textual.screen import Screen

from narrowdown.engines.nearest import suggestion
from narrowdown.wizard import config
from narrowdown.wizard.tui.literal import Glyphs


class Action(msgspec.Struct, frozen=True):
    """``id`` is also the name of the screen's ``action_<id>`` method, or of the application's where
    it is ``whole``. ``keys``: Textual's names, joined by commas."""

    id: str
    label: str
    keys: str
    help: str
    shown: bool = True  # in the bottom line
    everywhere: bool = False  # before any focused widget sees the key
    whole: bool = False  # does the same on every screen
    typing: bool = False  # works where one types, so a letter cannot be its key
    words: str = ""  # other words by which the palette finds it


ACTIONS: tuple[Action, ...] = (
    Action("answer", "answer", "enter", "Give the highlighted answer, and run the next step."),
    Action("go", "run it", "enter", "Run this step."),
    Action(
        "auto",
        "go on by itself",
        "A",
        "Run the steps and take the recommended answers, until a step takes long, an answer is in doubt, or the end.",
        words="go on by yourself auto automatic walk unattended all recommended",
    ),
    Action(
        "pick", "choose from a list", "f2", "List what fits into the field at hand.", typing=True
    ),
    Action(
        "start", "start", "f5", "Check every field, create the session and open it.", typing=True
    ),
    Action("form_help", "help", "f1", "What the fields mean.", typing=True),
    Action("leave_form", "back", "escape", "Leave the form; what was typed is gone.", typing=True),
    Action("open", "open", "enter", "Open the highlighted session."),
    Action("new", "new", "n", "Start a new session.", whole=True),
    Action("only", "find", "slash", "Show only the sessions that hold the words that you type."),
    Action(
        "remove",
        "delete",
        "D,delete",
        "Delete the highlighted session, after saying what it takes on the disk.",
    ),
    Action(
        "back",
        "back",
        "b,escape",
        "Back to where you came from: the list, or the session before. Never stops work.",
        whole=True,
    ),
    Action("stop", "stop", "x", "Finish the probe that is running, then stop. Nothing is lost."),
    Action(
        "stop_now",
        "stop now",
        "X",
        "Kill what is running. The session is safe; that probe runs again later.",
    ),
    Action("pause", "pause", "p", "Pause before the next probe, or go on."),
    Action(
        "skip",
        "skip",
        "s",
        "Do not run this step, or leave it; answer its question from what is known.",
    ),
    Action("why", "why", "w", "Why this answer is recommended, and what this step is for."),
    Action("terms", "terms", "t", "The words used here, explained."),
    Action(
        "copy",
        "by hand",
        "c",
        "The same by hand: copies the command to the clipboard and to last-command.txt.",
        words="command polygraphy trtexec clipboard",
    ),
    Action("log", "log", "l", "What the workers and engines wrote."),
    Action(
        "pictures",
        "view",
        "v",
        "What was measured as pictures: error by depth, the search, around the suspect.",
    ),
    Action(
        "probes",
        "probes",
        "o",
        "Every probe of this step, and what the engine wrote during it.",
    ),
    Action(
        "details",
        "details",
        "d",
        "The whole of an error, to read and to copy; at the end every name of a long list.",
        shown=False,
    ),
    Action("demo", "demo", "d", "A real model with a real failure, to try this out."),
    Action("map", "map", "m", "The whole flow, and where you are."),
    Action("note", "note", "n", "Write a note into the session; the report shows it."),
    Action(
        "rewind",
        "rewind",
        "r",
        "Go back to an earlier question. Measurements stay known, so nothing is measured twice.",
        words="back undo change answer",
    ),
    Action(
        "edit",
        "edit the set-up",
        "E",
        "Other inputs, shapes, tolerance or options, as a new session that takes over what still holds.",
        shown=False,
    ),
    Action(
        "after",
        "what else",
        "a",
        "Is it known, which switch does it, what triggers it, since when? Each with its price.",
        words="workaround fix rewrite trigger known ladder score",
    ),
    Action(
        "export",
        "export",
        "e",
        "Write everything into one folder or zip to share.",
        words="send bundle case workaround",
    ),
    Action("keys_help", "help", "question_mark", "What is shown here, and every key."),
    Action(
        "quit_session",
        "quit",
        "q",
        "Leave. Asks only while something runs, and can leave it running.",
        whole=True,
    ),
    Action(
        "interrupt",
        "stop",
        "ctrl+c",
        "While a step runs, once: stop after this probe; twice: stop now. Else leave.",
        shown=False,
        everywhere=True,
        whole=True,
    ),
    Action(
        "take_over",
        "take over",
        "T",
        "Steer a session that is open in another window from here; that window only looks on then, and can take it back.",
    ),
    Action(
        "retry",
        "go on",
        "enter,R",
        "Go on with a session that was stopped, or whose own process has died.",
        words="continue resume restart run",
    ),
    Action(
        "report",
        "open report",
        "O",
        "Open the report of the session in the browser.",
        whole=True,
        words="html page workaround fix verdict",
    ),
    Action("close", "close", "escape", "Close the card.", shown=False, typing=True),
    Action("scroll_up", "scroll up", "pageup", "Scroll the page.", shown=False),
    Action("scroll_down", "scroll down", "pagedown", "Scroll the page.", shown=False),
)
BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}
DIGITS = frozenset("0123456789")
IN_TEXT = re.compile(  # a key in a sentence
    r"\[(?:Enter|Esc|Tab|Space|Backspace|Ins|Del|PgUp|PgDn|F\d+|\w+\+\S+|\^\w|[^\W\d_]|[?/])\]"
)
# What these do cannot be changed: choosing an answer or a line, the palette, leaving, the next
# field.
FIXED = DIGITS | {
    "up",
    "down",
    "left",
    "right",
    "home",
    "end",
    "tab",
    "shift+tab",
    "ctrl+p",
    "ctrl+q",
}
_NAMED = frozenset(key.value for key in Keys if not key.value.startswith(("<", "ctrl-")))
_SILENT = re.compile(
    r"f\d+|escape|insert|pageup|pagedown|(ctrl|alt)\+.+"
)  # type nothing into a field
_MODIFIERS = re.compile(r"^(?:(?:ctrl|alt|shift|super)\+)*")
ALONG = tuple(  # a list that is not to take PageUp and PageDown for itself
    Binding(key, action, key.capitalize(), show=False)
    for key, action in (
        ("up", "cursor_up"),
        ("down", "cursor_down"),
        ("home", "first"),
        ("end", "last"),
    )
)


def bindings(*ids: str) -> list[BindingType]:
    """Textual bindings of these actions, in this order. Raises ``KeyError`` for an unknown id."""
    return [
        Binding(
            a.keys,
            f"app.{a.id}" if a.whole else a.id,
            a.label,
            show=a.shown,
            id=a.id,
            priority=a.everywhere,
        )
        for a in (BY_ID[i] for i in ids)
    ]


def list_at_work(screen: Screen[Any], glyphs: Glyphs) -> list[tuple[Action, str]]:
    """Each action that works on a screen now, once, with its keys as people read them."""
    found: dict[str, list[str]] = {}
    for key, active in screen.active_bindings.items():
        if active.enabled and active.binding.id in BY_ID:
            found.setdefault(active.binding.id, []).append(display(key, glyphs))
    return [(BY_ID[name], " ".join(names)) for name, names in found.items()]


def display(key: str, glyphs: Glyphs) -> str:
    """A key as people read it: ``question_mark`` is ``?``, ``ctrl+p`` is ``^p``."""
    names = {
        "enter": glyphs.enter,
        "escape": "Esc",
        "pageup": "PgUp",
        "pagedown": "PgDn",
        "space": "Space",
        "tab": "Tab",
        "backspace": "Backspace",
        "delete": "Del",
        "insert": "Ins",
    }
    modifiers, _, bare = key.rpartition("+")
    if modifiers == "ctrl":
        return f"^{display(bare, glyphs)}"
    if modifiers:
        return f"{modifiers}+{display(bare, glyphs)}"
    return names.get(key) or (key.upper() if re.fullmatch(r"f\d+", key) else format_key(key))


class Keymap(msgspec.Struct, frozen=True):
    """What a user's settings ask for: action id -> keys in Textual's names, and a sentence for each
    thing that cannot be used."""

    keys: dict[str, str] = {}
    problems: tuple[str, ...] = ()

    def of(self, action: str) -> tuple[str, ...]:
        """The keys of an action, the user's or its own. Raises ``KeyError`` for an unknown id."""
        return tuple((self.keys.get(action) or BY_ID[action].keys).split(","))


def of_user() -> Keymap:
    """What the user's settings ask for. Raises Refusal where they cannot be read."""
    settings = config.load()
    places = {name: f"{settings.path}:{line}" for name, line in settings.lines.items()}
    return chosen(settings.keys, places)


def chosen(data: Mapping[str, Any], where: Mapping[str, str]) -> Keymap:
    """The keys that a mapping of actions to keys asks for. ``where`` each stands: ``path:line``."""
    keys: dict[str, str] = {}
    problems: list[str] = []
    for name, value in data.items():
        place = where[name]
        if name not in BY_ID:
            problems.append(
                f"{place}: there is no action '{name}'. {suggestion(name, BY_ID)}".rstrip()
            )
            continue
        good: list[str] = []
        for text in _texts(value):
            key = _character_to_key(text) if len(text) == 1 else text.lower()
            if fault := _unusable(key, BY_ID[name]):
                problems.append(f"{place}: '{text}' cannot be a key of '{name}': {fault}")
            else:
                good.append(key)
        if good:
            keys[name] = ",".join(dict.fromkeys(good))
        elif not _texts(value):
            problems.append(f"{place}: '{name}' has no key; its default stays.")
    return Keymap(keys, tuple(problems))


def _unusable(key: str, action: Action) -> str:
    """Why no action, or not this one, can have this key; "" where it can."""
    if key in FIXED:
        return "what it does is fixed."
    bare = _MODIFIERS.sub("", key)
    if len(bare) != 1 and bare not in _NAMED and len(format_key(bare)) != 1:
        return f"there is no such key. {suggestion(bare, _NAMED - FIXED)}".rstrip()
    if action.typing and not _SILENT.fullmatch(key):
        return "it works where you type, so it needs a key that types nothing, such as f6."
    return ""


def _texts(value: object) -> list[str]:
    """The keys in a value: a name, names with commas between, or a list of such."""
    if isinstance(value, str):
        return (
            [value] if value == "," else [part.strip() for part in value.split(",") if part.strip()]
        )
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else []


def fill_in_keys(text: str, keymap: Keymap, glyphs: Glyphs) -> str:
    """A text of ours with the key of each action that it names in braces, ``{why}``: what the user
    has to press, as ``[w]``. ``IN_TEXT`` finds it there, to be drawn as a key."""

    def key(match: re.Match[str]) -> str:
        if match[1] not in BY_ID:
            return match[0]
        first = keymap.of(match[1])[0]
        return f"[{'Enter' if first == 'enter' else display(first, glyphs)}]"

    return re.sub(r"\{(\w+)\}", key, text)
