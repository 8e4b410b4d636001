"""``narrowdown diff`` on real sessions: another engine, a touched model, and nothing at all."""

from pathlib import Path

import onnx
import pytest

from . import tiny
from .conftest import Narrowdown


@pytest.mark.slow
def test_two_sessions_and_this_machine(narrowdown: Narrowdown, tmp_path: Path) -> None:
    model, inputs = tiny.two_norms(tmp_path), tiny.rows(tmp_path)
    here, there = tmp_path / "here", tmp_path / "there"
    for place, tolerance in ((here, "1e-4"), (there, "1e-3")):
        words = ("--inputs", inputs, "--engine", "emulate:precision=fp16", "--tolerance", tolerance)
        assert narrowdown("step", "compare", model, *words, "--session", place).code == 0
    told = narrowdown("diff", here, there)
    assert told.code == 0
    assert "tolerance  A 0.0001  B 0.001" in told.out
    assert narrowdown("diff", here, here).code == 6
    touched = onnx.load(model)
    touched.graph.node[0].name = "another"
    onnx.save(touched, model)
    inputs.unlink()
    now = narrowdown("diff", here, "--json")
    assert [(d["area"], d["name"]) for d in now.json()["differences"]] == [("model", "file")]
    assert "inputs" in now.json()["unknown"]
    assert {"version", "device", "packages"} <= set(now.json()["same"])
