"""What compare says to people: pure, from what was measured.

Whether the reference is to be believed, as sentences of compare: what golden outputs, other
engines and the last place of the numbers say of it, and what to do about it.
"""

import re
from typing import TYPE_CHECKING

from narrowdown.engines.asking.whole_model import FLOAT64, WholeModel, name_engine
from narrowdown.engines.compare.criterion import ANSWERS, TOLERANCE_BY_PRECISION, Criterion
from narrowdown.engines.compare.judge import gives_answer, limit, margin
from narrowdown.engines.compare.say import (
    NEAR,
    UNLIKE,
    say_allowed,
    say_distance,
    say_error,
    say_percent,
    say_sample,
    wrong_by,
)
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import HUGE, Measurement, SampleResult, Score, is_given
from narrowdown.engines.search import determined, golden_reference, trial
from narrowdown.engines.search.independent import Heard
from narrowdown.engines.search.nearby import Nearby
from narrowdown.engines.search.statistics import say_most_wrong
from narrowdown.engines.search.whole import list_failing
from narrowdown.engines.search.workaround_facts import UNCALIBRATED
from narrowdown.engines.spec import parse, unquantized

if TYPE_CHECKING:  # the step stands on its words
    from narrowdown.engines.steps.compare import CompareOutcome

NOBODY = ("unresolved", "none")  # verdict and failure where nobody can say who is right
LOST = "lost"  # OpenVINO's Exp of NaN is infinite: no value of the reference is finite there
PROBLEMS = {**UNLIKE, LOST: "something else where the reference is infinite or NaN"}
# Names that exporters give to outputs of class scores: only of these "another answer" is said
# unasked.
_CLASS_SCORES = re.compile(r"logit|prob|class|score|softmax|label", re.IGNORECASE)
# Whole numbers this near to the right ones may be picture points or a quantizer's codes, for which
# some are right; words and classes are others then. Chosen, not measured.
A_FEW = 3
TELLING = 1000  # a margin beyond this is said as "more than": its digits are those of rounding


def say_outcome(
    found: "CompareOutcome", rule: Criterion, tried: trial.Tried, problem: str, exact: Score | None
) -> str:
    """``problem``: what keeps the worst output from being compared; ``exact``: its score, where it
    must be equal."""
    said = say_reference(tried, rule)
    error, output, sample = found.error or 0.0, found.worst_output, say_sample(found.worst_sample)
    if found.verdict in ("reference", "export") or (found.verdict, found.failure) == NOBODY:
        return said
    if found.verdict == "noise":
        return say_noise(error, output, sample, rule, tried.moved)
    amount = PROBLEMS.get(problem) or say_error(error, rule)
    if found.verdict == "passes":
        told = _say_pass(found, rule, amount)
    elif exact is not None and rule.metric == "rel_l2":
        often = _say_often(found)
        told = (
            f"{output} is not equal to the reference's on {sample}{often}: {_say_unequal(exact)}."
        )
        told += " Whose fault that is cannot be told." if found.verdict == "unresolved" else ""
    elif found.verdict == "unresolved":
        told = f"{output} is {amount} on {sample}, and whose fault that is cannot be told."
    else:
        told = _say_failure(found, rule, problem, amount)
    return f"{told} {said}" if said else told


def _say_often(found: "CompareOutcome") -> str:
    return f" in {found.failures} of {found.looks} runs" if found.looks > 1 else ""


def _say_failure(found: "CompareOutcome", rule: Criterion, problem: str, amount: str) -> str:
    output, sample = found.worst_output, say_sample(found.worst_sample)
    compared = problem not in PROBLEMS and (found.error or 0.0) < HUGE
    if rule.metric == "rel_l2" and compared:
        return f"{output} is {amount}{_say_often(found)} {_say_normal(rule, output)}. {_say_worst(sample)}"
    allowed = "" if problem in UNLIKE else f"; allowed {_say_precise(rule, output)}"
    return f"{output} is {amount} on {sample}{_say_often(found)}{allowed}."


def _say_pass(found: "CompareOutcome", rule: Criterion, amount: str) -> str:
    output, allowed = found.worst_output, _say_precise(rule, found.worst_output)
    near = margin(rule, found.error or 0.0, output)
    times = f"{near:.3g} times" if near <= TELLING else f"more than {TELLING} times"
    runs = f"{found.looks:,} runs, no failure." if found.looks > 1 else "No failure."
    if not found.error:
        what = "answer is" if rule.metric in ANSWERS else "output equals"
        return f"{runs} Every {what} the reference's; allowed {allowed}."
    below = f"{'just' if near < NEAR else times} below what is allowed ({allowed})"
    return f"{runs} The worst is {output} on {say_sample(found.worst_sample)}, {amount}: {below}."


