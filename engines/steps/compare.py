"""compare (node ``reproduce``): does the failure show here, is the reference to be trusted, and
what would a faultless engine give?"""

from typing import Literal, NamedTuple

import msgspec

from narrowdown.engines.asking import Amount, Note, StepContext, StepRefused, Sub
from narrowdown.engines.asking.engine_forms import list_firm, note_expensive
from narrowdown.engines.asking.failure import lock_failure
from narrowdown.engines.asking.failure_rate import Runs, run_again
from narrowdown.engines.asking.inquiry import Inquiry, make_inquiry, open_inquiry
from narrowdown.engines.asking.oracle import FAILURE, make_oracle
from narrowdown.engines.asking.whole_model import WholeModel, probe_whole
from narrowdown.engines.compare.judge import (
    REFUSALS,
    Criterion,
    badness,
    by_sample,
    judge_check,
    list_failing,
    list_slight,
    margin,
    worst,
)
from narrowdown.engines.compare.loops import (
    CurveRow,
    draw_curve,
    read_steps,
    say_curve,
    sum_up_curve,
)
from narrowdown.engines.compare.say import say_answers, say_many
from narrowdown.engines.compare.statistics import binomial_interval, say_ruled_out
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import GraphIndex
from narrowdown.engines.graph.filekind import is_ir
from narrowdown.engines.options import recorded
from narrowdown.engines.probe import ALL_HELD, Measurement, SampleResult, Score, is_given
from narrowdown.engines.search import golden_reference, trial
from narrowdown.engines.search.controls import find_carrier, find_helpless, refused_alike
from narrowdown.engines.search.determined import find_random
from narrowdown.engines.search.evidence import FAULTLESS
from narrowdown.engines.search.independent import Heard
from narrowdown.engines.search.unseen import GIVEN, NONE_MADE, WANTED, Determined, try_made
from narrowdown.engines.spec import parse, unquantized
from narrowdown.engines.steps import compare_words as words
from narrowdown.engines.steps.base import End, Finish, Outcome, Steps, StepSpec, Told
from narrowdown.engines.steps.intake import DOES_NOT_RUN, refuse_unmeasured, say_of_pairs
from narrowdown.engines.steps.layerwise import profile_by_depth
from narrowdown.engines.steps.prepare import load_findings, measure_whole

LITERAL = "onnxruntime"  # optimizers off: every node as it is written


Verdict = Literal[
    "fails", "accumulation", "passes", "refused", "refused-whole", "reference", "noise", "export", "built", "unresolved",
]  # fmt: skip


class CompareOutcome(Outcome, frozen=True, kw_only=True):
    """compare: the whole model on every sample (node ``reproduce``)."""

    # refused: the engine does not take the model; refused-whole: nor any part of it;
    # reference: the reference is suspect; noise: rounding moves the outputs as much; export:
    # the model is not what was recorded; built: it builds and cannot run here; accumulation: a
    # loop fails of which each step is right by itself
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
    # distance of the reference (the golden outputs) from an independent computation
    reference_error: float | None = None
    reference_judge: str = ""  # what computed that, "" = nothing did
    # the new reference, where two independent engines agree against the given one
    reference_replaced: str = ""
    alike: bool = False  # reference and engine are wrong in the same way
    # the first tensor that differs from these, or at which reference and judge part
    departs: str = ""
    departs_node: str = ""  # the node that makes it
    looks: int = 0  # runs or builds looked at
    failures: int = 0  # of them
    interval_low: float = 0.0
    interval_high: float = 1.0
    as_built: bool = False  # the engine was built elsewhere
    steps: int = 0  # of the loop
    first_step: int | None = None  # of the loop, over tolerance
    own_error: float | None = None  # of the worst step of the loop, fed the reference's state
    carrier: str = ""  # the carried input through which the error grows
    profile: str = ""  # error by step, log10
    token_step: int | None = None  # where the loop first chooses another token
    near_tie: bool = False  # and the reference's scores are nearly equal there
    no_reference: bool = False  # of a refused model: the reference does not run it either
    missed: str = ""  # what so many runs without a failure leave possible


# Seconds bound the one wait that every session begins with.
class CompareParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    judge_reference: bool = True  # compare the reference with float64, or with a second engine
    judge_seconds: Amount = 60.0  # processor seconds for that; `--timeout` gives more
    look_again: Runs = Runs()  # where nothing fails at first


