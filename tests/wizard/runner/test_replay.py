"""Replay: the journal alone leads to the same decisions; decisive probes measured again tell fixed
from still failing."""

import json
from pathlib import Path

import msgspec
import pytest
from house import CONFIRMING, PROBLEM, STEPS, LookOutcome, Oracle as Search, Params, measure, walk

from narrowdown.engines.asking import StepContext
from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.findings import Case, Culprit, Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Candidate, Inspect, Measure, Measurement, SampleResult, Score
from narrowdown.engines.steps.base import Finish, Steps, StepSpec
from narrowdown.engines.store import Store, digest_file
from narrowdown.wizard import BY_VERDICT, Exit
from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.runner import replay
from narrowdown.wizard.runner.client import Client
from narrowdown.wizard.runner.limits import TIMEOUT_FACTOR
from narrowdown.wizard.runner.replay import Wanted, dry, real, recording, search
from narrowdown.wizard.runner.table import Replay
from narrowdown.wizard.session import SessionProblem, events as e, folder as folders
from narrowdown.wizard.session.journal import NAME, Journal, read
from narrowdown.wizard.session.state import State

# -- dry: over the searching world of the other tests -------------------------------------------------------------------

DOUBLE = """
schema: 1
id: test
title: t
start: first
params: {repeats: 3}
nodes:
  first:
    title: look
    explain: looks
    ask: look?
    step: {use: look}
    answers:
      "yes": {text: "Yes", goto: second, when: {verdict: fails}, because: "{{ message }}"}
      "no": {text: "No", goto: gone}
  second:
    title: search
    explain: searches
    ask: search?
    step: {use: search}
    answers:
      "yes": {text: "Yes", goto: found, when: {verdict: reduced}}
      "no": {text: "No", goto: gone}
ends:
  gone: {title: Gone, explain: g, verdict: not-reproduced}
  found: {title: Found, explain: f, verdict: minimal-case}
"""


@pytest.fixture
def searched(tmp_path) -> Path:
    from narrowdown.wizard.flow.load import parse

    place = folders.create(PROBLEM, DOUBLE, folder=tmp_path / "s")
    assert walk(place, Search(), flow=parse(DOUBLE).flow) == 0
    return place


def test_a_dry_replay_of_what_happened_is_the_same(searched):
    before = (searched / NAME).read_bytes()
    found = dry(searched, steps=STEPS)
    assert {row.outcome for row in found.rows} == {"same"}
    assert [(r.node, r.role) for r in found.rows] == [
        ("first", "step look"), ("first", "question"), ("second", "step search"), ("second", "question"),
    ]  # fmt: skip
    assert found.exit_code("same") == Exit.FOUND
    assert (searched / NAME).read_bytes() == before


def rewritten(place: Path, change) -> None:
    """The session again with each event changed, numbered anew."""
    events = [new for event in read(place / NAME) if (new := change(event)) is not None]
    (place / NAME).unlink()
    journal = Journal(place / NAME)
    for event in events:
        journal.append(event)
    journal.close()


def test_a_missing_measurement_is_a_difference(searched):
    keys = [event.key for event in read(searched / NAME) if isinstance(event, e.ProbeFinished)]
    rewritten(searched, lambda event: None if getattr(event, "key", "") == keys[-2] else event)
    found = dry(searched, steps=STEPS)
    assert found.rows[-1].outcome == "differs"
    assert "journal does not hold" in found.rows[-1].now
    assert found.exit_code() == Exit.DIFFERS


def test_a_changed_measurement_is_a_difference(searched):
    def lie(event):
        m = getattr(event, "measurement", None)
        if m is not None and m.facts.get("bad") and event.run == 2:
            return msgspec.structs.replace(event, measurement=Measurement(facts={"bad": False}))
        return event

    rewritten(searched, lie)
    assert dry(searched, steps=STEPS).verdict == "differs"


