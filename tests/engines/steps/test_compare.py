"""compare over invented answers: what is locked, when the reference is suspect, how long it looks
again."""

from typing import Any

import msgspec
import numpy as np
import pytest

from narrowdown.engines.asking import Described, StepRefused
from narrowdown.engines.compare.judge import Criterion
from narrowdown.engines.compare.metrics import score
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph.quantized import LOOK_WRONG
from narrowdown.engines.probe import (
    HUGE,
    Check,
    Describe,
    Import,
    LoadInputs,
    Measure,
    Measurement,
    SampleResult,
    Score,
)

from .simulated import graph


def oracle(
    answers: Any,
    whole: Any,
    *,
    alone: float = 0.6,
    emulated: float = 0.0,
    judged: float = 0.0,
    runs: Any = None,
) -> Any:
    """The engine gives ``whole`` on all feeds and ``alone`` on a row; the reference is ``judged``
    off its judge."""

    def answer(probe: Any) -> Measurement:
        opened = answers.opening(probe)
        if opened is not None:
            return opened
        assert isinstance(probe, Measure)
        if probe.reference != "onnxruntime":
            return answers.measured(
                (probe.samples[0], judged if probe.engine == "onnxruntime" else 0.5)
            )
        if probe.engine.startswith("emulate"):
            return answers.measured((probe.samples[0], emulated))
        if probe.engine == "onnxruntime":
            return answers.measured((probe.samples[0], 0.0))
        if probe.runs > 1:
            return runs(probe)
        return answers.measured((probe.samples[0], alone)) if "/" in probe.samples[0] else whole

    return answer


def test_it_takes_the_model_in_and_locks_the_worst_row(answers: Any, walk: Any) -> None:
    whole = answers.measured(("real:0/0", 0.001), ("real:0/1", 0.5), ("real:0/2", 0.7))
    problem = {
        "model": "/m.onnx",
        "inputs": ("/in.npz",),
        "digests": {"/m.onnx": "d", "/in.npz": "e"},
    }
    done = walk("compare", answers.context(Findings(), problem=problem), oracle(answers, whole))
    assert isinstance(done.probes[0], Import)
    assert isinstance(done.probes[1], LoadInputs)
    assert done.probes[1].source_digests == ("e",)
    found, outcome = done.finish.findings, done.finish.outcome
    assert (found.sample, found.signature.sample, found.signature.errors) == (
        "real:0/2",
        "real:0/2",
        {"y": 0.6},
    )
    assert (outcome.verdict, outcome.samples, outcome.samples_failing) == ("fails", 3, 2)
    assert outcome.tolerance == 0.01
    assert "made up: 'x': an image." in found.notes
    assert done.finish.decisive["whole"]


def test_a_row_that_passes_alone_is_searched_in_its_batch(answers: Any, walk: Any) -> None:
    whole = answers.measured(("real:0/0", 0.001), ("real:0/1", 0.5))
    done = walk("compare", answers.context(), oracle(answers, whole, alone=0.001))
    assert (done.finish.findings.sample, done.finish.findings.signature.sample) == (
        "real:0",
        "real:0/1",
    )


def test_a_pass_says_on_how_many_samples_it_stands_and_what_that_leaves_open(
    answers: Any, walk: Any
) -> None:
    """A reader of captchas is right on its 8 samples in FP16, and on 182 of 200 others. Made-up
    ones are none of the user's."""
    whole = answers.measured(*((f"real:{i}", 0.006) for i in range(8)))
    outcome = walk(
        "compare", answers.context(), oracle(answers, whole, runs=lambda _: whole)
    ).finish.outcome
    assert outcome.verdict == "passes"
    assert (
        "Tried on 8 samples of yours: up to 32 % of others like these may be wrong (95 % confidence)."
        in outcome.message
    )
    made_up = answers.measured(("random:0", 0.001))
    outcome = walk(
        "compare", answers.context(), oracle(answers, made_up, runs=lambda _: made_up)
    ).finish.outcome
    assert "may be wrong" not in outcome.message
    fails = answers.measured(("real:0", 0.5), ("real:1", 0.001))
    outcome = walk("compare", answers.context(), oracle(answers, fails)).finish.outcome
    assert outcome.verdict == "fails"
    assert "may be wrong" not in outcome.message


