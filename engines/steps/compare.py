"""compare (node ``reproduce``): does the failure show here, is the reference to be trusted, and what would a faultless engine
give?"""

import math
from typing import Any, Literal

import msgspec

from engines.asking import Note, StepContext, Sub, asked
from engines.compare.criterion import Criterion
from engines.compare.judge import badness, judge_check, judge_whole, limit, margin, worst
from engines.findings import Findings
from engines.probe import HUGE, Measurement, SampleResult, Score
from engines.search import works
from engines.search.cost import Plan, Size
from engines.search.looks import Looks, look_again
from engines.search.statistics import interval, ruled_out, settling
from engines.search.twin import find_twin
from engines.search.whole import fed, lock, whole
from engines.spec import of_the_same, parse, unquantized
from engines.steps.base import End, Finish, Steps, StepSpec, Told
from engines.steps.intake import refuse_unmeasured
from engines.steps.prepare import loaded, measured

# The reference is suspect when it is off by more than this part of the tolerance (and nearer to fault than the engine).
SUSPECT = 0.1
PROBLEMS = {"missing": "missing", "shape": "of another shape than the reference's"}
JUDGE = "reference:precision=fp64"
SECOND = "openvino:precision=f32"
LITERAL = "onnxruntime"  # optimizers off: every node as it is written
# Bytes of reference values that are captured unasked: of a feed, and of its worst row (engines.data.captures).
AHEAD = 128 << 20
# Bytes of float64 weights up to which the reference is held against float64 (engines.backends.reference).
JUDGED = 2 << 30


class CompareOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """compare: the whole model on every sample (node ``reproduce``)."""

    # reference: the reference itself is suspect; built: it builds, and cannot be run here
    verdict: Literal["fails", "passes", "reference", "built", "unresolved"] = "unresolved"
    failure: Literal["accuracy", "crash", "build", "check", "none"] = "none"  # how it fails
    error: float | None = None
    tolerance: float = 0.0
    metric: str = "rel_l2"
    precision: str = "fp32"  # that the default tolerance follows from
    worst_output: str = ""  # the output that is furthest off
    worst_sample: str = ""  # where it is
    margin: float | None = None  # how many times the worst error fits into what is allowed there
    samples: int = 0
    samples_failing: int = 0
    nonfinite: bool = False  # the engine gives infinite or NaN where the reference does not
    emulated_error: float | None = None  # what a faultless engine of this precision would give
    # whose fault it looks like; keeps-higher: the engine computes more exactly than it claims
    explanation: Literal["engine", "precision", "keeps-higher", "unknown"] = "unknown"
    reference_error: float | None = None  # how far the reference is from its judge
    reference_judge: str = ""  # what judged it, "" = not judged
    reference_steady: bool = True  # its second run gave the same as its first
    looks: int = 0  # runs or builds looked at
    failures: int = 0  # of them
    interval_low: float = 0.0
    interval_high: float = 1.0
    more_looks: int = 0  # looks without a failure that would rule out the next rarer fault at 95 %
    message: str = ""


class CompareParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    judge_reference: bool = True  # whether the reference is held against float64, or a second engine
    judge_nodes: int = 3000  # float64 in plain Python is slow: larger models are judged by the second engine only
    judge_seconds: float = 60.0  # that a judge may take
    look_again: Looks = Looks()  # where nothing fails at first


class _Reference(msgspec.Struct, frozen=True):
    steady: bool = True
    error: float | None = None
    judge: str = ""
    engine: float | None = None  # how far the engine is from the same judge
    suspect: bool = False
    unjudged: str = ""  # why nothing but itself could judge it: a sentence


