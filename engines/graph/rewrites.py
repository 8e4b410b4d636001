"""Rewrites of a graph that leave what it computes as it is, exactly or nearly: other nodes for the
same values.

Each takes the model and the ids of the nodes that are accused (positions in the graph), changes it
in place, and gives the names of the nodes that it changed; none where its precondition holds
nowhere. ``engines.graph.rewrite_list`` says what each is good for.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from onnx import (
    FunctionProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TensorShapeProto,
    defs,
    helper,
    version_converter,
)  # fmt: skip

from narrowdown.engines.graph import functions, names, protos, schema
from narrowdown.engines.graph.edited import Edited
from narrowdown.engines.probe import BARRIER, WRAPS

# Beyond this magnitude a constant of a mask becomes infinite in FP16 (65,504), and stays in it
# whatever is added to it below.
FITS = 30_000.0
# A norm's squares shrink by its square, 2^-12: 65,504 becomes room for 268 million.
SHRINK = 2.0**-6
# Opsets that a model is converted to: releases of engines match and fuse nodes by opset, and know
# some versions of an operator alone. ONNX Runtime's optimizers of 1.23.2 match Transpose and Gemm
# up to opset 20 (microsoft/onnxruntime#32228).
OTHER_OPSET, HIGHER, LOWER = "other-opset", 21, 20
OLDEST = 13  # a Softmax of before it comes out of ONNX's converter (1.23) over another axis
Apply = Callable[
    [Edited, frozenset[int]], Iterator[str]
]  # does it, and gives the names of the nodes that it changes
Form = Callable[
    [Edited, NodeProto, str], str
]  # puts nodes before this one; the tensor that hands the given one on, or ""


def rewrite_model(
    model: ModelProto, weights_dir: str, name: str, nodes: Collection[int]
) -> tuple[ModelProto, tuple[str, ...]]:
    """(a copy of the model with the rewrite done, names of the nodes that it changed). ``nodes``:
    where it may be done. Raises ``KeyError`` for a rewrite that there is not."""
    if name == OTHER_OPSET:
        converted = convert_opset(model)
        return (
            (model, ())
            if converted is None
            else (converted, tuple(n.name for n in model.graph.node))
        )
    changed = deepcopy(model)
    graph = Edited(changed, weights_dir)
    done = tuple(REWRITES[name](graph, frozenset(nodes)))
    graph.finish()
    return changed, done


def fix_sizes(
    model: ModelProto, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[ModelProto, tuple[str, ...]]:
    """(a copy of the model whose inputs have these shapes, names of the inputs that this changed).
    What is declared of the sizes of other tensors goes, as it may say less."""
    changed = deepcopy(model)
    done = []
    for info in changed.graph.input:
        declared, shape = info.type.tensor_type.shape.dim, shapes.get(info.name, ())
        if len(declared) == len(shape) and any(not d.HasField("dim_value") for d in declared):
            protos.refill(declared, [TensorShapeProto.Dimension(dim_value=n) for n in shape])
            done.append(info.name)
    if done:
        del changed.graph.value_info[:]
        for info in changed.graph.output:
            info.type.tensor_type.ClearField("shape")
    return changed, tuple(done)


def keep_apart(
    model: ModelProto, weights_dir: str, name: str, tensors: Collection[str]
) -> tuple[ModelProto, tuple[str, ...]]:
    """(a copy of the model in which an engine does not join layers across these tensors, names of
    those that it was done to). A tensor whose type nothing tells, or is not one of the form's,
    stays as it is. Raises ``KeyError`` for a form that there is not."""
    changed = deepcopy(model)
    if name == BARRIER:
        return changed, _add_outputs(changed, tensors)
    graph = Edited(changed, weights_dir)
    done = tuple(t for t in dict.fromkeys(tensors) if _wrap(graph, t, FORMS[name]))
    graph.finish()
    return changed, done


def _add_outputs(changed: ModelProto, tensors: Collection[str]) -> tuple[str, ...]:
    """What the engine may not lose it does not join across."""
    types = schema.element_types(changed)
    present = {o.name for o in changed.graph.output}
    added = tuple(
        name for name in dict.fromkeys(tensors) if name not in present and types.get(name, 0) > 0
    )
    changed.graph.output.extend(
        helper.make_tensor_value_info(name, types[name], None) for name in added
    )
    return added


def _drop_identity(graph: Edited, _accused: frozenset[int]) -> Iterator[str]:
    """Take out nodes that hand on what they are given: a Transpose that moves nothing, a Cast to
    the type that is there, a Pad of nothing, Identity."""
    for node in graph.nodes:
        if not _hands_on(graph, node) or node.output[0] in graph.outputs:
            continue
        graph.replace_reads(node.output[0], node.input[0])
        graph.gone.add(id(node))
        yield node.name


def _hands_on(graph: Edited, node: NodeProto) -> bool:
    match node.op_type:
        case "Identity":
            return True
        case "Transpose":
            perm = list(schema.attribute_value(node, "perm", ()) or ())
            return bool(perm) and perm == list(range(len(perm)))
        case "Cast":
            return bool(graph.types.get(node.input[0], 0) == schema.attribute_value(node, "to"))
        case "Pad":
            pads = (
                graph.value(node.input[1])
                if len(node.input) > 1
                else np.asarray(schema.attribute_value(node, "pads", [1]))
            )
            return pads is not None and not bool(pads.any())
    return False


class _Norm(NamedTuple):
    """A norm that is written out: what squares, the sum with epsilon, epsilon's name, and the
    quotients by the root."""

    square: NodeProto
    add: NodeProto
    epsilon: str
    divided: list[NodeProto]


def _scale_norm(graph: Edited, _accused: frozenset[int]) -> Iterator[str]:
    """Scale what a written-out norm squares by a power of two, and its epsilon by the square of
    that: the quotient stays."""
    for root in (n for n in graph.nodes if n.op_type == "Sqrt"):
        norm = _find_norm(graph, root)
        epsilon = graph.value(norm.epsilon) if norm is not None else None
        if norm is None or epsilon is None:
            continue
        centred = norm.square.input[0]
        by = graph.constant(f"{centred}__shrink", np.asarray(SHRINK, graph.dtype(centred)))
        small = graph.insert(norm.square, "Mul", [centred, by], centred)
        names.rename_reads(norm.square, {centred: small})
        less = graph.constant(
            f"{norm.epsilon}__shrunk",
            (epsilon.astype(np.float64) * SHRINK**2).astype(epsilon.dtype),
        )
        names.rename_reads(norm.add, {norm.epsilon: less})
        for node in norm.divided:
            node.input[0] = small
        yield norm.square.name


def _find_norm(graph: Edited, root: NodeProto) -> _Norm | None:
    """The norm that this root belongs to: x / Sqrt(ReduceMean(x * x) + epsilon)."""
    add = graph.maker(root.input[0], "Add")
    constants = [name for name in add.input if name in graph.weights] if add is not None else []
    if add is None or len(constants) != 1:
        return None
    mean = graph.maker(next(name for name in add.input if name != constants[0]), "ReduceMean")
    square = graph.makers.get(mean.input[0]) if mean is not None else None
    if mean is None or square is None or not _squares(graph, square):
        return None
    readers = graph.readers(root.output[0])
    divided = [n for n in readers if n.op_type == "Div" and n.input[0] == square.input[0]]
    alone = graph.reads_alone(square.output[0], mean)
    whole = alone and divided and len(divided) == len(readers)
    return _Norm(square, add, constants[0], divided) if whole else None


def _squares(graph: Edited, node: NodeProto) -> bool:
    if node.op_type == "Mul":
        return bool(node.input[0] == node.input[1])
    power = graph.value(node.input[1]) if node.op_type == "Pow" else None
    return power is not None and power.size == 1 and float(power.reshape(-1)[0]) == 2.0


def _fit_mask(graph: Edited, _accused: frozenset[int]) -> Iterator[str]:
    """Constants of masks that FP16 cannot hold become the largest that it holds with room to
    spare."""
    for node in graph.nodes:
        places = {"Add": (0, 1), "Where": (1, 2), "Mul": (0, 1)}.get(node.op_type, ())
        for place in places:
            value = graph.value(node.input[place])
            if value is None or value.dtype.kind != "f" or not (np.abs(value) > FITS).any():
                continue
            fitting = np.clip(value, -FITS, FITS).astype(value.dtype)
            node.input[place] = graph.constant(f"{node.input[place]}__fits", fitting)
            yield node.name


# Reduction -> what is done before ReduceSum (Mul: with itself), and behind it.
_UNFUSED = {
    "ReduceL1": ("Abs", ""),
    "ReduceL2": ("Mul", "Sqrt"),
    "ReduceLogSum": ("", "Log"),
    "ReduceSumSquare": ("Mul", ""),
}


def _unfuse_reductions(graph: Edited, _accused: frozenset[int]) -> Iterator[str]:
    """Reductions with a function inside, as that function and ReduceSum."""
    for node in graph.nodes:
        if graph.opset < 13 or node.op_type not in _UNFUSED:
            continue
        before, after = _UNFUSED[node.op_type]
        x, hint = node.input[0], node.output[0]
        keep, over = schema.attribute_value(node, "keepdims", 1), list(node.input[1:2])
        if (axes := schema.attribute_value(node, "axes")) is not None:
            over = [graph.constant(f"{hint}__axes", np.asarray(axes, np.int64))]
        if before:
            x = graph.insert(node, before, [x, x] if before == "Mul" else [x], hint)
        if after:
            summed = graph.insert(node, "ReduceSum", [x, *over], hint, keepdims=keep)
            _become(node, after, [summed])
        else:
            _become(node, "ReduceSum", [x, *over], keepdims=keep)
        yield node.name


def _stabilise(graph: Edited, _accused: frozenset[int]) -> Iterator[str]:
    """What overflows or cancels as its formula is written, in a form that does neither."""
    for node in graph.nodes:
        form = _STABLE.get(node.op_type)
        real = form is not None and graph.dtype(node.input[0]).kind == "f"
        if form is not None and real and form(graph, node):
            yield node.name


def _stable_logsumexp(graph: Edited, node: NodeProto) -> bool:
    """max + log(sum(exp(x - max))), of which no exponent is above 0."""
    x, hint = node.input[0], node.output[0]
    most, kept = _reduce_alike(graph, node, "ReduceMax", x)
    less = graph.insert(node, "Sub", [x, most], hint)
    rest = graph.insert(node, "ReduceLogSumExp", [less, *node.input[1:]], hint, **_attributes(node))
    _become(node, "Add", [rest, kept])
    return True


def _stable_norm(graph: Edited, node: NodeProto) -> bool:
    """max |x| times the norm of x / max |x|, whose squares are 1 at most."""
    x, hint = node.input[0], node.output[0]
    least = np.asarray(np.finfo(graph.dtype(x)).tiny, graph.dtype(x))  # where all of x is 0
    sizes = graph.insert(node, "Abs", [x], hint)
    floored = graph.insert(node, "Max", [sizes, graph.constant(f"{hint}__least", least)], hint)
    most, kept = _reduce_alike(graph, node, "ReduceMax", floored)
    part = graph.insert(node, "Div", [x, most], hint)
    rest = graph.insert(node, "ReduceL2", [part, *node.input[1:]], hint, **_attributes(node))
    _become(node, "Mul", [rest, kept])
    return True


def _stable_softplus(graph: Edited, node: NodeProto) -> bool:
    """max(x, 0) + log(1 + exp(-|x|)), whose exponent is 0 at most."""
    x, hint = node.input[0], node.output[0]
    one = graph.constant(f"{hint}__one", np.asarray(1, graph.dtype(x)))
    at = x
    for op in ("Abs", "Neg", "Exp"):
        at = graph.insert(node, op, [at], hint)
    at = graph.insert(node, "Add", [at, one], hint)
    _become(
        node,
        "Add",
        [graph.insert(node, "Relu", [x], hint), graph.insert(node, "Log", [at], hint)],
    )
    return True


def _stable_variance(graph: Edited, node: NodeProto) -> bool:
    """mean(x * x) - mean(x) * mean(x), two large values that nearly cancel, as the mean of
    (x - mean(x)) squared."""
    over = graph.maker(node.input[0], "ReduceMean")
    squares, less = (graph.makers.get(t) for t in (over.input[0] if over else "", node.input[1]))
    if over is None or not all(n is not None and _squares(graph, n) for n in (squares, less)):
        return False
    mean = graph.maker(less.input[0], "ReduceMean") if less is not None else None
    x = squares.input[0] if squares is not None else ""
    if mean is None or mean.input[0] != x or _attributes(mean) != _attributes(over):
        return False
    if list(mean.input[1:]) != list(over.input[1:]):
        return False
    centre, _ = _reduce_alike(graph, over, "ReduceMean", x, before=node)
    off = graph.insert(node, "Sub", [x, centre], node.output[0])
    square = graph.insert(node, "Mul", [off, off], node.output[0])
    _become(node, "ReduceMean", [square, *over.input[1:]], **_attributes(over))
    return True


def _reduce_alike(
    graph: Edited, node: NodeProto, op: str, x: str, before: NodeProto | None = None
) -> tuple[str, str]:
    """Another reduction over the axes of this one: (with these axes kept, so that it can be taken
    off x; of the node's own shape)."""
    stated, place, hint = _attributes(node), before or node, (before or node).output[0]
    kept = graph.insert(place, op, [x, *node.input[1:]], hint, **{**stated, "keepdims": 1})
    if stated.get("keepdims", 1):
        return kept, kept
    return kept, graph.insert(place, op, [x, *node.input[1:]], hint, **stated)


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


_STABLE: dict[str, Callable[[Edited, NodeProto], bool]] = {
    "ReduceL2": _stable_norm,
    "ReduceLogSumExp": _stable_logsumexp,
    "Softplus": _stable_softplus,
    "Sub": _stable_variance,
}


def _become(node: NodeProto, op: str, inputs: list[str], **attributes: object) -> None:
    """Turn a node into another one that makes the same tensor."""
    other = helper.make_node(op, inputs, list(node.output), name=node.name, **attributes)
    other.metadata_props.MergeFrom(node.metadata_props)
    node.CopyFrom(other)


def _explicit_pad(graph: Edited, _accused: frozenset[int]) -> Iterator[str]:
    """Padding that auto_pad leaves to the engine, as numbers."""
    for node in graph.nodes:
        stated = _state_padding(graph, node)
        if stated is None:
            continue
        kept = _attributes(node)
        kept.pop("auto_pad", None)
        _become(node, node.op_type, list(node.input), **{**kept, "pads": stated})
        yield node.name


def _state_padding(graph: Edited, node: NodeProto) -> list[int] | None:
    """What ``auto_pad`` stands for, where no size of the input has a say: of a ConvTranspose, and
    of a stride of 1."""
    mode = schema.attribute_value(node, "auto_pad", b"NOTSET").decode()
    if node.op_type not in (
        "Conv",
        "ConvTranspose",
        "AveragePool",
        "MaxPool",
    ) or not mode.startswith("SAME_"):
        return None
    weight = graph.weights.get(node.input[1]) if len(node.input) > 1 else None
    kernel = list(
        schema.attribute_value(node, "kernel_shape", ())
        or (weight.dims[2:] if weight is not None else ())
    )
    ones = [1] * len(kernel)
    strides, dilations = (
        schema.attribute_value(node, "strides", ones),
        schema.attribute_value(node, "dilations", ones),
    )
    transposed = node.op_type == "ConvTranspose"
    if (
        not kernel
        or not (transposed or all(s == 1 for s in strides))
        or schema.attribute_value(node, "output_shape")
    ):
        return None
    more = (
        schema.attribute_value(node, "output_padding", [0] * len(kernel))
        if transposed
        else [0] * len(kernel)
    )
    total = [
        (k - 1) * d + 1 - s + m for k, d, s, m in zip(kernel, dilations, strides, more, strict=True)
    ]
    if min(total) < 0:
        return None
    less, rest = [n // 2 for n in total], [n - n // 2 for n in total]
    return [*less, *rest] if mode == "SAME_UPPER" else [*rest, *less]


def _unfuse_functions(graph: Edited, accused: frozenset[int]) -> Iterator[str]:
    """Accused operators that ONNX itself defines by others (Attention, Gelu, RMSNormalization,
    ...), written as these."""
    for n in sorted(accused):
        node = graph.nodes[n]
        definition = _definition(graph, node)
        if definition is None or any(list(names.bodies(inner)) for inner in definition.node):
            continue
        usual = defs.get_schema(node.op_type, graph.opset, "").attributes
        stated = (a.default_value for a in usual.values() if a.default_value.type)
        definition.attribute_proto.extend(stated)
        graph.before.setdefault(id(node), []).extend(
            functions.expand_call(node, n, definition, graph.fresh)
        )
        graph.gone.add(id(node))
        yield node.name


def _definition(graph: Edited, node: NodeProto) -> FunctionProto | None:
    """What ONNX defines the operator by, in the latest form that the model's opset has; None where
    it defines it by nothing."""
    if node.domain or not defs.has(node.op_type):
        return None
    try:
        known = defs.get_schema(node.op_type, graph.opset, "")
    except defs.SchemaError:
        return None
    if known.has_function:
        version = max((v for v in known.function_opset_versions if v <= graph.opset), default=0)
        return (
            FunctionProto.FromString(known.get_function_with_opset_version(version))
            if version
            else None
        )
    version = max(
        (v for v in known.context_dependent_function_opset_versions if v <= graph.opset), default=0
    )
    types = [graph.types.get(name, 0) for name in node.input]
    if not version or any(name and not kind for name, kind in zip(node.input, types, strict=True)):
        return None
    told = [helper.make_tensor_type_proto(kind, None).SerializeToString() for kind in types]
    return FunctionProto.FromString(
        known.get_context_dependent_function_with_opset_version(
            version, node.SerializeToString(), told
        )
    )


def _widen_attention(graph: Edited, _accused: frozenset[int]) -> Iterator[str]:
    """A written-out attention of halves (product, scale and mask, Softmax, product) computed in
    FP32: Casts in front of all that it reads, and one behind it."""
    for softmax in (
        n for n in graph.nodes if n.op_type == "Softmax" and graph.types.get(n.input[0]) in _HALVES
    ):
        chain = _scores(graph, softmax)
        readers = graph.readers(softmax.output[0])
        if (
            not chain
            or len(readers) != 1
            or readers[0].op_type != "MatMul"
            or softmax.output[0] in graph.outputs
        ):
            continue
        last, half = readers[0], graph.types[softmax.input[0]]
        inside = {n.output[0] for n in (*chain, softmax)}
        for node in (*chain, softmax, last):
            for i, name in enumerate(node.input):
                if name and name not in inside and graph.types.get(name) == half:
                    node.input[i] = graph.insert(node, "Cast", [name], name, to=TensorProto.FLOAT)
        wide = graph.insert(last, "MatMul", list(last.input), last.output[0])
        _become(last, "Cast", [wide], to=half)
        graph.forget(inside)
        yield softmax.name


_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def _scores(graph: Edited, softmax: NodeProto) -> list[NodeProto]:
    """What makes the scores of an attention, from its product on, each read by the next one alone;
    empty where that is not it."""
    chain: list[NodeProto] = []
    at, reader = softmax.input[0], softmax
    while (node := graph.makers.get(at)) is not None and graph.reads_alone(at, reader):
        chain.insert(0, node)
        if node.op_type == "MatMul":
            return chain
        if node.op_type not in ("Mul", "Div", "Add", "Sub"):
            break
        made = [
            name for name in node.input if name in graph.makers and graph.reads_alone(name, node)
        ]
        if not made:
            break
        at, reader = made[0], node
    return []


def _wrap(graph: Edited, tensor: str, form: Form) -> bool:
    """Let all that read the tensor read what nodes behind it hand on unchanged; whether that could
    be done."""
    at = next((i for i, n in enumerate(graph.nodes) if tensor in n.output), len(graph.nodes)) + 1
    if at >= len(graph.nodes) or not any(
        tensor in (*n.input, *names.captures(n)) for n in graph.nodes[at:]
    ):
        return False  # nobody makes it, or nobody reads it
    wrapped = form(graph, graph.nodes[at], tensor)
    if wrapped:
        graph.replace_reads(tensor, wrapped)
    return bool(wrapped)


def _wrap_reshape(graph: Edited, before: NodeProto, tensor: str) -> str:
    """Laid flat and brought back to its own shape, as it is told at run time: the values are not
    touched."""
    if graph.types.get(tensor, 0) <= 0 or graph.opset < 5:
        return ""
    shape = graph.insert(before, "Shape", [tensor], tensor)
    flat = graph.insert(
        before, "Reshape", [tensor, graph.constant("flat", np.array([-1], np.int64))], tensor
    )
    empty = (
        {"allowzero": 1} if graph.opset >= 14 else {}
    )  # else a dimension of 0 stands for that of the flat form
    return graph.insert(before, "Reshape", [flat, shape], tensor, **empty)


def _wrap_max(graph: Edited, before: NodeProto, tensor: str) -> str:
    """The greater of itself and itself, which is itself bit by bit; what is no number stays
    none."""
    kinds = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
    taken = (*kinds, TensorProto.INT32, TensorProto.INT64) if graph.opset >= 12 else kinds
    taken = (*taken, TensorProto.BFLOAT16) if graph.opset >= 13 else taken
    known = graph.opset >= 8 and graph.types.get(tensor, 0) in taken
    return graph.insert(before, "Max", [tensor, tensor], tensor) if known else ""


# Measured: ONNX Runtime 1.31.1 takes Identity, a product by one and two Transposes out and then
# joins; neither of these.
FORMS: dict[str, Form] = dict(zip(WRAPS, (_wrap_reshape, _wrap_max), strict=True))


def convert_opset(model: ModelProto) -> ModelProto | None:
    """A copy in another opset of ONNX: ``HIGHER`` where the model's is lower, else ``LOWER``. None
    where the model has operators of others or bodies of its own, holds weights in other files, or
    ONNX cannot convert it."""
    opset = schema.opsets(model).get("", 0)
    outside = any(n.domain not in ("", "ai.onnx") for n in model.graph.node)
    beside = any(t.data_location == TensorProto.EXTERNAL for t in model.graph.initializer)
    if outside or beside or opset < OLDEST:
        return None
    try:
        return version_converter.convert_version(model, HIGHER if opset < HIGHER else LOWER)
    except (RuntimeError, ValueError):
        return None


REWRITES: dict[str, Apply] = {
    "drop-identity": _drop_identity,
    "unfuse-reductions": _unfuse_reductions,
    "scale-norm": _scale_norm,
    "fit-mask": _fit_mask,
    "explicit-pad": _explicit_pad,
    "stable-forms": _stabilise,
    "unfuse-functions": _unfuse_functions,
    "widen-attention": _widen_attention,
}
