"""What is said to be left while a step runs: never nothing, never wild; and what is said before it
runs is kept."""

import shutil
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from house import PROBLEM, STEPS, Oracle, walk
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, external_data_helper, helper

from narrowdown.engines.asking import Note, StepContext
from narrowdown.engines.compare.criterion import Criterion, Signature
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph.index import GraphIndex, Node, Tensor
from narrowdown.engines.probe import AnyProbe, Import, Inspect, Measurement, SampleInfo, key
from narrowdown.engines.search.cost import Cost, Kind, Plan, Work
from narrowdown.engines.search.prices import BESIDES, LINE, OTHERWISE
from narrowdown.engines.search.timings import Seen
from narrowdown.engines.steps import registry
from narrowdown.engines.steps.base import StepSpec
from narrowdown.engines.store.content import Store
from narrowdown.engines.views import EngineView
from narrowdown.wizard.runner import estimate as estimating
from narrowdown.wizard.runner import snapshot as snapshots
from narrowdown.wizard.runner.estimate import (
    AS_IT_WENT,
    BEYOND,
    FORETOLD,
    OVERRUN,
    Estimate,
    estimate,
    estimate_rest,
    model_bytes,
    rest_of,
)
from narrowdown.wizard.runner.options import Options
from narrowdown.wizard.runner.sharing import count_faster
from narrowdown.wizard.runner.snapshot import Artist, left_of
from narrowdown.wizard.session.events import NoteAdded, SessionClosed, StepStarted
from narrowdown.wizard.session.growing import Growing
from narrowdown.wizard.session.journal import NAME, read
from narrowdown.wizard.session.state import Known, State
from narrowdown.wizard.tui import scene

FOUND = (Seen("whole", 1, 1, 2.0), Seen("part", 1, 1, 0.5))
PLAN = Plan((Work("whole", 3, rows=1), Work("part", 20, rows=1)))
LOCKED = Findings(
    model="m", inputs="i", samples=(SampleInfo("real:0", "in.npz", rows=8),), sample="real:0/3",
    criterion=Criterion(tolerance=0.01, precision="fp16"), signature=Signature(kind="accuracy", sample="real:0/3"),
)  # fmt: skip


@given(st.integers(0, 400), st.integers(-1, 50), st.floats(0, 1000))
def test_something_is_left_while_a_probe_is_at_work(done: int, said: int, waiting: float) -> None:
    note = Note("", said)
    probes, seconds, least, most = estimate_rest(Estimate(PLAN), FOUND, done, note, waiting)
    assert probes >= 1
    assert seconds > 0 or seconds == -1
    assert -1 == least == most or 0 < least <= most
    if said > 0:
        assert probes == said
    assert estimate_rest(Estimate(), FOUND, done, note, waiting)[0] == (
        -1 if said < 0 else max(1, said)
    )


def test_a_search_that_outlived_its_plan_has_something_to_run() -> None:
    """Resumed after 155 probes of a plan of 23, it does not say that nothing has to run."""
    assert [rest_of(PLAN, known).probes for known in (0, 5, 22, 23, 155)] == [23, 18, 1, 4, 31]
    assert rest_of(Plan(), 0).probes == 0


def test_the_expectation_does_not_jump() -> None:
    """However many more probes than planned a step asks: what it will come to never grows by more
    than a quarter at once."""
    before = PLAN.probes
    for done in range(300):
        total = done + estimate_rest(Estimate(PLAN), FOUND, done, Note(""), 0.0)[0]
        assert before <= total <= 1.25 * before
        before = total


def test_a_step_beyond_its_plan_counts_nothing_down() -> None:
    """23 were planned: from the 24th on the seconds are not known, in every door; the probes go on
    being told."""
    made = Estimate(PLAN, Cost(probes=23))
    told = [estimate_rest(made, FOUND, done, Note(""), 0.0)[:2] for done in (0, 22, 23, 24, 120)]
    assert [seconds > 0 for _, seconds in told] == [True, True, True, False, False]
    assert [seconds for _, seconds in told[3:]] == [-1.0, -1.0]
    assert all(probes >= 1 for probes, _ in told)


