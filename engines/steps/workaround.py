"""workaround: apply what the cause suggests, build again, verify on every sample, say what it
costs."""

import shlex
from pathlib import PurePath
from typing import Literal

import msgspec

from narrowdown.engines.asking import Amount, Count, Note, StepContext, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.compare.judge import (
    REFUSALS,
    by_sample,
    judge_cured,
    judge_whole,
    margin,
    worst,
)
from narrowdown.engines.compare.say import say_most, wrong_by
from narrowdown.engines.findings import Close, Findings, Unseen, Workaround
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.quantized import find_leavable_layers
from narrowdown.engines.probe import APART, BARRIER, FIXED_SIZES, HUGE, WRAPS, Measure, Measurement
from narrowdown.engines.search.barriers import BUDGET, hides_when_watched
from narrowdown.engines.search.control_flow import Fixed, fix_control_flow
from narrowdown.engines.search.cured import count_right_without
from narrowdown.engines.search.ddmin import ddmin
from narrowdown.engines.search.foretold import list_close
from narrowdown.engines.search.intermittent import count_runs_needed, has_threads
from narrowdown.engines.search.keeping import PrecisionParams, keep_higher
from narrowdown.engines.search.kept import Kept, make_workaround, say_kept
from narrowdown.engines.search.latency import measure_latency
from narrowdown.engines.search.rewrites import find_rewrite
from narrowdown.engines.search.settle import Saved
from narrowdown.engines.search.switches import find_exact, list_switches
from narrowdown.engines.search.unseen import (
    Basis,
    Tried,
    count_plain,
    say_tried,
    set_apart,
    try_unseen,
)
from narrowdown.engines.search.whole import list_feeds, look_at_whole
from narrowdown.engines.search.workaround_facts import is_known, list_outside
from narrowdown.engines.spec import parse
from narrowdown.engines.steps.base import BUILDS_MODELS, End, Finish, Steps, StepSpec
from narrowdown.engines.steps.precision import KeptNode, kept_json
from narrowdown.engines.steps.prepare import prepare_findings
from narrowdown.engines.steps.rewrite import (
    TriedRewrite,
    name_first,
    rewrite_probe,
    say_cure,
    try_rewrite,
)
from narrowdown.engines.steps.tactics import tactics

# Times the looks of a verdict, in each build of a workaround for what comes and goes: missed by
# chance once in thousands at most.
THRICE = 3
MOSTLY = 0.95  # of the unseen samples; of 32 all but one


class WorkaroundOutcome(msgspec.Struct, frozen=True, kw_only=True):
    holds: bool = False  # every tuning and held-out sample passes
    mostly: bool = False  # all tuning samples and nearly all held-out ones pass
    # what is done; precision: nodes kept in FP32
    kind: Literal[
        "precision",
        "optimizer",
        "threads",
        "option",
        "tactic",
        "barrier",
        "wrap-reshape",
        "wrap-max",
        "control-flow",
        "rewrite",
        "none",
    ] = "none"
    what: str = ""  # what is switched off, fixed, made an output or wrapped, comma separated
    condition: str = ""  # it is right only while this is so
    elsewhere: int = 0  # given samples of which that is not so
    keep: int = 0
    names: str = ""
    samples_ok: int = 0
    samples: int = 0  # that it was made on
    unseen_ok: int = 0  # right, of the samples that it was not made on
    unseen: int = 0  # that it was not made on
    unseen_given: int = 0  # of these the user's own
    unseen_failing: int = 0  # of these fail without it
    undetermined: int = 0  # samples not counted: rounding moves them as far
    joined: int = 0  # samples that it was widened for
    slight: int = 0  # samples that are not counted: off on nearly nothing only
    known: bool = False  # it holds, the cause is known, and real held-out samples show it
    outside: str = ""  # nodes that cure and lie beyond what is accused
    # samples that are right with the accused nodes in FP32 and nothing else
    accused_ok: int | None = None
    error: float | None = None
    tolerance: float = 0.0
    margin: float | None = None
    minimal: bool = False
    foretold: int = 0  # of a minimal set those not built without: an emulation failed so, or the engine with more kept
    close: int = 0  # FP16 nodes whose values come near its end
    cost: str = ""  # what it does to time or size, one phrase
    cause: str = "unknown"
    culprits: int | None = None  # with a minimal case
    tried: str = ""  # what casts in the model do
    message: str = ""


