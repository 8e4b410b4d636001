"""The reference on trial: every computation is a place on a line, and an error the distance between
two of them."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from narrowdown.engines.asking.whole_model import INDEPENDENT
from narrowdown.engines.options import families
from narrowdown.engines.probe import HUGE, Measure, Measurement, SampleInfo, SampleResult, Score

ORT, F64, OV, TRT = "onnxruntime", "reference:precision=fp64", "openvino:precision=f32", "tensorrt"
ALL, OFF = "onnxruntime:optimization=all", "onnxruntime:disabled_optimizers=Fusion,optimization=all"
OWN = "reference:operators=onnx,precision=fp64"  # ONNX's own operators, which are where ours are unless a test says otherwise
LIMIT = 0.01  # of answers.RULE


def world(
    answers: Any, places: Mapping[str, float | str], *, moved: float = 0.0, seconds: float = 0.01
) -> Any:
    """``places``: where each engine's output lies; a text is what keeps it from running. ``moved``:
    by the last place."""

    def answer(probe: Any) -> Measurement:
        opened = answers.opening(probe)
        if opened is not None:
            return opened
        assert isinstance(probe, Measure)
        engine, reference = (
            {OWN: places.get(F64, 0.0), **places}.get(s, 0.0)
            for s in (probe.engine, probe.reference)
        )
        if isinstance(reference, str):
            return Measurement(status="reference-failed", message=reference)
        if isinstance(engine, str):
            return Measurement(status="unsupported", message=engine)
        apart = (
            HUGE if HUGE in (engine, reference) and engine != reference else abs(engine - reference)
        )
        if probe.nudge:
            apart = moved
        return answers.measured(*((s, apart) for s in probe.samples), run_seconds=seconds)

    return answer


def tried(
    answers: Any, walk: Any, places: Mapping[str, float | str], engine: str = TRT, **how: Any
) -> Any:
    """With optimizers off ``onnxruntime:optimization=all`` gives what the reference gives, unless
    ``places`` says otherwise."""
    switched = {"optimizers": ["Fusion"]} if engine == ALL else {}
    capabilities = {"optimizers": answers.PRESENT} if engine == ALL else {}
    context = answers.context(engine=engine, capabilities=capabilities, info=switched)
    return walk("compare", context, world(answers, places, **how))


# -- convicted only where two agree against it, clearly ---------------------------------------------------------------------


def test_two_that_agree_convict_the_reference_of_a_right_engine(answers: Any, walk: Any) -> None:
    outcome = tried(answers, walk, {TRT: 0.0, F64: 0.0, OV: 0.0005, ORT: 0.9}).finish.outcome
    assert (outcome.verdict, outcome.reference_error, outcome.reference_judge) == (
        "reference",
        0.9,
        F64,
    )
    both = "Narrowdown's evaluator in float64 (ONNX's own operators give the same) and OpenVINO agree against it"
    assert both in outcome.message
    assert "--reference" not in outcome.message, "the advice leads nowhere that was not measured"


def test_one_alone_convicts_nobody_and_is_named(answers: Any, walk: Any) -> None:
    """A judge that is wrong itself: healthy nodes are accused by nobody, and a true failure is
    searched all the same."""
    outcome = tried(answers, walk, {TRT: 0.5, F64: -0.9, OV: "not here."}).finish.outcome
    assert outcome.verdict == "fails"
    assert "alone differs from the reference (90 % apart)" in outcome.message
    outcome = tried(answers, walk, {TRT: 0.001, F64: -0.9, OV: "not here."}).finish.outcome
    assert outcome.verdict == "passes", "two who share no code agree"


def test_who_speaks_already_is_not_proposed_as_a_third(answers: Any, walk: Any) -> None:
    """'python -m pip install openvino' was said with OpenVINO under test."""
    for engine, proposed in ((TRT, True), ("openvino", False)):
        outcome = tried(
            answers, walk, {engine: 0.9, F64: 0.9001, OV: "not here."}, engine
        ).finish.outcome
        assert outcome.verdict == "reference"
        assert "Ask a third" in outcome.message
        assert ("pip install openvino" in outcome.message) == proposed
    heard = tried(answers, walk, {TRT: 0.9, F64: "unknown operator", OV: 0.0291}).finish.outcome
    assert "OpenVINO alone differs from the reference" in heard.message
    assert "pip install openvino" not in heard.message, "it is the one that differs"


def test_a_judge_that_two_agree_against_is_left_out(answers: Any, walk: Any) -> None:
    outcome = tried(answers, walk, {TRT: 0.5, F64: -0.9, OV: 0.0001}).finish.outcome
    assert (outcome.verdict, outcome.reference_judge, outcome.reference_error) == (
        "fails",
        OV,
        0.0001,
    )
    assert "Narrowdown's evaluator" not in outcome.message


def test_a_tie_is_a_tie(answers: Any, walk: Any) -> None:
    """0.0313 against 0.0313 convicted once; and following the advice then accused three healthy
    nodes."""
    done = tried(answers, walk, {TRT: 0.0626, F64: 0.0313, OV: "not here."})
    assert done.finish.outcome.verdict == "fails", "one voice halfway between two is nobody's"
    done = tried(answers, walk, {TRT: 0.0626, F64: 0.0313, OV: 0.0939})
    assert done.finish.outcome.verdict == "unresolved"
    assert (
        "no two of them agree: the output is determined no better than that"
        in done.finish.outcome.message
    )
    assert "9.39 %" in done.finish.outcome.message
    assert done.finish.outcome.message.startswith("y is wrong by 6.26 % (up to 1 % is normal")
    assert "Worst: sample 0. Whose fault that is cannot be told." in done.finish.outcome.message


@pytest.mark.parametrize(("apart", "verdict"), [(0.0029, "reference"), (0.0031, "unresolved")])
def test_clearly_means_ten_times(answers: Any, walk: Any, apart: float, verdict: str) -> None:
    assert (
        tried(answers, walk, {ORT: 0.03, F64: 0.0, OV: -apart, TRT: 0.0}).finish.outcome.verdict
        == verdict
    )


def test_a_failure_far_beyond_the_doubt_is_searched(answers: Any, walk: Any) -> None:
    outcome = tried(answers, walk, {TRT: 5.0, F64: 0.03, OV: -0.03}).finish.outcome
    assert outcome.verdict == "fails"
    assert "differ from one another" in outcome.message
    assert "determined no better" not in outcome.message, "it is searched, so it is beyond that"
    assert tried(answers, walk, {TRT: HUGE, F64: 0.03, OV: -0.03}).finish.outcome.verdict == "fails"


@pytest.mark.parametrize(("off", "verdict"), [(0.59, "unresolved"), (0.61, "fails")])
def test_far_beyond_the_doubt_means_ten_times(
    answers: Any, walk: Any, off: float, verdict: str
) -> None:
    """The others differ by up to 0.06."""
    assert tried(answers, walk, {TRT: off, F64: 0.03, OV: -0.03}).finish.outcome.verdict == verdict


@pytest.mark.parametrize(
    ("own", "verdict"),
    [(0.9001, "reference"), ("no such operator.", "reference"), (-0.9, "unresolved")],
)
def test_an_engine_on_the_judges_side_makes_two(
    answers: Any, walk: Any, own: float | str, verdict: str
) -> None:
    """An engine that fails has no vote by itself. ONNX's own operators are most of the judge, and
    may only take its word away."""
    outcome = tried(
        answers, walk, {TRT: 0.9, F64: 0.9001, OWN: own, OV: "not here."}
    ).finish.outcome
    assert outcome.verdict == verdict
    assert f"--engine {ORT} --reference {TRT}." in outcome.message
    assert (
        "the engine under test is on the side of Narrowdown's evaluator in float64"
        in outcome.message
    )
    assert "openvino" in outcome.message, "what would settle it"


@pytest.mark.parametrize(("off", "judge"), [(0.0009, F64), (0.0011, OV)])
def test_a_tenth_of_the_tolerance_confirms(answers: Any, walk: Any, off: float, judge: str) -> None:
    outcome = tried(answers, walk, {TRT: 0.5, F64: off, OV: 0.0}).finish.outcome
    assert (outcome.verdict, outcome.reference_judge) == ("fails", judge)


def test_operators_of_ours_that_onnx_has_otherwise_are_left_out_where_it_agrees_with_the_reference(
    answers: Any, walk: Any
) -> None:
    """A Resize of ours took another element than the standard says, and the engine with it."""
    outcome = tried(answers, walk, {TRT: 0.9, F64: 0.9, OWN: 0.0, OV: "not here."}).finish.outcome
    assert (outcome.verdict, outcome.reference_judge, outcome.reference_error) == (
        "fails",
        OWN,
        0.0,
    )


# -- a pass that nobody independent bears out ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("judge", "own", "moved", "verdict"),
    [
        (0.78, 0.78, 0.0, "unresolved"), (0.78, 0.78, 0.07, "unresolved"), (0.78, 0.78, 0.08, "passes"),  # ten times
        (0.009, 0.009, 0.0, "passes"),  # within what the user allows
        (0.78, 0.5, 0.0, "passes"), (0.78, "no such operator.", 0.0, "unresolved"),
    ],
)  # fmt: skip
def test_a_pass_against_code_of_its_own_needs_a_judge(
    answers: Any, walk: Any, judge: float, own: float | str, moved: float, verdict: str
) -> None:
    """Attention of ONNX Runtime 1.27.0: engine and reference share the kernel, and were right by
    one another."""
    done = tried(answers, walk, {F64: judge, OWN: own, OV: "not here."}, ALL, moved=moved)
    assert done.finish.outcome.verdict == verdict
    assert ("shares code with it" in done.finish.outcome.message) == (verdict == "unresolved")


# -- who may vote ------------------------------------------------------------------------------------------------------------


def test_engines_of_a_family_never_vote_on_one_another() -> None:
    assert families("emulate") == families("onnxruntime:optimization=all") == {"onnxruntime"}
    assert families("fake") == families("onnxruntime")
    assert families("tensorrt_rtx") == families("tensorrt")
    assert len(frozenset.union(*map(families, INDEPENDENT))) == len(INDEPENDENT)
    assert families("onnxruntime:provider=openvino") == {"onnxruntime", "openvino"}


@pytest.mark.parametrize(
    ("engine", "reference", "asked"),
    [
        (OV, ORT, {F64}), ("openvino", ORT, {F64}), ("reference", ORT, {OV}), ("emulate", ORT, {F64, OV}),
        ("onnxruntime:provider=openvino", ORT, {F64}), (TRT, OV, {F64, ORT}),
    ],
)  # fmt: skip
def test_who_is_asked(
    answers: Any, walk: Any, engine: str, reference: str, asked: set[str]
) -> None:
    context = msgspec.structs.replace(answers.context(engine=engine), reference=reference)
    places = {F64: -0.9, OV: -0.9, ORT: -0.9, engine: 0.5, reference: 0.0}
    done = walk("compare", context, world(answers, places))
    judges = {p.reference for p in done.probes if isinstance(p, Measure)} - {reference, OWN}
    assert judges == asked


def test_an_engine_is_not_its_own_judge(answers: Any, walk: Any) -> None:
    """OpenVINO under test on a model that float64 does not take: it ended 13 once, 'the engine by
    0', whatever it did wrong."""
    outcome = tried(answers, walk, {OV: 0.9, F64: "no such operator."}, engine=OV).finish.outcome
    assert (outcome.verdict, outcome.reference_judge) == ("fails", "")
    unheard = (
        "Nothing else checked the reference: Narrowdown's evaluator in float64: no such operator."
    )
    assert unheard in outcome.message


