"""From ONNX to TensorRT's network: parser errors as sentences, what can be observed, which layers
stand for which node."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import onnx

from narrowdown.engines.backends.base import EngineFault
from narrowdown.engines.backends.marks import with_outputs
from narrowdown.engines.backends.tensorrt.library import Library
from narrowdown.engines.graph import names, protos, schema
from narrowdown.engines.nearest import join_some

# Places in NVIDIA's source, as its messages name them.
_PLACE = re.compile(r"\[\w+\.(?:cpp|h)(?:::\w+)*::\d+\]|\(?\bIn \w+ at \S+?:\d+\)?")
_NEEDS_GPU = re.compile(
    r"cudaError 35\b|driver version is insufficient|no CUDA-capable device", re.IGNORECASE
)
_AT_FAULT = "API Usage Error"  # the parser's word for what the model has no right to
_NODE = re.compile(r"\[ONNX Layer: ([^\]]*)\]")
_UNSUPPORTED = re.compile(
    r"unsupported|not supported|no importer registered|does not support|no op|no such operator|does not take",
    re.IGNORECASE,
)
# What the parser's own checks say, as recorded of 10.15, 11.2 and RTX 1.7
# (tests/engines/backends/tensorrt/answers.json), and what is meant by it.
_MEANT = (
    (
        re.compile(r'^false$|^creator && "Plugin not found.*'),
        "it has no such operator, and no plugin of that name",
    ),
    (
        re.compile(r"^.*?creator && .*?: (\S+) plugin creator version \S+ was not found.*"),
        r"its plugin '\1' is not installed here",
    ),
    (
        re.compile(r"^Failed to import initializer: .*: (\S+)$"),
        r"it does not take the type of the weight '\1'",
    ),
    (re.compile(r"^Invalid Node - \S+ .*?API Usage Error \((?:\S+: )?(.*?)\)?$"), r"\1"),
)
_SOURCE = re.compile(
    r"^In node \d+ with name: .*?\): |^In function \S+: *|^\S+\.(?:cpp|h|hpp):\d+:? *"
)


class Parsed:
    """A network with what it must outlive: TensorRT's network refers to the parser's weights.
    ``heard``: tensor of the network -> the marks that it is read for by a listener."""

    def __init__(
        self,
        network: Any,
        parser: Any,
        skipped: dict[str, str],
        heard: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.network = network
        self._parser = parser
        self.skipped = skipped  # tensor -> why it cannot be observed
        self.heard = heard or {}


def name_nodes(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, int]]:
    """The model with a name of its own for every node (layers carry the name of their node), and
    the position of each name. The same object where all names differ already."""
    unique = names.unique_nodes(model.graph.node)
    if unique != [node.name for node in model.graph.node]:
        model = deepcopy(model)
        for node, name in zip(model.graph.node, unique, strict=True):
            node.name = name
    return model, {name: i for i, name in enumerate(unique)}


def expose_marks(
    model: onnx.ModelProto, marks: Sequence[str]
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """The model with ``marks`` among its outputs, each with its element type, which TensorRT's
    parser wants to read; and those whose type is not known, with that reason. The same object where
    nothing is to be done."""
    marked = with_outputs(model, marks)
    untyped = [o.name for o in marked.graph.output if not o.type.tensor_type.elem_type]
    if not untyped:
        return marked, {}
    types = schema.element_types(marked)
    copy = deepcopy(marked)
    skipped = {
        name: "of an unknown type" for name in untyped if not types.get(name) and name in marks
    }
    protos.refill(copy.graph.output, [o for o in copy.graph.output if o.name not in skipped])
    for output in copy.graph.output:
        if not output.type.tensor_type.elem_type and types.get(output.name):
            output.type.tensor_type.elem_type = types[output.name]
    return copy, skipped


def hide_marks(
    model: onnx.ModelProto, marks: Sequence[str]
) -> tuple[onnx.ModelProto, dict[str, tuple[str, ...]]]:
    """The model without the outputs ``marks``, and inner tensor -> the marks that it is read for. A
    cast that only made such an output goes with it: nothing would keep it, and what it read is the
    very value that the engine computes with."""
    readers = {name for n in model.graph.node for name in n.input}
    casts = {
        n.output[0]: n
        for n in model.graph.node
        if n.op_type == "Cast" and n.output[0] not in readers
    }
    heard: dict[str, tuple[str, ...]] = {}
    for mark in marks:
        tensor = casts[mark].input[0] if mark in casts else mark
        heard[tensor] = (*heard.get(tensor, ()), mark)
    copy = deepcopy(model)
    wanted = frozenset(marks)
    kept = [
        n
        for n in copy.graph.node
        if not (n.op_type == "Cast" and n.output[0] in wanted and n.output[0] in casts)
    ]
    protos.refill(copy.graph.node, kept)
    protos.refill(copy.graph.output, [o for o in copy.graph.output if o.name not in wanted])
    return copy, heard


class Watched(NamedTuple):
    """``marks``: outputs that are observed, not judged: those that TensorRT cannot give out are
    dropped. ``observe``: they stay outputs, or become inner tensors again that a listener is told
    of (``debug``; ``unfused``, where layers are fused all the same)."""

    marks: Sequence[str] = ()
    observe: str = "outputs"


def parse_network(
    found: Library,
    builder: Any,
    model: onnx.ModelProto,
    weights_dir: str,
    strong: bool,
    watched: Watched = Watched(),  # noqa: B008
) -> Parsed:
    """Parse a model whose external weights lie in ``weights_dir``. Raises ``EngineFault``
    (unsupported, invalid-model)."""
    marks, observe = watched
    heard: dict[str, tuple[str, ...]] = {}
    if marks and observe != "outputs":
        model, heard = hide_marks(model, marks)
    trt = found.trt
    flags = 0
    creation = trt.NetworkDefinitionCreationFlag
    if strong and hasattr(creation, "STRONGLY_TYPED"):
        flags |= 1 << int(creation.STRONGLY_TYPED)
    if int(found.version.split(".")[0]) < 10 and not found.rtx:
        flags |= 1 << int(creation.EXPLICIT_BATCH)
    network = builder.create_network(flags)
    network.name = "narrowdown"  # else it is numbered, and equal engines differ in a byte
    parser = trt.OnnxParser(network, found.log.logger)
    found.log.clear()
    # The path is where the parser looks for external weights.
    if not parser.parse(model.SerializeToString(), str(Path(weights_dir or ".") / "model.onnx")):
        errors = [parser.get_error(i) for i in range(parser.num_errors)]
        raise refuse_model(found, errors)
    skipped: dict[str, str] = {}
    for tensor in [network.get_output(i) for i in range(network.num_outputs)]:
        if tensor.name in marks and (why := _why_hidden(trt, tensor)):
            skipped[tensor.name] = why
            network.unmark_output(tensor)
    if heard:
        skipped |= _mark_for_listener(found, network, heard, observe)
    return Parsed(
        network,
        parser,
        skipped,
        {t: names for t, names in heard.items() if names[0] not in skipped},
    )


def _why_hidden(trt: Any, tensor: Any) -> str:
    """Why TensorRT cannot give a tensor out; empty where it can."""
    return "a shape" if tensor.is_shape_tensor else "a boolean" if tensor.dtype == trt.bool else ""


def _mark_for_listener(
    found: Library, network: Any, heard: Mapping[str, tuple[str, ...]], observe: str
) -> dict[str, str]:
    """Mark tensors for a listener; mark -> why it cannot be heard. Raises ``EngineFault``."""
    if observe == "unfused" and not network.mark_unfused_tensors_as_debug_tensors():
        raise EngineFault("build-failed", f"{found.title} refuses to mark unfused tensors.")
    silent = dict.fromkeys(heard, "no tensor of the network")
    for layer in (network.get_layer(i) for i in range(network.num_layers)):
        for tensor in filter(None, (layer.get_output(k) for k in range(layer.num_outputs))):
            if tensor.name not in heard:
                continue
            why = _why_hidden(found.trt, tensor)
            if not why and observe == "debug" and not network.mark_debug(tensor):
                why = "refused as a debug tensor"
            silent[tensor.name] = why
    return {mark: why for tensor, why in silent.items() if why for mark in heard[tensor]}


def node_names(metadata: str) -> tuple[str, ...]:
    """The ONNX nodes that a layer stands for, from its metadata: ``[ONNX Layer: a]``, joined where
    layers were fused."""
    return tuple(dict.fromkeys(_NODE.findall(metadata or "")))


def keep_higher(found: Library, network: Any, names: Collection[str]) -> int:
    """Ask for FP32 in the layers of these nodes (weakly typed networks), and in what feeds them
    that is no node: constants, and layers that the parser puts between. How many layers of nodes
    were asked.

    A constant stays in FP16 otherwise, whatever reads it: an epsilon of 1e-10 is none there
    (basic_pitch on TensorRT 10.6: with 9 nodes in FP32 wrong by 18.5 % still, and by 0.14 % with
    their constants). Shape layers, and layers with no float output, have nothing to ask for.
    """
    trt = found.trt
    floats = {trt.float32, trt.float16}
    if hasattr(trt, "bfloat16"):
        floats.add(trt.bfloat16)
    wanted = frozenset(names)
    layers = [network.get_layer(i) for i in range(network.num_layers)]
    makers: dict[str, Any] = {}
    asked = []
    for layer in layers:
        outputs = list(filter(None, (layer.get_output(k) for k in range(layer.num_outputs))))
        makers |= {o.name: layer for o in outputs}
        if layer.type in (trt.LayerType.CONSTANT, trt.LayerType.SHAPE):
            continue
        if wanted.intersection(node_names(layer.metadata) or (layer.name,)) and _ask_float32(
            trt, layer, floats
        ):
            asked.append(layer)
    _keep_feeders(trt, asked, makers, floats)
    return len(asked)


def _keep_feeders(
    trt: Any, layers: Iterable[Any], makers: Mapping[str, Any], floats: Collection[Any]
) -> None:
    """Ask for FP32 in what feeds these layers and is no node, and in what feeds that. ``makers``:
    layers by the tensors that they make."""
    left, done = list(layers), set[str]()
    while left:
        layer = left.pop()
        for tensor in filter(None, (layer.get_input(k) for k in range(layer.num_inputs))):
            maker = makers.get(tensor.name)
            if (
                maker is None
                or maker.name in done
                or node_names(maker.metadata)
                or maker.type == trt.LayerType.SHAPE
            ):
                continue
            done.add(maker.name)
            if _ask_float32(trt, maker, floats):
                left.append(maker)


def _ask_float32(trt: Any, layer: Any, floats: Collection[Any]) -> bool:
    """Ask for FP32 in a layer and for its outputs that are floats; whether it has any."""
    outputs = [layer.get_output(k) for k in range(layer.num_outputs)]
    told = [
        k
        for k, o in enumerate(outputs)
        if o is not None and o.dtype in floats and not o.is_shape_tensor
    ]
    if told:
        layer.precision = trt.float32
    for k in told:
        layer.set_output_type(k, trt.float32)
    return bool(told)


def strip_source_places(text: str) -> str:
    """A message without the places in NVIDIA's source that it comes from, in one line."""
    found = " ".join(_PLACE.sub("", text).split())
    return re.sub(r"\s+([).])", r"\1", found)


