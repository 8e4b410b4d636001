"""Each mode of asking over a graph of three nodes, and none of a search."""

from collections.abc import Callable

import msgspec
import pytest

from narrowdown.engines.asking import PASSES, Answer, Fed, Note, Question, StepContext, Sub, unknown
from narrowdown.engines.asking.inquiry import make_inquiry
from narrowdown.engines.asking.layers.intermittent import build_afresh
from narrowdown.engines.asking.oracle import (
    Oracle,
    make_oracle,
    switch_engine,
    watch_kernels,
)
from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import (
    HUGE,
    Candidate,
    Check,
    Edit,
    Measure,
    Measurement,
    SampleResult,
    Score,
)

from ..steps.simulated import graph

INDEX = graph([(), (0,), (1,)])
FAILED = Signature(kind="accuracy", sample="real:0", outputs=("t2",), errors={"t2": 0.5})
MIDDLE = Question(frozenset({1}))


def oracle(check: str = "", signature: Signature = FAILED, **known: object) -> Oracle:
    findings = Findings(
        model="m",
        inputs="i",
        sample="real:0",
        criterion=Criterion(tolerance=1e-2, fail_codes=(3,)),
        signature=signature,
    )
    findings = msgspec.structs.replace(findings, **known)
    ctx = StepContext(engine="e", reference="r", findings=findings, check=check)
    return make_oracle(make_inquiry(ctx, findings, INDEX, signature))


def scored(own: float, effect: float = 0.0) -> Measurement:
    result = SampleResult(
        "real:0", outputs=(Score("t1", rel_l2=own),), effect=(Score("t2", rel_l2=effect),)
    )
    return Measurement(results=(result,))


def put(
    asking: Sub[Answer], reply: Callable[[Measure | Check], Measurement]
) -> tuple[Answer, list[Measure | Check]]:
    """The answer, and the probes that it took."""
    asked: list[Measure | Check] = []
    sent: Measurement | None = None
    try:
        while True:
            probe = asking.send(sent)
            if isinstance(probe, Note):
                sent = None
                continue
            assert isinstance(probe, Measure | Check)
            asked.append(probe)
            sent = reply(probe)
    except StopIteration as stop:
        return stop.value, asked


def wrong(_probe: object) -> Measurement:
    return scored(0.5, 0.5)


@pytest.mark.parametrize(
    ("own", "effect", "kind", "why"),
    [
        (0.5, 0.5, "fails", ""),
        (0.0, 0.0, "passes", ""),
        (0.5, 0.0, "unknown", "harmless"),
        (0.5, 0.02, "unknown", "milder"),
        (0.001, 0.5, "unknown", "amplified-downstream"),
    ],
)
def test_a_part_is_cut_out_and_judged_by_own_error_and_effect(
    own: float, effect: float, kind: str, why: str
) -> None:
    answer, (probe,) = put(oracle().ask(MIDDLE), lambda _: scored(own, effect))
    assert (answer.kind, answer.why, answer.own, answer.effect) == (kind, why, own, effect)
    assert probe == Measure(
        model="m", inputs="i", samples=("real:0",), engine="e", reference="r", effect=True,
        effect_on="3", candidate=msgspec.structs.replace(probe.candidate, nodes="1"),
    )  # fmt: skip


def test_a_simplified_part_fails_like_itself() -> None:
    first, _ = put(oracle().ask(MIDDLE), wrong)
    edited = msgspec.structs.replace(
        MIDDLE, edits=(Edit("fill", tensor=1, value=1.0),), like=first.signature
    )
    for own, fails in ((0.5, True), (0.06, True), (0.04, False), (HUGE, False)):
        answer, (probe,) = put(oracle().ask(edited), lambda _, own=own: scored(own))
        assert answer.fails == fails, own
        assert not probe.effect


def test_nodes_side_by_side_are_judged_by_what_each_is_wrong_by() -> None:
    question = Question(frozenset({0, 1}), outputs=(1, 2), alone=True)
    answer, (probe,) = put(oracle().ask(question), wrong)
    assert {n: s.rel_l2 for n, s in answer.scores.items() if s.rel_l2} == {"t1": 0.5}
    assert probe.candidate.severed == "1"
    assert not probe.effect


def test_the_reference_is_held_against_itself_with_nothing_cured() -> None:
    question = Question(reference=True, watch=(1, 2))
    answer, (probe,) = put(oracle(keep="0", looks=9).ask(question), wrong)
    assert answer.fails
    assert (probe.engine, probe.keep, probe.runs, probe.marks) == ("r", "", 1, "1-2")


