"""What each step is going to ask, told beforehand: one rule a step, from what is known when it is offered.

The counts were fitted on real sessions (docs/estimates.md has them beside what came); they are what usually happens where a step
fails to fail, not a bound. ``disk`` is a bound: every tensor of every row captured, a case as heavy as the heaviest few nodes.
"""

from collections.abc import Callable, Mapping

import msgspec

from engines import causes
from engines.asking import StepContext
from engines.graph import ranges
from engines.graph.quantized import layers
from engines.search.cost import Kind, Plan, Size, Work, rows
from engines.search.latency import TIMED
from engines.search.marks import batches, markable
from engines.search.ranking import MOST_EFFECTS
from engines.search.settle import HEAVIEST_GOOD, weights
from engines.search.switches import switches
from engines.search.whole import all_feeds
from engines.spec import parse, unquantized
from engines.steps.confirm import ConfirmParams
from engines.steps.extract import ExtractParams
from engines.steps.layerwise import ALONE, PARTS, LayerwiseParams
from engines.steps.nondeterminism import NondeterminismParams
from engines.steps.precision import PrecisionParams
from engines.steps.reduce import ReduceParams
from engines.steps.repeat import RepeatParams
from engines.steps.tactics import TacticsParams
from engines.steps.workaround import SPREAD_BUDGET, WorkaroundParams

TABLE = 1 << 10  # bytes of one tensor's scores
PLACE = 14  # probes that each further place of the same overflow takes to become a case
CASE = 4  # nodes that a case holds at most, as a rule
# Bytes of reference values that are captured unasked: of a feed, and of its worst row (engines.data.captures).
AHEAD = 128 << 20
FOLDED = 256 << 20  # bytes of constants that sanitizing makes at most (engines.graph.sanitize)
# Bytes of float64 weights up to which the reference is held against float64 (engines.backends.reference).
JUDGED = 2 << 30
SHRINKS = 7  # edits that are tried on what is left of a case
GROWN = 6  # probes for each node of a group: it is grown first, then each of its nodes is left out
LARGER = 3.0  # times that a part of several nodes takes what a node alone does
EFFECTS = 12  # of so many nodes, one adds an error whose effect is worth asking for, below FP32
FEW = 4  # and of all of them, in FP32, where rounding is far below what is allowed
# Probes for each node that a workaround keeps. Where the culprits' nodes are all that is needed, as for values that do not fit,
# delta debugging leaves each out once or twice; else the set is grown first, and more samples join.
FITTING, GROWING = 2, 12
ANYWHERE = 3  # and for each node of the model, where many others share the blame with the culprits
ROUNDING = {"fp16": 2**-11, "tf32": 2**-11, "bf16": 2**-8, "fp32": 2**-24}  # largest relative error of one rounding


def compare(ctx: StepContext, size: Size) -> Plan:
    """Read, all samples, the worst row alone, the reference a second time, its judge; what a faultless engine would give.
    Looks that find nothing go on for up to half a minute, which is not counted. The disk takes the model, its weights once more
    rounded where the precision is emulated, and in float64 where the judge can hold them."""
    rule = ctx.findings.criterion
    lower = (rule.precision if rule else "") in ("fp16", "bf16", "int8")
    emulated = lower and parse(ctx.engine).name != "emulate"
    works = (_all(ctx),) if ctx.check else (_all(ctx), _one(ctx), *_others(ctx, 1 + emulated))
    given = size.given
    copies = given * lower + (2 * given if 2 * given <= JUDGED else 0)
    disk = _taken(ctx, size) + AHEAD + (0 if ctx.check else copies) if given >= 0 else -1
    return Plan((*_reads(ctx), *works), disk, AHEAD if disk >= 0 else 0)


def sanitize(ctx: StepContext, size: Size) -> Plan:
    """Clean up, all samples of the new model, the worst row alone; its reference values are captured anew."""
    row = (_fresh(_one(ctx)),) if "/" in ctx.findings.sample else ()
    disk = size.captured + min(2 * size.weights, FOLDED)
    return Plan((Work("read"), _fresh(_all(ctx, ctx.findings.looks)), *row), disk, size.captured)


