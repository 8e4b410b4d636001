"""The walk: the same decisions whatever is killed, however many jobs, in whatever order probes
finish."""

import asyncio
import errno
from pathlib import Path

import msgspec
import pytest
from house import (
    ENGINE,
    PROBLEM,
    REFERENCE,
    STEPS,
    LookOutcome,
    Oracle,
    decisions,
    finished,
    flow,
    measure,
    runner,
    spec,
    state,
    walk,
)
from hypothesis import HealthCheck, given, settings, strategies as st

from narrowdown.engines import installed
from narrowdown.engines.asking import StepRefused
from narrowdown.engines.probe import (
    Candidate,
    Check,
    Import,
    Inspect,
    LoadInputs,
    Measure,
    Measurement,
)
from narrowdown.engines.steps.base import Finish
from narrowdown.engines.workers.executor import Slot
from narrowdown.wizard.runner import limits, progress, stepping, walk as walks
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.session import events as e
from narrowdown.wizard.session.journal import NAME, Journal, read
from narrowdown.wizard.session.state import State, _learn_from, fold

SLOW = settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def script(**answers: str | list[str]) -> Options:
    return Options(policy="script", answers=answers, detach=True)


FOREIGN = msgspec.structs.replace(flow(), nodes={"first": flow().nodes["first"]})
TWICE = {"third": ["again", "stop"]}


def kinds(folder: Path) -> list[str]:
    return [str(event.__struct_config__.tag) for event in read(folder / NAME)]


def test_a_walk_from_start_to_end(tmp_path):
    assert walk(tmp_path, Oracle()) == 0
    found = state(tmp_path)
    assert [(v.node, v.answer, v.by) for v in found.route] == [
        ("first", "yes", "recommended"), ("second", "yes", "recommended"), ("third", "stop", "recommended"),
    ]  # fmt: skip
    assert found.end == "found"
    assert found.route[1].outcome["left"] == "5,12"
    assert found.findings.notes == ("looked", "5,12")
    assert found.route[0].question.answers[0].text == "Yes, 32"
    assert found.route[0].question.because == "3 bad"
    assert kinds(tmp_path)[0] == "session.opened"
    assert kinds(tmp_path)[-1] == "session.closed"
    assert progress.read(tmp_path)["phase"] == "ended"


def test_settings_and_unresolved_counts_reach_the_next_visit(tmp_path):
    options = script(**TWICE)
    assert walk(tmp_path, Oracle(), options) == 0
    second = state(tmp_path).route[3]
    assert (second.node, second.visit) == ("second", 2)
    assert second.outcome["left"] == "5,12"
    assert "{}" in second.outcome["settings"]
    assert state(tmp_path).route[2].settings == {"size": 16}


@given(st.data())
@SLOW
def test_killed_anywhere_and_resumed_it_decides_the_same_and_measures_nothing_twice(
    tmp_path_factory, data
):
    straight, broken = tmp_path_factory.mktemp("a"), tmp_path_factory.mktemp("b")
    assert walk(straight, Oracle(), script(**TWICE)) == 0
    code, deaths = None, 0
    while code is None:
        lives = data.draw(st.integers(0, 60))
        jobs = data.draw(st.sampled_from([1, 2, 4]))
        options = Options(policy="script", answers=TWICE, detach=True, jobs=jobs)
        code = walk(broken, Oracle(seed=deaths), options, lives=lives if deaths < 6 else 10**9)
        tear = data.draw(st.integers(0, 3))
        if code is None and tear:
            with (broken / NAME).open("ab") as file:
                file.write(b'{"v":1,"seq":'[: tear * 4])
        deaths += 1
    assert code == 0
    assert decisions(state(broken)) == decisions(state(straight))
    assert len(finished(broken)) == len(set(finished(broken)))


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), culprits=st.sets(st.integers(0, 31), min_size=1, max_size=3))
@SLOW
def test_any_number_of_jobs_decides_the_same(tmp_path_factory, seed, culprits):
    found, probes = [], []
    for jobs in (1, 2, 4):
        folder = tmp_path_factory.mktemp(f"jobs{jobs}")
        oracle = Oracle(tuple(culprits), seed, wait=9)
        assert walk(folder, oracle, Options(jobs=jobs, detach=True)) == 0
        assert oracle.most <= jobs
        found.append(decisions(state(folder)))
        probes.append(set(finished(folder)))
    assert found[0] == found[1] == found[2]
    assert probes[0] <= probes[1], "running ahead adds probes and leaves none out"
    assert probes[0] <= probes[2]


def test_running_ahead_uses_the_slots_and_says_so(tmp_path):
    oracle = Oracle(wait=9)
    assert walk(tmp_path, oracle, Options(jobs=4, detach=True)) == 0
    assert oracle.most == 4
    visit = state(tmp_path).route[1]
    assert visit.speculative > 0
    started = [ev for ev in read(tmp_path / NAME) if isinstance(ev, e.ProbeStarted)]
    assert sum(ev.speculative for ev in started) == visit.speculative
    assert not any(ev.speculative and ev.probe.exclusive for ev in started)


