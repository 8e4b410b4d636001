"""Which engine is asked where nobody names one, that it is said, and what ``--expect`` makes of
exit codes."""

import pytest

from narrowdown.engines import installed
from narrowdown.engines.workers import gpus
from narrowdown.wizard import Exit
from narrowdown.wizard.cli.arguments import parse
from narrowdown.wizard.cli.run import expected
from narrowdown.wizard.problem_options import say_usual, usual_engine

GPU = (gpus.Gpu("GPU-1", "NVIDIA H200", "9.0"),)


@pytest.mark.parametrize(
    ("package", "found", "spec", "why"),
    [
        (True, GPU, "tensorrt", "TensorRT and a GPU are here"),
        (True, (), "onnxruntime:optimization=all", "TensorRT is here, and no GPU"),
        (False, GPU, "onnxruntime:optimization=all", "TensorRT is not installed here"),
    ],
)
def test_tensorrt_goes_before_where_it_can_run(
    monkeypatch: pytest.MonkeyPatch, package: bool, found: tuple[gpus.Gpu, ...], spec: str, why: str
) -> None:
    monkeypatch.setattr(installed, "importable", lambda name: package or name != "tensorrt")
    monkeypatch.setattr(gpus, "list_gpus", lambda: found)
    assert usual_engine() == (spec, why)
    said = say_usual(parse(["run", "m.onnx"]))
    assert said.startswith(f"No engine was named, so {spec} is the one under test ({why}).")
    assert "--engine NAME" in said


@pytest.mark.parametrize(
    ("words", "silent"),
    [
        (["--engine", "onnxruntime"], True),
        (["--check", "true {model}"], True),
        (["--check", "true {model} {expected}"], False),
    ],
)
def test_it_is_said_only_where_an_engine_is_asked_that_nobody_named(
    words: list[str], silent: bool
) -> None:
    assert (say_usual(parse(["run", "m.onnx", *words])) == "") is silent


def test_every_exit_code_under_expect() -> None:
    told = {
        code.name: (expected("pass", code), expected("fail", code), expected(None, code))
        for code in Exit
    }
    for name in ("FOUND", "INPUT_SENSITIVE", "FIXED_BY_SANITIZING", "EXPORT_AT_FAULT"):
        assert told.pop(name)[:2] == (5, 0), name
    assert told.pop("NOT_REPRODUCED") == (0, 5, 10)
    for name in ("UNRESOLVED", "REFERENCE_SUSPECT", "NOT_DETERMINED"):
        assert told.pop(name)[:2] == (6, 6), name
    assert all(len(set(codes)) == 1 for codes in told.values()), told
    assert {"BAD_USAGE", "MISSING", "STOPPED", "OUR_FAULT"} <= set(told)
