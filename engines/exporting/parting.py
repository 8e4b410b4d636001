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

import msgspec

from narrowdown.engines.asking import Sub, asked
from narrowdown.engines.asking.whole_model import FLOAT64, WholeModel, probe_whole
from narrowdown.engines.compare.criterion import TOLERANCE_BY_PRECISION, Criterion, Signature
from narrowdown.engines.compare.judge import badness
from narrowdown.engines.findings import Case, Culprit
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.probe import Candidate, Inspect, Measure, Score
from narrowdown.engines.problem import Difference, Exported
from narrowdown.engines.search.watchable import BATCH_BYTES, pack_batches, split_markable
from narrowdown.engines.views import view_engine

# What FP32 may cost, whatever the engine under test computes in: the export is judged by itself.
RULE = Criterion(tolerance=TOLERANCE_BY_PRECISION["fp32"])
# A part's own error, fed exactly, that is this far above rounding is the part's, though it is below
# the tolerance of a whole model. Healthy nodes of a ViT, a CNN, a decoder and an LSTM are off by at
# most 6e-7; of ten planted faults the smallest was off by 1.4e-4.
CLEAR = 1e-5
# Decisive is the first sample: inner values were recorded of it alone.
FEED = ("real:0",)


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
    """What was found. ``errors``: recorded tensor -> how far the reference is off it; ``outputs``:
    the same of the model's own. ``other``: why the values are of another export, a sentence;
    ``why``: why nothing could be compared. ``exact``: how far float64 is off at the tensor that
    departs; None where it was not asked, or could not compute it."""

    index: GraphIndex | None = None
    errors: Mapping[int, float] = {}
    outputs: Mapping[str, float] = {}
    part: Part | None = None
    other: str = ""
    why: str = ""
    exact: float | None = None

    @property
    def fails(self) -> bool:
        """Whether an output of the model is off by more than FP32 may be."""
        return any(error > RULE.tolerance for error in self.outputs.values())


def find_part(model: WholeModel, recorded: str) -> Sub[Parted]:
    """``Parted`` of the model on its reference, and what was ``recorded`` (a spec)."""
    index: GraphIndex | None = yield from model.describe()
    told = yield from asked(Inspect(engine=recorded))
    held = view_engine(told.facts).recorded
    if index is None or held is None:
        return Parted(why=told.message or "The model could not be read.")
    watched = tuple(t for t in split_markable(index)[0] if index.tensors[t].name in held.shapes)
    scores: dict[str, Score] = {}
    outputs: dict[str, float] = {}
    for batch in pack_batches(index, watched, BATCH_BYTES) or [()]:
        note = f"{len(batch)} values inside of the module, PyTorch against the ONNX model"
        off = yield from model.compare(
            model.reference, recorded, FEED, marks=ranges.encode(batch), note=note
        )
        if not off.told:
            return Parted(index, why=off.why)
        for result in off.measurement.results:
            scores |= {s.name: s for s in result.marks}
            for s in result.outputs:
                outputs[s.name] = max(outputs.get(s.name, 0.0), badness(s, RULE))
    if unlike := next((n for n, s in scores.items() if s.problem == "shape"), ""):
        said = f"'{unlike}' has another shape in the recorded values than in the model."
        return Parted(index, outputs=outputs, other=said)
    scores = {n: s for n, s in scores.items() if not s.problem}
    errors = {index.by_name[n]: badness(s, RULE) for n, s in scores.items()}
    errors |= {index.by_name[n]: error for n, error in outputs.items() if n in index.by_name}
    departs = tuple(t for t in order(index, errors) if not errors[t] <= RULE.tolerance)
    found = Parted(index, errors, outputs)
    for tensor in departs:
        behind = list_behind(index, errors, tensor)
        if not behind or any(errors[t] > CLEAR for t in behind):
            return (yield from _look_closer(model, recorded, found, tensor))
        # All that is computed of it agrees: it makes no difference, or it was never this tensor.
        alone = yield from asked(_ask_part(model, recorded, found, behind[0]))
        if any(badness(s, RULE) > RULE.tolerance for r in alone.results for s in r.outputs):
            name = index.tensors[tensor].name
            said = f"'{name}' is off, and what the model computes of it is not."
            return msgspec.structs.replace(found, other=said)
    return found


def order(index: GraphIndex, tensors: Iterable[int]) -> tuple[int, ...]:
    """These tensors in the order in which nodes make them."""
    return tuple(sorted(tensors, key=lambda t: (index.tensors[t].producer, t)))


