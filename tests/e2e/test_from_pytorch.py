"""From a PyTorch module to whose step it was. The exports are recorded ones (tests/engines/exporting):
a program that copies them stands for a Python with torch."""

import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from narrowdown.engines.exporting import launch

from ..docs.shown import ROOT, of
from ..exports import ENGINE, RECORDED, program
from ..here import run_check
from .conftest import Narrowdown


def session_of(out: str) -> Path:
    found = re.search(r"^  session +(\S+)", out, re.MULTILINE)
    assert found is not None, out
    return Path(found[1])


def test_a_right_export_goes_on_to_the_engine(narrowdown: Narrowdown, tmp_path: Path) -> None:
    ran = narrowdown("run", *program(tmp_path, "right").words)
    assert ran.code == 10, ran.out + ran.err
    report = json.loads(narrowdown("report", session_of(ran.out), "--format", "json").out)
    assert [(v["node"], v["answer"]) for v in report["route"]] == [
        ("export", "right"),
        ("reproduce", "no"),
    ]
    assert " Net.onnx" in narrowdown("sessions").out


def test_an_export_fault_ends_in_its_module_and_a_case(
    narrowdown: Narrowdown, tmp_path: Path
) -> None:
    made = program(tmp_path, "planted")
    ran = narrowdown("run", *made.words)
    assert ran.code == 14, ran.out + ran.err
    place = session_of(ran.out)
    report = json.loads(narrowdown("report", place, "--format", "json").out)
    assert (report["verdict"], report["cause"]) == ("export-at-fault", "export")
    assert report["nodes"] == ["node_mul", "node_sigmoid", "node_mul_1"]
    told = " ".join(ran.out.split())
    for part in ("blocks.1.act", "(Act)", "models/tiny.py:20", "mul(other=1.702)"):
        assert part in told, part
    check = run_check(place / "case" / "check.py")
    assert check.returncode == 1, check.stdout + check.stderr
    good = np.load(place / "case" / "expected.npz")
    golden = np.load(RECORDED / "planted" / "golden-0.npz")
    assert all(np.array_equal(good[name], golden[name]) for name in good.files)
    issue = (place / "case" / "issue.md").read_text()
    assert "eager PyTorch" in issue
    assert "onnxruntime/issues" not in issue


def test_the_program_runs_once(narrowdown: Narrowdown, tmp_path: Path) -> None:
    made = program(tmp_path, "planted")
    place = tmp_path / "session"
    assert narrowdown("run", *made.words, "--session", place).code == 14
    assert narrowdown("run", *made.words, "--session", place).code == 14
    Path(made.python).unlink()
    assert narrowdown("resume", place, "--display", "plain").code == 14
    replayed = narrowdown("replay", place)
    assert replayed.code == 0, replayed.out + replayed.err
    assert narrowdown("replay", place, "--dry").code == 0
    assert made.started == 1


def test_a_session_of_another_program_is_not_taken_over(
    narrowdown: Narrowdown, tmp_path: Path
) -> None:
    made = program(tmp_path, "right")
    place = tmp_path / "session"
    assert narrowdown("run", *made.words, "--session", place).code == 10
    other = f"{tmp_path / 'model.py'}:other"
    ran = narrowdown("run", other, *made.words[1:], "--session", place)
    assert (ran.code, made.started) == (2, 1), ran.err


def test_values_of_another_export_accuse_nobody(narrowdown: Narrowdown, tmp_path: Path) -> None:
    """Two inner values bear each other's names, as after another export."""
    made = program(tmp_path, "right")
    golden = dict(np.load(made.recorded / "golden-0.npz"))
    model = onnx.load(made.model)
    first, second = [n.output[0] for n in model.graph.node if n.op_type == "LayerNormalization"]
    golden[first], golden[second] = golden[second], golden[first]
    np.savez(made.recorded / "golden-0.npz", **golden)
    ran = narrowdown("step", "export-check", *made.words, "--json")
    assert ran.code == 6, ran.out + ran.err
    told = json.loads(ran.out)
    assert (told["verdict"], told["module"]) == ("other", "")


def test_inner_values_of_another_shape_are_of_another_export(
    narrowdown: Narrowdown, tmp_path: Path
) -> None:
    made = program(tmp_path, "right")
    golden = dict(np.load(made.recorded / "golden-0.npz"))
    golden["gelu"] = golden["gelu"][:2]
    np.savez(made.recorded / "golden-0.npz", **golden)
    told = json.loads(narrowdown("step", "export-check", *made.words, "--json").out)
    assert told["verdict"] == "other"


def test_a_small_difference_inside_is_told_and_the_session_goes_on(
    narrowdown: Narrowdown, tmp_path: Path
) -> None:
    """What departs inside and shows in no output is no fault of the export's."""
    made = program(tmp_path, "planted")
    model = onnx.load(made.model)
    golden = dict(np.load(made.recorded / "golden-0.npz"))
    session = _outputs(made.model, np.load(made.recorded / "inputs-0.npz"))
    for output in model.graph.output:
        golden[output.name] = session[output.name] * np.float32(1 + 5e-5)
    np.savez(made.recorded / "golden-0.npz", **golden)
    told = json.loads(narrowdown("step", "export-check", *made.words, "--json").out)
    assert (told["verdict"], told["module"]) == ("right", "blocks.1.act")


def _outputs(model: Path, feeds: object) -> dict[str, np.ndarray]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model))
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))  # type: ignore[call-overload]


