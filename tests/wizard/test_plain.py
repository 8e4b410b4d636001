"""The plain and JSON displays: complete, one line an event, nothing from a model obeyed, live only
where it can be taken back."""

import io
import json

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from narrowdown.engines.probe import (
    Candidate,
    LoadInputs,
    Measure,
    Measurement,
    SampleResult,
    Score,
)
from narrowdown.wizard.flow.model import Answer, End, Flow, FlowNode
from narrowdown.wizard.plain import (
    JsonDisplay,
    PlainDisplay,
    progress_line,
    say_engines,
    say_measurement,
)
from narrowdown.wizard.session.events import (
    NoteAdded,
    Offered,
    ProbeFinished,
    ProbeStarted,
    QuestionAnswered,
    QuestionAsked,
    Rewound,
    SessionClosed,
    SessionOpened,
    StepCancelled,
    StepFinished,
    StepStarted,
    WorkerDied,
)
from narrowdown.wizard.terminal import PAGE

FLOW = Flow(
    schema=1,
    id="accuracy",
    title="Accuracy",
    start="reproduce",
    nodes={
        "reproduce": FlowNode(
            "Does the failure show here?", "", "Does it?", {"yes": Answer("Yes", "found")}
        )
    },
    ends={"found": End("You have a minimal failing case", "", "minimal-case")},
)
PROBE = Measure(
    model="m",
    inputs="i",
    samples=("real:0",),
    engine="emulate:precision=fp16",
    reference="onnxruntime",
    candidate=Candidate("0-95"),
)
ANSWERS = (
    Offered("yes", "Yes, it fails", "sanitize", True, "24 of 24"),
    Offered("no", "No", "not-reproduced"),
)
EVENTS = [
    SessionOpened(id="k7f3"),
    StepStarted(run=1, node="reproduce", visit=1, step="compare", step_version=1),
    ProbeStarted(key="a" * 64, run=1, probe=PROBE),
    ProbeFinished(
        key="a" * 64,
        run=1,
        measurement=Measurement(
            results=(SampleResult("real:0", (Score("y", rel_l2=0.41, new_nonfinite=3),)),)
        ),
        seconds=0.4,
    ),
    WorkerDied(
        worker=1, signal=11, key="b" * 64, detail="restarted; the probe counts as unresolved"
    ),
    ProbeFinished(
        key="b" * 64,
        run=1,
        measurement=Measurement(status="crash", message="The engine died.", signal=11),
    ),
    StepFinished(
        run=1,
        node="reproduce",
        outcome={"message": "It fails on 24 of 24 samples."},
        seconds=75,
        probes=4,
        cached=1,
        unresolved=1,
    ),
    QuestionAsked(
        node="reproduce",
        visit=1,
        ask="Does the failure show here?",
        answers=ANSWERS,
        recommended="yes",
        because="24 of 24 samples fail",
    ),
    QuestionAnswered(
        node="reproduce", visit=1, answer="yes", by="person", note="as seen in production"
    ),
    NoteAdded(text="ask the kernel team"),
    SessionClosed(end="found"),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def text(events, out=None, *, asks: bool = False) -> str:
    out = out or io.StringIO()
    display = PlainDisplay(FLOW, out, asks=asks)
    for event in events:
        display.event(event)
    display.close()
    return out.getvalue()


def unfolded(said: str) -> str:
    """The text without where its lines were broken."""
    return " ".join(said.split())


def test_a_log_says_everything() -> None:
    said = text(EVENTS, asks=True)
    for part in (
        "session k7f3", "[1] Does the failure show here?",
        "nodes 0-95 on emulate:precision=fp16: 3 values infinite or NaN",
        "worker 1 was lost and is replaced: restarted", "the engine crashed (signal 11): The engine died.",
        "It fails on 24 of 24 samples.",
        "1 min 15 s, 4 probes, 1 known before, 1 unresolved", "* 1  Yes, it fails", "  2  No", "because: 24 of 24 samples fail",
        "-> Yes, it fails  (your answer)  as seen in production", "ask the kernel team", "You have a minimal failing case",
    ):  # fmt: skip
        assert unfolded(part) in unfolded(said), part
    assert "\x1b" not in said
    assert "\r" not in said


@pytest.mark.parametrize("asks", [True, False])
def test_answers_are_listed_only_where_somebody_is_asked(asks: bool) -> None:
    said = text(EVENTS, asks=asks)
    assert ("1  Yes, it fails" in said) == asks
    assert "Does the failure show here?" in said
    assert "-> Yes, it fails" in said, "what was answered is told either way"


def test_no_line_of_a_log_is_wider_than_a_page() -> None:
    long = "the engine refuses what it was asked, for the reason " * 9
    name = "/model/" + "attention/" * 9
    note = NoteAdded(text=f"{long}{name} {long}")
    lines = text([*EVENTS, note], asks=True).splitlines()
    assert [line.strip() for line in lines if len(line) > PAGE] == [name], "a name stays whole"


def finished(probe: Measure, answer: Measurement) -> str:
    """The line of a probe, in a session of ``emulate`` against ``onnxruntime``."""
    begun = StepStarted(
        run=1, node="a", visit=1, step="reduce", step_version=1,
        engine="emulate:precision=fp16", reference="onnxruntime",
    )  # fmt: skip
    asked = ProbeStarted(key="e", run=1, probe=probe)
    return unfolded(text([begun, asked, ProbeFinished(key="e", run=1, measurement=answer)]))


@pytest.mark.parametrize(
    ("nodes", "status", "expected"),
    [("0-95", "refused", True), ("0-95", "ok", False), ("*", "refused", False)],
)
def test_errors_about_parts_are_marked_as_expected(nodes: str, status: str, expected: bool) -> None:
    probe = msgspec.structs.replace(PROBE, candidate=Candidate(nodes))
    line = finished(probe, Measurement(status=status, message="No such kernel."))
    assert ("expected error" in line) == expected


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("emulate:precision=fp16", "0-95:"),
        ("onnxruntime", "0-95 on the reference:"),
        ("emulate:precision=bf16", "0-95 with precision=bf16:"),
        ("emulate:disabled_optimizers=A,precision=fp16", "0-95, 1 optimizer off:"),
        ("tensorrt", "0-95 on tensorrt:"),
        ("no engine", "0-95 on no engine:"),
    ],
)
def test_a_probe_names_its_engine_where_it_is_another(engine: str, said: str) -> None:
    line = finished(msgspec.structs.replace(PROBE, engine=engine), Measurement())
    assert said in line


