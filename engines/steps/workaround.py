"""workaround: apply what the cause suggests, build again, verify on every sample, say what it
costs."""

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import PurePath
from typing import Literal

import msgspec

from narrowdown.engines.asking import Answer, Count, Note, Question, StepContext, Sub, asked
from narrowdown.engines.asking.engine_forms import EMULATED
from narrowdown.engines.asking.failure import list_feeds
from narrowdown.engines.asking.failure_rate import Runs, count_runs_needed, has_threads
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.asking.oracle import make_oracle, switch_engine
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.compare.say import say_first, say_most
from narrowdown.engines.findings import Case, Close, Findings, Unseen, Workaround
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.quantized import find_leavable_layers
from narrowdown.engines.graph.rewrite_list import STABLE_FORMS, find_rewrite
from narrowdown.engines.probe import APART, FIXED_SIZES, Measure
from narrowdown.engines.search.barriers import BUDGET, hides_when_watched
from narrowdown.engines.search.control_flow import fix_control_flow
from narrowdown.engines.search.cured import count_right_without
from narrowdown.engines.search.keeping import Keeping, Kept, PrecisionParams, say_kept
from narrowdown.engines.search.remedy import list_close
from narrowdown.engines.search.settle import Saved, ask_about
from narrowdown.engines.search.switching import Switched, search_switches
from narrowdown.engines.search.unseen import say_tried
from narrowdown.engines.search.verified import verify
from narrowdown.engines.search.workaround_facts import Cure, find_accused, is_known, list_outside
from narrowdown.engines.spec import parse
from narrowdown.engines.steps.base import BUILDS_MODELS, End, Finish, Steps, StepSpec
from narrowdown.engines.steps.precision import CureOutcome, kept_json
from narrowdown.engines.steps.prepare import prepare_findings
from narrowdown.engines.steps.rewrite import TriedRewrite, rewrite_probe, say_cure, try_rewrite
from narrowdown.engines.steps.tactics import (
    count_switch_builds,
    may_switch,
    search_whole,
    tactics,
)
from narrowdown.engines.switches import Switches, list_switches

MOSTLY = 0.95  # of the unseen samples; of 32 all but one


class WorkaroundOutcome(CureOutcome, frozen=True, kw_only=True):
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
    unseen_failing: int = 0  # held-out samples that fail without it
    known: bool = False  # it holds, the cause is known, and real held-out samples show it
    outside: str = ""  # kept nodes that are not among the found ones
    # samples that are right with the accused nodes in FP32 and nothing else
    accused_ok: int | None = None
    cause: str = "unknown"
    culprits: int | None = None  # with a minimal case


# The budget of precision.
class WorkaroundParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    budget: Count = 400  # builds of the search for nodes to keep, and of each for switches


def workaround(ctx: StepContext) -> Steps[WorkaroundOutcome]:
    params = msgspec.convert(dict(ctx.params), WorkaroundParams)
    findings = yield from prepare_findings(ctx)
    findings = yield from count_runs_needed(WholeModel(ctx, findings), Runs().most)
    alone = not findings.culprits and not ctx.findings.samples
    can = list_switches(ctx.engine, ctx.engine_info)
    helps = may_switch(ctx, findings)
    if findings.culprits and helps:
        findings = yield from _search_cases(ctx, findings, can, params.budget)
    asking = msgspec.structs.replace(ctx, findings=findings, params={"budget": params.budget})
    # Whether an optimizer is guilty decides what there is to switch off: of what is refused no step
    # has asked it before, nor of a model without a case where all off do not build.
    refused = WholeModel(ctx, findings).refused and not findings.fixable
    unasked = not findings.guilty and (refused or (can.apart and not findings.culprits))
    if alone and not ctx.check:
        findings = (yield from tactics(asking)).findings
    elif unasked and helps:
        asking = msgspec.structs.replace(asking, engine=findings.cheap or ctx.engine)
        findings = (yield from search_whole(asking, findings, params.budget)).findings
    ask: Inquiry = yield from open_inquiry(ctx, findings)
    found: Cure = yield from _find_cure(ask, params)
    cure: Cure = yield from _look_at_accused(ask, _prefer_known(ask, found))
    chosen = cure.workaround
    return Finish(
        _sum_up(ask, chosen, cure.message),
        msgspec.structs.replace(findings, workaround=chosen),
        tables={
            "keep": [{"node": n} for n in chosen.keep_names] if chosen else [],
            "bundle": [Saved("workaround", cure.files)] if cure.files else [],
        },
        decisive={"workaround": (cure.probe or _probe_applied(ask, chosen),)} if chosen else {},
    )


