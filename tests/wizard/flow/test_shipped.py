"""Every flow that is shipped: clean, in at most five short lines a node, with commands that the
tools know."""

import os
import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from narrowdown.wizard.cli import main
from narrowdown.wizard.cli.arguments import parse as parse_words
from narrowdown.wizard.flow.check import check
from narrowdown.wizard.flow.commands import Tool, by_hand, values
from narrowdown.wizard.flow.load import load, shipped
from narrowdown.wizard.problem import Problem

from ...here import run_here

PROBLEM = Problem(model="/m/model.onnx", engine="tensorrt:precision=fp16", inputs=("/m/in.json",))
FLOWS = (
    "accuracy",
    "after",
    "build-failure",
    "consistency",
    "flaky",
    "precision",
    "pytorch",
    "quantization",
)


def commands(flow: str) -> list[tuple[str, str, str]]:
    return [
        (name, command.tool, command.text)
        for name, node in load(flow).flow.nodes.items()
        for command in by_hand(node, values(PROBLEM))
    ]


def test_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert shipped() == FLOWS
    assert main(["flow", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(FLOWS)
    assert all(len(line.split(maxsplit=1)[1]) > 20 for line in lines)
    assert main(["flow", "check"]) == 2
    assert "narrowdown flow list" in capsys.readouterr().err


@pytest.mark.parametrize("flow", FLOWS)
def test_nothing_is_wrong_with_it(flow: str) -> None:
    loaded = load(flow)
    assert check(loaded) == []
    texts = [node.explain for node in loaded.flow.nodes.values()] + [
        end.explain for end in loaded.flow.ends.values()
    ]
    for text in texts:
        lines = text.strip().splitlines()
        assert len(lines) <= 5, text
        assert all(len(line) <= 80 for line in lines), text


@pytest.mark.parametrize("flow", FLOWS)
def test_commands_can_be_read_back(flow: str) -> None:
    for node, tool, text in commands(flow):
        assert "{{" not in text
        assert shlex.split(text)[0] == Tool.parse(tool).name
        if tool == "narrowdown":
            arguments = parse_words(shlex.split(text)[1:])
            assert (arguments.model, arguments.engine) == (PROBLEM.model, PROBLEM.engine)
            use = load(flow).flow.nodes[node].step
            assert use is not None
            assert arguments.name == use.use


def say(*words: str) -> str:
    """What ``polygraphy WORD...`` prints."""
    tools = pytest.importorskip("polygraphy.tools")
    ran = run_here(tools.main, ["polygraphy", *words], os.environ, Path.cwd())
    assert not ran.returncode, ran.stderr[-2000:]
    return ran.stdout


@cache
def known_options(*tool: str) -> frozenset[str]:
    """Options of a Polygraphy subtool, read from its own help."""
    return frozenset(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", say(*tool, "-h")))


def calls() -> list[tuple[str, ...]]:
    """Every call of the newest Polygraphy in any flow, checkers' own calls apart."""
    found: list[tuple[str, ...]] = []
    for flow in FLOWS:
        for _, tool, text in commands(flow):
            if not tool.startswith("polygraphy") or not Tool.parse(tool).fits("0.53.6"):
                continue
            for line in text.replace("\\\n", " ").splitlines():
                words = shlex.split(line)
                inner = words.index("--check") + 1 if "--check" in words else len(words)
                found += [
                    tuple(words[1:inner]),
                    *([tuple(words[inner + 1 :])] if inner < len(words) else []),
                ]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("words", calls(), ids=" ".join)
def test_polygraphy_knows_the_options(words: tuple[str, ...]) -> None:
    tool = words[:1] if words[0] in ("run", "convert") else words[:2]
    known = known_options(*tool)
    assert known, f"polygraphy has no {' '.join(tool)}"
    assert {w.partition("=")[0] for w in words if w.startswith("-")} <= known


@pytest.mark.parametrize(
    "words",
    [w for w in calls() if w[0] == "run" and "polygraphy_debug" not in " ".join(w)],
    ids=" ".join,
)
def test_polygraphy_writes_a_script_from_it(words: tuple[str, ...]) -> None:
    """``--gen-script -``: the real parser takes every value, and makes a program of it. Nothing is
    run."""
    said = say(*words, "--gen-script", "-")
    program = said[said.index("#!") :]
    compile(program, "generated", "exec")
    assert "/m/model.onnx" in program
