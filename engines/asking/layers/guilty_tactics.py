"""A guilty tactic is forced wherever its layer is: what came and went with the builds fails steadily
so."""

from collections.abc import Mapping

import msgspec

from narrowdown.engines.asking import Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.layers import Ask
from narrowdown.engines.asking.question import Question


def force_tactics(inner: Ask, tactics: Mapping[str, str]) -> Ask:
    """``tactics``: the choice that a build must make, by layer."""

    def ask(question: Question) -> Sub[Answer]:
        if question.reference or question.fed is not None:  # that is the model as it is built
            return inner(question)
        how = msgspec.structs.replace(question.how, force=tuple(tactics.items()))
        return inner(msgspec.structs.replace(question, how=how))

    return ask
