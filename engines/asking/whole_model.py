"""The whole model, computed by one engine and held against another: what a search asks that wants to
know whom to believe. It names engines by their part, and never sees how often they are run, what
they are called, or which model they run.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from narrowdown.engines.asking import Described, Note, StepContext, Sub, asked
from narrowdown.engines.compare.judge import OF_CODES, Criterion, Signature, exceed, limit, worst
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import GraphIndex, ranges
from narrowdown.engines.graph.filekind import is_ir
from narrowdown.engines.options import families, original
from narrowdown.engines.probe import HUGE, Candidate, Check, Describe, Measure, Measurement
from narrowdown.engines.spec import of_the_same, parse, unquantized
from narrowdown.engines.switches import list_switches

FLOAT64 = "reference:precision=fp64"
# In the order in which they are asked: float64 has no rounding of its own to speak of; ONNX Runtime
# is the last, as it is nearly always the reference itself.
INDEPENDENT = (FLOAT64, "openvino:precision=f32", "onnxruntime")


class Distance(msgspec.Struct, frozen=True):
    """What lies between two computations of the whole model, under the session's rule."""

    measurement: Measurement
    rule: Criterion

    @property
    def told(self) -> bool:
        """Whether both of them gave outputs."""
        return self.measurement.status == "ok" and bool(self.measurement.results)

    @property
    def why(self) -> str:
        """Why nothing was compared; "" where something was."""
        return "" if self.told else self.measurement.message or self.measurement.status

    @property
    def error(self) -> float:
        """Of the worst output; 0 where nothing was compared."""
        return worst(self.measurement.results, self.rule)[2]

    @property
    def sample(self) -> str:
        """Where the worst one is."""
        return worst(self.measurement.results, self.rule)[0]

    @property
    def output(self) -> str:
        """The worst one."""
        return worst(self.measurement.results, self.rule)[1]

    @property
    def allowed(self) -> float:
        """What the worst output may be off by."""
        return limit(self.rule, self.output)

    @property
    def exceeds(self) -> bool:
        """Whether any output is further off than it may be."""
        return self.told and exceed(self.measurement.results, self.rule)


