"""How long the screens take to answer a key while engines build at full load, and how often they
repaint by themselves.

Prints percentiles, asserts no time. Run with: pytest -m benchmark -s
campaigns/benchmarks/test_screens.py
"""

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pexpect
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.flow.load import load
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session import folder as folders
from tests.terminal_child import Child

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

NODES, PROBES, LOG_BYTES = 10_000, 1_000, 100 << 20
ROUNDS = 12
SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids="{0[0]}x{0[1]}".format)
# Cards that can be opened at any time: the key, a word that only the card holds, the key that
# closes it.
CARDS = (
    ("w", "Why", "b"),
    ("t", "Words used here", "b"),
    ("l", "f follow", "b"),
    ("m", "You are at", "b"),
    ("?", "Keys that work now", "b"),
    ("v", "Pictures", "b"),
    ("o", "Probes of this step", "b"),
    ("n", "Your note", "\x1b"),
    ("\x10", "Every action by name", "\x1b"),
)
# Those of a step at work; of a search in the flow that people have.
AT_WORK = (*CARDS, ("q", "Leave it running", "\x1b"))
SEARCHING = (*AT_WORK, ("c", "Same, by hand", "b"), ("x", "The search is not through", "\x1b"))
FLOW = """
schema: 1
id: straight
title: Straight to the reduction
start: %s
nodes:
%s  reduce:
    title: Reduce the model
    explain: The smallest part that fails.
    step: {use: reduce}
    ask: Is it reduced?
    answers:
      "yes": {text: It is, goto: done}
ends:
  done: {title: Reduced, explain: The smallest part is known., verdict: minimal-case}
"""
REPRODUCE = """
  reproduce:
    title: Does it fail here?
    explain: The whole model.
    step: {use: compare}
    ask: Does it fail?
    answers:
      "yes": {text: It fails, goto: reduce}
"""


class Felt(NamedTuple):
    """What a key took until its effect was drawn: seconds on the clock, and of the processor."""

    seconds: float
    processor: float


class Screen:
    """The program on a pseudo-terminal; what it writes is only watched, so that the watching costs
    next to nothing."""

    def __init__(self, words: Sequence[str], home: Path, size: tuple[int, int] = (104, 30)) -> None:
        environment = {
            **os.environ,
            "NARROWDOWN_HOME": str(home / "sessions"),
            "XDG_STATE_HOME": str(home / "state"),
        }
        environment |= {
            "XDG_CONFIG_HOME": str(home),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
        }
        start = "import sys; from narrowdown.wizard.cli import main; sys.exit(main())"
        self.child = Child([sys.executable, "-P", "-c", start, *words], environment, home, size)
        self.bursts: list[tuple[float, int]] = []  # when something was written, and how much
        self._text = ""

    def read(self, seconds: float) -> str:
        """What is written within this time, at once when there is something; control sequences left
        out."""
        if not select.select([self.child.child_fd], [], [], seconds)[0]:
            return ""
        data = os.read(self.child.child_fd, 1 << 20)
        self.bursts.append((time.monotonic(), len(data)))
        return re.sub(r"\x1b\[[0-9;?<>=]*[A-Za-z]", "", data.decode(errors="replace"))

    def until(self, wanted: str | tuple[str, ...], seconds: float = 600.0) -> None:
        """Wait until this, or one of these, is written."""
        end, text = time.monotonic() + seconds, ""
        while not any(word in text for word in ((wanted,) if isinstance(wanted, str) else wanted)):
            assert time.monotonic() < end, f"'{wanted}' was never drawn: {text[-3000:]}"
            text = (text + self.read(1.0))[-100_000:]

    def press(self, key: str, wanted: str | tuple[str, ...]) -> "Felt":
        """Send a key, and wait until its effect has been drawn."""
        return self.act(lambda: self.child.send(key), wanted)

    def act(self, action: Callable[[], object], wanted: str | tuple[str, ...]) -> "Felt":
        """Do something to the program, and wait until its effect has been drawn."""
        while self.read(0.0):
            pass
        used, begun = self.used(), time.monotonic()
        action()
        self.until(wanted, 30.0)
        return Felt(time.monotonic() - begun, self.used() - used)

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.read(left)

    def used(self) -> float:
        """Processor seconds of the program so far."""
        return schedstat(self.child.pid)


