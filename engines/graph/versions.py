"""Opset and IR versions: restate a model in older ones where that changes nothing, and say why
where it would.

An opset number says which definition of each operator is meant. Where every operator that a model
uses has the same definition in an older opset, the older number means the same model. An IR version
says which fields and element types a file may hold.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import onnx
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto

from narrowdown.engines.graph import external, schema
from narrowdown.engines.graph.names import all_nodes, with_bodies

# What came with an IR version after this one is element types alone (and hints for several devices,
# which change no value).
_PLAIN_IR: Final = 10
_TYPES: Final[Mapping[str, int]] = {
    "FLOAT4E2M1": 11, "FLOAT8E8M0": 12, "UINT2": 13, "INT2": 13, "FLOAT6E2M3": 14, "FLOAT6E3M2": 14,
}  # fmt: skip
_TYPE_ATTRIBUTES: Final = frozenset(
    {"to", "dtype", "output_dtype", "output_datatype", "stash_type"}
)
NEWEST_IR: Final = int(onnx.IR_VERSION)


def newest_opset() -> int:
    """Of the default domain, as far as the installed onnx knows."""
    return int(onnx.defs.onnx_opset_version())


def restate(model: ModelProto, ir: int, opset: int) -> str:
    """Give the model versions no newer than these, where it then means exactly the same. "" where
    that is done or was not needed; else what stands in the way, as the end of a sentence, and the
    model is left alone."""
    lower_ir, lower_opset = model.ir_version > ir, schema.opsets(model).get("", 0) > opset
    obstacle = (lower_opset and _of_opset(model, opset)) or (lower_ir and _of_ir(model, ir))
    if obstacle:
        return obstacle
    if lower_ir:
        model.ir_version = ir
    if lower_opset:
        for imported in (
            *model.opset_import,
            *(o for f in model.functions for o in f.opset_import),
        ):
            if imported.domain in ("", "ai.onnx"):
                imported.version = min(imported.version, opset)
    return ""


def _of_opset(model: ModelProto, opset: int) -> str:
    """The first node that another opset defines otherwise."""
    versions = schema.opsets(model)
    for node in all_nodes(model.graph.node):
        if schema.domain_of(node) == "" and not _same_everywhere(
            node.op_type, versions.get("", 0), opset
        ):
            return _say_not_same(node, opset)
    for function in model.functions:
        own = {
            ("" if o.domain == "ai.onnx" else o.domain): o.version for o in function.opset_import
        }
        for node in all_nodes(function.node):
            if schema.domain_of(node) == "" and not _same_everywhere(
                node.op_type, own.get("", 0), opset
            ):
                return _say_not_same(node, opset)
    return ""


def _say_not_same(node: NodeProto, opset: int) -> str:
    return f"the {node.op_type} node '{node.name or next(iter(node.output), '')}' is not the same in opset {opset}"


def _same_everywhere(op: str, version: int, older: int) -> bool:
    if version <= older:
        return True
    try:
        return int(onnx.defs.get_schema(op, version, "").since_version) <= older
    except onnx.defs.SchemaError:
        return False


def _of_ir(model: ModelProto, ir: int) -> str:
    """The first element type that an older IR version does not have."""
    if ir < _PLAIN_IR:
        return f"IR version {ir} lacks more than this program can check"
    known = dict(TensorProto.DataType.items())  # an older onnx has not all of them
    late = {known[name]: name for name, since in _TYPES.items() if since > ir and name in known}
    kind = next((k for k in _element_types(model) if k in late), None)
    return "" if kind is None else f"IR version {ir} has no element type {late[kind]}"


def _element_types(model: ModelProto) -> Iterator[int]:
    for tensor in (
        *external.initializers_with_bodies(model.graph),
        *external.attribute_tensors(model),
    ):
        yield tensor.data_type
    for graph in with_bodies(model.graph):
        for info in (*graph.input, *graph.output, *graph.value_info):
            yield schema.elem_type(info.type)
    everywhere = (*all_nodes(model.graph.node), *(n for f in model.functions for n in f.node))
    for node in everywhere:
        yield from (
            a.i
            for a in node.attribute
            if a.name in _TYPE_ATTRIBUTES and a.type == AttributeProto.INT
        )
