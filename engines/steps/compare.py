"""compare (node ``reproduce``): does the failure show here, is the reference to be trusted, and
what would a faultless engine give?"""

from typing import Literal, NamedTuple

import msgspec

from narrowdown.engines.asking import Amount, Count, Note, StepContext, StepRefused, Sub
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.compare.criterion import Criterion
from narrowdown.engines.compare.judge import (
    REFUSALS,
    badness,
    judge_check,
    list_slight,
    margin,
    worst,
)
from narrowdown.engines.compare.say import say_error
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph.filekind import is_ir
from narrowdown.engines.options import recorded
from narrowdown.engines.probe import HUGE, Measurement, SampleResult, Score, is_given
from narrowdown.engines.search import golden_reference, trial
from narrowdown.engines.search.alike import refused_alike
from narrowdown.engines.search.cheap_engine import note_expensive
from narrowdown.engines.search.controls import Controls, can_pass
from narrowdown.engines.search.determined import measure_random, say_random
from narrowdown.engines.search.evidence import FAULTLESS
from narrowdown.engines.search.intermittent import Runs, run_again
from narrowdown.engines.search.nearby import Nearby, try_nearby
from narrowdown.engines.search.statistics import (
    binomial_interval,
    least_share,
    runs_to_settle,
    say_ruled_out,
)
from narrowdown.engines.search.whole import (
    list_failing,
    lock_failure,
    look_at_whole,
    probe_whole,
)
from narrowdown.engines.spec import parse, unquantized
from narrowdown.engines.steps import compare_words as words
from narrowdown.engines.steps.base import End, Finish, Steps, StepSpec, Told
from narrowdown.engines.steps.intake import refuse_unmeasured, say_of_pairs
from narrowdown.engines.steps.prepare import load_findings, measure_whole

LITERAL = "onnxruntime"  # optimizers off: every node as it is written


Verdict = Literal[
    "fails", "passes", "refused", "refused-whole", "reference", "noise", "export", "built", "unresolved",
]  # fmt: skip


class CompareOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """compare: the whole model on every sample (node ``reproduce``)."""

    # refused: the engine does not take the model; refused-whole: nor any part of it;
    # reference: the reference is suspect; noise: rounding moves the outputs as much; export:
    # the model is not what was recorded; built: it builds and cannot run here
    verdict: Verdict = "unresolved"
    failure: Literal["accuracy", "crash", "build", "check", "none"] = "none"  # how it fails
    error: float | None = None
    tolerance: float = 0.0
    metric: str = "rel_l2"
    precision: str = "fp32"  # that the default tolerance follows from
    error_places: tuple[int, int] = (0, 0)  # of whole numbers: wrong ones, and all
    worst_output: str = ""  # the output that is furthest off
    worst_sample: str = ""  # where it is
    margin: float | None = None  # how many times the worst error fits into what is allowed
    samples: int = 0
    samples_failing: int = 0
    nonfinite: bool = False  # Inf or NaN where the reference is finite
    emulated_error: float | None = None  # what this precision alone explains
    # whose fault it looks like; keeps-higher: it computes more exactly than it claims; both:
    # the codes of a quantized model, and the engine
    explanation: Literal["engine", "precision", "both", "keeps-higher", "unknown"] = "unknown"
    # of a quantized model: distance from its codes, computed literally
    engine_error: float | None = None
    reference_error: float | None = None  # distance of the reference from a more exact computation
    reference_judge: str = ""  # what computed that, "" = nothing did
    reference_steady: bool = True  # its second run gave the same as its first
    # the new reference, where two independent engines agree against the given one
    reference_replaced: str = ""
    alike: bool = False  # reference and engine are wrong in the same way
    model_error: float | None = None  # distance of the model in FP32 from the golden outputs
    model_voice: str = ""  # what computed it
    # the first tensor that differs from these, or at which reference and judge part
    departs: str = ""
    departs_node: str = ""  # the node that makes it
    # how far one rounding step of inputs or weights moves the outputs
    moved_error: float | None = None
    looks: int = 0  # runs or builds looked at
    failures: int = 0  # of them
    interval_low: float = 0.0
    interval_high: float = 1.0
    more_looks: int = 0  # passing runs that would rule out the next rarer fault at 95 %
    as_built: bool = False  # the engine was built elsewhere
    no_reference: bool = False  # of a refused model: the reference does not run it either
    missed: str = ""  # what so many runs without a failure leave possible
    given: int = 0  # of the samples those that are the user's own
    # of a pass: the share of other samples that may fail, at most, at 95 %
    may_fail: float | None = None
    near: int = 0  # of a pass on few samples: made-up ones that were tried too
    near_failing: int = 0  # of these, how many are wrong
    near_error: float | None = None  # the worst of them
    message: str = ""


