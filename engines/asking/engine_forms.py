"""Other forms of the engine under test.

A cheap engine: the one under test at an option value that builds several times faster, on
which the whole model fails in the same way. A search asks that one; what it ends with is built
again on the engine as it was given, which alone decides.

Measured on an H200 with TensorRT 10.6 (``sort_tf_massive_m4``, weakly typed FP16): 66 to 79 s for
the first build of a process at the default level, 7 s at level 1, with the same error. At level 0
the model is right, so it is only one once it was tried. A real CNN (nudenet, 325 nodes): 355 s
and 109 s. So it is looked for by the first search that cuts, and not before: what the reference
foretells was cured there in 5 s, with the kernels that the first build had timed.

The emulation of a precision in place of one that is expensive to ask: FP16 or BF16 as ONNX
Runtime computes it with casts.

The engine held to its precision: the option that makes it an order, and those in which it may keep
no wider types.
"""

import msgspec

from narrowdown.engines.asking import Note, StepContext, Sub, asked
from narrowdown.engines.asking.whole_model import probe_whole
from narrowdown.engines.compare.judge import (
    Criterion,
    judge_whole,
    limit,
    list_failing,
    sign_failure,
)
from narrowdown.engines.findings import Case, Findings
from narrowdown.engines.probe import Measurement
from narrowdown.engines.spec import parse
from narrowdown.engines.switches import set_option
from narrowdown.engines.views import EngineInfo

# Seconds of an engine's first build from which a search looks for a cheap engine.
EXPENSIVE = 20.0
# How many times faster the cheap engine must have been built than the engine as given: what it finds is
# built again as given, and a search that goes wrong on it is done twice. Nine to eleven times were
# seen.
CHEAPER = 3.0
# Errors that differ by less than this factor, on the same outputs, are taken for the same failure:
# other kernels round otherwise. A wrong guess costs time only, as what is found has to fail on the
# engine as given too.
ALIKE = 2.0
# Edits that are tried on a case where builds are expensive: up to 2 s each on the cheap engine, 9 s as
# given, and what they simplify is no node less.
SHRINK_EXPENSIVE = 8


def list_cheap_engines(engine: str, info: EngineInfo) -> tuple[str, ...]:
    """The engine's specs with one option at its ``twin`` value, where it has a higher one now: one
    at or below it builds as fast already."""
    spec = parse(engine)
    return tuple(
        str(spec.with_option(o.name, o.twin))
        for o in info.options
        if o.twin and float(spec.get(o.name) or "inf") > float(o.twin)
    )


def note_expensive(ctx: StepContext, findings: Findings, given: Measurement) -> Findings:
    """Findings that say whether a cheap engine is to be looked for. ``given``: the first build of the whole
    model on the engine as it was given, whose failure is locked."""
    accuracy = findings.signature is not None and findings.signature.kind == "accuracy"
    if (
        given.build_seconds < EXPENSIVE
        or not accuracy
        or ctx.check
        or not list_cheap_engines(ctx.engine, ctx.engine_info)
    ):
        return findings
    return msgspec.structs.replace(findings, expensive=given.build_seconds)


def find_cheap_engine(ctx: StepContext, findings: Findings) -> Sub[Findings]:
    """Findings with the spec of a cheap engine, where there is one. Costs a build of the whole model
    for each option that may make one, once; none where the build was cheap."""
    rule = findings.criterion
    if not findings.expensive or rule is None or findings.cheap:
        return findings
    given, findings = findings.expensive, msgspec.structs.replace(findings, expensive=0.0)
    for engine in list_cheap_engines(ctx.engine, ctx.engine_info):
        yield Note("does it fail alike where it builds faster?")
        m = yield from asked(probe_whole(ctx, findings, samples=(findings.sample,), engine=engine))
        if not fails_alike(findings, rule, m) or m.build_seconds * CHEAPER > given:
            continue
        said = (
            f"The whole model fails alike on {engine}, which is built in {m.build_seconds:.2g} s instead of "
            f"{given:.2g}: the search asks that one, and what it finds is built again as it was given."
        )
        return msgspec.structs.replace(findings, cheap=engine, notes=(*findings.notes, said))
    return findings