WHOLE = Findings(
    model="m", inputs="i", sample="real:0", criterion=Criterion(tolerance=1e-2), signature=FAILED
)


def test_a_build_tells_its_kernels_and_takes_those_that_it_is_told_to() -> None:
    watched = watch_kernels(StepContext(engine="e", reference="r", findings=WHOLE), WHOLE)
    question = Question(build=1000, choose={"a": "1"}, avoid={"b": ("2",)})
    chose = {"choices": {"a": "1", "b": "3"}}
    told = msgspec.structs.replace(scored(0.5), facts={"build": chose})
    answer, (probe,) = put(watched.ask(question), lambda _: told)
    assert (answer.kind, answer.choices) == ("fails", chose["choices"])
    assert watched.list_probes(question) == (probe,)
    assert (probe.force, probe.forbid, probe.attempt) == ({"a": "1"}, {"b": ("2",)}, 1000)
    assert (probe.record, probe.exclusive, probe.runs) == (True, True, 1)


@pytest.mark.parametrize("kind", ["accuracy", "crash"])
def test_with_some_of_an_engine_switched_off_the_model_is_asked_as_often_as_needed(
    kind: str,
) -> None:
    """What crashed and does so still fails; what crashes of a wrong model tells nothing."""
    found = msgspec.structs.replace(
        WHOLE, looks=3, builds=2, patches="1", signature=Signature(kind=kind, sample="real:0")
    )
    ctx = StepContext(engine="e", reference="r", findings=found)
    switched = switch_engine(ctx, found, lambda off: f"e:off={'+'.join(sorted(off))}")
    question = Question(off=frozenset({"b", "a"}))
    answer, asked = put(switched.ask(question), lambda _: Measurement(status="crash"))
    assert answer.kind == ("fails" if kind == "crash" else "unknown")
    assert {(p.engine, p.runs, p.exclusive) for p in asked} == {("e:off=a+b", 3, True)}
    assert [p.attempt for p in asked] == ([0] if kind == "crash" else [0, 1])
    assert put(switched.ask(question), lambda _: scored(0.0))[0].passes


def test_what_comes_and_goes_in_runs_is_run_again_alone() -> None:
    _, (probe,) = put(oracle(looks=9).ask(MIDDLE), wrong)
    assert (probe.runs, probe.exclusive) == (9, True)


@pytest.mark.parametrize(
    ("told", "kind", "builds"),
    [
        ("ppp", "passes", 3),
        ("pfp", "fails", 2),
        ("pup", "unknown", 3),
        ("ufp", "fails", 2),
        ("fpp", "fails", 1),
    ],
)
def test_of_fresh_builds_the_first_that_fails_decides(told: str, kind: str, builds: int) -> None:
    """What was no answer may hide a failure, so it is none of all of them."""
    answers = {"p": PASSES, "f": Answer("fails"), "u": unknown("crash")}
    asked: list[int | None] = []

    def inner(question: Question) -> Sub[Answer]:
        asked.append(question.build)
        return answers[told[question.build or 0]]
        yield

    assert put(build_afresh(inner, 3)(MIDDLE), wrong)[0].kind == kind
    assert asked == list(range(builds))
    put(build_afresh(inner, 3)(msgspec.structs.replace(MIDDLE, build=2)), wrong)
    assert asked[builds:] == [2], "one that is asked for is one"


def test_a_guilty_tactic_is_forced_and_asked_once() -> None:
    _, (probe,) = put(oracle(tactics={"a": "x"}, builds=9).ask(MIDDLE), lambda _: scored(0.0))
    assert probe.force == {"a": "x"}


def test_what_does_not_build_is_only_built() -> None:
    refused = Signature(kind="build", sample="real:0", refusal=("no",))
    reply = Measurement(status="build-failed", facts={"refusal": ["no"]})
    answer, (probe,) = put(oracle(signature=refused).ask(MIDDLE), lambda _: reply)
    assert answer.fails
    assert answer.signature == refused
    assert probe.runs == 0


def test_earlier_culprits_stay_cured() -> None:
    two = Question(frozenset({0, 1}))
    answer, (probe,) = put(oracle(patches="2", keep="0", righted="1").ask(two), wrong)
    assert answer.fails
    assert (probe.candidate.severed, probe.candidate.outputs) == ("2", "")
    assert (probe.keep, probe.righted) == ("0", "1")
    _, (probe,) = put(oracle(patches="1").ask(two), wrong)
    assert (probe.candidate.severed, probe.candidate.outputs) == ("1", "2")


