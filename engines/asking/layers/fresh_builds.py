"""A fault that comes and goes between builds: a question is put to several fresh ones."""

from collections.abc import Callable

import msgspec

from narrowdown.engines.asking import Sub, asked
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.layers import Ask
from narrowdown.engines.asking.question import Question
from narrowdown.engines.compare.criterion import Verdict
from narrowdown.engines.probe import Check, Measure, Measurement


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


def ask_fresh_builds(
    builds: int,
    question: Callable[[int], Measure | Check],
    judged: Callable[[Measurement], Verdict],
) -> Sub[Measurement]:
    """The same for rooms that put probes themselves. ``question``: the probe of an attempt, from 0
    on."""
    unresolved: Measurement | None = None
    for attempt in range(builds):
        m = yield from asked(question(attempt))
        verdict = judged(m)
        if verdict.failed:
            return m
        unresolved = unresolved or (None if verdict.passed else m)
    return unresolved or m
