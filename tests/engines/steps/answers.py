"""Invented answers for step tests."""

from typing import Any

import msgspec

from narrowdown.engines.asking import StepContext
from narrowdown.engines.compare.judge import Criterion
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import (
    Describe,
    Import,
    LoadInputs,
    Measurement,
    SampleInfo,
    SampleResult,
    Score,
)
from narrowdown.engines.problem import Problem
from narrowdown.engines.views import view_engine

RULE = Criterion(tolerance=0.01, precision="fp16")
REAL, RANDOM = SampleInfo("real:0", "in.npz", rows=3), SampleInfo("random:0", "random by role")
READY = Findings(model="m", original="m", inputs="i", samples=(REAL,), criterion=RULE)


def result(sample: str, error: float, **rest: Any) -> SampleResult:
    return SampleResult(sample, (Score("y", rel_l2=error, equal=error == 0, **rest),))


def measured(*results: tuple[str, float], **rest: Any) -> Measurement:
    return Measurement(results=tuple(result(s, e) for s, e in results), **rest)


def context(
    findings: Findings = READY, *, capabilities: dict[str, Any] | None = None, **rest: Any
) -> StepContext:
    info = {
        "precision": "fp16",
        "storage": "float16",
        "capabilities": capabilities or {},
        **rest.pop("info", {}),
    }
    engine = rest.pop("engine", "tensorrt")
    rest["problem"] = msgspec.convert(rest.get("problem", {}), Problem)
    rest = {
        "reference": "onnxruntime",
        "reference_info": view_engine(rest.pop("reference_info", {})),
        **rest,
    }
    return StepContext(engine=engine, findings=findings, engine_info=view_engine(info), **rest)


def opening(probe: Any) -> Measurement | None:
    """Answers to what every session begins with."""
    if isinstance(
        probe, Describe
    ):  # without a model's index no samples are made near the given ones
        return Measurement(status="refused")
    if isinstance(probe, Import):
        return Measurement(facts={"model": "m", "nodes": 5, "notes": []})
    if isinstance(probe, LoadInputs):
        samples = [
            {"id": "real:0", "source": "in.npz", "rows": 3},
            {"id": "random:0", "source": "random by role"},
        ]
        return Measurement(
            facts={"inputs": "i", "samples": samples, "guesses": ["'x': an image."], "warnings": []}
        )
    return None


PRESENT, ABSENT = {"present": True, "reason": ""}, {"present": False, "reason": "it cannot."}
