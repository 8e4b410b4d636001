"""A fault that comes and goes between the runs of one build: each build is run so many times, alone
on the machine, and the worst run decides."""

import msgspec

from narrowdown.engines.asking import Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.layers import Ask
from narrowdown.engines.asking.question import Question


def run_repeatedly(inner: Ask, runs: int) -> Ask:
    """``runs``: as many as show the fault by the rate that was seen. The reference is steady."""

    def ask(question: Question) -> Sub[Answer]:
        each = question.fed.runs if question.fed is not None else 0
        if question.reference and not each:
            return inner(question)
        each = each or runs
        alone = each > 1 and not question.reference
        how = msgspec.structs.replace(question.how, runs=each, exclusive=alone)
        return inner(msgspec.structs.replace(question, how=how))

    return ask
