"""Does an engine refuse every part of a model in the words in which it refuses the whole? Then no
node is at fault.

An emulation of BF16 takes no model below opset 13, a parser none above the opset that it knows:
whatever part is cut out is refused, and a search would name whichever node it happened to look at
last.
"""

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.asking.question import Question

# Nodes that are tried alone, each of an operator of its own. Chosen, not measured: a reason that lies
# in one operator spares the others, so two could do; four cost a build of one node each.
TRIED = 4


def refused_alike(oracle: Oracle) -> Sub[tuple[str, ...]]:
    """Names of nodes, each refused by itself as the whole model is; empty where one of those tried
    is not, or where the model has too few operators to tell."""
    index = oracle.index
    yield Note("is any part of it taken?")
    first = {index.nodes[n].op: n for n in reversed(oracle.live)}
    chosen = sorted(first.values())[:TRIED]
    if len(chosen) == 1:
        return ()
    for node in chosen:
        answer: Answer = yield from oracle.ask(Question(frozenset({node})))
        if not answer.fails:
            return ()
    return oracle.index.names(chosen)
