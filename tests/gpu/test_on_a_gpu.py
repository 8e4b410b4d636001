"""Cases of the GPU campaign as tests, with what they must find. Run with ``pytest -m gpu tests/gpu``; the last recorded run of
the whole campaign is in docs/tensorrt.md."""

from pathlib import Path
from typing import Any

import pytest

from engines.backends.tensorrt import cuda
from engines.installed import importable

from . import campaign

GPU, WHY = cuda.device()
MISSING = WHY or ("" if importable("tensorrt") else "TensorRT is not installed")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(MISSING), reason=f"TensorRT cannot run here: {MISSING}")]

# Case -> facts that its line must hold.
EXPECTED: dict[str, dict[str, Any]] = {
    "norm-strong": {"exit": 0, "verdict": "worked-around", "nodes": "1/23", "check.py": 1, "replay": 0},
    "norm-weak": {"exit": 10, "verdict": "not-reproduced"},
    "two-ways": {"exit": 0, "verdict": "worked-around", "nodes": "1/8"},
    "precision": {"exit": 0, "outcome": "found", "keep": 2},
    "planted": {"right": True},
    "killed": {"exit": 0, "twice": 0},
    "crowded": {"exit": 6, "verdict": "unresolved"},
    "int8": {"exit": 10, "verdict": "passes"},
    "fp8-weak": {"exit": 0, "verdict": "worked-around"},
    "fp8-right": {"exit": 10, "verdict": "passes"},
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", EXPECTED)
def test_a_case_of_the_campaign(name: str, tmp_path: Path) -> None:
    case = next(c for c in campaign.every(tmp_path, None) if c.name == name)
    folder = tmp_path / name
    folder.mkdir()
    facts = case.run(folder)
    assert {key: facts.get(key) for key in EXPECTED[name]} == EXPECTED[name], facts