def compare(ctx: StepContext) -> Steps[CompareOutcome]:
    params = msgspec.convert(dict(ctx.params), CompareParams)
    findings: Findings = yield from load_findings(ctx)
    fed = f" on {say_many(len(findings.samples), 'sample')}" if findings.samples else ""
    yield Note(f"the whole model{fed}")
    findings, m = yield from measure_whole(ctx, findings)
    if ctx.check:
        refuse_unmeasured(m, findings)
        return (yield from _compare_by_check(ctx, findings, m))
    m, no_reference = yield from _ask_other_side(ctx, findings, m)
    refuse_unmeasured(m, findings)
    findings = yield from lock_failure(ctx, findings, m)
    if m.status != "ok" or (m.facts.get("build") is not None and not m.results):
        return (yield from _finish_without_outputs(ctx, findings, m, no_reference))
    return (yield from _look_around(ctx, findings, params, m))


def _look_around(
    ctx: StepContext, findings: Findings, params: CompareParams, m: Measurement
) -> Steps[CompareOutcome]:
    """Is the reference right, what would a faultless engine give, and where nothing fails: does it
    in more runs, or nearby?"""
    tried: trial.Tried = yield from _try_reference(ctx, findings, params, m)
    model, m = tried.model.unlimited, tried.measurement
    faultless = _Faultless()
    if tried.heard.standing != "random":
        faultless = yield from _measure_faultless(model)
    # In FP32 float64 tells what a right engine's rounding costs; not how far golden outputs are.
    judge = parse(tried.heard.judge or "none")
    exact = (
        model.rule.precision == "fp32"
        and judge.get("precision") == "fp64"
        and not recorded(ctx.reference)
    )
    emulated = tried.heard.error if faultless.error is None and exact else faultless.error
    findings = msgspec.structs.replace(model.findings, emulated=emulated)
    firm = ""
    if not tried.verdict and (faultless.error or 0.0) > model.rule.tolerance:
        findings, m, firm = yield from _hold_firmly(model.of(findings), m)
    runs, failures = 1, int(findings.signature is not None)
    near = NONE_MADE
    if not tried.verdict and findings.signature is None:
        findings, runs, failures = yield from run_again(
            model.of(findings), params.look_again, m.run_seconds
        )
    if not tried.verdict:
        findings = note_expensive(model.ctx, findings, m)
    if not tried.verdict and findings.signature is None and not m.facts.get("untouched"):
        near = yield from _try_nearby(model.of(findings), m, params.look_again.seconds / 2)
    model = model.of(findings)
    tried = msgspec.structs.replace(tried, model=model, measurement=m)
    curve, carrier = yield from _look_at_loop(model, m)
    outcome = msgspec.structs.replace(
        _sum_up(tried, faultless, runs, failures),
        profile=profile_by_depth([row.error for row in curve]),
        **sum_up_curve(curve, carrier),
    )
    told = (
        words.say_made_up(findings, outcome),
        firm,
        words.say_outcome(outcome, tried),
        say_curve(curve, model.rule, outcome.verdict, carrier),
        *say_answers(m.results, model.rule),
        *words.say_beside(model, m, outcome, near),
        *model.ctx.engine_info.notes,
    )
    return Finish(
        msgspec.structs.replace(outcome, message=" ".join(filter(None, told))),
        msgspec.structs.replace(findings, spread=outcome.verdict == "accumulation"),
        tables={
            "outputs": _list_scores(m.results, model.rule),
            "curve": curve,
            "engine_layers": m.facts.get("layers", []),
        },
        decisive={"whole": (probe_whole(model.ctx, findings),)},
    )


def _look_at_loop(model: WholeModel, m: Measurement) -> Sub[tuple[list[CurveRow], str]]:
    """The curve of the sequence that fails, else of the first, and the carried input through which
    the error grows; nothing of what is no loop."""
    findings = model.findings
    feed = (findings.sample or findings.samples[0].id).partition("/")[0]
    info = next(s for s in findings.samples if s.id == feed)
    own, carrier = tuple[SampleResult, ...](), ""
    if findings.signature is not None and info.steps:
        held = yield from model.compare(samples=(feed,), held=ALL_HELD, curve=True)
        own = read_steps(held.measurement, feed)
    if findings.loop:
        carrier = yield from find_carrier(model, feed, info.carried)
    return draw_curve(read_steps(m, feed), own, info, model.rule), carrier


