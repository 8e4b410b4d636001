"""Small graphs at random, for the search for bugs of released engines (``hunt``): one to five nodes
of odd shapes, often a pair that optimizers join. Each is declared as the table of known bugs
declares its constructions."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from narrowdown.engines.known.construct import draw_feed
from narrowdown.engines.known.entry import Construction, MadeNode, MadeTensor

Array = np.ndarray[Any, Any]
OPSETS = (13, 16, 17, 18, 19, 20, 21)
LARGEST = 3000  # values of a tensor
FLOATS = ("float32", "float16", "float64")
SPECIAL = (0.0, 1.0, -1.0, 2.0, 0.5)


class Grown:
    """A graph that grows node by node; each value is computed at once, so shapes and types are
    known. Raises whatever the evaluator raises for a node that is none."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.opset = int(rng.choice(OPSETS))
        self.inputs: dict[str, MadeTensor] = {}
        self.weights: dict[str, MadeTensor] = {}
        self.nodes: list[MadeNode] = []
        self.values: dict[str, Array] = {}
        rank = int(rng.choice([1, 2, 3, 4], p=[0.1, 0.3, 0.25, 0.35]))
        shape = [int(n) for n in rng.choice([1, 2, 3, 4, 5, 7, 8], size=rank)]
        if rank >= 2 and rng.random() < 0.4:
            shape[-2] = shape[-1]  # what is mixed up is of one size, or it would be refused
        kind = str(
            rng.choice(
                ["float32", "float16", "float64", "int64", "int32"], p=[0.66, 0.07, 0.04, 0.13, 0.1]
            )
        )
        self.last = self.feed(shape, kind)

    def feed(self, shape: Sequence[int], dtype: str) -> str:
        return self._tensor(self.inputs, shape, dtype, None)

    def weigh(self, values: Any, dtype: str) -> str:
        array = np.asarray(values)
        return self._tensor(self.weights, array.shape, dtype, array.ravel().tolist())

    def draw(self, shape: Sequence[int], dtype: str) -> str:
        """A weight drawn, of one special number, or an input."""
        at = self.rng.random()
        if at < 0.25:
            return self.weigh(
                np.full(shape, self.rng.choice(SPECIAL if dtype in FLOATS else (0, 1, 2, -1))),
                dtype,
            )
        return self._tensor(self.weights if at < 0.75 else self.inputs, shape, dtype, None)

    def _tensor(
        self, of: dict[str, MadeTensor], shape: Sequence[int], dtype: str, values: list[Any] | None
    ) -> str:
        name = f"t{len(self.inputs) + len(self.weights)}"
        span = (-2.0, 2.0) if dtype in FLOATS else (0.0, 1.0) if dtype == "bool" else (-9.0, 9.0)
        span = (0.0, 9.0) if dtype.startswith("uint") else span
        of[name] = MadeTensor(
            dtype=dtype, shape=tuple(int(n) for n in shape), range=span, values=values
        )
        self.values[name] = draw_feed(Construction(21, {name: of[name]}, (), {}), len(self.values))[
            name
        ]
        return name

    @property
    def x(self) -> Array:
        return self.values[self.last]

    def beside(self) -> str:
        """Something that broadcasts with the last value: another, or a weight of this or a smaller
        shape."""
        x = self.x
        others = [
            n
            for n, v in self.values.items()
            if v.dtype == x.dtype and n != self.last and _fit(v.shape, x.shape)
        ]
        if others and self.rng.random() < 0.3:
            return str(self.rng.choice(others))
        shape = list(x.shape)
        kind = int(self.rng.integers(6))
        if kind == 0:
            shape = []
        elif kind == 1:
            shape = [1] * int(self.rng.integers(0, len(shape) + 2))
        elif kind == 2:
            shape = shape[int(self.rng.integers(0, len(shape) + 1)) :]
        elif kind == 3:
            shape = [n if self.rng.random() < 0.5 else 1 for n in shape]
        return self.draw(shape, str(x.dtype))

    def add(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> None:
        schema = onnx.defs.get_schema(op, self.opset)
        for place, name in enumerate(inputs):
            if (
                name
                and f"tensor({_onnx_type(self.values[name])})"
                not in schema.inputs[min(place, len(schema.inputs) - 1)].types
            ):
                raise ValueError("not of this type")
        attributes = {k: v for k, v in attributes.items() if v is not None}
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        node = onnx.helper.make_node(op, list(inputs), names, **attributes)
        judge = ReferenceEvaluator(node, opsets={"": self.opset})
        given = judge.run(None, {n: self.values[n] for n in inputs if n})
        if any(not isinstance(v, np.ndarray) or v.size > LARGEST or v.size == 0 for v in given):
            raise ValueError("too large, or nothing")
        self.values.update(zip(names, given, strict=True))
        self.nodes.append(MadeNode(op, tuple(inputs), tuple(names), attributes))
        self.last = names[int(self.rng.integers(outputs))]

    def made(self) -> Construction:
        read = {name for node in self.nodes for name in node.inputs}
        ends = [n for node in self.nodes for n in node.outputs if n not in read]
        used = {n: t for n, t in self.weights.items() if n in read}
        fed = {n: t for n, t in self.inputs.items() if n in read}
        return Construction(
            self.opset, fed, tuple(self.nodes), {n: str(self.values[n].dtype) for n in ends}, used
        )


def _onnx_type(value: Array) -> str:
    return {"float32": "float", "float64": "double"}.get(str(value.dtype), str(value.dtype))


def _fit(a: Sequence[int], b: Sequence[int]) -> bool:
    try:
        return np.broadcast_shapes(tuple(a), tuple(b)) == tuple(b)
    except ValueError:
        return False


def pick(g: Grown, *choices: Any) -> Any:
    return choices[int(g.rng.integers(len(choices)))]


def whole(g: Grown, low: int, high: int, n: int) -> list[int]:
    return [int(v) for v in g.rng.integers(low, high, n)]


def axis(g: Grown) -> int:
    return int(g.rng.integers(-g.x.ndim, g.x.ndim))


def axes(g: Grown) -> list[int]:
    many = int(g.rng.integers(1, g.x.ndim + 1))
    return [
        int(a) - (g.x.ndim if g.rng.random() < 0.3 else 0)
        for a in g.rng.permutation(g.x.ndim)[:many]
    ]


def unary(op: str, **attributes: Callable[[Grown], Any]) -> Callable[[Grown], None]:
    return lambda g: g.add(op, [g.last], **{k: f(g) for k, f in attributes.items()})


def binary(op: str, **attributes: Callable[[Grown], Any]) -> Callable[[Grown], None]:
    def add(g: Grown) -> None:
        pair = [g.last, g.beside()]
        g.add(
            op,
            pair if g.rng.random() < 0.7 else pair[::-1],
            **{k: f(g) for k, f in attributes.items()},
        )

    return add


def reducing(op: str) -> Callable[[Grown], None]:
    def add(g: Grown) -> None:
        keep, along = pick(g, None, 0, 1), axes(g) if g.rng.random() < 0.9 else None
        since = 13 if op == "ReduceSum" else 18
        if g.opset < since:
            g.add(op, [g.last], axes=along, keepdims=keep)
        else:
            noop = pick(g, None, 0, 1)
            g.add(
                op,
                [g.last, *([g.weigh(along, "int64")] if along else [])],
                keepdims=keep,
                noop_with_empty_axes=noop,
            )

    return add


def cast(g: Grown) -> None:
    to = pick(g, "float32", "float16", "float64", "int64", "int32", "int8", "uint8", "bool")
    g.add("Cast", [g.last], to=int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(to))))


