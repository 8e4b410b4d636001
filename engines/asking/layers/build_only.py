"""What does not build is asked to be built, nothing more: so it is reduced also where nothing can
run it."""

import msgspec

from narrowdown.engines.asking import Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.layers import Ask
from narrowdown.engines.asking.question import Question


def only_build(inner: Ask) -> Ask:
    def ask(question: Question) -> Sub[Answer]:
        if question.fed is not None:
            return inner(question)
        how = msgspec.structs.replace(question.how, runs=0)
        return inner(msgspec.structs.replace(question, how=how))

    return ask
