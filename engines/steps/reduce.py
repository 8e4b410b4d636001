"""reduce: the smallest part of the model that still fails in the same way, with proof at both
ends."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from narrowdown.engines.asking import Count, Note, StepContext, Sub, asked
from narrowdown.engines.compare.criterion import Verdict
from narrowdown.engines.compare.judge import judge_whole
from narrowdown.engines.findings import Case
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.search import works
from narrowdown.engines.search.alone import find_alone
from narrowdown.engines.search.cost import Plan, Size, Work
from narrowdown.engines.search.foretold import list_beyond
from narrowdown.engines.search.inquiry import Inquiry, open_inquiry
from narrowdown.engines.search.pace import Pace, halvings
from narrowdown.engines.search.remedy import list_cured
from narrowdown.engines.search.search import (
    NodeIds,
    Trials,
    find_around,
    minimise,
    prove_one_minimal,
)
from narrowdown.engines.search.settle import (
    SHRINK_PROBES,
    SHRINKS_OF_MANY,
    Saved,
    foretell_settling,
    settle_case,
    shrinks_for,
)
from narrowdown.engines.search.twin import as_given, asking_twin, find_twin, without_twin
from narrowdown.engines.steps.base import (
    BUILDS_MODELS,
    End,
    Finish,
    Steps,
    StepSpec,
    Told,
    case_names,
)
from narrowdown.engines.steps.prepare import prepare_findings


class ReduceOutcome(msgspec.Struct, frozen=True, kw_only=True):
    verdict: Literal["reduced", "not-reproduced", "unresolved"] = "unresolved"
    nodes_before: int = 0
    nodes_after: int = 0
    ops: str = ""
    names: str = ""
    own: float | None = None
    effect: float | None = None
    own_places: tuple[int, int] = (0, 0)  # of whole numbers, those that are wrong and all
    effect_places: tuple[int, int] = (0, 0)  # the same of the model's outputs
    probes: int = 0  # of the search
    verifications: int = (
        0  # probes that check the result: the endpoints, each node left out, fresh builds
    )
    unresolved: int = 0  # probes that neither passed nor failed
    verified: str = ""  # fresh builds that failed, of those made: k/n
    minimal: bool = False
    reason: str = ""
    message: str = ""


# Probes for each halving where what was foretold takes company that lies anywhere: 85 came for 220
# nodes, twice (sort_tf_massive_m4, weakly typed, TensorRT 10.6), where 34 had been expected. Where
# a search has looked at each layer and found nothing that fails alone, too: 31 to 144 came for 37
# to 74 nodes, 337 for 130. Else half as many: 24 and 84.
_HIDING, _HALVING = 8, 4
# Of the first cut on an engine whose builds are dear, what later ones take: 2.3 s, then 0.5 to 0.9
# each but for the largest few (TensorRT 10.6, tests/gpu/recorded).
FOUND_DONE = 0.35
# And where they are not: a search's cuts are larger than those seen by then, which were of a layer
# or two.
LARGER = 1.5


# Three builds: enough to see that it was no chance, before confirm counts it.
class ReduceParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    search: str = "bisect"  # or "linear": no cuts by node order, delta debugging over everything
    verify: Count = 3  # fresh builds of the result
    shrink: bool = True  # whether shapes, values and attributes of the result are made simpler too
    shrink_probes: Count = SHRINK_PROBES  # that this may take
    budget: Count = 0  # parts that the search may try before it takes the smallest so far; 0: as many as it needs


class Reduced(msgspec.Struct, frozen=True):
    """A search's result, verified or not. ``case`` is None where the full model did not fail."""

    case: Case | None
    verdict: str  # reduced | not-reproduced | unresolved
    reason: str = ""
    probes: int = 0
    verifications: int = 0
    unresolved: dict[str, int] = {}
    stopped: bool = False  # the search was ended before it was through
    twin: str = ""  # the engine that the search asked, where it was a cheap twin
    files: tuple[Saved, ...] = ()  # rows of the table "bundle"


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
    findings = yield from find_twin(ctx, findings)
    ask: Inquiry = yield from open_inquiry(ctx, findings)
    reduced: Reduced = yield from search_smallest(ask, params)
    case = reduced.case
    outcome = ReduceOutcome(
        verdict=reduced.verdict,  # type: ignore[arg-type]
        nodes_before=len(ask.index.nodes),
        nodes_after=len(case.nodes) if case else 0,
        ops=" + ".join(case.ops) if case else "",
        names=", ".join(case.nodes) if case else "",
        own=case.own if case else None,
        effect=case.effect if case else None,
        own_places=case.own_places if case else (0, 0),
        effect_places=case.effect_places if case else (0, 0),
        probes=reduced.probes,
        verifications=reduced.verifications,
        unresolved=sum(reduced.unresolved.values()),
        verified=case.verified if case else "",
        minimal=case.minimal if case else False,
        reason=reduced.reason
        or ", ".join(f"{k} {v}" for k, v in sorted(reduced.unresolved.items())),
        message=_message(reduced, ask),
    )
    return Finish(
        outcome,
        msgspec.structs.replace(findings, case=case if reduced.verdict == "reduced" else None),
        tables={
            "bundle": reduced.files,
            "unresolved": [reduced.unresolved] if reduced.unresolved else [],
        },
        decisive={"case": (ask.ask(case.candidate),)} if case else {},
    )


