"""What a probe tries, in words: the same ones on every display."""

from typing import get_args, get_type_hints

import pytest

from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import (
    HUGE,
    AnyProbe,
    Candidate,
    Check,
    Describe,
    Edit,
    Import,
    Inspect,
    LoadInputs,
    Measure,
    Measurement,
    SampleResult,
    Sanitize,
    Score,
)
from narrowdown.wizard.report.probe_words import (
    VARIED,
    part,
    say_worst,
    say_worst_run,
    tried,
    verdict,
)


def measure(candidate: Candidate | None = None, **more: object) -> Measure:
    fixed = {
        "model": "m",
        "inputs": "i",
        "samples": ("real:0",),
        "engine": "e",
        "reference": "r",
        **more,
    }
    return Measure(candidate=candidate or Candidate(), **fixed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("probe", "words"),
    [
        (Inspect(engine="tensorrt"), "looking at tensorrt"),
        (Import(path="/m", digest=""), "reading the model"),
        (Describe(model="m"), "mapping the graph"),
        (Describe(model="m", sample="real:0"), "values of the reference run"),
        (Sanitize(model="m"), "folding constants and cleaning up"),
        (LoadInputs(model="m"), "loading the inputs"),
        (None, "a probe"),
        (Check(model="m", command="x", candidate=Candidate(nodes="3")), "node 3, by your checker"),
        (
            measure(attempt=2, keep="1-4", marks="0-9"),
            "the whole model, keeping 4 in FP32, watching 10 tensors, time 3",
        ),
        (measure(marks="*", runs=5), "the whole model, watching every tensor, 5 runs"),
        (measure(Candidate(nodes="2,5-7", severed="9")), "nodes 2,5-7, 1 tensor patched"),
        (
            measure(Candidate(nodes="2", edits=(Edit("fill"), Edit("keep-rows")))),
            "node 2, shrunk in 2 places",
        ),
        (
            measure(engine="onnxruntime:disabled_optimizers=A+B"),
            "the whole model, 2 optimizers off",
        ),
        (measure(force={"a": "b"}), "the whole model, tactics forced"),
        (measure(forbid={"a": ("b",)}), "the whole model, tactics kept out"),
        (measure(Candidate(nodes="no range")), "nodes no range"),
    ],
)
def test_what_probes_are_called(probe: AnyProbe | None, words: str) -> None:
    assert tried(probe) == words


@pytest.mark.parametrize(
    ("probe", "tries"),
    [
        (measure(Candidate(nodes="3-5")), "3-5"),
        (
            measure(Candidate(nodes="3-5"), keep="40-42"),
            "3-5",
        ),  # a later round: what was found before has its share
        (measure(Candidate(nodes="3-5"), keep="4,40-42"), "3-5"),
        (measure(Candidate(nodes="3-5"), keep="3-7"), ""),  # whether that cures the part
        (measure(keep="3-7"), ""),
        (measure(Candidate(nodes="3-5"), marks="9"), ""),
    ],
)
def test_the_part_that_the_strip_shows(probe: Measure, tries: str) -> None:
    assert part(probe) == tries


@pytest.mark.parametrize(
    ("kind", "status", "said"),
    [
        ("build", "build-failed", "fails"),
        ("crash", "crash", "fails"),
        ("build", "crash", "unresolved"),
        ("accuracy", "build-failed", "unresolved"),
    ],
)
@pytest.mark.parametrize("nodes", ["3-5", "*"])
def test_what_is_refused_fails_where_the_failure_is_that_it_is_refused(
    kind: str, status: str, said: str, nodes: str
) -> None:
    findings = Findings(criterion=Criterion(), signature=Signature(kind=kind, sample="real:0"))  # type: ignore[arg-type]
    answer = Measurement(status=status)  # type: ignore[arg-type]
    assert verdict(measure(Candidate(nodes=nodes)), answer, findings)[0] == said


def test_what_is_finite_is_not_called_infinite() -> None:
    """Of a reference that is 0 everywhere, any value is infinitely far as a share."""
    assert say_worst([Score("y", rel_l2=HUGE, max_abs=0.04)]) == "not 0, where the reference is"
    assert say_worst([Score("y", rel_l2=HUGE, absmax=1.0)]) == "Inf or NaN"
    assert say_worst([Score("y", new_nonfinite=2)]) == "2 values infinite or NaN"
    lost = "27 values not what the reference has there, infinite or NaN"
    assert say_worst([Score("y", rel_l2=5e-8, lost_nonfinite=27)]) == lost, (
        "OpenVINO's Exp of NaN is infinite"
    )


def test_the_worst_run_is_one_with_values_that_are_not_finite_whatever_the_errors_of_others() -> (
    None
):
    runs = [
        (SampleResult("real:0", (Score("y", **score),)),)
        for score in ({"rel_l2": 0.9}, {"new_nonfinite": 3}, {"rel_l2": 0.2})
    ]
    assert (
        say_worst_run(Measurement(results=runs[0], runs=tuple(runs[1:])))
        == "3 values infinite or NaN"
    )
    assert say_worst_run(Measurement(results=runs[2], runs=(runs[0],))) == say_worst(
        [Score("y", rel_l2=0.9)]
    )
    assert say_worst_run(Measurement()) == ""


def test_each_way_to_ask_samples_again_has_words() -> None:
    ways = {way for way in get_args(get_type_hints(Measure)["vary"]) if way}
    assert set(VARIED) == ways
    assert tried(measure(vary="repeated")) == "the whole model, some rows fed twice"
