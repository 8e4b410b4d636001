"""Dark, light, the terminal's own sixteen colours, and none. Blue passes, orange fails, never red
against green. A verdict has a colour of its own: green is fixed, amber a case without a fix."""

import functools
import os
from collections.abc import Mapping

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme

from narrowdown.wizard import config


def words(theme: Theme) -> dict[str, str]:
    """Colours of the words of state (``$fails`` and so on), and the style of the highlighted
    answer, under a theme that does not know them: one of Textual's own."""
    known = theme.to_color_system().generate()
    return {
        "passes": known["primary"],
        "fails": known["warning"],
        "unsure": known["secondary"],
        "quiet": known.get("foreground-muted", known["foreground"]),
        "recommended": known["primary"],
        "fixed": known["success"],
        "case": known["warning"],
        "answer-cursor-style": "none",
    }


def scrollbars(bar: str, ground: str) -> dict[str, str]:
    """One colour for a bar and one for what it runs on, whatever the mouse does."""
    states = ("", "-hover", "-active")
    grounds = {f"scrollbar-background{state}": ground for state in states}
    bars = {f"scrollbar{state}": bar for state in states}
    return {**bars, **grounds, "scrollbar-corner-color": ground}


# Each colour is one of the 240 that a terminal of 256 has, or a grey within a step of one: a terminal
# without true colour shows the same theme, and no pink in place of a pale grey.
DARK = Theme(
    name="narrowdown-dark",
    primary="#5fafff",
    secondary="#87afd7",
    accent="#5fafff",
    warning="#ffaf5f",
    error="#ffaf5f",
    success="#5fafff",
    foreground="#e4e4e4",
    background="#1c1c1c",
    surface="#1c1c1c",
    panel="#303030",
    dark=True,
    variables={
        "passes": "#5fafff", "fails": "#ffaf5f", "unsure": "#afafff", "quiet": "#a8a8a8", "recommended": "#5fafff",
        "fixed": "#5fd787", "case": "#ffaf00",
        "block-cursor-background": "#000087", "block-cursor-foreground": "#ffffff", "block-cursor-text-style": "bold",
        "block-cursor-blurred-background": "#303030", "footer-background": "#303030", "footer-key-foreground": "#ffaf5f",
        "border": "#5fafff", "border-blurred": "#585858", "input-selection-background": "#000087",
        "button-color-foreground": "#1c1c1c",
        **scrollbars("#585858", "#1c1c1c"),
    },
)  # fmt: skip
LIGHT = Theme(
    name="narrowdown-light",
    primary="#005faf",
    secondary="#5f5f87",
    accent="#005faf",
    warning="#875f00",
    error="#875f00",
    success="#005faf",
    foreground="#121212",
    background="#ffffff",
    surface="#ffffff",
    panel="#f2f2f2",
    dark=False,
    variables={
        "passes": "#005faf", "fails": "#875f00", "unsure": "#5f00af", "quiet": "#585858", "recommended": "#005faf",
        "fixed": "#005f00", "case": "#875f00",
        "block-cursor-background": "#d7ffff", "block-cursor-foreground": "#000000", "block-cursor-text-style": "bold",
        "block-cursor-blurred-background": "#f2f2f2", "footer-background": "#f2f2f2", "footer-key-foreground": "#875f00",
        "border": "#005faf", "border-blurred": "#a8a8a8", "input-selection-background": "#d7ffff",
        "button-color-foreground": "#ffffff",
        **scrollbars("#a8a8a8", "#ffffff"),
    },
)  # fmt: skip
ANSI = Theme(
    name="narrowdown-ansi",
    ansi=True,
    primary="ansi_blue",
    secondary="ansi_cyan",
    accent="ansi_blue",
    warning="ansi_yellow",
    error="ansi_yellow",
    success="ansi_blue",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    variables={
        "passes": "ansi_bright_blue", "fails": "ansi_yellow", "unsure": "ansi_magenta", "quiet": "ansi_default",
        "fixed": "ansi_green", "case": "ansi_yellow",
        # Reversed, as no ground is known on which each of the sixteen can be read.
        "recommended": "ansi_bright_blue", "block-cursor-background": "ansi_default", "block-cursor-foreground": "ansi_default",
        "block-cursor-text-style": "bold reverse", "answer-cursor-style": "reverse",
        "block-cursor-blurred-background": "ansi_default", "block-cursor-blurred-foreground": "ansi_default",
        "ansi-background": "ansi_default", "ansi-foreground": "ansi_default", "border": "ansi_blue",
        "border-blurred": "ansi_bright_black",
    },
)  # fmt: skip
THEMES = (DARK, LIGHT, ANSI)


class NoColour(LineFilter):
    """What ``NO_COLOR`` asks for: the terminal's own two colours. What only a background would
    mark, the highlighted line, is reversed; bold, underlined and reversed text stays."""

    def __init__(self, cursor: str) -> None:
        """``cursor``: the background of the highlighted line."""
        super().__init__()
        self._cursor = Color.parse(cursor).rich_color

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 (Textual's)
        """The same text without colours."""
        return [
            Segment(text, style and _colourless(style, style.bgcolor == self._cursor), control)
            for text, style, control in segments
        ]


@functools.lru_cache(maxsize=1024)
def _colourless(style: Style, marked: bool) -> Style:
    plain = Style.from_meta(style.meta) + Style(link=style.link)
    return plain + Style(
        bold=style.bold,
        italic=style.italic,
        underline=style.underline,
        reverse=style.reverse or marked,
        dim=style.dim,
    )


def default(environment: Mapping[str, str] = os.environ) -> str:
    """The theme to start with: ``NARROWDOWN_THEME`` (dark, light, ansi), that of the settings, else
    ansi where the terminal has only sixteen. Raises Refusal where the settings cannot be read."""
    wanted = environment.get("NARROWDOWN_THEME", "").lower()
    if environment is os.environ:
        wanted = wanted or config.load().theme
    for theme in THEMES:
        if wanted in (theme.name, theme.name.removeprefix("narrowdown-")):
            return theme.name
    rich_colour = environment.get("COLORTERM", "") or "256" in environment.get("TERM", "")
    return DARK.name if rich_colour else ANSI.name
