"""An interpreter of ONNX of the campaign's own: one node at a time, into the bodies of If, Loop and
Scan.

It shares no code with the product. Each node is a model of its own that ONNX Runtime computes in
FP32 with all optimizers off, so that between any two nodes values can be rounded to a storage type,
or replaced by others. That is what the truth of a case is made of: the whole model rounded, one
node alone rounded, one node alone exact.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]
Where = tuple[
    Any, ...
]  # a node's place: (3,) at the top, (3, "then_branch", 5) in a body of node 3
STORAGE = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


class NotInterpreted(Exception):
    """The model holds something that this interpreter does not know; the truth of its cases cannot
    be told this way."""


class Place(NamedTuple):
    where: Where
    node: onnx.NodeProto


class Changes(NamedTuple):
    """What is done to a run. ``precision``: "" for FP32. ``exact``: nodes that are not rounded; a
    place stands for what is inside of it, too. ``only``: where given, no other nodes are rounded.
    ``replaced``: values in place of top-level tensors."""

    precision: str = ""
    exact: frozenset[Where] = frozenset()
    only: frozenset[Where] | None = None
    replaced: Mapping[str, Array] = {}

    def rounds(self, where: Where) -> bool:
        inside = [where[:i] for i in range(1, len(where) + 1, 2)]
        if not self.precision or any(place in self.exact for place in inside):
            return False
        return self.only is None or any(place in self.only for place in inside)


class Interpreter:
    """A model that is run node by node. ``compute`` replaces how a rounded node is computed
    (default: FP32 arithmetic)."""

    def __init__(
        self,
        path: Path,
        compute: Callable[[onnx.ModelProto, list[Array]], list[Array]] | None = None,
    ) -> None:
        self.model = onnx.load(path)
        self.opsets = {o.domain: o.version for o in self.model.opset_import}
        self.compute = compute
        self._sessions: dict[Any, ort.InferenceSession] = {}
        self._weights: dict[tuple[int, str, str], Array] = {}
        self._orders: dict[
            int, tuple[onnx.GraphProto, list[int]]
        ] = {}  # by the id of what is held, or another takes it
        if self.model.functions:
            raise NotInterpreted("it has functions of its own")
        self.places = list(_places(self.model.graph, ()))
        self.inputs = {i.name for i in self.model.graph.input}
        self.outputs = [o.name for o in self.model.graph.output]

    def run(
        self, feeds: Mapping[str, Array], changes: Changes | None = None, all_values: bool = False
    ) -> dict[str, Array]:
        """The model's outputs by name, or every top-level tensor's value. Raises
        ``NotInterpreted``."""
        values = _Scope(None)
        changes = changes or Changes()
        values.update(feeds)
        values.given = set(feeds)
        self._graph(self.model.graph, (), values, changes)
        names = list(values) if all_values else self.outputs
        return {name: values[name] for name in names}

    def _graph(
        self, graph: onnx.GraphProto, where: Where, values: "_Scope", changes: Changes
    ) -> None:
        values.tensors = {t.name: t for t in graph.initializer}
        values.weights = lambda name, precision: self._weight(
            values.tensors[name], precision, id(graph)
        )
        for i in self._order(graph):
            node, place = graph.node[i], (*where, i)
            rounded = changes.rounds(place)
            try:
                made = self._node(node, place, values, changes, rounded)
            except NotInterpreted:
                raise
            except Exception as error:
                raise NotInterpreted(f"{node.op_type} '{node.name}': {str(error)[:300]}") from error
            for name, value in zip(node.output, made, strict=False):
                if name:
                    weight = node.op_type == "Constant"
                    value = _rounded(value, changes.precision) if rounded and not weight else value
                    values[name] = changes.replaced.get(name, value) if not where else value

    def _order(self, graph: onnx.GraphProto) -> list[int]:
        """The nodes so that what is read is made before: not every file that people ship is
        sorted."""
        if id(graph) not in self._orders:
            makers = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
            done: dict[int, None] = {}
            stack = list(reversed(range(len(graph.node))))
            while stack:
                i = stack[-1]
                behind = {makers[n] for n in reads_of(graph.node[i]) if n in makers} - done.keys()
                stack += sorted(behind - {i}, reverse=True)
                if stack[-1] == i:
                    done[stack.pop()] = None
            self._orders[id(graph)] = graph, list(done)
        return self._orders[id(graph)][1]

    def _node(
        self, node: onnx.NodeProto, where: Where, values: "_Scope", changes: Changes, rounded: bool
    ) -> list[Array]:
        if node.op_type == "Constant":
            return [_constant(node)]  # a weight in all but its place: rounded for who reads it so
        fixed = _fixed_inputs(node, self.opsets) if rounded else frozenset()
        read: list[Array | None] = []
        for i, name in enumerate(node.input):
            if not name:
                read.append(None)
            elif rounded and i not in fixed:
                read.append(values.read(name, changes.precision))
            else:
                read.append(values[name])
        if node.op_type in ("If", "Loop", "Scan") and node.domain in ("", "ai.onnx"):
            return self._body_node(node, where, read, values, changes)
        typed = changes.precision if rounded and self.compute else ""
        return self._single(node, where, read, typed)

    def _body_node(
        self,
        node: onnx.NodeProto,
        where: Where,
        read: list[Array | None],
        values: "_Scope",
        changes: Changes,
    ) -> list[Array]:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}

        def call(name: str, given: list[Array]) -> list[Array]:
            body = attributes[name]
            inner = _Scope(values)
            for formal, value in zip(body.input, given, strict=True):
                inner[formal.name] = value
            self._graph(body, (*where, name), inner, changes)
            return [inner[o.name] for o in body.output]

        if node.op_type == "If":
            return call(
                "then_branch" if bool(np.asarray(read[0]).reshape(-1)[0]) else "else_branch", []
            )
        if node.op_type == "Loop":
            return _loop(lambda given: call("body", given), read, len(node.output))
        return _scan(lambda given: call("body", given), read, attributes, len(node.output))

    def _single(
        self, node: onnx.NodeProto, where: Where, read: list[Array | None], typed: str
    ) -> list[Array]:
        if node.op_type == "Cast" and read[0] is not None and read[0].dtype == STORAGE["bf16"]:
            read = [read[0].astype(np.float32)]  # arrays of BF16 ONNX Runtime does not take
        kinds = tuple("" if a is None else str(a.dtype) for a in read)
        if typed and self.compute:
            arrays = [a for a in read if a is not None]
            return self.compute(_alone(node, read, self.opsets), arrays)
        key = (where, kinds)
        if key not in self._sessions:
            options = ort.SessionOptions()
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            options.log_severity_level = 4
            options.enable_mem_pattern = False
            model = _alone(node, read, self.opsets)
            self._sessions[key] = ort.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        feeds = {f"i{i}": a for i, a in enumerate(read) if a is not None}
        made = iter(self._sessions[key].run(None, feeds))
        return [next(made) if name else np.zeros(0) for name in node.output]

    def _weight(self, tensor: onnx.TensorProto, precision: str, graph: int) -> Array:
        key = (graph, tensor.name, precision)
        if key not in self._weights:
            value = numpy_helper.to_array(tensor)
            self._weights[key] = _rounded(value, precision) if precision else value
        return self._weights[key]


def reads_of(node: onnx.NodeProto) -> list[str]:
    """What a node reads, its bodies' nodes from around them, too."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            body = attribute.g
            own = {v.name for v in (*body.input, *body.initializer)} | {
                o for n in body.node for o in n.output
            }
            asked = [
                *(o.name for o in body.output),
                *(name for inner in body.node for name in reads_of(inner)),
            ]
            names += [name for name in asked if name not in own]
    return names


