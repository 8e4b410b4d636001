"""Does an ONNX model compute what eager PyTorch computed, and where do the two part? Pure.

Inner values of PyTorch were recorded by the names of ONNX tensors. The model runs on the reference
with all of these watched. The first that is off in the order of the graph is where they part. Around
it the part of the model is cut that lies between it and recorded values in front of it, and fed with
those: what is off then is the part's own, and nothing upstream explains it.

A name may lie. Values recorded of another export accuse the wrong node: so a departure counts only
where it goes on. Where all that is computed of a tensor agrees, that is computed of the recorded
value: if it is off then, the value was never this tensor's.
Where rounding might explain it, float64 says: it computes the ONNX model without rounding, and a
departure is as large against that.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import takewhile
from typing import Literal

import msgspec

from narrowdown.engines.asking import Sub, asked
from narrowdown.engines.asking.whole_model import FLOAT64, WholeModel, probe_whole
from narrowdown.engines.compare.judge import (
    Criterion,
    Signature,
    badness,
    limit,
)
from narrowdown.engines.findings import Case, Culprit
from narrowdown.engines.graph import GraphIndex, ranges
from narrowdown.engines.graph.watched import BATCH_BYTES, pack_batches, split_markable
from narrowdown.engines.probe import Candidate, Inspect, Measure, Score
from narrowdown.engines.problem import Difference, Exported
from narrowdown.engines.reach import reach
from narrowdown.engines.views import view_engine

# A part's own error, fed exactly, from this share of the tolerance of a whole model on is the part's:
# 1e-5 of FP32. Healthy nodes of a ViT, a CNN, a decoder and an LSTM are off by at most 6e-7; of ten
# planted faults the smallest was off by 1.4e-4.
CLEAR = 0.1
# Decisive is the first sample: inner values were recorded of it alone.
FEED = "real:0"


class Comparison(msgspec.Struct, frozen=True):
    """``engine`` computes the ONNX ``model``, and is held against what was ``recorded`` (both
    specs) of one sample, under a ``rule``. ``closer``: the part that departs is asked alone, too."""

    model: WholeModel
    engine: str
    recorded: str
    sample: str = FEED
    rule: Criterion = Criterion()
    closer: bool = True


class Part(msgspec.Struct, frozen=True):
    """A part of the model that departs. ``tensor``: what it gives; ``nodes``: ids; ``own``: how far
    it is off when fed with PyTorch's values, None where that could not be asked; ``files``: of the
    case, name -> digest; ``probe``: what asks about it."""

    tensor: int
    nodes: tuple[int, ...]
    own: float | None = None
    files: Mapping[str, str] = {}
    probe: Measure | None = None


class Parted(msgspec.Struct, frozen=True):
    """What was found. ``errors``: recorded tensor, the outputs among them -> how far the model is
    off it. ``other``: why the values are of another export, a sentence;
    ``why``: why nothing could be compared. ``exact``: how far float64 is off at the tensor that
    departs; None where it was not asked, or could not compute it. ``amplified``: something is off, and
    what makes it is right by itself, so it makes rounding before it larger."""

    index: GraphIndex = GraphIndex("", (), (), (), ())
    errors: Mapping[int, float] = {}
    part: Part | None = None
    other: str = ""
    why: str = ""
    exact: float | None = None
    amplified: bool = False


def find_part(asked_of: Comparison) -> Sub[Parted]:
    """``Parted`` of the model and what was recorded."""
    index: GraphIndex | None = yield from asked_of.model.describe()
    told = yield from asked(Inspect(engine=asked_of.recorded))
    held = view_engine(told.facts).recorded
    if index is None or held is None:
        return Parted(why=told.message or "The model could not be read.")
    watched = tuple(t for t in split_markable(index)[0] if index.tensors[t].name in held.shapes)
    scores: dict[str, Score] = {}
    for batch in pack_batches(index, watched, BATCH_BYTES) or [()]:
        off = yield from asked_of.model.compare(
            asked_of.engine,
            asked_of.recorded,
            (asked_of.sample,),
            marks=ranges.encode(batch),
            note=f"{len(batch)} recorded values inside of the model against what it computes",
        )
        if not off.told:
            return Parted(index, why=off.why)
        scores |= {s.name: s for r in off.measurement.results for s in (*r.marks, *r.outputs)}
    inner = {index.tensors[t].name for t in watched}
    if unlike := next((n for n in inner if n in scores and scores[n].problem == "shape"), ""):
        return Parted(index, other=f"'{unlike}' has another shape in them than in the model.")
    errors = {
        index.by_name[n]: badness(s, asked_of.rule)
        for n, s in scores.items()
        if n in index.by_name and s.problem != "missing"
    }
    found = Parted(index, errors)
    for tensor in order(index, errors):
        if errors[tensor] <= limit(asked_of.rule, index.tensors[tensor].name):
            continue
        own = (yield from _ask_alone(asked_of, found, tensor)) if asked_of.closer else None
        if own is not None and own <= CLEAR * asked_of.rule.tolerance:
            found = msgspec.structs.replace(found, amplified=True)
            continue
        standing = yield from _believe(asked_of, found, tensor)
        if standing == "believed" and not asked_of.closer:
            return msgspec.structs.replace(found, part=Part(tensor, ()))
        if standing == "believed":
            return (yield from _look_closer(asked_of, found, tensor, own))
        if standing == "other":
            said = f"'{index.tensors[tensor].name}' is off, and what is computed of it does not fit to it."
            return msgspec.structs.replace(found, other=said)
    return found


def _believe(
    asked_of: Comparison, found: Parted, tensor: int
) -> Sub[Literal["believed", "idle", "other"]]:
    """Whether the recorded value of a tensor that departs is its own. ``idle``: it is, and makes no
    difference to anything.

    What follows is computed of it: fed with it, the next part gives what was recorded there. One
    part that does not may be a second fault; the part behind that one is then asked. A tensor of
    which nothing is off that is computed of it goes by its own next part alone.
    """
    behind = list_behind(found.index, found.errors, tensor)
    if not behind:
        return "believed"
    fits = yield from _fits(asked_of, found, behind[0])
    if all(found.errors[t] <= CLEAR * asked_of.rule.tolerance for t in behind):
        return "idle" if fits else "other"
    further = list_behind(found.index, found.errors, behind[0])
    if not fits and further:
        fits = yield from _fits(asked_of, found, further[0])
    return "believed" if fits else "other"


def _fits(asked_of: Comparison, found: Parted, tensor: int) -> Sub[bool]:
    """Whether what lies in front of a tensor gives its recorded value, fed with recorded ones; yes
    where that cannot be asked."""
    own = yield from _ask_alone(asked_of, found, tensor)
    return own is None or own <= limit(asked_of.rule, found.index.tensors[tensor].name)


def _ask_alone(asked_of: Comparison, found: Parted, tensor: int) -> Sub[float | None]:
    """How far what lies in front of a tensor is off its recorded value, fed with recorded ones; None
    where that cannot be asked."""
    alone = yield from asked(_ask_part(asked_of, found, tensor))
    return max((badness(s, asked_of.rule) for r in alone.results for s in r.outputs), default=None)


def order(index: GraphIndex, tensors: Iterable[int]) -> tuple[int, ...]:
    """These tensors in the order in which nodes make them."""
    return tuple(sorted(tensors, key=lambda t: (index.tensors[t].producer, t)))


def list_behind(index: GraphIndex, known: Collection[int], tensor: int) -> tuple[int, ...]:
    """The next known tensors that are computed of this one, in order."""

    def made_of(t: int) -> set[int]:
        return {o for n in index.readers[t] for o in index.nodes[n].outputs}

    unknown = reach([tensor], lambda t: made_of(t).difference(known))
    return order(index, {o for t in unknown for o in made_of(t) if o in known})


def _ask_part(asked_of: Comparison, found: Parted, tensor: int, save: str = "") -> Measure:
    """The probe that feeds what lies in front of a tensor with what was recorded."""
    nodes = cut_around(found.index, found.errors, tensor)
    probe = probe_whole(
        asked_of.model.ctx,
        asked_of.model.findings,
        samples=(asked_of.sample,),
        engine=asked_of.engine,
        reference=asked_of.recorded,
        candidate=Candidate(nodes=ranges.encode(nodes), outputs=ranges.encode((tensor,))),
        feed="exact",
        save=save,
    )
    assert isinstance(probe, Measure)
    return probe


def _look_closer(
    asked_of: Comparison, found: Parted, tensor: int, own: float | None
) -> Sub[Parted]:
    """The part around the tensor, which is off by ``own``, kept as a case, and what float64 says."""
    index = found.index
    probe = _ask_part(asked_of, found, tensor, save="case")
    alone = yield from asked(probe)
    part = Part(
        tensor,
        tuple(ranges.decode(probe.candidate.nodes)),
        own,
        alone.artifacts,
        msgspec.structs.replace(probe, save=""),
    )
    marks, note = ranges.encode((tensor,)), "and in float64?"
    exact = yield from asked_of.model.compare(
        FLOAT64, asked_of.recorded, (asked_of.sample,), marks=marks, note=note
    )
    name = index.tensors[tensor].name
    seen = (s for r in exact.measurement.results for s in (*r.marks, *r.outputs) if s.name == name)
    worst = max((badness(s, asked_of.rule) for s in seen), default=None)
    return msgspec.structs.replace(found, part=part, exact=worst)


def cut_around(index: GraphIndex, known: Collection[int], tensor: int) -> tuple[int, ...]:
    """The nodes between the tensor and what is known in front of it, ascending. What is made of
    weights alone comes with them."""
    stops = {t for t in known if t != tensor and index.tensors[t].producer >= 0}
    return index.ancestors((tensor,), stops)


def make_culprit(index: GraphIndex, part: Part, evidence: str, step: str) -> Culprit:
    """The part that departs as a culprit. Its case fails on the reference, which computes the ONNX
    model as it is."""
    assert part.probe is not None
    name = index.tensors[part.tensor].name
    case = Case(
        candidate=part.probe.candidate,
        sample=part.probe.samples[0],
        nodes=index.names(part.nodes),
        node_ids=ranges.encode(part.nodes),
        ops=tuple(index.nodes[n].op for n in part.nodes),
        inputs=tuple(index.tensors[t].name for t in index.boundary(part.nodes)[0]),
        outputs=(name,),
        own=part.own,
        feed="exact",
        verified="1/1",
        signature=Signature("accuracy", part.probe.samples[0], (name,), {name: part.own or 0.0}),
        found_by=step,
        engine=part.probe.engine,
    )
    return Culprit(case=case, cause="export", evidence=evidence, dir="case")


class Blamed(msgspec.Struct, frozen=True):
    """Whom a part points to. ``module``: its path, "" for the outermost; ``differs``: the operator,
    attribute or constant that is another one, "" where none can be named; ``nodes``: ids of those of
    the part that read such a constant, else all of it."""

    nodes: tuple[int, ...]
    module: str = ""
    module_class: str = ""
    source: str = ""
    differs: str = ""


def blame_module(index: GraphIndex, part: Part, exported: Exported) -> Blamed:
    """The module of a part: of a constant that it reads and that is another one in PyTorch; else the
    innermost one that holds all of its nodes and in which something differs; else the innermost."""
    for t in sorted({t for n in part.nodes for t in index.nodes[n].reads}):
        constant = exported.constants.get(index.tensors[t].name)
        if constant is not None:
            beside = first_difference(exported, constant.module)
            readers = tuple(n for n in part.nodes if t in index.nodes[n].reads)
            return Blamed(readers, constant.module, "", beside.line, constant.said)
    maker = index.made_by(part.tensor)
    nodes = [
        index.nodes[n] for n in part.nodes if index.nodes[n].module or index.nodes[n].module_class
    ]
    if not nodes:
        return Blamed(part.nodes, source=maker.source if maker else "")
    paths = dict.fromkeys(node.module for node in nodes)
    differing = [path for path in paths if path in exported.differences]
    path = differing[0] if len(differing) == 1 else common_path(paths)
    if path not in exported.differences:
        # A module without nodes of its own: what it computes was left out of the export.
        inner = [p for p in exported.differences if not path or p.startswith(f"{path}.")]
        said = (
            first_difference(exported, inner[0])
            if len(inner) == 1 and len(paths) > 1
            else Difference("")
        )
    else:
        said = first_difference(exported, path)
    at = next((n for n in nodes[::-1] if n.module == path), nodes[-1])
    kind = at.module_class if at.module == path else ""
    return Blamed(part.nodes, path, kind, said.line or at.source, said.said)


def first_difference(exported: Exported, module: str) -> Difference:
    """What is told first of a module; an empty one where nothing is."""
    return next(iter(exported.differences.get(module, ())), Difference(""))


def common_path(paths: Iterable[str]) -> str:
    """The innermost module that holds all of these."""
    levels = zip(*(path.split(".") for path in paths), strict=False)
    shared = takewhile(lambda names: len(set(names)) == 1, levels)
    return ".".join(names[0] for names in shared)
