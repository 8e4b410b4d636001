"""The search for bugs: what it grows is a model, and what it finds is made as small as the bug."""

import collections
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from campaigns.field import hunt
from campaigns.field.grow import grow
from narrowdown.engines.known.construct import construct
from narrowdown.engines.known.entry import Construction, MadeNode, MadeTensor

GROWN = Construction(
    18,
    {"x": MadeTensor(dtype="float32", shape=(2, 3))},
    (
        MadeNode("Relu", ("x",), ("a",)),
        MadeNode("Neg", ("a",), ("b",)),
        MadeNode("Transpose", ("b",), ("c",), {"perm": [0, 1]}),
        MadeNode("Abs", ("c",), ("d",)),
        MadeNode("Exp", ("d",), ("e",)),
    ),
    {"e": "float32"},
)


def test_what_grows_is_a_model_with_an_answer() -> None:
    grown = list(filter(None, (grow(np.random.default_rng(seed)) for seed in range(12))))
    assert len({tuple(node.op for node in made.nodes) for made in grown}) > 6
    assert sum(hunt.ask_evaluator(made) is not None for made in grown) > 6
    assert grown[0] in (grow(np.random.default_rng(0)), grow(np.random.default_rng(1)))


def test_a_find_is_made_as_small_as_the_bug_and_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that is wrong wherever a Transpose is read by an Abs, with optimizers."""

    def run(asked: hunt.Asked, optimized: bool) -> list[np.ndarray]:
        bad = b"Transpose" in asked.model and b"Abs" in asked.model and optimized
        return [value + bad for value in asked.right]

    monkeypatch.setitem(hunt.ENGINES, "fake", (run, (True, False)))
    monkeypatch.setattr(hunt, "recall", lambda *_: ())
    asked = hunt.ask_evaluator(GROWN)
    assert asked is not None
    said = hunt.ask_engine("fake", [asked])[0]
    assert hunt.kind_of(said) == ("wrong", "right")
    assert hunt.is_suspect(said)
    assert not hunt.is_suspect(("right", "refused"))
    small = hunt.shrink("fake", GROWN, ("wrong", "right"))
    assert [node.op for node in small.nodes] == ["Transpose", "Abs"]
    assert all(tensor.values is None for tensor in small.inputs.values())
    assert construct(small).graph.node
    met: collections.Counter[str] = collections.Counter()
    for seed in (1, 2):
        hunt.keep("fake", small, seed, met, tmp_path)
    assert len((tmp_path / "fake.jsonl").read_text(encoding="utf-8").splitlines()) == 1


def test_an_engine_that_dies_is_told_of_and_the_others_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(asked: hunt.Asked, optimized: bool) -> list[np.ndarray]:
        if asked.model == b"dies":
            os.kill(os.getpid(), signal.SIGKILL)
        return asked.right

    monkeypatch.setitem(hunt.ENGINES, "fake", (run, (True,)))
    batch = [hunt.Asked(model, {}, []) for model in (b"a", b"dies", b"b")]
    assert hunt.ask_engine("fake", batch) == [("right",), ("crash",), ("right",)]
