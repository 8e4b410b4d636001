"""What a list calls a session's model, and the step that the session has reached."""

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from narrowdown.wizard.flow.load import load, shipped
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session.folder import EXPORT

GENERIC = frozenset(
    {
        "model",
        "net",
        "network",
        "best",
        "last",
        "latest",
        "final",
        "export",
        "inference",
        "encoder",
        "decoder",
    }
)


def telling_name(model: str, shared: Collection[str]) -> str:
    """A model's file by a name that tells: with its folder, where the file's own name is one that
    any model may have, or one that other models have (``shared``). The folder of an export says
    nothing."""
    folder, _, name = model.rpartition("/")
    parent = folder.rpartition("/")[2]
    plain = name.rpartition(".")[0].lower() in GENERIC or name in shared
    return f"{parent}/{name}" if plain and parent not in ("", EXPORT) else name or "?"


def shared_names(models: Iterable[str]) -> frozenset[str]:
    """File names that several of these models have."""
    names = Counter(model.rpartition("/")[2] for model in set(models))
    return frozenset(name for name, number in names.items() if number > 1)


@functools.cache
def titles() -> Mapping[str, str]:
    """Titles of the steps of all shipped flows, by id; where two flows share an id, the usual
    flow's. Slow the first time."""
    found: dict[str, str] = {}
    usual = Problem(model="").flow
    for name in sorted(shipped(), key=lambda name: name == usual):
        found |= {id_: node.title for id_, node in load(name).flow.nodes.items()}
    return found
