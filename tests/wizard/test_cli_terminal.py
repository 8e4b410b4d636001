"""Which terminals get screens."""

import pytest

from wizard.cli import terminal


@pytest.mark.parametrize("name", ["xterm-256color", "screen", "tmux-256color", "linux", "vt100"])
def test_terminals_that_draw(name: str) -> None:
    assert terminal.draws({"TERM": name})
    assert terminal.excuse({"TERM": name}) == ""


@pytest.mark.parametrize("environment", [{}, {"TERM": ""}, {"TERM": "dumb"}, {"TERM": "unknown"}])
def test_terminals_that_do_not(environment: dict[str, str]) -> None:
    assert not terminal.draws(environment)
    said = terminal.excuse(environment)
    assert "plain text" in said
    assert (environment.get("TERM") or "not set") in said
