"""A module a mode: each makes of one way to ask another one. None knows of the others."""

from collections.abc import Callable
from typing import TypeAlias

from narrowdown.engines.asking import Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.question import Question

Ask: TypeAlias = Callable[[Question], Sub[Answer]]
