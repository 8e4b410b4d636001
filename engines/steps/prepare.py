"""What every step needs before its own work: the model taken in, inputs made, a criterion, and the failure locked.

Probes are content-keyed, so asking again what an earlier step has asked costs nothing: a step runs the same alone and in a flow.
"""

from collections.abc import Iterable

import msgspec

from engines.compare.criterion import Criterion, Signature
from engines.compare.judge import badness, exceed, judge_check, judge_whole, limit, worst
from engines.compare.tolerance import criterion
from engines.data.sources import paths, postprocess_script
from engines.graph import ranges
from engines.probe import AnyProbe, Candidate, Check, Import, LoadInputs, Measure, Measurement, SampleInfo, SampleResult
from engines.steps import intake
from engines.steps.base import Findings, Note, StepContext, Sub


def loaded(ctx: StepContext) -> Sub:
    """Findings with model, inputs, samples and criterion. Raises StepRefused (exit code 2) for a model, inputs or bounds that do
    not fit."""
    findings, problem = ctx.findings, ctx.problem
    digests = problem.get("digests", {})
    if not findings.model:
        yield Note("reading the model")
        taken: Measurement = yield Import(path=problem["model"], digest=digests.get(problem["model"], ""))
        if taken.status != "ok":
            raise intake.no_model(taken)
        if not postprocess_script(problem.get("postprocess", ())):  # which may rename them
            intake.refuse_unknown_outputs(problem, taken.facts.get("outputs", ()))
        findings = msgspec.structs.replace(
            findings,
            model=taken.facts["model"],
            original=taken.facts["model"],
            notes=(*findings.notes, *taken.facts.get("warnings", ())),
        )
    quantized = False
    if not findings.inputs and not _blind(ctx):
        yield Note("reading the inputs")
        sources = tuple(problem.get("inputs", ()))
        made: Measurement = yield LoadInputs(
            model=findings.model,
            sources=sources,
            source_digests=tuple(next((digests[p] for p in paths(s) if p in digests), "") for s in sources),
            seed=problem.get("seed", 1),
            shapes={k: tuple(v) for k, v in problem.get("input_shapes", {}).items()},
            ranges={k: tuple(v) for k, v in problem.get("val_range", {}).items()},
        )
        if made.status != "ok":
            raise intake.no_inputs(made, sources)
        samples = tuple(msgspec.convert(s, SampleInfo) for s in made.facts["samples"])
        quantized = bool(made.facts.get("quantized"))
        said = (*made.facts.get("guesses", ()), *made.facts.get("warnings", ()))
        findings = msgspec.structs.replace(
            findings, inputs=made.facts["inputs"], samples=samples, notes=(*findings.notes, *said)
        )
    if findings.criterion is None:
        findings = msgspec.structs.replace(
            findings, criterion=criterion({**problem, "quantized": quantized}, ctx.engine_info)
        )
    return findings


def prepared(ctx: StepContext) -> Sub:
    """Findings with the failure locked as well, where the model fails; without a signature where it passes. Raises StepRefused
    where neither can be told.

    On the sample that an answer has chosen, if one has; else on the worst one.
    """
    findings: Findings = yield from loaded(ctx)
    if findings.signature is not None:
        return findings
    chosen = str(ctx.settings.get("sample", ""))
    if chosen and not ctx.check and any(s.id == chosen.partition("/")[0] for s in findings.samples):
        only: Measurement = yield whole(ctx, findings, samples=(chosen,))
        locked: Findings = yield from lock(ctx, findings, only)
        locked = msgspec.structs.replace(locked, sample=chosen)
    else:
        chosen = ""
        findings, measurement = yield from measured(ctx, findings)
        intake.refuse_unmeasured(measurement, findings.samples)
        locked = yield from lock(ctx, findings, measurement)
        if locked.signature is None:
            intake.refuse_unresolved(measurement, _rule(findings), check=bool(ctx.check))
    if locked.signature is not None and (locked.patches or locked.keep):
        locked = yield from _later_round(ctx, locked, chosen)
    return locked


def _later_round(ctx: StepContext, findings: Findings, chosen: str) -> Sub:
    """Findings with the failure that is left once the earlier culprits are cured, on the chosen sample or the worst."""
    rule = _rule(findings)
    cured: Measurement = yield whole(
        ctx,
        findings,
        samples=(chosen,) if chosen else all_feeds(findings),
        candidate=Candidate(severed=findings.patches),
        keep=findings.keep,
    )
    if cured.status != "ok" or not judge_whole(cured, rule).failed:
        return findings
    name = worst(cured.results, rule)[0]
    signature = sign(next(r for r in cured.results if r.sample == name), rule, name)
    return msgspec.structs.replace(findings, round_signature=signature, sample=chosen or fed(findings, name))


def measured(ctx: StepContext, findings: Findings, runs: int = 1) -> Sub:
    """(findings, measurement) of the whole working model on every feed; in many runs on the real ones where there are any, as
    what comes and goes on random ones only is of no interest then.

    Random values may be ones that the model cannot take. Where they spoil the measurement and the user gave real inputs, those
    alone are measured, and the random feed is dropped for the rest of the session.
    """
    samples = all_feeds(findings) if runs > 1 else ()
    m: Measurement = yield whole(ctx, findings, samples=samples, runs=runs, exclusive=runs > 1)
    _bounds_are_used(ctx, m)
    real = tuple(s for s in findings.samples if s.id.startswith("real:"))
    if ctx.check or m.assumed or m.status == "ok" or not real or len(real) == len(findings.samples):
        return findings, m
    yield Note("the model does not run on all feeds: the real ones alone")
    alone: Measurement = yield whole(ctx, findings, samples=tuple(s.id for s in real), runs=runs, exclusive=runs > 1)
    if alone.status != "ok":
        return findings, m
    _bounds_are_used(ctx, alone)
    note = f"The model does not run on the random inputs ({m.message.rstrip('.')}); only the real ones are used."
    return msgspec.structs.replace(findings, samples=real, notes=(*findings.notes, note)), alone