def test_a_plan_that_is_passed_is_told_anew_by_what_the_step_took_so_far() -> None:
    """Nine of ten took 0.03 to 1.5 times that still: two ends that never close on an end that
    nobody knows."""
    found = tuple(Seen("part", 1, 1, 0.5) for _ in range(400))
    made, low, high = Estimate(PLAN, Cost(probes=23)), *BEYOND
    for done in (24, 100, 400):
        rest = estimate_rest(made, found[:done], done, Note(""), 2.0)
        spent = done * 0.5 + 2
        assert rest.seconds == -1
        assert (rest.least, rest.most) == pytest.approx(
            (max(0.1, low * spent), high * spent), abs=0.1
        )
    told = estimate_rest(made, found[:100], 100, Note("", 90, more=True), 0.0)
    assert told.seconds == -1
    assert told.least > 90 * 0.5 * FORETOLD[0] * OTHERWISE[0], (
        "what its phase has left is the least"
    )


ASKED = Plan(
    (
        Work("whole", 2, rows=1),
        Work("emulated", 60, rows=1, least=0, most=700),
        Work("whole", 35, rows=1, least=8, most=140),
    )
)


@given(
    st.integers(0, 30),
    st.integers(0, 900),
    st.sampled_from(("whole", "emulated")),
    st.sampled_from((-1, 1, 5, 90)),
    st.booleans(),
)
def test_what_an_emulation_is_asked_uses_up_no_builds(
    builds: int, questions: int, at_work: Kind, said: int, more: bool
) -> None:
    """Hundreds of quick questions come among a few builds: those are left that were planned, less
    those that came."""
    build, question = Seen("whole", 1, 1, 1.0), Seen("emulated", 1, 1, 0.01)
    found = (build, question, *(build,) * builds, *(question,) * questions)
    rest = estimate_rest(
        Estimate(ASKED), found, builds + questions, Note("", said, more=more), 0.0, at_work
    )
    if at_work == "emulated" or said < 0:
        assert rest.most >= 0.6 * (37 - builds), (
            "what it says of the emulation is no number of builds"
        )
        assert rest.probes <= 37 - builds + max(60, said, 1) + questions // OVERRUN + 1
    elif not more:
        assert rest.probes == said, "and the engine's own word is not its"


@pytest.mark.parametrize(
    ("first", "nodes", "came"),
    [(95, 20, 7.8), (108, 20, 8.2), (493, 2, 6.1), (107, 2, 1.6), (14, 2, 1.4), (9.8, 4, 2.6)],
)
def test_a_build_with_nodes_kept_is_told_as_one_number_once_it_is_known_how_many(
    first: float, nodes: int, came: float
) -> None:
    """As it was on TensorRT; what that step asks before takes hundredths of a second."""
    kept = Plan(
        (
            Work("control", 2, rows=1),
            Work("whole", 1, rows=8, timed=True, more=2.5, span=(0.25, 2.2)),
        )
    )
    found = (
        Seen("control", 1, 1, 0.1),
        Seen("whole", 8, 1, first, build_seconds=first, first=True),
    )
    for note, one in ((Note(""), False), (Note("", kept=nodes), True)):
        told = estimate_rest(Estimate(kept), (*found, *found[:1] * 2), 2, note, 0.0)
        assert (told.seconds >= 0) == one
    assert came / 2 <= told.seconds <= 2 * came
    quick = msgspec.structs.replace(kept.works[1], timed=False)
    assert (
        estimate_rest(Estimate(Plan((quick,))), found, 0, Note("", kept=nodes), 0.0).seconds == -1
    )


