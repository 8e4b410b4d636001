"""Earlier culprits stay cured while the next one is searched: by reference values after them, by
FP32, or computed by the reference."""

from collections.abc import Collection, Iterable

import msgspec

from narrowdown.engines.asking import Answer, Ask, NodeIds, Question, Sub
from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import GraphIndex, ranges


def cure_earlier(inner: Ask, findings: Findings, index: GraphIndex, live: Collection[int]) -> Ask:
    """``live``: nodes that reach the model's outputs with the patches in place."""

    def ask(question: Question) -> Sub[Answer]:
        if question.reference:
            return inner(question)
        before = Findings() if question.uncured else findings
        patches = frozenset(ranges.decode(before.patches))
        outputs, right = question.outputs, patches | question.right
        if question.nodes is not None and not question.alone:
            judged, right = cut_patches(index, live, patches, question.nodes)
            outputs = outputs or judged
        cured = msgspec.structs.replace(
            question,
            outputs=outputs,
            right=right,
            keep=question.keep.union(ranges.decode(before.keep)),
            righted=question.righted.union(ranges.decode(before.righted)),
        )
        return inner(cured)

    return ask


def cut_patches(
    index: GraphIndex, live: Collection[int], patches: NodeIds, nodes: Iterable[int]
) -> tuple[tuple[int, ...], NodeIds]:
    """(outputs, severed) of a part: the patched tensors that it makes are fed to its own nodes, and
    are not judged, as they carry no error. What is: the tensors that a live node outside reads, or
    that are the model's own. ``()``: all of them."""
    ids = set(nodes)
    severed = frozenset(t for n in ids for t in index.nodes[n].outputs) & patches
    if not patches or len(ids) == len(index.nodes):
        return (), severed
    final, outside = set(index.outputs), set(live) - ids
    _, leaves = index.boundary(ids)
    judged = tuple(
        t
        for t in leaves
        if t not in patches and (t in final or any(r in outside for r in index.readers[t]))
    )
    return judged, severed
