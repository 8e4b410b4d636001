"""extract: cut out the accused node, feed it captured reference values, grow the cut while it
passes."""

import msgspec

from narrowdown.engines.asking import StepContext, Sub
from narrowdown.engines.asking.engine_forms import order_precision, say_ordered, shrinks_for
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import Oracle, make_oracle, open_oracle
from narrowdown.engines.findings import Case, Suspect
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import HUGE
from narrowdown.engines.search.remedy import Place, foretell_places, list_cured
from narrowdown.engines.search.search import prove_one_minimal
from narrowdown.engines.search.settle import SHRINK_PROBES, Settled, ask_about, make_case, settle
from narrowdown.engines.search.smallest import Isolated, ReduceParams, isolate_first
from narrowdown.engines.steps.base import (
    BUILDS_MODELS,
    CaseOutcome,
    End,
    Finish,
    NoParams,
    Steps,
    StepSpec,
    tell_case,
    with_case,
)
from narrowdown.engines.steps.layerwise import layerwise
from narrowdown.engines.steps.prepare import prepare_findings
from narrowdown.engines.steps.reduce import say_left_whole


class ExtractOutcome(CaseOutcome, frozen=True, kw_only=True):
    reproduced: bool = False  # the part alone fails in the same way
    nodes: int = 0
    grown: int = 0  # how often the cut was grown
    # passes when fed exactly, fails when fed as the engine would store it
    needs_higher_inputs: bool = False
    reason: str = ""


# Suspects that are tried, worst first, and nodes of a cut that is grown: each suspect costs a growth
# of its own, and what holds more nodes is no part any more, so that reduce does better. Chosen, not
# measured.
MOST_SUSPECTS, MOST_NODES = 4, 64


def extract(ctx: StepContext) -> Steps[ExtractOutcome]:
    findings = yield from prepare_findings(ctx)
    alone = ctx.visit == 1 and not ctx.findings.samples
    if not findings.suspects and not findings.spread and alone:
        # The step runs alone: what it needs to know, layerwise finds out.
        finish = yield from layerwise(msgspec.structs.replace(ctx, findings=findings, params={}))
        findings = finish.findings
    oracle, ask = yield from open_oracle(ctx, findings)
    found: Isolated = yield from _find_part(ask, oracle)
    if found.trials is None:
        return Finish(
            ExtractOutcome(
                reason=found.why,
                message=f"No part fails on its own as the model does: {found.why}.",
            ),
            msgspec.structs.replace(findings, case=None),
        )
    trials, nodes = found.trials, found.nodes
    minimal = yield from prove_one_minimal(trials, nodes)
    settled: Settled = yield from settle(
        trials, nodes, verify=ReduceParams().verify, shrinks=shrinks_for(findings, SHRINK_PROBES)
    )
    case, said = make_case(ask, settled, minimal=minimal, found_by="extract"), found.why
    if trials.oracle is not oracle:
        case = msgspec.structs.replace(case, engine=order_precision(ctx))
        said += say_ordered(ctx, case)
    return Finish(
        _outcome(case, found.grown, ask, said),
        msgspec.structs.replace(findings, case=case),
        tables={"bundle": settled.files},
        decisive={"case": trials.oracle.list_probes(ask_about(case))},
    )


def _find_part(ask: Inquiry, oracle: Oracle) -> Sub[Isolated]:
    """The part that fails, with what is to be said of it as ``why``."""
    accused = ask.findings.suspects[:MOST_SUSPECTS]
    if accused:
        return (yield from isolate_first(oracle, accused, MOST_NODES))
    if ask.findings.spread:
        return Isolated(why="the error is spread over many layers")
    if not list_cured(ask.findings) or not oracle.keeps:
        return Isolated(why="layerwise named no node")
    return (yield from _try_places(ask, oracle))


def _try_places(ask: Inquiry, oracle: Oracle) -> Sub[Isolated]:
    """What cures the whole model was foretold, and layerwise was not asked: what goes beyond the
    storage type the furthest alone, as the engine was given; then, with few nodes around, where its
    precision is an order, as engines compute a node otherwise alone than among others."""
    places: tuple[Place, ...] = yield from foretell_places(oracle)
    furthest = sorted(places, key=lambda p: (-p.reached, p.node))
    # Suspects that nothing was measured of.
    suspects = [
        Suspect(node=p.node, tensor=-1, nodes=ranges.encode((p.node,)), own=0.0, effect=HUGE)
        for p in furthest[:MOST_SUSPECTS]
    ]
    found: Isolated = yield from isolate_first(oracle, suspects[:1], 1, growth=0)
    ordered = order_precision(ask.ctx)
    if found.trials is None and ordered:
        # The whole model is another one there, whose first build takes as long.
        most = min(MOST_NODES, len(ask.index.nodes) // 2)
        found = yield from isolate_first(make_oracle(ask.of(ordered)), suspects, most)
    if found.trials is None:
        why = found.why or "layerwise named no node"
        return Isolated(why=f"{why}; so it takes company that a search of the whole model finds")
    return msgspec.structs.replace(found, why=" It is beyond the storage type in the reference.")


def _outcome(case: Case, grown: int, ask: Inquiry, instead: str) -> ExtractOutcome:
    higher = (
        " Fed exactly it passes: it needs its inputs in higher precision."
        if case.needs_higher_inputs
        else ""
    )
    outcome = ExtractOutcome(
        reproduced=True,
        nodes=len(case.nodes),
        grown=grown,
        needs_higher_inputs=case.needs_higher_inputs,
        message=f"{len(case.nodes):,} of {len(ask.index.nodes):,} nodes, alone, "
        f"{'fails' if len(case.nodes) == 1 else 'fail'} in the same way "
        f"({case.verified} builds).{higher}{instead}{say_left_whole(ask.index, ranges.decode(case.node_ids))}",
    )
    return msgspec.structs.replace(outcome, **tell_case(case))


SPEC = StepSpec(
    name="extract",
    version=10,
    summary="Cut out the node that adds the error, feed it reference values, and see whether it fails alone.",
    run=extract,
    outcome=ExtractOutcome,
    params=NoParams,
    needs=(BUILDS_MODELS,),
    sets=("suspects", "spread", "hidden", "case"),  # what layerwise finds, where it runs alone
    makes=("case",),
    ends=(End("reproduced", False, "unresolved"),),
    labels={
        "reproduced": "fails on its own",
        "grown": "neighbours taken in, times",
        "needs_higher_inputs": "needs its inputs in higher precision",
    },
    json=with_case,
)
