"""What a session keeps on the disk within its budget: what goes, in which order, and that it comes
back when it is asked for."""

import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from house import PROBLEM, STEPS, Oracle, decisions, measure, spec, state, walk

from narrowdown.engines.asking import StepContext
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import AnyProbe, Check, Describe, Measure, Measurement
from narrowdown.engines.steps.base import Finish, Steps
from narrowdown.engines.store import Store
from narrowdown.wizard.runner import room
from narrowdown.wizard.runner.drive import made_again, missing_artifacts
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.session.events import NoteAdded, ProbeFinished
from narrowdown.wizard.session.journal import NAME, fit, read
from narrowdown.wizard.session.state import Asked, Known, State, Visit

KIB = 1 << 10


class Keeping(Oracle):
    """A pool that keeps files of what it is asked to save, and writes a log of each probe."""

    def __init__(self, folder: Path, **rest: Any) -> None:
        super().__init__(**rest)
        self.folder, self.saved = folder, 0

    async def run(self, probe: AnyProbe, timeout: float = 0.0, log: str = "") -> Measurement:
        answer = await super().run(probe, timeout, log)
        if log:
            (self.folder / log).write_bytes(b"." * KIB)
            answer = msgspec.structs.replace(answer, log=log)
        if isinstance(probe, Measure) and probe.save:
            self.saved += 1
            name = f"{probe.save} {probe.candidate.nodes} ".encode()
            made = {"model.onnx": Store(self.folder).put(name * KIB)}
            answer = msgspec.structs.replace(answer, artifacts=made)
        return answer


def keeping(ctx: StepContext) -> Steps[Any]:
    """Saves a case that it hands on, and a trial that it does not."""
    trial = yield msgspec.structs.replace(measure(range(8), ctx.visit), save="trial")
    case = yield msgspec.structs.replace(measure((5, 12), ctx.visit), save="case")
    assert trial.artifacts.keys() == case.artifacts.keys() == {"model.onnx"}
    outcome = STEPS["search"].outcome(verdict="reduced", left="5,12", probes=2)
    return Finish(
        outcome, ctx.findings, tables={"bundle": [{"role": "case", "files": dict(case.artifacts)}]}
    )


WITH_KEEPING = {**STEPS, "search": spec("search", keeping, STEPS["search"].outcome)}


def kept(folder: Path) -> set[str]:
    return {path.name for path in Store(folder).artifacts.glob("*/*")}


def notes(folder: Path) -> list[str]:
    return [e.text for e in read(folder / NAME) if isinstance(e, NoteAdded)]


def keep(
    folder: Path, oracle: Oracle, options: Options | None = None, budget: int = 1 << 30
) -> int | None:
    problem = msgspec.structs.replace(PROBLEM, artifact_bytes=budget)
    return walk(folder, oracle, options, steps=WITH_KEEPING, problem=problem)


def test_within_its_budget_a_session_keeps_everything(tmp_path: Path) -> None:
    assert keep(tmp_path, Keeping(tmp_path)) == 0
    assert notes(tmp_path) == []
    assert len(kept(tmp_path)) == 3, "the trial, the case and the table"
    assert len(list(Store(tmp_path).logs.glob("*.log"))) == 6


def test_beyond_it_goes_what_nothing_rests_on_and_that_is_said_once(tmp_path: Path) -> None:
    assert keep(tmp_path, Keeping(tmp_path)) == 0
    whole = kept(tmp_path)
    small = tmp_path / "small"
    assert keep(small, Keeping(small), budget=1) == 0
    assert decisions(state(small)) == decisions(state(tmp_path))
    assert kept(small) < whole
    files = [row["files"]["model.onnx"] for row in _table(small)]
    assert kept(small) == {*files, state(small).route[1].tables["bundle"]}, (
        "what the bundle needs stays"
    )
    assert not list(Store(small).logs.glob("*.log"))
    assert len(notes(small)) == 2, "one before the second step, one at the end"
    assert (
        "The session's artifacts and logs were over 1 bytes (--artifact-bytes), so these are gone: "
        in notes(small)[1]
    )
    assert re.search("[0-9]+ files? that nothing rests on", notes(small)[1])


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (None, 0),
        (Options(detach=True, first=({"do": "stop"},)), 130),
        (Options(detach=True, policy="script", answers={"third": "ask"}), 3),
    ],
)
def test_what_is_made_again_goes_when_a_session_ends_or_is_stopped(
    tmp_path: Path, options: Options | None, code: int
) -> None:
    """Captured values and converted weights; those of a session that waits for a person stay."""
    store = Store(tmp_path)
    own, converted = store.weights / f"{'a' * 64}.bin", store.weights / f"{'a' * 64}.fp16.bin"
    captured = store.captures / "reference" / "sample" / "1.npy"
    for path in (own, converted, captured):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * KIB)
    assert keep(tmp_path, Keeping(tmp_path), options) == code
    assert own.exists()
    assert (converted.exists(), captured.exists()) == (code == 3, code == 3)
    assert store.captures.is_dir()
    assert bool(list(store.captures.iterdir())) == (code == 3)


def test_what_a_probe_writes_until_the_pool_ends_it_goes_too(tmp_path: Path) -> None:
    """A cancelled probe may work on for a moment; in a whole session beside others three captured
    files were left."""
    captured = Store(tmp_path).captures / "reference" / "sample" / "1.npy"

    class Late(Keeping):
        async def stop(self, hard: bool = False) -> None:
            await super().stop(hard)
            captured.parent.mkdir(parents=True)
            captured.write_bytes(b"x" * KIB)

    assert keep(tmp_path, Late(tmp_path)) == 0
    assert list(Store(tmp_path).captures.iterdir()) == []


