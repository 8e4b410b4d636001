"""A matrix of replays: each cell a real process, of an interpreter that answers as it is told
to."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from narrowdown.wizard.cli import main
from narrowdown.wizard.problem import Problem
from narrowdown.wizard.session import folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path / "home"))
    return folder.create(Problem(model="/m.onnx"), "schema: 1\n", tmp_path / "home")


def environment(tmp_path: Path, name: str, code: int, said: str) -> str:
    python = tmp_path / name / "bin" / "python"
    python.parent.mkdir(parents=True)
    seen = f"echo \"$@\" > '{tmp_path}/{name}.words'; cd \"${{PYTHONPATH%%:*}}\" && ls -d */ > '{tmp_path}/{name}.path'"
    python.write_text(f"#!/bin/sh\n{seen}\n{said}\nexit {code}\n")
    python.chmod(0o755)
    return str(tmp_path / name)


def verdict(text: str) -> str:
    now = '{"role": "engine", "recorded": {}, "now": {"version": "1.23.2"}}'
    return f'echo \'{{"verdict": "{text}", "engines": [{now}]}}\''


@pytest.mark.parametrize(
    ("code", "said", "whole"),
    [(0, verdict("still fails"), 0), (5, verdict("fixed"), 5), (4, "echo 'no GPU' >&2", 6)],
)
def test_cells_their_files_and_the_exit_code(
    place: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    code: int,
    said: str,
    whole: int,
) -> None:
    pythons = [
        environment(tmp_path, "old", 0, verdict("still fails")),
        environment(tmp_path, "new", code, said),
    ]
    words = [
        "replay",
        place.name,
        "--python",
        pythons[0],
        "--python",
        pythons[1],
        "--engine",
        "onnxruntime",
    ]
    assert main([*words, "--keep-going", "--junit", str(tmp_path / "j.xml")]) == whole
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == [place.name] * 2
    assert "--expect same --engine onnxruntime --keep-going" in (tmp_path / "new.words").read_text()
    assert (tmp_path / "new.path").read_text().split() == ["narrowdown/"], (
        "and no engine of this environment"
    )
    suites = ElementTree.fromstring((tmp_path / "j.xml").read_text())
    kinds = [[child.tag for child in case] for case in suites.iter("testcase")]
    assert kinds == [[], {0: [], 5: ["failure"], 4: ["error"]}[code]]
    outcome, why = {
        0: ("as expected", "still fails (1.23.2)"),
        5: ("not as expected", "fixed (1.23.2)"),
        4: ("cannot tell", "no GPU"),
    }[code]
    assert f" {outcome} " in rows[1]
    assert rows[1].endswith(why)


def test_what_cannot_be_a_matrix_is_refused(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", place.name, "--python", str(tmp_path / "none")]) == 2
    assert "there is no interpreter in" in capsys.readouterr().err
    assert main(["replay", place.name, place.name, "--dry"]) == 2
    assert main(["replay", place.name, "absent"]) == 2