def test_nonfinite_rows_come_first(answers: Any, walk: Any) -> None:
    broken = SampleResult("real:0/1", (Score("y", new_nonfinite=2, rel_l2=0.1),))
    whole = Measurement(
        results=(answers.result("real:0/0", 5.0), broken, answers.result("real:0/2", 0.0))
    )
    done = walk("compare", answers.context(), oracle(answers, whole))
    signature = done.finish.findings.signature
    assert (signature.sample, signature.nonfinite, signature.errors) == (
        "real:0/1",
        True,
        {"y": HUGE},
    )
    assert done.finish.outcome.nonfinite


def test_what_ought_to_be_nan_is_not_told_as_a_value_that_ought_to_be_finite(
    answers: Any, walk: Any
) -> None:
    """OpenVINO gives infinity for Exp of NaN. "Infinite or NaN where the reference is finite" was
    said, and there it is not."""
    for more, told in (
        (0, "y is something else where the reference is infinite or NaN on"),
        (1, "where the reference is finite"),
    ):
        broken = SampleResult(
            "real:0/1", (Score("y", lost_nonfinite=27, new_nonfinite=more, rel_l2=5e-8),)
        )
        done = walk("compare", answers.context(), oracle(answers, Measurement(results=(broken,))))
        assert done.finish.outcome.verdict == "fails"
        assert told in done.finish.outcome.message


def test_the_signature_names_only_the_outputs_that_fail(answers: Any, walk: Any) -> None:
    both = (Score("good", rel_l2=0.001), Score("bad", rel_l2=0.4))
    whole = Measurement(results=(SampleResult("real:0", both), SampleResult("real:1", both)))
    signature = walk("compare", answers.context(), oracle(answers, whole)).finish.findings.signature
    assert (signature.outputs, signature.error) == (("bad",), 0.4)


@pytest.mark.parametrize(
    ("emulated", "explanation"), [(0.5, "precision"), (0.06, "precision"), (0.001, "engine")]
)
def test_what_a_faultless_engine_would_give_explains(
    answers: Any, walk: Any, emulated: float, explanation: str
) -> None:
    whole = answers.measured(("real:0", 0.5))
    outcome = walk(
        "compare", answers.context(), oracle(answers, whole, emulated=emulated)
    ).finish.outcome
    assert (outcome.emulated_error, outcome.explanation) == (emulated, explanation)


@pytest.mark.parametrize(
    ("literal", "own", "explanation"),
    [
        (0.0277, 0.25, "engine"),  # a ViT on a processor without VNNI
        (0.15, 0.02, "precision"),
        (0.15, 0.25, "both"),
        (0.09, 0.09, "both"),
    ],
)
def test_of_codes_who_is_over_the_tolerance_by_himself_is_at_fault(
    answers: Any, walk: Any, literal: float, own: float, explanation: str
) -> None:
    """Not who is further off by some factor."""
    floats = "onnxruntime:quantization=bypass"
    judged = oracle(answers, answers.measured(("real:0", 0.257), ("random:0", 0.2)), alone=0.257)

    def answer(probe: Any) -> Any:
        if (
            isinstance(probe, Measure)
            and probe.engine == "onnxruntime"
            and probe.reference == floats
        ):
            return answers.measured((probe.samples[0], literal))
        if (
            isinstance(probe, Measure)
            and probe.engine == "tensorrt"
            and probe.reference == "onnxruntime"
        ):
            return answers.measured((probe.samples[0], own))
        return judged(
            msgspec.structs.replace(probe, reference="onnxruntime")
            if isinstance(probe, Measure)
            else probe
        )

    rule = Criterion(tolerance=0.1, precision="int8")
    context = answers.context(
        msgspec.structs.replace(answers.READY, criterion=rule, codes="int8"), reference=floats
    )
    outcome = walk("compare", context, answer).finish.outcome
    assert (outcome.explanation, outcome.emulated_error, outcome.engine_error) == (
        explanation,
        literal,
        own,
    )


