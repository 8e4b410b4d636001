"""An engine that chooses kernels by timing: each build tells what it chose, takes what it is told to
as far as it can, and is alone on the machine, as others would disturb its timing."""

import msgspec

from narrowdown.engines.asking import Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.layers import Ask
from narrowdown.engines.asking.question import Question


def choose_kernels(inner: Ask) -> Ask:
    def ask(question: Question) -> Sub[Answer]:
        how = msgspec.structs.replace(
            question.how,
            force=tuple(question.choose.items()),
            forbid=tuple(question.avoid.items()),
            record=True,
            exclusive=True,
        )
        return inner(msgspec.structs.replace(question, how=how))

    return ask
