"""Which tensors decide a shape, an axis, an index list or a condition somewhere downstream. Pure:
an index in, ids out."""

from collections.abc import Iterable

from narrowdown.engines.graph import GraphIndex, Node, Tensor
from narrowdown.engines.reach import reach

# Operator -> positions of the inputs that decide the form of its result, not its values. "1+" is
# position 1 and all after.
_REDUCTIONS = (
    "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
    "ReduceSumSquare",
)  # fmt: skip
_SINKS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(_REDUCTIONS, (1,)),
    "Reshape": (1,), "Expand": (1,), "Slice": (1, 2, 3, 4), "Pad": (1, 3), "Tile": (1,), "Resize": (1, 2, 3), "Upsample": (1,),
    "Squeeze": (1,), "Unsqueeze": (1,), "ConstantOfShape": (0,), "Range": (0, 1, 2), "TopK": (1,), "If": (0,), "Loop": (0, 1),
    "OneHot": (1,), "Split": (1,), "SplitToSequence": (1,), "CumSum": (1,), "Trilu": (1,), "MaxUnpool": (2,),
    "CenterCropPad": (1,), "DFT": (1, 2), "STFT": (1, 3), "HannWindow": (0,), "HammingWindow": (0,), "BlackmanWindow": (0,),
    "MelWeightMatrix": (0, 1, 2),
    "NonMaxSuppression": (2,), "AffineGrid": (1,), "Col2Im": (1, 2), "Dropout": (2,), "SequenceAt": (1,), "SequenceInsert": (2,),
    "SequenceErase": (1,), "ConcatFromSequence": (),
}  # fmt: skip
# The values of their input do not reach the result.
_FORM_ONLY = {"Shape", "Size", "SequenceLength"}
# Sizes are sometimes computed in floats (Shape, Cast, Mul, Floor, Cast): these are followed upwards
# through floats too. The list is short so that the search never wanders into the network itself.
_THROUGH_FLOATS = {
    "Cast", "Add", "Sub", "Mul", "Div", "Floor", "Ceil", "Round", "Sqrt", "Pow", "Min", "Max", "Concat", "Slice", "Squeeze",
    "Unsqueeze", "Identity",
}  # fmt: skip


def _is_standard(node: Node) -> bool:
    return node.domain in ("", "ai.onnx")


def _is_discrete(tensor: Tensor) -> bool:
    return tensor.dtype == "bool" or tensor.dtype.startswith(("int", "uint"))


def form_deciding_tensors(index: GraphIndex, nodes: Iterable[int]) -> set[int]:
    """Tensors of any type, weights too, that these nodes read where a value decides the form of the
    result."""
    return {t for n in nodes for t in _deciding_inputs(index.nodes[n])}


def _deciding_inputs(node: Node) -> list[int]:
    places = _SINKS.get(node.op, ()) if _is_standard(node) else ()
    return [node.inputs[p] for p in places if p < len(node.inputs) and node.inputs[p] >= 0]


def shape_like(index: GraphIndex, seeds: Iterable[int] = ()) -> tuple[int, ...]:
    """Ids, ascending, of integer and boolean node outputs that decide the form of something
    downstream.

    ``seeds``: tensors known to do so for reasons that the index does not show (a loop's body reads
    them)."""

    def made_of(t: int) -> list[int]:
        node = index.made_by(t)
        if node is None or node.op in _FORM_ONLY or node.holds_graphs or not _is_standard(node):
            return []
        floats = node.op in _THROUGH_FLOATS
        return [
            i
            for i in node.inputs
            if i >= 0 and (_is_discrete(index.tensors[i]) or (floats and index.tensors[i].floating))
        ]

    deciding = (t for node in index.nodes for t in _deciding_inputs(node))
    reached = reach((*seeds, *deciding), made_of)
    return tuple(
        sorted(
            t for t in reached if index.tensors[t].kind == "node" and _is_discrete(index.tensors[t])
        )
    )


def is_sink(op: str, domain: str, position: int) -> bool:
    """Does this input decide the form of the node's result?"""
    return domain in ("", "ai.onnx") and position in _SINKS.get(op, ())
