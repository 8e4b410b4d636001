"""``narrowdown replay`` as text."""

import pytest

from narrowdown.wizard.cli import replay
from narrowdown.wizard.runner.replay import Row


def test_what_a_step_of_somebody_else_is_called_is_shown_literally(
    capsys: pytest.CaptureFixture[str],
) -> None:
    replay._Printing().row(
        Row("node\x1b[31m", 2, "step confirm\x1b[31m\u202e", "\x1b", "\x1b", "same", "\x1b")
    )
    assert "\x1b" not in (said := capsys.readouterr().out)
    assert "\u202e" not in said
    assert r"step confirm\x1b[31m" in said