def _search_cases(
    ctx: StepContext, findings: Findings, can: Switches, budget: int
) -> Sub[Findings]:
    """The findings with the switches that cure each case when they are off, where the whole model
    passes without them, too. A case builds in seconds."""
    if findings.guilty:
        return findings
    off = frozenset[str]()
    ask: Inquiry = yield from open_inquiry(ctx, findings)
    for case in (culprit.case for culprit in findings.culprits):
        there = list_switches(case.engine or ctx.engine, ctx.engine_info)
        look = partial(_ask_case, ask, case, there, off)
        found: Switched = yield from search_switches(
            look, there.names - off, budget, apart=there.apart, each=True
        )
        if not found.guilty and not found.asked[frozenset()].passes:
            return findings
        off = off.union(found.guilty)
    oracle = switch_engine(ctx, findings, can.without)
    whole: Answer = yield from oracle.ask(Question(off=off))
    if not off or not whole.passes:
        return findings
    options = off & can.options.keys()
    return msgspec.structs.replace(
        findings, optimizers=tuple(sorted(off - options)), options=tuple(sorted(options))
    )


def _ask_case(
    ask: Inquiry, case: Case, can: Switches, off: frozenset[str], more: frozenset[str]
) -> Sub[Answer]:
    return make_oracle(ask.of(can.without(off | more))).ask(ask_about(case, build=None))


def _find_cure(ask: Inquiry, params: WorkaroundParams) -> Sub[Cure]:
    """What helps, the kind that costs least asked for first: the model with its control flow fixed;
    switches of the engine; tensors kept apart; nodes in higher precision."""
    findings, oracle = ask.findings, make_oracle(ask)
    if findings.fixable:
        fixed: Cure = yield from fix_control_flow(ask)
        if fixed.workaround is not None:
            return fixed
    switched, unverified = yield from _switch_off(ask)
    if switched is not None:
        off = ", ".join(switched.switched_off) or switched.engine
        gone = " off" if switched.kind in ("optimizer", "tactic") else ""
        most = say_most(switched.error, ask.criterion)
        lasts = ask.ctx.engine_info.experimental if switched.kind == "optimizer" else ""
        said = f"{off}{gone}: {say_tried(switched)}. With it {most}. {lasts}"
        return Cure(said.rstrip(), switched)
    keeps = not oracle.checked and (oracle.keeps or find_leavable_layers(ask.index))
    names = APART if hides_when_watched(findings) else ()
    if not oracle.checked:
        # An engine that is wrong in FP32 may be so by sizes that it cannot know before.
        names = names if keeps else (*names, "explicit-pad", STABLE_FORMS, FIXED_SIZES)
        written: Cure | None = yield from _write_otherwise(ask, names)
        if written is not None:
            return written
    if keeps:
        spread = findings.spread and not findings.culprits
        # Where no layer is to blame more than another none is the only one that helps.
        budget = min(params.budget, BUDGET) if spread else params.budget
        kept: Kept = yield from Keeping(ask, PrecisionParams(budget=budget)).run()
        if kept.found is None and not oracle.checked:
            written = yield from _write_otherwise(ask, (STABLE_FORMS,))
            if written is not None:
                return written
        return Cure(say_kept(ask, kept), kept.found, kept.files)
    reason, low = ask.ctx.engine_info.reason("keep"), ask.criterion.precision
    original = parse(ask.ctx.reference).get("model") or ""
    command = (
        f"narrowdown run {shlex.quote(PurePath(original).name)} --engine emulate:precision={low}"
    )
    why = say_first(
        (not reason, ""),
        (
            original and low in EMULATED,
            f" The file has its types from a conversion, so that is where nodes are kept in FP32: '{command}', with the same "
            "inputs, finds the fewest, in the words of AutoCast and onnxconverter-common.",
        ),
        (True, f" Keeping nodes in higher precision: {reason}"),
    )
    none = unverified or "Nothing that this engine can switch was found to help."
    return Cure(f"{none}{why}")


