"""The state is a function of the journal; decisions are a function of flow and state."""

import hashlib

import msgspec
import pytest
from hypothesis import given, strategies as st

from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import Import, Inspect, Measure, Measurement, Unroll
from narrowdown.wizard import BY_VERDICT
from narrowdown.wizard.flow.load import parse
from narrowdown.wizard.flow.model import Answer, Detour, End, Flow, FlowNode, StepUse
from narrowdown.wizard.session import events as e
from narrowdown.wizard.session.decide import Ended, RunStep, decide
from narrowdown.wizard.session.single import single_flow
from narrowdown.wizard.session.state import State, advance, count_nodes, fold

FLOW = Flow(
    schema=1,
    id="t",
    title="t",
    start="a",
    nodes={
        "a": FlowNode(
            title="a",
            explain="",
            ask="Does it fail? {{ error|number }}",
            step=StepUse("compare", {"repeats": 5}),
            answers={
                "yes": Answer("Yes, {{ samples }}", "b", when={"verdict": "fails"}, because="off by {{ error|number }}",
                              detour=Detour({"switchable": True}, "c")),
                "no": Answer("No", "right"),
            },
        ),
        "b": FlowNode(title="b", explain="", ask="b?", answers={"c": Answer("c", "c"), "a": Answer("a", "a")}),
        "c": FlowNode(title="c", explain="", ask="c?", answers={"b": Answer("b", "b"), "x": Answer("x", "found")},
                      max_visits=2, limit="spent"),
    },
    ends={n: End(n, "", v) for n, v in (("right", "not-reproduced"), ("found", "minimal-case"), ("spent", "unresolved"))},
)  # fmt: skip

MEASURE = Measure(model="m", inputs="i", samples=("s",), engine="x", reference="y")
CRASH = Measurement(status="crash", signal=11)


def numbered(*events: e.AnyEvent) -> list[e.AnyEvent]:
    return [
        msgspec.structs.replace(event, seq=n, ts=100.0 + n) for n, event in enumerate(events, 1)
    ]


def step(run: int, node: str = "a", visit: int = 1, **outcome) -> list[e.AnyEvent]:
    return [
        e.StepStarted(
            run=run,
            node=node,
            visit=visit,
            step="compare",
            step_version=1,
            engine="x",
            fingerprints={"x": "1"},
        ),
        e.StepFinished(run=run, node=node, outcome=outcome, findings={"model": f"m{run}"}),
    ]


def asked(node: str, visit: int = 1, *ids: str) -> e.QuestionAsked:
    return e.QuestionAsked(
        node=node,
        visit=visit,
        ask="?",
        answers=tuple(e.Offered(i, i, "") for i in ids),
        recommended=ids[0],
    )


def answered(node: str, answer: str, visit: int = 1, **rest) -> e.QuestionAnswered:
    return e.QuestionAnswered(node=node, visit=visit, answer=answer, by="person", **rest)


WALK = numbered(
    e.SessionOpened(id="s"),
    *step(1, verdict="fails", samples=3, error=0.5),
    asked("a", 1, "yes", "no"),
    answered("a", "yes", settings={"seed": 2}),
    e.ProbeStarted(key="k", run=1, probe=MEASURE),
    e.ProbeFinished(key="k", run=1, measurement=CRASH),
    asked("b", 1, "c", "a"),
    answered("b", "c"),
    asked("c", 1, "b", "x"),
    answered("c", "x"),
    e.SessionClosed(end="found", exit_code=0),
)


@given(st.integers(0, len(WALK)), st.integers(0, len(WALK)))
def test_folding_in_parts_is_folding_at_once(first, second):
    low, high = sorted((first, second))
    whole = fold(WALK[:high])
    assert fold(WALK[low:high], fold(WALK[:low])) == whole
    stepwise = State()
    for event in WALK[:high]:
        stepwise = advance(stepwise, event)
    assert stepwise == whole


@given(st.integers(0, len(WALK)))
def test_advancing_leaves_the_earlier_state_alone(at):
    before = fold(WALK[:at])
    copy = fold(WALK[:at])
    for event in WALK[at:]:
        advance(before, event)
    assert before == copy


def test_the_route():
    state = fold(WALK)
    assert [(v.node, v.answer, v.settings) for v in state.route] == [
        ("a", "yes", {"seed": 2}),
        ("b", "c", {}),
        ("c", "x", {}),
    ]
    assert state.findings == Findings(model="m1")
    assert (state.end, state.last, state.opened) == ("found", 112.0, 101.0)
    assert state.known["k"].measurement == CRASH
    assert fold(WALK[:4]).here.question is not None
    assert fold(WALK[:2]).here.question is None
    assert fold(WALK[:1]).here is None


