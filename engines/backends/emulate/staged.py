"""A model that is built and run stage by stage, each stage once for what it is given. A search for nodes to keep asks hundreds of
sets that differ in a node or two, and pays from the first stage on that this changes.

What is computed is the same bit by bit: the emulation goes node by node on one thread, without an optimizer that could see from
one stage into the next.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from engines.backends.base import check_names
from engines.backends.builds import Kept, outside_bytes
from engines.backends.onnxruntime.engine import Session, Settings, unwrap_array, wrap_array
from engines.graph import external
from engines.graph.emulate import emulate_precision
from engines.graph.stages import Stage, split

Array = np.ndarray[Any, Any]

FEWEST = 32  # nodes: of fewer a whole build takes a few milliseconds
LARGEST = 4 << 20  # bytes of the model without its weights files, which are read at each build to know it again
HEAVIEST = 128 << 20  # bytes of weights: of more no second session is held
PASSED = 64 << 20  # bytes of values that are kept
VALUE = 4 << 20  # bytes of what passes between two stages: what is larger is computed anew
_SESSIONS = 32  # each holds the memory that a run took, for the next
_splits: Kept[tuple[Stage, ...]] = Kept(4, lambda _: None)
# Whoever runs one holds it: what goes from here is closed with its last holder.
_sessions: Kept[Session] = Kept(_SESSIONS, lambda _: None, lambda made: outside_bytes(made.model), HEAVIEST)


def divide(model: onnx.ModelProto) -> tuple[Stage, ...]:
    """The stages of a model for which they are worth it, and that takes and gives numbers; else none."""
    graph = model.graph
    worth = len(graph.node) >= FEWEST and model.ByteSize() <= LARGEST and outside_bytes(model) <= HEAVIEST
    if not worth or any(
        t.type.tensor_type.elem_type in (0, onnx.TensorProto.STRING) for t in (*graph.input, *graph.output)
    ):
        return ()
    stages = _splits.get(_know(model), lambda: split(model))
    return stages if len(stages) > 1 else ()


def _know(model: onnx.ModelProto) -> bytes:
    return hashlib.blake2b(model.SerializeToString(deterministic=True)).digest()


class Staged:
    """What ``Session`` is, of the model with ``keep`` in FP32 and all else stored in ``precision``."""

    facts: Mapping[str, Any] = {}

    def __init__(
        self, plain: onnx.ModelProto, stages: Sequence[Stage], weights_dir: str, precision: str, keep: frozenset[int],
        settings: Settings,
    ) -> None:  # fmt: skip
        """Raises ``EngineFault``, ``ModelProblem``."""
        self._of = plain, weights_dir, precision, keep
        self._stages = stages
        digest = _know(plain) + repr((weights_dir, precision, settings)).encode()
        self._keys: list[bytes] = []
        self._built: list[Session] = []
        for at, stage in enumerate(self._stages):
            local = stage.local(keep)
            key = hashlib.blake2b(digest + repr((at, sorted(local))).encode()).digest()
            self._built.append(_sessions.get(key, lambda s=stage, k=local: self._build(s, k, settings)))  # type: ignore[misc]
            self._keys.append(key)
        self._asked: set[bytes] = set()

    def _build(self, stage: Stage, keep: frozenset[int], settings: Settings) -> Session:
        _, weights_dir, precision, _ = self._of
        return Session(emulate_precision(stage.model, weights_dir, precision, keep), weights_dir, settings)

    @cached_property
    def model(self) -> onnx.ModelProto:
        return emulate_precision(*self._of)

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] = ()) -> dict[str, Array]:
        """As ``Session.run``. What is run again is computed again."""
        graph = self._of[0].graph
        given = {t.name for t in graph.initializer}
        wanted = check_names(
            feeds, [i.name for i in graph.input if i.name not in given], outputs, [o.name for o in graph.output]
        )
        fed = hashlib.blake2b(b"".join(_digest(name, feeds[name]) for name in sorted(feeds))).digest()
        keys = [b"".join((fed, *self._keys[: at + 1])) for at in range(len(self._stages))]
        again = fed in self._asked
        self._asked.add(fed)
        begin = 0 if again else next((at for at in reversed(range(1, len(keys))) if keys[at - 1] in _passed), 0)
        values: dict[str, Any] = _passed.get(keys[begin - 1]) if begin else {}
        wrapped = {name: wrap_array(array) for name, array in feeds.items()}
        for at in range(begin, len(keys)):
            stage = self._stages[at]
            entering = wrapped | {taken: values[name] for taken, name in stage.taken.items()}
            values = values | self._built[at].pass_on(entering)
            values = {name: values[name] for name in stage.passing}
            if at + 1 < len(keys):
                _passed.put(keys[at], values)
        return {name: unwrap_array(values[name]) for name in wanted}

    def close(self) -> None:
        self._built = []


class _Passed:
    """What passed between stages, the least recently used gone first."""

    def __init__(self) -> None:
        self._values: OrderedDict[bytes, tuple[dict[str, Any], int]] = OrderedDict()
        self.held = 0

    def __contains__(self, key: bytes) -> bool:
        return key in self._values

    def get(self, key: bytes) -> dict[str, Any]:
        self._values.move_to_end(key)
        return self._values[key][0]

    def put(self, key: bytes, values: dict[str, Any]) -> None:
        size = sum(external.byte_size(int(v.element_type()), v.shape()) for v in values.values())
        if size > VALUE or key in self._values:
            return
        self._values[key] = values, size
        self.held += size
        while self.held > PASSED:
            self.held -= self._values.popitem(last=False)[1][1]

    def clear(self) -> None:
        self._values.clear()
        self.held = 0


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
    return hashlib.blake2b(head + np.ascontiguousarray(array).tobytes()).digest()
