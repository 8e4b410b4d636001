"""The smallest part of a model that fails as the model does.

It assumes nothing of the engine but that it answers. Both ends are asked first: the whole model must
fail, or there is nothing to search, and the reference must agree with itself, or nothing can be
measured against it. Then the search narrows (``engines.search.search``), and what is left is looked
at from all sides (``engines.search.settle``) on the engine as it was given, which alone decides.

As a rule one node is most of the failure, and one build of all nodes side by side finds it
(``engines.search.tensor_errors``), where halving asks ten times.

Where the engine has a cheap form that fails alike, all of this is asked of that one, and what it
finds is asked of the engine as it was given. If that is right, the search begins again there.

Where somebody accuses a node (``isolate_first``), the part is grown around it instead of cut down to
it: who is tried, in which order, is the caller's. A node is cut out by itself, and where it passes
with its neighbours, each time in the direction in which the answer points (``grow_cut``). One that
only amplifies the rounding of its inputs is cut with its producers and fed exactly: then the part
holds the whole cause and fails whatever its inputs are rounded to. Nodes that were seen to be most
of the failure come first: a crowd that is grown around another one would hold them, too, and take
its time.
"""

from collections.abc import Sequence

import msgspec

from narrowdown.engines.asking import Answer, Count, NodeIds, Note, Question, Sub, unknown
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.findings import Suspect
from narrowdown.engines.graph import ranges
from narrowdown.engines.search.search import Trials, grow_cut, minimise, prove_one_minimal
from narrowdown.engines.search.settle import SHRINK_PROBES, Settled, settle
from narrowdown.engines.search.tensor_errors import MOST, find_alone


# Three builds: enough to see that it was no chance, before confirm counts it.
class ReduceParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    search: str = "bisect"  # or "linear": delta debugging without cuts by node order
    verify: Count = 3  # fresh builds of the result
    # edits that make shapes, values and attributes of the result simpler; 0: none
    shrink_probes: Count = SHRINK_PROBES
    budget: Count = 0  # parts that are tried before it takes the smallest so far; 0: all


class Smallest(msgspec.Struct, frozen=True):
    """``answer``: the whole model's; ``nodes`` that are left; ``settled`` None where that did not
    fail. ``minimal``: no single node of it can go; ``cheaply``: the search asked the cheap engine.
    ``probes`` of the search, ``checks`` of its result; ``unresolved`` parts by reason; ``stopped``:
    it was ended before it was through."""

    answer: Answer
    nodes: NodeIds = frozenset()
    settled: Settled | None = None
    minimal: bool = False
    cheaply: bool = False
    probes: int = 0
    checks: int = 1
    unresolved: dict[str, int] = {}
    stopped: bool = False


def find_smallest(oracle: Oracle, params: ReduceParams, *, alone: bool = True) -> Sub[Smallest]:
    """Prove the ends, search, settle. ``alone``: ask first what each node is wrong by alone, which
    one large build tells."""
    if oracle.cheap is not None:
        trials, found = yield from _narrow(oracle.cheap, params, alone=alone)
        if found.nodes:
            given: Trials | None = yield from _ask_as_given(oracle, trials, found.nodes)
            if given is not None:
                settled: Smallest = yield from _settle(found, trials, given, params)
                return msgspec.structs.replace(settled, cheaply=True)
        oracle = msgspec.structs.replace(oracle, cheap=None)
    trials, found = yield from _narrow(oracle, params, alone=alone)
    return (yield from _settle(found, trials, trials, params)) if found.nodes else found


def _narrow(oracle: Oracle, params: ReduceParams, *, alone: bool) -> Sub[tuple[Trials, Smallest]]:
    trials = Trials(oracle, most=params.budget)
    whole = frozenset(oracle.live)
    yield Note("the whole model must fail, and the reference must pass")
    answer: Answer = yield from trials.test(whole)
    if not answer.fails:
        return trials, Smallest(answer, unresolved=trials.unresolved())
    control: Answer = yield from oracle.ask(Question(reference=True))
    checks = 1 + control.probes
    if not control.passes:
        untrue = unknown("varies", "the reference does not agree with itself")
        return trials, Smallest(untrue, checks=checks)
    halves = params.search != "linear"
    single = (yield from find_alone(trials)) if alone and halves else None
    nodes: NodeIds = yield from minimise(trials, single or whole, cuts=halves)
    nodes = trials.smallest(nodes) if trials.ended else nodes
    return trials, Smallest(answer, nodes, checks=checks)


def _settle(found: Smallest, trials: Trials, given: Trials, params: ReduceParams) -> Sub[Smallest]:
    """``given``: trials on the engine as it was given, where ``trials`` are another one's."""
    probes, stopped, trials.most = trials.count - 1, trials.ended, 0
    # Where the search ended: as given each of these builds is another one's first (7 to 26 s of
    # them on an H200), and they say of kernels, not of nodes, whether one can go.
    minimal = False if stopped else (yield from prove_one_minimal(trials, found.nodes))
    shrinks = 0 if stopped else params.shrink_probes
    checks = found.checks + trials.count - 1 - probes
    settled: Settled = yield from settle(given, found.nodes, verify=params.verify, shrinks=shrinks)
    return msgspec.structs.replace(
        found,
        settled=settled,
        minimal=minimal,
        probes=probes,
        checks=checks + settled.probes,
        unresolved=given.unresolved(),
        stopped=stopped,
    )


def _ask_as_given(oracle: Oracle, found: Trials, nodes: NodeIds) -> Sub[Trials | None]:
    """Trials on the engine as it was given in which ``nodes`` fail; None where they do not. The
    largest part that passes in those of the cheap engine is handed on unasked: a case shows one,
    and builds it for that."""
    given = Trials(oracle, found.form)
    yield Note("what was found, on the engine as it was given", best=len(nodes))
    if not (yield from given.fails(nodes)):
        return None
    if good := found.good(nodes):
        given.known[good] = found.known[good]
    return given


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
    alone = ranges.decode(suspect.nodes) == oracle.index.copies[suspect.node]
    return suspect.tensor >= 0 and alone and suspect.effect > MOST * oracle.error


def _isolate(oracle: Oracle, suspect: Suspect, growth: int, most: int) -> Sub[Isolated]:
    index = oracle.index
    name = index.shown_names[suspect.node]
    nodes: NodeIds = frozenset(ranges.decode(suspect.nodes))
    amplifies = nodes != {*index.copies[suspect.node]}
    trials = Trials(oracle, Question(feed="exact" if amplifies else "stored"))
    for grown in range(growth + 1):
        yield Note(f"cutting out {len(nodes)} nodes around {name}")
        answer: Answer = yield from trials.test(nodes)
        if answer.fails:
            nodes = yield from minimise(trials, nodes, cuts=True)
            return Isolated(trials, nodes, grown)
        # A path that leaves the cut and comes back is fed true values in place of the cut's own
        # wrong ones. What the cut gives after it is then right, and transplanted hides the
        # error. Where no path does, harmless it is.
        harmless = answer.why == "harmless"
        larger = index.with_paths(nodes) if harmless else grow_cut(index, nodes, answer)
        if larger == nodes or len(index.group_copies(larger)) > most:
            break
        nodes = larger
    why = answer.why or answer.detail or "however far it is grown"
    return Isolated(why=f"the cut around {name} does not fail ({why})")