# Two builds, as the second is no accident where builds choose alike; 300 runs as in ``Runs``; the
# budget of precision.
class WorkaroundParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    builds: Count = 2  # fresh builds that must pass
    most_runs: Count = 300  # for faults that come and go
    budget: Count = 400  # builds of the search for nodes to keep
    headroom: Amount = 0.0  # no longer used
    returns: bool = False  # no longer used


class Cure(msgspec.Struct, frozen=True):
    """What was found to help, on the engine that ``ask`` asks: where FP32 must be exact, another
    one than the user's. Without a ``workaround``, ``message`` says why there is none."""

    ask: Inquiry
    message: str
    workaround: Workaround | None = None
    files: dict[str, str] = {}  # artifact name -> digest
    probe: Measure | None = (
        None  # the question that shows it again, where the workaround does not say so itself
    )
    tried: str = ""  # what casts in the model do: one sentence


def workaround(ctx: StepContext) -> Steps[WorkaroundOutcome]:
    params = msgspec.convert(dict(ctx.params), WorkaroundParams)
    findings = yield from prepare_findings(ctx)
    findings = yield from count_runs_needed(look_at_whole(ctx, findings), params.most_runs)
    alone = not findings.culprits and not ctx.findings.samples
    if (alone or _is_refused_as_switched(findings)) and not ctx.check:
        # Whether an optimizer is guilty decides what there is to switch off: of what is refused no
        # step has asked it before.
        finish = yield from tactics(msgspec.structs.replace(ctx, findings=findings, params={}))
        findings = finish.findings
    ask: Inquiry = yield from open_inquiry(ctx, findings)
    found: Cure = yield from _find_cure(ask, params)
    cure: Cure = yield from _look_at_accused(_prefer_known(found))
    cure = yield from _look_at_headroom(cure)
    chosen = cure.workaround
    if chosen is not None and cure.tried:
        chosen = msgspec.structs.replace(chosen, tried=cure.tried)
    return Finish(
        _sum_up(cure),
        msgspec.structs.replace(findings, workaround=chosen),
        tables={
            "keep": [KeptNode(n) for n in chosen.keep_names] if chosen else [],
            "bundle": [Saved("workaround", cure.files)] if cure.files else [],
        },
        decisive={"workaround": (cure.probe or _probe_applied(cure.ask, chosen),)}
        if chosen
        else {},
    )


def _find_cure(ask: Inquiry, params: WorkaroundParams) -> Sub[Cure]:
    """What helps, the kind that costs least asked for first: the model with its control flow fixed;
    switches of the engine; tensors kept apart; nodes in higher precision."""
    findings = ask.findings
    if findings.fixable:
        fixed: Fixed = yield from fix_control_flow(ask)
        if fixed.cure is not None:
            return Cure(ask, fixed.message, fixed.cure, fixed.files, fixed.probe)
    cure = Cure(
        ask,
        "Nothing that this engine can switch was found to help.",
        tried=(yield from _try_casts(ask)),
    )
    switched: Workaround | None = yield from _switch_off(ask, params)
    if switched is not None:
        ok = say_tried(switched.samples_ok, switched.samples_n, switched.unseen)
        off = ", ".join(switched.switched_off) or switched.engine
        gone = " off" if switched.kind in ("optimizer", "tactic") else ""
        message = f"{off}{gone}: {ok}. With it {say_most(switched.error, ask.criterion)}."
        return msgspec.structs.replace(cure, workaround=switched, message=message)
    if make_oracle(ask).checked:
        return _say_why_none(cure)
    if hides_when_watched(findings):
        apart, said, files = yield from _keep_apart(ask)
        cure = msgspec.structs.replace(
            cure, workaround=apart, message=said or cure.message, files=files
        )
        if apart is not None:
            return cure
    if make_oracle(ask).keeps or find_leavable_layers(ask.index):
        return (yield from _keep_nodes(cure, params))
    written: Cure | None = yield from _write_otherwise(cure)
    return written or _say_why_none(cure)


def _say_why_none(cure: Cure) -> Cure:
    """With why no nodes can be kept here, where the engine says so."""
    reason = cure.ask.ctx.reason("keep")
    if not reason:
        return cure
    why = _say_anew(cure.ask) or f"Keeping nodes in higher precision: {reason}"
    return msgspec.structs.replace(cure, message=f"{cure.message} {why}")


