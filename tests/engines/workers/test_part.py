"""What a part is fed comes from the sample that was asked for, and is read once while a search goes
round a few of them."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from narrowdown.engines.data import samples
from narrowdown.engines.workers import part


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    part._samples.clear()


def test_each_sample_is_read_once_and_none_is_taken_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def load_steps(store, inputs, sample, reference):
        read.append((store.root, inputs, sample, reference))
        return [{"x": np.full(3, len(read), np.float32)}]

    monkeypatch.setattr(samples, "load_steps", load_steps)
    asked = list(
        itertools.product(
            (tmp_path / "a", tmp_path / "b"), ("i", "j"), ("real:0", "real:0/1", "real:1"), ("r",)
        )
    )
    first = [part._load_sample(*each)["x"][0] for each in asked]
    again = [part._load_sample(*each)["x"][0] for each in reversed(asked)]
    assert first == again[::-1] == list(range(1, 13))
    assert read == asked


def test_what_is_heavy_goes_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row is a part of its feed, which stays in memory with it."""
    monkeypatch.setattr(
        samples, "load_steps", lambda *_: [{"x": np.zeros((40, 1 << 21), np.float32)[:1]}]
    )
    for row in range(3):
        part._load_sample(tmp_path, "i", f"real:0/{row}", "r")
        assert len(part._samples) == 1
