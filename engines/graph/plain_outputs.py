"""Outputs that are no tensors, as tensors: what is compared is numbers. A sequence becomes its
tensors' values in their order, an optional its value, the map of a classifier the numbers in it.
The name stays."""

from onnx import GraphProto, ModelProto, TensorProto, TypeProto, helper

from narrowdown.engines.graph import names, schema

FLATTENED = "/flattened"  # ends the names of nodes that are not the user's


def flatten_outputs(model: ModelProto) -> list[str]:
    """Give the model tensors for outputs; a sentence for each that was changed, or left out as
    nothing comparable is in it. Not all are left out: what has no other output keeps it."""
    graph = model.graph
    said: list[str] = []
    for info in list(graph.output):
        kind = info.type.WhichOneof("value")
        if kind in (None, "tensor_type"):
            continue
        made = _flatten_output(graph, info.name, info.type, names.Fresh(names.used(graph)))
        if made:
            said.append(f"The output '{info.name}' is {made}.")
            info.type.CopyFrom(_plain_type(info.type))
        elif len(graph.output) > 1:
            graph.output.remove(info)
            said.append(
                f"The output '{info.name}' is no tensor and cannot be compared: it is left out."
            )
    return said


def _flatten_output(graph: GraphProto, name: str, declared: TypeProto, fresh: names.Fresh) -> str:
    """Put a tensor in the place of the output; what it holds, in words that follow "is", "" where
    that cannot be done."""
    maker = next((node for node in graph.node if name in node.output), None)
    if maker is None:
        return ""
    kind = declared.WhichOneof("value")
    if maker.op_type == "ZipMap" and maker.domain == "ai.onnx.ml":
        scores = maker.input[0]
        graph.node.remove(maker)
        graph.node.append(helper.make_node("Identity", [scores], [name], f"{name}{FLATTENED}"))
        return "compared as the table of numbers from which its maps are made"
    element = _element_type(declared)
    if not element:
        return ""
    inner = fresh(f"{name}__{kind.removesuffix('_type')}")
    names.rename_tensors(graph.node, {name: inner})
    if kind == "optional_type":
        graph.node.append(
            helper.make_node("OptionalGetElement", [inner], [name], f"{name}{FLATTENED}")
        )
        return "compared as the value in it"
    _add_join_loop(graph, inner, name, element, fresh)
    return "a sequence, compared as the values of its tensors one after the other"


def _element_type(declared: TypeProto) -> int:
    """The element type of a sequence of tensors, or of an optional tensor; 0 for anything else."""
    kind = declared.WhichOneof("value")
    if kind not in ("sequence_type", "optional_type"):
        return 0
    inner = getattr(declared, kind).elem_type
    return int(inner.tensor_type.elem_type) if inner.WhichOneof("value") == "tensor_type" else 0


def _plain_type(declared: TypeProto) -> TypeProto:
    """The type of the tensor that stands in the place of such an output."""
    kind = declared.WhichOneof("value")
    if kind == "optional_type":
        return declared.optional_type.elem_type
    element = _element_type(declared)  # a table of probabilities where it held maps
    made: TypeProto = helper.make_tensor_type_proto(
        element or TensorProto.FLOAT, [None] if element else [None, None]
    )
    return made


def _add_join_loop(
    graph: GraphProto, sequence: str, target: str, element: int, fresh: names.Fresh
) -> None:
    """Add the loop that joins a sequence's tensors, each as a vector."""
    empty, all_, count = (
        fresh(f"{target}__none"),
        fresh(f"{target}__all"),
        fresh(f"{target}__count"),
    )
    graph.initializer.append(TensorProto(name=empty, data_type=element, dims=[0]))
    graph.initializer.append(
        TensorProto(name=all_, data_type=TensorProto.INT64, dims=[1], int64_data=[-1])
    )
    i, go, on, before, after, one, flat = (
        fresh(f"{target}__{word}") for word in ("i", "go", "on", "had", "has", "one", "flat")
    )
    body = helper.make_graph(
        [
            helper.make_node("Identity", [go], [on]),
            helper.make_node("SequenceAt", [sequence, i], [one]),
            helper.make_node("Reshape", [one, all_], [flat]),
            helper.make_node("Concat", [before, flat], [after], axis=0),
        ],
        "joined",
        [
            helper.make_tensor_value_info(i, TensorProto.INT64, []),
            helper.make_tensor_value_info(go, TensorProto.BOOL, []),
            helper.make_tensor_value_info(before, element, [None]),
        ],
        [
            helper.make_tensor_value_info(on, TensorProto.BOOL, []),
            helper.make_tensor_value_info(after, element, [None]),
        ],
    )
    graph.node.append(
        helper.make_node("SequenceLength", [sequence], [count], f"{target}/length{FLATTENED}")
    )
    graph.node.append(
        helper.make_node("Loop", [count, "", empty], [target], f"{target}{FLATTENED}", body=body)
    )


def holds_sequences(graph: GraphProto) -> bool:
    """Whether a body takes sequences apart, which cannot be watched."""
    return any(
        node.op_type.startswith("Sequence") and schema.domain_of(node) == ""
        for node in names.all_nodes(graph.node)
    )