def test_why_nobody_else_runs_the_model_is_told_in_a_line(answers: Any, walk: Any) -> None:
    lists = "['classes_strings', 'keys_strings'] " * 20
    why = f"The reference {F64} could not run the model: ONNX's evaluator failed: odd {lists}(operator 'LabelEncoder')."
    said = tried(answers, walk, {OV: 0.9, F64: why}, engine=OV).finish.outcome.message
    told = said.partition(
        "Nothing else checked the reference: Narrowdown's evaluator in float64: "
    )[2]
    assert "ONNX's evaluator failed: odd [" in told
    assert told.endswith("…")
    assert len(told) <= 160


# -- both wrong alike ---------------------------------------------------------------------------------------------------------


def test_both_wrong_alike_goes_on_against_who_is_right(answers: Any, walk: Any) -> None:
    done = tried(answers, walk, {ALL: 0.9, ORT: 0.9, F64: 0.0, OV: 0.0001}, ALL)
    outcome, found = done.finish.outcome, done.finish.findings
    assert (outcome.verdict, outcome.alike, outcome.reference_replaced) == ("fails", True, F64)
    assert (found.replaced.origin, found.replaced.to) == (ORT, F64)
    assert found.signature.errors == {"y": 0.9}
    assert "wrong in the same way" in outcome.message
    whole = done.finish.decisive["whole"][0]
    assert whole.reference == F64, "a replay asks what the session went by"


