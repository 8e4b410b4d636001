"""Foretold first: the nodes whose true values are beyond what a storage type holds, by the reference
alone, and before anything is cut the whole model with these in FP32.

A transformer with one layer norm that overflows mostly has more of them. Looked for one after
another, each costs a round of layerwise, extract and reduce; the reference's own values name them
all in one run, before anything is built. And an engine that computes such a node in FP32 where it
stands alone, and in FP16 among others, shows it to no search for single nodes.

The whole model with them in FP32 takes one build, warm by then, where a search for culprits takes a
hundred. What it cures needs no search for its cause: without these nodes in FP32 the model was seen
to fail, with them it passes on every sample, and the reference says why. The smallest set and the
smallest failing case are then polish.

Where that is not all of it, and a culprit was confirmed, the other nodes at which the reference
foretells the same are looked at alone, and need no round each.
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from narrowdown.engines.asking import Answer, Fed, NodeIds, Note, Question, Sub
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import Oracle, make_oracle
from narrowdown.engines.compare.judge import by_sample, judge_whole, margin, over, worst
from narrowdown.engines.compare.say import say_many, wrong_by
from narrowdown.engines.findings import Close, Culprit, Findings, Workaround
from narrowdown.engines.graph import GraphIndex, ranges
from narrowdown.engines.graph.storage import largest_finite
from narrowdown.engines.graph.watched import BATCH_BYTES, pack_batches
from narrowdown.engines.probe import HUGE, Measurement
from narrowdown.engines.search.fresh import Seen, confirm_in_fresh_builds
from narrowdown.engines.search.search import Trials
from narrowdown.engines.search.settle import Settled, make_case, settle
from narrowdown.engines.search.tensor_errors import Added, Packing, measure_alone

# Times less than the largest value, on the sample that the search works on: other samples may go
# beyond it. Chosen, not measured: twice would do for inputs that are twice as large, and who
# squares them goes four times as far.
NEAR = 4.0
# Times less than the largest value from which on a node is told. Of magika's 294 files that no search
# had seen 4 were wrong by 100 %: a square reaches 6,644 on the 32 files that the set was made on,
# ten times below the end of FP16, and 248,763 on others.
CLOSE = 16.0
NARROW = "float16"  # the type that ends where models' values do; BF16 ends where FP32 does


class Place(msgspec.Struct, frozen=True):
    """A node whose true values reach ``reached``, beyond the storage type. ``keep``: node ids of it
    and of all that read a value beyond it, in turn."""

    node: int
    reached: float
    keep: tuple[int, ...]


def foretell_places(oracle: Oracle) -> Sub[tuple[Place, ...]]:
    """Every node (``Place``) that makes values beyond the engine's storage type of values within
    it, on any sample, in the order of the graph; none where the reference did not answer.

    All tensors of all samples would have to be computed and kept for that. So the sample that the
    search works on, whose values are kept anyhow, says who comes near; the others are run for
    those, and for who reads them.
    """
    index, largest = oracle.index, largest_finite(oracle.storage)
    near: list[int] = yield from _list_near(oracle, oracle.live, largest)
    # With who reads them: mostly some are beyond it in turn, and a run of all samples costs more
    # than these tensors.
    behind = {*near, *(r for t in list_made(index, near) for r in index.readers[t])}
    reached: dict[int, float] = {}
    while fresh := [t for t in list_made(index, sorted(behind)) if t not in reached]:
        told: dict[int, float] = yield from measure_reached(oracle, fresh, oracle.feeds)
        reached |= dict.fromkeys(fresh, 0.0) | told
        behind = _follow(index, near, reached, largest)
    beyond = {t for t, top in reached.items() if top > largest}
    return tuple(
        Place(n, find_top(index, n, reached), tuple(sorted(_follow(index, (n,), reached, largest))))
        for n in near
        if beyond.intersection(list_made(index, (n,)))
        and not beyond.intersection(index.nodes[n].reads)
    )


def _follow(
    index: GraphIndex, nodes: Iterable[int], reached: Mapping[int, float], largest: float
) -> set[int]:
    """The nodes and who reads what they make beyond ``largest``, which makes values that may be
    beyond it in turn."""
    seen = rim = set(nodes)
    while rim:
        over = (t for t in list_made(index, rim) if reached.get(t, 0.0) > largest)
        rim = {r for t in over for r in index.readers[t]} - seen
        seen = seen | rim
    return seen


def list_close(oracle: Oracle, keep: Collection[int], accused: NodeIds) -> Sub[tuple[Close, ...]]:
    """The nodes outside of ``keep`` whose values in the reference end within ``CLOSE`` times of the
    largest that the engine's storage type holds, on any given sample: what feeds or reads what is
    accused first, then the nearest to the end. Those beyond it are none of them: the samples show
    what comes of that. None where the type has FP32's range, or the reference does not answer."""
    if oracle.storage != NARROW:
        return ()
    index, largest = oracle.index, largest_finite(oracle.storage)
    # What the engine folds is the same for all data.
    steady = {index.tensors[t].producer for t in index.from_weights}
    left = [n for n in oracle.live if n not in keep and n not in steady and index.nodes[n].reads]
    near: list[int] = yield from _list_near(oracle, left, largest / CLOSE)
    reached: dict[int, float] = yield from measure_reached(
        oracle, list_made(index, near), oracle.feeds
    )
    tops = {n: find_top(index, n, reached) for n in near}
    beside = index.ring(set(accused)) if accused else set()
    close = [n for n, top in tops.items() if largest / CLOSE < top <= largest]
    close.sort(key=lambda n: (n not in beside, -tops[n], n))
    return tuple(Close(oracle.index.shown_names[n], tops[n]) for n in close)