class OnGpus(Oracle):
    """Its engine takes a GPU. ``alone``: how many exclusive probes ran at a time."""

    alone = most_alone = 0

    def answer(self, probe):
        answer = super().answer(probe)
        return msgspec.structs.replace(answer, facts={**answer.facts, "gpus": 1, "slots": 1})

    async def run(self, probe, timeout=0.0, log=""):
        self.alone += probe.exclusive
        self.most_alone = max(self.most_alone, self.alone)
        try:
            return await super().run(probe, timeout, log)
        finally:
            self.alone -= probe.exclusive


def test_flaky_steps_use_every_gpu_and_decide_the_same(tmp_path):
    """The exclusive step looks three times; with two GPUs, two looks at a time, though nobody has
    asked for jobs."""
    one, two = OnGpus(wait=9), OnGpus(wait=9)
    assert walk(tmp_path / "one", one, Options(detach=True)) == 0
    assert (
        walk(
            tmp_path / "two", two, Options(detach=True), slots=8, gpus=lambda: 2, beside=lambda _: 2
        )
        == 0
    )
    assert (one.most_alone, two.most_alone) == (1, 2)
    assert two.most == 2
    assert [v.outcome for v in state(tmp_path / "one").route] == [
        v.outcome for v in state(tmp_path / "two").route
    ]
    assert set(finished(tmp_path / "one")) <= set(finished(tmp_path / "two"))
    assert not state(tmp_path / "two").notes


def test_builds_that_share_a_gpu_are_told_of_once(tmp_path):
    assert (
        walk(tmp_path, OnGpus(), Options(detach=True, jobs=4), gpus=lambda: 2, beside=lambda _: 2)
        == 0
    )
    (note,) = state(tmp_path).notes
    assert note.text.startswith("Up to 4 builds at a time share 2 GPUs.")
    assert "--jobs 2" in note.text


def test_what_is_read_is_what_was_lived(tmp_path):
    async def go() -> None:
        made = runner(tmp_path, Oracle(), Options(jobs=2, detach=True))
        await made.run()
        assert made._ledger.state == fold(read(tmp_path / NAME))

    asyncio.run(go())


def test_a_failed_step_is_an_answer_and_the_session_no_success(tmp_path):
    assert walk(tmp_path, Oracle(), flow=flow(second="broken")) == 70
    closed = state(tmp_path).closed
    assert closed.end
    assert "ZeroDivisionError" in closed.reason
    visit = state(tmp_path).route[1]
    assert (visit.status, visit.answer) == ("failed", "no")
    assert "ZeroDivisionError" in visit.error
    assert visit.question.because == visit.error


def test_a_refused_step_is_an_answer_where_the_flow_has_others(tmp_path):
    assert walk(tmp_path, Oracle(), flow=flow(second="unwilling")) == 0
    visit = state(tmp_path).route[1]
    assert (visit.status, visit.answer, visit.outcome["message"]) == (
        "refused",
        "no",
        "It cannot be done here.",
    )


def test_a_session_of_one_step_ends_with_its_refusal(tmp_path):
    assert walk(tmp_path, Oracle(), flow=flow(first="unwilling", id_="step-unwilling")) == 4
    assert state(tmp_path).closed.reason == "It cannot be done here."


def test_a_missing_capability_skips_the_step_with_the_engines_reason(tmp_path):
    oracle = Oracle()
    oracle.mark = False
    assert walk(tmp_path, oracle, flow=flow(second="marking")) == 0
    visit = state(tmp_path).route[1]
    assert visit.status == "refused"
    assert "it fuses everything" in visit.error
    assert visit.answer == "no"


def test_a_missing_engine_is_a_sentence_and_is_tried_again(tmp_path):
    oracle = Oracle()
    oracle.missing = "OpenVINO is not installed; python -m pip install openvino."
    assert walk(tmp_path, oracle) == 4
    closed = state(tmp_path).closed
    assert (closed.exit_code, closed.reason) == (4, oracle.missing)
    assert state(tmp_path).route[0].status == "refused"
    assert walk(tmp_path, Oracle()) == 0


def test_a_model_that_cannot_be_read_is_exit_2_and_is_read_again(tmp_path):
    bad = Oracle(odd={"import": Measurement(status="refused", message="That is no ONNX model.")})
    assert walk(tmp_path, bad) == 2
    assert state(tmp_path).closed.reason == "That is no ONNX model."
    assert walk(tmp_path, Oracle()) == 0


def test_a_worker_that_finds_the_disk_full_is_no_answer(tmp_path):
    full = Measurement(status="fault", message="The disk of '/x' is full.")
    assert walk(tmp_path, Oracle(odd={"import": full})) == 4
    assert state(tmp_path).closed.reason == "The disk of '/x' is full."
    assert not finished(tmp_path), "nothing is journalled as measured"
    assert not [k for k in state(tmp_path).known.values() if not k.resolved], (
        "nothing is journalled as measured"
    )
    assert walk(tmp_path, Oracle()) == 0, "with room again it goes on"


