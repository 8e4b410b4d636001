"""Big weights are used before the disk has them: whatever is killed or changed meanwhile, half a
copy is never a whole one.

What is big is some kilobytes here, and the disk, or the copy, waits for a file of the test's.
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
from narrowdown.engines.store.content import digest_file

from ..patience import allow
from . import tiny
from .conftest import command, environment
from .test_interruptions import begin, events, wait_for

HOOK = (
    f"import os, sys, time\n{ON_IMPORT}"
    + """
HELD = os.environ.get("HELD_UP")
def wait(word):
    open(f"{HELD}/{word}", "w").close()
    while not os.path.exists(f"{HELD}/go"):
        time.sleep(0.01)

def change(module):
    module.LARGE, module.CHUNK = 1024, 4096
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
    if os.path.exists(f"{HELD}/hold-disk"):
        sync = os.fsync
        def held_sync(fd):
            name = os.readlink(f"/proc/self/fd/{fd if isinstance(fd, int) else fd.fileno()}")
            if "/models/weights/" in name and (name.endswith(".bin") or ".incoming" in name):
                wait("syncing")
                if os.path.exists(f"{HELD}/refuse-disk"):
                    raise OSError(5, os.strerror(5))
            sync(fd)
        os.fsync = held_sync
"""
)


class Bench:
    """A model with its weights beside it, and a command whose copy (``hold-copy``) or disk
    (``hold-disk``) waits for ``go``."""

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


def measured(found: list[dict]) -> bool:
    asked = {
        e["key"] for e in found if e["kind"] == "probe.started" and e["probe"]["op"] == "measure"
    }
    return any(e["kind"] == "probe.finished" and e["key"] in asked for e in found)


def test_the_first_probes_do_not_wait_for_the_disk_and_the_end_does(bench: Bench) -> None:
    process = bench.begin("hold-disk")
    wait_for(bench.session, measured, process)
    bench.wait_until_held("syncing", process)
    whole, word = bench.copies()
    assert word.name == f"{whole.name}.unsynced"
    assert digest_file(whole) == whole.stem
    wait_for(
        bench.session, lambda found: any(e["kind"] == "question.asked" for e in found), process
    )
    time.sleep(0.5)
    assert not any(e["kind"] == "session.closed" for e in events(bench.session)), (
        "the disk has not got all of it"
    )
    (bench.held / "go").touch()
    out, err = process.communicate(timeout=allow(180))
    assert process.returncode == 10, out + err
    assert bench.copies() == [whole]


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def zero(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4096] + bytes(path.stat().st_size - 4096))


LEFT: dict[str, Callable[[Path], None]] = {
    "whole": lambda path: None,
    "half": cut,
    "holes": zero,
    "empty": lambda path: os.truncate(path, 0),
    "nothing": Path.unlink,
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, str]:
    """A session of which all processes were killed while the disk was at work; and what the same
    tells that nobody killed."""
    home = tmp_path_factory.mktemp("killed")
    made, narrowdown = Bench(home, environment(home)), command(environment(home), home)
    process = made.begin("hold-disk")
    try:
        wait_for(made.session, measured, process)
        made.wait_until_held("syncing", process)
    finally:
        kill_tree(made.mark)
        process.communicate(timeout=allow(60))
    assert narrowdown(*made.words[:-1], home / "other").code == 10
    return made, narrowdown("show", home / "other", "--canonical").out


@pytest.mark.parametrize("left", LEFT)
def test_what_did_not_reach_the_disk_is_copied_again(
    killed: tuple[Bench, str], narrowdown, tmp_path: Path, left: str
) -> None:
    """SIGKILL to all processes while the disk is at work; then what a machine without power may
    leave of the file."""
    session = tmp_path / "s"
    shutil.copytree(killed[0].session, session, symlinks=True)
    whole, _ = list_copies(session)
    LEFT[left](whole)
    before = {e["key"] for e in events(session) if e["kind"] == "probe.finished"}

    ran = narrowdown("resume", session)
    assert ran.code == 10, ran.out + ran.err
    assert ("was gone and was made again" in ran.out + ran.err) is (left != "whole"), (
        ran.out + ran.err
    )
    assert list_copies(session) == [whole]
    assert digest_file(whole) == whole.stem
    asked = [e["key"] for e in events(session) if e["kind"] == "probe.finished"]
    assert len(asked) == len(set(asked)) > len(before) - 1
    assert narrowdown("show", session, "--canonical").out == killed[1]


@pytest.mark.slow
def test_what_is_lost_with_the_users_file_changed_is_said(bench: Bench, narrowdown) -> None:
    process = bench.begin("hold-disk")
    wait_for(bench.session, measured, process)
    bench.wait_until_held("syncing", process)
    kill_tree(bench.mark)
    process.communicate(timeout=allow(60))
    cut(bench.copies()[0])
    bench.weights.write_bytes(bench.weights.read_bytes()[::-1])
    ran = narrowdown("resume", bench.session)
    assert ran.code == 4, ran.out
    assert "which is another one now" in ran.err


@pytest.mark.slow
def test_a_disk_that_refuses_what_was_used_already_stops_the_session(
    bench: Bench, narrowdown
) -> None:
    process = bench.begin("hold-disk")
    wait_for(bench.session, measured, process)
    bench.wait_until_held("syncing", process)
    (bench.held / "refuse-disk").touch()
    (bench.held / "go").touch()
    out, err = process.communicate(timeout=allow(60))
    assert process.returncode == 4, out + err
    assert "Input/output error" in err, out + err
    assert not any(copy.suffix == ".bin" for copy in bench.copies()), (
        "it may look whole only as long as it is in memory"
    )
    ran = narrowdown("resume", bench.session)
    assert ran.code == 10, ran.out + ran.err
    (whole,) = bench.copies()
    assert digest_file(whole) == whole.stem


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


@pytest.mark.parametrize("change", [overwrite, replace, cut, Path.unlink])
def test_weights_that_change_while_they_are_copied_are_refused(
    bench: Bench, change: Callable[[Path], None]
) -> None:
    process = bench.begin("hold-copy")
    bench.wait_until_held("copying", process)
    change(bench.weights)
    (bench.held / "go").touch()
    out, err = process.communicate(timeout=allow(180))
    assert process.returncode == 2, out + err
    assert "'m.data' was changed while it was copied into the session" in err
    assert bench.copies() == []
