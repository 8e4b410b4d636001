"""An error that grows from step to step: through which of the carried inputs?"""

from collections.abc import Mapping

from narrowdown.engines.asking import Sub
from narrowdown.engines.asking.whole_model import WholeModel

# Carried inputs that are tried: a decoder of 12 layers has 24, and where its error is in each of
# them none of the first says anything else than the others.
MOST = 12


def find_carrier(model: WholeModel, sample: str, carried: Mapping[str, str]) -> Sub[str]:
    """The one input with which the loop is right once the reference's value is put back in each
    step; "" where there is none."""
    for name in list(carried)[:MOST] if len(carried) > 1 else ():
        note = f"and with the reference's '{name}' put back in each step?"
        off = yield from model.compare(samples=(sample,), held=(name,), note=note)
        if off.told and not off.exceeds:
            return name
    return next(iter(carried)) if len(carried) == 1 else ""
