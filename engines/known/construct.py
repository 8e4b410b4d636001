"""A small model by its declaration: the constructions of the table of known bugs."""

import msgspec
import numpy as np
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper, shape_inference

from narrowdown.engines.graph import ModelProblem
from narrowdown.engines.graph.external import elem_type_of
from narrowdown.engines.graph.load import np_dtype
from narrowdown.engines.known.entry import Construction, MadeTensor

# The newest IR version that each opset was released with is never needed: this one holds every
# element type of opset 23, and ONNX Runtime reads it from 1.20 on.
IR_VERSION = 10
_SEED = 22  # of drawn weights; any number, always the same


def construct(declared: Construction) -> ModelProto:
    """The model. Raises ``ModelProblem`` where ONNX's checker refuses it."""
    weights = [
        numpy_helper.from_array(draw_tensor(tensor, _SEED + place), name)
        for place, (name, tensor) in enumerate(declared.weights.items())
    ]
    nodes = [
        helper.make_node(
            node.op,
            list(node.inputs),
            list(node.outputs),
            name=f"{node.op}_{place}",
            domain=node.domain,
            **node.attributes,
        )
        for place, node in enumerate(declared.nodes)
    ]
    inputs = [
        helper.make_tensor_value_info(
            name,
            _element_type(t.dtype),
            [None if at in t.open else n for at, n in enumerate(t.shape)],
        )
        for name, t in declared.inputs.items()
    ]
    outputs = [
        helper.make_tensor_value_info(n, _element_type(d), None)
        for n, d in declared.outputs.items()
    ]
    domains = {node.domain for node in declared.nodes if node.domain}
    imports = [
        helper.make_opsetid("", declared.opset),
        *(helper.make_opsetid(d, 1) for d in sorted(domains)),
    ]
    graph = helper.make_graph(nodes, "construction", inputs, outputs, weights)
    model = helper.make_model(
        graph, opset_imports=imports, ir_version=IR_VERSION, producer_name="narrowdown"
    )
    try:
        model = shape_inference.infer_shapes(model, strict_mode=True)  # the outputs' shapes follow
        del model.graph.value_info[
            :
        ]  # what a thread's model states of the tensors between is as a rule nothing
        checker.check_model(model)
    except (checker.ValidationError, shape_inference.InferenceError) as problem:
        raise ModelProblem(
            f"The construction is no valid model: {' '.join(str(problem).split())[:300]}"
        ) from None
    return model


def draw_feeds(declared: Construction, seed: int) -> list[dict[str, np.ndarray]]:
    """What the model's inputs are fed, by name: drawn from their ranges, from what of them is
    negative, from what is positive (of one sign: from either half), and from the whole once more,
    so that hardly any fault hides behind one draw; once where nothing is drawn."""
    feeds = [draw_feed(declared, seed)]
    if any(t.values is None and t.range[0] != t.range[1] for t in declared.inputs.values()):
        for more, part in enumerate((0, 1, None), 1):
            inputs = {name: _narrowed(t, part) for name, t in declared.inputs.items()}
            feeds.append(
                draw_feed(msgspec.structs.replace(declared, inputs=inputs), seed + 1000 * more)
            )
    return feeds


def _narrowed(tensor: MadeTensor, part: int | None) -> MadeTensor:
    """The tensor drawn from the lower part of its range, or the upper one; from all of it."""
    low, high = tensor.range
    middle = 0.0 if low < 0.0 < high else (low + high) / 2
    ends = (low, high) if part is None else ((low, middle), (middle, high))[part]
    return msgspec.structs.replace(tensor, range=ends)


def draw_feed(declared: Construction, seed: int) -> dict[str, np.ndarray]:
    """One feed. What is drawn reaches both ends of its range, so that a size decides nothing about
    how large the values are; what holds one value has the end that is further from zero."""
    return {
        name: draw_tensor(t, seed + place, ends=True)
        for place, (name, t) in enumerate(declared.inputs.items())
    }


def draw_tensor(tensor: MadeTensor, seed: int, *, ends: bool = False) -> np.ndarray:
    """Its values: those stated, else drawn evenly from its range; ``ends``: both are among them."""
    dtype = np_dtype(tensor.dtype)
    if tensor.values is not None:
        drawn = np.array(tensor.values).reshape(tensor.shape)
    else:
        low, high = tensor.range
        drawn = np.array(np.random.default_rng(seed).uniform(low, high, tensor.shape))
        drawn = np.rint(drawn / tensor.step) * tensor.step if tensor.step else drawn
        if ends and drawn.size:
            drawn.flat[-1], drawn.flat[0] = sorted((low, high), key=abs)
        drawn = np.rint(drawn) if dtype.kind in "iub" else drawn
    with np.errstate(all="ignore"):
        made = drawn.astype(dtype)
    if tensor.special and made.size:
        made.reshape(-1)[0] = np.float64(tensor.special)
    return made


def _element_type(dtype: str) -> int:
    return int(TensorProto.STRING) if dtype == "string" else elem_type_of(np_dtype(dtype))