def search_smallest(
    ask: Inquiry, params: ReduceParams, start: NodeIds | None = None, *, then: int = 0
) -> Sub[Reduced]:
    """Prove the ends, search from ``start`` (default the whole model), shrink, verify. Returns
    Reduced. ``then``: probes that follow it in the step."""
    # As in extract: what makes constants is not cut through, as fed as inputs they would not be
    # folded and joined with a layer.
    ask = msgspec.structs.replace(ask, frozen=ask.index.from_weights)
    shrinks = min(params.shrink_probes, shrinks_for(ask.findings)) if params.shrink else 0
    pace = Pace(after=foretell_settling(ask, shrinks, params.verify, SHRINKS_OF_MANY) + then)
    trials = Trials(asking_twin(ask), known={}, measured={}, most=params.budget, pace=pace)
    whole = frozenset(ask.everything)
    yield Note("the whole model must fail, and the reference must pass")
    verdict: Verdict = yield from trials.test(whole)
    if ask.findings.twin and not verdict.failed:
        return (yield from search_smallest(without_twin(ask), params, start, then=then))
    if not verdict.failed:
        if verdict.passed and ask.signature.kind == "crash":
            # It is no longer known whether its results are right: they never came.
            died = "the engine took its process down on the whole model once, and not when looked at again"
            return Reduced(None, "unresolved", died, 0, 1, trials.unresolved())
        reason = (
            "the whole model passes, looked at again"
            if verdict.passed
            else verdict.detail or verdict.reason
        )
        return Reduced(
            None,
            "not-reproduced" if verdict.passed else "unresolved",
            reason,
            0,
            1,
            trials.unresolved(),
        )
    verifications = 1
    if not ask.ctx.check and ask.signature.kind == "accuracy":
        control = yield from asked(ask.plain((ask.findings.sample,), engine=ask.ctx.reference))
        verifications += 1
        if not judge_whole(control, ask.criterion).passed:
            return Reduced(
                None, "unresolved", "the reference does not agree with itself", 0, verifications
            )
    # What the reference foretells, and hides where it is cut out, needs company: no beginning or
    # end of the model has it all, so halving those found nothing in 60 probes (sort_tf_massive_m4,
    # weakly typed), and leaving out any nodes half of it in 40.
    hiding = around = frozenset(list_cured(ask.findings))
    if start is not None and not (yield from trials.test(start)).failed:
        around, start = start, None  # it took so many on the twin: fewer would do even less
    cuts = params.search != "linear" and not hiding
    if start is None and hiding:
        # They and the neighbours that the engine joins them with: three builds in place of the 60
        # that it took to leave out all that lies further off, one part after another
        # (sort_tf_massive_m4, weakly typed, TensorRT 10.6).
        start = yield from find_around(trials, around)
        trials.beyond = yield from list_beyond(ask)
    elif (
        start is None
        and cuts
        and not (_builds_long(ask.ctx) or ask.ctx.check)
        and ask.signature.kind == "accuracy"
    ):
        start = yield from find_alone(trials)
    nodes: NodeIds = yield from minimise(trials, start or whole, cuts=cuts, likely=hiding)
    probes = trials.count - 1
    stopped = trials.ended
    nodes = trials.smallest(nodes) if stopped else nodes
    trials.most = 0  # what was found is checked all the same
    given: Trials | None = yield from as_given(ask, trials, nodes)
    if given is None:  # a part that fails on the twin alone is no case of the engine's
        few = msgspec.structs.replace(
            params, shrink_probes=min(params.shrink_probes, shrinks_for(ask.findings))
        )
        return (yield from search_smallest(without_twin(ask), few, start, then=then))
    # On a twin, where the search ended: as given each of these builds is another one's first (7 to
    # 26 s of them on an H200), and they say of kernels, not of nodes, whether one can go.
    searched, twin = trials.count, trials.ask.ctx.engine if trials is not given else ""
    minimal: bool = False if stopped else (yield from prove_one_minimal(trials, nodes))
    verifications += trials.count - searched
    ask, trials = given.ask, given
    case, files, spent = yield from settle_case(
        ask,
        trials,
        nodes,
        minimal,
        found_by="reduce",
        verify=params.verify,
        shrink_probes=0 if stopped else shrinks,
        then=then,
    )
    again = params.verify == 0 or not case.verified.startswith("0/")
    looks = case.verified.partition("/")[2]
    reason = "" if again else f"what was left failed once, and in none of {looks} fresh builds"
    spent += verifications
    return Reduced(
        case, "reduced" if again else "unresolved", reason, probes, spent, trials.unresolved(), stopped, twin, files
    )  # fmt: skip


