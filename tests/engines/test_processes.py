"""Our programs as copies of a process, and as processes of their own: no script can tell which it is."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import engines
from engines import processes

from ..patience import allow

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="copies are made on Linux")

HERE = {**os.environ, "PYTHONPATH": str(Path(engines.__file__).parent.parent)}
HERE.pop("PYTHONUNBUFFERED", None)  # what waits to be written is there to be written twice

# What a script can see of where it came from.
SEEN = """
import gc, json, logging, os, signal, sys, tempfile, time
print(json.dumps({
    "name": __name__, "words": sys.argv[1:], "script": os.path.basename(sys.argv[0]), "folder": os.getcwd(),
    "path": sys.path[0] != os.path.dirname(os.path.abspath(sys.argv[0])) and "" not in sys.path and sys.argv[3] not in sys.path,
    "alone": os.getsid(0) == os.getpid() == os.getpgrp(),
    "files": sorted(os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fd in range(99) if os.path.exists(f"/proc/self/fd/{fd}")
                    or os.path.islink(f"/proc/self/fd/{fd}")),
    "handlers": [n for n in signal.valid_signals() if callable(signal.getsignal(n))],
    "waking": signal.set_wakeup_fd(-1), "excepthook": sys.excepthook is sys.__excepthook__,
    "shown": [each in open("/proc/self/environ").read().split(chr(0))
              for each in ("GIVEN=2", "KEPT=1", "TMPDIR=" + sys.argv[3] + "/tmp")],
    "temporary": tempfile.gettempdir(), "given": os.environ.get("GIVEN"), "not": os.environ.get("KEPT"),
    "logging": [len(logging.root.handlers), logging.root.level], "read": sys.stdin.read(),
    "threads": len(os.listdir("/proc/self/task")), "same": sys.stdout.fileno() == 1 and sys.stderr.fileno() == 2,
}), flush=True)
print("said to the errors", file=sys.stderr)
until = time.monotonic() + 20
while not os.path.exists(os.path.join(sys.argv[3], "looked")) and time.monotonic() < until:  # what has ended has no title
    time.sleep(0.005)
sys.exit(7)
"""

# A program of ours that has been at work: files, locks, handlers, a loop, text that waits to be written.
PROGRAM = """
import asyncio, json, logging, os, signal, sys, tempfile, time
from pathlib import Path
from engines import processes
folder, copies, pipes = Path(sys.argv[1]), sys.argv[2] == "copy", sys.argv[3] == "pipes"
if copies:
    processes.permit_copies()
held = [open(folder / f"file-{n}", "w") for n in range(5)]
logging.basicConfig(level=logging.DEBUG)
signal.signal(signal.SIGTERM, lambda *_: None)
sys.excepthook = print
tempfile.gettempdir()
os.environ["KEPT"] = "1"

async def work():
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, print)
    sys.stdout.write("once only ")
    given = {**{n: v for n, v in os.environ.items() if n != "KEPT"}, "GIVEN": "2", "TMPDIR": str(folder / "tmp")}
    with open(folder / "errors", "ab") as errors:
        words = ["a word", "", str(folder)]
        started = processes.start(folder / "seen.py", words, folder / "there", errors, given, pipes=pipes)
    title = Path(f"/proc/{started.pid}/cmdline").read_text()
    (folder / "looked").touch()
    if pipes:
        started.stdin.write(b"told")
        started.stdin.close()
    said = started.stdout.read().decode() if pipes else ""
    while started.poll() is None:
        time.sleep(0.01)
    print(json.dumps([type(started).__name__, title, said, started.returncode]))

