"""What compare says to people: pure, from what was measured.

Whether the reference is to be believed, as sentences of compare: what golden outputs, other
engines and the last place of the numbers say of it, and what to do about it.
"""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from narrowdown.engines.asking import StepContext
from narrowdown.engines.asking.engine_forms import order_precision
from narrowdown.engines.asking.whole_model import WholeModel, name_engine
from narrowdown.engines.compare.judge import (
    TOLERANCE_BY_PRECISION,
    Criterion,
    by_sample,
    find_largest,
    worst,
)
from narrowdown.engines.compare.loops import say_carried
from narrowdown.engines.compare.say import (
    NEAR,
    UNLIKE,
    say_allowed,
    say_distance,
    say_error,
    say_many,
    say_percent,
    say_sample,
    wrong_by,
)
from narrowdown.engines.compare.statistics import say_most_wrong
from narrowdown.engines.findings import Findings
from narrowdown.engines.nearest import join_some
from narrowdown.engines.probe import HUGE, Measurement, SampleResult, Score, is_given
from narrowdown.engines.search import trial
from narrowdown.engines.search.independent import Standing
from narrowdown.engines.search.unseen import Determined
from narrowdown.engines.search.workaround_facts import UNCALIBRATED
from narrowdown.engines.spec import unquantized

if TYPE_CHECKING:  # the step stands on its words
    from narrowdown.engines.steps.compare import CompareOutcome

# What a verdict rests on, by ``_find_case``.
OF_THE_VERDICT = {
    "passes": "{runs} The worst is {output} on {sample}, {off}: {times} below what is allowed ({allowed}).",
    "equal": "{runs} Nothing differs by {metric}; allowed {allowed}.",
    "relative": "{output} is {off}{often} (up to {most} is {usual}). Worst: {sample}.",
    "other": "{output} is {off} on {sample}{often}; allowed {allowed}.",
    "infinite": "{output} is {off} on {sample}{often}.",
    "exact": "{output} is not equal to the reference's on {sample}{often}: {share} of its values differ, and "
    "{kind} must be equal.",
    "numbers": "{output} is not equal to the reference's on {sample}{often}: {share} of its values differ by at most {by:g}, "
    "and whole numbers must be equal (--metric max_abs --tolerance VALUE allows some difference).",
    "slight": "{failing} of {samples} samples {fail}, only on values that are nearly nothing. The worst is {sample}, {off}: "
    "{output} is at most {absmax:.3g} there, and up to {largest:.3g} on other samples, of which that error is {part}. Only you "
    "know how exact so small a value has to be, so it is too close to call. Say how far any value may be off "
    "(--metric max_abs --tolerance VALUE), or each in proportion to itself (--tolerance VALUE).",
    "noise": "{output} is {off} on {sample}; changing the {what} by one rounding step moves it by {moves} on the "
    "reference itself. So it is not determined to what is allowed ({allowed}), and no node is at fault. Judge it by what "
    "matters to you: "
    "a tolerance above that, an absolute one (--metric max_abs --tolerance VALUE), other samples; or compute that part of the "
    "model in float64.",
}


def say_outcome(found: "CompareOutcome", tried: trial.Tried) -> str:
    """What the verdict rests on, and what is to be said of the reference."""
    rule, results, moved = tried.model.rule, tried.measurement.results, tried.moved
    said, output = say_reference(tried, rule), found.worst_output
    silent = found.verdict in ("reference", "export") or tried.heard.standing == "random"
    nobody_can_say = found.verdict == "unresolved" and found.failure == "none"
    if silent or nobody_can_say:
        return said
    score = _find_score(results, found)
    case = _find_case(found, tried, score)
    sample, precision = say_sample(found.worst_sample), rule.precision.upper()
    most = rule.tolerances.get(output, rule.tolerance)
    usual = TOLERANCE_BY_PRECISION.get(rule.precision) == most
    largest, times = find_largest(results).get(output) or 1.0, found.margin or 0.0
    told = OF_THE_VERDICT[case].format(
        output=output,
        sample=sample,
        off=_say_off(found, rule, score),
        often=f" in {found.failures} of {found.looks} runs" if found.looks > 1 else "",
        runs=f"{found.looks:,} runs, no failure." if found.looks > 1 else "No failure.",
        times="just"
        if times < NEAR
        else f"{f'{times:.3g}' if times <= 100 else 'more than 100'} times",
        allowed=f"{say_allowed(rule, output)}{f' for {precision}' if rule.source == 'default' else ''}",
        most=f"{100 * most:.3g} %",
        usual=f"normal for {precision}" if usual else "allowed",
        metric=rule.metric,
        share=say_percent(score.mismatched),
        kind="truth values" if score.dtype == "bool" else "texts",
        by=score.max_abs,
        failing=found.samples_failing,
        samples=found.samples,
        fail="fails" if found.samples_failing == 1 else "fail",
        absmax=score.absmax,
        largest=largest,
        part=say_percent(score.max_abs / largest),
        what=moved.what,
        moves=say_distance(
            moved.outputs.get(output, max(moved.outputs.values(), default=0.0)), rule
        ),
    )
    told += " Whose fault that is cannot be told." if found.verdict == "unresolved" else ""
    return f"{told} {said}" if said else told


