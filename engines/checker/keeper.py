"""``python -I -S keeper.py SOCKET-FD``: runs one checker after the other, and ends whatever each
has started, however it ends.

What a checker starts may leave its process group and its session, lose its parents and empty its
environment: neither group nor parents nor a mark finds it then. This process is the one
that inherits orphans (a "child subreaper"), so that all of them stay below it. It kills them when
the checker's time is over: when the other end of a pipe closes, as whoever asked for the check has
what it wants, or is gone. The standard library only.

An order comes through the socket (``order``): four descriptors (a pipe that is held open meanwhile,
the checker's output and errors, and one for what is said of it), the folder, a mark, the words and
the environment. The mark goes into the checker's environment and not into this process's: who looks
for the mark of a killed worker must not end what is about to clear up behind it. What is said, a
line each: ``pid N`` or ``errno N`` (the checker runs, or could not be started), ``exit N`` (as
``waitpid`` says); it is closed when nothing is left of the checker.
"""

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence

Born = tuple[int, str]  # a process id and when it was started: an id alone may be used again
PR_SET_CHILD_SUBREAPER = 36
_LONGEST = (
    10.0  # seconds of killing: what outlasts it is another user's, or held up inside the kernel
)
_OURS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # which do not end it
_LOOK = 0.005  # seconds between two looks at what has ended: no old kernel can wait for an end and a pipe at once


def descendants(pid: int) -> list[Born]:
    """Children of the process, their children and so on, as far as they have not been orphaned.
    Linux's /proc; nothing is found elsewhere."""
    parents: dict[int, list[Born]] = {}
    for number in _running():
        if fields := _stat(number):
            parents.setdefault(int(fields[1]), []).append((number, fields[19]))
    found: list[Born] = []
    todo = [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found.extend(children)
        todo.extend(child for child, _ in children)
    return found


def alive(process: Born) -> bool:
    """Whether it still is who it was, and more than a dead one that nobody has waited for. One
    whose first thread has ended looks dead and is not."""
    fields = _stat(process[0])
    return (
        bool(fields) and fields[19] == process[1] and (fields[0] not in "ZX" or int(fields[17]) > 1)
    )


def kill(processes: list[Born]) -> None:
    """SIGKILL to those that still are who they were."""
    for process in processes:
        if alive(process):
            try:
                os.kill(process[0], signal.SIGKILL)
            except OSError:  # gone meanwhile, or another user's
                continue


def sweep() -> bool:
    """SIGKILL to all that is below this process, until there is none, which is said, or for ten
    seconds.

    It is enough to look at its own children: what one of them leaves becomes a child in turn, as
    this process inherits orphans. When the system says that there is no child left, dead or alive,
    nothing can have slipped through between two looks.
    """
    end = time.monotonic() + _LONGEST
    while time.monotonic() < end:
        for pid in _children():
            try:
                os.kill(pid, signal.SIGKILL)  # its number is its own until we have waited for it
            except OSError:  # another user's
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        time.sleep(_LOOK)
    return False


def _children() -> list[int]:
    """Of this process, of all its threads, dead ones that nobody has waited for included."""
    try:
        with os.scandir("/proc/self/task") as tasks:
            files = [f"{task.path}/children" for task in tasks]
    except OSError:
        return []
    if os.access(files[0], os.R_OK):
        return [int(pid) for file in files for pid in _read(file).split()]
    # A kernel without that list: all processes are looked at, which is slower.
    return [pid for pid in _running() if (fields := _stat(pid)) and int(fields[1]) == os.getpid()]


def keepers(pid: int) -> list[Born]:
    """Those of the process's children that are such keepers."""
    own = os.fsencode(__file__)
    return [
        each
        for each in descendants(pid)
        if own in _read(f"/proc/{each[0]}/cmdline").split(b"\0")[:4]
    ]


def _running() -> list[int]:
    try:
        with os.scandir("/proc") as entries:
            return [int(entry.name) for entry in entries if entry.name.isdecimal()]
    except OSError:
        return []


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat behind the name: state, parent, ..., start time at 19."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].decode().split()


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(fd, 1 << 16)
    except OSError:  # it went meanwhile
        return b""
    finally:
        os.close(fd)


def _say(fd: int, line: str) -> None:
    try:
        os.write(fd, f"{line}\n".encode())
    except OSError:  # whoever asked is gone, which standard input says as well
        return


def order(folder: str, mark: str, words: Sequence[str], environment: Mapping[str, str]) -> bytes:
    """What a check is, as text without descriptors. Raises ``ValueError`` for a text that no
    program can be given."""
    texts = [
        folder,
        mark,
        str(len(words)),
        *words,
        *(f"{name}={value}" for name, value in environment.items()),
    ]
    if any("\0" in text for text in texts):
        raise ValueError("embedded null byte")
    return b"\0".join(map(os.fsencode, texts))


def send(line: socket.socket, text: bytes, descriptors: Sequence[int]) -> None:
    """Give an order. Raises ``OSError`` where nobody takes it."""
    socket.send_fds(line, [len(text).to_bytes(8, "little")], list(descriptors))
    line.sendall(text)


def _receive(line: socket.socket) -> tuple[bytes, list[int]]:
    """The next order, and its descriptors; none once whoever gives them is gone."""
    head, fds, _, _ = socket.recv_fds(line, 8, 4)
    left, pieces = int.from_bytes(head, "little"), []
    while left > 0 and (piece := line.recv(min(left, 1 << 16))):
        pieces.append(piece)
        left -= len(piece)
    return (b"".join(pieces), fds) if head and not left else (b"", [])


def _spawn(mark: str, words: list[str], environment: dict[str, str], out: int, err: int) -> int:
    """Start the checker in a session of its own, as if nobody stood between it and who asked for
    it. Raises OSError."""
    return os.posix_spawnp(
        words[0],
        words,
        {**environment, "NARROWDOWN_WORKER": mark} if mark else environment,
        setsid=True,
        setsigmask=(),
        setsigdef=(*_OURS, signal.SIGPIPE, signal.SIGXFSZ),
        file_actions=(
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, out, 1),
            (os.POSIX_SPAWN_DUP2, err, 2),
        ),
    )


