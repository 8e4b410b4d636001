"""Really typed FP16, BF16 and FP64 models: every float tensor changes its type, except on islands
of kept nodes.

The rules are those of ``emulate``, written as types: tensors between two nodes of an island stay in
their own type with no cast, casts stand at the island's borders only. An island may lie in a body
of an If, Loop or Scan: what it gives out of the body keeps its own type, in all branches and from
one iteration to the next. An operator whose schema does not allow the target type at some input or
output keeps its own type there. The main graph's inputs and outputs keep their types.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    helper,
    numpy_helper,
)

from narrowdown.engines.graph import constants, converted, names, protos, schema
from narrowdown.engines.graph.emulate import find_precision

_DOUBLE = int(TensorProto.DOUBLE)
_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


class _Plan(NamedTuple):
    """What a conversion does: ``sources`` element types become ``target``. ``dtype`` is numpy's of
    ``target``. ``rounds``: the model's own casts to a narrower type still round. ``stores``: so
    does each result, into the type that it had. ``whole``: operators that ONNX does not know are
    converted as well, and so are the model's inputs and outputs."""

    target: int
    dtype: np.dtype[Any]
    sources: frozenset[int]
    rounds: bool = False
    stores: bool = False
    whole: bool = False


KEPT = "narrowdown.kept"  # marks a node in a body that stays in its own type


def mark(node: NodeProto) -> None:
    """Let a node in a body stay in its own type."""
    node.metadata_props.add(key=KEPT)


def holds_marked(nodes: Iterable[NodeProto]) -> bool:
    """Whether one of the nodes, or a node of their bodies, is marked."""
    return any(map(is_marked, names.all_nodes(nodes)))


def is_marked(node: NodeProto) -> bool:
    return any(entry.key == KEPT for entry in node.metadata_props)


def to_precision(model: ModelProto, precision: str, keep: Collection[int]) -> ModelProto:
    """A copy typed in ``fp16`` or ``bf16``. ``keep``: positions in ``graph.node`` of nodes that
    stay in FP32. Of an If, Loop or Scan that is none of these and holds nodes that are marked,
    those stay, and bodies without any.

    Float32 inputs and outputs of the graph stay float32, with a cast. Names of the graph's inputs
    and outputs stay; inner tensors keep their names in their new type. Raises ``ModelProblem`` for
    an unknown precision, or where no node can hold it (BF16 below opset 13).
    """
    target, dtype = find_precision(model, precision)
    plan = _Plan(target, dtype, frozenset({int(TensorProto.FLOAT)}))
    result = _convert_model(model, plan, keep)
    for node in names.all_nodes(result.graph.node):
        for entry in [entry for entry in node.metadata_props if entry.key == KEPT]:
            node.metadata_props.remove(entry)
    return result


def to_float64(model: ModelProto) -> ModelProto:
    """A copy that computes in double what the model computes in float32, FP16 and BF16: a judge of
    the reference itself, or the reference.

    Inputs and outputs of the graph, and so all that is read out of it, keep the model's own types:
    whoever is fed these values next declares them so. A Cast that rounds (FP32 to FP16, INT64 to
    FP32) is part of what the model computes and stays as it is; one that widens takes doubles.
    Operators without doubles keep their own type, with casts. Raises ``ModelProblem``.
    """
    sources = frozenset(
        {int(TensorProto.FLOAT), int(TensorProto.FLOAT16), int(TensorProto.BFLOAT16)}
    )
    return _convert_model(model, _Plan(_DOUBLE, np.dtype(np.float64), sources, rounds=True), ())


def to_rounded(model: ModelProto) -> ModelProto:
    """A copy that computes in float32 what the model computes in FP16 and BF16, and rounds each
    result to the type that it had: what a faultless engine that obeys the types gives. FP32 stays
    as it is. Raises ``ModelProblem``."""
    plan = _Plan(
        int(TensorProto.FLOAT), np.dtype(np.float32), frozenset(_HALVES), rounds=True, stores=True
    )
    return _convert_model(model, plan, ())


def to_float32(model: ModelProto, originals: Mapping[str, TensorProto]) -> ModelProto:
    """A copy that was in half precision as it was before: FP16 and BF16 are float32 everywhere, so
    that a cast that a converter put in does nothing any more. ``originals``: by the name of a
    weight of the main graph what it was before. Raises ``ModelProblem`` where a weights file is
    damaged."""
    restored = deepcopy(model)
    for tensor in restored.graph.initializer:
        name = tensor.name
        tensor.CopyFrom(originals.get(name, tensor))
        tensor.name = name
    plan = _Plan(
        int(TensorProto.FLOAT), np.dtype(np.float32), frozenset(map(int, _HALVES)), whole=True
    )
    return _convert_model(restored, plan, ())


