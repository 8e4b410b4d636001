"""What was built, read back from the engine: its layers, the ONNX nodes in each, the types that it
gives."""

import contextlib
import json
from collections.abc import Collection, Mapping, Set
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
    tactic: str = ""
    formats: tuple[str, ...] = ()  # of its outputs, as "Row major linear FP16 format"

    @property
    def wide(self) -> bool:
        """Whether all that it gives is FP32, as far as it says."""
        narrow = ("FP16", "HALF", "BF16", "INT8", "FP8")
        return not any(word in text.upper() for text in self.formats for word in narrow)


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


def group_nodes(layers: Collection[Layer]) -> list[dict[str, Any]]:
    """The layers that stand for several ONNX nodes, as plain data: name, tactic, nodes."""
    return [
        {"layer": each.name, "tactic": each.tactic, "nodes": list(each.nodes)}
        for each in layers
        if len(each.nodes) > 1
    ]


def precision_of(kept: Set[str], layers: Collection[Layer]) -> dict[str, str]:
    """What became of nodes that were to stay in FP32: ``applied`` (their layer gives FP32),
    ``ignored`` (a layer of its own gives less), ``fused`` (swallowed by a layer of several nodes
    that gives less), ``unknown`` (in no layer that says so). And of others that share a layer with
    them which gives FP32: ``widened``."""
    seen: dict[str, str] = {}
    for layer in layers:
        for node in layer.nodes:
            if node in kept:
                became = "applied" if layer.wide else "fused" if len(layer.nodes) > 1 else "ignored"
                # A node of several layers is applied where all of them give FP32.
                seen[node] = became if seen.get(node, "applied") == "applied" else seen[node]
    along = {n for layer in layers if kept & set(layer.nodes) and layer.wide for n in layer.nodes}
    return {node: seen.get(node, "unknown") for node in sorted(kept)} | dict.fromkeys(
        sorted(along - kept), "widened"
    )


def _read_layer(entry: Any) -> Layer:
    if not isinstance(entry, Mapping):
        return Layer(str(entry))
    outputs = [o for o in entry.get("Outputs", ()) if isinstance(o, Mapping)]
    return Layer(
        name=str(entry.get("Name", "")),
        kind=str(entry.get("LayerType", "")),
        nodes=node_names(str(entry.get("Metadata", ""))),
        tactic=str(entry.get("TacticName") or entry.get("TacticValue") or ""),
        formats=tuple(str(o.get("Format/Datatype") or o.get("Datatype") or "") for o in outputs),
    )
