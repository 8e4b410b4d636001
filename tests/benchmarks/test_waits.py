"""What a person waits for around the search: the first probe, the list of sessions, a session of 30,000 probes.

Prints seconds, processor seconds and memory of whole process trees, asserts no time. Run with:
pytest -m benchmark -s tests/benchmarks/test_waits.py
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import journals
import pytest
from metering import Cost, run
from tables import show
from test_screens import Screen

from wizard.demo import MODELS
from wizard.session.folder import DESCRIPTION
from wizard.session.journal import NAME

pytestmark = [pytest.mark.benchmark, pytest.mark.alone, pytest.mark.timeout(1800)]

MODEL = MODELS / "shapes_cnn.onnx"
PROBES = 30_000
HEAD = ("what", "seconds", "cpu s", "MiB")


def row(what: str, cost: Cost) -> Sequence[object]:
    assert cost.code == 0, cost.err
    return what, cost.seconds, cost.cpu, cost.memory


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small session that was walked to its end."""
    place = tmp_path_factory.mktemp("walked") / "session"
    words = ["narrowdown", "run", MODEL, "--engine", "onnxruntime", "--display", "none", "--session", place]
    assert run(words, place.parent).code == 0
    return place


def test_start(walked: Path, tmp_path: Path) -> None:
    description = json.loads((walked / DESCRIPTION).read_text())
    events = [json.loads(line) for line in (walked / NAME).read_text().splitlines()]
    first = next(event for event in events if event["kind"] == "probe.started")
    one = ["narrowdown", "step", "compare", MODEL, "--engine", "onnxruntime", "--display", "none"]
    step = run([*one, "--session", tmp_path / "step"], tmp_path)
    rows = [
        ("from the session's folder to its first probe", first["ts"] - description["created"], "", ""),
        row("step compare, all of it", step),
        row("engines", run(["narrowdown", "engines"], tmp_path)),
    ]
    show("Start", HEAD, rows)


def test_many_sessions(walked: Path, tmp_path: Path) -> None:
    slim = tmp_path / "slim"
    slim.mkdir()
    for name in (DESCRIPTION, "flow.yaml", NAME, "lock"):
        shutil.copy(walked / name, slim)
    rows: list[Sequence[object]] = []
    for count in (100, 1000):
        home = tmp_path / f"home-{count}"
        (home / "sessions").mkdir(parents=True)
        journals.multiply(slim, home / "sessions", count)
        where = {"NARROWDOWN_HOME": str(home / "sessions"), "XDG_CACHE_HOME": str(home)}
        for when in ("the first time", "again"):
            rows.append(row(f"sessions, {count}, {when}", run(["narrowdown", "sessions"], tmp_path, **where)))
        screen = Screen([], home)
        try:
            drawn = screen.act(lambda: None, "worked around")
            rows.append((f"on the screen, {count}", drawn.seconds, screen.used(), ""))
            screen.wait(5.0)
            before = screen.used()
            screen.wait(20.0)
            rows.append((f"at rest, {count}, % of a core", (screen.used() - before) * 5, "", ""))
        finally:
            screen.child.close(force=True)
    show("Many sessions", HEAD, rows)


def test_long_journal(walked: Path, tmp_path: Path) -> None:
    place = tmp_path / "long"
    journals.lengthen(walked, place, PROBES)
    rows = [
        row(f"{command}, {PROBES:,} probes", run(["narrowdown", *command.split(), place, *more], tmp_path))
        for command, more in (("show", ()), ("replay --dry", ()), ("resume", ("--display", "none")))
    ]
    show("A long journal", HEAD, rows, f"The journal has {(place / NAME).stat().st_size / 2**20:.0f} MiB.")