def test_the_probe_at_work_is_the_one_of_its_kind() -> None:
    """A build may take 7 s longer; of a question to the emulation that takes as long nobody knows
    the end."""
    found = (Seen("whole", 1, 1, 10.0), Seen("emulated", 1, 1, 0.01))
    of_build, of_question = (
        estimate_rest(Estimate(ASKED), found, 0, Note(""), 7.0, kind)
        for kind in ("whole", "emulated")
    )
    assert of_build.most > 0
    assert of_question.most == -1


def test_a_search_that_tells_its_end_counts_down_though_it_is_beyond_its_plan() -> None:
    """What its phase tells is no plan that was used up; what is only the least that may come is."""
    made = Estimate(PLAN, Cost(probes=23))
    assert estimate_rest(made, FOUND, 120, Note("", 6), 0.0)[:2] == (6, 3.0)
    assert estimate_rest(made, FOUND, 120, Note("", 6, more=True), 0.0)[:2] == (24, -1.0)
    assert estimate_rest(made, FOUND, 3, Note("", 6, more=True), 0.0)[0] == 20, (
        "as planned, which is more"
    )
    assert estimate_rest(made, FOUND, 20, Note("", 6, more=True), 0.0)[0] == 6, "at least that many"


def test_a_search_goes_on_as_it_went() -> None:
    """Once it has asked a few its probes are priced by their mean: every fourth runs all samples
    and takes most of the time."""
    plan = Plan(
        (
            Work("whole", 2, rows=9),
            Work("whole", 40, rows=1, times=0.5, least=4, most=90),
            Work("whole", 1, rows=9),
        )
    )
    before = (Seen("whole", 9, 1, 9.0), Seen("whole", 9, 1, 9.0))
    mixed = tuple(Seen("whole", n, 1, float(n)) for n in 5 * (1, 1, 1, 5))
    told = [
        estimate_rest(Estimate(plan), before + mixed[:n], 2 + n, Note("", 21), 0.0)[1]
        for n in (4, 20)
    ]
    assert told[0] == -1, "of four of its own nothing is told"
    assert told[1] == pytest.approx(20 * 2.0 + 9, abs=0.5)
    assert estimate_rest(Estimate(plan), before + mixed, 22, Note(""), 0.0)[1] == -1, (
        "nor where its phase tells no end"
    )


def test_a_search_is_longer_than_planned_by_more_of_what_it_asks() -> None:
    """Its phase tells 40 questions where 4 were planned: 36 more of those, and not what was asked
    before them once more."""
    plan = Plan((Work("watched", 2, rows=1), Work("effect", 4, rows=1, least=1, most=56)))
    found = (Seen("watched", 1, 1, 9.0),) * 2 + (Seen("effect", 1, 1, 0.5),) * 8
    assert estimate_rest(Estimate(plan), found, 10, Note("", 40), 0.0)[:2] == (40, 20.0)
    assert estimate_rest(Estimate(plan), found, 3, Note("", 40), 0.0)[0] == 40
    few = estimate_rest(Estimate(plan), found[:-7], 3, Note("", 8), 0.0)
    assert few.seconds == -1, "one of its own tells no number"
    assert 0 < few.least < 4.0 < few.most, "but between which ends it lies"


@pytest.mark.parametrize("said", [30, 60])
def test_a_search_whose_phase_tells_more_than_was_left_has_no_second_one_to_come(said: int) -> None:
    """It may still take as many as were planned at the most, less those that it took, and not as
    many once more."""
    plan = Plan((Work("whole", 35, rows=1, least=8, most=140),))
    found = (Seen("whole", 1, 1, 1.0),) * 20
    rest = estimate_rest(Estimate(plan), found, 20, Note("", said, more=True), 0.0)
    assert rest.probes == said
    assert rest.most <= (140 - 20) * (AS_IT_WENT[1] + BESIDES)