# Nodes and seconds bound the one wait that every session begins with. Chosen, not measured: models
# of that many nodes that take float64 longer than a minute are cut off by the seconds.
class CompareParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    judge_reference: bool = True  # compare the reference with float64, or with a second engine
    judge_nodes: Count = 50000  # larger models are judged by the second engine only
    judge_seconds: Amount = 60.0  # processor seconds for that; `--timeout` gives more
    look_again: Runs = Runs()  # where nothing fails at first


def compare(ctx: StepContext) -> Steps[CompareOutcome]:
    params = msgspec.convert(dict(ctx.params), CompareParams)
    findings: Findings = yield from load_findings(ctx)
    many = len(findings.samples)
    yield Note(f"the whole model on {many:,} {'sample' if many == 1 else 'samples'}")
    findings, m = yield from measure_whole(ctx, findings)
    if ctx.check:
        refuse_unmeasured(m, findings.samples, findings.notes)
        checked: Finish[CompareOutcome] = yield from _compare_by_check(ctx, findings, m)
        return checked
    m, no_reference = yield from _ask_other_side(ctx, findings, m)
    refuse_unmeasured(m, findings.samples, findings.notes)
    findings = yield from lock_failure(ctx, findings, m)
    if m.status != "ok":
        # Of an engine that was built before no part can be asked whether it is refused alike.
        asked_alone = not (ctx.engine_info.rebuilt or no_reference)
        alone = (yield from _find_refused_alike(ctx, findings)) if asked_alone else ()
        outcome = _end_without_outputs(findings, m, alone)
        return Finish(
            msgspec.structs.replace(
                outcome, as_built=bool(ctx.engine_info.rebuilt), no_reference=no_reference
            ),
            findings,
        )
    if m.facts.get("build") is not None and not m.results:
        return _finish_built_only(ctx, findings)
    drawn = yield from measure_random(look_at_whole(ctx, findings))
    if drawn is not None:
        return _finish_random(findings, m, drawn)
    seen: _Seen = yield from _look_around(ctx, findings, params, m)
    outcome = _sum_up(seen)
    return Finish(
        msgspec.structs.replace(outcome, message=" ".join(_say_all(seen, outcome))),
        seen.model.findings,
        tables={"outputs": _list_scores(seen.measurement.results, seen.model.rule)},
        decisive={"whole": (probe_whole(seen.model.ctx, seen.model.findings),)},
    )


class _Seen(NamedTuple):
    """All that was measured of a model that gives outputs; ``tried`` has the reference that stands in
    the end. ``runs`` looked at, of which ``failures`` fail."""

    tried: trial.Tried
    emulated: float | None
    codes: "_OnCodes | None"
    runs: int
    failures: int
    nearby: Nearby

    @property
    def model(self) -> WholeModel:
        return self.tried.model

    @property
    def measurement(self) -> Measurement:
        return self.tried.measurement


def _look_around(
    ctx: StepContext, findings: Findings, params: CompareParams, m: Measurement
) -> Sub[_Seen]:
    """Is the reference right, what would a faultless engine give, and where nothing fails: does it
    in more runs, or nearby?"""
    tried: trial.Tried = yield from _try_reference(ctx, findings, params, m)
    model, m = tried.model, tried.measurement
    ctx, findings = model.ctx, model.findings
    codes = yield from _measure_codes(model)
    emulated = codes.literal if codes else (yield from _measure_emulated(model))
    # In FP32 float64 tells what a right engine's rounding costs.
    judge = parse(tried.heard.judge or "none")
    exact = model.rule.precision == "fp32" and judge.get("precision") == "fp64"
    faultless = tried.heard.error if emulated is None and exact else emulated
    findings = msgspec.structs.replace(findings, emulated=faultless)
    runs, failures = 1, int(findings.signature is not None)
    if not tried.verdict and findings.signature is None:
        findings, runs, failures = yield from run_again(
            model.of(findings), params.look_again, m.run_seconds
        )
    if not tried.verdict and not tried.moved.explains:
        findings = note_expensive(ctx, findings, m)
    nearby = Nearby()
    if not tried.verdict and findings.signature is None and not m.facts.get("untouched"):
        nearby = yield from try_nearby(ctx, findings, m)
    tried = msgspec.structs.replace(tried, model=model.of(findings))
    return _Seen(tried, emulated, codes, runs, failures, nearby)


