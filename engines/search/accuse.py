"""Whose error reaches the model's outputs, of the nodes that add one; and whether no node stands
for the failure, as it is spread.

Ways to ask, the next where nobody was found yet: each node alone; one that amplifies the rounding
of its inputs, together with what made those (a cancellation is wrong by all the rounding that leads
to it); those that lead to the first bad tensor and are right to a tenth of what is allowed (an
epsilon that a converter changed)."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from narrowdown.engines.asking import Answer, Note, Question, Sub
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.compare.judge import SHARE, badness, limit, over, places
from narrowdown.engines.findings import Suspect
from narrowdown.engines.graph import GraphIndex, ranges
from narrowdown.engines.probe import Score
from narrowdown.engines.search.evidence import FAULTLESS
from narrowdown.engines.search.tensor_errors import MOST, Added

# Effects that differ by less than this factor are alike: what a culprit breaks may be wrong to a
# somewhat larger degree. An overflow and all that it poisons have the same effect (1.0 times), an
# index and what it picks are 1.2 to 1.5 times apart.
ALIKE = 1.5
# A failure is spread where none of this many parts of the model, each alone, brings more than MOST
# of the error to the outputs (equal parts bring an eighth each, or a third where their errors are
# independent), and at least half of them bring SOME of it.
PARTS = 8
SOME = 1 / (4 * PARTS)  # a quarter of an equal part: below it a part is as good as right


class Accused(msgspec.Struct, frozen=True):
    """``suspects``: worst first; ``harmless``: nodes whose error reaches no output; ``left``: how
    many were not asked about, or not in every way, as the budget was spent."""

    suspects: tuple[Suspect, ...] = ()
    harmless: frozenset[int] = frozenset()
    left: int = 0


def accuse(
    oracle: Oracle, budget: int, inherited: Mapping[int, Score], added: Added
) -> Sub[Accused]:
    """Transplant the error of each node that adds any, worst first, into the clean reference run;
    rank by what arrives. ``budget``: suspects whose effect is measured; 0: all."""
    asker = _Asker(oracle, added, budget)
    nodes, quiet = _rank(asker, inherited)
    yield from _ask_alone(asker, nodes)
    if not asker.suspects:
        yield from _ask_with_producers(asker, nodes)
    if not asker.suspects:
        yield from _ask_alone(asker, quiet)
    harmless = frozenset(n for n, why in asker.verdicts.items() if why == "harmless")
    return Accused(order_accused(asker.suspects), harmless, asker.left)


class _Asker:
    """Asks about one node after another as long as the budget lasts, and keeps what came of it."""

    def __init__(self, oracle: Oracle, added: Added, budget: int) -> None:
        self.oracle, self.added, self.budget = oracle, added, budget
        self.suspects: list[Suspect] = []
        self.verdicts: dict[int, str] = {}
        self.left = 0
        self._asked_for = 0  # suspects, with those that are asked for again in a larger group
        errors = {t: badness(stored, oracle.criterion) for t, (stored, _) in added.items()}
        furthest = sorted(added, key=lambda t: (errors[t], -t))
        # node -> its tensor that is furthest off, and by how much
        self.worst = {oracle.index.tensors[t].producer: t for t in furthest}
        self.amount = {n: errors[t] for n, t in self.worst.items()}

    def amplifies(self, node: int) -> bool:
        """Whether it adds far more when it is fed as stored than when it is fed exactly. Of all who
        are accused in tests/engines, amplifiers reach 217 times and more, all others 1."""
        exact = self.added[self.worst[node]][1]
        return exact is not None and self.amount[node] > FAULTLESS * badness(
            exact, self.oracle.criterion
        )

    def while_asked(self, of: Sequence[int]) -> Iterable[int]:
        """Those for which the budget is not spent yet."""
        for at, n in enumerate(of):
            if 0 < self.budget <= self._asked_for:
                self.left = max(self.left, len(of) - at)
                return
            yield n

    def measure(self, n: int, group: tuple[int, ...]) -> Sub[bool]:
        """Whether the error of its group is a tenth of the failure: then it is a suspect."""
        index, criterion = self.oracle.index, self.oracle.criterion
        name, copies = index.shown_names[n], index.copies[n]
        alone = frozenset(index.with_copies(group))
        # Fed right values no iteration would hand its error on to the next one.
        goes_on = len(copies) > 1 and self.oracle.keeps
        around = index.with_paths(alone) if goes_on else alone
        note = Note(f"does the error of {name} reach the outputs?", best=0, tried=self._asked_for)
        self._asked_for += 1
        outputs = tuple(t for c in copies for t in index.nodes[c].outputs if t in self.added)
        answer: Answer = yield from self.oracle.ask(
            Question(around, outputs=outputs, keep=around - alone, note=note)
        )
        self.verdicts[n] = answer.why
        stored, exact = self.added[self.worst[n]]
        # What was fed was already infinite, and fed exactly the node is right: the culprit is
        # whoever made that value.
        fed_broken = answer.lost and exact is not None and not over(exact, criterion)
        carries = answer.reach > 0 and answer.reach >= SHARE * self.oracle.error
        if answer.effect is None or fed_broken or not carries:
            return False
        self.suspects.append(Suspect(
            node=n,
            tensor=self.worst[n],
            nodes=ranges.encode({*around, *(list_producers(index, copies) if self.amplifies(n) else ())}),
            own=self.amount[n],
            effect=answer.effect,
            name=name,
            added_exact=badness(exact, criterion) if exact is not None else None,
            own_places=places(stored, criterion),
            effect_places=answer.effect_places,
        ))  # fmt: skip
        return True


def _rank(asker: _Asker, inherited: Mapping[int, Score]) -> tuple[list[int], list[int]]:
    """The nodes to ask about, the largest error first; and those that add too little by themselves
    and lead to the first bad tensor: eight, a bound, chosen and not measured.

    48 suspects bound the builds: by added error alone real models tie five infinities of which
    three are harmless, and a strict tolerance makes every node a suspect."""
    oracle, index, worst = asker.oracle, asker.oracle.index, asker.worst
    ranked = sorted(
        (n for n in worst if asker.amount[n] > 0), key=lambda n: (-asker.amount[n], worst[n])
    )
    stands = {index.copies[n]: n for n in reversed(ranked)}  # the worst for all copies of a node
    ranked = [n for n in ranked if stands[index.copies[n]] == n]
    # A tenth of what is allowed, at a node, is the least that could matter; below it lies the
    # rounding of a right engine. An error of less that grows on its way is looked for among the
    # quiet ones.
    allowed = {n: limit(oracle.criterion, index.tensors[t].name) for n, t in worst.items()}
    telling = {n for n in worst if asker.amount[n] > allowed[n] / 10}
    # The tensors over tolerance whose node reads none that is; the failing outputs where no tensor
    # before them is over.
    over_it = [t for t, score in inherited.items() if over(score, oracle.criterion)]
    leading = set(index.ancestors(index.first_of(over_it) or oracle.watched))
    quiet = [n for n in ranked if n in leading - telling]
    return [n for n in ranked if n in telling][:48], quiet[:8]


def _ask_alone(asker: _Asker, nodes: Sequence[int]) -> Sub[None]:
    for n in asker.while_asked(nodes):
        yield from asker.measure(n, (n,))


def _ask_with_producers(asker: _Asker, nodes: Sequence[int]) -> Sub[None]:
    """Nodes that amplify, with what made their inputs, up to three steps back: a variance is a
    square, a mean and a difference."""
    for n in asker.while_asked([n for n in nodes if asker.amplifies(n)]):
        group: tuple[int, ...] = (n,)
        for _ in range(3):
            group = tuple(sorted({*group, *list_producers(asker.oracle.index, group)}))
            if (yield from asker.measure(n, group)):
                break


def measure_shares(oracle: Oracle, suspects: Sequence[Suspect]) -> Sub[tuple[float, ...]]:
    """The part of the failure that each of PARTS stretches of the model, fed right values, brings
    to the outputs by itself; empty where one node stands for most of it, or where that cannot be
    told."""
    nodes, first = oracle.live, order_accused(suspects)[:1]
    told = oracle.failure.nonfinite or any(s.effect > MOST * oracle.error for s in first)
    if told or len(nodes) < 2 * PARTS:
        return ()
    shares = []
    for i in range(PARTS):
        part = nodes[i * len(nodes) // PARTS : (i + 1) * len(nodes) // PARTS]
        note = Note(
            f"how much of the error is made in part {i + 1} of {PARTS}?", expected=PARTS - i
        )
        answer = yield from oracle.ask(Question(frozenset(part), build=0, note=note))
        if answer.effect is None or answer.lost:
            return ()
        shares.append(answer.effect / oracle.error)
    return tuple(shares)


def is_spread(shares: Sequence[float]) -> bool:
    return bool(shares) and max(shares) <= MOST and sum(s >= SOME for s in shares) >= PARTS / 2


def order_accused(suspects: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """The largest effect first, but of those alike to it (an overflow and all that it poisons) the
    first in the graph."""
    by_effect = sorted(suspects, key=lambda s: (-s.effect, s.node))
    alike = [s for s in by_effect if s.effect * ALIKE >= by_effect[0].effect]
    return (*sorted(alike, key=lambda s: s.node), *by_effect[len(alike) :])


def list_producers(index: GraphIndex, nodes: Iterable[int]) -> tuple[int, ...]:
    made = (
        index.made_by(t) for n in nodes for t in index.nodes[n].reads if index.tensors[t].floating
    )
    return tuple(sorted({n.id for n in made if n is not None}))
