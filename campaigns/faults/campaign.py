"""A fault campaign: sessions are killed again and again, resumed, and must end as if nothing had
happened.

A *scene* is a command and the files that it needs. A *manner* is how it is killed:

- ``tree``    the program, its runner, its workers and all that they started, at once, after a
random time
- ``event``   the same, as soon as the journal has grown by a given number of lines
- ``runner``  the runner alone: everybody else must notice by themselves, and be gone
- ``torn``    the runner, by its own hand, in the middle of a journal line: a part of it is in the
file
- ``written`` the runner, by its own hand, after a line is in the file and before anything acts on
it
- ``unfinished`` whoever writes a file and the runner with it, before the file has its own name
- ``power``   as ``event``; then whatever was not synced is gone, as if the machine had lost its
power
- ``clock``   as ``event``, while the runner's clock jumps back and forth by years
- ``worker``  one worker, by SIGKILL, several times in one start; the runner goes on
- ``segv``    the same by SIGSEGV, as an engine's own crash would be
- ``paused``  nothing is killed: the runner, or all of its workers, are stopped for a while and go
on
- ``two``     nothing is killed: a second runner is started on the session
- ``disk``    nothing is killed: the session lies on a disk that is too small, and grows when it is
full
- ``damage``  the runner as in ``event``; then a file of the session is cut short, or one of its
bits is flipped

Nothing is excused after a SIGKILL. A SIGSEGV may be the engine's own: the probes whose workers died
of it, and no others, may be lost, and the session must then end as an undisturbed one does whose
engine crashes at just those probes.
"""

import collections
import contextlib
import dataclasses
import json
import os
import random
import re
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
PROGRAM = (sys.executable, "-P", "-m", "narrowdown")  # also where the package is not installed
MARK = "NARROWDOWN_CAMPAIGN"
KILLS = (
    "tree",
    "event",
    "runner",
    "torn",
    "written",
    "unfinished",
    "power",
    "clock",
    "worker",
)  # by SIGKILL
OTHERS = ("segv", "paused", "two", "disk", "damage")
ALIVE = ("worker", "segv", "paused", "two")  # the session itself goes on
BY_ITSELF = ("torn", "written", "unfinished")  # by its own hand
STRIKES = 4  # in one start of such a session
PATIENCE = 120.0  # seconds for one start of one session, on a quiet machine
LAZY = ("probe.started", "worker.died")  # events that nobody acts on: not synced one by one
SIZES = 40  # of disks, from a few KiB up to what the session takes
NO_ROOM = re.compile("is full|takes no further file")
AGAIN = re.compile(
    "second time in one probe|died of signal 11"
)  # a start that ended for its workers alone

# Of a sitecustomize that imports sys: a module of the product is another one from its first import
# on.
ON_IMPORT = """
def on_import(wanted, change):
    class Watch:
        def find_spec(self, name, path=None, target=None):
            if name != wanted:
                return None
            sys.meta_path.remove(self)
            import importlib.util
            spec = importlib.util.find_spec(name)
            execute = spec.loader.exec_module
            def exec_module(module):
                execute(module)
                change(module)
            spec.loader.exec_module = exec_module
            return spec
    sys.meta_path.insert(0, Watch())
"""

