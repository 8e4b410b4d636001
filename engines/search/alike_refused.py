"""Does an engine refuse every part of a model in the words in which it refuses the whole? Then no
node is at fault.

An emulation of BF16 takes no model below opset 13, a parser none above the opset that it knows:
whatever part is cut out is refused, and a search would name whichever node it happened to look at
last.
"""

from narrowdown.engines.asking import Note, StepContext, StepRefused, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.findings import Findings

# Nodes that are tried alone, each of an operator of its own, spread over the model. Chosen, not
# measured: a reason that lies in one operator spares the others, so two could do; four cost a build
# of one node each.
TRIED = 4
LEAST = 2


def refused_alike(ctx: StepContext, findings: Findings) -> Sub[tuple[str, ...]]:
    """Names of nodes, each refused by itself as the whole model is; empty where one of those tried
    is not, where the model has too few operators to tell, where the reference cannot run it (what
    the engine said is then the thing to tell), or where it is not refused at all."""
    signature = findings.signature
    if ctx.check or signature is None or signature.kind != "build" or not signature.refusal:
        return ()
    yield Note("is any part of it taken?")
    try:
        ask: Inquiry = yield from open_inquiry(ctx, findings)
    except StepRefused:
        return ()
    chosen = choose_nodes(ask.ops(ask.everything))
    if len(chosen) < LEAST:
        return ()
    for node in chosen:
        m = yield from asked(ask.ask(ask.candidate([node])))
        if not ask.verdict(m).failed:
            return ()
    return ask.names(chosen)


def choose_nodes(ops: tuple[str, ...]) -> tuple[int, ...]:
    """Positions of at most ``TRIED`` nodes of as many operators: the first of each, spread over the
    operators there are."""
    first: dict[str, int] = {}
    for at, op in enumerate(ops):
        first.setdefault(op, at)
    nodes = list(first.values())
    if len(nodes) <= TRIED:
        return tuple(nodes)
    return tuple(nodes[i * (len(nodes) - 1) // (TRIED - 1)] for i in range(TRIED))