def transpose(g: Grown) -> None:
    perm = [int(n) for n in g.rng.permutation(g.x.ndim)]
    g.add("Transpose", [g.last], perm=pick(g, perm, perm, list(range(g.x.ndim)), None))


def reshape(g: Grown) -> None:
    shape, n = list(g.x.shape), g.x.size
    kind = int(g.rng.integers(4))
    if kind == 0:
        shape = [-1]
    elif kind == 1:
        cuts = [d for d in range(1, n + 1) if n % d == 0]
        first = int(g.rng.choice(cuts))
        shape = [first, -1]
    elif kind == 2:
        at = int(g.rng.integers(len(shape)))
        shape = [0] * at + [-1]
    else:
        shape = [shape[int(i)] for i in g.rng.permutation(len(shape))]
    g.add("Reshape", [g.last, g.weigh(shape, "int64")])


def unsqueeze(g: Grown) -> None:
    many = pick(g, 1, 1, 2)
    places = [int(a) for a in g.rng.permutation(g.x.ndim + many)[:many]]
    if g.rng.random() < 0.3:
        places = [a - g.x.ndim - many for a in places]
    g.add("Unsqueeze", [g.last, g.weigh(places, "int64")])


def squeeze(g: Grown) -> None:
    places = [i for i, n in enumerate(g.x.shape) if n == 1]
    g.add(
        "Squeeze",
        [g.last, g.weigh(places, "int64")] if places and g.rng.random() < 0.7 else [g.last],
    )


