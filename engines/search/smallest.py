"""The smallest part of a model that fails as the model does.

It assumes nothing of the engine but that it answers. Both ends are asked first: the whole model must
fail, or there is nothing to search, and the reference must agree with itself, or nothing can be
measured against it. Then the search narrows (``engines.search.search``), and what is left is looked
at from all sides (``engines.search.settle``) on the engine as it was given, which alone decides.

Where it starts decides what it costs. As a rule one node is most of the failure, and one build of
all nodes side by side finds it (``engines.search.alone``), where halving asks ten times. Where some
nodes are known to cure the model in FP32, the reference hides the fault as soon as they are cut out
alone: they are grown with their neighbours until they fail. Halving such a model found nothing in 60
questions (sort_tf_massive_m4, weakly typed), leaving out any nodes half of it in 40.

Where the engine has a cheap form that fails alike, all of this is asked of that one, and what it
finds is asked of the engine as it was given. If that is right, the search begins again there: the
part that took company on the cheap form is where it starts, as fewer nodes would do even less.
"""

import msgspec

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.asking.question import NodeIds, Question
from narrowdown.engines.search.alone import find_alone
from narrowdown.engines.search.foretold import list_unfeedable
from narrowdown.engines.search.search import Trials, find_around, minimise, prove_one_minimal
from narrowdown.engines.search.settle import Settled, settle


class Wanted(msgspec.Struct, frozen=True):
    """``halve``: cut along the order of nodes first; ``alone``: ask what each node is wrong by
    alone, which one large build tells; ``cured``: nodes that cure the whole model in FP32; ``most``
    parts that may be tried, 0: as many as it needs; ``verify``: fresh builds of the result;
    ``shrinks``: edits tried on it."""

    halve: bool = True
    alone: bool = True
    cured: NodeIds = frozenset()
    most: int = 0
    verify: int = 3
    shrinks: int = 0


class Smallest(msgspec.Struct, frozen=True):
    """``answer``: the whole model's; ``settled`` None where that did not fail, ``untrue`` where the
    reference does not agree with itself. ``minimal``: no single node of it can go; ``cheaply``: the
    search asked the cheap engine. ``probes`` of the search, ``checks`` of its result; ``unresolved``
    parts by reason; ``stopped``: it was ended before it was through."""

    answer: Answer
    settled: Settled | None = None
    untrue: bool = False
    minimal: bool = False
    cheaply: bool = False
    probes: int = 0
    checks: int = 1
    unresolved: dict[str, int] = {}
    stopped: bool = False


class _Narrowed(msgspec.Struct, frozen=True):
    """``around``: where a search that begins again starts."""

    trials: Trials
    answer: Answer
    nodes: NodeIds = frozenset()
    around: NodeIds = frozenset()
    untrue: bool = False
    checks: int = 1


def find_smallest(oracle: Oracle, wanted: Wanted) -> Sub[Smallest]:
    """Prove the ends, search, settle."""
    around: NodeIds = frozenset()
    if oracle.cheap is not None:
        cheaply: _Narrowed = yield from _narrow(oracle.cheap, wanted, around)
        if cheaply.nodes:
            given: Trials | None = yield from ask_as_given(oracle, cheaply.trials, cheaply.nodes)
            if given is not None:
                return (yield from _settle(cheaply, given, wanted))
        around, oracle = cheaply.around, msgspec.structs.replace(oracle, cheap=None)
    found: _Narrowed = yield from _narrow(oracle, wanted, around)
    if found.nodes:
        return (yield from _settle(found, found.trials, wanted))
    unresolved = {} if found.untrue else found.trials.unresolved()
    return Smallest(found.answer, untrue=found.untrue, checks=found.checks, unresolved=unresolved)


def _narrow(oracle: Oracle, wanted: Wanted, start: NodeIds) -> Sub[_Narrowed]:
    trials = Trials(oracle, known={}, most=wanted.most)
    whole = frozenset(oracle.live)
    yield Note("the whole model must fail, and the reference must pass")
    answer: Answer = yield from trials.test(whole)
    if not answer.fails:
        return _Narrowed(trials, answer)
    control: Answer = yield from oracle.ask(Question(reference=True))
    checks = 1 + control.probes
    if not control.passes:
        return _Narrowed(trials, answer, untrue=True, checks=checks)
    around, first = wanted.cured, whole
    if start and (yield from trials.fails(start)):
        first = start
    elif wanted.cured:
        around = start or around
        first = (yield from find_around(trials, around)) or whole
        trials.beyond = yield from list_unfeedable(oracle)
    elif wanted.alone:
        first = (yield from find_alone(trials)) or whole
    nodes: NodeIds = yield from minimise(
        trials, first, cuts=wanted.halve and not wanted.cured, likely=wanted.cured
    )
    nodes = trials.smallest(nodes) if trials.ended else nodes
    return _Narrowed(trials, answer, nodes, first if first != whole else frozenset(), checks=checks)


def _settle(found: _Narrowed, given: Trials, wanted: Wanted) -> Sub[Smallest]:
    trials, nodes = found.trials, found.nodes
    probes, stopped, trials.most = trials.count - 1, trials.ended, 0
    # Where the search ended: as given each of these builds is another one's first (7 to 26 s of
    # them on an H200), and they say of kernels, not of nodes, whether one can go.
    minimal = False if stopped else (yield from prove_one_minimal(trials, nodes))
    shrinks = 0 if stopped else wanted.shrinks
    checks = found.checks + trials.count - 1 - probes
    settled: Settled = yield from settle(
        given.oracle, given, nodes, verify=wanted.verify, shrinks=shrinks
    )
    return Smallest(
        found.answer,
        settled,
        minimal=minimal,
        cheaply=given is not trials,
        probes=probes,
        checks=checks + settled.probes,
        unresolved=given.unresolved(),
        stopped=stopped,
    )


def ask_as_given(oracle: Oracle, found: Trials, nodes: NodeIds) -> Sub[Trials | None]:
    """Trials on the engine as it was given in which ``nodes`` fail; None where they do not. The
    largest part that passes in those of the cheap engine is handed on unasked: a case shows one,
    and builds it for that."""
    given = Trials(oracle, found.form, known={})
    yield Note("what was found, on the engine as it was given", best=len(nodes))
    if not (yield from given.fails(nodes)):
        return None
    if good := found.good(nodes):
        given.known[good] = found.known[good]
    return given