def test_an_engine_that_keeps_higher_precision(answers: Any, walk: Any) -> None:
    whole = answers.measured(("real:0", 0.001))
    again = msgspec.structs.replace(whole, facts={"runs": 20}, run_seconds=60.0)
    base = oracle(answers, whole, emulated=0.9, runs=lambda _: again)
    outcome = walk("compare", answers.context(), base).finish.outcome
    assert (outcome.verdict, outcome.explanation) == ("passes", "keeps-higher")


def test_a_reference_that_cannot_be_judged(answers: Any, walk: Any) -> None:
    base = oracle(answers, answers.measured(("real:0", 0.9)))

    def answer(probe: Any) -> Measurement:
        if getattr(probe, "reference", "onnxruntime") != "onnxruntime":
            return Measurement(status="unsupported", message=f"{probe.reference} is too small.")
        return base(probe)

    outcome = walk("compare", answers.context(), answer).finish.outcome
    assert (outcome.verdict, outcome.reference_judge, outcome.reference_error) == (
        "fails",
        "",
        None,
    )
    why = (
        "Narrowdown's evaluator in float64: reference:precision=fp64 is too small. "
        "OpenVINO: openvino:precision=f32 is too small."
    )
    assert f"Nothing else checked the reference: {why}" in outcome.message


def test_a_reference_that_moves(answers: Any, walk: Any) -> None:
    base = oracle(answers, answers.measured(("real:0", 0.9)))

    def answer(probe: Any) -> Measurement:
        if getattr(probe, "engine", "") == "onnxruntime":
            return answers.measured((probe.samples[0], 0.3))
        return base(probe)

    outcome = walk("compare", answers.context(), answer).finish.outcome
    assert outcome.verdict == "reference"
    assert outcome.message.startswith("The reference itself is not steady: its second run is 30 %")


def test_it_looks_again_alone_and_says_what_it_may_have_missed(answers: Any, walk: Any) -> None:
    calm = oracle(
        answers,
        answers.measured(("real:0", 0.001)),
        runs=lambda probe: answers.measured(("real:0", 0.001), run_seconds=0.01 * probe.runs),
    )
    done = walk("compare", answers.context(), calm)
    looks = [p for p in done.probes if isinstance(p, Measure) and p.runs > 1]
    assert [p.runs for p in looks] == [20, 80, 200]
    assert all(p.exclusive and p.samples == ("real:0",) and p.attempt == 0 for p in looks)
    outcome = done.finish.outcome
    assert (outcome.verdict, outcome.looks, outcome.failures) == ("passes", 300, 0)
    assert outcome.message.startswith(
        "300 runs, no failure. The worst is y on sample 0, wrong by 0.1 %: 10 times below"
    )
    assert "would not have shown" not in outcome.message, "a detail"
    assert outcome.missed == "A fault in fewer than 1 of 100 runs would not have shown."
    assert done.finish.findings.signature is None


def test_what_fails_in_a_later_run_is_told_by_that_run(answers: Any, walk: Any) -> None:
    calm, bad = answers.measured(("real:0", 0.001)), answers.measured(("real:0", 0.9))

    def again(probe: Any) -> Measurement:
        return msgspec.structs.replace(
            calm, runs=(bad.results,), varies=True, facts={"runs": probe.runs}
        )

    outcome = walk("compare", answers.context(), oracle(answers, calm, runs=again)).finish.outcome
    assert (outcome.verdict, outcome.looks, outcome.failures) == ("fails", 20, 1)
    assert outcome.error == 0.9
    assert "wrong by 90 % in 1 of 20 runs" in outcome.message


