"""What is known of sets of nodes as workarounds, sample by sample. Where only pass or fail matters
the sample that failed most often of late is asked alone first: a set that is too small mostly fails
there, and nothing else need be run."""

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.compare.criterion import Criterion, Verdict
from narrowdown.engines.compare.judge import by_sample, judge_whole, worst
from narrowdown.engines.probe import HUGE, Measurement
from narrowdown.engines.search.inquiry import Inquiry
from narrowdown.engines.search.pace import Pace
from narrowdown.engines.search.unseen import (
    find_noisy,
    find_slight,
    join_answers,
    list_failing,
    restrict,
)

NodeSet = tuple[int, ...]  # node ids, ascending
# What is left of a failure's weight when the next set is asked about: which sample is the hardest
# changes with what a search leaves out. Of magika's second workaround 408 to 414 measurements for
# 0.05 to 0.7, 421 for 0.8, 434 for 0.9 and 482 where none fades; the same sets.
FADING = 0.5


class Verdicts:
    """Verdicts that were reached, each by its set, its rule and what was fed. They stand while
    those are the same that decide (``by``, compared by identity) and the set is not measured again;
    whoever changes either need not know of this."""

    def __init__(self) -> None:
        self._by: tuple[object, ...] = ()
        self._of: dict[NodeSet, dict[bytes, dict[str, Verdict]]] = {}

    def of(self, keep: NodeSet, criterion: Criterion, by: tuple[object, ...]) -> dict[str, Verdict]:
        """What was fed -> the verdict, to be added to."""
        if len(by) != len(self._by) or any(a is not b for a, b in zip(by, self._by, strict=True)):
            self._by, self._of = by, {}
        return self._of.setdefault(keep, {}).setdefault(msgspec.json.encode(criterion), {})

    def forget(self, keep: NodeSet) -> None:
        """This set was measured again."""
        self._of.pop(keep, None)


