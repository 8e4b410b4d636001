"""What triggers real bugs of the engines that are installed? Each was read by hand beside what is
known of the bug."""

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from narrowdown.engines.known.construct import construct, draw_feed
from narrowdown.engines.known.table import read_table
from narrowdown.engines.spec import parse
from narrowdown.wizard.cli import main
from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.report.read import read
from tests.docs.shown import of

from ..patience import allow
from .conftest import Narrowdown
from .test_interruptions import begin, events, kill_runner, wait_for

MADE = {bug.id: bug for bug in read_table() if bug.make is not None}
ENGINES = {"onnxruntime": "onnxruntime:optimization=all", "openvino": "openvino:precision=f32"}


@pytest.fixture(autouse=True, scope="module")
def _home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NARROWDOWN_HOME", str(tmp_path_factory.mktemp("home")))
        yield


def trigger(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> dict[str, Any]:
    assert main(["step", "trigger", *words, "--json", "--display", "none"]) == code
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def make_bug(name: str, folder: Path) -> list[str]:
    """The words of a command about the construction of a known bug."""
    bug = MADE[name]
    assert bug.make is not None
    onnx.save(construct(bug.make), folder / "model.onnx")
    np.savez(folder / "inputs.npz", **draw_feed(bug.make, 1))  # type: ignore[arg-type]
    engine = str(parse(ENGINES[bug.engine]).with_options(bug.settings))
    return [str(folder / "model.onnx"), "--inputs", str(folder / "inputs.npz"), "--engine", engine]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "matter"),
    [
        ("ort-pad-maxpool-fusion", {"Pad mode", "p", "p is", "x holds"}),
        ("ort-layernorm-keepdims", {"ReduceMean 3 axes", "eps"}),
        ("ort-int-div-mul-fusion", {"the type"}),
        ("ov-int64-abs", {"the type", "the largest |x|"}),
        ("ov-int64-neg", {"the type", "the largest |x|"}),
        ("ov-reducel1-axes-attribute", {"ReduceL1 axes", "opset"}),
    ],
)
def test_real_bugs_are_triggered_by_what_is_known_of_them(
    name: str, matter: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if MADE[name].engine == "openvino":
        pytest.importorskip("openvino")
    told = trigger(capsys, 0, *make_bug(name, tmp_path))
    assert told["verdict"] == "found", told["message"]
    assert matter <= {row["factor"] for row in told["factors"] if row["matters"]}, told["message"]
    assert told["tried"] > 20


@pytest.mark.slow
def test_the_page_does_what_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = make_bug("ort-pad-maxpool-fusion", tmp_path)
    monkeypatch.chdir(tmp_path)
    for shown in (s for s in of("trigger") if "step" in s.words):
        told = trigger(
            capsys, 0, *(w for w in shown.words[3:] if w != "--json"), "--inputs", words[2]
        )
        assert told["verdict"] == "found"
    (tmp_path / "make_case.py").write_text(told["generator"][0]["text"], encoding="utf-8")
    space = runpy.run_path(str(tmp_path / "make_case.py"))
    model, feeds = space["make"](**space["CASE"])
    onnx.save(model, tmp_path / "again.onnx")
    np.savez(tmp_path / "again.npz", **feeds)
    again = [str(tmp_path / "again.onnx"), "--inputs", str(tmp_path / "again.npz")]
    options = ["--engine", words[-1], "--json", "--display", "none"]
    main(["step", "compare", *again, *options])
    assert json.loads(capsys.readouterr().out)["verdict"] == "fails"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ended session with a culprit: a Pad and a MaxPool among other nodes."""
    folder = tmp_path_factory.mktemp("trigger")
    model, inputs = MODELS / "shapes_cnn.onnx", MODELS / "shapes_cnn_in.npz"
    words = [
        "--inputs",
        str(inputs),
        "--engine",
        ENGINES["onnxruntime"],
        "--session",
        str(folder / "bug"),
    ]
    assert main(["run", str(model), *words, "--display", "none"]) == 0
    return folder / "bug"


@pytest.mark.slow
def test_a_session_is_told_what_triggers_its_case(
    session: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(session.parent)
    shown = [s.words for s in of("trigger") if "step" not in s.words]
    assert [words[:3] for words in shown] == [
        ["narrowdown", "trigger", "bug"],
        ["narrowdown", "trigger", "bug"],
    ]
    for words in shown:
        capsys.readouterr()
        assert main([*words[1:], "--json", "--display", "none"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["verdict"] == "found", told["message"]
        assert "x holds: fails with" in told["condition"]
        assert "Here" in told["message"]  # what the short names stand for
    space = runpy.run_path(str(session.parent / "make_case.py"))
    assert space["CASE"]
    after = told["session"]
    assert main(["show", after, "--canonical"]) == 0


@pytest.mark.slow
def test_it_goes_on_where_it_was_stopped_and_ends_with_its_budget(
    session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["trigger", str(session), "--most", "12", "--json", "--display", "none"]
    assert main(few) in (0, 6)
    told = json.loads(capsys.readouterr().out)
    assert told["spent"]
    assert told["tried"] + told["cannot_tell"] <= 12
    assert main(["replay", told["session"], "--dry"]) == 0  # the journal alone leads to the same


@pytest.mark.slow
@pytest.mark.parametrize("probes", [5, 80])
def test_killed_in_the_middle_it_asks_nothing_twice_and_says_the_same(
    narrowdown: Narrowdown, surroundings: dict[str, str], tmp_path: Path, probes: int
) -> None:
    """SIGKILL to the runner, while it varies the case: early, and in the midst of the levels."""
    words = ["step", "trigger", *make_bug("ort-pad-maxpool-fusion", tmp_path)]
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    assert narrowdown(*words, "--session", straight).code == 0
    asked = [e["key"] for e in events(straight) if e["kind"] == "probe.finished"]
    assert len(asked) > 90
    process = begin([*words, "--session", broken], surroundings, tmp_path)
    try:
        wait_for(
            broken,
            lambda found: sum(e["kind"] == "probe.finished" for e in found) >= probes,
            process,
        )
        kill_runner(broken)
        process.wait(timeout=allow(30))
    finally:
        process.kill()
    before = [e["key"] for e in events(broken) if e["kind"] == "probe.finished"]
    assert probes <= len(before) < len(asked), "it was killed in the middle"
    assert narrowdown("resume", broken, "--display", "plain").code == 0
    finished = [e["key"] for e in events(broken) if e["kind"] == "probe.finished"]
    assert finished[: len(before)] == before
    assert len(finished) == len(set(finished)), "no probe is measured twice"
    assert set(finished) == set(asked), "nothing else is asked"
    told = [read(place).state.route[-1].outcome for place in (straight, broken)]
    assert told[0] == told[1]
    assert told[0]["verdict"] == "found"


@pytest.mark.slow
def test_what_is_no_case_is_refused(
    session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trigger", str(MODELS / "shapes_cnn.onnx"), "--display", "none"]) == 2
    assert "is not a session" in capsys.readouterr().err