def slicing(g: Grown) -> None:
    along = axes(g)
    starts, ends = whole(g, -4, 4, len(along)), [pick(g, -1, 2, 3, 99, -99, 2**62) for _ in along]
    steps = [pick(g, 1, 1, 1, 2, -1, -2) for _ in along]
    fed = [g.last, *(g.weigh(v, "int64") for v in (starts, ends, along))]
    g.add("Slice", [*fed, g.weigh(steps, "int64")] if g.rng.random() < 0.7 else fed)


def concat(g: Grown) -> None:
    at = axis(g)
    shape = list(g.x.shape)
    shape[at] = int(g.rng.integers(1, 4))
    pair = [g.last, pick(g, g.last, g.draw(shape, str(g.x.dtype)))]
    g.add("Concat", pair if g.rng.random() < 0.6 else pair[::-1], axis=at)


def split(g: Grown) -> None:
    at = axis(g)
    n = g.x.shape[at]
    cut = int(g.rng.integers(1, max(2, n)))
    g.add("Split", [g.last, g.weigh([cut, n - cut], "int64")], 2, axis=at)


def expand(g: Grown) -> None:
    shape = [1 if g.rng.random() < 0.5 else n if n > 1 else 3 for n in g.x.shape]
    g.add("Expand", [g.last, g.weigh([*([2] if g.rng.random() < 0.3 else []), *shape], "int64")])


def pad(g: Grown) -> None:
    mode = pick(g, "constant", "constant", "reflect", "edge", *(["wrap"] if g.opset >= 19 else []))
    pads = [
        pick(g, 0, 0, 1, 1, 2, *([-1] if mode == "constant" else [])) for _ in range(2 * g.x.ndim)
    ]
    if g.x.ndim > 2 and g.rng.random() < 0.7:
        pads[0] = pads[1] = pads[g.x.ndim] = pads[g.x.ndim + 1] = 0
    value = [g.weigh(pick(g, 0, 0, 1, 3), str(g.x.dtype))] if g.rng.random() < 0.5 else []
    g.add(
        "Pad",
        [g.last, g.weigh(pads, "int64"), *value],
        mode=pick(g, mode, mode, None) if mode == "constant" else mode,
    )


def gather(g: Grown) -> None:
    at = axis(g)
    n = g.x.shape[at]
    index = g.rng.integers(-n, n, pick(g, [], [1], [2], [2, 3], [1, 1]))
    g.add("Gather", [g.last, g.weigh(index, pick(g, "int64", "int32"))], axis=pick(g, at, at, None))


def gather_elements(g: Grown) -> None:
    at = axis(g)
    n = g.x.shape[at]
    index = g.rng.integers(-n, n, g.x.shape)
    g.add("GatherElements", [g.last, g.weigh(index, "int64")], axis=at)


def scatter_elements(g: Grown) -> None:
    at = axis(g)
    n = g.x.shape[at]
    shape = [*g.x.shape]
    shape[at] = int(g.rng.integers(1, n + 1))
    index = np.empty(shape, np.int64)
    order = g.rng.permutation(n)[: shape[at]]
    index[:] = order.reshape([-1 if i == at % g.x.ndim else 1 for i in range(g.x.ndim)])
    how = pick(g, None, "add", "mul", *(["max", "min"] if g.opset >= 18 else []))
    how = how if g.opset >= 16 else None
    g.add(
        "ScatterElements",
        [g.last, g.weigh(index, "int64"), g.draw(shape, str(g.x.dtype))],
        axis=at,
        reduction=how,
    )


def scatter_nd(g: Grown) -> None:
    n = g.x.shape[0]
    rows = g.rng.permutation(n)[: int(g.rng.integers(1, n + 1))].reshape(-1, 1)
    how = pick(g, None, "add", "mul") if g.opset >= 16 else None
    updates = g.draw([len(rows), *g.x.shape[1:]], str(g.x.dtype))
    g.add("ScatterND", [g.last, g.weigh(rows, "int64"), updates], reduction=how)


