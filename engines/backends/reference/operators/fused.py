"""Operators of ONNX Runtime's own domain, ``com.microsoft``, that its optimizers and exporters
write into models: what several standard operators do, in one. ONNX's evaluator knows none of them.

What is right is what ONNX Runtime's ContribOperators page says of each; they compute in float64 and
give what their inputs are.
"""

import math
from typing import Any

import numpy as np
from onnx import NodeProto, helper
from onnx.reference.op_run import OpRun

from narrowdown.engines.backends.reference.operators.base import Array
from narrowdown.engines.backends.reference.operators.convolution import Conv

DOMAIN = "com.microsoft"


class Fed(dict[str, Array | None]):
    """What a node is fed, by the names that the page gives its inputs."""

    def need(self, name: str) -> Array:
        """Raises ``NotImplementedError`` where the node leaves the input out."""
        value = self.get(name)
        if value is None:
            raise NotImplementedError(f"Without its input '{name}' it is not implemented here.")
        return value


class Contrib(OpRun):  # type: ignore[misc]
    """No schema is known here: attributes are those that the node has (``given``), else what the
    page says of each. ``inputs``: names of those of an operator that has many."""

    op_domain = DOMAIN
    inputs: tuple[str, ...] = ()

    def __init__(self, node: NodeProto, run_params: dict[str, Any]) -> None:
        self.given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        super().__init__(node, run_params)

    def _run(self, *inputs: Array | None, **_: Any) -> tuple[Array, ...]:
        if not self.inputs:
            return self.compute(*inputs)
        if len(inputs) > len(self.inputs):
            self.refuse(f"{len(inputs)} inputs")
        return self.compute_fed(Fed(zip(self.inputs, inputs, strict=False)))

    def compute(self, *inputs: Array | None) -> tuple[Array, ...]:
        raise NotImplementedError

    def compute_fed(self, fed: Fed) -> tuple[Array, ...]:
        raise NotImplementedError

    def number(self, name: str, default: float) -> float:
        return float(self.given.get(name, default))

    def refuse(self, what: str) -> None:
        """Raises ``NotImplementedError``: the judge abstains, and says for which node."""
        name = self.onnx_node.name or self.onnx_node.output[0]
        raise NotImplementedError(
            f"{self.onnx_node.op_type} '{name}' with {what} is not implemented here."
        )


def wide(value: Array) -> Array:
    return np.asarray(value, np.float64)


def erf(x: Array) -> Array:
    return np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size).reshape(x.shape)


def gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + erf(x / math.sqrt(2))))


def gelu_by_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(x / 2)))  # no exponential that could overflow


class Gelu(Contrib):
    def compute(self, x: Array) -> tuple[Array]:  # type: ignore[override]
        return (gelu(wide(x)).astype(x.dtype),)


class FastGelu(Contrib):
    def compute(self, x: Array, bias: Array | None = None) -> tuple[Array]:  # type: ignore[override]
        return (gelu_by_tanh(wide(x) + (0 if bias is None else wide(bias))).astype(x.dtype),)


class BiasGelu(Contrib):
    def compute(self, x: Array, bias: Array) -> tuple[Array]:  # type: ignore[override]
        return (gelu(wide(x) + wide(bias)).astype(x.dtype),)


class QuickGelu(Contrib):
    def compute(self, x: Array) -> tuple[Array]:  # type: ignore[override]
        return ((wide(x) * sigmoid(self.number("alpha", 1.702) * wide(x))).astype(x.dtype),)


class FusedMatMul(Contrib):
    """``transA`` and ``transB`` exchange the last two dimensions; ``transBatchA``, ``transBatchB``
    are left to others."""

    def compute(self, a: Array, b: Array) -> tuple[Array]:  # type: ignore[override]
        if self.given.get("transBatchA") or self.given.get("transBatchB"):
            self.refuse("batches transposed")
        left, right = (
            np.swapaxes(v, -1, -2) if self.given.get(name) and v.ndim > 1 else v
            for name, v in (("transA", wide(a)), ("transB", wide(b)))
        )
        return (np.asarray(self.number("alpha", 1.0) * np.matmul(left, right)).astype(a.dtype),)