class WholeModel(msgspec.Struct, frozen=True):
    """The model of a session and who computes it. ``seconds``: that a computation may take, 0 as
    long as any probe may."""

    ctx: StepContext
    findings: Findings
    seconds: float = 0.0

    @property
    def unoptimized(self) -> str:
        """The engine under test with its optimizers off, "" where it has none."""
        can = list_switches(self.ctx.engine, self.ctx.engine_info)
        return can.without(can.optimizers) if can.optimizers and not can.apart else ""

    @property
    def unlimited(self) -> "WholeModel":
        """The same for what may take as long as any probe may."""
        return msgspec.structs.replace(self, seconds=0.0)

    @property
    def rule(self) -> Criterion:
        return self.findings.rule

    @property
    def engine(self) -> str:
        """The one under test."""
        return self.ctx.engine

    @property
    def reference(self) -> str:
        return self.ctx.reference

    @property
    def failure(self) -> Signature | None:
        """Of outputs that are finite and wrong; None of any other failure, and of none."""
        found = self.findings.signature
        finite = found is not None and not found.nonfinite and found.error < HUGE
        return found if finite and found is not None and found.kind == "accuracy" else None

    @property
    def refused(self) -> bool:
        """Whether the failure is that the engine does not take the model."""
        found = self.findings.signature
        return found is not None and found.kind == "build"

    @property
    def coded(self) -> bool:
        """Whether the reference rounds to the codes of a quantized model."""
        return self.rule.precision in OF_CODES and not unquantized(self.reference)

    @property
    def independent(self) -> tuple[str, ...]:
        """Engines that share no code with the one under test, with the reference, or with one
        another."""
        if self.why_none:
            return ()
        taken = families(self.engine) | families(self.reference)
        return tuple(
            of_the_same(spec, self.reference) for spec in INDEPENDENT if not families(spec) & taken
        )

    @property
    def why_none(self) -> str:
        """Why nobody independent can run the model."""
        if original(self.reference):
            return "nobody else computes the PyTorch program."
        return "nobody else runs OpenVINO IR." if is_ir(self.ctx.problem.model) else ""

    def of(self, findings: Findings, reference: str = "") -> "WholeModel":
        """The same with what is known now, against another reference where one is named."""
        ctx = msgspec.structs.replace(self.ctx, reference=reference or self.reference)
        return msgspec.structs.replace(self, ctx=ctx, findings=findings)

    def describe(self) -> Sub[GraphIndex | None]:
        """Its graph; None where nobody can read it."""
        answer = yield from asked(Describe(model=self.findings.model))
        return answer.index if isinstance(answer, Described) else None

    def is_exact_unoptimized(self, feed: Iterable[str]) -> Sub[bool]:
        """Whether the engine gives exactly the reference's outputs with its optimizers off; False
        where it has none to switch off."""
        if not self.unoptimized:
            return False
        note = "and with the engine's optimizers off?"
        off = yield from self.unlimited.compare(self.unoptimized, samples=feed, note=note)
        return off.told and all(s.equal for r in off.measurement.results for s in r.outputs)

    def run_as_needed(
        self, samples: Iterable[str] = (), *, note: str = "", **how: object
    ) -> Sub[Distance]:
        """The engine under test against the reference, run as often as shows a fault that comes and
        goes: alone on the machine then."""
        runs = self.findings.looks
        return (
            yield from self.compare(
                "", "", samples, note=note, runs=runs, exclusive=runs > 1, **how
            )
        )

    def compare(
        self,
        engine: str = "",
        reference: str = "",
        samples: Iterable[str] = (),
        *,
        note: str = "",
        **how: object,
    ) -> Sub[Distance]:
        """How far ``engine`` (the one under test) is from ``reference`` (the session's) on these samples
        (all of them). ``note``: what people are told meanwhile; ``how``: fields of the probe."""
        if note:
            yield Note(note)
        if self.seconds:
            how = {"timeout": self.seconds, **how}
        probe = probe_whole(
            self.ctx, self.findings, samples=samples, engine=engine, reference=reference, **how
        )
        return Distance((yield from asked(probe)), self.rule)

    def check_control(self, kind: Literal["identity", "answers"]) -> Sub[Measurement]:
        """What the user's checker makes of a model that holds nothing that could be wrong."""
        probe = probe_whole(self.ctx, self.findings)
        assert isinstance(probe, Check)
        return (yield from asked(msgspec.structs.replace(probe, control=kind)))


def name_engine(spec: str) -> str:
    """An independent engine in words; "" of none."""
    if not spec:
        return ""
    parsed = parse(spec)
    whose = "ONNX's" if parsed.get("operators") == "onnx" else "Narrowdown's"
    return {
        "reference": f"{whose} evaluator{' in float64' if parsed.get('precision') == 'fp64' else ''}",
        "openvino": "OpenVINO",
        "onnxruntime": "ONNX Runtime",
    }.get(parsed.name, spec)


def probe_whole(
    ctx: StepContext,
    findings: Findings,
    *,
    samples: Iterable[str] = (),
    engine: str = "",
    reference: str = "",
    **rest: object,
) -> Measure | Check:
    """The whole working model on samples (default: all feeds), or under the user's check."""
    if ctx.check:
        first = findings.samples[0].id if findings.samples else ""
        return Check(
            model=findings.model,
            command=ctx.check,
            inputs=findings.inputs,
            sample=findings.sample or first,
            # With no inputs nothing is asked of it, and it need not be loaded.
            reference=ctx.reference if findings.inputs else "",
        )
    probe = Measure(
        model=findings.model,
        inputs=findings.inputs,
        samples=tuple(samples) or tuple(s.id for s in findings.samples),
        engine=engine or ctx.engine,
        reference=reference or ctx.reference,
        candidate=Candidate(severed=ranges.encode(())),
        held=ctx.problem.held,
    )
    if probe.engine == ctx.engine and not ctx.can("run", untold=True):
        rest = {**rest, "runs": 0}  # the reference and other voices run here all the same
    return msgspec.structs.replace(probe, **rest)
