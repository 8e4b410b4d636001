"""drift in a worker."""

from collections.abc import Mapping, Sequence
from typing import Any

import drift
import numpy as np
import onnx

from narrowdown.engines import options
from narrowdown.engines.backends import machine
from narrowdown.engines.backends.base import BuildRequest, Capability, EngineFault, EngineInfo
from narrowdown.engines.backends.marks import with_outputs
from narrowdown.engines.spec import EngineSpec
from narrowdown_drift import DECLARATION


def fault(status: str, error: Exception) -> EngineFault:
    said = " ".join(str(error).split())[:300].rstrip(".")
    return EngineFault(status, f"The engine drift gave up: {said or type(error).__name__}.")


class Build:
    def __init__(self, model: onnx.ModelProto, weights_dir: str, tanh: str) -> None:
        self.model = model
        self.facts: Mapping[str, Any] = {}
        whole = onnx.ModelProto()
        whole.CopyFrom(model)
        try:
            onnx.load_external_data_for_model(whole, weights_dir)
            self._engine: Any = drift.load(whole, tanh)
        except NotImplementedError as error:
            raise fault("unsupported", error) from error
        except Exception as error:
            raise fault("build-failed", error) from error

    def run(
        self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        if self._engine is None:
            raise EngineFault("refused", "This build was closed.")
        known = [o.name for o in self.model.graph.output]
        for name in (i.name for i in self.model.graph.input):
            if name not in feeds:
                raise EngineFault("refused", f"The input '{name}' was not fed.")
        for name in outputs:
            if name not in known:
                raise EngineFault("refused", f"The model has no output '{name}'.")
        wanted = list(outputs) or known
        try:
            values = self._engine.run(wanted, dict(feeds))
        except NotImplementedError as error:
            raise fault("unsupported", error) from error
        except Exception as error:
            raise fault("error", error) from error
        return {
            n: np.asarray(v) for n, v in zip(wanted, values, strict=True) if not isinstance(v, list)
        }

    def close(self) -> None:
        self._engine = None


class Engine:
    def __init__(self, info: EngineInfo, tanh: str) -> None:
        self.info = info
        self._tanh = tanh

    def build(self, request: BuildRequest) -> Build:
        return Build(with_outputs(request.model, request.marks), request.weights_dir, self._tanh)


def make(spec: EngineSpec) -> Engine:
    chosen = options.values(spec)
    no = Capability(False, "drift computes every node as it is written, in one way.")
    info = EngineInfo(
        name=spec.name,
        spec=str(spec),
        version=drift.__version__,
        device=machine.cpu()[0],
        precision="fp32",
        storage="float32",
        fingerprint=machine.fingerprint(spec.name, drift.__version__, chosen, "cpu"),
        capabilities={name: Capability(True) for name in ("build", "run", "mark")}
        | dict.fromkeys(("keep", "optimizers", "tactics", "rebuild", "threads"), no),
        options=DECLARATION.options,
    )
    return Engine(info, chosen["tanh"])
