"""What every step needs before its own work: the model taken in, inputs made, a criterion, and the
failure locked.

Probes are content-keyed, so asking again what an earlier step has asked costs nothing: a step runs
the same alone and in a flow.
"""

import msgspec

from narrowdown.engines.asking import Note, Refused, StepContext, StepRefused, Sub, asked
from narrowdown.engines.asking.engine_forms import note_expensive
from narrowdown.engines.asking.failure import choose_feed, list_feeds, lock_failure
from narrowdown.engines.asking.failure_rate import Runs, run_again
from narrowdown.engines.asking.whole_model import WholeModel, probe_whole
from narrowdown.engines.compare.judge import (
    REFUSALS,
    TOLERANCE_BY_PRECISION,
    Verdict,
    choose_result,
    judge_check,
    judge_cured,
    judge_whole,
    sign_failure,
)
from narrowdown.engines.compare.tolerance import criterion
from narrowdown.engines.findings import Findings
from narrowdown.engines.options import recorded
from narrowdown.engines.probe import (
    Candidate,
    Import,
    LoadInputs,
    Measurement,
    SampleInfo,
    is_given,
)
from narrowdown.engines.search import golden_reference
from narrowdown.engines.search.control_flow import open_bodies
from narrowdown.engines.search.controls import find_helpless
from narrowdown.engines.search.determined import see_rows
from narrowdown.engines.sources import paths, postprocess_script
from narrowdown.engines.spec import unquantized
from narrowdown.engines.steps import intake

GUESSED = "made up: "


def load_findings(ctx: StepContext) -> Sub[Findings]:
    """Findings with model, inputs, samples and criterion. Raises StepRefused (exit code 2) for a
    model, inputs or bounds that do not fit."""
    findings, problem = ctx.findings, ctx.problem
    if not findings.model:
        yield Note("reading the model")
        taken = yield from asked(
            Import(path=problem.model, digest=problem.digests.get(problem.model, ""))
        )
        if taken.status != "ok":
            raise intake.make_refusal(taken)
        if not postprocess_script(problem.postprocess):  # which may rename them
            intake.refuse_unknown_outputs(problem, taken.facts.get("outputs", ()))
        findings = msgspec.structs.replace(
            findings,
            model=taken.facts["model"],
            original=taken.facts["model"],
            random=tuple(taken.facts.get("random", ())),
            bodies=int(taken.facts.get("bodies", 0)),
            notes=(*findings.notes, *taken.facts.get("warnings", ())),
            suggested=_read_pairs(taken),
            cache=msgspec.convert(taken.facts.get("cache", ()), tuple[int, ...]),
        )
    precision = ctx.engine_info.precision
    # A user's check may need no inputs of ours.
    wanted = not ctx.check or "{inputs}" in ctx.check or "{expected}" in ctx.check
    if wanted and not findings.inputs:
        yield Note("reading the inputs")
        made = yield from asked(_inputs(ctx, findings))
        if made.status != "ok":
            raise intake.make_refusal(made, problem.inputs)
        # A journal of an earlier version says whether it is quantized, and not to what or whether
        # in its weights alone.
        codes = str(made.facts.get("codes") or ("int8" if made.facts.get("quantized") else ""))
        half = str(made.facts.get("half", ""))
        own = max(
            (str(made.facts.get("mostly_half") or precision), precision),
            key=lambda each: TOLERANCE_BY_PRECISION.get(each, 0.0),
        )
        if unquantized(ctx.reference):
            # Against the model before it was converted, what halves cost is no failure.
            precision = codes or half or precision
        elif recorded(ctx.reference):
            precision = codes or own
        else:
            # An engine that is held against the same codes, or halves, may be off by what is rounded
            # while it runs; of weights nothing is.
            precision = str(made.facts.get("rounded", codes)) or own
        said = (
            *_say_guesses(made),
            *made.facts.get("warnings", ()),
            *intake.say_half(half, ctx.reference),
            *intake.say_large(made.facts.get("large", {}), ctx),
        )
        tried = _with_inputs(findings, made)
        # Nothing is computed from what was recorded, and a check is fed whole samples.
        split = () if ctx.check or recorded(ctx.reference) else made.facts.get("batched", ())
        if no_batch := (yield from see_rows(WholeModel(ctx, tried), tuple(split))):
            made = yield from asked(_inputs(ctx, findings, batch=False))
            said = (*said, no_batch)
        findings = msgspec.structs.replace(
            _with_inputs(findings, made), codes=codes, notes=(*findings.notes, *said)
        )
        yield from golden_reference.refuse_unfit(ctx, findings)
    if findings.criterion is None:
        findings = msgspec.structs.replace(findings, criterion=criterion(problem, precision))
    return findings


