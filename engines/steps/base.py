"""What a step is: a pure, deterministic generator of probes.

    def reduce(ctx: StepContext) -> Steps[ReduceOutcome]:
        measurement = yield Measure(...)         # the runner answers with a Measurement
        yield Note("trying nodes 96-143", best=96)   # progress; answered with None
        return Finish(ReduceOutcome(...), findings=..., tables=..., decisive=...)

A step sees ids, names and numbers; never a model, an array, a clock, a random source or the number of jobs. Given the same
answers it asks the same questions in the same order: resume is running it again with the answers known.

Speculation: on free slots the runner runs the generator ahead over an invented answer
(``Measurement(assumed="pass"|"fail")``), which ``judge`` turns into that verdict. A step that reads anything else from an
invented measurement simply ends the speculation.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from engines.asking import Note, StepContext
from engines.findings import Findings
from engines.probe import AnyProbe, Probe
from engines.search.cost import Plan, Size, Work

OutcomeT = TypeVar("OutcomeT", bound=msgspec.Struct)


class Finish(msgspec.Struct, Generic[OutcomeT], frozen=True):
    """The end of a step. ``tables``: rows for evidence, report and JSON (stored as artifacts). ``decisive``: the probes that a
    replay measures again, by role (``whole``, ``case``, ``good``, ``workaround``)."""

    outcome: OutcomeT
    findings: Findings
    tables: Mapping[str, list[dict[str, Any]]] = {}
    decisive: Mapping[str, tuple[Probe, ...]] = {}


Steps: TypeAlias = Generator[AnyProbe | Note, Any, Finish[OutcomeT]]


class StepSpec(msgspec.Struct, Generic[OutcomeT], frozen=True):
    """A step's registration. ``outcome`` is the struct whose fields the flow's ``when``, templates and ``evidence`` may name;
    ``params`` the struct of its ``with`` values. ``exclusive``: of its probes, only those run ahead that are exclusive."""

    name: str
    version: int
    summary: str
    run: Callable[[StepContext], Steps[OutcomeT]]
    outcome: type[OutcomeT]
    params: type[msgspec.Struct]
    exclusive: bool = False
    needs: tuple[str, ...] = ()  # capabilities without which the step is hidden, with the engine's reason
    # The probes to expect.
    plan: Callable[[StepContext, Size], Plan] = lambda _ctx, _size: Plan((Work("part"),))
