"""The promises of the first version, each from the command line to the bundle."""

import re
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

from narrowdown.engines.compare.say import wrong_by

from .conftest import check

BUNDLE = {
    "model.onnx", "engine.onnx", "inputs.json", "inputs.npz", "expected.json", "expected.npz", "check.py", "commands.sh",
    "report.md", "report.html", "journal.jsonl", "environment.json",
}  # fmt: skip


@pytest.mark.slow  # two and a half minutes; what it holds of two culprits is held by the engine routes, of a route by sort
def test_magika_in_fp16(narrowdown, magika, tmp_path) -> None:
    model, inputs = magika
    session = tmp_path / "s"
    ran = narrowdown(
        "run", model, "--engine", "emulate:precision=fp16", "--inputs", inputs, "--session", session
    )
    assert ran.code == 0, ran.out[-3000:] + ran.err
    report = narrowdown("report", session, "--format", "json").json()
    assert report["verdict"] == "worked-around"
    assert report["nodes_before"] > 60
    assert 1 <= report["nodes_after"] <= 4
    assert any("LayerNorm_1" in node for node in report["nodes"]), report["nodes"]
    assert report["cause"] == "overflow"
    assert len(report["culprits"]) >= 2, "LayerNorm_0 is the second culprit"
    assert any("LayerNorm_0" in node for c in report["culprits"][1:] for node in c["nodes"])
    work = report["workaround"]
    assert work["samples_ok"] == work["samples_n"]
    assert work["samples_n"] + work["unseen_given"] >= 24, "each is either searched on or set apart"
    assert report["route"][0]["node"] == "reproduce"

    case = tmp_path / "case"
    assert narrowdown("export", session, "-o", case).code == 0
    assert {path.name for path in case.iterdir()} >= BUNDLE
    checked = check(case)
    assert checked.returncode == 1, checked.stdout + checked.stderr
    assert "still there" in checked.stdout
    for culprit in sorted(case.glob("culprit-*")):
        assert check(culprit).returncode == 1, culprit
    onnx.checker.check_model(case / "model.onnx")
    assert {n.op_type for n in onnx.load(case / "engine.onnx").graph.node} >= {"Cast"}

    shutil.copy(
        case / "model.onnx", case / "engine.onnx"
    )  # an engine without the fault: FP32 throughout
    assert check(case).returncode == 0
    (case / "engine.onnx").write_bytes(b"not a model")
    assert check(case).returncode == 2


def test_shapes_cnn_names_the_optimizer_and_its_bundle_and_reports_are_read(
    narrowdown, shapes, tmp_path
) -> None:
    model, inputs = shapes
    session = tmp_path / "s"
    words = ["--engine", "onnxruntime:optimization=all", "--inputs", inputs, "--tolerance", "1e-3"]
    ran = narrowdown("run", model, *words, "--session", session)
    assert ran.code == 0, ran.out[-3000:] + ran.err
    report = narrowdown("report", session, "--format", "json").json()
    assert report["verdict"] == "worked-around"
    assert report["workaround"]["switched_off"] == ["Pad_Fusion"]
    assert report["workaround"]["samples_ok"] == report["workaround"]["samples_n"]
    assert report["culprits"][0]["cause"] == "optimizer"
    case = tmp_path / "case"
    assert narrowdown("export", session, "-o", case).code == 0
    ops = sorted(n.op_type for n in onnx.load(case / "model.onnx").graph.node)
    assert ops == ["MaxPool", "Pad"]
    checked = check(case)
    assert checked.returncode == 1
    printed = re.search(r"FAILS +rel_l2 (\S+),", checked.stdout)
    assert printed is not None
    wrong = f"The part by itself is {wrong_by(float(printed[1]), 'rel_l2')} (wrong by "
    assert wrong in (case / "issue.md").read_text(), "its maintainer sees what its finder was told"
    assert (
        "known It looks like microsoft/onnxruntime#18136, which ONNX Runtime 1.32.0 has fixed"
        in ran.said
    )
    assert "send If it is still wrong there, send it as a zip file" in ran.said
    assert "(is it that bug, and what else fixes it?)" in ran.out

    same = narrowdown("replay", session)
    assert same.code == 0, same.out + same.err
    off = "onnxruntime:optimization=all,disabled_optimizers=Pad_Fusion"
    fixed = narrowdown("replay", session, "--engine", off, "--expect", "fixed")
    assert fixed.code == 0, fixed.out + fixed.err
    assert narrowdown("replay", session, "--engine", off).code == 5
    assert narrowdown("replay", session, "--dry").code == 0

    hold_for_polygraphy(case)
    assert narrowdown("export", session, "-o", tmp_path / "case.zip").code == 0
    with zipfile.ZipFile(tmp_path / "case.zip") as archive:
        assert any(name.endswith("check.py") for name in archive.namelist())
    page = narrowdown("report", session, "--format", "html").out
    assert page.startswith("<!doctype html>")
    # The tracker's address is text; nothing is loaded, and nothing leads away.
    assert "https://github.com/microsoft/onnxruntime/issues/new" in page
    assert not re.search(
        r"""(src|href|action)\s*=\s*["']?\s*(https?:|//)|url\((?!#)|@import|<(script|link|iframe|img)\b""",
        page,
    )
    text = narrowdown("report", session, "--format", "md").out
    assert text.startswith("# ")
    assert "Pad_Fusion" in text


