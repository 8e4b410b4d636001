"""Every action of the terminal UI: its id, its label, its keys. Users remap them in ``keys.yaml``
(docs/keys.md).

Single letters, arrows, Enter and Escape only: tmux and terminals eat most control keys.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.keys import Keys, _character_to_key, format_key
from textual.screen import Screen

from narrowdown.engines.nearest import suggestion
from narrowdown.wizard import config
from narrowdown.wizard.flow.load import FlowProblem, load_texts
from narrowdown.wizard.tui.glyphs import Glyphs


class Action(msgspec.Struct, frozen=True):
    """``id`` is also the name of the screen's or app's ``action_<id>`` method. ``keys``: Textual's
    names, joined by commas."""

    id: str
    label: str
    keys: str
    help: str
    shown: bool = True  # in the bottom line
    everywhere: bool = False  # before any focused widget sees the key
    typing: bool = False  # works where one types, so a letter cannot be its key


ACTIONS: tuple[Action, ...] = (
    Action("answer", "answer", "enter", "Give the highlighted answer."),
    Action("go", "run it", "enter", "Run this step."),
    Action(
        "pick", "choose from a list", "f2", "List what fits into the field at hand.", typing=True
    ),
    Action(
        "start", "start", "f5", "Check every field, create the session and open it.", typing=True
    ),
    Action("form_help", "help", "f1", "What the fields mean.", typing=True),
    Action("leave_form", "back", "escape", "Leave the form; what was typed is gone.", typing=True),
    Action("open", "open", "enter", "Open the highlighted session."),
    Action("new", "new", "n", "Start a new session."),
    Action("only", "find", "slash", "Show only the sessions that hold the words that you type."),
    Action("call", "rename", "r", "Give the highlighted session another name.", shown=False),
    Action(
        "remove",
        "delete",
        "D,delete",
        "Delete the highlighted session, after saying what it takes on the disk.",
    ),
    Action("back", "back", "b,escape", "Back to the list of sessions. Never stops work."),
    Action("stop", "stop", "x", "Finish the probe that is running, then stop. Nothing is lost."),
    Action(
        "stop_now",
        "stop now",
        "X",
        "Kill what is running. The session is safe; that probe runs again later.",
    ),
    Action("pause", "pause", "p", "Pause before the next probe, or go on."),
    Action("skip", "skip", "s", "Do not run this step; answer its question from what is known."),
    Action("why", "why", "w", "Why this answer is recommended, and what this step is for."),
    Action("terms", "terms", "t", "The words used here, explained."),
    Action(
        "copy",
        "copy",
        "c",
        "The same by hand: copies the command to the clipboard and to last-command.txt.",
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
        shown=False,
    ),
    Action(
        "probe",
        "look",
        "enter",
        "Look into the highlighted probe: what it tried, what came out, its log.",
    ),
    Action(
        "details",
        "details",
        "d",
        "The whole trace or message of an error, to read and to copy.",
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
        "Is it a known bug, and what else cures it? A new session goes on from what this one has found.",
    ),
    Action("export", "export", "e", "Write everything into one folder or zip to share."),
    Action("keys_help", "help", "question_mark", "What is shown here, and every key."),
    Action(
        "quit_session",
        "quit",
        "q",
        "Leave. Asks only while something runs, and can leave it running.",
    ),
    Action(
        "interrupt",
        "stop",
        "ctrl+c",
        "While a step runs, once: stop after this probe; twice: stop now. Else leave.",
        shown=False,
        everywhere=True,
    ),
    Action(
        "take_over",
        "take over",
        "T",
        "Steer a session that is open in another window from here; that window only looks on then, and can take it back.",
    ),
    Action("retry", "go on", "R", "Start the session's runner again after it died."),
    Action("close", "close", "escape", "Close the card.", shown=False, typing=True),
    Action("follow", "follow", "f", "In the log: go to its end and stay there.", shown=False),
    Action("find", "find", "slash", "In the log: look for words.", shown=False),
    Action("next_match", "next match", "n", "In the log: to the next match.", shown=False),
    Action("match_before", "match before", "N", "In the log: to the match before.", shown=False),
    Action("scroll_up", "scroll up", "pageup", "Scroll the page.", shown=False),
    Action("scroll_down", "scroll down", "pagedown", "Scroll the page.", shown=False),
)
BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}
DIGITS = frozenset("0123456789")
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
        Binding(a.keys, a.id, a.label, show=a.shown, id=a.id, priority=a.everywhere)
        for a in (BY_ID[i] for i in ids)
    ]


def label_on(screen: Screen[Any], action: str, label: str) -> str:
    """What an action is called on a screen now, of which ``label`` is the usual name; "" where it
    can do nothing there."""
    name = getattr(screen, "label_of", None)
    return str(name(action, label)) if name else label


def list_at_work(screen: Screen[Any], glyphs: Glyphs) -> list[tuple[Action, str, DOMNode]]:
    """Each action that works on a screen now, once: with its keys as people read them, and the node
    whose it is."""
    found: dict[str, tuple[list[str], DOMNode]] = {}
    for key, active in screen.active_bindings.items():
        if active.enabled and active.binding.id in BY_ID:
            found.setdefault(active.binding.id, ([], active.node))[0].append(display(key, glyphs))
    called = {name: label_on(screen, name, BY_ID[name].label) for name in found}
    return [
        (msgspec.structs.replace(BY_ID[name], label=called[name]), " ".join(names), node)
        for name, (names, node) in found.items()
        if called[name]
    ]


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


def config_file(environment: Mapping[str, str] | None = None) -> Path:
    """``$XDG_CONFIG_HOME/narrowdown/keys.yaml``."""
    return config.folder(environment) / "keys.yaml"


class Keymap(msgspec.Struct, frozen=True):
    """What a user's file asks for: action id -> keys in Textual's names, the place of each in the
    file (``path:line``), and a sentence for each thing in it that cannot be used."""

    keys: dict[str, str] = {}
    problems: tuple[str, ...] = ()
    places: dict[str, str] = {}

    def of(self, action: str) -> tuple[str, ...]:
        """The keys of an action, the user's or its own. Raises ``KeyError`` for an unknown id."""
        return tuple((self.keys.get(action) or BY_ID[action].keys).split(","))


