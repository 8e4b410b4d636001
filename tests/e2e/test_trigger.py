"""When do real bugs of the engines that are installed fire? Each condition was read by hand beside what is known of the bug."""

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from engines.graph.construct import construct, draw_feed
from engines.known.table import read_table
from engines.steps.known import with_settings
from tests.docs.shown import of
from wizard.cli import main

MADE = {bug.id: bug for bug in read_table() if bug.make is not None}
ENGINES = {"onnxruntime": "onnxruntime:optimization=all", "openvino": "openvino:precision=f32"}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "home"))


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
    engine = with_settings(ENGINES[bug.engine], bug.settings)
    return [str(folder / "model.onnx"), "--inputs", str(folder / "inputs.npz"), "--engine", engine]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "clauses"),
    [
        ("ort-pad-maxpool-fusion", {"Pad mode is constant or left out", "p is not all zeros", "p is a weight"}),
        ("ort-layernorm-keepdims", {"ReduceMean 3 axes is not all zeros", "eps is not 0.0"}),
        ("ort-int-div-mul-fusion", {"the type is not float32"}),
        ("ov-int64-abs", {"the type is int64", "the largest |x| >="}),
        ("ov-int64-neg", {"the type is int64", "the largest |x| >="}),
        ("ov-reducel1-axes-attribute", {"ReduceL1 axes is not all zeros", "opset >= 13"}),
    ],
)  # fmt: skip
def test_real_bugs_fire_when_they_do(
    name: str, clauses: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if MADE[name].engine == "openvino":
        pytest.importorskip("openvino")
    told = trigger(capsys, 0, *make_bug(name, tmp_path))
    assert told["verdict"] == "found", told["message"]
    said = told["condition"].split(" and ")
    assert all(any(one.startswith(clause) for one in said) for clause in clauses), told["message"]
    bounds = [float(one.rpartition(" ")[2]) for one in said if one.startswith("the largest |x| >=")]
    assert all(2**30 < bound <= 2**33 for bound in bounds)
    assert told["fits"] == told["tried"] > 40


@pytest.mark.slow
def test_the_page_does_what_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = make_bug("ort-pad-maxpool-fusion", tmp_path)
    monkeypatch.chdir(tmp_path)
    for shown in (s for s in of("trigger") if "step" in s.words):
        told = trigger(capsys, 0, *(w for w in shown.words[3:] if w != "--json"), "--inputs", words[2])
        assert told["verdict"] == "found"
    (tmp_path / "make_case.py").write_text(told["generator"][0]["text"], encoding="utf-8")
    space = runpy.run_path(str(tmp_path / "make_case.py"))
    assert len(space["FIRES"]) > 2
    assert len(space["PASSES"]) > 2
    for rows, code in ((space["FIRES"], "fails"), (space["PASSES"], "passes")):
        model, feeds = space["make"](**rows[-1])
        onnx.save(model, tmp_path / "again.onnx")
        np.savez(tmp_path / "again.npz", **feeds)
        again = [
            "step",
            "compare",
            str(tmp_path / "again.onnx"),
            "--inputs",
            str(tmp_path / "again.npz"),
            "--engine",
            words[-1],
        ]
        main([*again, "--json", "--display", "none"])
        assert json.loads(capsys.readouterr().out)["verdict"] == code, rows[-1]