def test_rewind_is_folding_fewer_events_with_everything_measured_still_known():
    for to in (2, 4, 8, 10):
        state = fold([*WALK, e.Rewound(to=to, seq=13)])
        assert state.route == fold(WALK[:to]).route
        assert ("k" in state.known) == (to > 7), (
            "what ended unresolved after that point is asked again"
        )
    fine = e.ProbeFinished(key="k", run=1, measurement=Measurement(), seq=7)
    good = [fine if isinstance(event, e.ProbeFinished) else event for event in WALK]
    assert "k" in fold([*good, e.Rewound(to=2, seq=13)]).known
    assert fold([*WALK, e.Rewound(to=8, seq=13), e.Rewound(to=10, seq=14)]).route == (), (
        "a point that was set aside is no anchor"
    )


def test_resuming_forgets_what_the_user_may_have_mended():
    taken = Import(path="/m", digest="d")
    base = numbered(
        e.SessionOpened(id="s"),
        e.StepStarted(run=1, node="a", visit=1, step="compare", step_version=1),
        e.ProbeStarted(key="i", run=1, probe=taken),
        e.ProbeFinished(key="i", run=1, measurement=Measurement(status="refused")),
        e.ProbeStarted(key="k", run=1, probe=MEASURE),
        e.ProbeFinished(key="k", run=1, measurement=CRASH),
        e.StepFinished(run=1, node="a", status="refused", error="no"),
        e.SessionClosed(exit_code=2, reason="no"),
    )
    again = fold([*base, e.SessionOpened(id="s", resumed=True, seq=9)])
    assert set(again.known) == {"k"}
    assert again.here.status == "cancelled"
    assert isinstance(decide(FLOW, again), RunStep)
    assert not fold(
        [*base, e.SessionOpened(id="s", resumed=True, retry_unresolved=True, seq=9)]
    ).known


def test_fingerprints_come_from_steps_and_from_engines_met_on_the_way():
    events = numbered(
        *step(1),
        e.ProbeStarted(key="q", run=1, probe=Inspect(engine="z")),
        e.ProbeFinished(key="q", run=1, measurement=Measurement(facts={"fingerprint": "9"})),
        e.ProbeStarted(key="r", run=1, probe=Inspect(engine="gone")),
        e.ProbeFinished(key="r", run=1, measurement=Measurement(status="unsupported")),
    )
    assert fold(events).fingerprints == {"x": "1", "z": "9", "gone": "unavailable"}


@pytest.mark.parametrize(("works_on", "nodes"), [("given", 176), ("opened", 8_711)])
def test_a_model_that_was_only_tried_tells_no_nodes(works_on: str, nodes: int) -> None:
    """A model of four LSTMs, opened to 8,711 plain nodes: where the step lets go of that, the
    search works on 176."""
    given = Import(path="m.onnx", digest="d")
    opened = Unroll(model="given", inputs="i", sample="real:0", samples=("real:0",), reference="y")
    events = numbered(
        e.ProbeStarted(key="k1", run=1, probe=given),
        e.ProbeFinished(
            key="k1",
            run=1,
            measurement=Measurement(facts={"model": "given", "nodes": 176}),
            seconds=1.0,
        ),
        e.ProbeStarted(key="k2", run=1, probe=opened),
        e.ProbeFinished(
            key="k2",
            run=1,
            measurement=Measurement(facts={"model": "opened", "nodes": 8_711}),
            seconds=51.0,
        ),
    )
    assert count_nodes(fold(events), works_on) == nodes
    assert count_nodes(State(nodes=5), works_on) == 5, "where no answer tells"


def test_findings_of_another_version_are_said():
    with pytest.raises(ValueError, match="another version"):
        fold(numbered(*step(1)[:1], e.StepFinished(run=1, node="a", findings={"model": 7})))


def test_deciding_along_the_walk():
    found = [decide(FLOW, fold(WALK[:n])) for n in range(len(WALK))]
    assert found[0] == found[2] == RunStep("a", 1, "compare", {"repeats": 5})
    ask = found[3]
    assert isinstance(ask, e.QuestionAsked)
    assert (ask.ask, ask.recommended, ask.because, ask.seq) == (
        "Does it fail? 0.5",
        "yes",
        "off by 0.5",
        0,
    )
    assert [(o.id, o.text, o.goto, o.recommended) for o in ask.answers] == [
        ("yes", "Yes, 3", "b", True),
        ("no", "No", "right", False),
    ]
    again = found[4]
    assert isinstance(again, e.QuestionAsked)
    assert again.seq, "it has been asked"
    assert isinstance(found[5], e.QuestionAsked)
    assert found[5].node == "b"
    assert found[11] == Ended("found", 0)


def test_a_detour_is_taken_where_the_outcome_says_so():
    events = numbered(
        *step(1, verdict="fails", samples=1, error=0.1, switchable=True),
        asked("a", 1, "yes"),
        answered("a", "yes"),
    )
    assert decide(FLOW, fold(events[:2])).answers[0].goto == "c"
    assert decide(FLOW, fold(events)).node == "c"


def test_a_failed_step_recommends_the_last_answer():
    failed = numbered(
        step(1)[0], e.StepFinished(run=1, node="a", status="failed", error="It fell over.")
    )
    ask = decide(FLOW, fold(failed))
    assert (ask.recommended, ask.because) == ("no", "It fell over.")
    assert ask.answers[0].text == "", "what was not measured is not said"


