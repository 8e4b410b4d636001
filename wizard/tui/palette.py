"""The palette finds what works now by plain words: those of the action, of its help, and others that
people say."""

from collections.abc import Callable
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.literal import UNICODE
from narrowdown.wizard.tui.widgets.lines import draw_keys

ASIDE = frozenset({"go", "answer", "open", "close", "scroll_up", "scroll_down", "interrupt"})


def match(query: str, action: keys.Action) -> float:
    """How well an action fits what was typed: every word of it must begin one of the action's. More
    where the label itself has them; 0 where one is missing."""
    typed = query.lower().split()
    for score, text in (
        (1.0, action.label),
        (0.8, f"{action.label} {action.words}"),
        (0.5, f"{action.label} {action.words} {action.help}"),
    ):
        words = text.lower().replace(",", " ").replace(":", " ").replace(".", " ").split()
        if all(any(word.startswith(part) for word in words) for part in typed):
            return score
    return 0.0


class Actions(Provider):
    """What has a key on the screen from which the palette was opened."""

    def _found(self) -> list[tuple[keys.Action, Content, Callable[[], object]]]:
        glyphs = getattr(self.app, "glyphs", UNICODE)
        at_work = keys.list_at_work(self.screen, glyphs)
        active = {a.binding.id: a for a in self.screen.active_bindings.values() if a.enabled}
        return [
            (
                action,
                draw_keys(Content(f"{action.label}  [{shown}]")),
                partial(
                    self.app.run_action, active[action.id].binding.action, active[action.id].node
                ),
            )
            for action, shown in at_work
            if action.id not in ASIDE
        ]

    async def discover(self) -> Hits:
        """All of them, before anything is typed."""
        for action, shown, do in self._found():
            yield DiscoveryHit(shown, do, text=action.label, help=action.help)

    async def search(self, query: str) -> Hits:
        """Those that fit."""
        for action, shown, do in self._found():
            if score := match(query, action):
                yield Hit(score, shown, do, text=action.label, help=action.help)