def test_a_reason_that_begins_as_the_message_does_goes_on_from_there() -> None:
    message = "24 of 24 samples fail."
    step = StepFinished(run=1, node="reproduce", outcome={"message": message})
    asked = QuestionAsked(
        node="reproduce",
        visit=1,
        ask="Does it?",
        answers=ANSWERS,
        because=f"{message} So it shows.",
    )
    said = text([*EVENTS[:2], step, asked])
    assert said.count(message) == 1
    assert "because: So it shows." in said


def test_inputs_that_do_not_fit_are_refused_by_no_engine() -> None:
    refused = Measurement(status="refused", message="The model has no input 'imag'.")
    events = [
        ProbeStarted(key="c" * 64, run=1, probe=LoadInputs(model="m")),
        ProbeFinished(key="c" * 64, run=1, measurement=refused, seconds=0.4),
    ]
    events.append(StepFinished(run=1, node="a", status="refused", error=refused.message))
    said = text(events)
    assert "    loading the inputs: The model has no input 'imag'\n    cannot run here\n" in said
    assert said.count("has no input") == 1, "it is said once"
    other = StepFinished(run=1, node="a", status="refused", error="Something else.")
    assert "    cannot run here: Something else.\n" in text([*events[:-1], other])


def test_an_extra_check_that_was_left_out_is_said_as_that() -> None:
    said = "An extra check took longer than 60 s and was left out; --timeout gives it more."
    written = text(
        [*EVENTS, WorkerDied(worker=1, returncode=-15, key="b" * 64, detail=said, extra=True)]
    )
    assert said in unfolded(written)


def test_the_first_lines_say_what_runs_against_what() -> None:
    begun = StepStarted(
        run=1, node="reproduce", visit=1, step="compare", step_version=1, engine="tensorrt", reference="onnxruntime",
        engine_info={"version": "10.6", "device": "NVIDIA H200"}, reference_info={"version": "1.23.2", "device": "CPU"},
    )  # fmt: skip
    assert text([EVENTS[0], begun]).splitlines()[:4] == [
        "session k7f3", "tensorrt 10.6 on NVIDIA H200 against onnxruntime 1.23.2 on CPU", "",
        "[1] Does the failure show here?  (step compare)",
    ]  # fmt: skip
    assert text([EVENTS[0], EVENTS[1]]).startswith("session k7f3\n\n[1]"), (
        "where no engine was looked at"
    )