def compare(ctx: StepContext) -> Steps[CompareOutcome]:
    params = msgspec.convert(dict(ctx.params), CompareParams)
    findings: Findings = yield from loaded(ctx)
    rule = findings.criterion or Criterion()
    yield Note(f"the whole model on {len(findings.samples)} feeds")
    findings, m = yield from measured(ctx, findings)
    refuse_unmeasured(m, findings.samples)
    if ctx.check:
        finish: Finish[CompareOutcome] = yield from _checked(ctx, findings, m)
        return finish
    findings = yield from lock(ctx, findings, m)
    if m.status != "ok":
        return _ended(findings, m, rule)
    if m.facts.get("build") is not None and not m.results:
        return _built(ctx, findings, rule)
    reference = yield from _judge_reference(ctx, findings, params, m) if params.judge_reference else _nothing()
    emulated = yield from _emulate(ctx, findings, rule)
    # In FP32 float64 tells what a right engine's rounding costs.
    in_fp32 = reference.error if rule.precision == "fp32" and reference.judge.startswith(JUDGE) else None
    findings = msgspec.structs.replace(findings, emulated=in_fp32 if emulated is None else emulated)
    findings = yield from find_twin(ctx, findings, m)
    looks, failures = 1, int(findings.signature is not None)
    if findings.signature is None and not reference.suspect:
        findings, looks, failures = yield from look_again(ctx, findings, params.look_again)
    sample, output, error = worst(m.results, rule)
    if findings.signature is not None:
        error, output = findings.signature.error, next(iter(findings.signature.outputs), output)
        sample = findings.signature.sample
    low, high = interval(failures, looks)
    verdict = "reference" if reference.suspect else "fails" if findings.signature else "passes"
    outcome = CompareOutcome(
        verdict=verdict,  # type: ignore[arg-type]
        failure=findings.signature.kind if findings.signature else "none",
        error=error,
        tolerance=rule.tolerance,
        metric=rule.metric,
        precision=rule.precision,
        worst_output=output,
        worst_sample=sample,
        margin=margin(rule, error, output),
        samples=len(m.results),
        samples_failing=sum(judge_whole(msgspec.structs.replace(m, results=(r,)), rule).failed for r in m.results),
        nonfinite=bool(findings.signature and findings.signature.nonfinite),
        emulated_error=emulated,
        explanation=explain(ctx, error, emulated, rule, failing=findings.signature is not None),  # type: ignore[arg-type]
        reference_error=reference.error,
        reference_judge=reference.judge,
        reference_steady=reference.steady,
        looks=looks,
        failures=failures,
        interval_low=low,
        interval_high=high,
        more_looks=settling(looks)[1] if looks > 1 and not failures else 0,
        message=" ".join(
            (
                _message(verdict, error, rule, output, sample, looks, failures, reference, _problem(m.results, output)),
                *_same_codes(ctx, verdict, rule),
                *filter(None, (reference.unjudged,)),
                *ctx.engine_info.get("notes", ()),
            )
        ),
    )
    return Finish(
        outcome, findings, tables={"outputs": _table(m.results, rule)}, decisive={"whole": (whole(ctx, findings),)}
    )


def explain(ctx: StepContext, error: float, emulated: float | None, rule: Criterion, *, failing: bool) -> str:
    """Whose fault it looks like: the engine's, or the precision's own limit. Explains; never decides pass or fail."""
    if parse(ctx.engine).name in ("emulate", "reference"):
        return "precision" if failing else "unknown"
    if rule.precision == "fp32":
        return "engine" if failing else "unknown"
    if emulated is None:
        return "unknown"
    if not failing:
        return "keeps-higher" if emulated > rule.tolerance else "unknown"
    return "precision" if emulated >= error / 10 else "engine"


def _judge_reference(ctx: StepContext, findings: Findings, params: CompareParams, m: Measurement) -> Sub[_Reference]:
    """The reference against itself, and against float64 (or a second engine): is it off, and further off than the engine?"""
    rule = findings.criterion or Criterion()
    feed = (findings.sample or fed(findings, worst(m.results, rule)[0]) or findings.samples[0].id,)
    yield Note("is the reference itself steady and right?")
    twice = yield from asked(whole(ctx, findings, samples=feed, engine=ctx.reference, attempt=1))
    _, output, moves = worst(twice.results, rule) if twice.status == "ok" else ("", "", 0.0)
    if moves > SUSPECT * limit(rule, output):
        return _Reference(steady=False, error=moves, judge="itself, a second time", suspect=True)
    why = ""
    for judge in (of_the_same(JUDGE, ctx.reference), of_the_same(SECOND, ctx.reference)):
        if parse(judge).name == "reference" and m.nodes > params.judge_nodes:
            why = f"in float64 {m.nodes:,} nodes take too long."
            continue
        off = yield from asked(
            whole(ctx, findings, samples=feed, engine=ctx.reference, reference=judge, timeout=params.judge_seconds)
        )
        if off.status != "ok" or not off.results:
            why = f"{why} {off.message}".strip()
            continue
        _, output, error = worst(off.results, rule)
        if error <= SUSPECT * limit(rule, output):
            return _Reference(error=error, judge=judge)
        engine = yield from asked(whole(ctx, findings, samples=feed, reference=judge, timeout=params.judge_seconds))
        distance = worst(engine.results, rule)[2] if engine.status == "ok" else None
        return _Reference(error=error, judge=judge, engine=distance, suspect=distance is not None and distance < error)
    return _Reference(unjudged=f"The reference was held against nothing but itself: {why}" if why else "")


def _nothing() -> Sub[_Reference]:
    return _Reference()
    yield


def _same_codes(ctx: StepContext, verdict: str, rule: Criterion) -> tuple[str, ...]:
    """What a pass does not say where the reference computes the same quantized model."""
    if verdict != "passes" or rule.precision != "int8" or unquantized(ctx.reference):
        return ()
    return (
        "The reference computes the same quantized model: what quantization itself costs is seen against the float one "
        "(--flow quantization, or --reference onnxruntime:model=FLOAT.onnx).",
    )