def where(g: Grown) -> None:
    pair = [g.last, g.beside()]
    mask = g.draw(pick(g, g.x.shape, g.x.shape[-1:], [1]), "bool")
    bools = [n for n, v in g.values.items() if v.dtype == bool and _fit(v.shape, g.x.shape)]
    g.add(
        "Where",
        [
            str(g.rng.choice(bools)) if bools else mask,
            *(pair if g.rng.random() < 0.5 else pair[::-1]),
        ],
    )


def matmul(g: Grown) -> None:
    n, m = g.x.shape[-1], int(g.rng.choice([1, 2, 3, g.x.shape[-1]]))
    lead = pick(g, [], [], list(g.x.shape[:-2]), [1] * (g.x.ndim - 2))
    if g.rng.random() < 0.75:
        g.add(
            "MatMul", [g.last, g.draw(pick(g, [*lead, n, m], [*lead, n, m], [n]), str(g.x.dtype))]
        )
    elif g.x.ndim >= 2:
        g.add("MatMul", [g.draw([*lead, m, g.x.shape[-2]], str(g.x.dtype)), g.last])


def gemm(g: Grown) -> None:
    a, b = pick(g, 0, 1), pick(g, 0, 1)
    k, m = (g.x.shape[0], g.x.shape[1]) if a else (g.x.shape[1], g.x.shape[0])
    n = pick(g, 1, 2, 3, k)
    weight = g.draw([n, k] if b else [k, n], str(g.x.dtype))
    bias = (
        [g.draw(pick(g, [n], [1, n], [m, 1], [], [1], [m, n]), str(g.x.dtype))]
        if g.rng.random() < 0.6
        else []
    )
    scale = {"alpha": pick(g, None, 0.5, 2.0), "beta": pick(g, None, 0.5, 0.0)}
    g.add(
        "Gemm",
        [g.last, weight, *bias],
        transA=pick(g, a, a or None),
        transB=pick(g, b, b or None),
        **scale,
    )


def window(g: Grown, *, dilated: bool = True) -> dict[str, Any]:
    n = g.x.ndim - 2
    kernel = [pick(g, 1, 2, 3) for _ in range(n)]
    stated: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": pick(g, None, [pick(g, 1, 2) for _ in range(n)]),
    }
    if dilated:
        stated["dilations"] = pick(g, None, None, [pick(g, 1, 2) for _ in range(n)])
    if g.rng.random() < 0.2:
        stated["auto_pad"] = pick(g, "SAME_UPPER", "SAME_LOWER", "VALID")
    elif g.rng.random() < 0.6:
        stated["pads"] = [int(g.rng.integers(0, k)) for k in kernel * 2]
    return stated


