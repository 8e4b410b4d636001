"""``narrowdown diff`` on real sessions: another engine, a touched model, and nothing at all."""

from pathlib import Path

import onnx

from .conftest import Narrowdown


def test_two_sessions_and_this_machine(narrowdown: Narrowdown, shapes: tuple[Path, Path], tmp_path: Path) -> None:
    model, inputs = shapes
    here, there = tmp_path / "here", tmp_path / "there"
    for place, engine in ((here, "onnxruntime:optimization=all"), (there, "emulate:precision=fp16")):
        words = ("--inputs", inputs, "--engine", engine, "--session", place, "--with", "look_again=false")
        assert narrowdown("step", "compare", model, *words).code in (0, 10)
    told = narrowdown("diff", here, there)
    assert told.code == 0
    assert "engine        A onnxruntime  B emulate" in told.out
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
