"""The export is started in an interpreter that has torch; how it ends is told in a sentence."""

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from narrowdown.engines.exporting import launch
from narrowdown.engines.options import check
from narrowdown.engines.spec import parse


def fake_python(folder: Path, does: str, has: bool = True) -> str:
    """An interpreter that has torch (``has``), and in place of the export ``does``."""
    path = folder / "python"
    path.write_text(
        f"#!{sys.executable}\nimport sys, os, json, pathlib\n"
        f"if sys.argv[1] == '-c':\n    sys.exit({int(not has)})\n"
        "request = json.loads(pathlib.Path(sys.argv[2]).read_text())\n"
        f"out = pathlib.Path(request['out'])\n{does}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    "text", ["model.py:build", "/a/b.py:Net", "package.module:Net.small", "file.pt2", "m:build"]
)
def test_programs(text: str) -> None:
    assert launch.is_program(text)


@pytest.mark.parametrize(
    "text", ["model.onnx", "a/b:c", "model.py", "m.onnx:0", "C:", "/abs/m.onnx", "x y:z"]
)
def test_no_programs(text: str) -> None:
    assert not launch.is_program(text)


def test_a_file_that_is_there_is_no_attribute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a:b").write_bytes(b"")
    assert not launch.is_program("a:b")


def test_the_first_interpreter_with_torch_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch.installed, "importable", lambda _: False)
    without, having = tmp_path / "a", tmp_path / "b"
    for folder in (without, having):
        folder.mkdir()
    fake_python(without, "", has=False)
    python = fake_python(having, "")
    monkeypatch.setenv("PATH", f"{without}{os.pathsep}{having}")
    assert launch.find_python("") == python
    assert launch.find_python(python) == python
    monkeypatch.setenv("PATH", str(without))
    for named in ("", str(without / "python"), "nowhere"):
        with pytest.raises(launch.NoTorch):
            launch.find_python(named)


@pytest.mark.parametrize("part", ["", ".", "here"])
def test_the_folder_that_one_stands_in_is_no_place_for_an_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setattr(launch.installed, "importable", lambda _: False)
    (tmp_path / "here").mkdir()
    for folder in (tmp_path, tmp_path / "here"):
        fake_python(folder, "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", part)
    with pytest.raises(launch.NoTorch):
        launch.find_python("")


def test_ours_is_taken_where_it_has_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.installed, "importable", lambda _: True)
    assert launch.find_python("") == sys.executable


def test_what_the_export_tells_is_read(tmp_path: Path) -> None:
    told = {
        "torch": "2.9",
        "module": "Net",
        "samples": 2,
        "pairs": 5,
        "differences": {"a": [{"said": "x", "line": "m.py:3"}]},
    }
    python = fake_python(tmp_path, f"(out / 'export.json').write_text({json.dumps(told)!r})")
    found = launch.run_export(python, launch.Request("m:build", ("/a.npz",)), tmp_path)
    assert (found.torch, found.module, found.pairs, found.source) == ("2.9", "Net", 5, "m:build")
    assert found.program.endswith(" -m m")
    assert found.recorded == f"golden:files={tmp_path}/golden-0.npz+{tmp_path}/golden-1.npz"
    assert found.differences["a"][0].line == "m.py:3"
    assert json.loads((tmp_path / "request.json").read_text())["inputs"] == ["/a.npz"]


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("(out / 'export.json').write_text(json.dumps({'fault': 'No inputs.'}))", "No inputs."),
        ("print('last words'); sys.exit(3)", "exit code 3"),
        ("os.kill(os.getpid(), 9)", "signal 9"),
        ("(out / 'export.json').write_text('{')", "without a result"),
        ("(out / 'export.json').write_text(json.dumps({'pairs': 'many'}))", "without a result"),
    ],
)
def test_how_it_failed_is_a_sentence(tmp_path: Path, does: str, said: str) -> None:
    python = fake_python(tmp_path, does)
    with pytest.raises(launch.ExportFault) as caught:
        launch.run_export(python, launch.Request("m:build"), tmp_path)
    assert said in str(caught.value)
    assert ("last words" in str(caught.value)) == ("last words" in does)


def test_samples_are_in_order(tmp_path: Path) -> None:
    for number in (0, 2, 10):
        (tmp_path / f"inputs-{number}.npz").write_bytes(b"")
    found = [Path(path).stem for path in launch.list_inputs(tmp_path)]
    assert found == ["inputs-0", "inputs-2", "inputs-10"]


@pytest.mark.parametrize("script", [launch.SCRIPT, launch.COMPUTES])
def test_the_program_imports_nothing_of_ours(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert "narrowdown" not in text
    imports = [
        line.split()[1].partition(".")[0]
        for line in text.splitlines()
        if line.strip().startswith(("import ", "from "))
    ]
    others = set(imports) - set(sys.stdlib_module_names)
    assert others <= {"torch", "numpy", "onnx", "onnxscript", "safetensors"}


def test_pytorch_as_an_engine_is_a_command_on_the_exported_program(tmp_path: Path) -> None:
    (tmp_path / "program.pt2").write_bytes(b"")
    spec = parse(launch.name_engine("torch:compile=yes", sys.executable, tmp_path))
    assert check(spec) == spec
    assert str(tmp_path / "program.pt2") in Path(spec.get("program")).read_text()
    assert launch.name_engine("openvino:precision=f32", "", tmp_path) == "openvino:precision=f32"
