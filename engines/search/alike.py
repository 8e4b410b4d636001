"""The other nodes at which the reference foretells the fault that was confirmed at one, each looked
at alone."""

import msgspec

from narrowdown.engines.asking import Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import make_oracle
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
    """``found``: fail there too, alone; ``silent``: alone it is right, as the engine may compute it
    otherwise among others; ``beyond``: not looked at, as there are culprits enough; ``own``: node
    ids around the first culprit that its ``keep`` lacks."""

    found: tuple[Another, ...] = ()
    silent: tuple[Place, ...] = ()
    beyond: tuple[Place, ...] = ()
    own: tuple[int, ...] = ()

    @property
    def keep(self) -> tuple[int, ...]:
        """Node ids around all of them."""
        around = [each.keep for each in self.found] + [
            place.keep for place in (*self.silent, *self.beyond)
        ]
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
    places: tuple[Place, ...] = yield from foretell_places(ask, ask.index.nodes[node].op)
    cured = {*inside, *ranges.decode(ask.findings.keep)}
    own = {n for p in places if p.node in inside for n in p.keep} - set(ranges.decode(first.keep))
    oracle = make_oracle(ask)
    found: list[Another] = []
    silent: list[Place] = []
    more: list[Place] = []
    for place in places:
        if place.node in cured:
            continue
        if len(found) >= room:
            more.append(place)
            continue
        suspect = next((s for s in ask.findings.suspects if s.node == place.node), None)
        form = Question(e0=suspect.effect if suspect else None)
        trials, only = Trials(oracle, form, known={}), frozenset({place.node})
        answer: Answer = yield from trials.test(only)
        if answer.passes:
            silent.append(place)
        if not answer.fails:
            continue
        settled: Settled = yield from settle(oracle, trials, only, verify=0, shrinks=shrink_probes)
        case = make_case(ask, settled, minimal=True, found_by="confirm")
        lowered = ask.lowered(form.e0)
        seen: Seen = yield from confirm_in_fresh_builds(lowered, case, repeats)
        if seen.failures:
            found.append(Another(seen, place.keep))
    return Alike(tuple(found), tuple(silent), tuple(more), tuple(sorted(own)))


def widen_culprit(index: GraphIndex, first: Culprit, others: Alike) -> Culprit:
    """The first culprit, which takes along what has no case of its own."""
    more = (*others.silent, *others.beyond)
    if not more and not others.own:
        return first
    around = {*ranges.decode(first.keep), *others.own, *(n for p in more for n in p.keep)}
    also = tuple(index.shown_names[p.node] for p in more)
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
    told = ""
    if others.found:
        names = ", ".join(each.seen.case.nodes[0] for each in others.found)
        one = len(others.found) == 1
        more = (
            "1 more node, which has"
            if one
            else f"{len(others.found)} more nodes, each of which has"
        )
        told = f" The same is wrong at {more} a case of its own: {names}."
    return told + say_kept_along(others)


def say_kept_along(others: Alike) -> str:
    """What the first culprit takes along, and why."""
    told = ""
    for places, why in (
        (others.silent, "alone {} right"),
        (others.beyond, "there are cases enough"),
    ):
        one = len(places) == 1
        if places:
            nodes = (
                "1 more node of that kind goes"
                if one
                else f"{len(places)} more nodes of that kind go"
            )
            tried = "it is" if one else "they are"
            told += f" {nodes} as far in the reference; {why.format(tried)}, so in FP32 {tried} tried together with this one."
    return told
