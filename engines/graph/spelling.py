"""Names that are no text. ONNX says UTF-8; a program that wrote its user's names in another
encoding (GBK, Latin-1) is taken by ONNX Runtime as it is, and protobuf gives such a name as bytes
here, which no graph, journal or screen holds."""

from collections.abc import Iterable, MutableSequence
from typing import Any

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

from narrowdown.engines.graph.model_problem import ModelProblem
from narrowdown.engines.graph.names import bodies


def respell(model: ModelProto, file: str) -> int:
    """Give every node, tensor and dimension whose name is no text one that is, with ``\\xff`` for
    such a byte, everywhere in the model; returns how many names that were. Equal ones stay equal.
    Raises ``ModelProblem`` where what a node does has such a name: no operator or attribute is
    called so, so the file is damaged. ``file``: its name."""
    changed: set[bytes] = set()

    def spell(name: Any) -> str:
        changed.add(name)
        return str(name, "utf-8", "backslashreplace")

    def spell_listed(listed: MutableSequence[Any]) -> None:
        for i, name in enumerate(listed):
            if type(name) is bytes:
                listed[i] = spell(name)

    def spell_values(infos: Iterable[Any]) -> None:
        for info in infos:
            if type(info.name) is bytes:
                info.name = spell(info.name)
            for dim in info.type.tensor_type.shape.dim:
                if type(dim.dim_param) is bytes:
                    dim.dim_param = spell(dim.dim_param)

    def spell_nodes(nodes: Iterable[NodeProto]) -> None:
        for node in nodes:
            for word in (
                node.op_type,
                node.domain,
                *(attribute.name for attribute in node.attribute),
            ):
                _refuse_bytes(word, file)
            if type(node.name) is bytes:
                node.name = spell(node.name)
            spell_listed(node.input)
            spell_listed(node.output)
            for body in bodies(node):
                spell_graph(body)

    def spell_graph(graph: GraphProto) -> None:
        spell_values((*graph.input, *graph.output, *graph.value_info))
        for tensor in (*graph.initializer, *(s.values for s in graph.sparse_initializer)):
            if type(tensor.name) is bytes:
                tensor.name = spell(tensor.name)
        for annotation in graph.quantization_annotation:
            if type(annotation.tensor_name) is bytes:
                annotation.tensor_name = spell(annotation.tensor_name)
            for entry in annotation.quant_parameter_tensor_names:
                if type(entry.value) is bytes:
                    entry.value = spell(entry.value)
        spell_nodes(graph.node)

    def spell_function(function: FunctionProto) -> None:
        for word in (
            function.name,
            function.domain,
            *function.attribute,
            *(o.domain for o in function.opset_import),
        ):
            _refuse_bytes(word, file)
        spell_listed(function.input)
        spell_listed(function.output)
        spell_values(function.value_info)
        spell_nodes(function.node)

    for opset in model.opset_import:
        _refuse_bytes(opset.domain, file)
    spell_graph(model.graph)
    for function in model.functions:
        spell_function(function)
    return len(changed)


def _refuse_bytes(word: Any, file: str) -> None:
    if type(word) is bytes:
        raise ModelProblem(
            f"'{file}' is a damaged ONNX model: {word!r} in it is no name of an operator; export or copy it again."
        )
