"""What is asked, told beforehand: the phrases that each step's plan is written in.

The counts were fitted on real sessions (docs/estimates.md has them beside what came); they are what
usually happens where a step fails to fail, not a bound. ``disk`` is a bound: every tensor of every
row captured, a case as heavy as the heaviest few nodes.
"""

import msgspec

from narrowdown.engines.asking import StepContext
from narrowdown.engines.graph import ranges
from narrowdown.engines.search.cost import Kind, Size, Span, Work
from narrowdown.engines.search.latency import TIMED
from narrowdown.engines.search.ordered import order_precision
from narrowdown.engines.search.settle import HEAVIEST_GOOD, count_weight_bytes
from narrowdown.engines.search.timings import count_rows
from narrowdown.engines.search.watchable import pack_batches, split_markable
from narrowdown.engines.search.whole import list_feeds

# Edits of one node, and of the several that a reduction leaves: 3 to 15 in nine cases and 4 to 31 in
# twelve.
SHRINKS, SHRINKS_OF_MANY = 7, 16
TABLE = 1 << 10  # bytes of one tensor's scores: some 30 numbers with their names
CASE = 4  # nodes that a case holds at most, as a rule. Chosen, not measured
# Of the first build as given, what the first on a twin takes: 0.10 on a transformer, 0.31 on a CNN.
TWIN = 0.2
# Times the price of a build of what an engine that times kernels has refused that it takes: 0.01 to
# 0.02 times on a model whose If was refused, where it is refused again, and as long as any where it
# is not.
REFUSED = (0.01, 2.0)
# Of what a part takes where kernels are timed, the same fed exactly, whose build stands, and it
# made simpler: half of those builds find all of their timings done, 0.03 to 0.1 times, the others
# are as dear (25 cases of nine models).
EXACTLY, SHRUNK = 0.1, 0.45
# Largest relative error of one rounding: half a unit in the last place of 1, IEEE 754 and the
# types' own definitions.
ROUNDING = {"fp16": 2**-11, "tf32": 2**-11, "bf16": 2**-8, "fp32": 2**-24}


def reads(ctx: StepContext) -> tuple[Work, ...]:
    """The model and the inputs, where they have not been taken in."""
    model = () if ctx.findings.model else (Work("import"),)
    return model if ctx.findings.inputs or needs_no_inputs(ctx) else (*model, Work("read"))


def needs_no_inputs(ctx: StepContext) -> bool:
    """Whether the user's check needs no inputs of ours."""
    return bool(ctx.check) and "{inputs}" not in ctx.check and "{expected}" not in ctx.check


def before(ctx: StepContext, _size: Size) -> tuple[Work, ...]:
    """What ``prepare_findings`` asks of a step that runs alone: once the failure is locked, nothing
    but to take control flow apart."""
    if ctx.findings.signature is not None:
        return opening(ctx)
    return (*reads(ctx), on_all(ctx), *(() if ctx.check else (again(on_sample(ctx)),)))


def opening(ctx: StepContext) -> tuple[Work, ...]:
    """If, Loop and Scan taken apart, once a session, and what comes of it run."""
    findings = ctx.findings
    if not findings.bodies or findings.opened or not findings.inputs or findings.signature is None:
        return ()
    return Work("open"), fresh(on_all(ctx))


def _kind_of_whole(ctx: StepContext) -> Kind:
    return "check" if ctx.check else "whole"


def on_all(ctx: StepContext, runs: int = 1, probes: int = 1) -> Work:
    """The whole model on every sample."""
    rows = count_rows(list_feeds(ctx.findings), ctx.findings.samples)
    return Work(
        _kind_of_whole(ctx),
        probes,
        rows,
        max(1, runs),
        timed=bool(ctx.engine_info.gpus),
        span=_span(ctx),
    )


def on_sample(ctx: StepContext, probes: int = 1, runs: int = 1) -> Work:
    """The whole model on the sample that the search works on."""
    timed = bool(ctx.engine_info.gpus)
    return Work(
        _kind_of_whole(ctx), probes, sample_rows(ctx), max(1, runs), timed=timed, span=_span(ctx)
    )


def _span(ctx: StepContext) -> Span | None:
    """How far off a build of the whole model is priced, where that is told by no rule: a refusal
    comes at once, or is cured."""
    signature = ctx.findings.signature
    refused = signature is not None and signature.kind == "build"
    return REFUSED if refused and ctx.engine_info.gpus else None


def fresh(work: Work) -> Work:
    """Of a model that the reference has not been run on."""
    return msgspec.structs.replace(work, fresh=True)


def again(work: Work) -> Work:
    """Of a build that stands: the one that the work before it has made, or an earlier step."""
    return msgspec.structs.replace(work, reused=True)