def _inputs(ctx: StepContext, findings: Findings, **how: bool) -> LoadInputs:
    problem = ctx.problem
    digests = problem.digests
    probe = LoadInputs(
        model=findings.original or findings.model,
        sources=problem.inputs,
        source_digests=tuple(
            next((digests[p] for p in paths(s) if p in digests), "") for s in problem.inputs
        ),
        seed=problem.seed,
        shapes=problem.input_shapes,
        ranges=problem.val_range,
        random=not recorded(ctx.reference),  # of made-up inputs nothing was recorded
        suggested=findings.suggested,
        cache=findings.cache,
    )
    return msgspec.structs.replace(problem.tell_loop(probe, ctx.reference), **how)


def _with_inputs(findings: Findings, made: Measurement) -> Findings:
    """Findings with the inputs and the samples that decide: the given ones where there are any."""
    samples = tuple(msgspec.convert(s, SampleInfo) for s in made.facts["samples"])
    given = tuple(s for s in samples if is_given(s.id))
    return msgspec.structs.replace(
        findings,
        inputs=made.facts["inputs"],
        samples=given or samples,
        suggested=_read_pairs(made),
    )


def _read_pairs(made: Measurement) -> tuple[tuple[str, str], ...]:
    return tuple((name, pattern) for name, pattern in made.facts.get("suggested") or ())


def prepare_findings(ctx: StepContext) -> Sub[Findings]:
    """Findings with the failure locked as well, where the model fails; without a signature where it
    passes. Raises StepRefused where neither can be told.

    On the sample that an answer has chosen, if one has; else on the worst one.
    """
    if recorded(ctx.reference):
        raise StepRefused(
            "Golden outputs compute nothing, so a part of the model cannot be held against them: run the whole flow (narrowdown "
            "run), which confirms an engine by them and goes on against that, or name an engine with --reference."
        )
    findings: Findings = yield from load_findings(ctx)
    if findings.signature is not None:
        return (yield from open_bodies(WholeModel(ctx, findings)))
    chosen = str(ctx.settings.get("sample", ""))
    if chosen and not ctx.check and any(s.id == chosen.partition("/")[0] for s in findings.samples):
        only = yield from asked(probe_whole(ctx, findings, samples=(chosen,)))
        locked: Findings = yield from lock_failure(ctx, findings, only)
        locked = msgspec.structs.replace(locked, sample=chosen)
    else:
        chosen = ""
        findings, measurement = yield from measure_whole(ctx, findings)
        intake.refuse_unmeasured(measurement, findings)
        locked = yield from lock_failure(ctx, findings, measurement)
        locked = note_expensive(ctx, locked, measurement)
        if locked.signature is None:
            intake.refuse_unresolved(measurement, findings.rule, check=bool(ctx.check))
        elif ctx.check and (helpless := (yield from find_helpless(WholeModel(ctx, locked)))):
            told = f"The check fails on the whole model. {helpless}"
            raise StepRefused(told, code=Refused.UNPROVEN)
    locked = yield from open_bodies(WholeModel(ctx, locked))
    if locked.signature is not None and (locked.patches or locked.keep or locked.righted):
        locked = yield from _later_round(ctx, locked, chosen)
    return locked