def _list_near(oracle: Oracle, nodes: Collection[int], largest: float) -> Sub[list[int]]:
    """Those of the nodes that may go beyond ``largest`` on some sample, by the one that the search
    works on."""
    made = list_made(oracle.index, oracle.live)
    told: dict[int, float] = yield from measure_reached(oracle, made, (oracle.sample,))
    return [n for n in nodes if find_top(oracle.index, n, told) > largest / NEAR]


def list_made(index: GraphIndex, nodes: Iterable[int]) -> list[int]:
    """The floating tensors that these nodes make."""
    made = (t for n in nodes for t in index.nodes[n].outputs if t >= 0)
    return [t for t in made if index.tensors[t].name and index.tensors[t].floating]


def find_top(index: GraphIndex, node: int, reached: Mapping[int, float]) -> float:
    """What the node's values reach, as far as that was measured."""
    return max((reached.get(t, 0.0) for t in list_made(index, (node,))), default=0.0)


def measure_reached(
    oracle: Oracle, tensors: Iterable[int], samples: tuple[str, ...]
) -> Sub[dict[int, float]]:
    """Tensor id -> its largest finite magnitude in the reference over these samples; what could not
    be read is left out."""
    reached: dict[int, float] = {}
    for batch in pack_batches(oracle.index, tuple(tensors), BATCH_BYTES):
        note = Note(f"how large do {len(batch)} tensors become in the reference?")
        answer: Answer = yield from oracle.ask(
            Question(fed=Fed(samples), watch=batch, reference=True, note=note)
        )
        m = answer.measured
        for score in (s for r in m.results if m.status == "ok" for s in (*r.marks, *r.outputs)):
            if (t := oracle.index.by_name.get(score.name)) is not None:
                reached[t] = max(reached.get(t, 0.0), score.absmax)
    return reached


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
    many = say_many(len(others.found), "more node")
    told = f" The same is wrong at {many}, with a case each: {names}." if names else ""
    return told + say_kept_along(others)


def say_kept_along(others: Alike) -> str:
    """What the first culprit takes along."""
    if not others.along:
        return ""
    many = say_many(len(others.along), "more node")
    return f" {others.why.format(many=many)}, with no case of their own."
