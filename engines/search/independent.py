"""Is the reference right? Other engines are asked, and only those who share no code with the engine
under test or the reference: two builds of one library repeat each other's mistakes, and whoever is
accused has no vote.

Where the reference differs from one of them, either may be wrong, and float64 and OpenVINO both are
on common models. So a third computation settles it, in pairs: the two that agree *clearly* are
right and the one that is left is wrong, reference or judge. Where no two agree clearly nothing is
known but how far the outputs are determined at all.

Clearly is by a tenth (``SHARE``) of what lies between either and the third. Healthy FP32 engines
differ from float64 each by its own rounding, and those distances are within a factor of three of one
another on every real model tried; a wrong operator stands apart by hundreds. A reference within a
tenth of the tolerance of an independent engine is confirmed: what it is off moves no verdict.

Float64 is ONNX's evaluator with operators of ours. Where it differs from the reference, ONNX's own
operators are asked beside it: one more against it, and none for it, as most of the two is the same
code.

Where two computations of the model part: the first node that adds to what lies between them.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.whole_model import Distance, WholeModel, name_engine
from narrowdown.engines.compare.criterion import Criterion, for_parts
from narrowdown.engines.compare.judge import SHARE, badness, exceed, limit, worst
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.probe import Candidate
from narrowdown.engines.search.controls import LONG
from narrowdown.engines.search.watchable import BATCH_BYTES, pack_batches, split_markable
from narrowdown.engines.spec import parse

Standing = Literal["right", "wrong", "alone", "open", "unheard"]


class Heard(msgspec.Struct, frozen=True):
    """What independent engines say of the reference, measured on one feed.

    ``right``: one of them confirms it. ``wrong``: two of them agree against it. ``alone``: the only
    one there is differs from it. ``open``: two differ from it and from each other. ``unheard``:
    nobody independent runs the model.

    ``judge`` is the engine that counts: who confirms it, the first of the two against it, or the one
    that differs; ``error`` how far the reference is from that one. ``other``: the second of the
    two, ``apart`` what lies between them. ``spread``, of three: the most that lies between any two
    of them. ``lonely``: engines that turned out to be the wrong ones themselves. ``beside``: whether
    ONNX's own operators give what ours give; None where that was not asked, or they do not run the
    model. ``moves``: two agree against it, and rounding moves it this far, which is as much: so
    ``open``; 0 where that was not so. ``output``: where the reference is furthest from the first of
    the two.
    """

    standing: Standing = "unheard"
    judge: str = ""
    error: float | None = None
    other: str = ""
    apart: float | None = None
    spread: float = 0.0
    lonely: tuple[tuple[str, float], ...] = ()
    why: str = ""  # unheard: what kept each of them
    moves: float = 0.0
    output: str = ""
    beside: bool | None = None


class Differing(msgspec.Struct, frozen=True):
    """An independent engine that differs from the reference: by how much, and on which output."""

    spec: str
    error: float
    output: str


def ask_independent(
    model: WholeModel, feed: tuple[str, ...], nodes: int, most_nodes: int
) -> Sub[Heard]:
    """What independent engines say of the reference, as ``Heard``: one is asked where it confirms,
    two where it does not. ``nodes`` of the model; with more than ``most_nodes`` float64, which
    takes its time for each, is not asked."""
    differing: list[Differing] = []
    why: list[str] = []
    beside: bool | None = None
    for spec in model.independent:
        ours = parse(spec).name == "reference"
        if ours and nodes > most_nodes:
            why.append(f"in float64 {nodes:,} nodes take too long.")
            continue
        off = yield from model.compare(model.reference, spec, feed)
        if not off.told:
            why.append(_say_unable(spec, off.why))
            continue
        lonely = tuple((each.spec, each.error) for each in differing)
        if _confirms(off):
            return Heard("right", spec, off.error, lonely=lonely)
        differing.append(Differing(spec, off.error, off.output))
        if ours:
            own = str(parse(spec).with_option("operators", "onnx"))
            beside, theirs = yield from _ask_beside(model, feed, spec, own, off)
            if _confirms(theirs):
                lonely = (*lonely, (spec, off.error))
                return Heard("right", own, theirs.error, lonely=lonely)
        if len(differing) == 2:
            break
    if not differing:
        other = "every other engine here shares code with it or with the engine under test."
        return Heard(why=" ".join(dict.fromkeys(filter(None, why))) or model.why_none or other)
    first, *others = differing
    if not others:
        return Heard("alone", first.spec, first.error, output=first.output, beside=beside)
    between = yield from model.compare(
        others[0].spec,
        first.spec,
        feed,
        note="two others differ from the reference: do they agree with each other?",
    )
    found = find_odd_one(first, others[0], between.error if between.told else None)
    return msgspec.structs.replace(found, beside=beside)


def _confirms(off: Distance) -> bool:
    return off.told and off.error <= SHARE * off.allowed


def _ask_beside(
    model: WholeModel, feed: tuple[str, ...], spec: str, own: str, off: Distance
) -> Sub[tuple[bool | None, Distance]]:
    """(beside, how far the reference is from ONNX's own operators): see ``Heard``. Where they give
    what ours give they are as far off."""
    apart = yield from model.compare(spec, own, feed, note="do ONNX's own operators give the same?")
    if not apart.told:
        return None, apart
    if _confirms(apart):
        return True, off
    return False, (yield from model.compare(model.reference, own, feed))


def _say_unable(spec: str, message: str) -> str:
    """That an engine does not run the model, and how its own words on that begin and end."""
    _, told, reason = message.partition("could not run the model: ")
    if not told:
        return message
    reason = reason.rstrip(".")
    short = (
        reason
        if len(reason) <= LONG
        else f"{reason[: LONG // 2].rstrip()}…{reason[-(LONG // 2) :].lstrip()}"
    )
    return f"{name_engine(spec)} does not run the model ({short})."


def find_odd_one(first: Differing, second: Differing, apart: float | None) -> Heard:
    """Who of the three is the odd one out: the reference, one of two engines, or nobody knows."""
    told = Heard(
        "open",
        first.spec,
        first.error,
        other=second.spec,
        apart=apart,
        spread=max(first.error, second.error, apart or 0.0),
        output=first.output,
    )
    if apart is None:
        return told
    if _agree_clearly(apart, (first.error, second.error)):
        return msgspec.structs.replace(told, standing="wrong")
    for near, odd in ((first, second), (second, first)):
        if _agree_clearly(near.error, (odd.error, apart)):
            return msgspec.structs.replace(
                told, standing="right", judge=near.spec, error=near.error,
                lonely=((odd.spec, odd.error),),
            )  # fmt: skip
    return told


def _agree_clearly(near: float, far: Iterable[float]) -> bool:
    return all(near <= SHARE * distance for distance in far)


class Departure(msgspec.Struct, frozen=True):
    """The first tensor at which one computation of the model departs from another, and the ``node``
    that makes it; "" where none was found. ``alone``: how far that node is by itself, fed the same
    values in both; None where that was within the tolerance, or could not be asked. ``problem``:
    what keeps its results from being compared (``Score.problem``). ``looked``: how many tensors were
    recorded, of golden outputs."""

    tensor: str = ""
    node: str = ""
    op: str = ""
    alone: float | None = None
    problem: str = ""
    looked: int = 0


def find_parting(model: WholeModel, feed: tuple[str, ...], other: str) -> Sub[Departure]:
    """``Departure`` of the reference and another engine that is known to give other outputs on this
    feed."""
    index: GraphIndex | None = yield from model.describe()
    if index is None:
        return Departure()
    rule, errors = for_parts(model.rule), dict[int, float]()
    tensor: int | None = None
    for batch in pack_batches(index, split_markable(index)[0], BATCH_BYTES) or [()]:
        yield Note("where do the two part?")
        marks = ranges.encode(batch)
        off = yield from model.compare(model.reference, other, feed, marks=marks)
        if off.measurement.status != "ok":
            return Departure()
        for score in (s for r in off.measurement.results for s in (*r.marks, *r.outputs)):
            if score.name in index.by_name:
                errors[index.by_name[score.name]] = badness(score, rule)
        tensor = _first_departure(index, errors, rule)
        if tensor is not None:
            break
    if tensor is None:
        return Departure()
    node = index.tensors[tensor].producer
    found = Departure(index.tensors[tensor].name, index.shown_names[node], index.nodes[node].op)
    part = Candidate(nodes=ranges.encode((node,)), outputs=ranges.encode((tensor,)))
    alone = yield from model.compare(
        model.reference,
        other,
        feed,
        candidate=part,
        feed="exact",
        note=f"does {found.node} part by itself?",
    )
    results = alone.measurement.results
    if alone.measurement.status != "ok" or not exceed(results, rule):
        return found
    problem = next((s.problem for r in results for s in r.outputs if s.problem), "")
    return msgspec.structs.replace(found, alone=worst(results, rule)[2], problem=problem)


def _first_departure(index: GraphIndex, errors: dict[int, float], rule: Criterion) -> int | None:
    """The first tensor that is off by far more than what its node reads; else the first that is
    off."""
    off = [
        t
        for n in index.nodes
        for t in n.outputs
        if errors.get(t, 0.0) > limit(rule, index.tensors[t].name)
    ]
    made = {t: index.nodes[index.tensors[t].producer] for t in off}
    read = {
        t: max((errors.get(r, 0.0) for r in node.reads), default=0.0) for t, node in made.items()
    }
    return next((t for t in off if SHARE * errors[t] > read[t]), next(iter(off), None))
