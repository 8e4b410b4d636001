"""The engine held to its precision: the option that makes it an order, and those in which it may
keep no wider types."""

from narrowdown.engines.asking import StepContext
from narrowdown.engines.findings import Case
from narrowdown.engines.spec import parse
from narrowdown.engines.switches import set_option


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
