"""FP16 or BF16 storage on FP32 arithmetic: what a faultless engine of that precision would give.

ONNX Runtime's CPU provider runs typed FP16 models in FP32 between nodes and elides the casts, which
hides overflow. Here every float32 output passes through a pair of casts, so the rounding cannot be
elided, but for what is chosen among rounded values. Weights are rounded once, beforehand.
"""

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any

import ml_dtypes
import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from narrowdown.engines.graph import converted, external, names, schema
from narrowdown.engines.graph.model_problem import ModelProblem

PRECISIONS: Mapping[str, tuple[int, np.dtype[Any]]] = {
    "fp16": (int(TensorProto.FLOAT16), np.dtype(np.float16)),
    "bf16": (int(TensorProto.BFLOAT16), np.dtype(ml_dtypes.bfloat16)),
}
# Operators that give what they read, element by element: rounding what they give rounds what they
# read. A table of which a row is gathered need not be rounded for it.
_MOVES = frozenset({
    "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
})  # fmt: skip
# And those that give some of it, or with another sign: of rounded values they make none that must
# be rounded again.
_CHOOSES = _MOVES | {
    "Abs",
    "GlobalMaxPool",
    "Max",
    "Min",
    "Neg",
    "ReduceMax",
    "ReduceMin",
    "Relu",
    "Where",
}
# Whole numbers that either precision holds exactly: a Cast of them makes nothing that must be
# rounded. One-hot classes, often the largest tensor of a model, are made so.
_EXACT = frozenset({TensorProto.BOOL, TensorProto.INT8, TensorProto.UINT8})
NOTE = "narrowdown.note"  # metadata key of what a conversion left as it was
_FLOAT = int(TensorProto.FLOAT)


def round_values(values: np.ndarray[Any, Any], precision: str) -> np.ndarray[Any, Any]:
    """float32 values as the precision stores them, again as float32. Overflow becomes infinite."""
    return converted.cast_along(values, (PRECISIONS[precision][1], np.dtype(np.float32)))


# Eleven models of opset 9 to 12 in the field campaign (speech, pictures) compute the same to the
# last digit when so converted.
CONVERT = (
    "Export it again, or convert it: onnx.version_converter.convert_version(onnx.load(PATH), 13)."
)


def emulate_precision(
    model: ModelProto, precision: str, keep: Collection[int], stored: Collection[str] = ()
) -> ModelProto:
    """A copy of the model whose float32 tensors are stored in ``precision`` (``fp16`` or ``bf16``).

    ``keep``: positions in ``graph.node`` of nodes that stay FP32: they read unrounded weights and
    give unrounded outputs; a rounded node that reads such an output reads it rounded. Graph inputs
    are left alone, and so are inputs that the operator fixes to float32 (``Resize``'s scales) and
    tensors of any other type. Bodies of If, Loop and Scan are treated alike; a kept node keeps its
    whole body. Positions of the original nodes change; names of tensors do not. ``stored``: names
    of graph inputs whose values come as the precision stores them. What only chooses among rounded
    values is not rounded once more, which would give the same bits. Raises ``ModelProblem`` for an
    unknown precision or a missing weights file.
    """
    if precision not in PRECISIONS:
        raise ModelProblem(f"The precision '{precision}' cannot be emulated; use fp16 or bf16.")
    result = deepcopy(model)
    versions = schema.opsets(result)
    if versions.get("", 13) < 13 and precision == "bf16":
        raise ModelProblem(
            f"BF16 needs opset 13 or newer; this model has opset {versions['']}. {CONVERT}"
        )
    rounding = _Rounding(precision, versions, names.Fresh(names.used(result.graph)))
    called = local_calls(result, keep)
    rounding.graph(result.graph, schema.element_types(result), frozenset(keep), {}, stored)
    write_notes(
        result,
        [f"'{name}' is computed in FP32 inside; only its results are rounded." for name in called],
    )
    return result


def local_calls(model: ModelProto, keep: Collection[int]) -> list[str]:
    """Names of model-local functions that nodes not kept call: conversions round what they give,
    not what they do inside."""
    known = {(f.domain, f.name) for f in model.functions}
    kept = set(keep)
    called = (
        x.op_type
        for i, x in enumerate(model.graph.node)
        if i not in kept and (x.domain, x.op_type) in known
    )
    return list(dict.fromkeys(called))


def write_notes(model: ModelProto, sentences: Sequence[str]) -> None:
    """Say in the model's metadata, under ``NOTE``, what a conversion left as it was."""
    if sentences:
        entry = model.metadata_props.add()
        entry.key, entry.value = NOTE, " ".join(dict.fromkeys(sentences))


