"""Options as programs give them."""

from pathlib import Path
from typing import Any

import pytest

from narrowdown.wizard import BadUsage
from narrowdown.wizard.cli.arguments import parse
from narrowdown.wizard.cli.by_name import words_of


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": "a:b=c"}, ["--engine=a:b=c"]),
        ({"engine": "", "seed": None, "detach": False}, []),
        ({"seed": 0, "timeout": 0.5}, ["--seed=0", "--timeout=0.5"]),
        ({"detach": True}, ["--detach"]),
        ({"inputs": ["a.npz", Path("b.npz")]}, ["--inputs=a.npz", "--inputs=b.npz"]),
        ({"input_shapes": {"x": (1, 3), "y": []}}, ["--input-shapes=x:[1,3]"]),
        ({"val_range": (0, 0.5)}, ["--val-range=[0,0.5]"]),
        ({"val_range": {"x": [0, 1]}}, ["--val-range=x:[0,1]"]),
        ({"tolerance": {"": 0.1, "y": "1%"}}, ["--tolerance=0.1", "--tolerance=y:1%"]),
    ],
)
def test_an_option_by_name(options: dict[str, Any], words: list[str]) -> None:
    assert words_of("run", "m.onnx", options) == ["run", *words, "--", "m.onnx"]


def test_the_command_line_understands_them() -> None:
    given = {"input_shapes": {"x": (1, 3)}, "tolerance": 0.1, "jobs": 2, "inputs": ["-a.npz"]}
    read = parse(words_of("run", "-m.onnx", given))
    assert (read.model, read.input_shapes, read.tolerance) == ("-m.onnx", ["x:[1,3]"], ["0.1"])
    assert (read.jobs, read.inputs) == (2, ["-a.npz"])


def test_what_is_no_value_is_named() -> None:
    with pytest.raises(BadUsage, match=r"--seed.*object"):
        words_of("run", "m.onnx", {"seed": object()})