def _decide_verdict(seen: _Seen) -> Verdict:
    """Whose fault it is comes first, then whether rounding explains the failure, or only nearly
    nothing fails."""
    signature, tried = seen.model.findings.signature, seen.tried
    if tried.moved.explains:
        return "noise"
    if tried.verdict:
        return tried.verdict
    if signature is None:
        return "passes"
    # What fails on more than that is locked before it.
    return (
        "noise"
        if signature.sample in list_slight(seen.measurement.results, seen.model.rule)
        else "fails"
    )


def _sum_up(seen: _Seen) -> CompareOutcome:
    """The outcome but for its message."""
    findings, rule, tried, nearby = seen.model.findings, seen.model.rule, seen.tried, seen.nearby
    results, runs, failures = seen.measurement.results, seen.runs, seen.failures
    sample, output, error = worst(results, rule)
    signature = findings.signature
    if signature is not None:
        error, output = signature.error, next(iter(signature.outputs), output)
        sample = signature.sample
    low, high = binomial_interval(failures, runs)
    quiet = runs > 1 and not failures
    verdict = _decide_verdict(seen)
    given = sum(is_given(r.sample) for r in results)
    golden, heard = tried.golden, tried.heard
    departs = golden.departure if golden else tried.parting
    return msgspec.structs.replace(
        _start(findings),
        verdict=verdict,
        error=error,
        error_places=signature.places if signature else (0, 0),
        worst_output=output,
        worst_sample=sample,
        margin=margin(rule, error, output),
        samples=len(results),
        samples_failing=len(list_failing(results, rule)),
        nonfinite=bool(signature and signature.nonfinite),
        emulated_error=seen.emulated,
        explanation=_explain(seen, error),
        engine_error=seen.codes.engine if seen.codes else None,
        reference_error=heard.error,
        reference_judge=heard.judge,
        reference_steady=tried.steady,
        reference_replaced=findings.replaced.to if findings.replaced else "",
        alike=findings.alike,
        model_error=golden.off if golden and golden.voice else None,
        model_voice=golden.voice if golden else "",
        departs=departs.tensor,
        departs_node=departs.node,
        moved_error=max(tried.moved.outputs.values(), default=None),
        looks=runs,
        failures=failures,
        interval_low=low,
        interval_high=high,
        more_looks=runs_to_settle(runs)[1] if quiet else 0,
        missed=say_ruled_out(runs) if quiet else "",
        given=given,
        may_fail=1 - least_share(given, given) if given and verdict == "passes" else None,
        near=nearby.n,
        near_failing=nearby.failing,
        near_error=nearby.error if nearby.n and nearby.error < HUGE else None,
        as_built=bool(seen.model.ctx.engine_info.rebuilt),
    )


def _say_all(seen: _Seen, outcome: CompareOutcome) -> tuple[str, ...]:
    """The sentences of the message, the verdict's first."""
    model, m = seen.model, seen.measurement
    if outcome.verdict == "noise" and not seen.tried.moved.explains:
        said = words.say_slight(m.results, outcome, model.rule)
    else:
        problem = words.find_problem(m.results, outcome.worst_output)
        exact = words.find_exact(m.results, outcome)
        said = words.say_outcome(outcome, model.rule, seen.tried, problem, exact)
    told = (
        words.say_made_up(model.findings, outcome),
        said,
        words.say_whose_codes(outcome, model.rule),
        *words.say_answers(m.results, model.rule),
        *words.say_beside(model, m, outcome),
        *words.say_nearby(seen.nearby, model.rule),
        *model.ctx.engine_info.notes,
    )
    return tuple(filter(None, told))


