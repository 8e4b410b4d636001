"""extract: cut out the accused node, feed it captured reference values, grow the cut while it
passes."""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from narrowdown.engines.asking import Count, Note, StepContext, Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import Oracle, make_oracle, open_oracle
from narrowdown.engines.asking.question import Feed, NodeIds, Question
from narrowdown.engines.compare.judge import LARGE
from narrowdown.engines.compare.say import say_error
from narrowdown.engines.findings import Case, Suspect
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import HUGE
from narrowdown.engines.search.alone import MOST
from narrowdown.engines.search.foretold import Place, foretell_places
from narrowdown.engines.search.ordered import order_precision, say_ordered
from narrowdown.engines.search.remedy import list_cured
from narrowdown.engines.search.search import Trials, grow_cut, minimise, prove_one_minimal
from narrowdown.engines.search.settle import Settled, make_case, settle
from narrowdown.engines.search.smallest import ask_as_given
from narrowdown.engines.search.twin import find_twin, shrinks_for
from narrowdown.engines.steps.base import BUILDS_MODELS, End, Finish, Steps, StepSpec, with_case
from narrowdown.engines.steps.layerwise import layerwise
from narrowdown.engines.steps.prepare import prepare_findings
from narrowdown.engines.steps.reduce import say_left_whole


class ExtractOutcome(msgspec.Struct, frozen=True, kw_only=True):
    reproduced: bool = False  # the part alone fails in the same way
    nodes: int = 0
    ops: str = ""
    names: str = ""
    own: float | None = None
    effect: float | None = None
    own_places: tuple[int, int] = (0, 0)  # of whole numbers, those that are wrong and all
    effect_places: tuple[int, int] = (0, 0)  # the same of the model's outputs
    grown: int = 0  # how often the cut was grown
    # passes when fed exactly, fails when fed as the engine would store it
    needs_higher_inputs: bool = False
    reason: str = ""
    message: str = ""


# Four suspects, as each costs a growth of its own. A cut that is grown eight times or holds 64
# nodes is no part any more, and reduce does better. Places are grown less, as what goes beyond the
# storage type does so at the node itself. Three builds: chance is told by confirm. Chosen, not
# measured.
class ExtractParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    most_suspects: Count = 4  # that are tried, worst first
    most_growth: Count = 8  # how often a cut that passes is grown
    most_nodes: Count = 64  # of a cut that is grown
    most_places: Count = 6  # nodes beyond the storage type, tried where no suspect fails alone
    place_growth: Count = 3  # how often the cut around such a node is grown
    verify: Count = 3  # fresh builds of the result


# Trials, node set and times grown of the smallest cut that fails; or a phrase that says why there
# is none.
Isolated: TypeAlias = tuple[Trials, NodeIds, int] | str


