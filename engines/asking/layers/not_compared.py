"""Where no outputs are compared (a crash, a refusal, an external check), what only they can tell is
not asked."""

from narrowdown.engines.asking import Sub
from narrowdown.engines.asking.answer import PASSES, Answer, unknown
from narrowdown.engines.asking.layers import Ask
from narrowdown.engines.asking.question import Question


def compare_nothing(inner: Ask) -> Ask:
    def ask(question: Question) -> Sub[Answer]:
        if question.reference and not question.watch and question.fed is None:
            return PASSES
        if question.alone or question.edits or question.feed == "exact":
            return unknown("unsupported", "no outputs are compared")
        return (yield from inner(question))

    return ask