def test_a_wrong_engine_goes_on_against_who_is_right(answers: Any, walk: Any) -> None:
    done = tried(answers, walk, {TRT: 0.5, ORT: 0.9, F64: 0.0, OV: 0.0})
    assert (done.finish.outcome.verdict, done.finish.outcome.alike) == ("fails", False)
    assert done.finish.findings.signature.errors == {"y": 0.5}


def test_where_nobody_can_stand_in_the_session_ends(answers: Any, walk: Any) -> None:
    """All samples take the judge longer than it is given; one does not."""
    two = (answers.REAL, msgspec.structs.replace(answers.REAL, id="real:1"))
    context = answers.context(
        msgspec.structs.replace(answers.READY, samples=two),
        engine=ALL,
        capabilities={"optimizers": answers.PRESENT},
        info={"optimizers": ["Fusion"]},
    )
    quick = world(answers, {ALL: 0.9, ORT: 0.9, F64: 0.0, OV: 0.0})

    def answer(probe: Any) -> Measurement:
        asked = isinstance(probe, Measure) and (probe.engine, probe.reference, len(probe.samples))
        late = Measurement(status="timeout", message="60 s were not enough.")
        return late if asked == (ALL, F64, 2) else quick(probe)

    outcome = walk("compare", context, answer).finish.outcome
    assert (outcome.verdict, outcome.alike, outcome.reference_replaced) == ("reference", True, "")
    assert "cannot stand in for it: 60 s were not enough." in outcome.message