class _Scope(dict[str, Array]):
    """Values by name, those of the graphs around it behind them, and a graph's weights, rounded for
    who reads them so."""

    def __init__(self, outer: "_Scope | None") -> None:
        super().__init__()
        self.outer = outer
        self.given: set[str] = (
            set()
        )  # the model's inputs: whoever reads them reads them as they were fed
        self.tensors: dict[str, onnx.TensorProto] = {}
        self.weights: Callable[[str, str], Array] = lambda name, _: self[name]

    def __missing__(self, name: str) -> Array:
        if name in self.tensors:
            return self.weights(name, "")
        if self.outer is None:
            raise KeyError(name)
        return self.outer[name]

    def read(self, name: str, precision: str) -> Array:
        """As a node reads it whose values are stored in the precision."""
        if name in self.given:
            return self[name]
        if dict.__contains__(self, name):
            return _rounded(self[name], precision)
        if name in self.tensors:
            return self.weights(name, precision)
        if self.outer is None:
            raise KeyError(name)
        return self.outer.read(name, precision)


def _places(graph: onnx.GraphProto, where: Where) -> Iterator[Place]:
    for i, node in enumerate(graph.node):
        yield Place((*where, i), node)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _places(attribute.g, (*where, i, attribute.name))


def _rounded(value: Array, precision: str) -> Array:
    if not isinstance(value, np.ndarray) or value.dtype != np.float32:
        return value
    with np.errstate(all="ignore"):
        return value.astype(STORAGE[precision]).astype(np.float32)


