"""The other nodes at which the reference foretells the fault that was confirmed at one, each looked
at alone: a transformer with one layer norm that overflows mostly has more of them, and they need no
round each."""

import msgspec

from narrowdown.engines.asking import Sub
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import make_oracle
from narrowdown.engines.findings import Culprit
from narrowdown.engines.graph import ranges
from narrowdown.engines.search.foretold import Place, foretell_places
from narrowdown.engines.search.fresh import Seen, confirm_in_fresh_builds
from narrowdown.engines.search.search import Trials
from narrowdown.engines.search.settle import Settled, make_case, settle


class Alike(msgspec.Struct, frozen=True):
    """``found``: fail there too, alone, each with a culprit of its own; ``along``: names of those that
    have none, as alone the node is right (the engine may compute it otherwise among others), or as
    there are culprits enough; ``keep``: node ids around all of them, and around the first
    culprit."""

    found: tuple[Seen, ...] = ()
    along: tuple[str, ...] = ()
    keep: tuple[int, ...] = ()


def find_alike(ask: Inquiry, first: Culprit, *, room: int, repeats: int) -> Sub[Alike]:
    """Every place (``Alike``) of the same op as the node that the first culprit is about. ``room``:
    how many more culprits there may be; ``repeats``: fresh builds of each."""
    oracle, inside = make_oracle(ask), ranges.decode(first.case.node_ids)
    op = next((ask.index.nodes[n].op for n in inside if ask.names([n])[0] == first.at), "")
    cured = frozenset(ranges.decode(ask.findings.keep)).difference(inside)
    told: tuple[Place, ...] = (yield from foretell_places(oracle, op)) if op else ()
    places = [p for p in told if p.node not in cured]
    found, along = list[Seen](), list[str]()
    for place in (p for p in places if p.node not in inside):
        alone: Seen | None = None
        if len(found) < room:
            alone = yield from _see_alone(ask, place, repeats)
        if alone is None:
            along += oracle.names((place.node,))
        else:
            found.append(alone)
    keep = {n for p in places for n in p.keep}
    return Alike(tuple(found), tuple(along), tuple(sorted(keep)))


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
    return (
        f" The reference goes as far at {many} of that kind, kept in FP32 together with this one, "
        "with no case of their own."
    )
