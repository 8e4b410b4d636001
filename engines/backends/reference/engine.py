"""reference: ONNX's evaluator in numpy, with operators of ours. Slow and literal; FP16, BF16 and
FP64 are really computed in those types."""

import contextlib
import functools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from narrowdown.engines import options
from narrowdown.engines.array import Array
from narrowdown.engines.backends import machine
from narrowdown.engines.backends.base import (
    BuildRequest,
    EngineFault,
    EngineInfo,
    check_names,
    list_capabilities,
)
from narrowdown.engines.backends.marks import with_outputs
from narrowdown.engines.backends.reference import DECLARATION
from narrowdown.engines.backends.reference.operators import IGNORED, OWN, WRONG
from narrowdown.engines.graph import ModelProblem, converted, external, load, names, protos
from narrowdown.engines.graph.standing_alone import standing_alone
from narrowdown.engines.graph.typed import to_float64, to_precision
from narrowdown.engines.spec import EngineSpec

_STORAGE = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp64": "float64"}
# Bytes of weights, in the type that is evaluated: beyond it the model is copied and read for
# minutes before a single value. In float64, which is made in memory at each run, half of it.
_LARGEST = 2 << 30
_CONVERSION = "7"  # changes when the conversion, or an operator below, changes what is computed


class Evaluation:
    """A model ready to be evaluated. ``run`` gives every graph output that is an array, by name."""

    def __init__(
        self,
        model: onnx.ModelProto,
        weights_dir: str,
        convert: Callable[[onnx.ModelProto], onnx.ModelProto],
        ours: Sequence[type[OpRun]],
    ) -> None:
        """``convert``: makes a model one of the precision that is evaluated; ``ours``: operators in
        place of ONNX's. Raises ``EngineFault``, and what ``convert`` raises."""
        self._given, self._convert = model, convert
        self.facts: Mapping[str, Any] = {}
        try:
            bare, self._weights = _bared(model, weights_dir)
        except ModelProblem as error:
            raise _make_fault(error, model, built=False) from error
        bare = convert(bare)
        self._inputs = {i.name: int(i.type.tensor_type.elem_type) for i in model.graph.input}
        self._outputs = [o.name for o in model.graph.output]
        try:
            load.check_names(model.graph)
        except ModelProblem as error:
            raise EngineFault("invalid-model", str(error)) from error
        _refuse_untrusted(model.graph)
        self._evaluator: Any
        try:
            with _quiet():
                outside = any(
                    map(external.is_external, external.initializers_with_bodies(bare.graph))
                )
                whole = standing_alone(bare, weights_dir) if outside else bare
                self._evaluator = ReferenceEvaluator(whole, new_ops=list(ours))
        except Exception as error:
            raise _make_fault(error, model, built=False) from error

    @functools.cached_property
    def model(self) -> onnx.ModelProto:
        """With its weights, written in the precision that is evaluated: asked for by those who save
        it. What is evaluated converts them in memory."""
        return self._convert(self._given)

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] = ()) -> dict[str, Array]:
        """Arrays by output name: ``outputs``, or all. Raises ``EngineFault``."""
        wanted = check_names(feeds, self._inputs, outputs, self._outputs)
        fed = {
            name: _convert_dtype(np.asarray(feeds[name]), kind)
            for name, kind in self._inputs.items()
        }
        try:
            with _quiet():
                values = self._evaluator.run(wanted, {**self._weights, **fed})
        except Exception as error:
            raise _make_fault(error, self._given, built=True) from error
        return {
            name: np.asarray(value)
            for name, value in zip(wanted, values, strict=True)
            if isinstance(value, np.ndarray | np.generic | int | float | bool | str)
        }

    def close(self) -> None:
        self._evaluator, self._weights = None, {}


class Engine:
    """The evaluator at one precision."""

    converts = True

    def __init__(self, info: EngineInfo, ours: Sequence[type[OpRun]]) -> None:
        self.info, self._ours = info, ours

    def build(self, request: BuildRequest) -> Evaluation:
        """Convert, and load the weights into memory. ``keep``: an island of FP32 in fp16 and bf16;
        fp32 and fp64 have nothing to keep. Raises ``EngineFault``."""
        model = with_outputs(request.model, request.marks)
        precision = self.info.precision
        _refuse_large(model, precision)

        def convert(bare: onnx.ModelProto) -> onnx.ModelProto:
            if precision in ("fp16", "bf16"):
                return to_precision(bare, precision, request.keep)
            return to_float64(bare) if precision == "fp64" else bare

        try:
            return Evaluation(model, request.weights_dir, convert, self._ours)
        except ModelProblem as error:
            raise EngineFault("unsupported", str(error)) from error