def inputs(ctx: StepContext, _size: Size) -> Plan:
    """All samples once."""
    return Plan(() if ctx.check else (_all(ctx),))


def repeat(ctx: StepContext, size: Size) -> Plan:
    """One build run again and again; fresh builds where the engine's builds may differ, or the check again."""
    params = msgspec.convert(dict(ctx.params), RepeatParams)
    again = ctx.check or ctx.can("rebuild")
    runs = max(params.runs, min(params.most_runs, ctx.findings.looks))
    same = () if ctx.check else (_one(ctx, runs=runs),)
    return Plan((*_before(ctx, size), *same, *((_one(ctx, params.builds),) if again else ())))


def nondeterminism(ctx: StepContext, size: Size) -> Plan:
    """Every batch of tensors watched in many runs, then the same on one thread."""
    params = msgspec.convert(dict(ctx.params), NondeterminismParams)
    runs = min(params.most_runs, max(params.runs, ctx.findings.looks))
    watched = Work("watched", _batches(size, params.batch_bytes), _row(ctx), runs)
    works = (*_before(ctx, size), Work("read"), watched, _one(ctx, runs=runs))
    return Plan(works, _held(size, TABLE * size.nodes), _activations(size))


def tactics(ctx: StepContext, size: Size) -> Plan:
    """Switches: all on, all off, then one of n by halving, alone and without it: 2 log2(n) + 1. Tactics: fresh builds, then as
    many as it takes to halve the layers that differ, and some to see it again."""
    names = switches(ctx.engine, ctx.engine_info).names
    if ctx.can("tactics") and not ctx.check:
        params = msgspec.convert(dict(ctx.params), TacticsParams)
        return Plan((*_before(ctx, size), _one(ctx, params.builds + 5 + _halvings(size.nodes))))
    if not names or ctx.check:
        return Plan(_before(ctx, size))
    return Plan((*_before(ctx, size), _one(ctx, 2 * _halvings(len(names)) + 1, ctx.findings.looks)))


