"""FP16 or BF16 storage on FP32 arithmetic: what a faultless engine of that precision would give.

ONNX Runtime's CPU provider runs typed FP16 models in FP32 between nodes and elides the casts, which
hides overflow. Here every float32 output passes through a pair of casts, so the rounding cannot be
elided. Weights are rounded once, beforehand.
"""

from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any

import ml_dtypes
import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from narrowdown.engines.graph import ModelProblem, converted, names, protos, schema

PRECISIONS: Mapping[str, tuple[int, np.dtype[Any]]] = {
    "fp16": (int(TensorProto.FLOAT16), np.dtype(np.float16)),
    "bf16": (int(TensorProto.BFLOAT16), np.dtype(ml_dtypes.bfloat16)),
}
_FLOAT = int(TensorProto.FLOAT)


# Eleven models of opset 9 to 12 in the field campaign (speech, pictures) compute the same to the
# last digit when so converted.
CONVERT = (
    "Export it again, or convert it: onnx.version_converter.convert_version(onnx.load(PATH), 13)."
)


def find_precision(model: ModelProto, name: str) -> tuple[int, np.dtype[Any]]:
    """(element type, numpy's type) of a precision. Raises ``ModelProblem`` for an unknown one, and
    where no node of the model can hold it."""
    if name not in PRECISIONS:
        raise ModelProblem(f"The precision '{name}' is not one of {', '.join(PRECISIONS)}.")
    opset = schema.opsets(model).get("", 13)
    if name == "bf16" and opset < 13:
        raise ModelProblem(f"BF16 needs opset 13 or newer; this model has opset {opset}. {CONVERT}")
    return PRECISIONS[name]


def emulate_precision(model: ModelProto, precision: str, keep: Collection[int]) -> ModelProto:
    """A copy of the model whose float32 tensors are stored in ``precision`` (``fp16`` or ``bf16``).

    ``keep``: positions in ``graph.node`` of nodes that stay FP32: they read unrounded weights and
    give unrounded outputs; a rounded node that reads such an output reads it rounded. Graph inputs
    are left alone, and so are inputs that the operator fixes to float32 (``Resize``'s scales) and
    tensors of any other type. Bodies of If, Loop and Scan are treated alike; a kept node keeps its
    whole body. Positions of the original nodes change; names of tensors do not. Raises
    ``ModelProblem`` for an unknown precision or a missing weights file.
    """
    find_precision(model, precision)
    result = deepcopy(model)
    rounding = _Rounding(precision, schema.opsets(result), names.Fresh(names.used(result.graph)))
    rounding.graph(result.graph, schema.element_types(result), frozenset(keep), {})
    return result


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
    ) -> None:
        """Round a graph in place. ``outer``: names around it that its rounded nodes must read under
        another name."""
        free = [
            frozenset() if i in keep else self._free_inputs(node)
            for i, node in enumerate(graph.node)
        ]
        own = names.defined(graph)
        renamed = {name: new for name, new in outer.items() if name not in own}
        renamed |= self._round_weights(graph, *_reads_by_precision(graph, keep, free))
        kept = {
            name for i in keep for name in graph.node[i].output if name and types.get(name) == _FLOAT
        }  # fmt: skip
        nodes: list[NodeProto] = []

        def read_rounded(name: str) -> None:
            """Have rounded nodes read what a kept one gives through the two casts."""
            if name in kept and name not in renamed:
                target = self.fresh(f"{name}__{self.precision}")
                renamed[name] = self._append_casts(nodes, name, target)

        for i, node in enumerate(graph.node):
            if i in keep:
                nodes.append(node)
                continue
            for position, name in enumerate(node.input):
                if position not in free[i]:
                    read_rounded(name)
                    node.input[position] = renamed.get(name, name)
            for body in names.bodies(node):
                for name in names.captures(node):
                    read_rounded(name)
                inner = schema.graph_types(body, self.versions, types)
                self.graph(body, inner, frozenset(), renamed)
            nodes.append(node)
            for position, name in enumerate(node.output):
                if name and types.get(name) == _FLOAT:
                    node.output[position] = self.fresh(f"{name}__exact")
                    self._append_casts(nodes, node.output[position], name)
        protos.refill(graph.node, nodes)

    def _round_weights(
        self, graph: GraphProto, rounded: set[str], exact: set[str]
    ) -> dict[str, str]:
        """Round the float weights that rounded nodes read; those that something reads exactly are
        there twice: name -> the name of the rounded one."""
        renamed = {}
        weights = {t.name: t for t in graph.initializer if t.data_type == _FLOAT}
        for name in sorted(rounded & set(weights)):
            weight = weights[name]
            if name in exact:
                weight = graph.initializer.add()
                weight.CopyFrom(weights[name])
                weight.name = renamed[name] = self.fresh(f"{name}__{self.precision}")
            converted.convert_weight(weight, PRECISIONS[self.precision][1], np.dtype(np.float32))
        return renamed

    def _append_casts(self, nodes: list[NodeProto], source: str, target: str) -> str:
        """Append the two casts that round ``source`` into ``target``."""
        half = self.fresh(f"{target}__half")
        for read, write, kind in ((source, half, self.narrow), (half, target, _FLOAT)):
            name = self.fresh(f"{write}__cast")
            nodes.append(helper.make_node("Cast", [read], [write], name, to=kind))
        return target

    def _free_inputs(self, node: NodeProto) -> frozenset[int]:
        """Positions of float inputs that the operator fixes to float32."""
        if schema.signature(node, self.versions) is None:
            return frozenset()
        inputs, _ = schema.convertible_slots(node, self.versions, int(TensorProto.FLOAT16))
        return frozenset(i for i, allowed in enumerate(inputs) if not allowed)


def _reads_by_precision(
    graph: GraphProto, keep: frozenset[int], free: list[frozenset[int]]
) -> tuple[set[str], set[str]]:
    """(names that rounded nodes read, names that something reads exactly): kept nodes, float32-only
    inputs and the graph's outputs read exactly."""
    rounded: set[str] = set()
    exact = {o.name for o in graph.output}
    for i, node in enumerate(graph.node):
        captured = names.captures(node)
        if i in keep:
            exact.update((*node.input, *captured))
            continue
        for position, name in enumerate(node.input):
            (exact if position in free[i] else rounded).add(name)
        rounded.update(captured)
    return rounded, exact
