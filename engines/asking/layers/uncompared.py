"""A failure in which no outputs are compared: a crash, a refusal, an external check."""

import msgspec

from narrowdown.engines.asking import PASSES, Answer, Ask, Question, Sub, unknown


def compare_nothing(inner: Ask) -> Ask:
    """What only outputs can tell is not asked."""

    def ask(question: Question) -> Sub[Answer]:
        if question.reference and not question.watch and question.fed is None:
            return PASSES
        if question.alone or question.edits or question.feed == "exact":
            return unknown("unsupported", "no outputs are compared")
        return (yield from inner(question))

    return ask


def only_build(inner: Ask) -> Ask:
    """What does not build is asked to be built, nothing more: so it is reduced also where nothing
    can run it."""

    def ask(question: Question) -> Sub[Answer]:
        if question.part is not None and question.watch:
            return unknown("unsupported", "what does not build has no values")
        if question.fed is not None:
            return (yield from inner(question))
        return (yield from inner(msgspec.structs.replace(question, runs=0)))

    return ask
