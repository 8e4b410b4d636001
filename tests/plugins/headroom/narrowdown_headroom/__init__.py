"""headroom: how near do the model's outputs come to the largest number that the engine can
store?"""

from typing import Literal

import msgspec

from narrowdown.engines.asking import Note, StepContext, asked
from narrowdown.engines.asking.whole_model import probe_whole
from narrowdown.engines.graph.storage import largest_finite
from narrowdown.engines.steps.base import End, Finish, Steps, StepSpec, comparison
from narrowdown.engines.steps.prepare import load_findings


class HeadroomParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    least: float = 4.0  # times that the largest value must fit into what the engine can store


class HeadroomOutcome(msgspec.Struct, frozen=True, kw_only=True):
    verdict: Literal["room", "tight", "unresolved"] = "unresolved"
    output: str = ""  # the output that reaches furthest
    reached: float | None = None  # its largest magnitude in the reference
    times: float | None = None  # how many times that fits into what the engine can store
    message: str = ""


def headroom(ctx: StepContext) -> Steps[HeadroomOutcome]:
    params = msgspec.convert(dict(ctx.params), HeadroomParams)
    findings = yield from load_findings(ctx)
    yield Note("how large do the outputs become in the reference?")
    m = yield from asked(probe_whole(ctx, findings, engine=ctx.reference))
    if m.status != "ok":
        return Finish(
            HeadroomOutcome(message=f"The reference gave no values: {m.message}"), findings
        )
    rows = [
        {"sample": r.sample, "output": s.name, "reached": s.absmax}
        for r in m.results
        for s in r.outputs
    ]
    furthest = max(rows, key=lambda row: row["reached"])
    reached, largest = furthest["reached"], largest_finite(ctx.storage)
    times = largest / reached if reached else None
    tight = times is not None and times < params.least
    outcome = HeadroomOutcome(
        verdict="tight" if tight else "room",
        output=furthest["output"],
        reached=reached,
        times=times,
        message=f"{furthest['output']} reaches {reached:.3g}; {ctx.storage} holds {largest:,.0f}.",
    )
    return Finish(
        outcome,
        findings,
        tables={"outputs": rows},
        decisive={"whole": (probe_whole(ctx, findings),)},
    )


def plan(_ctx: StepContext, _nodes: int) -> int:
    """The probes to expect: model, inputs, and all samples once."""
    return 3


SPEC = StepSpec(
    name="headroom",
    version=1,
    summary="Compare the largest output of the reference with the largest number that the engine can store.",
    run=headroom,
    outcome=HeadroomOutcome,
    params=HeadroomParams,
    plan=plan,
    needs=(
        comparison(
            "An external check shows no values, so nothing can be said of how large they are."
        ),
    ),
    ends=(End("verdict", "unresolved", "unresolved"),),
    labels={"output": "reaches furthest", "reached": "reaches", "times": "times that fits"},
)
