"""fake: ONNX Runtime, literal, with a fault that is told what to be. For tests of workers, steps
and whole sessions.

Where a build holds a node of every operator in ``ops`` and every name in ``nodes``, and its draw
comes up (``rate``), the fault happens. ``wrong`` multiplies the float results of the last of those
nodes by 1 + ``size``, so that the error travels as a real one would; ``shifted`` adds ``size`` to
them, as a converter does that changes an epsilon. ``stale`` leaves the last row of an output as the
run before left it; ``rows`` multiplies all rows but the first by 1 + ``size``.
"""

import hashlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import msgspec
import numpy as np
import onnx
import onnxruntime as ort

from fake_engine import DECLARATION
from narrowdown.engines import options
from narrowdown.engines.array import Array
from narrowdown.engines.backends import machine
from narrowdown.engines.backends.base import (
    BuildRequest,
    EngineFault,
    EngineInfo,
    list_capabilities,
)
from narrowdown.engines.backends.marks import with_outputs
from narrowdown.engines.backends.onnxruntime.engine import Session, Settings
from narrowdown.engines.data.tactic_replay import canonical_algorithm
from narrowdown.engines.graph import names, schema
from narrowdown.engines.spec import EngineSpec
from narrowdown.engines.store.memory import PIECE


class Fault(msgspec.Struct, frozen=True):
    """The options, typed."""

    fault: str
    at: str
    ops: tuple[str, ...]
    nodes: tuple[str, ...]
    size: float
    also: tuple[str, ...]
    rate: float
    per: str
    seed: int
    marks: str
    seconds: float
    mib: int
    tactics: int
    bad: int
    gpus: int
    level: int
    building: float

    def place(self, graph: onnx.GraphProto) -> int:
        """The position of the last node that the fault needs; -1 where one is missing. With no
        condition: the last node."""
        placed = [
            max((i for i, n in enumerate(graph.node) if n.op_type == op), default=-1)
            for op in self.ops
        ]
        placed += [
            max((i for i, n in enumerate(graph.node) if n.name == name), default=-1)
            for name in self.nodes
        ]
        return -1 if -1 in placed else max(placed, default=len(graph.node) - 1)

    def splits(self, graph: onnx.GraphProto) -> bool:
        """Whether its nodes are not joined: what one makes and another reads is an output of the
        model, or there is none such, as another node stands between."""
        ours = [n for n in graph.node if n.op_type in self.ops or n.name in self.nodes]
        between = {t for n in ours for t in n.output} & {t for n in ours for t in n.input}
        return (
            not between
            if self.marks == "parted"
            else bool(between & {o.name for o in graph.output})
        )

    def bend_also(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """The model with the further nodes that it has made wrong; itself where it has none."""
        for name, size in (text.rsplit("*", 1) for text in self.also):
            at = next((i for i, n in enumerate(model.graph.node) if n.name == name), -1)
            if at >= 0:
                model = bend_node(
                    model, at, msgspec.structs.replace(self, fault="wrong", size=float(size))
                )
        return model

    def drawn(self, attempt: int, run: int) -> bool:
        """Whether it happens this time: the same for the same seed, attempt and (``per=run``)
        run."""
        text = f"{self.seed}/{attempt}/{run if self.per == 'run' else 0}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7]) / 256**7 < self.rate

    def choices(
        self, graph: onnx.GraphProto, request: BuildRequest
    ) -> tuple[dict[str, str], list[str]]:
        """(choice by node name, nodes whose forced choice was not offered): drawn by seed, attempt
        and name, unless told."""
        made: dict[str, str] = {}
        refused: list[str] = []
        for name in (n.name for n in graph.node):
            offered = [write_kernel(k) for k in range(self.tactics)]
            free = [c for c in offered if c not in request.forbid.get(name, ())] or offered
            digest = hashlib.sha256(f"{self.seed}/{request.attempt}/{name}".encode()).digest()
            made[name] = free[digest[0] % len(free)]
            if wanted := request.force.get(name):
                made[name], refused = (
                    (wanted, refused) if wanted in offered else (made[name], [*refused, name])
                )
        return made, refused

    def chosen_badly(self, graph: onnx.GraphProto, choices: Mapping[str, str]) -> bool:
        """Whether all nodes that the fault needs chose the bad kernel."""
        needed = [n.name for n in graph.node if n.op_type in self.ops or n.name in self.nodes]
        return all(choices.get(name) == write_kernel(self.bad) for name in needed)


def write_kernel(number: int) -> str:
    """A choice as TensorRT's are written, with nothing to tell but its number."""
    return canonical_algorithm({"implementation": 0, "tactic": number, "inputs": [], "outputs": []})


class Faulty:
    """A right and a wrong session, each made once it is wanted; each run takes the one that its
    draw says."""

    def __init__(self, request: BuildRequest, fault: Fault) -> None:
        self.model = with_outputs(request.model, request.marks)
        self.facts: Mapping[str, Any] = {}
        self._fault, self._attempt, self._runs = fault, request.attempt, 0
        self._left: dict[str, Array] = {}  # what the last run computed
        place = fault.place(self.model.graph)
        watched = (fault.marks == "cure" and request.marks) or (
            fault.marks in ("split", "parted") and fault.splits(self.model.graph)
        )
        self._armed = fault.fault != "none" and place >= 0 and not watched
        if fault.tactics:
            choices, refused = fault.choices(self.model.graph, request)
            self._armed = self._armed and fault.chosen_badly(self.model.graph, choices)
            self.facts = {"choices": choices, "refused": refused} if request.record else {}
        if self._armed and fault.at == "build" and fault.drawn(request.attempt, 0):
            strike_process(fault)
        bent = fault.bend_also(self.model)
        if self._armed and fault.fault in ("wrong", "shifted"):
            bent = bend_node(bent, fault.place(bent.graph), fault)
        self._armed = self._armed or bent is not self.model
        self._models, self._weights_dir = {False: self.model, True: bent}, request.weights_dir
        self._sessions: dict[bool, Session] = {}
        self._session(self._hits())

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] = ()) -> dict[str, Array]:
        hit = self._hits()
        self._runs += 1
        if hit:
            strike_process(self._fault)
        given = self._session(hit).run(feeds, outputs)
        return self._spoil(given) if hit and self._fault.fault in ("stale", "rows") else given

    def _hits(self) -> bool:
        """Whether the next run is struck."""
        return (
            self._armed and self._fault.at == "run" and self._fault.drawn(self._attempt, self._runs)
        )

    def _session(self, wrong: bool) -> Session:
        if not self._models:
            raise EngineFault("refused", "This session was closed.")
        bent = wrong and self._models[True] is not self.model
        if bent not in self._sessions:
            self._sessions[bent] = Session(self._models[bent], self._weights_dir, Settings())
        return self._sessions[bent]

    def _spoil(self, given: dict[str, Array]) -> dict[str, Array]:
        left, self._left = self._left, given
        spoilt = {name: np.array(value) for name, value in given.items()}
        for name, value in spoilt.items():
            if self._fault.fault == "rows" and value.ndim:
                value[1:] *= 1 + self._fault.size
            elif name in left and left[name].shape == value.shape:
                value[-1:] = left[name][-1:]
        return spoilt

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._models = {}


