"""A fault campaign: sessions are killed again and again, resumed, and must end as if nothing had happened.

A *scene* is a command and the files that it needs. A *manner* is how it is killed:

- ``tree``    the program, its runner, its workers and all that they started, at once, after a random time
- ``event``   the same, as soon as the journal has grown by a given number of lines
- ``runner``  the runner alone: everybody else must notice by themselves, and be gone
- ``torn``    the runner, by its own hand, in the middle of a journal line: a part of it is in the file
- ``written`` the runner, by its own hand, after a line is in the file and before anything acts on it
- ``clock``   as ``event``, while the runner's clock jumps back and forth by years
- ``worker``  one worker, by SIGKILL, several times in one start; the runner goes on
- ``segv``    the same by SIGSEGV, as an engine's own crash would be
- ``paused``  nothing is killed: the runner, or all of its workers, are stopped for a while and go on
- ``damage``  the runner as in ``event``; then a file of the session is cut short, or one of its bits is flipped
"""

import collections
import contextlib
import dataclasses
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-P", "-m", "wizard")  # also where the package is not installed
MARK = "NARROWDOWN_CAMPAIGN"
KILLS = ("tree", "event", "runner", "torn", "written", "clock", "worker")  # by SIGKILL
OTHERS = ("segv", "paused", "damage")
ALIVE = ("worker", "segv", "paused")  # the session itself goes on
STRIKES = 4  # in one start of such a session
CODES = (0, 2, 3, 4, 6, 10, 11, 12, 13)  # of a session that came to an end of its own
PATIENCE = 120.0  # seconds for one start of one session

# Put on the runner's path: the journal's Nth line of this process is its last. The product knows nothing of it.
_SHIM = '''
import os, random, signal, sys, time

if os.environ.get("CAMPAIGN_CLOCK"):
    real, chance = time.time, random.Random(os.getpid())
    time.time = lambda: real() + chance.choice((-1, 0, 1)) * chance.random() * 3e8

if os.environ.get("CAMPAIGN_LAST") and sys.argv[:1] and sys.argv[0].endswith(os.path.join("runner", "__main__.py")):
    class Watch:
        """Changes the journal module when it is first imported."""
        def find_spec(self, name, path=None, target=None):
            if name != "wizard.session.journal":
                return None
            sys.meta_path.remove(self)
            import importlib.util
            spec = importlib.util.find_spec(name)
            execute = spec.loader.exec_module
            def exec_module(module):
                execute(module)
                put, left = module.Journal._put, [int(os.environ["CAMPAIGN_LAST"])]
                def dying(self, line):
                    left[0] -= 1
                    if left[0] <= 0:
                        if os.environ["CAMPAIGN_MANNER"] == "torn":
                            os.write(self._fd, line[: 1 + int(os.environ["CAMPAIGN_PART"]) % (len(line) - 1)])
                        else:
                            put(self, line)
                        os.kill(os.getpid(), signal.SIGKILL)
                    put(self, line)
                module.Journal._put = dying
            spec.loader.exec_module = exec_module
            return spec
    sys.meta_path.insert(0, Watch())
'''


Moment = tuple[
    str, float
]  # the manner, and when: seconds after the start for ``tree``, else journal lines of that start


@dataclasses.dataclass(frozen=True)
class Scene:
    """``words`` of the command without its session; ``again``: what a resume is told, too."""

    name: str
    words: tuple[str, ...]
    again: tuple[str, ...] = ()


@dataclasses.dataclass
class Tally:
    """What one scene went through, in one manner. ``named``: sessions that ended otherwise than undisturbed and name the worker
    that was lost. ``steps``: how many moments lay in each. ``wrong``: what did not end as it should, in words."""

    scene: str
    manner: str
    kills: int = 0
    sessions: int = 0
    torn: int = 0
    named: int = 0
    steps: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    wrong: list[str] = dataclasses.field(default_factory=list)


