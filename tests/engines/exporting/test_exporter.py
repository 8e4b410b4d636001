"""The program that exports, as far as it needs no torch: two lists of operators held against each
other. With torch (NARROWDOWN_TORCH_PYTHON): what was recorded is what it makes today."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from narrowdown.engines.exporting.exporter import (
    Call,
    Fault,
    align,
    find_differences,
    load_source,
)

from .record import RECORDED, record


def call(op: str, scope: str = "m", shape: tuple[int, ...] = (2,), **stated: object) -> Call:
    made = Call(op, scope, shape, dict(stated))
    made.line = f"m.py:{len(op)}"
    return made


def test_what_is_between_is_left_out() -> None:
    eager = [call("mm"), call("gelu"), call("add")]
    exported = [call("mm"), call("mul"), call("sigmoid"), call("add")]
    assert align(eager, exported) == {0: 0, 3: 2}


@pytest.mark.parametrize("other", [call("mm", "n"), call("mm", shape=(3,)), call("bmm")])
def test_another_module_shape_or_operator_is_no_pair(other: Call) -> None:
    assert align([call("mm")], [other]) == {}


def test_an_argument_that_differs_is_told_with_its_line() -> None:
    found = find_differences([call("gelu", approximate="none")], [call("gelu", approximate="tanh")])
    (told,) = found["m"]
    assert "approximate" in told["said"]
    assert "'none'" in told["said"]
    assert "'tanh'" in told["said"]
    assert told["line"] == "m.py:4"


def test_operators_that_are_missing_are_told() -> None:
    found = find_differences([call("abs"), call("mean")], [call("mean")])
    (told,) = found["m"]
    assert "abs" in told["said"]
    assert "nothing" in told["said"]


def test_an_argument_is_told_before_operators() -> None:
    eager = [call("abs"), call("div", other=4.7)]
    found = find_differences(eager, [call("div", other=6.0)])
    assert ["other is 4.7" in told["said"] for told in found["m"]] == [True, False]


def load(source: str) -> object:
    pytest.importorskip("torch")
    return load_source(source)


def test_an_attribute_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text("def build():\n    return 1\n")
    with pytest.raises(Fault, match="did you mean build"):
        load(f"{script}:buld")


@pytest.mark.slow
@pytest.mark.skipif(
    not os.environ.get("NARROWDOWN_TORCH_PYTHON"), reason="needs a Python with torch"
)
@pytest.mark.parametrize("name", ["right", "planted"])
def test_what_is_recorded_is_what_torch_makes(tmp_path: Path, name: str) -> None:
    record(os.environ["NARROWDOWN_TORCH_PYTHON"], name, tmp_path / name)
    now, then = (
        json.loads((root / name / "export.json").read_text()) for root in (tmp_path, RECORDED)
    )
    assert {**now, "torch": ""} == {**then, "torch": ""}
    arrays = [np.load(root / name / "golden-0.npz") for root in (tmp_path, RECORDED)]
    assert set(arrays[0].files) == set(arrays[1].files)
    for file in arrays[0].files:
        np.testing.assert_allclose(arrays[0][file], arrays[1][file], atol=1e-5)