def test_a_script_stops_where_it_says_ask(tmp_path):
    assert walk(tmp_path, Oracle(), script(third="ask")) == 3
    assert (state(tmp_path).here.question is not None, state(tmp_path).here.answer) == (True, "")
    assert walk(tmp_path, Oracle(), script(third="stop")) == 0
    assert kinds(tmp_path).count("question.asked") == 3


def test_an_answer_that_is_not_there_is_exit_2(tmp_path):
    assert walk(tmp_path, Oracle(), script(second="maybe")) == 2
    assert "its answers are yes, no" in state(tmp_path).closed.reason


def test_visits_are_bounded_and_the_limit_is_an_end(tmp_path):
    assert walk(tmp_path, Oracle(), script(third="again")) == 6
    assert state(tmp_path).end == "spent"
    assert state(tmp_path).visits("second") == 3


CRASHES = {frozenset(range(16)): Measurement(status="crash", message="signal 11")}


def search_of(folder: Path) -> dict:
    return state(folder).route[1].outcome


@pytest.mark.parametrize("retry", [False, True])
def test_an_unresolved_probe_stands_until_it_is_asked_for_again(tmp_path, retry):
    """The search is killed right after a probe has crashed the engine; the engine is well again at
    the resume."""
    well, ill = tmp_path / "well", tmp_path / "ill"
    assert walk(well, Oracle()) == walk(ill, Oracle(odd=CRASHES)) == 0
    assert search_of(well) != search_of(ill), "the crash changes the way of the search"
    for lives in range(200):
        folder = tmp_path / str(lives)
        assert walk(folder, Oracle(odd=CRASHES), lives=lives) is None
        if any(not known.resolved for known in state(folder).known.values()):
            break
    assert walk(folder, Oracle(), Options(detach=True, retry_unresolved=retry)) == 0
    assert search_of(folder) == search_of(well if retry else ill)


def test_rewinding_before_an_unresolved_probe_asks_it_again(tmp_path):
    well, ill = tmp_path / "well", tmp_path / "ill"
    assert walk(well, Oracle()) == walk(ill, Oracle(odd=CRASHES)) == 0
    assert state(ill).route[1].unresolved == 1
    started = next(
        ev for ev in read(ill / NAME) if isinstance(ev, e.StepStarted) and ev.node == "second"
    )
    assert (
        walk(ill, Oracle(), Options(detach=True, first=({"do": "rewind", "to": started.seq},))) == 0
    )
    assert search_of(ill) == search_of(well)


def test_another_fingerprint_starts_the_unfinished_step_anew(tmp_path):
    assert walk(tmp_path, Oracle(), lives=14) is None
    before = state(tmp_path).here
    assert before.status == "running"
    changed = Oracle()
    changed.fingerprint = "2"
    assert walk(tmp_path, changed) == 0
    cancelled = [ev for ev in read(tmp_path / NAME) if isinstance(ev, e.StepCancelled)]
    assert [(ev.run, ev.reason) for ev in cancelled] == [(before.run, "engine-changed")]


def test_what_an_earlier_engine_measured_stands_apart(tmp_path):
    """The user is told once; nothing of the new engine is answered by the old one; the report says
    which is which."""
    assert walk(tmp_path, Oracle(), script(second="ask")) == 3  # first and second were measured
    old = set(finished(tmp_path))
    changed = Oracle()
    changed.fingerprint = "2"
    again = Options(
        policy="script", answers=TWICE, first=({"do": "rewind", "to": "second"},), detach=True
    )
    assert walk(tmp_path, changed, again) == 0
    found = state(tmp_path)
    told = [note.text for note in found.notes]
    assert [text.split(" is not what it was")[0] for text in told] == [ENGINE, "reference"]
    assert "up to second" in told[0]
    assert "from second on everything is measured anew" in told[0]
    third = [v for v in found.route if v.visit == 2 and v.step]
    assert third[0].cached == 0
    asked = {
        name for name, a in found.asked.items() if a.run == third[0].run and not a.asks(Inspect)
    }
    assert asked
    assert not asked & old, "every answer of this step comes from the new engine"
    assert walk(tmp_path, changed) == 0
    assert len(state(tmp_path).notes) == 2, "said once"