def _constant(node: onnx.NodeProto) -> Array:
    attribute = node.attribute[0]
    value = helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return numpy_helper.to_array(value)
    kind = {
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    if attribute.name not in kind:
        raise NotInterpreted(f"Constant with {attribute.name}")
    return np.array(value, kind[attribute.name])


def _fixed_inputs(node: onnx.NodeProto, opsets: Mapping[str, int]) -> frozenset[int]:
    """Positions of inputs that may not be FP16 by the operator's definition, such as the scales of
    Resize."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
    except onnx.defs.SchemaError:
        return frozenset()
    formals = (
        [schema.inputs[min(i, len(schema.inputs) - 1)] for i in range(len(node.input))]
        if schema.inputs
        else []
    )
    return frozenset(i for i, formal in enumerate(formals) if "tensor(float16)" not in formal.types)


def _alone(
    node: onnx.NodeProto, read: list[Array | None], opsets: Mapping[str, int]
) -> onnx.ModelProto:
    """A model of this node: inputs i0, i1, ... of the types read; outputs o0, o1, ..."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for i, value in enumerate(read):
        copy.input[i] = f"i{i}" if value is not None else ""
    for i, name in enumerate(node.output):
        copy.output[i] = f"o{i}" if name else ""
    inputs = [
        helper.make_tensor_value_info(
            f"i{i}", helper.np_dtype_to_tensor_dtype(a.dtype), [f"d{i}_{k}" for k in range(a.ndim)]
        )
        for i, a in enumerate(read)
        if a is not None
    ]
    outputs = [onnx.ValueInfoProto(name=f"o{i}") for i, name in enumerate(node.output) if name]
    graph = helper.make_graph([copy], "alone", inputs, outputs)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _loop(
    call: Callable[[list[Array]], list[Array]], read: list[Array | None], outputs: int
) -> list[Array]:
    most = int(np.asarray(read[0]).reshape(-1)[0]) if read[0] is not None else 1 << 62
    on = bool(np.asarray(read[1]).reshape(-1)[0]) if len(read) > 1 and read[1] is not None else True
    state = [a for a in read[2:] if a is not None]
    rows: list[list[Array]] = [[] for _ in range(outputs - len(state))]
    i = 0
    while on and i < most:
        made = call([np.array(i, np.int64), np.array(on), *state])
        on, state = bool(np.asarray(made[0]).reshape(-1)[0]), made[1 : 1 + len(state)]
        for row, value in zip(rows, made[1 + len(state) :], strict=True):
            row.append(value)
        i += 1
    if any(not row for row in rows):
        raise NotInterpreted("a Loop of no iterations that stacks values")
    return [*state, *(np.stack(row) for row in rows)]


def _scan(
    call: Callable[[list[Array]], list[Array]],
    read: list[Array | None],
    attributes: Mapping[str, Any],
    outputs: int,
) -> list[Array]:
    fed = int(attributes["num_scan_inputs"])
    given = [a for a in read if a is not None]
    state, sequences = given[: len(given) - fed], given[len(given) - fed :]
    axes = list(attributes.get("scan_input_axes", [0] * fed))
    back = list(attributes.get("scan_input_directions", [0] * fed))
    sequences = [
        np.moveaxis(s, axis, 0)[:: -1 if b else 1]
        for s, axis, b in zip(sequences, axes, back, strict=True)
    ]
    rows: list[list[Array]] = [[] for _ in range(outputs - len(state))]
    for i in range(sequences[0].shape[0]):
        made = call([*state, *(np.ascontiguousarray(s[i]) for s in sequences)])
        state = made[: len(state)]
        for row, value in zip(rows, made[len(state) :], strict=True):
            row.append(value)
    out_axes = list(attributes.get("scan_output_axes", [0] * len(rows)))
    out_back = list(attributes.get("scan_output_directions", [0] * len(rows)))
    stacked = [
        np.stack(row[:: -1 if b else 1], axis=axis)
        for row, axis, b in zip(rows, out_axes, out_back, strict=True)
    ]
    return [*state, *stacked]


# Operators that only move values, and that ONNX's evaluator refuses for shapes that the
# specification allows.
MOVES = frozenset({"GatherElements"})


def _moved(model: onnx.ModelProto, arrays: Mapping[str, Array]) -> list[Array]:
    """By ONNX Runtime in FP32, which holds every value of a narrower type: the result is of that
    type, exactly."""
    import onnxruntime as ort

    wide = {
        name: a if a.dtype.kind in "iub" else a.astype(np.float32) for name, a in arrays.items()
    }
    return list(
        ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, wide
        )
    )


