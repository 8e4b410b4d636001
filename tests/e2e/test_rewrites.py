"""Rewrites on real engines: what cures is exact, held out and written; what cures nothing says so."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from engines.graph.construct import construct
from engines.known.table import read_table
from tests.docs.shown import of
from wizard.cli import main
from wizard.demo import MODELS

MADE = {bug.id: bug.make for bug in read_table() if bug.make is not None}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "home"))


def step(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> dict[str, Any]:
    assert main(["step", "rewrite", *words, "--json", "--display", "none"]) == code
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


@pytest.mark.slow
def test_the_page_does_what_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Pad of zeros and a MaxPool, which ONNX Runtime joins wrongly and no emulation does."""
    onnx.save(construct(MADE["ort-pad-maxpool-fusion"]), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    shown = of("rewrite")
    assert len(shown) == 2
    cured = step(capsys, 0, *(w for w in shown[0].words[3:] if w != "--json"), "--val-range", "x:[-2,-1]")
    assert (cured["verdict"], cured["rewrite"]) == ("cures", "barrier")
    assert cured["unseen_ok"] == cured["unseen"] == 32
    written = onnx.load(tmp_path / "worked-around.onnx")
    assert len(written.graph.output) == 2
    passes = step(capsys, 10, *(w for w in shown[1].words[3:] if w != "--json"), "--val-range", "x:[-2,-1]")
    assert passes["verdict"] == "passes"


@pytest.mark.slow
def test_norms_that_overflow_in_fp16_are_cured_without_fp32(capsys: pytest.CaptureFixture[str]) -> None:
    model, inputs = MODELS / "sort_tf_massive_m4.onnx", MODELS / "sort_tf_massive_m4_in.npz"
    told = step(capsys, 0, str(model), "--inputs", str(inputs), "--engine", "emulate:precision=fp16")
    rows = {row["rewrite"]: row for row in told["rewrites"]}
    assert told["rewrite"] == "scale-norm"
    assert (len(rows["scale-norm"]["changed"]), rows["scale-norm"]["exact"]) == (7, 0.0)
    assert told["error"] < 0.01 < rows["barrier"]["error"]


@pytest.mark.slow
def test_a_reduction_is_cured_on_openvino(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("openvino")
    onnx.save(construct(MADE["ov-reducel1-axes-attribute"]), tmp_path / "model.onnx")
    told = step(capsys, 0, str(tmp_path / "model.onnx"), "--engine", "openvino:precision=f32")
    assert (told["rewrite"], told["error"]) == ("unfuse-reductions", 0.0)