def test_another_decision_is_a_difference_and_stops_unless_told(searched):
    def other(event):
        if isinstance(event, e.QuestionAsked) and event.node == "first":
            return msgspec.structs.replace(event, recommended="no")
        return event

    rewritten(searched, other)
    assert [r.outcome for r in dry(searched, steps=STEPS).rows] == ["same", "differs"]
    assert [r.outcome for r in dry(searched, steps=STEPS, keep_going=True).rows] == [
        "same",
        "differs",
        "same",
        "same",
    ]


def test_another_version_of_a_step_is_said(searched):
    newer = {**STEPS, "search": msgspec.structs.replace(STEPS["search"], version=2)}
    found = dry(searched, steps=newer)
    assert found.rows[2].detail == "version 1 of the step recorded, 2 now"
    assert found.exit_code() == Exit.FOUND


@pytest.mark.parametrize(("version", "outcome"), [(1, "differs"), (2, "same")])
def test_what_an_earlier_version_did_not_say_yet_is_no_difference(searched, version, outcome):
    def shorter(event):
        if isinstance(event, e.StepFinished) and event.node == "first":
            return msgspec.structs.replace(
                event, outcome={k: v for k, v in event.outcome.items() if k != "nodes"}
            )
        return event

    rewritten(searched, shorter)
    steps = {**STEPS, "look": msgspec.structs.replace(STEPS["look"], version=version)}
    assert dry(searched, steps=steps).rows[0].outcome == outcome


@pytest.mark.parametrize(("field", "outcome"), [("message", "same"), ("bad", "differs")])
def test_other_words_for_the_same_outcome_are_no_difference(searched, field, outcome):
    def reworded(event):
        if isinstance(event, e.StepFinished) and event.node == "first":
            return msgspec.structs.replace(
                event, outcome={**event.outcome, field: "in other words"}
            )
        return event

    rewritten(searched, reworded)
    assert dry(searched, steps=STEPS).rows[0].outcome == outcome


def test_a_file_that_is_gone_is_named_and_is_no_difference(searched, monkeypatch):
    """As the index of a graph, which a step goes by: "differs" was said of what nobody could look
    at."""
    lost = Store(searched).path("ab" * 32)
    monkeypatch.setattr(replay, "replayed", lambda *_: lost.read_bytes())
    found = dry(searched, steps=STEPS)
    assert (found.verdict, found.exit_code()) == ("cannot tell", Exit.UNRESOLVED)
    assert found.rows[0].now == "a file is gone"
    assert f"artifacts/ab/{'ab' * 32}." in found.rows[0].detail
    assert "without --dry" in found.rows[0].detail


def test_an_engine_that_is_none_here_is_named_and_is_no_difference(searched, monkeypatch):
    def unknown(name):
        raise ValueError(f"There is no engine '{name}'.")

    monkeypatch.setattr(replay.options, "declared_as", unknown)
    row = dry(searched, steps=STEPS).rows[0]
    assert (row.outcome, row.detail) == ("cannot tell", "There is no engine 'fake'.")


def test_a_step_that_fell_over_or_is_gone_is_a_difference(searched):
    assert (
        dry(searched, steps={"look": STEPS["look"]}, keep_going=True).rows[2].outcome == "differs"
    )


# -- real: a world with scores ------------------------------------------------------------------------------------------


def m(error: float, *, name: str = "y", nonfinite: int = 0) -> Measurement:
    score = Score(name=name, rel_l2=error, max_abs=error, new_nonfinite=nonfinite)
    return Measurement(results=(SampleResult("real:0", outputs=(score,), effect=(score,)),))


CASE = Case(
    candidate=Candidate(nodes="3-4"), sample="real:0", verified="5/5", good=Candidate(nodes="3")
)
FINDINGS = Findings(
    model="m",
    criterion=Criterion(tolerance=0.01),
    signature=Signature(kind="accuracy", sample="real:0", outputs=("y",), errors={"y": 0.5}),
    case=CASE,
    culprits=(Culprit(case=CASE, cause="overflow"),),
)