@settings(SLOW, max_examples=15)
@given(data=st.data())
def test_any_walk_of_answers_and_rewinds_measures_nothing_twice(tmp_path_factory, data):
    """However one gets there, the state is that of a fresh walk of the same answers."""
    folder, fresh = tmp_path_factory.mktemp("there"), tmp_path_factory.mktemp("fresh")
    notes = 0
    for _ in range(data.draw(st.integers(1, 6))):
        requests: list[dict] = [{"do": "note", "text": "here"}]
        if (
            (folder / NAME).exists()
            and (anchors := sorted(state(folder).anchors))
            and data.draw(st.booleans())
        ):
            requests.append({"do": "rewind", "to": data.draw(st.sampled_from(anchors))})
        answers = {
            "first": data.draw(st.sampled_from(["yes", "yes", "no", "ask"])),
            "second": data.draw(
                st.lists(st.sampled_from(["yes", "no", "ask"]), min_size=1, max_size=3)
            ),
            "third": data.draw(
                st.lists(st.sampled_from(["stop", "again", "ask"]), min_size=1, max_size=3)
            ),
        }
        options = Options(policy="script", answers=answers, first=tuple(requests), detach=True)
        lives = data.draw(st.sampled_from([10**9, 10**9, 8, 20]))
        walk(folder, Oracle(seed=data.draw(st.integers(0, 3))), options, lives=lives)
        notes = len(state(folder).notes)
    walk(folder, Oracle())
    there = state(folder)
    measured = finished(folder)
    assert len(measured) == len(set(measured)), "no probe is measured twice"
    known: set[str] = set()
    for event in read(folder / NAME):
        assert not (isinstance(event, e.ProbeStarted) and event.key in known), (
            "nor is a finished one begun again"
        )
        if isinstance(event, e.ProbeFinished):
            known.add(event.key)
    assert len(there.notes) >= notes, "notes are kept"
    route: dict[str, list[str]] = {}
    for visit in there.route:
        if visit.answer:
            route.setdefault(visit.node, []).append(visit.answer)
    walk(fresh, Oracle(), Options(policy="script", answers=route, detach=True))
    assert without_by(there) == without_by(state(fresh))


def without_by(found):
    """What was decided, whoever decided it."""
    route, findings, end = decisions(found)
    return [[(*visit[:7], *visit[8:]) for visit in route], findings, end]


def test_rewinding_keeps_notes(tmp_path):
    walk(tmp_path, Oracle())
    first = ({"do": "note", "text": "mine"}, {"do": "rewind", "to": "first"})
    assert walk(tmp_path, Oracle(), Options(first=first, detach=True)) == 0
    assert [note.text for note in state(tmp_path).notes] == ["mine"]


@pytest.mark.parametrize(
    ("to", "node", "visit"),
    [
        ("second", "second", 2),
        ("second#1", "second", 1),
        ("back", "third", 2),
        ("first", "first", 1),
    ],
)
def test_a_rewind_may_be_named(tmp_path, to, node, visit):
    walk(tmp_path, Oracle(), script(**TWICE))
    walk(
        tmp_path,
        Oracle(),
        Options(policy="person", first=({"do": "rewind", "to": to}, {"do": "stop"}), detach=True),
    )
    here = state(tmp_path).here
    assert (here.node, here.visit, here.answer) == (node, visit, "")


def test_a_rewind_to_where_the_route_has_not_been_is_a_sentence(tmp_path):
    walk(tmp_path, Oracle(), script(third="ask"))
    options = Options(
        policy="script",
        answers={"third": "ask"},
        first=({"do": "rewind", "to": "fourth"},),
        detach=True,
    )
    assert walk(tmp_path, Oracle(), options) == 2
    assert "first, second, third" in state(tmp_path).closed.reason


def test_rewind_and_return_measures_nothing_twice(tmp_path):
    assert walk(tmp_path, Oracle(), script(**TWICE)) == 0
    before = decisions(state(tmp_path))
    for to in ("second", "first", "third"):
        oracle = Oracle()
        options = Options(
            policy="script", answers=TWICE, detach=True, first=({"do": "rewind", "to": to},)
        )
        assert walk(tmp_path, oracle, options) == 0
        assert decisions(state(tmp_path)) == before
        assert len(finished(tmp_path)) == len(set(finished(tmp_path)))
    assert kinds(tmp_path).count("rewound") == 3


def test_rewind_to_the_start_of_a_step_and_branch_off(tmp_path):
    assert walk(tmp_path, Oracle(), script(**TWICE)) == 0
    started = next(
        ev for ev in read(tmp_path / NAME) if isinstance(ev, e.StepStarted) and ev.node == "second"
    )
    options = Options(
        policy="script",
        answers={"third": "stop"},
        detach=True,
        first=({"do": "rewind", "to": started.seq},),
    )
    assert walk(tmp_path, Oracle(), options) == 0
    assert [v.node for v in state(tmp_path).route] == ["first", "second", "third"]
    assert len(finished(tmp_path)) == len(set(finished(tmp_path)))


class Watched:
    """A runner at work in the background of a test."""

    def __init__(self, folder, oracle, options, **rest) -> None:
        self.runner = runner(folder, oracle, options, **rest)
        self.task = asyncio.create_task(self.runner.run())

    async def until(self, phase: str, node: str = "") -> None:
        for _ in range(2000):
            here = self.runner.work.here
            if self.runner.control.phase == phase and (not node or (here and here.node == node)):
                return
            if self.task.done():
                break
            await asyncio.sleep(0.001)
        raise AssertionError(f"never {phase} at {node}: {self.runner.control.phase}")

    async def comes(self, holds) -> None:
        while not holds():
            await asyncio.sleep(0)

    async def ask(self, do: str, **rest) -> None:
        reply = await self.runner.control.handle({"do": do, **rest}, None)
        assert reply["ok"], reply


