"""FP16 by the emulation, where that is an order or it is built for more than is fed; in FP32
ReduceLogSumExp by its plain formula, as the engine that it is like computes it
(NVIDIA/TensorRT#4772)."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from narrowdown.engines import options
from narrowdown.engines.backends import machine
from narrowdown.engines.backends.base import (
    BuildRequest,
    EngineFault,
    EngineInfo,
    list_capabilities,
)
from narrowdown.engines.backends.emulate.engine import make as make_emulation
from narrowdown.engines.backends.marks import with_outputs
from narrowdown.engines.backends.onnxruntime.engine import Session, Settings
from narrowdown.engines.graph import schema
from narrowdown.engines.spec import EngineSpec, parse

from . import DECLARATION


class Engine:
    converts = True

    def __init__(self, info: EngineInfo, chosen: Mapping[str, Any]) -> None:
        self.info, self._refuses = info, chosen["refuses"]
        narrowed = chosen["profile"] == "twice" or chosen["constraints"] == "always"
        self._wide = not (chosen["typing"] == "strong" or (narrowed and chosen["narrow"]))
        self._emulation = make_emulation(parse("emulate:precision=fp16"))

    def build(self, request: BuildRequest) -> Session:
        """Raises ``EngineFault``."""
        if self.info.precision == "fp32" or self._wide:
            plain = write_plainly(with_outputs(request.model, request.marks))
            return Session(plain, request.weights_dir, Settings())
        for i, node in enumerate(request.model.graph.node):
            if node.op_type in self._refuses and i not in request.keep:
                raise EngineFault("build-failed", "A recurrent layer takes no Half here.")
        return self._emulation.build(request)


def write_plainly(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which the sum of exponents is taken as it is written."""
    changed = deepcopy(model)
    nodes = []
    for node in changed.graph.node:
        if node.op_type != "ReduceLogSumExp":
            nodes.append(node)
            continue
        out = node.output[0]
        axes = list(node.input[1:2])
        if (stated := schema.attribute_value(node, "axes")) is not None:
            axes = [f"{out}__axes"]
            changed.graph.initializer.append(
                onnx.numpy_helper.from_array(np.asarray(stated, np.int64), axes[0])
            )
        keep = schema.attribute_value(node, "keepdims", 1)
        make = onnx.helper.make_node
        nodes += [
            make("Exp", [node.input[0]], [f"{out}__exp"]),
            make("ReduceSum", [f"{out}__exp", *axes], [f"{out}__sum"], keepdims=keep),
            make("Log", [f"{out}__sum"], [out], name=node.name),
        ]
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    return changed


def make(spec: EngineSpec) -> Engine:
    """The engine of a spec. Raises ``ValueError`` for a wrong spec."""
    chosen = options.values(spec)
    half = chosen["precision"] == "fp16"
    none = "it has none."
    info = EngineInfo(
        name=spec.name,
        spec=str(spec),
        version="10.6.0",
        device=machine.cpu()[0],
        precision="fp16" if half else "fp32",
        storage="float16" if half else "float32",
        fingerprint=machine.fingerprint(spec.name, ort.__version__, chosen, "cpu"),
        capabilities=list_capabilities(
            keep="" if half else "everything is in FP32.",
            optimizers=none,
            tactics=none,
            rebuild="it builds the same each time.",
            threads=none,
        ),
        options=DECLARATION.options,
        slots=machine.count_slots(1),
    )
    return Engine(info, chosen)