def confirm(ctx: StepContext) -> Steps[LookOutcome]:
    whole = msgspec.structs.replace(measure(()), candidate=Candidate())
    found = yield whole
    case, good = measure((3, 4)), measure((3,))
    yield case
    yield good
    fixed = msgspec.structs.replace(whole, engine="fake:off=a,precision=fp16")
    yield msgspec.structs.replace(
        fixed, save="workaround", attempt=3
    )  # its files are kept: the same question in another manner
    assert found.status == "ok"
    return Finish(
        LookOutcome(verdict="fails"),
        FINDINGS,
        decisive={"whole": (whole,), "case": (case,), "good": (good,), "workaround": (fixed,)},
    )


CONFIRM = StepSpec(
    name="confirm", version=1, summary="", run=confirm, outcome=LookOutcome, params=Params
)


class Engine:
    """A pool whose engine is wrong about the whole model and about nodes 3 and 4 together, unless
    its optimizer is off."""

    def __init__(self, **how) -> None:
        self.how = how
        self.ran: list = []
        self.limits: list = []  # (probe, seconds that it was given)

    async def start(self) -> None:
        pass

    async def run(self, probe, timeout: float = 0.0, log: str = "") -> Measurement:
        self.ran.append(probe)
        self.limits.append((probe, timeout))
        if isinstance(probe, Inspect):
            if self.how.get("missing") == probe.engine:
                return Measurement(status="unsupported", message="It is not installed here.")
            version = self.how.get("version", "1.0")
            return Measurement(
                facts={"fingerprint": f"e-{version}", "version": version, "device": "d"}
            )
        assert isinstance(probe, Measure)
        if self.how.get("status"):
            return Measurement(status=self.how["status"], message="signal 11", signal=11)
        nodes = (
            set(range(9))
            if probe.candidate.nodes == "*"
            else set(ranges.decode(probe.candidate.nodes))
        )
        lucky = self.how.get("every", 1) > 1 and probe.attempt % self.how["every"]
        if not {3, 4} <= nodes or "off=" in probe.engine or self.how.get("fixed") or lucky:
            return m(0.0001)
        return m(self.how.get("error", 0.5), nonfinite=self.how.get("nonfinite", 0))

    async def stop(self, hard: bool = False) -> None:
        pass

    def snapshot(self) -> list:
        return []


@pytest.fixture
def confirmed(tmp_path) -> Path:
    place = folders.create(
        PROBLEM, json.dumps(msgspec.to_builtins(CONFIRMING)), folder=tmp_path / "s"
    )
    assert walk(place, Engine(), flow=CONFIRMING, steps={"confirm": CONFIRM}) == 0
    return place


def again(place: Path, expect="same", engine: str = "", **how) -> Replay:
    keep = how.pop("keep_going", True)
    return real(place, Wanted(engine, expect, keep), make_pool=lambda _: Engine(**how))


def outcomes(found: Replay) -> list[str]:
    return [row.outcome for row in found.rows]


def test_the_same_engine_still_fails(confirmed):
    before = sorted(p.name for p in confirmed.rglob("*"))
    journal = (confirmed / NAME).read_bytes()
    found = again(confirmed)
    assert outcomes(found) == ["still fails", "still fails", "still passes", "still passes"]
    assert [r.recorded for r in found.rows] == [
        "fails (50 %)",
        "fails (50 %)",
        "passes (0.01 %)",
        "passes (0.01 %)",
    ]
    assert found.verdict == "still fails"
    assert [found.exit_code(x) for x in ("same", "fixed", "fails")] == [0, Exit.DIFFERS, 0]
    assert sorted(p.name for p in confirmed.rglob("*")) == before
    assert (confirmed / NAME).read_bytes() == journal


def test_numbers_that_only_words_are_made_of_decide_nothing():
    """An earlier version's journal has not in how many places whole numbers were wrong."""
    before = Findings(signature=Signature(kind="accuracy", sample="real:0", errors={"y": 1.0}))
    told = msgspec.structs.replace(before.signature, places=(1, 168))
    now = msgspec.structs.replace(before, signature=told)
    assert replay._decided(replay._plain(before)) == replay._decided(replay._plain(now))
    other = msgspec.structs.replace(now, signature=msgspec.structs.replace(told, sample="real:1"))
    assert replay._decided(replay._plain(other)) != replay._decided(replay._plain(now))


