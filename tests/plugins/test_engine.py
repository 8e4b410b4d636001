"""An engine of another package: found by its entry point, nothing changed here. It is listed, walks
a flow, keeps the contract, and its cases are checked where there is no Narrowdown. The package is
docs/write-an-engine.md's."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ..docs.shown import of
from ..e2e.conftest import Narrowdown, Ran, command, environment
from . import conftest

DRIFT = Path(__file__).with_name("drift")
ROOT = DRIFT.parents[2]
PAGE = ROOT / "docs" / "write-an-engine.md"
FILES = (
    "pyproject.toml",
    "drift/__init__.py",
    "narrowdown_drift/__init__.py",
    "narrowdown_drift/engine.py",
    "test_contract.py",
)
COARSE, FINE = "ENTRIES = 9\n", "ENTRIES = 8193\n"


def on_the_page(name: str) -> str:
    """The block that stands behind the file's name."""
    (block,) = re.findall(
        rf"`drift-engine/{re.escape(name)}`:\n\n```\w+\n(.*?)```",
        PAGE.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    return str(block)


def model(path: Path, width: int = 8, scale: float = 1.0) -> Path:
    """Five nodes, one of them a Tanh; with 16 and 2 what reaches it goes beyond 5.5."""
    rng, node = np.random.default_rng(1), helper.make_node
    weights = {
        "w": rng.normal(size=(width, width)) * scale,
        "b": rng.normal(size=width),
        "v": rng.normal(size=(width, 4)),
    }
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="first"), node("Add", ["a", "b"], ["c"], name="bias"),
        node("Tanh", ["c"], ["t"], name="squash"), node("MatMul", ["t", "v"], ["d"], name="second"),
        node("Relu", ["d"], ["y"], name="last"),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "tanh",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
        [
            numpy_helper.from_array(array.astype(np.float32), name)
            for name, array in weights.items()
        ],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        str(path),
    )
    return path


def put_in(folder: Path) -> dict[str, str]:
    """An environment in which the package is, as pip leaves it."""
    site = folder / "site"
    for name in ("drift", "narrowdown_drift"):
        shutil.copytree(DRIFT / name, site / name, ignore=shutil.ignore_patterns("__pycache__"))
    project = tomllib.loads((DRIFT / "pyproject.toml").read_text())["project"]
    conftest.installed(site, project["name"], project["entry-points"])
    return environment(folder) | {"PYTHONPATH": str(site)}


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    return put_in(tmp_path)


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ran]:
    """(A session of the accuracy flow on the engine, how the command ended)."""
    folder = tmp_path_factory.mktemp("drift")
    run = command(put_in(folder), folder)
    return folder / "s", run(
        "run", model(folder / "tanh.onnx"), "--engine", "drift", "--session", folder / "s"
    )


@pytest.fixture
def narrowdown(installed: dict[str, str], tmp_path: Path) -> Narrowdown:
    return command(installed, tmp_path)


def python(
    *words: str | Path, env: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env=env,
        cwd=folder,
    )


def test_the_page_shows_the_package() -> None:
    for name in FILES:
        assert on_the_page(name) == (DRIFT / name).read_text(encoding="utf-8"), name


