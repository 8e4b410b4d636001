"""A construction a little otherwise: how the trigger of a known bug is stated. Pure."""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from narrowdown.engines.known.entry import Construction, MadeTensor, Stated
from narrowdown.engines.known.varied import ABSENT, retype, with_attribute, with_tensor

# ``opset``; ``type``: of every tensor that has the first input's; ``NAME.shape``, ``.range``,
# ``.values``, ``.special`` of an input or weight; ``NUMBER.ATTRIBUTE`` of a node, ABSENT: left out.
Variant: TypeAlias = Mapping[str, Stated]
_FIELDS: Final = ("shape", "range", "values", "special")


def vary_declared(made: Construction, variant: Variant) -> Construction:
    """The declaration with these changes. Raises ``ValueError`` for what it does not have."""
    for key, stated in variant.items():
        made = _change(made, key, stated)
    return made


def _change(made: Construction, key: str, stated: Stated) -> Construction:
    of, _, what = key.rpartition(".")
    if key == "opset" and isinstance(stated, int):
        return msgspec.structs.replace(made, opset=stated)
    if key == "type" and made.inputs:
        return retype(made, next(iter(made.inputs.values())).dtype, str(stated))
    if of.isdigit() and int(of) < len(made.nodes):
        return with_attribute(made, int(of), what, stated)
    if what not in _FIELDS:
        raise ValueError(f"'{key}' is nothing that can be changed")
    return with_tensor(made, of, lambda tensor: _with(tensor, what, stated))


def _with(tensor: MadeTensor, what: str, stated: Stated) -> MadeTensor:
    """The tensor, held to what a declaration may be. Raises ``ValueError``."""
    try:
        return msgspec.convert({**msgspec.to_builtins(tensor), what: stated}, MadeTensor)
    except msgspec.ValidationError as problem:
        raise ValueError(str(problem)) from None


def say_variant(made: Construction, variant: Variant) -> str:
    """What is changed, in words."""
    said = []
    for key, stated in variant.items():
        of, _, what = key.rpartition(".")
        name = f"{made.nodes[int(of)].op} {what}" if of.isdigit() else key
        said.append(f"{name} {stated}" if stated == ABSENT else f"{name} = {stated}")
    return ", ".join(said)
