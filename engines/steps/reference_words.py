"""Whether the reference is to be believed, as sentences of compare: what golden outputs, other
engines and the last place of the numbers say of it, and what to do about it."""

from narrowdown.engines.asking.whole_model import FLOAT64, name_engine
from narrowdown.engines.compare.criterion import Criterion
from narrowdown.engines.compare.say import say_allowed, say_distance, say_error
from narrowdown.engines.probe import HUGE
from narrowdown.engines.search import golden_reference, noise, trial
from narrowdown.engines.search.independent import Heard
from narrowdown.engines.spec import parse

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
    spoke = (tried.ctx.engine, tried.ctx.reference, heard.judge)  # who speaks already is no third
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
        to=tried.findings.replaced.to if tried.findings.replaced else "",
        alike=" The engine is wrong in the same way." if tried.findings.alike else "",
        swapped=f"--engine {tried.given} --reference {tried.ctx.engine}",
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
        case "wrong" if tried.findings.replaced is not None:
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


def say_noise(error: float, output: str, sample: str, rule: Criterion, moved: noise.Moved) -> str:
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
