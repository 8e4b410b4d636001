"""tactics: which of the engine's own choices breaks the model? What can be switched (optimizers,
options) is searched: the fewest that cure it when they are off. Of kernels builds are compared."""

from functools import partial
from itertools import chain, product
from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, Question, StepContext, Sub, Tables, Tries, asked
from narrowdown.engines.asking.engine_forms import is_held
from narrowdown.engines.asking.oracle import switch_engine, watch_kernels
from narrowdown.engines.asking.whole_model import probe_whole
from narrowdown.engines.compare.say import say_first
from narrowdown.engines.compare.statistics import binomial_interval, runs_to_see
from narrowdown.engines.data.tactic_replay import shorten_choice
from narrowdown.engines.findings import Findings
from narrowdown.engines.nearest import join_some
from narrowdown.engines.probe import Measurement
from narrowdown.engines.search.ddmin import leave_out_groups
from narrowdown.engines.search.evidence import is_of_the_precision
from narrowdown.engines.search.kernels import Compared, compare_kernels
from narrowdown.engines.search.switching import Switched, search_switches
from narrowdown.engines.steps.base import BUILDS_MODELS, End, Finish, Outcome, Steps, StepSpec
from narrowdown.engines.steps.prepare import prepare_findings
from narrowdown.engines.switches import Switches, group_by_family, list_switches

# A build without some switches may never end, and takes half a gigabyte a second meanwhile
# (shape of TensorRT-RTX 1.7 beside others): it is ended after so many seconds, or so many times what one
# with all of them took. One that ends was seen to take ten times as long.
_HANGS, _HANGS_TIMES = 5.0, 20.0
_LATE = "no build in the time that it has"


class TacticsOutcome(Outcome, frozen=True, kw_only=True):
    found: bool = False  # a choice of the engine is at fault
    suspects: str = ""  # comma separated
    necessary: bool = False  # off: passes
    sufficient: bool = False  # only it (and its enablers) on: fails
    enablers: str = ""  # needed beside the suspects, comma separated
    good: int = 0  # builds that passed
    bad: int = 0  # builds that failed
    kind: Literal["optimizer", "option", "tactic", "none"] = "none"  # what the suspects are
    stopped: bool = False  # the search was ended before it was through


# Ten builds show both kinds with 95 % where between 26 and 74 % fail; rarer ones are what
# ``repeat`` counts.
class TacticsParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    builds: Count = 10  # for engines whose builds choose tactics
    # builds before it ends with the fewest switches so far; 0: as many as it needs
    budget: Count = 0


def tactics(ctx: StepContext) -> Steps[TacticsOutcome]:
    params = msgspec.convert(dict(ctx.params), TacticsParams)
    findings: Findings = yield from prepare_findings(ctx)
    can = list_switches(ctx.engine, ctx.engine_info)
    fails = findings.signature.kind if findings.signature else ""
    if not (fails or ctx.check or ctx.can("run", untold=True)) and can.optimizers:
        return (yield from _list_changes(ctx, findings, can, params.budget))
    if ctx.can("tactics") and not ctx.check and (fails in ("", "accuracy") or not can.names):
        if fails != "accuracy":
            return Finish(
                TacticsOutcome(message="Builds that cannot be run show no tactic at fault."),
                findings,
            )
        chosen: Finish[TacticsOutcome] = yield from compare_builds(
            ctx, findings, params.builds, params.budget
        )
        if chosen.outcome.good or not chosen.outcome.bad or not can.names:
            return chosen
        # Every build fails, so there is no good one to compare kernels with; its options can still
        # be switched.
    if ctx.check or not can.names:
        reason = ctx.engine_info.reason("optimizers") or "this engine has none to switch"
        why = "an external check chooses its own engine" if ctx.check else reason.rstrip(".")
        return Finish(TacticsOutcome(message=f"No optimizers can be searched: {why}."), findings)
    return (yield from search_whole(ctx, findings, params.budget))


def compare_builds(
    ctx: StepContext, findings: Findings, builds: int, budget: int = 0
) -> Steps[TacticsOutcome]:
    """Compare the kernels of good and bad builds, and force the suspects."""
    oracle = watch_kernels(ctx, findings)
    found: Compared = yield from compare_kernels(oracle, builds, budget)
    tables: Tables = {
        "builds": [
            {
                "attempt": b.attempt,
                "verdict": "fail" if b.failed else "pass",
                "layers": len(b.choices),
                "choices": dict(b.choices),
            }
            for b in found.builds
        ],
        "suspects": [
            {**msgspec.structs.asdict(s), "text": shorten_choice(s.choice)} for s in found.suspects
        ],
        "guilty": [
            {"layer": k, "choice": v, "text": shorten_choice(v)} for k, v in found.guilty.items()
        ],
    }
    names = ", ".join(f"{k} ({shorten_choice(v)})" for k, v in found.guilty.items())
    outcome = TacticsOutcome(
        found=bool(names),
        suspects=names,
        necessary=bool(names),
        sufficient=bool(names),
        good=len(found.good),
        bad=len(found.bad),
        kind="tactic" if names else "none",
        stopped=found.stopped,
        message=_say_compared(found, names),
    )
    if not names:
        return Finish(outcome, findings, tables=tables)
    decisive = {
        "whole": oracle.list_probes(found.whole),
        "suspect-off": oracle.list_probes(found.off),
    }
    findings = msgspec.structs.replace(findings, tactics=dict(found.guilty))
    return Finish(outcome, findings, tables=tables, decisive=decisive)


