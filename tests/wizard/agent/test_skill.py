"""The skill file: where tools look for it, and true."""

import re
import shlex
from pathlib import Path
from typing import get_args

import pytest
import yaml

from narrowdown.engines import installed
from narrowdown.wizard import Exit, Missing, agent
from narrowdown.wizard.agent.desk import Where
from narrowdown.wizard.cli import mcp
from narrowdown.wizard.cli.arguments import parse, parser
from narrowdown.wizard.cli.parsing import inner

FILE = Path(agent.__path__[0]) / "skill/SKILL.md"
TEXT = FILE.read_text(encoding="utf-8")
ROOT = Path(__file__).parents[3]


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert mcp.mcp(parse(["mcp", "--skill"])) == Exit.FOUND
    assert capsys.readouterr().out == TEXT


def test_its_head_is_what_tools_read() -> None:
    head = yaml.safe_load(TEXT.split("---\n")[1])
    assert head.keys() == {"name", "description"}
    assert head["name"] == "narrowdown", "the folder's name"
    assert len(head["description"]) <= 1024


@pytest.mark.skipif(not (ROOT / "AGENTS.md").exists(), reason="not in a checkout")
@pytest.mark.parametrize("tool", [".agents", ".claude"])
def test_it_lies_where_tools_look(tool: str) -> None:
    assert (ROOT / tool / "skills/narrowdown/SKILL.md").resolve() == FILE.resolve()


def test_it_names_what_there_is() -> None:
    commands = re.findall(r"`narrowdown ([^`]+)`", TEXT)
    assert len(commands) > 3
    known = inner(parser())
    for command in commands:
        words = shlex.split(command)
        assert words[0] in known, command
        if "COMMAND" not in words:
            parse(words)
    codes = {
        int(code)
        for code in re.findall(r"(\d+) [a-z]", TEXT.partition("Exit codes:")[2].partition("##")[0])
    }
    assert codes <= set(Exit)
    for state in re.findall(r"state is `(\w+)`", TEXT):
        assert state in get_args(Where)


def test_without_the_extra_one_sentence_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "importable", lambda package: package != "mcp")
    with pytest.raises(Missing, match=r"narrowdown\[agent\]"):
        mcp.mcp(parse(["mcp"]))
