"""What a search is told."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from narrowdown.engines.compare.criterion import Off, Signature
from narrowdown.engines.probe import Measurement, Score

# Reasons that say where the fault is, not that the engine could not run the part.
DIRECTIONAL = ("harmless", "milder", "amplified-downstream", "unrepresentable-input")


NOTHING = Measurement(status="unsupported")  # was measured


class Answer(Off, frozen=True):
    """All that a search may read. ``unknown`` is neither: it never counts as a failure or a pass,
    and ``why`` says in a word what kept it from one.

    ``reach``: the effect in the worst run, 0 where it is
    within what is allowed. ``lost``: what was fed holds values that the engine cannot store.
    ``signature``: what this part's own failure looks like. ``scores``: of what was
    watched, and of nodes side by side.
    ``files``: digests of what was kept. ``choices``: kernels that the build chose, by layer.
    ``measured``: all of it, for whoever tells samples apart; not ok where nothing was. ``probes``:
    how many it took.
    """

    kind: Literal["fails", "passes", "unknown"]
    why: str = ""
    detail: str = ""
    reach: float = 0.0
    lost: bool = False
    signature: Signature | None = None
    scores: Mapping[str, Score] = {}
    files: Mapping[str, str] = {}
    choices: Mapping[str, str] = {}
    measured: Measurement = NOTHING
    probes: int = 0

    @property
    def fails(self) -> bool:
        return self.kind == "fails"

    @property
    def passes(self) -> bool:
        return self.kind == "passes"

    @property
    def clean(self) -> bool:
        """Whether nothing that makes the failure lies in here: it passes, or its error does not
        come to it."""
        return self.passes or self.why in DIRECTIONAL


FAILS, PASSES = Answer("fails"), Answer("passes")


def unknown(why: str, detail: str = "") -> Answer:
    """An answer that cost nothing and says nothing."""
    measured = msgspec.structs.replace(NOTHING, message=detail)
    return Answer("unknown", why, detail, measured=measured)