def _table(folder: Path) -> list[dict[str, Any]]:
    return msgspec.json.decode(Store(folder).get(state(folder).route[1].tables["bundle"]))


@pytest.mark.parametrize("evicted", [True, False])
def test_what_went_is_made_again_when_a_step_asks_for_it(tmp_path: Path, evicted: bool) -> None:
    """Back before the step, and through it again: with its files gone, the probes that save are run
    again, and only those."""
    assert keep(tmp_path, Keeping(tmp_path)) == 0
    before, first = decisions(state(tmp_path)), kept(tmp_path)
    if evicted:
        for name in first:
            Store(tmp_path).path(name).unlink()
    back = next(
        seq
        for seq, route in state(tmp_path).anchors.items()
        if len(route) == 2 and not route[1].answer
    )
    oracle = Keeping(tmp_path)
    assert keep(tmp_path, oracle, Options(detach=True, first=({"do": "rewind", "to": back},))) == 0
    assert decisions(state(tmp_path)) == before
    assert kept(tmp_path) == first
    assert oracle.saved == (2 if evicted else 0)
    assert [p for p in oracle.ran if isinstance(p, Measure) and not p.save] == []


def test_a_probe_that_is_run_again_for_its_files_keeps_its_verdict(tmp_path: Path) -> None:
    """An engine that comes and goes may answer otherwise the second time; what was decided on the
    first stands."""
    store = Store(tmp_path)
    gone, other = "a" * 64, store.put(b"new")
    probe = msgspec.structs.replace(measure((1,)), save="case")
    before = Measurement(facts={"bad": True}, artifacts={"model.onnx": gone, "inputs.npz": other})
    assert missing_artifacts(probe, before, store) == ("model.onnx",)
    again = Measurement(facts={"bad": False}, artifacts={"model.onnx": other})
    assert made_again(probe, before, again, ("model.onnx",)) == Measurement(
        facts={"bad": True}, artifacts={"model.onnx": other, "inputs.npz": other}
    )
    crashed = Measurement(status="crash", message="It died.")
    assert made_again(probe, before, crashed, ("model.onnx",)) == Measurement(
        facts={"bad": True}, artifacts={"inputs.npz": other}
    ), "a file that cannot be made again is left out, and not asked for again"


def test_what_a_checker_printed_is_no_reason_to_run_it_again(tmp_path: Path) -> None:
    answer = Measurement(artifacts={"output": "a" * 64, "model.onnx": "b" * 64})
    assert missing_artifacts(Check(model="m", command="c"), answer, Store(tmp_path)) == ()
    assert missing_artifacts(
        Check(model="m", command="c", artifacts=("model.onnx",)), answer, Store(tmp_path)
    ) == ("model.onnx",)


def test_the_order_in_which_files_go(tmp_path: Path) -> None:
    """The oldest first, and no more than has to."""
    assert keep(tmp_path, Keeping(tmp_path)) == 0
    store, now = Store(tmp_path), state(tmp_path)
    orphan = store.put(b"?" * KIB)
    log = next(iter(store.logs.glob("*measure*.log")))
    os.utime(log, (1, 1))
    assert [file.size for file in room.free(store, now, 1)] == [KIB]
    assert not log.exists(), "the oldest"
    os.utime(store.path(orphan), (1, 1))
    assert [file.size for file in room.free(store, now, 1)] == [KIB]
    assert not store.path(orphan).exists()
    assert len(room.free(store, now, 1 << 40)) == 6, "five logs and a saved file"
    assert len(room.free(store, now, 1 << 40)) == 0


def test_what_an_interrupted_step_saved_stays(tmp_path: Path) -> None:
    """It asks for that first once it goes on, and writing it anew would take the room again that
    was made."""

    assert keep(tmp_path, Keeping(tmp_path)) == 0
    lines = (tmp_path / NAME).read_bytes().splitlines(keepends=True)
    ended = [number for number, line in enumerate(lines) if b'"kind":"step.finished"' in line]
    (tmp_path / NAME).write_bytes(
        b"".join(lines[: ended[1]])
    )  # killed before the second step was through
    assert len(room.free(Store(tmp_path), state(tmp_path), 1 << 40)) == 7, (
        "six logs, and its table alone"
    )
    oracle = Keeping(tmp_path)
    assert keep(tmp_path, oracle) == 0
    assert oracle.saved == 0
    assert len(room.free(Store(tmp_path), state(tmp_path), 1 << 40)) == 1, "once it is through"


def test_parts_of_events_never_go(tmp_path: Path) -> None:
    """A measurement too large for a line of the journal lies among the artifacts."""
    store = Store(tmp_path)
    answer = Measurement(facts={"text": "x" * 100_000}, artifacts={"output": store.put(b"printed")})
    event = fit(ProbeFinished(key="k", run=1, measurement=answer), store)
    assert isinstance(event, ProbeFinished)
    assert event.blob
    assert room.needed(State(), (event,), store) == {event.blob}


def test_the_graph_of_a_model_of_the_route_stays_and_that_of_another_goes(tmp_path: Path) -> None:
    here, elsewhere = "a" * 64, "b" * 64
    visit = Visit("n", 1, 1, run=3, findings=Findings(model=here))
    told = {name: Known.of(Measurement(artifacts={"index": name * 64})) for name in ("c", "d", "e")}
    asked = {
        "c": Asked.of(Describe(model=here), run=1),
        "d": Asked.of(Describe(model=elsewhere), run=1),
        "e": Asked.of(Describe(model=elsewhere), run=3),
    }
    found = room.needed(State(route=(visit,), asked=asked, known=told), (), Store(tmp_path))
    assert found >= {"c" * 64, "e" * 64}
    assert "d" * 64 not in found