def _keep(status: int, held: int, pid: int) -> None:
    """Until ``held`` closes. Says when the checker has ended."""
    waiting = select.poll()
    waiting.register(held, select.POLLIN)
    running = True
    while True:
        ready = waiting.poll(round(_LOOK * 1000) if running else None)
        done, how = os.waitpid(pid, os.WNOHANG) if running else (0, 0)
        if done:
            _say(status, f"exit {how}")
            running = False
        if ready and not os.read(held, 1 << 10):
            return


def _run(text: bytes, held: int, out: int, err: int, status: int) -> bool:
    """Carry an order out: run the checker; end it with all that is its. Whether nothing is left of
    it."""
    folder, mark, count, *rest = map(os.fsdecode, text.split(b"\0"))
    words, pairs = rest[: int(count)], rest[int(count) :]
    environment = {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
    try:
        os.environ["PATH"] = environment.get("PATH", os.defpath)  # where the program is looked for
        os.chdir(folder)
        pid = _spawn(mark, words, environment, out, err)
    except OSError as error:
        _say(status, f"errno {error.errno}")
        return True
    finally:
        os.close(out)  # they end with the checker, and not with us
        os.close(err)
        os.chdir("/")
    _say(status, f"pid {pid}")
    _keep(status, held, pid)
    return sweep()


def _inherit() -> None:
    """Inherit what loses its parents below this process."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    """Carry out one order after the other until whoever gives them is gone, or something is left
    that cannot be ended: who comes next shall not wait for it."""
    line = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(line.fileno(), False)
    _inherit()
    for number in _OURS:
        signal.signal(number, signal.SIG_IGN)
    while True:
        text, fds = _receive(line)
        if not fds:
            return
        for fd in fds:
            os.set_inheritable(fd, False)
        held, out, err, status = fds
        try:
            if not _run(text, held, out, err, status):
                return
        finally:
            os.close(held)
            os.close(status)


if __name__ == "__main__":
    main()
