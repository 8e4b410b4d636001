"""Tactic replay files against the real Polygraphy, which wants a ``tensorrt`` to name data types
with: a stub stands in."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from narrowdown.engines.data.tactic_replay import (
    ReplayProblem,
    by_chance,
    canonical_algorithm,
    describe_algorithm,
    encode_replay,
    gather_replays,
    rank_suspects,
    read_replay,
)
from narrowdown.wizard.cli import main

STUB = "import enum\n__version__ = '10.6.0'\nDataType = enum.Enum('DataType', 'FLOAT HALF INT8')\n"
# Their own classes write a replay, and read ours.
THEIRS = """
import sys, tensorrt as trt
from polygraphy.backend.trt import Algorithm, TacticReplayData, TensorInfo
made = TacticReplayData()
half = TensorInfo(trt.DataType.HALF, (4, 4, 2, 1), -1, 1)
made.add('node "of" [y]', Algorithm(-2147483616, 0, [half], [half, TensorInfo(trt.DataType.INT8, (), 1, 32)]))
made.add('none', Algorithm(1, -(2**62), [], [TensorInfo(trt.DataType.FLOAT, (1,), None, None)]))
made.save(sys.argv[1])
print(TacticReplayData.load(sys.argv[2]))
"""


def tensor(dtype: str = "HALF", *strides: int) -> dict[str, Any]:
    return {
        "dtype": f"DataType.{dtype}", "strides": list(strides), "vectorized_dim": -1, "components_per_element": 1,
    }  # fmt: skip


def choice(tactic: int, dtype: str = "HALF") -> str:
    inputs, outputs = [tensor(dtype, 4, 4, 2, 1)], [tensor(dtype, 4, 4, 2, 1), tensor("FLOAT")]
    return canonical_algorithm(
        {"implementation": 1, "tactic": tactic, "inputs": inputs, "outputs": outputs}
    )


@pytest.fixture
def with_stub(tmp_path: Path) -> dict[str, str]:
    pytest.importorskip("polygraphy")
    (tmp_path / "stub/tensorrt").mkdir(parents=True)
    (tmp_path / "stub/tensorrt/__init__.py").write_text(STUB)
    return {**os.environ, "PYTHONPATH": str(tmp_path / "stub")}


def run(*words: str | Path, env: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, words)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_reads_what_the_other_wrote(tmp_path: Path, with_stub: dict[str, str]) -> None:
    mine = {"conv": choice(2), "relu [b]": choice(-7, "INT8")}
    (tmp_path / "ours.json").write_bytes(encode_replay(mine))
    said = run("-c", THEIRS, tmp_path / "theirs.json", tmp_path / "ours.json", env=with_stub)
    told = "\n".join(
        f"Layer: {layer}\n    Algorithm: {describe_algorithm(made)}" for layer, made in mine.items()
    )
    assert said.rstrip().endswith(told)
    theirs = read_replay(tmp_path / "theirs.json")
    half = tensor("HALF", 4, 4, 2, 1)
    small = {
        "dtype": "DataType.INT8",
        "strides": [],
        "vectorized_dim": 1,
        "components_per_element": 32,
    }
    bare = {
        "dtype": "DataType.FLOAT",
        "strides": [1],
        "vectorized_dim": None,
        "components_per_element": None,
    }
    assert {layer: json.loads(made) for layer, made in theirs.items()} == {
        'node "of" [y]': {
            "implementation": -2147483616,
            "tactic": 0,
            "inputs": [half],
            "outputs": [half, small],
        },
        "none": {"implementation": 1, "tactic": -(2**62), "inputs": [], "outputs": [bare]},
    }
    (tmp_path / "again.json").write_bytes(encode_replay(theirs))
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads(
        (tmp_path / "theirs.json").read_text()
    )


def layers(said: str) -> dict[str, set[str]]:
    """What diff-tactics accuses, of either tool's output."""
    lines = [line.strip().removeprefix("[I] ") for line in said.splitlines()]
    named = [i for i, line in enumerate(lines) if line.startswith("Layer: ")]
    return {
        lines[i].removeprefix("Layer: "): set(
            ast.literal_eval(lines[i + 1].removeprefix("Algorithms: "))
        )
        for i in named
    }


def folders(root: Path) -> Path:
    """Good and bad builds: one layer differs, one is new in a bad build, one is the same; one file
    is something else."""
    for name, replay in {
        "good/a": {"conv": choice(2), "relu": choice(4)},
        "good/b": {"conv": choice(3), "relu": choice(4)},
        "bad/c": {"conv": choice(9), "relu": choice(4), "new": choice(7)},
        "bad/deep/d": {"conv": choice(9), "relu": choice(4)},
        "bad/deep/e": {"conv": choice(2, "INT8"), "relu": choice(4)},
    }.items():
        path = root / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_replay(replay))
    (root / "bad/notes.txt").write_text("not a replay")
    (root / "bad/other.json").write_text("{}")
    return root


