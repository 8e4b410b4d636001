"""When a measurement counts as failing (criterion, signature), and what it says then (verdict): plain
data and pure rules, applied anew whenever they are needed, never cached.
Imports neither numpy nor onnx.

Every metric is turned into a *badness* that grows as things get worse and is compared with a limit:

| metric | badness | limit |
|---|---|---|
| rel_l2, rel_max, max_abs, max_rel, ulp, mismatched | the value | the tolerance |
| cosine | 1 - cosine | the tolerance |
| sqnr_db | noise over signal, 10^(-dB/20) | 10^(-tolerance/20): the tolerance is the least SQNR in
dB |
| psnr_db | the same of a PSNR | likewise |
| top1, top5, kl | the value | the tolerance |
| perplexity | how far it is from the reference's, relatively | the tolerance |
| iou | 1 - iou | the tolerance |
| elementwise | the largest factor by which some element exceeds both atol and rtol | 1 |

A value that is finite in the reference and is not in the engine, the reverse, a missing output and
a wrong shape are HUGE under every metric.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from narrowdown.engines.compare import patterns, refusal
from narrowdown.engines.probe import HUGE, Measurement, SampleResult, Score

Metric = Literal[
    "rel_l2", "rel_max", "max_abs", "max_rel", "cosine", "sqnr_db", "ulp", "mismatched",
    "top1", "top5", "kl", "perplexity", "psnr_db", "iou",
    "elementwise",
]  # fmt: skip
METRICS: tuple[str, ...] = Metric.__args__  # type: ignore[attr-defined]

# Metrics of answers (``engines.probe.Answer``), which only the model's own outputs give.
ANSWERS: tuple[str, ...] = ("top1", "top5", "kl", "perplexity", "psnr_db", "iou")

# Relative L2 that a precision may cost before it counts as wrong, by the precision the engine
# computes in. Source: design notes, measured on real models; an absolute 1e-5 would fail FP16 and
# TF32 by design.
TOLERANCE_BY_PRECISION: dict[str, float] = {
    "fp64": 1e-4, "fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2, "fp8": 1e-1, "int8": 1e-1,
    "int16": 4e-4,  # what INT8 may cost, and steps 256 times finer
}  # fmt: skip

OF_CODES = ("int8", "int16", "fp8")  # of these, precisions of a model that is quantized itself


class Criterion(msgspec.Struct, frozen=True, omit_defaults=True):
    """How scores are turned into pass or fail. Changing it needs no new run.

    ``tolerance`` bounds the metric's *badness* (``badness``): for cosine and iou that is what
    lacks to 1; for ``sqnr_db`` and ``psnr_db`` the tolerance is the least in dB. ``elementwise`` is
    Polygraphy's rule (an element fails when it is over ``atol`` and over ``rtol``); it is chosen
    when ``--atol`` or ``--rtol`` is given. Per-output values override.
    """

    metric: Metric = "rel_l2"
    tolerance: float = 1e-4
    tolerances: dict[str, float] = {}
    atol: float = 1e-5
    atols: dict[str, float] = {}
    rtol: float = 1e-5
    rtols: dict[str, float] = {}
    precision: str = "fp32"  # what the default tolerance came from
    source: Literal["default", "user"] = "default"
    # external checker (--check): Polygraphy's rules
    fail_regex: tuple[str, ...] = ()
    fail_codes: tuple[int, ...] = ()
    ignore_fail_codes: tuple[int, ...] = ()


def for_parts(criterion: Criterion) -> Criterion:
    """The criterion for what gives no answers, the outputs of a part: in the place of a metric of
    answers rel_l2, with what the precision may cost."""
    if criterion.metric not in ANSWERS:
        return criterion
    usual = TOLERANCE_BY_PRECISION.get(criterion.precision, TOLERANCE_BY_PRECISION["fp32"])
    return msgspec.structs.replace(criterion, metric="rel_l2", tolerance=usual, tolerances={})


def tighten_criterion(criterion: Criterion, factor: float) -> Criterion:
    """The criterion with every tolerance divided by ``factor``; the least SQNR and PSNR stay as
    they are."""
    if criterion.metric in ("sqnr_db", "psnr_db"):
        return criterion
    return msgspec.structs.replace(
        criterion,
        tolerance=criterion.tolerance / factor,
        tolerances={k: v / factor for k, v in criterion.tolerances.items()},
        atol=criterion.atol / factor,
        rtol=criterion.rtol / factor,
        atols={k: v / factor for k, v in criterion.atols.items()},
        rtols={k: v / factor for k, v in criterion.rtols.items()},
    )


class Signature(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the failure looks like on the model's own outputs; everything the search finds must fail
    like this.

    ``outputs`` are names of the model's own outputs that fail; ``errors`` their badness e0 on
    ``sample``.
    """

    kind: Literal["accuracy", "crash", "build", "check"]
    sample: str
    outputs: tuple[str, ...] = ()
    errors: dict[str, float] = {}
    nonfinite: bool = False  # values that are finite in the reference and are not in the engine
    metric: str = "rel_l2"
    tolerance: float = 0.0
    failures: int = 1
    looks: int = 1
    places: tuple[int, int] = (
        0,
        0,
    )  # of the worst output, where it is whole numbers: those that are wrong, and all
    refusal: tuple[
        str, ...
    ] = ()  # of a model that is refused: the words that say why (``engines.compare.refusal``)

    @property
    def error(self) -> float:
        """e0: the worst badness."""
        return max(self.errors.values(), default=HUGE if self.nonfinite else 0.0)

    @property
    def rate(self) -> str:
        """In how many runs of one build it was seen (``3 of 20``); "" where one was looked at."""
        return f"{self.failures} of {self.looks}" if self.looks > 1 else ""