def conv(g: Grown) -> None:
    stated, c = window(g), g.x.shape[1]
    group = pick(g, 1, 1, c)
    out = group * pick(g, 1, 2)
    weight = g.draw([out, c // group, *stated["kernel_shape"]], str(g.x.dtype))
    bias = [g.draw([out], str(g.x.dtype))] if g.rng.random() < 0.5 else []
    g.add("Conv", [g.last, weight, *bias], group=group if group > 1 else None, **stated)


def conv_transpose(g: Grown) -> None:
    stated, c = window(g), g.x.shape[1]
    stated.pop("auto_pad", None)
    g.add(
        "ConvTranspose",
        [g.last, g.draw([c, pick(g, 1, 2), *stated["kernel_shape"]], str(g.x.dtype))],
        **stated,
    )


def pool(op: str) -> Callable[[Grown], None]:
    def add(g: Grown) -> None:
        stated = window(g, dilated=op == "MaxPool" or (op == "AveragePool" and g.opset >= 19))
        if op == "AveragePool":
            stated["count_include_pad"] = pick(g, None, 0, 1)
        if op == "LpPool":
            stated["p"] = pick(g, None, 1, 2, 3)
        elif "auto_pad" not in stated:
            stated["ceil_mode"] = pick(g, None, None, 0, 1)
        g.add(op, [g.last], **stated)

    return add


def batch_norm(g: Grown) -> None:
    c, kind = g.x.shape[1], str(g.x.dtype)
    fed = [g.draw([c], kind) for _ in range(3)]
    variance = g.weigh(g.rng.uniform(0.5, 2, c).round(2), kind)
    g.add("BatchNormalization", [g.last, *fed, variance], epsilon=pick(g, None, 1e-3))


def layer_norm(g: Grown) -> None:
    at = axis(g)
    shape, kind = g.x.shape[at % g.x.ndim :], str(g.x.dtype)
    bias = [g.draw(shape, kind)] if g.rng.random() < 0.6 else []
    g.add(
        "LayerNormalization",
        [g.last, g.draw(shape, kind), *bias],
        axis=at,
        epsilon=pick(g, None, 1e-2),
    )


def instance_norm(g: Grown) -> None:
    kind = str(g.x.dtype)
    g.add("InstanceNormalization", [g.last, *(g.draw([g.x.shape[1]], kind) for _ in range(2))])


def clip(g: Grown) -> None:
    low, high = sorted(pick(g, (-1, 1), (0, 6), (0, 1), (-2, -1), (1, 2)))
    kind = str(g.x.dtype)
    g.add(
        "Clip",
        [
            g.last,
            *pick(
                g,
                [g.weigh(low, kind)],
                [g.weigh(low, kind), g.weigh(high, kind)],
                ["", g.weigh(high, kind)],
            ),
        ],
    )


def topk(g: Grown) -> None:
    at = axis(g)
    k = g.weigh([int(g.rng.integers(1, g.x.shape[at] + 1))], "int64")
    g.add("TopK", [g.last, k], 2, axis=at, largest=pick(g, None, 0, 1))


def cumsum(g: Grown) -> None:
    g.add(
        "CumSum",
        [g.last, g.weigh(axis(g), pick(g, "int64", "int32"))],
        exclusive=pick(g, None, 1),
        reverse=pick(g, None, 1),
    )


def trilu(g: Grown) -> None:
    g.add(
        "Trilu",
        [g.last, *([g.weigh(int(g.rng.integers(-3, 4)), "int64")] if g.rng.random() < 0.7 else [])],
        upper=pick(g, 0, 1),
    )


def resize(g: Grown) -> None:
    scales = [1.0, 1.0, *(pick(g, 1.0, 2.0, 0.5, 1.5, 3.0) for _ in range(g.x.ndim - 2))][
        : g.x.ndim
    ]
    mode = pick(g, "nearest", "linear", "cubic")
    stated = {
        "mode": mode,
        "coordinate_transformation_mode": pick(
            g, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"
        ),
        "nearest_mode": pick(g, "floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
        if mode == "nearest"
        else None,
        "exclude_outside": pick(g, None, 1) if mode == "cubic" else None,
    }
    g.add("Resize", [g.last, "", g.weigh(scales, "float32")], **stated)


def quantize(g: Grown) -> None:
    many = g.x.shape[1] if g.x.ndim > 1 and g.rng.random() < 0.4 else 0
    scale = g.rng.uniform(0.02, 0.2, many or None)
    zero = g.rng.integers(0, 9, many or None)
    kind = pick(g, "uint8", "int8")
    fed = [g.weigh(np.round(scale, 3), "float32"), g.weigh(zero, kind)]
    g.add("QuantizeLinear", [g.last, *fed], axis=1 if many else None)
    g.add("DequantizeLinear", [g.last, *fed], axis=1 if many else None)


def one_hot(g: Grown) -> None:
    kind = pick(g, "float32", "int64")
    fed = [g.weigh(pick(g, 3, 5), "int64"), g.weigh(pick(g, [0, 1], [1, 0], [2, 5]), kind)]
    g.add("OneHot", [g.last, *fed], axis=pick(g, None, 0, -1))


def einsum(g: Grown) -> None:
    kind = str(g.x.dtype)
    a, b = g.x.shape[-2:]
    forms = {
        "ij,jk->ik": [b, 3],
        "ij,kj->ik": [3, b],
        "ij,ij->i": [a, b],
        "ij,j->i": [b],
        "ij,jk->ki": [b, 3],
    }
    equation, shape = pick(g, *forms.items())
    lead = "a" * min(1, g.x.ndim - 2) + "b" * min(1, g.x.ndim - 3)
    left, right = equation.split(",")
    second, out = right.split("->")
    g.add("Einsum", [g.last, g.draw(shape, kind)], equation=f"{lead}{left},{second}->{lead}{out}")


OPS: dict[str, Callable[[Grown], None]] = {
    **{op: unary(op) for op in (
        "Relu", "Sigmoid", "Tanh", "Exp", "Abs", "Neg", "Sqrt", "Erf", "Softplus", "HardSwish", "Selu", "Floor", "Ceil", "Round",
        "Sign", "Reciprocal", "Log", "Sin", "Cos", "Identity", "Not", "Softsign", "IsNaN", "GlobalAveragePool", "GlobalMaxPool",
        "Atan", "Mish", "NonZero", "Shape", "Size", "Det",
    )},
    **{op: binary(op) for op in (
        "Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "PRelu", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual",
        "And", "Or", "Xor", "Sum", "Mean", "BitwiseAnd", "BitwiseXor",
    )},
    **{op: reducing(op) for op in (
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
        "ReduceLogSumExp", "ReduceSumSquare",
    )},
    "Mod": binary("Mod", fmod=lambda g: 1 if g.x.dtype.kind == "f" else pick(g, None, 0, 1)),
    "BitShift": binary("BitShift", direction=lambda g: pick(g, "LEFT", "RIGHT")),
    "LeakyRelu": unary("LeakyRelu", alpha=lambda g: pick(g, None, 0.2, -0.5, 0.0, 2.0)),
    "Elu": unary("Elu", alpha=lambda g: pick(g, None, 0.5)),
    "Celu": unary("Celu", alpha=lambda g: pick(g, None, 0.5)),
    "ThresholdedRelu": unary("ThresholdedRelu", alpha=lambda g: pick(g, None, 0.5, -1.0)),
    "HardSigmoid": unary("HardSigmoid", alpha=lambda g: pick(g, None, 0.5), beta=lambda g: pick(g, None, 0.3)),
    "Gelu": unary("Gelu", approximate=lambda g: pick(g, None, "tanh")),
    "Softmax": unary("Softmax", axis=lambda g: pick(g, None, axis(g))),
    "LogSoftmax": unary("LogSoftmax", axis=lambda g: pick(g, None, axis(g))),
    "Hardmax": unary("Hardmax", axis=lambda g: pick(g, None, axis(g))),
    "LpNormalization": unary("LpNormalization", axis=axis, p=lambda g: pick(g, None, 1, 2)),
    "Flatten": unary("Flatten", axis=lambda g: pick(g, None, axis(g), 0)),
    "ArgMax": unary("ArgMax", axis=axis, keepdims=lambda g: pick(g, None, 0), select_last_index=lambda g: pick(g, None, 1)),
    "ArgMin": unary("ArgMin", axis=axis, keepdims=lambda g: pick(g, None, 0), select_last_index=lambda g: pick(g, None, 1)),
    "DepthToSpace": unary("DepthToSpace", blocksize=lambda g: 2, mode=lambda g: pick(g, None, "CRD", "DCR")),
    "SpaceToDepth": unary("SpaceToDepth", blocksize=lambda g: 2),
    "LRN": unary("LRN", size=lambda g: pick(g, 1, 3), alpha=lambda g: 0.1),
    "EyeLike": unary("EyeLike", k=lambda g: pick(g, None, 1, -1)),
    "Tile": lambda g: g.add("Tile", [g.last, g.weigh(whole(g, 1, 3, g.x.ndim), "int64")]),
    "AveragePool": pool("AveragePool"), "MaxPool": pool("MaxPool"), "LpPool": pool("LpPool"),
    "Cast": cast, "Transpose": transpose, "Reshape": reshape, "Unsqueeze": unsqueeze, "Squeeze": squeeze, "Slice": slicing,
    "Concat": concat, "Split": split, "Expand": expand, "Pad": pad, "Gather": gather, "GatherElements": gather_elements,
    "ScatterElements": scatter_elements, "ScatterND": scatter_nd, "Where": where, "MatMul": matmul, "Gemm": gemm, "Conv": conv,
    "ConvTranspose": conv_transpose, "BatchNormalization": batch_norm, "LayerNormalization": layer_norm,
    "InstanceNormalization": instance_norm, "Clip": clip, "TopK": topk, "CumSum": cumsum, "Trilu": trilu, "Resize": resize,
    "QuantizeLinear": quantize, "OneHot": one_hot, "Einsum": einsum,
}  # fmt: skip

# What optimizers look for: after the first, one of the others is likely.
FOLLOWS = {
    "Transpose": "MatMul Gemm Transpose Reshape Add Concat Split ReduceMean Softmax Slice Pad Unsqueeze",
    "MatMul": "Add Mul Div Transpose BatchNormalization MatMul Relu Reshape Sub",
    "Gemm": "Relu Add Transpose Sum LeakyRelu Tanh",
    "Conv": "Add Mul BatchNormalization Relu Clip LeakyRelu Sigmoid HardSigmoid Conv Tanh Pad Sub Div",
    "Pad": "Conv MaxPool AveragePool LpPool Pad Slice ConvTranspose Add",
    "Cast": "Cast Mul Add Relu MatMul Where",
    "Reshape": "Reshape Transpose Squeeze Unsqueeze MatMul Flatten Add",
    "Unsqueeze": "Unsqueeze Squeeze Concat Add Transpose Mul",
    "Squeeze": "Unsqueeze Squeeze Reshape Add MatMul",
    "Slice": "Slice Concat Pad Conv Add Transpose",
    "Split": "Concat Slice Mul Add",
    "Concat": "Slice Split Transpose Softmax Reshape Gather",
    "Relu": "Clip Relu QuantizeLinear MaxPool Sqrt",
    "Clip": "Relu Clip",
    "Add": "Add LayerNormalization Softmax Relu Mul Clip Erf Sqrt MatMul Gelu Sub",
    "Mul": "MatMul Add Mul Softmax Div Sigmoid Tanh Erf",
    "Div": "Mul Erf Add MatMul Round Cast",
    "Sub": "Pow Mul Div Add ReduceMean Softmax Abs",
    "Pow": "ReduceMean ReduceSum Add Sqrt Mul",
    "ReduceSum": "Div Sqrt Log Mul Squeeze Greater",
    "ReduceMean": "Sub Add Sqrt Div Squeeze Unsqueeze",
    "Sqrt": "Div Mul Reciprocal",
    "Expand": "Add Mul MatMul Where Concat Expand",
    "Gather": "Gather Slice MatMul Unsqueeze Squeeze Concat",
    "Not": "Where And Not",
    "Exp": "ReduceSum Div Log Mul",
    "Abs": "Sqrt Log Pow ReduceMax Sign",
    "Sigmoid": "Mul Round Add",
    "Neg": "Exp Add Sub Neg Relu Abs",
    "Equal": "Where Not Cast And",
    "Greater": "Where Not Cast",
    "Less": "Where Not Cast",
    "BatchNormalization": "Relu Conv Add Mul",
    "Softmax": "MatMul Log ArgMax Mul Transpose",
    "Where": "Softmax Add Where Mul",
    "Tile": "Add Concat Slice",
    "Max": "Min Max Relu",
    "Min": "Max Min",
    "Identity": "Add MatMul Relu",
    "Shape": "Gather Slice Concat Cast Mul",
    "IsNaN": "Cast Where Not",
    "QuantizeLinear": "MatMul Conv Add Relu Transpose Reshape MaxPool Softmax QuantizeLinear Sigmoid Concat Mul Gather",
    "ReduceMax": "Sub Div",
    "Flatten": "Gemm MatMul Reshape",
    "LeakyRelu": "QuantizeLinear Relu LeakyRelu",
    "Tanh": "Mul Add",
    "Erf": "Add Mul",
    "Floor": "Cast Sub Mul",
    "MaxPool": "Relu Conv MaxPool Transpose",
    "AveragePool": "Conv Relu Squeeze",
    "LayerNormalization": "Add Mul Cast MatMul LayerNormalization",
    "CumSum": "Sub Mul Gather",
    "ArgMax": "Cast OneHot Gather Equal",
}


def grow(rng: np.random.Generator) -> Construction | None:
    """A graph at random, or None where this try came to nothing."""
    try:
        g = Grown(rng)
    except (ValueError, TypeError):
        return None
    wanted, tries = int(rng.choice([1, 2, 3, 4, 5], p=[0.15, 0.3, 0.25, 0.2, 0.1])), 0
    while len(g.nodes) < wanted and tries < 25:
        tries += 1
        after = FOLLOWS.get(g.nodes[-1].op, "").split() if g.nodes else []
        op = str(rng.choice(after)) if after and rng.random() < 0.6 else str(rng.choice(list(OPS)))
        try:
            OPS[op](g)
        except Exception:  # whatever an operator does not take: one more try
            continue
        if g.rng.random() < 0.1:
            g.last = str(rng.choice(list(g.values)))  # two that read one
    return g.made() if g.nodes else None