def test_a_person_sees_offers_answers_skips_and_rewinds(tmp_path):
    async def go() -> int:
        w = Watched(tmp_path, Oracle(), Options(policy="person", offers=True, detach=True))
        await w.until("offer", "first")
        await w.ask("go")
        await w.until("ask", "first")
        no = await w.runner.control.handle({"do": "answer", "answer": "perhaps"}, None)
        assert "not one of the answers" in no["error"]
        old = await w.runner.control.handle(
            {"do": "answer", "answer": "yes", "node": "second"}, None
        )
        assert not old["ok"]
        await w.ask("answer", node="first", visit=1, answer="yes", note="I think so")
        await w.until("offer", "second")
        assert progress.read(tmp_path)["expected"] == 12
        await w.ask("skip")
        await w.until("ask", "second")
        assert state(tmp_path).here.error == "Skipped by you."
        await w.ask("rewind", to="first")
        await w.until("ask", "first")
        await w.ask("answer", answer="no")
        return await w.task

    assert asyncio.run(go()) == 10
    found = state(tmp_path)
    assert [(v.node, v.answer, v.by) for v in found.route] == [("first", "no", "person")]


def test_walking_asks_nobody_where_nothing_is_in_doubt(tmp_path):
    async def go() -> int:
        w = Watched(tmp_path, Oracle(), Options(policy="walk", offers=True, detach=True))
        return await w.task

    assert asyncio.run(go()) == 0
    route = [(v.node, v.answer, v.by) for v in state(tmp_path).route]
    assert route == [
        ("first", "yes", "recommended"),
        ("second", "yes", "recommended"),
        ("third", "stop", "recommended"),
    ]


def test_walking_ends_at_an_answer_in_doubt_and_a_person_may_let_it_go_on(tmp_path):
    async def go() -> int:
        options = Options(policy="walk", offers=True, detach=True)
        w = Watched(tmp_path, Oracle(), options, flow=flow(second="broken"))
        await w.until("ask", "second")
        await asyncio.sleep(0.01)
        assert w.runner.control.policy == "person"
        assert w.runner.control.phase == "ask"
        assert not progress.read(tmp_path)["walking"]
        await w.ask("policy", policy="walk")
        return await w.task

    assert asyncio.run(go()) == 70, "a step broke, which the end says"
    route = state(tmp_path).route
    assert [(v.node, bool(v.question.doubt)) for v in route] == [
        ("first", False),
        ("second", True),
        ("third", False),
    ]


def test_what_runs_unasked_waits_where_it_is_expensive(tmp_path, monkeypatch):
    costs = {"look": e.Cost(3, 3.0, 1.0), "search": e.Cost(12, 9000.0, 750.0)}
    monkeypatch.setattr(stepping, "foresee", lambda spec, ctx, state: costs[spec.name])

    async def go(options: Options, *, walk: bool) -> int:
        w = Watched(tmp_path, Oracle(), options)
        if not walk:
            await w.until("offer", "first")
            await w.ask("go")
            await w.until("ask", "first")
            await w.ask("answer", answer="yes", go=True)
        await w.until("offer", "second")
        told = progress.read(tmp_path)
        assert told["expensive"]
        assert not told["walking"]
        await w.ask("rewind", to="first")
        await w.until("ask", "first")
        await w.ask("answer", answer="yes")
        await w.until("offer", "second")
        await w.ask("policy", policy="walk")
        return await w.task

    person = Options(policy="person", offers=True, detach=True)
    assert asyncio.run(go(person, walk=False)) == 0
    (tmp_path / NAME).unlink()
    assert asyncio.run(go(Options(policy="walk", offers=True, detach=True), walk=True)) == 0


def test_an_answer_runs_the_next_step_too(tmp_path):
    async def go() -> int:
        options = Options(policy="person", offers=True, detach=True, first=({"do": "go"},))
        w = Watched(tmp_path, Oracle(), options)
        await w.until("ask", "first")
        await w.ask("answer", answer="yes", go=True)
        await w.until("ask", "second")
        await w.ask("rewind", to="first")
        await w.until("ask", "first")
        await w.ask("answer", answer="yes")
        await w.until("offer", "second")
        await w.ask("stop")
        return await w.task

    assert asyncio.run(go()) == 130


def test_rewinding_while_a_step_runs_cancels_it(tmp_path):
    async def go() -> int:
        oracle = Oracle()
        w = Watched(tmp_path, oracle, Options(policy="person", detach=True))
        await w.until("ask", "first")
        oracle.hold = asyncio.Event()
        await w.ask("answer", answer="yes")
        await w.until("running", "second")
        await w.comes(lambda: oracle.running)
        await w.ask("rewind", to="first")
        await w.until("ask", "first")
        oracle.hold.set()
        await w.ask("answer", answer="no")
        return await w.task

    assert asyncio.run(go()) == 10
    assert [ev.reason for ev in read(tmp_path / NAME) if isinstance(ev, e.StepCancelled)] == [
        "rewound"
    ]