@pytest.mark.parametrize(("seconds", "first"), [(4.0, 7), (60.0, 2)])
def test_a_slow_model_is_not_run_twenty_times_unasked(
    answers: Any, walk: Any, seconds: float, first: int
) -> None:
    def answer(runs: int) -> Any:
        return answers.measured(("real:0", 0.001), run_seconds=seconds * runs)

    done = walk(
        "compare",
        answers.context(),
        oracle(answers, answer(1), runs=lambda probe: answer(probe.runs)),
    )
    looks = [p.runs for p in done.probes if isinstance(p, Measure) and p.runs > 1]
    assert (looks, done.finish.outcome.looks) == ([first], first)


def test_what_is_hardly_below_what_is_allowed_is_not_said_as_times(answers: Any, walk: Any) -> None:
    near = answers.measured(("real:0", 0.00997))
    said = walk(
        "compare", answers.context(), oracle(answers, near, runs=lambda _: near)
    ).finish.outcome.message
    assert "wrong by 0.997 %: just below what is allowed (1 %" in said


@pytest.mark.parametrize("error", [0.001, 0.9])
def test_what_the_engine_really_did_is_part_of_the_sentence(
    answers: Any, walk: Any, error: float
) -> None:
    note = "It computed in FP32: this CPU has no BF16 instructions."
    whole = answers.measured(("real:0", error))
    calm = oracle(answers, whole, runs=lambda _: whole)
    done = walk("compare", answers.context(info={"notes": (note,)}), calm)
    assert done.finish.outcome.message.endswith(f" {note}")


def test_slow_runs_are_bounded_by_time(answers: Any, walk: Any) -> None:
    slow = oracle(
        answers,
        answers.measured(("real:0", 0.0)),
        runs=lambda probe: answers.measured(("real:0", 0.0), run_seconds=float(probe.runs)),
    )
    done = walk("compare", answers.context(), slow)
    assert [p.runs for p in done.probes if isinstance(p, Measure) and p.runs > 1] == [20, 10]
    assert done.finish.outcome.looks == 30


def test_an_intermittent_failure_is_locked_on_the_whole_feed_with_its_rate(
    answers: Any, walk: Any
) -> None:
    def runs(probe: Any) -> Measurement:
        bad = (answers.result("real:0/0", 0.0), answers.result("real:0/1", 0.4))
        return answers.measured(
            ("real:0/0", 0.0),
            ("real:0/1", 0.0),
            runs=(bad,),
            varies=True,
            facts={"runs": probe.runs},
        )

    whole = answers.measured(("real:0/0", 0.0), ("real:0/1", 0.0))
    done = walk("compare", answers.context(), oracle(answers, whole, runs=runs))
    found, outcome = done.finish.findings, done.finish.outcome
    assert (found.sample, found.signature.sample) == ("real:0", "real:0/1")
    assert (found.signature.failures, found.signature.looks) == (1, 20)
    assert found.looks >= 100  # twice what shows a 5 % fault with 95 %
    assert (outcome.verdict, outcome.failures, outcome.looks) == ("fails", 1, 20)
    assert outcome.interval_low < 0.05 < outcome.interval_high


@pytest.mark.parametrize(
    ("status", "verdict", "kind"),
    [
        ("crash", "fails", "crash"),
        ("build-failed", "refused", "build"),
        ("unsupported", "refused", "build"),
    ],
)
def test_a_model_that_never_runs_fails_in_its_own_way(
    answers: Any, walk: Any, status: Any, verdict: str, kind: str
) -> None:
    def answer(probe: Any) -> Any:
        alone = isinstance(probe, Measure) and probe.engine == probe.reference
        return answers.opening(probe) or (
            Measurement() if alone else Measurement(status=status, message="why")
        )

    done = walk("compare", answers.context(), answer)
    assert (done.finish.outcome.verdict, done.finish.findings.signature.kind) == (verdict, kind)
    assert done.finish.outcome.message == "why"


