"""Whose error reaches the model's outputs, of the nodes that add one; and whether no node stands
for the failure, as it is spread.

Ways to ask, the next where nobody was found yet: each node alone; one that amplifies the rounding
of its inputs, together with what made those (a cancellation is wrong by all the rounding that leads
to it); those that lead to the first bad tensor and are right to a tenth of what is allowed (an
epsilon that a converter changed); those that make the model right once they are."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from narrowdown.engines.asking import Note, Sub, asked
from narrowdown.engines.compare import judge
from narrowdown.engines.compare.judge import LARGE, SHARE, badness, limit, over, places
from narrowdown.engines.findings import Suspect
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.probe import Measurement, Score
from narrowdown.engines.search.alone import MOST
from narrowdown.engines.search.inquiry import Inquiry

# Added error this much larger fed as stored than fed exactly means that the node amplifies the
# rounding of its inputs. Of all who are accused in tests/engines, amplifiers reach 217 times and
# more, all others 1: any value between tells them apart.
AMPLIFIES = 10.0
EXACT = (
    1e-12  # an error fed exactly is taken for no smaller than this, which no float32 output shows
)
# Effects that differ by less than this factor are alike: what a culprit breaks may be wrong to a
# somewhat larger degree. An overflow and all that it poisons have the same effect (1.0 times), an
# index and what it picks are 1.2 to 1.5 times apart.
ALIKE = 1.5
# A failure is spread where none of this many parts of the model, each alone, brings more than MOST
# of the error to the outputs (equal parts bring an eighth each, or a third where their errors are
# independent), and at least half of them bring SOME of it.
PARTS = 8
SOME = 1 / (4 * PARTS)  # a quarter of an equal part: below it a part is as good as right


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """As in LayerwiseParams, where they are explained."""

    most_suspects: int
    levels: int
    injected: int
    quiet: int
    budget: int


class Accused(msgspec.Struct, frozen=True):
    """``suspects``: worst first; ``verdicts``: node id -> why a cut of it failed, passed or
    neither; ``left``: how many were not asked about, or not in every way, as the budget was
    spent."""

    suspects: tuple[Suspect, ...]
    verdicts: dict[int, str]
    left: int


Added = Mapping[
    int, tuple[Score, Score | None]
]  # tensor id -> the score of its node alone, fed as stored and exactly


def accuse(
    ask: Inquiry, bounds: Bounds, inherited: Mapping[int, Score], added: Added
) -> Sub[Accused]:
    """Transplant the error of each node that adds any, worst first, into the clean reference run;
    rank by what arrives."""
    asker = _Asker(ask, inherited, added, bounds.budget)
    nodes, quiet = _rank(asker, bounds)
    yield from _ask_alone(asker, nodes)
    if not asker.suspects:
        yield from _ask_with_producers(asker, nodes, bounds.levels)
    if not asker.suspects:
        yield from _ask_alone(asker, quiet)
    if not asker.suspects:
        yield from _ask_those_that_cure(asker, nodes[: bounds.injected], bounds.levels)
    return Accused(order_accused(asker.suspects), asker.verdicts, asker.left)


class _Asker:
    """Asks about one node after another as long as the budget lasts, and keeps what came of it."""

    def __init__(self, ask: Inquiry, inherited: Mapping[int, Score], added: Added, budget: int):
        self.ask, self.inherited, self.added, self.budget = ask, inherited, added, budget
        self.suspects: list[Suspect] = []
        self.verdicts: dict[int, str] = {}
        self.left = 0
        self._asked_for = 0  # suspects, with those that are asked for again in a larger group
        self._ahead = 0  # questions from the suspect at hand on, at most
        by_amount = sorted(added, key=lambda t: (self._amount_at(t), -t))
        self.worst = {
            ask.index.tensors[t].producer: t for t in by_amount
        }  # node -> its tensor that is furthest off

    def _amount_at(self, tensor: int) -> float:
        return badness(self.added[tensor][0], self.ask.criterion)

    def amount(self, node: int) -> float:
        """The largest error that it adds."""
        return self._amount_at(self.worst[node])

    def adds_enough(self, node: int) -> bool:
        """A tenth of what is allowed, at a node, is the least that could matter; below it lies the
        rounding of a right engine. (An error of less that grows on its way is looked for among the
        quiet ones.)"""
        names = {
            t: self.ask.index.tensors[t].name
            for t in self.ask.index.nodes[node].outputs
            if t in self.added
        }
        return any(
            self._amount_at(t) > limit(self.ask.criterion, name) / 10 for t, name in names.items()
        )

    def amplifies(self, node: int) -> bool:
        exact = self.added[self.worst[node]][1]
        return exact is not None and self.amount(node) > AMPLIFIES * max(
            badness(exact, self.ask.criterion), EXACT
        )

    def while_asked(
        self, of: Sequence[int], most: Callable[[int], int] = lambda _: 1
    ) -> Iterable[int]:
        """Those for which the budget is not spent yet. ``most``: how often one is asked about."""
        for at, n in enumerate(of):
            self._ahead = sum(map(most, of[at:]))
            if 0 < self.budget <= self._asked_for:
                self.left = max(self.left, len(of) - at)
                return
            yield n

    def expect(self) -> int:
        """Questions from here on, at most."""
        return self._ahead + _count_shares(self.ask, self.suspects)

    def measure(self, n: int, group: tuple[int, ...], at_least: float = SHARE) -> Sub[bool]:
        """Whether the error of its group is this part of the failure: then it is a suspect."""
        ask, index, criterion = self.ask, self.ask.index, self.ask.criterion
        text = f"does the error of {ask.names([n])[0]} reach the outputs?"
        # Where nobody was found to carry it yet, others are asked for afterwards.
        yield Note(
            text, expected=self.expect(), best=0, tried=self._asked_for, more=not self.suspects
        )
        self._asked_for += 1
        outputs = [t for t in index.nodes[n].outputs if t in self.added]
        candidate = ask.candidate(group, outputs=outputs)
        m: Measurement = yield from ask.repeated(
            lambda attempt: ask.ask(candidate, attempt=attempt), ask.verdict
        )
        verdict = ask.verdict(m)
        self.verdicts[n] = verdict.reason
        stored, exact = self.added[self.worst[n]]
        # What was fed was already infinite, and fed exactly the node is right: the culprit is
        # whoever made that value.
        fed_broken = (
            any(r.unrepresentable for r in m.results)
            and exact is not None
            and not over(exact, criterion)
        )
        if verdict.effect is None or fed_broken or not _moves_outputs(ask, m, at_least):
            return False
        inherited = self.inherited.get(self.worst[n])
        self.suspects.append(Suspect(
            node=n,
            tensor=self.worst[n],
            nodes=ranges.encode({*group, *(list_producers(index, [n]) if self.amplifies(n) else ())}),
            own=self.amount(n),
            effect=verdict.effect,
            name=ask.names([n])[0],
            inherited=badness(inherited, criterion) if inherited else 0.0,
            added=self.amount(n),
            added_exact=badness(exact, criterion) if exact is not None else None,
            nonfinite=stored.new_nonfinite > 0,
            own_places=places(stored, criterion),
            effect_places=verdict.effect_places,
        ))  # fmt: skip
        return True


def _rank(asker: _Asker, bounds: Bounds) -> tuple[list[int], list[int]]:
    """The nodes to ask about, the largest error first; and those that add too little by themselves
    and lead to the first bad tensor."""
    ask, worst = asker.ask, asker.worst
    ranked = sorted(
        (n for n in worst if asker.amount(n) > 0), key=lambda n: (-asker.amount(n), worst[n])
    )
    telling = {n for n in worst if asker.adds_enough(n)}
    leading = set(ask.index.ancestors(_first_bad(ask, asker.inherited)))
    quiet = [n for n in ranked if n in leading - telling]
    return [n for n in ranked if n in telling][: bounds.most_suspects], quiet[: bounds.quiet]


def _ask_alone(asker: _Asker, nodes: Sequence[int]) -> Sub[None]:
    for n in asker.while_asked(nodes):
        yield from asker.measure(n, (n,))


def _ask_with_producers(asker: _Asker, nodes: Sequence[int], levels: int) -> Sub[None]:
    """Nodes that amplify, with what made their inputs, up to so many steps back."""
    for n in asker.while_asked(nodes, lambda n: levels if asker.amplifies(n) else 0):
        group: tuple[int, ...] = (n,)
        for _ in range(levels if asker.amplifies(n) else 0):
            group = _with_producers(asker.ask.index, group)
            if (yield from asker.measure(n, group)):
                break


def _ask_those_that_cure(asker: _Asker, nodes: Sequence[int], levels: int) -> Sub[None]:
    """Nothing carries a tenth of the failure through a right engine: which node, given its true
    values, makes this one right?"""
    ask, criterion = asker.ask, asker.ask.criterion
    for n in asker.while_asked(nodes):
        yield Note(f"is the model right once {ask.names([n])[0]} is?", expected=asker.expect())
        outputs = {t for t in ask.index.nodes[n].outputs if t >= 0}
        cured = yield from asked(
            ask.whole(
                (ask.findings.sample,), patches=outputs | set(ranges.decode(ask.findings.patches))
            )
        )
        remains = judge.worst(judge.worst_run(cured, criterion).results, criterion)[2]
        if cured.status != "ok" or remains > max(
            limit(criterion, ""), SHARE * min(ask.signature.error, LARGE)
        ):
            continue
        group: tuple[int, ...] = (n,)
        for _ in range(levels):
            if (yield from asker.measure(n, group, at_least=0.0)):
                break
            group = _with_producers(ask.index, group)


def measure_shares(ask: Inquiry, suspects: Sequence[Suspect]) -> Sub[tuple[float, ...]]:
    """The part of the failure that each of PARTS stretches of the model, fed right values, brings
    to the outputs by itself; empty where one node stands for most of it, or where that cannot be
    told."""
    if not _count_shares(ask, suspects):
        return ()
    whole, nodes = min(ask.signature.error, LARGE), ask.everything
    shares = []
    for i in range(PARTS):
        part = nodes[i * len(nodes) // PARTS : (i + 1) * len(nodes) // PARTS]
        yield Note(f"how much of the error is made in part {i + 1} of {PARTS}?", expected=PARTS - i)
        m = yield from asked(ask.ask(ask.candidate(part)))
        effect = ask.verdict(m).effect
        if effect is None or any(r.unrepresentable for r in m.results):
            return ()
        shares.append(effect / whole)
    return tuple(shares)


def _count_shares(ask: Inquiry, suspects: Sequence[Suspect]) -> int:
    """Stretches of the model whose part in the failure is to be measured, as long as no more
    suspects than these are found."""
    whole = min(ask.signature.error, LARGE)
    told = ask.signature.nonfinite or any(
        s.effect > MOST * whole for s in order_accused(suspects)[:1]
    )
    return 0 if told or len(ask.everything) < 2 * PARTS else PARTS


def is_spread(shares: Sequence[float]) -> bool:
    return bool(shares) and max(shares) <= MOST and sum(s >= SOME for s in shares) >= PARTS / 2


def _first_bad(ask: Inquiry, inherited: Mapping[int, Score]) -> tuple[int, ...]:
    """The tensors over tolerance whose node reads none that is; the failing outputs where no tensor
    before them is over."""
    return (
        ask.index.first_of([t for t, score in inherited.items() if over(score, ask.criterion)])
        or ask.watched
    )


def _moves_outputs(ask: Inquiry, m: Measurement, at_least: float) -> bool:
    """Whether the transplanted error moves the outputs over tolerance, and by this part of e0."""
    results = [r for run in m.each_run for r in run]
    moved = [
        s
        for r in results
        for s in r.effect
        if s.name in ask.signature.outputs or not ask.signature.outputs
    ]
    worst = max((badness(s, ask.criterion) for s in moved), default=0.0)
    return any(over(s, ask.criterion) for s in moved) and worst >= at_least * min(
        ask.signature.error, LARGE
    )


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


def _with_producers(index: GraphIndex, group: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*group, *list_producers(index, group)}))