@pytest.mark.parametrize(("own", "span"), [(8, AS_IT_WENT), (2, AS_IT_WENT), (1, OTHERWISE)])
def test_what_a_phase_foretold_lies_between_ends(own: int, span: tuple[float, float]) -> None:
    plan = Plan((Work("effect", 40, rows=1, least=1, most=90),))
    rest = estimate_rest(Estimate(plan), (Seen("effect", 1, 1, 1.0),) * own, own, Note("", 10), 0.0)
    low, high = (10 * of * times for of, times in zip(span, FORETOLD, strict=True))
    assert (rest.least, rest.most) == pytest.approx((low, high), abs=0.1)
    assert (rest.seconds >= 0) == (own > 1)


def test_what_is_offered_and_what_is_left_stand_in_the_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = Cost(1, 2, 3, 4.0, 5, 10.0, 6.0, 7.0, 8, 9, 11.0)
    state = State(runs=1, seq=7)
    control: Any = SimpleNamespace(
        phase="offer",
        reason="",
        paused=False,
        stopping="",
        controller="",
        control=0,
        tried=lambda: 0,
    )
    work: Any = SimpleNamespace(
        here=None, drive=None, note=Note("x"), estimate=Estimate(Plan(), cost), spec=None, began=0.0
    )
    ledger: Any = SimpleNamespace(state=state)
    pool: Any = SimpleNamespace(snapshot=lambda: ())
    artist = Artist(tmp_path, ledger, pool, control, work, lambda _: 0.0, lambda: "")
    offered = scene.Work(
        **{
            k: v
            for k, v in msgspec.structs.asdict(artist.snapshot()).items()
            if k in scene.Work.__struct_fields__
        }
    )
    assert offered.cost == cost
    drive: Any = SimpleNamespace(
        asked={}, current="", cached=0, waiting=0.0, context=None, unresolved=0
    )
    found = (Seen("effect", 1, 1, 1.0),) * 8
    plan = Plan((Work("effect", 40, rows=1, least=1, most=90),))
    work.drive, work.estimate, work.noted_at, work.note = drive, Estimate(plan), 0, Note("", 10)
    work.experience, control.phase = SimpleNamespace(of=lambda state, ctx: found), "running"
    drive.asked = dict.fromkeys("abcdefgh")
    work.noted_at = 8
    snapshot = artist.snapshot()
    rest = estimate_rest(Estimate(plan), found, 8, Note("", 10), 0.0)
    assert (snapshot.expected, snapshot.eta, snapshot.eta_least, snapshot.eta_most) == (
        18,
        *rest[1:],
    )
    assert 0 < rest.least < rest.seconds < rest.most
    work.spec, ledger.store = object(), None
    seen = Estimate(Plan((Work("effect", 40, told=7.0),)))
    monkeypatch.setattr(snapshots, "look_again", lambda *known: seen)
    work.note = Note("")
    assert artist.snapshot().eta == estimate_rest(seen, found, 8, Note(""), 0.0).seconds > 100
    assert work.estimate is seen
    work.estimate = Estimate(plan, Cost(probes=40, most_probes=90))
    monkeypatch.setattr(snapshots, "look_again", lambda *known: work.estimate)
    monkeypatch.setattr(snapshots, "classify", lambda *known: "emulated")
    kinds = []
    monkeypatch.setattr(
        snapshots, "estimate_rest", lambda *known: kinds.append(known[-1]) or estimate_rest(*known)
    )
    drive.asked, drive.current = {**dict.fromkeys("abcdefgh"), "i": Inspect(engine="emulate")}, "i"
    drive.log = lambda name, probe: ""
    snapshot = artist.snapshot()
    assert (snapshot.planned, snapshot.planned_most) == (40, 90)
    assert kinds == ["emulated"], "what is at work"


def test_what_may_come_beside_the_plan_is_not_told_until_its_phase_tells_its_end() -> None:
    """Where nothing fails, half a minute of looks may follow; once they are asked, their note tells
    them."""
    looks = Work("whole", 0, told=30.0, least=0, most=1, span=(1.0, 1.0))
    made = Estimate(Plan((Work("whole", 1, rows=1), Work("control", 3, rows=1), looks)))
    found = (Seen("whole", 1, 1, 2.0), Seen("control", 1, 1, 0.1)) * 3
    assert estimate_rest(made, found, 2, Note(""), 0.0)[:2] == (2, -1.0)
    assert estimate_rest(made, found, 2, Note("", 2), 0.0)[:2] == (2, 0.2)


