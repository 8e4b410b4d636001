"""Which kernel each operation was given, read from and written into TensorRT's editable timing
cache (10.8 and later).

The cache holds one entry an operation: a key (128 bits: what is computed, on which shapes and
types), the hash of the kernel that was the fastest, and its milliseconds. A build that finds its
key there takes that kernel and times nothing. So a choice is forced by writing the entry of a build
that timed freely and building again, and kept out by writing the fastest other kernel that the
first build tried; which were tried only its log tells.

A *layer* is written ``NAME [KEY]``: several operations of the same work share a key, and the name
is that of the first.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from narrowdown.engines.backends.tensorrt.library import TUNING, Library
from narrowdown.engines.data.tactic_replay import canonical_algorithm

_ROUNDS = 3  # builds: what is forced may lead to operations that were not met before
_KEY = re.compile(r"key: ?(0x[0-9a-f]{32})", re.IGNORECASE)
_NAME = re.compile(TUNING + r" (?:op|operation) +(.*?) *[({]key:", re.IGNORECASE)
_HASH = re.compile(r"\b0x[0-9a-f]{16}\b", re.IGNORECASE)
_TIME = re.compile(r"Time: ([0-9.eE+-]+)")


class Operation(msgspec.Struct):
    """What was heard of one key: the first operation's name, and the kernels that were tried, in ms
    (-1: not said)."""

    name: str = ""
    tried: dict[int, float] = {}


def parse_timings(lines: Iterable[str]) -> dict[str, Operation]:
    """What a builder's verbose log tells of the kernels that it tried, by key. Lines that say
    nothing of it are passed over, and so is all of a log of 10.7 and older, which names no keys."""
    found: dict[str, Operation] = {}
    here: Operation | None = None
    for line in lines:
        if key := _KEY.search(line):
            here = found.setdefault(key[1].lower(), Operation())
            if not here.name and (name := _NAME.search(line)):
                here.name = name[1]
            continue
        if TUNING in line:
            here = None  # of an operation that has no entry (``{key: None}``): what follows is not of the one before
        if here is None or "selected tactic" in line:
            continue
        if (kernel := _HASH.search(line)) is not None:
            tried = int(kernel[0], 16)
            # A row of the table: its number, its milliseconds, ...; older logs write "Tactic: 0x...
            # Time: 0.01".
            said = _TIME.search(line)
            cells = [cell.strip() for cell in line.split(",")]
            text = said[1] if said else cells[1] if len(cells) > 2 else ""
            here.tried.setdefault(tried, _parse_number(text))
    return found


def name_layer(key: str, name: str) -> str:
    return f"{name} [{key}]" if name else f"[{key}]"


def key_of(written: str) -> str:
    """The key of a layer as it was written, "" where it is none (a choice that another way of
    recording made)."""
    found = re.search(r"\[(0x[0-9a-f]{32})\]$", written)
    return found[1] if found else ""


def write_choice(kernel: int) -> str:
    return canonical_algorithm({"tactic": f"0x{kernel:016x}"})


def fastest_allowed(tried: Mapping[int, float], forbidden: Sequence[str]) -> int | None:
    """The fastest kernel that was tried and may be taken; None where there is none."""
    may = [
        (ms if ms >= 0 else float("inf"), kernel)
        for kernel, ms in tried.items()
        if write_choice(kernel) not in forbidden
    ]
    return min(may)[1] if may else None


class Entries:
    """The choices of one build through the cache: recorded, forced and kept out. ``choices`` and
    ``refused`` as those of ``choices.Chooser``. ``build`` in place of the builder's own."""

    def __init__(
        self, found: Library, force: Mapping[str, str], forbid: Mapping[str, Sequence[str]]
    ) -> None:
        self.choices: dict[str, str] = {}
        self.refused: list[str] = []
        self._found, self._trt = found, found.trt
        self._force = {key_of(k): v for k, v in force.items() if key_of(k)}
        self._forbid = {key_of(k): tuple(v) for k, v in forbid.items() if key_of(k)}
        self._names = {key_of(k): k for k in (*force, *forbid)}
        self._foreign = [k for k in (*force, *forbid) if not key_of(k)]

    def build(self, config: Any, build: Callable[[], Any]) -> Any:
        """What ``build`` gives (None: it failed) once its choices are as asked for, as far as they
        can be. ``config`` gets an empty cache of its own."""
        config.set_flag(self._trt.BuilderFlag.EDITABLE_TIMING_CACHE)
        config.set_timing_cache(config.create_timing_cache(b""), False)
        operations: dict[str, Operation] = {}
        plan = None
        for _ in range(_ROUNDS):
            with self._found.log.listening() as lines:
                plan = build()
            for key, operation in parse_timings(lines).items():
                operations.setdefault(key, operation)
            if plan is None or not self._write_wanted(config.get_timing_cache(), operations):
                break
        if plan is not None:
            self._read_choices(config.get_timing_cache(), operations)
        return plan

    def _write_wanted(self, cache: Any, operations: Mapping[str, Operation]) -> bool:
        """Put what is wanted into the cache; whether that asks for another build."""
        present = {str(key).lower(): key for key in cache.queryKeys()}
        changed, refused = False, []
        for text in (*self._force, *self._forbid):
            key = present.get(text)
            if key is None:
                refused.append(text)
                continue
            now = cache.query(key)
            has = write_choice(int(now.tacticHash))
            tried = operations.get(text, Operation()).tried
            if wanted := self._force.get(text):
                kernel = int(msgspec.json.decode(wanted)["tactic"], 16) if wanted != has else None
            elif has in self._forbid[text]:
                kernel = fastest_allowed(tried, self._forbid[text])
                refused += [text] if kernel is None else []
            else:
                kernel = None
            if kernel is None:
                continue
            # The milliseconds weigh in the choice of formats around it: those that were measured,
            # where they are known.
            ms = tried.get(kernel, -1.0)
            value = self._trt.TimingCacheValue(kernel, ms if ms >= 0 else float(now.timingMSec))
            if cache.update(key, value):
                changed = True
            else:
                refused.append(text)
        self.refused = [*self._foreign, *dict.fromkeys(self._names[text] for text in refused)]
        return changed

    def _read_choices(self, cache: Any, operations: Mapping[str, Operation]) -> None:
        for key in cache.queryKeys():
            text = str(key).lower()
            name = self._names.get(text) or name_layer(text, operations.get(text, Operation()).name)
            self.choices[name] = write_choice(int(cache.query(key).tacticHash))


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0