def _say_compared(found: Compared, names: str) -> str:
    good, bad = len(found.good), len(found.bad)
    low, high = binomial_interval(bad, good + bad)
    # No more than 3,000 builds are spoken of.
    to_pass, to_fail = runs_to_see(max(1e-3, 1 - low)), runs_to_see(max(1e-3, high))
    layers = ", ".join(s.layer for s in found.suspects[:3])
    named = f" Only bad builds chose: {layers}." if layers else ""
    return say_first(
        (
            not good + bad,
            f"No build could be judged: {found.unresolved.rstrip('.') or 'none ran'}.",
        ),
        (
            not good,
            f"All {bad} fresh builds fail, so there is no good one to compare their tactics with; {to_pass} more would show "
            "one that passes, if the rate that these leave possible is right.",
        ),
        (
            not bad,
            f"All {good} fresh builds pass; a bad one to compare with may need {to_fail} more.",
        ),
        (
            found.guilty,
            f"{names}: forced into a good build it fails, kept out of a bad one it passes. {good} of {good + bad} free builds "
            "were good.",
        ),
        (
            found.why,
            f"{good} builds pass and {bad} fail, but no tactic could be proven guilty: {found.why}.{named}",
        ),
        (True, "The builds did not say which tactics they chose, so they cannot be told apart."),
    )


def may_switch(ctx: StepContext, findings: Findings) -> bool:
    """Whether a switch may be what cures a failure. Where the engine is held to its precision, and
    that fails the model by itself or what it cannot hold was seen to cure it in FP32, none of a
    compiler's can: it takes other nodes together, not wider types. (On an H200, TensorRT 10.6, 35
    to 65 builds of each of four such cases cured nothing; every fourth took its process down.)"""
    can = list_switches(ctx.engine, ctx.engine_info)
    known = findings.workaround is not None or is_of_the_precision(findings)
    return bool(can.names) and not ctx.check and not (can.apart and known and is_held(ctx))


def count_switch_builds(ctx: StepContext, findings: Findings) -> int:
    """About how many builds a workaround takes at most to look for a switch of the compiler, before
    anything else; 0 where it looks for none, and where all can be off at once."""
    can = list_switches(ctx.engine, ctx.engine_info)
    asks = can.apart and not findings.guilty and may_switch(ctx, findings)
    return can.builds if asks else 0


def search_whole(ctx: StepContext, findings: Findings, budget: int) -> Steps[TacticsOutcome]:
    """Prove of the whole model that it is a switch at all, and find the fewest that cure it when
    they are off."""
    can = list_switches(ctx.engine, ctx.engine_info)
    oracle = switch_engine(ctx, findings, can.without)
    found: Switched = yield from search_switches(
        lambda off: oracle.ask(Question(off=off)), can.names, budget, apart=can.apart
    )
    return _finish(ctx, findings, can, found)


def _list_changes(
    ctx: StepContext, findings: Findings, can: Switches, budget: int
) -> Steps[TacticsOutcome]:
    """Where nothing can run: the switches without which another engine is built, each beside others
    that are off and change nothing. Nobody saw that any of them cures anything. Of 578 switches 34
    changed an attention of eight nodes: 201 builds, one family after the other 341. Alone 31 of
    these 34 change it, too."""
    samples = tuple(s.id for s in findings.samples[:1])
    tries = Tries(budget)
    names = tuple(chain(*group_by_family(can.names)))
    built: dict[frozenset[str], str] = {}  # what is off -> which build it is; "": none

    def build(off: frozenset[str], attempt: int = 0, limit: float = 0.0) -> Sub[Measurement]:
        yield tries.note(f"built without {len(off)} of {len(names)} switches")
        probe = probe_whole(
            ctx,
            findings,
            samples=samples,
            engine=can.without(off),
            runs=0,
            attempt=attempt,
            timeout=max(limit, ctx.problem.timeout),
        )
        return (yield from asked(probe))

    def keeps(on: tuple[str, ...]) -> Sub[bool]:
        """Whether the build stays the same with only these on; no, where no more may be built."""
        if tries.over:
            return False
        off = can.names.difference(on)
        made = yield from build(off, limit=limit)
        known = plain if made.assumed == "pass" else _read_digest(made)
        built[off] = known or (_LATE if made.status == "timeout" else "")
        tries.done += 1
        return built[off] == plain

    plain = built[frozenset()] = _read_digest((yield from build(frozenset())))
    again = yield from build(frozenset(), attempt=1)
    limit = max(_HANGS, _HANGS_TIMES * again.build_seconds)
    differ = plain != _read_digest(again)
    if plain and not differ:
        yield from leave_out_groups(names, keeps)
    changes = {
        name: {_LATE: _LATE, "": "no build"}.get(built[off], "changes the build")
        for off, less in product(built, built)
        if built[off] != plain == built[less] and len(off) == len(less) + 1 and less < off
        for name in off - less
    }
    changing = [name for name, what in changes.items() if what == "changes the build"]
    said = say_first(
        (not plain, "It does not build as it is."),
        (differ, "Two builds with nothing off differ, so builds cannot be told apart on this machine."),
        (True, f"{len(changing)} of {len(names)} switches change the build, beside others that are off: {join_some(changing)}."),
    )  # fmt: skip
    return Finish(
        TacticsOutcome(
            message=f"{said} Nothing can run here, so none is called a cure.", stopped=tries.over
        ),
        findings,
        tables={"changes": [{"off": name, "what": what} for name, what in changes.items()]},
    )


