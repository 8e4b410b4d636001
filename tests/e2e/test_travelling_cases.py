"""A case that leaves its machine: runs elsewhere, tells nothing of where it comes from, shows what
it is in other tools."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from ..patience import allow
from .conftest import Narrowdown, Walked, check
from .tiny import feeds, save, weights


@pytest.fixture(scope="module")
def walked(walk, models: Path) -> Walked:
    """The end of a session whose culprit is a product with a weight: its sums are too large for
    FP16."""
    node = helper.make_node
    model = save(
        models / "projection.onnx",
        [
            node("MatMul", ["x", "project.weight"], ["/project/out"], name="/project/MatMul"),
            node("Relu", ["/project/out"], ["/act/out"], name="/act/Relu"),
            node("MatMul", ["/act/out", "head.weight"], ["/head/out"], name="/head/MatMul"),
            node("Div", ["/head/out", "large"], ["y"], name="/scale/Div"),
        ],
        {"x": [1, 32]},
        {"y": [1, 16]},
        {
            "project.weight": np.abs(weights(32, 48, seed=1)), "head.weight": weights(48, 16, seed=2, scale=900.0),
            "large": np.float32(6e4),
        },
    )  # fmt: skip
    inputs = feeds(models / "projection_in.npz", x=np.abs(weights(1, 32, seed=4)) * 3)
    done = walk(model, "--inputs", inputs, "--engine", "emulate:precision=fp16")
    assert done.ran.code == 0, done.ran.out + done.ran.err
    return done


@pytest.fixture(scope="module")
def case(walked: Walked) -> Path:
    return walked.folder / "case"


def test_its_check_needs_nothing_but_the_engine(case: Path) -> None:
    still = check(case)
    assert still.returncode == 1, still.stdout + still.stderr
    assert "still there: /head/MatMul" in still.stdout


def test_the_line_that_shows_the_fault_can_be_pasted(
    narrowdown: Narrowdown, models: Path, tmp_path: Path
) -> None:
    """From a folder with a blank in its name, too."""
    node = helper.make_node
    model = save(
        models / "square.onnx", [node("Mul", ["x", "x"], ["s"], "square"), node("Sqrt", ["s"], ["y"], "root")], {"x": [1, 4]},
        {"y": [1, 4]}, {},
    )  # fmt: skip
    inputs = feeds(models / "square_in.npz", x=np.full((1, 4), 3e3, np.float32))
    place = tmp_path / "my session"
    ran = narrowdown(
        "run",
        model,
        "--inputs",
        inputs,
        "--engine",
        "emulate:precision=fp16",
        "--session",
        place,
        "--display",
        "plain",
    )
    line = re.search(r"(python .*check\.py\S*) shows the fault again", ran.out)
    assert line, ran.out
    assert shlex.split(line[1]) == ["python", str(place / "case" / "check.py")]


@pytest.mark.parametrize("manner", ["random", pytest.param("none", marks=pytest.mark.slow)])
def test_a_case_that_was_shrunk_holds_no_secrets(
    narrowdown: Narrowdown, walked: Walked, case: Path, manner: str
) -> None:
    """Its weight became a few equal values: nothing is left to be withheld, and the report says
    so."""
    assert all(np.prod(t.dims) <= 16 for t in onnx.load(case / "model.onnx").graph.initializer)
    ran = narrowdown("export", walked.folder, "-o", manner, "--weights", manner)
    made = Path(ran.out.splitlines()[0])
    assert "holds no weights" in ran.out
    assert check(made).returncode == 1
    for form in ("md", "html", "json"):
        assert "holds no weights" in (made / f"report.{form}").read_text()


def test_it_tells_nothing_of_its_machine(case: Path, walked: Walked) -> None:
    home = str(walked.folder.parent)
    for name in (
        "report.md",
        "report.html",
        "report.json",
        "environment.json",
        "check.py",
        "commands.sh",
    ):
        text = (case / name).read_text()
        assert home not in text, name
        assert str(Path(__file__).parents[1]) not in text, name
        assert (
            os.uname().nodename not in re.findall(r"[\w.-]+", text) or len(os.uname().nodename) < 3
        ), name
    environment = json.loads((case / "environment.json").read_text())
    assert list(environment["files"]) == ["projection.onnx", "projection_in.npz"]
    assert environment["machine"]["python"]


def test_its_models_show_names_types_and_shapes(case: Path) -> None:
    """What Netron reads."""
    for name in ("model.onnx", "good.onnx"):
        if not (case / name).is_file():
            continue
        model = onnx.load(case / name)
        onnx.checker.check_model(model, full_check=True)
        assert all(node.name.startswith("/") for node in model.graph.node), name
        made = {t for node in model.graph.node for t in node.output}
        told = {i.name: i for i in (*model.graph.value_info, *model.graph.output)}
        assert set(told) == made, name
        assert all(i.type.tensor_type.HasField("shape") for i in told.values()), name


def test_its_commands_run(case: Path) -> None:
    pytest.importorskip("polygraphy")
    line = next(x for x in (case / "commands.sh").read_text().splitlines() if "--onnxrt" in x)
    words = [str(Path(sys.executable).with_name("polygraphy")), *shlex.split(line)[1:]]
    ran = subprocess.run(
        words, cwd=case, capture_output=True, text=True, check=False, timeout=allow(120)
    )
    said = ran.stdout + ran.stderr
    assert "Difference exceeds tolerance" in said, said
    assert ran.returncode == 1


def test_its_report_fits_an_issue(case: Path) -> None:
    text = (case / "report.md").read_text()
    lines = text.splitlines()
    assert lines[0].startswith("# 1 of 4 nodes fails: /head/MatMul (overflow)")
    place = [
        lines.index(title)
        for title in ("## See it fail", "## The minimal failing case", "## Environment")
    ]
    assert place == sorted(place)
    assert place[0] < 25, "how to see it is near the top"
    assert re.search(r"\| engine under test \| `emulate:precision=fp16` \(1\.\d+\.\d+ on ", text)
    assert len(text) < 60_000


@pytest.mark.slow
@pytest.mark.parametrize("minor", [10, 12, 13])
def test_its_check_runs_in_another_python_on_the_oldest_engine(
    case: Path, tmp_path: Path, minor: int
) -> None:
    """Nothing of ours is there, only numpy and the oldest ONNX Runtime that we take."""
    python = shutil.which(f"python3.{minor}")
    made = (
        python
        and not subprocess.run(
            [python, "-m", "venv", tmp_path / "other"], capture_output=True
        ).returncode
    )
    if not made:
        pytest.skip(f"there is no Python 3.{minor} here")
    other = tmp_path / "other/bin/python"
    got = subprocess.run(
        [other, "-m", "pip", "install", "-q", "numpy", "onnxruntime==1.22.*"], capture_output=True
    )
    if got.returncode:
        pytest.skip("the packages cannot be had here")
    shutil.copytree(case, tmp_path / "case")
    ran = subprocess.run(
        [other, tmp_path / "case/check.py"], cwd="/", capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "on onnxruntime 1.22" in ran.stdout
    assert "still there: /head/MatMul" in ran.stdout


@pytest.mark.slow
def test_a_name_of_a_megabyte_reaches_nothing_whole(narrowdown: Narrowdown, tmp_path: Path) -> None:
    """Neither the terminal nor a file that is read by people, nor what a terminal would act on in
    it."""
    long = "/head/\x1b[31m<b>&" + "n" * 1_000_000
    node = helper.make_node
    model = save(
        tmp_path / "long.onnx",
        [
            node("Mul", ["x", "x"], [f"{long}squares"], name=f"{long}square"),
            node("ReduceSum", [f"{long}squares", "axis"], ["sum"], name=f"{long}sum"),
            node("Div", ["x", "sum"], [f"{long}y"], name=f"{long}div"),
        ],
        {"x": [1, 16]},
        {f"{long}y": [1, 16]},
        {"axis": np.int64([1])},
    )
    inputs = feeds(tmp_path / "in.npz", x=np.full((1, 16), 200, np.float32))
    ran = narrowdown(
        "run",
        model,
        "--inputs",
        inputs,
        "--engine",
        "emulate:precision=fp16",
        "--session",
        tmp_path / "s",
        "--display",
        "plain",
    )
    assert ran.code == 0, ran.err
    assert check(tmp_path / "s/case").returncode == 1
    texts = [
        path
        for path in (tmp_path / "s/case").iterdir()
        if path.suffix in (".md", ".html", ".json", ".sh", ".py")
    ]
    for text in (ran.out, ran.err, *(path.read_text() for path in texts)):
        assert "\x1b" not in text
        own = r"<b>culprit \d+</b>|<b>[A-Z]"  # the report's, so that what is left is the name's
        assert "<!doctype" not in text or "<b>" not in re.sub(rf"\\<b\\>|{own}", "", text)
        assert len(text) < 400_000
        assert "n" * 10_000 not in text
