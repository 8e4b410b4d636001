"""tactics: which of the engine's own choices breaks the model? What can be switched (optimizers,
options) is searched: the fewest that cure it when they are off. Of kernels builds are compared."""

import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, Note, StepContext, Sub, Tables
from narrowdown.engines.asking.answer import Answer, unknown
from narrowdown.engines.asking.budget import Tries
from narrowdown.engines.asking.oracle import switch_engine, watch_kernels
from narrowdown.engines.asking.question import Question
from narrowdown.engines.asking.switches import Switches, list_switches
from narrowdown.engines.asking.whole_model import probe_whole
from narrowdown.engines.compare.say import say_first
from narrowdown.engines.compare.statistics import binomial_interval, runs_to_see
from narrowdown.engines.findings import Findings
from narrowdown.engines.search.ddmin import ddmin
from narrowdown.engines.search.kernels import Compared, compare_kernels
from narrowdown.engines.steps.base import BUILDS_MODELS, End, Finish, Steps, StepSpec
from narrowdown.engines.steps.prepare import prepare_findings


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
    if ctx.check or not can.names:
        reason = ctx.engine_info.reason("optimizers") or "this engine has none to switch"
        why = "an external check chooses its own engine" if ctx.check else reason
        return Finish(
            TacticsOutcome(message=f"No optimizers can be searched: {why.rstrip('.')}."), findings
        )
    return (yield from _search_switches(ctx, findings, can, params.budget))


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
        good=len(found.good),
        bad=len(found.bad),
        message=_say_compared(found, names),
        stopped=found.stopped,
    )
    if not found.guilty:
        return Finish(outcome, findings, tables=tables)
    outcome = msgspec.structs.replace(
        outcome, found=True, kind="tactic", suspects=names, necessary=True, sufficient=True
    )
    decisive = {
        "whole": oracle.list_probes(found.whole),
        "suspect-off": oracle.list_probes(found.off),
    }
    after = msgspec.structs.replace(findings, tactics=dict(found.guilty))
    return Finish(outcome, after, tables=tables, decisive=decisive)


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


def shorten_choice(choice: str) -> str:
    """A choice in a few words: its tactic."""
    found = re.search(r'"tactic":"?(-?\w+)', choice)
    return f"tactic {found[1]}" if found else choice[:60]


class _Switching:
    """The whole model with some of the switches off, each set asked about once. ``budget``: builds
    before the search ends; 0: as many as it needs."""

    def __init__(self, ctx: StepContext, findings: Findings, can: Switches, budget: int) -> None:
        self.can, self.tries = can, Tries(budget)
        self.asked: dict[frozenset[str], Answer] = {}
        self.stopped = False
        self._oracle = switch_engine(ctx, findings, can.without)

    def look(self, off: Iterable[str]) -> Sub[Answer]:
        """What it does without these."""
        chosen = frozenset(off)
        if chosen not in self.asked:
            # With none off and all off the search begins: from then on it may be ended.
            begun = {frozenset(), self.can.names} <= self.asked.keys()
            tried = self.tries.done if begun else -1
            yield Note(f"{len(chosen)} of {len(self.can.names)} switches off", best=0, tried=tried)
            self.asked[chosen] = yield from self._oracle.ask(Question(off=chosen))
            self.tries.done += 1
        return self.asked[chosen]

    def search(self, off: Iterable[str]) -> Sub[Answer]:
        """As ``look``, as long as the budget is not spent."""
        chosen = frozenset(off)
        if self.tries.over and chosen not in self.asked:
            self.stopped = True
            return unknown("", "the search was ended")
        return (yield from self.look(chosen))

    def cures(self, off: tuple[str, ...]) -> Sub[bool]:
        return (yield from self.search(off)).passes

    def breaks(self, guilty: tuple[str, ...], beside: tuple[str, ...]) -> Sub[bool]:
        """Whether it fails with only these on."""
        return (yield from self.search(self.can.names.difference(guilty, beside))).fails

    def conclude(self, message: str, **rest: object) -> TacticsOutcome:
        """The outcome, with the builds counted."""
        good, bad = (sum(a.kind == k for a in self.asked.values()) for k in ("passes", "fails"))
        return msgspec.structs.replace(TacticsOutcome(good=good, bad=bad, message=message), **rest)