class KeptSets:
    """Answers about sets of nodes that are kept in FP32, each sample of each set asked once.

    ``seen``: the samples that decide; none: all of them. ``scale``: beside what a value is nearly
    nothing (``find_scale``); ``noise``: what rounding makes of given samples (``measure_noise``).
    ``near``: feed -> digest of the inputs that hold it, of samples that were made near the
    session's. ``spent``: how often a set was asked about. ``pace``: how many are still to come.
    """

    def __init__(self, ask: Inquiry) -> None:
        self.ask = ask
        self.near: dict[str, str] = {}
        self.seen: frozenset[str] = frozenset()
        self.scale: Mapping[str, float] = {}
        self.noise: Mapping[str, float] = {}
        self.spent = 0
        self.pace = Pace()
        self._answers: dict[NodeSet, dict[str, Measurement]] = {}  # by what was fed
        self._failures: dict[str, float] = {}  # by what was fed
        self._verdicts = Verdicts()

    def measure(self, keep: NodeSet, samples: tuple[str, ...], save: str = "") -> Sub[Measurement]:
        """The answer on all of these samples, which are what is fed."""
        known = self._answers.setdefault(keep, {})
        left = samples if save else tuple(s for s in samples if s not in known)
        if left:
            yield from self._ask(keep, left, save)
        return join_answers([known[s] for s in samples])

    def measure_plain(self, feeds: tuple[str, ...]) -> Sub[Measurement]:
        """The answer on these given feeds with nothing kept. The session has run the model on all
        samples together, as a rule, so where one run of one build is what a verdict takes that is
        asked for: known, it costs nothing."""
        findings = self.ask.findings
        every = tuple(s.id for s in findings.samples)
        if findings.builds == findings.looks == 1 and set(feeds) < set(every):
            m: Measurement = yield from self._put((), findings.inputs, every)
            if m.status == "ok":
                self._learn((), {s: _of_feed(m, s) for s in feeds})
        return (yield from self.measure((), feeds))

    def passes(self, keep: NodeSet, criterion: Criterion, samples: tuple[str, ...]) -> Sub[Verdict]:
        """Whether the set is right on all of these samples; what fails before all were asked,
        fails."""
        known = self._answers.setdefault(keep, {})
        asked = [s for s in self._hardest_first(samples) if s in known]
        left = [s for s in self._hardest_first(samples) if s not in known]
        self.note_failing(())
        found = Verdict("unresolved", "different-outputs", detail="nothing was compared")
        # The others as one probe each of what is fed together, the harder first: where one fails
        # the rest need not be run.
        for part in (asked, left[:1], *self._by_inputs(left[1:]).values()):
            new = tuple(s for s in part if s not in known)
            if new:
                yield from self._ask(keep, new, again=new[0] != left[0])
            # Of a feed all of whose samples were set apart nothing is left.
            verdicts = {s: v for s in part if (v := self._judge(known[s], criterion)) is not None}
            for s, verdict in verdicts.items():
                self._failures[s] = self._failures.get(s, 0.0) + verdict.failed
            if (bad := next((v for v in verdicts.values() if v.failed), None)) is not None:
                return bad
            if (unclear := next((v for v in verdicts.values() if not v.passed), None)) is not None:
                return unclear
            found = next(iter(verdicts.values()), found)
        return found

    def note_failing(self, samples: Iterable[str]) -> None:
        """These were seen to fail, of what is fed: they are asked first. What failed before counts
        for less."""
        self._failures = {s: FADING * weight for s, weight in self._failures.items()}
        for s in samples:
            self._failures[s] = self._failures.get(s, 0.0) + 1

    def judged(self, m: Measurement, rule: Criterion | None = None) -> Measurement:
        """Of the given samples those that were not set apart, and those that joined; whatever else
        was fed with them. Less what is over the tolerance (or over ``rule``) on nearly nothing
        only, or by no more than rounding makes."""
        m = self._deciding(m)
        loose = self.list_slight(m, rule) | self.list_noisy(m, rule)
        return restrict(m, set(by_sample(m)) - loose) if loose else m

    def list_noisy(self, m: Measurement, rule: Criterion | None = None) -> frozenset[str]:
        """The samples that decide, but for that they are off by no more than rounding makes."""
        return find_noisy(self._deciding(m), rule or self.ask.criterion, self.noise)

    def list_slight(self, m: Measurement, rule: Criterion | None = None) -> frozenset[str]:
        """The samples that decide, but for that they fail on nearly nothing only."""
        return find_slight(self._deciding(m), self.ask.criterion, self.scale, rule)

    def _deciding(self, m: Measurement) -> Measurement:
        return restrict(m, self.seen) if self.seen and m.status == "ok" and not m.assumed else m

    def holds(self, m: Measurement, rule: Criterion) -> bool:
        """Whether nothing that decides speaks against a set."""
        verdict = self._judge(m, rule)
        return verdict is not None and verdict.passed

    def _judge(self, m: Measurement, rule: Criterion) -> Verdict | None:
        """None where no sample of it decides. Where nobody can call right or wrong what fails,
        nothing speaks against a set."""
        counted = self.judged(m, rule)
        if m.status != "ok" or m.assumed or counted.results:
            return judge_whole(counted, rule)
        return Verdict("pass") if self._deciding(m).results else None

    def find_error(self, m: Measurement) -> float:
        """The worst that any sample that decides is wrong by."""
        counted = self.judged(m)
        rows = [
            r
            for runs in by_sample(counted if counted.results else self._deciding(m)).values()
            for r in runs
        ]
        return worst(rows, self.ask.criterion)[2] if rows else HUGE

    def elsewhere(self, keep: NodeSet) -> Callable[[str, tuple[str, ...]], Sub[Measurement]]:
        """The question about this set that ``try_unseen`` asks of inputs of its own."""
        return lambda inputs, samples: self._put(keep, inputs, samples)

    def list_sets(self) -> dict[NodeSet, Measurement]:
        """Every set that was asked about, with all that is known of it."""
        return {keep: join_answers(list(of.values())) for keep, of in self._answers.items() if of}

    def knows(self, keep: NodeSet, samples: Iterable[str]) -> bool:
        return set(samples) <= set(self._answers.get(keep, ()))

    def is_short(self, keep: NodeSet, criterion: Criterion) -> bool:
        """Whether the set was seen not to do, on any sample."""
        return any(self._find_short(keep, criterion, self._answers.get(keep, ())))

    def list_short(
        self, keep: NodeSet, criterion: Criterion, fed: Iterable[str]
    ) -> tuple[str, ...]:
        """Of what is fed, that on which the set was seen not to do."""
        return tuple(self._find_short(keep, criterion, fed))

    def list_short_above(self, keep: NodeSet, criterion: Criterion) -> tuple[str, ...]:
        """That on which a set that holds all of this one was seen not to do; empty where none
        was."""
        inside = set(keep)
        above = (k for k in self._answers if len(k) > len(keep) and inside.issubset(k))
        return next(
            filter(None, (self.list_short(k, criterion, self._answers[k]) for k in above)), ()
        )

    def list_needed(self, keep: NodeSet, criterion: Criterion) -> frozenset[int]:
        """The nodes of the set without which a sample was seen to fail that passes with it, by this
        criterion."""
        judge = self._judge_once(keep, criterion)
        good = [s for s in self._answers.get(keep, {}) if judge(s).passed]
        without = {n: tuple(k for k in keep if k != n) for n in keep}
        return frozenset(
            n for n, less in without.items() if any(self._find_short(less, criterion, good))
        )

    def _find_short(self, keep: NodeSet, criterion: Criterion, fed: Iterable[str]) -> Iterator[str]:
        known, judge = self._answers.get(keep, {}), self._judge_once(keep, criterion)
        return (s for s in fed if s in known and judge(s).failed)

    def _judge_once(self, keep: NodeSet, criterion: Criterion) -> Callable[[str], Verdict]:
        """The verdict of a set on what was fed, by what is fed. A search asks the same of all sets
        that it has seen, time and again: beside an emulation, of 95 nodes and 30 samples, 101,000
        times about 10,400 verdicts."""
        known, verdicts = (
            self._answers.get(keep, {}),
            self._verdicts.of(keep, criterion, (self.seen, self.scale)),
        )

        def judge(fed: str) -> Verdict:
            if fed not in verdicts:
                verdicts[fed] = judge_whole(self.judged(known[fed], criterion), criterion)
            return verdicts[fed]

        return judge

    def list_failing(self, m: Measurement, criterion: Criterion) -> list[str]:
        """The samples that decide and are over tolerance, the worst first."""
        return list_failing(self.judged(m, criterion), criterion)

    def list_parts(self, samples: Iterable[str]) -> list[tuple[str, ...]]:
        """What is fed together of these samples, the harder first."""
        return list(self._by_inputs(self._hardest_first(samples)).values())

    def _hardest_first(self, samples: Iterable[str]) -> list[str]:
        return sorted(dict.fromkeys(samples), key=lambda s: -self._failures.get(s, 0.0))

    def _ask(
        self, keep: NodeSet, samples: tuple[str, ...], save: str = "", *, again: bool = False
    ) -> Sub[None]:
        """``again``: of a set that was asked about right before, whose build is still there."""
        text = f"keeping {len(keep)} of {len(self.ask.index.nodes)} nodes in FP32"
        yield Note(text, self.pace.expected, more=self.pace.more)
        self.spent += not again
        known = self._answers.setdefault(keep, {})
        for inputs, part in self._by_inputs(samples).items():
            m: Measurement = yield from self._put(keep, inputs, part, save)
            # What was measured stands, though it could not be built once more to be kept.
            told = [s for s in part if not (save and s in known and m.status != "ok")]
            self._learn(keep, {s: m if len(part) == 1 else _of_feed(m, s) for s in told})
            save = ""

    def _learn(self, keep: NodeSet, answers: Mapping[str, Measurement]) -> None:
        known = self._answers.setdefault(keep, {})
        if not known.keys().isdisjoint(answers):
            self._verdicts.forget(keep)
        known.update(answers)

    def _put(
        self, keep: NodeSet, inputs: str, samples: tuple[str, ...], save: str = ""
    ) -> Sub[Measurement]:
        ask = self.ask
        return (
            yield from ask.repeated(
                lambda attempt: ask.kept(samples, keep, save=save, attempt=attempt, inputs=inputs),
                lambda m: judge_whole(m, ask.criterion),
            )
        )

    def _by_inputs(self, samples: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for s in samples:
            inputs = self.near.get(s.partition("/")[0], self.ask.findings.inputs)
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