def _emulate(ctx: StepContext, findings: Findings, rule: Criterion) -> Sub[float | None]:
    """What a faultless engine of that precision would give on the same sample; None where nothing is emulated. Of a quantized
    model measured against the float one: what its codes are worth, computed literally. The typed reference adds up in its own
    precision, the emulation in FP32."""
    if rule.precision == "int8" and unquantized(ctx.reference):
        feed = (findings.sample or findings.samples[0].id,)
        literal = yield from asked(whole(ctx, findings, samples=feed, engine=LITERAL))
        return worst(literal.results, rule)[2] if literal.status == "ok" else None
    if rule.precision not in ("fp16", "bf16") or parse(ctx.engine).name == "emulate":
        return None
    feed = (findings.sample or findings.samples[0].id,)
    yield Note(f"what a faultless engine would give in {rule.precision}")
    m = yield from asked(whole(ctx, findings, samples=feed, engine=f"emulate:precision={rule.precision}"))
    return worst(m.results, rule)[2] if m.status == "ok" else None


def _checked(ctx: StepContext, findings: Findings, m: Measurement) -> Sub[Finish[CompareOutcome]]:
    verdict = judge_check(m, findings.criterion or Criterion())
    findings = yield from lock(ctx, findings, m)
    words = {"fail": "fails", "pass": "passes"}
    says = words.get(verdict.kind, "gives no answer")
    outcome = CompareOutcome(
        verdict=words.get(verdict.kind, "unresolved"),  # type: ignore[arg-type]
        metric="check",
        samples=1,
        samples_failing=int(verdict.failed),
        looks=1,
        failures=int(verdict.failed),
        message=f"The check {says} on the whole model{f' ({verdict.detail})' if verdict.detail else ''}.",
    )
    return Finish(outcome, findings, decisive={"whole": (whole(ctx, findings),)})


def _ended(findings: Findings, m: Measurement, rule: Criterion) -> Finish[CompareOutcome]:
    """The engine did not get as far as outputs: a failure of its own kind, when it is the engine's; else nothing can be said."""
    fails = findings.signature is not None
    return Finish(
        CompareOutcome(
            verdict="fails" if fails else "unresolved",
            failure=findings.signature.kind if findings.signature else "none",
            tolerance=rule.tolerance,
            metric=rule.metric,
            precision=rule.precision,
            looks=1,
            failures=int(fails),
            message=f"{m.message} Choose one that can with --reference."
            if m.status == "reference-failed"
            else m.message,
        ),
        findings,
    )


def _built(ctx: StepContext, findings: Findings, rule: Criterion) -> Finish[CompareOutcome]:
    """The engine was built and cannot be run here."""
    reason = ctx.engine_info["capabilities"]["run"]["reason"].rstrip(".")
    message = f"The model builds, but whether its results are right cannot be seen here: {reason}."
    outcome = CompareOutcome(
        verdict="built",
        tolerance=rule.tolerance,
        metric=rule.metric,
        precision=rule.precision,
        looks=1,
        message=message,
    )
    return Finish(outcome, findings, decisive={"whole": (whole(ctx, findings),)})


def _table(results: tuple[SampleResult, ...], rule: Criterion) -> list[dict[str, Any]]:
    return [
        {"sample": r.sample, "output": s.name, "badness": badness(s, rule), **msgspec.to_builtins(s)}
        for r in results
        for s in r.outputs
    ]


def _message(
    verdict: str,
    error: float,
    rule: Criterion,
    output: str,
    sample: str,
    looks: int,
    failures: int,
    reference: _Reference,
    problem: str = "",
) -> str:
    if verdict == "reference":
        return _suspect(reference, rule)
    doubt = f" {_suspect(reference, rule)}" if (reference.error or 0.0) > SUSPECT * limit(rule, output) else ""
    amount = PROBLEMS.get(problem) or _amount(error, rule)
    allowed = f"{_allowed(rule, output)} for {rule.precision}"
    if verdict == "fails":
        often = f" in {failures} of {looks} runs" if looks > 1 else ""
        return f"{output} is {amount} on {sample}{often}; allowed {allowed}.{doubt}"
    near = margin(rule, error, output)
    times = "more than 1000" if near > 1000 else f"{near:.3g}"
    worst_of = (
        f"the worst is {output} on {sample}, {amount}, {times} times below what is allowed ({allowed})"
        if error > 0
        else f"every output equals the reference's; allowed {allowed}"
    )
    more = f" in {looks} runs: {worst_of}; {ruled_out(looks)}" if looks > 1 else f": {worst_of}"
    return f"No failure{more}.{doubt}"