Reason = Literal[
    "", "crash", "timeout", "out-of-memory", "build-failed", "invalid-model", "unsupported", "refused", "reference-failed",
    "check-died", "harmless", "milder", "amplified-downstream", "unrepresentable-input", "different-outputs", "varies",
    "refused-otherwise", "error",
]  # fmt: skip


class Off(msgspec.Struct, frozen=True, kw_only=True):
    """How far a part of the model is off. ``own``: badness of the part's own outputs; ``effect``:
    badness of the model's outputs when those values are put into the reference run; None where not
    measured: nothing was compared (a crash, a refusal, an external check)."""

    own: float | None = None
    effect: float | None = None
    own_places: tuple[int, int] = (0, 0)  # of whole numbers, those that are wrong and all
    effect_places: tuple[int, int] = (0, 0)  # the same of the model's outputs

    @property
    def off(self) -> dict[str, Any]:
        """These four by name, for another struct that has them."""
        return {name: getattr(self, name) for name in Off.__struct_fields__}


class Verdict(Off, frozen=True, omit_defaults=True):
    """One of three answers."""

    kind: Literal["pass", "fail", "unresolved"]
    reason: Reason = ""
    detail: str = ""

    @property
    def failed(self) -> bool:
        return self.kind == "fail"

    @property
    def passed(self) -> bool:
        return self.kind == "pass"


REFUSALS = (
    "build-failed",
    "unsupported",
    "invalid-model",
)  # statuses of a model that an engine does not take
# A candidate must carry at least this part of the original failure; less is another, lesser
# culprit.
SHARE = 0.1
# e0 beyond this (a non-finite failure) does not ask for more of a candidate's effect than this.
LARGE = 10.0
# A number that is so many times smaller than others of its output is called nearly nothing. Chosen:
# of a regression's 64 rows (surface_boosting of the field campaign) those that FP16 leaves wrong by
# 1 to 12 % are 70 times smaller and more.
SLIGHT = 5.0


def badness(score: Score, criterion: Criterion) -> float:
    """How bad one tensor is under the criterion's metric, in [0, HUGE]."""
    if score.problem or score.new_nonfinite or score.lost_nonfinite:
        return HUGE
    if score.equal:
        return 0.0
    metric = criterion.metric
    if metric in ANSWERS:
        return _of_answer(score, criterion)
    if metric == "elementwise":
        atol = criterion.atols.get(score.name, criterion.atol)
        rtol = criterion.rtols.get(score.name, criterion.rtol)
        return min(HUGE, max((_over(a, r, atol, rtol) for a, r in score.front), default=0.0))
    if score.exact and metric != "mismatched":
        # Integers, booleans and strings are right or wrong: a ratio over a reference of zeros would
        # say nothing.
        return max(1.0, score.max_abs) if metric in ("max_abs", "ulp") else 1.0
    if metric == "cosine":
        return max(0.0, 1.0 - score.cosine)
    if metric == "sqnr_db":
        return min(HUGE, _ratio(score.sqnr_db))
    return min(HUGE, float(getattr(score, metric)))


# What stands in the place of wrong values, and of how many, of a tensor of another shape.
OTHER_SHAPE = (1, 0)


