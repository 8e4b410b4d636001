"""What compare (node ``reproduce``) finds."""

from typing import Literal

import msgspec

Verdict = Literal[
    "fails", "passes", "refused", "refused-whole", "reference", "noise", "export", "built", "unresolved",
]  # fmt: skip


class CompareOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """compare: the whole model on every sample (node ``reproduce``)."""

    # refused: the engine does not take the model, so nothing is right or wrong; refused-whole: nor any part of it, all for the
    # same reason, so no node is at fault; reference: the reference itself is suspect;
    # noise: rounding moves the outputs as much; export: the model is not what the golden outputs were recorded of; built: it
    # builds and cannot run here
    verdict: Verdict = "unresolved"
    failure: Literal["accuracy", "crash", "build", "check", "none"] = "none"  # how it fails
    error: float | None = None
    tolerance: float = 0.0
    metric: str = "rel_l2"
    precision: str = "fp32"  # that the default tolerance follows from
    error_places: tuple[int, int] = (0, 0)  # where it is of whole numbers, how many of them are wrong, and of how many
    worst_output: str = ""  # the output that is furthest off
    worst_sample: str = ""  # where it is
    margin: float | None = None  # how many times the worst error fits into what is allowed there
    samples: int = 0
    samples_failing: int = 0
    nonfinite: bool = False  # the engine gives infinite or NaN where the reference does not
    emulated_error: float | None = None  # what this precision alone explains
    # whose fault it looks like; keeps-higher: the engine computes more exactly than it claims
    explanation: Literal["engine", "precision", "keeps-higher", "unknown"] = "unknown"
    reference_error: float | None = None  # how far the reference is from a more exact computation
    reference_judge: str = ""  # what computed that, "" = nothing did
    reference_steady: bool = True  # its second run gave the same as its first
    reference_replaced: str = ""  # what stands in for the reference, where two independent engines agree against it
    alike: bool = False  # reference and engine are wrong in the same way
    model_error: float | None = None  # how far the model in FP32 is from the golden outputs
    model_voice: str = ""  # what computed it
    departs: str = ""  # the first recorded inner tensor at which it is off
    departs_node: str = ""  # the node that makes it
    moved_error: float | None = None  # how far one unit in the last place of the inputs or weights moves the outputs
    looks: int = 0  # runs or builds looked at
    failures: int = 0  # of them
    interval_low: float = 0.0
    interval_high: float = 1.0
    more_looks: int = 0  # further runs without a failure that would rule out the next rarer fault at 95 %
    as_built: bool = False  # the engine was built elsewhere and runs as it is
    # of what is refused: nor does the reference run it, so no part of it can be fed and looked at
    no_reference: bool = False
    missed: str = ""  # what so many runs without a failure leave possible
    given: int = 0  # of the samples those that are the user's own
    may_fail: float | None = None  # of a pass: the share of others like these that may be wrong at the most, at 95 %
    near: int = 0  # of a pass on few samples: how many were made near them and tried
    near_failing: int = 0  # of these, how many are wrong
    near_error: float | None = None  # the worst of them
    message: str = ""