def _problem(results: tuple[SampleResult, ...], output: str) -> str:
    """What keeps the output from being compared at all, on any sample: a key of ``PROBLEMS``, or ``""``."""
    return next((s.problem for r in results for s in r.outputs if s.name == output and s.problem), "")


def _suspect(reference: _Reference, rule: Criterion) -> str:
    """What is wrong with the reference, and what to do about it."""
    if not reference.steady:
        return (
            f"The reference itself is not steady: its second run is {_amount(reference.error or 0.0, rule)} against its "
            "first. Choose another with --reference, or give it one thread."
        )
    engine = f", the engine by {reference.engine:.2g}" if reference.engine is not None else ""
    return (
        f"The reference itself is off by {reference.error or 0.0:.2g} against {reference.judge}{engine}. "
        f"Run again with --reference {reference.judge} to judge by that one."
    )


def _amount(error: float, rule: Criterion) -> str:
    """An error in the words of its metric."""
    if error >= HUGE:
        return "infinite or NaN where the reference is finite"
    if rule.metric == "sqnr_db":
        return f"at {-20 * math.log10(error):.3g} dB (sqnr_db)" if error > 0 else "exact (sqnr_db)"
    if rule.metric == "elementwise":
        return f"off by {error:.3g} times what atol and rtol allow"
    return f"off by {error:.3g} ({rule.metric})"


def _allowed(rule: Criterion, output: str) -> str:
    """What an output may be off by, in the words of the metric."""
    if rule.metric == "elementwise":
        return f"atol {rule.atols.get(output, rule.atol):.3g}, rtol {rule.rtols.get(output, rule.rtol):.3g}"
    tolerance = rule.tolerances.get(output, rule.tolerance)
    return f"{tolerance:.3g} dB at least" if rule.metric == "sqnr_db" else f"{tolerance:.3g}"


def _plan(ctx: StepContext, size: Size) -> Plan:
    """Read, all samples, the worst row alone, the reference a second time, its judge; what a faultless engine would give.
    Looks that find nothing go on for up to half a minute, which is not counted. The disk takes the model, its weights once more
    rounded where the precision is emulated, and in float64 where the judge can hold them."""
    rule = ctx.findings.criterion
    lower = (rule.precision if rule else "") in ("fp16", "bf16", "int8")
    emulated = lower and parse(ctx.engine).name != "emulate"
    asked = (
        (works.on_all(ctx),)
        if ctx.check
        else (works.on_all(ctx), works.on_sample(ctx), *works.others(ctx, 1 + emulated))
    )
    given = size.given
    copies = given * lower + (2 * given if 2 * given <= JUDGED else 0)
    disk = _taken(ctx, size) + AHEAD + (0 if ctx.check else copies) if given >= 0 else -1
    return Plan((*works.reads(ctx), *asked), disk, AHEAD if disk >= 0 else 0)


def _taken(ctx: StepContext, size: Size) -> int:
    """Bytes of the model that is still to be taken in."""
    return 0 if ctx.findings.model else size.given


def _json(told: Told) -> dict[str, Any]:
    """The outcome, each sample with its outputs and every metric of them. How many samples there were stands beside the list."""
    samples: dict[str, list[dict[str, Any]]] = {}
    for row in told.tables.get("outputs", []):
        samples.setdefault(row["sample"], []).append({key: value for key, value in row.items() if key != "sample"})
    listed = [{"sample": name, "outputs": [_score(row) for row in rows]} for name, rows in samples.items()]
    return {**told.outcome, "samples_n": told.outcome.get("samples", 0), "samples": listed}


def _score(row: dict[str, Any]) -> dict[str, Any]:
    """A score with every metric in it: values at their default are left out where it is stored."""
    every = {name: getattr(Score(""), name) for name in Score.__struct_fields__ if name != "front"}
    return {**every, **{key: value for key, value in row.items() if key != "front"}}


SPEC = StepSpec(
    name="compare",
    version=4,
    summary="Run the whole model on every sample and compare its outputs with the reference.",
    run=compare,
    outcome=CompareOutcome,
    params=CompareParams,
    plan=_plan,
    exclusive=True,
    sets=("emulated", "looks"),
    ends=(
        End("verdict", "passes", "not-reproduced"),
        End("verdict", "reference", "reference-suspect"),
        End("verdict", "unresolved", "unresolved"),
    ),
    labels={
        "metric": "measured as",
        "precision": "the engine computes in",
        "nonfinite": "new NaN or infinity",
        "emulated_error": "a faultless engine would give",
        "explanation": "so the likely origin is",
        "reference_error": "the reference is off by",
        "reference_judge": "the reference was judged by",
        "reference_steady": "the reference repeats itself",
    },
    json=_json,
)