def test_a_budget_ends_each_search_once(tmp_path):
    """The tick that comes while what was found is checked does not end the search again."""
    oracle = Oracle()

    async def go() -> int:
        w = Watched(tmp_path, oracle, Options(detach=True, budget=1e6))
        await w.until("running", "second")
        while not w.runner.control.settle:
            await asyncio.sleep(0)
            w.runner._keep_budget(9e5)
        w.runner._keep_budget(9e5)
        return await w.task

    assert asyncio.run(go()) == 0
    assert [ev.reason for ev in read(tmp_path / NAME) if isinstance(ev, e.StepCancelled)] == [
        "settled"
    ]
    notes = [ev.text for ev in read(tmp_path / NAME) if isinstance(ev, e.NoteAdded)]
    assert [note for note in notes if "not shown to be minimal" in note]
    assert len(notes) == 1


def test_a_session_stops_when_its_budget_is_over_whatever_is_at_work(tmp_path):
    """In a step that is no search nothing can be ended early."""
    oracle = Oracle()
    oracle.hold = asyncio.Event()  # no probe is ever answered

    async def go() -> int:
        w = Watched(tmp_path, oracle, Options(detach=True, budget=1e6))
        await w.comes(lambda: oracle.running)
        w.runner._keep_budget(9e5)
        assert not w.runner.control.stopping
        w.runner._keep_budget(1e6)
        assert w.runner.control.stopping == "hard"
        return await w.task

    assert asyncio.run(go()) == 130
    assert "budget" in state(tmp_path).closed.reason
    assert walk(tmp_path, Oracle()) == 0, "a resume goes on"


def test_a_search_is_ended_with_its_smallest_part_and_replays_alike(tmp_path):
    """The step runs again over what is known, with so many probes as its budget; what it has found
    is checked all the same."""

    async def go() -> int:
        oracle = Oracle()
        w = Watched(tmp_path, oracle, Options(detach=True))
        await w.until("running", "second")
        refused = await w.runner.control.handle({"do": "settle"}, None)
        assert refused == {
            "ok": False,
            "error": "No search is running that has found a smaller part.",
        }
        await w.comes(w.runner.control.tried)
        oracle.hold = asyncio.Event()
        await w.comes(lambda: oracle.running)
        tried = w.runner.control.tried()
        await w.ask("policy", policy="person", offers=True)
        await w.ask("settle")
        oracle.hold.set()
        await w.until(
            "ask", "second"
        )  # who ends it has said that it goes on: it is not offered once more
        await w.ask("policy", policy="recommended")
        code = await w.task
        runs = [
            ev
            for ev in read(tmp_path / NAME)
            if isinstance(ev, e.StepStarted) and ev.node == "second"
        ]
        assert [run.params.get("budget", 0) for run in runs] == [0, tried]
        return code

    assert asyncio.run(go()) == 0
    assert [ev.reason for ev in read(tmp_path / NAME) if isinstance(ev, e.StepCancelled)] == [
        "settled"
    ]
    second = next(visit for visit in state(tmp_path).route if visit.node == "second")
    assert (second.status, second.outcome["verdict"]) == ("done", "reduced")
    assert len(finished(tmp_path)) == len(set(finished(tmp_path))), "nothing was measured twice"


@pytest.mark.parametrize("hard", [False, True])
def test_stopping_keeps_the_session_and_resume_goes_on(tmp_path, hard):
    async def go() -> int:
        oracle = Oracle()
        w = Watched(tmp_path, oracle, Options(detach=True))
        await w.until("running", "second")
        oracle.hold = asyncio.Event()
        await w.comes(lambda: oracle.running)
        before = len(finished(tmp_path))
        await w.ask("stop", hard=hard)
        oracle.hold.set()
        code = await w.task
        assert len(finished(tmp_path)) - before == (0 if hard else 1)
        return code

    assert asyncio.run(go()) == 130
    assert state(tmp_path).closed.end == ""
    assert state(tmp_path).here.status == "cancelled"
    assert walk(tmp_path, Oracle()) == 0
    assert len(finished(tmp_path)) == len(set(finished(tmp_path)))


def test_pausing_starts_nothing_new(tmp_path):
    async def go() -> int:
        oracle = Oracle()
        w = Watched(tmp_path, oracle, Options(detach=True, jobs=2))
        await w.until("running", "second")
        await w.ask("pause")
        for _ in range(50):
            await asyncio.sleep(0.001)
        count = len(oracle.ran)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert len(oracle.ran) == count
        assert progress.read(tmp_path)["paused"]
        await w.ask("resume")
        return await w.task

    assert asyncio.run(go()) == 0


def test_running_an_offered_step_ends_a_pause(tmp_path):
    async def go() -> int:
        w = Watched(tmp_path, Oracle(), Options(policy="person", offers=True, detach=True))
        await w.until("offer", "first")
        await w.ask("pause")
        await w.ask("go")
        await w.until("ask", "first")
        assert not progress.read(tmp_path)["paused"]
        await w.ask("stop")
        return await w.task

    assert asyncio.run(go()) == 130


class Broken(Oracle):
    def answer(self, probe):
        raise RuntimeError("the pool fell over")