def _ask_other_side(
    ctx: StepContext, findings: Findings, m: Measurement
) -> Sub[tuple[Measurement, bool]]:
    """(m, whether the reference does not run the model) with what the other side says where one of
    engine and reference does not run it. What neither takes is refused by the engine, and cannot be
    taken apart, as no part could be fed. An engine that was built elsewhere builds nothing."""
    builds, first = not ctx.engine_info.rebuilt, (findings.samples[0].id,)
    model = look_at_whole(ctx, findings)
    if m.status == "reference-failed":
        if builds:
            built = yield from model.compare(samples=first, runs=0, note="does the engine take it?")
            m = _tell_unrun(built.measurement, m) if built.measurement.status in REFUSALS else m
        return m, True
    refused = m.status in REFUSALS and builds and not recorded(ctx.reference)
    if not refused and m.status != "error":
        return m, False
    theirs = yield from model.compare(
        ctx.reference, ctx.reference, first if refused else (), note="does the reference run it?"
    )
    right = theirs.measurement
    if refused and right.status in (*REFUSALS, "reference-failed", "error"):
        return _tell_unrun(m, right), True
    if m.status != "error" or right.status != "ok":
        return m, False
    # The frames of a voice became none in FP16, which is no fault of the samples. Of a quantized
    # model on FP16 it is FP16 that is new: its codes are the reference's, too.
    precision = ctx.engine_info.precision or model.rule.precision
    sizes = f" A size that is computed, as of frames, may be another one in {precision.upper()}."
    told = f"{m.message} The reference runs the same samples.{'' if precision == 'fp32' else sizes}"
    return msgspec.structs.replace(m, message=told), False


def _tell_unrun(refused: Measurement, reference: Measurement) -> Measurement:
    """The engine's refusal, with what the reference says that does not run the model either."""
    same = refused.message in reference.message
    theirs = "Nor does the reference run it, in the same words." if same else reference.message
    told = "What no reference runs cannot be taken apart: one that runs it (--reference) would show which part is refused."
    return msgspec.structs.replace(refused, message=f"{refused.message} {theirs} {told}")


def _find_refused_alike(ctx: StepContext, findings: Findings) -> Sub[tuple[str, ...]]:
    """Names of nodes that are refused alone in the words in which the whole model is. None where
    the reference cannot run it: what the engine said is then the thing to tell."""
    signature = findings.signature
    if signature is None or not signature.refusal:
        return ()
    try:
        ask: Inquiry = yield from open_inquiry(ctx, findings)
    except StepRefused:
        return ()
    return (yield from refused_alike(make_oracle(ask)))


def _explain(
    seen: _Seen, error: float
) -> Literal["engine", "precision", "both", "keeps-higher", "unknown"]:
    """Whose fault it looks like: the engine's, or the precision's own limit. Explains; never
    decides pass or fail."""
    failing, emulated, rule = (
        seen.model.findings.signature is not None,
        seen.emulated,
        seen.model.rule,
    )
    if seen.codes and failing:
        return seen.codes.explanation
    if parse(seen.model.ctx.engine).name in ("emulate", "reference"):
        return "precision" if failing else "unknown"
    if rule.precision == "fp32":
        return "engine" if failing else "unknown"
    if emulated is None:
        return "unknown"
    if not failing:
        return "keeps-higher" if emulated > rule.tolerance else "unknown"
    return "precision" if emulated >= error / FAULTLESS else "engine"


def _try_reference(
    ctx: StepContext, findings: Findings, params: CompareParams, m: Measurement
) -> Sub[trial.Tried]:
    if not params.judge_reference:
        return trial.Tried(look_at_whole(ctx, findings), m)
    seconds = max(params.judge_seconds, ctx.problem.timeout)
    model = look_at_whole(ctx, findings, seconds)
    if recorded(ctx.reference):
        told = yield from golden_reference.try_golden(model, m, params.judge_nodes)
        tried = trial.by_golden(ctx.reference, told)
    else:
        tried = yield from trial.try_reference(model, m, params.judge_nodes)
    return msgspec.structs.replace(tried, model=tried.model.unlimited)


