"""The other nodes at which the reference foretells the fault that was confirmed at one, each looked
at alone.

Does an engine refuse every part of a model in the words in which it refuses the whole? Then no
node is at fault.

An emulation of BF16 takes no model below opset 13, a parser none above the opset that it knows:
whatever part is cut out is refused, and a search would name whichever node it happened to look at
last.
"""

from collections.abc import Sequence

import msgspec

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import Oracle, make_oracle
from narrowdown.engines.asking.question import Question
from narrowdown.engines.findings import Culprit
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.search.foretold import Place, foretell_places
from narrowdown.engines.search.fresh import Seen, confirm_in_fresh_builds
from narrowdown.engines.search.search import Trials
from narrowdown.engines.search.settle import Settled, make_case, settle


class Another(msgspec.Struct, frozen=True):
    """A node that fails alone too, as a case of its own; ``keep``: node ids of it and of all that
    its values reach."""

    seen: Seen
    keep: tuple[int, ...]


class Alike(msgspec.Struct, frozen=True):
    """``found``: fail there too, alone; ``along``: have no case of their own, as alone the node is
    right (the engine may compute it otherwise among others), or as there are culprits enough;
    ``own``: node ids around the first culprit that its ``keep`` lacks."""

    found: tuple[Another, ...] = ()
    along: tuple[Place, ...] = ()
    own: tuple[int, ...] = ()

    @property
    def keep(self) -> tuple[int, ...]:
        """Node ids around all of them."""
        around = (*(each.keep for each in self.found), *(place.keep for place in self.along))
        return tuple(sorted(set(self.own).union(*around)))


def find_alike(
    ask: Inquiry,
    first: Culprit,
    *,
    room: int,
    shrink_probes: int,
    repeats: int,
) -> Sub[Alike]:
    """Every place (``Alike``) of the same op as the node that the first culprit is about, looked
    at alone. ``room``: how many more culprits there may be;
    ``shrink_probes``: that go into making a case simpler; ``repeats``: fresh builds of it."""
    inside = ranges.decode(first.case.node_ids)
    node = next((n for n in inside if ask.names([n])[0] == first.at), None)
    if node is None:
        return Alike()
    oracle = make_oracle(ask)
    places: tuple[Place, ...] = yield from foretell_places(oracle, ask.index.nodes[node].op)
    cured = {*inside, *ranges.decode(ask.findings.keep)}
    own = {n for p in places if p.node in inside for n in p.keep} - set(ranges.decode(first.keep))
    effects = {s.node: s.effect for s in ask.findings.suspects}
    found: list[Another] = []
    along: list[Place] = []
    for place in (p for p in places if p.node not in cured):
        if len(found) >= room:
            along.append(place)
            continue
        form = Question(e0=effects.get(place.node))
        trials, only = Trials(oracle, form, known={}), frozenset({place.node})
        answer: Answer = yield from trials.test(only)
        if answer.passes:
            along.append(place)
        if not answer.fails:
            continue
        settled: Settled = yield from settle(oracle, trials, only, verify=0, shrinks=shrink_probes)
        case = make_case(ask, settled, minimal=True, found_by="confirm")
        seen: Seen = yield from confirm_in_fresh_builds(ask.lowered(form.e0), case, repeats)
        if seen.failures:
            found.append(Another(seen, place.keep))
    return Alike(tuple(found), tuple(along), tuple(sorted(own)))


def widen_culprit(index: GraphIndex, first: Culprit, others: Alike) -> Culprit:
    """The first culprit, which takes along what has no case of its own."""
    if not others.along and not others.own:
        return first
    around = {*ranges.decode(first.keep), *others.own, *(n for p in others.along for n in p.keep)}
    also = tuple(index.shown_names[p.node] for p in others.along)
    said = f"{first.evidence}{say_kept_along(others)}"
    return msgspec.structs.replace(first, keep=ranges.encode(around), also=also, evidence=said)


def make_culprits(others: Alike) -> tuple[Culprit, ...]:
    """One for each node that fails alone; they have no folder yet."""
    return tuple(
        Culprit(
            case=each.seen.case,
            cause=each.seen.cause.name,
            evidence=each.seen.cause.evidence,
            keep=ranges.encode(each.keep),
        )
        for each in others.found
    )


def say_alike(others: Alike) -> str:
    """Where the same was found or is to be expected, sentences with a space in front; empty where
    nowhere."""
    names = ", ".join(each.seen.case.nodes[0] for each in others.found)
    more = f"{len(others.found)} more nodes, each of which has"
    if len(others.found) == 1:
        more = "1 more node, which has"
    told = f" The same is wrong at {more} a case of its own: {names}." if names else ""
    return told + say_kept_along(others)


def say_kept_along(others: Alike) -> str:
    """What the first culprit takes along."""
    if not others.along:
        return ""
    many = len(others.along)
    nodes, they = (
        ("1 more node of that kind goes", "it has no case of its own, and is")
        if many == 1
        else (f"{many} more nodes of that kind go", "they have no cases of their own, and are")
    )
    return f" {nodes} as far in the reference; {they} tried in FP32 together with this one."


# Nodes that are tried alone, each of an operator of its own, spread over the model. Chosen, not
# measured: a reason that lies in one operator spares the others, so two could do; four cost a build
# of one node each.
TRIED = 4


def refused_alike(oracle: Oracle) -> Sub[tuple[str, ...]]:
    """Names of nodes, each refused by itself as the whole model is; empty where one of those tried
    is not, or where the model has too few operators to tell."""
    index = oracle.index
    yield Note("is any part of it taken?")
    chosen = [oracle.live[at] for at in choose_nodes([index.nodes[n].op for n in oracle.live])]
    if len(chosen) == 1:
        return ()
    for node in chosen:
        answer: Answer = yield from oracle.ask(Question(frozenset({node})))
        if not answer.fails:
            return ()
    return tuple(index.shown_names[node] for node in chosen)


def choose_nodes(ops: Sequence[str]) -> tuple[int, ...]:
    """Positions of at most ``TRIED`` nodes of as many operators: the first of each, spread over the
    operators there are."""
    nodes = [ops.index(op) for op in dict.fromkeys(ops)]
    if len(nodes) <= TRIED:
        return tuple(nodes)
    return tuple(nodes[i * (len(nodes) - 1) // (TRIED - 1)] for i in range(TRIED))