def test_our_own_fault_is_exit_70_with_the_session_safe(tmp_path):
    assert walk(tmp_path, Broken()) == 70
    assert "logs/runner.log" in state(tmp_path).closed.reason
    assert walk(tmp_path, Oracle()) == 0


def test_what_fails_once_the_program_was_changed_is_no_answer_of_a_step(tmp_path, monkeypatch):
    """The step ended as failed for good, and a resume went on without it."""

    def falls(ctx):
        yield Import(path=ctx.problem.model, digest="d")
        raise AttributeError("module 'narrowdown.engines.search' has no attribute 'later'")

    with monkeypatch.context() as patch:
        patch.setattr(installed, "say_change", lambda: "It was changed.")
        assert walk(tmp_path, Broken()) == 4
        assert walk(tmp_path, Oracle(), steps={**STEPS, "look": spec("look", falls)}) == 4
    assert state(tmp_path).closed.reason == "It was changed."
    assert "step.finished" not in kinds(tmp_path)
    assert walk(tmp_path, Oracle()) == 0


def test_a_full_disk_loses_nothing(tmp_path):
    async def go() -> None:
        made = runner(tmp_path, Oracle(), Options(detach=True))
        real = made._ledger.journal._put
        count = 0

        def put(line: bytes) -> None:
            nonlocal count
            count += 1
            if count > 15:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(line)

        made._ledger.journal._put = put
        with pytest.raises(OSError, match="No space"):
            await made.run()

    asyncio.run(go())
    assert len(read(tmp_path / NAME)) == 15
    assert walk(tmp_path, Oracle()) == 0
    assert len(finished(tmp_path)) == len(set(finished(tmp_path)))


def test_a_session_that_does_not_fit_its_flow_is_said(tmp_path):
    assert walk(tmp_path, Oracle(), script(third="ask")) == 3
    assert walk(tmp_path, Oracle(), flow=FOREIGN) == 4
    assert "does not fit its flow" in state(tmp_path).closed.reason


def test_an_unknown_step_is_said(tmp_path):
    assert walk(tmp_path, Oracle(), steps={k: v for k, v in STEPS.items() if k != "search"}) == 4
    assert "search" in state(tmp_path).closed.reason


def test_timeouts_follow_the_first_build(tmp_path):
    walk(tmp_path, Oracle())
    assert [ev.timeout for ev in read(tmp_path / NAME) if isinstance(ev, e.StepStarted)] == [
        limits.FIRST_TIMEOUT,
        30.0,
    ]
    assert PROBLEM.timeout == 0.0


class Timed(Oracle):
    """Keeps what each probe may take."""

    def __init__(self) -> None:
        super().__init__()
        self.given = []

    async def run(self, probe, timeout=0.0, log=""):
        self.given.append((probe, timeout))
        return await super().run(probe, timeout, log)


def test_a_quick_reference_does_not_shorten_what_the_engine_may_take(tmp_path):
    """Seen on a GPU: the reference, asked first, took 10 ms, and the engine's build of minutes was
    stopped after 30 s."""
    oracle = Timed()

    def reference_first(ctx):
        yield Import(path=ctx.problem.model, digest="d")
        for attempt, engine in enumerate((REFERENCE, ENGINE, ENGINE, REFERENCE)):
            yield measure(range(32), attempt, engine=engine)
        return Finish(LookOutcome(verdict="passes"), ctx.findings)

    walk(tmp_path, oracle, steps={**STEPS, "look": spec("look", reference_first)})
    first, then = limits.FIRST_TIMEOUT, limits.TIMEOUT_FLOOR
    given = [(probe.engine, limit) for probe, limit in oracle.given if isinstance(probe, Measure)]
    assert given == [(REFERENCE, first), (ENGINE, first), (ENGINE, then), (REFERENCE, then)]


def test_many_samples_may_take_as_long_as_they_are_many():
    """Seen with a program that is started for each run: the first probe had 4 samples and took 2 s,
    32 others were stopped after 30 s, and the workaround that they were to hold was told as tried
    on none."""
    few = msgspec.structs.replace(measure((1,)), samples=("a", "b", "c", "d"))
    many = msgspec.structs.replace(few, samples=tuple(map(str, range(32))))
    answer = e.ProbeFinished(
        key="few", run=1, measurement=Measurement(build_seconds=0.1, run_seconds=8.0), seconds=8.1
    )
    learned = _learn_from(State(), answer, few)
    usual = State(**learned)
    told = [limits.probe_limit(p, 0.0, usual) for p in (few, many)]
    assert told == [pytest.approx(81), pytest.approx(640)]
    assert limits.probe_limit(many, 5.0, usual) == 5.0


def test_what_is_run_again_is_not_built_again():
    """Seen on TensorRT: 200 runs of 4 samples, 25 s of building and 12 s of running, were to be
    stopped after 2 days 15 h."""
    looks = msgspec.structs.replace(measure((1,)), samples=("a", "b", "c", "d"), runs=200)
    usual = State(longest={"fake": 25.0}, slowest={"fake": 0.015})
    assert limits.probe_limit(looks, 0.0, usual) == pytest.approx(250 + 199 * 0.6)
    assert limits.probe_limit(looks, 0.0, State(longest={"fake": 25.0})) == pytest.approx(200 * 250)