def _switch_off(ask: Inquiry, params: WorkaroundParams) -> Sub[Workaround | None]:
    """The first of what the engine can switch that holds on every sample; None where none does."""
    findings = ask.findings
    fewest: tuple[str, ...] = yield from _find_fewest(ask)
    for kind, engine, off in _list_options(ask.ctx, findings, fewest):
        yield Note(
            f"without {', '.join(findings.tactics)}" if kind == "tactic" else f"trying {engine}"
        )
        holds: Workaround | None = yield from _verify_option(ask, params, kind, engine, off)
        if holds is not None:
            return holds
    return None


def _keep_nodes(cure: Cure, params: WorkaroundParams) -> Sub[Cure]:
    """The nodes to keep in higher precision. Where not even all of them are enough, they are looked
    for once more on the engine that computes FP32 as FP32."""
    ask = cure.ask
    kept: Kept = yield from _search_kept(ask, params)
    message = say_kept(ask, kept)
    if (
        kept.outcome == "not-enough"
        and not kept.reason
        and (exact := find_exact(ask.ctx.engine, ask.ctx.engine_info))
    ):
        yield Note(f"trying {exact}")
        there = ask.of(exact)
        again: Kept = yield from _search_kept(there, params)
        if again.outcome == "found":
            message = f"{_say_exact(ask.ctx.engine, exact)} {say_kept(there, again)}"
            ask, kept = there, again
    chosen: Workaround | None = yield from make_workaround(ask, kept)
    return msgspec.structs.replace(
        cure, ask=ask, message=message, workaround=chosen, files=kept.files
    )


def _prefer_known(cure: Cure) -> Cure:
    """The workaround that was verified before, where it held on all given samples and what was
    found now is no better."""
    known = cure.ask.findings.workaround
    if (
        known is None
        or not known.samples_ok == known.samples_n > 0
        or _is_better(cure.workaround, known)
    ):
        return cure
    stays = f"What was verified before stays: {', '.join(known.keep_names or known.switched_off)}."
    return msgspec.structs.replace(
        cure, workaround=known, files={}, message=f"{cure.message} {stays}"
    )


def _look_at_accused(cure: Cure) -> Sub[Cure]:
    """The cure with what it keeps beyond what is accused; where it does, what the accused nodes cure
    alone."""
    ask, chosen = cure.ask, cure.workaround
    if chosen is None or chosen.kind != "precision":
        return cure
    outside = list_outside(ask.index, ask.findings, ranges.decode(chosen.keep))
    ok, n, said = -1, 0, ""
    if outside:
        ok, n = yield from count_right_without(make_oracle(ask), ask.findings.culprits)
        said = f" With what is accused in FP32 alone it is right on {ok} of {n}." if ok < n else ""
    chosen = msgspec.structs.replace(chosen, outside=ask.names(outside), accused_ok=ok, accused_n=n)
    return msgspec.structs.replace(cure, workaround=chosen, message=f"{cure.message}{said}")


def _look_at_headroom(cure: Cure) -> Sub[Cure]:
    """The cure with the nodes that it leaves near the end of FP16."""
    chosen = cure.workaround
    if chosen is None or chosen.kind != "precision":
        return cure
    culprits = cure.ask.findings.culprits
    accused = frozenset(n for c in culprits for n in ranges.decode(c.keep or c.case.node_ids))
    close: tuple[Close, ...] = yield from list_close(
        make_oracle(cure.ask), ranges.decode(chosen.keep), accused
    )
    return msgspec.structs.replace(cure, workaround=msgspec.structs.replace(chosen, close=close))


