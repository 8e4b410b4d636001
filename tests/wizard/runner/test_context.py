"""What a step is told: parameters, answers' settings, findings. And what may be run ahead."""

import contextlib
import random

import msgspec
import pytest
from house import ENGINE, PROBLEM, Oracle, SearchOutcome, flow, measure, search, spec

from narrowdown.engines.asking import Note, StepContext
from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Measure, SampleInfo
from narrowdown.engines.problem import Problem
from narrowdown.engines.steps.base import Finish
from narrowdown.engines.views import EngineInfo
from narrowdown.wizard.runner.context import step_context
from narrowdown.wizard.runner.settings import applied, fault, settings_on, with_settings
from narrowdown.wizard.runner.speculation import Foresight, speculable
from narrowdown.wizard.session.decide import RunStep
from narrowdown.wizard.session.state import State, Visit

SPEC = spec("search", search, SearchOutcome)
FOUND = Findings(
    model="m",
    inputs="i",
    samples=(SampleInfo("real:0", "f"), SampleInfo("real:1", "f")),
    sample="real:0",
    criterion=Criterion(tolerance=0.01),
    signature=Signature(kind="accuracy", sample="real:0", outputs=("y",), errors={"y": 0.5}),
)


def context(settings: dict, **rest) -> StepContext:
    visit = Visit("third", answer="again", settings=settings, findings=FOUND, causes={"crash": 2})
    return step_context(
        PROBLEM,
        flow(),
        SPEC,
        State(route=(visit,)),
        RunStep("second", 2, SPEC.name, **rest),
    )


def test_parameters_come_from_the_flow_the_node_and_the_answers_in_that_order():
    assert context({}).params == {"repeats": 3}
    assert context({}, params={"repeats": 7, "size": 8}).params == {"repeats": 7, "size": 8}
    assert context({"repeats": "9", "search": "linear"}, params={"repeats": 7}).params == {
        "repeats": 9,
        "search": "linear",
    }
    assert context({"repeats": ""}).params == {"repeats": 3}
    assert context({"repeats": "many"}).params == {}


def test_the_step_hears_of_settings_and_of_what_was_unresolved():
    ctx = context({"search": "linear"})
    assert ctx.settings == {"search": "linear", "unresolved": {"crash": 2}}
    assert (ctx.engine, ctx.visit, ctx.problem.model) == (ENGINE, 2, PROBLEM.model)
    assert ctx.findings == FOUND


def test_another_tolerance_judges_anew_and_locks_the_failure_anew():
    ctx = context({"tolerance": "0.25"})
    assert ctx.problem.tolerance == {"": 0.25}
    assert ctx.findings.criterion.tolerance == 0.25
    assert ctx.findings.signature is None
    assert ctx.findings.inputs == "i"
    assert context({"metric": "cosine"}).findings.criterion.metric == "cosine"
    assert context({"tolerance": ""}).findings == FOUND
    assert context({"tolerance": "much"}).problem.tolerance == {}


def test_another_seed_makes_the_inputs_anew():
    ctx = context({"seed": "7"})
    assert ctx.seed == 7
    assert (ctx.findings.inputs, ctx.findings.samples, ctx.findings.signature) == ("", (), None)


def test_another_sample_is_searched_on_if_there_is_one():
    ctx = context({"sample": "real:1"})
    assert (ctx.findings.sample, ctx.findings.signature) == ("real:1", None)
    assert context({"sample": "real:9"}).findings == FOUND


def test_settings_hold_for_later_steps_but_change_the_findings_once():
    early = Visit("third", answer="again", settings={"tolerance": "0.25"}, findings=FOUND)
    late = Visit("second", answer="yes", findings=msgspec.structs.replace(FOUND, sample="real:1"))
    ctx = step_context(
        PROBLEM, flow(), SPEC, State(route=(early, late)), RunStep("third", 2, SPEC.name)
    )
    assert ctx.problem.tolerance == {"": 0.25}
    assert ctx.findings == late.findings


def test_bounds_may_name_an_output():
    plain = {"tolerance": {"": 0.1}}
    assert with_settings(plain, {"tolerance": "a:b:0.5"})["tolerance"] == {"": 0.1, "a:b": 0.5}
    assert with_settings(plain, {"fail_regex": "x"})["fail_regex"] == ["x"]
    assert with_settings(plain, {"fail_code": "1, 2"})["fail_code"] == [1, 2]
    assert with_settings(plain, {"unknown": 1, "model": "/other"}) == plain
    assert plain == {"tolerance": {"": 0.1}}


def test_a_tolerance_of_an_elementwise_comparison_is_both_its_bounds():
    assert with_settings({"atol": {"": 0.1}}, {"tolerance": "0.5"}) == {
        "atol": {"": 0.5},
        "rtol": {"": 0.5},
    }


def test_a_metric_of_another_kind_drops_the_tolerances_of_the_old_one_and_not_those_given_after_it():
    plain = {"tolerance": {"": 0.001}}
    assert with_settings(plain, {"metric": "cosine"}) == {**plain, "metric": "cosine"}
    assert with_settings(plain, {"metric": "sqnr_db"}) == {"tolerance": {}, "metric": "sqnr_db"}
    route = [
        Visit("third", settings=s)
        for s in ({"tolerance": "0.5"}, {"metric": "sqnr_db"}, {"tolerance": "30"})
    ]
    assert with_settings(plain, settings_on(route)) == {
        "tolerance": {"": 30.0},
        "metric": "sqnr_db",
    }
    assert with_settings(plain, settings_on(route[:2])) == {"tolerance": {}, "metric": "sqnr_db"}