def places(score: Score, criterion: Criterion) -> tuple[int, int]:
    """How many values of a tensor are wrong, and of how many, where it is right or wrong as a
    whole: whole numbers, truth values and texts, by a share; OTHER_SHAPE where none can be held
    against its reference. (0, 0) of any other."""
    if score.problem == "shape":
        return OTHER_SHAPE
    if criterion.metric != "rel_l2" or not score.exact or score.problem or score.equal:
        return 0, 0
    size = math.prod(score.shape)
    return round(score.mismatched * size), size


def limit(criterion: Criterion, output: str) -> float:
    """The largest badness that this output may have and still pass."""
    tolerance = criterion.tolerances.get(output, criterion.tolerance)
    if criterion.metric == "elementwise":
        return 1.0
    return _ratio(tolerance) if criterion.metric in ("sqnr_db", "psnr_db") else tolerance


def gives_answer(score: Score, metric: str) -> bool:
    """Whether the output holds what a metric of answers judges."""
    answer = score.answer
    if answer is None:
        return False
    return answer.iou is not None if metric == "iou" else metric == "psnr_db" or bool(answer.rows)


def _of_answer(score: Score, criterion: Criterion) -> float:
    """Badness under a metric of answers. What gives no such answer (the outputs of a part, which
    are no outputs of the model) is judged by rel_l2 and what the precision may cost, in proportion
    to the limit: over it there is over it here."""
    answer, metric = score.answer, criterion.metric
    if answer is not None and gives_answer(score, metric):
        if metric == "psnr_db":
            return min(HUGE, _ratio(answer.psnr_db))
        if metric == "iou":
            return 1.0 - (answer.iou or 0.0)
        if metric == "perplexity":
            return min(
                HUGE,
                abs(answer.perplexity - answer.expected_perplexity)
                / max(answer.expected_perplexity, 1e-300),
            )
        return min(HUGE, float(getattr(answer, metric)))
    times = (1.0 if score.exact else score.rel_l2) / for_parts(criterion).tolerance
    allowed = limit(criterion, score.name)
    if allowed > 0:
        return min(HUGE, times * allowed)
    return times if times > 1 else 0.0


def margin(criterion: Criterion, error: float, output: str = "") -> float:
    """How many times the badness ``error`` fits into what is allowed on this output, at most
    HUGE."""
    return min(HUGE, limit(criterion, output) / error) if error > 0 else HUGE


def over(score: Score, criterion: Criterion) -> bool:
    return not badness(score, criterion) <= limit(criterion, score.name)  # a NaN is over any limit


def exceed(results: Iterable[SampleResult], criterion: Criterion) -> bool:
    """Whether any output of any result is over its limit."""
    return any(over(s, criterion) for r in results for s in r.outputs)


def find_largest(results: Iterable[SampleResult]) -> dict[str, float]:
    """The largest value that each output has on any sample."""
    most: dict[str, float] = {}
    for score in (s for r in results for s in r.outputs):
        most[score.name] = max(most.get(score.name, 0.0), score.absmax)
    return most


def list_slight(
    results: Iterable[SampleResult],
    criterion: Criterion,
    largest: Mapping[str, float] | None = None,
    strict: Criterion | None = None,
) -> frozenset[str]:
    """The samples that fail on nearly nothing: what fails of them is off by no more than the
    tolerance of the precision allows of the largest value that this output has on any sample
    (``find_largest``, or what is given as ``largest``), and is itself within that, or one number
    that is ``SLIGHT`` times smaller. ``strict``: what they fail by, where that is another rule.

    A score near zero is left of a difference of larger values; a share of it says nothing of those.
    Among other numbers it would be carried by these. Only by rel_l2 with the tolerance that nobody
    chose: who says what a value may be off by means each one.
    """
    if criterion.metric != "rel_l2":
        return frozenset()
    results = tuple(results)
    most = find_largest(results) if largest is None else largest

    def slight(score: Score) -> bool:
        allowed, highest = limit(criterion, score.name), most.get(score.name, 0.0)
        usual = TOLERANCE_BY_PRECISION.get(criterion.precision) == allowed
        within = allowed * highest
        small = max(within, highest / SLIGHT if math.prod(score.shape) == 1 else 0.0)
        sound = usual and not score.exact and badness(score, criterion) < HUGE
        return sound and highest > 0 and score.max_abs <= within and score.absmax <= small

    failing: dict[str, list[Score]] = {}
    for r in results:  # of several runs: in each of them
        failing.setdefault(r.sample, []).extend(
            s for s in r.outputs if over(s, strict or criterion)
        )
    return frozenset(
        sample for sample, scores in failing.items() if scores and all(map(slight, scores))
    )