def _convert_model(model: ModelProto, plan: _Plan, keep: Collection[int]) -> ModelProto:
    result = deepcopy(model)
    graph = result.graph
    types = schema.element_types(result)
    taken = names.used(graph).union(
        node.name for scope in names.with_bodies(graph) for node in scope.node
    )
    shared = _Shared(plan, schema.opsets(result), names.Fresh(taken))
    scope = _Scope(shared, graph, types, None)
    ends = () if plan.whole else (*graph.input, *graph.output)
    scope.convert(frozenset(keep), frozenset(info.name for info in ends))
    if any(n.op_type == "Cast" and not n.domain for n in graph.node) and "" not in shared.versions:
        result.opset_import.add(domain="", version=13)  # a model of other domains only
    return result


class _Shared(NamedTuple):
    plan: _Plan
    versions: Mapping[str, int]
    fresh: names.Fresh


class _Scope:
    """One graph under conversion: which element type each name really has now, and the casts made
    so far."""

    def __init__(
        self, shared: _Shared, graph: GraphProto, types: Mapping[str, int], parent: "_Scope | None"
    ) -> None:
        self.shared, self.graph, self.types, self.parent = shared, graph, types, parent
        self.plan = shared.plan
        self.own = names.defined(graph)
        self.actual: dict[str, int] = {}  # differs from ``types`` where converted
        self.casts: dict[tuple[str, int], str] = {}
        self.nodes: list[NodeProto] = []
        self.weights = {t.name: t for t in graph.initializer if t.data_type in self.plan.sources}
        self.made: dict[
            tuple[str, int], str
        ] = {}  # (weight, element type) -> name of the initializer

    # -- names and types

    def original_type(self, name: str) -> int:
        """The element type of a name in the model before conversion; 0 where unknown."""
        return self.types.get(name, 0)

    def current_type(self, name: str) -> int:
        """The element type that a name has in the converted model."""
        if name in self.own or self.parent is None:
            return self.actual.get(name, self.original_type(name))
        return self.parent.current_type(name)

    def read(self, name: str, wanted: int) -> str:
        """A name that holds the value of ``name`` in the element type ``wanted``; made where there
        is none yet."""
        if not name or self.original_type(name) not in self.plan.sources:
            return name
        if name in self.own and name in self.weights:
            return self._weight(name, wanted)
        if name not in self.own and self.parent is not None and self.parent.owns_weight(name):
            return self.parent.read(name, wanted)
        if self.current_type(name) == wanted:
            return name
        if (name, wanted) not in self.casts:
            target = self.shared.fresh(f"{name}__{_type_word(wanted)}")
            self._cast(name, target, wanted)
            self.casts[name, wanted] = target
        return self.casts[name, wanted]

    def owns_weight(self, name: str) -> bool:
        if name in self.own or self.parent is None:
            return name in self.weights
        return self.parent.owns_weight(name)

    def _weight(self, name: str, wanted: int) -> str:
        if (name, wanted) not in self.made:
            free = not any(key[0] == name for key in self.made)
            tensor = self.weights[name]
            self.made[name, wanted] = (
                name if free else self.shared.fresh(f"{name}__{_type_word(wanted)}")
            )
            copy = deepcopy(tensor)
            copy.name = self.made[name, wanted]
            if wanted != tensor.data_type:
                converted.convert_weight(copy, self.plan.dtype)
            self._new_weights.append(copy)
        return self.made[name, wanted]

    def _cast(self, source: str, target: str, wanted: int) -> None:
        name = self.shared.fresh(f"{target}__cast")
        self.nodes.append(helper.make_node("Cast", [source], [target], name, to=wanted))

    # -- conversion

    def convert(self, keep: frozenset[int], own: frozenset[str]) -> None:
        """Convert the graph in place but for the nodes ``keep``. ``own``: those of its inputs and
        outputs that keep their type; the others get the target's."""
        self._new_weights: list[TensorProto] = []
        for info in self.graph.input:
            if info.name not in own and self.original_type(info.name) in self.plan.sources:
                self._set_type(info.type, self.plan.target)
                self.actual[info.name] = self.plan.target
        for i, node in enumerate(self.graph.node):
            self._convert_node(node, i in keep)
        # An output that keeps its type keeps its name, too: its producer writes a converted twin.
        moved: dict[str, str] = {}
        casts: list[tuple[str, str, int]] = []
        for name in dict.fromkeys(o.name for o in self.graph.output):
            original_type = self.original_type(name)
            if original_type not in self.plan.sources:
                continue
            wanted = original_type if name in own else self.plan.target
            if name in self.weights:
                held = self._weight(name, wanted)
                if held != name:
                    # Another type took the name: that one gets a fresh name, this one its own back.
                    other = next(key for key, value in self.made.items() if value == name)
                    moved[name] = self.shared.fresh(f"{name}__{_type_word(other[1])}")
                    moved[held] = name
            elif self.current_type(name) != wanted and name in self.own:
                moved[name] = self.shared.fresh(f"{name}__{_type_word(self.current_type(name))}")
                casts.append((moved[name], name, wanted))
        self._finish(moved, casts)
        for info in self.graph.output:
            if info.name not in own and self.original_type(info.name) in self.plan.sources:
                self._set_type(info.type, self.plan.target)

    def _finish(self, moved: Mapping[str, str], casts: Sequence[tuple[str, str, int]]) -> None:
        """Give tensors the names that are left for them, and the graph what was made."""
        for tensor in self._new_weights:
            tensor.name = moved.get(tensor.name, tensor.name)
        names.rename_tensors(self.nodes, moved)
        for source, target, kind in casts:
            self._cast(source, target, kind)
        kept = [t for t in self.graph.initializer if t.name not in self.weights]
        protos.refill(self.graph.initializer, [*kept, *self._new_weights])
        protos.refill(self.graph.node, self.nodes)
        del self.graph.value_info[:]

    def _convert_node(self, node: NodeProto, keep: bool) -> None:
        """Append a node, reading and writing the types it should."""
        nested = list(names.bodies(node))
        if nested:
            self._convert_control(node, keep, nested)
            return
        if keep or self._loses_digits(node):
            low_in: Sequence[bool] = (False,) * len(node.input)
            low_out: Sequence[bool] = (False,) * len(node.output)
        else:
            low_in, low_out = self._convertible_slots(node)
        for i, name in enumerate(node.input):
            node.input[i] = self.read(
                name, self.plan.target if low_in[i] else self.original_type(name)
            )
        for i, name in enumerate(node.output):
            if low_out[i] and self.original_type(name) in self.plan.sources:
                self.actual[name] = self.plan.target
        if any(
            low and self.original_type(name) in self.plan.sources
            for low, name in zip(low_out, node.output, strict=True)
        ):
            self._retype_attributes(node)
        self.nodes.append(node)
        for i, name in enumerate(node.output):
            if self.plan.stores and low_out[i] and self.original_type(name) in self.plan.sources:
                self._store(node, i, name)

    def _store(self, node: NodeProto, position: int, name: str) -> None:
        """Two casts behind a result, through the type that it had."""
        node.output[position] = self.shared.fresh(f"{name}__exact")
        stored = self.shared.fresh(f"{name}__stored")
        self._cast(node.output[position], stored, self.original_type(name))
        self._cast(stored, name, self.plan.target)

    def _loses_digits(self, node: NodeProto) -> bool:
        """Whether it is a cast of the model's own that loses digits, which the conversion must not
        give back."""
        if (
            not self.plan.rounds
            or node.op_type not in ("Cast", "CastLike")
            or schema.domain_of(node)
        ):
            return False
        given, made = (self.original_type(name) for name in (node.input[0], node.output[0]))
        return made in self.plan.sources and not (
            given == made or (given in _HALVES and made == TensorProto.FLOAT)
        )

    def _convertible_slots(self, node: NodeProto) -> tuple[list[bool], list[bool]]:
        """Which inputs and outputs take the target type: where the schema allows it, to all that
        share a type variable."""
        inputs, outputs = schema.convertible_slots(node, self.shared.versions, self.plan.target)
        known = schema.signature(node, self.shared.versions)
        stuck: set[str] = set()
        if known is None:
            return [self.plan.whole] * len(inputs), [self.plan.whole] * len(outputs)
        actuals = [
            *zip(known.inputs, node.input, inputs, strict=True),
            *zip(known.outputs, node.output, outputs, strict=True),
        ]
        for slot, name, allowed in actuals:
            holds = self.original_type(name)
            if name and (
                holds == schema.NOT_TENSOR
                or (holds == 0 and not self.plan.whole)
                or (holds in self.plan.sources and not allowed)
            ):
                stuck.add(slot.variable)
            if name and holds == schema.NOT_TENSOR:  # sequences hold tensors of the original type
                return [False] * len(inputs), [False] * len(outputs)
        return (
            [a and s.variable not in stuck for a, s in zip(inputs, known.inputs, strict=True)],
            [a and s.variable not in stuck for a, s in zip(outputs, known.outputs, strict=True)],
        )

    def _retype_attributes(self, node: NodeProto) -> None:
        """Attributes that decide the element type of the result."""
        special = schema.DTYPE_ATTRIBUTE.get(node.op_type)
        if special is not None:
            stated = schema.attribute(node, special[0])
            if stated is not None and stated.i in self.plan.sources:
                stated.i = self.plan.target
            elif stated is None and special[1] in self.plan.sources:
                node.attribute.add(name=special[0], i=self.plan.target, type=AttributeProto.INT)
        elif node.op_type in ("ConstantOfShape", "Constant"):
            value = schema.attribute(node, "value")
            if value is not None:
                converted.convert_weight(value.t, self.plan.dtype)
            elif node.op_type == "ConstantOfShape":
                node.attribute.add(name="value", type=AttributeProto.TENSOR).t.CopyFrom(
                    numpy_helper.from_array(np.zeros(1, self.plan.dtype))
                )
            else:
                held = constants.weight_of(node)
                converted.convert_weight(held, self.plan.dtype)
                del node.attribute[:]
                node.attribute.append(helper.make_attribute("value", held))

    def _convert_control(self, node: NodeProto, keep: bool, nested: Sequence[GraphProto]) -> None:
        """If, Loop and Scan: their bodies are converted with them, or left whole and read from
        outside in the original types."""
        whole = keep or node.op_type not in ("If", "Loop", "Scan") or schema.domain_of(node) != ""
        if not whole and not all(map(self._is_fully_typed, nested)):
            whole = True
        if whole:
            self._leave_as_it_is(node)
            return
        own, island = _list_own(node), holds_marked([node])
        # Inputs that stand before those that are carried.
        before = {"If": len(node.input), "Loop": 2, "Scan": 0}[node.op_type]
        for i, name in enumerate(node.input):
            held = i - before in own and i - before < _count_carried(node)
            node.input[i] = self.read(name, self.original_type(name) if held else self.plan.target)
        given = {o.name for body in nested for o in body.output}
        for name in given.intersection(
            names.captures(node)
        ):  # what a body only hands on is typed outside of it
            if self.owns_weight(name):
                self.read(name, self.plan.target)
        for body in nested:
            inner = schema.graph_types(body, self.shared.versions, self.types)
            keep_inside = _list_kept(body) if island else frozenset[int]()
            ends = _list_ends(node, body, own)
            _Scope(self.shared, body, inner, self).convert(keep_inside, ends)
        for place, name in enumerate(node.output):
            if place not in own and self.original_type(name) in self.plan.sources:
                self.actual[name] = self.plan.target
        self.nodes.append(node)

    def _leave_as_it_is(self, node: NodeProto) -> None:
        for i, name in enumerate(node.input):
            node.input[i] = self.read(name, self.original_type(name))
        inner = {name: self.read(name, self.original_type(name)) for name in names.captures(node)}
        names.rename_captures(node, inner)
        self.nodes.append(node)

    def _is_fully_typed(self, body: GraphProto) -> bool:
        types = schema.graph_types(body, self.shared.versions, self.types)
        own = names.defined(body)
        return all(types.get(name, 0) > 0 for name in own) and all(
            self._is_fully_typed(inner) for child in body.node for inner in names.bodies(child)
        )

    def _set_type(self, declared: TypeProto, kind: int) -> None:
        if declared.WhichOneof("value") == "tensor_type":
            declared.tensor_type.elem_type = kind


