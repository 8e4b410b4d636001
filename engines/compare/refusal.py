"""Why an engine refuses a model, as the words of its message: of a part it says words that it said
of the whole.

Names and numbers are left out, as a part has others: what is quoted, what is the name of a node or
tensor of the model, and whatever holds a digit or a sign that names and places in source code have.
Names of operators are words: an engine that lacks Reshape and one that lacks Squeeze refuse for two
reasons, however alike they phrase it.
"""

import re
from collections.abc import Collection

_QUOTED = re.compile(r"(?<!\w)'[^']*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|\{[^}]*\}")
_EDGES = ".,;:!?()<>=+-*"  # around a word
_PLAIN = re.compile(r"[a-z][a-z'-]+")  # two letters at least: single ones are names


def words(message: str, names: Collection[str] = ()) -> tuple[str, ...]:
    """The words of an engine's message that say why, sorted, each once. ``names``: those of the
    model's nodes and tensors."""
    bare = (word.strip(_EDGES) for word in _QUOTED.sub(" ", message).split())
    return tuple(
        sorted(
            {word.lower() for word in bare if word not in names and _PLAIN.fullmatch(word.lower())}
        )
    )


def is_same(first: Collection[str], part: Collection[str]) -> bool:
    """Whether a part is refused for the reason that was given for the whole. Of several reasons a
    part may have one. Where one of the messages holds no words they are not told apart."""
    return not first or not part or set(part) <= set(first)
