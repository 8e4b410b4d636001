"""The program as its users meet it: its command line, real engines, real models."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.report.read import Reading, read
from narrowdown.wizard.session.state import Visit

from ..here import SCRIPT, run_check, run_narrowdown

__all__ = ["SCRIPT"]


class Ran(msgspec.Struct):
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """What it wrote for people, without where the lines were broken."""
        return " ".join(self.out.split())

    def json(self) -> Any:
        return json.loads(self.out)


Narrowdown = Callable[..., Ran]


def environment(home: Path) -> dict[str, str]:
    """An environment whose sessions and trust live below this folder."""
    return {
        **os.environ,
        "NARROWDOWN_HOME": str(home / "sessions"),
        "XDG_STATE_HOME": str(home / "state"),
        "NO_COLOR": "1",
        "PYTHONSAFEPATH": "1",
    }


@pytest.fixture
def surroundings(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path)


@pytest.fixture
def narrowdown(surroundings: dict[str, str], tmp_path: Path) -> Narrowdown:
    """Run ``narrowdown`` with these words. A traceback on any stream fails the test at once."""
    return command(surroundings, tmp_path)


def command(surroundings: dict[str, str], folder: Path) -> Narrowdown:
    """``narrowdown`` in this environment and folder."""

    def run(*words: str | Path, stdin: str | None = None) -> Ran:
        done = run_narrowdown(words, surroundings, folder, stdin)
        assert "Traceback (most recent call last)" not in done.stdout + done.stderr, done.stderr
        assert "Narrowdown itself failed" not in done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


class Walked(msgspec.Struct):
    """One whole session: how its command ended, and where it lies."""

    ran: Ran
    folder: Path

    @property
    def reading(self) -> Reading:
        return read(self.folder)

    def visits(self, node: str) -> list[Visit]:
        return [v for v in self.reading.state.route if v.node == node]

    def answers(self) -> list[tuple[str, str]]:
        """(node, answer) along the route."""
        return [(v.node, v.answer) for v in self.reading.state.route]


Walk = Callable[..., Walked]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all processes of this test run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def models(shared: Path) -> Path:
    """A folder for tiny models, one for all tests."""
    (shared / "tiny").mkdir(exist_ok=True)
    return shared / "tiny"


@pytest.fixture(scope="session")
def walk(shared: Path) -> Walk:
    """Walk a whole session with ``narrowdown run`` and these words; the same words are walked once
    for all tests, whichever process asks first."""
    home = shared / "walks"
    home.mkdir(exist_ok=True)
    narrowdown = command(environment(home), home)

    def walked(*words: str | Path, answers: str = "") -> Walked:
        asked = json.dumps([*map(str, words), answers])
        place = home / f"walk-{hashlib.sha256(asked.encode()).hexdigest()[:12]}"
        told = place.with_suffix(".json")
        with place.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not told.exists():
                if answers:
                    script = place.with_suffix(".yaml")
                    script.write_text(answers)
                    words = (*words, "--answers", script)
                ran = narrowdown("run", *words, "--session", place)
                told.write_bytes(msgspec.json.encode(ran))
        return Walked(msgspec.json.decode(told.read_bytes(), type=Ran), place)

    return walked


@pytest.fixture
def shapes(tmp_path: Path) -> tuple[Path, Path]:
    """(model, inputs) of the trained CNN that ONNX Runtime's Pad fusion breaks."""
    return _copy("shapes_cnn", tmp_path)


@pytest.fixture
def sort(tmp_path: Path) -> tuple[Path, Path]:
    """(model, inputs) of the transformer whose LayerNorm overflows in FP16."""
    return _copy("sort_tf_massive_m4", tmp_path)


@pytest.fixture(scope="session")
def magika(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(model, inputs) of the file type model, on this machine's own files."""
    package = pytest.importorskip("magika")
    inputs = tmp_path_factory.mktemp("magika") / "files.npz"
    subprocess.run(
        [sys.executable, "-P", "-m", "narrowdown.engines.demos.magika_inputs", str(inputs)],
        check=True,
        capture_output=True,
    )
    return Path(package.__file__).parent / "models/standard_v3_3/model.onnx", inputs


def _copy(name: str, folder: Path) -> tuple[Path, Path]:
    for file in (f"{name}.onnx", f"{name}_in.npz"):
        shutil.copy(MODELS / file, folder / file)
    return folder / f"{name}.onnx", folder / f"{name}_in.npz"


def check(case: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a bundle's own check from a folder that is not Narrowdown's."""
    return run_check(case / "check.py", *words, folder=case)