def test_runs_to_come_are_priced_by_their_number_and_end_at_their_limit() -> None:
    """The whole model ran once: 300 more runs of that build in three batches."""
    made = Estimate(Plan((Work("whole", 1, rows=4),)))
    found = (Seen("whole", 4, 1, 0.2, 0.1, build_seconds=1.0, reused=True),) * 3
    assert estimate_rest(made, found, 1, Note("", 3, runs=300, limit=60.0), 0.0)[:2] == (
        3,
        pytest.approx(30.0, rel=0.1),
    )
    assert estimate_rest(made, found, 1, Note("", 3, runs=300, limit=20.0), 5.0)[:2] == (3, 15.0)
    built = (msgspec.structs.replace(found[0], seconds=1.5, reused=False),)
    assert estimate_rest(made, built, 1, Note("", 3, runs=300, limit=60.0), 0.0)[:2] == (3, -1.0), (
        "of one build, run once"
    )


def test_what_a_note_told_is_less_with_each_probe() -> None:
    assert [left_of(Note("", 3), since).expected for since in (0, 1, 2, 3, 9)] == [3, 2, 1, 1, 1]
    assert left_of(Note(""), 2).expected == -1


def test_what_is_left_of_a_probe_never_grows_while_it_runs() -> None:
    """Of two that are to come it is the middle of what they may take still; beyond the most of the
    first nothing is told."""
    two = Estimate(Plan((Work("whole", 2, rows=1),)))
    found = (Seen("whole", 1, 1, 10.0),) * 3
    rests = [estimate_rest(two, found, 0, Note(""), float(waiting)) for waiting in range(25)]
    assert (rests[0].seconds, rests[3].seconds) == (20.0, 17.5)
    told = [r.seconds for r in rests if r.seconds >= 0]
    assert all(a >= b > 0 for a, b in pairwise(told))
    ends = [r[2:] for r in rests[:18]]
    assert ends[0] == (12.0, 36.0)
    assert all(
        a >= b for before, after in pairwise(ends) for a, b in zip(before, after, strict=True)
    )
    assert {r[1:] for r in rests[21:]} == {(-1.0, -1.0, -1.0)}, "18 s are the most that are likely"


def test_of_a_probe_at_work_no_number_is_told_once_its_end_may_be_near_or_far() -> None:
    """6 to 18 s of which 3 have passed: what is left is 3 to 15 s, and no number is within a factor
    of two of both."""
    one = Estimate(Plan((Work("whole", 1, rows=1),)))
    found = (Seen("whole", 1, 1, 10.0),) * 3
    assert estimate_rest(one, found, 0, Note(""), 1.0).seconds == pytest.approx(9.0)
    assert estimate_rest(one, found, 0, Note(""), 3.0)[1:] == (-1.0, 3.0, 15.0)


ANSWERS = ("ok", "build-failed", "unsupported", "crash", "timeout")


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(registry.STEPS)),
    st.lists(st.sampled_from(ANSWERS), max_size=6),
    st.booleans(),
)
def test_as_many_probes_come_as_are_told_at_the_least(
    name: str, answers: list[str], looked: bool
) -> None:
    """Whatever an engine answers, refusals too: what is known of it is known, and the rest is
    asked."""
    spec, ctx = registry.STEPS[name], StepContext("emulate", "onnxruntime", LOCKED)
    known = {"emulate": "e", "onnxruntime": "e"} if looked else {}

    def ask() -> Iterator[AnyProbe]:
        """The probes of the step, as these answers let it go on; an answer that it can make nothing
        of ends it."""
        steps, answer, left = spec.run(ctx), None, iter(answers)
        while True:
            try:
                yielded = steps.send(answer)
                answer = None
                if not isinstance(yielded, Note):
                    yield yielded
                    answer = Measurement(status=next(left, "ok"))
            except Exception:
                return

    engines = defaultdict(lambda: "e", known)
    asked = list(dict.fromkeys(key(p, engines) for p in ask()))
    for n in range(len(asked) + 1):
        state = State(
            known=Growing(
                {
                    k: Known.of(Measurement(status=s))
                    for k, s in zip(asked[:n], answers, strict=False)
                }
            )
        )
        cost = estimate(spec, ctx, state, known, Store(Path()), (), 1).cost
        assert cost.least_probes <= len(asked) - len(state.known)


