"""reduce: the smallest part of the model that still fails in the same way, with proof at both
ends."""

from collections.abc import Collection
from typing import Literal

import msgspec

from narrowdown.engines.asking import StepContext, Sub
from narrowdown.engines.asking.engine_forms import find_cheap_engine, shrinks_for
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import Oracle, open_oracle
from narrowdown.engines.findings import Case
from narrowdown.engines.graph import GraphIndex, ranges
from narrowdown.engines.nearest import join_some
from narrowdown.engines.search.settle import ask_about, make_case
from narrowdown.engines.search.smallest import ReduceParams, Smallest, find_smallest
from narrowdown.engines.steps.base import (
    BUILDS_MODELS,
    CaseOutcome,
    End,
    Finish,
    Steps,
    StepSpec,
    Told,
    case_names,
    tell_case,
)
from narrowdown.engines.steps.prepare import prepare_findings


class ReduceOutcome(CaseOutcome, frozen=True, kw_only=True):
    verdict: Literal["reduced", "not-reproduced", "unresolved"] = "unresolved"
    nodes_before: int = 0
    nodes_after: int = 0
    probes: int = 0  # of the search
    verifications: int = 0  # probes that check the result
    unresolved: int = 0  # probes that neither passed nor failed
    verified: str = ""  # fresh builds that failed, of those made: k/n
    minimal: bool = False
    reason: str = ""


class Reduced(msgspec.Struct, frozen=True):
    """A search's result in the words of the session. ``case`` None where the full model did not
    fail; ``verdict`` "unresolved" beside a case: it failed in no fresh build."""

    found: Smallest
    verdict: Literal["reduced", "not-reproduced", "unresolved"]
    reason: str = ""
    case: Case | None = None


def reduce(ctx: StepContext) -> Steps[ReduceOutcome]:
    params = msgspec.convert(dict(ctx.params), ReduceParams)
    findings = yield from prepare_findings(ctx)
    if findings.signature is None:
        return Finish(
            ReduceOutcome(
                verdict="not-reproduced",
                reason="the model passes here",
                message="The model passes: nothing to reduce.",
            ),
            findings,
        )
    findings = yield from find_cheap_engine(ctx, findings)
    oracle, ask = yield from open_oracle(ctx, findings)
    reduced: Reduced = yield from reduce_model(oracle, ask, params)
    case, found = reduced.case, reduced.found
    outcome = ReduceOutcome(
        verdict=reduced.verdict,
        nodes_before=len(ask.index.nodes),
        probes=found.probes,
        verifications=found.checks,
        unresolved=sum(found.unresolved.values()),
        reason=reduced.reason or ", ".join(f"{k} {v}" for k, v in sorted(found.unresolved.items())),
        message=_message(reduced, ask),
    )
    if case is not None:
        outcome = msgspec.structs.replace(
            outcome,
            nodes_after=len(case.nodes),
            verified=case.verified,
            minimal=case.minimal,
            **tell_case(case),
        )
    return Finish(
        outcome,
        msgspec.structs.replace(findings, case=case if reduced.verdict == "reduced" else None),
        tables={
            "bundle": found.settled.files if found.settled else (),
            "unresolved": [found.unresolved] if found.unresolved else [],
        },
        decisive={"case": oracle.list_probes(ask_about(case))} if case else {},
    )


def reduce_model(oracle: Oracle, ask: Inquiry, params: ReduceParams) -> Sub[Reduced]:
    """The smallest part that fails, as a case."""
    findings = ask.findings
    # One large build of all nodes side by side pays where a build is not what is waited for.
    builds_long = findings.expensive or findings.cheap or ask.ctx.engine_info.gpus
    shrinks = shrinks_for(findings, params.shrink_probes)
    params = msgspec.structs.replace(params, shrink_probes=shrinks)
    found: Smallest = yield from find_smallest(oracle, params, alone=not builds_long)
    if found.settled is None and found.answer.passes and ask.signature.kind == "crash":
        # It is no longer known whether its results are right: they never came.
        return Reduced(
            found,
            "unresolved",
            "the engine took its process down on the whole model once, and not when looked at again",
        )
    if found.settled is None and found.answer.passes:
        return Reduced(found, "not-reproduced", "the whole model passes, looked at again")
    if found.settled is None:
        return Reduced(found, "unresolved", found.answer.detail or found.answer.why)
    settled = found.settled
    case = make_case(ask, settled, minimal=found.minimal, found_by="reduce")
    if settled.failures or not params.verify:
        return Reduced(found, "reduced", case=case)
    never = f"what was left failed once, and in none of {settled.builds} fresh builds"
    return Reduced(found, "unresolved", never, case)


def _message(reduced: Reduced, ask: Inquiry) -> str:
    case, found = reduced.case, reduced.found
    if case is None:
        return f"Nothing to reduce: {reduced.reason}."
    if reduced.verdict != "reduced":
        return f"No smaller part is certain: {reduced.reason}."
    fail = "fails" if len(case.nodes) == 1 else "fail"
    told = f"{len(case.nodes):,} of {len(ask.index.nodes):,} nodes {fail} in the same way ({case.verified} fresh builds)."
    if found.stopped:
        told += " The search was stopped here: that no smaller part fails was not shown."
    if found.cheaply and case.minimal and len(case.nodes) > 1:
        told += f" That none of them can be left out was seen on {ask.findings.cheap}, which builds faster."
    if case.needs_higher_inputs:
        told += " It needs its inputs in higher precision: fed exactly it passes."
    return told + say_left_whole(ask.index, ranges.decode(case.node_ids))


def say_left_whole(index: GraphIndex, nodes: Collection[int]) -> str:
    """What a case holds that is not taken apart further, as sentences with a space in front; empty
    where that is nothing."""
    bodies = [index.nodes[n].op for n in nodes if index.nodes[n].holds_graphs]
    copied = [group[0] for group in index.group_copies(nodes) if len(group) > 1]
    once = f" Taken as one in all iterations: {join_some(index.names(copied))}."
    left = f" The graph inside its {bodies[0]} is left whole." if bodies else ""
    return f"{once if copied else ''}{left}"


def _json(told: Told) -> dict[str, object]:
    """The outcome with the case's names as lists, and what it took."""
    found = {
        name: value
        for name, value in told.outcome.items()
        if name not in ("ops", "names", "message")
    }
    return {
        **found,
        **case_names(told),
        "speculative": told.speculative,
        "cached": told.cached,
        "builds": told.builds,
    }


def _plan(_ctx: StepContext, nodes: int) -> int | None:
    """Bisections from either end of the node order, for two nodes that lie apart; then the case is
    fed exactly, made smaller and built afresh, which takes as many questions as it has edits."""
    return 4 * nodes.bit_length() + 16 if nodes else None


SPEC = StepSpec(
    name="reduce",
    version=8,
    summary="Search for the smallest part of the model that still fails in the same way.",
    run=reduce,
    outcome=ReduceOutcome,
    params=ReduceParams,
    needs=(BUILDS_MODELS,),
    sets=("case",),
    makes=("case",),
    ends=(
        End("verdict", "not-reproduced", "not-reproduced"),
        End("verdict", "unresolved", "unresolved"),
    ),
    json=_json,
    plan=_plan,
)
