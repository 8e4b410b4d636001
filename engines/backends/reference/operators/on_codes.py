"""Quantized operators of ONNX Runtime's own domain, ``com.microsoft``: they read and write codes, a
scale and a zero point for each tensor. Each is computed on what the codes are worth, in float64,
and rounded once at its end."""

import numpy as np

from narrowdown.engines.backends.reference.operators.base import Array
from narrowdown.engines.backends.reference.operators.fused import Contrib, Fed, sigmoid, wide
from narrowdown.engines.graph.bypass import unpack_weights


def worth(codes: Array, scale: Array, zero: Array | None = None, axis: int = 0) -> Array:
    """What codes stand for. A scale of more than one value is one for each row along ``axis``."""
    scale, zero = wide(scale), wide(np.zeros(1) if zero is None else zero)
    if scale.size > 1:
        shape = [1] * codes.ndim
        shape[axis] = scale.size
        scale, zero = scale.reshape(shape), zero.reshape(shape if zero.size > 1 else -1)
    else:
        scale, zero = scale.reshape(-1)[0], zero.reshape(-1)[0]
    return np.asarray((wide(codes) - zero) * scale)


def encode(values: Array, scale: Array, zero: Array) -> Array:
    """Codes of the values: to the nearest, halves to even, held within the type."""
    limits = np.iinfo(zero.dtype)
    codes = np.rint(values / wide(scale).reshape(-1)[0]) + wide(zero).reshape(-1)[0]
    return np.asarray(np.clip(codes, limits.min, limits.max).astype(zero.dtype))


def worth_fed(fed: Fed, name: str, axis: int = 0) -> Array:
    """What the codes of this input stand for, by its own scale and zero point."""
    return worth(fed.need(name), fed.need(f"{name}_scale"), fed.get(f"{name}_zero"), axis)


def encode_fed(values: Array, fed: Fed, codes: str) -> Array:
    """Codes of the values by the output's scale and zero point; without one a zero of the type of
    the input ``codes``."""
    zero = fed.get("zero")
    held = np.zeros((), fed.need(codes).dtype) if zero is None else zero
    return encode(values, fed.need("scale"), held)


