"""export-check (node ``export``): does the ONNX model compute what the PyTorch module computed, and where
does it depart?"""

from typing import Literal

import msgspec

from narrowdown.engines.asking import StepContext
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.compare.judge import TOLERANCE_BY_PRECISION, Criterion
from narrowdown.engines.compare.say import wrong_by
from narrowdown.engines.exporting.parting import (
    CLEAR,
    FEED,
    Comparison,
    Parted,
    blame_module,
    find_part,
    make_culprit,
)
from narrowdown.engines.findings import Findings
from narrowdown.engines.options import original
from narrowdown.engines.problem import USUAL_ENGINE, Exported
from narrowdown.engines.search.settle import Saved
from narrowdown.engines.steps.base import End, Finish, Need, NoParams, Outcome, Steps, StepSpec
from narrowdown.engines.steps.prepare import load_findings

# export: the model is not what PyTorch computes; other: the values are of another export; unsteady:
# PyTorch gives NaN, or other outputs in a second run
Verdict = Literal["right", "export", "other", "unsteady", "unresolved"]


class ExportOutcome(Outcome, frozen=True, kw_only=True):
    verdict: Verdict = "unresolved"
    module: str = ""  # its path in the PyTorch module
    module_class: str = ""  # what it is
    source: str = ""  # file and line
    differs: str = ""  # the operator, attribute or constant that is another one
    tensor: str = ""  # the first that departs
    nodes: tuple[str, ...] = ()  # of the part that departs
    error: float | None = None  # of the model's worst output
    inner_error: float | None = None  # of the part, fed with PyTorch's values
    float64: float | None = None  # of the tensor that departs, computed in float64
    tolerance: float = Criterion().tolerance
    metric: str = Criterion().metric
    agreeing: int = 0  # inner values that agree
    compared: int = 0  # of so many
    parts: bool = False  # the reference computes what PyTorch gave, and parts of it


def check_export(ctx: StepContext) -> Steps[ExportOutcome]:
    exported = ctx.problem.exported
    assert exported is not None  # as the step needs it
    findings: Findings = yield from load_findings(ctx)
    if not exported.steady:
        told = "PyTorch gives NaN, or other outputs in a second run, as where the module draws random numbers. Mend that first."
        return Finish(ExportOutcome(verdict="unsteady", message=told), findings)
    model = WholeModel(ctx, findings)
    engine = USUAL_ENGINE if original(ctx.reference) else ctx.reference  # which computes ONNX
    # What PyTorch's own precision may cost, whatever the engine under test computes in.
    rule = Criterion(
        tolerance=TOLERANCE_BY_PRECISION[exported.precision], precision=exported.precision
    )
    found: Parted = yield from find_part(Comparison(model, engine, exported.recorded, rule=rule))
    outcome = ExportOutcome(
        tolerance=rule.tolerance,
        error=max(
            (found.errors[t] for t in found.index.outputs if t in found.errors), default=None
        ),
        agreeing=sum(error <= rule.tolerance for error in found.errors.values()),
        compared=len(found.errors),
    )
    if found.other:
        told = f"The recorded values are of another export: {found.other} Export again."
        return Finish(msgspec.structs.replace(outcome, verdict="other", message=told), findings)
    if found.why:
        told = f"The export could not be checked: {found.why}"
        return Finish(msgspec.structs.replace(outcome, message=told), findings)
    # Where no output is off by more than that, the session goes on, and a place inside is
    # told all the same.
    departs = (outcome.error or 0.0) > rule.tolerance
    unclear = found.amplified and found.part is None
    verdict: Verdict = "right" if not departs else "unresolved" if unclear else "export"
    outcome = msgspec.structs.replace(outcome, verdict=verdict)
    if found.part is None:
        told = say_agreement(outcome, exported)
        return Finish(msgspec.structs.replace(outcome, message=told), findings)
    blamed = blame_module(found.index, found.part, exported)
    outcome = msgspec.structs.replace(
        outcome,
        module=blamed.module or "(the module itself)",
        module_class=blamed.module_class,
        source=blamed.source,
        differs=blamed.differs,
        tensor=found.index.tensors[found.part.tensor].name,
        nodes=found.index.names(blamed.nodes),
        inner_error=found.part.own,
        float64=found.exact,
    )
    outcome = msgspec.structs.replace(outcome, message=say_place(outcome))
    if outcome.verdict == "export" and original(ctx.reference):
        note = "does the exported program give what the module gave?"
        given = yield from model.compare(ctx.reference, exported.recorded, (FEED,), note=note)
        outcome = msgspec.structs.replace(outcome, parts=given.told and not given.exceeds)
    if outcome.verdict == "right" or outcome.parts:
        return Finish(outcome, findings)
    culprit = make_culprit(found.index, found.part, outcome.message, SPEC.name)
    rows = [Saved("case", dict(found.part.files))] if found.part.files else []
    return Finish(
        outcome,
        msgspec.structs.replace(
            findings,
            criterion=rule,
            sample=FEED,
            case=culprit.case,
            culprits=(culprit,),
        ),
        tables={"bundle": rows},
        decisive={"case": (found.part.probe,) if found.part.probe else ()},
    )