def schedstat(pid: int) -> float:
    """Processor seconds that a process has used so far, all its threads."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


@pytest.fixture
def screens() -> Iterator[list[Screen]]:
    opened: list[Screen] = []
    yield opened
    for screen in opened:
        screen.child.close()


def chain(path: Path, nodes: int) -> None:
    """A model of many small nodes, one of which overflows in FP16 where the next one brings the
    values back."""
    constants = {"one": 1.0, "large": 70_000.0, "small": 1 / 70_000.0}
    made, last = [], "x"
    for i in range(nodes):
        op, right = ("Sin", "") if i % 2 else ("Add", "one")
        if i in (nodes // 2, nodes // 2 + 1):
            op, right = "Mul", "small" if i > nodes // 2 else "large"
        name = f"/encoder/layers.{i // 10}/block/{op}_{i}"
        out = "y" if i == nodes - 1 else name + "_output_0"
        made.append(helper.make_node(op, [last, right] if right else [last], [out], name=name))
        last = out
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in ("x", "y")]
    weights = [numpy_helper.from_array(np.array([v], np.float32), k) for k, v in constants.items()]
    graph = helper.make_graph(made, "chain", info[:1], info[1:], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )


def report(what: str, felt: Sequence[Felt]) -> None:
    """Percentiles of the clock, then of the processor, in milliseconds."""
    clock, processor = (
        np.percentile(np.array(column) * 1e3, [50, 90, 99, 100])
        for column in zip(*felt, strict=True)
    )
    print(f"{what:32} n={len(felt):4}  clock {line(clock)}  processor {line(processor)} ms")


def line(figures: Iterable[float]) -> str:
    return "  ".join(
        f"{name} {figure:5.1f}"
        for name, figure in zip(("p50", "p90", "p99", "max"), figures, strict=True)
    )


def keys(
    screen: Screen,
    cards: Sequence[tuple[str, str, str]],
    closed: str | tuple[str, ...],
    ended: Callable[[], bool] = lambda: False,
) -> None:
    """Open and close these cards, again and again, or until it has ``ended``. ``closed``: what is
    drawn when a card closes."""
    opening: dict[str, list[Felt]] = {word: [] for _, word, _ in cards}
    closing: list[Felt] = []
    for _ in range(ROUNDS):
        for key, word, close in cards:
            if ended():
                break
            opening[word].append(screen.press(key, word))
            screen.wait(0.15)
            closing.append(screen.press(close, closed))
            screen.wait(0.15)
    for word, felt in ((word, felt) for word, felt in opening.items() if felt):
        report(f"a key opens '{word}'", felt)
    screen.press("m", "You are at")
    screen.wait(0.3)
    arrows = []
    for key in () if ended() else ("\x1b[B", "\x1b[A") * ROUNDS:
        arrows.append(screen.press(key, ("│", "┃")))
        screen.wait(0.15)
    screen.press("b", closed)
    if arrows:
        report("an arrow on the map", arrows)
    report("a key opens a card", [each for felt in opening.values() for each in felt])
    report("a key closes it", closing)


def repaints(screen: Screen, where: str, seconds: float = 5.0) -> None:
    """How often it draws when nobody touches it, and what it costs."""
    screen.wait(0.5)
    screen.bursts.clear()
    used, begun = screen.used(), time.monotonic()
    screen.wait(seconds)
    starts = [
        t for i, (t, _) in enumerate(screen.bursts) if not i or t - screen.bursts[i - 1][0] > 0.05
    ]
    most = max((sum(t <= other < t + 1 for other in starts) for t in starts), default=0)
    busy = (screen.used() - used) / (time.monotonic() - begun)
    often = f"at most {most} repaints in a second, {len(starts) / seconds:.1f} on average"
    print(f"left alone, {where}: {often}; {100 * busy:.0f} % of a core")


def all_repaints(screen: Screen, closed: str | tuple[str, ...]) -> None:
    """The running step itself, then behind a card that follows the log, a card at rest, and a field
    with its cursor."""
    repaints(screen, "a step at work")
    for key, word, where in (
        ("l", "f follow", "the log"),
        ("w", "Why", "a card"),
        ("n", "Your note", "a field"),
    ):
        screen.press(key, word)
        repaints(screen, where)
        screen.press("\x1b", closed)


@SIZES
def test_keys_while_engines_build(
    tmp_path: Path, screens: list[Screen], size: tuple[int, int]
) -> None:
    """A model of 10,000 nodes, really reduced, a build on every core."""
    chain(tmp_path / "chain.onnx", NODES)
    np.savez(
        tmp_path / "in.npz", x=np.random.default_rng(1).normal(size=(1, 64)).astype(np.float32)
    )
    (tmp_path / "straight.yaml").write_text(FLOW % ("reproduce", REPRODUCE))
    words = [
        "open",
        "chain.onnx",
        "--engine",
        "emulate:precision=fp16",
        "--inputs",
        "in.npz",
        "--flow",
        "straight.yaml",
    ]
    begun = time.monotonic()
    screens.append(screen := Screen([*words, "--jobs", str(os.cpu_count())], tmp_path, size))
    screen.until("Enter runs it")
    screen.child.send("\r")
    screen.until("It fails")
    screen.wait(1.0)
    screen.child.send("\r")
    screen.until("Enter runs it")
    screen.child.send("\r")
    screen.until("stop now")
    (session,) = (tmp_path / "sessions").iterdir()
    journal, runner = (
        session / "journal.jsonl",
        json.loads((session / "progress.json").read_bytes())["pid"],
    )
    while (
        b'"kind":"probe.started"'
        not in journal.read_bytes().rpartition(b'"kind":"step.started"')[2]
    ):
        screen.wait(0.5)  # before, there is no probe to list
    before = schedstat(runner)
    print(
        f"\n{NODES:,} nodes, {os.cpu_count()} builds at a time, load {os.getloadavg()[0]:.1f}; {size}"
    )
    print(f"reducing after {time.monotonic() - begun:.0f} s")
    screen.wait(3.0)
    begun = time.monotonic()

    def ended() -> bool:
        return journal.read_bytes().count(b'"kind":"step.finished"') > 1

    either = ("stop now", "Your answer")
    keys(screen, AT_WORK, either, ended)
    if ended():
        print("the reduction ended before all keys were pressed")
    else:
        repaints(screen, "a step at work")
    events = [json.loads(line) for line in journal.read_bytes().splitlines()]
    built = [e["seconds"] for e in events if e["kind"] == "probe.finished" and e["run"] == 2]
    seconds = time.monotonic() - begun
    print(
        f"meanwhile {len(built)} probes of {np.median(built):.1f} s each in the middle, {seconds:.0f} s in all;"
    )
    print(f"the step's own work on the graph: {schedstat(runner) - before:.1f} s of the processor")
    screen.child.send("q")
    with contextlib.suppress(OSError):  # where nothing runs any more it has left already
        screen.wait(2.0)
        screen.child.send("\x1b[B\x1b[B\r")  # stop now
    screen.child.expect(pexpect.EOF)
    assert built


# A runner that only writes: a search of many probes, ten more each second, and a log of 100 MB that
# grows by a line each time.
WRITER = """
import asyncio, os, sys, time
from pathlib import Path
from narrowdown.engines.probe import Candidate, Import, Measure, Measurement, SampleResult, Score
from narrowdown.wizard.runner import progress
from narrowdown.wizard.runner.address import socket_path
from narrowdown.wizard.runner.server import Server
from narrowdown.wizard.session.events import (
    Offered, ProbeFinished, ProbeStarted, QuestionAsked, SessionOpened, StepFinished, StepStarted)
