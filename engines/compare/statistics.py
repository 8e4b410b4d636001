"""k of n: exact intervals and how many more runs would settle it. Pure Python: steps may not
import numpy."""

import math
from collections.abc import Callable

CONFIDENCE = 0.95  # the field's custom; each sentence for people says it


def binomial_interval(failures: int, runs: int) -> tuple[float, float]:
    """The Clopper-Pearson interval of a rate of which ``failures`` of ``runs`` were seen: exact,
    never too narrow.

    Source: Clopper and Pearson, Biometrika 26 (1934): the bounds are quantiles of beta
    distributions, found here by bisecting the binomial tails.
    """
    if runs <= 0:
        return 0.0, 1.0
    tail = (1 - CONFIDENCE) / 2
    fewer, at_most = _binomial_cdf(failures - 1, runs), _binomial_cdf(failures, runs)
    low = 0.0 if failures == 0 else _bisect(lambda p: 1 - fewer(p) - tail)
    high = 1.0 if failures == runs else _bisect(lambda p: tail - at_most(p))
    return low, high


def least_share(right: int, tried: int) -> float:
    """The share of others like them that are right at the least, at 95 %, where ``right`` of
    ``tried`` were; 0 where none were.

    The one-sided bound of Clopper and Pearson, as only one side is promised: 0.05 ** (1 / n) where
    all of n were right, which the rule of three makes 1 - 3/n.
    """
    if right <= 0:
        return 0.0
    fewer = _binomial_cdf(right - 1, tried)
    return _bisect(lambda p: 1 - fewer(p) - (1 - CONFIDENCE))


def say_most_wrong(right: int, tried: int) -> str:
    """``up to 32 % of others like these may be wrong``: rounded up, so that no more is promised
    than holds."""
    most = 100 * (1 - least_share(right, tried))
    digits = 0 if most >= 1 else 1 - math.floor(math.log10(most))
    return f"up to {math.ceil(most * 10**digits) / 10**digits:g} % of others like these may be wrong (95 % confidence)"


def fisher_exact(failures: int, runs: int, other_failures: int, other_runs: int) -> float:
    """How often two samples of one rate differ as much as these, or more: p of Fisher's exact test,
    two-sided.

    Exact for any rate, as it is taken over all ways to share out the same failures between the same
    runs. Source: Fisher, The Design of Experiments (1935); two-sided as the sum of all that are no
    likelier than what was seen.
    """
    total, among = failures + other_failures, runs + other_runs
    first, last = max(0, total - other_runs), min(total, runs)
    whole = _log_choose(among, total)
    ways = [
        math.exp(_log_choose(runs, k) + _log_choose(other_runs, total - k) - whole)
        for k in range(first, last + 1)
    ]
    seen = ways[failures - first] * (1 + 1e-7)  # equal ones must not be parted by rounding
    return min(1.0, math.fsum(p for p in ways if p <= seen))


def runs_to_see(rate: float) -> int:
    """How many runs show a fault of this rate at least once, at 95 %."""
    if rate >= 1:
        return 1
    if rate <= 0:
        return 0
    return math.ceil(math.log(1 - CONFIDENCE) / math.log1p(-rate))


def say_ruled_out(runs: int) -> str:
    """What ``runs`` runs without a failure leave possible: by the rule of three a rate of 3/n at
    95 % (-ln 0.05 = 3.0)."""
    return f"A fault in fewer than 1 of {max(1, round(runs / 3)):,} runs would not have shown."


def _log_choose(n: int, k: int) -> float:
    """The logarithm of n over k."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _binomial_cdf(k: int, n: int) -> Callable[[float], float]:
    """P(X <= k) for X binomial(n, p), of any p between 0 and 1: summed in logarithms so that n in the
    thousands stays exact enough."""
    ways = [_log_choose(n, i) for i in range(k + 1)]

    def at_most(p: float) -> float:
        hit, miss = math.log(p), math.log1p(-p)
        return min(
            1.0, math.fsum(math.exp(way + i * hit + (n - i) * miss) for i, way in enumerate(ways))
        )

    return at_most


def _bisect(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):  # halvings: more than the 53 bits of a double between 0 and 1 need
        middle = (low + high) / 2
        if rising(middle) > 0:
            high = middle
        else:
            low = middle
    return (low + high) / 2