def _sum_up(cure: Cure) -> WorkaroundOutcome:
    """What the step answers of what helps, or of nothing that does."""
    ask, findings, chosen = cure.ask, cure.ask.findings, cure.workaround
    outcome = WorkaroundOutcome(
        tolerance=ask.criterion.tolerance,
        cause=_name_cause(findings),
        culprits=len(findings.culprits),
        tried=cure.tried,
        message=f"{cure.tried} {cure.message}" if cure.tried else cure.message,
    )
    if chosen is None:
        return outcome
    unseen = chosen.unseen or Unseen()
    return msgspec.structs.replace(
        outcome,
        holds=chosen.holds,
        mostly=holds_mostly(chosen),
        kind=chosen.kind,
        what=", ".join(chosen.switched_off),
        condition=chosen.condition,
        elsewhere=chosen.elsewhere,
        keep=len(chosen.keep_names),
        names=", ".join(chosen.keep_names),
        samples_ok=chosen.samples_ok,
        samples=chosen.samples_n,
        unseen_ok=unseen.ok,
        unseen=unseen.n,
        unseen_given=unseen.given,
        unseen_failing=unseen.plain,
        undetermined=chosen.undetermined + unseen.undetermined,
        joined=unseen.joined,
        slight=chosen.slight + unseen.slight,
        known=is_known(findings, chosen),
        outside=", ".join(chosen.outside),
        accused_ok=chosen.accused_ok if chosen.accused_ok >= 0 else None,
        error=chosen.error if chosen.error < HUGE else None,
        margin=chosen.margin,
        minimal=chosen.minimal,
        foretold=chosen.foretold,
        close=len(chosen.close),
        cost=chosen.cost,
    )


def _name_cause(findings: Findings) -> str:
    """The cause of the first culprit; without one, what else was found guilty."""
    if findings.culprits:
        return findings.culprits[0].cause
    guilty = {
        "optimizer": findings.optimizers,
        "option": findings.options,
        "kernel": findings.tactics,
        "accumulation": findings.spread,
    }
    return next((cause for cause, found in guilty.items() if found), "unknown")


def _write_otherwise(cure: Cure) -> Sub[Cure | None]:
    """The sizes that are fed in place of open ones, where that cures: an engine that is wrong in
    FP32 may be so by what it cannot know before."""
    ask, sizes = cure.ask, find_rewrite(FIXED_SIZES)
    oracle = make_oracle(ask)
    plain: Measurement = yield from oracle.feed(oracle.feeds)
    tried: TriedRewrite = yield from try_rewrite(ask, sizes, plain)
    if tried.cure is None:
        return None
    probe = rewrite_probe(ask, sizes.name, tried.at, list_feeds(ask.findings))
    said = say_cure(tried.row, tried.cure, None, ask.criterion)
    return msgspec.structs.replace(
        cure, workaround=tried.cure, message=said, files=tried.files, probe=probe
    )


def _keep_apart(ask: Inquiry) -> Sub[tuple[Workaround | None, str, dict[str, str]]]:
    """(the workaround, what it does in words, its files): the fewest tensors that cure it as
    outputs, and the same wrapped in nodes that hand them on, which leaves the model's outputs as
    they are. Wrapped they are named first only where that is clearly faster; where outputs do not
    cure it, or no such engine is built, wraps are searched for by themselves."""
    oracle = make_oracle(ask)
    plain: Measurement = yield from oracle.feed(oracle.feeds)
    barred: TriedRewrite = yield from try_rewrite(ask, find_rewrite(BARRIER), plain)
    cures = [barred] if barred.cure else []
    for form in WRAPS:
        at = barred.at if barred.cure else ""
        wrapped: TriedRewrite = yield from try_rewrite(ask, find_rewrite(form), plain, at)
        if wrapped.cure is not None:
            cures.append(wrapped)
            break
    best = name_first(cures)
    if best is None or best.cure is None:
        return None, "", {}
    cure = best.cure
    also = "".join(
        f" Instead, {find_rewrite(other.row.rewrite).says}, cures it, too{f': {other.cure.cost}' if other.cure.cost else ''}."
        for other in cures
        if other is not best and other.cure
    )
    return cure, say_cure(best.row, cure, None, ask.criterion) + also, best.files


def _say_exact(engine: str, exact: str) -> str:
    """What else the workaround takes: ``exact``, an engine on which FP32 is computed as FP32."""
    changed = parse(exact).list_changes(parse(engine))[0]
    return f"Layers in FP32 may compute in less here, so this takes {changed} as well."


def _say_anew(ask: Inquiry) -> str:
    """Of a model that was converted to halves and is held against what it was made of: what finds
    the nodes that the conversion must leave. "" of any other."""
    original, low = parse(ask.ctx.reference).get("model"), ask.criterion.precision
    if not original or low not in ("fp16", "bf16"):
        return ""
    command = (
        f"narrowdown run {shlex.quote(PurePath(original).name)} --engine emulate:precision={low}"
    )
    return (
        f"The file has its types from a conversion, so that is where nodes are kept in FP32: '{command}', with the same inputs, "
        "finds the fewest, in the words of AutoCast and onnxconverter-common."
    )