def test_a_step_that_has_looked_at_the_sizes_of_tensors_is_priced_by_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before its first probe a look at each layer is priced beside the whole model, then by the
    bytes that it scores."""
    tensors = (
        Tensor(0, "x", "float32", "input", -1),
        Tensor(1, "y", "float32", "node", 0, bytes=200_000_000),
    )
    index = GraphIndex("m", (Node(0, "n", "Relu", "", (0,), (1,)),), tensors, (0,), (1,))
    spec, ctx = registry.STEPS["layerwise"], StepContext("emulate", "onnxruntime", LOCKED)
    known = {"emulate": "e", "onnxruntime": "o"}
    found = (Seen("control", 1, 1, 0.1), Seen("whole", 1, 1, 0.2), Seen("read", 1, 1, 0.1))
    made = estimate(spec, ctx, State(nodes=1), known, Store(Path()), found, 1)
    assert estimating.look_again(made, spec, ctx, State(nodes=1), Store(Path())) is made, (
        "it has not looked yet"
    )
    before = estimate_rest(made, found, 1, Note(""), 0.0)
    monkeypatch.setattr(estimating, "find_index", lambda state, model: "digest")
    monkeypatch.setattr(estimating, "index_of", lambda root, digest: index)
    seen = estimating.look_again(made, spec, ctx, State(nodes=1), Store(Path()))
    after = estimate_rest(seen, found, 1, Note(""), 0.0)
    assert (seen.blind, seen.cost) == (False, made.cost), "what was said before it ran stays"
    assert after.least > 3.0 > before.least, "200 MB take three seconds to score"
    assert after.most / after.least < before.most / before.least


def test_a_probe_that_may_come_is_told_once_its_phase_tells_that_it_does() -> None:
    """Cleaning up makes another model of about half; whether it does is known once it is
    through."""
    plan = Plan((Work("read"), Work("whole", 1, rows=1, least=0, most=1)))
    found = (Seen("read", 1, 1, 0.1), Seen("whole", 1, 1, 9.0))
    before, after = (
        estimate_rest(Estimate(plan), found, done, note, 0.0)
        for done, note in ((0, Note("")), (1, Note("", 1)))
    )
    assert (before.seconds, after.seconds) == (-1.0, pytest.approx(9.0, rel=0.1))
    assert before.least < 1.0 < after.least


@pytest.mark.parametrize(("least", "most", "one"), [(0.7, 1.5, True), (0.5, 1.8, False)])
def test_while_more_may_be_found_a_number_is_told_only_where_its_ends_are_three_times_apart(
    least: float, most: float, one: bool
) -> None:
    found = (Seen("effect", 1, 1, 1.0),) * 4
    for work, told in (
        (Work("effect", 9, rows=1), True),
        (Work("effect", 9, rows=1, least=9, most=9), one),
    ):
        plan = Plan((msgspec.structs.replace(work, span=(least, most)),))
        rest = estimate_rest(Estimate(plan), found, 0, Note(""), 0.0)
        assert (rest.seconds >= 0) == told


def test_where_another_phase_may_follow_no_number_is_told() -> None:
    found = (Seen("effect", 1, 1, 0.5),) * 8
    made = Estimate(Plan((Work("effect", 20, rows=1),)))
    assert estimate_rest(made, found, 8, Note("", 12), 0.0).seconds == pytest.approx(6.0)
    assert estimate_rest(made, found, 8, Note("", 12, more=True), 0.0).seconds == -1


def started(folder: Path) -> list[StepStarted]:
    return [e for e in read(folder / NAME) if isinstance(e, StepStarted)]


def test_what_was_expected_stands_in_the_journal(tmp_path: Path) -> None:
    assert walk(tmp_path, Oracle()) == 0
    expected = {e.node: e.expected for e in started(tmp_path)}
    assert expected["first"].seconds == -1, "nothing has been measured yet"
    assert expected["second"].probes == 11, "of the twelve, one answer is known from the first step"
    assert expected["second"].seconds >= 0, "now there is something to go by"


def test_what_is_known_already_costs_nothing(tmp_path: Path) -> None:
    """Back at the start of a step that came to its end, every answer is known."""
    assert walk(tmp_path, Oracle()) == 0
    second = next(e for e in started(tmp_path) if e.node == "second")
    oracle = Oracle()
    again = Options(detach=True, first=[{"do": "rewind", "to": second.seq}])
    assert walk(tmp_path, oracle, again) == 0
    assert started(tmp_path)[-1].expected == Cost(0, 0, 0, 0.0, 0, least=0.0, most=0.0)
    assert all(isinstance(probe, Inspect) for probe in oracle.ran)


def with_plan(plan: Plan) -> dict[str, StepSpec[Any]]:
    """The steps of the house, the second one with this plan."""
    return {
        **STEPS,
        "search": msgspec.structs.replace(STEPS["search"], plan=lambda ctx, size: plan),
    }


def on_a_disk(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))


LARGE = Plan((Work("part", 12),), disk=5 << 20)


def test_a_step_that_may_not_fit_on_the_disk_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_disk(monkeypatch, 1 << 20)
    assert walk(tmp_path, Oracle(), steps=with_plan(LARGE)) == 4
    assert [e.node for e in started(tmp_path)] == ["first"]
    reason = next(e.reason for e in reversed(read(tmp_path / NAME)) if isinstance(e, SessionClosed))
    assert reason.startswith(
        f"The step 'search' may write up to 5.1 MiB, and the disk of {tmp_path} has 1.0 MiB free. Make room there and resume"
    )
    assert "--no-disk-check" in reason
    on_a_disk(monkeypatch, 1 << 30)
    oracle = Oracle()
    assert walk(tmp_path, oracle, steps=with_plan(LARGE)) == 0, "it goes on where it stopped"
    assert not any(isinstance(probe, Import) for probe in oracle.ran), "nothing is measured twice"


def test_a_step_begins_on_any_disk_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_disk(monkeypatch, 100)
    assert (
        walk(tmp_path, Oracle(), Options(detach=True, any_room=True), steps=with_plan(LARGE)) == 0
    )
    said = [e for e in read(tmp_path / NAME) if isinstance(e, NoteAdded) and e.node == "second"]
    assert len(said) == 1
    assert "has 100 bytes free" in said[0].text


def test_captured_values_that_do_not_fit_stop_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_disk(monkeypatch, 1 << 20)
    plan = msgspec.structs.replace(LARGE, captured=LARGE.disk)
    assert walk(tmp_path, Oracle(), steps=with_plan(plan)) == 0
    said = next(e for e in read(tmp_path / NAME) if isinstance(e, NoteAdded) and e.node == "second")
    assert "Captured values that find no room are made again" in said.text
    assert said.seq < next(e.seq for e in started(tmp_path) if e.node == "second")


def test_no_more_captured_values_are_expected_than_their_budget_has_room_for(
    tmp_path: Path,
) -> None:
    problem = msgspec.structs.replace(PROBLEM, capture_bytes=1 << 20)
    plan = Plan((Work("part", 12),), disk=9 << 30, captured=(9 << 30) - 7)
    assert walk(tmp_path, Oracle(), problem=problem, steps=with_plan(plan)) == 0
    expected = next(e.expected for e in started(tmp_path) if e.node == "second")
    assert expected.disk == (1 << 20) + 7 + 11 * LINE, "of the twelve probes one is known"


@pytest.mark.parametrize("long", [1, 60, 200])
def test_a_model_is_as_large_as_it_and_the_weights_files_that_it_names(
    tmp_path: Path, long: int
) -> None:
    """Each file counts once, however many weights lie in it; one that is gone counts nothing."""
    graph = helper.make_graph([], "g", [], [])
    for number, name in enumerate(("w" * long, "w" * long, "v", "gone")):
        tensor = TensorProto(
            name=f"t{number}", data_type=TensorProto.FLOAT, dims=[4], raw_data=bytes(16)
        )
        external_data_helper.set_external_data(tensor, name, offset=16 * number, length=16)
        tensor.ClearField("raw_data")
        graph.initializer.append(tensor)
    (tmp_path / ("w" * long)).write_bytes(bytes(1_000))
    (tmp_path / "v").write_bytes(bytes(70))
    data = helper.make_model(graph).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data)
    assert model_bytes(tmp_path / "m.onnx") == len(data) + 1_070
    assert model_bytes(tmp_path / "v") == 70
    assert model_bytes(tmp_path / "none.onnx") == model_bytes(tmp_path) == -1


SETTLED = Plan(
    (
        Work("part", 2, rows=1, timed=True), Work("effect", 1, rows=1, timed=True, times=0.1),
        Work("part", 7, rows=1, timed=True, times=0.45), Work("part", 3, rows=1, timed=True, afresh=True),
    )
)  # fmt: skip


@pytest.mark.parametrize(
    "took",
    [
        (1.55, 0.0, 1.67, 1.67, 0.07, 0.07, 0.07, 1.52, 1.62, 1.51),
        (5.58, 2.31, 0.0, 2.42, 1.92, 2.47, 0.82, 0.9, 0.81, 2.13, 2.02, 1.91),
        (0.38, 0.61, 0.01, 0.6, 0.76, 0.06, 0.11, 1.23, 1.01, 1.21),
        (2.08, 0.17, 1.81, 2.16, 2.1, 0.08, 0.08, 0.08, 2.37, 2.26, 1.82),
    ],
)
def test_a_case_is_told_as_one_number_once_its_part_was_built_where_kernels_are_timed(
    took: tuple[float, ...],
) -> None:
    """As it was on TensorRT: two-ways, sort, wake and basic_pitch. What its part takes tells what
    follows, parts that an earlier step has built do not."""
    before = (*(Seen("effect", 1, 1, 0.14, build_seconds=0.14) for _ in range(8)),)
    found = (*before, *(Seen("part", 1, 1, s, build_seconds=s, reused=s < 0.05) for s in took))
    told = [estimate_rest(Estimate(SETTLED), found[: 8 + n], n, Note(""), 0.0) for n in range(3)]
    assert [t.seconds >= 0 for t in told] == [False, False, True]
    assert sum(took[2:]) / 2 <= told[2].seconds <= 2 * sum(took[2:])
    done = (*before, *(Seen("part", 1, 1, 0.1, build_seconds=0.1) for _ in range(2)))
    assert estimate_rest(Estimate(SETTLED), done, 2, Note(""), 0.0).seconds == -1, (
        "their timings were done"
    )
    search = Plan((Work("effect", 4, rows=1, timed=True, least=1, most=8), *SETTLED.works))
    assert estimate_rest(Estimate(search), found[:10], 2, Note(""), 0.0).seconds == -1, (
        "what it ends with is not known yet"
    )


@pytest.mark.parametrize(("gpus", "takes", "faster"), [(1, 1, 1), (2, 1, 2), (8, 1, 4), (1, 0, 4)])
def test_builds_that_share_a_gpu_make_no_search_faster(gpus: int, takes: int, faster: int) -> None:
    assert count_faster(4, gpus, EngineView(gpus=takes)) == faster