def worst(results: Iterable[SampleResult], criterion: Criterion) -> tuple[str, str, float]:
    """(sample, output, badness): non-finite first, then the highest badness relative to its limit,
    then the earliest sample."""
    best, found = -1.0, ("", "", 0.0)
    for result in results:
        for score in result.outputs:
            if (relative := use_up(score, criterion)) > best:
                best, found = relative, (result.sample, score.name, badness(score, criterion))
    return found


def use_up(score: Score, criterion: Criterion) -> float:
    """What part of the badness that its limit allows this tensor has, in [0, HUGE]."""
    bad = badness(score, criterion)
    return min(HUGE, bad / max(limit(criterion, score.name), 1e-300)) if bad < HUGE else HUGE


def by_sample(measurement: Measurement) -> dict[str, tuple[SampleResult, ...]]:
    """Every result of every run, by sample, in the order of the first run."""
    found: dict[str, tuple[SampleResult, ...]] = {r.sample: () for r in measurement.results}
    for run in measurement.each_run:
        for r in run:
            found[r.sample] = (*found.get(r.sample, ()), r)
    return found


def restrict(measurement: Measurement, samples: Collection[str]) -> Measurement:
    """The measurement of these samples alone, and of the rows of these feeds."""

    def chosen(run: Iterable[SampleResult]) -> tuple[SampleResult, ...]:
        return tuple(r for r in run if r.sample in samples or r.sample.partition("/")[0] in samples)

    return msgspec.structs.replace(
        measurement,
        results=chosen(measurement.results),
        runs=tuple(map(chosen, measurement.runs)),
    )


def unpatched(measurement: Measurement, names: Collection[str]) -> Measurement:
    """The measurement without these outputs: what reads them was fed reference values, and they are
    judged no more."""

    def rest(run: tuple[SampleResult, ...]) -> tuple[SampleResult, ...]:
        return tuple(
            msgspec.structs.replace(r, outputs=tuple(s for s in r.outputs if s.name not in names))
            for r in run
        )

    return msgspec.structs.replace(
        measurement, results=rest(measurement.results), runs=tuple(map(rest, measurement.runs))
    )


def worst_run(measurement: Measurement, criterion: Criterion) -> Measurement:
    """The measurement as its worst run alone would have given it, as what comes and goes shows in
    some runs only."""
    chosen = max(measurement.each_run, key=lambda run: worst(run, criterion)[2])
    return msgspec.structs.replace(measurement, results=chosen, runs=())


def sign_failure(result: SampleResult, rule: Criterion, sample: str) -> Signature:
    """The signature of one failing result: its outputs that are over tolerance, their errors,
    non-finite or not."""
    failing = {s.name: badness(s, rule) for s in result.outputs if over(s, rule)}
    return Signature(
        kind="accuracy",
        sample=sample,
        outputs=tuple(failing),
        errors=failing,
        nonfinite=any(s.new_nonfinite for s in result.outputs),
        metric=rule.metric,
        tolerance=rule.tolerance,
        places=find_places(result.outputs, rule),
    )


def judge_whole(measurement: Measurement, criterion: Criterion) -> Verdict:
    """The whole model: fails when any output of any result, in any run, is over its limit."""
    if measurement.assumed or measurement.status != "ok":
        return _unresolved(measurement)
    results = [r for run in measurement.each_run for r in run]
    if not any(r.outputs for r in results):
        return Verdict("unresolved", "different-outputs", detail="nothing was compared")
    _, _, bad = worst(results, criterion)
    return Verdict("fail" if exceed(results, criterion) else "pass", own=bad)


def judge_recorded(
    measurement: Measurement, criterion: Criterion, signature: Signature | None, *, whole: bool
) -> Verdict:
    """A candidate under the failure that is known by now. ``whole``: it is all of the model."""
    if signature is None or (whole and signature.kind == "accuracy"):
        return judge_whole(measurement, criterion)
    return judge(measurement, criterion, signature)


def judge_cured(
    measurement: Measurement, criterion: Criterion, signature: Signature | None
) -> Verdict:
    """The whole model under a change that may cure it. Of what was refused, or crashed: whether it
    still is, and if not, whether it is right; of an engine that cannot run here, the first alone."""
    ran = measurement.status == "ok" and measurement.results
    if signature is None or signature.kind == "accuracy" or ran:
        return judge_whole(measurement, criterion)
    return judge(measurement, criterion, signature)