# Put on the runner's path: the journal's Nth line of this process is its last. The product knows
# nothing of it.
_SHIM = (
    """
import os, random, signal, sys, time

ARGUMENTS = " ".join(getattr(sys, "orig_argv", sys.argv)).replace(os.sep, "/")
RUNNER, WORKER = "runner/__main__.py" in ARGUMENTS, "workers/__main__.py" in ARGUMENTS
MANNER = os.environ.get("CAMPAIGN_MANNER")

"""
    + ON_IMPORT
    + """
if os.environ.get("CAMPAIGN_CLOCK"):
    real, chance = time.time, random.Random(os.getpid())
    time.time = lambda: real() + chance.choice((-1, 0, 1)) * chance.random() * 3e8

LAST = [int(os.environ.get("CAMPAIGN_LAST", "0"))]

if MANNER in ("torn", "written") and RUNNER:
    def change(module):
        put = module.Journal._put
        def dying(self, line):
            LAST[0] -= 1
            if LAST[0] <= 0:
                if MANNER == "torn":
                    os.write(self._fd, line[: 1 + int(os.environ["CAMPAIGN_PART"]) % (len(line) - 1)])
                else:
                    put(self, line)
                os.kill(os.getpid(), signal.SIGKILL)
            put(self, line)
        module.Journal._put = dying
    on_import("narrowdown.wizard.session.journal", change)

if MANNER == "unfinished" and (RUNNER or WORKER):
    sync = os.fsync
    def dying_sync(fd):
        LAST[0] -= os.readlink(f"/proc/self/fd/{fd if isinstance(fd, int) else fd.fileno()}").endswith(".tmp")
        if LAST[0] <= 0:
            if WORKER:
                os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        sync(fd)
    os.fsync = dying_sync

if os.environ.get("CAMPAIGN_SYNCED"):
    notes, synced = os.open(os.environ["CAMPAIGN_SYNCED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC), os.fsync
    def noted_sync(fd):
        synced(fd)
        status = os.fstat(fd)
        os.write(notes, b"synced %d %d\\n" % (status.st_ino, status.st_size))
    os.fsync = noted_sync
    if RUNNER:
        def change(module):
            append = module.Journal.append
            def noted(self, event):
                written = append(self, event)
                if written.__struct_config__.tag not in ("probe.started", "worker.died"):
                    os.write(notes, b"told %d 0\\n" % written.seq)
                return written
            module.Journal.append = noted
        on_import("narrowdown.wizard.session.journal", change)

if os.environ.get("CAMPAIGN_LOST") and RUNNER:
    def change(module):
        import contextvars, json, msgspec
        with open(os.environ["CAMPAIGN_LOST"]) as file:
            lost = {k: msgspec.convert(m, module.Measurement) for k, m in json.load(file).items()}
        asked = contextvars.ContextVar("asked", default="")
        measure, run = module.Drive._measure, module.Guarded.run
        async def named(self, name, probe, speculative):
            asked.set(name)
            return await measure(self, name, probe, speculative)
        async def losing(self, probe, timeout=0.0, log=""):
            return lost[asked.get()] if asked.get() in lost else await run(self, probe, timeout, log)
        module.Drive._measure, module.Guarded.run = named, losing
    on_import("narrowdown.wizard.runner.drive", change)
"""
)


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
    """What one scene went through, in one manner. ``lost``: sessions that lost a probe to a
    SIGSEGV, and came to what follows from that. ``kib``: of the disk that it began on. ``steps``:
    how many moments lay in each. ``wrong``: what did not end as it should, in words. ``skipped``:
    why nothing was done."""

    scene: str
    manner: str
    kills: int = 0
    sessions: int = 0
    torn: int = 0
    lost: int = 0
    kib: int = 0
    skipped: str = ""
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


def whole(session: Path) -> bytes:
    """The journal's whole lines, as they lie there."""
    try:
        data = (session / "journal.jsonl").read_bytes()
    except OSError:
        return b""
    return data[: data.rfind(b"\n") + 1]


def tail(session: Path) -> bytes:
    """What follows them."""
    return (
        (session / "journal.jsonl").read_bytes()[len(whole(session)) :]
        if (session / "journal.jsonl").exists()
        else b""
    )


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


def wait_at_most() -> float:
    """Seconds for one start of one session: PATIENCE, as long as that takes on a machine with other
    work (tests/patience.py). The program as it is was said to be wrong for being late."""
    return PATIENCE * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


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
    """An undisturbed run: its exit code, its canonical route, how long it took, the lines of its
    journal, its files' KiB."""

    code: int
    route: str
    seconds: float
    lines: int
    kib: int = 0


