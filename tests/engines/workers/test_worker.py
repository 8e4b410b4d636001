"""Real workers, as the pool starts them: where they come from, what they leave in logs, how they die."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import engines
from engines.probe import Inspect, Measurement
from engines.workers.pool import Pool

PACKAGES = str(Path(engines.__file__).parent.parent)

OWNER = """
import asyncio, sys, time
sys.path.insert(0, {packages!r})
from pathlib import Path
from engines.workers.pool import Pool

async def main():
    pool = Pool(Path(sys.argv[1]), 2)
    for slot in pool._slots:
        await pool._start(slot)
    print(*(s.pid for s in pool.snapshot()), flush=True)
    time.sleep(60)

asyncio.run(main())
"""


def use(root: Path, work: Callable[[Pool], Awaitable[Any]], slots: int = 1, **options: Any) -> Any:
    async def body() -> Any:
        pool = Pool(root, slots, **options)
        try:
            return await work(pool)
        finally:
            await pool.stop(hard=True)

    return asyncio.run(body())


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody reaps does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@pytest.mark.parametrize("frozen", [False, True])
def test_workers_die_within_a_second_of_a_killed_owner(tmp_path: Path, frozen: bool) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(packages=PACKAGES), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    pids = [int(p) for p in owner.stdout.readline().split()]
    assert len(pids) == 2
    assert all(map(alive, pids))
    if frozen:  # a worker that runs no Python at all: the kernel must do it
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
    owner.kill()
    owner.wait()
    end = time.monotonic() + 1
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(map(alive, pids))


def test_a_folder_of_the_user_is_not_taken_for_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (tmp_path, tmp_path / "path"):
        (folder / "engines").mkdir(parents=True)
        (folder / "engines" / "__init__.py").write_text("raise RuntimeError('the wrong engines')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))

    async def work(pool: Pool) -> Measurement:
        return await pool.run(Inspect(engine="reference"))

    answer = use(tmp_path, work)
    assert answer.status == "ok", answer.message
    assert answer.facts["name"] == "reference"
