"""A module a mode: each makes of one way to ask another one. None knows of the others."""

from collections.abc import Callable
from typing import TypeAlias

from narrowdown.engines.asking import Answer, Question, Sub

Ask: TypeAlias = Callable[[Question], Sub[Answer]]