class SkipLayerNormalization(Contrib):
    centred = True

    def compute(  # type: ignore[override]
        self,
        x: Array,
        skip: Array,
        gamma: Array,
        beta: Array | None = None,
        bias: Array | None = None,
    ) -> tuple[Array, ...]:
        total = wide(x) + wide(skip) + (0 if bias is None else wide(bias))
        mean = (
            total.mean(axis=-1, keepdims=True) if self.centred else np.zeros((*total.shape[:-1], 1))
        )
        spread = ((total - mean) ** 2).mean(axis=-1, keepdims=True)
        inverse = 1 / np.sqrt(spread + self.number("epsilon", 1e-12 if self.centred else 0.0))
        made = (total - mean) * inverse * wide(gamma) + (0 if beta is None else wide(beta))
        # The second and the third are for training; what is not asked for is cut off.
        found = (
            made.astype(x.dtype),
            mean.astype(np.float32),
            inverse.astype(np.float32),
            total.astype(x.dtype),
        )
        return found[: len(self.onnx_node.output)]


class SkipSimplifiedLayerNormalization(SkipLayerNormalization):
    """By the root mean square alone."""

    centred = False

    def compute(  # type: ignore[override]
        self, x: Array, skip: Array, gamma: Array, bias: Array | None = None
    ) -> tuple[Array, ...]:
        return super().compute(x, skip, gamma, None, bias)


class TransposeMatMul(FusedMatMul):
    """What FusedMatMul was called before."""


class _Activated(Contrib):
    def activate(self, x: Array, params: list[float]) -> Array:
        """``x`` after the activation that the node names, if any."""
        name = self.given.get("activation", b"")
        name = name.decode() if isinstance(name, bytes) else str(name)
        match name:
            case "":
                return x
            case "Relu":
                return np.maximum(x, 0)
            case "Tanh":
                return np.asarray(np.tanh(x))
            case "Sigmoid":
                return sigmoid(x)
            case "LeakyRelu" if params:
                return np.where(x < 0, params[0] * x, x)
            case "Clip" if len(params) == 2:
                return np.clip(x, params[0], params[1])
            case "HardSigmoid" if len(params) == 2:
                return np.clip(params[0] * x + params[1], 0, 1)
        self.refuse(f"the activation '{name}'")
        return x


class FusedConv(_Activated):
    """A convolution, then ``Z`` added, then an activation."""

    def compute(  # type: ignore[override]
        self, x: Array, w: Array, b: Array | None = None, z: Array | None = None
    ) -> tuple[Array]:
        beyond = ("activation", "activation_params")
        plain = {k: v for k, v in self.given.items() if k not in beyond}
        fed = ["x", "w", *(["b"] if b is not None else [])]
        node = helper.make_node("Conv", fed, ["y"], **plain)
        conv = Conv(node, {**self.run_params, "opsets": {"": 13}})
        values = [wide(v) for v in (x, w, b) if v is not None]
        made = conv.run(*values)[0] + (0 if z is None else wide(z))
        params = [float(p) for p in self.given.get("activation_params", ())]
        return (self.activate(made, params).astype(x.dtype),)


class FusedGemm(_Activated):
    """A Gemm, then an activation whose numbers have names of their own."""

    def compute(self, a: Array, b: Array, c: Array | None = None) -> tuple[Array]:  # type: ignore[override]
        left, right = (
            wide(a).T if self.given.get("transA") else wide(a),
            wide(b).T if self.given.get("transB") else wide(b),
        )
        made = self.number("alpha", 1.0) * (left @ right)
        made = made + (0 if c is None else self.number("beta", 1.0) * wide(c))
        params = [
            self.number(f"activation_{n}", 0.0)
            for n in ("alpha", "beta")
            if f"activation_{n}" in self.given
        ]
        return (self.activate(np.asarray(made), params).astype(a.dtype),)


FUSED = (
    BiasGelu, FastGelu, FusedConv, FusedGemm, FusedMatMul, Gelu, QuickGelu, SkipLayerNormalization,
    SkipSimplifiedLayerNormalization, TransposeMatMul,
)  # fmt: skip