def test_it_walks_the_flow_and_its_case_is_checked(
    walked: tuple[Path, Ran], installed: dict[str, str], tmp_path: Path
) -> None:
    place, ran = walked
    assert ran.code == 0, ran.err
    assert "1 of 5 nodes fails: squash" in ran.out
    assert "the engine is drift:tanh=exact" in ran.out
    case = place / "case"
    assert f"python {case}/check.py shows the fault again" in ran.out
    assert "drift" not in re.sub(
        r"cannot run drift: check.py does|--engine drift", "", (case / "commands.sh").read_text()
    )
    versions = json.loads((place / "session.json").read_text())["versions"]
    assert versions["drift-engine"] == "1.0"
    site = Path(installed["PYTHONPATH"])
    alone = tmp_path / "alone"
    shutil.copytree(site / "drift", alone / "drift")  # the engine alone, none of what is ours
    checked = python(
        "-P", case / "check.py", env=installed | {"PYTHONPATH": str(alone)}, folder=tmp_path
    )
    assert checked.returncode == 1, checked.stdout + checked.stderr
    assert "on drift 1.0" in checked.stdout
    mended = (alone / "drift/__init__.py").read_text()
    assert COARSE in mended
    (alone / "drift/__init__.py").write_text(mended.replace(COARSE, FINE))
    checked = python(
        "-P", case / "check.py", env=installed | {"PYTHONPATH": str(alone)}, folder=tmp_path
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    gone = python("-P", case / "check.py", env=installed | {"PYTHONPATH": ""}, folder=tmp_path)
    assert gone.returncode == 2
    assert "drift is not installed" in gone.stdout


def test_a_wrong_option_is_refused_with_the_nearest(narrowdown: Narrowdown, tmp_path: Path) -> None:
    path = model(tmp_path / "tanh.onnx")
    for spec, words in (
        ("drift:tahn=exact", "Did you mean 'tanh'?"),
        ("drift:tanh=exacd", "Did you mean 'exact'?"),
    ):
        refused = narrowdown("run", path, "--engine", spec)
        assert refused.code == 2
        assert words in refused.err


def test_it_is_listed_with_the_package_that_brings_it(narrowdown: Narrowdown) -> None:
    listed = narrowdown("engines").out
    assert re.search(r"^drift 1\.0 on .+ \(brought by drift-engine 1\.0\)$", listed, re.MULTILINE)
    assert "tanh (table|exact), default table: How Tanh is computed." in listed


@pytest.mark.slow
def test_a_session_is_read_where_the_engine_is_not(
    walked: tuple[Path, Ran], installed: dict[str, str], tmp_path: Path
) -> None:
    place, _ = walked
    without = command(environment(tmp_path) | {"PYTHONPATH": ""}, tmp_path)
    assert without("report", place).code == 0
    assert "squash" in without("show", place).out
    assert without("export", place, "-o", tmp_path / "case").code == 0
    checked = python("-P", tmp_path / "case/check.py", env=installed, folder=tmp_path)
    assert checked.returncode == 2
    assert "drift is not known where this was written" in checked.stdout
    again = without("replay", place)
    assert again.code != 0
    assert "There is no engine 'drift'" in again.out + again.err


@pytest.mark.parametrize("fault", ["pass", "raise", "none", "no start", "no literals", "no python"])
def test_a_part_of_check_py_that_is_of_no_use_is_a_reason(
    fault: str, installed: dict[str, str], tmp_path: Path
) -> None:
    """Whatever a declaration gives or raises there, the case is written, and its check.py says why
    it cannot tell."""
    changed = {
        "pass": "return CheckPart(CHECK, {})",
        "raise": "raise RuntimeError('{no} idea')",
        "none": "return None",
        "no start": "return CheckPart('x = 1')",
        "no literals": "return CheckPart(CHECK, {'a': object()})",
        "no python": "return CheckPart('def start(:')",
    }[fault]
    path = Path(installed["PYTHONPATH"]) / "narrowdown_drift/__init__.py"
    (line,) = re.findall(r"    return CheckPart\(CHECK.*", path.read_text())
    path.write_text(path.read_text().replace(line, f"    {changed}"))
    code = (
        "from narrowdown.engines import outside, options; "
        "p, why = outside.check_part(outside.found(options.check('drift'))); print(p is not None, why)"
    )
    said = python("-P", "-c", code, env=installed, folder=tmp_path).stdout.strip()
    assert said.startswith(
        "True" if fault == "pass" else "False what drift gives for it is of no use ("
    ), said


def test_it_keeps_the_contract(installed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "test_contract.py").write_text(on_the_page("test_contract.py"))
    done = python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", ".", env=installed, folder=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout
    assert int(passed[1]) > 50
    assert "skipped" not in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1200)  # two environments are filled from a registry
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    """Every file is written as it stands on the page, every command run as it stands there, in an
    environment that has only narrowdown; then the case is checked in one that has only drift."""

    def run(*words: str | Path, **surroundings: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            list(map(str, words)), cwd=tmp_path, env={**environment(tmp_path), **surroundings}, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def fresh(name: str, *packages: str | Path) -> Path:
        subprocess.run([sys.executable, "-m", "venv", tmp_path / name], check=True)
        got = run(
            tmp_path / name / "bin/python",
            "-m",
            "pip",
            "install",
            "-q",
            "-c",
            ROOT / "constraints.txt",
            *packages,
        )
        if got.returncode:
            pytest.skip(f"the packages cannot be had here: {got.stderr[-300:]}")
        return tmp_path / name / "bin"

    source = tmp_path / "source"  # a wheel made in the checkout would leave a folder behind
    shutil.copytree(
        ROOT,
        source,
        ignore=shutil.ignore_patterns(".venv", ".git", "__pycache__", "tests", ".*_cache"),
    )
    bin_ = fresh("venv", source, "pytest")
    package = tmp_path / "drift-engine"
    for name in FILES:
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(on_the_page(name), encoding="utf-8")
    model(tmp_path / "tanh.onnx")
    shown = {}
    for word in of("an engine"):
        if word.block:
            done = run("sh", "-c", word.line, PATH=f"{bin_}{os.pathsep}{os.environ['PATH']}")
            assert done.returncode == 0, (word.line, done.stdout, done.stderr)
            shown[word.line] = done.stdout
    assert any("(brought by drift-engine 1.0)" in said for said in shown.values())
    (case,) = {
        found
        for said in shown.values()
        for found in re.findall(r"\(python (\S+)/check\.py shows", said)
    }
    other = fresh("other", package)
    lacking = run(
        other / "python", "-c", "from importlib.util import find_spec; print(find_spec('engines'))"
    ).stdout
    assert lacking.strip() == "None", "nothing of ours is there"
    told = run(other / "python", f"{case}/check.py")
    assert told.returncode == 1, told.stdout + told.stderr
    newer = package / "drift/__init__.py"
    newer.write_text(newer.read_text().replace(COARSE, FINE).replace('"1.0"', '"1.1"'))
    project = package / "pyproject.toml"
    project.write_text(project.read_text().replace('version = "1.0"', 'version = "1.1"'))
    assert run(other / "python", "-m", "pip", "install", "-q", package).returncode == 0
    told = run(other / "python", f"{case}/check.py")
    assert told.returncode == 0, told.stdout + told.stderr
    assert "on drift 1.1" in told.stdout
