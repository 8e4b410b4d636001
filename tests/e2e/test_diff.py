"""``narrowdown diff`` on real sessions: another engine, a touched model, and nothing at all."""

from pathlib import Path

import onnx

from .conftest import Narrowdown


def test_two_sessions_and_this_machine(narrowdown: Narrowdown, shapes: tuple[Path, Path], tmp_path: Path) -> None:
    model, inputs = shapes
    here, there = tmp_path / "here", tmp_path / "there"
    for place, tolerance in ((here, "1e-4"), (there, "1e-3")):
        words = ("--inputs", inputs, "--engine", "onnxruntime:optimization=all", "--tolerance", tolerance)
        assert narrowdown("step", "compare", model, *words, "--session", place).code == 0
    told = narrowdown("diff", here, there)
    assert told.code == 0
    assert "tolerance  A 0.0001  B 0.001" in told.out
    assert narrowdown("diff", here, here).code == 6
    now = narrowdown("diff", here, "--json")
    assert (now.code, now.json()["differences"]) == (6, [])
    assert {"model", "inputs", "version", "device", "packages"} <= set(now.json()["same"])

    touched = onnx.load(model)
    touched.graph.node[0].name = "another"
    onnx.save(touched, model)
    inputs.unlink()
    now = narrowdown("diff", here, "--json")
    assert [(d["area"], d["name"]) for d in now.json()["differences"]] == [("model", "file")]
    assert "inputs" in now.json()["unknown"]