def fails_alike(findings: Findings, rule: Criterion, m: Measurement) -> bool:
    """Whether the whole model fails there as it did: the same outputs, non-finite or not, errors
    less than ``ALIKE`` apart."""
    signature = findings.signature
    if signature is None or m.status != "ok" or not judge_whole(m, rule).failed:
        return False
    failing = (r for r in list_failing(m.results, rule) if r.sample == signature.sample)
    result = next(failing, None)
    if result is None:
        return False
    there = sign_failure(result, rule, result.sample)
    if there.outputs != signature.outputs or there.nonfinite != signature.nonfinite:
        return False
    pairs = ((there.errors[name], signature.errors[name]) for name in signature.outputs)
    return all(max(a, b) <= ALIKE * min(a, b) for a, b in pairs)


def shrinks_for(findings: Findings, most: int) -> int:
    """How many edits are tried on a case, at ``most``."""
    return min(most, SHRINK_EXPENSIVE) if findings.cheap or findings.expensive else most


EMULATED = ("fp16", "bf16")


def find_emulation(ctx: StepContext, findings: Findings) -> str:
    """The spec of the emulation that fails as the engine does, as far as that is a matter of its
    precision; "" where the engine times no kernels, so that it is quickly asked itself, where its
    precision is not emulated, where a faultless engine of it is right, and where the failure comes
    and goes."""
    rule, signature = findings.criterion, findings.round_signature or findings.signature
    if rule is None or signature is None or findings.emulated is None:
        return ""
    explained = (
        ctx.engine_info.gpus > 0
        and not ctx.check
        and rule.precision in EMULATED
        and findings.steady
        and signature.kind == "accuracy"
        and findings.emulated > min((limit(rule, name) for name in signature.outputs), default=0.0)
    )
    return f"emulate:precision={rule.precision}" if explained else ""


def order_precision(ctx: StepContext) -> str:
    """The engine's spec with its precision as an order; "" where it is one already, no option says
    so, or the installed version cannot.

    A weakly typed TensorRT takes FP16 where that is faster, for a small model as a whole or not at
    all. Of ``sort_tf_massive_m4`` none of 58 connected parts fails, up to 60 of 220 nodes around any
    of its seven ``Pow``s that overflow: they are computed in FP32. Parts that fail were found, of 8
    to 13 nodes scattered over the model, which have nothing to do with each other but that together
    they are enough for FP16. With ``typing=strong`` these ``Pow``s fail alone (three were tried),
    and so does what was planted in three CNNs, whose parts failed by chance, in one of five builds
    (TensorRT 10.6, H100).

    So what the reference foretells to overflow, and was seen to cure the whole model in FP32, is
    shown alone there, where it is right on the engine as it was given. What is said of the model
    rests on that engine all the same: it failed, and it was cured."""
    if not ctx.can("strongly-typed", untold=True):
        return ""
    return set_option(ctx.engine, ctx.engine_info, lambda option: option.ordered)


def list_firm(ctx: StepContext) -> tuple[str, ...]:
    """The engine's specs in which it is held to its precision, or builds for more, one option each:
    where it is right only as it kept wider types, it may be wrong in these. A GRU in weakly typed
    FP16 is right with a profile of 4 rows, and NaN with one of 4 to 8 or with
    OBEY_PRECISION_CONSTRAINTS (TensorRT 10.6, 3 of 3 builds each). None where the precision is an
    order."""
    spec, options = parse(ctx.engine), ctx.engine_info.options
    if not order_precision(ctx):
        return ()
    wanted = (o for o in options if o.firm and (spec.get(o.name) or o.usual) != o.firm)
    return tuple(str(spec.with_option(o.name, o.firm)) for o in wanted)


def is_held(ctx: StepContext) -> bool:
    """Whether the precision is an order, or an option is set at which the engine may keep fewer
    wider types than as it is by itself."""
    spec = parse(ctx.engine)
    firm = any(o.firm and spec.get(o.name) == o.firm for o in ctx.engine_info.options)
    return firm or not order_precision(ctx)


def say_ordered(ctx: StepContext, case: Case) -> str:
    """On what the case was seen to fail where that is not the engine as it was given, in sentences
    with a space in front."""
    if not case.engine:
        return ""
    changed = parse(case.engine).list_changes(parse(ctx.engine))[0]
    alone = "one node that stands alone" if len(case.nodes) == 1 else "so small a part"
    return (
        f" This was seen with {changed}, where the precision is an order: as given, the engine may compute {alone} in a wider "
        "type, and it is right."
    )