def evaluator(precision: str) -> Callable[[onnx.ModelProto, list[Array]], list[Array]]:
    """Computes a node in ONNX's own evaluator with every float32 value of that type; in FP32 where
    the evaluator cannot."""
    from onnx.reference import ReferenceEvaluator

    def compute(model: onnx.ModelProto, arrays: list[Array]) -> list[Array]:
        narrow = STORAGE[precision]
        names = [i.name for i in model.graph.input]
        node = model.graph.node[0]
        fixed = _fixed_inputs(node, {o.domain: o.version for o in model.opset_import})
        typed = {
            name: a.astype(narrow) if a.dtype == np.float32 and int(name[1:]) not in fixed else a
            for name, a in zip(names, arrays, strict=True)
        }
        with np.errstate(all="ignore"):
            try:
                made = (
                    _moved(model, typed)
                    if node.op_type in MOVES
                    else ReferenceEvaluator(model).run(None, typed)
                )
            except Exception:
                made = ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))
        return [
            np.asarray(v).astype(np.float32) if np.asarray(v).dtype == narrow else np.asarray(v)
            for v in made
        ]

    return compute


def named(
    interpreter: Interpreter, names: Collection[str], results: Mapping[str, str] | None = None
) -> dict[str, Where]:
    """Where the nodes of these names are, by name; a name that no node has is left out.

    A name may be that of one of its results, with or without the operator before it (``Conv:y``),
    or of a node within a body as the product writes it, such as ``loop/body/iteration_3/square``:
    the place in the body, whatever the iteration. ``results``: one result of each node of other
    models of the session, by the node's name, for nodes that the user's model gives no name.
    """
    found: dict[str, Where] = {}
    for place in interpreter.places:
        made = [output for output in place.node.output if output]
        for name in (
            place.node.name,
            *made,
            *(f"{place.node.op_type}:{output}" for output in made),
        ):
            if name and name in names and name not in found:
                found[name] = place.where
    for name in names:
        if name not in found:
            where = _inside(interpreter.model.graph, name, ())
            if where is None and results and name in results:
                where = next(
                    (p.where for p in interpreter.places if results[name] in p.node.output), None
                )
            if where is not None:
                found[name] = where
    return found


def _inside(graph: onnx.GraphProto, name: str, where: Where) -> Where | None:
    for i, node in enumerate(graph.node):
        if where and node.name == name:
            return (*where, i)
        for attribute in node.attribute:
            prefix = f"{node.name or node.op_type + '#' + str(i)}/{attribute.name}/"
            if attribute.type == onnx.AttributeProto.GRAPH and name.startswith(prefix):
                rest = re.sub(r"^iteration_\d+/", "", name[len(prefix) :])
                if inside := _inside(attribute.g, rest, (*where, i, attribute.name)):
                    return inside
    return None


def results(models: Collection[Path]) -> dict[str, str]:
    """One result of each node of these models, by the node's name; where it has none of its own, by
    operator and position."""
    found: dict[str, str] = {}
    for path in models:
        nodes = onnx.load(path, load_external_data=False).graph.node
        counts = Counter(node.name for node in nodes)
        for i, node in enumerate(nodes):
            name = (
                node.name
                if node.name and counts[node.name] == 1
                else f"{node.name or node.op_type}#{i}"
            )
            made = [output for output in node.output if output]
            if made:
                found.setdefault(name, made[0])
    return found
