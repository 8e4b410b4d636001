"""A scripted session and library: the terminal UI against events that a test chooses."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.css.query import NoMatches
from textual.pilot import WaitForScreenTimeout

from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.findings import Case, Culprit, Findings, Workaround
from narrowdown.engines.probe import Candidate, Import, Measure, Measurement, SampleResult, Score
from narrowdown.engines.steps.layerwise import LayerwiseOutcome
from narrowdown.engines.store import Store
from narrowdown.wizard.flow.model import Answer, End, Flow, FlowNode, StepUse
from narrowdown.wizard.follow_up import FollowUp
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.schedulers import LOCAL
from narrowdown.wizard.session import events as e
from narrowdown.wizard.session.folder import Summary
from narrowdown.wizard.standing import stand
from narrowdown.wizard.tui import keys
from narrowdown.wizard.tui.app import Narrowdown
from narrowdown.wizard.tui.literal import UNICODE, Glyphs

START = 1_700_000_000.0


def flow() -> Flow:
    """A short flow: two measured questions, one that carries settings, three ends."""
    return Flow(
        schema=1,
        id="short",
        title="A short flow",
        start="reproduce",
        nodes={
            "reproduce": FlowNode(
                title="Does it fail here?",
                explain="The whole model runs on both engines and the outputs are compared.\n\nEvery sample is tried.",
                ask="Does the failure show here?",
                step=StepUse(use="compare"),
                answers={
                    "yes": Answer(
                        "Yes, it fails",
                        "layerwise",
                        when={"verdict": "fails"},
                        because="The error is over the tolerance.",
                    ),
                    "no": Answer("No, it passes", "not-reproduced"),
                },
                evidence=("error", "tolerance", "worst_output"),
            ),
            "layerwise": FlowNode(
                title="Is layerwise an option?",
                explain="Marking a tensor as an output stops the engine from ‹fusing› across it.",
                ask="Is it still wrong when we look at every layer?",
                step=StepUse(use="layerwise"),
                answers={
                    "yes": Answer(
                        "Yes, it still fails", "minimal", when={"observer": "reproduces"}
                    ),
                    "no": Answer("No, it improves", "double-check"),
                },
                evidence=("culprit", "added", "bad", "profile"),
                terms=("fusion",),
                commands={"polygraphy>=0.50": "polygraphy run {{ model }}"},
            ),
            "double-check": FlowNode(
                title="Check the check",
                explain="Something about the check may be wrong.",
                ask="What should change?",
                answers={
                    "tolerance": Answer(
                        "Another tolerance", "layerwise", settings={"tolerance": "New tolerance"}
                    ),
                    "stop": Answer("Stop here", "unresolved"),
                },
            ),
        },
        ends={
            "minimal": End(
                "You have a minimal failing case",
                "The smallest part that fails is known.",
                "minimal-case",
            ),
            "not-reproduced": End(
                "The failure does not show here", "It passed every time.", "not-reproduced"
            ),
            "unresolved": End(
                "It could not be told", "Too many probes had no answer.", "unresolved"
            ),
        },
    )


def offered(
    flow: Flow, node: str, recommended: str, because: str = "Both engines fail on the same outputs."
) -> tuple[e.Offered, ...]:
    return tuple(
        e.Offered(
            name,
            answer.text,
            answer.goto,
            recommended=name == recommended,
            because=because if name == recommended else "",
        )
        for name, answer in flow.nodes[node].answers.items()
    )


class Script:
    """Writes events with their seq and time, a second apart."""

    def __init__(self) -> None:
        self.events: list[e.AnyEvent] = []

    def add(self, event: e.AnyEvent) -> "Script":
        seq = len(self.events) + 1
        self.events.append(msgspec.structs.replace(event, seq=seq, ts=START + seq))
        return self


def findings(name: str = "/layer3/conv2/Conv") -> Findings:
    criterion = Criterion(tolerance=0.02)
    signature = Signature(
        "accuracy", "real:0", outputs=("logits",), errors={"logits": 0.41}, tolerance=0.02
    )
    case = Case(
        Candidate(nodes="271-273"),
        "real:0",
        nodes=(name, "/layer3/Mul", "/layer3/Add"),
        ops=("Conv", "Mul", "Add"),
        own=0.41,
        effect=0.38,
        good=Candidate(nodes="271-272"),
        verified="5/5",
        minimal=True,
    )
    culprit = Culprit(case, "kernel", evidence="It passes as Conv and Mul alone.", dir="case")
    cure = Workaround(
        "precision",
        "emulate:precision=fp16",
        keep_names=(name,),
        samples_ok=3,
        samples_n=3,
        error=0.001,
        margin=20.0,
    )
    return Findings(
        criterion=criterion,
        signature=signature,
        sample="real:0",
        culprits=(culprit,),
        workaround=cure,
    )


def measured(error: float, nodes: int, output: str = "logits") -> Measurement:
    score = Score(output, rel_l2=error, max_abs=error, rel_max=error)
    result = SampleResult("real:0", outputs=(score,), effect=(Score("logits", rel_l2=error),))
    return Measurement(results=(result,), nodes=nodes)


def measure(nodes: str) -> Measure:
    return Measure(
        model="m",
        inputs="i",
        samples=("real:0",),
        engine="emulate",
        reference="onnxruntime",
        candidate=Candidate(nodes=nodes),
    )


class FakeSession:
    """Answers requests by a function of the test; its journal is a Script that the test may extend
    at any time."""

    def __init__(self, folder: Path, flow: Flow) -> None:
        self.flow, self.folder = flow, folder
        self.script = Script()
        self.snapshot: dict[str, Any] | None = None
        self.sent: list[dict[str, Any]] = []
        self.react: Callable[[dict[str, Any]], Mapping[str, Any] | None] = lambda request: None
        self.living = True
        self.closed = False
        self._given = 0

    def poll(self) -> tuple[e.AnyEvent, ...]:
        news = tuple(self.script.events[self._given :])
        self._given += len(news)
        return news

    def progress(self) -> Mapping[str, Any] | None:
        return self.snapshot

    def send(self, request: dict[str, Any]) -> Mapping[str, Any]:
        self.sent.append(request)
        return self.react(request) or {"ok": True}

    def take_over(self) -> Mapping[str, Any]:
        return self.send({"do": "hello", "take": True})

    def alive(self) -> bool:
        return self.living

    def close(self) -> None:
        self.closed = True


class FakeLibrary:
    def __init__(self, session: FakeSession, entries: Sequence[Summary] = ()) -> None:
        self.session, self.listed = session, entries
        self.created: list[Problem] = []
        self.edited: list[tuple[Path, Problem]] = []
        self.exported: list[str] = []
        self.followed: list[tuple[Path, str]] = []
        self.opened: list[tuple[Mapping[str, Any], ...]] = []
        self.finished: list[Path] = []
        self.tried: list[str] = []

    def entries(self, also: Iterable[Path] = ()) -> Sequence[Summary]:
        return [stand(entry) for entry in self.listed]

    executor = LOCAL

    def create(self, problem: Problem, place: str | None = None) -> Path:
        self.created.append(problem)
        return self.session.folder

    def weight(self, folder: Path) -> str:
        return "18 MiB: inputs 12 MiB"

    def remove(self, folder: Path) -> None:
        self.listed = [entry for entry in self.listed if entry.path != folder]

    def edit(self, folder: Path, problem: Problem) -> Path:
        self.edited.append((folder, problem))
        return self.session.folder

    def follow_ups(self, folder: Path) -> Sequence[FollowUp]:
        return [
            FollowUp("known", "Is it a known bug?", "about 30 runs"),
            FollowUp("", "Since when?", typed="narrowdown ladder k7f3 --install onnxruntime:1.0.."),
        ]

    def after(self, folder: Path, step: str) -> Path:
        self.followed.append((folder, step))
        return self.session.folder

    def open(self, folder: Path, first: Sequence[Mapping[str, Any]] = ()) -> Any:
        self.opened.append(tuple(first))
        self.session._given = 0
        for request in first:
            self.session.living = True
            if request["do"] == "rewind":
                self.session.script.add(e.Rewound(to=int(request["to"]), node="layerwise"))
        return self.session

    def demos(self) -> Mapping[str, str]:
        return {"shapes": "Drawn shapes.", "sorts": "Sorted digits."}

    def demo(self, name: str) -> Path:
        self.tried.append(name)
        return self.session.folder

    def problem(self, folder: Path) -> Problem:
        return Problem(model="/models/resnet50.onnx", engine="emulate:precision=fp16")

    def summary(self, step: str) -> str:
        return f"What {step} does."

    def export(self, folder: Path, target: str) -> str:
        self.exported.append(target)
        return target

    def report(self, folder: Path) -> Path:
        return folder / "report.html"

    def finish(self, folder: Path) -> None:
        self.finished.append(folder)


@pytest.fixture
def session(tmp_path: Path) -> FakeSession:
    folder = tmp_path / "k7f3"
    folder.mkdir()
    return FakeSession(folder, flow())


@pytest.fixture
def make_app(session: FakeSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Narrowdown]:
    monkeypatch.setattr("narrowdown.wizard.tui.client.time.time", lambda: START + 100)
    monkeypatch.setenv("NARROWDOWN_THEME", "dark")
    monkeypatch.setenv("NARROWDOWN_HOME", str(session.folder.parent))
    monkeypatch.setenv("HOME", str(session.folder.parent))  # paths on the last screen begin with ~

    def make(
        glyphs: Glyphs = UNICODE,
        entries: Sequence[Summary] = (),
        keymap: keys.Keymap | None = None,
        **more: Any,
    ) -> Narrowdown:
        more.setdefault("folder", session.folder)
        return Narrowdown(
            FakeLibrary(session, entries), glyph_set=glyphs, keymap=keymap or keys.Keymap(), **more
        )

    return make


def opened(session: FakeSession) -> FakeSession:
    session.script.add(e.SessionOpened(id="k7f3"))
    session.snapshot = {
        "phase": "offer",
        "expected": 4,
        "seconds": 3.0,
        "each": 0.75,
    }
    return session


def running(session: FakeSession, name: str = "/layer3/conv2/Conv") -> FakeSession:
    """In the middle of layerwise: reproduce is answered, some probes are back, a worker has
    died."""
    s = opened(session).script
    first = session.flow.nodes["reproduce"]
    s.add(e.StepStarted(run=1, node="reproduce", visit=1, step="compare", step_version=1))
    s.add(e.ProbeStarted(key="k0", run=1, probe=Import(path="m.onnx", digest="d")))
    s.add(e.ProbeFinished(key="k0", run=1, measurement=Measurement(facts={"nodes": 412})))
    s.add(
        e.StepFinished(
            run=1,
            node="reproduce",
            outcome={"verdict": "fails", "error": 0.41, "tolerance": 0.02, "worst_output": name},
            findings=msgspec.to_builtins(findings(name)),
            seconds=14,
            probes=2,
        )
    )
    s.add(
        e.QuestionAsked(
            node="reproduce",
            visit=1,
            ask=first.ask,
            answers=offered(session.flow, "reproduce", "yes"),
            recommended="yes",
        )
    )
    s.add(e.QuestionAnswered(node="reproduce", visit=1, answer="yes", by="recommended"))
    s.add(e.StepStarted(run=2, node="layerwise", visit=1, step="layerwise", step_version=1))
    for index, (nodes, error) in enumerate((("0-95", 2e-5), ("96-191", 0.41), ("96-143", 0.4)), 1):
        s.add(e.ProbeStarted(key=f"k{index}", run=2, probe=measure(nodes)))
        low, _, high = nodes.partition("-")
        s.add(
            e.ProbeFinished(
                key=f"k{index}",
                run=2,
                measurement=measured(error, int(high) - int(low) + 1),
                seconds=1.5,
            )
        )
    s.add(e.ProbeStarted(key="k4", run=2, probe=measure("144-191")))
    s.add(e.WorkerDied(worker=2, signal=11, key="k4", detail="counted as cannot tell"))
    s.add(
        e.ProbeFinished(
            key="k4",
            run=2,
            measurement=Measurement(status="crash", message="It died.", signal=11),
            seconds=4,
        )
    )
    s.add(e.ProbeStarted(key="k5", run=2, probe=measure("96-119")))
    session.snapshot = {
        "phase": "running",
        "node": "layerwise",
        "text": f"trying part of {name}",
        "done": 4,
        "expected": 14,
        "best": 48,
    }
    logs = session.folder / "logs"
    logs.mkdir(exist_ok=True)
    (logs / "worker-2.log").write_text(
        f"[W] fusing {name}\n[W] building nodes 96-119\n", errors="replace"
    )
    return session


def asking(session: FakeSession, name: str = "/layer3/conv2/Conv") -> FakeSession:
    """Layerwise is measured and asks."""
    return measured_on(running(session, name), name)


def measured_on(session: FakeSession, name: str = "/layer3/conv2/Conv") -> FakeSession:
    """A running layerwise ends and asks."""
    s = session.script
    outcome = LayerwiseOutcome(
        observer="reproduces",
        culprit=name,
        added=0.38,
        bad=139,
        tensors=412,
        profile=",".join(str(i / 10 - 6) for i in range(60)),
        message=f"139 of 412 tensors are over tolerance; {name} adds the most error.",
    )
    node = name.encode(errors="replace").decode()
    tensors = [
        {"name": f"t{i}", "node": node if i == 40 else "", "error": 10 ** (i / 10 - 6)}
        for i in range(60)
    ]
    table = Store(session.folder).put(msgspec.json.encode(tensors))
    s.add(e.ProbeFinished(key="k5", run=2, measurement=measured(0.4, 24), seconds=2))
    s.add(
        e.StepFinished(
            run=2,
            node="layerwise",
            tables={"tensors": table},
            outcome=msgspec.to_builtins(outcome),
            findings=msgspec.to_builtins(findings(name)),
            seconds=31,
            probes=5,
        )
    )
    s.add(
        e.QuestionAsked(
            node="layerwise",
            visit=1,
            ask=session.flow.nodes["layerwise"].ask,
            answers=offered(session.flow, "layerwise", "yes"),
            recommended="yes",
            because="x",
        )
    )
    session.snapshot = {"phase": "ask", "node": "layerwise"}
    return session


def ended(session: FakeSession, name: str = "/layer3/conv2/Conv") -> FakeSession:
    """The minimal case is there."""
    s = asking(session, name).script
    s.add(e.QuestionAnswered(node="layerwise", visit=1, answer="yes", by="person", note="sure"))
    s.add(e.SessionClosed(end="minimal", exit_code=0))
    case = session.folder / "case"
    case.mkdir(exist_ok=True)
    for file in ("model.onnx", "check.py", "report.html"):
        (case / file).write_text("x")
    session.snapshot = {"phase": "ended"}
    return session


async def settle(pilot: Any, until: Callable[[], bool]) -> None:
    """Let the app work until a condition holds, and no widget that it asks for is missing. What
    never comes is ended by the test's own limit: Textual's of 30 s a pause was met on a machine
    with ten times the load of its processors."""
    seen = settled = False
    while not settled:
        with contextlib.suppress(NoMatches):
            seen = seen or until()
        with contextlib.suppress(WaitForScreenTimeout):
            await pilot.pause(None if seen else 0.05)
            settled = seen


async def press(pilot: Any, *keys: str, until: Callable[[], bool]) -> None:
    """Press these keys, and let the app work until the condition holds."""
    await pilot.press(*keys)
    await settle(pilot, until)


def face(app: Narrowdown) -> str:
    """Which face its session shows, if any."""
    return app.scene.face if app.scene else ""


@contextlib.asynccontextmanager
async def played(
    app: Narrowdown,
    until: str | Callable[[Narrowdown], bool],
    size: tuple[int, int] = (80, 24),
) -> AsyncIterator[tuple[Narrowdown, Any]]:
    """An app at work, from where it shows this face, or where this holds of it."""
    async with app.run_test(size=size) as pilot:
        await settle(pilot, lambda: face(app) == until if isinstance(until, str) else until(app))
        yield app, pilot