def test_a_checker_judges_in_place_of_the_comparison() -> None:
    asking = oracle(check="./check.sh", signature=Signature(kind="check", sample="real:0"))
    answer, (probe,) = put(
        asking.ask(msgspec.structs.replace(MIDDLE, save="case")),
        lambda _: Measurement(facts={"returncode": 3}),
    )
    assert answer.fails
    assert isinstance(probe, Check)
    assert "model.onnx" in probe.artifacts


@pytest.mark.parametrize("kind", ["check", "crash", "build"])
def test_where_nothing_is_compared_what_only_that_tells_is_not_asked(kind: str) -> None:
    asking = oracle(
        check="./c" if kind == "check" else "", signature=Signature(kind=kind, sample="real:0")
    )
    for question in (
        msgspec.structs.replace(MIDDLE, alone=True),
        msgspec.structs.replace(MIDDLE, feed="exact"),
        msgspec.structs.replace(MIDDLE, edits=(Edit("fill", tensor=1),)),
    ):
        answer, asked = put(asking.ask(question), wrong)
        assert (answer.kind, answer.probes, asked) == ("unknown", 0, [])
    assert put(asking.ask(Question(reference=True)), wrong) == (PASSES, [])


def test_the_cheap_form_is_asked_the_same() -> None:
    given = oracle(cheap="e:level=1", looks=3)
    assert given.cheap is not None
    assert given.cheap.cheap is None
    (_, (there,)), (_, (here,)) = (put(o.ask(MIDDLE), wrong) for o in (given.cheap, given))
    assert there == msgspec.structs.replace(here, engine="e:level=1")


PATCHED = str(INDEX.by_name["t1"])
KEPT = Question(fed=Fed(("real:0", "real:1"), "others"), keep=frozenset({1}), build=0)


@pytest.mark.parametrize(
    ("uncured", "keep", "righted", "severed"), [(True, "1", "", ""), (False, "0-1", "2", PATCHED)]
)
def test_kept_nodes_stand_beside_what_earlier_culprits_are_cured_by_or_in_its_place(
    uncured: bool, keep: str, righted: str, severed: str
) -> None:
    asked = oracle(patches=PATCHED, keep="0", righted="2")
    question = msgspec.structs.replace(KEPT, uncured=uncured)
    answer, (probe,) = put(asked.ask(question), lambda _: scored(0.5))
    assert isinstance(probe, Measure)
    assert (probe.keep, probe.righted, probe.candidate.severed) == (keep, righted, severed)
    assert (probe.samples, probe.inputs) == (("real:0", "real:1"), "others")
    told = [s.name for r in answer.measured.results for s in r.outputs]
    assert told == ["t1"] if uncured else not told, "what is patched carries no error"


def test_samples_are_fed_to_the_model_as_it_is_built_and_run_as_often_as_that_shows_the_fault() -> (
    None
):
    asked = oracle(looks=3, tactics={"layer": "choice"})
    _, (probe,) = put(asked.ask(KEPT), lambda _: scored(0.0))
    assert isinstance(probe, Measure)
    assert (probe.runs, probe.exclusive, probe.force) == (3, True, {})
    once = msgspec.structs.replace(KEPT, fed=Fed(("real:0",), runs=7), reference=True)
    _, (probe,) = put(asked.ask(once), lambda _: scored(0.0))
    assert isinstance(probe, Measure)
    assert (probe.engine, probe.runs, probe.exclusive) == ("r", 7, False)


def test_a_checker_is_handed_no_samples_and_watches_no_inside() -> None:
    failed = Signature(kind="check", sample="real:0")
    part = Question(frozenset(), part=Candidate("1"), watch=(1,), build=0)
    for question in (KEPT, part):
        answer, probes = put(oracle("check {model}", failed).ask(question), wrong)
        assert (answer.kind, answer.why, probes) == ("unknown", "unsupported", [])
        assert answer.measured.status == "unsupported"


def test_a_case_is_asked_about_as_it_is_held_and_fails_by_its_own_outputs() -> None:
    held = Candidate("1", edits=(Edit("fill", tensor=1, value=1.0),))
    own = Signature(kind="accuracy", sample="real:0", outputs=("t1",), errors={"t1": 9.0})
    question = Question(frozenset(), part=held, like=own, build=4)
    answer, (probe,) = put(oracle().ask(question), lambda _: scored(0.02))
    assert isinstance(probe, Measure)
    assert (probe.candidate, probe.attempt, probe.effect) == (held, 4, False)
    assert answer.fails, "however small its error became beside what it was"