def _say_precise(rule: Criterion, output: str) -> str:
    """What is allowed; of a precision, not of who asks for it."""
    precise = f" for {rule.precision.upper()}" if rule.source == "default" else ""
    return f"{say_allowed(rule, output)}{precise}"


def say_beside(model: WholeModel, m: Measurement, found: "CompareOutcome") -> tuple[str, ...]:
    """What a verdict does not say: what quantization costs, what another engine computed, whether
    anything was rounded. And on how many samples of the user's a pass stands, with what that leaves
    open of others: of 8 that passed in FP16 a reader of captchas was right on all, and on 182 of
    200 new ones. Where a quantized model was held against the float one, what calibrated it counts
    for nothing: 8 were right, 4 of 40 others wrong by 13 to 68 %."""
    taken, count = m.facts.get("taken", (0, 0))
    untouched, codes = m.facts.get("untouched"), model.findings.codes
    in_float = unquantized(model.reference)
    own = f"{found.given:,} {'sample' if found.given == 1 else 'samples'} of yours"
    told = (
        (
            found.verdict == "passes" and codes and not in_float,
            "The reference computes the same quantized model: what quantization itself costs is seen against the float one "
            "(--flow quantization, or --reference onnxruntime:model=FLOAT.onnx).",
        ),
        (
            taken != count,
            f"The provider took {taken} of {count} nodes; ONNX Runtime's own CPU kernels computed the others.",
        ),
        (
            untouched,
            f"Nothing in this model is in FP32, so nothing was rounded to {model.rule.precision.upper()}: this says nothing of "
            "what an engine in that precision makes of it.",
        ),
        (
            found.may_fail is not None and not untouched,
            f"Tried on {own}: {say_most_wrong(found.given, found.given)}{UNCALIBRATED if codes and in_float else '.'}",
        ),
    )
    return tuple(text for holds, text in told if holds)


def say_nearby(nearby: Nearby, rule: Criterion) -> tuple[str, ...]:
    """What samples that were made near the user's show of others. Where all of them are right
    nothing is said: a reader of captchas was right on 32 of 32, and on 180 of 200 others."""
    drawn: tuple[str, ...] = ()
    if nearby.drawn:
        drawn = (f"A made-up sample is {say_error(nearby.drawn, rule)}: yours decide.",)
    if not nearby.failing:
        return drawn
    made_of, _, how = nearby.source.removeprefix("near ").partition(": ")
    of_it = f" ({say_sample(made_of)}, {how})" if how and is_given(made_of) else ""
    off = f"{nearby.failing} {'is' if nearby.failing == 1 else 'are'} wrong"
    worst_of = say_error(nearby.error, rule).removeprefix("wrong ")
    return (
        f"Of {nearby.n} samples that were made near yours {off} by more than that, the worst {worst_of}{of_it}. Yours may never "
        "be like these: try more of your own (--inputs).",
        *drawn,
    )


# Of a quantized model that fails against the float one, by whose fault that is.
WHOSE_CODES = {
    "engine": ", which is allowed; {engine}. So the engine is at fault, not the quantization.",
    "both": "; {engine}. So neither the quantization nor the engine is at fault alone.",
    "precision": "; {engine}, which is allowed. So the quantization is at fault, not the engine.",
}


def say_whose_codes(found: "CompareOutcome", rule: Criterion) -> str:
    """Of a quantized model that fails against the float one: what its codes cost, and what the
    engine makes of them."""
    if found.verdict != "fails" or found.engine_error is None:
        return ""
    literal = f"Computed literally, the quantized model is {wrong_by(found.emulated_error, rule.metric)} on that sample"
    engine = f"the engine is {wrong_by(found.engine_error, rule.metric)} beside that"
    return literal + WHOSE_CODES[found.explanation].format(engine=engine)


