"""What a step would ask next: its generator run again over the known answers, with verdicts invented for those still
missing.

Pure. It only chooses which probes free slots may start early; a result reaches the step when the step asks for it and
not before, so no decision depends on it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from engines.probe import AnyProbe, Check, Measure, Measurement
from engines.steps.base import Note, Steps

_ASSUMED = (Measurement(assumed="fail"), Measurement(assumed="pass"))


def ahead(
    begin: Callable[[], Steps[Any]],
    told: Sequence[Any],
    known: Callable[[AnyProbe], Any],
    most: int,
    *,
    alone: bool = False,
) -> list[AnyProbe]:
    """At most ``most`` probes that the step may ask after the one it is waiting for, the nearest first.

    ``told``: what the step was sent so far. ``known``: the answer as the step would get it, None where it is not known.
    ``alone``: those that want a device to themselves are meant, and no others; without it, none of these. Probes that are not
    about a candidate are never among them.
    """
    found: list[AnyProbe] = []
    paths: deque[tuple[Any, ...]] = deque((answer,) for answer in _ASSUMED)
    # Each path runs the whole generator again, so their number is bounded.
    for _ in range(2 + 3 * most):
        if not paths or len(found) >= most:
            break
        path = paths.popleft()
        reached = _follow(begin(), (*told, *path), known, alone)
        if reached is None:
            continue
        probe, further = reached
        if probe not in found:
            found.append(probe)
        paths.extend((*path, *further, answer) for answer in _ASSUMED)
    return found


def _follow(
    steps: Steps[Any], answers: Sequence[Any], known: Callable[[AnyProbe], Any], alone: bool
) -> tuple[AnyProbe, tuple[Any, ...]] | None:
    """The first probe after these answers whose own answer is not known, and the answers given on the way to it.

    None where there is none that may be speculated. A step that trips over an invented answer ends its path, whatever
    it raises.
    """
    further: list[Any] = []
    try:
        yielded = next(steps)
        for answer in answers:
            yielded = steps.send(answer)
        while True:
            answer = None
            if not isinstance(yielded, Note):
                if not speculable(yielded, alone=alone):
                    return None
                answer = known(yielded)
                if answer is None:
                    return yielded, tuple(further)
            further.append(answer)
            yielded = steps.send(answer)
    except Exception:  # its own end included
        return None
    finally:
        steps.close()


def speculable(probe: AnyProbe, *, alone: bool = False) -> bool:
    """Whether a probe may be measured before anyone asks for it, among those that must be ``alone`` or those that need not."""
    return isinstance(probe, Measure | Check) and probe.exclusive == alone
