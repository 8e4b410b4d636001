"""What can be switched in an engine: a question is put to the engine with some of it off."""

from collections.abc import Callable

from narrowdown.engines.asking import Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.layers import Ask
from narrowdown.engines.asking.question import Question


def switch_off(
    inquiry: Inquiry, spell: Callable[[frozenset[str]], str], put: Callable[[Inquiry], Ask]
) -> Ask:
    """``spell``: the engine's spec without these; ``put``: who asks one."""

    def ask(question: Question) -> Sub[Answer]:
        return put(inquiry.of(spell(question.off)))(question)

    return ask