def _read_digest(made: Measurement) -> str:
    """Which build it is; "" where it did not build."""
    return str(made.facts.get("build", {}).get("digest", ""))


def _finish(
    ctx: StepContext, findings: Findings, can: Switches, found: Switched
) -> Finish[TacticsOutcome]:
    """What was found among the switches as the step's answer."""
    good, bad = (sum(a.kind == k for a in found.asked.values()) for k in ("passes", "fails"))
    guilty = found.guilty
    options = tuple(n for n in guilty if n in can.options)
    optimizers = tuple(n for n in guilty if n not in can.options)
    outcome = TacticsOutcome(good=good, bad=bad, stopped=found.stopped, message=found.why)
    rows = [
        {
            "on": len(can.names - off),
            "off": tuple(sorted(off)),
            "verdict": "unresolved"
            if answer.kind == "unknown"
            else "fail"
            if answer.fails
            else "pass",
            "error": answer.own,
        }
        for off, answer in found.asked.items()
    ]
    if not guilty:
        return Finish(outcome, findings, tables={"builds": rows})
    outcome = msgspec.structs.replace(
        outcome,
        message=_say_guilty(found, can),
        found=True,
        kind="optimizer" if optimizers else "option",
        suspects=", ".join(guilty),
        necessary=True,
        sufficient=found.alone.fails,
        enablers=", ".join(found.enablers),
    )
    whole = partial(probe_whole, ctx, findings, samples=(findings.sample,))
    return Finish(
        outcome,
        msgspec.structs.replace(findings, optimizers=optimizers, options=options),
        tables={"builds": rows},
        decisive={"whole": (whole(),), "suspect-off": (whole(engine=can.without(guilty)),)},
    )


def _say_guilty(found: Switched, can: Switches) -> str:
    guilty, alone = found.guilty, found.alone
    why = (alone.detail or alone.why).rstrip(".")
    beside = f" (with {', '.join(found.enablers)} preparing the ground)" if found.enablers else ""
    others = len(can.names) - len(guilty) - len(found.enablers)
    way = "on alone" if found.beside == others else f"on, with {found.beside} others off"
    on_alone = {
        "fails": f"{way}{beside}, it fails",
        "passes": f"{way}, it passes, and what it takes beside it was not found",
        "unknown": f"what it does {way}{beside} could not be seen: {why}",
    }[alone.kind]
    breaks = "break" if len(guilty) > 1 else "breaks"
    message = f"{', '.join(guilty)} {breaks} the model: off, it passes; {on_alone}."
    verdicts = list(found.asked.values())
    unanswered = sum(v.kind == "unknown" for v in verdicts)
    message += f" {len(verdicts)} builds, {sum(v.passes for v in verdicts)} good"
    message += f", {unanswered} did not answer." if unanswered else "."
    ended = " The search was ended here: that no fewer of them do it was not shown."
    return f"{message}{ended if found.stopped else ''}"


def _plan(ctx: StepContext, nodes: int) -> int | None:
    """Tactics: fresh builds, then as many as it takes to halve the layers that differ. Switches: all
    on, all off, then one by halving, alone and without it."""
    if ctx.check:
        return None
    if ctx.can("tactics"):
        return msgspec.convert(dict(ctx.params), TacticsParams).builds + nodes.bit_length()
    return list_switches(ctx.engine, ctx.engine_info).builds or None


SPEC = StepSpec(
    name="tactics",
    version=8,
    summary="Search the engine's own choices for the one that breaks the model, and prove it by switching it off and on.",
    run=tactics,
    outcome=TacticsOutcome,
    params=TacticsParams,
    needs=(BUILDS_MODELS,),
    exclusive=True,
    sets=("optimizers", "options", "tactics"),
    ends=(End("found", False, "unresolved"),),
    labels={
        "necessary": "switched off, it passes",
        "sufficient": "alone, it still fails",
        "enablers": "needed beside it",
        "good": "good builds",
        "bad": "bad builds",
        "stopped": "ended before it was through",
    },
    plan=_plan,
)