def layerwise(ctx: StepContext, size: Size) -> Plan:
    """Every batch of tensors watched; every node alone, in batches of half the bytes, fed as stored and exactly; the effect of
    the worst nodes, at most ``most_suspects``: of every node and then of every part of the model, where the tolerance is so
    strict that rounding alone is over a tenth of it."""
    params = msgspec.convert(dict(ctx.params), LayerwiseParams)
    rule = ctx.findings.criterion
    usual = FEW if rule is not None and rule.precision == "fp32" else max(FEW, size.nodes // EFFECTS)
    effects = min(params.most_suspects, size.nodes) + PARTS if _strict(ctx) else usual
    parts = _batches(size, params.batch_bytes // 2, ALONE)
    works = (
        Work("read"),
        Work("watched", _batches(size, params.batch_bytes), _row(ctx)),
        Work("alone", 2 * parts, _row(ctx), ahead=True, share=1 / parts),
        _effect(ctx, min(params.most_suspects + PARTS, effects)),
    )
    return Plan((*_before(ctx, size), *works), _held(size, 3 * TABLE * size.nodes), _activations(size))


def extract(ctx: StepContext, size: Size) -> Plan:
    """The suspect alone; of a group, grown until it fails, what is left when each of its nodes is left out in turn; then the case
    is settled."""
    params = msgspec.convert(dict(ctx.params), ExtractParams)
    first = next(iter(ctx.findings.suspects), None)
    group = len(ranges.decode(first.nodes)) if first else 0
    if not group:
        return Plan((*_before(ctx, size), Work("read")))
    search = 1 if group == 1 else GROWN * group
    searched = _effect(ctx, search, times=1.0 if group == 1 else LARGER)
    return Plan(
        (*_before(ctx, size), Work("read"), searched, *_settled(ctx, params.verify)),
        _case(size, first.nodes if first and group == 1 else ""),
    )


def reduce(ctx: StepContext, size: Size) -> Plan:
    """Both ends; a bisection from either side of the node order, two more nodes looked for at a distance; then the case is
    settled: 2 log2(n) + 6. Searched without cuts: two for each halving and node that is left."""
    return _reduction(ctx, size, msgspec.convert(dict(ctx.params), ReduceParams))


def _reduction(ctx: StepContext, size: Size, params: ReduceParams) -> Plan:
    search = (2 if params.search != "linear" else 4) * _halvings(size.nodes) + 4
    ends = (_one(ctx), *(() if ctx.check else (Work("control", 1, _row(ctx)),)))
    works = (Work("read"), *ends, _effect(ctx, search), *_settled(ctx, params.verify))
    return Plan((*_before(ctx, size), *works), _held(size, _case(size) + _good(size)), _activations(size))


def double_check(ctx: StepContext, size: Size) -> Plan:
    """What is known already."""
    return Plan(_before(ctx, size))


def confirm(ctx: StepContext, size: Size) -> Plan:
    """The case in fresh builds, some known from when it was found; its inside once; the model with it patched or kept, on the
    search's sample and on all. Where there is no case yet, it is reduced first."""
    params = msgspec.convert(dict(ctx.params), ConfirmParams)
    case = ctx.findings.case
    verified = int(case.verified.partition("/")[2] or 0) if case else ReduceParams().verify
    # Of the looks that found it, all but the first are looks here.
    again = _part(ctx, params.repeats - min(params.repeats, max(0, verified - 1)) + 1, ahead=False)
    cured: tuple[Work, ...] = () if ctx.check else (_one(ctx, 2), _all(ctx, real=True), _one(ctx))
    signature = ctx.findings.round_signature or ctx.findings.signature
    overflows = (signature is not None and signature.nonfinite) or any(s.nonfinite for s in ctx.findings.suspects[:1])
    if cured and overflows and ctx.can("keep"):
        # What overflows cannot be fed: its nodes are kept instead, and those beside them are looked at; the reference is asked
        # who else goes as far, and who reads that.
        cured = (*cured, _all(ctx, probes=4, real=True), Work("watched", 2, _row(ctx)))
    alike = _alike(ctx, size)
    if cured and alike and ctx.can("keep"):
        cured = (*cured, _effect(ctx, alike), _part(ctx, PLACE * alike, ahead=False))
    first = Plan(_before(ctx, size)) if case is not None else _reduction(ctx, size, ReduceParams())
    disk = first.disk + _case(size, case.node_ids if case else "") + size.captured if first.disk >= 0 else -1
    return Plan((*first.works, Work("read"), again, *cured), disk, first.captured + size.captured)


def workaround(ctx: StepContext, size: Size) -> Plan:
    """An option is built twice on all samples and timed beside the engine as it is; else a search for nodes to keep."""
    findings = ctx.findings
    params = msgspec.convert(dict(ctx.params), WorkaroundParams)
    if findings.optimizers or findings.options or findings.tactics or findings.looks > 1 or ctx.can("precision-hint"):
        runs = findings.looks * 3 if findings.looks > 1 else 1
        tried = _all(ctx, runs, params.builds + ctx.can("casts"), real=True)
        return Plan((*_before(ctx, size), Work("read"), tried, _one(ctx, 2, TIMED)), size.captured, size.captured)
    if not ctx.can("keep"):
        return Plan(_before(ctx, size), size.captured, size.captured)
    return _kept(ctx, size, SPREAD_BUDGET if findings.spread and not findings.culprits else params.budget)


def precision(ctx: StepContext, size: Size) -> Plan:
    """A search for nodes to keep."""
    return _kept(ctx, size, msgspec.convert(dict(ctx.params), PrecisionParams).budget)


def quantization(ctx: StepContext, size: Size) -> Plan:
    """Each layer alone and its pairs, the layers as they are; the effect of each, at most 48; then a search for layers to keep,
    which begins with those that lose the most."""
    found = len(layers(size.index)) if size.index else 0
    effects = min(MOST_EFFECTS, found or max(4, size.nodes // 4))
    measured = not unquantized(ctx.reference)
    works = (
        Work("read", 2),
        *((_all(ctx), _one(ctx)) if measured else ()),
        _effect(ctx, 2 + effects, times=2.0),  # a layer with its pairs
        Work("watched", 1, _row(ctx)),
        Work("whole", 2 + 2 * _halvings(effects), _row(ctx), ahead=True),
        *_timed(ctx),
    )
    return Plan((*_before(ctx, size), *works), size.weights + 3 * TABLE * size.nodes)


def _kept(ctx: StepContext, size: Size, budget: int) -> Plan:
    """Nothing and everything kept, on all samples; the culprits' nodes and what surrounds them, grown in a few rings; then
    delta debugging over what is kept, on the samples that the culprits were found on. Where nobody is accused: over the model."""
    findings = ctx.findings
    culprits = findings.culprits
    seeds = {n for c in culprits for n in ranges.decode(c.keep or c.case.node_ids)}
    each = FITTING if all(causes.unfit(c.cause) for c in culprits) else GROWING
    wanted = 6 + (each * len(seeds) if seeds else size.nodes)
    if seeds and (findings.spread or _strict(ctx)):
        wanted = ANYWHERE * size.nodes
    fed = rows({c.case.sample for c in culprits} | {findings.sample}, findings.samples)
    search = Work("whole", min(budget, wanted), fed, ahead=True)
    works = (*_before(ctx, size), Work("read"), _all(ctx, probes=2, real=True), search, *_timed(ctx))
    return Plan(works, size.weights + size.captured, size.captured)


def _timed(ctx: StepContext) -> tuple[Work, ...]:
    """What a workaround costs in time, with it and without it."""
    return (_one(ctx, 2, TIMED),) if ctx.can("latency", untold=True) else ()


def _reads(ctx: StepContext) -> tuple[Work, ...]:
    """The model and the inputs, where they have not been taken in."""
    blind = bool(ctx.check) and "{inputs}" not in ctx.check and "{expected}" not in ctx.check
    model = () if ctx.findings.model else (Work("import"),)
    return model if ctx.findings.inputs or blind else (*model, Work("read"))


def _before(ctx: StepContext, _size: Size) -> tuple[Work, ...]:
    """What ``prepared`` asks of a step that runs alone: nothing once the failure is locked."""
    if ctx.findings.signature is not None:
        return ()
    return (*_reads(ctx), _all(ctx), *(() if ctx.check else (_one(ctx),)))


def _whole(ctx: StepContext) -> Kind:
    return "check" if ctx.check else "whole"


def _all(ctx: StepContext, runs: int = 1, probes: int = 1, *, real: bool = False) -> Work:
    """The whole model on every sample; ``real``: on those that the user gave, where there are any."""
    return Work(_whole(ctx), probes, _rows(ctx, real=real), max(1, runs))


def _one(ctx: StepContext, probes: int = 1, runs: int = 1) -> Work:
    """The whole model on the sample that the search works on."""
    return Work(_whole(ctx), probes, _row(ctx), max(1, runs))


def _fresh(work: Work) -> Work:
    """Of a model that the reference has not been run on."""
    return msgspec.structs.replace(work, fresh=True)


def _part(ctx: StepContext, probes: int, *, ahead: bool = True) -> Work:
    looks = ctx.findings.looks
    return Work("check" if ctx.check else "part", probes, _row(ctx), looks, ahead and looks == 1)


def _effect(ctx: StepContext, probes: int, *, times: float = 1.0) -> Work:
    """Cuts that are judged by what they do to the model's outputs."""
    part = _part(ctx, probes)
    return part if ctx.check else msgspec.structs.replace(part, kind="effect", times=times)


def _settled(ctx: StepContext, verify: int) -> tuple[Work, ...]:
    """What is asked of a case once it is small: fed exactly, shrunk, in fresh builds, and its passing neighbour."""
    return (_part(ctx, verify),) if ctx.check else (_effect(ctx, 1), _part(ctx, SHRINKS + verify), _effect(ctx, 1))


def _others(ctx: StepContext, judges: int) -> tuple[Work, ...]:
    """The reference against itself, and looks by or against other engines."""
    return Work("control", 1, _row(ctx)), Work("other", judges, _row(ctx))


def _alike(ctx: StepContext, size: Size) -> int:
    """How many other suspects are infinite or NaN at the same operator as the case: each may become a culprit of its own."""
    case, index = ctx.findings.case, size.index
    if case is None or index is None:
        return 0
    inside = set(ranges.decode(case.node_ids))
    ops = {index.nodes[n].op for n in inside if n < len(index.nodes)}
    others = (s for s in ctx.findings.suspects if s.nonfinite and s.node not in inside and s.node < len(index.nodes))
    return sum(index.nodes[s.node].op in ops for s in others)


def _strict(ctx: StepContext) -> bool:
    """Whether rounding alone is over a tenth of the tolerance, so that every node counts."""
    rule = ctx.findings.criterion
    return rule is not None and rule.tolerance / 10 < ROUNDING.get(rule.precision, 0.0)


def _rows(ctx: StepContext, *, real: bool = False) -> int:
    samples = ctx.findings.samples
    return rows(all_feeds(ctx.findings) if real else (s.id for s in samples), samples)


def _row(ctx: StepContext) -> int:
    """Rows of the sample that the search works on; 1 where it is not chosen yet."""
    sample = ctx.findings.sample
    return rows((sample,), ctx.findings.samples) if sample else 1


def _halvings(n: int) -> int:
    return max(1, n).bit_length()


def _batches(size: Size, limit: int, most: int = 0) -> int:
    """How many runs it takes to look at every tensor, ``most`` at a time; where sizes are not known yet: one, or that many
    nodes each."""
    if size.index is None:
        return max(1, -(-size.nodes // most) if most else 1)
    return len(batches(size.index, markable(size.index)[0], limit, most)) or 1


def _activations(size: Size) -> int:
    """Bytes of all that one sample makes of the model inside."""
    return sum(max(0, t.bytes) for t in size.index.tensors if t.kind == "node") if size.index else 0


def _taken(ctx: StepContext, size: Size) -> int:
    """Bytes of the model that is still to be taken in."""
    return 0 if ctx.findings.model else size.given


def _case(size: Size, nodes: str = "") -> int:
    """Bytes of a case: the model, and what the engine ran, with the weights of these nodes; where they are not known, of the
    heaviest few."""
    if size.index is None:
        return 2 * size.weights
    if nodes:
        return 2 * weights(size.index, ranges.decode(nodes))
    heaviest = sorted((weights(size.index, (n.id,)) for n in size.index.nodes), reverse=True)[:CASE]
    return 2 * min(size.weights, sum(heaviest))


def _good(size: Size) -> int:
    """Bytes of the passing neighbour: as the case, of nearly the whole model, where it is kept at all."""
    return 2 * min(size.weights, HEAVIEST_GOOD)


def _held(size: Size, more: int) -> int:
    """Bytes at most, where a step asks for every tensor of a sample: unknown as long as their sizes are."""
    return more + _activations(size) if size.index else -1


PLANS: Mapping[str, Callable[[StepContext, Size], Plan]] = {
    "compare": compare,
    "sanitize": sanitize,
    "inputs": inputs,
    "repeat": repeat,
    "nondeterminism": nondeterminism,
    "tactics": tactics,
    "layerwise": layerwise,
    "extract": extract,
    "reduce": reduce,
    "double-check": double_check,
    "confirm": confirm,
    "workaround": workaround,
    "precision": precision,
    "quantization": quantization,
}
