"""What is handed on tells nobody whose it is: no folder, no user and no host in a bundle and the
session's report."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from narrowdown.wizard.session import journal

from ..patience import allow
from .conftest import SCRIPT, Ran
from .tiny import feeds, save, weights

USER, HOST = "mallory.q", "secret-host-7"


class Desk:
    """A home folder, a user, a host and a folder for temporary files, all with names that can be
    found again."""

    def __init__(self, root: Path) -> None:
        self.home, self.work, self.tmp = (
            root / USER / name for name in ("home", "project", "tmpfolder")
        )
        for folder in (self.home, self.work, self.tmp):
            folder.mkdir(parents=True)
        self.environment = {
            **os.environ, "HOME": str(self.home), "USER": USER, "LOGNAME": USER, "HOSTNAME": HOST, "TMPDIR": str(self.tmp),
            "NARROWDOWN_HOME": str(self.home / "sessions"), "XDG_STATE_HOME": str(self.home / "state"), "NO_COLOR": "1",
        }  # fmt: skip
        named = (
            subprocess.run(["unshare", "-u", "hostname", HOST], capture_output=True).returncode == 0
        )
        self._as_host = (
            ["unshare", "-u", "sh", "-c", f'hostname {HOST} && exec "$0" "$@"'] if named else []
        )

    def narrowdown(self, *words: str | Path) -> Ran:
        done = subprocess.run(
            [*self._as_host, str(SCRIPT), *map(str, words)], env=self.environment, cwd=self.work, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=allow(240), check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    @property
    def words(self) -> list[bytes]:
        return [
            w.encode()
            for w in (
                str(self.home),
                str(self.work),
                str(self.tmp),
                USER,
                HOST,
                sys.prefix,
                "/tmp/",
                "/root/",
            )
        ]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(tmp_path_factory.mktemp("desk"))


@pytest.fixture(scope="module")
def model(desk: Desk) -> Path:
    """Its sums are too large for FP16. It says of each node where it was written, as exporters
    do."""
    node = helper.make_node
    path = save(
        desk.work / "net.onnx",
        [
            node("MatMul", ["x", "w"], ["h"], name="/proj/MatMul"),
            node("Mul", ["h", "large"], ["m"], name="/head/Mul"),
            node("Div", ["m", "large"], ["y"], name="/scale/Div"),
        ],
        {"x": [1, 32]}, {"y": [1, 48]}, {"w": np.abs(weights(32, 48, seed=1)), "large": np.float32(6e4)},
    )  # fmt: skip
    made = onnx.load(path)
    made.doc_string = f"exported by {USER} on {HOST}"
    made.metadata_props.add(key="source", value=str(desk.work / "train.py"))
    for n in made.graph.node:
        n.doc_string = f'File "{desk.home}/model.py"(12): forward'
        n.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=f"{desk.home}/model.py:12")
    made.graph.initializer[0].doc_string = str(desk.home)
    made.graph.value_info.add(name="h", doc_string=str(desk.home), type=made.graph.input[0].type)
    onnx.save(made, path)
    return path


def contents(place: Path) -> Iterator[tuple[str, bytes]]:
    """Every file with its bytes, archives unpacked, and each text of each model apart."""
    for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
        if not path.is_file():
            continue
        yield path.name, path.read_bytes()
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    yield f"{path.name}/{name}", name.encode() + archive.read(name)
        if path.suffix == ".onnx":
            yield f"{path.name} as text", str(onnx.load(path, load_external_data=False)).encode()


def found(place: Path, words: list[bytes]) -> list[tuple[str, bytes]]:
    return [(name, word) for name, data in contents(place) for word in words if word in data]


@pytest.fixture(scope="module")
def compared(desk: Desk, model: Path) -> Path:
    inputs = feeds(desk.work / "in.npz", x=np.abs(weights(1, 32, seed=4)) * 3)
    session = desk.work / "s"
    ran = desk.narrowdown(
        "run", model, "--inputs", inputs, "--engine", "emulate:precision=fp16", "--session", session
    )
    assert ran.code == 0, ran.out + ran.err
    assert "Look before you send" not in ran.out
    return session


def test_a_bundle_tells_nobody_whose_it_is(desk: Desk, compared: Path) -> None:
    assert any(
        str(desk.work).encode() in data for _, data in contents(compared / "journal.jsonl")
    ), "there is something to find"
    assert (compared / "case/culprit-2").is_dir() or (compared / "case/model.onnx").is_file()
    assert found(compared / "case", desk.words) == []
    assert found(compared / "report.html", desk.words) == []
    assert desk.narrowdown("export", compared, "-o", "case.zip").code == 0
    assert found(desk.work / "case.zip", desk.words) == []
    for form in ("md", "html"):
        made = desk.narrowdown("report", compared, "-o", f"report.{form}")
        assert made.code == 0
        assert f"report.{form}" in made.out + made.err, "it says where it wrote"
        assert found(desk.work / f"report.{form}", desk.words) == []


@pytest.mark.slow
def test_the_record_in_it_is_whole(compared: Path) -> None:
    """The same events, each under a checksum that holds; of the first only what says where."""
    before, after = (
        journal.read(place / "journal.jsonl") for place in (compared, compared / "case")
    )
    assert [(e.seq, e.ts, type(e)) for e in after] == [(e.seq, e.ts, type(e)) for e in before]
    assert sum(a == b for a, b in zip(after, before, strict=True)) > len(before) / 2


def test_what_stays_in_it_is_named(desk: Desk, compared: Path) -> None:
    """Here: a name inside the model, which nobody can change for the user."""
    node = helper.make_node
    path = save(
        desk.work / "named.onnx",
        [node("Mul", ["x", "large"], [f"{desk.home}/h"], name="a"), node("Div", [f"{desk.home}/h", "large"], ["y"], name="b")],
        {"x": [1, 4]}, {"y": [1, 4]}, {"large": np.float32(6e4)},
    )  # fmt: skip
    inputs = feeds(desk.work / "four.npz", x=np.full((1, 4), 3, np.float32))
    session = desk.work / "named"
    ran = desk.narrowdown(
        "run", path, "--inputs", inputs, "--engine", "emulate:precision=fp16", "--session", session
    )
    assert ran.code == 0, ran.out + ran.err
    line = ran.said.partition("Look before you send")[2].partition(" report ")[0]
    assert {
        name.rpartition("/")[2].split(" ")[0] for name, _ in found(session / "case", desk.words)
    } >= {"model.onnx"}
    assert "model.onnx" in line
    assert str(desk.home) not in line


@pytest.mark.slow
def test_a_case_of_a_checker_is_clean_and_runs_from_its_folder(desk: Desk, model: Path) -> None:
    checker = desk.work / "checks" / "my check.py"
    checker.parent.mkdir()
    checker.write_text(
        "import os, sys, pathlib\n"
        f"print('looked at by', os.environ.get('USER'), 'in', {str(desk.home)!r})\n"
        "sys.exit(b'/head/Mul' in pathlib.Path(sys.argv[1]).read_bytes())\n"
    )
    command = shlex.join([sys.executable, str(checker), "{model}", f"--log={desk.home}/log"])
    session = desk.work / "checked"
    ran = desk.narrowdown("run", model, "--check", command, "--session", session)
    assert ran.code == 0, ran.out + ran.err
    assert found(session / "case", desk.words) == []
    away = shutil.copytree(session / "case", desk.work / "away")
    environment = {
        **desk.environment,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }

    def checked(*words: str | Path, cwd: Path) -> tuple[int, str]:
        line = [sys.executable, away / "check.py", *words]
        done = subprocess.run(
            line, cwd=cwd, env=environment, capture_output=True, text=True, timeout=allow(60)
        )
        return done.returncode, done.stdout.splitlines()[0]

    assert checked(cwd=desk.work) == (1, "  FAILS   exit 1 of 'python'")
    assert checked("--folder", desk.work, cwd=desk.tmp) == (1, "  FAILS   exit 1 of 'python'")
    code, said = checked(cwd=desk.tmp)
    assert (code, said.partition(" of the checker is not here")[0]) == (
        2,
        "cannot tell: 'checks/my check.py'",
    )
    onnx.save(onnx.helper.make_model(helper.make_graph([], "empty", [], [])), away / "model.onnx")
    assert checked(cwd=desk.work) == (0, "  passes  exit 0 of 'python'")
    assert json.loads((away / "report.json").read_text())["verdict"]