def _hold_firmly(model: WholeModel, m: Measurement) -> Sub[tuple[Findings, Measurement, str]]:
    """(findings, measurement, what is to be said): those of the engine held to its precision, where
    it fails so. A precision that is a permission is right where the engine took none of it, and
    whether it does depends on what it is built for: so it is built for more, and as an order, once
    each."""
    asked: list[str] = []
    if model.findings.signature is not None:
        return model.findings, m, ""
    given = parse(model.engine)
    for engine in list_firm(model.ctx):
        changed = parse(engine).list_changes(given)[0]
        off = yield from model.compare(engine, note=f"as given it is right; and with {changed}?")
        if not off.told:
            continue
        asked.append(changed)
        if off.exceeds:
            there = msgspec.structs.replace(model.ctx, engine=engine)
            found: Findings = yield from lock_failure(there, model.findings, off.measurement)
            found = msgspec.structs.replace(found, firm=engine)
            return found, off.measurement, words.say_firm(changed)
    return model.findings, m, words.say_as_built(model.ctx, asked)


def _try_nearby(model: WholeModel, m: Measurement, seconds: float) -> Sub[Determined]:
    """What samples that are made near the user's give, after all of his passed by ``m``. None are
    made where at least as many were given, or where that takes longer than ``seconds`` by what was
    measured.

    Of 44 models of strangers that passed on their few given samples in FP16 seven were wrong on 1
    to 12 in 100 of other samples. Two of these were so on 3 to 7 of 32 made ones in each of six
    draws, two in every second draw, three in one of six. Of the others a page reader and four
    exports of one detector of speech were wrong on 1 to 3 made ones in most draws, and on none or
    one of 100 others; 32 were right on all of both. So what made ones show is worth telling, and is
    no verdict: they need not be what the user's samples are. That they show nothing says nothing.
    """
    samples = by_sample(m)
    rows = [s for s in samples if is_given(s)]
    run = m.run_seconds / len(samples)
    most = int((seconds - m.build_seconds) / run) if run > 0 else WANTED
    if not 0 < len(rows) < WANTED or most < GIVEN:
        return NONE_MADE
    index: GraphIndex | None = yield from model.describe()
    if index is None:
        return NONE_MADE
    oracle = make_oracle(make_inquiry(model.ctx, model.findings, index, FAILURE))

    def ask(inputs: str, feeds: tuple[str, ...]) -> Sub[Measurement]:
        return oracle.feed(feeds, inputs=inputs)

    _, found = yield from try_made(oracle, ask, min(WANTED, most), len(rows))
    return found


def _decide_verdict(tried: trial.Tried) -> Verdict:
    """Whose fault it is comes first, then whether rounding explains the failure, or only nearly
    nothing fails."""
    findings = tried.model.findings
    signature = findings.signature
    if tried.verdict or signature is None:
        return tried.verdict or "passes"
    if findings.loop:
        return "accumulation"
    # What fails on more than that is locked before it.
    slight = list_slight(tried.measurement.results, tried.model.rule)
    return "noise" if signature.sample in slight else "fails"


def _sum_up(
    tried: trial.Tried, faultless: "_Faultless", runs: int, failures: int
) -> CompareOutcome:
    """The outcome but for its message. ``runs`` looked at, of which ``failures`` fail."""
    model, results = tried.model, tried.measurement.results
    findings, rule, signature = model.findings, model.rule, model.findings.signature
    sample, output, error = worst(results, rule)
    if signature is not None:
        error, output = signature.error, next(iter(signature.outputs), output)
        sample = signature.sample
    low, high = binomial_interval(failures, runs)
    return msgspec.structs.replace(
        _start(model.ctx, findings),
        verdict=_decide_verdict(tried),
        error=error,
        error_places=signature.places if signature else (0, 0),
        worst_output=output,
        worst_sample=sample,
        margin=margin(rule, error, output),
        samples=len(results),
        samples_failing=len(list_failing(results, rule)),
        nonfinite=bool(signature and signature.nonfinite),
        emulated_error=faultless.error,
        explanation=_explain(model, faultless, error),
        engine_error=faultless.engine,
        reference_error=tried.heard.error,
        reference_judge=tried.heard.judge,
        reference_replaced=findings.replaced.to if findings.replaced else "",
        alike=findings.alike,
        departs=tried.parting.tensor,
        departs_node=tried.parting.node,
        looks=runs,
        failures=failures,
        interval_low=low,
        interval_high=high,
        missed=say_ruled_out(runs) if runs > 1 and not failures else "",
    )