asyncio.run(work())
"""


def ask(folder: Path, how: str, pipes: str) -> tuple[list[Any], dict[str, Any], list[str]]:
    """(what the program says of the process, what the script saw, what it wrote to its errors)."""
    folder.mkdir()
    (folder / "there").mkdir()
    (folder / "tmp").mkdir()
    (folder / "seen.py").write_text(SEEN)
    (folder / "program.py").write_text(PROGRAM)
    words = [sys.executable, str(folder / "program.py"), str(folder), how, pipes]
    done = subprocess.run(words, env=HERE, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("once only ")
    assert done.stdout.count("once only") == 1
    told = json.loads(done.stdout.removeprefix("once only "))
    lines = (folder / "errors").read_text().splitlines()
    seen = told[2] if pipes == "pipes" else lines.pop(0)
    return told, {k: str(v).replace(str(folder), "HERE") for k, v in json.loads(seen).items()}, lines


@pytest.mark.parametrize("pipes", ["pipes", "no pipes"])
def test_a_copy_is_as_a_process_of_its_own(pipes: str, tmp_path: Path) -> None:
    kind, title, _, code = (copy := ask(tmp_path / "copy", "copy", pipes))[0]
    usual = ask(tmp_path / "usual", "usual", pipes)
    assert (kind, usual[0][0]) == ("Copy", "Popen")
    assert copy[1:] == usual[1:]
    assert code == usual[0][3] == 7
    assert copy[1]["files"].count("pipe") == (2 if pipes == "pipes" else 0)  # and no file of the program's
    assert copy[1]["words"] == "['a word', '', 'HERE']"
    assert copy[1]["path"] == copy[1]["alone"] == "True"
    assert copy[1]["temporary"] == "HERE/tmp"
    assert title.rstrip("\0").startswith("narrowdown ")  # what a list of processes calls it
    assert copy[2] == ["said to the errors"]


def test_no_end_of_a_pipe_stays_open_where_the_block_fails() -> None:
    held: list[int] = []
    with contextlib.suppress(ZeroDivisionError), processes.open_pipes(1, 0) as (ours, its):
        its.append(os.open(os.devnull, os.O_RDONLY))
        held = [*ours, *its]
        len(held) / 0
    assert len(held) == 5
    for fd in held:
        with pytest.raises(OSError):  # noqa: PT011  # it is closed
            os.fstat(fd)


def test_our_ends_of_pipes_write_and_read_what_they_are_asked_for() -> None:
    with processes.open_pipes(1, 0) as (ours, its):
        os.write(ours[0], b"to it")
        os.write(its[1], b"from it")
        assert (os.read(its[0], 9), os.read(ours[1], 9)) == (b"to it", b"from it")
    for fd in its:
        with pytest.raises(OSError):  # noqa: PT011
            os.fstat(fd)
    for fd in ours:
        os.close(fd)


def run(program: str) -> subprocess.CompletedProcess[str]:
    head = "import sys\nfrom engines import processes\nfrom pathlib import Path\n"
    words = [sys.executable, "-c", head + program]
    return subprocess.run(words, env=HERE, capture_output=True, text=True, timeout=60, check=False)


BESIDE = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"


@pytest.mark.parametrize(
    ("before", "kind"),
    [
        ("processes.permit_copies()", "Copy"),
        ("pass", "Popen"),
        (f"processes.permit_copies(); {BESIDE}", "Popen"),
        ("processes.permit_copies(); import numpy", "Popen"),
    ],
)  # fmt: skip
def test_only_a_program_of_ours_with_one_thread_and_nothing_native_is_copied(
    before: str, kind: str, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text("")
    said = run(
        f"{before}\nwith open({str(tmp_path / 'log')!r}, 'ab') as log:\n"
        f"    print(type(processes.start(Path({str(tmp_path / 'script.py')!r}), [], Path('/'), log)).__name__)\n"
    )
    assert said.stdout.split() == [kind], said.stderr


def test_a_copy_that_cannot_begin_is_an_error_of_the_system(tmp_path: Path) -> None:
    said = run(
        "processes.permit_copies()\n"
        f"with open({str(tmp_path / 'log')!r}, 'ab') as log:\n"
        "    try:\n"
        f"        processes.start(Path('x.py'), [], Path({str(tmp_path / 'gone')!r}), log, pipes=True)\n"
        "    except FileNotFoundError as error:\n"
        "        import os\n"
        "        print(error.filename, len(os.listdir('/proc/self/fd')))\n"
        "        os.waitpid(-1, 0)\n"
    )
    assert said.stdout.split() == [str(tmp_path / "gone"), "5"], said.stderr  # the streams, the log, the list
    assert "ChildProcessError" in said.stderr  # nothing is left of it


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("raise SystemExit('no')", 1, "no\n"),
        ("raise SystemExit", 0, ""),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
        ("import asyncio; asyncio.run(asyncio.sleep(0)); print('ran', flush=True)", 0, "ran\n"),
    ],
)
def test_how_a_copy_ends(script: str, code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(script)
    found = run(
        "processes.permit_copies()\nimport time\n"
        f"with open({str(tmp_path / 'log')!r}, 'ab') as log:\n"
        f"    it = processes.start(Path({str(tmp_path / 'script.py')!r}), [], Path('/'), log)\n"
        "while it.poll() is None:\n    time.sleep(0.01)\n"
        "print(it.returncode)\n"
    )
    assert found.stdout.split() == [str(code)], found.stderr
    assert (tmp_path / "log").read_text().endswith(said)


def test_a_lock_of_the_program_goes_with_it(tmp_path: Path) -> None:
    """A copy holds no file of the program that it was: a session's lock would be held for as long as a worker lives."""
    (tmp_path / "script.py").write_text("import time; time.sleep(60)")
    program = (
        "processes.permit_copies()\nimport fcntl, os\n"
        f"lock = open({str(tmp_path / 'lock')!r}, 'w'); fcntl.flock(lock, fcntl.LOCK_EX)\n"
        f"with open({str(tmp_path / 'log')!r}, 'ab') as log:\n"
        f"    print(processes.start(Path({str(tmp_path / 'script.py')!r}), [], Path('/'), log).pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    pid = int(run(program).stdout)
    try:
        import fcntl

        with (tmp_path / "lock").open("w") as lock:
            end = time.monotonic() + allow(10)
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    assert time.monotonic() < end
                    time.sleep(0.01)
    finally:
        os.kill(pid, signal.SIGKILL)
