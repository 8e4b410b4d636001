"""Polygraphy's tactic replay files: read, write, and find what only failing builds chose. Plain
data, no numpy, no TensorRT.

A replay names, for each layer, the algorithm that TensorRT's builder chose (recorded by its
algorithm selector, TensorRT 8 to
10.16). A *choice* is that algorithm as canonical JSON text without class tags: equal choices are
equal texts.
"""

import contextlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from narrowdown.engines.store import decoding, regular

_MARKER = "polygraphy_class"
_LEGACY = "__polygraphy_encoded_"
_TENSOR: Mapping[str, tuple[type, ...]] = {
    "dtype": (str,),
    "strides": (list,),
    "vectorized_dim": (int, type(None)),
    "components_per_element": (int, type(None)),
}

Replay = dict[str, str]  # layer -> choice


class ReplayProblem(Exception):
    """A file is no tactic replay, or a damaged one; the message is a sentence."""


class Suspect(msgspec.Struct, frozen=True):
    """A layer's choice that some bad builds made and no good one did. ``chance``: how likely all of
    its builds would be bad ones if it had nothing to do with the failure (Fisher's exact test,
    one-sided)."""

    layer: str
    choice: str
    bad: int
    chance: float


def canonical_algorithm(algorithm: Mapping[str, Any]) -> str:
    """An algorithm as text: the same algorithm, the same text."""
    return json.dumps(algorithm, separators=(",", ":"), sort_keys=True)


def read_replay(path: Path) -> Replay:
    """The choices of one replay file. Raises ``ReplayProblem``."""
    try:
        content = decoding.decode(regular.read(path))
    except OSError as error:
        raise ReplayProblem(f"'{path}' cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise ReplayProblem(f"'{path}' is not JSON.") from error
    if not _is_kind(content, "TacticReplayData") or not isinstance(content.get("replay"), dict):
        raise ReplayProblem(f"'{path}' is not a tactic replay file.")
    return {
        str(layer): canonical_algorithm(_check_algorithm(found, layer, path))
        for layer, found in content["replay"].items()
    }


def encode_replay(replay: Mapping[str, str]) -> bytes:
    """The content of a file for Polygraphy's ``--load-tactics`` and ``inspect diff-tactics``.
    Raises ``ValueError`` for a choice that is no algorithm, such as an entry of a timing cache:
    Polygraphy has no word for it."""
    layers: dict[str, Any] = {}
    for layer, choice in replay.items():
        algorithm = decoding.decode(choice.encode())
        if not {"implementation", "tactic", "inputs", "outputs"} <= set(algorithm):
            raise ValueError(f"The choice of '{layer}' is no algorithm.")
        layers[layer] = _tag_algorithm(algorithm)
    return json.dumps({"replay": layers, _MARKER: "TacticReplayData"}, indent=4).encode()


def gather_replays(place: Path) -> list[tuple[Path, Replay]]:
    """Every replay of a folder (and those below it), or of a single file, by path; what is no
    replay is passed over."""
    paths = sorted(p for p in place.rglob("*") if p.is_file()) if place.is_dir() else [place]
    found: list[tuple[Path, Replay]] = []
    for path in paths:
        with contextlib.suppress(ReplayProblem):
            found.append((path, read_replay(path)))
    return found


def rank_suspects(
    good: Sequence[Mapping[str, str]], bad: Sequence[Mapping[str, str]]
) -> list[Suspect]:
    """What only bad builds chose, the most telling first: Polygraphy's set difference, ranked."""
    fine = {(layer, choice) for replay in good for layer, choice in replay.items()}
    count = Counter(made for replay in bad for made in replay.items() if made not in fine)
    found = [
        Suspect(*made, bad=n, chance=by_chance(n, len(good), len(bad))) for made, n in count.items()
    ]
    return sorted(found, key=lambda s: -s.bad)


def by_chance(builds: int, good: int, bad: int) -> float:
    """The chance that ``builds`` builds drawn from ``good`` and ``bad`` ones are all bad."""
    return math.comb(bad, builds) / math.comb(good + bad, builds)


def describe_algorithm(choice: str) -> str:
    """A choice in Polygraphy's words."""
    found = decoding.decode(choice.encode())
    sides = (
        f"{name.title()}: {_write_tuple(map(_describe_tensor, found[name]))}"
        for name in ("inputs", "outputs")
    )
    return " | ".join(
        (f"(Implementation: {found['implementation']}, Tactic: {found['tactic']})", *sides)
    )


def _describe_tensor(info: Mapping[str, Any]) -> str:
    strides = _write_tuple(map(str, info["strides"]))
    return f"TensorInfo({info['dtype']}, {strides}, {info['vectorized_dim']}, {info['components_per_element']})"


def _write_tuple(words: Iterable[str]) -> str:
    listed = list(words)
    return f"({', '.join(listed)}{',' if len(listed) == 1 else ''})"


def _is_kind(found: Any, kind: str) -> bool:
    return isinstance(found, dict) and (found.get(_MARKER) == kind or f"{_LEGACY}{kind}" in found)


def _check_algorithm(found: Any, layer: str, path: Path) -> dict[str, Any]:
    tensors = (
        {side: found.get(side) for side in ("inputs", "outputs")}
        if _is_kind(found, "Algorithm")
        else {}
    )
    numbers = {name: found.get(name) for name in ("implementation", "tactic")} if tensors else {}
    right = tensors and all(type(value) is int for value in numbers.values())
    if not right or not all(
        isinstance(v, list) and all(map(_tensor_like, v)) for v in tensors.values()
    ):
        raise ReplayProblem(
            f"'{path}' does not say all about the layer '{layer}': it is damaged, or too old; record it again."
        )
    return {
        **numbers,
        **{side: [{key: t[key] for key in _TENSOR} for t in v] for side, v in tensors.items()},
    }


def _tensor_like(found: Any) -> bool:
    return _is_kind(found, "TensorInfo") and all(
        key in found and isinstance(found[key], t) for key, t in _TENSOR.items()
    )


def _tag_algorithm(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    sides = {
        name: [{**t, _MARKER: "TensorInfo"} for t in algorithm[name]]
        for name in ("inputs", "outputs")
    }
    return {**algorithm, **sides, _MARKER: "Algorithm"}


def shorten_choice(choice: str) -> str:
    """A choice in a few words: its tactic."""
    found = re.search(r'"tactic":"?(-?\w+)', choice)
    return f"tactic {found[1]}" if found else choice[:60]
