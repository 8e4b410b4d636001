"""The criterion of a session: what the user said, else what the engine's precision may cost."""

import math

from narrowdown.engines.compare.judge import ANSWERS, METRICS, TOLERANCE_BY_PRECISION, Criterion
from narrowdown.engines.problem import Problem

# Units in the last place that the order of a long sum may cost; there is no such number that fits
# every model.
ULPS = 256.0
# What answers may differ by, whatever the precision: they are what the model is for. No name may
# change unless the user allows it; the others are where people begin to see a difference, by
# convention.
ANSWER_TOLERANCE = {"top1": 0.0, "top5": 0.0, "kl": 0.01, "perplexity": 0.01, "iou": 0.05}


def read_bound(text: str) -> float:
    """A bound as people write it: ``0.01``, or ``1%``. Raises ``ValueError``."""
    number, percent, rest = text.partition("%")
    if rest.strip():
        raise ValueError(text)
    return float(number) / 100 if percent else float(number)


def criterion(problem: Problem, precision: str) -> Criterion:
    """What counts as failing: the user's metric, bounds and rules of a check, else what
    ``precision`` may cost. ``precision``: what the engine computes in; ``int8`` for a model that is
    quantized in nodes of its own.

    Raises ``ValueError`` with a sentence for an unknown metric."""
    default = TOLERANCE_BY_PRECISION.get(precision, TOLERANCE_BY_PRECISION["fp32"])
    atols, rtols, tolerances = dict(problem.atol), dict(problem.rtol), dict(problem.tolerance)
    metric = problem.metric or ("elementwise" if atols or rtols else "rel_l2")
    if metric not in METRICS:
        raise ValueError(f"'{metric}' is not a metric; choose one of {', '.join(METRICS)}.")
    if metric in ("sqnr_db", "psnr_db"):
        default = -20 * math.log10(default)
    elif metric == "elementwise":
        default = 1.0  # badness counts in multiples of atol and rtol
    elif metric == "ulp":
        default = ULPS
    elif metric in ANSWERS:
        default = ANSWER_TOLERANCE[metric]
    return Criterion(
        metric=metric,  # type: ignore[arg-type]
        tolerance=tolerances.pop("", default),
        tolerances=tolerances,
        atol=atols.pop("", 1e-5),
        atols=atols,
        rtol=rtols.pop("", 1e-5),
        rtols=rtols,
        precision=precision,
        source="user" if any(problem.bounds.values()) else "default",
        fail_regex=problem.fail_regex,
        fail_codes=problem.fail_code,
        ignore_fail_codes=problem.ignore_fail_code,
    )
