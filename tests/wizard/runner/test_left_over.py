"""What killed programs leave outside of a session, and who clears it away."""

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from wizard.runner import replay, server


def test_sockets_of_the_dead_are_removed_and_those_of_the_living_stay(tmp_path: Path) -> None:
    made = {name: socket.socket(socket.AF_UNIX) for name in ("dead", "living", "young")}
    for name, listener in made.items():
        listener.bind(str(tmp_path / f"{name}.sock"))
        listener.listen()
        if name != "young":
            os.utime(tmp_path / f"{name}.sock", (1e9, 1e9))
    made["dead"].close()
    made["young"].close()
    server.sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["living.sock", "young.sock"]
    made["living"].close()


def test_copies_of_killed_replays_are_removed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    dead, living = f"narrowdown-replay-{ended.stdout.strip()}-x", f"narrowdown-replay-{os.getpid()}-x"
    for name in (dead, living, "narrowdown-replay-notes"):
        (tmp_path / name / "models").mkdir(parents=True)
    replay._sweep()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([living, "narrowdown-replay-notes"])
