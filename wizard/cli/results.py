"""``narrowdown step --json``: from a finished step to the contract's object. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from engines.findings import Case, Findings
from wizard.session.state import Visit

Table = list[dict[str, Any]]
HAS_NEIGHBOUR = frozenset({"extract", "reduce", "confirm"})
MAKES_MODELS = HAS_NEIGHBOUR | {"sanitize", "precision", "workaround", "quantization"}


def result(
    visit: Visit, table: Callable[[str], Table], model: str | None, good: str | None, session: str
) -> dict[str, Any]:
    """The object of ``--json``. ``model`` and ``good``: paths of the models that were written, None where there is none."""
    outcome, findings = dict(visit.outcome or {}), visit.findings or Findings()
    tables = {name: table(digest) for name, digest in visit.tables.items() if name != "bundle"}
    made = MAKERS.get(visit.step, _as_it_is)(visit, outcome, findings, tables)
    common = {"seconds": visit.seconds, "message": outcome.get("message", ""), "session": session}
    paths: dict[str, str | None] = {}
    if visit.step in MAKES_MODELS:
        paths["model"] = model
    if visit.step in HAS_NEIGHBOUR:
        paths["good_model"] = good
    return {**made, **paths, **{key: value for key, value in common.items() if key not in made}}


def _as_it_is(_visit: Visit, outcome: dict[str, Any], _findings: Findings, tables: dict[str, Table]) -> dict[str, Any]:
    return {**outcome, **tables}


def _reduce(visit: Visit, outcome: dict[str, Any], findings: Findings, _tables: dict[str, Table]) -> dict[str, Any]:
    return {
        "verdict": outcome.get("verdict", "unresolved"),
        "nodes_before": outcome.get("nodes_before", 0),
        "nodes_after": outcome.get("nodes_after", 0),
        **_case(findings.case),
        "probes": outcome.get("probes", 0),
        "verifications": outcome.get("verifications", 0),
        "speculative": visit.speculative,
        "cached": visit.cached,
        "builds": visit.builds,
        "unresolved": outcome.get("unresolved", 0),
        "verified": outcome.get("verified", ""),
        "own": outcome.get("own"),
        "effect": outcome.get("effect"),
        "minimal": outcome.get("minimal", False),
        "reason": outcome.get("reason", ""),
    }


def _extract(_visit: Visit, outcome: dict[str, Any], findings: Findings, _tables: dict[str, Table]) -> dict[str, Any]:
    return {**outcome, "nodes_after": outcome.get("nodes", 0), **_case(findings.case)}


def _confirm(_visit: Visit, outcome: dict[str, Any], findings: Findings, _tables: dict[str, Table]) -> dict[str, Any]:
    return {**outcome, "nodes_after": outcome.get("nodes", 0), **_case(findings.case)}


def _case(case: Case | None) -> dict[str, Any]:
    if case is None:
        return {"nodes": [], "inputs": [], "outputs": []}
    return {"nodes": list(case.nodes), "inputs": list(case.inputs), "outputs": list(case.outputs)}


def _layerwise(_visit: Visit, outcome: dict[str, Any], findings: Findings, tables: dict[str, Table]) -> dict[str, Any]:
    tensors = tables.get("tensors", [])
    first = outcome.get("first_bad", "")
    return {
        **outcome,
        "culprit": outcome.get("culprit") or None,
        "first_bad": next((row for row in tensors if row["name"] == first), None) if first else None,
        "suspects": [{"nodes": s.nodes, "own": s.own, "effect": s.effect} for s in findings.suspects],
        "tensors": tensors,
    }


def _compare(_visit: Visit, outcome: dict[str, Any], _findings: Findings, tables: dict[str, Table]) -> dict[str, Any]:
    samples: dict[str, Table] = {}
    for row in tables.get("outputs", []):
        samples.setdefault(row["sample"], []).append({key: value for key, value in row.items() if key != "sample"})
    listed = [{"sample": name, "outputs": [_score(row) for row in rows]} for name, rows in samples.items()]
    # ``samples`` is the list; how many there were stands beside it.
    return {**outcome, "samples_n": outcome.get("samples", 0), "samples": listed}


def _score(row: dict[str, Any]) -> dict[str, Any]:
    """A score with every metric in it: values at their default are left out where it is stored."""
    from engines.probe import Score

    every = {name: getattr(Score(""), name) for name in Score.__struct_fields__ if name != "front"}
    return {**every, **{key: value for key, value in row.items() if key != "front"}}


def _repeat(_visit: Visit, outcome: dict[str, Any], _findings: Findings, tables: dict[str, Table]) -> dict[str, Any]:
    return {**outcome, "interval": [outcome.get("interval_low", 0.0), outcome.get("interval_high", 1.0)], **tables}


def _precision(_visit: Visit, outcome: dict[str, Any], _findings: Findings, tables: dict[str, Table]) -> dict[str, Any]:
    names = [row["node"] for row in tables.get("keep", [])]
    return {**outcome, "keep_higher": names, "samples_n": outcome.get("samples", 0)}


def _quantization(
    _visit: Visit, outcome: dict[str, Any], _findings: Findings, tables: dict[str, Table]
) -> dict[str, Any]:
    names = [row["node"] for row in tables.get("keep", [])]
    rest = {key: value for key, value in outcome.items() if key not in ("layers", "keep", "names", "samples")}
    counts = {"layers_n": outcome.get("layers", 0), "samples_n": outcome.get("samples", 0)}
    return {**rest, **counts, "leave_in_float": names, "layers": tables.get("layers", [])}


MAKERS: Mapping[str, Callable[[Visit, dict[str, Any], Findings, dict[str, Table]], dict[str, Any]]] = {
    "reduce": _reduce,
    "extract": _extract,
    "confirm": _confirm,
    "layerwise": _layerwise,
    "compare": _compare,
    "repeat": _repeat,
    "precision": _precision,
    "workaround": _precision,
    "quantization": _quantization,
}