@pytest.mark.parametrize(
    ("words", "theirs"),
    [
        ("no operator Frob", "Nor does the reference run it, in the same words."),
        ("no Frob", "The reference: no operator Frob"),
    ],
)
def test_what_the_reference_does_not_run_either_is_refused(
    answers: Any, walk: Any, words: str, theirs: str
) -> None:
    def answer(probe: Any) -> Measurement:
        if isinstance(probe, Measure):
            alone = Measurement(status="unsupported", message=words)
            return (
                alone
                if probe.runs == 0
                else Measurement(
                    status="reference-failed", message="The reference: no operator Frob"
                )
            )
        return answers.opening(probe)

    outcome = walk("compare", answers.context(), answer).finish.outcome
    assert (outcome.verdict, outcome.failure, outcome.no_reference) == ("refused", "build", True)
    assert outcome.message.startswith(f"{words} {theirs}")


@pytest.mark.parametrize(
    ("status", "no_reference"),
    [
        ("reference-failed", True),
        ("invalid-model", True),
        ("error", True),
        ("timeout", False),
        ("ok", False),
    ],
)
def test_of_what_the_engine_refuses_the_reference_is_asked_too(
    answers: Any, walk: Any, status: Any, no_reference: bool
) -> None:
    """An engine that is asked first, as one that only builds: the search for the part that it
    refuses began, could feed none, and ended with other settings to try."""

    def answer(probe: Any) -> Any:
        theirs = Measurement(status=status, message="The reference: int32 is no code.")
        alone = isinstance(probe, Measure) and probe.engine == probe.reference
        return answers.opening(probe) or (
            theirs if alone else Measurement(status="invalid-model", message="No bias in int32.")
        )

    outcome = walk("compare", answers.context(), answer).finish.outcome
    assert (outcome.verdict, outcome.failure, outcome.no_reference) == (
        "refused",
        "build",
        no_reference,
    )
    assert outcome.message.startswith("No bias in int32.")
    assert ("The reference: int32 is no code." in outcome.message) is no_reference


def test_golden_outputs_are_not_asked_whether_they_run_what_is_refused(
    answers: Any, walk: Any
) -> None:
    def answer(probe: Any) -> Any:
        return answers.opening(probe) or Measurement(
            status="invalid-model", message="No bias in int32."
        )

    done = walk("compare", answers.context(reference="golden:files=/g.npz"), answer)
    assert (done.finish.outcome.verdict, done.finish.outcome.no_reference) == ("refused", False)
    assert not [p for p in done.probes if isinstance(p, Measure) and p.engine == p.reference]


def test_what_only_the_reference_does_not_run_is_not_refused(answers: Any, walk: Any) -> None:
    def answer(probe: Any) -> Measurement:
        failed = Measurement(status="reference-failed", message="no operator Frob.")
        return answers.opening(probe) or (Measurement() if probe.runs == 0 else failed)

    with pytest.raises(StepRefused, match="no operator Frob") as caught:
        walk("compare", answers.context(), answer)
    assert caught.value.code == 4


@pytest.mark.parametrize("status", ["reference-failed", "unsupported"])
def test_what_looks_wrong_in_the_file_is_said_with_what_is_refused(
    answers: Any, walk: Any, status: Any
) -> None:
    wrong = f"{LOOK_WRONG}'q' has a scale of 0."

    def answer(probe: Any) -> Any:
        alone = isinstance(probe, Measure) and (probe.runs == 0 or probe.engine == probe.reference)
        return answers.opening(probe) or (
            Measurement() if alone else Measurement(status=status, message="No.")
        )

    ctx = answers.context()
    ctx = msgspec.structs.replace(
        ctx, findings=msgspec.structs.replace(ctx.findings, notes=(wrong,))
    )
    try:
        said = walk("compare", ctx, answer).finish.outcome.message
    except StepRefused as refused:
        said = str(refused)
    assert said.startswith(f"No. {wrong}"), said


def test_a_timeout_settles_nothing(answers: Any, walk: Any) -> None:
    done = walk(
        "compare",
        answers.context(),
        lambda probe: Measurement(status="timeout", message="too slow"),
    )
    assert (done.finish.outcome.verdict, done.finish.findings.signature) == ("unresolved", None)


