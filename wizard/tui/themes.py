"""Dark, light, the terminal's own sixteen colours, and none. Blue is good news, orange bad; never
red against green."""

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
        "answer-cursor-style": "none",
    }


DARK = Theme(
    name="narrowdown-dark",
    primary="#6cb2ff",
    secondary="#8fa3bf",
    accent="#6cb2ff",
    warning="#ffa94d",
    error="#ff9447",
    success="#6cb2ff",
    foreground="#e4e7eb",
    background="#14171c",
    surface="#14171c",
    panel="#1f252e",
    dark=True,
    variables={
        "passes": "#6cb2ff", "fails": "#ffa94d", "unsure": "#c3b6ff", "quiet": "#9da7b7", "recommended": "#6cb2ff",
        "block-cursor-background": "#1f3a5c", "block-cursor-foreground": "#ffffff", "block-cursor-text-style": "bold",
        "block-cursor-blurred-background": "#253141", "footer-background": "#1f252e", "footer-key-foreground": "#ffa94d",
        "border": "#6cb2ff", "border-blurred": "#3b4656",
    },
)  # fmt: skip
LIGHT = Theme(
    name="narrowdown-light",
    primary="#0b5cad",
    secondary="#51617a",
    accent="#0b5cad",
    warning="#a84300",
    error="#a84300",
    success="#0b5cad",
    foreground="#1b222c",
    background="#fbfaf7",
    surface="#fbfaf7",
    panel="#ece9e2",
    dark=False,
    variables={
        "passes": "#0b5cad", "fails": "#a84300", "unsure": "#5b3fa8", "quiet": "#556070", "recommended": "#0b5cad",
        "block-cursor-background": "#d9e8f9", "block-cursor-foreground": "#0b1a2b", "block-cursor-text-style": "bold",
        "block-cursor-blurred-background": "#e4e9ef", "footer-background": "#ece9e2", "footer-key-foreground": "#a84300",
        "border": "#0b5cad", "border-blurred": "#b8bec8",
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
        # Reversed, as no ground is known on which each of the sixteen can be read.
        "recommended": "ansi_bright_blue", "block-cursor-background": "ansi_default", "block-cursor-foreground": "ansi_default",
        "block-cursor-text-style": "bold reverse", "answer-cursor-style": "reverse",
        "block-cursor-blurred-background": "ansi_default", "block-cursor-blurred-foreground": "ansi_default",
        "ansi-background": "ansi_default", "ansi-foreground": "ansi_default", "border": "ansi_blue",
        "border-blurred": "ansi_bright_black",
    },
)  # fmt: skip
THEMES = (DARK, LIGHT, ANSI)


def spoken(name: str) -> str:
    """A theme as users say it, in their settings too: dark, light, ansi."""
    return name.removeprefix("narrowdown-")


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


def default(environment: Mapping[str, str] | None = None) -> str:
    """The theme to start with: ``NARROWDOWN_THEME`` (dark, light, ansi), that of the settings, else
    ansi where the terminal has only sixteen. Raises Refusal where the settings cannot be read."""
    wanted = (
        (os.environ if environment is None else environment).get("NARROWDOWN_THEME", "").lower()
    )
    if environment is None:
        environment, wanted = os.environ, wanted or config.load().theme
    for theme in THEMES:
        if wanted in (theme.name, spoken(theme.name)):
            return theme.name
    rich_colour = environment.get("COLORTERM", "") or "256" in environment.get("TERM", "")
    return DARK.name if rich_colour else ANSI.name
