"""``narrowdown known``: the table, and which of it a failure looks like."""

import json
from pathlib import Path

import onnx
import pytest

from narrowdown.engines.known.construct import construct
from narrowdown.engines.known.table import read_table
from narrowdown.wizard.cli import main
from tests.docs.shown import of


@pytest.fixture
def padded(tmp_path: Path) -> Path:
    """A model that ONNX Runtime gets wrong: zeros padded in front of a MaxPool over negative
    values."""
    bug = next(bug for bug in read_table() if bug.id == "ort-pad-maxpool-fusion")
    assert bug.make is not None
    model = construct(bug.make)
    model.graph.node.insert(1, onnx.helper.make_node("Neg", ["positive"], ["x_neg"], name="negate"))
    model.graph.node[0].input[0] = "x_neg"
    model.graph.node.insert(0, model.graph.node.pop(1))
    model.graph.input[0].name = "positive"
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    return path


def test_the_table_is_listed_by_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["known", "--engine", "openvino", "--json"]) == 0
    bugs = json.loads(capsys.readouterr().out)["bugs"]
    assert {bug["engine"] for bug in bugs} == {"openvino"}
    assert main(["known"]) == 0
    out = capsys.readouterr().out
    assert "microsoft/onnxruntime#32228" in out
    assert f"{len(read_table())} known bugs" in out


@pytest.mark.slow
def test_the_page_does_what_it_says(
    padded: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A table, a model that is run, the session that this made; and nothing is recognised in what
    passes."""
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "home"))
    session = str(tmp_path / "session")
    where = ["--val-range", "positive:[1,2]", "--session", session, "--display", "none"]
    told: list[str] = []
    for command in sorted(of("known"), key=lambda c: "SESSION" in c.words):
        words = [
            {"model.onnx": str(padded), "MODEL": str(padded), "SESSION": session}.get(w, w)
            for w in command.words
        ]
        assert main([*words[1:], *(where if str(padded) in words else [])]) == 0
        told.append(capsys.readouterr().out)
    assert "known bugs, " in told[0]
    assert "It is a known bug, microsoft/onnxruntime#18136" in told[-1]
    right = ["--engine", "onnxruntime:optimization=disabled", "--json", "--display", "none"]
    assert main(["step", "known", str(padded), *right]) == 10
    assert json.loads(capsys.readouterr().out)["verdict"] == "passes"
