"""From a failing node set to a case: fed exactly beside as stored, made simpler, in fresh builds,
with a passing neighbour."""

import math
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from narrowdown.engines.asking import Answer, NodeIds, Note, Question, Sub
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.findings import Case
from narrowdown.engines.graph import GraphIndex, ranges
from narrowdown.engines.graph.shapelike import form_deciding_tensors
from narrowdown.engines.graph.watched import BATCH_BYTES
from narrowdown.engines.probe import Edit
from narrowdown.engines.search.search import Trials

# Values that a fed tensor is filled with, to see whether the fault needs its own: the last one
# squares past what FP16 holds.
SIMPLE = (1.0, -1.0, 300.0)
# Edits that are tried on what is left of a case, unless told: a bound for cases that hold many
# shapes and attributes.
SHRINK_PROBES = 32
CODES = ("int8", "uint8")  # of quantized weights; other integers are indices and shapes


class Saved(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row of the table ``bundle``: the files of a model that a step leaves, name -> digest.
    ``role``: ``alike`` is the case of another culprit of the same kind, found in the same step;
    ``rewrite`` a model written with other nodes that is right, too, where a workaround is known
    already. ``case``: the node ids of an ``alike`` one; of others they are the findings' own."""

    role: Literal["case", "good", "alike", "workaround", "rewrite"]
    files: dict[str, str]
    case: str = ""


class Settled(msgspec.Struct, frozen=True):
    """A failing part, looked at from all sides. ``question``: the part as simple as it got, as it is
    asked about; ``answer`` what was said of it before. ``needs_higher``: fed exactly it passes.
    ``good``: the largest part that passes. ``failures`` of so many fresh ``builds``. ``probes``: what
    that took."""

    question: Question
    answer: Answer
    needs_higher: bool = False
    good: NodeIds = frozenset()
    failures: int = 0
    builds: int = 0
    files: tuple[Saved, ...] = ()
    probes: int = 0


def settle(
    trials: Trials, nodes: NodeIds, *, verify: int, shrinks: int = SHRINK_PROBES
) -> Sub[Settled]:
    """A failing node set: exact feed beside stored, made simpler, in fresh builds, with a passing
    neighbour. ``verify``: fresh builds; ``shrinks``: how many edits are tried."""
    oracle, part = trials.oracle, msgspec.structs.replace(trials.form, nodes=nodes, build=0)
    first, spent, higher = trials.known[nodes], 0, False
    if part.feed == "stored":
        note = Note("what is left, fed values that were not rounded", best=len(nodes))
        exact = yield from oracle.ask(msgspec.structs.replace(part, feed="exact", note=note))
        spent, higher = exact.probes, exact.passes
    if shrinks and first.signature is not None:
        part, shrunk = yield from shrink(oracle, part, first, shrinks)
        spent += shrunk
    # Where builds differ, more of them, and none that the search has seen.
    builds = max(verify, oracle.builds) if verify else 0
    failures, files = 0, tuple[Saved, ...]()
    for done in range(builds):
        note = Note(f"what is left in fresh builds, {done + 1} of {builds}", best=len(nodes))
        again = yield from oracle.ask(
            msgspec.structs.replace(
                part, build=oracle.builds + done, save="" if done else "case", note=note
            )
        )
        failures += again.fails
        files = files or (Saved("case", dict(again.files)),)
    good = trials.good(nodes)
    if good:
        spent += 1
        # It only stands beside the case, which is kept whatever it weighs.
        heavy = count_weight_bytes(oracle.index, good) > BATCH_BYTES
        note = Note("the largest part that passes, once more", best=len(nodes))
        beside = yield from oracle.ask(
            msgspec.structs.replace(
                trials.form,
                nodes=good,
                build=oracle.builds,
                save="" if heavy else "good",
                note=note,
            )
        )
        files += (Saved("good", {} if heavy else dict(beside.files)),) if beside.passes else ()
        good = good if beside.passes else frozenset()
    return Settled(part, first, higher, good, failures, builds, files, spent + builds)


def shrink(oracle: Oracle, part: Question, first: Answer, budget: int) -> Sub[tuple[Question, int]]:
    """Simplify what is left, one edit at a time, as long as it keeps failing like itself (``first``).
    Returns (part, probes)."""
    spent, nodes = 0, part.nodes or frozenset()
    note = Note("can what is left be made simpler?", best=len(nodes))
    for edit_set in _list_edits(oracle.index, nodes, oracle.row):
        if spent >= budget:
            break
        done = {(e.kind, e.tensor, e.axis, e.node, e.attribute) for e in part.edits}
        if done.intersection((e.kind, e.tensor, e.axis, e.node, e.attribute) for e in edit_set):
            continue  # a stronger edit of the same thing has held
        trial = msgspec.structs.replace(
            part, edits=(*part.edits, *edit_set), like=first.signature, note=note
        )
        answer: Answer = yield from oracle.ask(trial)
        if not answer.probes:
            break  # no outputs are compared, so nobody can tell
        spent += 1
        if answer.fails:
            part = trial
    return part, spent


def _list_edits(index: GraphIndex, nodes: NodeIds, row: int) -> list[tuple[Edit, ...]]:
    """Shrinks worth trying, most worth first: dimensions that fed tensors and weights share, down
    to 1 (then by half), then simple values for what is fed and for weights, then attributes left to
    their defaults.

    Of a batch the rows around the one that fails are kept."""
    # Of other values of what decides a shape a result may not fit into memory.
    forming = form_deciding_tensors(index, nodes)
    feeds = tuple(t for t in index.boundary(nodes)[0] if t not in forming)
    read = sorted(
        {t for n in nodes for t in index.nodes[n].reads if index.tensors[t].kind == "weight"}
        - forming
    )
    large = [t for t in read if math.prod(index.tensors[t].shape or ()) > 1]
    floating = [t for t in (*feeds, *large) if index.tensors[t].floating]
    return [
        *_list_cuts(index, feeds, read, row),
        *((Edit("fill", tensor=t, value=value),) for t in floating for value in SIMPLE),
        *(
            (Edit("drop-attribute", node=n, attribute=a),)
            for n in sorted(nodes)
            for a in index.nodes[n].attributes
        ),
    ]


def _list_cuts(
    index: GraphIndex, feeds: tuple[int, ...], read: Iterable[int], row: int
) -> Iterator[tuple[Edit, ...]]:
    """Sizes that are equal mostly are one dimension of the graph: of what is fed and of weights,
    else of what is fed alone."""
    weights = [t for t in read if index.tensors[t].floating or index.tensors[t].dtype in CODES]
    all_axes, fed_axes = _group_axes(index, (*feeds, *weights)), _group_axes(index, feeds)
    for size, places in sorted(all_axes.items(), key=lambda item: -item[0]):
        for of in dict.fromkeys((tuple(places), tuple(fed_axes.get(size, ())))):
            for kept in dict.fromkeys((1, size // 2)) if of else ():
                start = min(row, size - kept)
                yield tuple(
                    Edit(
                        "keep-rows",
                        tensor=t,
                        axis=axis,
                        value=float(kept),
                        start=start if t in feeds and not axis else 0,
                    )
                    for t, axis in of
                )


def _group_axes(index: GraphIndex, tensors: Iterable[int]) -> dict[int, list[tuple[int, int]]]:
    """Size -> (tensor, axis) of all dimensions of that size; 1 is left out."""
    axes: dict[int, list[tuple[int, int]]] = {}
    for t in tensors:
        for axis, size in enumerate(index.tensors[t].shape or ()):
            if size > 1:
                axes.setdefault(size, []).append((t, axis))
    return axes


def count_weight_bytes(index: GraphIndex, nodes: Iterable[int]) -> int:
    """Bytes of the weights that the nodes read, each counted once."""
    read = {t for n in nodes for t in index.nodes[n].reads}
    return sum(max(0, index.tensors[t].bytes) for t in read if index.tensors[t].kind == "weight")


def make_case(ask: Inquiry, settled: Settled, *, minimal: bool, found_by: str) -> Case:
    """``found_by``: the step."""
    question, first = settled.question, settled.answer
    nodes = question.nodes or frozenset()
    _, leaves = ask.index.boundary(nodes)
    return Case(
        candidate=ask.candidate(nodes, question.edits),
        sample=ask.findings.sample,
        nodes=ask.index.names(sorted(nodes)),
        node_ids=ranges.encode(nodes),
        ops=tuple(ask.index.nodes[group[0]].op for group in ask.index.group_copies(nodes)),
        inputs=tuple(ask.index.tensors[t].name for t in ask.fed(nodes)),
        outputs=tuple(ask.index.tensors[t].name for t in leaves),
        **first.off,
        feed=question.feed,
        needs_higher_inputs=settled.needs_higher,
        good=ask.candidate(settled.good) if settled.good else None,
        verified=f"{settled.failures}/{settled.builds}",
        signature=first.signature,
        minimal=minimal,
        found_by=found_by,
    )


def ask_about(case: Case, **how: object) -> Question:
    """The question about a case that was found before. ``how``: fields of it."""
    question = Question(
        frozenset(),
        part=case.candidate,
        like=case.signature if case.candidate.edits else None,
        feed="exact" if case.feed == "exact" else "stored",
        build=0,
    )
    return msgspec.structs.replace(question, **how)