def part(ctx: StepContext, probes: int, *, ahead: bool = True) -> Work:
    looks = ctx.findings.looks
    kind: Kind = "check" if ctx.check else "part"
    return Work(
        kind,
        probes,
        sample_rows(ctx),
        looks,
        ahead and looks == 1,
        timed=bool(ctx.engine_info.gpus),
    )


def afresh(ctx: StepContext, work: Work) -> Work:
    """Of builds that share nothing with earlier ones, on the engine as it was given: the parts
    before may be asked of a twin."""
    twin = ctx.findings.twin or (ctx.findings.dear and not order_precision(ctx))
    return msgspec.structs.replace(work, afresh=True, dear=bool(twin))


def between(work: Work, least: int, most: int) -> Work:
    """Of a search whose length depends on what it finds."""
    return msgspec.structs.replace(work, least=min(work.probes, least), most=max(work.probes, most))


def effect(ctx: StepContext, probes: int, *, times: float = 1.0) -> Work:
    """Cuts that are judged by what they do to the model's outputs."""
    cut = part(ctx, probes)
    return cut if ctx.check else msgspec.structs.replace(cut, kind="effect", times=times)


def settled(ctx: StepContext, verify: int, shrinks: int = SHRINKS) -> tuple[Work, ...]:
    """What is asked of a case once it is small: fed exactly, shrunk, in fresh builds, and its
    passing neighbour."""
    if ctx.check:
        return (part(ctx, verify),)
    shrunk, anew = part(ctx, shrinks), afresh(ctx, part(ctx, verify))
    if shrunk.timed:
        # A part that fails alone has no passing neighbour, but in one of 25.
        return effect(ctx, 1, times=EXACTLY), msgspec.structs.replace(shrunk, times=SHRUNK), anew
    return effect(ctx, 1), shrunk, anew, afresh(ctx, effect(ctx, 1))


def twin(ctx: StepContext) -> tuple[Work, ...]:
    """The whole model on an engine that builds faster, where one is still to be looked for."""
    return (
        (Work("other", 1, sample_rows(ctx), told=TWIN * ctx.findings.dear),)
        if ctx.findings.dear
        else ()
    )


def reference(ctx: StepContext) -> tuple[Work, ...]:
    """The reference alone, before anything waits for it."""
    return (Work("control", 1, sample_rows(ctx)),)


def others(ctx: StepContext, judges: int) -> tuple[Work, ...]:
    """The reference against itself, and looks by or against other engines."""
    return Work("control", 3, sample_rows(ctx)), Work("other", judges, sample_rows(ctx))


def timed(ctx: StepContext) -> tuple[Work, ...]:
    """What a workaround costs in time, with it and without it."""
    return (on_sample(ctx, 2, TIMED),) if ctx.can("latency", untold=True) else ()


def rounding_counts(ctx: StepContext) -> bool:
    """Whether rounding alone is over a tenth of the tolerance, so that every node counts."""
    rule = ctx.findings.criterion
    return rule is not None and rule.tolerance / 10 < ROUNDING.get(rule.precision, 0.0)


def sample_rows(ctx: StepContext) -> int:
    """Rows of the sample that the search works on; 1 where it is not chosen yet."""
    sample = ctx.findings.sample
    return count_rows((sample,), ctx.findings.samples) if sample else 1


def batches_of(size: Size, limit: int, most: int = 0) -> int:
    """How many runs it takes to look at every tensor, ``most`` at a time; where sizes are not known
    yet: one, or that many nodes each."""
    if size.index is None:
        return max(1, -(-size.nodes // most) if most else 1)
    return len(pack_batches(size.index, split_markable(size.index)[0], limit, most)) or 1


def activations(size: Size) -> int:
    """Bytes of all that one sample makes of the model inside."""
    return sum(max(0, t.bytes) for t in size.index.tensors if t.kind == "node") if size.index else 0


def case_bytes(size: Size, nodes: str = "") -> int:
    """Bytes of a case: what the engine ran, with the weights of these nodes; where they are not
    known, of the heaviest few. The model beside it points to weights that the session has
    anyway."""
    if size.index is None:
        return size.weights
    if nodes:
        return count_weight_bytes(size.index, ranges.decode(nodes))
    heaviest = sorted(
        (count_weight_bytes(size.index, (n.id,)) for n in size.index.nodes), reverse=True
    )[:CASE]
    return min(size.weights, sum(heaviest))


def good_bytes(size: Size) -> int:
    """Bytes of the passing neighbour: as the case, of nearly the whole model, where it is kept at
    all."""
    return min(size.weights, HEAVIEST_GOOD)


def bytes_held(size: Size, more: int) -> int:
    """Bytes at most, where a step asks for every tensor of a sample: unknown as long as their sizes
    are."""
    return more + activations(size) if size.index else -1
