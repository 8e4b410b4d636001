"""emulate: FP16 or BF16 storage on FP32 arithmetic. What a faultless engine of that precision would
give."""

import math
from copy import deepcopy

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
from narrowdown.engines.backends.emulate import DECLARATION
from narrowdown.engines.backends.marks import with_outputs
from narrowdown.engines.backends.onnxruntime.engine import Session, Settings
from narrowdown.engines.graph import ModelProblem, schema
from narrowdown.engines.graph.emulate import emulate_precision
from narrowdown.engines.graph.typed import to_rounded
from narrowdown.engines.spec import EngineSpec
from narrowdown.engines.store.memory import PIECE

TYPED = "typed"
_STORAGE = {"fp16": "float16", "bf16": "bfloat16", TYPED: "float32"}
_AS_TYPED = f"emulate:precision={TYPED}"
LITERAL = "onnxruntime"  # node by node, on one thread, as it is done here
_CONVERSION = "2"  # changes when the conversion changes what is computed
_LITERAL = Settings()  # any optimizer could remove the casts that round
# Without memory reuse a session of 581 nodes builds in 33 ms instead of 345, and holds every
# activation at once.
_FAST = Settings(reuse=False)


class Engine:
    """ONNX Runtime, literal, on the model with a pair of casts behind every result."""

    converts = True

    def __init__(self, info: EngineInfo) -> None:
        self.info = info

    def build(self, request: BuildRequest) -> Session:
        """Convert and make a session. ``keep``: nodes whose results stay FP32. ``untouched`` among
        its facts: nothing in the model is in FP32, so nothing was rounded. Raises
        ``EngineFault``."""
        try:
            marked = with_outputs(_state_types(request.model, request.weights_dir), request.marks)
            if self.info.spec == _AS_TYPED:
                model = to_rounded(marked)
            else:
                model = emulate_precision(marked, self.info.precision, request.keep)
        except ModelProblem as error:
            raise EngineFault("unsupported", str(error)) from error
        made = Session(model, request.weights_dir, _choose_settings(request, model))
        if self.info.spec != _AS_TYPED and not request.keep and model == marked:
            made.facts = {**made.facts, "untouched": True}
        return made


def _state_types(model: onnx.ModelProto, weights_dir: str) -> onnx.ModelProto:
    """The model, stating also the element types that follow from operators that ONNX does not know:
    what has no type would stay unrounded. Raises ``EngineFault``."""
    known = schema.element_types(model)
    missing = [
        name for node in model.graph.node for name in node.output if name and name not in known
    ]
    if not missing:
        return model
    asked = Session(with_outputs(model, missing), weights_dir, _LITERAL)
    types = asked.types
    asked.close()
    stated = deepcopy(model)
    for name in missing:
        if types.get(name) == "tensor(float)":
            stated.graph.value_info.add(
                name=name
            ).type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return stated


def _choose_settings(request: BuildRequest, model: onnx.ModelProto) -> Settings:
    fed = sum(4 * math.prod(shape) for shape in request.feed_shapes.values())
    activations = fed * len(model.graph.node)  # bytes, a guess
    return _FAST if activations <= PIECE else _LITERAL


def make(spec: EngineSpec) -> Engine:
    """The engine of a spec. Raises ``ValueError`` for a wrong spec."""
    precision: str = options.values(spec)["precision"]
    facts = {"precision": precision, **_LITERAL.facts()}
    info = EngineInfo(
        name=spec.name,
        spec=str(spec),
        version=ort.__version__,
        device=machine.cpu()[0],
        precision="fp32" if precision == TYPED else precision,
        storage=_STORAGE[precision],
        fingerprint=machine.fingerprint(
            spec.name, ort.__version__, facts, "cpu", conversion=_CONVERSION
        ),
        capabilities=list_capabilities(
            keep="the file says which nodes are in FP32." if precision == TYPED else "",
            optimizers="the emulation runs with all optimizers off: they could remove the rounding.",
            tactics="the emulation has one way to compute each operator.",
            rebuild="the emulation builds the same from the same model every time.",
            latency="how long it takes to compute this way says nothing about a real engine.",
            threads="the emulation runs on one thread, so that its numbers never vary.",
        ),
        options=DECLARATION.options,
        slots=machine.count_slots(1),
        typed=_AS_TYPED,
        kept_whole="" if precision == TYPED else LITERAL,
    )
    return Engine(info)