def test_the_original_model_again():
    clean = msgspec.structs.replace(FOUND, model="clean", original="m")
    again = applied(clean, {"working_model": "original"}, Problem(), EngineInfo())
    assert (again.model, again.signature) == ("m", None)
    unchanged = msgspec.structs.replace(clean, model="m")
    assert applied(unchanged, {"working_model": "original"}, Problem(), EngineInfo()) == unchanged


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tolerance": "much"}, "'much' is no tolerance"),
        ({"atol": "y:-1"}, "'y:-1' is no atol"),
        ({"tolerance": "inf"}, "'inf' is no tolerance"),
        ({"metric": "cosin"}, "Did you mean 'cosine'?"),
        ({"seed": "7.5"}, "'7.5' is no seed"),
        ({"fail_code": "1, x"}, "exit codes"),
        ({"fail_regex": "("}, "not a regular expression"),
        ({"sample": "real:9"}, "There is no sample 'real:9' here; there are real:0"),
        ({"sample": "real:0/x"}, "There is no sample"),
        ({"tolerance": "", "metric": " "}, ""),
        (
            {
                "tolerance": "y:1e-3",
                "metric": "ulp",
                "seed": "-4",
                "fail_code": "1,2",
                "sample": "real:1",
            },
            "",
        ),
    ],
)
def test_a_value_that_means_nothing_is_named(settings: dict, said: str):
    assert said in fault(settings, FOUND)
    assert bool(said) == bool(fault(settings, FOUND))


# -- running ahead ------------------------------------------------------------------------------------------------------


def nodes(probe: Measure) -> tuple[int, ...]:
    return ranges.decode(probe.candidate.nodes)


def ahead(begin, told, known, most, **how):
    return Foresight(begin).ahead(told, known, most, **how)


def begin():
    return search(
        StepContext(engine=ENGINE, reference="r", findings=Findings(), params={"size": 8})
    )


def test_what_would_be_asked_next_under_either_verdict():
    """The step waits for its first probe, the whole; if that fails it would ask for each half."""
    found = ahead(begin, [], lambda _: None, 3)
    assert nodes(found[0]) == (4, 5, 6, 7)
    assert len(found) == len({p.candidate for p in found}) == 3
    assert all(nodes(p) != tuple(range(8)) for p in found)


def test_known_answers_are_walked_over():
    oracle = Oracle(culprits=(1,))
    known = {(4, 5, 6, 7)}

    def answer(probe):
        return oracle.answer(probe) if nodes(probe) in known else None

    assert nodes(ahead(begin, [], answer, 1)[0]) == (0, 1, 2, 3)


def test_history_is_followed_first():
    oracle = Oracle(culprits=(1,))
    steps, told, answer = begin(), [], None
    for _ in range(5):
        yielded = steps.send(answer)
        answer = None if isinstance(yielded, Note) else oracle.answer(yielded)
        told.append(answer)
    while isinstance(yielded := steps.send(answer), Note):
        answer = None
        told.append(None)
    current = nodes(yielded)
    assert all(set(nodes(p)) != set(current) for p in ahead(begin, told, lambda _: None, 4))


def test_what_was_foreseen_is_not_walked_again_and_changes_no_guess():
    """A whole search, some of whose guesses are answered early: each look ahead is that of one who
    sees it for the first time."""
    draw, oracle, begun = random.Random(3), Oracle(culprits=(5, 19)), {"once": 0, "afresh": 0}
    known: dict = {}

    def beginning(name):
        begun[name] += 1
        return search(
            StepContext(engine=ENGINE, reference="r", findings=Findings(), params={"size": 32})
        )

    foresight, told, answer = Foresight(lambda: beginning("once")), [], None
    steps = beginning("afresh")
    with contextlib.suppress(StopIteration):
        while True:
            yielded = steps.send(answer)
            answer = None
            if not isinstance(yielded, Note):
                for _ in range(6):
                    guesses = foresight.ahead(told, lambda p: known.get(p.candidate), 7)
                    assert guesses == ahead(
                        lambda: beginning("afresh"), told, lambda p: known.get(p.candidate), 7
                    )
                    known.update(
                        {p.candidate: oracle.answer(p) for p in guesses if draw.random() < 0.15}
                    )
                answer = known.get(yielded.candidate) or oracle.answer(yielded)
            told.append(answer)
    assert begun["once"] < begun["afresh"] / 2


def test_exclusive_probes_are_foreseen_where_each_can_have_a_device():
    def repeated():
        for attempt in range(4):
            yield Note("again")
            yield measure((1,), attempt, exclusive=True)
        yield measure((1,))
        return Finish(SearchOutcome(), Findings())

    asked = [None]
    assert [p.attempt for p in ahead(repeated, asked, lambda _: None, 2, alone=True)] == [1, 2]
    assert [p.attempt for p in ahead(repeated, asked, lambda _: None, 9, alone=True)] == [1, 2, 3]
    assert ahead(repeated, asked, lambda _: None, 9) == []


def test_exclusive_probes_and_steps_that_trip_end_the_way():
    def exclusive():
        yield measure((1,))
        yield measure((2,), exclusive=True)
        return Finish(SearchOutcome(), Findings())

    def trips():
        m = yield measure((1,))
        yield measure((m.results[0].outputs,))
        return Finish(SearchOutcome(), Findings())

    def unasked():
        m = yield measure((1,))
        yield measure((2,), engine="never:seen=1")
        return Finish(SearchOutcome(), m)

    def unknown(probe):
        raise KeyError(probe.engine)

    assert ahead(exclusive, [], lambda _: None, 4) == []
    assert ahead(trips, [], lambda _: None, 4) == []
    assert ahead(unasked, [], unknown, 4) == []
    assert not speculable(measure((1,), exclusive=True))
    assert speculable(measure((1,), exclusive=True), alone=True)
    assert not speculable(measure((1,)), alone=True)
    assert speculable(measure((1,)))