def test_a_step_alone_asks_nothing_and_lists_no_answers() -> None:
    alone = msgspec.structs.replace(FLOW, id="step-compare")
    out = io.StringIO()
    display = PlainDisplay(alone, out)
    for event in EVENTS:
        display.event(event)
    assert "It fails on 24 of 24 samples." in out.getvalue()
    assert not {"Yes, it fails", "recommended", "your answer"} & set(out.getvalue().splitlines())
    assert "Yes, it fails" not in out.getvalue()


def test_a_terminal_keeps_only_the_probes_that_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    said = text(EVENTS, Terminal())
    assert "nodes 0-95" not in said
    assert "The engine died." in said


def test_live_progress_is_rewritten_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    display = PlainDisplay(FLOW, out)
    display.progress(
        {
            "phase": "running",
            "text": "trying nodes 96-143",
            "done": 9,
            "expected": 14,
            "best": 96,
        }
    )
    assert out.getvalue().startswith("\r\x1b[K")
    assert "9 of about 14" in out.getvalue()
    display.event(SessionOpened(id="k7f3", resumed=True))
    assert out.getvalue().endswith("\r\x1b[Kresumed k7f3\n")


def test_progress_in_a_log_is_rare() -> None:
    now = [0.0]
    out = io.StringIO()
    display = PlainDisplay(FLOW, out, every=5.0, clock=lambda: now[0])

    def wait(*seconds: int) -> list[str]:
        out.seek(out.truncate(0))
        for second in range(*seconds):
            now[0] = float(second)
            display.progress({"phase": "running", "text": f"second {second}"})
        return out.getvalue().split()[1::2]

    assert wait(1, 200) == ["5", "65", "125", "185"], "soon, then once a minute"
    display.event(NoteAdded(text="something else"))
    assert wait(200, 211) == ["204"], "what comes after another line is new"


def test_a_terminal_gets_lines_that_break_at_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    name = "/model/layers.0/" + "attention/" * 6
    command = "'narrowdown watch /tmp/some session'"
    note = NoteAdded(
        text=f"the node {name} is kept in FP32 and what comes after it as before: {command} looks at it"
    )
    there, piped = text([note], Terminal()), text([note])
    assert f"\n      {name}\n" in there, "a name is copied whole"
    assert command in there, "and so is a command"
    assert all(len(line) <= 60 for line in there.splitlines() if name not in line)
    assert there.split() == piped.split()


def test_progress_line_without_facts() -> None:
    assert progress_line({}) == ""
    assert progress_line({"phase": "running", "text": "", "done": 0}) == ""
    assert progress_line({"phase": "ask", "text": "x"}) == ""
    assert "smallest that fails: 1 node" in progress_line(
        {"phase": "running", "text": "x", "best": 1}
    )
    assert "stopping" in progress_line({"phase": "running", "text": "x", "stopping": True})


def test_json_is_an_object_a_line() -> None:
    out = io.StringIO()
    display = JsonDisplay(out)
    for event in EVENTS:
        display.event(event)
    display.progress({"text": "a", "done": 1})
    display.progress({"text": "a", "done": 1})
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [row["kind"] for row in rows[:2]] == ["session.opened", "step.started"]
    assert [row["kind"] for row in rows].count("progress") == 1
    assert len(rows) == len(EVENTS) + 1


def foreign(name: str) -> list:
    """Events whose every text is foreign."""
    asked = Measure(
        model=name,
        inputs="i",
        samples=(name,),
        engine=name,
        reference=name,
        candidate=Candidate(name),
    )
    return [
        SessionOpened(id=name),
        StepStarted(
            run=1,
            node=name,
            visit=1,
            step=name,
            step_version=1,
            engine=name,
            engine_info={"device": name},
            reference=name,
            reference_info={"version": name},
        ),
        ProbeStarted(key="d", run=1, probe=asked),
        ProbeFinished(
            key="d",
            run=1,
            measurement=Measurement(results=(SampleResult(name, (Score(name, rel_l2=0.4),)),)),
        ),
        StepCancelled(run=1, node=name, reason=name),
        Rewound(to=1, node=name),
        StepFinished(run=1, node="x", outcome={"message": name}),
        StepFinished(run=1, node="x", status="failed", error=name),
        QuestionAsked(
            node="x", visit=1, ask=name, answers=(Offered("a", name, "b"),), because=name
        ),
        NoteAdded(text=name),
        WorkerDied(worker=1, detail=name),
        SessionClosed(reason=name),
        ProbeFinished(key="c", run=1, measurement=Measurement(status="error", message=name)),
    ]


