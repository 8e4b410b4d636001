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

Where two computations of the model part: at the first tensor that differs by more than is allowed.
"""

import textwrap
from collections.abc import Iterable
from typing import Literal

import msgspec

from narrowdown.engines.asking import Sub
from narrowdown.engines.asking.whole_model import Distance, WholeModel, name_engine
from narrowdown.engines.compare.judge import SHARE, for_parts, over
from narrowdown.engines.graph import GraphIndex, ranges
from narrowdown.engines.graph.watched import BATCH_BYTES, pack_batches, split_markable
from narrowdown.engines.search.controls import LONG
from narrowdown.engines.spec import parse

Standing = Literal[
    "unasked", "right", "wrong", "replaced", "alone", "sides", "doubted", "open", "rounding",
    "unheard", "unsteady", "random",
    "model-right", "export", "both", "unmeasured", "contradicted", "unclear", "model-unheard",
]  # fmt: skip


class Heard(msgspec.Struct, frozen=True):
    """What independent engines say of the reference, measured on one feed.

    ``right``: one of them confirms it. ``wrong``: two of them agree against it; ``replaced``: and
    the session goes on against the first. ``alone``: the only one there is differs from it;
    ``sides``: and the engine under test gives what that one gives; ``doubted``: by far more than
    rounding makes, and engine and reference, which agree, share code. ``open``: two differ from it
    and from each other; ``rounding``: two agree against it, and rounding moves it as far.
    ``unheard``: nobody independent runs the model. ``unsteady``: it does not repeat itself;
    ``random``: as the model draws numbers.

    ``judge`` is the engine that counts: who confirms it, the first of the two against it, or the one
    that differs; ``error`` how far the reference is from that one. ``other``: the second of the
    two, ``apart`` what lies between them. ``spread``, of three: the most that lies between any two
    of them. ``beside``: whether ONNX's own operators give what ours give; None where that was not
    asked, or they do not run the model. ``moves``: how far rounding, or a second run, moves the
    reference itself. ``output``: where the reference is furthest from the first of the two.

    Of golden outputs it is the model that is right or not, and ``golden_reference`` says how: there
    ``error`` is how far the judge is from them, and ``apart`` how far the engine is from the judge.
    """

    standing: Standing = "unasked"
    judge: str = ""
    error: float | None = None
    other: str = ""
    apart: float = 0.0
    spread: float = 0.0
    why: str = ""  # what kept those who were not heard, or a judge from standing in
    moves: float = 0.0
    output: str = ""
    beside: bool | None = None

    def stand(self, standing: Standing, **found: object) -> "Heard":
        """The same, with this standing and with what was ``found`` beside it."""
        return msgspec.structs.replace(self, standing=standing, **found)


def ask_independent(model: WholeModel, feed: tuple[str, ...]) -> Sub[Heard]:
    """What independent engines say of the reference, as ``Heard``: one is asked where it confirms,
    two where it does not."""
    differing: list[Heard] = []
    why: list[str] = []
    beside: bool | None = None
    for spec in model.independent:
        off = yield from model.compare(model.reference, spec, feed)
        if not off.told:
            why.append(say_unable(spec, off))
            continue
        if _confirms(off):
            return Heard("right", spec, off.error)
        differing.append(Heard("alone", spec, off.error, output=off.output))
        if parse(spec).name == "reference":
            own = str(parse(spec).with_option("operators", "onnx"))
            beside, theirs = yield from _ask_beside(model, feed, spec, own, off)
            if _confirms(theirs):
                return Heard("right", own, theirs.error)
        if len(differing) == 2:
            break
    if not differing:
        other = "every other engine here shares code with it or with the engine under test."
        return Heard("unheard", why=" ".join(dict.fromkeys(why)) or model.why_none or other)
    first, *others = differing
    first = msgspec.structs.replace(first, beside=beside)
    if not others:
        return first
    note = "two others differ from the reference: do they agree with each other?"
    between = yield from model.compare(others[0].judge, first.judge, feed, note=note)
    return find_odd_one(first, others[0], between.error if between.told else None)


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


def say_unable(spec: str, off: Distance) -> str:
    """Who was not heard, and how its own words on that begin."""
    return f"{name_engine(spec)}: {textwrap.shorten(off.why, LONG, placeholder='…')}"


def find_odd_one(first: Heard, second: Heard, apart: float | None) -> Heard:
    """Who of the three is the odd one out: the reference, one of two engines that differ from it, or
    nobody knows. ``apart``: what lies between these two; None where that was not measured."""
    off, other_off, between = first.error or 0.0, second.error or 0.0, apart or 0.0
    told = msgspec.structs.replace(
        first,
        standing="open",
        other=second.judge,
        apart=between,
        spread=max(off, other_off, between),
    )
    if apart is None:
        return told
    if _agree_clearly(apart, (off, other_off)):
        return told.stand("wrong")
    for near, odd in ((first, second), (second, first)):
        if _agree_clearly(near.error or 0.0, (odd.error or 0.0, apart)):
            return Heard("right", near.judge, near.error)
    return told


def _agree_clearly(near: float, far: Iterable[float]) -> bool:
    return all(near <= SHARE * distance for distance in far)


class Parting(msgspec.Struct, frozen=True):
    """The first tensor at which two computations of the model part, and the node that makes it; ""
    where none was found."""

    tensor: str = ""
    node: str = ""


def find_parting(
    model: WholeModel,
    feed: tuple[str, ...],
    engine: str,
    reference: str,
) -> Sub[Parting]:
    """``Parting`` of two engines that are known to give other outputs on this feed."""
    index: GraphIndex | None = yield from model.describe()
    if index is None:
        return Parting()
    watched = split_markable(index)[0]
    rule = for_parts(model.rule)
    for batch in pack_batches(index, watched, BATCH_BYTES) or [()]:
        note, marks = "where do the two part?", ranges.encode(batch)
        off = yield from model.compare(engine, reference, feed, marks=marks, note=note)
        scores = (s for r in off.measurement.results for s in (*r.marks, *r.outputs))
        names = {s.name for s in scores if over(s, rule)}
        made = (t for node in index.nodes for t in node.outputs)
        first = next((index.tensors[t] for t in made if index.tensors[t].name in names), None)
        if first is not None:
            return Parting(first.name, index.shown_names[first.producer])
    return Parting()