def test_a_mended_engine_is_fixed(confirmed):
    found = again(confirmed, fixed=True)
    assert outcomes(found) == ["fixed", "fixed", "still passes", "still passes"]
    assert [found.exit_code(x) for x in ("same", "fixed", "fails")] == [
        Exit.DIFFERS,
        0,
        Exit.DIFFERS,
    ]
    assert found.verdict == "fixed"


def test_another_failure_is_told_apart(confirmed):
    found = again(confirmed, nonfinite=3)
    assert outcomes(found)[:2] == ["fails differently", "fails differently"]
    assert "not finite" in found.rows[0].now
    assert [found.exit_code(x) for x in ("same", "fixed", "fails")] == [
        Exit.DIFFERS,
        Exit.DIFFERS,
        0,
    ]


def test_a_crash_cannot_tell(confirmed):
    found = again(confirmed, status="crash")
    assert set(outcomes(found)) == {"cannot tell"}
    assert found.exit_code() == Exit.UNRESOLVED


def test_it_stops_at_the_first_difference_unless_told(confirmed):
    assert len(again(confirmed, fixed=True, keep_going=False).rows) == 1
    assert len(again(confirmed, "fixed", fixed=True, keep_going=False).rows) == 4


def test_another_engine_takes_the_recorded_ones_place(confirmed):
    engine = Engine(fixed=True)
    found = real(
        confirmed, Wanted("fake:off=b,precision=fp16", "fixed"), make_pool=lambda _: engine
    )
    assert found.exit_code("fixed") == 0
    assert {p.engine for p in engine.ran if isinstance(p, Measure)} == {
        "fake:off=b,precision=fp16",
        "fake:off=b+a,precision=fp16",
    }
    other = Engine(fixed=True)
    found = real(confirmed, Wanted("better", "fixed"), make_pool=lambda _: other)
    assert outcomes(found)[-1] == "not possible"
    assert found.exit_code("fixed") == 0


def test_it_says_which_engines_recorded_and_which_measured(confirmed):
    found = again(confirmed, version="2.0")
    engine, reference = found.engines
    assert (engine.role, engine.recorded.version, engine.now.version) == ("engine", "1.0", "2.0")
    assert str(engine) == "fake:precision=fp16 1.0 recorded, 2.0 now"
    assert (reference.role, reference.recorded.spec) == ("reference", "reference")
    assert str(again(confirmed).engines[0]) == "fake:precision=fp16 1.0 recorded and now"
    assert (
        str(dry(confirmed, steps={"confirm": CONFIRM}).engines[0])
        == "fake:precision=fp16 1.0 recorded"
    )
    swapped = real(
        confirmed, Wanted("better", keep_going=True), make_pool=lambda _: Engine(version="9")
    )
    assert str(swapped.engines[0]) == "fake:precision=fp16 1.0 recorded, better 9 now"


def test_a_steady_fault_takes_one_look_at_each_question(confirmed):
    engine = Engine()
    found = real(confirmed, make_pool=lambda _: engine)
    assert [(row.failures, row.looks) for row in found.rows] == [(1, 1), (1, 1), (0, 1), (0, 1)]
    assert sum(isinstance(p, Measure) for p in engine.ran) == 4


def test_a_slow_model_has_as_long_as_when_it_was_recorded(confirmed):
    """It had the limit of a step's first probe, whatever the model took afterwards."""

    def slower(event):
        slow = isinstance(event, e.ProbeFinished) and event.run
        return msgspec.structs.replace(event, seconds=400.0) if slow else event

    rewritten(confirmed, slower)
    now = Engine()
    real(confirmed, make_pool=lambda _: now)
    given = [
        limit for probe, limit in now.limits if isinstance(probe, Measure) and not probe.timeout
    ]
    assert given
    assert min(given) >= TIMEOUT_FACTOR * 400


