"""Golden outputs as the reference: every computation is a place on a line, the golden outputs
another, an error the distance."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from narrowdown.engines.asking import Described, StepRefused
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import GraphIndex, Node, Tensor
from narrowdown.engines.probe import Describe, Inspect, LoadInputs, Measure, Measurement

GOLDEN, ORT, F64, OV, TRT = (
    "golden:files=/g.npz",
    "onnxruntime",
    "reference:precision=fp64",
    "openvino:precision=f32",
    "tensorrt",
)
INDEX = GraphIndex(
    "m",
    (Node(0, "first", "Relu", "", (0,), (1,)), Node(1, "second", "Relu", "", (1,), (2,))),
    (
        Tensor(0, "x", "float32", "input", -1, (1, 2)),
        Tensor(1, "h", "float32", "node", 0, (1, 2)),
        Tensor(2, "y", "float32", "node", 1, (-1, 2)),
    ),
    (0,),
    (2,),
)


def tried(answers: Any, walk: Any, places: Mapping[str, float | str], **recorded: Any) -> Any:
    """compare with golden outputs at 0. ``places``: where each engine's output lies; a text is what
    keeps it from running."""
    places = {GOLDEN: 0.0, **places}

    def answer(probe: Any) -> Any:
        if isinstance(probe, LoadInputs):
            assert not probe.random, "nothing was recorded of made-up inputs"
            samples = [{"id": "real:0", "source": "in.npz"}]
            return Measurement(
                facts={"inputs": "i", "samples": samples, "guesses": [], "warnings": []}
            )
        if isinstance(probe, Describe):
            return Described(INDEX, Measurement())
        if isinstance(probe, Inspect):
            assert probe.engine == GOLDEN, "which values inside of the model were recorded"
            return Measurement(facts=info)
        opened = answers.opening(probe)
        if opened is not None:
            return opened
        assert isinstance(probe, Measure)
        assert probe.engine != GOLDEN, "nothing is computed from golden outputs"
        if (probe.engine, probe.reference) == late:
            return Measurement(status="timeout", message="it took longer than 60 s.")
        engine, reference = (places.get(s, 0.0) for s in (probe.engine, probe.reference))
        if isinstance(engine, str) or isinstance(reference, str):
            return Measurement(status="unsupported", message=f"{engine} {reference}")
        got = answers.measured(*((s, abs(engine - reference)) for s in probe.samples))
        if probe.reference != GOLDEN or not unlike:
            return got
        results = [
            structs.replace(r, outputs=tuple(structs.replace(o, **unlike) for o in r.outputs))
            for r in got.results
        ]
        return structs.replace(got, results=tuple(results))

    unlike = recorded.pop("unlike", {})
    late = recorded.pop("late", ())
    precision = recorded.pop("precision", "fp16")
    shapes = recorded.pop("shapes", {"y": [1, 2]})
    info = {"recorded": {"samples": recorded.pop("samples", 1), "shapes": shapes}}
    ctx = answers.context(
        Findings(), engine=TRT, reference=GOLDEN, reference_info=info, problem={"model": "m.onnx"},
        info={"precision": precision},
    )  # fmt: skip
    return walk("compare", ctx, answer)


@pytest.mark.parametrize(
    ("places", "verdict", "stands_in"),
    [
        ({TRT: 0.001}, "passes", ""),
        ({TRT: 0.5, ORT: 0.001}, "fails", ORT),
        ({TRT: 0.5, ORT: "no", OV: 0.001}, "fails", OV),
        (
            {TRT: 0.5, ORT: 0.9, OV: 0.001},
            "fails",
            OV,
        ),  # one voice that is wrong convicts no export
        ({TRT: 0.5, ORT: 0.5, OV: 0.5}, "export", ""),
        ({TRT: 0.5, ORT: 0.5, OV: "no", F64: "no"}, "export", ""),
        ({TRT: 0.9, ORT: 0.5, OV: 0.5}, "fails", ORT),  # both are at fault
        ({TRT: 0.5, ORT: 0.5, OV: -0.5}, "unresolved", ""),  # two voices that contradict each other
        ({TRT: 0.5, ORT: "no", OV: "no", F64: "no"}, "unresolved", ""),
        ({TRT: 0.0105, ORT: 0.008}, "unresolved", ""),  # between the two
    ],
)
def test_three_voices(
    answers: Any, walk: Any, places: Mapping[str, float | str], verdict: str, stands_in: str
) -> None:
    done = tried(answers, walk, places)
    assert (done.finish.outcome.verdict, done.finish.outcome.reference_replaced) == (
        verdict,
        stands_in,
    )
    assert done.finish.outcome.message


def test_how_far_golden_outputs_are_from_float64_is_no_rounding_of_an_engine(
    answers: Any, walk: Any
) -> None:
    places = {TRT: 0.5, ORT: "no", OV: "no", F64: 5e-5}
    done = tried(answers, walk, places, precision="fp32")
    assert (done.finish.outcome.verdict, done.finish.outcome.reference_judge) == ("fails", F64)
    assert done.finish.findings.emulated is None


def test_voices_whose_comparison_took_too_long_are_not_said_to_differ(
    answers: Any, walk: Any
) -> None:
    """Both differed from the golden outputs by 27.9 %, and "from each other": that look had been
    left out after its time."""
    done = tried(answers, walk, {TRT: 0.5, ORT: 0.5, OV: 0.5}, late=(OV, ORT))
    assert done.finish.outcome.verdict == "export"
    assert "computes the same" not in done.finish.outcome.message


def test_who_could_not_be_heard_is_told_by_name(answers: Any, walk: Any) -> None:
    done = tried(answers, walk, {TRT: 0.5, ORT: "no", OV: "late", F64: "late"})
    assert "ONNX Runtime: no" in done.finish.outcome.message
    assert "OpenVINO: late" in done.finish.outcome.message


@pytest.mark.parametrize("ort", [0.5, 0.001])
def test_an_engine_that_was_not_measured_is_not_said_to_be_within_the_tolerance(
    answers: Any, walk: Any, ort: float
) -> None:
    done = tried(answers, walk, {TRT: 0.5, ORT: ort, OV: 0.5}, late=(TRT, ORT))
    assert done.finish.outcome.verdict == "unresolved"
    assert "could not be measured. it took longer than 60 s." in done.finish.outcome.message


@pytest.mark.parametrize(
    ("recorded", "says"),
    [
        ({"samples": 2}, "golden outputs of 2 samples and inputs of 1"),
        ({"shapes": {"logits": [1, 2]}}, "names=RECORDED=OUTPUT"),
        ({"shapes": {"logits": [1, 3]}}, "names=RECORDED=OUTPUT"),
        ({"shapes": {"a": [1, 2], "b": [1, 2]}}, "names=RECORDED=OUTPUT"),
        ({"shapes": {"h": [1, 2]}}, "they hold no other tensor"),
    ],
)
def test_what_does_not_fit_is_refused_and_never_guessed(
    answers: Any, walk: Any, recorded: Any, says: str
) -> None:
    with pytest.raises(StepRefused) as refused:
        tried(answers, walk, {TRT: 0.5}, **recorded)
    assert refused.value.code == 2
    assert says in str(refused.value)


def test_an_output_that_is_known_by_its_place_fits(answers: Any, walk: Any) -> None:
    assert (
        tried(answers, walk, {TRT: 0.0}, shapes={"#0": [1, 2]}).finish.outcome.verdict == "passes"
    )


def test_golden_outputs_of_another_shape_are_refused_where_nobody_gives_theirs(
    answers: Any, walk: Any
) -> None:
    """One recorded row of two that are fed: it was called an export at fault, "infinite or NaN
    where the reference is finite"."""
    with pytest.raises(StepRefused) as refused:
        tried(answers, walk, {}, unlike={"problem": "shape"})
    assert refused.value.code == 2
    assert "'y' is [1, 2] in them" in str(refused.value)


def test_where_golden_outputs_alone_are_nan_is_said_as_it_is(answers: Any, walk: Any) -> None:
    done = tried(answers, walk, {}, unlike={"lost_nonfinite": 1})
    assert done.finish.outcome.verdict == "export"
    assert (
        "ONNX Runtime differs from them (NaN or infinity in other places)"
        in done.finish.outcome.message
    )


def test_whole_numbers_that_nobody_gives_are_counted_and_the_doubt_is_said_once(
    answers: Any, walk: Any
) -> None:
    exact = {"exact": True, "dtype": "int64", "mismatched": 0.25, "max_abs": 1.0}
    message = tried(
        answers, walk, {TRT: 0.5, ORT: 0.5, OV: -0.5}, unlike=exact
    ).finish.outcome.message
    assert "25 % of its values differ by at most 1" in message
    assert message.count("cannot be told") == 1
    assert "in float64 in FP32" not in message
