"""docs/recipes.md: what a recipe shows runs."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.docs.shown import ROOT, of

from . import tiny
from .conftest import Narrowdown


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two inputs, as the recipes have them; its square goes beyond what FP16 holds."""
    nodes = [
        helper.make_node("Mul", ["tokens", "tokens"], ["square"], name="square"),
        helper.make_node("Mul", ["square", "mask"], ["y"], name="masked"),
    ]
    shape = ["batch", "time"]
    return tiny.save(
        tmp_path / "model.onnx", nodes, {"tokens": shape, "mask": shape}, {"y": shape}, {}
    )


class Tensor:
    """As much of a torch tensor as the recipe takes."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values, np.float32)

    def cpu(self) -> "Tensor":
        return self

    def numpy(self) -> np.ndarray:
        return self.values


@pytest.mark.slow
def test_what_a_recipe_shows_runs(
    narrowdown: Narrowdown, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "recipes.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    tokens, mask = Tensor(np.full((4, 8), 400)), Tensor(np.ones((4, 8)))
    exec(compile(code, "recipe.py", "exec"), {"tokens": tokens, "mask": mask})
    np.savez("out.npz", y=tokens.numpy() ** 2)
    shown = of("recipes")
    assert len(shown) >= 8
    for command in shown:
        wrong = "emulate" in command.line or "--expect" in command.line  # else it passes: 10
        ran = narrowdown(*command.words[1:])
        assert ran.code == (0 if wrong else 10), (command.line, ran.out, ran.err)