def _ask_other_side(
    ctx: StepContext, findings: Findings, m: Measurement
) -> Sub[tuple[Measurement, bool]]:
    """(m, whether the reference does not run the model) with what the other side says where one of
    engine and reference does not run it. What neither takes is refused by the engine, and cannot be
    taken apart, as no part could be fed. An engine that was built elsewhere builds nothing."""
    engine, theirs, unrun = m, m, m.status == "reference-failed"
    model, first = WholeModel(ctx, findings), (findings.samples[0].id,)
    if ctx.engine_info.rebuilt or recorded(ctx.reference):
        return m, unrun
    if unrun:
        built = yield from model.compare(samples=first, runs=0, note="does the engine take it?")
        engine = built.measurement
    elif m.status in REFUSALS:
        alone = yield from model.compare(
            ctx.reference, ctx.reference, first, note="does the reference run it?"
        )
        theirs = alone.measurement
    if engine.status not in REFUSALS or theirs.status not in DOES_NOT_RUN:
        return m, unrun
    same = engine.message in theirs.message
    said = "Nor does the reference run it, in the same words." if same else theirs.message
    told = "What no reference runs cannot be taken apart: one that runs it (--reference) would show which part is refused."
    return msgspec.structs.replace(engine, message=f"{engine.message} {said} {told}"), True


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
    model: WholeModel, faultless: "_Faultless", error: float
) -> Literal["engine", "precision", "both", "keeps-higher", "unknown"]:
    """Whose fault it looks like: the engine's, or the precision's own limit. Explains; never
    decides pass or fail."""
    rule, failing = model.rule, model.findings.signature is not None
    if failing and faultless.explanation:
        return faultless.explanation
    if parse(model.engine).name in ("emulate", "reference"):
        return "precision" if failing else "unknown"
    if rule.precision == "fp32":
        return "engine" if failing else "unknown"
    if faultless.error is None:
        return "unknown"
    if not failing:
        return "keeps-higher" if faultless.error > rule.tolerance else "unknown"
    return "precision" if faultless.error >= error / FAULTLESS else "engine"


def _try_reference(
    ctx: StepContext, findings: Findings, params: CompareParams, m: Measurement
) -> Sub[trial.Tried]:
    model = WholeModel(ctx, findings, max(params.judge_seconds, ctx.problem.timeout))
    if drawn := (yield from find_random(model.unlimited)):
        return trial.Tried(model, m, Heard("random", why=drawn), "noise")
    if not params.judge_reference:
        return trial.Tried(model, m)
    judge = golden_reference.try_golden if recorded(ctx.reference) else trial.try_reference
    return (yield from judge(model, m))


class _Faultless(NamedTuple):
    """How far a faultless engine of this precision would be off; None where that is not known. Of a
    quantized model that is held against the float one it computes the codes literally: ``engine``
    is how far the one under test is from that, ``explanation`` whose fault a failure is."""

    error: float | None = None
    engine: float | None = None
    explanation: Literal["", "engine", "precision", "both"] = ""


def _measure_faultless(model: WholeModel) -> Sub[_Faultless]:
    """On the sample that the search works on. The typed reference adds up in its own precision, the
    emulation in FP32. Of codes the one that is over the tolerance by itself is at fault."""
    findings, name, precision = model.findings, parse(model.engine).name, model.rule.precision
    codes = bool(findings.codes and unquantized(model.reference))
    faultless, note = LITERAL, "the quantized model, computed literally"
    if not codes:
        if precision not in ("fp16", "bf16") or name == "emulate" or is_ir(model.ctx.problem.model):
            return _Faultless()
        faultless = f"emulate:precision={precision}"
        note = f"the error that {precision.upper()} alone explains"
    feed = (findings.sample or findings.samples[0].id,)
    off = yield from model.compare(faultless, samples=feed, note=note)
    if not off.told:
        return _Faultless()
    if not codes:
        return _Faultless(off.error)
    if findings.signature is None or name == "reference":
        return _Faultless(off.error, explanation="precision")
    note = "the engine against the same codes, computed literally"
    own = yield from model.compare(reference=LITERAL, samples=feed, note=note)
    if not own.told or (off.exceeds and not own.exceeds):
        return _Faultless(off.error, own.error if own.told else None, "precision")
    return _Faultless(off.error, own.error, "both" if off.exceeds == own.exceeds else "engine")