class _Rounding:
    def __init__(self, precision: str, versions: Mapping[str, int], fresh: names.Fresh) -> None:
        self.precision, self.versions, self.fresh = precision, versions, fresh
        self.narrow = PRECISIONS[precision][0]

    def graph(
        self,
        graph: GraphProto,
        types: Mapping[str, int],
        keep: frozenset[int],
        outer: Mapping[str, str],
        stored: Collection[str] = (),
    ) -> None:
        """Round a graph in place. ``outer``: names around it that its rounded nodes must read under
        another name. ``stored``: of its inputs, those that are rounded."""
        weights = {t.name: t for t in graph.initializer if t.data_type == _FLOAT}
        renamed = dict(outer)  # what rounded nodes read in place of a name
        free = [
            frozenset() if i in keep else self._free_inputs(node)
            for i, node in enumerate(graph.node)
        ]
        for name in names.defined(graph):
            renamed.pop(name, None)
        moves = frozenset(i for i, node in enumerate(graph.node) if self._only_moves(node, types))
        rounded, exact = _reads_by_precision(graph, keep, free, moves)
        narrow = set(
            stored
        )  # what is known to be rounded; of what lies around a body that is not known
        for name in sorted(rounded & set(weights)):
            if name in exact:
                copy = graph.initializer.add()
                copy.CopyFrom(weights[name])
                copy.name = renamed[name] = self.fresh(f"{name}__{self.precision}")
                self._round_weight(copy)
            else:
                self._round_weight(weights[name])
            narrow.add(renamed.get(name, name))

        kept_floats = {
            name for i in keep for name in graph.node[i].output if name and types.get(name) == _FLOAT
        }  # fmt: skip
        nodes: list[NodeProto] = []
        for i, original in enumerate(graph.node):
            node = deepcopy(original)
            if i in keep:
                nodes.append(node)
                continue
            for position, name in enumerate(node.input):
                if position not in free[i]:
                    if name in kept_floats and name not in renamed:
                        renamed[name] = self._append_casts(
                            nodes, name, self.fresh(f"{name}__{self.precision}")
                        )
                        narrow.add(renamed[name])
                    node.input[position] = renamed.get(name, name)
            for body in names.bodies(node):
                for name in names.captures(node):
                    if name in kept_floats and name not in renamed:
                        renamed[name] = self._append_casts(
                            nodes, name, self.fresh(f"{name}__{self.precision}")
                        )
                inner = schema.graph_types(body, self.versions, types)
                self.graph(body, inner, frozenset(), renamed)
            nodes.append(node)
            as_it_is = _only_chooses(original, node, types, narrow)
            for position, name in enumerate(node.output):
                if name and types.get(name) == _FLOAT:
                    narrow.add(name)
                    if not as_it_is:
                        node.output[position] = self.fresh(f"{name}__exact")
                        self._append_casts(nodes, node.output[position], name)
        del graph.node[:]
        graph.node.extend(nodes)

    def _append_casts(self, nodes: list[NodeProto], source: str, target: str) -> str:
        """Append the two casts that round ``source`` into ``target``."""
        half = self.fresh(f"{target}__half")
        for read, write, kind in ((source, half, self.narrow), (half, target, _FLOAT)):
            cast = NodeProto(op_type="Cast", name=self.fresh(f"{write}__cast"))
            cast.input.append(read)
            cast.output.append(write)
            cast.attribute.add(name="to", i=kind, type=2)
            nodes.append(cast)
        return target

    def _only_moves(self, node: NodeProto, types: Mapping[str, int]) -> bool:
        """Whether all that it gives are elements of what it reads, and rounded."""
        plain = node.op_type in _MOVES and not schema.domain_of(node)
        return plain and all(types.get(name) == _FLOAT for name in node.output if name)

    def _free_inputs(self, node: NodeProto) -> frozenset[int]:
        """Positions of float inputs that the operator fixes to float32."""
        if schema.signature(node, self.versions) is None:
            return frozenset()
        inputs, _ = schema.convertible_slots(node, self.versions, int(TensorProto.FLOAT16))
        return frozenset(i for i, allowed in enumerate(inputs) if not allowed)

    def _round_weight(self, tensor: TensorProto) -> None:
        if not external.is_external(tensor):
            name = tensor.name
            tensor.CopyFrom(
                numpy_helper.from_array(
                    round_values(numpy_helper.to_array(tensor), self.precision), name
                )
            )
            return
        converted.convert_weight(tensor, PRECISIONS[self.precision][1], np.dtype(np.float32))


def _only_chooses(
    original: NodeProto, node: NodeProto, types: Mapping[str, int], narrow: Collection[str]
) -> bool:
    """Whether all that a rounded node gives are elements of rounded values, or whole numbers that
    need no rounding. ``original``: the node by names that are typed."""
    if schema.domain_of(node):
        return False
    if node.op_type == "Cast":
        return types.get(original.input[0]) in _EXACT
    if node.op_type not in _CHOOSES:
        return False
    reads = zip(original.input, node.input, strict=True)
    return all(
        read in narrow for name, read in reads if name and types.get(name, _FLOAT) in (0, _FLOAT)
    )


def _reads_by_precision(
    graph: GraphProto, keep: frozenset[int], free: list[frozenset[int]], moves: frozenset[int]
) -> tuple[set[str], set[str]]:
    """(names that must be rounded for who reads them, names that something reads exactly): kept
    nodes, float32-only inputs and the graph's outputs read exactly; nodes that only move what they
    read (``moves``) take either."""
    rounded: set[str] = set()
    exact = {o.name for o in graph.output}
    for i, node in enumerate(graph.node):
        captured = names.captures(node)
        if i in keep:
            exact.update(node.input)
            exact.update(captured)
        elif i not in moves:
            for position, name in enumerate(node.input):
                (exact if position in free[i] else rounded).add(name)
            rounded.update(captured)
    return rounded, exact
