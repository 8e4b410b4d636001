"""Built engines kept warm: asking one more sample of the same build costs a run, not a build.
Bounded; closed when let go."""

import contextlib
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from onnx import ModelProto

from narrowdown.engines.backends.base import BuildRequest, Built, Engine, EngineFault
from narrowdown.engines.graph import ModelProblem, converted, external
from narrowdown.engines.store import memory
from narrowdown.engines.store.memory import HELD

T = TypeVar("T")

# Values of one kind that are kept, and bytes of them, while another is made. A search asks the same
# build again at once or not at all, so a large model gains nothing by a second one.
MOST = 4
# Bytes of one kind that stay where another engine is asked. Four kinds are kept: a sixteenth of the
# memory in all. With a quarter the weights of an emulation lay beside those of each judge.
_HEAVY = memory.machine() // 64
_served = [""]
_everything: "weakref.WeakSet[Kept[Any]]" = weakref.WeakSet()


class Kept(Generic[T]):
    """Values by key; the least recently used go first and are closed through ``close``.

    Before another is made, values go until fewer than ``most`` are left that weigh no more than
    ``HELD`` together: a build of a large model stays while it is asked again, and is gone
    before the next one needs its memory.
    """

    def __init__(
        self,
        close: Callable[[T], None] = lambda _: None,
        weigh: Callable[[T], int] = lambda _: 0,
        most: int = 0,
    ) -> None:
        """``most``: 0 stands for ``MOST``."""
        self._close, self._weigh, self._most = close, weigh, most or MOST
        self._values: OrderedDict[bytes, tuple[T, int]] = OrderedDict()
        _everything.add(self)

    def get(self, key: bytes, make: Callable[[], T]) -> T:
        """The value under this key, made if need be. What finds no memory is tried again once
        nothing at all is kept, here or elsewhere in the process."""
        if key in self._values:
            self._values.move_to_end(key)
            return self._values[key][0]
        self.let_go(self._most - 1, HELD)
        try:
            value = make()
        except (EngineFault, MemoryError) as error:
            if isinstance(error, EngineFault) and error.status != "out-of-memory":
                raise
            if not sum(len(kept) for kept in _everything):
                raise
            clear_all()
            value = make()
        self._values[key] = (value, self._weigh(value))
        return value

    def let_go(self, most: int, heaviest: int) -> None:
        """Until no more than ``most`` are left, which weigh no more than ``heaviest`` together."""
        while (
            len(self._values) > most
            or sum(weight for _, weight in self._values.values()) > heaviest
        ):
            self._close(self._values.popitem(last=False)[1][0])

    def __len__(self) -> int:
        return len(self._values)

    def clear(self) -> None:
        self.let_go(0, 0)


def serve(who: str) -> None:
    """Begin to answer for an engine and a reference: what is heavy and was made for others goes,
    all over the process, before either takes memory. What is asked again at once stays, whatever it
    weighs."""
    if who != _served[-1]:
        for kept in list(_everything):
            kept.let_go(len(kept), _HEAVY)
    _served[:] = [who]


def clear_all() -> None:
    """Close all that this process keeps warm."""
    for kept in list(_everything):
        kept.clear()


def weigh_built(model: ModelProto) -> int:
    """Bytes that a build of the model may hold: its weights in files, and the numbers in the nodes
    of a classical model (``ai.onnx.ml``). Of a tree ensemble of 131 MB ONNX Runtime was measured to
    hold nine times the file."""
    classical = any(node.domain == "ai.onnx.ml" for node in model.graph.node)
    return external.outside_bytes(model) + (9 * int(model.ByteSize()) if classical else 0)


def build(engine: Engine, request: BuildRequest) -> Built:
    """Build, with a file for each weight that the model names, but for engines of ours that see to
    converted ones themselves (``converts``): they make the values in memory, or convert the model
    further and need other files. Raises ``EngineFault``."""
    if not getattr(engine, "converts", False):
        write_weights(request.model, request.weights_dir)
    return engine.build(request)


def write_weights(model: ModelProto, weights_dir: str, title: str = "") -> None:
    """Make the files of converted weights that the model names. ``title``: in front of what is
    wrong. Raises ``EngineFault``."""
    try:
        converted.write_files(external.initializers_with_bodies(model.graph), weights_dir)
    except ModelProblem as error:
        raise EngineFault("invalid-model", f"{title}{error}") from error


def close_built(built: Built) -> None:
    """Close a built engine; an engine that objects has no say any more."""
    with contextlib.suppress(Exception):
        built.close()