def test_visits_end_at_their_limit():
    events = [e.SessionOpened(id="s")]
    for visit in (1, 2):
        events += [
            asked("c", visit, "b"),
            answered("c", "b", visit),
            asked("b", visit, "c"),
            answered("b", "c", visit),
        ]
    # b may be entered once only; it has no limit of its own, so the route is simply unresolved.
    assert decide(FLOW, fold(numbered(*events[:3]))) == e.QuestionAsked(
        "b", 1, "b?", decide(FLOW, fold(numbered(*events[:3]))).answers, "c"
    )
    assert decide(FLOW, fold(numbered(*events[:-2]))) == Ended("limit", 6)
    assert decide(FLOW, fold(numbered(*events))) == Ended("spent", 6)


def test_a_state_of_another_flow_is_said():
    with pytest.raises(ValueError, match="no node 'z'"):
        decide(FLOW, fold(numbered(asked("z", 1, "y"))))
    with pytest.raises(ValueError, match="no answer 'q'"):
        decide(FLOW, fold(numbered(asked("b", 1, "c"), answered("b", "q"))))


SINGLE = [
    ("compare", {"verdict": "fails"}, 0), ("compare", {"verdict": "passes"}, 10), ("compare", {"verdict": "reference"}, 13),
    ("compare", {"verdict": "unresolved"}, 6), ("repeat", {"failures": 2}, 0), ("repeat", {"failures": 0}, 10),
    ("reduce", {"verdict": "reduced"}, 0), ("reduce", {"verdict": "not-reproduced"}, 10),
    ("reduce", {"verdict": "unresolved"}, 6),
    ("layerwise", {"observer": "cannot-run"}, 0), ("workaround", {"holds": False}, 6), ("precision", {"outcome": "found"}, 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "outcome", "code"), SINGLE)
def test_a_single_step_ends_by_its_outcome(name, outcome, code):
    flow = parse(single_flow(name, {"repeats": 2})).flow
    first = decide(flow, State())
    assert first == RunStep(name, 1, name, {"repeats": 2})
    events = numbered(
        e.StepStarted(run=1, node=name, visit=1, step=name, step_version=1),
        e.StepFinished(run=1, node=name, outcome={**outcome, "message": "said"}),
    )
    ask = decide(flow, fold(events))
    assert ask.because == "said"
    end = decide(
        flow, fold([*events, asked(name, 1, ask.recommended), answered(name, ask.recommended)])
    )
    assert isinstance(end, Ended)
    assert end.exit_code == code


def test_a_single_step_that_failed_is_unresolved():
    flow = parse(single_flow("sanitize")).flow
    events = numbered(
        e.StepStarted(run=1, node="sanitize", visit=1, step="sanitize", step_version=1),
        e.StepFinished(run=1, node="sanitize", status="failed", error="x"),
    )
    assert decide(flow, fold(events)).recommended == "failed"


def test_the_exit_codes_are_the_contracts():
    contract = {
        "minimal-case": 0, "worked-around": 0, "build-failure": 0, "not-reproduced": 10, "input-sensitive": 11,
        "fixed-by-sanitizing": 12,
        "reference-suspect": 13, "export-at-fault": 14, "not-determined": 15, "unresolved": 6, "refused": 4,
        "done": 0,
    }  # fmt: skip
    assert contract == {**BY_VERDICT, "done": 0}
    for verdict, code in contract.items():
        flow = msgspec.structs.replace(FLOW, start="only", ends={"only": End("Only", "", verdict)})
        assert decide(flow, State()) == Ended("only", code)


# Of the flow that each step makes when it runs alone: a session holds that digest, and goes on with
# the very text only.
TEXTS = {
    "compare": "bdc528267dbdf8de",  # since what is refused ends with 4, as the contract has it
    "confirm": "e75bd194758e1310",
    "double-check": "bcdc293795297899",
    "extract": "46e822860798d8fe",
    "inputs": "92059888beac478d",
    "layerwise": "3fe971d4ab65a327",
    "nondeterminism": "69e5e5d1de638d99",
    "precision": "cc90287cd093ef04",  # since it can end whole
    "quantization": "bf496a053145f3fb",  # likewise
    "reduce": "1395abbe60df760e",
    "repeat": "528fe5cf7fe583c4",
    "sanitize": "12e0e66987f61c78",
    "tactics": "32037a5651eb3a24",
    "workaround": "d8d5599f6943feb4",
}


@pytest.mark.parametrize(("name", "digest"), TEXTS.items())
def test_the_flow_of_one_step_is_the_one_that_sessions_hold(name: str, digest: str) -> None:
    assert hashlib.sha256(single_flow(name).encode()).hexdigest()[:16] == digest


def test_a_step_that_nobody_has_any_more_still_makes_a_flow() -> None:
    assert set(parse(single_flow("gone")).flow.ends) == {"done", "unresolved"}
