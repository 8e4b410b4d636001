"""What is true of a loop, apart from the product: its own walk over the steps, with ONNX Runtime and
with an interpreter that rounds each node."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from campaigns.field.interpret import Changes, Interpreter, named
from campaigns.field.voices import OnnxRuntime, Voice, distance
from campaigns.loops.models import Feed, Loop


class Rounding:
    """Every node rounded but ``exact``."""

    def __init__(self, path: Path, precision: str, exact: Collection[str] = ()) -> None:
        self.interpreter = Interpreter(path)
        places = named(self.interpreter, exact)
        self.lost = [name for name in exact if name not in places]
        self.changes = Changes(precision, frozenset(places.values()))

    def run(self, feeds: Feed) -> Feed:
        return self.interpreter.run(feeds, self.changes)


class Walked(NamedTuple):
    """``fed`` and ``made`` by step; ``tokens`` that the scores choose."""

    fed: list[Feed]
    made: list[Feed]
    tokens: list[int]


class Compared(NamedTuple):
    """How far the engine is off: in each step on its own state, and fed the reference's; over all
    steps; the first step that chooses another token."""

    free: list[float]
    own: list[float]
    whole: float
    token: int | None

    def first(self, tolerance: float) -> int | None:
        return next((k for k, error in enumerate(self.free) if error > tolerance), None)


def pairs(loop: Loop, model: OnnxRuntime) -> dict[str, str]:
    """Input -> output."""
    found = {}
    for output, given in (text.split(":") for text in loop.carry):
        head, star, tail = output.partition("*")
        for name in model.outputs:
            middle = name[len(head) : len(name) - len(tail)]
            if (name == output) if not star else name == head + middle + tail and middle:
                found[given.replace("*", middle)] = name
    return found


def walk(
    loop: Loop, reference: OnnxRuntime, voice: Voice, given: Feed, theirs: Walked | None = None
) -> Walked:
    """The steps of a sequence. ``theirs``: the reference's, whose tokens are fed."""
    carried = pairs(loop, reference)
    kinds = {i.name: (i.type, i.shape) for i in reference.session.get_inputs()}
    fed, made, tokens = [], [], []
    state = {name: _zeros(kinds[name][1]) for name in carried}
    scores, _, ids = loop.token.removesuffix("=argmax").partition(":")
    for step in range(loop.steps):
        feed = {
            n: a[step] if a.ndim > len(kinds[n][1]) else a for n, a in given.items() if n in kinds
        } | {n: a for n, a in state.items() if n not in given or step}
        if ids:
            past = next(iter(state.values())).shape[2] if step else 0
            if step:
                feed[ids] = np.array([[(theirs.tokens if theirs else tokens)[step - 1]]], np.int64)
            count = feed[ids].shape[1]
            feed["position_ids"] = np.arange(past, past + count)[None]
            feed["attention_mask"] = np.ones((1, past + count), np.int64)
        fed.append(feed)
        made.append(voice.run(feed))
        state = {name: made[-1][output] for name, output in carried.items()}
        if ids:
            tokens.append(int(np.nan_to_num(made[-1][scores][0, -1]).argmax()))
    return Walked(fed, made, tokens)


def compare(
    loop: Loop, path: Path, given: Feed, precision: str, exact: Collection[str] = ()
) -> Compared:
    reference, voice = OnnxRuntime(str(path)), Rounding(path, precision, exact)
    assert not voice.lost, f"no node is called {voice.lost}"
    right = walk(loop, reference, reference, given)
    with np.errstate(all="ignore"):
        mine = walk(loop, reference, voice, given, right)
        own = [distance(voice.run(f), m) for f, m in zip(right.fed, right.made, strict=True)]
    free = [distance(a, b) for a, b in zip(mine.made, right.made, strict=True)]
    changed = (k for k, (a, b) in enumerate(zip(mine.tokens, right.tokens, strict=True)) if a != b)
    joined = [_join(w.made) for w in (mine, right)]
    return Compared(free, own, distance(*joined), next(changed, None))


def _zeros(shape: Sequence[int | str | None]) -> np.ndarray:
    """Of a dimension that is called so a batch of one, else nothing yet."""
    return np.zeros(
        [d if isinstance(d, int) else 1 if d == "batch" else 0 for d in shape], np.float32
    )


def _join(steps: Sequence[Feed]) -> Feed:
    return {n: np.concatenate([step[n].reshape(-1) for step in steps]) for n in steps[0]}