class _OnCodes(NamedTuple):
    """Of a quantized model that is held against the float one: how far its codes, computed
    literally, are from that (``literal``), how far the engine is from these codes (None where
    nothing fails), and whose fault a failure is."""

    literal: float
    engine: float | None = None
    explanation: Literal["engine", "precision", "both"] = "precision"


def _measure_codes(model: WholeModel) -> Sub[_OnCodes | None]:
    """Both on the sample that the search works on. The one that is over the tolerance by itself is
    at fault."""
    findings = model.findings
    if not (findings.codes and unquantized(model.reference)):
        return None
    feed = (findings.sample or findings.samples[0].id,)
    literal = yield from model.compare(
        LITERAL, samples=feed, note="the quantized model, computed literally"
    )
    if not literal.told:
        return None
    if findings.signature is None or parse(model.engine).name == "reference":
        return _OnCodes(literal.error)
    own = yield from model.compare(
        reference=LITERAL,
        samples=feed,
        note="the engine against the same codes, computed literally",
    )
    if not own.told:
        return _OnCodes(literal.error)
    told: Literal["engine", "precision", "both"] = "both"
    if literal.exceeds != own.exceeds:
        told = "precision" if literal.exceeds else "engine"
    return _OnCodes(literal.error, own.error, told)


def _measure_emulated(model: WholeModel) -> Sub[float | None]:
    """What a faultless engine of that precision would give on the same sample; None where nothing
    is emulated. The typed reference adds up in its own precision, the emulation in FP32."""
    precision, findings = model.rule.precision, model.findings
    itself = parse(model.engine).name == "emulate"
    if precision not in ("fp16", "bf16") or itself or is_ir(model.ctx.problem.model):
        return None
    feed = (findings.sample or findings.samples[0].id,)
    off = yield from model.compare(
        f"emulate:precision={precision}",
        samples=feed,
        note=f"the error that {precision.upper()} alone explains",
    )
    return off.error if off.measurement.status == "ok" else None


def _compare_by_check(
    ctx: StepContext, findings: Findings, m: Measurement
) -> Sub[Finish[CompareOutcome]]:
    verdict = judge_check(m, findings.rule)
    findings = yield from lock_failure(ctx, findings, m)
    controls = Controls(True)
    if verdict.failed:
        controls = yield from can_pass(WholeModel(ctx, findings))
    kinds: dict[str, Verdict] = {"fail": "fails", "pass": "passes"}
    says = kinds.get(verdict.kind, "gives no answer")
    message = (
        f"The check {says} on the whole model{f' ({verdict.detail})' if verdict.detail else ''}."
    )
    outcome = CompareOutcome(
        verdict=kinds.get(verdict.kind, "unresolved") if controls.passed else "unresolved",
        metric="check",
        samples=1,
        samples_failing=int(verdict.failed),
        looks=1,
        failures=int(verdict.failed),
        message=f"{message} {controls.said}" if controls.said else message,
    )
    return Finish(outcome, findings, decisive={"whole": (probe_whole(ctx, findings),)})


def _end_without_outputs(
    findings: Findings, m: Measurement, alone: tuple[str, ...]
) -> CompareOutcome:
    """The engine did not get as far as outputs: a failure of its own kind, when it is the engine's;
    else nothing can be said. ``alone``: nodes that are refused by themselves as the whole is, where
    all that were tried are."""
    base = _start(findings)
    verdict: Verdict = "unresolved" if base.failure == "none" else "fails"
    if base.failure == "build":
        verdict = "refused-whole" if alone else "refused"
    message = f"{m.message}{say_of_pairs(findings.notes)}"
    if alone:
        message += f" No node is at fault: each that was tried alone ({', '.join(alone)}) is refused in the same words."
    if m.status == "reference-failed":
        message += " Choose one that can with --reference."
    return msgspec.structs.replace(base, verdict=verdict, message=message)


def _start(findings: Findings) -> CompareOutcome:
    """What is known of every outcome: how the model is judged, and whether it failed in the one
    run so far."""
    rule = findings.rule
    return CompareOutcome(
        failure=findings.signature.kind if findings.signature else "none",
        tolerance=rule.tolerance,
        metric=rule.metric,
        precision=rule.precision,
        looks=1,
        failures=int(findings.signature is not None),
    )