def _switch_off(ask: Inquiry) -> Sub[tuple[Workaround | None, str]]:
    """The first of what the engine can switch that is right on every given sample, in every run of
    every build; None where none is, and of one that could not be run here a sentence."""
    unverified = ""
    for option in _list_options(ask.ctx, ask.findings):
        yield Note(f"trying {option.engine} without {', '.join(option.switched_off)}")
        switched = partial(ask.whole, engine=option.engine, forbid=option.forbid)
        plain = yield from asked(ask.whole(list_feeds(ask.findings)))
        holds, last = yield from verify(ask, option, switched, plain)
        if holds is not None:
            return holds, ""
        if last.status == "refused":  # as where it can be built and not run
            off = ", ".join(option.switched_off)
            unverified = (
                f"With {off} off it fails no more, and no run could verify it: {last.message}"
            )
    return None, unverified


def _prefer_known(ask: Inquiry, cure: Cure) -> Cure:
    """The workaround that was verified before, where it held on all given samples, and what was
    found now does not, or not on others on which that one did."""
    known, chosen = ask.findings.workaround, cure.workaround
    if known is None or not known.samples_ok == known.samples_n > 0:
        return cure
    right = chosen is not None and chosen.samples_ok == chosen.samples_n > 0
    if chosen is not None and (chosen.holds or (right and not (known.unseen and known.holds))):
        return cure
    stays = f"What was verified before stays: {', '.join(known.keep_names or known.switched_off)}."
    return Cure(f"{cure.message} {stays}", known)


def _look_at_accused(ask: Inquiry, cure: Cure) -> Sub[Cure]:
    """The cure with the nodes that it leaves near the end of FP16, and those that it keeps beside
    the found ones; where there are some, with what the found nodes do alone."""
    chosen, findings, oracle = cure.workaround, ask.findings, make_oracle(ask)
    if chosen is None or chosen.kind != "precision":
        return cure
    keep = ranges.decode(chosen.keep)
    outside = list_outside(ask.index, findings, keep)
    ok, n, said = -1, 0, ""
    if outside:
        ok, n = yield from count_right_without(oracle, find_accused(findings))
        said = f" With the found nodes alone in FP32 it is right on {ok} of {n}." if ok < n else ""
    close: tuple[Close, ...] = yield from list_close(oracle, keep, find_accused(findings))
    chosen = msgspec.structs.replace(
        chosen, outside=ask.index.names(outside), accused_ok=ok, accused_n=n, close=close
    )
    return Cure(f"{cure.message}{said}", chosen, cure.files, cure.probe)


