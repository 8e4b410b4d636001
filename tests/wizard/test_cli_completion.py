"""What the shells complete: words by the grammar, asked by bash itself through its script."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from narrowdown.wizard.cli import completion, main
from narrowdown.wizard.cli.arguments import parser
from narrowdown.wizard.cli.grammar import DEMOS
from narrowdown.wizard.cli.parsing import Parser, inner

from ..patience import allow
from ..terminal_child import Child


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
    assert words("run", "--check", "run", "--tol") == [
        "--tolerance"
    ]  # the value of an option is no command


def test_every_command_and_option_can_be_completed() -> None:
    def walk(made: Parser, path: tuple[str, ...]) -> int:
        options = {name for action in made._actions for name in action.option_strings}
        assert set(words(*path, "-")) == options
        assert set(inner(made)) <= set(words(*path, ""))
        return 1 + sum(walk(below, (*path, name)) for name, below in inner(made).items())

    assert walk(parser(), ()) > 20


@pytest.fixture
def surroundings(tmp_path: Path) -> dict[str, str]:
    """A home of its own with one session, and a folder of programs in which ``narrowdown`` is this
    very one."""
    command = tmp_path / "bin" / "narrowdown"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m narrowdown "$@"\n')
    command.chmod(0o755)
    (tmp_path / "sessions" / "sjbx8").mkdir(parents=True)
    (tmp_path / "sessions" / "sjbx8" / "session.json").touch()
    (tmp_path / "a model.onnx").touch()
    return {
        "HOME": str(tmp_path), "PATH": f"{command.parent}:/usr/bin:/bin", "NARROWDOWN_HOME": str(tmp_path / "sessions"),
        "TERM": "dumb", "LANG": "C.UTF-8",
    }  # fmt: skip


def in_shell(shell: str, words: list[str], surroundings: dict[str, str]) -> str:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    done = subprocess.run(
        [shell, *words], capture_output=True, text=True, check=False, env=surroundings, cwd=surroundings["HOME"],
        timeout=allow(120),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


TYPED = [
    ("narrowdown sessions ", {"rm", "prune", "rename"}),
    ("narrowdown resume s", {"sjbx8"}),
    ("narrowdown run --engine emu", {"emulate"}),
    ("narrowdown replay sjbx8 --expect f", {"fixed", "fails"}),
]


def test_bash_asks_through_its_script(surroundings: dict[str, str]) -> None:
    script = f"set -u\n{completion.SCRIPTS['bash']}\ncomplete -p narrowdown\n"
    for line, _ in TYPED:
        typed = line.strip() + (" ''" if line.endswith(" ") else "")
        script += f'COMP_WORDS=({typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _narrowdown; echo "${{COMPREPLY[*]}}"\n'
    how, *found = in_shell("bash", ["--norc", "-c", script], surroundings).splitlines()
    assert "-o default" in how, "files are the shell's own to find"
    assert [set(line.split()) for line in found] == [wanted for _, wanted in TYPED]


def test_fish_asks_through_its_script(surroundings: dict[str, str]) -> None:
    place = Path(surroundings["HOME"]) / ".config/fish/completions/narrowdown.fish"
    place.parent.mkdir(parents=True)
    place.write_text(completion.SCRIPTS["fish"])
    for line, wanted in TYPED:
        said = in_shell("fish", ["-c", f"complete -C {shlex.quote(line)}"], surroundings)
        assert {row.partition("\t")[0] for row in said.splitlines()} >= wanted, line
    said = in_shell("fish", ["-c", "complete -C 'narrowdown run a'"], surroundings)
    assert "model.onnx" in said, "files are the shell's own to find"


@pytest.mark.timeout(300)
def test_zsh_asks_through_its_script(surroundings: dict[str, str]) -> None:
    """Keys into a terminal: zsh completes nowhere else."""
    if shutil.which("zsh") is None:
        pytest.skip("no zsh on this machine")
    home = Path(surroundings["HOME"])
    (functions := home / "functions").mkdir()
    (functions / "_narrowdown").write_text(completion.SCRIPTS["zsh"])
    shell = Child(["zsh", "-f", "-i"], surroundings, home, encoding="utf-8", timeout=allow(60))
    shell.sendline(f"fpath=({functions} $fpath); autoload -Uz compinit; compinit -u; echo be''gun")
    shell.expect("begun")
    for line, wanted in (*TYPED, ("narrowdown run a", {"model.onnx"})):
        shell.send(f"{line}\t")
        for word in sorted(wanted):  # as zsh lists them
            shell.expect_exact(word if len(wanted) > 1 else word.removeprefix(line.split(" ")[-1]))
        shell.send("\x15")
        shell.sendline(f"echo en''ded {line.split(' ')[1]}")
        shell.expect_exact(f"ended {line.split(' ')[1]}")
    shell.close()


@pytest.mark.parametrize("shell", completion.SCRIPTS)
def test_the_shell_can_read_its_script(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    [
        ("bash", "sessions"),
        ("zsh", "sessions:List the sessions"),
        ("fish", "sessions\tList the sessions"),
    ],
)
def test_each_shell_gets_its_lines(
    shell: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell, "--", "sess"]) == 0
    assert capsys.readouterr().out == line + "\n"
    assert main(["completion", shell, "--", "demo", ""]) == 0
    assert capsys.readouterr().out.split(":")[0].split()[0] == DEMOS[0]


@pytest.mark.parametrize("words", [["help"], ["help", "sessions", "rm"], ["completion", "bash"]])
def test_they_are_commands(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert "narrowdown" in capsys.readouterr().out
    assert main(["help", "sessions", "renam"]) == 2
    assert (
        "'renam' is not a command. Did you mean 'rename'? Known: rm, prune, rename."
        in capsys.readouterr().err
    )
    assert main([__file__]) == 2
    assert (
        f"'{__file__}' is a file and no command: narrowdown open MODEL.onnx"
        in capsys.readouterr().err
    )
    assert main(["my model.onnx"]) == 2
    assert "is a model and no command: narrowdown open 'my model.onnx'" in capsys.readouterr().err
