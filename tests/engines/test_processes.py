"""How our programs are started: each a process of its own."""

import json
import os
import sys
from pathlib import Path

import pytest

from narrowdown.engines import processes

from ..patience import allow

SEEN = """
import json, os, sys
print(json.dumps({
    "words": sys.argv[1:], "folder": os.getcwd(), "safe": sys.flags.safe_path,
    "alone": os.getsid(0) == os.getpid() == os.getpgrp(), "given": os.environ.get("GIVEN"), "kept": os.environ.get("KEPT"),
    "read": sys.stdin.read(),
    "held": [fd for fd in range(3, 99) if os.path.exists(f"/proc/self/fd/{fd}")],
}), flush=True)
print("said to the errors", file=sys.stderr)
sys.exit(7)
"""


@pytest.mark.parametrize("pipes", [True, False])
def test_a_script_is_started_in_a_session_of_its_own(
    pipes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seen.py").write_text(SEEN)
    monkeypatch.setenv("KEPT", "1")
    environment = {"PATH": os.environ["PATH"], "GIVEN": "2"} if pipes else None
    # A file that the starting program holds, a session's lock say: one that is started must not
    # hold it too.
    with (tmp_path / "lock").open("w") as lock, (tmp_path / "errors").open("ab") as errors:
        words = ["a word", ""]
        started = processes.start(
            tmp_path / "seen.py", words, tmp_path, errors, environment, pipes=pipes
        )
        said, _ = started.communicate(b"told" if pipes else None, timeout=allow(60))
        assert lock.fileno() > 2
    lines = (tmp_path / "errors").read_text().splitlines()
    seen = json.loads(said if pipes else lines.pop(0))
    assert lines == ["said to the errors"]
    assert started.returncode == 7
    assert seen == {
        "words": words, "folder": str(tmp_path), "safe": True, "alone": True, "held": [],
        "given": "2" if pipes else None, "kept": None if pipes else "1", "read": "told" if pipes else "",
    }  # fmt: skip


def test_a_folder_that_is_gone_is_an_error_of_the_system(tmp_path: Path) -> None:
    with (tmp_path / "errors").open("ab") as errors, pytest.raises(FileNotFoundError):
        processes.start(Path(sys.executable), [], tmp_path / "gone", errors, pipes=True)
