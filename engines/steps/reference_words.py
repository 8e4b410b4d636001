"""Whether the reference is to be believed, as sentences of compare: what golden outputs, other
engines and the last place of the numbers say of it, and what to do about it."""

from narrowdown.engines.asking.whole_model import FLOAT64, name_engine
from narrowdown.engines.compare.criterion import Criterion
from narrowdown.engines.compare.say import say_allowed, say_distance, say_error
from narrowdown.engines.probe import HUGE
from narrowdown.engines.search import golden_reference, noise, trial
from narrowdown.engines.search.independent import Heard
from narrowdown.engines.spec import parse


def say_reference(tried: trial.Tried, rule: Criterion) -> str:
    """What is wrong with the reference or with who judged it, and what to do about it; "" where it
    was confirmed by all."""
    heard = tried.heard
    if tried.golden is not None:
        return _say_golden(tried.golden, rule)
    if not tried.steady:
        return (
            f"The reference itself is not steady: its second run is {say_error(tried.moves, rule)} against its first. "
            "Choose another with --reference, or give it one thread."
        )
    if heard.standing == "unheard":
        return f"Nothing else checked the reference: {heard.why}" if heard.why else ""
    reference, judge, off = (
        name_engine(tried.given),
        _name_judge(heard),
        say_error(heard.error or 0.0, rule),
    )
    spoke = (tried.ctx.engine, tried.ctx.reference, heard.judge)  # who speaks already is no third
    install = (
        ""
        if "openvino" in {parse(spec).name for spec in spoke if spec}
        else " (python -m pip install openvino)"
    )
    third = f"Ask a third: give --reference outputs that are known to be right, or another engine{install}."
    match heard.standing:
        case "wrong":
            other = name_engine(heard.other)
            against = (
                f"The reference, {reference}, is itself {off}: {judge} and {other} agree against it"
            )
            between = f"{against} ({say_distance(heard.apart or 0.0, rule)} between the two)."
            if tried.findings.replaced is None:
                first = name_engine(heard.judge)
                return f"{between} {tried.why or f'The engine is right by {first}.'}{_say_parting(tried, rule)}"
            alike = " The engine is wrong in the same way." if tried.findings.alike else ""
            return f"{between}{alike} The session goes on against {tried.findings.replaced.to}."
        case "alone" if tried.sides:
            swapped = f"--engine {tried.given} --reference {tried.ctx.engine}"
            between = say_distance(heard.error or 0.0, rule)
            return (
                f"Either the reference is wrong or two others are: {reference} and {judge} are {between} apart, and the engine "
                f"under test is on the side of {name_engine(heard.judge)}.{_say_parting(tried, rule)} To take the "
                f"reference apart, ask the other way round: {swapped}. {third}"
            )
        case "alone" if tried.doubted:
            return (
                f"The engine gives what the reference gives, and shares code with it. {judge}, the only one that shares none, "
                f"is {say_distance(heard.error or 0.0, rule)} off, far more than rounding makes. So whether it is right cannot "
                f"be told.{_say_parting(tried, rule)} {third}"
            )
        case "alone":
            return (
                f"{judge} alone differs from the reference ({say_distance(heard.error or 0.0, rule)} apart) and nobody else "
                f"could be asked: it may be the wrong one itself, and was left out. {third}"
            )
        case "open" if heard.moves:
            return (
                f"{judge} and {name_engine(heard.other)} agree against {reference} "
                f"({say_distance(heard.error or 0.0, rule)} apart), and one unit in the last place moves {reference} by "
                f"{say_distance(heard.moves, rule)} itself{_say_undetermined(tried)}."
            )
        case "open":
            other, spread = name_engine(heard.other), say_distance(heard.spread, rule)
            return (
                f"{reference}, {judge} and {other} differ from one another by up to {spread} and no two of them "
                f"agree{_say_undetermined(tried)}."
            )
    alone = (
        f"{name_engine(v)} is {say_error(e, rule)} where the reference and {judge} agree: left out."
        for v, e in heard.lonely
    )
    return " ".join(alone)


def _say_undetermined(tried: trial.Tried) -> str:
    """What follows where nobody is right for sure; "" of a failure that is searched all the same,
    as it is beyond that."""
    searched = (
        tried.findings.signature is not None and not tried.verdict and not tried.moved.explains
    )
    return "" if searched else ": the output is determined no better than that"


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
    voice, second = (_name_in_full(spec) if spec else "" for spec in (told.voice, told.second))
    by = "the golden outputs"
    off = (
        f"is {say_distance(told.off, rule)} off {by}"
        if told.off < HUGE
        else f"has NaN or infinity in other places than {by}"
    )
    too = f" {second} computes the same." if told.second else ""
    where = (
        f" The first recorded tensor that differs is {told.departure.tensor}, which {told.departure.node} makes."
        if told.departure.tensor
        else ""
    )
    if not where and told.departure.looked:
        where = f" None of the {told.departure.looked} recorded inner tensors differs, so it is behind the last of them."
    match told.standing:
        case "right":
            right = f"The model itself is right: {voice} {off}."
            return f"{right} The search goes on against it."
        case "export":
            return (
                f"The model is not what the golden outputs were recorded of: {voice} {off}, and the engine computes the model "
                f"as {name_engine(told.voice)} does ({say_distance(told.engine_off, rule)} apart).{too}{where} "
                "Export it again, or look at what preprocessing and weights the recording used."
            )
        case "both":
            return (
                f"The model itself is not what the golden outputs say, either: {voice} {off}.{too}{where} That is the export's "
                f"fault; what the engine does beside it is searched for against {name_engine(told.voice)}."
            )
        case "unclear" if told.why:
            return f"{voice} {off}, and how far the engine is from it could not be measured. {told.why}"
        case "unclear" if told.second:
            return f"{voice} and {second} both differ from {by}, and from each other."
        case "unclear":
            return f"The engine is within the tolerance of {voice}, which {off}: the difference lies between the two."
        case "unheard":
            return (
                "Nobody independent of the engine could say whether the model itself is right: "
                f"{told.why or 'every engine here shares its code.'}"
            )
    return ""


def _name_in_full(spec: str) -> str:
    """A voice and what it computes in: ``OpenVINO in FP32``, ``Narrowdown's evaluator in
    float64``."""
    named = name_engine(spec)
    return named if spec == FLOAT64 else f"{named} in FP32"
