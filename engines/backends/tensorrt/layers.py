"""What was built, read back from the engine: its layers, the ONNX nodes in each, the types that it
gives."""

import contextlib
import json
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from narrowdown.engines.backends.tensorrt.library import Library
from narrowdown.engines.backends.tensorrt.network import node_names


class Layer(msgspec.Struct, frozen=True):
    """A layer of a built engine. ``nodes`` empty: the engine does not say which ONNX nodes it
    holds."""

    name: str
    kind: str = ""
    nodes: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()  # of its outputs, as "Row major linear FP16 format"


def read_layers(found: Library, engine: Any) -> tuple[Layer, ...]:
    """Layers in the order in which they run; empty where the engine does not tell."""
    text = ""
    with contextlib.suppress(RuntimeError, AttributeError):
        inspector = engine.create_engine_inspector()
        text = inspector.get_engine_information(found.trt.LayerInformationFormat.JSON)
    return layers_of(text)


def layers_of(text: str) -> tuple[Layer, ...]:
    """Layers of the inspector's JSON. Text that is none, or says only names, gives what there
    is."""
    try:
        found = json.loads(text).get("Layers", [])
    except (ValueError, AttributeError):
        return ()
    return tuple(_read_layer(entry) for entry in found) if isinstance(found, list) else ()


def list_layers(layers: Collection[Layer]) -> list[dict[str, Any]]:
    """The layers that say which ONNX nodes they hold, as plain data: layer, nodes, and the types of
    their outputs as the engine writes them."""
    return [
        {"layer": each.name, "nodes": each.nodes, "types": list(dict.fromkeys(each.formats))}
        for each in layers
        if each.nodes
    ]


def _read_layer(entry: Any) -> Layer:
    if not isinstance(entry, Mapping):
        return Layer(str(entry))
    outputs = [o for o in entry.get("Outputs", ()) if isinstance(o, Mapping)]
    return Layer(
        name=str(entry.get("Name", "")),
        kind=str(entry.get("LayerType", "")),
        nodes=node_names(str(entry.get("Metadata", ""))),
        formats=tuple(str(o.get("Format/Datatype") or o.get("Datatype") or "") for o in outputs),
    )
