"""Drives step generators: by an oracle of invented answers, or by real workers' operations in this
process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.asking import Described, Note, StepContext
from narrowdown.engines.data import held
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import GraphIndex
from narrowdown.engines.probe import AnyProbe, Describe, Inspect, Measurement
from narrowdown.engines.problem import Problem
from narrowdown.engines.steps.base import Finish
from narrowdown.engines.steps.registry import STEPS
from narrowdown.engines.store import Store
from narrowdown.engines.views import view_engine
from narrowdown.wizard.demo import MODELS

from ...here import beside
from ..conftest import agreed

Oracle = Callable[[AnyProbe], Any]


class Walk(msgspec.Struct):
    finish: Finish[Any]
    probes: list[AnyProbe]
    notes: list[Note]


def tanh_chain(path: Path, length: int = 6) -> Path:
    """A model of ``layer0``, ``layer1`` and so on, one after the other."""
    nodes = [
        helper.make_node("Tanh", [f"t{i}"], [f"t{i + 1}"], name=f"layer{i}") for i in range(length)
    ]
    ends = [helper.make_tensor_value_info(f"t{i}", TensorProto.FLOAT, [2, 3]) for i in (0, length)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


@pytest.fixture
def answers() -> Any:
    return beside(Path(__file__).with_name("answers.py"))


@pytest.fixture(scope="session")
def tiny() -> Any:
    return beside(Path(__file__).parents[2] / "e2e" / "tiny.py")


@pytest.fixture(name="walk")
def walk_fixture() -> Callable[..., Walk]:
    return walk


def as_stored(tables: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(tables))


def walk(name: str, ctx: StepContext, oracle: Oracle) -> Walk:
    generator = STEPS[name].run(ctx)
    probes: list[AnyProbe] = []
    notes: list[Note] = []
    answer: Any = None
    while True:
        try:
            asked = generator.send(answer)
        except StopIteration as end:
            finish = end.value
            return Walk(
                msgspec.structs.replace(finish, tables=as_stored(finish.tables)), probes, notes
            )
        if isinstance(asked, Note):
            notes.append(asked)
            answer = None
        else:
            probes.append(asked)
            answer = oracle(asked)


class Session:
    """A session's measurements without a session: real engines, one process, answers kept by
    question."""

    def __init__(
        self, root: Path, model: Path, engine: str, inputs: tuple[Path, ...] = (), **problem: Any
    ) -> None:
        from narrowdown.engines.workers import operations

        self._execute, self.store = operations.execute_probe, Store(root)
        self.known: dict[str, Any] = {}
        self.problem = {"model": str(model), "inputs": tuple(map(str, inputs)), **problem}
        self.findings = Findings()
        self.engine = engine
        self.reference = "onnxruntime"
        self.info = self.ask(Inspect(engine=engine)).facts

    def ask(self, probe: AnyProbe) -> Any:
        key = repr(msgspec.to_builtins(probe))
        if key not in self.known:
            # What a test names it has agreed to.
            with held.under(agreed(probe)):
                m: Measurement = self._execute(probe, self.store, lambda _: None)
            self.known[key] = m
            if isinstance(probe, Describe) and m.status == "ok":
                index = msgspec.json.decode(self.store.get(m.artifacts["index"]), type=GraphIndex)
                self.known[key] = Described(index, m)
        return self.known[key]

    def context(self, **params: Any) -> StepContext:
        return StepContext(
            engine=self.engine,
            reference=self.reference,
            findings=self.findings,
            params=params,
            engine_info=view_engine(self.info),
            problem=msgspec.convert(self.problem, Problem),
        )

    def step(self, name: str, **params: Any) -> Walk:
        """Run a step on what the steps before it have found, and keep what it finds."""
        done = walk(name, self.context(**params), self.ask)
        self.findings = done.finish.findings
        return done


@pytest.fixture
def session(tmp_path: Path) -> Callable[..., Session]:
    """``session(name, engine)``: one of the committed models with its inputs."""

    def open_session(name: str, engine: str, *, inputs: bool = True, **problem: Any) -> Session:
        given = (MODELS / f"{name}_in.npz",) if inputs else ()
        return Session(tmp_path / "session", MODELS / f"{name}.onnx", engine, given, **problem)

    return open_session


@pytest.fixture
def open_model(tmp_path: Path) -> Callable[..., Session]:
    """``open_model(path, engine, inputs)``: any model file."""

    def open_any(
        model: Path, engine: str, inputs: tuple[Path, ...] = (), **problem: Any
    ) -> Session:
        return Session(tmp_path / "session", model, engine, inputs, **problem)

    return open_any
