"""An engine that chooses kernels by timing: a build is told which ones to take."""

from collections.abc import Mapping

import msgspec

from narrowdown.engines.asking import Answer, Ask, Question, Sub


def choose_kernels(inner: Ask) -> Ask:
    """Each build tells what it chose, takes what it is told to as far as it can, and is alone on
    the machine, as others would disturb its timing."""

    def ask(question: Question) -> Sub[Answer]:
        return inner(msgspec.structs.replace(question, record=True, exclusive=True))

    return ask


def force_tactics(inner: Ask, tactics: Mapping[str, str]) -> Ask:
    """A guilty tactic is forced wherever its layer is: what came and went with the builds fails
    steadily so. ``tactics``: the choice that a build must make, by layer."""

    def ask(question: Question) -> Sub[Answer]:
        if question.reference or question.fed is not None:  # that is the model as it is built
            return inner(question)
        return inner(msgspec.structs.replace(question, choose=tactics))

    return ask