@pytest.mark.parametrize("step", ["reduce", "precision", "tactics", "layerwise"])
def test_a_step_alone_does_not_take_a_timeout_for_a_pass(
    answers: Any, walk: Any, step: str
) -> None:
    late = Measurement(status="timeout", message="too slow")
    with pytest.raises(StepRefused, match="cannot be told: too slow") as caught:
        walk(
            step,
            answers.context(capabilities={"mark": {"present": True}}),
            lambda probe: answers.opening(probe) or late,
        )
    assert caught.value.code == 6


def test_a_crash_that_does_not_come_again_is_no_pass(answers: Any, walk: Any) -> None:
    died = Measurement(status="crash", message="why", signal=11)

    def answer(probe: Any) -> Any:
        if isinstance(probe, Describe):
            return Described(graph([(), (0,)]), Measurement())
        plain = isinstance(probe, Measure) and not probe.effect  # the search asks for effects
        return answers.opening(probe) or (died if plain else answers.measured(("real:0", 0.0)))

    outcome = walk("reduce", answers.context(), answer).finish.outcome
    assert outcome.verdict == "unresolved"
    assert outcome.message.startswith(
        "Nothing to reduce: the engine took its process down on the whole model once"
    )


def test_bad_inputs_end_the_step_with_their_sentence(answers: Any, walk: Any) -> None:
    def answer(probe: Any) -> Measurement:
        refused = Measurement(status="refused", message="'in.npz' lacks the input 'x'.")
        return refused if isinstance(probe, LoadInputs) else answers.opening(probe)

    with pytest.raises(StepRefused, match="lacks the input 'x'") as caught:
        walk("compare", answers.context(Findings(), problem={"model": "/m.onnx"}), answer)
    assert caught.value.code == 2


@pytest.mark.parametrize(("code", "verdict", "kind"), [(1, "fails", "check"), (0, "passes", None)])
def test_an_external_check_judges_the_whole_model(
    answers: Any, walk: Any, code: int, verdict: str, kind: str | None
) -> None:
    def answer(probe: Any) -> Measurement:
        ends = 0 if getattr(probe, "control", "") else code
        return answers.opening(probe) or Measurement(
            facts={"returncode": ends, "stdout": "", "stderr": ""}
        )

    context = answers.context(
        Findings(), check="python check.py {model}", problem={"model": "/m.onnx"}
    )
    done = walk("compare", context, answer)
    assert isinstance(done.probes[-1], Check)
    assert not any(isinstance(p, LoadInputs) for p in done.probes)  # the check needs none
    assert done.finish.outcome.verdict == verdict
    signature = done.finish.findings.signature
    assert (signature.kind if signature else None) == kind


@pytest.mark.parametrize("passes", ["", "identity", "answers"])
def test_a_check_that_fails_must_pass_one_of_the_controls(
    answers: Any, walk: Any, passes: str
) -> None:
    """It is handed inputs, so there are two; the first that passes is enough."""

    def answer(probe: Any) -> Measurement:
        right = bool(passes) and getattr(probe, "control", "") == passes
        facts = {"returncode": int(not right), "stdout": "a\n\nb\nc\n", "stderr": "no GPU"}
        return answers.opening(probe) or Measurement(facts=facts)

    done = walk("compare", answers.context(check="python check.py {model} {inputs}"), answer)
    asked = [p.control for p in done.probes if isinstance(p, Check)]
    assert asked == (["", "identity"] if passes == "identity" else ["", "identity", "answers"])
    outcome = done.finish.outcome
    assert outcome.verdict == ("fails" if passes else "unresolved")
    assert ("It last printed: b | c | no GPU" in outcome.message) is not bool(passes)


def test_a_step_alone_is_refused_by_a_check_that_passes_nothing(answers: Any, walk: Any) -> None:
    never = Measurement(facts={"returncode": 1, "stdout": "", "stderr": ""})
    with pytest.raises(StepRefused, match="It printed nothing") as caught:
        walk(
            "reduce", answers.context(check="false"), lambda probe: answers.opening(probe) or never
        )
    assert caught.value.code == 6


