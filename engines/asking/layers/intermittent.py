"""A fault that comes and goes: between the runs of one build, or between builds."""

import msgspec

from narrowdown.engines.asking import PASSES, Answer, Ask, Question, Sub


def run_repeatedly(inner: Ask, runs: int) -> Ask:
    """Each build is run so many times, alone on the machine, and the worst run decides. ``runs``:
    as many as show the fault by the rate that was seen. The reference is steady."""

    def ask(question: Question) -> Sub[Answer]:
        each = question.fed.runs if question.fed is not None else 0
        if question.reference and not each:
            return inner(question)
        each = each or runs
        alone = each > 1 and not question.reference
        return inner(msgspec.structs.replace(question, runs=each, exclusive=alone))

    return ask


def build_afresh(inner: Ask, builds: int) -> Ask:
    """A question is put to several fresh builds. The first that fails decides; else the first that
    was no answer, as a failure may hide there; else the last."""

    def ask(question: Question) -> Sub[Answer]:
        if question.build is not None or question.reference:
            return (yield from inner(question))
        chosen = PASSES
        probes = 0
        for build in range(builds):
            answer = yield from inner(msgspec.structs.replace(question, build=build))
            probes += answer.probes
            if answer.fails or chosen.passes:
                chosen = answer
            if answer.fails:
                break
        return msgspec.structs.replace(chosen, probes=probes)

    return ask