def list_behind(index: GraphIndex, known: Collection[int], tensor: int) -> tuple[int, ...]:
    """The next known tensors that are computed of this one, in order."""
    found, todo, seen = set[int](), [tensor], {tensor}
    while todo:
        for n in index.readers[todo.pop()]:
            for t in index.nodes[n].outputs:
                if t in known:
                    found.add(t)
                elif t not in seen:
                    seen.add(t)
                    todo.append(t)
    return order(index, found)


def _ask_part(
    model: WholeModel, recorded: str, found: Parted, tensor: int, save: str = ""
) -> Measure:
    """The probe that feeds what lies in front of a tensor with what was recorded."""
    assert found.index is not None
    nodes = cut_around(found.index, found.errors, tensor)
    probe = probe_whole(
        model.ctx,
        model.findings,
        samples=FEED,
        engine=model.reference,
        reference=recorded,
        candidate=Candidate(nodes=ranges.encode(nodes), outputs=ranges.encode((tensor,))),
        feed="exact",
        save=save,
    )
    assert isinstance(probe, Measure)
    return probe


def _look_closer(model: WholeModel, recorded: str, found: Parted, tensor: int) -> Sub[Parted]:
    """The part around the tensor alone, and what float64 says of it."""
    index = found.index
    assert index is not None
    probe = _ask_part(model, recorded, found, tensor, save="case")
    alone = yield from asked(probe)
    own = max((badness(s, RULE) for r in alone.results for s in r.outputs), default=None)
    part = Part(
        tensor,
        cut_around(index, found.errors, tensor),
        own,
        alone.artifacts,
        msgspec.structs.replace(probe, save=""),
    )
    exact = yield from model.compare(
        FLOAT64, recorded, FEED, marks=ranges.encode((tensor,)), note="and in float64?"
    )
    name = index.tensors[tensor].name
    seen = (s for r in exact.measurement.results for s in (*r.marks, *r.outputs) if s.name == name)
    return msgspec.structs.replace(
        found, part=part, exact=max((badness(s, RULE) for s in seen), default=None)
    )


def cut_around(index: GraphIndex, known: Collection[int], tensor: int) -> tuple[int, ...]:
    """The nodes between the tensor and what is known in front of it, ascending. What is made of
    weights alone comes with them."""
    stops = {t for t in known if t != tensor and index.tensors[t].producer >= 0}
    return index.ancestors((tensor,), stops)


def make_culprit(found: Parted, evidence: str, step: str) -> Culprit:
    """The part that departs as a culprit. Its case fails on the reference, which computes the ONNX
    model as it is."""
    part, index = found.part, found.index
    assert part is not None
    assert part.probe is not None
    assert index is not None
    name = index.tensors[part.tensor].name
    case = Case(
        candidate=part.probe.candidate,
        sample=FEED[0],
        nodes=index.names(part.nodes),
        node_ids=ranges.encode(part.nodes),
        ops=tuple(index.nodes[n].op for n in part.nodes),
        inputs=tuple(index.tensors[t].name for t in index.boundary(part.nodes)[0]),
        outputs=(name,),
        own=part.own,
        feed="exact",
        verified="1/1",
        signature=Signature("accuracy", FEED[0], (name,), {name: part.own or 0.0}),
        found_by=step,
        engine=part.probe.engine,
    )
    return Culprit(case=case, cause="export", evidence=evidence, dir="case")


class Blamed(msgspec.Struct, frozen=True):
    """Whom a part points to. ``module``: its path, "" for the outermost; ``differs``: the operator,
    attribute or constant that is another one, "" where none can be named."""

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
            return Blamed(constant.module, "", beside.line, constant.said)
    maker = index.made_by(part.tensor)
    nodes = [
        index.nodes[n] for n in part.nodes if index.nodes[n].module or index.nodes[n].module_class
    ]
    if not nodes:
        return Blamed(source=maker.source if maker else "")
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
    source = said.line or at.source
    return Blamed(path, at.module_class if at.module == path else "", source, said.said)


def first_difference(exported: Exported, module: str) -> Difference:
    """What is told first of a module; an empty one where nothing is."""
    return next(iter(exported.differences.get(module, ())), Difference(""))


def common_path(paths: Iterable[str]) -> str:
    """The innermost module that holds all of these."""
    parts = [path.split(".") for path in paths]
    shared: list[str] = []
    for names in zip(*parts, strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return ".".join(shared)