def say_slight(results: tuple[SampleResult, ...], found: "CompareOutcome", rule: Criterion) -> str:
    """That all that fails is nearly nothing, how far off it is of what is not, and how to say what
    matters."""
    output = found.worst_output
    there = next(
        s for r in results if r.sample == found.worst_sample for s in r.outputs if s.name == output
    )
    most = max(s.absmax for r in results for s in r.outputs if s.name == output)
    failing = list_failing(results, rule)
    few = f"{len(failing)} of {len(results)} samples {'fails' if len(failing) == 1 else 'fail'}"
    few += ", only on values that are nearly nothing"
    return (
        f"{few}. The worst is {say_sample(found.worst_sample)}, {wrong_by(found.error or 0.0, rule.metric)}: {output} is at most "
        f"{there.absmax:.3g} there, and up to {most:.3g} on other samples. That error is {say_percent(there.max_abs / most)} of "
        f"{most:.3g}, and {say_percent(limit(rule, output))} is allowed. Only you know how exact so small a value has to be, so "
        "it is called neither right nor wrong. Say how far any value may be off (--metric max_abs --tolerance VALUE), or each in "
        "proportion to itself (--tolerance VALUE)."
    )


def _say_worst(sample: str) -> str:
    return (
        f"Worst sample: {sample.removeprefix('sample ')}."
        if sample.startswith("sample ")
        else f"Worst: {sample}."
    )


def say_made_up(findings: Findings, found: "CompareOutcome") -> str:
    """What is left open where all runs were of made-up values, which say nothing of others; said
    before all else."""
    if found.failures or found.looks < 2 or any(is_given(s.id) for s in findings.samples):
        return ""
    n = len(findings.samples)
    tried = "Only one made-up input was" if n == 1 else f"Only {n:,} made-up inputs were"
    return f"{tried} tried. Give real ones: --inputs batch.npz."


def _say_normal(rule: Criterion, output: str) -> str:
    """What a relative error may be: what its precision costs, unless somebody said otherwise."""
    most = rule.tolerances.get(output, rule.tolerance)
    usual = TOLERANCE_BY_PRECISION.get(rule.precision) == most
    return f"(up to {100 * most:.3g} % is {'normal for ' + rule.precision.upper() if usual else 'allowed'})"


def find_problem(results: tuple[SampleResult, ...], output: str) -> str:
    """What keeps the output from being compared at all, on any sample: a key of ``PROBLEMS``, or
    ``""``."""
    scores = [s for r in results for s in r.outputs if s.name == output]
    lost = any(s.lost_nonfinite for s in scores) and not any(s.new_nonfinite for s in scores)
    return next((s.problem for s in scores if s.problem), LOST if lost else "")


def find_exact(results: tuple[SampleResult, ...], found: "CompareOutcome") -> Score | None:
    """The score of the worst output on the worst sample, where its values are right or wrong: whole
    numbers, truth values, texts. Rows of a sample have none of their own where the whole sample was
    run."""
    sample = found.worst_sample.partition("/")[0]
    return next(
        (
            s
            for r in results
            for s in r.outputs
            if s.name == found.worst_output
            and s.exact
            and not (s.equal or s.problem)
            and r.sample in (found.worst_sample, sample)
        ),
        None,
    )


def _say_unequal(score: Score) -> str:
    """How many values differ, and of numbers by how much: a ratio says nothing of what must be
    equal."""
    few = f"{say_percent(score.mismatched)} of its values differ"
    if score.dtype in ("bool", "string"):
        return f"{few}, and {'truth values' if score.dtype == 'bool' else 'texts'} must be equal"
    allow = (
        f" (--metric max_abs --tolerance {score.max_abs:g} would allow that)"
        if score.max_abs <= A_FEW
        else ""
    )
    return f"{few}, by at most {score.max_abs:g}, and whole numbers must be equal{allow}"


def say_answers(results: tuple[SampleResult, ...], rule: Criterion) -> tuple[str, ...]:
    """How many of the samples get another answer from each output that gives class scores, as
    sentences."""
    said = []
    for name, (other, total, things) in count_answers(results, rule).items():
        if total == 1:
            said.append(
                f"{name} gives {'another' if other else 'the same'} top-1 answer{'' if other else ' as the reference'}."
            )
        elif other:
            said.append(f"{other} of {total} {things} get another top-1 answer from {name}.")
        else:
            said.append(f"In all {total} {things} the top-1 answer from {name} is the reference's.")
    return (*_say_no_answer(results, rule), *said)


