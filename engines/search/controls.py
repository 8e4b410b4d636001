"""Controls: does a failure say anything of the nodes at all?

Can the user's checker pass? It is asked about models that hold nothing that could be wrong.

Does an engine refuse every part of a model in the words in which it refuses the whole? Then no node
is at fault. An emulation of BF16 takes no model below opset 13, a parser none above the opset that
it knows: whatever part is cut out is refused, and a search would name whichever node it happened to
look at last.

And does a loop fail by what is carried from step to step? Then no node is accused.
"""

from collections.abc import Mapping
from typing import Literal

from narrowdown.engines.asking import Answer, Note, Question, Sub
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.compare.judge import judge_check
from narrowdown.engines.probe import Measurement

LINES, LONG = 3, 160  # of what a checker printed last that is shown, and characters of a line
# Nodes that are tried alone, each of an operator of its own. Chosen, not measured: a reason that lies
# in one operator spares the others, so two could do; four cost a build of one node each.
TRIED = 4
# Carried inputs that are tried: a decoder of 12 layers has 24, and where its error is in each of
# them none of the first says anything else than the others.
CARRIED = 12

_NAMED: dict[Literal["identity", "answers"], str] = {
    "identity": "a model that only hands its inputs on",
    "answers": "one that gives the reference's own outputs",
}


def find_helpless(model: WholeModel) -> Sub[str]:
    """Why the checker's failing says nothing, and what to do; "" where it passes one of the
    controls: a failure is told only by who can also pass.

    The reference's own outputs are known only where the checker is handed inputs. A control that
    cannot be made or judged (it takes too long, its process dies) is not passed.
    """
    kinds = [kind for kind in _NAMED if kind == "identity" or model.findings.inputs]
    last = Measurement()
    for kind in kinds:
        yield Note("can your check pass? A model with nothing in it that could be wrong")
        last = yield from model.check_control(kind)
        if judge_check(last, model.rule).passed:
            return ""
    failed = " nor ".join(_NAMED[kind] for kind in kinds)
    words = last_words(last)
    return (
        f"It does not pass {failed} either, so its failing says nothing about this model. Run it by hand on a "
        "model that you trust; it gets few variables of your environment (--pass-env NAME passes on one that it needs). "
        + (f"It last printed: {words}" if words else "It printed nothing.")
    )


def last_words(m: Measurement) -> str:
    """The last lines that a checker printed, stderr behind stdout; why there are none where it did
    not run."""
    printed = f"{m.facts.get('stdout', '')}\n{m.facts.get('stderr', '')}"
    lines = [line.strip()[:LONG] for line in printed.splitlines() if line.strip()]
    return " | ".join(lines[-LINES:]) or (m.message if m.status != "ok" else "")


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


def find_carrier(model: WholeModel, sample: str, carried: Mapping[str, str]) -> Sub[str]:
    """Through which input the error of a loop grows: the one with which it is right once the
    reference's value is put back in each step; "" where there is none."""
    if len(carried) == 1:
        return next(iter(carried))
    for name in list(carried)[:CARRIED]:
        note = f"and with the reference's '{name}' put back in each step?"
        off = yield from model.compare(samples=(sample,), held=(name,), note=note)
        if off.told and not off.exceeds:
            return name
    return ""