def test_an_export_is_held_to_what_pytorch_itself_computes_in(
    narrowdown: Narrowdown, tmp_path: Path
) -> None:
    """0.3 % is a fault in FP32, and rounding in FP16."""
    made = program(tmp_path, "planted")
    told = json.loads((made.recorded / "export.json").read_text())
    (made.recorded / "export.json").write_text(json.dumps({**told, "precision": "fp16"}))
    told = json.loads(narrowdown("step", "export-check", *made.words, "--json").out)
    assert (told["verdict"], told["tolerance"]) == ("right", 0.01)
    assert 0.001 < told["error"] < 0.01


def test_an_unsteady_module_accuses_nobody(narrowdown: Narrowdown, tmp_path: Path) -> None:
    made = program(tmp_path, "planted")
    told = json.loads((made.recorded / "export.json").read_text())
    (made.recorded / "export.json").write_text(json.dumps({**told, "steady": False}))
    ran = narrowdown("step", "export-check", *made.words, "--json")
    assert (ran.code, json.loads(ran.out)["verdict"]) == (6, "unsteady")


def test_a_failed_export_is_a_sentence_and_leaves_nothing(
    narrowdown: Narrowdown, tmp_path: Path
) -> None:
    made = program(tmp_path, "right")
    (made.recorded / "export.json").write_text(
        json.dumps({"fault": "No example inputs are known."})
    )
    place = tmp_path / "session"
    for chosen in ((), ("--session", place)):
        ran = narrowdown("run", *made.words, *chosen)
        assert ran.code == 2
        assert "No example inputs are known." in ran.err
        assert "Traceback" not in ran.err
    assert not (place / "export").exists()
    assert "no session" in narrowdown("sessions").out.lower() + narrowdown("sessions").err.lower()


def test_without_torch_one_sentence_says_what_installs_it(
    narrowdown: Narrowdown, tmp_path: Path
) -> None:
    made = program(tmp_path, "right")
    Path(made.python).write_text(f"#!{sys.executable}\nimport sys\nsys.exit(1)\n")
    ran = narrowdown("run", made.source, "--torch-python", made.python)
    assert ran.code == 4
    assert "pip install torch onnxscript" in ran.err
    assert len(ran.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere.py:build",), "nowhere.py"),
        (("model.onnx", "--engine=torch"), "model.py:build"),
        (("model.py:build", "--inputs", "raw.bin"), "cannot be given"),
        (("model.py:build", "--inputs", "nowhere.npz"), "nowhere.npz"),
    ],
)
def test_what_cannot_be_exported_is_refused_before_anything_runs(
    narrowdown: Narrowdown,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    said: str,
) -> None:
    made = program(tmp_path, "right")
    (tmp_path / "raw.bin").write_bytes(b"1")
    monkeypatch.chdir(tmp_path)
    placed = [str(tmp_path / w) if w[0] != "-" else w for w in words]
    ran = narrowdown("run", *placed, "--torch-python", made.python)
    assert (ran.code, made.started) == (2, 0)
    assert said in ran.err


def test_the_step_alone_needs_a_program(narrowdown: Narrowdown) -> None:
    ran = narrowdown("step", "export-check", RECORDED / "right" / "model.onnx")
    assert ran.code == 2
    assert "model.py:build" in ran.err


def test_the_page_does_what_it_says(
    narrowdown: Narrowdown,
    surroundings: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, named = (command.words[1:] for command in of("pytorch"))
    made = program(tmp_path, "planted")
    monkeypatch.setattr(launch.installed, "importable", lambda _: False)
    surroundings["PATH"] = f"{tmp_path}{os.pathsep}{surroundings['PATH']}"
    ran = narrowdown(*plain, *ENGINE)
    assert (ran.code, made.started) == (14, 1), ran.out + ran.err
    page = (ROOT / "docs" / "from-pytorch.md").read_text(encoding="utf-8")
    told = page.partition("```console\n")[2].partition("\n```")[0]
    assert told.startswith("The export departs")
    assert told in " ".join(ran.out.split())
    words = [made.python if word == "PATH/TO/python" else word for word in named]
    assert narrowdown(*words, *ENGINE).code == 14
    assert made.started == 2


def test_what_is_exported_is_pinned(narrowdown: Narrowdown, tmp_path: Path) -> None:
    made = program(tmp_path, "right")
    ran = narrowdown("run", *made.words)
    description = json.loads((session_of(ran.out) / "session.json").read_text())["problem"]
    source = made.source.rpartition(":")[0]
    assert os.path.realpath(source) in description["digests"]
    assert description["exported"]["source"].endswith(":build")
    assert description["flow"] == "pytorch"


def test_an_engine_fault_is_told_with_its_module_and_line(
    narrowdown: Narrowdown, tmp_path: Path
) -> None:
    """On screen, in the report, in the bundle, and beside every tensor."""
    made = program(tmp_path, "right")
    engine = ("--engine", "fake:fault=wrong,ops=Gelu,nodes=node_gelu_1,size=0.5")
    ran = narrowdown("run", *made.words[:3], *engine)
    assert ran.code == 0, ran.out + ran.err
    told = " ".join(ran.out.split())
    assert "In your program it is models/tiny.py:20 in blocks.1.act (Act)" in told
    place = session_of(ran.out)
    report = json.loads(narrowdown("report", place, "--format", "json").out)
    assert report["culprits"][0]["modules"] == ["blocks.1.act (Act)"]
    assert report["culprits"][0]["source"] == ["models/tiny.py:20"]
    assert "in blocks.1.act" in (place / "case" / "report.md").read_text()
    step = narrowdown("step", "layerwise", *made.words[:3], *engine, "--json")
    rows = {row["name"]: row for row in json.loads(step.out)["tensors"]}
    assert (rows["linear"]["module"], rows["layer_norm_1"]["module"]) == (
        "blocks.0.fc1",
        "blocks.1.norm",
    )
    assert rows["gelu_1"]["source"] == "models/tiny.py:20"
