"""A worker that does what an Inspect or Measure probe's ``engine`` says: the pool's rules are
tested against it in milliseconds.

``sleep=S`` answers after S seconds; ``die=N`` kills itself with signal N; ``exit=N``; ``garbage``;
``hang``; ``busy=S``: leaves a mark in the session folder for S seconds, ``busy=FILE``: until there
is such a file; ``die-if-busy``: dies if there is a mark; ``meet=N``: waits until so many have come
here; ``die-once=N``: dies of signal N unless one has
before; ``map=KIB``: fills a file through memory; ``eat=MIB``; ``env=NAME``; ``gpus=N``: says that the
engine takes so many; ``idle-death``: answers, then dies.
"""

import mmap
import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from narrowdown.engines.probe import Inspect, Measure, Measurement
from narrowdown.engines.workers.protocol import Done, Hello, Progress, Work


def say(message: object) -> None:
    os.write(1, msgspec.json.encode(message) + b"\n")


def main() -> None:
    root = Path(sys.argv[1])
    if (root / "unstartable").exists():
        sys.exit("no libengine.so here")
    if (root / "kill-the-next").exists():
        (root / "kill-the-next").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    say(Hello(os.getpid()))
    for line in sys.stdin.buffer:
        work = msgspec.json.decode(line, type=Work)
        assert isinstance(work.probe, Inspect | Measure)
        say(Progress(work.id, "started"))
        begun = time.monotonic()
        facts: dict[str, object] = {"pid": os.getpid()}
        kept = []
        for order in work.probe.engine.split(","):
            word, _, value = order.partition("=")
            if word == "sleep":
                time.sleep(float(value))
            elif word == "say":
                say(Progress(work.id, value))
            elif word == "die":
                os.kill(os.getpid(), int(value))
            elif word == "exit":
                os._exit(int(value))
            elif word == "garbage":
                os.write(1, b"corrupted double-linked list\n")
                time.sleep(60)
            elif word == "hang":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(60)
            elif word == "die-if-busy":
                if len(list(root.glob("busy-*"))) > 0:
                    os.kill(os.getpid(), signal.SIGSEGV)
            elif word == "die-once":
                if not (root / "died-once").exists():
                    (root / "died-once").touch()
                    os.kill(os.getpid(), int(value))
            elif word == "busy":
                mark = root / f"busy-{os.getpid()}"
                mark.touch()
                if value.replace(".", "").isdigit():
                    time.sleep(float(value))
                else:
                    while not (root / value).exists():
                        time.sleep(0.01)
                mark.unlink()
            elif word == "meet":
                (root / f"met-{os.getpid()}").touch()
                while len(list(root.glob("met-*"))) < int(value):
                    time.sleep(0.01)
            elif word == "env":
                facts["env"] = os.environ.get(value)
            elif word == "gpus":
                facts["gpus"] = int(value)
            elif word == "map":  # so many KiB of a file that grows as it is written to
                with (root / "mapped").open("w+b") as file:
                    file.truncate(int(value) << 10)
                    with mmap.mmap(file.fileno(), 0) as mapped:
                        mapped[:: mmap.PAGESIZE] = b"x" * len(mapped[:: mmap.PAGESIZE])
            elif word == "eat":
                kept.append(bytearray(int(value) << 20))
        facts["begun"], facts["ended"] = begun, time.monotonic()
        say(Done(work.id, Measurement(facts=facts)))
        if work.probe.engine == "idle-death":
            os._exit(7)


main()
