"""tactics: which of the engine's own choices breaks the model? What can be switched (optimizers,
options) is searched, then proven guilty twice.

*Necessary*: with everything on but the suspect, the model passes. *Sufficient*: with everything off
but the suspect and its enablers, it fails. An enabler (constant folding, mostly) only prepares the
ground: on its own it breaks nothing.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, Note, StepContext, Sub
from narrowdown.engines.asking.layers.fresh_builds import ask_fresh_builds
from narrowdown.engines.compare.criterion import Criterion, Verdict
from narrowdown.engines.compare.judge import judge_cured
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import Measurement
from narrowdown.engines.search.ddmin import ddmin
from narrowdown.engines.search.kernels import Tried, compare_kernels
from narrowdown.engines.search.switches import Switches, list_switches
from narrowdown.engines.search.whole import probe_whole
from narrowdown.engines.steps.base import BUILDS_MODELS, End, Finish, Steps, StepSpec
from narrowdown.engines.steps.prepare import prepare_findings

# Switches that can each do the same harm, one put aside after another: three do for LayerNorm with
# keepdims=0 (docs/causes.md). Beyond six, the rest is told as "others break it too".
MOST_GUILTY = 6
# Builds before there is a search that could be ended: everything on, and everything off.
ENDS = 2


class TacticsOutcome(msgspec.Struct, frozen=True, kw_only=True):
    found: bool = False  # a choice of the engine is at fault
    suspects: str = ""  # comma separated
    necessary: bool = False  # off: passes
    sufficient: bool = False  # only it (and its enablers) on: fails
    enablers: str = ""  # needed beside the suspects, comma separated
    good: int = 0  # builds that passed
    bad: int = 0  # builds that failed
    kind: Literal["optimizer", "option", "tactic", "none"] = "none"  # what the suspects are
    stopped: bool = False  # the search was ended before it was through
    message: str = ""


class SwitchedBuild(msgspec.Struct, frozen=True):
    """A row of the table ``builds`` where switches are searched: how many were on, which were off,
    and what came."""

    on: int
    off: tuple[str, ...]
    verdict: str
    error: float | None


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
        return (yield from _search_switches(ctx, findings, can, params.budget))
    if ctx.check or not can.names:
        reason = ctx.reason("optimizers") or "this engine has none to switch"
        why = "an external check chooses its own engine" if ctx.check else reason
        return Finish(
            TacticsOutcome(message=f"No optimizers can be searched: {why.rstrip('.')}."), findings
        )
    return (yield from _search_switches(ctx, findings, can, params.budget))


def compare_builds(
    ctx: StepContext, findings: Findings, builds: int, budget: int = 0
) -> Steps[TacticsOutcome]:
    """Compare the kernels of good and bad builds, and force the suspects."""
    tried: Tried = yield from compare_kernels(ctx, findings, builds, budget)
    outcome = TacticsOutcome(
        good=tried.good, bad=tried.bad, message=tried.message, stopped=tried.stopped
    )
    if not tried.guilty:
        return Finish(outcome, findings, tables=tried.tables)
    found = msgspec.structs.replace(
        outcome, found=True, kind="tactic", suspects=tried.names, necessary=True, sufficient=True
    )
    after = msgspec.structs.replace(findings, tactics=dict(tried.guilty))
    return Finish(found, after, tables=tried.tables, decisive=tried.decisive)


class _Switching:
    """The whole model with some of the switches on, each set asked about once. ``budget``: builds
    before the search ends; 0: as many as it needs."""

    def __init__(self, ctx: StepContext, findings: Findings, can: Switches, budget: int) -> None:
        self.ctx, self.findings, self.can, self._budget = ctx, findings, can, budget
        self.kinds = [
            k for k, there in (("optimizers", can.optimizers), ("options", can.options)) if there
        ]
        self.things = " and ".join(self.kinds)
        self.asked: dict[frozenset[str], Verdict] = {}
        self.stopped = False

    def look(self, on: Iterable[str]) -> Sub[Verdict]:
        """The verdict with only these on."""
        chosen, findings = frozenset(on), self.findings
        if chosen not in self.asked:
            # With all on and none on the search begins: from then on it may be ended.
            tried = len(self.asked) if len(self.asked) >= ENDS else -1
            yield Note(
                f"{len(chosen)} of {len(self.can.names)} {self.things} on", best=0, tried=tried
            )
            question = probe_whole(
                self.ctx,
                findings,
                samples=(findings.sample,),
                engine=self.can.with_on(chosen),
                runs=findings.looks,
                exclusive=findings.looks > 1,
            )
            rule = findings.criterion or Criterion()
            m: Measurement = yield from ask_fresh_builds(
                findings.builds,
                lambda attempt: msgspec.structs.replace(question, attempt=attempt),
                lambda m: judge_cured(m, rule, findings.signature),
            )
            self.asked[chosen] = judge_cured(m, rule, findings.signature)
        return self.asked[chosen]

    def search(self, on: tuple[str, ...]) -> Sub[Verdict]:
        """As ``look``, as long as the budget is not spent."""
        if 0 < self._budget <= len(self.asked) and frozenset(on) not in self.asked:
            self.stopped = True
            return Verdict("unresolved", detail="the search was ended")
        return (yield from self.look(on))

    def fails(self, on: tuple[str, ...]) -> Sub[bool]:
        return (yield from self.search(on)).failed

    def conclude(self, message: str, **rest: object) -> TacticsOutcome:
        """The outcome, with the builds counted."""
        good, bad = (sum(v.kind == kind for v in self.asked.values()) for kind in ("pass", "fail"))
        return msgspec.structs.replace(TacticsOutcome(good=good, bad=bad, message=message), **rest)


class _Guilty(msgspec.Struct, frozen=True):
    """``names``: switches that break the model, each or together; ``enablers``: what must be on
    beside them. ``without``: the verdict with the guilty ones off."""

    names: tuple[str, ...]
    enablers: tuple[str, ...]
    without: Verdict


def _search_switches(
    ctx: StepContext, findings: Findings, can: Switches, budget: int
) -> Steps[TacticsOutcome]:
    """Prove that it is a switch at all, find those at fault, and switch them off."""
    tried = _Switching(ctx, findings, can, budget)
    thing = tried.kinds[0][:-1] if len(tried.kinds) == 1 else "optimizer or option"
    whole_model: Verdict = yield from tried.look(can.names)
    if not whole_model.failed:
        why = whole_model.detail or "it does not fail now, so it comes and goes too seldom"
        return Finish(
            tried.conclude(f"The {tried.things} cannot be searched: {why.rstrip('.')}."), findings
        )
    without: Verdict = yield from tried.look(())
    if not without.passed:
        why = (
            without.detail
            or f"it fails with {'each of them' if len(tried.kinds) > 1 else f'every {thing}'} off too"
        )
        return Finish(tried.conclude(f"No {thing} is to blame: {why.rstrip('.')}."), findings)
    guilty: _Guilty = yield from _find_guilty(tried)
    necessary = guilty.without.passed
    optimizers = tuple(n for n in guilty.names if n not in can.options)
    kind = ("optimizer" if optimizers else "option") if necessary else "none"
    outcome = tried.conclude(
        _say_guilty(guilty, tried),
        found=necessary,
        kind=kind,
        suspects=", ".join(guilty.names),
        necessary=necessary,
        sufficient=True,
        enablers=", ".join(guilty.enablers),
        stopped=tried.stopped,
    )
    if necessary:
        options = tuple(n for n in guilty.names if n in can.options)
        findings = msgspec.structs.replace(
            findings, optimizers=optimizers, options=options, enablers=guilty.enablers
        )
    rows = [
        SwitchedBuild(len(on), tuple(sorted(can.names - on)), v.kind, v.own)
        for on, v in tried.asked.items()
    ]
    sample, off = (findings.sample,), can.without(guilty.names)
    return Finish(
        outcome,
        findings,
        tables={"builds": rows},
        decisive={
            "whole": (probe_whole(ctx, findings, samples=sample),),
            "suspect-off": (probe_whole(ctx, findings, samples=sample, engine=off),),
        },
    )


def _find_guilty(tried: _Switching) -> Sub[_Guilty]:
    """Search until the model passes with what was found off. The smallest failing set holds the
    guilty ones and what enables them; where others do the same harm, switching these off cures
    nothing, so they are put aside and the rest is searched."""
    guilty: list[str] = []
    enablers: tuple[str, ...] = ()
    left = tried.can.names
    while True:
        needed: tuple[str, ...] = yield from ddmin(tuple(sorted(left)), tried.fails)
        each: list[str] = []
        for name in needed:
            if (yield from tried.search(tuple(left - {name}))).passed:
                each.append(name)
        # Which of them only prepare the ground is known by then, unless the search was ended
        # before: then all go off together.
        found_now = _drop_enablers(each) or (
            list(needed) if tried.stopped else _drop_enablers(needed)
        )
        guilty += found_now
        enablers = (*enablers, *(n for n in needed if n not in found_now and n not in enablers))
        left -= set(found_now)
        without: Verdict = yield from tried.look(
            left
        )  # what was found is checked, whatever ended the search
        if not without.failed or tried.stopped or len(guilty) >= MOST_GUILTY:
            return _Guilty(tuple(guilty), enablers, without)


def _say_guilty(guilty: _Guilty, tried: _Switching) -> str:
    suspects, without = ", ".join(guilty.names), guilty.without
    beside = f" (with {', '.join(guilty.enablers)} preparing the ground)" if guilty.enablers else ""
    breaks = f"{'break' if len(guilty.names) > 1 else 'breaks'} the model"
    if without.passed:
        message = f"{suspects} {breaks}: off, it passes; on alone{beside}, it fails."
    elif without.failed:
        message = f"{suspects} on alone{beside} {breaks}, but switching that off does not cure it: others break it too."
    else:
        why = (without.detail or without.reason).rstrip(".")
        message = f"{suspects} on alone{beside} {breaks}; what it does with that off could not be seen: {why}."
    verdicts = list(tried.asked.values())
    unanswered = sum(v.kind == "unresolved" for v in verdicts)
    message += f" {len(verdicts)} builds, {sum(v.passed for v in verdicts)} good"
    message += f", {unanswered} did not answer." if unanswered else "."
    if tried.stopped:
        message += " The search was ended here: that no fewer of them do it was not shown."
    return message


def _drop_enablers(names: Iterable[str]) -> list[str]:
    """The names without the enablers, unless there is nothing else."""
    chosen = list(names)
    return [n for n in chosen if not _is_enabler(n)] or chosen


def _is_enabler(name: str) -> bool:
    """Optimizers that change the model without computing anything else: they prepare, they do not
    break."""
    return name.startswith(
        (
            "ConstantFolding",
            "ConstantSharing",
            "CommonSubexpression",
            "Identity",
            "EliminateIdentity",
        )
    )


def _plan(ctx: StepContext, nodes: int) -> int | None:
    """Tactics: fresh builds, then as many as it takes to halve the layers that differ. Switches: all
    on, all off, then one by halving, alone and without it."""
    if ctx.check:
        return None
    if ctx.can("tactics"):
        return msgspec.convert(dict(ctx.params), TacticsParams).builds + nodes.bit_length()
    names = list_switches(ctx.engine, ctx.engine_info).names
    return 2 * len(names).bit_length() + 1 if names else None


SPEC = StepSpec(
    name="tactics",
    version=4,
    summary="Search the engine's own choices for the one that breaks the model, and prove it by switching it off and on.",
    run=tactics,
    outcome=TacticsOutcome,
    params=TacticsParams,
    needs=(BUILDS_MODELS,),
    exclusive=True,
    sets=("optimizers", "options", "enablers", "tactics"),
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
