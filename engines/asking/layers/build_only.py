"""What does not build is asked to be built, nothing more: so it is reduced also where nothing can
run it."""

import msgspec

from narrowdown.engines.asking import Sub
from narrowdown.engines.asking.answer import Answer, unknown
from narrowdown.engines.asking.layers import Ask
from narrowdown.engines.asking.question import Question


def only_build(inner: Ask) -> Ask:
    def ask(question: Question) -> Sub[Answer]:
        if question.part is not None and question.watch:
            return unknown("unsupported", "what does not build has no values")
        if question.fed is not None:
            return (yield from inner(question))
        how = msgspec.structs.replace(question.how, runs=0)
        return (yield from inner(msgspec.structs.replace(question, how=how)))

    return ask