def _search_switches(
    ctx: StepContext, findings: Findings, can: Switches, budget: int
) -> Steps[TacticsOutcome]:
    """Prove that it is a switch at all, and find the fewest that cure the model when they are off:
    none of them can be left on, whichever others do the same harm. Where they do none alone, what
    must be on beside them joins."""
    tried = _Switching(ctx, findings, can, budget)
    whole_model: Answer = yield from tried.look(())
    if not whole_model.fails:
        why = whole_model.detail or "it does not fail now, so it comes and goes too seldom"
        said = f"The switches cannot be searched: {why.rstrip('.')}."
        return Finish(tried.conclude(said), findings)
    without: Answer = yield from tried.look(can.names)
    if not without.passes:
        why = without.detail or "it fails with all of them off, too"
        said = f"No optimizer or option is to blame: {why.rstrip('.')}."
        return Finish(tried.conclude(said), findings)
    # Early ones are left on first.
    names = sorted(can.names, key=lambda name: (not _prepares(name), name))
    guilty: tuple[str, ...] = yield from ddmin(tuple(names), tried.cures)
    enablers: tuple[str, ...] = ()
    alone: Answer = yield from tried.look(can.names.difference(guilty))
    if alone.passes:
        others = tuple(name for name in names if name not in guilty)
        beside = yield from ddmin(others, partial(tried.breaks, guilty))
        beside = () if tried.stopped else beside
        # What breaks it together is accused together.
        together = (*guilty, *(name for name in beside if not _prepares(name)))
        guilty = together if (yield from tried.search(together)).passes else guilty
        enablers = tuple(name for name in beside if name not in guilty)
        alone = yield from tried.look(can.names.difference(guilty, enablers))
    optimizers = tuple(n for n in guilty if n not in can.options)
    outcome = tried.conclude(
        _say_guilty(guilty, enablers, alone, tried),
        found=True,
        kind="optimizer" if optimizers else "option",
        suspects=", ".join(guilty),
        necessary=True,
        sufficient=alone.fails,
        enablers=", ".join(enablers),
        stopped=tried.stopped,
    )
    options = tuple(n for n in guilty if n in can.options)
    rows = [
        {
            "on": len(can.names - off),
            "off": tuple(sorted(off)),
            "verdict": _VERDICTS[answer.kind],
            "error": answer.own,
        }
        for off, answer in tried.asked.items()
    ]
    sample = (findings.sample,)
    return Finish(
        outcome,
        msgspec.structs.replace(findings, optimizers=optimizers, options=options),
        tables={"builds": rows},
        decisive={
            "whole": (probe_whole(ctx, findings, samples=sample),),
            "suspect-off": (
                probe_whole(ctx, findings, samples=sample, engine=can.without(guilty)),
            ),
        },
    )


_VERDICTS = {"fails": "fail", "passes": "pass", "unknown": "unresolved"}


def _say_guilty(
    guilty: Sequence[str], enablers: Sequence[str], alone: Answer, tried: _Switching
) -> str:
    why = (alone.detail or alone.why).rstrip(".")
    beside = f" (with {', '.join(enablers)} preparing the ground)" if enablers else ""
    on_alone = {
        "fails": f"on alone{beside}, it fails",
        "passes": "on alone, it passes, and what it takes beside it was not found",
        "unknown": f"what it does on alone{beside} could not be seen: {why}",
    }[alone.kind]
    breaks = "break" if len(guilty) > 1 else "breaks"
    message = f"{', '.join(guilty)} {breaks} the model: off, it passes; {on_alone}."
    verdicts = list(tried.asked.values())
    unanswered = sum(v.kind == "unknown" for v in verdicts)
    message += f" {len(verdicts)} builds, {sum(v.passes for v in verdicts)} good"
    message += f", {unanswered} did not answer." if unanswered else "."
    if tried.stopped:
        message += " The search was ended here: that no fewer of them do it was not shown."
    return message


def _prepares(name: str) -> bool:
    """Whether an optimizer changes the model without computing anything else: as a rule it only
    prepares the ground for another."""
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
    version=5,
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