def _message(reduced: Reduced, ask: Inquiry) -> str:
    if reduced.case is None:
        return f"Nothing to reduce: {reduced.reason}."
    case = reduced.case
    if reduced.verdict != "reduced":
        return f"No smaller part is certain: {reduced.reason}."
    more = (
        " It needs its inputs in higher precision: fed exactly it passes."
        if case.needs_higher_inputs
        else ""
    )
    fail = "fails" if len(case.nodes) == 1 else "fail"
    size = f"{len(case.nodes):,} of {len(ask.index.nodes):,} nodes {fail}"
    whole = say_left_whole(ask.index, ranges.decode(case.node_ids))
    early = (
        " The search was stopped here: that no smaller part fails was not shown."
        if reduced.stopped
        else ""
    )
    if reduced.twin and case.minimal and len(case.nodes) > 1:
        early = (
            f" That none of them can be left out was seen on {reduced.twin}, which builds faster."
        )
    return f"{size} in the same way ({case.verified} fresh builds).{early}{more}{whole}"


def say_left_whole(index: GraphIndex, nodes: Iterable[int]) -> str:
    """What a case holds that is not taken apart further, as a sentence with a space in front; empty
    where that is nothing."""
    bodies = [index.nodes[n].op for n in nodes if index.nodes[n].holds_graphs]
    return f" The graph inside its {bodies[0]} is left whole." if bodies else ""


def _plan(ctx: StepContext, size: Size) -> Plan:
    """Both ends; a bisection from either side of the node order, two more nodes looked for at a
    distance; then the case is settled: 4 log2(n) + 16, or twice that."""
    return plan_of_reduction(ctx, size, msgspec.convert(dict(ctx.params), ReduceParams))


def _builds_long(ctx: StepContext) -> bool:
    """Whether a build is what the search waits for."""
    return bool(ctx.findings.dear or ctx.findings.twin or ctx.engine_info.gpus)


def plan_of_reduction(ctx: StepContext, size: Size, params: ReduceParams) -> Plan:
    signature = ctx.findings.round_signature or ctx.findings.signature
    looked = size.index is not None and signature is not None and signature.kind == "accuracy"
    each = _HIDING if looked or list_cured(ctx.findings) else _HALVING
    search = each * halvings(size.nodes) + 4
    ends = (
        works.on_sample(ctx),
        *(() if ctx.check else (Work("control", 1, works.sample_rows(ctx)),)),
    )
    # Where builds are dear the few cuts seen by then paid for what these find done.
    times = FOUND_DONE if _builds_long(ctx) else LARGER
    asked = (
        Work("read"),
        *ends,
        works.between(works.effect(ctx, search, times=times), 2, 5 * search),
        *works.settled(ctx, params.verify, SHRINKS_OF_MANY),
    )
    return Plan(
        (*works.before(ctx, size), *works.twin(ctx), *asked),
        works.bytes_held(size, works.case_bytes(size) + works.good_bytes(size)),
        works.activations(size),
    )


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


SPEC = StepSpec(
    name="reduce",
    version=7,
    summary="Search for the smallest part of the model that still fails in the same way.",
    run=reduce,
    outcome=ReduceOutcome,
    params=ReduceParams,
    plan=_plan,
    needs=(BUILDS_MODELS,),
    sets=("case",),
    makes=("case",),
    ends=(
        End("verdict", "not-reproduced", "not-reproduced"),
        End("verdict", "unresolved", "unresolved"),
    ),
    json=_json,
)
