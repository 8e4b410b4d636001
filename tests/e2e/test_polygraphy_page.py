"""docs/polygraphy.md tells the truth: its commands are words that both tools know, and the shown
ones run."""

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.data import tactic_replay
from narrowdown.wizard.cli.arguments import parse
from tests.docs.shown import of

from ..patience import allow

registry = pytest.importorskip("polygraphy.tools.registry")
pytestmark = pytest.mark.filterwarnings(
    "ignore:SelectableGroups:DeprecationWarning"
)  # its own affair

PAGE = (Path(__file__).parents[2] / "docs/polygraphy.md").read_text(encoding="utf-8")
BLOCKS = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
]
INLINE = re.findall(r"`((?:narrowdown|polygraphy) [^`]+)`", PAGE)
TOOLS = ("narrowdown", "polygraphy")
CHECK = "#!/bin/sh\necho looked > look.txt\n! grep -q ReduceSum polygraphy_debug.onnx\n"
POST = "def postprocess_outputs(iter_result):\n    return iter_result\n"
LOADER = "import numpy as np\ndef load_data():\n    yield {'x': np.full((1, 64), 3, np.float32)}\n"


def commands(tool: str) -> list[list[str]]:
    return [words[1:] for line in (*BLOCKS, *INLINE) if (words := shlex.split(line))[0] == tool]


def test_the_page_shows_both_tools() -> None:
    assert {shlex.split(line)[0] for line in (*BLOCKS, *INLINE)} == set(TOOLS)
    assert len(commands("narrowdown")) > 15
    assert len(commands("polygraphy")) > 10


@pytest.mark.parametrize("words", commands("narrowdown"), ids=" ".join)
def test_narrowdown_knows_the_words(words: list[str]) -> None:
    parse(words)


@pytest.mark.parametrize("words", commands("polygraphy"), ids=" ".join)
def test_polygraphy_knows_the_words(words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers(dest="tools", required=True)
    for tool in registry.TOOL_REGISTRY:
        tool.setup_parser(subparsers)
    _, unknown = parser.parse_known_args(words)
    assert unknown == []


@pytest.fixture
def workshop(tmp_path: Path) -> Path:
    """The files that the page speaks of: a norm that overflows in FP16, a checker, a loader, tactic
    replays."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"], name="square"),
        helper.make_node("ReduceSum", ["square"], ["sum"], name="sum", keepdims=1),
        helper.make_node("Sqrt", ["sum"], ["y"], name="root"),
    ]
    graph = helper.make_graph(
        nodes, "norm", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(made, tmp_path / "model.onnx")
    (tmp_path / "check.sh").write_text(CHECK)
    (tmp_path / "check.sh").chmod(0o755)
    (tmp_path / "loader.py").write_text(LOADER)
    (tmp_path / "post.py").write_text(POST)
    for kind, tactic in (("good", 1), ("bad", 2)):
        (tmp_path / "replays" / kind).mkdir(parents=True)
        choice = {"implementation": 1, "tactic": tactic, "inputs": [], "outputs": []}
        (tmp_path / "replays" / kind / "a.json").write_bytes(
            tactic_replay.encode_replay({"root": tactic_replay.canonical_algorithm(choice)})
        )
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_shown_command_runs(workshop: Path, surroundings: dict[str, str]) -> None:
    """In an order in which the saved inputs exist; each must come to an answer, of whatever
    kind."""
    scripts = str(Path(sys.executable).parent)
    env = {**surroundings, "PATH": os.pathsep.join((scripts, surroundings["PATH"]))}
    lines = [command.line for command in of("polygraphy")]
    saving = [line for line in lines if "--save-inputs" in line]
    assert saving
    for line in (*saving, *(line for line in lines if line not in saving)):
        # A checker that never fails would be asked for ever.
        (workshop / "check.sh").write_text(CHECK if "bad" not in line else f"{CHECK}exit 1\n")
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=workshop,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=allow(200),
        )
        assert "Traceback" not in done.stderr, (line, done.stderr)
        allowed = (0, 10) if line.startswith("narrowdown") else (0,)
        assert done.returncode in allowed, (line, done.stdout, done.stderr)
    ours, theirs = (onnx.load(workshop / f"{who}.onnx") for who in ("ours", "theirs"))
    assert [[n.op_type for n in m.graph.node] for m in (ours, theirs)] == [["ReduceSum"]] * 2
    for who in ("ours", "theirs"):
        # The checker finds no candidate where nothing is reduced, and both read that alike.
        assert len(list((workshop / who).rglob("look_*_N*.txt"))) == 5
    assert len(list((workshop / "builds/bad").iterdir())) == 3


@pytest.mark.slow
def test_the_shown_reduction_and_comparison_run(workshop: Path, narrowdown) -> None:
    """The fast part of the above."""
    np.savez(workshop / "in.npz", x=np.full((1, 64), 250, np.float32))
    reducing = next(
        line
        for line in BLOCKS
        if line.startswith("narrowdown step reduce") and "./check.sh" in line
    )
    ran = narrowdown(*shlex.split(reducing)[1:])
    assert ran.code == 0, ran.err
    assert [n.op_type for n in onnx.load(workshop / "ours.onnx").graph.node] == ["ReduceSum"]
    comparing = next(line for line in BLOCKS if "--engine" in line and "compare" in line).replace(
        "inputs.json", "in.npz"
    )
    assert narrowdown(*shlex.split(comparing)[1:]).code == 0
