"""Sessions in surroundings that are not as one expects: many at once, a clock that goes back,
little memory, no locks. Each is tried for real (campaigns/faults.md)."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..patience import allow
from . import tiny

SCRIPT = Path(sys.executable).with_name("narrowdown")
# A checker that fails where the model holds a Sqrt; HELD MiB are held meanwhile.
CHECKER = """\
import sys, onnx
held = bytearray(b"x") * (int(sys.argv[2]) << 20)
sys.exit("Sqrt" in {node.op_type for node in onnx.load(sys.argv[1]).graph.node})
"""


def checker(folder: Path) -> Path:
    place = folder / "checker.py"
    place.write_text(CHECKER)
    return place


def shim(folder: Path, surroundings: dict[str, str], code: str) -> dict[str, str]:
    """The surroundings in which every Python of the program runs this code first."""
    (folder / "shim").mkdir()
    (folder / "shim" / "sitecustomize.py").write_text(code)
    path = os.pathsep.join(filter(None, (str(folder / "shim"), os.environ.get("PYTHONPATH"))))
    return surroundings | {"PYTHONPATH": path}


def run(
    surroundings: dict[str, str], folder: Path, *words: str | Path
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [SCRIPT, *map(str, words)],
        env=surroundings,
        cwd=folder,
        text=True,
        capture_output=True,
        check=False,
        timeout=allow(300),
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_eight_sessions_at_once_on_one_home(surroundings: dict[str, str], tmp_path: Path) -> None:
    model, script = tiny.norm(tmp_path), checker(tmp_path)
    checks = [f"{sys.executable} {script} {{model}} {n}" for n in range(8)]
    running = [
        subprocess.Popen(
            [SCRIPT, "step", "reduce", model, "--check", check, "--jobs", "1", "--display", "none"],
            env=surroundings,
            cwd=tmp_path,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for check in checks
    ]
    ended = [
        (process.communicate(timeout=allow(600))[1], process.returncode) for process in running
    ]
    assert [code for _, code in ended] == [0] * 8, ended
    listed = json.loads(run(surroundings, tmp_path, "sessions", "--json").stdout)
    places = sorted(Path(surroundings["NARROWDOWN_HOME"]).glob("*/journal.jsonl"))
    assert len(listed) == len(places) == 8
    routes = {
        re.sub(
            r"checker\.py \{model\} \d",
            "checker.py",
            run(surroundings, tmp_path, "show", place.parent, "--canonical").stdout,
        )
        for place in places
    }
    assert len(routes) == 1, "all come to the same"
    for (
        place
    ) in places:  # what each was told may run is remembered: none has written over another's
        again = run(surroundings, tmp_path, "resume", place.parent, "--display", "none")
        assert again.returncode == 0, again.stderr


@pytest.mark.slow
def test_a_clock_that_goes_back_between_sessions(
    surroundings: dict[str, str], tmp_path: Path
) -> None:
    model = tiny.faultless(tmp_path)
    late = shim(
        tmp_path,
        surroundings,
        "import os, time\nreal = time.time\ntime.time = lambda: real() + float(os.environ['AHEAD'])\n",
    )
    for name, ahead in (("a", 4e7), ("b", 0.0), ("c", -4e7)):
        ran = run(late | {"AHEAD": str(ahead)}, tmp_path, "run", model, "--display", "none")
        assert ran.returncode == 10, (name, ran.stderr)
    listed = json.loads(run(surroundings, tmp_path, "sessions", "--json").stdout)
    assert len(listed) == 3
    assert len({entry["id"] for entry in listed}) == 3
    for entry in listed:  # going on with each, whatever the clock said when it was begun
        ran = run(late | {"AHEAD": "-8e7"}, tmp_path, "resume", entry["id"], "--display", "none")
        assert ran.returncode == 10, ran.stderr
        assert run(surroundings, tmp_path, "report", entry["id"]).returncode == 0
    for said in (
        run(surroundings, tmp_path, "sessions").stdout,
        run(late | {"AHEAD": "-8e7"}, tmp_path, "sessions").stdout,
    ):
        assert not re.search(r"-\d+ (s|min|h|days?)\b", said), said


NO_LOCKS = """\
import errno, fcntl, os
def flock(fd, kind):
    raise OSError(getattr(errno, os.environ["NO_LOCKS"]), "no locks here")