def _bounds_are_used(ctx: StepContext, m: Measurement) -> None:
    """Raise StepRefused for a bound on an output that a postprocess script does not give."""
    if postprocess_script(ctx.problem.get("postprocess", ())):
        intake.refuse_unknown_outputs(ctx.problem, dict.fromkeys(s.name for r in m.results for s in r.outputs))


def whole(
    ctx: StepContext,
    findings: Findings,
    *,
    samples: Iterable[str] = (),
    engine: str = "",
    reference: str = "",
    **rest: object,
) -> AnyProbe:
    """The whole working model on samples (default: all feeds), or under the user's check."""
    if ctx.check:
        first = findings.samples[0].id if findings.samples else ""
        return Check(
            model=findings.model,
            command=ctx.check,
            inputs=findings.inputs,
            sample=findings.sample or first,
            reference=ctx.reference,
        )
    probe = Measure(
        model=findings.model,
        inputs=findings.inputs,
        samples=tuple(samples) or tuple(s.id for s in findings.samples),
        engine=engine or ctx.engine,
        reference=reference or ctx.reference,
        candidate=Candidate(severed=ranges.encode(())),
    )
    if not ctx.can("run", untold=True):
        rest = {**rest, "runs": 0}
    return msgspec.structs.replace(probe, **rest)


def lock(ctx: StepContext, findings: Findings, measurement: Measurement) -> Sub:
    """Findings with the signature of this failure and the sample to search on; unchanged where the measurement passes.

    The worst sample: new non-finite values first, then the highest score, then the lowest index; real inputs before random
    ones. Its row is searched alone where rows can be fed alone and the row still fails by itself.
    """
    rule = _rule(findings)
    if ctx.check:
        verdict = judge_check(measurement, rule)
        sample = findings.samples[0].id if findings.samples else ""
        signature = Signature(kind="check", sample=sample) if verdict.failed else None
        return msgspec.structs.replace(findings, signature=signature, sample=sample)
    if measurement.status in ("crash", "build-failed", "unsupported", "invalid-model"):
        sample = findings.samples[0].id
        signature = Signature(kind="crash" if measurement.status == "crash" else "build", sample=sample)
        return msgspec.structs.replace(findings, signature=signature, sample=sample)
    if measurement.status != "ok" or not judge_whole(measurement, rule).failed:
        return findings
    # An intermittent failure may sit in any run of the build.
    chosen = next(over for run in measurement.each_run if (over := failing(run, rule)))
    name = worst(chosen, rule)[0]
    result = next(r for r in chosen if r.sample == name)
    feed, _, row = name.partition("/")
    fed = feed
    # Rows that fail now and then may be failing together: they are not told apart.
    if row and not measurement.runs and any(s.id == feed and s.rows for s in findings.samples):
        yield Note(f"does {name} fail alone?")
        alone: Measurement = yield whole(ctx, findings, samples=(name,))
        if judge_whole(alone, rule).failed and worst(alone.results, rule)[2] >= worst((result,), rule)[2] / 2:
            fed, result = name, alone.results[0]
    return msgspec.structs.replace(findings, signature=sign(result, rule, name), sample=fed)


def fed(findings: Findings, sample: str) -> str:
    """What to feed for a scored sample: its row alone where the feed's rows can be fed alone, else the whole feed."""
    feed, _, row = sample.partition("/")
    return sample if row and any(s.id == feed and s.rows for s in findings.samples) else feed


def all_feeds(findings: Findings) -> tuple[str, ...]:
    """The real feeds, or the random one where none were given."""
    real = tuple(s.id for s in findings.samples if s.id.startswith("real:"))
    return real or tuple(s.id for s in findings.samples)


def failing(results: Iterable[SampleResult], rule: Criterion) -> tuple[SampleResult, ...]:
    """The results over tolerance: the real ones where any real one fails, else the random ones."""
    over = [r for r in results if exceed((r,), rule)]
    real = [r for r in over if r.sample.startswith("real:")]
    return tuple(real or over)


def sign(result: SampleResult, rule: Criterion, sample: str) -> Signature:
    """The signature of one failing result: its outputs that are over tolerance, their errors, non-finite or not."""
    errors = {s.name: badness(s, rule) for s in result.outputs}
    over = {s.name: errors[s.name] for s in result.outputs if errors[s.name] > limit(rule, s.name)}
    return Signature(
        kind="accuracy",
        sample=sample,
        outputs=tuple(over),
        errors=over,
        nonfinite=any(s.new_nonfinite for s in result.outputs),
        metric=rule.metric,
        tolerance=rule.tolerance,
    )


def _rule(findings: Findings) -> Criterion:
    return findings.criterion or Criterion()


def _blind(ctx: StepContext) -> bool:
    """Whether the user's check needs no inputs of ours."""
    return bool(ctx.check) and "{inputs}" not in ctx.check and "{expected}" not in ctx.check
