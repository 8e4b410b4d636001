"""A model that is built and run stage by stage, each stage once for what it is given. A search for
nodes to keep asks hundreds of sets that differ in a node or two, and pays from the first stage on
that this changes, until one gives what it gave before.

What is computed is the same bit by bit: the emulation goes node by node on one thread, without an
optimizer that could see from one stage into the next.
"""

import ctypes
import hashlib
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import onnx

from narrowdown.engines.backends.base import check_names
from narrowdown.engines.backends.builds import Kept, outside_bytes
from narrowdown.engines.backends.onnxruntime.engine import Session, Settings, has_grown
from narrowdown.engines.backends.onnxruntime.values import unwrap_array, wrap_array
from narrowdown.engines.graph import external
from narrowdown.engines.graph.emulate import emulate_precision
from narrowdown.engines.graph.stages import Stage, split

Array = np.ndarray[Any, Any]

FEWEST = 32  # nodes: of fewer a whole build takes a few milliseconds
LARGEST = (
    4 << 20
)  # bytes of the model without its weights files, which are read at each build to know it again
HEAVIEST = 128 << 20  # bytes of weights: of more no second session is held
PASSED = 64 << 20  # bytes of values that are kept
VALUE = 4 << 20  # bytes of what passes between two stages: what is larger is computed anew
LIGHT = 1 << 17  # bytes of what is kept apart
_SESSIONS = 32
_NAMES = 1 << 14  # of what passed: each a few hundred bytes, also where the values are gone
_HASHED = 1e9  # bytes a second
_WORTH = 4  # times what naming by the values takes, a stage must take for it


@dataclass
class Division:
    """A model in stages. ``digest``: of the model. ``took``: by stage, processor seconds of its
    latest run."""

    digest: bytes
    stages: tuple[Stage, ...]
    took: dict[int, float] = field(default_factory=dict)


_divisions: Kept[Division] = Kept(4, lambda _: None)
# Whoever runs one holds it: what goes from here is closed with its last holder.
_sessions: Kept[Session] = Kept(
    _SESSIONS, lambda _: None, lambda made: outside_bytes(made.model), HEAVIEST
)


def divide(model: onnx.ModelProto) -> Division | None:
    """The stages of a model for which they are worth it, and that takes and gives numbers."""
    graph = model.graph
    # Nodes that are each fed from outside pass nothing on, and naming all that is fed takes longer
    # than such a part is worth.
    worth = (
        len(graph.node) >= max(FEWEST, len(graph.input))
        and model.ByteSize() <= LARGEST
        and outside_bytes(model) <= HEAVIEST
    )
    if not worth or any(
        t.type.tensor_type.elem_type in (0, onnx.TensorProto.STRING)
        for t in (*graph.input, *graph.output)
    ):
        return None
    digest = hashlib.sha256(model.SerializeToString(deterministic=True)).digest()
    division = _divisions.get(digest, lambda: Division(digest, split(model)))
    return division if len(division.stages) > 1 else None


class Staged:
    """What ``Session`` is, of the model with ``keep`` in FP32 and all else stored in
    ``precision``."""

    facts: Mapping[str, Any] = {}

    def __init__(
        self, plain: onnx.ModelProto, division: Division, weights_dir: str, precision: str, keep: frozenset[int],
        settings: Settings,
    ) -> None:  # fmt: skip
        """Raises ``EngineFault``, ``ModelProblem``."""
        self._of = plain, precision, keep
        self._weights_dir = weights_dir
        self._stages, self._took = division.stages, division.took
        digest = division.digest + repr((weights_dir, precision, settings)).encode()
        self._keys: list[bytes] = []
        self._built: list[Session] = []
        for at, stage in enumerate(self._stages):
            local = stage.local(keep)
            key = hashlib.sha256(digest + repr((at, sorted(local))).encode()).digest()
            self._built.append(
                _sessions.get(key, lambda s=stage, k=local: self._build(s, k, settings))  # type: ignore[misc]
            )
            self._keys.append(key)
        self._asked: set[bytes] = set()

    def _build(self, stage: Stage, keep: frozenset[int], settings: Settings) -> Session:
        # An earlier stage gives what its nodes make as it is stored, but for those that are kept.
        rounded = {
            stage.model.graph.node[at].input[0] for at in range(len(stage.makers)) if at not in keep
        }
        model = emulate_precision(stage.model, self._of[1], keep, rounded)
        # The Identities have told which is which; without them no tensor is copied.
        tensors = {node.input[0]: node.output[0] for node in model.graph.node[: len(stage.makers)]}
        del model.graph.node[: len(stage.makers)]
        for entering in model.graph.input:
            entering.name = tensors.get(entering.name, entering.name)
        return Session(model, self._weights_dir, settings, sharing=True)

    @cached_property
    def model(self) -> onnx.ModelProto:
        return emulate_precision(*self._of)

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] = ()) -> dict[str, Array]:
        """As ``Session.run``. What is run again is computed again."""
        graph = self._of[0].graph
        given = {t.name for t in graph.initializer}
        wanted = check_names(
            feeds,
            [i.name for i in graph.input if i.name not in given],
            outputs,
            [o.name for o in graph.output],
        )
        fed = hashlib.sha256(
            b"".join(_digest(name, feeds[name]) for name in sorted(feeds))
        ).digest()
        # What nothing is kept of is what a search starts from: it hands on what it computed and
        # takes nothing from others.
        anew = fed in self._asked or not self._of[2]
        self._asked.add(fed)
        wrapped = {name: wrap_array(array) for name, array in feeds.items()}
        give_back = has_grown()
        here = _Entered(0, fed, {})
        while True:
            at, entered, values = here if anew else self._look_ahead(here)
            stage = self._stages[at]
            begun = time.thread_time()
            made = self._built[at].pass_on(wrapped | values, give_back=give_back)
            self._took[at] = time.thread_time() - begun
            values = {name: made[name] if name in made else values[name] for name in stage.passing}
            if at + 1 == len(self._keys):
                # What an earlier stage gave may be let go of at any time; a session's own outputs
                # are the array's.
                return {
                    name: unwrap_array(made[name])
                    if name in made
                    else np.array(unwrap_array(values[name]))
                    for name in wanted
                }
            asked = entered + self._keys[at]
            entered = (b"" if anew else _passed.name(asked)) or self._name(
                fed, asked, values, at + 1
            )
            _passed.put(asked, entered, values)
            here = _Entered(at + 1, entered, values)

    def _look_ahead(self, here: "_Entered") -> "_Entered":
        """The last stage of which is known what enters it."""
        found, entered = here, here.name
        for at in range(here.stage, len(self._keys) - 1):
            asked = entered + self._keys[at]
            if not (entered := _passed.name(asked)):
                break
            if (values := _passed.values(asked)) is not None:
                found = _Entered(at + 1, entered, values)
        return found

    def _name(self, fed: bytes, asked: bytes, values: Mapping[str, Any], after: int) -> bytes:
        """What enters the stage ``after``, with the feed: by its bytes, or, where reading them
        takes longer than is likely to be saved, by what it was made of. What is too large to be
        kept is not read: of 44 such values in a whole guide two were known, which saved less than
        half of what reading all took."""
        size = _size(values)
        if not 0 <= size <= VALUE or size / _HASHED * _WORTH > self._took.get(after, 1.0):
            return hashlib.sha256(asked).digest()
        named = hashlib.sha256(fed)
        for name, value in sorted(values.items()):
            shape = tuple(value.shape())
            named.update(repr((name, int(value.element_type()), shape)).encode())
            if count := external.byte_size(int(value.element_type()), shape):
                named.update((ctypes.c_char * count).from_address(value.data_ptr()))
        return named.digest()

    def close(self) -> None:
        self._built = []