def _sum_up(ask: Inquiry, chosen: Workaround | None, message: str) -> WorkaroundOutcome:
    """What the step answers of what helps, or of nothing that does."""
    findings = ask.findings
    outcome = WorkaroundOutcome(
        tolerance=ask.criterion.tolerance,
        cause=_name_cause(findings),
        culprits=len(findings.culprits),
        message=message,
    )
    if chosen is None:
        return outcome
    unseen = chosen.unseen or Unseen()
    right = chosen.samples_ok == chosen.samples_n > 0
    return msgspec.structs.replace(
        outcome.filled(chosen),
        mostly=right and unseen.ok >= MOSTLY * unseen.n,
        kind=chosen.kind,
        what=", ".join(chosen.switched_off),
        condition=chosen.condition,
        elsewhere=chosen.elsewhere,
        unseen_failing=unseen.plain,
        known=is_known(findings, chosen),
        outside=", ".join(chosen.outside),
        accused_ok=chosen.accused_ok if chosen.accused_ok >= 0 else None,
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


def _write_otherwise(ask: Inquiry, names: Sequence[str]) -> Sub[Cure | None]:
    """The first of these rewrites that cures; None where none does."""
    if not names:
        return None
    plain = yield from asked(ask.whole(list_feeds(ask.findings)))
    culprits = (ranges.decode(c.case.node_ids) for c in ask.findings.culprits)
    accused = {ask.index.nodes[n].op for nodes in culprits for n in nodes}
    for one in map(find_rewrite, names):
        if one.ops and not accused.intersection(one.ops):
            continue
        tried: TriedRewrite = yield from try_rewrite(ask, one, plain)
        if tried.cure is not None:
            probe = rewrite_probe(ask, one.name, tried.at, list_feeds(ask.findings))
            said = say_cure(tried.row, tried.cure, None, ask.criterion)
            return Cure(said, tried.cure, tried.files, probe)
    return None


def _list_options(ctx: StepContext, findings: Findings) -> list[Workaround]:
    """What the findings suggest to switch in the engine, the cheapest first, nothing verified yet.
    Of switches that break it together, each of which was seen to be needed for that, any one will
    do; all of them where something else breaks it, too."""
    options: list[Workaround] = []
    given = parse(ctx.engine)

    def add(kind: str, engine: str, off: tuple[str, ...] = ()) -> None:
        changed = off or parse(engine).list_changes(given)
        options.append(Workaround(kind, engine, switched_off=changed, minimal=True))

    guilty = (*findings.optimizers, *findings.options)
    switches = list_switches(ctx.engine, ctx.engine_info)
    for off in dict.fromkeys((*((one,) for one in guilty), guilty)) if guilty else ():
        named = off if set(off) & set(findings.optimizers) else ()
        add("optimizer" if named else "option", switches.without(off), named)
    if findings.tactics:
        forbid: dict[str, tuple[str, ...]] = {
            layer: (choice,) for layer, choice in findings.tactics.items()
        }
        off = tuple(forbid)
        options.append(
            Workaround("tactic", ctx.engine, switched_off=off, minimal=True, forbid=forbid)
        )
    varies = findings.looks > 1 or any(c.cause == "nondeterminism" for c in findings.culprits)
    if varies and has_threads(ctx):
        add("threads", str(given.with_option("threads", "1")))
    if ctx.can("precision-hint") and not options:
        add("option", str(given.with_option("precision", "f32")))
    return options


def _probe_applied(ask: Inquiry, chosen: Workaround) -> Measure:
    if chosen.kind in APART:
        tensors = {
            ask.index.by_name[name] for name in chosen.switched_off if name in ask.index.by_name
        }
        return ask.whole(
            list_feeds(ask.findings), rewrite=chosen.kind, rewrite_at=ranges.encode(tensors)
        )
    return ask.whole(
        list_feeds(ask.findings),
        ranges.decode(chosen.keep),
        engine=chosen.engine,
        forbid=chosen.forbid,
    )


def _plan(ctx: StepContext, _: int) -> int | None:
    """The builds that look for a switch first, where no step before has; what comes behind these
    is not known."""
    return count_switch_builds(ctx, ctx.findings) or None


SPEC = StepSpec(
    name="workaround",
    version=26,
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
        "accused_ok": "right with the found nodes alone in FP32",
    },
    json=kept_json,
    plan=_plan,
)
