"""What a step measured, as a newcomer reads it: nothing that says nothing, nothing of another
step."""

import pytest

from narrowdown.wizard.session import events as e
from narrowdown.wizard.tui import narrative
from narrowdown.wizard.tui.board import Board
from narrowdown.wizard.tui.client import Watcher
from narrowdown.wizard.tui.widgets.evidence import LONGEST, facts, shorten

from . import scripted as s
from .scripted import FakeSession


def test_counts_stand_beside_what_they_are_counted_of() -> None:
    outcome = {
        "samples": 64,
        "samples_failing": 62,
        "real_samples": 3,
        "real_failing": None,
        "random_failing": 2,
    }
    fields = ("samples_failing", "samples", "real_failing", "real_samples", "random_failing")
    assert facts(outcome, fields, "inputs") == [
        ("samples that fail", "62 of 64"),
        ("random samples that fail", "2"),
        ("not measured", "your samples that fail"),
    ]
    none = {"real_samples": 0, "real_failing": 0, "unseen": 0, "unseen_ok": 0, "unseen_failing": 0}
    assert facts(none, tuple(none), "inputs") == [], "none of none"


def test_whole_numbers_are_told_by_how_many_are_wrong() -> None:
    """A panel, and the last page, said "100 %" of 1 of 168 codes."""
    assert (
        facts({"own": 1.0, "own_places": [1, 168]}, ("own",), "extract", "rel_l2")[0][1]
        == "wrong in 1 of 168 values"
    )


def test_a_zero_that_says_nothing_is_left_out_and_what_was_not_measured_is_not() -> None:
    outcome = {"grown": 0, "skipped": 3, "needs_higher_inputs": False, "effect": 0.0, "own": None}
    assert facts(outcome, tuple(outcome), "layerwise") == [
        ("could not be watched", "3"),
        ("effect on the outputs", "0"),
        ("not measured", "its own error"),
    ]


INTERVAL = {"interval_low": 0.4, "interval_high": 1.0}


@pytest.mark.parametrize(
    ("looks", "rows"),
    [(1, []), (5, [("times looked", "5"), ("of them failing", "1")])],
)
def test_how_often_it_failed_is_told_from_two_looks_on(
    looks: int, rows: list[tuple[str, str]]
) -> None:
    assert facts({"looks": looks, "failures": 1}, ("looks", "failures"), "compare") == rows


def test_after_a_rewind_no_probe_of_another_step_is_shown(session: FakeSession) -> None:
    s.asking(session)
    board = Board(session.folder)
    board.extend(session.script.events)
    assert len(board.hunt.rows) == 5
    first = next(event for event in session.script.events if isinstance(event, e.QuestionAsked))
    session.script.add(e.Rewound(to=first.seq, node="reproduce"))
    scene = Watcher(session, s.FakeLibrary(session).problem(session.folder)).look()
    assert scene is not None
    assert scene.node == "reproduce"
    assert scene.hunt.rows == ()
    assert (
        narrative.nothing(scene)
        == "the 2 probes of this step ran before you came back to it, and are not listed again"
    )


def test_a_long_list_leaves_room_for_what_is_below_it() -> None:
    ((_, said),) = facts({"names": ", ".join(["/a/Sin", "/b/Relu"] * 200)}, ("names",), "reduce")
    assert len(said) < 200
    assert said.startswith("/a/Sin, ")
    assert said.endswith(", /b/Relu")
    ((_, said),) = facts({"ops": " + ".join(["Sin", "Relu"] * 200)}, ("ops",), "reduce")
    assert (said.count("Sin"), said.endswith(" + Sin + Relu and 388 more")) == (6, True)
    ((_, said),) = facts({"ops": " + ".join(["Sin"] * 41 + ["Relu"])}, ("ops",), "reduce")
    assert said == "41 Sin + Relu"


@pytest.mark.parametrize(("precision", "told"), [("fp16", ["FP16"]), ("fp32", [])])
def test_the_error_that_a_precision_alone_explains_names_it(
    precision: str, told: list[str]
) -> None:
    outcome = {"precision": precision, "emulated_error": None}
    said = [
        text
        for label, text in facts(outcome, ("emulated_error",), "compare")
        if label == "not measured"
    ]
    assert said == [f"error that {name} alone explains" for name in told], (
        "nobody measures it for FP32"
    )


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("observer", "reproduces", "it still fails"),
        ("behaviour", "rebuilds-differ", "some builds pass"),
    ],
)
def test_a_name_inside_is_said_in_a_users_words(field: str, value: str, said: str) -> None:
    assert [text for _, text in facts({field: value}, (field,), "layerwise")] == [said]


def test_what_runs_without_a_failure_leave_open_stands_behind_why(session: FakeSession) -> None:
    missed = "A fault in fewer than 1 of 100 runs would not have shown."
    s.opened(session)
    session.script.add(
        e.StepStarted(run=1, node="reproduce", visit=1, step="compare", step_version=1)
    )
    outcome = {
        "message": "300 runs, no failure.",
        "missed": missed,
        "looks": 300,
        "failures": 0,
        **INTERVAL,
    }
    session.script.add(e.StepFinished(run=1, node="reproduce", status="done", outcome=outcome))
    offered = s.offered(session.flow, "reproduce", "no")
    session.script.add(
        e.QuestionAsked(node="reproduce", visit=1, ask="?", answers=offered, recommended="no")
    )
    scene = Watcher(session, s.FakeLibrary(session).problem(session.folder)).look()
    assert scene is not None
    assert missed in narrative.why(scene)[0][1]
    assert missed not in str(facts(outcome, ("looks", "failures"), "compare")), "and only there"


def test_of_several_sentences_each_is_whole_and_of_a_name_both_ends() -> None:
    said = [
        f"'{name}': ids below {n}, as '{name}.weight' has {n} entries to choose from."
        for name, n in (("characters", 54), ("marks", 16))
    ]
    assert shorten(" ".join(said)) == " ".join(said), (
        "longer than one value may be, and not cut inside"
    )
    assert shorten(" ".join(said * 5)) == " ".join([*said * 2, "…"])
    assert len(shorten("n" * 5000)) == LONGEST
    assert len(shorten("n" * 5000 + ". And more.")) < 2 * LONGEST
