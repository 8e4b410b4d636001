"""What the shells complete: words by the grammar, asked by bash itself through its script."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wizard.cli import completion, main
from wizard.cli.arguments import DEMOS, Parser, inner, parser


def words(*typed: str) -> list[str]:
    return [word for word, _ in completion.find_words(list(typed))]


def test_every_kind_of_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sjbx8").mkdir()
    (tmp_path / "sjbx8" / "session.json").touch()
    monkeypatch.setenv("NARROWDOWN_HOME", str(tmp_path))
    assert words("re") == [name for name in inner(parser()) if name.startswith("re")]
    assert words("sessions", "") == ["rm", "prune", "rename"]
    assert words("run", "m.onnx", "--tol") == ["--tolerance"]
    assert words("replay", "s", "--expect", "f") == ["fixed", "fails"]
    assert words("run", "--engine", "op") == ["openvino"]
    assert words("resume", "s") == words("sessions", "rm", "s") == ["sjbx8"]
    assert (
        words("run", "m") == words("run", "--inputs", "") == words("run", "--session", "s") == []
    )  # files: the shell's
    assert tuple(words("demo", "")) == DEMOS
    assert words("run", "--check", "run", "--tol") == ["--tolerance"]  # the value of an option is no command


def test_every_command_and_option_can_be_completed() -> None:
    def walk(made: Parser, path: tuple[str, ...]) -> int:
        options = {name for action in made._actions for name in action.option_strings}
        assert set(words(*path, "-")) == options
        assert set(inner(made)) <= set(words(*path, ""))
        return 1 + sum(walk(below, (*path, name)) for name, below in inner(made).items())

    assert walk(parser(), ()) > 20


def test_bash_asks_through_its_script(tmp_path: Path) -> None:
    command = tmp_path / "narrowdown"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m wizard "$@"\n')
    command.chmod(0o755)
    script = f"set -u\n{completion.SCRIPTS['bash']}\nCOMP_WORDS=(narrowdown run --); COMP_CWORD=2; _narrowdown; "
    script += 'echo "${COMPREPLY[*]}"\nCOMP_WORDS=(narrowdown sessions ""); _narrowdown; echo "${COMPREPLY[*]}"'
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    options, below = done.stdout.splitlines()
    assert "--tolerance" in options.split()
    assert below == "rm prune rename"


@pytest.mark.parametrize("shell", completion.SCRIPTS)
def test_the_shell_can_read_its_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert f"narrowdown completion {shell} -- " in text
    if found := shutil.which(shell):
        file = tmp_path / shell
        file.write_text(text)
        done = subprocess.run([found, "-n", str(file)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("shell", "line"),
    [("bash", "sessions"), ("zsh", "sessions:List the sessions"), ("fish", "sessions\tList the sessions")],
)
def test_each_shell_gets_its_lines(shell: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell, "--", "sess"]) == 0
    assert capsys.readouterr().out == line + "\n"
    assert main(["completion", shell, "--", "demo", ""]) == 0
    assert capsys.readouterr().out.split(":")[0].split()[0] == DEMOS[0]


@pytest.mark.parametrize("words", [["help"], ["help", "sessions", "rm"], ["completion", "bash"]])
def test_they_are_commands(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert "narrowdown" in capsys.readouterr().out
    assert main(["help", "sessions", "rn"]) == 2
    assert "'rn' is not a command. Did you mean 'rm'? Known: rm, prune, rename." in capsys.readouterr().err
    assert main(["my model.onnx"]) == 2
    assert "is a model and no command: narrowdown open 'my model.onnx'" in capsys.readouterr().err