def test_a_reference_that_is_a_little_off_moves_no_pass(answers: Any, walk: Any) -> None:
    outcome = tried(answers, walk, {TRT: 0.004, ORT: 0.004, F64: 0.0, OV: 0.0}).finish.outcome
    assert (outcome.verdict, outcome.reference_error) == ("passes", 0.004)


# -- noise --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("moved", "verdict"), [(0.2, "noise"), (0.16, "fails"), (0.0, "fails")])
def test_what_the_last_place_moves_as_much_is_no_failure(
    answers: Any, walk: Any, moved: float, verdict: str
) -> None:
    done = tried(answers, walk, {TRT: 0.5}, moved=moved)
    assert done.finish.outcome.verdict == verdict
    if verdict == "noise":
        assert (
            "changing the inputs by one rounding step moves it by 20 %"
            in done.finish.outcome.message
        )
        assert "no node is at fault" in done.finish.outcome.message


@pytest.mark.parametrize(("moved", "verdict"), [(0.0101, "noise"), (0.0099, "fails")])
def test_noise_within_the_tolerance_excuses_nobody(
    answers: Any, walk: Any, moved: float, verdict: str
) -> None:
    """A segmentation of a quantized decoder, 1.19 % off where 0.9 % is allowed: the last place
    moves it by 0.455 %."""
    assert tried(answers, walk, {TRT: 0.02}, moved=moved).finish.outcome.verdict == verdict


@pytest.mark.parametrize(
    ("moved", "off", "verdict"),
    [(0.51, 0.0, "noise"), (0.49, 0.0, "fails"), (0.49, 0.0001, "noise"), (0.16, 0.0001, "fails")],
)
def test_what_optimizers_alone_do_is_noise_only_as_far_as_it_was_seen(
    answers: Any, walk: Any, moved: float, off: float, verdict: str
) -> None:
    assert (
        tried(answers, walk, {ALL: 0.5, OFF: off}, ALL, moved=moved).finish.outcome.verdict
        == verdict
    )