def copied(source: Path, folder: Path) -> Path:
    """The program's packages in ``folder``: what a campaign looks at stays as it is, though
    somebody may be at work on it."""
    for package in ("engines", "flows", "wizard"):
        shutil.copytree(
            source / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copytree(
        source / "narrowdown",
        folder / "narrowdown",
        symlinks=True,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    return folder


def straight_folder(scene: str) -> str:
    """The name of the session of a scene that nothing happens to."""
    return f"straight-{scene}"


class Campaign:
    """``home`` holds everything that is written; ``environment`` is that of the program;
    ``straight``: undisturbed runs that are already known, by scene; ``product``: the folder that
    holds the program's packages."""

    def __init__(
        self,
        home: Path,
        environment: Mapping[str, str],
        seed: int | str = 0,
        straight: Mapping[str, Straight] = {},
        product: Path = ROOT,
    ) -> None:
        self.home, self.random = home, random.Random(seed)
        shim = home / "shim"
        shim.mkdir(parents=True, exist_ok=True)
        (shim / "sitecustomize.py").write_text(_SHIM)
        paths = [str(shim), str(product), *filter(None, [environment.get("PYTHONPATH", "")])]
        self._environment = {**environment, "PYTHONPATH": os.pathsep.join(paths)}
        self._straight = dict(straight)
        self._product = product
        self._struck: set[int] = set()  # workers that were ended by SIGSEGV

    def run(self, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """The program, undisturbed."""
        return subprocess.run(
            [*PROGRAM, *map(str, words)], env=self._environment | environment, cwd=self.home, text=True, capture_output=True,
            stdin=subprocess.DEVNULL, timeout=wait_at_most(), check=False,
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
            # A file that several names link to once, and no folders: so a tmpfs counts.
            blocks = {
                p.stat().st_ino: p.stat().st_blocks for p in session.rglob("*") if p.is_file()
            }
            kib = sum(blocks.values()) // 2
            self._straight[scene.name] = Straight(
                ran.returncode, route, seconds, lines(session), kib
            )
        return self._straight[scene.name]

    def disturbed(
        self,
        scene: Scene,
        manner: str,
        moments: Iterator[Moment | None],
        limit: int = 10**6,
        tally: Tally | None = None,
    ) -> Tally:
        """One session of the scene, killed at one moment after the other until it comes to its end;
        at most ``limit`` times."""
        tally = tally or Tally(scene.name, manner)
        if manner == "damage":
            self.hurt(scene, moments, min(limit, 8), tally)
            return tally
        session = self.home / f"{scene.name}-{manner}-{tally.sessions}-{secrets.token_hex(3)}"
        tally.sessions += 1
        kills = 0
        kept, tails = b"", set[bytes]()  # what must stay: the journal's lines, and each torn line
        self._struck.clear()
        while True:
            how, moment = (next(moments) if kills < limit else None) or ("", None)
            ended, said = self._start(scene, session, how, moment, tally)
            if not (now := whole(session)).startswith(kept):
                tally.wrong.append(
                    f"{session.name}: lines of its journal are gone ({len(kept)} bytes were there)"
                )
            kept = now
            if ended == 4 and how in ALIVE and AGAIN.search(said) and not self._lost(session):
                if "second time" in said and not _twice(session):
                    tally.wrong.append(
                        f"{session.name}: it gave up a probe whose worker was killed once"
                    )
                kills += 1
                continue  # its workers were killed until it gave up, as it says; their kills are counted
            if ended is not None:
                break
            tails |= {torn} if (torn := tail(session)) else set()
            kills += 1
            tally.kills += 1
            tally.steps[_step(events(session))] += 1
        aside = {path.read_bytes() for path in session.glob("journal.torn-*")}
        tally.torn += len(aside)
        if lost := tails - aside:
            tally.wrong.append(f"{session.name}: {len(lost)} torn lines were not set aside")
        tally.wrong += self._judged(scene, session, ended, said, tally)
        return tally

    def _start(
        self, scene: Scene, session: Path, manner: str, moment: float | None, tally: Tally
    ) -> tuple[int | None, str]:
        """One start. (exit code, what was said) where it came to its end before it was killed, else
        (None, "")."""
        begun = (session / "session.json").exists()
        words: list[str | Path] = (
            ["resume", session, *scene.again] if begun else [*scene.words, "--session", session]
        )
        mark, before = secrets.token_hex(8), lines(session)
        environment = {**self._environment, MARK: mark}
        if manner == "clock":
            environment["CAMPAIGN_CLOCK"] = "1"
        before_power, notes = _files(session), self.home / f"synced-{mark}"
        if manner == "power":
            environment["CAMPAIGN_SYNCED"] = str(notes)
        if moment is not None and manner in BY_ITSELF:
            part = str(self.random.randrange(1 << 16))
            environment |= {
                "CAMPAIGN_LAST": str(int(moment)),
                "CAMPAIGN_MANNER": manner,
                "CAMPAIGN_PART": part,
            }
        process = subprocess.Popen(
            [*PROGRAM, *map(str, words), "--display", "none"], env=environment, cwd=self.home, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            if moment is not None and manner in ALIVE:
                spread = max(1, 2 * self.straight(scene).lines // STRIKES)
                self._strike(process, session, mark, manner, spread, tally)
            elif moment is not None and manner not in BY_ITSELF:
                due = _after(moment) if manner == "tree" else _grown(session, before + int(moment))
                if _wait(due, process):
                    ended = self._killed(process, session, mark, manner)
                    if manner == "power":
                        tally.wrong += _cut_power(session, notes, before_power)
                    return ended
            out, err = process.communicate(timeout=wait_at_most())
        finally:
            kill_tree(mark)
            process.wait()
        ended = "ended unexpectedly" in err or process.returncode in (70, -signal.SIGKILL)
        if manner in BY_ITSELF and moment is not None and ended:
            return None, ""
        # A runner that dies though nobody has killed it is no moment, but what the campaign looks
        # for.
        return process.returncode, out + err

    def _strike(
        self,
        process: "subprocess.Popen[str]",
        session: Path,
        mark: str,
        manner: str,
        spread: int,
        tally: Tally,
    ) -> None:
        """Hurt the session a few times while it goes on; each time when its journal has grown by up
        to ``spread`` lines and up to a tenth of a second has gone by."""
        for _ in range(STRIKES):
            if not _wait(_grown(session, lines(session) + self.random.randint(1, spread)), process):
                return
            if not _wait(_after(self.random.random() / 10), process):
                return
            step = _step(events(session))
            if manner == "two":
                tally.wrong += self._second(session, mark)
            if manner == "two" or (
                self._pause(mark) if manner == "paused" else self._hit(mark, manner)
            ):
                tally.kills += 1
                tally.steps[step] += 1

    def _hit(self, mark: str, manner: str) -> bool:
        """Kill one worker; whether there was one."""
        workers = [pid for pid in marked(mark) if _is_worker(pid)]
        if not workers:
            return False
        with contextlib.suppress(ProcessLookupError):
            chosen = self.random.choice(workers)
            self._struck |= {chosen} if manner == "segv" else set()
            os.kill(chosen, signal.SIGSEGV if manner == "segv" else signal.SIGKILL)
            return True
        return False

    def _second(self, session: Path, mark: str) -> list[str]:
        """Start another runner on a session that is held. It must leave at once, and write
        nothing."""
        holder = next(
            (e["pid"] for e in reversed(events(session)) if e["kind"] == "session.opened"), 0
        )
        if holder not in marked(mark):
            return []
        script = self._product / "wizard" / "runner" / "__main__.py"
        environment = {**self._environment, MARK: mark}
        words = [sys.executable, "-P", str(script), str(session), "{}"]
        second = subprocess.Popen(words, env=environment, cwd=self.home, start_new_session=True)
        opened: list[dict[str, Any]] = []
        end = time.monotonic() + PATIENCE / 4
        while second.poll() is None and not opened and time.monotonic() < end:
            opened = [
                e
                for e in events(session)
                if e["kind"] == "session.opened" and e["pid"] == second.pid
            ]
            time.sleep(0.01)
        # One that has waited for the end of the first may go on from there.
        before = events(session)[: opened[0]["seq"] - 1] if opened else []
        wrong = bool(opened) and not any(e["kind"] == "session.closed" for e in before)
        if wrong or not opened:
            second.kill()
        second.wait(PATIENCE)
        return [
            f"{session.name}: a second runner worked on a session that another one held"
        ] * wrong

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

    def _damage(self, session: Path, number: int) -> Path:
        """Cut one file of the session short, or flip one of its bits; the file. ``number`` 0: a bit
        of a line in the middle of the journal."""
        if number == 0:
            path = session / "journal.jsonl"
            data = bytearray(path.read_bytes())
            data[self.random.randrange(data[: data[:-1].rfind(b"\n")].rfind(b"\n"))] ^= 2
            path.write_bytes(data)
            return path
        files = [
            p
            for p in sorted(session.rglob("*"))
            if p.is_file() and p.stat().st_size and "logs" not in p.parts
        ]
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

    def hurt(
        self, scene: Scene, moments: Iterator[Moment | None], limit: int, tally: Tally
    ) -> None:
        """One session of the scene, killed once, and copies of it with one damaged file each. A
        copy comes to its end, or is refused with the file's name and a repaired copy comes to its
        end."""
        code, route = self.straight(scene)[:2]
        session = self.home / f"{scene.name}-hurt-{secrets.token_hex(3)}"
        _, moment = next(moments) or ("", 1.0)
        if self._start(scene, session, "event", moment + 6, tally)[0] is not None:
            return
        for number in range(limit):
            # What a killed checker leaves behind holds links to all that lies beside the session.
            left = shutil.ignore_patterns("checks")
            copy = Path(
                shutil.copytree(session, session.with_name(f"{session.name}-{number}"), ignore=left)
            )
            name = self._damage(copy, number).relative_to(copy)
            middle = name.name == "journal.jsonl" and _in_the_middle(
                whole(session), (copy / name).read_bytes()
            )
            tally.kills, tally.sessions = tally.kills + 1, tally.sessions + 1
            ran = self.run("resume", copy, *scene.again, "--display", "none")
            if middle and ran.returncode != 4:
                tally.wrong.append(
                    f"{copy.name}: a line in the middle of its journal was damaged, and nobody was told"
                )
            if ran.returncode == 4 and name.name in ran.stderr:
                ran = self.run("resume", copy, "--repair", *scene.again, "--display", "none")
                if (
                    ran.returncode == 4
                    and name.name in ("session.json", "flow.yaml")
                    and name.name in ran.stderr
                ):
                    continue  # nothing else knows what stood in it, but for a shipped flow
                copy = copy.with_name(f"{copy.name}-repaired-1")
            if "Traceback" in ran.stderr or ran.returncode != code:
                tally.wrong.append(
                    f"{copy.name}, {name}: exit code {ran.returncode}, {code} undisturbed: {ran.stderr[-300:]}"
                )
            elif (now := self.run("show", copy, "--canonical").stdout) != route:
                tally.wrong.append(
                    f"{copy.name}, {name}: another route:\n{_difference(route, now)}"
                )

    def _killed(
        self, process: "subprocess.Popen[str]", session: Path, mark: str, manner: str
    ) -> tuple[int | None, str]:
        if manner != "runner":
            kill_tree(mark)
            process.communicate(timeout=30)
            return None, ""
        holder = next(
            (e["pid"] for e in reversed(events(session)) if e["kind"] == "session.opened"), 0
        )
        if holder in marked(mark):
            os.kill(holder, signal.SIGKILL)
        out, err = process.communicate(timeout=wait_at_most())
        end = time.monotonic() + 3.0
        while (left := marked(mark)) and time.monotonic() < end:
            time.sleep(0.02)
        if left:
            return -1, f"processes {left} outlived the runner"
        if "ended unexpectedly" in err:
            return None, ""
        return process.returncode, out + err

    def filled(self, scene: Scene, size: int, tally: Tally) -> None:
        """One session of the scene on a disk of its own that is too small, and grows each time when
        it is full. ``size``: the first one, from 1 up to ``SIZES``, which is what the session takes
        at its end."""
        straight = self.straight(scene)
        disk = self.home / f"disk-{secrets.token_hex(3)}"
        disk.mkdir()
        kib = tally.kib = max(8, size * straight.kib // SIZES)
        if said := _mounted(disk, kib):
            tally.skipped = said
            return
        session = disk / "s"
        (disk / "tmp").mkdir()
        # Every other session has its temporary files on that disk, too.
        place = {"TMPDIR": str(disk / "tmp")} if size % 2 else {}
        usual, self._environment = self._environment, self._environment | place
        tally.sessions += 1
        kept = b""
        try:
            while True:
                ended, said = self._start(scene, session, "", None, tally)
                if not (now := whole(session)).startswith(kept):
                    tally.wrong.append(f"{session}: lines of its journal are gone")
                kept = now
                if tail(session):
                    tally.wrong.append(
                        f"{session}: a part of a line was left in the journal of a disk of {kib} KiB"
                    )
                if ended != 4 or not NO_ROOM.search(said):
                    break
                if str(disk) not in said:
                    tally.wrong.append(
                        f"{session}: the disk that is full is not named: {said[-300:]}"
                    )
                tally.kills += 1
                tally.steps[_step(events(session))] += 1
                kib += (
                    self.random.choice((8, 16, 32, 64, 128, 256)) if tally.kills % 60 else 1 << 16
                )
                _mounted(disk, kib)
            tally.wrong += self._judged(scene, session, ended, said, tally)
        finally:
            self._environment = usual
            if tally.wrong and session.exists():
                shutil.copytree(
                    session,
                    self.home / f"{scene.name}-disk",
                    ignore=shutil.ignore_patterns("checks"),
                )
            subprocess.run(["umount", "--lazy", disk], check=False)

    def _lost(self, session: Path) -> dict[str, Any]:
        """The measurements of probes whose workers were ended here by SIGSEGV, by key."""
        died = {
            e["key"]
            for e in events(session)
            if e["kind"] == "worker.died" and e["pid"] in self._struck and e.get("key")
        }
        return {
            e["key"]: e["measurement"]
            for e in events(session)
            if e["kind"] == "probe.finished"
            and e["key"] in died
            and e.get("measurement", {}).get("status") == "crash"
        }

    def _expected(self, scene: Scene, lost: Mapping[str, Any]) -> tuple[int, str]:
        """The exit code and the route of an undisturbed run in which the engine crashes at just
        these probes."""
        if not lost:
            return self.straight(scene)[:2]
        session = self.home / f"{scene.name}-lost-{secrets.token_hex(3)}"
        told = session.with_suffix(".json")
        told.write_text(json.dumps(lost))
        ran = self.run(
            *scene.words, "--session", session, "--display", "none", CAMPAIGN_LOST=str(told)
        )
        return ran.returncode, self.run("show", session, "--canonical").stdout

    def _judged(
        self, scene: Scene, session: Path, ended: int | None, said: str, tally: Tally
    ) -> list[str]:
        """What is wrong with a session that has come to its end."""
        wrong = []
        lost = self._lost(session)
        tally.lost += bool(lost)
        code, route = self._expected(scene, lost)
        deaths = [e for e in events(session) if e["kind"] == "worker.died" and e.get("key")]
        if deaths and "cost its worker" not in self.run("report", session).stdout:
            wrong.append(
                f"{session.name}: probes cost their workers, and its report does not say so"
            )
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
        left = [
            p.name
            for pattern in (".*.tmp", "*/.*.tmp", "*/*/.*.tmp")
            for p in session.glob(pattern)
        ]
        if left:
            wrong.append(f"{session.name}: unfinished files are left: {left[:4]}")
        return wrong


def _files(session: Path) -> dict[int, int]:
    """The sizes of a session's files, by inode."""
    found = {}
    for path in session.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file():
                found[path.stat().st_ino] = path.stat().st_size
    return found


def _cut_power(session: Path, notes: Path, before: Mapping[int, int]) -> list[str]:
    """Take away what was written and not synced; what is wrong then. ``notes``: what was synced,
    and which events were told to anybody. ``before``: what lay there when the session was
    started."""
    noted = [line.split() for line in notes.read_text().splitlines()] if notes.exists() else []
    synced = dict(before)
    for word, first, second in noted:
        if word == "synced":
            synced[int(first)] = max(int(second), synced.get(int(first), 0))
    for path in session.rglob("*"):
        # Captures are looked at in the start of the machine that made them alone; the others may be
        # half there at any time.
        if "captures" in path.relative_to(session).parts and path.is_file():
            path.unlink()
        elif (
            path.is_file()
            and path.parent.name not in ("logs", "checks")
            and path.name not in ("progress.json", "lock")
        ):
            size = synced.get(path.stat().st_ino, 0)
            if path.stat().st_size > size:
                os.truncate(path, size)
    told = max((int(first) for word, first, _ in noted if word == "told"), default=0)
    left = lines(session)
    return (
        [f"{session.name}: event {told} was told and only {left} are left without power"]
        if told > left
        else []
    )


def _mounted(place: Path, kib: int) -> str:
    """Make ``place`` a disk of so many KiB, or give it another size; why not, where that is not
    possible."""
    options = f"{'remount,' * place.is_mount()}size={kib}k"
    words = ["mount", "-t", "tmpfs", "-o", options, "none", str(place)]
    try:
        made = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"no disk could be mounted: {error}"
    return f"no disk could be mounted: {made.stderr.strip()}" if made.returncode else ""


def _twice(session: Path) -> bool:
    """Whether some probe has cost two workers since the session was last opened."""
    found = events(session)
    opened = max(
        (number for number, e in enumerate(found) if e["kind"] == "session.opened"), default=0
    )
    keys = collections.Counter(
        e["key"] for e in found[opened:] if e["kind"] == "worker.died" and e.get("key")
    )
    return any(count > 1 for count in keys.values())


def _in_the_middle(data: bytes, damaged: bytes) -> bool:
    """Whether a bit was flipped in a line of a journal that is not the last."""
    last = data[:-1].rfind(b"\n") + 1
    return len(data) == len(damaged) and data[:last] != damaged[:last]


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

    return "\n".join(
        list(difflib.unified_diff(one.splitlines(), other.splitlines(), lineterm="", n=0))[:12]
    )


def moments(manner: str, chance: random.Random, seconds: float) -> Iterator[Moment]:
    """When to kill: each start of a session a little later than the one before, so that every one
    gets further."""
    further = 0.0
    while True:
        if manner == "tree":
            yield manner, 0.15 + chance.random() * seconds * 0.9 + further
            further += 0.05
        else:
            yield manner, 1 + chance.randrange(4 + int(further)) + int(further)
            further += 0.5


def until(deadline: float, found: Iterator[Moment]) -> Iterator[Moment | None]:
    """The moments, and None after the deadline (of ``time.monotonic``): nothing is killed any
    more."""
    for moment in found:
        yield moment if time.monotonic() < deadline else None


def interrupted_exports(campaign: Campaign, session: Path, kills: int, tally: Tally) -> None:
    """``narrowdown export`` killed at random times: what is under the name that was asked for is
    whole, or not there."""
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
        found = (
            sorted(str(path.relative_to(target)) for path in target.rglob("*"))
            if target.exists()
            else wanted
        )
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
