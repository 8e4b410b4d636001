"""Opset and IR versions: restate a model in older ones where that changes nothing, and say why
where it would.

An opset number says which definition of each operator is meant. Where every operator that a model
uses has the same definition in an older opset, the older number means the same model. An IR version
says which fields and element types a file may hold, so an older one means the same in any case: an
engine that lacks an element type says so.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import onnx
from onnx import ModelProto, NodeProto

from narrowdown.engines.graph import schema
from narrowdown.engines.graph.names import all_nodes

NEWEST_IR: Final = int(onnx.IR_VERSION)


def newest_opset() -> int:
    """Of the default domain, as far as the installed onnx knows."""
    return int(onnx.defs.onnx_opset_version())


def restate(model: ModelProto, ir: int, opset: int) -> str:
    """Give the model versions no newer than these, where it then means exactly the same. "" where
    that is done or was not needed; else what stands in the way, as the end of a sentence, and the
    model is left alone."""
    if obstacle := _find_obstacle(model, opset):
        return obstacle
    model.ir_version = min(model.ir_version, ir)
    for imported in (*model.opset_import, *(o for f in model.functions for o in f.opset_import)):
        if imported.domain in ("", "ai.onnx"):
            imported.version = min(imported.version, opset)
    return ""


def _find_obstacle(model: ModelProto, opset: int) -> str:
    """The first node that an older opset defines otherwise."""
    scopes: list[tuple[Iterable[NodeProto], Mapping[str, int]]] = [
        (model.graph.node, schema.opsets(model)),
        *((f.node, schema.opsets(f)) for f in model.functions),
    ]
    for nodes, versions in scopes:
        own = versions.get("", 0)
        for node in all_nodes(nodes) if own > opset else ():
            if schema.domain_of(node) == "" and not schema.same_operator(node, own, opset):
                name = node.name or next(iter(node.output), "")
                return f"the {node.op_type} node '{name}' is not the same in opset {opset}"
    return ""