def events(session: Path) -> list[dict[str, Any]]:
    """The journal's whole lines."""
    found = []
    try:
        data = (session / "journal.jsonl").read_bytes()
    except OSError:
        return []
    for line in data.split(b"\n")[:-1]:
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def lines(session: Path) -> int:
    """How many whole lines the journal has; cheap enough to ask a thousand times a second."""
    try:
        return (session / "journal.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0


def marked(mark: str) -> list[int]:
    """Processes that were started by this start of the program, and still run."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0") and _state(folder) != "Z":
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def _state(folder: Path) -> str:
    return (folder / "stat").read_text().rsplit(")", 1)[1].split()[0]


def kill_tree(mark: str) -> None:
    """SIGKILL to all of them; they are stopped first, so that none sees another die."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        while pids := [pid for pid in marked(mark) if number == signal.SIGKILL or _running(pid)]:
            for pid in pids:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue
            time.sleep(0.002)


def _running(pid: int) -> bool:
    try:
        # D: it waits for a child that has not yet become another program, and that one is stopped.
        return _state(Path(f"/proc/{pid}")) not in "TtZD"
    except OSError:
        return False


class Straight(NamedTuple):
    """An undisturbed run: its exit code, its canonical route, how long it took, the lines of its journal."""

    code: int
    route: str
    seconds: float
    lines: int


def straight_folder(scene: str) -> str:
    """The name of the session of a scene that nothing happens to."""
    return f"straight-{scene}"


class Campaign:
    """``home`` holds everything that is written; ``environment`` is that of the program; ``straight``: undisturbed runs that are
    already known, by scene."""

    def __init__(
        self, home: Path, environment: Mapping[str, str], seed: int | str = 0, straight: Mapping[str, Straight] = {}
    ) -> None:
        self.home, self.random = home, random.Random(seed)
        shim = home / "shim"
        shim.mkdir(parents=True, exist_ok=True)
        (shim / "sitecustomize.py").write_text(_SHIM)
        paths = [str(shim), str(ROOT), *filter(None, [environment.get("PYTHONPATH", "")])]
        self._environment = {**environment, "PYTHONPATH": os.pathsep.join(paths)}
        self._straight = dict(straight)

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """The program, undisturbed."""
        return subprocess.run(
            [*PROGRAM, *map(str, words)], env=self._environment, cwd=self.home, text=True, capture_output=True,
            stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False,
        )  # fmt: skip

    def straight(self, scene: Scene) -> Straight:
        """The undisturbed run, made when it is first asked for."""
        if scene.name not in self._straight:
            session = self.home / straight_folder(scene.name)
            began = time.monotonic()
            ran = self.run(*scene.words, "--session", session, "--display", "none")
            seconds = time.monotonic() - began
            assert ran.returncode not in (2, 70), ran.stderr
            route = self.run("show", session, "--canonical").stdout
            self._straight[scene.name] = Straight(ran.returncode, route, seconds, lines(session))
        return self._straight[scene.name]

    def disturbed(
        self,
        scene: Scene,
        manner: str,
        moments: Iterator[Moment | None],
        limit: int = 10**6,
        tally: Tally | None = None,
    ) -> Tally:
        """One session of the scene, killed at one moment after the other until it comes to its end; at most ``limit`` times."""
        tally = tally or Tally(scene.name, manner)
        if manner == "damage":
            self.hurt(scene, moments, min(limit, 8), tally)
            return tally
        code, route, _, _ = self.straight(scene)
        session = self.home / f"{scene.name}-{manner}-{tally.sessions}-{secrets.token_hex(3)}"
        tally.sessions += 1
        kills = 0
        while True:
            how, moment = (next(moments) if kills < limit else None) or ("", None)
            ended, said = self._start(scene, session, how, moment, tally)
            if ended is not None:
                break
            kills += 1
            tally.kills += 1
            tally.steps[_step(events(session))] += 1
        tally.torn += len(list(session.glob("journal.torn-*")))
        wrong = self._judged(session, ended, said, code, route)
        if wrong and self._named(session, ended):
            tally.named += 1
        else:
            tally.wrong += wrong
        return tally

    def _start(
        self, scene: Scene, session: Path, manner: str, moment: float | None, tally: Tally
    ) -> tuple[int | None, str]:
        """One start. (exit code, what was said) where it came to its end before it was killed, else (None, "")."""
        begun = (session / "session.json").exists()
        words: list[str | Path] = ["resume", session, *scene.again] if begun else [*scene.words, "--session", session]
        mark, before = secrets.token_hex(8), lines(session)
        environment = {**self._environment, MARK: mark}
        if manner == "clock":
            environment["CAMPAIGN_CLOCK"] = "1"
        if moment is not None and manner in ("torn", "written"):
            part = str(self.random.randrange(1 << 16))
            environment |= {"CAMPAIGN_LAST": str(int(moment)), "CAMPAIGN_MANNER": manner, "CAMPAIGN_PART": part}
        process = subprocess.Popen(
            [*PROGRAM, *map(str, words), "--display", "none"], env=environment, cwd=self.home, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            if moment is not None and manner in ALIVE:
                spread = max(1, 2 * self.straight(scene).lines // STRIKES)
                self._strike(process, session, mark, manner, spread, tally)
            elif moment is not None and manner not in ("torn", "written"):
                due = _after(moment) if manner == "tree" else _grown(session, before + int(moment))
                if _wait(due, process):
                    return self._killed(process, session, mark, manner)
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            kill_tree(mark)
            process.wait()
        died = "ended unexpectedly" in err or (
            manner in ("torn", "written") and moment is not None and process.returncode == 70
        )
        return (None, "") if died else (process.returncode, out + err)

    def _strike(
        self, process: "subprocess.Popen[str]", session: Path, mark: str, manner: str, spread: int, tally: Tally
    ) -> None:
        """Hurt the session a few times while it goes on; each time when its journal has grown by up to ``spread`` lines and up to
        a tenth of a second has gone by."""
        for _ in range(STRIKES):
            if not _wait(_grown(session, lines(session) + self.random.randint(1, spread)), process):
                return
            if not _wait(_after(self.random.random() / 10), process):
                return
            step = _step(events(session))
            if self._pause(mark) if manner == "paused" else self._hit(mark, manner):
                tally.kills += 1
                tally.steps[step] += 1

    def _hit(self, mark: str, manner: str) -> bool:
        """Kill one worker; whether there was one."""
        workers = [pid for pid in marked(mark) if _is_worker(pid)]
        if not workers:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.random.choice(workers), signal.SIGSEGV if manner == "segv" else signal.SIGKILL)
            return True
        return False

    def _pause(self, mark: str) -> bool:
        """Stop the runner, or all of its workers, for up to two seconds; whether there was any."""
        runners = [pid for pid in marked(mark) if _is_runner(pid)]
        workers = [pid for pid in marked(mark) if _is_worker(pid)]
        chosen = self.random.choice([found for found in (runners, workers) if found] or [[]])
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in chosen:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            if number == signal.SIGSTOP:
                time.sleep(self.random.random() * 2)
        return bool(chosen)

    def _damage(self, session: Path) -> Path:
        """Cut one file of the session short, or flip one of its bits; the file."""
        files = [p for p in sorted(session.rglob("*")) if p.is_file() and p.stat().st_size and "logs" not in p.parts]
        # By folder first: else nearly all would be captured values.
        part = self.random.choice(sorted({p.relative_to(session).parts[0] for p in files}))
        path = self.random.choice([p for p in files if p.relative_to(session).parts[0] == part])
        data = bytearray(path.read_bytes())
        at = self.random.randrange(len(data))
        if self.random.random() < 0.5:
            del data[at:]
        else:
            data[at] ^= 1 << self.random.randrange(8)
        path.write_bytes(data)
        return path

    def hurt(self, scene: Scene, moments: Iterator[Moment | None], limit: int, tally: Tally) -> None:
        """One session of the scene, killed once, and copies of it with one damaged file each. A copy comes to its end, or is
        refused with the file's name and a repaired copy comes to its end."""
        code, route, _, _ = self.straight(scene)
        session = self.home / f"{scene.name}-hurt-{secrets.token_hex(3)}"
        _, moment = next(moments) or ("", 1.0)
        if self._start(scene, session, "event", moment + 6, tally)[0] is not None:
            return
        for number in range(limit):
            # What a killed checker leaves behind holds links to all that lies beside the session.
            left = shutil.ignore_patterns("checks")
            copy = Path(shutil.copytree(session, session.with_name(f"{session.name}-{number}"), ignore=left))
            name = self._damage(copy).relative_to(copy)
            tally.kills, tally.sessions = tally.kills + 1, tally.sessions + 1
            ran = self.run("resume", copy, *scene.again, "--display", "none")
            if ran.returncode == 4 and name.name in ran.stderr:
                ran = self.run("resume", copy, "--repair", *scene.again, "--display", "none")
                if ran.returncode == 4 and name.name in ("session.json", "flow.yaml") and name.name in ran.stderr:
                    continue  # nothing else knows what stood in it, but for a shipped flow
                copy = copy.with_name(f"{copy.name}-repaired-1")
            if "Traceback" in ran.stderr or ran.returncode != code:
                tally.wrong.append(
                    f"{copy.name}, {name}: exit code {ran.returncode}, {code} undisturbed: {ran.stderr[-300:]}"
                )
            elif (now := self.run("show", copy, "--canonical").stdout) != route:
                tally.wrong.append(f"{copy.name}, {name}: another route:\n{_difference(route, now)}")

    def _killed(
        self, process: "subprocess.Popen[str]", session: Path, mark: str, manner: str
    ) -> tuple[int | None, str]:
        if manner != "runner":
            kill_tree(mark)
            process.communicate(timeout=30)
            return None, ""
        holder = next((e["pid"] for e in reversed(events(session)) if e["kind"] == "session.opened"), 0)
        if holder in marked(mark):
            os.kill(holder, signal.SIGKILL)
        out, err = process.communicate(timeout=PATIENCE)
        end = time.monotonic() + 3.0
        while (left := marked(mark)) and time.monotonic() < end:
            time.sleep(0.02)
        if left:
            return -1, f"processes {left} outlived the runner"
        if "ended unexpectedly" in err:
            return None, ""
        return process.returncode, out + err

    def _named(self, session: Path, ended: int | None) -> bool:
        """Whether the session came to an end of its own and its report names a worker that was lost at a probe."""
        lost = any(e["kind"] == "worker.died" and e.get("key") for e in events(session))
        said = self.run("report", session).stdout if lost and ended in CODES else ""
        return "cost its worker" in said

    def _judged(self, session: Path, ended: int | None, said: str, code: int, route: str) -> list[str]:
        """What is wrong with a session that has come to its end."""
        wrong = []
        if "Traceback" in said:
            wrong.append(f"{session.name}: a traceback: {said[-300:]}")
        if ended != code:
            wrong.append(f"{session.name}: exit code {ended}, {code} undisturbed: {said[-300:]}")
        started: set[str] = set()
        finished: set[str] = set()
        for event in events(session):
            key = event.get("key", "")
            if event["kind"] == "probe.started" and key in finished:
                wrong.append(f"{session.name}: probe {key[:12]} was finished and ran again")
            if event["kind"] == "probe.finished":
                if key in finished:
                    wrong.append(f"{session.name}: probe {key[:12]} was finished twice")
                finished.add(key)
            if event["kind"] == "probe.started":
                started.add(key)
        if not finished <= started:
            wrong.append(f"{session.name}: a probe finished that was never started")
        now = self.run("show", session, "--canonical").stdout
        if now != route:
            wrong.append(f"{session.name}: another route:\n{_difference(route, now)}")
        left = [p.name for pattern in (".*.tmp", "*/.*.tmp", "*/*/.*.tmp") for p in session.glob(pattern)]
        if left:
            wrong.append(f"{session.name}: unfinished files are left: {left[:4]}")
        return wrong


def _step(found: list[dict[str, Any]]) -> str:
    """The step that was at work in the last of these events."""
    for event in reversed(found):
        if event["kind"] == "step.started":
            return str(event["step"])
        if event["kind"] in ("question.asked", "question.answered"):
            return "between steps"
    return "before the first step"


def _after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def _grown(session: Path, wanted: int) -> Callable[[], bool]:
    return lambda: lines(session) >= wanted


def _is_runner(pid: int) -> bool:
    return b"runner/__main__.py" in _command(pid)


def _is_worker(pid: int) -> bool:
    return b"workers/__main__.py" in _command(pid)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _wait(due: Callable[[], bool], process: "subprocess.Popen[str]") -> bool:
    """Whether the moment came before the end of the program."""
    end = time.monotonic() + PATIENCE
    while not due():
        if process.poll() is not None or time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def _difference(one: str, other: str) -> str:
    import difflib

    return "\n".join(list(difflib.unified_diff(one.splitlines(), other.splitlines(), lineterm="", n=0))[:12])


def moments(manner: str, chance: random.Random, seconds: float) -> Iterator[Moment]:
    """When to kill: each start of a session a little later than the one before, so that every one gets further."""
    further = 0.0
    while True:
        if manner == "tree":
            yield manner, 0.15 + chance.random() * seconds * 0.9 + further
            further += 0.05
        else:
            yield manner, 1 + chance.randrange(4 + int(further)) + int(further)
            further += 0.5


def until(deadline: float, found: Iterator[Moment]) -> Iterator[Moment | None]:
    """The moments, and None after the deadline (of ``time.monotonic``): nothing is killed any more."""
    for moment in found:
        yield moment if time.monotonic() < deadline else None


def interrupted_exports(campaign: Campaign, session: Path, kills: int, tally: Tally) -> None:
    """``narrowdown export`` killed at random times: what is under the name that was asked for is whole, or not there."""
    whole = campaign.home / "whole"
    began = time.monotonic()
    campaign.run("export", session, "-o", whole)
    seconds = time.monotonic() - began
    wanted = sorted(str(path.relative_to(whole)) for path in whole.rglob("*"))
    assert "check.py" in wanted
    for number in range(kills):
        target = campaign.home / f"export-{number}"
        mark = secrets.token_hex(8)
        process = subprocess.Popen(
            [*PROGRAM, "export", str(session), "-o", str(target)], env={**campaign._environment, MARK: mark}, cwd=campaign.home,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        tally.kills += _wait(_after(0.1 + campaign.random.random() * seconds), process)
        kill_tree(mark)
        process.wait()
        found = sorted(str(path.relative_to(target)) for path in target.rglob("*")) if target.exists() else wanted
        if found != wanted:
            tally.wrong.append(f"a part of a bundle lies in {target.name}: {found[:4]}")
            continue
        again = campaign.run("export", session, "-o", target)
        found = sorted(str(path.relative_to(target)) for path in target.rglob("*"))
        if again.returncode or found != wanted:
            tally.wrong.append(
                f"after a kill the export gave {again.returncode} and {len(found)} files: {again.stderr[-200:]}"
            )
        tally.sessions += 1