def _find_case(found: "CompareOutcome", tried: trial.Tried, score: Score) -> str:
    if found.verdict == "noise":
        return "noise" if tried.verdict else "slight"
    if found.verdict == "passes":
        return "passes" if found.error else "equal"
    relative = tried.model.rule.metric == "rel_l2"
    if relative and score.exact and not (score.equal or score.problem):
        return "exact" if score.dtype in ("bool", "string") else "numbers"
    if (found.error or 0.0) >= HUGE:
        return "infinite"
    return "relative" if relative else "other"


def _find_score(results: Iterable[SampleResult], found: "CompareOutcome") -> Score:
    """The score of the worst output on the worst sample. Rows of a sample have none of their own
    where the whole sample was run."""
    samples = (found.worst_sample, found.worst_sample.partition("/")[0])
    scores = (s for r in results if r.sample in samples for s in r.outputs)
    return next((s for s in scores if s.name == found.worst_output), Score(found.worst_output))


def _say_off(found: "CompareOutcome", rule: Criterion, score: Score) -> str:
    """What the worst output is wrong by."""
    if score.problem in UNLIKE:
        return UNLIKE[score.problem]
    # OpenVINO's Exp of NaN is infinite: no value of the reference is finite there.
    if score.lost_nonfinite and not score.new_nonfinite:
        return "something else where the reference is infinite or NaN"
    return say_error(found.error or 0.0, rule)


# Of a quantized model that fails against the float one.
WHOSE_CODES = {
    "engine": "the engine is at fault, not the quantization",
    "both": "neither the quantization nor the engine is at fault alone",
    "precision": "the quantization is at fault, not the engine",
}


def say_firm(changed: str) -> str:
    """That the engine is right as given, and wrong once it is held to its precision."""
    return (
        "As given it is right here, as the engine keeps wider types. Whether it does depends on what it is built for: with "
        f"{changed} it fails. The session continues with that build."
    )


def say_as_built(ctx: StepContext, asked: Sequence[str]) -> str:
    """For what an engine was built that kept wider types, and the command that makes its precision
    an order; "" of one of which it is an order."""
    strong = order_precision(ctx)
    if not strong:
        return ""
    model = shlex.quote(PurePath(ctx.problem.model).name)
    too = f" With {join_some(asked, ' and with ')} it is right, too." if asked else ""
    return (
        f"It was built for the sizes that were fed; for others it may choose narrower types.{too} "
        f"To make the precision an order: narrowdown run {model} --engine {shlex.quote(strong)}."
    )


def say_beside(
    model: WholeModel, m: Measurement, found: "CompareOutcome", near: Determined
) -> tuple[str, ...]:
    """What a verdict does not say: what quantization costs, what another engine computed, whether
    anything was rounded. And on how many samples of the user's a pass stands, with what that leaves
    open of others: of 8 that passed in FP16 a reader of captchas was right on all, and on 182 of
    200 new ones. Where a quantized model was held against the float one, what calibrated it counts
    for nothing: 8 were right, 4 of 40 others wrong by 13 to 68 %. Last, how many of those made near
    the user's (``near``) fail: that all are right says nothing of others."""
    taken, count = m.facts.get("taken", (0, 0))
    untouched, codes, rule = m.facts.get("untouched"), model.findings.codes, model.rule
    passes, in_float = found.verdict == "passes", unquantized(model.reference)
    given = sum(is_given(r.sample) for r in m.results)
    own = f"{say_many(given, 'sample')} of yours"
    worst_near = say_error(worst(near.counted.results, rule)[2], rule)
    told = (
        (bool(model.findings.suggested), say_carried(model.findings.suggested)),
        (
            found.verdict == "fails" and found.engine_error is not None,
            f"Computed literally, the quantized model is {wrong_by(found.emulated_error, rule.metric)} on that sample; the "
            f"engine is {wrong_by(found.engine_error, rule.metric)} beside that. So {WHOSE_CODES.get(found.explanation)}.",
        ),
        (
            passes and codes and not in_float,
            "The reference computes the same quantized model: what quantization itself costs is seen against the float one "
            "(--flow quantization, or --reference onnxruntime:model=FLOAT.onnx).",
        ),
        (
            taken != count,
            f"The provider took {taken} of {count} nodes; ONNX Runtime's own CPU kernels computed the others.",
        ),
        (
            untouched,
            f"Nothing in this model is in FP32, so nothing was rounded to {rule.precision.upper()}: this says nothing of "
            "what an engine in that precision makes of it.",
        ),
        (
            passes and given and not untouched,
            f"Tried on {own}: {say_most_wrong(given, given)}{UNCALIBRATED if codes and in_float else '.'}",
        ),
        (
            near.missed,
            f"Of {len(by_sample(near.counted))} samples that were made near yours {len(near.missed)} fail (the worst is "
            f"{worst_near}). Yours may never be like these: try more of your own (--inputs).",
        ),
    )
    return tuple(text for holds, text in told if holds)