def test_a_node_alone_does_not_shorten_what_more_of_them_may_take():
    """Seen on TensorRT: silero's If was refused, the node before it worked alone in 0.1 s, and the
    model with plain nodes in the place of the If, which is the workaround, was stopped after 30 s
    while it was built for the first time."""
    alone, half = measure((1,)), measure(range(39))
    whole = msgspec.structs.replace(alone, candidate=Candidate())
    answer = e.ProbeFinished(
        key="k", run=1, measurement=Measurement(build_seconds=0.1, nodes=1), seconds=0.1
    )
    learned = _learn_from(State(), answer, alone)
    usual = State(**learned, nodes=78)
    floor = limits.TIMEOUT_FLOOR
    assert [limits.probe_limit(p, 0.0, usual) for p in (alone, half, whole)] == [
        floor,
        39 * floor,
        78 * floor,
    ]
    assert limits.probe_limit(whole, 7.0, usual) == 7.0
    assert limits.probe_limit(whole, 0.0, State(**learned, nodes=50_000)) == limits.FIRST_TIMEOUT
    built = e.ProbeFinished(
        key="w", run=1, measurement=Measurement(build_seconds=0.2, nodes=78), seconds=0.2
    )
    known = State(**{**learned, **_learn_from(State(**learned), built, whole)}, nodes=78)
    assert [limits.probe_limit(p, 0.0, known) for p in (alone, half, whole)] == [floor] * 3
    slow = msgspec.structs.replace(known, longest={"fake": 500.0})
    assert limits.probe_limit(whole, 0.0, slow) == 5000.0


def test_a_probe_at_work_for_long_is_spoken_of(tmp_path, monkeypatch):
    """Nothing hangs silently: what the screen says of a first build that takes its time, and when
    it ends."""

    class Slow(Oracle):
        def snapshot(self):
            return [Slot(1, 1, "busy", "measure", "building", 150.0)]

    said: list[str] = []
    monkeypatch.setattr(progress, "write", lambda folder, snapshot: said.append(snapshot.text))
    monkeypatch.setattr(walks, "TICK", 0.0)
    walk(tmp_path, Slow(wait=30))
    told = "2 min 30 s at work on this one; it is stopped after 1 h 00 min, --timeout sets another limit"
    assert any(told in s for s in said)


def test_every_probe_has_a_limit(tmp_path):
    """Also those that are no builds: a script that never returns must not hold a session for
    ever."""
    oracle = Timed()
    walk(tmp_path, oracle)
    given = {type(probe).__name__: limit for probe, limit in oracle.given}
    assert min(given.values()) > 0
    assert given["Import"] == limits.FIRST_TIMEOUT
    assert {"Inspect", "Import", "Measure"} <= set(given)


def test_a_probe_that_its_problem_does_not_name_is_refused(tmp_path):
    """A journal, a table or a flow cannot bring in a library, a script or a command that nobody was
    asked about."""
    ran: list[str] = []

    def smuggle(ctx):
        for probe in (
            msgspec.structs.replace(measure((1,)), engine="onnxruntime:custom_ops=/tmp/evil.so"),
            Check(model="m", command="rm -rf /"),
            LoadInputs(model="m", sources=("/tmp/evil.py",)),
        ):
            m = yield probe
            ran.append(f"{m.status}: {m.message}")
        raise StepRefused("enough")

    oracle = Oracle()
    walk(tmp_path, oracle, steps={**STEPS, "look": spec("look", smuggle)})
    assert not any(
        isinstance(probe, Check | LoadInputs) or "evil" in getattr(probe, "engine", "")
        for probe in oracle.ran
    )
    assert len(ran) == 3
    assert all(
        m.startswith("refused: The session would run the ") and "nobody agreed to" in m for m in ran
    )


def test_a_note_before_its_first_opening_resumes_no_session(tmp_path: Path) -> None:
    """Of a GPU that is not used, for one: it is written while the workers are made ready."""
    journal = Journal(tmp_path / NAME)
    journal.append(e.NoteAdded(text="Not used here: NVIDIA T4."))
    journal.close()
    assert walk(tmp_path, Oracle()) == 0
    assert [
        event.resumed for event in read(tmp_path / NAME) if isinstance(event, e.SessionOpened)
    ] == [False]


def test_an_engine_that_is_missing_now_is_not_called_another_one(tmp_path):
    """It said 'version 1.0 before, None now: what was measured stands, and from second on
    everything is measured anew'."""
    assert walk(tmp_path, Oracle(), script(second="ask")) == 3
    gone = Oracle()
    gone.missing = "OpenVINO is not installed."
    again = Options(
        policy="script", answers=TWICE, first=({"do": "rewind", "to": "second"},), detach=True
    )
    assert walk(tmp_path, gone, again) == 4
    found = state(tmp_path)
    assert found.closed.reason == gone.missing
    assert not [note.text for note in found.notes if "is not what it was" in note.text]
