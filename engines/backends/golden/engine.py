"""Golden outputs as a reference: what was recorded for a sample stands for a run of the whole model
on it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from narrowdown.engines import options
from narrowdown.engines.backends import machine
from narrowdown.engines.backends.base import (
    BuildRequest,
    Capability,
    EngineFault,
    EngineInfo,
    EngineMissing,
    Recorded,
)
from narrowdown.engines.backends.golden import DECLARATION
from narrowdown.engines.data import InputProblem, golden, held
from narrowdown.engines.data.golden_files import name_by_place
from narrowdown.engines.spec import EngineSpec

_NONE = Capability(False, "golden outputs were recorded: nothing is computed")


class _Run:
    """One sample's recorded values, as if the model had been run on it."""

    def __init__(
        self, model: onnx.ModelProto, values: Mapping[str, np.ndarray], row: int | None
    ) -> None:
        self.model = model
        self.facts: Mapping[str, Any] = {}
        self._values, self._row = values, row

    def run(
        self,
        feeds: Mapping[str, np.ndarray],  # noqa: ARG002
        outputs: Sequence[str] = (),
    ) -> dict[str, np.ndarray]:
        """What is recorded of the graph's outputs, in the types that the model declares; what is
        not is left out."""
        declared = {o.name: o.type.tensor_type.elem_type for o in self.model.graph.output}
        found: dict[str, np.ndarray] = {}
        for name in outputs or declared:
            if name not in self._values:
                continue
            value = self._values[name]
            if self._row is not None:
                value = value[self._row : self._row + 1]
            elem = declared.get(name, 0)
            found[name] = (
                _convert_dtype(value, onnx.helper.tensor_dtype_to_np_dtype(elem)) if elem else value
            )
        return found

    def close(self) -> None:
        self._values = {}


class Golden:
    """The recorded samples, in the order of the real inputs."""

    def __init__(self, info: EngineInfo, samples: Sequence[Mapping[str, np.ndarray]]) -> None:
        self.info, self._samples = info, samples

    def build(self, request: BuildRequest) -> _Run:
        """Raises ``EngineFault`` for a part of the model, and for a sample that was not
        recorded."""
        if request.part or not request.sample:
            raise EngineFault(
                "unsupported",
                "Golden outputs were recorded for the whole model; nothing is computed from them.",
            )
        name, _, row = request.sample.partition("/")
        kind, _, number = name.partition(":")
        if kind != "real" or int(number) >= len(self._samples):
            held = len(self._samples)
            raise EngineFault(
                "refused",
                f"Golden outputs were recorded for {held} inputs, and none of them is '{name}'; give the same inputs.",
            )
        outputs = [o.name for o in request.model.graph.output]
        values = {
            name_by_place(key, outputs): value for key, value in self._samples[int(number)].items()
        }
        return _Run(request.model, values, int(row) if row else None)


def make(spec: EngineSpec) -> Golden:
    """Read the files of the spec. Raises ``EngineMissing`` where they do not hold outputs."""
    chosen = options.values(spec)
    files = tuple(chosen["files"])
    if not files:
        raise EngineMissing(
            "Golden outputs are a reference, and need a file: --reference golden:OUTPUTS.npz."
        )
    renamed = dict(pair.split("=", 1) for pair in chosen["names"])
    try:
        read = golden.read(files, held.copy)
    except InputProblem as problem:
        raise EngineMissing(str(problem)) from problem
    samples = [
        {renamed.get(name, name): value for name, value in sample.items()} for sample in read
    ]
    digests = {file: held.digest(file) for file in files}
    info = EngineInfo(
        name=spec.name,
        spec=str(spec),
        version="",
        device="recorded",
        precision="fp32",
        storage="float32",
        fingerprint=machine.fingerprint(spec.name, "", chosen, "recorded", **digests),
        capabilities=dict.fromkeys(
            ("build", "run", "mark", "keep", "optimizers", "tactics", "rebuild", "threads"), _NONE
        ),
        options=DECLARATION.options,
        recorded=Recorded(
            len(samples), {name: tuple(value.shape) for name, value in samples[0].items()}
        ),
    )
    return Golden(info, samples)


def _convert_dtype(value: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """The value in the model's type where that is a float; floats in double precision lose digits
    that no engine has."""
    floats = value.dtype.kind in "fV" and (dtype.kind in "fV")
    return value.astype(dtype) if floats and value.dtype != dtype else value