def judge(measurement: Measurement, criterion: Criterion, signature: Signature) -> Verdict:
    """A candidate: does this part fail, and does its error make the model fail in the way that the
    signature says?

    fail: own over its limit, effect over its limit, effect at least a tenth of e0. pass: own and
    effect within. Everything else is unresolved, with the reason that tells the search where to go.
    Without effect scores own alone decides. The worst of several runs counts.
    """
    if measurement.assumed:
        return Verdict(measurement.assumed)
    if signature.kind in ("crash", "build"):
        return _judge_status(measurement, signature)
    if measurement.status != "ok":
        return _unresolved(measurement)
    verdicts = [_judge_run(run, criterion, signature) for run in measurement.each_run]
    return max(verdicts, key=lambda v: (v.kind == "fail", v.kind == "unresolved", v.effect or 0.0))


def judge_shrunk(measurement: Measurement, criterion: Criterion, signature: Signature) -> Verdict:
    """A shrunk case, which has no effect on the model's outputs to be judged by: the outputs of its
    own signature decide, in any run."""
    if measurement.assumed or measurement.status != "ok":
        return judge_whole(measurement, criterion)
    results = [r for run in measurement.each_run for r in run]
    scores = [s for r in results for s in r.outputs if s.name in signature.outputs]
    failed = any(over(s, criterion) for s in scores)
    return Verdict(
        "fail" if failed else "pass", own=max((badness(s, criterion) for s in scores), default=0.0)
    )


def judge_check(measurement: Measurement, criterion: Criterion) -> Verdict:
    """An external checker, by Polygraphy's rules: an ignored exit code passes; a listed one fails
    (with a regex: only if that matches too); a regex alone decides without the exit code; else any
    other exit code than 0 fails. Regexes search stdout with stderr right behind it. A checker that
    died or timed out is unresolved, and so is one that printed too much to be searched where a
    match would decide."""
    if measurement.assumed or measurement.status != "ok":
        return _unresolved(measurement)
    facts = measurement.facts
    if facts.get("timed_out"):
        return Verdict("unresolved", "timeout", detail="the check did not end in time")
    if facts.get("signal"):
        return Verdict(
            "unresolved", "check-died", detail=f"the check died of signal {facts['signal']}"
        )
    code = int(facts.get("returncode", 0))
    if code in criterion.ignore_fail_codes:
        return Verdict("pass", detail=f"exit code {code} is ignored")
    listed = not criterion.fail_codes or code in criterion.fail_codes
    if not criterion.fail_regex:
        failed = listed if criterion.fail_codes else code != 0
        return Verdict("fail" if failed else "pass", detail=f"exit code {code}")
    return (
        _judge_text(facts, criterion.fail_regex, code)
        if listed
        else Verdict("pass", detail=f"exit code {code}")
    )


def _judge_text(facts: Mapping[str, Any], regexes: Sequence[str], code: int) -> Verdict:
    """By what a checker printed: it fails where any of the patterns is in it."""
    text = f"{facts.get('stdout', '')}{facts.get('stderr', '')}"
    told = {pattern: patterns.is_found(pattern, text) for pattern in regexes}
    if (found := next((pattern for pattern, there in told.items() if there), None)) is not None:
        return Verdict("fail", detail=f"exit code {code}, and '{found}' is in what it printed")
    if untold := next((pattern for pattern, there in told.items() if there is None), ""):
        said = f"whether {untold!a} is in what the check printed could not be told in {patterns.SECONDS} seconds"
        return Verdict("unresolved", "error", detail=said)
    if facts.get("left_out"):
        said = f"{facts['left_out']} bytes of what the check printed were not kept, and no regex matches in the rest"
        return Verdict("unresolved", "error", detail=said)
    return Verdict("pass", detail=f"exit code {code}")