def read(path: Path) -> Keymap:
    """A user's keys. A file that is missing asks for nothing; one that is broken is said, and the
    default keys stay."""
    if not path.exists():
        return Keymap()
    try:
        data, lines = load_texts(str(path), "keys file", "actions to keys")
    except FlowProblem as problem:
        return Keymap(problems=(f"{problem} The default keys are used.",))
    return chosen(data, {name: f"{path}:{lines.key(name)[0]}" for name in data})


def of_user() -> Keymap:
    """What the user's settings ask for, and over it what their file of keys does. Raises Refusal
    where the settings cannot be read."""
    settings, own = config.load(), read(config_file())
    below = chosen(
        settings.keys, {name: f"{settings.path}:{line}" for name, line in settings.lines.items()}
    )
    return Keymap(
        {**below.keys, **own.keys}, (*below.problems, *own.problems), {**below.places, **own.places}
    )


def chosen(data: Mapping[str, Any], where: Mapping[str, str]) -> Keymap:
    """The keys that a mapping of actions to keys asks for. ``where`` each stands: ``path:line``."""
    keys: dict[str, str] = {}
    places: dict[str, str] = {}
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
            keys[name], places[name] = ",".join(dict.fromkeys(good)), place
        elif not _texts(value):
            problems.append(f"{place}: '{name}' has no key; its default stays.")
    return Keymap(keys, tuple(problems), places)


def clashes(keymap: Keymap, together: Iterable[Sequence[str]]) -> list[str]:
    """A sentence for each key that the user gave to an action while another one of the same screen
    has it. ``together``: ids of actions that work at the same time."""
    found: dict[tuple[str, ...], str] = {}
    for ids in together:
        for mine in (i for i in ids if i in keymap.keys):
            for other in ids:
                for key in set(keymap.of(mine)) & set(keymap.of(other)) if other != mine else ():
                    pair = (key, *sorted((mine, other)))
                    said = f"{keymap.places[mine]}: the key '{format_key(key)}' of '{mine}' is also that of '{other}'; "
                    found.setdefault(pair, said + f"give '{other}' another one, too.")
    return list(found.values())


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
    has to press."""

    def key(match: re.Match[str]) -> str:
        if match[1] not in BY_ID:
            return match[0]
        first = keymap.of(match[1])[0]
        return "Enter" if first == "enter" else display(first, glyphs)

    return re.sub(r"\{(\w+)\}", key, text)