def extract(ctx: StepContext) -> Steps[ExtractOutcome]:
    params = msgspec.convert(dict(ctx.params), ExtractParams)
    findings = yield from prepare_findings(ctx)
    # What cures the whole model was foretold, and layerwise was not asked.
    told = not findings.suspects and findings.workaround is not None
    # Or they were seen to cure it, and who is to blame was seen in an emulation, where precision is
    # an order.
    ordered = order_precision(ctx) if list_cured(findings) else ""
    if not ordered:  # a node alone is soon built
        findings = yield from find_twin(ctx, findings)
    if (
        not findings.suspects
        and not findings.spread
        and ctx.visit == 1
        and not ctx.findings.samples
    ):
        # The step runs alone: what it needs to know, layerwise finds out.
        finish = yield from layerwise(msgspec.structs.replace(ctx, findings=findings, params={}))
        findings = finish.findings
    oracle, ask = yield from open_oracle(ctx, findings)
    where_ordered = make_oracle(ask.of(ordered)) if ordered else None
    reason = (
        "the error is spread over many layers" if findings.spread else "layerwise named no node"
    )
    accused = [(s, params.most_growth) for s in findings.suspects[: params.most_suspects]]
    # The whole model is another one there, whose first build takes as long: a part is at most half
    # of it.
    part = msgspec.structs.replace(
        params, most_nodes=min(params.most_nodes, len(ask.index.nodes) // 2)
    )
    if where_ordered and accused:
        found = yield from _find_first_alone(where_ordered, accused, part, reason)
    else:
        found = yield from _find_first(oracle, accused, params, reason)
    instead = ""
    if isinstance(found, str) and (accused or told) and ctx.can("keep"):
        # Where engines compute a node otherwise alone than among others, the accused may be the
        # wrong one: what is beyond the storage type by the reference is tried next, the furthest
        # first, with few nodes around it.
        places: tuple[Place, ...] = yield from foretell_places(ask)
        done = {s.node for s, _ in accused} | set(ranges.decode(findings.keep))
        places = tuple(
            sorted((p for p in places if p.node not in done), key=lambda p: (-p.reached, p.node))
        )
        # A foretold one that is right alone is not grown: reduce does so around all of them.
        growth = 0 if told else params.place_growth
        tries = [
            (_suspect_place(ask, p), growth) for p in places[: 1 if told else params.most_places]
        ]
        other = yield from _find_first(oracle, tries, params, found, surely=not told)
        if isinstance(other, str) and where_ordered:
            those = [
                (_suspect_place(ask, p), params.place_growth) for p in places[: params.most_places]
            ]
            other = yield from _find_first_alone(where_ordered, those, part, other)
        if not isinstance(other, str):
            alone = "" if told else "; what layerwise accused is right alone"
            found, instead = other, f" It is beyond the storage type in the reference{alone}."
        elif told:
            found = f"{other}; so it takes company that a search of the whole model finds"
    if isinstance(found, str):
        return Finish(
            ExtractOutcome(
                reason=found, message=f"No part fails on its own as the model does: {found}."
            ),
            msgspec.structs.replace(findings, case=None),
        )
    trials, nodes, grown = found
    minimal = yield from prove_one_minimal(trials, nodes)
    settled: Settled = yield from settle(
        trials.oracle, trials, nodes, verify=params.verify, shrinks=shrinks_for(findings)
    )
    case = make_case(ask, settled, minimal=minimal, found_by="extract")
    most = [s for s, _ in accused if _is_most(oracle.error, s) and s.node in nodes]
    if most and len(nodes) > 1:
        culprit = max(most, key=lambda s: s.effect)
        instead += (
            f" {culprit.name} makes most of it: by itself it makes the model's outputs "
            f"{say_error(culprit.effect, ask.criterion)}. The other nodes carry its error on."
        )
    there = ask
    if trials.oracle is where_ordered:
        there, case = ask.of(ordered), msgspec.structs.replace(case, engine=ordered)
        instead += say_ordered(ctx, case)
    return Finish(
        _outcome(case, grown, ask, instead),
        msgspec.structs.replace(findings, case=case),
        tables={"bundle": settled.files},
        decisive={"case": (there.ask(case.candidate, feed=settled.question.feed),)},
    )


def _find_first(
    oracle: Oracle,
    tries: Sequence[tuple[Suspect, int]],
    params: ExtractParams,
    reason: str,
    *,
    surely: bool = True,
) -> Sub[Isolated]:
    """What ``_isolate`` gives for the first suspect that fails alone on the engine as it was given,
    else the last phrase. ``surely``: where its cheap form shows none, the engine as it was given is
    asked too."""
    if oracle.cheap is not None:
        found = yield from _find_first_alone(oracle.cheap, tries, params, reason)
        if not isinstance(found, str):
            trials, nodes, grown = found
            there: Trials | None = yield from ask_as_given(oracle, trials, nodes)
            if there is not None:
                return there, nodes, grown
        elif not surely:
            return found
        # There none fails alone, or one that is right on the engine as it was given.
        oracle = msgspec.structs.replace(oracle, cheap=None)
    return (yield from _find_first_alone(oracle, tries, params, reason))


def _find_first_alone(
    oracle: Oracle, tries: Sequence[tuple[Suspect, int]], params: ExtractParams, reason: str
) -> Sub[Isolated]:
    """What ``_isolate`` gives for the first suspect that fails alone, else the last phrase. With
    each: how often it is grown. Those that were seen to be most of the failure come first, as they
    are: a crowd that is grown around another one holds them, too."""
    for suspect, most_growth in (*((s, 0) for s, _ in tries if _is_most(oracle.error, s)), *tries):
        found = yield from _isolate(oracle, suspect, params, most_growth)
        if not isinstance(found, str):
            return found
        reason = found
    return reason


def _is_most(error: float, suspect: Suspect) -> bool:
    """Whether the node was seen to bring most of the model's error to its outputs by itself."""
    alone = ranges.decode(suspect.nodes) == (suspect.node,)
    return suspect.tensor >= 0 and alone and suspect.effect > MOST * min(error, LARGE)


def _suspect_place(ask: Inquiry, place: Place) -> Suspect:
    """A place as a suspect that nothing was measured of."""
    name = ask.names([place.node])[0]
    return Suspect(
        node=place.node,
        tensor=-1,
        nodes=ranges.encode((place.node,)),
        own=0.0,
        effect=HUGE,
        name=name,
    )


def _isolate(
    oracle: Oracle, suspect: Suspect, params: ExtractParams, most_growth: int
) -> Sub[Isolated]:
    """(trials, node set, times grown) of the smallest cut around a suspect that fails, or a phrase
    that says why there is none.

    A node that only amplifies the rounding of its inputs is cut with its producers and fed exactly:
    then the case holds the whole cause and fails whatever its inputs are rounded to.
    """
    index, name = oracle.index, oracle.index.shown_names[suspect.node]
    amplifier = ranges.decode(suspect.nodes) != (suspect.node,)
    feeds: tuple[Feed, ...] = ("exact", "stored") if amplifier else ("stored",)
    for feed in feeds:
        trials = Trials(oracle, Question(feed=feed, e0=suspect.effect), known={})
        nodes: NodeIds = frozenset(ranges.decode(suspect.nodes))
        for grown in range(most_growth + 1):
            yield Note(f"cutting out {len(nodes)} nodes around {name}")
            answer: Answer = yield from trials.test(nodes)
            if answer.fails:
                smallest = yield from minimise(trials, nodes, cuts=False)
                return trials, smallest, grown
            # A path that leaves the cut and comes back is fed true values in place of the cut's own
            # wrong ones. What the cut gives after it is then right, and transplanted hides the
            # error. Where no path does, harmless it is.
            harmless = answer.why == "harmless"
            larger = index.with_paths(nodes) if harmless else grow_cut(index, nodes, answer)
            if larger == nodes or len(larger) > params.most_nodes:
                break
            nodes = larger
    if not most_growth:
        return f"{name} does not fail alone"
    why = answer.why or answer.detail or "however far it is grown"
    return f"the cut around {name} does not fail ({why})"


def _outcome(case: Case, grown: int, ask: Inquiry, instead: str) -> ExtractOutcome:
    higher = (
        " Fed exactly it passes: it needs its inputs in higher precision."
        if case.needs_higher_inputs
        else ""
    )
    return ExtractOutcome(
        reproduced=True,
        nodes=len(case.nodes),
        ops=" + ".join(case.ops),
        names=", ".join(case.nodes),
        own=case.own,
        effect=case.effect,
        own_places=case.own_places,
        effect_places=case.effect_places,
        grown=grown,
        needs_higher_inputs=case.needs_higher_inputs,
        message=f"{len(case.nodes):,} of {len(ask.index.nodes):,} nodes, alone, "
        f"{'fails' if len(case.nodes) == 1 else 'fail'} in the same way "
        f"({case.verified} builds).{higher}{instead}{say_left_whole(ask.index, ranges.decode(case.node_ids))}",
    )


SPEC = StepSpec(
    name="extract",
    version=8,
    summary="Cut out the node that adds the error, feed it reference values, and see whether it fails alone.",
    run=extract,
    outcome=ExtractOutcome,
    params=ExtractParams,
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