def _list_kept(body: GraphProto) -> frozenset[int]:
    """Which nodes of a body stay where some beside it are marked: those that are, else all."""
    marked = holds_marked(body.node)
    return frozenset(i for i, node in enumerate(body.node) if is_marked(node) or not marked)


def _count_carried(node: NodeProto) -> int:
    """How many values a Loop or Scan hands from one iteration to the next; they are its first
    outputs."""
    if node.op_type == "Loop":
        return max(0, len(node.input) - 2)
    return (
        len(node.input) - int(schema.attribute(node, "num_scan_inputs").i)
        if node.op_type == "Scan"
        else 0
    )


def _list_own(node: NodeProto) -> set[int]:
    """Outputs of an If, Loop or Scan, by place, that keep their type as what makes them in one of
    its bodies does."""
    found = set[int]()
    for body in names.bodies(node) if holds_marked([node]) else ():
        kept = _list_kept(body)
        makers = {
            name: (i, at) for i, n in enumerate(body.node) for at, name in enumerate(n.output)
        }
        for place, info in enumerate(body.output[node.op_type == "Loop" :]):
            i, at = makers.get(info.name, (-1, 0))
            if i in kept or (i >= 0 and at in _list_own(body.node[i])):
                found.add(place)
    return found


def _list_ends(node: NodeProto, body: GraphProto, own: Collection[int]) -> frozenset[str]:
    """Inputs and outputs of a body that keep their type; ``own``: outputs of the node, by place,
    that do."""
    loop = node.op_type == "Loop"
    carried = _count_carried(node)
    given = [body.input[place + 2 * loop].name for place in own if place < carried]
    return frozenset((*given, *(body.output[place + loop].name for place in own)))


def _type_word(kind: int) -> str:
    return {
        int(TensorProto.FLOAT): "fp32", int(TensorProto.FLOAT16): "fp16", int(TensorProto.BFLOAT16): "bf16", _DOUBLE: "fp64",
    }.get(kind, str(kind))  # fmt: skip