from narrowdown.wizard.session.journal import NAME, Journal
from narrowdown.wizard.session.lock import Lock

folder, probes, log_bytes, asks = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "asks"
model_nodes = int(sys.argv[5])

def score(error):
    return Measurement(results=(SampleResult("random:0", outputs=(Score("y", rel_l2=error),)),), nodes=96)

def pair(journal, n):
    first = n * 37 % (model_nodes - 96)
    nodes = f"{first}-{first + 95}"
    probe = Measure(model="m", inputs="i", samples=("random:0",), engine="emulate", reference="onnxruntime",
                    candidate=Candidate(nodes=nodes))
    journal.append(ProbeStarted(key=f"{n:064x}", run=1, probe=probe))
    journal.append(ProbeFinished(key=f"{n:064x}", run=1, measurement=score(0.4 if n % 2 else 1e-5), seconds=1.5))

async def main():
    where = socket_path(folder)
    lock = Lock.acquire(folder, str(where))
    journal = Journal(folder / NAME)
    journal.append(SessionOpened(id=folder.name))
    journal.append(StepStarted(run=1, node="reduce", visit=1, step="reduce", step_version=1))
    journal.append(ProbeStarted(key="whole", run=1, probe=Import(path="m.onnx", digest="d")))
    journal.append(ProbeFinished(key="whole", run=1, measurement=Measurement(facts={"nodes": model_nodes})))
    for n in range(probes):
        pair(journal, n)
    async def handle(request, client):
        return {"ok": True}
    server = Server(where, handle, lambda name: None)
    await server.start()
    line = "[W] %07d block 96-191: the kernel of Conv was chosen among 12 candidates in 0.31 s, workspace 32 MiB\\n"
    lines = log_bytes // len(line % 0)
    if asks:
        answers = tuple(Offered(str(n), f"Answer number {n}", "done", recommended=n == 1) for n in range(1, 13))
        journal.append(StepFinished(run=1, node="reduce", outcome={"message": "It is reduced."}, probes=probes))
        journal.append(QuestionAsked(node="reduce", visit=1, ask="Is it reduced?", answers=answers, recommended="1"))
    with (folder / "logs" / "001-measure.log").open("w") as log:
        log.writelines(line % n for n in range(lines))
        log.flush()
        if asks:
            progress.write(folder, progress.Snapshot(phase="ask", node="reduce", pid=os.getpid()))
            await asyncio.sleep(10**9)
        for n in range(probes, 10**9):
            pair(journal, n)
            log.write(line % (lines + n))
            log.flush()
            progress.write(folder, progress.Snapshot(phase="running", node="reduce", text="trying a part", done=n,
                                                     expected=2 * probes, best=96, tried=n, nodes=model_nodes,
                                                     eta=60.0, pid=os.getpid()))
            await asyncio.sleep(0.1)

