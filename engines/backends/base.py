"""The contract that every engine fulfils. Build and run are separate; what an engine cannot do is a
capability with a reason.

An engine lives in a worker process only. It is given a *cut* model (plain ONNX, weights external,
original types) and the set of nodes to keep in higher precision, and does to it what its options
say.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
import onnx

from narrowdown.engines.declaration import Option
from narrowdown.engines.views import Capability, EngineInfo, Recorded

__all__ = [
    "BuildRequest", "Built", "Capability", "Engine", "EngineFault", "EngineInfo", "EngineMissing", "Option", "Recorded",
    "check_names", "choose_fault", "list_capabilities",
]  # fmt: skip


def list_capabilities(**lacks: str) -> dict[str, Capability]:
    """Build, run and mark, and each that is named here: present where the reason why it is not is
    empty. ``_`` is a hyphen."""
    plain = dict.fromkeys(("build", "run", "mark"), Capability(True))
    return plain | {what.replace("_", "-"): Capability(not why, why) for what, why in lacks.items()}


class EngineFault(Exception):
    """An engine said no. ``status`` becomes the measurement's; the message is one sentence with the
    engine's own last line. ``model``: what it was given, where that is not the request's own."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        # build-failed | invalid-model | unsupported | out-of-memory | refused | error | crash, of a
        # program with its ``signal``
        self.status = status
        self.signal = 0
        self.model: onnx.ModelProto | None = None
        self.words: tuple[str, ...] = ()  # of the message, as ``engines.compare.refusal`` has them


def choose_fault(*cases: tuple[object, str, str]) -> tuple[str, str]:
    """(status, what the engine did) of the first case that holds."""
    return next((status, what) for holds, status, what in cases if holds)


def check_names(
    feeds: Mapping[str, np.ndarray],
    inputs: Iterable[str],
    outputs: Sequence[str],
    known: Iterable[str],
) -> list[str]:
    """The outputs to give: those that are asked for, or all that are ``known``. Raises
    ``EngineFault`` for an input that is not fed, and for an output that is not known."""
    if missing := [name for name in inputs if name not in feeds]:
        raise EngineFault("refused", f"The input '{missing[0]}' was not fed.")
    every = list(known)
    if unknown := [name for name in outputs if name not in every]:
        raise EngineFault("refused", f"The model has no output '{unknown[0]}'.")
    return list(outputs) or every


class EngineMissing(Exception):
    """The engine cannot be imported or has no device; the message says how to get it (exit code
    4)."""


class BuildRequest(msgspec.Struct, frozen=True):
    """What to build. ``model`` refers to external weights in ``weights_dir`` (a folder that holds
    the files its tensors name).

    ``keep``: indices into ``model.graph.node`` to keep in FP32. ``marks``: names of tensors to make
    readable beside the graph outputs (already graph outputs of ``model`` for engines whose only way
    is that). ``feed_shapes``: shapes of the inputs that will be run, the largest; ``least_shapes``:
    the smallest, on engines that span. ``attempt`` above 0 is a repetition: nothing that an earlier
    build learned may decide it.

    ``part``: a piece of the user's model, or an edited copy of it, which may lack what its options
    are about.

    Engines that choose kernels by timing: with ``record`` the build's ``facts`` hold its choices by
    layer; ``force`` makes the choice of a layer, ``forbid`` names choices that it may not make.
    ``say`` is told how far a long build is. ``sample``: whose values are wanted of an engine that
    has recorded them.
    """

    model: onnx.ModelProto
    weights_dir: str
    keep: frozenset[int] = frozenset()
    marks: tuple[str, ...] = ()
    feed_shapes: Mapping[str, tuple[int, ...]] = {}
    least_shapes: Mapping[str, tuple[int, ...]] = {}
    attempt: int = 0
    part: bool = False
    record: bool = False
    force: Mapping[str, str] = {}
    forbid: Mapping[str, tuple[str, ...]] = {}
    say: Callable[[str], None] | None = None
    sample: str = ""


class Built(Protocol):
    """A runnable engine. ``run`` returns every graph output by name (and the marks that it can give
    out). Freed with ``close``.

    ``facts``: what is known of the build, as plain data; ``choices`` and ``refused`` where tactics
    were recorded or forced, ``unobservable`` (tensor -> why) for marks that it cannot give out,
    ``digest`` of what was built, where that tells one build from another. Where there is a method
    ``save``, it gives what a case needs beside the model: bytes by the name of a file.
    """

    model: onnx.ModelProto  # what really ran: casts in
    facts: Mapping[str, Any]

    def run(
        self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] = ()
    ) -> dict[str, np.ndarray]: ...

    def close(self) -> None: ...


class Engine(Protocol):
    """One engine with its options. Made by ``engines.backends.make(spec)``; raises EngineMissing
    there."""

    info: EngineInfo

    def build(self, request: BuildRequest) -> Built:
        """Raises EngineFault."""
        ...