def make(spec: EngineSpec) -> Engine:
    """The engine of a spec. Raises ``ValueError`` for a wrong spec."""
    chosen = options.values(spec)
    precision: str = chosen["precision"]
    low = precision in ("fp16", "bf16")
    facts = {"conversion": _CONVERSION, "numpy": np.__version__}
    info = EngineInfo(
        name=spec.name,
        spec=str(spec),
        version=onnx.__version__,
        device=machine.cpu()[0],
        precision=precision,
        storage=_STORAGE[precision],
        fingerprint=machine.fingerprint(spec.name, onnx.__version__, chosen, "cpu", **facts),
        capabilities=list_capabilities(
            keep="" if low else f"in {precision} no node is below FP32: there is nothing to keep; use precision=fp16 or bf16.",
            optimizers="the evaluator computes every node as it is written.",
            tactics="the evaluator has one way to compute each operator.",
            rebuild="the evaluator always computes the same.",
            latency="how long it takes to compute this way says nothing about a real engine.",
            threads="the evaluator's threads are numpy's own.",
        ),
        options=DECLARATION.options,
        slots=machine.count_slots(1),
        typed=str(spec.with_option("precision", "fp32")),
    )  # fmt: skip
    return Engine(info, OWN if chosen["operators"] == "ours" else ())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Overflow and NaN are what is being looked for: numpy need not warn of them."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _refuse_untrusted(graph: onnx.GraphProto) -> None:
    """Raises ``EngineFault`` for a node that might be computed otherwise than it is written."""
    for node in names.all_nodes(graph.node):
        standard = node.domain in ("", "ai.onnx")
        if standard and node.op_type in WRONG:
            raise EngineFault(
                "unsupported",
                f"ONNX's evaluator is not trusted with the {node.op_type} '{node.name}'.",
            )
        attribute = IGNORED.get(node.op_type, "") if standard else ""
        if any(a.name == attribute and a.f for a in node.attribute):
            said = (
                f"ONNX's evaluator leaves out the {attribute} of the {node.op_type} '{node.name}'"
            )
            raise EngineFault("unsupported", f"{said}, so it does not compute this model.")


def _refuse_large(model: onnx.ModelProto, precision: str) -> None:
    """Raises ``EngineFault`` before anything is converted or read."""
    wide = {"fp64": 8, "fp32": 4}.get(precision, 2)
    most = _LARGEST // 2 if precision == "fp64" else _LARGEST
    size = sum(
        math.prod(t.dims) * wide
        for t in external.initializers_with_bodies(model.graph)
        if external.is_external(t)
    )
    if size > most:
        said = f"ONNX's evaluator holds all weights in memory; in {precision.upper()} this model's are {size / 2**30:.1f} GiB"
        raise EngineFault(
            "unsupported", f"{said}, more than the {most >> 30} GiB that it is used for."
        )


def _bared(model: onnx.ModelProto, weights_dir: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model with the weights that lie outside as inputs, and what these are fed, mapped:
    converted in memory like any input, and neither written once more nor held three times. Weights
    of bodies stay as they are."""
    outside = [t for t in model.graph.initializer if external.is_external(t)]
    if not outside:
        return model, {}
    bare = deepcopy(model)
    inside = [t for t in model.graph.initializer if not external.is_external(t)]
    protos.refill(bare.graph.initializer, inside)
    given = {i.name for i in model.graph.input}
    bare.graph.input.extend(
        onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims)
        for t in outside
        if t.name not in given
    )
    return bare, {t.name: converted.read(t, weights_dir) for t in outside}


def _convert_dtype(value: Array, kind: int) -> Array:
    """A feed in the input's element type, where both are floats: an FP64 model takes FP32
    values."""
    if kind not in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
        wanted = external.dtype_of(kind)
        if value.dtype != wanted and value.dtype.kind == "f" and wanted.kind == "f":
            return value.astype(wanted)
    return value


def _make_fault(error: Exception, model: onnx.ModelProto, built: bool) -> EngineFault:
    said = " ".join(str(error).split())[:400] or type(error).__name__
    said = said if said.endswith((".", "!", "?")) else f"{said}."
    if isinstance(error, MemoryError):
        return EngineFault("out-of-memory", f"ONNX's evaluator ran out of memory: {said}")
    if isinstance(error, ModelProblem | OSError | EOFError):
        return EngineFault("invalid-model", f"The weights cannot be read: {said}")
    if (
        isinstance(error, NotImplementedError)
        or "No registered implementation" in said
        or "not implemented" in said
    ):
        node = next((n for n in model.graph.node if f"'{n.op_type}'" in said), None)
        called = f" of the node '{node.name}'" if node is not None and node.name else ""
        named = (
            f"the operator {node.op_type}{called}"
            if node is not None
            else "an operator of this model"
        )
        return EngineFault("unsupported", f"ONNX's evaluator does not implement {named}: {said}")
    if built:
        return EngineFault("error", f"ONNX's evaluator failed: {said}")
    return EngineFault("build-failed", f"ONNX's evaluator could not load the model: {said}")
