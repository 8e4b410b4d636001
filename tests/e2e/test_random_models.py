"""A model that draws random numbers: never an engine's fault. One that does not use what it draws
is like any other."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from . import tiny
from .conftest import Walk


def noisy(folder: Path, *, used: bool, seeded: bool) -> list[str | Path]:
    node = helper.make_node
    seed = {"seed": 3.0} if seeded else {}
    nodes = [
        node("RandomNormalLike", ["x"], ["noise"], **seed),
        node("Tanh", ["x"], ["t"]),
        node("Add", ["t", "noise" if used else "t"], ["s"]),
        node("Mul", ["s", "much"], ["m"]),
        node("Mul", ["m", "m"], ["y"]),
    ]
    name = f"noisy-{used}-{seeded}.onnx"
    return [
        tiny.save(folder / name, nodes, {"x": [4, 16]}, {"y": [4, 16]}, {"much": np.float32([400])})
    ]


@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("engine", ["emulate:precision=fp16", "onnxruntime:optimization=all"])
def test_it_is_the_model_that_is_random(
    walk: Walk, models: Path, engine: str, seeded: bool
) -> None:
    walked = walk(*noisy(models, used=True, seeded=seeded), "--engine", engine)
    assert (walked.ran.code, walked.reading.state.end) == (15, "not-determined"), walked.ran.out
    assert "draws random numbers: /noise (RandomNormalLike)" in walked.ran.out
    assert walked.reading.report().culprits == ()


@pytest.mark.slow
def test_what_is_drawn_and_not_used_excuses_nothing(walk: Walk, models: Path) -> None:
    walked = walk(*noisy(models, used=False, seeded=False), "--engine", "emulate:precision=fp16")
    assert walked.visits("reproduce")[0].outcome["verdict"] == "fails", walked.ran.out
    assert "random numbers" not in walked.ran.out