def test_a_missing_engine_is_a_sentence(confirmed):
    with pytest.raises(SessionProblem, match="not installed") as told:
        again(confirmed, missing="reference")
    assert "--dry" in str(told.value)
    assert "--engine" not in str(told.value), "the reference stays the recorded one"
    with pytest.raises(
        SessionProblem, match=r"not installed here\. Or use one that is here \(--engine NAME"
    ) as told:
        again(confirmed, missing=folders.describe(confirmed).problem.engine)
    assert "--dry" in str(told.value)


def test_a_session_without_measurements_is_a_sentence(tmp_path):
    place = folders.create(
        PROBLEM, json.dumps(msgspec.to_builtins(CONFIRMING)), folder=tmp_path / "empty"
    )
    with pytest.raises(SessionProblem, match="no finished"):
        again(place)


def test_a_lost_table_falls_back_to_the_journal(confirmed):
    for visit in folders.load(confirmed).route:
        Store(confirmed).path(visit.tables["decisive"]).unlink()
    # The workaround's own probe was never asked in that very form, so only its key is known.
    assert sorted(row.role for row in again(confirmed).rows) == ["case", "good", "whole"]


# -- the real thing -----------------------------------------------------------------------------------------------------

REAL_FLOW = """
schema: 1
id: short
title: compare and confirm
start: reproduce
nodes:
  reproduce:
    title: reproduce
    explain: compares
    ask: fails?
    step: {use: compare}
    answers:
      "yes": {text: "Yes", goto: minimal-case, when: {verdict: fails}}
      "no": {text: "No", goto: gone}
  minimal-case:
    title: reduce
    explain: reduces
    ask: reduced?
    step: {use: reduce}
    answers:
      "yes": {text: "Yes", goto: found, when: {verdict: reduced}}
      "no": {text: "No", goto: gone}
ends:
  gone: {title: Gone, explain: g, verdict: not-reproduced}
  found: {title: Found, explain: f, verdict: minimal-case}
"""


@pytest.mark.slow
def test_all_three_ways_on_a_real_model(tmp_path):
    model, inputs = (MODELS / "shapes_cnn.onnx").resolve(), (MODELS / "shapes_cnn_in.npz").resolve()
    problem = Problem(model=str(model), inputs=(str(inputs),), tolerance={"": 1e-3},
                      digests={str(p): digest_file(p) for p in (model, inputs)})  # fmt: skip
    place = folders.create(problem, REAL_FLOW, folder=tmp_path / "s")
    client = Client.start(place)
    assert client.wait(200) == 0
    client.close()
    assert folders.load(place).route[1].outcome["nodes_after"] == 2
    assert dry(place).exit_code() == Exit.FOUND
    assert real(place).exit_code() == Exit.FOUND
    off = "onnxruntime:optimization=all,disabled_optimizers=Pad_Fusion"
    assert real(place, Wanted(off, "fixed")).exit_code("fixed") == Exit.FOUND
    assert real(place, Wanted(off)).exit_code() == Exit.DIFFERS
    assert search(place).exit_code() == Exit.FOUND
    assert search(place, Wanted(off)).exit_code() == Exit.DIFFERS


def test_a_search_that_came_to_any_end_was_not_stopped(confirmed):
    seen = recording(confirmed).state
    for code in sorted(set(BY_VERDICT.values())):
        ended = State(closed=e.SessionClosed(end="end", exit_code=code))
        assert list(replay._questions(seen, ended, "")) == []
    for code in (Exit.BAD_USAGE, Exit.NEEDS_PERSON, Exit.MISSING, Exit.OUR_FAULT, Exit.STOPPED):
        stopped = State(closed=e.SessionClosed(exit_code=code))
        (row,) = replay._questions(seen, stopped, "why")
        assert (row.now, row.outcome, row.detail) == ("stopped", "cannot tell", "why"), code


def test_search_needs_the_model(tmp_path):
    gone = msgspec.structs.replace(PROBLEM, model=str(tmp_path / "gone.onnx"))
    place = folders.create(gone, load("accuracy").text, folder=tmp_path / "s")
    Journal(place / NAME).close()
    with pytest.raises(SessionProblem, match="not here any more"):
        search(place)