def say_place(outcome: ExportOutcome) -> str:
    """Where the export departs, and how that was seen."""
    kind = f" ({outcome.module_class})" if outcome.module_class else ""
    where = f" at {outcome.source}" if outcome.source else ""
    begun = (
        "The export departs from PyTorch in"
        if outcome.verdict == "export"
        else "The outputs agree, and inside of the module one value does not. It is made in"
    )
    own, clear = outcome.inner_error, CLEAR * outcome.tolerance
    alone = (
        f" Fed with PyTorch's own values, this part alone is {wrong_by(own, outcome.metric)}."
        if own is not None and own > clear
        else ""
    )
    exact = (
        f" In float64 it is {wrong_by(outcome.float64, outcome.metric)}, so rounding is not the reason."
        if outcome.float64 and outcome.float64 > clear
        else ""
    )
    differs = f" {outcome.differs[:1].upper()}{outcome.differs[1:]}." if outcome.differs else ""
    return (
        f"{begun} {outcome.module}{kind}{where}.{differs}{alone}{exact} "
        f"{outcome.agreeing} of {outcome.compared} inner values agree."
    )


def say_agreement(outcome: ExportOutcome, exported: Exported) -> str:
    """What is told where no inner value departs."""
    worst = wrong_by(outcome.error, outcome.metric)
    if outcome.verdict == "unresolved":
        return f"The outputs are {worst} beside PyTorch's, yet each part is right alone: rounding grows on the way."
    if outcome.verdict == "export":
        why = f" ({exported.unpaired})" if exported.unpaired else ""
        return f"The ONNX model's outputs are {worst} beside PyTorch's, and none of {outcome.compared} inner values departs{why}."
    inner = f" All {outcome.compared} recorded values agree." if outcome.compared else ""
    return f"The export is right: the outputs are {worst} at most.{inner}"


SPEC = StepSpec(
    name="export-check",
    version=4,
    summary="Hold the ONNX model against what the PyTorch module computed, and name the module that departs.",
    run=check_export,
    outcome=ExportOutcome,
    params=NoParams,
    needs=(
        Need(
            "a model that was exported from PyTorch for the session",
            lambda ctx: ctx.problem.exported is not None,
            lambda _ctx: (
                "This step holds an export against PyTorch: name the program that makes the module (model.py:build)."
            ),
            2,
        ),
    ),
    sets=("case", "culprits"),
    makes=("case",),
    ends=(
        End("verdict", "export", "export-at-fault"),
        End("verdict", "other", "unresolved"),
        End("verdict", "unsteady", "unresolved"),
        End("verdict", "unresolved", "unresolved"),
    ),
    labels={
        "module": "the module that departs",
        "module_class": "its class",
        "source": "in your program",
        "differs": "what differs",
        "tensor": "the first value that departs",
        "inner_error": "that part alone",
        "float64": "the same in float64",
        "agreeing": "inner values that agree",
    },
    plan=6,  # model and inputs, the whole with its values watched, the part, float64
)
