"""What killed programs leave outside of a session, and who clears it away."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from narrowdown.engines.store import scratch
from narrowdown.wizard.runner.replay import SCRATCH

from ...patience import allow

HERE = Path(scratch.__file__).parents[2]


def test_makers_and_sweepers_do_not_meet(tmp_path: Path) -> None:
    """However a sweep falls between the making of a folder and its lock, who makes one has one."""
    with ThreadPoolExecutor(8) as pool:
        sweeps = [pool.submit(scratch.sweep, SCRATCH, tmp_path) for _ in range(200)]
        made = [pool.submit(scratch.Scratch, SCRATCH, tmp_path) for _ in range(200)]
        sweeps += [pool.submit(scratch.sweep, SCRATCH, tmp_path) for _ in range(200)]
        folders = [future.result() for future in made]
        assert not any(future.exception() for future in sweeps)
    assert all(folder.path.is_dir() for folder in folders)
    assert len(list(tmp_path.iterdir())) == 200
    for folder in folders:
        folder.remove()
    assert not list(tmp_path.iterdir())


def kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate(timeout=allow(30))


MAKER = """
import sys, time
from pathlib import Path
from narrowdown.engines.store.scratch import scratch
with scratch("narrowdown-replay-", Path(sys.argv[1])) as folder:
    (folder / "models").mkdir()
    print(folder, flush=True)
    time.sleep(60)
"""


def test_folders_of_killed_programs_are_removed_and_those_of_the_living_stay(
    tmp_path: Path,
) -> None:
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", MAKER, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=HERE,
        )
        for _ in range(2)
    ]
    try:
        dead, living = (Path(maker.stdout.readline().strip()) for maker in makers if maker.stdout)
        kill(makers[0])
        notes = tmp_path / "narrowdown-replay-notes"
        notes.mkdir()
        assert dead.is_dir()
        with scratch.scratch(SCRATCH, tmp_path) as own:
            assert sorted(tmp_path.iterdir()) == sorted([living, notes, own])
        assert sorted(tmp_path.iterdir()) == sorted([living, notes])
    finally:
        for maker in makers:
            kill(maker)