@pytest.mark.parametrize("codes", ["", "int8", "fp8"])
def test_only_of_a_quantized_model_it_is_said_that_the_reference_computes_its_codes(
    answers: Any, walk: Any, codes: str
) -> None:
    """An engine that calibrates computes a float model in INT8, and the reference computes it in
    float."""
    whole = answers.measured(("real:0", 0.04))
    again = msgspec.structs.replace(whole, facts={"runs": 20}, run_seconds=60.0)
    base = oracle(answers, whole, runs=lambda _: again)

    def answer(probe: Any) -> Any:
        told = base(probe)
        return (
            msgspec.structs.replace(told, facts={**told.facts, "codes": codes})
            if isinstance(probe, LoadInputs)
            else told
        )

    def answer_in_float(probe: Any) -> Any:
        if not isinstance(probe, Measure):
            return answer(probe)
        engine = probe.engine.removesuffix(":quantization=bypass")
        return answer(msgspec.structs.replace(probe, engine=engine, reference="onnxruntime"))

    done = walk("compare", answers.context(Findings(), info={"precision": "int8"}), answer).finish
    assert done.outcome.verdict == "passes"
    assert "calibrate" not in done.outcome.message, "the codes are the reference's"
    in_float = answers.context(
        Findings(), info={"precision": "int8"}, reference="onnxruntime:quantization=bypass"
    )
    told = walk("compare", in_float, answer_in_float).finish.outcome
    assert told.verdict == "passes"
    assert ("What calibrated it counts for nothing" in told.message) == bool(codes)
    assert done.findings.criterion.precision == (codes or "int8")
    assert ("The reference computes the same quantized model" in done.outcome.message) == bool(
        codes
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (
            [3, 4, 5, 9],
            [3, 5, 5, 6],
            "50 % of its values differ by at most 3, and whole numbers must be equal (--metric max_abs --tolerance ",
        ),
        (
            [3, 4, 5, 60],
            [3, 5, 5, 6],
            "50 % of its values differ by at most 54, and whole numbers must be equal (--metric max_abs",
        ),
        ([True, False], [True, True], "50 % of its values differ, and truth values must be equal."),
        (
            ["a", "b", "c", "d"],
            ["a", "b", "c", "e"],
            "25 % of its values differ, and texts must be equal.",
        ),
    ],
)
def test_what_must_be_equal_is_not_told_as_a_ratio(
    answers: Any, walk: Any, ours: Any, theirs: Any, said: str
) -> None:
    """By the ratio that they are judged by, one code beside another is wrong by 100 %."""
    apart = score("y", np.array(ours), np.array(theirs))
    whole = Measurement(
        results=(SampleResult("real:0", (apart,)), SampleResult("real:1", (apart,)))
    )
    base = oracle(answers, whole)

    def answer(probe: Any) -> Any:
        told = base(probe)
        if (
            not isinstance(probe, Measure)
            or not told.results
            or told.results[0].outputs[0].rel_l2 != 0.6
        ):
            return told
        return Measurement(results=(SampleResult(probe.samples[0], (apart,)),))

    outcome = walk("compare", answers.context(), answer).finish.outcome
    assert outcome.verdict == "fails"
    assert f"y is not equal to the reference's on sample 0: {said}" in outcome.message
    assert "100 %" not in outcome.message


def test_notes_say_that_they_are_about_made_up_values(answers: Any, walk: Any) -> None:
    """\"'input': integers from 1 to 25\" was read as being about the user's own."""
    shape = "'x' was given the shape [1]: batch 1 (--input-shapes changes it)."
    several = "'a', 'b' and 2 more: normally distributed values."
    opened = answers.opening(LoadInputs(model="m"))
    guessed = msgspec.structs.replace(opened, facts={**opened.facts, "guesses": [several, shape]})
    ask = oracle(answers, answers.measured(("real:0", 0.5)))
    done = walk(
        "compare",
        answers.context(Findings()),
        lambda probe: guessed if isinstance(probe, LoadInputs) else ask(probe),
    )
    assert done.finish.findings.notes[:2] == (f"made up: {several}", f"made up: {shape}")