def _search_kept(ask: Inquiry, params: WorkaroundParams) -> Sub[Kept]:
    """Nodes to keep in higher precision. Where the error is spread, layers stand for one another:
    stretches at either end are tried first, and the set is not polished for long, as none is the
    only one."""
    spread = ask.findings.spread and not ask.findings.culprits
    # Where no layer is to blame more than another none is the only one that helps.
    budget = min(params.budget, BUDGET) if spread else params.budget
    return (yield from keep_higher(ask, PrecisionParams(budget=budget)))


def _is_better(chosen: Workaround | None, known: Workaround) -> bool:
    """Whether what was found now may take the place of what was verified before: right wherever it
    was tried, or at least where that was, and on no smaller a part of what neither had seen."""
    if chosen is None or chosen.holds:
        return chosen is not None
    if not chosen.samples_ok == chosen.samples_n > 0:
        return False
    now, before = chosen.unseen or Unseen(), known.unseen
    return before is None or (not known.holds and now.ok * before.n >= before.ok * now.n)


def _find_fewest(ask: Inquiry) -> Sub[tuple[str, ...]]:
    """Of the switches that break it together the fewest that cure it when they are off: where one
    prepares what the other breaks, either will do. None of them can be left on, by the sample that
    the search works on."""
    findings = ask.findings
    guilty = (*findings.optimizers, *findings.options)
    can = list_switches(ask.ctx.engine, ask.ctx.engine_info)

    def cures(off: tuple[str, ...]) -> Sub[bool]:
        yield Note(f"without {', '.join(off)} alone")
        there = ask.of(can.without(off))
        m = yield from asked(there.plain((findings.sample,)))
        return judge_cured(m, ask.criterion, findings.signature).passed

    return (yield from ddmin(guilty, cures, len(guilty)))


def _is_refused_as_switched(findings: Findings) -> bool:
    """Whether the engine refuses the model, and nobody knows yet whether it does so with everything
    switched off."""
    kind = findings.signature.kind if findings.signature else ""
    return kind == "build" and not (findings.fixable or findings.optimizers or findings.options)


def _list_options(
    ctx: StepContext, findings: Findings, fewest: tuple[str, ...]
) -> list[tuple[str, str, tuple[str, ...]]]:
    """(kind, engine spec, what is switched off in it) that the findings suggest, the cheapest
    first. ``fewest``: of the switches that cause it those that cure one sample."""
    options: list[tuple[str, str, tuple[str, ...]]] = []
    spec = parse(ctx.engine)
    for off in dict.fromkeys((fewest, (*findings.optimizers, *findings.options))):
        if off:
            without = list_switches(ctx.engine, ctx.engine_info).without(off)
            options.append(
                ("optimizer" if set(off) & set(findings.optimizers) else "option", without, off)
            )
    if findings.tactics:
        options.append(("tactic", ctx.engine, ()))
    varies = findings.looks > 1 or any(c.cause == "nondeterminism" for c in findings.culprits)
    if varies and has_threads(ctx):
        options.append(("threads", str(spec.with_option("threads", "1")), ()))
    if ctx.can("precision-hint") and not options:
        options.append(("option", str(spec.with_option("precision", "f32")), ()))
    return options


def _try_casts(ask: Inquiry) -> Sub[str]:
    """What casts in the model do where the engine takes them but retypes as it likes: one sentence;
    nothing where that is no question here. The nodes are those of the minimal cases, up to where
    their values fit again."""
    keep = {n for c in ask.findings.culprits for n in ranges.decode(c.keep or c.case.node_ids)}
    oracle = make_oracle(ask)
    if oracle.checked or not keep or not ask.ctx.can("casts"):
        return ""
    nodes = "node" if len(keep) == 1 else f"{len(keep)} nodes"
    size = f"the {nodes} of the {'case' if len(ask.findings.culprits) == 1 else 'cases'}"
    yield Note(f"casts in the model around {size}")
    m: Measurement = yield from oracle.feed(oracle.feeds, keep=frozenset(keep))
    if m.status != "ok":
        return f"Casts in the model could not be tried: {m.message}"
    error = worst(m.results, ask.criterion)[2]
    off = "not finite" if error >= HUGE else wrong_by(error, ask.criterion.metric)
    if judge_whole(m, ask.criterion).passed:
        return f"Casts in the model cure it too: with {size} kept in FP32 by casts it is {off}."
    return (
        f"Casts in the model do not cure it: with {size} kept in FP32 by casts it is still {off}."
    )