class _OfTwo(Contrib):
    inputs = ("a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "scale", "zero")

    def compute_fed(self, fed: Fed) -> tuple[Array]:
        made = self.join(worth_fed(fed, "a"), worth_fed(fed, "b"))
        return (encode_fed(made, fed, "a"),)

    def join(self, a: Array, b: Array) -> Array:
        raise NotImplementedError


class QLinearAdd(_OfTwo):
    def join(self, a: Array, b: Array) -> Array:
        return a + b


class QLinearMul(_OfTwo):
    def join(self, a: Array, b: Array) -> Array:
        return a * b


class _OfOne(Contrib):
    def compute(  # type: ignore[override]
        self,
        x: Array,
        x_scale: Array,
        x_zero: Array | None,
        scale: Array,
        zero: Array | None = None,
    ) -> tuple[Array]:
        made = self.change(worth(x, x_scale, x_zero))
        return (encode(made, scale, np.zeros((), x.dtype) if zero is None else zero),)

    def change(self, x: Array) -> Array:
        raise NotImplementedError


class QLinearSigmoid(_OfOne):
    def change(self, x: Array) -> Array:
        return sigmoid(x)


class QLinearLeakyRelu(_OfOne):
    def change(self, x: Array) -> Array:
        return np.where(x < 0, self.number("alpha", 0.01) * x, x)


class QLinearGlobalAveragePool(_OfOne):
    def change(self, x: Array) -> Array:
        last = bool(self.given.get("channels_last"))
        axes = tuple(range(1, x.ndim - 1) if last else range(2, x.ndim))
        return np.asarray(x.mean(axis=axes, keepdims=True))


class QLinearConcat(Contrib):
    def compute(self, scale: Array, zero: Array, *triples: Array) -> tuple[Array]:  # type: ignore[override]
        parts = [
            worth(triples[i], triples[i + 1], triples[i + 2]) for i in range(0, len(triples), 3)
        ]
        return (encode(np.concatenate(parts, axis=int(self.given["axis"])), scale, zero),)


class QLinearSoftmax(_OfOne):
    """Along one axis from opset 13 of the model on; before, over all that lie behind it
    together."""

    def change(self, x: Array) -> Array:
        axis = int(self.given.get("axis", -1))
        axis += x.ndim if axis < 0 else 0
        flat = x if int(self.given["opset"]) >= 13 else x.reshape(*x.shape[:axis], -1)
        lifted = np.exp(flat - flat.max(axis=axis, keepdims=True))
        return np.asarray((lifted / lifted.sum(axis=axis, keepdims=True)).reshape(x.shape))


class QLinearWhere(Contrib):
    inputs = (
        "condition", "x", "x_scale", "x_zero", "y", "y_scale", "y_zero", "scale", "zero",
    )  # fmt: skip

    def compute_fed(self, fed: Fed) -> tuple[Array]:
        made = np.where(fed.need("condition"), worth_fed(fed, "x"), worth_fed(fed, "y"))
        return (encode_fed(made, fed, "x"),)


class QGemm(Contrib):
    """``C`` holds codes of the product of both scales. Without a scale of its own the output is in
    floats."""

    inputs = ("a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "c", "scale", "zero")

    def compute_fed(self, fed: Fed) -> tuple[Array]:
        left = worth_fed(fed, "a")
        right = worth_fed(fed, "b", 0 if self.given.get("transB") else 1)
        left = left.T if self.given.get("transA") else left
        made = left @ (right.T if self.given.get("transB") else right)
        scales = [wide(fed.need(f"{name}_scale")).reshape(-1) for name in ("a", "b")]
        if (c := fed.get("c")) is not None:
            made = made + wide(c) * (scales[0] * scales[1])
        made = np.asarray(self.number("alpha", 1.0) * made)
        if fed.get("scale") is None or fed.get("zero") is None:
            return (made.astype(fed.need("a_scale").dtype),)
        return (encode_fed(made, fed, "a"),)


class MatMulIntegerToFloat(Contrib):
    inputs = ("a", "b", "a_scale", "b_scale", "a_zero", "b_zero", "bias")

    def compute_fed(self, fed: Fed) -> tuple[Array]:
        right = worth_fed(fed, "b", fed.need("b").ndim - 1)
        made = np.matmul(worth_fed(fed, "a"), right)
        bias = fed.get("bias")
        made = made if bias is None else made + wide(bias)
        return (made.astype(fed.need("a_scale").dtype),)


class DynamicQuantizeMatMul(Contrib):
    """``A`` becomes codes of its own range first, as DynamicQuantizeLinear makes them: in FP32, as
    that is part of what it computes."""

    def compute(  # type: ignore[override]
        self,
        a: Array,
        b: Array,
        b_scale: Array,
        b_zero: Array | None = None,
        bias: Array | None = None,
    ) -> tuple[Array]:
        low, high = (
            np.float32(min(0.0, float(a.min(initial=0)))),
            np.float32(max(0.0, float(a.max(initial=0)))),
        )
        scale = np.float32((high - low) / np.float32(255)) if high > low else np.float32(1)
        zero = np.uint8(np.clip(np.rint(-low / scale), 0, 255))
        codes = np.clip(np.rint(a / scale) + zero, 0, 255)
        made = np.matmul(
            (wide(codes) - float(zero)) * float(scale), worth(b, b_scale, b_zero, b.ndim - 1)
        )
        return ((made + (0 if bias is None else wide(bias))).astype(a.dtype),)


class MatMulNBits(Contrib):
    """Weights of 4 or 8 bits in blocks along K."""

    def compute(  # type: ignore[override]
        self, a: Array, b: Array, scales: Array, zeros: Array | None = None, order: Array | None = None,
        bias: Array | None = None,
    ) -> tuple[Array]:  # fmt: skip
        bits = self.given.get("bits", 4)
        if order is not None or bits not in (4, 8):
            self.refuse("groups in another order" if order is not None else f"{bits} bits")
        made = np.matmul(wide(a), unpack_weights(self.given, b, scales, zeros))
        return ((made + (0 if bias is None else wide(bias))).astype(a.dtype),)


ON_CODES = (
    DynamicQuantizeMatMul, MatMulIntegerToFloat, MatMulNBits, QGemm, QLinearAdd, QLinearConcat, QLinearGlobalAveragePool,
    QLinearLeakyRelu, QLinearMul, QLinearSigmoid, QLinearSoftmax, QLinearWhere,
)  # fmt: skip