fcntl.flock = flock
"""


@pytest.mark.slow
@pytest.mark.parametrize("why", ["ENOLCK", "ENOSYS", "EOPNOTSUPP"])
def test_a_file_system_without_locks(
    surroundings: dict[str, str], tmp_path: Path, why: str
) -> None:
    """As NFS without a lock daemon answers. Nothing is begun there; what lies there can be looked
    at."""
    model = tiny.faultless(tmp_path)
    session = tmp_path / "s"
    assert (
        run(
            surroundings, tmp_path, "run", model, "--session", session, "--display", "none"
        ).returncode
        == 10
    )
    lockless = shim(tmp_path, surroundings, NO_LOCKS) | {"NO_LOCKS": why}
    before = (session / "journal.jsonl").read_bytes()
    for words in (["run", model, "--session", tmp_path / "other"], ["resume", session]):
        ran = run(lockless, tmp_path, *words, "--display", "none")
        assert ran.returncode == 4, ran.stderr
        assert "cannot lock files" in ran.stderr
        assert "local disk" in ran.stderr
        assert "Traceback" not in ran.stderr
    for words in (["show", session], ["report", session], ["sessions"]):
        assert run(lockless, tmp_path, *words).returncode == 0, words
    assert (session / "journal.jsonl").read_bytes() == before
    assert run(surroundings, tmp_path, "resume", session, "--display", "none").returncode == 10


# -- a control group's memory


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of 900 MiB below our own, of whichever kind this machine lets us make."""
    kinds = {
        "": ("memory.max", "memory.swap.max"),
        "memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    }
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    for _, controllers, path in lines:
        place = Path("/sys/fs/cgroup") / controllers / path.strip("/") / f"narrowdown-{os.getpid()}"
        if controllers not in kinds:
            continue
        try:
            place.mkdir()
            (place / kinds[controllers][0]).write_text(str(900 << 20))
        except OSError:
            if place.is_dir():
                place.rmdir()
            continue
        yield place
        end = time.monotonic() + allow(20)
        while (place / "cgroup.procs").read_text().strip() and time.monotonic() < end:
            time.sleep(0.05)
        place.rmdir()
        return
    pytest.skip("no control group with a limit of memory can be made here")


def narrowdown(group: Path, score: str = "0") -> list[str]:
    """What stands in front of a command line that is to run in the group."""
    return [
        "sh",
        "-c",
        f'echo $$ > "$0/cgroup.procs"; echo {score} > /proc/self/oom_score_adj; exec "$@"',
        str(group),
    ]


def in_group(
    group: Path, surroundings: dict[str, str], *words: str | Path
) -> "subprocess.CompletedProcess[str]":
    """In the group, and the first that the system ends there."""
    return subprocess.run(
        [*narrowdown(group, "900"), SCRIPT, *map(str, words)], env=surroundings, text=True, capture_output=True,
        timeout=allow(300), check=False,
    )  # fmt: skip


HOG = f"import time; held = bytearray(b'x') * ({780 << 20}); print(flush=True); time.sleep(600)"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_control_group_s_memory(
    group: Path, surroundings: dict[str, str], tmp_path: Path
) -> None:
    """A check that takes more than there is has had its chance, and is no verdict; one that others
    leave nothing to has had none: the session stops, and goes on once they are gone."""
    model, script = tiny.norm(tmp_path), checker(tmp_path)
    usual = ("--jobs", "1", "--display", "none")
    greedy = (
        "step",
        "reduce",
        model,
        "--check",
        f"{sys.executable} {script} {{model}} 2000",
        "--session",
        tmp_path / "greedy",
    )
    ran = in_group(group, surroundings, *greedy, *usual)
    assert "Traceback" not in ran.stderr
    answers = [
        e["measurement"]
        for e in events(tmp_path / "greedy")
        if e["kind"] == "probe.finished" and "check" in str(e)
    ]
    killed = [a for a in answers if a.get("status") == "out-of-memory"]
    assert killed, answers
    assert not [a for a in answers if a.get("facts", {}).get("returncode") == 1], (
        "none of them failed the check"
    )

    modest = (
        "step",
        "reduce",
        model,
        "--check",
        f"{sys.executable} {script} {{model}} 60",
        "--session",
        tmp_path / "modest",
    )
    hog = subprocess.Popen(
        [*narrowdown(group), sys.executable, "-c", HOG],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert hog.stdout is not None
        hog.stdout.readline()
        ran = in_group(group, surroundings, *modest, *usual)
    finally:
        hog.kill()
        hog.communicate()
    assert "Traceback" not in ran.stderr
    lost = [
        e
        for e in events(tmp_path / "modest")
        if e["kind"] == "probe.finished" and "out-of-memory" in str(e)
    ]
    assert not lost, "it was not its own memory"
    # The system chooses: a worker (4, and why), or the runner.
    assert ran.returncode in (4, 70), ran.stderr
    assert "no memory left for narrowdown" in ran.stderr or ran.returncode == 70
    again = in_group(group, surroundings, "resume", tmp_path / "modest", *usual)
    assert again.returncode == 0, again.stderr
    assert (
        run(
            surroundings,
            tmp_path,
            *modest[:3],
            *modest[3:5],
            "--session",
            tmp_path / "alone",
            *usual,
        ).returncode
        == 0
    )
    shown = [
        run(surroundings, tmp_path, "show", tmp_path / name, "--canonical").stdout
        for name in ("modest", "alone")
    ]
    assert shown[0] == shown[1]


def events(session: Path) -> list[dict]:
    return [json.loads(line) for line in (session / "journal.jsonl").read_bytes().splitlines()]
