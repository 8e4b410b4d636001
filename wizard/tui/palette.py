"""The palette (^p): every action of the screen, and what has no key: a picture of the screen,
the theme."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from textual.dom import DOMNode
from textual.screen import Screen

from narrowdown.wizard import config
from narrowdown.wizard.exits import Missing
from narrowdown.wizard.tui import keys, themes
from narrowdown.wizard.tui.screens.overlays import Entry, Pick

if TYPE_CHECKING:  # the application asks for its palette
    from narrowdown.wizard.tui.app import Narrowdown

LOOKS = {
    themes.DARK.name: "Light text on a dark ground.",
    themes.LIGHT.name: "Dark text on a light ground.",
    themes.ANSI.name: "The sixteen colours of your terminal.",
}


class Command(NamedTuple):
    """A line of the palette, and what it does."""

    label: str
    keys: str
    help: str
    run: Callable[[], Any]


def list_commands(host: "Narrowdown", screen: Screen[Any]) -> list[Command]:
    """Every action that works on the screen, once, with its keys; then what has no key."""
    return [
        *(
            Command(
                f"{action.label[:1].upper()}{action.label[1:]}",
                names,
                action.help,
                _do(host, action.id, node),
            )
            for action, names, node in keys.list_at_work(screen, host.glyphs)
            if action.id
            != "interrupt"  # Ctrl-C does what keys do that stand here, so it has no line of its own
        ),
        Command(
            "Screenshot",
            "",
            "Write this screen as a picture (SVG) into the folder that you stand in.",
            lambda: host.deliver_screenshot(path=str(Path.cwd())),
        ),
        Command(
            "Theme", "", "Change the colours; kept in your settings.", lambda: change_theme(host)
        ),
    ]


def _do(host: "Narrowdown", action: str, node: DOMNode) -> Callable[[], Any]:
    return lambda: host.call_next(host.run_action, action, node)


class Palette(Pick):
    """Every action by name. Textual's own palette lists in a thread, at twice to four times the
    cost of any other card."""

    ABOUT = "Everything that works here, by name. Typing leaves the lines that hold what was typed; Enter does it."

    def __init__(self, commands: Sequence[Command]) -> None:
        lines = [Entry(str(n), each.label, each.keys, each.help) for n, each in enumerate(commands)]
        super().__init__("Every action by name", lines)


def open_palette(host: "Narrowdown") -> None:
    """What it lists belongs to the screen below it, which has the keyboard again when a line is
    taken."""
    if isinstance(host.screen, Palette):
        return
    commands = list_commands(host, host.screen)

    def done(taken: str | None) -> None:
        if taken is not None:
            commands[int(taken)].run()

    host.push_screen(Palette(commands), done)


def change_theme(host: "Narrowdown") -> None:
    """Pick one of the themes; it is kept in the user's settings."""

    def keep(theme: str) -> str:
        try:
            place = config.keep_theme(theme)
        except OSError as error:
            raise Missing(str(error.strerror or error)) from None
        hidden = (
            "NO_COLOR"
            if host.no_color
            else "NARROWDOWN_THEME"
            if os.environ.get("NARROWDOWN_THEME")
            else ""
        )
        return f"Kept in {place}.{f' The variable {hidden} goes before it.' if hidden else ''}"

    def picked(name: str | None) -> None:
        if name is None:
            return
        if not host.no_color:  # else the highlighted line is told by the dark theme's ground
            host.theme = name
        failed = "The theme holds until you leave. It could not be kept: "
        host.make_aside(lambda: keep(themes.spoken(name)), host.say, "theme", failed=failed)

    entries = [
        Entry(theme.name, themes.spoken(theme.name), "", LOOKS[theme.name])
        for theme in themes.THEMES
    ]
    host.push_screen(Pick("Theme", entries), picked)
