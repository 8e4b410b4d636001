"""Rewrites on real engines: what cures is exact, held out and written; what cures nothing says
so."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from narrowdown.engines.known.construct import construct
from narrowdown.engines.known.table import read_table
from narrowdown.engines.probe import APART, BARRIER
from narrowdown.wizard.cli import main
from narrowdown.wizard.demo import MODELS
from tests.docs.shown import ROOT, of

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
    assert len(shown) == 4
    cured = step(
        capsys, 0, *(w for w in shown[0].words[3:] if w != "--json"), "--val-range", "x:[-2,-1]"
    )
    cures = {row["rewrite"] for row in cured["rewrites"] if row["verdict"] == "cures"}
    assert (cured["verdict"], cured["rewrite"] in cures) == (
        "cures",
        True,
    )  # the fastest: milliseconds say which
    assert cures == set(APART), "an output, and both forms of wraps"
    assert cured["unseen_ok"] == cured["unseen"] == 32
    written = onnx.load(tmp_path / "worked-around.onnx")
    assert len(written.graph.output) == 1 + (cured["rewrite"] == BARRIER)
    passes = step(
        capsys, 10, *(w for w in shown[1].words[3:] if w != "--json"), "--val-range", "x:[-2,-1]"
    )
    assert passes["verdict"] == "passes"
    for name in ("shapes_cnn.onnx", "shapes_cnn_in.npz"):
        shutil.copy(MODELS / name, tmp_path / name)
    timed = step(capsys, 0, *shown[3].words[3:])
    rows = {row["rewrite"]: row for row in timed["rewrites"] if row["verdict"] == "cures"}
    assert set(rows) == set(APART), "the page tells what a run with each of them takes"
    assert all("a run takes about" in row["tried"] for row in rows.values())


@pytest.mark.slow
def test_what_hides_when_watched_is_cured_by_the_outputs_that_the_page_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real fault of ONNX Runtime on a trained network, by a program that can switch nothing: the
    whole route."""
    page = (ROOT / "docs" / "after.md").read_text(encoding="utf-8")
    program = next(
        text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "run_ort.py" in text
    )
    (tmp_path / "run_ort.py").write_text(program, encoding="utf-8")
    for name in ("shapes_cnn.onnx", "shapes_cnn_in.npz"):
        shutil.copy(MODELS / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    words = [w.replace("run=python ", f"run={sys.executable} ") for w in of("rewrite")[2].words[1:]]
    session = tmp_path / "s"
    assert main([*words, "--session", str(session), "--display", "plain"]) == 0
    said = capsys.readouterr().out
    end = re.search(r"The end: \*(.*?)\*", page, re.DOTALL)
    assert end is not None
    assert " ".join(end[1].split()) in said
    report = json.loads((session / "case" / "report.json").read_text(encoding="utf-8"))
    cure = report["workaround"]
    assert (cure["kind"], cure["switched_off"], cure["holds"]) == (
        "barrier",
        ["/pad/Pad_output_0"],
        True,
    )
    assert (cure["samples_ok"], cure["unseen_ok"]) == (cure["samples_n"], cure["unseen_n"])
    written = onnx.load(session / "worked-around.onnx")
    assert written.graph.output[-1].name == "/pad/Pad_output_0"
    told = (session / "case" / "workaround.md").read_text(encoding="utf-8")
    line = next(line for line in told.splitlines() if "worked-around.onnx" in line)
    assert "paste this first" in said
    shutil.copy(tmp_path / "shapes_cnn_in.npz", session / "case" / "inputs.npz")
    shutil.copy(tmp_path / "run_ort.py", session / "case")
    run = shlex.split(line.replace("PYTHON", str(Path(sys.executable).parents[1])))
    subprocess.run(run, cwd=session / "case", check=True)
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    right = onnxruntime.InferenceSession(
        "shapes_cnn.onnx", plain, providers=["CPUExecutionProvider"]
    )
    with np.load("shapes_cnn_in.npz") as fed, np.load(session / "case" / "outputs.npz") as got:
        name = right.get_outputs()[0].name
        assert np.allclose(got[name], right.run([name], dict(fed))[0], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_norms_that_overflow_in_fp16_are_cured_without_fp32(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, inputs = MODELS / "sort_tf_massive_m4.onnx", MODELS / "sort_tf_massive_m4_in.npz"
    told = step(
        capsys, 0, str(model), "--inputs", str(inputs), "--engine", "emulate:precision=fp16"
    )
    rows = {row["rewrite"]: row for row in told["rewrites"]}
    assert told["rewrite"] == "scale-norm"
    assert (len(rows["scale-norm"]["changed"]), rows["scale-norm"]["exact"]) == (7, 0.0)
    assert told["error"] < 0.01 < rows["barrier"]["error"]


@pytest.mark.slow
def test_a_reduction_is_cured_on_openvino(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("openvino")
    onnx.save(construct(MADE["ov-reducel1-axes-attribute"]), tmp_path / "model.onnx")
    told = step(capsys, 0, str(tmp_path / "model.onnx"), "--engine", "openvino:precision=f32")
    # Another opset cures it, too, and the faster of the two is named first.
    cures = {row["rewrite"]: row["error"] for row in told["rewrites"] if row["verdict"] == "cures"}
    assert cures["unfuse-reductions"] == 0.0
    assert (told["rewrite"] in cures, told["error"]) == (True, 0.0)
