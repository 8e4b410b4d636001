"""Big weights: whatever is killed or changed while they are copied, half a copy is never a whole one.

What is big is some kilobytes here, and the copy waits for a file of the test's.
"""

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest

from campaigns.faults.campaign import MARK, ON_IMPORT, kill_tree
from narrowdown.engines.store import digest_file

from ..patience import allow
from . import tiny
from .test_interruptions import begin

HOOK = (
    f"import os, sys, time\n{ON_IMPORT}"
    + """
HELD = os.environ.get("HELD_UP")
def wait(word):
    open(f"{HELD}/{word}", "w").close()
    while not os.path.exists(f"{HELD}/go"):
        time.sleep(0.01)

def change(module):
    module.PIECE = 4096
    if os.path.exists(f"{HELD}/hold-copy"):
        write = module.write_sparse
        def held(file, piece):
            write(file, piece)
            file.flush()
            if len(piece) >= 4096:
                wait("copying")
        module.write_sparse = held

if HELD:
    on_import("narrowdown.engines.graph.external", change)
"""
)


class Bench:
    """A model with its weights beside it, and a command whose copy (``hold-copy``) waits for
    ``go``."""

    def __init__(self, folder: Path, surroundings: dict[str, str]) -> None:
        self.folder, self.session, self.held = folder, folder / "s", folder / "held"
        self.held.mkdir()
        (folder / "hook").mkdir()
        (folder / "hook/sitecustomize.py").write_text(HOOK)
        node = tiny.helper.make_node
        path = tiny.save(
            folder / "inner.onnx",
            [node("MatMul", ["x", "w"], ["h"]), node("Tanh", ["h"], ["y"])],
            {"x": [1, 64]},
            {"y": [1, 64]},
            {"w": tiny.weights(64, 64, scale=0.1)},
        )
        self.model, self.weights = folder / "m.onnx", folder / "m.data"
        onnx.save(
            onnx.load(path),
            self.model,
            save_as_external_data=True,
            location="m.data",
            size_threshold=1024,
        )
        self.mark = secrets.token_hex(8)
        self.environment = {**surroundings, MARK: self.mark}
        self.words = [
            "step",
            "compare",
            self.model,
            "--engine",
            "onnxruntime",
            "--session",
            self.session,
        ]

    def begin(self, hold: str) -> "subprocess.Popen[str]":
        (self.held / hold).touch()
        path = os.pathsep.join(
            filter(None, [str(self.folder / "hook"), os.environ.get("PYTHONPATH", "")])
        )
        return begin(
            self.words,
            {**self.environment, "PYTHONPATH": path, "HELD_UP": str(self.held)},
            self.folder,
        )

    def wait_until_held(self, word: str, process: "subprocess.Popen[str]") -> None:
        end = time.monotonic() + allow(180)
        while not (self.held / word).exists():
            assert process.poll() is None, process.communicate(timeout=allow(60))
            assert time.monotonic() < end
            time.sleep(0.02)

    def copies(self) -> list[Path]:
        return list_copies(self.session)


def list_copies(session: Path) -> list[Path]:
    return sorted((session / "models/weights").iterdir())


@pytest.fixture
def bench(tmp_path: Path, surroundings: dict[str, str]) -> Iterator[Bench]:
    made = Bench(tmp_path, surroundings)
    yield made
    kill_tree(made.mark)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def test_a_copy_killed_in_its_middle_is_made_anew(bench: Bench, narrowdown) -> None:
    process = bench.begin("hold-copy")
    bench.wait_until_held("copying", process)
    kill_tree(bench.mark)
    process.communicate(timeout=allow(60))
    (half,) = bench.copies()
    assert half.name.startswith(".incoming")
    assert 0 < half.stat().st_size < bench.weights.stat().st_size
    ran = narrowdown("resume", bench.session)
    assert ran.code == 10, ran.out + ran.err
    (whole,) = bench.copies()
    assert digest_file(whole) == whole.stem


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-16, os.SEEK_END)
        file.write(b"\xff" * 16)


def replace(path: Path) -> None:
    other = path.with_name("new.data")
    shutil.copy(path, other)
    overwrite(other)
    os.utime(
        other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns)
    )  # as a copy that keeps times would have them
    other.replace(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (overwrite, "'m.data' was changed while it was copied into the session"),
        (replace, "'m.data' was changed while it was copied into the session"),
        (cut, "The weights file 'm.data' is cut short."),
        (Path.unlink, "'m.data' was changed while it was copied into the session"),
    ],
)
def test_weights_that_change_while_they_are_copied_are_refused(
    bench: Bench, change: Callable[[Path], None], said: str
) -> None:
    process = bench.begin("hold-copy")
    bench.wait_until_held("copying", process)
    change(bench.weights)
    (bench.held / "go").touch()
    out, err = process.communicate(timeout=allow(180))
    assert process.returncode == 2, out + err
    assert said in err
    assert bench.copies() == []