def count_answers(
    results: tuple[SampleResult, ...], rule: Criterion
) -> dict[str, tuple[int, int, str]]:
    """(rows with another top-1 answer, all rows, what a row is) of each output that gives class
    scores: of an output that is judged by its answers, and of one whose name says so and that has
    rows: a vector may be one score at each moment."""
    by_output: dict[str, list[Score]] = {}
    for score in (s for r in results for s in r.outputs):
        if score.answer is not None and score.answer.rows:
            by_output.setdefault(score.name, []).append(score)
    counts = {}
    for name, scores in by_output.items():
        vector = all(len(s.shape) < 2 for s in scores)
        if rule.metric not in ANSWERS and (vector or not _CLASS_SCORES.search(name)):
            continue
        rows = [(s.answer.rows, s.answer.top1) for s in scores if s.answer]
        things = "samples" if all(n == 1 for n, _ in rows) else "rows"
        counts[name] = (sum(round(n * share) for n, share in rows), sum(n for n, _ in rows), things)
    return counts


def _say_no_answer(results: tuple[SampleResult, ...], rule: Criterion) -> tuple[str, ...]:
    """Which outputs hold nothing that a metric of answers judges, and what decides in its place."""
    scores = [s for r in results for s in r.outputs if not (s.equal or s.problem)]
    names = dict.fromkeys(s.name for s in scores if not gives_answer(s, rule.metric))
    if rule.metric not in ANSWERS or not names:
        return ()
    judged = "masks of integers or boxes (x1 y1 x2 y2)" if rule.metric == "iou" else "class scores"
    holds = "holds" if len(names) == 1 else "hold"
    return (
        f"{', '.join(names)} {holds} no {judged}, so rel_l2 decides there in place of {rule.metric}; see --postprocess.",
    )


# What is wrong with the reference or with who judged it, and what to do about it, by ``_find_case``.
OF_THE_REFERENCE = {
    "unsteady": "The reference itself is not steady: its second run is {again} against its first. "
    "Choose another with --reference, or give it one thread.",
    "unheard": "Nothing else checked the reference: {why}",
    "wrong": "The reference, {reference}, is itself {off}: {judge} and {other} agree against it ({apart} between the two). "
    "{why}{parting}",
    "replaced": "The reference, {reference}, is itself {off}: {judge} and {other} agree against it ({apart} between the "
    "two).{alike} The session goes on against {to}.",
    "sides": "Either the reference is wrong or two others are: {reference} and {judge} are {distance} apart, and the engine "
    "under test is on the side of {first}.{parting} To take the reference apart, ask the other way round: {swapped}. {third}",
    "doubted": "The engine gives what the reference gives, and shares code with it. {judge}, the only one that shares none, "
    "is {distance} off, far more than rounding makes. So whether it is right cannot be told.{parting} {third}",
    "alone": "{judge} alone differs from the reference ({distance} apart) and nobody else could be asked: it may be the wrong "
    "one itself, and was left out. {third}",
    "rounding": "{judge} and {other} agree against {reference} ({distance} apart), and one unit in the last place moves "
    "{reference} by {moves} itself{undetermined}.",
    "open": "{reference}, {judge} and {other} differ from one another by up to {spread} and no two of them "
    "agree{undetermined}.",
    "right": "{lonely}",
}
# What golden outputs say of the model and of the engine, by where the two stand.
OF_THE_MODEL = {
    "": "",
    "right": "The model itself is right: {voice} {off}. The search goes on against it.",
    "export": "The model is not what the golden outputs were recorded of: {voice} {off}, and the engine computes the model "
    "as {named} does ({between} apart).{too}{where} "
    "Export it again, or look at what preprocessing and weights the recording used.",
    "both": "The model itself is not what the golden outputs say, either: {voice} {off}.{too}{where} That is the export's "
    "fault; what the engine does beside it is searched for against {named}.",
    "unmeasured": "{voice} {off}, and how far the engine is from it could not be measured. {why}",
    "contradicted": "{voice} and {second} both differ from the golden outputs, and from each other.",
    "unclear": "The engine is within the tolerance of {voice}, which {off}: the difference lies between the two.",
    "unheard": "Nobody independent of the engine could say whether the model itself is right: {why}",
}