@pytest.mark.parametrize(
    ("error", "far", "off", "verdict"),
    [
        (0.03, 0.0049, 0.1, "fails"),  # all that the others are apart is allowed
        (0.1, 0.01, 0.1, "unresolved"), (0.1, 0.01, 0.0, "fails"), (0.05, 0.01, 0.0, "unresolved"),
    ],
)  # fmt: skip
def test_others_that_differ_excuse_what_is_no_more_than_that(
    answers: Any, walk: Any, error: float, far: float, off: float, verdict: str
) -> None:
    places = {ALL: error, OFF: off, F64: far, OV: -far}
    assert tried(answers, walk, places, ALL).finish.outcome.verdict == verdict


def test_infinity_is_never_noise(answers: Any, walk: Any) -> None:
    done = tried(answers, walk, {TRT: HUGE}, moved=0.9)
    assert done.finish.outcome.verdict == "fails"
    assert not [p for p in done.probes if isinstance(p, Measure) and p.nudge]


@pytest.mark.parametrize(("moved", "against"), [(0.577, ""), (0.17, ""), (0.16, F64), (0.0, F64)])
def test_what_rounding_moves_as_far_convicts_no_reference(
    answers: Any, walk: Any, moved: float, against: str
) -> None:
    """A detector of ISBNs with an overflow in front: two engines agree on the order of boxes that
    tie, and it has another."""
    done = tried(answers, walk, {TRT: HUGE, ORT: 0.5, F64: 0.0, OV: 0.0001}, moved=moved)
    outcome, replaced = done.finish.outcome, done.finish.findings.replaced
    assert outcome.verdict == "fails"
    assert (replaced.to if replaced else "") == against
    assert ("agree against it" in outcome.message) == bool(against)
    assert ("one rounding step moves" in outcome.message) == (not against)
    assert "no two of them agree" not in outcome.message


def test_a_pass_asks_nothing_of_the_last_place(answers: Any, walk: Any) -> None:
    done = tried(answers, walk, {TRT: 0.001}, moved=0.9)
    assert done.finish.outcome.verdict == "passes"
    assert not [p for p in done.probes if isinstance(p, Measure) and p.nudge]


def test_noise_comes_before_who_is_right(answers: Any, walk: Any) -> None:
    """PaddleOCR's detector on a picture without text: an output of at most 5.7e-7, which one unit
    in the last place moves by
    5.6 %, and on which two engines agree against ONNX Runtime."""
    done = tried(answers, walk, {TRT: 0.067, F64: 0.053, OV: 0.053001}, moved=0.056)
    assert done.finish.outcome.verdict == "noise"
    assert not [p for p in done.probes if isinstance(p, Measure) and p.reference != ORT], (
        "nobody is asked"
    )


@pytest.mark.parametrize(("seconds", "verdict"), [(0.03, "noise"), (3.0, "fails")])
def test_outputs_in_steps_are_nudged_more_often_where_that_is_cheap(
    answers: Any, walk: Any, seconds: float, verdict: str
) -> None:
    """hey_jarvis: its scores of 5e-6 stand in steps, which one draw in six moves, by as much as the
    optimizers do."""
    base = world(answers, {TRT: 0.006, F64: 0.0, OV: 0.0}, seconds=seconds)

    def answer(probe: Any) -> Measurement:
        if isinstance(probe, Measure) and probe.nudge:
            many = ((answers.result("real:0", 0.006),),) if probe.runs > 3 else ()
            return answers.measured(("real:0", 0.0), runs=many, run_seconds=seconds)
        return base(probe)

    rule = msgspec.structs.replace(answers.RULE, tolerance=1e-4)
    findings = msgspec.structs.replace(answers.READY, criterion=rule)
    assert (
        walk("compare", answers.context(findings, engine=TRT), answer).finish.outcome.verdict
        == verdict
    )