def hold_for_polygraphy(case: Path) -> None:
    """The case's inputs and expected outputs are those that Polygraphy reads."""
    from polygraphy.comparator import RunResults
    from polygraphy.json import load_json

    feeds = load_json(str(case / "inputs.json"))
    expected = RunResults.load(str(case / "expected.json"))
    with np.load(case / "inputs.npz") as archive:
        assert (
            set(feeds[0])
            == set(archive.files)
            == {i.name for i in onnx.load(case / "model.onnx").graph.input}
        )
        for name in archive.files:
            np.testing.assert_array_equal(feeds[0][name], archive[name])
    with np.load(case / "expected.npz") as archive:
        outputs = expected[0][1][0]
        assert set(outputs) == set(archive.files)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["emulate:precision=fp16", "reference:precision=fp16"])
def test_sort_overflows_in_a_layer_norm(narrowdown, sort, tmp_path, engine: str) -> None:
    model, inputs = sort
    session = tmp_path / "s"
    ran = narrowdown("run", model, "--engine", engine, "--inputs", inputs, "--session", session)
    assert ran.code == 0, ran.out[-3000:] + ran.err
    report = narrowdown("report", session, "--format", "json").json()
    assert report["culprits"][0]["cause"] == "overflow"
    case = tmp_path / "case"
    assert narrowdown("export", session, "-o", case).code == 0
    assert any(n.op_type == "Pow" for n in onnx.load(case / "model.onnx").graph.node)
    assert check(case).returncode == 1


@pytest.mark.slow
def test_scripted_answers_walk_the_same_route_as_a_person(narrowdown, shapes, tmp_path) -> None:
    model, inputs = shapes
    answers = tmp_path / "answers.yaml"
    answers.write_text("reproduce: yes\nsanitize: yes\nreal-inputs: no\nminimal-case: report\n")
    words = [model, "--inputs", inputs, "--tolerance", "1e-3"]
    scripted, guided = tmp_path / "a", tmp_path / "b"
    assert narrowdown("run", *words, "--answers", answers, "--session", scripted).code == 0
    route = narrowdown("report", scripted, "--format", "json").json()["route"]
    typed = "".join(f"{stop['answer']}\n" for stop in route)
    opened = narrowdown("open", *words, "--display", "plain", "--session", guided, stdin=typed)
    assert opened.code == 0, opened.out[-3000:] + opened.err
    first = narrowdown("show", scripted, "--canonical")
    second = narrowdown("show", guided, "--canonical")
    assert first.out == second.out
    assert "Pad_Fusion" in first.out


def test_an_external_checker_finds_two_nodes(narrowdown, shapes, tmp_path) -> None:
    model, _ = shapes
    checker = tmp_path / "checker.py"
    checker.write_text(
        # Operators as they stand in the file, by the tag of NodeProto.op_type and their length: it
        # starts some fifty times.
        "import sys\ndata = open(sys.argv[1], 'rb').read()\n"
        "sys.exit(3 if b'\"\\x03Pad' in data and b'\"\\x07MaxPool' in data else 0)\n"
    )
    session, case = tmp_path / "s", tmp_path / "case"
    ran = narrowdown(
        "run",
        model,
        "--check",
        f"{sys.executable} {checker} {{model}}",
        "--fail-code",
        "3",
        "--session",
        session,
    )
    assert ran.code == 0, ran.out[-3000:] + ran.err
    report = narrowdown("report", session, "--format", "json").json()
    assert report["nodes_after"] == 2
    assert report["culprits"][0]["own"] is None
    # Nothing was measured, so nothing is off by anything.
    whole = ran.out + narrowdown("report", session, "--format", "markdown").out
    assert "Your check fails on" in whole
    assert "wrong by" not in whole
    assert narrowdown("export", session, "-o", case).code == 0
    assert sorted(n.op_type for n in onnx.load(case / "model.onnx").graph.node) == [
        "MaxPool",
        "Pad",
    ]
    assert check(case).returncode == 2, "the checker is the user's own, and is not in the case"
    assert check(case, "--folder", tmp_path).returncode == 1
    checker.write_text("")
    assert check(case, "--folder", tmp_path).returncode == 0