def say_reference(tried: trial.Tried, rule: Criterion) -> str:
    """What is wrong with the reference or with who judged it, and what to do about it; "" where it
    was confirmed by all."""
    if tried.golden is not None:
        return _say_golden(tried.golden, rule)
    heard = tried.heard
    error, apart = heard.error or 0.0, heard.apart or 0.0
    judge, first = _name_judge(heard), name_engine(heard.judge)
    spoke = (
        tried.model.engine,
        tried.model.reference,
        heard.judge,
    )  # who speaks already is no third
    known = "openvino" in {parse(spec).name for spec in spoke if spec}
    lonely = (
        f"{name_engine(spec)} is {say_error(e, rule)} where the reference and {judge} agree: left out."
        for spec, e in heard.lonely
    )
    return OF_THE_REFERENCE[_find_case(tried)].format(
        again=say_error(tried.moves, rule),
        reference=name_engine(tried.given),
        judge=judge,
        first=first,
        other=name_engine(heard.other),
        off=say_error(error, rule),
        distance=say_distance(error, rule),
        apart=say_distance(apart, rule),
        spread=say_distance(heard.spread, rule),
        moves=say_distance(heard.moves, rule),
        why=tried.why or heard.why or f"The engine is right by {first}.",
        parting=_say_parting(tried, rule),
        to=tried.model.findings.replaced.to if tried.model.findings.replaced else "",
        alike=" The engine is wrong in the same way." if tried.model.findings.alike else "",
        swapped=f"--engine {tried.given} --reference {tried.model.engine}",
        third="Ask a third: give --reference outputs that are known to be right, or another engine"
        f"{'' if known else ' (python -m pip install openvino)'}.",
        # A failure that is searched all the same is beyond that.
        undetermined="" if tried.searched else ": the output is determined no better than that",
        lonely=" ".join(lonely),
    )


def _find_case(tried: trial.Tried) -> str:
    heard = tried.heard
    if not tried.steady:
        return "unsteady"
    match heard.standing:
        case "unheard" if not heard.why:
            return "right"
        case "wrong" if tried.model.findings.replaced is not None:
            return "replaced"
        case "alone" if tried.sides or tried.doubted:
            return "sides" if tried.sides else "doubted"
        case "open" if heard.moves:
            return "rounding"
    return heard.standing


def _name_judge(heard: Heard) -> str:
    """Who speaks against the reference, and whether ONNX's own operators say the same."""
    also = {
        True: " (ONNX's own operators give the same)",
        False: " (ONNX's own operators give something else)",
    }
    return name_engine(heard.judge) + ("" if heard.beside is None else also[heard.beside])


def _say_parting(tried: trial.Tried, rule: Criterion) -> str:
    """Where the reference and who speaks against it part, with a space in front; "" where that was
    not found."""
    found = tried.parting
    if not found.node:
        return ""
    node = f"{found.node} ({found.op})"
    if found.alone is None:
        return f" The first tensor that differs is {found.tensor}, which {node} makes."
    apart = f"the two are {say_distance(found.alone, rule)} apart"
    if found.alone >= HUGE:
        apart = (
            "one gives another shape"
            if found.problem == "shape"
            else "one is infinite or NaN where the other is not"
        )
    return f" They part at {node}: fed the same values there, {apart}."


def say_noise(
    error: float, output: str, sample: str, rule: Criterion, moved: determined.Moved
) -> str:
    """That the failure is rounding, and what to do."""
    by = say_distance(moved.outputs.get(output, max(moved.outputs.values(), default=0.0)), rule)
    return (
        f"{output} is {say_error(error, rule)} on {sample}; one unit in the last place of the {moved.what} moves it by {by} on "
        f"the reference itself. So it is not determined to what is allowed ({say_allowed(rule, output)}), and no node is at "
        "fault. Judge it by what matters to you: a tolerance above that, an absolute one (--metric max_abs --tolerance VALUE), "
        "other samples; or compute that part of the model in float64."
    )


def _say_golden(told: golden_reference.Trial, rule: Criterion) -> str:
    """What the golden outputs say of the model and of the engine; "" where the engine agrees with
    them."""
    case: str = told.standing
    if case == "unclear" and (told.why or told.second):
        case = "unmeasured" if told.why else "contradicted"
    found, second = told.departure, _name_in_full(told.second)
    where = f" None of the {found.looked} recorded inner tensors differs, so it is behind the last of them."
    if found.tensor:
        where = (
            f" The first recorded tensor that differs is {found.tensor}, which {found.node} makes."
        )
    off = f"is {say_distance(told.off, rule)} off the golden outputs"
    if told.off >= HUGE:
        off = "has NaN or infinity in other places than the golden outputs"
    return OF_THE_MODEL[case].format(
        voice=_name_in_full(told.voice),
        named=name_engine(told.voice),
        second=second,
        off=off,
        between=say_distance(told.engine_off, rule),
        too=f" {second} computes the same." if second else "",
        where=where if found.looked else "",
        why=told.why or "every engine here shares its code.",
    )


def _name_in_full(spec: str) -> str:
    """A voice and what it computes in: ``OpenVINO in FP32``, ``Narrowdown's evaluator in
    float64``."""
    return name_engine(spec) if spec in ("", FLOAT64) else f"{name_engine(spec)} in FP32"