def _finish_random(findings: Findings, m: Measurement, drawn: float) -> Finish[CompareOutcome]:
    """The model's outputs are drawn anew in each run, so nothing can be said of an engine's."""
    rule = findings.rule
    sample, output, error = worst(m.results, rule)
    outcome = msgspec.structs.replace(
        _start(findings),
        verdict="noise",
        failures=0,
        error=error,
        worst_output=output,
        worst_sample=sample,
        samples=len(m.results),
        reference_steady=False,
        moved_error=drawn,
        message=say_random(findings.random, say_error(drawn, rule)),
    )
    return Finish(outcome, findings, tables={"outputs": _list_scores(m.results, rule)})


def _finish_built_only(ctx: StepContext, findings: Findings) -> Finish[CompareOutcome]:
    """The engine was built and cannot be run here."""
    reason = ctx.reason("run").rstrip(".")
    message = f"The model builds, but whether its results are right cannot be seen here: {reason}."
    outcome = msgspec.structs.replace(_start(findings), verdict="built", message=message)
    return Finish(outcome, findings, decisive={"whole": (probe_whole(ctx, findings),)})


class OutputRow(Score, frozen=True, omit_defaults=True, kw_only=True):
    """A row of the table ``outputs``: one output on one sample, every metric of it, and how bad it
    is under the session's."""

    sample: str
    output: str
    badness: float


def _list_scores(results: tuple[SampleResult, ...], rule: Criterion) -> list[OutputRow]:
    return [
        OutputRow(
            sample=r.sample, output=s.name, badness=badness(s, rule), **msgspec.structs.asdict(s)
        )
        for r in results
        for s in r.outputs
    ]


def _json(told: Told) -> dict[str, object]:
    """The outcome, each sample with its outputs and every metric of them. How many samples there
    were stands beside the list."""
    samples: dict[object, list[dict[str, object]]] = {}
    for row in told.tables.get("outputs", []):
        samples.setdefault(row["sample"], []).append(
            {key: value for key, value in row.items() if key != "sample"}
        )
    listed = [
        {"sample": name, "outputs": [_score(row) for row in rows]} for name, rows in samples.items()
    ]
    return {**told.outcome, "samples_n": told.outcome.get("samples", 0), "samples": listed}


def _score(row: dict[str, object]) -> dict[str, object]:
    """A score with every metric in it: values at their default are left out where it is stored."""
    every = {name: getattr(Score(""), name) for name in Score.__struct_fields__ if name != "front"}
    return {**every, **{key: value for key, value in row.items() if key != "front"}}


def _plan(ctx: StepContext, _nodes: int) -> int:
    """Model and inputs, all samples; where outputs are compared the reference alone, the worst row
    alone, the reference again in three ways, and its judge."""
    return 3 if ctx.check else 9


SPEC = StepSpec(
    name="compare",
    version=14,
    summary="Run the whole model on every sample and compare its outputs with the reference.",
    run=compare,
    outcome=CompareOutcome,
    judges=True,
    params=CompareParams,
    exclusive=True,
    sets=("emulated", "looks", "replaced", "alike"),
    ends=(
        End("verdict", "passes", "not-reproduced"),
        End("verdict", "reference", "reference-suspect"),
        End("verdict", "noise", "not-determined"),
        End("verdict", "refused", "refused"),
        End("verdict", "refused-whole", "refused"),
        End("verdict", "export", "export-at-fault"),
        End("verdict", "unresolved", "unresolved"),
    ),
    labels={
        "metric": "measured as",
        "precision": "the engine computes in",
        "nonfinite": "new NaN or infinity",
        "emulated_error": "error that {precision} alone explains",
        "engine_error": "the engine against the same codes",
        "explanation": "so the likely origin is",
        "reference_error": "the reference is wrong by",
        "reference_judge": "the reference was judged by",
        "reference_steady": "the reference repeats itself",
        "reference_replaced": "the reference that stands in",
        "alike": "the reference is wrong in the same way",
        "model_error": "the model in FP32 is off the golden outputs by",
        "model_voice": "the model was computed by",
        "departs": "the first tensor that differs",
        "departs_node": "the node that makes it",
        "moved_error": "the last place moves it by",
    },
    json=_json,
    plan=_plan,
)