def say_made_up(findings: Findings, found: "CompareOutcome") -> str:
    """What is left open where all runs were of made-up values, which say nothing of others; said
    before all else."""
    if found.failures or found.looks < 2 or any(is_given(s.id) for s in findings.samples):
        return ""
    n = len(findings.samples)
    tried = "Only one made-up input was" if n == 1 else f"Only {n:,} made-up inputs were"
    return f"{tried} tried. Give real ones: --inputs batch.npz."


# What is wrong with the reference, or with golden outputs and the model, or with who judged them,
# and what to do about it.
OF_THE_REFERENCE: dict[Standing, str] = {
    "unasked": "",
    "right": "",
    "unsteady": "The reference itself is not steady: its second run is {moves} off its first. "
    "Choose another with --reference, or give it one thread.",
    "random": "{why}",
    "unheard": "Nothing else checked the reference: {why}",
    "wrong": "The reference, {reference}, is itself {off}: {judge} and {other} agree against it ({apart} between the two). "
    "{why}{parting}",
    "replaced": "The reference, {origin}, is itself {off}: {judge} and {other} agree against it ({apart} between the "
    "two).{alike} The session goes on against {to}.",
    "sides": "Either the reference is wrong or two others are: {reference} and {judge} differ ({distance}), and the engine "
    "under test is on the side of {first}.{parting} To take the reference apart, ask the other way round: "
    "--engine {given} --reference {engine}. {third}",
    "doubted": "The engine gives what the reference gives, and shares code with it. {judge}, the only one that shares none, "
    "differs ({distance}), far more than rounding makes. So whether it is right cannot be told.{parting} {third}",
    "alone": "{judge} alone differs from the reference ({distance}) and nobody else could be asked: it may be the wrong "
    "one itself, and was left out. {third}",
    "rounding": "{judge} and {other} agree against {reference} ({distance}), and one rounding step moves "
    "{reference} by {moves} itself{undetermined}.",
    "open": "{reference}, {judge} and {other} differ from one another by up to {spread} and no two of them "
    "agree{undetermined}.",
    "model-right": "The model itself is right: {judge} gives the golden outputs ({distance}). The search goes on against it.",
    "export": "The exported ONNX differs from the golden outputs: {judge} differs from them ({distance}), and the "
    "engine computes the model as {judge} does ({apart} between the two).{too}{parting} "
    "Export it again, or look at what preprocessing and weights the recording used.",
    "both": "The exported ONNX differs from the golden outputs, too: {judge} differs from them ({distance}).{too}"
    "{parting} That is the export's fault; what the engine does beside it is searched for against {judge}.",
    "unmeasured": "{judge} was held against the golden outputs ({distance}), and how far the engine is from it could not be "
    "measured. {why}",
    "contradicted": "{judge} and {other} both differ from the golden outputs, and from each other.",
    "unclear": "The engine is within the tolerance of {judge}, which was held against the golden outputs ({distance}): the "
    "difference lies between the two.",
    "model-unheard": "Nobody independent of the engine could say whether the model itself is right: {why}",
}


def say_reference(tried: trial.Tried, rule: Criterion) -> str:
    """What is wrong with the reference or with who judged it, and what to do about it; "" where it
    was confirmed by all."""
    heard, model = tried.heard, tried.model
    error, replaced, first = heard.error or 0.0, model.findings.replaced, name_engine(heard.judge)
    beside = "the same" if heard.beside else "something else"
    judge = first if heard.beside is None else f"{first} (ONNX's own operators give {beside})"
    speak = any("openvino" in spec for spec in (model.engine, model.reference, heard.judge))
    found, searched = tried.parting, model.findings.signature is not None and not tried.verdict
    parting = f" The first tensor that differs is {found.tensor}, which {found.node} makes."
    return OF_THE_REFERENCE[heard.standing].format(
        engine=model.engine,
        given=model.reference,
        reference=name_engine(model.reference),
        origin=name_engine(replaced.origin) if replaced else "",
        to=replaced.to if replaced else "",
        judge=judge,
        first=first,
        other=name_engine(heard.other),
        off=say_error(error, rule),
        distance=f"{say_distance(error, rule)} apart"
        if error < HUGE
        else "NaN or infinity in other places",
        apart=say_distance(heard.apart, rule),
        spread=say_distance(heard.spread, rule),
        moves=say_distance(heard.moves, rule),
        why=heard.why or f"The engine is right by {first}.",
        parting=parting if found.node else "",
        alike=" The engine is wrong in the same way." if model.findings.alike else "",
        third="Ask a third: give --reference outputs that are known to be right, or another engine"
        f"{'' if speak else ' (python -m pip install openvino)'}.",
        # A failure that is searched all the same is beyond that.
        undetermined="" if searched else ": the output is determined no better than that",
        too=f" {name_engine(heard.other)} computes the same." if heard.other else "",
    )
