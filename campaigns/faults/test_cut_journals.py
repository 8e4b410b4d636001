"""A journal that ends anywhere leads to the same end, and nothing that stands in it is asked again:
each session of the campaign in which an emulation is asked, or samples are made, cut at every line.
Its own answers are the engines, so no build is made."""

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from campaigns.faults import campaign as faults, fault_run
from narrowdown.engines.probe import AnyProbe, Inspect, Measurement
from narrowdown.engines.steps.registry import STEPS
from narrowdown.engines.store import Store
from narrowdown.wizard.cli.answers import read_answers
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.report.canonical import canonical
from narrowdown.wizard.report.read import read as read_session
from narrowdown.wizard.runner.ledger import Ledger
from narrowdown.wizard.runner.requests import Options
from narrowdown.wizard.session import folder as folders
from narrowdown.wizard.session.events import ProbeFinished, ProbeStarted, StepStarted
from narrowdown.wizard.session.journal import NAME, Journal, read
from tests.wizard.runner.house import Runner

SCENES = ("dear builds", "a draft", "samples made near")


def question(probe: Any) -> bytes:
    """A probe without what is not asked."""
    told = {
        k: v for k, v in msgspec.to_builtins(probe).items() if k not in ("timeout", "exclusive")
    }
    return msgspec.json.encode(told, order="deterministic")


def answers_in(place: Path) -> dict[bytes, Measurement]:
    """What the session's engines said, by question."""
    store, probes, known = Store(place), dict[str, Any](), dict[bytes, Measurement]()
    for event in read(place / NAME):
        if isinstance(event, StepStarted):
            for spec, facts in (
                (event.engine, event.engine_info),
                (event.reference, event.reference_info),
            ):
                told = {**facts, "fingerprint": event.fingerprints.get(spec, "")}
                known[question(Inspect(engine=spec))] = Measurement(facts=told)
        if isinstance(event, ProbeStarted):
            probes[event.key] = event.probe or store.load(event.blob, AnyProbe)
        if isinstance(event, ProbeFinished):
            known[question(probes[event.key])] = event.measurement or store.load(
                event.blob, Measurement
            )
    return known


class Recorded:
    """A pool of engines that say what they have said."""

    def __init__(self, known: dict[bytes, Measurement]) -> None:
        self.known, self.asked = known, list[bytes]()

    async def run(self, probe: Any, timeout: float = 0.0, log: str = "") -> Measurement:
        self.asked += [] if isinstance(probe, Inspect) else [question(probe)]
        await asyncio.sleep(0)
        return self.known[question(probe)]

    async def stop(self, hard: bool = False) -> None: ...

    def snapshot(self) -> list[Any]:
        return []


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", SCENES)
def test_a_journal_cut_at_any_line_leads_to_the_same_end(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    surroundings = fault_run.surroundings(tmp_path)
    for variable in ("NARROWDOWN_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, surroundings[variable])
    monkeypatch.syspath_prepend(str(Path(fault_run.__file__).with_name("dear")))
    scene = fault_run.scenes(tmp_path / "scenes")[name]
    straight = faults.Campaign(tmp_path, surroundings).straight(scene)
    place = tmp_path / faults.straight_folder(name)
    known, flow, problem = (
        answers_in(place),
        load(place / folders.FLOW).flow,
        folders.describe(place).problem,
    )
    told = scene.again[scene.again.index("--answers") + 1] if "--answers" in scene.again else ""
    script = read_answers(told, flow) if told else None
    options = Options(detach=True)
    if script is not None:
        options = Options(
            policy="script", answers=script.answers, settings=script.settings, detach=True
        )

    def walk() -> tuple[int, list[bytes]]:
        pool, ledger = Recorded(known), Ledger(Journal(place / NAME), Store(place))
        walked = Runner(place, flow, problem, ledger, pool, STEPS, options, slots=1).run()
        return asyncio.run(walked), pool.asked

    (place / NAME).unlink()
    code, asked = walk()
    assert (code, route(place)) == (straight.code, straight.route), (
        "walked in this process it is the same"
    )
    assert len(asked) == len(set(asked))
    lines = (place / NAME).read_bytes().splitlines(keepends=True)
    for cut in range(1, len(lines), int(os.environ.get("NARROWDOWN_CUT", "1"))):
        (place / NAME).write_bytes(b"".join(lines[:cut]))
        again, _ = walk()
        keys = [e.key for e in read(place / NAME) if isinstance(e, ProbeFinished)]
        assert (again, route(place)) == (code, straight.route), f"cut at line {cut}"
        assert len(keys) == len(set(keys)), f"cut at line {cut}: a finished probe was asked again"


def route(place: Path) -> str:
    reading = read_session(place)
    return canonical(reading.state, reading.flow)