def prepare_failure(ctx: StepContext, most_runs: int) -> Sub[tuple[Findings, int]]:
    """(findings, runs): as prepared; a model that passes is run again until it fails, at most so
    often."""
    findings: Findings = yield from prepare_findings(ctx)
    runs = 0
    if findings.signature is None and not ctx.check:
        findings, runs, _ = yield from run_again(WholeModel(ctx, findings), Runs(most=most_runs))
    return findings, runs


def judge_again(ctx: StepContext, findings: Findings, m: Measurement) -> Verdict:
    """Whether an answer to the question that the failure was locked on fails as that did."""
    if ctx.check:
        return judge_check(m, findings.rule)
    if findings.signature is None and m.status in ("crash", *REFUSALS):
        return Verdict("fail", detail=m.message)
    return judge_cured(m, findings.rule, findings.signature)


def _later_round(ctx: StepContext, findings: Findings, chosen: str) -> Sub[Findings]:
    """Findings with the failure that is left once the earlier culprits are cured, on the chosen
    sample or the worst."""
    rule = findings.rule
    cured = yield from asked(
        probe_whole(
            ctx,
            findings,
            samples=(chosen,) if chosen else list_feeds(findings),
            candidate=Candidate(severed=findings.patches),
            keep=findings.keep,
            righted=findings.righted,
        )
    )
    if cured.status != "ok" or not judge_whole(cured, rule).failed:
        return findings
    left = choose_result(cured, rule)
    return msgspec.structs.replace(
        findings,
        round_signature=sign_failure(left, rule, left.sample),
        sample=chosen or choose_feed(findings, left.sample),
    )


def measure_whole(
    ctx: StepContext, findings: Findings, runs: int = 1
) -> Sub[tuple[Findings, Measurement]]:
    """(findings, measurement) of the whole working model on every feed."""
    curve = any(s.steps for s in findings.samples)
    m = yield from asked(probe_whole(ctx, findings, runs=runs, exclusive=runs > 1, curve=curve))
    if postprocess_script(ctx.problem.postprocess):  # whose outputs are known only now
        names = dict.fromkeys(s.name for r in m.results for s in r.outputs)
        intake.refuse_unknown_outputs(ctx.problem, names)
    given = any(is_given(s.id) for s in findings.samples)
    if given and not (ctx.check or recorded(ctx.reference)):
        yield from intake.refuse_wrong_sizes(WholeModel(ctx, findings), m, _inputs(ctx, findings))
    if given or ctx.check or m.assumed or m.status != "reference-failed":
        return findings, m
    return (yield from _plain_inputs(ctx, findings, m, runs))


def _plain_inputs(
    ctx: StepContext, findings: Findings, given: Measurement, runs: int
) -> Sub[tuple[Findings, Measurement]]:  # fmt: skip
    """The same on made-up inputs of which nothing is guessed: a role guessed from a name may be one
    that the model cannot take. As it was where it does not run on these either."""
    yield Note("the reference does not run on what was made up: plain values")
    made = yield from asked(_inputs(ctx, findings, cautious=True))
    if made.status != "ok":
        return findings, given
    plain = _with_inputs(findings, made)
    m = yield from asked(probe_whole(ctx, plain, runs=runs, exclusive=runs > 1))
    if m.status != "ok":
        return findings, given
    note = (
        f"The model does not run on the values that were guessed ({given.message.rstrip('.')}); plain ones were taken. Give real "
        "inputs (--inputs), or say what each may hold (--val-range NAME:[LOW,HIGH])."
    )
    said = (*(n for n in findings.notes if not n.startswith(GUESSED)), *_say_guesses(made), note)
    return msgspec.structs.replace(plain, notes=said), m


def _say_guesses(made: Measurement) -> tuple[str, ...]:
    return tuple(f"{GUESSED}{guess}" for guess in made.facts.get("guesses", ()))