@pytest.mark.parametrize(
    ("precision", "reference", "verdict"),
    [
        ("int8", ORT, "noise"),
        ("int16", ORT, "noise"),
        ("fp16", ORT, "fails"),  # nothing stands in steps
        ("int8", f"{ORT}:quantization=bypass", "fails"),  # nor in the float model
    ],
)
def test_of_codes_all_samples_that_fail_are_drawn_more_often(
    answers: Any, walk: Any, precision: str, reference: str, verdict: str
) -> None:
    """A quantized ViT: most draws move no code, and the tenth moves one of another sample than the
    worst."""

    def answer(probe: Any) -> Measurement:
        opened = answers.opening(probe)
        if opened is not None:
            return opened
        if not probe.nudge:
            return answers.measured(
                *((s, {TRT: 0.4, reference: 0.0}.get(probe.engine, 0.0)) for s in probe.samples)
            )
        found = probe.nudge == "weights" and probe.attempt == 10
        return answers.measured(
            *((s, 0.45 if found and s == "real:1" else 1e-7) for s in probe.samples)
        )

    samples = (SampleInfo("real:0", "in.npz"), SampleInfo("real:1", "in.npz"))
    rule = msgspec.structs.replace(answers.RULE, precision=precision)
    findings = msgspec.structs.replace(answers.READY, samples=samples, criterion=rule)
    done = walk("compare", answers.context(findings, engine=TRT, reference=reference), answer)
    assert done.finish.outcome.verdict == verdict


def test_noise_on_one_sample_hides_no_failure_on_another(answers: Any, walk: Any) -> None:
    base = world(answers, {TRT: 0.5})

    def answer(probe: Any) -> Measurement:
        if isinstance(probe, Measure) and probe.engine == TRT:
            return answers.measured(*((s, 0.9 if s == "real:0" else 0.5) for s in probe.samples))
        if isinstance(probe, Measure) and probe.nudge:
            return answers.measured(*((s, 0.9 if s == "real:0" else 0.0) for s in probe.samples))
        return base(probe)

    samples = (
        SampleInfo("real:0", "in.npz"),
        SampleInfo("real:1", "in.npz"),
        SampleInfo("real:2", "in.npz"),
    )
    findings = msgspec.structs.replace(answers.READY, samples=samples)
    done = walk("compare", answers.context(findings, engine=TRT), answer)
    assert done.finish.outcome.verdict == "fails"
    assert (done.finish.findings.sample, done.finish.findings.signature.sample) == (
        "real:1",
        "real:1",
    )


def test_every_output_that_fails_must_be_noise(answers: Any, walk: Any) -> None:
    def scores(y: float, z: float) -> tuple[SampleResult, ...]:
        return (SampleResult("real:0", (Score("y", rel_l2=y), Score("z", rel_l2=z))),)

    def answer(probe: Any) -> Measurement:
        opened = answers.opening(probe)
        if opened is not None:
            return opened
        if probe.nudge:
            return Measurement(results=scores(0.5, 0.001))
        return Measurement(results=scores(0.5, 0.5) if probe.engine == TRT else scores(0.0, 0.0))

    assert walk("compare", answers.context(engine=TRT), answer).finish.outcome.verdict == "fails"


@pytest.mark.parametrize(("y", "z", "replaced"), [(0.001, 0.5, True), (0.5, 0.001, False)])
def test_rounding_of_another_output_excuses_no_reference(
    answers: Any, walk: Any, y: float, z: float, replaced: bool
) -> None:
    """The reference is wrong at y, where two agree against it; ``y`` and ``z`` are what the last
    place moves."""
    places = {TRT: HUGE, ORT: 0.5}

    def answer(probe: Any) -> Measurement:
        opened = answers.opening(probe)
        if opened is not None:
            return opened
        engine, reference = (places.get(s, 0.0) for s in (probe.engine, probe.reference))
        off = (
            HUGE if HUGE in (engine, reference) and engine != reference else abs(engine - reference)
        )
        first, second = (y, z) if probe.nudge else (off, 0.0)
        return Measurement(
            results=(
                SampleResult("real:0", (Score("y", rel_l2=first), Score("z", rel_l2=second))),
            ),
            run_seconds=0.01,
        )

    findings = walk("compare", answers.context(engine=TRT), answer).finish.findings
    assert (findings.replaced is not None) == replaced
