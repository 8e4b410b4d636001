"""``--score`` on a real classifier: labels and a script, in a run and afterwards, with the table in
the report."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from narrowdown.wizard.demo import MODELS
from narrowdown.wizard.report.read import read
from tests.docs.shown import of

from .conftest import Narrowdown

ENGINE = "onnxruntime:optimization=all"
SCRIPT = """
import numpy as np
def score(outputs, sample):
    '''Minus the largest distance of a logit from what it should be: anything shows.'''
    right = np.load("right.npy")
    return -float(np.abs(outputs["logits"] - right).max())
"""


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    """The demo's model and images, and labels of which one is another than what the model says."""
    shutil.copy(MODELS / "shapes_cnn.onnx", tmp_path / "model.onnx")
    shutil.copy(MODELS / "shapes_cnn_in.npz", tmp_path / "in.npz")
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    images = dict(np.load(tmp_path / "in.npz"))
    (logits,) = onnxruntime.InferenceSession(tmp_path / "model.onnx", plain).run(None, images)
    labels = logits.argmax(-1)
    labels[3] = (labels[3] + 1) % 6
    np.save(tmp_path / "labels.npy", labels)
    np.save(tmp_path / "right.npy", logits)
    (tmp_path / "score.py").write_text(SCRIPT)
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_page_does_what_it_says(classifier: Path, narrowdown: Narrowdown) -> None:
    run, after, step = (command.words[1:] for command in of("score"))
    ran = narrowdown(*run, "--session", "bug")
    assert ran.code == 0, ran.out + ran.err
    assert "the reference: right by definition, score 0.938" in ran.said
    assert "does not show in the score" in ran.said, "no image is taken for another shape"
    assert ran.out.count("narrowdown after ") == 1
    told = narrowdown(*("bug" if word == "SESSION" else word for word in after))
    assert told.code == 0, told.out + told.err
    made = max(
        (classifier / "sessions").iterdir(), key=lambda p: (p / "journal.jsonl").stat().st_mtime_ns
    )
    report = json.loads(narrowdown("report", made, "--format", "json").out)
    rows = {row["what"]: row for row in report["scores"]}
    assert rows["the reference"]["score"] == pytest.approx(0.0, abs=1e-4)
    assert rows["as it is"]["score"] < -0.01
    cure = rows["Pad_Fusion (optimizer)"]
    assert (cure["passes"], cure["chosen"]) == (True, True)
    assert cure["score"] == pytest.approx(0.0, abs=1e-4)
    assert cure["seconds"] > 0
    assert {row["rewrite"] for row in report["rewrites"]} >= {"barrier"}
    assert "What it costs, and what a workaround buys" in narrowdown("report", made).out
    alone = narrowdown(*step, "--engine", ENGINE)
    assert alone.code == 0, alone.out + alone.err
    assert alone.json()["verdict"] == "lower"
    assert read(made).state.findings.workaround is not None
    # Another's session does not run its script unasked, and a script that stops is said with its
    # line.
    shutil.rmtree(classifier / "state")
    refused = narrowdown("after", made)
    assert refused.code == 3
    assert "score script" in refused.err
    (classifier / "score.py").write_text(
        "def score(outputs, sample):\n    return outputs['gone']\n"
    )
    stopped = narrowdown("after", "bug", "--score", "score.py", "--yes-run-scripts", "all")
    assert "'score.py', line 2, stopped with KeyError" in stopped.said