def _judge_run(
    results: Iterable[SampleResult], criterion: Criterion, signature: Signature
) -> Verdict:
    results = tuple(results)
    outputs = [s for r in results for s in r.outputs]
    if not outputs:
        return Verdict("unresolved", "different-outputs", detail="nothing was compared")
    own = max(badness(s, criterion) for s in outputs)
    own_over = any(over(s, criterion) for s in outputs)
    blocked = ", ".join([n for r in results for n in r.unrepresentable][:3])
    if not any(r.effect for r in results):
        if blocked:
            return Verdict("unresolved", "unrepresentable-input", own=own, detail=blocked)
        found = find_places(outputs, criterion)
        return Verdict("fail" if own_over else "pass", own=own, own_places=found)
    moved = [s for r in results for s in r.effect]
    watched = [s for s in moved if not signature.outputs or s.name in signature.outputs]
    ended = Verdict(
        "fail" if own_over else "pass",
        own=own,
        effect=max((badness(s, criterion) for s in watched), default=0.0),
        own_places=find_places(outputs, criterion),
        effect_places=find_places(watched, criterion),
    )
    effect_over = any(over(s, criterion) for s in watched)
    return _judge_effect(ended, blocked, effect_over, SHARE * min(signature.error, LARGE))


def _judge_effect(ended: Verdict, blocked: str, effect_over: bool, least: float) -> Verdict:
    """The verdict on a part's own outputs, where what they do to the model's agrees. ``least``: the
    effect below which it is another, milder failure."""
    own, effect, own_over = ended.own, ended.effect or 0.0, ended.kind == "fail"
    cases: tuple[tuple[object, Reason, str], ...] = (
        # What it was fed was already broken, so nothing it gives accuses it.
        (own_over and blocked, "unrepresentable-input", blocked),
        (own_over and not effect_over, "harmless", "its error does not reach the model's outputs"),
        (
            effect_over and not own_over,
            "amplified-downstream",
            "its small error grows further down",
        ),
        (own_over and effect < least, "milder", "its effect is under a tenth of the failure"),
    )
    for holds, reason, said in cases:
        if holds:
            return Verdict("unresolved", reason, own=own, effect=effect, detail=said)
    return ended


def find_places(scores: Sequence[Score], criterion: Criterion) -> tuple[int, int]:
    """``places`` of the worst."""
    worst = max(scores, key=lambda score: badness(score, criterion), default=None)
    return (0, 0) if worst is None else places(worst, criterion)


def _judge_status(measurement: Measurement, signature: Signature) -> Verdict:
    """A model that crashes the engine or cannot be built: the same status is the failure, a run
    that ends is the pass."""
    same = {"crash": ("crash",), "build": REFUSALS}[signature.kind]
    if measurement.status in same:
        if signature.kind == "build" and not refusal.is_same(
            signature.refusal, measurement.facts.get("refusal", ())
        ):
            return Verdict("unresolved", "refused-otherwise", detail=measurement.message)
        return Verdict("fail", detail=measurement.message)
    return Verdict("pass") if measurement.status == "ok" else _unresolved(measurement)


def _unresolved(measurement: Measurement) -> Verdict:
    """Of what was not measured, or was assumed."""
    if measurement.assumed:
        return Verdict(measurement.assumed)
    status = measurement.status
    if status == "ok" or status == "cancelled" or status == "fault":
        return Verdict("unresolved", "error", detail=measurement.message)
    return Verdict("unresolved", status, detail=measurement.message)


def _ratio(decibels: float) -> float:
    """Noise over signal of an SQNR in dB; amplitudes, so 20 dB a factor of ten."""
    return float(10 ** (-decibels / 20)) if decibels > -6000 else HUGE


def _over(absolute: float, relative: float, atol: float, rtol: float) -> float:
    """By what factor an element exceeds both tolerances; at most 1 when it keeps either."""
    return min(
        absolute / atol if atol > 0 else (HUGE if absolute > 0 else 0.0),
        relative / rtol if rtol > 0 else (HUGE if relative > 0 else 0.0),
    )


def list_failing(results: Iterable[SampleResult], rule: Criterion) -> tuple[SampleResult, ...]:
    """The results over tolerance."""
    return tuple(r for r in results if exceed((r,), rule))


def choose_result(m: Measurement, rule: Criterion) -> SampleResult:
    """The worst result that fails, in the first run that does: an intermittent failure may sit in
    any."""
    run = next(run for run in m.each_run if list_failing(run, rule))
    failing, slight = list_failing(run, rule), list_slight(run, rule)
    chosen = [r for r in failing if r.sample not in slight] or failing
    name = worst(chosen, rule)[0]
    return next(r for r in chosen if r.sample == name)


def count_failed_runs(m: Measurement, rule: Criterion) -> int:
    """How many runs of one build fail. ``Measurement.runs`` holds the runs that differed from the
    first; the others equal it."""
    differing = sum(exceed(run, rule) for run in m.runs)
    alike = int(m.facts.get("runs", 1 + len(m.runs))) - len(m.runs)
    return differing + (alike if exceed(m.results, rule) else 0)