def _compare_by_check(
    ctx: StepContext, findings: Findings, m: Measurement
) -> Steps[CompareOutcome]:
    verdict = judge_check(m, findings.rule)
    findings = yield from lock_failure(ctx, findings, m)
    helpless = (yield from find_helpless(WholeModel(ctx, findings))) if verdict.failed else ""
    kinds: dict[str, Verdict] = {"fail": "fails", "pass": "passes"}
    says = kinds.get(verdict.kind, "gives no answer")
    detail = f" ({verdict.detail})" if verdict.detail else ""
    outcome = CompareOutcome(
        verdict="unresolved" if helpless else kinds.get(verdict.kind, "unresolved"),
        metric="check",
        samples=1,
        samples_failing=int(verdict.failed),
        looks=1,
        failures=int(verdict.failed),
        message=f"The check {says} on the whole model{detail}. {helpless}".rstrip(),
    )
    return Finish(outcome, findings, decisive={"whole": (probe_whole(ctx, findings),)})


def _finish_without_outputs(
    ctx: StepContext, findings: Findings, m: Measurement, no_reference: bool
) -> Steps[CompareOutcome]:
    """The engine did not get as far as outputs: a failure of its own kind, when it is the engine's;
    else nothing can be said."""
    base = _start(ctx, findings)
    if m.status == "ok":  # the engine was built, and cannot be run here
        reason = ctx.engine_info.reason("run").rstrip(".")
        said = f"The model builds, but whether its results are right cannot be seen here: {reason}."
        outcome = msgspec.structs.replace(base, verdict="built", message=said)
        return Finish(outcome, findings, decisive={"whole": (probe_whole(ctx, findings),)})
    # Of an engine that was built before no part can be asked whether it is refused alike.
    blind = base.as_built or no_reference
    alone = () if blind else (yield from _find_refused_alike(ctx, findings))
    verdict: Verdict = "unresolved" if base.failure == "none" else "fails"
    if base.failure == "build":
        verdict = "refused-whole" if alone else "refused"
    message = f"{m.message}{say_of_pairs(findings.notes)}"
    if alone:
        message += f" No node is at fault: each that was tried alone ({', '.join(alone)}) is refused in the same words."
    outcome = msgspec.structs.replace(
        base, verdict=verdict, message=message, no_reference=no_reference
    )
    return Finish(outcome, findings)


def _start(ctx: StepContext, findings: Findings) -> CompareOutcome:
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
        as_built=bool(ctx.engine_info.rebuilt),
    )


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
    # Values at their default are left out where it is stored.
    every = msgspec.structs.asdict(Score(""))
    samples: dict[object, list[dict[str, object]]] = {}
    for row in told.tables.get("outputs", []):
        shown = {k: v for k, v in {**every, **row}.items() if k not in ("sample", "front")}
        samples.setdefault(row["sample"], []).append(shown)
    listed = [{"sample": name, "outputs": rows} for name, rows in samples.items()]
    return {**told.outcome, "samples_n": told.outcome.get("samples", 0), "samples": listed}


def _plan(ctx: StepContext, _nodes: int) -> int:
    """Model and inputs, all samples; where outputs are compared the reference alone, the worst row
    alone, the reference again in three ways, and its judge."""
    return 3 if ctx.check else 9


SPEC = StepSpec(
    name="compare",
    version=17,
    summary="Run the whole model on every sample and compare its outputs with the reference.",
    run=compare,
    outcome=CompareOutcome,
    judges=True,
    params=CompareParams,
    exclusive=True,
    sets=("emulated", "looks", "replaced", "alike", "firm", "spread"),
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
        "reference_error": "the reference differs by",
        "reference_judge": "the reference was judged by",
        "reference_replaced": "the reference that stands in",
        "alike": "the reference is wrong in the same way",
        "steps": "steps of the loop",
        "first_step": "the first step over tolerance",
        "own_error": "the worst step by itself",
        "carrier": "the error grows through",
        "token_step": "the first token that changes",
        "near_tie": "that token is a near tie",
        "departs": "the first tensor that differs",
        "departs_node": "the node that makes it",
    },
    json=_json,
    plan=_plan,
)