def test_diff_tactics_accuses_the_same(
    tmp_path: Path, with_stub: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    root = folders(tmp_path / "replays")
    polygraphy = Path(sys.executable).with_name("polygraphy")
    theirs = run(polygraphy, "inspect", "diff-tactics", "--dir", root, env=with_stub)
    assert main(["diff-tactics", "--dir", str(root)]) == 0
    ours = capsys.readouterr().out
    for line in (
        "Loaded 2 good tactic replays.",
        "Loaded 3 bad tactic replays.",
        "Found potentially bad tactics:",
    ):
        assert line in ours
        assert f"[I] {line}" in theirs
    assert layers(ours) == layers(theirs)
    assert set(layers(ours)) == {"conv", "new"}
    assert "in 2 of 3 bad and 0 of 2 good builds: by chance 0.3" in ours


def test_diff_tactics_of_single_files_and_without_a_difference(tmp_path: Path, capsys: Any) -> None:
    root = folders(tmp_path)
    words = ["diff-tactics", "--good", str(root / "good/a.json"), "--bad"]
    assert main([*words, str(root / "good/a.json")]) == 6
    assert "Could not determine potentially bad tactics." in capsys.readouterr().out
    assert main([*words, str(root / "bad/c.json"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["good"], found["bad"], [s["layer"] for s in found["suspects"]]) == (
        1,
        1,
        ["conv", "new"],
    )
    assert main(["diff-tactics", "--dir", str(root / "nothing")]) == 2
    assert "good tactic replays" in capsys.readouterr().err


def test_the_most_telling_comes_first(tmp_path: Path) -> None:
    root = folders(tmp_path)
    good, bad = ([replay for _, replay in gather_replays(root / kind)] for kind in ("good", "bad"))
    found = rank_suspects(good, bad)
    assert [(s.layer, s.bad) for s in found] == [("conv", 2), ("new", 1), ("conv", 1)]
    assert found[0].chance == pytest.approx(3 / 10)


@given(st.integers(0, 20), st.integers(1, 20), st.data())
def test_chance_is_a_probability_that_falls(good: int, bad: int, data: Any) -> None:
    builds = data.draw(st.integers(1, bad))
    chance = by_chance(builds, good, bad)
    assert 0 < chance <= 1
    assert by_chance(builds, good + 1, bad) < chance


def test_older_files_carry_another_mark(tmp_path: Path) -> None:
    mark = "polygraphy_serialized_json_type"
    side = [{**tensor("HALF", 1), "__polygraphy_encoded_TensorInfo": mark}]
    made = {
        "implementation": 1, "tactic": 2, "inputs": side, "outputs": side, "__polygraphy_encoded_Algorithm": mark,
    }  # fmt: skip
    content = {"replay": {"conv": made}, "__polygraphy_encoded_TacticReplayData": mark}
    (tmp_path / "old.json").write_text(json.dumps(content))
    plain = [tensor("HALF", 1)]
    expected = {"implementation": 1, "tactic": 2, "inputs": plain, "outputs": plain}
    assert read_replay(tmp_path / "old.json") == {"conv": canonical_algorithm(expected)}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("nothing", "is not JSON"),
        ("[]", "is not a tactic replay"),
        ('{"replay": {}}', "is not a tactic replay"),
        ('{"replay": [], "polygraphy_class": "TacticReplayData"}', "is not a tactic replay"),
        ('{"replay": {"a": {}}, "polygraphy_class": "TacticReplayData"}', "the layer 'a'"),
        (
            '{"replay": {"a": {"implementation": "1", "tactic": 2, "inputs": [], "outputs": [], '
            '"polygraphy_class": "Algorithm"}}, "polygraphy_class": "TacticReplayData"}',
            "the layer 'a'",
        ),
        (
            '{"replay": {"a": {"implementation": 1, "tactic": 2, "inputs": [{}], "outputs": [], '
            '"polygraphy_class": "Algorithm"}}, "polygraphy_class": "TacticReplayData"}',
            "the layer 'a'",
        ),
    ],
)
def test_what_is_no_replay_is_a_sentence(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(ReplayProblem, match=said):
        read_replay(tmp_path / "x.json")
    assert gather_replays(tmp_path) == []
    with pytest.raises(ReplayProblem, match="cannot be read"):
        read_replay(tmp_path / "none.json")