class _Entered(NamedTuple):
    """What enters a stage beside the feed. ``name``: says, with the feed, which values these
    are."""

    stage: int
    name: bytes
    values: dict[str, Any]


class _Shelf:
    """Values by what gave them, the least recently used gone first."""

    def __init__(self) -> None:
        self._values: OrderedDict[bytes, tuple[dict[str, Any], int]] = OrderedDict()
        self.held = 0

    def get(self, asked: bytes) -> dict[str, Any] | None:
        if asked not in self._values:
            return None
        self._values.move_to_end(asked)
        return self._values[asked][0]

    def put(self, asked: bytes, values: dict[str, Any], size: int, room: int) -> None:
        if asked in self._values:
            return
        # Copies: what stays of a run would stand in the way of the next one's in the memory that
        # they share; and an array that was made of a value does not keep the array which that value
        # was made of.
        self._values[asked] = (
            {name: wrap_array(np.array(unwrap_array(v))) for name, v in values.items()},
            size,
        )
        self.held += size
        while self.held > room:
            self.held -= self._values.popitem(last=False)[1][1]


class _Passed:
    """What passed between stages, by what entered the stage and the stage: its name, and the values
    while there is room. Behind a narrow place lies all that was computed before it: light values
    are kept apart, where heavy ones do not displace them."""

    def __init__(self) -> None:
        self._names: OrderedDict[bytes, bytes] = OrderedDict()
        self._heavy, self._light = _Shelf(), _Shelf()

    @property
    def held(self) -> int:
        return self._heavy.held + self._light.held

    def name(self, asked: bytes) -> bytes:
        """Empty where it is not known."""
        if asked in self._names:
            self._names.move_to_end(asked)
        return self._names.get(asked, b"")

    def values(self, asked: bytes) -> dict[str, Any] | None:
        return self._light.get(asked) or self._heavy.get(asked)

    def put(self, asked: bytes, name: bytes, values: dict[str, Any]) -> None:
        self._names[asked] = name
        while len(self._names) > _NAMES:
            self._names.popitem(last=False)
        size = _size(values)
        if 0 <= size <= LIGHT:
            self._light.put(asked, values, size, PASSED // 8)
        elif 0 <= size <= VALUE:
            self._heavy.put(asked, values, size, PASSED)

    def clear(self) -> None:
        self._names.clear()
        self._heavy, self._light = _Shelf(), _Shelf()


def _size(values: Mapping[str, Any]) -> int:
    """Bytes of all; -1 where some hold text, whose bytes lie elsewhere."""
    sizes = [external.byte_size(int(v.element_type()), v.shape()) for v in values.values()]
    return -1 if min(sizes, default=0) < 0 else sum(sizes)


_passed = _Passed()


def forget() -> None:
    """Keep nothing of what was built and computed."""
    _sessions.clear()
    _passed.clear()


def held() -> int:
    """Bytes of values that are kept."""
    return _passed.held


def _digest(name: str, array: Array) -> bytes:
    head = repr((name, array.dtype.str, array.shape)).encode()
    digest = hashlib.sha256(head)
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.digest()
