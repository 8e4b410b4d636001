"""What a person must be told of an external checker's answers that the answers themselves do not
show. Pure."""

from collections.abc import Sequence

from narrowdown.engines.probe import Measurement
from narrowdown.wizard.words import listing

ENOUGH = 5  # answers, none of which passes, from which on this is worth a word: a search that finds a culprit meets passes early


def say_missed(answer: Measurement) -> str:
    """That a checker speaks of variables that it was not given; "" where it speaks of none."""
    names = [str(name) for name in answer.facts.get("missed", ())]
    if not names:
        return ""
    return (
        f"The checker speaks of {listing(names)}: set here, but not given to it, as a checker gets a short list of variables. "
        "If it needs that, its answers say nothing about the model: stop, and begin a new session with "
        f"{' '.join(f'--pass-env {name}' for name in names)}."
    )


def never_passed(kinds: Sequence[str]) -> str:
    """That a checker has passed nothing that it was asked about, so that it may fail for a reason
    of its own. ``kinds``: its verdicts on different candidates."""
    if len(kinds) < ENOUGH or "pass" in kinds:
        return ""
    return (
        f"The checker has passed none of the {len(kinds)} parts of the model that it was asked about: it may fail for a reason "
        "of its own, whatever the model. Run it by hand on a model that you trust. It gets a short list of variables of your "
        "environment; --pass-env NAME hands on another one that it needs."
    )