asyncio.run(main())
"""

BUILDS = """
import sys, time
import os
import numpy, onnxruntime as ort
model, inputs = sys.argv[1], dict(numpy.load(sys.argv[2]))
os.nice(5)
while True:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, inputs)
"""


@pytest.fixture
def beside() -> Iterator[list["subprocess.Popen[bytes]"]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def written(folder: Path, does: str, beside: list["subprocess.Popen[bytes]"]) -> None:
    """Begin to write a session that ``does`` something (runs, asks), and a build on each core."""
    words = [
        sys.executable,
        "-P",
        "-c",
        WRITER,
        str(folder),
        str(PROBES),
        str(LOG_BYTES),
        does,
        str(NODES),
    ]
    beside.append(
        subprocess.Popen(words, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    )
    model = MODELS / "sort_tf_massive_m4"
    build = [sys.executable, "-P", "-c", BUILDS, f"{model}.onnx", f"{model}_in.npz"]
    beside += [subprocess.Popen(build) for _ in range(os.cpu_count() or 1)]
    while not (folder / "progress.json").exists():
        time.sleep(0.1)


@SIZES
def test_a_long_search_and_a_large_log(
    tmp_path: Path,
    screens: list[Screen],
    beside: list["subprocess.Popen[bytes]"],
    size: tuple[int, int],
) -> None:
    """1,000 probes over 10,000 nodes in the journal and 100 MB of log, both growing, with a build
    on every core beside."""
    problem = Problem(model=str(MODELS / "shapes_cnn.onnx"))
    shipped = load("accuracy").text
    folder = folders.create(
        problem, shipped.replace("start: reproduce", "start: reduce"), root=tmp_path / "sessions"
    )
    written(folder, "runs", beside)
    begun = time.monotonic()
    screens.append(screen := Screen(["resume", str(folder)], tmp_path, size))
    screen.until("stop now")
    print(
        f"\n{PROBES:,} probes and {LOG_BYTES >> 20} MiB of log, growing; {os.cpu_count()} builds beside; {size}"
    )
    print(f"on the screen after {time.monotonic() - begun:.1f} s")
    screen.wait(2.0)
    keys(screen, SEARCHING, "stop now")
    all_repaints(screen, "stop now")


def test_choosing_typing_scrolling(
    tmp_path: Path, screens: list[Screen], beside: list["subprocess.Popen[bytes]"]
) -> None:
    """Among twelve answers, in a field, through a log of 100 MB, and the terminal's corner dragged:
    builds beside."""
    problem = Problem(model=str(MODELS / "shapes_cnn.onnx"), flow="straight.yaml")
    folder = folders.create(problem, FLOW % ("reduce", ""), root=tmp_path / "sessions")
    written(folder, "asks", beside)
    screens.append(screen := Screen(["resume", str(folder)], tmp_path))
    screen.until("Answer number 12")
    screen.wait(2.0)
    print(f"\na question with twelve answers; {os.cpu_count()} builds beside")

    def each(keys: Iterable[tuple[str, str]]) -> list[Felt]:
        felt = []
        for key, wanted in keys:
            felt.append(screen.press(key, wanted))
            screen.wait(0.1)
        return felt

    down, up = "\x1b[B", "\x1b[A"
    steps = [(down, n) for n in range(2, 13)] + [(up, n) for n in range(11, 0, -1)]
    report("an arrow among the answers", each([(key, f"❯ {n} ") for key, n in steps] * 2))
    report("a digit among the answers", each([(str(n), f"❯ {n} ") for n in range(2, 10)] * 3))
    screen.press("n", "Your note")
    screen.wait(1.0)
    report("a letter in a field", each((letter, letter) for letter in "abcdefghijklmnopqrstuvwxyz"))
    screen.press("\x1b", "Your answer")
    screen.press("l", "f follow")
    screen.wait(1.0)
    report("a page up in the log", each([("\x1b[5~", "[W]")] * 20))
    screen.press("\x1b", "Your answer")
    felt = []
    for columns, rows in [(140, 40), (80, 24), (104, 30)] * 4:
        felt.append(screen.act(lambda: screen.child.setwinsize(rows, columns), "Your answer"))  # noqa: B023
        screen.wait(0.5)
    report("the terminal's corner dragged", felt)
    keys(
        screen, CARDS, "Your answer"
    )  # nothing is written meanwhile: all of the processor's time is the key's
    repaints(screen, "a question")
