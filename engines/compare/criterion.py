"""When a measurement counts as failing: criterion, signature, verdict. Plain data; the rule itself
is ``judge.py``."""

from typing import Any, Literal

import msgspec

from narrowdown.engines.probe import HUGE

Metric = Literal[
    "rel_l2", "rel_max", "max_abs", "max_rel", "cosine", "sqnr_db", "ulp", "mismatched",
    "top1", "top5", "kl", "perplexity", "psnr_db", "iou",
    "elementwise",
]  # fmt: skip
METRICS: tuple[str, ...] = Metric.__args__  # type: ignore[attr-defined]

# Metrics of answers (``engines.probe.Answer``), which only the model's own outputs give.
ANSWERS: tuple[str, ...] = ("top1", "top5", "kl", "perplexity", "psnr_db", "iou")

# Relative L2 that a precision may cost before it counts as wrong, by the precision the engine
# computes in. Source: design notes, measured on real models; an absolute 1e-5 would fail FP16 and
# TF32 by design.
TOLERANCE_BY_PRECISION: dict[str, float] = {
    "fp64": 1e-4, "fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2, "fp8": 1e-1, "int8": 1e-1,
    "int16": 4e-4,  # what INT8 may cost, and steps 256 times finer
}  # fmt: skip

OF_CODES = ("int8", "int16", "fp8")  # of these, precisions of a model that is quantized itself


class Criterion(msgspec.Struct, frozen=True, omit_defaults=True):
    """How scores are turned into pass or fail. Changing it needs no new run.

    ``tolerance`` bounds the metric's *badness* (``score.badness``): for cosine and iou that is what
    lacks to 1; for ``sqnr_db`` and ``psnr_db`` the tolerance is the least in dB. ``elementwise`` is
    Polygraphy's rule (an element fails when it is over ``atol`` and over ``rtol``); it is chosen
    when ``--atol`` or ``--rtol`` is given. Per-output values override.
    """

    metric: Metric = "rel_l2"
    tolerance: float = 1e-4
    tolerances: dict[str, float] = {}
    atol: float = 1e-5
    atols: dict[str, float] = {}
    rtol: float = 1e-5
    rtols: dict[str, float] = {}
    precision: str = "fp32"  # what the default tolerance came from
    source: Literal["default", "user"] = "default"
    # external checker (--check): Polygraphy's rules
    fail_regex: tuple[str, ...] = ()
    fail_codes: tuple[int, ...] = ()
    ignore_fail_codes: tuple[int, ...] = ()


def for_parts(criterion: Criterion) -> Criterion:
    """The criterion for what gives no answers, the outputs of a part: in the place of a metric of
    answers rel_l2, with what the precision may cost."""
    if criterion.metric not in ANSWERS:
        return criterion
    usual = TOLERANCE_BY_PRECISION.get(criterion.precision, TOLERANCE_BY_PRECISION["fp32"])
    return msgspec.structs.replace(criterion, metric="rel_l2", tolerance=usual, tolerances={})


def tighten_criterion(criterion: Criterion, factor: float) -> Criterion:
    """The criterion with every tolerance divided by ``factor``; the least SQNR and PSNR stay as
    they are."""
    if criterion.metric in ("sqnr_db", "psnr_db"):
        return criterion
    return msgspec.structs.replace(
        criterion,
        tolerance=criterion.tolerance / factor,
        tolerances={k: v / factor for k, v in criterion.tolerances.items()},
        atol=criterion.atol / factor,
        rtol=criterion.rtol / factor,
        atols={k: v / factor for k, v in criterion.atols.items()},
        rtols={k: v / factor for k, v in criterion.rtols.items()},
    )


class Signature(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the failure looks like on the model's own outputs; everything the search finds must fail
    like this.

    ``outputs`` are names of the model's own outputs that fail; ``errors`` their badness e0 on
    ``sample``.
    """

    kind: Literal["accuracy", "crash", "build", "check"]
    sample: str
    outputs: tuple[str, ...] = ()
    errors: dict[str, float] = {}
    nonfinite: bool = False  # values that are finite in the reference and are not in the engine
    metric: str = "rel_l2"
    tolerance: float = 0.0
    failures: int = 1
    looks: int = 1
    places: tuple[int, int] = (
        0,
        0,
    )  # of the worst output, where it is whole numbers: those that are wrong, and all
    refusal: tuple[
        str, ...
    ] = ()  # of a model that is refused: the words that say why (``engines.compare.refusal``)

    @property
    def error(self) -> float:
        """e0: the worst badness."""
        return max(self.errors.values(), default=HUGE if self.nonfinite else 0.0)

    @property
    def rate(self) -> str:
        """In how many runs of one build it was seen (``3 of 20``); "" where one was looked at."""
        return f"{self.failures} of {self.looks}" if self.looks > 1 else ""


Reason = Literal[
    "", "crash", "timeout", "out-of-memory", "build-failed", "invalid-model", "unsupported", "refused", "reference-failed",
    "check-died", "harmless", "milder", "amplified-downstream", "unrepresentable-input", "different-outputs", "varies",
    "refused-otherwise", "error",
]  # fmt: skip


class Off(msgspec.Struct, frozen=True, kw_only=True):
    """How far a part of the model is off. ``own``: badness of the part's own outputs; ``effect``:
    badness of the model's outputs when those values are put into the reference run; None where not
    measured: nothing was compared (a crash, a refusal, an external check)."""

    own: float | None = None
    effect: float | None = None
    own_places: tuple[int, int] = (0, 0)  # of whole numbers, those that are wrong and all
    effect_places: tuple[int, int] = (0, 0)  # the same of the model's outputs

    @property
    def off(self) -> dict[str, Any]:
        """These four by name, for another struct that has them."""
        return {name: getattr(self, name) for name in Off.__struct_fields__}


class Verdict(Off, frozen=True, omit_defaults=True):
    """One of three answers."""

    kind: Literal["pass", "fail", "unresolved"]
    reason: Reason = ""
    detail: str = ""

    @property
    def failed(self) -> bool:
        return self.kind == "fail"

    @property
    def passed(self) -> bool:
        return self.kind == "pass"
