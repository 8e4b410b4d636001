"""The survey never raises and leaves no engine out; a library that dies while it loads is one line
of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from narrowdown.engines import backends, discovery, installed
from narrowdown.engines.backends import survey
from narrowdown.engines.backends.base import EngineMissing
from narrowdown.wizard.cli.engines import MEANINGS

FIELDS = {"name", "summary", "present", "reason", "version", "device", "options", "capabilities"}


def test_the_survey_lists_every_engine() -> None:
    rows = {row["name"]: row for row in survey.survey_engines()}
    assert list(rows) == [d.name for d in discovery.ours().values() if not d.hidden]
    assert discovery.find("fake").hidden
    assert "fake" not in rows
    for row in rows.values():
        assert row.keys() >= FIELDS
        assert set(row["capabilities"]) <= set(MEANINGS)  # every word that is listed is explained
        assert (
            row["present"] or row["reason"].endswith((".", "'")) or "pip install" in row["reason"]
        )
    assert rows["onnxruntime"]["present"]
    assert rows["onnxruntime"]["capabilities"]["run"]["present"]
    assert rows["onnxruntime"]["options"][0]["name"] == "optimization"
    if not rows["tensorrt"]["present"]:
        assert "pip install" in rows["tensorrt"]["reason"] or "GPU" in rows["tensorrt"]["reason"]
    assert "command:run=PROGRAM" in rows["command"]["reason"]


def test_the_command_prints_one_line_of_json() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "narrowdown.engines.backends", "emulate"],
        capture_output=True,
        text=True,
        check=True,
    )
    (row,) = json.loads(done.stdout)
    assert row["name"] == "emulate"
    assert row["storage"] == "float16"


def test_the_command_names_what_it_does_not_know() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "narrowdown.engines.backends", "x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "There is no engine 'x'.\n"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import os; os.abort()", "it died of SIGABRT"),
        ("raise OSError('libnothing.so: cannot open shared object file')", "libnothing.so"),
        ("import sys; sys.exit(5)", "it ended with 5"),
    ],
)
def test_a_library_that_breaks_while_it_loads_is_a_line(
    source: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "openvino.py").write_text(source + "\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    rows = {row["name"]: row for row in survey.survey_engines(["openvino", "reference"])}
    assert not rows["openvino"]["present"]
    assert words in rows["openvino"]["reason"]
    assert "-m pip install openvino" in rows["openvino"]["reason"]
    assert rows["reference"]["present"]


def test_an_engine_that_is_not_installed_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(installed, "importable", lambda _package: False)
    with pytest.raises(EngineMissing, match=r"install it with: \S+ -m pip install openvino"):
        backends.make("openvino")
    row = survey.survey_engines(["openvino"])[0]
    assert not row["present"]
    assert "pip install" in row["reason"]


@pytest.mark.parametrize(
    ("name", "packages"), [("tensorrt", "tensorrt cuda-bindings"), ("tensorrt_rtx", "tensorrt-rtx")]
)
def test_tensorrt_is_known_and_said_to_be_missing(
    name: str, packages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "importable", lambda _package: False)
    with pytest.raises(EngineMissing, match=f"-m pip install {packages}"):
        backends.make(name)
