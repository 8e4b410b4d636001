"""What is known of sets of nodes as workarounds, sample by sample: the oracle of
``engines.search.keep_fewest``. Each sample of each set is asked once."""

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.asking.question import Fed, Question
from narrowdown.engines.compare.judge import by_sample, use_up, worst
from narrowdown.engines.findings import Point
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import HUGE, Measurement
from narrowdown.engines.search.unseen import (
    Ask,
    Basis,
    Determined,
    join_answers,
    restrict,
    tell_apart,
)

NodeSet = tuple[int, ...]  # node ids, ascending
POINTS = 8  # of a curve, about: what a reader compares at a glance
# Of the height of a curve: where its bend lies less below the line between its ends, each node buys
# as much as any other. Chosen: what is told is a hint, and decides nothing.
BENT = 0.1


class KeptSets:
    """Answers about sets of nodes that are kept in FP32.

    ``everything`` that can be kept. ``margin``: tolerance over error that is aimed at. ``seen``: the
    samples that decide; none: all of them. ``basis``: what is known of the user's samples. ``near``:
    feed -> digest of the inputs that hold it, of samples that were made near the session's.
    ``spent``: how often a set was asked about. ``apart``: a row can be asked alone and is then what
    it is among others; where kernels are timed, each shape has its own.
    """

    def __init__(self, oracle: Oracle, everything: NodeSet, margin: float = 1.0) -> None:
        self.oracle, self.everything, self.margin = oracle, everything, margin
        self.near: dict[str, str] = {}
        self.seen: set[str] = set()
        self.basis = Basis()
        self.spent = 0
        self.apart = not oracle.times
        self._built: NodeSet | None = None
        self._answers: dict[NodeSet, dict[str, Measurement]] = {}  # by what was fed

    def use(
        self, keep: NodeSet, samples: Sequence[str], *, alone: bool = False
    ) -> Sub[Mapping[str, float] | None]:
        """What part of what is allowed each of these samples has, the worst of its runs; None where
        the set could not be run. Left out is what nobody can call right or wrong. ``alone``: rows
        may be fed by themselves."""
        fed = (self.fed(s) if alone and self.apart else s.partition("/")[0] for s in samples)
        m: Measurement = yield from self.measure(keep, tuple(dict.fromkeys(fed)))
        if m.status != "ok" or m.assumed:
            return None
        told = tell_apart(restrict(m, set(samples)), self.oracle.criterion, self.basis, self.margin)
        return {
            s: max(
                (use_up(score, self.oracle.criterion) for r in rows for score in r.outputs),
                default=0.0,
            )
            for s, rows in by_sample(told.counted).items()
        }

    def fed(self, sample: str) -> str:
        """What to feed for a sample by itself: its row alone where rows can be."""
        feed, _, row = sample.partition("/")
        # What is made near a feed has its rows.
        rows = any(s.rows for s in self.oracle.samples if s.id == feed or feed in self.near)
        return sample if row and rows else feed

    def measure(self, keep: NodeSet, feeds: tuple[str, ...], save: str = "") -> Sub[Measurement]:
        """The answer on all of these, which are what is fed."""
        known = self._answers.setdefault(keep, {})
        left = feeds if save else tuple(s for s in feeds if s not in known)
        if left:
            text = f"keeping {len(keep)} of {len(self.oracle.index.nodes)} nodes in FP32"
            yield Note(text)
            # What is asked of a set right after it was built costs no other build.
            self.spent += keep != self._built
            self._built = keep
        for inputs, part in self._by_inputs(left).items():
            m: Measurement = yield from self.elsewhere(keep, save)(inputs, part)
            # What was measured stands, though it could not be built once more to be kept.
            told = [s for s in part if not (save and s in known and m.status != "ok")]
            known.update({s: m if len(part) == 1 else _of_feed(m, s) for s in told})
            save = ""
        return join_answers([known[s] for s in feeds])

    def judged(self, m: Measurement) -> Determined:
        """Of the given samples those that were not set apart, and those that joined; whatever else
        was fed with them."""
        return tell_apart(self._deciding(m), self.oracle.criterion, self.basis)

    def _deciding(self, m: Measurement) -> Measurement:
        return restrict(m, self.seen) if self.seen and m.status == "ok" and not m.assumed else m

    def find_error(self, m: Measurement) -> float:
        """The worst that any sample that decides is wrong by."""
        counted = self.judged(m).counted
        runs = by_sample(counted if counted.results else self._deciding(m)).values()
        rows = [r for run in runs for r in run]
        return worst(rows, self.oracle.criterion)[2] if rows else HUGE

    def elsewhere(self, keep: NodeSet, save: str = "") -> Ask:
        """The question about this set that ``try_unseen`` asks of inputs of its own."""

        def ask(inputs: str, samples: tuple[str, ...]) -> Sub[Measurement]:
            answer = yield from self.oracle.ask(
                Question(fed=Fed(samples, inputs), keep=frozenset(keep), uncured=True, save=save)
            )
            return answer.measured

        return ask

    def list_sets(self) -> dict[NodeSet, Measurement]:
        """Every set that was asked about, with all that is known of it."""
        return {keep: join_answers(list(of.values())) for keep, of in self._answers.items() if of}

    def draw_curve(
        self, chosen: NodeSet, samples: Iterable[str], enough: float
    ) -> tuple[Point, ...]:
        """The sets that were asked about all of these samples that decide, fewest nodes first, each
        with less error than those before, and the chosen one. ``enough``: an error below which less
        gains nothing."""
        feeds = dict.fromkeys(s.partition("/")[0] for s in samples if s in self.seen)
        front: list[Point] = []
        for keep in sorted(self._answers, key=lambda k: (len(k), k != chosen)):
            m = join_answers(list(self._answers[keep].values()))
            if not self.knows(keep, feeds) or m.status != "ok":
                continue
            error, seconds = self.find_error(m), m.run_seconds if self.oracle.clocked else 0.0
            if keep == chosen or not front or error < front[-1].error:
                front.append(
                    Point(len(keep), error, seconds, keep == chosen, keep=ranges.encode(keep))
                )
        step = -(-len(front) // POINTS)
        shown = [p for i, p in enumerate(front) if p.chosen or i % step == 0 or p is front[-1]]
        bend = find_knee([(p.nodes, p.error) for p in shown], enough)
        return tuple(msgspec.structs.replace(p, knee=i == bend) for i, p in enumerate(shown))

    def knows(self, keep: NodeSet, feeds: Iterable[str]) -> bool:
        return set(feeds) <= set(self._answers.get(keep, ()))

    def _by_inputs(self, samples: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for s in samples:
            inputs = self.near.get(s.partition("/")[0], "")
            found[inputs] = (*found.get(inputs, ()), s)
        return found


def _of_feed(m: Measurement, fed: str) -> Measurement:
    """The part of an answer that is about what was fed under this name."""
    if m.status != "ok" or m.assumed:
        return m
    own = {
        r.sample
        for run in m.each_run
        for r in run
        if r.sample == fed or r.sample.startswith(f"{fed}/")
    }
    return msgspec.structs.replace(
        restrict(m, own), run_seconds=m.run_seconds * len(own) / max(1, len(m.results))
    )


def find_knee(points: Sequence[tuple[int, float]], enough: float) -> int | None:
    """The index of the knee of (nodes kept, error), fewest nodes first and each with less error
    than those before: the point that lies farthest below the line from the first to the last,
    errors by their order of magnitude. None where no point does."""
    x = [nodes for nodes, _ in points]
    y = [math.log10(max(enough, error)) for _, error in points]
    if len(points) < 3 or y[0] <= y[-1]:
        return None
    below = [
        (y[0] - b) / (y[0] - y[-1]) - (a - x[0]) / (x[-1] - x[0]) for a, b in zip(x, y, strict=True)
    ]
    best = max(range(len(below)), key=lambda i: below[i])
    return best if below[best] >= BENT else None
