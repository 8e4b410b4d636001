"""A part around a node that is accused which fails alone, as small as it goes.

It assumes that somebody accuses: who is tried, in which order, is the caller's. A node is cut out by
itself, and where it passes with its neighbours, each time in the direction in which the answer
points (``grow_cut``). One that only amplifies the rounding of its inputs is cut with its producers
and fed exactly: then the part holds the whole cause and fails whatever its inputs are rounded to.

Nodes that were seen to be most of the failure come first: a crowd that is grown around another one
would hold them, too, and take its time.
"""

from collections.abc import Sequence

import msgspec

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.asking.question import NodeIds, Question
from narrowdown.engines.findings import Suspect
from narrowdown.engines.graph import ranges
from narrowdown.engines.search.alone import MOST
from narrowdown.engines.search.search import Trials, grow_cut, minimise


class Isolated(msgspec.Struct, frozen=True):
    """``why``: a phrase that says why no part fails; "" where one does."""

    trials: Trials | None = None
    nodes: NodeIds = frozenset()
    grown: int = 0
    why: str = ""


def isolate_first(
    oracle: Oracle, suspects: Sequence[Suspect], most: int, growth: int = 8
) -> Sub[Isolated]:
    """The first that fails alone, else why the last did not. ``growth``: how often a cut is grown,
    to at most so many nodes."""
    last = Isolated()
    for suspect in sorted(suspects, key=lambda s: not _is_most(oracle, s)):
        last = yield from _isolate(oracle, suspect, growth, most)
        if last.trials is not None:
            break
    return last


def _is_most(oracle: Oracle, suspect: Suspect) -> bool:
    """Whether the node was seen to bring most of the model's error to its outputs by itself."""
    alone = ranges.decode(suspect.nodes) == (suspect.node,)
    return suspect.tensor >= 0 and alone and suspect.effect > MOST * oracle.error


def _isolate(oracle: Oracle, suspect: Suspect, growth: int, most: int) -> Sub[Isolated]:
    index = oracle.index
    name = index.shown_names[suspect.node]
    nodes: NodeIds = frozenset(ranges.decode(suspect.nodes))
    amplifies = nodes != {suspect.node}
    trials = Trials(oracle, Question(feed="exact" if amplifies else "stored"))
    for grown in range(growth + 1):
        yield Note(f"cutting out {len(nodes)} nodes around {name}")
        answer: Answer = yield from trials.test(nodes)
        if answer.fails:
            nodes = yield from minimise(trials, nodes, cuts=False)
            return Isolated(trials, nodes, grown)
        # A path that leaves the cut and comes back is fed true values in place of the cut's own
        # wrong ones. What the cut gives after it is then right, and transplanted hides the
        # error. Where no path does, harmless it is.
        harmless = answer.why == "harmless"
        larger = index.with_paths(nodes) if harmless else grow_cut(index, nodes, answer)
        if larger == nodes or len(larger) > most:
            break
        nodes = larger
    why = answer.why or answer.detail or "however far it is grown"
    return Isolated(why=f"the cut around {name} does not fail ({why})")
