"""Memory over a long session: what grows with the number of probes is a little in the runner, and
nothing in the program."""

import subprocess
import time
from pathlib import Path

import pytest

from narrowdown.wizard.session.events import SessionOpened
from narrowdown.wizard.session.journal import Tail

from . import tiny
from .conftest import SCRIPT

PROBES = 2_000
A_PROBE = 6 << 10  # bytes of the runner's memory that one may take
NOISE = 2 << 20  # bytes by which any process breathes


def own(pid: int) -> int:
    """Bytes of a process that no file backs; 0 where there is none."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")), 0)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_thousand_probes(tmp_path: Path, surroundings: dict[str, str]) -> None:
    """The same small model built 2,000 times on an engine that breaks it, each build a probe of its
    own."""
    session, model = tmp_path / "s", tiny.faultless(tmp_path)
    words = [
        "step",
        "repeat",
        model,
        "--engine",
        "fake:fault=wrong,size=1",
        "--until",
        str(PROBES),
        "--session",
        session,
    ]
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(
            [SCRIPT, *words, "--display", "plain"], env=surroundings, stdout=said, stderr=said
        )
    tail, runner, done = Tail(session / "journal.jsonl"), 0, 0
    held: list[tuple[int, int, int]] = []  # probes done, bytes of the program, bytes of the runner
    try:
        while process.poll() is None:
            time.sleep(0.5)
            for event in tail.poll():
                runner = event.pid if isinstance(event, SessionOpened) else runner
                done += event.__struct_config__.tag == "probe.finished"
            # At the end the program reads the whole session for what it prints.
            if (
                PROBES // 10 < done < PROBES
                and (row := (done, own(process.pid), own(runner)))[1]
                and row[2]
            ):
                held.append(row)
    finally:
        process.kill()
    assert process.returncode == 0, (tmp_path / "said").read_text()[-2000:]
    (first, program, running), (last, program_then, running_then) = held[0], held[-1]
    print()
    print(
        f"program {program / 2**20:.1f} MiB after {first} probes, {program_then / 2**20:.1f} after {last}"
    )
    print(
        f"runner  {running / 2**20:.1f} MiB after {first} probes, {running_then / 2**20:.1f} after {last}"
    )
    assert last - first > PROBES // 2
    assert max(row[1] for row in held) - program < NOISE
    assert max(row[2] for row in held) - running < NOISE + A_PROBE * (last - first)
