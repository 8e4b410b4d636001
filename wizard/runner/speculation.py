"""What a step would ask next: its generator run again over the known answers, with verdicts
invented for those still missing.

It only chooses which probes free slots may start early; a result reaches the step when the step
asks for it and not before, so no decision depends on it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from narrowdown.engines.asking import Note
from narrowdown.engines.probe import AnyProbe, Check, Measure, Measurement
from narrowdown.engines.steps.base import Steps

_Verdict: TypeAlias = Literal["fail", "pass"]
_ASSUMED: dict[_Verdict, Measurement] = {
    "fail": Measurement(assumed="fail"),
    "pass": Measurement(assumed="pass"),
}


class _Place:
    """Where a step stands after some answers, the last of them to a probe; ``probe`` is what it
    asks there, None where it has ended. ``after``: the places that follow on an invented verdict,
    or on the true answer."""

    __slots__ = ("after", "answers", "probe", "steps")

    def __init__(self, answers: tuple[Any, ...], probe: Any, steps: Steps[Any] | None) -> None:
        self.answers, self.probe, self.steps = answers, probe, steps
        self.after: dict[_Verdict | Literal["true"], _Place] = {}


class Foresight:
    """One run of a step, seen from ahead. What it asks after certain answers never changes, so each
    place is reached once."""

    def __init__(self, begin: Callable[[], Steps[Any]]) -> None:
        self._begin = begin
        self._here = _Place((), None, None)

    def ahead(
        self,
        told: Sequence[Any],
        known: Callable[[AnyProbe], Any],
        most: int,
        *,
        alone: bool = False,
    ) -> list[AnyProbe]:
        """At most ``most`` probes that the step may ask after the one it is waiting for, the
        nearest first.

        ``told``: what the step was sent so far; from call to call it only grows. ``known``: the
        answer as the step would get it, None where it is not known. ``alone``: those that want a
        device to themselves are meant, and no others; without it, none of these. Probes that are
        not about a candidate are never among them.
        """
        found: list[AnyProbe] = []
        here = self._stand(told)
        paths: deque[tuple[_Place, _Verdict]] = deque((here, verdict) for verdict in _ASSUMED)
        # The tree of verdicts doubles with each level, so the number of places that are looked at
        # is bounded.
        for _ in range(2 + 3 * most):
            if not paths or len(found) >= most:
                break
            reached = self._open_end(*paths.popleft(), known, alone)
            if reached is None:
                continue
            if reached.probe not in found:
                found.append(reached.probe)
            paths.extend((reached, verdict) for verdict in _ASSUMED)
        return found

    def _stand(self, told: Sequence[Any]) -> _Place:
        """The place that the step has come to. Where its answer was foreseen, so was what
        follows."""
        here: _Place | None = self._here
        while here is not None and len(here.answers) < len(told):
            here = here.after.get("true")
        if here is None or len(here.answers) != len(told) or here.answers != tuple(told):
            here = _Place(tuple(told), None, None)
        self._here = here
        return here

    def _open_end(
        self, place: _Place, verdict: _Verdict, known: Callable[[AnyProbe], Any], alone: bool
    ) -> _Place | None:
        """The first place after this verdict whose probe has no known answer; None where there is
        none that may be speculated."""
        place = self._after(place, verdict, _ASSUMED[verdict])
        while place.probe is not None and speculable(place.probe, alone=alone):
            if (further := place.after.get("true")) is None:
                try:
                    answer = known(place.probe)
                except Exception:  # an engine that was never looked at
                    return None
                if answer is None:
                    return place
                further = self._after(place, "true", answer)
            place = further
        return None

    def _after(self, place: _Place, how: _Verdict | Literal["true"], answer: Any) -> _Place:
        """The place after an answer. A step that trips over an invented one ends there, whatever it
        raises."""
        if how not in place.after:
            steps, place.steps = place.steps, None
            answers = (*place.answers, answer)
            try:
                if steps is None:
                    steps = self._begin()
                    yielded = next(steps)
                    for given in answers:
                        yielded = steps.send(given)
                else:
                    yielded = steps.send(answer)
                while isinstance(yielded, Note):
                    answers = (*answers, None)
                    yielded = steps.send(None)
            except Exception:  # its own end included
                yielded = None
            place.after[how] = _Place(answers, yielded, steps if yielded is not None else None)
        return place.after[how]


def speculable(probe: AnyProbe, *, alone: bool = False) -> bool:
    """Whether a probe may be measured before anyone asks for it, among those that must be ``alone``
    or those that need not."""
    return isinstance(probe, Measure | Check) and probe.exclusive == alone
