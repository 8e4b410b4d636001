"""The shells' scripts, made from the grammar and asked by the shells themselves."""

import shutil
import subprocess
from pathlib import Path

import pytest

from wizard.cli import completion
from wizard.cli.arguments import DEMOS, inner, parser

FOUND = tuple(completion.verbs())


def in_bash(home: Path, *lines: tuple[str, ...]) -> list[list[str]]:
    """What bash offers for the last word of each line, after it has sourced the script."""
    tries = "\n".join(
        f"COMP_WORDS=(narrowdown {' '.join(word or chr(39) * 2 for word in line)}); COMP_CWORD={len(line)}; _narrowdown; "
        'echo "${COMPREPLY[*]}"'
        for line in lines
    )
    script = f"set -u\n{completion.bash(FOUND)}\n{tries}\n"
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, check=False, cwd=home,
        env={"PATH": "/usr/bin:/bin", "NARROWDOWN_HOME": str(home)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return [line.split() for line in done.stdout.splitlines()]


def test_bash_completes_every_kind_of_word(tmp_path: Path) -> None:
    (tmp_path / "sjbx8").mkdir()
    (tmp_path / "sjbx8" / "session.json").touch()
    (tmp_path / "model.onnx").touch()
    top, below, option, choice, engine, session, model, second, demo = in_bash(
        tmp_path,
        ("re",), ("sessions", ""), ("run", "m.onnx", "--tol"), ("replay", "s", "--expect", "f"),
        ("run", "--engine", "op"), ("resume", "s"), ("run", "m"), ("sessions", "rm", "s"), ("demo", ""),
    )  # fmt: skip
    assert top == [name for name in inner(parser()) if name.startswith("re")]
    assert below == ["rm", "prune", "rename"]
    assert option == ["--tolerance"]
    assert choice == ["fixed", "fails"]
    assert engine == ["openvino"]
    assert session == second == ["sjbx8"] * len(session)
    assert model == ["model.onnx"]
    assert tuple(demo) == DEMOS


def test_each_script_holds_the_whole_grammar_and_its_shell_can_read_it(tmp_path: Path) -> None:
    for shell, write in completion.SHELLS.items():
        text = write(FOUND)
        missing = [
            name
            for verb in FOUND
            for name in (*verb.below, *(n for option in verb.options for n in option.names))
            if name.lstrip("-") not in text
        ]
        assert missing == [], shell
        if found := shutil.which(shell):
            file = tmp_path / shell
            file.write_text(text)
            done = subprocess.run([found, "-n", str(file)], capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, "")


def test_every_word_of_the_grammar_is_walked() -> None:
    paths = {verb.path for verb in FOUND}
    assert {(), ("run",), ("sessions", "rm"), ("completion",)} <= paths
    assert len(paths) == 1 + len(inner(parser())) + sum(len(inner(made)) for made in inner(parser()).values())


@pytest.mark.parametrize("words", [["help"], ["help", "sessions", "rm"], ["completion", "bash"]])
def test_they_are_commands(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from wizard.cli import main

    assert main(words) == 0
    assert "narrowdown" in capsys.readouterr().out
    assert main(["help", "sessions", "rn"]) == 2
    assert "'rn' is not a command. Did you mean 'rm'? Known: rm, prune, rename." in capsys.readouterr().err