class Engine:
    def __init__(self, info: EngineInfo, fault: Fault) -> None:
        self.info = info
        self._fault = fault
        self._cold = fault.level > 1

    def build(self, request: BuildRequest) -> Faulty:
        """Raises ``EngineFault``; may do worse, as told."""
        if self._cold and self._fault.building:
            time.sleep(self._fault.building)
        self._cold = False
        return Faulty(request, self._fault)


def make(spec: EngineSpec) -> Engine:
    """The engine of a spec. Raises ``ValueError`` for a wrong spec."""
    chosen = options.values(spec)
    try:
        fault = msgspec.convert({**chosen, "size": float(chosen["size"])}, Fault)
    except ValueError:
        raise ValueError(f"fake: size={chosen['size']} is not a number.") from None
    rebuild = bool(fault.tactics) or (fault.rate < 1 and fault.per == "build")
    absent = "the fake engine has none."
    info = EngineInfo(
        name=spec.name,
        spec=str(spec),
        version=ort.__version__,
        device=machine.cpu()[0],
        precision="fp32",
        storage="float32",
        fingerprint=machine.fingerprint(spec.name, ort.__version__, chosen, "cpu"),
        capabilities=list_capabilities(
            keep="the fake engine ignores precision.",
            optimizers=absent,
            tactics="" if fault.tactics else absent,
            rebuild="" if rebuild else "this fake engine builds the same each time.",
            threads=absent,
        ),
        options=DECLARATION.options,
        slots=machine.count_slots(1),
        gpus=fault.gpus,
        rebuilt=chosen["rebuilt"],
    )
    return Engine(info, fault)


def bend_node(model: onnx.ModelProto, place: int, fault: Fault) -> onnx.ModelProto:
    """A copy in which the float results of the node at ``place`` are multiplied by 1 + the fault's
    size, or are larger by it."""
    copy = deepcopy(model)
    graph = copy.graph
    types = schema.element_types(copy)
    fresh = names.Fresh(names.used(graph))
    operand = fresh("fake__operand")
    op, value = (
        ("Add", fault.size)
        if fault.fault == "shifted"
        else ("Mul", np.float32(1) + np.float32(fault.size))
    )
    graph.initializer.append(onnx.numpy_helper.from_array(np.array(value, np.float32), operand))
    added = []
    node = graph.node[place]
    for i, name in enumerate(node.output):
        if name and types.get(name) == onnx.TensorProto.FLOAT:
            node.output[i] = fresh(f"{name}__right")
            added.append(
                onnx.helper.make_node(
                    op, [node.output[i], operand], [name], name=fresh(f"fake__fault_of_{name}")
                )
            )
    later = [*graph.node][place + 1 :]
    del graph.node[place + 1 :]
    graph.node.extend([*added, *later])
    return copy


def strike_process(fault: Fault) -> None:
    """What a fault other than ``wrong`` and ``shifted`` does to this process: it ends it, keeps it
    waiting, or raises ``MemoryError`` or ``EngineFault``."""
    match fault.fault:
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "abort":
            os.abort()
        case "exit":
            os._exit(3)
        case "hang":
            time.sleep(fault.seconds)
        case "memory":
            held = [np.ones(PIECE, np.uint8) for _ in range(max(1, fault.mib // 8))]
            raise MemoryError(f"{len(held)} blocks were not enough.")
        case "out-of-memory" | "build-failed" | "invalid-model" | "error":
            raise EngineFault(fault.fault, f"The fake engine was told to end with {fault.fault}.")
