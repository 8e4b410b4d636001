"""Foretold first: before anything is cut, the whole model with those nodes in FP32 that the
reference takes beyond the storage type.

That takes one build, warm by then, where a search for culprits takes a hundred. What it cures needs
no search for its cause: without these nodes in FP32 the model was seen to fail, with them it passes
on every sample, and the reference says why. The smallest set and the smallest failing case are then
polish.

Where that is not all of it, and a culprit was confirmed, the other nodes at which the reference
foretells the same are looked at alone: a transformer with one layer norm that overflows mostly has
more of them, and they need no round each.
"""

import msgspec

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import Oracle, make_oracle
from narrowdown.engines.compare.judge import by_sample, judge_whole, margin, over, worst
from narrowdown.engines.compare.say import wrong_by
from narrowdown.engines.findings import Culprit, Findings, Workaround
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.storage import largest_finite
from narrowdown.engines.graph.watched import BATCH_BYTES
from narrowdown.engines.probe import HUGE, Measurement
from narrowdown.engines.search.foretold import Place, foretell_places
from narrowdown.engines.search.fresh import Seen, confirm_in_fresh_builds
from narrowdown.engines.search.search import Trials
from narrowdown.engines.search.settle import Settled, make_case, settle
from narrowdown.engines.search.tensor_errors import Added, Packing, measure_alone


class Remedy(msgspec.Struct, frozen=True):
    """``places``: the nodes that go beyond, by the reference; ``keep``: node ids that were kept in
    FP32 last, ``error`` what the worst sample is off by then; ``cured``: every sample passes so.
    ``files``: what was built."""

    places: tuple[Place, ...] = ()
    keep: tuple[int, ...] = ()
    error: float = HUGE
    cured: bool = False
    samples: int = 0
    files: dict[str, str] = {}


def try_remedy(oracle: Oracle) -> Sub[Remedy]:
    """Ask the reference, then build the whole model with what goes beyond in FP32, and where that is
    not enough with what is near. An engine that fuses a layer norm may compute the square in FP32 as
    asked and store it in FP16 in its next kernel; two nodes on either side reach its mean, root and
    quotient."""
    index, rule = oracle.index, oracle.criterion
    places: tuple[Place, ...] = yield from foretell_places(oracle)
    found, beyond = Remedy(places), {n for p in places for n in p.keep}
    near = index.ring(index.ring(beyond))
    for nodes in (beyond, near) if places else ():
        if len(nodes) == len(index.nodes) or found.cured:
            break
        yield Note(
            f"{len(places)} nodes go beyond {oracle.storage} in the reference: with {len(nodes)} in FP32"
        )
        m: Measurement = yield from oracle.feed(
            oracle.feeds, keep=frozenset(nodes), save="workaround"
        )
        if m.status == "ok" and m.results:
            keep, error = tuple(sorted(nodes)), worst(m.results, rule)[2]
            cured, files = judge_whole(m, rule).passed, dict(m.artifacts)
            found = Remedy(places, keep, error, cured, len(by_sample(m)), files)
    return found


def keep_as_workaround(
    ask: Inquiry, keep: tuple[int, ...], samples: int, error: float
) -> Workaround:
    """Nodes whose keeping cured all these samples, as the workaround that stands until a smaller
    one is found."""
    return Workaround(
        kind="precision",
        engine=ask.ctx.engine,
        keep=ranges.encode(keep),
        keep_names=ask.index.names(keep),
        samples_ok=samples,
        samples_n=samples,
        error=error,
        margin=margin(ask.criterion, error),
        cost=f"{len(keep)} of {len(ask.index.nodes)} nodes in FP32",
    )


def list_cured(findings: Findings) -> tuple[int, ...]:
    """The nodes that were seen to cure the whole model in FP32, while no culprit is cured
    otherwise; none where nothing did."""
    known = findings.workaround
    if known is None or findings.patches or findings.keep or findings.righted:
        return ()
    return ranges.decode(known.keep)


def say_remedy(oracle: Oracle, remedy: Remedy) -> str:
    """What was foretold and what came of it, in sentences."""
    most = max(remedy.places, key=lambda p: p.reached)
    others = len(remedy.places) - 1
    reaches = f"and {others} more reach up to" if others else "reaches"
    kept = f"{len(remedy.keep)} of {len(oracle.index.nodes)} nodes in FP32"
    wrong, n = wrong_by(remedy.error, oracle.criterion.metric), remedy.samples
    came = f"With {kept} {n} of {n} samples pass ({wrong} at most)."
    if not remedy.cured:
        came = f"But with {kept} it is still {wrong}, so that is not all of it."
    return (
        f"{oracle.index.shown_names[most.node]} ({oracle.index.nodes[most.node].op}) {reaches} {most.reached:,.0f} in the "
        f"reference; {oracle.storage} ends at {largest_finite(oracle.storage):,.0f}. {came}"
    )


