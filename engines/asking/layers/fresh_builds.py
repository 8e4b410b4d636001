"""A fault that comes and goes between builds: a question is put to several fresh ones."""

import msgspec

from narrowdown.engines.asking import Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.layers import Ask
from narrowdown.engines.asking.question import Question


def build_afresh(inner: Ask, builds: int) -> Ask:
    """The first build that fails decides; else the first that was no answer, as a failure may hide
    there; else the last."""

    def ask(question: Question) -> Sub[Answer]:
        if question.build is not None or question.reference:
            return (yield from inner(question))
        chosen: Answer | None = None
        probes = 0
        for build in range(builds):
            answer = yield from inner(msgspec.structs.replace(question, build=build))
            probes += answer.probes
            if answer.fails or chosen is None or chosen.passes:
                chosen = answer
            if answer.fails:
                break
        assert chosen is not None
        return msgspec.structs.replace(chosen, probes=probes)

    return ask