def refuse_model(found: Library, errors: Sequence[Any]) -> EngineFault:
    """What the parser's errors come to, in a sentence: ``unsupported``, ``invalid-model``,
    ``error`` where a GPU is missing."""
    said = (
        [_say_parser_error(e) for e in errors] or found.log.errors()[-1:] or ["it gave no reason"]
    )
    text = join_some(said, "; ")
    if any(_NEEDS_GPU.search(_drop_aftermath(str(e.desc()))) for e in errors):
        # The parser computes what decides a shape on the GPU: nothing is known of the model.
        node = next(iter(said)).partition(":")[0]
        return EngineFault(
            "error",
            f"{found.title} needs a GPU to parse this model: it computes {node} while it reads it.",
        )
    unsupported = any("UNSUPPORTED" in str(e.code()).upper() for e in errors) or bool(
        _UNSUPPORTED.search(text)
    )
    return EngineFault(
        "unsupported" if unsupported else "invalid-model",
        f"{found.title}'s parser refuses the model: {text}.",
    )


def _drop_aftermath(text: str) -> str:
    """An error without that a GPU is missing, where it says before that the model is at fault: a
    parser that refuses goes on to compute it, and with no GPU that fails, too."""
    if _AT_FAULT not in text:
        return text
    return "\n".join(line for line in text.splitlines() if not _NEEDS_GPU.search(line))


def _say_parser_error(error: Any) -> str:
    """One error of the parser in one line: the node, then what is wrong with it."""
    text = strip_source_places(_drop_aftermath(str(error.desc())))
    while (cut := _SOURCE.sub("", text)) != text:
        text = cut
    text = text.rstrip(". ")
    for pattern, meaning in _MEANT:
        text = pattern.sub(meaning, text)
    text = text[:300]
    # Before 10.0 the parser named no node.
    node = getattr(error, "node_name", lambda: "")() or ""
    operator = getattr(error, "node_operator", lambda: "")() or ""
    if not node and not operator:
        return text
    return f"node '{node}' ({operator}): {text}" if node else f"a {operator} without a name: {text}"
