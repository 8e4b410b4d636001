"""Sessions of real models, as a worker sees them: imported, with their inputs, ready for probes."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from narrowdown.engines.graph import GraphIndex, ranges
from narrowdown.engines.probe import (
    AnyProbe,
    Candidate,
    Describe,
    Import,
    LoadInputs,
    Measure,
    Measurement,
)
from narrowdown.engines.store import Store, digest_file
from narrowdown.engines.workers.operations import execute_probe
from narrowdown.wizard.demo import MODELS


class Session:
    def __init__(self, root: Path, model: Path, *inputs: Path) -> None:
        self.root = root
        self.store = Store(root)
        self.model = str(self.ok(Import(path=str(model), digest=digest_file(model))).facts["model"])
        made = self.ok(
            LoadInputs(
                model=self.model,
                sources=tuple(map(str, inputs)),
                source_digests=tuple(map(digest_file, inputs)),
                random=False,
            )
        )
        self.inputs = str(made.facts["inputs"])
        self.samples = made.facts["samples"]
        described = self.ok(
            Describe(model=self.model, sample="real:0", inputs=self.inputs, reference="onnxruntime")
        )
        self.index = msgspec.json.decode(
            self.store.get(described.artifacts["index"]), type=GraphIndex
        )

    def run(self, probe: AnyProbe) -> Measurement:
        return execute_probe(probe, self.store, lambda _: None)

    def ok(self, probe: AnyProbe) -> Measurement:
        measurement = self.run(probe)
        assert measurement.status == "ok", measurement.message
        return measurement

    def measure(
        self, engine: str, candidate: Candidate | None = None, **fields: object
    ) -> Measurement:
        return self.ok(self.probe(engine, candidate, **fields))

    def probe(self, engine: str, candidate: Candidate | None = None, **fields: object) -> Measure:
        probe = Measure(
            model=self.model,
            inputs=self.inputs,
            samples=("real:0",),
            engine=engine,
            reference="onnxruntime",
            candidate=candidate or Candidate(),
        )
        return msgspec.structs.replace(probe, **fields)

    def nodes(self, *ids: int) -> Candidate:
        return Candidate(nodes=ranges.encode(ids))

    def by_op(self, op: str) -> list[int]:
        return [n.id for n in self.index.nodes if n.op == op]


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Session]:
    """A session by model name, made once for all tests: probes do not change it."""
    made: dict[str, Session] = {}

    def get(name: str) -> Session:
        if name not in made:
            made[name] = Session(
                tmp_path_factory.mktemp(name, numbered=True),
                MODELS / f"{name}.onnx",
                MODELS / f"{name}_in.npz",
            )
        return made[name]

    return get


@pytest.fixture(scope="session")
def session_of() -> type[Session]:
    return Session
