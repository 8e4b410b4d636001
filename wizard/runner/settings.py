"""Values that answers carry (another tolerance, metric, sample, ...): what they change, and which
mean nothing. Pure."""

import contextlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from narrowdown.engines.compare.judge import ANSWERS, METRICS, OF_CODES, Criterion
from narrowdown.engines.compare.tolerance import criterion, read_bound
from narrowdown.engines.findings import Findings
from narrowdown.engines.nearest import suggestion
from narrowdown.engines.probe import SampleInfo
from narrowdown.engines.views import EngineInfo
from narrowdown.wizard.problem import BOUNDS, Problem
from narrowdown.wizard.session.state import Visit

# Settings that change what counts as failing.
_CRITERION = frozenset(
    {"tolerance", "atol", "rtol", "metric", "fail_regex", "fail_code", "ignore_fail_code"}
)
_CODES = ("fail_code", "ignore_fail_code")
# Metrics whose tolerances are numbers of one kind; a tolerance given for one kind says nothing
# under another.
_KINDS = (frozenset({"max_abs"}), frozenset({"ulp"}), frozenset({"sqnr_db", "psnr_db"}), frozenset({"elementwise"}),
          *(frozenset({name}) for name in ANSWERS if name != "psnr_db"))  # fmt: skip


def settings_on(route: Iterable[Visit]) -> dict[str, Any]:
    """What the answers on the route have set, in the order in which it was set last; later ones
    win."""
    found: dict[str, Any] = {}
    for visit in route:
        for name, value in visit.settings.items():
            found.pop(name, None)
            found[name] = value
    return found


def fault(settings: Mapping[str, Any], findings: Findings) -> str:
    """A sentence where a value means nothing, ``""`` where all do. Empty values leave things as
    they are."""
    for name, given in settings.items():
        value = str(given).strip()
        if value and (said := _fault(name, value, findings)):
            return said
    return ""


def _fault(name: str, value: str, findings: Findings) -> str:
    if name in BOUNDS:
        number = value.rpartition(":")[2]
        signed = findings.criterion is not None and findings.criterion.metric in (
            "sqnr_db",
            "psnr_db",
        )
        if (
            not _is(float, number)
            or not math.isfinite(float(number))
            or (float(number) < 0 and not signed)
        ):
            return f"'{value}' is no {name}: write a number such as 0.01, or output:0.01."
    elif name == "metric" and value not in METRICS:
        return f"'{value}' is not a metric.{suggestion(value, METRICS, ' ')} Known: {', '.join(METRICS)}."
    elif name == "seed" and not _is(int, value):
        return f"'{value}' is no seed: write a whole number."
    elif name in _CODES and not all(_is(int, part) for part in value.replace(",", " ").split()):
        return f"'{value}' is no list of exit codes: write whole numbers."
    elif name == "fail_regex":
        try:
            re.compile(value)
        except re.error as error:
            return f"'{value}' is not a regular expression: {error}."
    elif name == "sample" and findings.samples and not _held(value, findings.samples):
        return f"There is no sample '{value}' here; there are {_listed(findings.samples)}."
    return ""


def _is(kind: type, text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def _held(sample: str, samples: Sequence[SampleInfo]) -> bool:
    feed, slash, row = sample.partition("/")
    found = next((s for s in samples if s.id == feed), None)
    return found is not None and (not slash or (row.isdecimal() and int(row) < found.rows))


def _listed(samples: Sequence[SampleInfo]) -> str:
    names = [
        f"{s.id} and its rows {s.id}/0 to {s.id}/{s.rows - 1}" if s.rows > 1 else s.id
        for s in samples[:6]
    ]
    return ", ".join(names) + (f" and {len(samples) - 6} more" if len(samples) > 6 else "")


def with_settings(problem: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The PROBLEM as plain data with answers' settings in place of what the user first gave.

    Bounds are ``value`` or ``[output:]value``, as on the command line; where the comparison is
    elementwise, a tolerance is both its bounds. A metric of another kind drops the tolerances of
    the old one. What cannot be understood changes nothing.
    """
    changed = dict(problem)
    for name, value in settings.items():
        if value == "" or name not in Problem.__struct_fields__:
            continue
        with contextlib.suppress(ValueError, TypeError):
            if name in BOUNDS:
                output, _, number = str(value).rpartition(":")
                both = name == "tolerance" and _metric(changed) == "elementwise"
                for bound in ("atol", "rtol") if both else (name,):
                    changed[bound] = {**changed.get(bound, {}), output: read_bound(number)}
            elif name == "metric" and value in METRICS:
                if _kind(str(value)) != _kind(_metric(changed)):
                    changed["tolerance"] = {}
                changed["metric"] = str(value)
            elif name == "seed":
                changed[name] = int(value)
            elif name == "fail_regex":
                changed[name] = [str(value)]
            elif name in _CODES:
                changed[name] = [int(part) for part in str(value).replace(",", " ").split()]
    return changed


def _metric(problem: Mapping[str, Any]) -> str:
    return str(
        problem.get("metric")
        or ("elementwise" if problem.get("atol") or problem.get("rtol") else "rel_l2")
    )


def _kind(metric: str) -> int:
    return next((i for i, kind in enumerate(_KINDS) if metric in kind), -1)


def applied(
    findings: Findings, latest: Mapping[str, Any], problem: Problem, info: EngineInfo
) -> Findings:
    """The findings with the last answer's settings worked in: another rule, seed, sample or model
    locks the failure anew."""
    given = {name: value for name, value in latest.items() if value != ""}
    changes: dict[str, Any] = {}
    if _CRITERION.intersection(given) and (rule := _rule(findings, problem, info)) is not None:
        changes["criterion"] = rule
    if "seed" in given and findings.inputs:
        changes |= {"inputs": "", "samples": ()}
    sample = str(given.get("sample", ""))
    if sample and _held(sample, findings.samples):
        changes["sample"] = sample
    if given.get("working_model") == "original" and findings.original not in ("", findings.model):
        changes["model"] = findings.original
    if not changes:
        return findings
    return msgspec.structs.replace(findings, **changes, signature=None, round_signature=None)


def _rule(findings: Findings, problem: Problem, info: EngineInfo) -> Criterion | None:
    if findings.criterion is None:
        return None
    found = findings.criterion.precision
    of_the_model = found in OF_CODES or (
        found in ("fp16", "bf16") and info.precision in ("fp32", "tf32", "fp64")
    )
    return criterion(problem, found if of_the_model else info.precision)