@settings(deadline=None)
@given(st.text(min_size=1))
def test_nothing_foreign_is_obeyed(name: str) -> None:
    said = text(foreign(f"x{name}"))
    assert "\x1b" not in said
    begun = [sum(line[:1] != " " for line in s.splitlines()) for s in (said, text(foreign("x")))]
    assert begun[0] == begun[1], "a name cannot begin a line"
    assert all(char.isprintable() or char == "\n" or not char.isascii() for char in said)


@pytest.mark.parametrize("profile", ["1e9,2", "x,y", "nan,1"])
def test_a_strangers_profile_of_errors_is_drawn_or_left_out(profile: str) -> None:
    assert "finished in" in text(
        [StepFinished(run=1, node="x", outcome={"message": "m", "profile": profile})]
    )


def test_what_was_found_in_words() -> None:
    assert say_measurement(Measurement()) == "done"


def test_of_many_runs_the_worst_is_told() -> None:
    """A race that showed in one of 300 runs was "no difference", and the search went on with that
    part."""
    right, wrong = (SampleResult("real:0", (Score("y", rel_l2=error),)) for error in (0.0, 0.142))
    assert say_measurement(Measurement(results=(right,))) == "no difference"
    assert (
        say_measurement(Measurement(results=(right,), runs=((wrong,), (right,))))
        == "wrong by 14.2 %"
    )


@pytest.mark.parametrize(
    ("problem", "said"),
    [("shape", "of another shape than the reference's"), ("missing", "missing")],
)
def test_what_has_no_values_to_compare_is_no_output_without_a_difference(
    problem: str, said: str
) -> None:
    beside, bad = Score("y", rel_l2=0.142), Score("z", problem=problem)
    runs = ((SampleResult("real:0", (beside,)),), (SampleResult("real:0", (Score("y"), bad)),))
    assert say_measurement(Measurement(runs=runs, results=runs[0])) == said


def test_nothing_is_said_twice() -> None:
    out = io.StringIO()
    display = PlainDisplay(FLOW, out)
    said = "It fails on 24 of 24 samples."
    asked = QuestionAsked(
        node="reproduce", visit=1, ask="Does it?", answers=ANSWERS, recommended="yes", because=said
    )
    end = SessionClosed(end="found", exit_code=0)
    for event in (
        StepStarted(run=1, node="reproduce", visit=1, step="compare", step_version=1),
        StepFinished(run=1, node="reproduce", outcome={"message": said}),
        asked,
        QuestionAnswered(node="reproduce", visit=1, answer="yes", by="recommended"),
        end,
        SessionOpened(id="k7f3", resumed=True),
        end,
    ):
        display.event(event)
    text = out.getvalue()
    assert text.count(said) == 1, "the reason is the message, which stands right above it"
    assert text.count("You have a minimal failing case") == 1, (
        "taken up again, it had ended already"
    )
    assert "\n\n\n" not in text


def test_why_it_stopped_is_said_by_the_step_alone() -> None:
    why = "The reference failed: an index is out of bounds."
    failed = StepFinished(run=1, node="reproduce", status="refused", error=why)
    assert text([*EVENTS[:2], failed, SessionClosed(reason=why)]).count(why) == 1
    assert text([*EVENTS[:2], failed, SessionClosed(reason="The disk is full.")]).endswith(
        "stopped: The disk is full.\n"
    )


def test_a_step_beyond_its_plan_tells_how_many_runs_it_had() -> None:
    snapshot = {"phase": "running", "text": "x", "best": 148}
    assert "34 of about 40 runs" in progress_line({**snapshot, "done": 34, "expected": 40})
    assert "  120 runs" in progress_line({**snapshot, "done": 120, "expected": -1})


def test_the_build_at_work_says_how_far_it_is() -> None:
    workers = [
        {"text": "building: Timing tactics, 3 of 40", "seconds": 20.0}, {"text": "running", "seconds": 90.0},
        {"text": "building: Timing tactics, 1 of 40", "seconds": 2.0},
    ]  # fmt: skip
    line = progress_line({"phase": "running", "text": "the whole model", "workers": workers})
    assert "building: Timing tactics, 3 of 40" in line
    assert "1 of 40" not in line


def test_the_first_line_says_what_computes_and_what_was_recorded() -> None:
    started = StepStarted(
        run=1, node="n", visit=1, step="compare", step_version=1, engine="emulate", reference="golden:files=/a/out.npz",
        engine_info={"version": "1.2", "device": "a CPU"}, reference_info={"version": "", "device": "recorded"},
    )  # fmt: skip
    assert (
        say_engines(started)
        == "emulate 1.2 on a CPU against recorded outputs (golden:files=/a/out.npz)"
    )
