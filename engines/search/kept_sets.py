"""What is known of sets of nodes as workarounds, sample by sample: the oracle of
``engines.search.keep_fewest``. Each sample of each set is asked once."""

from collections.abc import Mapping, Sequence

import msgspec

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.compare.judge import by_sample, use_up
from narrowdown.engines.probe import Measurement
from narrowdown.engines.search.unseen import (
    Ask,
    Basis,
    Determined,
    join_answers,
    restrict,
    tell_apart,
)

NodeSet = tuple[int, ...]  # node ids, ascending


class KeptSets:
    """Answers about sets of nodes that are kept in FP32.

    ``everything`` that can be kept. ``margin``: tolerance over error that is aimed at. ``seen``: the
    samples that decide; none: all of them. ``basis``: what is known of the user's samples. ``near``:
    feed -> digest of the inputs that hold it, of samples that were made near the session's.
    ``spent``: how often a set was asked about.
    """

    def __init__(self, oracle: Oracle, everything: NodeSet, margin: float = 1.0) -> None:
        self.oracle, self.everything, self.margin = oracle, everything, margin
        self.near: dict[str, str] = {}
        self.seen: set[str] = set()
        self.basis = Basis()
        self.spent = 0
        self._built: NodeSet | None = None
        self._answers: dict[NodeSet, dict[str, Measurement]] = {}  # by what was fed

    def use(self, keep: NodeSet, samples: Sequence[str]) -> Sub[Mapping[str, float] | None]:
        """What part of what is allowed each of these samples has, the worst of its runs; None where
        the set could not be run. Left out is what nobody can call right or wrong."""
        feeds = dict.fromkeys(s.partition("/")[0] for s in samples)
        m: Measurement = yield from self.measure(keep, tuple(feeds))
        if m.status != "ok" or m.assumed:
            return None
        rule = self.oracle.criterion
        told = tell_apart(restrict(m, set(samples)), rule, self.basis, self.margin)
        return {
            s: max((use_up(score, rule) for r in rows for score in r.outputs), default=0.0)
            for s, rows in by_sample(told.counted).items()
        }

    def measure(self, keep: NodeSet, feeds: Sequence[str]) -> Sub[Measurement]:
        """The answer on all of these, which are what is fed."""
        known = self._answers.setdefault(keep, {})
        left: dict[str, list[str]] = {}  # by the inputs that hold them
        for feed in feeds:
            if feed not in known:
                left.setdefault(self.near.get(feed, ""), []).append(feed)
        if left:
            yield Note(f"keeping {len(keep)} of {len(self.oracle.index.nodes)} nodes in FP32")
            # What is asked of a set right after it was built costs no other build.
            self.spent += keep != self._built
            self._built = keep
        for inputs, part in left.items():
            m: Measurement = yield from self.elsewhere(keep)(inputs, tuple(part))
            known.update({feed: m if len(part) == 1 else _of_feed(m, feed) for feed in part})
        return join_answers([known[feed] for feed in feeds])

    def judged(self, m: Measurement) -> Determined:
        """Of the given samples those that were not set apart, and those that joined; whatever else
        was fed with them."""
        deciding = self.seen and m.status == "ok" and not m.assumed
        return tell_apart(
            restrict(m, self.seen) if deciding else m, self.oracle.criterion, self.basis
        )

    def elsewhere(self, keep: NodeSet) -> Ask:
        """The question about this set that ``try_unseen`` asks of inputs of its own."""
        kept = frozenset(keep)
        return lambda inputs, samples: self.oracle.feed(
            samples, inputs=inputs, keep=kept, build=None
        )


def _of_feed(m: Measurement, fed: str) -> Measurement:
    """The part of an answer that is about what was fed under this name."""
    if m.status != "ok" or m.assumed:
        return m
    own = {s for s in by_sample(m) if s == fed or s.startswith(f"{fed}/")}
    return msgspec.structs.replace(
        restrict(m, own), run_seconds=m.run_seconds * len(own) / max(1, len(m.results))
    )