def _verify_option(
    ask: Inquiry, params: WorkaroundParams, kind: str, engine: str, off: tuple[str, ...]
) -> Sub[Workaround | None]:
    """The workaround when it holds on every sample in every look, else None. ``off``: what is
    switched off in ``engine``."""
    findings, oracle = ask.findings, make_oracle(ask)
    runs = min(params.most_runs, THRICE * oracle.runs) if oracle.runs > 1 else 1
    results: list[Measurement] = []
    guilty = findings.tactics if kind == "tactic" else {}
    forbid: dict[str, tuple[str, ...]] = {layer: (choice,) for layer, choice in guilty.items()}
    for attempt in range(params.builds):
        m = yield from asked(ask.plain(
            oracle.feeds, engine=engine, attempt=attempt, runs=runs, exclusive=runs > 1, forbid=forbid,
        ))  # fmt: skip
        if not judge_whole(m, ask.criterion).passed:
            return None
        results.append(m)
    error = max(worst(rows, ask.criterion)[2] for m in results for rows in m.each_run)
    plain = yield from asked(ask.plain(oracle.feeds))
    refused = plain.status in REFUSALS
    if plain.status != "ok" and not refused:
        return None

    def elsewhere(inputs: str, samples: tuple[str, ...]) -> Sub[Measurement]:
        return (
            yield from asked(
                ask.plain(
                    samples,
                    inputs=inputs,
                    engine=engine,
                    runs=runs,
                    exclusive=runs > 1,
                    forbid=forbid,
                )
            )
        )

    n, held = len(results[0].results), set_apart(findings, by_sample(results[0]))
    basis = Basis(results[0] if refused else plain, held)
    tried: Tried = yield from try_unseen(oracle, elsewhere, results[0], basis)
    unseen: Unseen = tried.unseen
    if refused:
        unseen = msgspec.structs.replace(unseen, plain=unseen.n)
    else:
        unseen = yield from count_plain(oracle, tried, unseen)
    changed = parse(engine).list_changes(parse(ask.ctx.engine))
    slower: str = yield from measure_latency(ask, engine=engine, forbid=forbid)
    return Workaround(
        kind=kind,
        engine=engine,
        switched_off=off if kind == "optimizer" else tuple(forbid) or changed,
        forbid=forbid,
        samples_ok=n - len(held),
        samples_n=n - len(held),
        unseen=unseen,
        error=(most := max(error, unseen.error)),
        margin=margin(ask.criterion, most),
        cost=slower,
        minimal=True,
    )


def holds_mostly(chosen: Workaround) -> bool:
    """Whether it is right on all that it was made on and on nearly all else."""
    unseen = chosen.unseen or Unseen()
    return chosen.samples_ok == chosen.samples_n > 0 and unseen.ok >= MOSTLY * unseen.n


def _probe_applied(ask: Inquiry, chosen: Workaround) -> Measure:
    if chosen.kind in APART:
        tensors = {
            ask.index.by_name[name] for name in chosen.switched_off if name in ask.index.by_name
        }
        return ask.plain(
            list_feeds(ask.findings), rewrite=chosen.kind, rewrite_at=ranges.encode(tensors)
        )
    return ask.kept(
        list_feeds(ask.findings),
        ranges.decode(chosen.keep),
        engine=chosen.engine,
        forbid=chosen.forbid,
    )


SPEC = StepSpec(
    name="workaround",
    version=19,
    summary="Apply the workaround that the cause suggests, and verify it on every sample.",
    run=workaround,
    outcome=WorkaroundOutcome,
    params=WorkaroundParams,
    needs=(BUILDS_MODELS,),
    # The others are what tactics finds where it runs alone.
    sets=("workaround", "looks", "optimizers", "options", "tactics"),
    makes=("workaround",),
    ends=(End("holds", False, "unresolved"),),
    labels={
        "holds": "holds on every sample",
        "names": "layers",
        "kind": "kind of change",
        "what": "workaround",
        "culprits": "culprits so far",
        "accused_ok": "right with what is accused in FP32 alone",
    },
    json=kept_json,
)
