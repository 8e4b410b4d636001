"""tactics: which of the engine's own choices breaks the model? For engines with switchable optimizers: search, then prove
guilt twice.

*Necessary*: with everything on but the suspect, the model passes. *Sufficient*: with everything off but the suspect and its
enablers, it fails. An enabler (constant folding, mostly) only prepares the ground: on its own it breaks nothing.
"""

from collections.abc import Iterable

import msgspec

from engines.compare.criterion import Criterion, Verdict
from engines.compare.judge import judge_whole
from engines.probe import Measurement
from engines.spec import parse
from engines.steps.base import Findings, Finish, Note, StepContext, Steps, StepSpec, Sub
from engines.steps.ddmin import ddmin
from engines.steps.kernels import kernels
from engines.steps.outcome import TacticsOutcome
from engines.steps.prepare import prepared, whole

MOST_GUILTY = 6  # optimizers that can each do the same harm


class TacticsParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    builds: int = 10  # for engines whose builds choose tactics


def tactics(ctx: StepContext) -> Steps[TacticsOutcome]:
    params = msgspec.convert(dict(ctx.params), TacticsParams)
    findings: Findings = yield from prepared(ctx)
    chooses = ctx.engine_info.get("capabilities", {}).get("tactics", {"present": False})
    if chooses["present"] and not ctx.check:
        if findings.signature is None or findings.signature.kind != "accuracy":
            return Finish(TacticsOutcome(message="Builds that cannot be run show no tactic at fault."), findings)
        return (yield from kernels(ctx, findings, params.builds))
    names = tuple(ctx.engine_info.get("optimizers", ()))
    switchable = ctx.engine_info.get("capabilities", {}).get("optimizers", {"present": False, "reason": ""})
    if ctx.check or not names or not switchable["present"]:
        why = (
            "an external check chooses its own engine"
            if ctx.check
            else switchable["reason"] or "this engine has none to switch"
        )
        return Finish(TacticsOutcome(message=f"No optimizers can be searched: {why.rstrip('.')}."), findings)
    return (yield from _optimizers(ctx, findings, names))


def _optimizers(ctx: StepContext, findings: Findings, names: tuple[str, ...]) -> Steps[TacticsOutcome]:
    spec = parse(ctx.engine)
    already = frozenset(filter(None, spec.get("disabled_optimizers").split("+")))
    every = frozenset(names) - already
    rule = findings.criterion or Criterion()
    asked: dict[frozenset[str], Verdict] = {}

    def with_on(on: Iterable[str]) -> Sub:
        """The verdict on the whole model with only these optimizers on."""
        chosen = frozenset(on)
        if chosen not in asked:
            off = "+".join(sorted((every - chosen) | already))
            yield Note(f"{len(chosen)} of {len(every)} optimizers on")
            m: Measurement = yield whole(
                ctx,
                findings,
                samples=(findings.sample,),
                engine=str(spec.with_option("disabled_optimizers", off)),
                runs=findings.looks,
                exclusive=findings.looks > 1,
            )
            asked[chosen] = judge_whole(m, rule)
        return asked[chosen]

    def counted(found: bool, message: str, **rest: object) -> TacticsOutcome:
        outcome = TacticsOutcome(
            found=found,
            good=sum(v.passed for v in asked.values()),
            bad=sum(v.failed for v in asked.values()),
            kind="optimizer" if found else "none",
            message=message,
        )
        return msgspec.structs.replace(outcome, **rest)

    whole_model: Verdict = yield from with_on(every)
    if not whole_model.failed:
        why = whole_model.detail or "it does not fail now, so it comes and goes too seldom"
        return Finish(counted(False, f"The optimizers cannot be searched: {why.rstrip('.')}."), findings)
    without: Verdict = yield from with_on(())
    if not without.passed:
        why = without.detail or "it fails with every optimizer off too"
        return Finish(counted(False, f"No optimizer is to blame: {why.rstrip('.')}."), findings)

    def still_fails(on: tuple[str, ...]) -> Sub:
        return (yield from with_on(on))

    # The smallest failing set holds the guilty ones and what enables them. Where others can do the same harm, switching these off
    # does not cure it: they are put aside and the rest is searched.
    guilty: list[str] = []
    enablers: tuple[str, ...] = ()
    left, necessary = every, False
    while not necessary and len(guilty) < MOST_GUILTY:
        needed: tuple[str, ...] = yield from ddmin(tuple(sorted(left)), still_fails)
        each: list[str] = []
        for name in needed:
            if (yield from with_on(left - {name})).passed:
                each.append(name)
        found_now = _breakers(each) or _breakers(needed)
        guilty += found_now
        enablers = (*enablers, *(n for n in needed if n not in found_now and n not in enablers))
        left -= set(found_now)
        verdict: Verdict = yield from with_on(left)
        necessary = verdict.passed
        if not verdict.failed:
            break
    suspects = ", ".join(guilty)
    beside = f" (with {', '.join(enablers)} preparing the ground)" if enablers else ""
    message = (
        f"{suspects} {'break' if len(guilty) > 1 else 'breaks'} the model: off, it passes; on alone{beside}, it fails. "
        f"{len(asked)} builds, {sum(v.passed for v in asked.values())} good."
        if necessary
        else f"{suspects} on alone{beside} breaks the model, but switching it off does not cure it: others break it too."
    )
    found = counted(
        necessary, message, suspects=suspects, necessary=necessary, sufficient=True, enablers=", ".join(enablers)
    )
    after = msgspec.structs.replace(findings, optimizers=tuple(guilty), enablers=enablers) if necessary else findings
    off = "+".join(sorted({*already, *guilty}))
    return Finish(
        found,
        after,
        tables={
            "builds": [
                {"on": len(on), "off": sorted(every - on), "verdict": v.kind, "error": v.own} for on, v in asked.items()
            ]
        },
        decisive={
            "whole": (whole(ctx, findings, samples=(findings.sample,)),),
            "suspect-off": (
                whole(
                    ctx, findings, samples=(findings.sample,), engine=str(spec.with_option("disabled_optimizers", off))
                ),
            ),
        },
    )


def _breakers(names: Iterable[str]) -> list[str]:
    """The names without the enablers, unless there is nothing else."""
    chosen = list(names)
    return [n for n in chosen if not _enabler(n)] or chosen


def _enabler(name: str) -> bool:
    """Optimizers that change the model without computing anything else: they prepare, they do not break."""
    return name.startswith(
        ("ConstantFolding", "ConstantSharing", "CommonSubexpression", "Identity", "EliminateIdentity")
    )


SPEC = StepSpec(
    name="tactics",
    version=2,
    summary="Search the engine's own choices for the one that breaks the model, and prove it by switching it off and on.",
    run=tactics,
    outcome=TacticsOutcome,
    params=TacticsParams,
    exclusive=True,
    needs=(),
    expected=lambda ctx, _nodes: 11 if ctx.engine_info.get("optimizers") else 1,
)
