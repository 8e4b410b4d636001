"""The criterion of a session: what the user said, else what the engine's precision may cost."""

import math
from collections.abc import Mapping
from typing import Any

from engines.compare.criterion import METRICS, TOLERANCE_BY_PRECISION, Criterion

# Units in the last place that the order of a long sum may cost; there is no such number that fits every model.
ULPS = 256.0


def criterion(problem: Mapping[str, Any], engine_info: Mapping[str, Any]) -> Criterion:
    """``problem``: the PROBLEM as plain data (``metric``, ``tolerance``, ``atol``, ``rtol`` by output with "" the default, the
    check's rules; ``quantized``: the model computes in INT8 by nodes of its own). ``engine_info``: the EngineInfo as plain data.

    Raises ``ValueError`` with a sentence for an unknown metric."""
    precision = "int8" if problem.get("quantized") else str(engine_info.get("precision", "fp32"))
    default = TOLERANCE_BY_PRECISION.get(precision, TOLERANCE_BY_PRECISION["fp32"])
    atols, rtols = _by_output(problem, "atol"), _by_output(problem, "rtol")
    tolerances = _by_output(problem, "tolerance")
    metric = str(problem.get("metric") or ("elementwise" if atols or rtols else "rel_l2"))
    if metric not in METRICS:
        raise ValueError(f"'{metric}' is not a metric; choose one of {', '.join(METRICS)}.")
    if metric == "sqnr_db":
        default = -20 * math.log10(default)
    elif metric == "elementwise":
        default = 1.0  # badness counts in multiples of atol and rtol
    elif metric == "ulp":
        default = ULPS
    return Criterion(
        metric=metric,  # type: ignore[arg-type]
        tolerance=tolerances.pop("", default),
        tolerances=tolerances,
        atol=atols.pop("", 1e-5),
        atols=atols,
        rtol=rtols.pop("", 1e-5),
        rtols=rtols,
        precision=precision,
        source="user" if problem.get("tolerance") or problem.get("atol") or problem.get("rtol") else "default",
        fail_regex=tuple(problem.get("fail_regex", ())),
        fail_codes=tuple(problem.get("fail_code", ())),
        ignore_fail_codes=tuple(problem.get("ignore_fail_code", ())),
    )


def _by_output(problem: Mapping[str, Any], name: str) -> dict[str, float]:
    return {str(k): float(v) for k, v in dict(problem.get(name, {})).items()}
