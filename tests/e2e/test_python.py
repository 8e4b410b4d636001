"""``narrowdown.run`` from Python: the same session as the command line's, and sentences for what does
not fit."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import narrowdown
from narrowdown import api
from narrowdown.wizard import Exit
from narrowdown.wizard.session import folder as folders

from . import tiny

PAGE = Path(__file__).parents[2] / "docs/python.md"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "sessions"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def rows(sample: Path) -> dict[str, Any]:
    with np.load(sample) as held:
        return dict(held)


def test_a_model_and_arrays_in_memory_walk_the_route(tmp_path: Path) -> None:
    model, arrays = onnx.load(tiny.two_norms(tmp_path)), rows(tiny.rows(tmp_path))
    report = narrowdown.run(model, arrays, "emulate", session=tmp_path / "s")
    assert (report.verdict, report.exit_code) == ("worked-around", Exit.FOUND)
    assert report.session == tmp_path / "s"
    assert report.nodes == tuple(report.facts["culprits"][0]["nodes"])
    assert report.cause == "overflow"
    assert report.workaround is not None
    assert (report.session / "report.html").exists()
    about = folders.describe(report.session).problem
    assert onnx.load(about.model) == model, "the report's commands name a file that is there"
    (given,) = about.inputs
    assert rows(Path(given)).keys() == arrays.keys()
    again = narrowdown.run(model, arrays, "emulate", session=tmp_path / "s")
    assert again.facts == report.facts, "nothing is left to do"
    assert narrowdown.Report(report.session).facts == report.facts
    tables = report.tables
    assert len(tables["route"]) == len(report.facts["route"])
    assert any("." in name for name in tables), "those of the steps"
    assert report.verdict in repr(report)
    assert report.facts["headline"] in str(report)


def test_each_dict_is_a_sample(tmp_path: Path) -> None:
    model = tiny.faultless(tmp_path)
    (feed,) = onnx.load(model).graph.input
    shape = [d.dim_value or 1 for d in feed.type.tensor_type.shape.dim]
    samples = [{feed.name: np.full(shape, n, np.float32)} for n in range(3)]
    report = narrowdown.run(model, samples, "emulate")
    assert (report.verdict, report.exit_code) == ("not-reproduced", Exit.NOT_REPRODUCED)
    assert report.facts["samples"] == 3
    assert report.session.parent == folders.home()


@pytest.mark.parametrize(
    ("arguments", "options", "named"),
    [
        (["nothing.onnx"], {}, "nothing.onnx"),
        ([3], {}, "int"),
        (["m.onnx", 3], {}, "int"),
        (["m.onnx", {"x": object()}], {}, "'x'"),
        (["m.onnx", [{"x": [[1], [2, 3]]}]], {}, "'x'"),
        (["m.onnx", None, "tensort"], {}, "tensorrt"),
        (["m.onnx", "nothing.npz"], {}, "nothing.npz"),
        (["m.onnx"], {"tolerence": 1}, "--tolerance"),
        (["m.onnx"], {"tolerance": object()}, "--tolerance"),
        (["m.onnx", {"nobody": np.zeros(1)}, "emulate"], {}, "nobody"),
    ],
)
def test_what_does_not_fit_is_a_sentence(
    tmp_path: Path, arguments: list[Any], options: dict[str, Any], named: str
) -> None:
    tiny.faultless(tmp_path).rename(tmp_path / "m.onnx")
    with pytest.raises(narrowdown.NarrowdownError, match=re.escape(named)) as refused:
        narrowdown.run(*arguments, **options)
    assert refused.value.code == Exit.BAD_USAGE
    assert refused.value._render_traceback_() == [f"NarrowdownError: {refused.value}"]


def test_a_folder_that_is_no_session_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(narrowdown.NarrowdownError, match=str(tmp_path)):
        narrowdown.Report(tmp_path)


def test_tables_are_frames_where_pandas_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Frames:
        @staticmethod
        def DataFrame(rows: list[dict[str, int]]) -> tuple[str, int]:  # noqa: N802
            return "frame", len(rows)

    monkeypatch.setitem(sys.modules, "pandas", Frames)
    assert api._table([{"a": 1}]) == ("frame", 1)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert api._table([{"a": 1}]) == [{"a": 1}]


def test_to_import_it_reads_nothing_of_the_application() -> None:
    """A worker imports it, too."""
    code = "import narrowdown, sys; print(*(m for m in sys.modules if m.startswith('narrowdown')))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["narrowdown"]


def test_the_page_does_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.two_norms(tmp_path).rename(tmp_path / "model.onnx")
    tiny.rows(tmp_path).rename(tmp_path / "inputs.npz")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert "tensorrt:precision=fp16" in code
    told: dict[str, Any] = {}
    exec(compile(code.replace("tensorrt:precision=fp16", "emulate"), str(PAGE), "exec"), told)
    assert told["report"].verdict in capsys.readouterr().out
    names = re.search(r"data frames.*?: (.*?) \|", PAGE.read_text(encoding="utf-8"))
    assert names is not None
    for name in re.findall(r"`([\w.]+)`", names[1]):
        assert name in told["report"].tables, name