class Alike(msgspec.Struct, frozen=True):
    """``found``: fail there too, alone, each with a culprit of its own; ``along``: names of those that
    have none, as alone the node is right (the engine may compute it otherwise among others), or as
    there are culprits enough; ``why`` these go along; ``keep``: node ids around all of them, and
    around the first culprit. ``earlier``: the culprit that is of the same kind, and was found before
    the first."""

    found: tuple[Seen, ...] = ()
    along: tuple[str, ...] = ()
    keep: tuple[int, ...] = ()
    why: str = (
        "The reference goes as far at {many} of that kind, kept in FP32 together with this one"
    )
    earlier: Culprit | None = None


def find_alike(ask: Inquiry, first: Culprit, *, room: int, repeats: int) -> Sub[Alike]:
    """Every place (``Alike``) of the same op as the node that the first culprit is about. ``room``:
    how many more culprits there may be; ``repeats``: fresh builds of each."""
    oracle, inside = make_oracle(ask), ranges.decode(first.case.node_ids)
    op = next((ask.index.nodes[n].op for n in inside if ask.index.shown_names[n] == first.at), "")
    cured = frozenset(ranges.decode(ask.findings.keep)).difference(inside)
    told: tuple[Place, ...] = (yield from foretell_places(oracle)) if op else ()
    places = [p for p in told if ask.index.nodes[p.node].op == op and p.node not in cured]
    found, along = list[Seen](), list[str]()
    for place in (p for p in places if p.node not in inside):
        alone: Seen | None = None
        if len(found) < room:
            alone = yield from _see_alone(ask, place, repeats)
        if alone is None:
            along += oracle.index.names((place.node,))
        else:
            found.append(alone)
    keep = {n for p in places for n in p.keep}
    return Alike(tuple(found), tuple(along), tuple(sorted(keep)))


def find_same_operator(ask: Inquiry, second: Culprit) -> Sub[Alike]:
    """Once a second node of an operator is found with the cause of an earlier one: the other nodes of
    that operator which are wrong alone, all asked in one build. An engine that computes an operator
    wrongly does so wherever its values reach (11 of the 12 ReduceLogSumExp of a CRF, which took
    eight laps)."""
    index, culprits, nodes = ask.index, ask.findings.culprits, ranges.decode(second.case.node_ids)
    kinds = {index.nodes[n].op for n in nodes}
    same = [c for c in culprits if c.cause == second.cause and {*c.case.ops} == kinds]
    if not same or len(kinds) > 1 or second.case.signature is None:
        return Alike()
    known = {*nodes, *(n for c in culprits for n in ranges.decode(c.case.node_ids))}
    others = {n.id for n in index.nodes if n.op in kinds}.difference(known)
    asked = (t for n in others for t in index.nodes[n].outputs)
    added: Added = yield from measure_alone(make_oracle(ask), asked, Packing(BATCH_BYTES))
    lost = second.case.signature.nonfinite
    wrong = {
        index.tensors[t].producer
        for t, (score, _) in added.items()
        if over(score, ask.criterion) and (score.new_nonfinite > 0) == lost
    }
    keep = tuple(sorted(wrong & others))
    return Alike(
        along=index.names(keep),
        keep=keep,
        why="{many} of that operator fail alone in the same way",
        earlier=same[0] if keep else None,
    )


def _see_alone(ask: Inquiry, place: Place, repeats: int) -> Sub[Seen | None]:
    """A place as a case of its own in fresh builds; None where it does not fail alone."""
    trials, only = Trials(make_oracle(ask)), frozenset({place.node})
    if not (yield from trials.fails(only)):
        return None
    settled: Settled = yield from settle(trials, only, verify=0, shrinks=0)
    case = make_case(ask, settled, minimal=True, found_by="confirm")
    seen: Seen = yield from confirm_in_fresh_builds(ask, case, repeats)
    culprit = msgspec.structs.replace(seen.culprit, keep=ranges.encode(place.keep))
    return msgspec.structs.replace(seen, culprit=culprit) if seen.failures else None


def widen_culprit(first: Culprit, others: Alike) -> Culprit:
    """The first culprit, which takes along what has no case of its own."""
    keep = ranges.encode({*ranges.decode(first.keep), *others.keep})
    said = f"{first.evidence}{say_kept_along(others)}"
    return msgspec.structs.replace(first, keep=keep, also=others.along, evidence=said)


def say_alike(others: Alike) -> str:
    """Where the same was found or is to be expected, sentences with a space in front; empty where
    nowhere."""
    names = ", ".join(each.culprit.case.nodes[0] for each in others.found)
    many = "1 more node" if len(others.found) == 1 else f"{len(others.found)} more nodes"
    told = f" The same is wrong at {many}, with a case each: {names}." if names else ""
    return told + say_kept_along(others)


def say_kept_along(others: Alike) -> str:
    """What the first culprit takes along."""
    if not others.along:
        return ""
    many = "1 more node" if len(others.along) == 1 else f"{len(others.along)} more nodes"
    return f" {others.why.format(many=many)}, with no case of their own."
