"""Does a workaround hold on samples that it was not made on? Given ones are set apart before the
search; more are made near them."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

import msgspec

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.answer import NOTHING as UNASKED
from narrowdown.engines.asking.near import Near
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.asking.question import Fed, Question
from narrowdown.engines.compare.criterion import Criterion, tighten_criterion
from narrowdown.engines.compare.judge import by_sample, exceed, find_largest, list_slight, worst
from narrowdown.engines.findings import Findings, Unseen
from narrowdown.engines.probe import Measurement, SampleResult, is_given
from narrowdown.engines.search.determined import DRAWS, WITHIN

BATCHES = 4  # given, from which on whole ones are set apart
# Samples: of fewer that are given none is set apart, as a search needs what there is; and no fewer
# are made, of a model that takes long.
GIVEN = 8
WANTED = 32  # unseen samples: one that fails in ten is missed 3 times in 100
SECONDS = 60.0  # that a look beside the search may take, as far as that can be foretold
NOTHING: Mapping[str, float] = MappingProxyType({})  # beside which no value is nearly nothing
# A question about samples of inputs (a digest); as many probes as it takes.
Ask = Callable[[str, tuple[str, ...]], Sub[Measurement]]


class Determined(msgspec.Struct, frozen=True):
    """Of samples that were made: the measurement of those that are ``counted``, which of these fail
    (the worst first), those that are not determined (``loose``), and those that fail on nearly
    nothing (``slight``)."""

    counted: Measurement
    missed: tuple[str, ...] = ()
    loose: frozenset[str] = frozenset()
    slight: frozenset[str] = frozenset()


class Basis(msgspec.Struct, frozen=True):
    """What is known of the user's samples. ``plain``: the model's measurement as it is; ``held``:
    those that were set apart; ``scale``: beside what a value is nearly nothing (``find_scale``);
    ``noise``: what rounding makes of them (``measure_noise``)."""

    plain: Measurement = Measurement()
    held: frozenset[str] = frozenset()
    scale: Mapping[str, float] = NOTHING
    noise: Mapping[str, float] = NOTHING


class Tried(msgspec.Struct, frozen=True):
    """``failing``: the samples that it is not right on, the worst first; those of ``near`` among
    them are its own. ``loose``: those that nobody can call right or wrong. ``counted``: the made
    samples that ``unseen`` counts; how many of them fail without the workaround ``count_plain``
    asks."""

    unseen: Unseen = Unseen()
    failing: tuple[str, ...] = ()
    near: Near = Near()
    loose: frozenset[str] = frozenset()
    counted: tuple[str, ...] = ()


def set_apart(findings: Findings, samples: Collection[str]) -> frozenset[str]:
    """Of the samples that results name, those that the search must not see: every second, by
    position, of those that no step before has singled out, where at least ``GIVEN`` were given; of
    rows in ``BATCHES`` and more, those of every second batch."""
    signed = (findings.signature, findings.round_signature)
    met = (
        {c.case.sample for c in findings.culprits}
        | {s.sample for s in signed if s}
        | {findings.sample}
    )
    given = [s for s in samples if is_given(s)]
    free = [s for s in given if s not in met and s.partition("/")[0] not in met]
    if len(given) < GIVEN:
        return frozenset()
    # Rows of one batch may go alike (moments of a movement), so that one says little of what is
    # unseen where another was seen.
    feeds = tuple(dict.fromkeys(s.partition("/")[0] for s in given))
    if len(feeds) < BATCHES:
        return frozenset(free[::2])
    begun = {s.partition("/")[0] for s in met}
    whole = set([feed for feed in feeds if feed not in begun][::2])
    return frozenset(s for s in free if s.partition("/")[0] in whole)


def restrict(m: Measurement, samples: Collection[str]) -> Measurement:
    """The measurement of these samples alone."""

    def chosen(run: Iterable[SampleResult]) -> tuple[SampleResult, ...]:
        return tuple(r for r in run if r.sample in samples)

    return msgspec.structs.replace(m, results=chosen(m.results), runs=tuple(map(chosen, m.runs)))


def join_answers(answers: list[Measurement]) -> Measurement:
    """Several measurements of different samples as one; the first that did not work where one did
    not."""
    bad = next((m for m in answers if m.status != "ok" or m.assumed), None)
    if bad is not None or len(answers) == 1:
        return bad or answers[0]
    return msgspec.structs.replace(
        answers[0],
        results=tuple(r for m in answers for r in m.results),
        runs=tuple(run for m in answers for run in m.runs),
        run_seconds=sum(m.run_seconds for m in answers),
    )


def find_scale(plain: Measurement, criterion: Criterion) -> Mapping[str, float]:
    """The largest value of each output on the given samples, which tells what is nearly nothing
    beside it; empty where the model as it is fails on nearly nothing only, so that this is what a
    cure is looked for."""
    results = [r for run in plain.each_run for r in run]
    failing = {r.sample for r in results if exceed((r,), criterion)}
    return find_largest(results) if failing - list_slight(results, criterion) else {}


def find_slight(
    m: Measurement,
    criterion: Criterion,
    scale: Mapping[str, float],
    strict: Criterion | None = None,
) -> frozenset[str]:
    """The samples that fail, by ``strict`` where that is given, on nearly nothing beside ``scale``.
    Nobody can call these right or wrong, so no node is kept for them: of a network with an epsilon
    that FP16 rounds to 0 two nodes cure 31 of 32 samples, and the last took eleven more, for an
    error of 22 % of nearly nothing."""
    if not scale or m.status != "ok" or m.assumed:
        return frozenset()
    return list_slight((r for run in m.each_run for r in run), criterion, scale, strict)


def _jitter(oracle: Oracle, feeds: tuple[str, ...], inputs: str = "") -> Sub[Measurement]:
    """The reference held against itself with inputs that are rounded otherwise, the worst of a few
    draws; not ok where that cannot be asked."""
    if not feeds or not any(oracle.index.tensors[t].floating for t in oracle.index.inputs):
        return UNASKED
    fed = Fed(feeds, inputs, DRAWS, "inputs")
    answer = yield from oracle.ask(Question(fed=fed, reference=True))
    return answer.measured


def measure_noise(oracle: Oracle, samples: Collection[str]) -> Sub[Mapping[str, float]]:
    """How far rounding of the inputs alone moves the reference's outputs on these samples of the
    session's, the worst of a few draws; nothing where that cannot be asked."""
    fed = tuple(dict.fromkeys(s.partition("/")[0] for s in samples))
    moved: Measurement = yield from _jitter(oracle, fed)
    if moved.status != "ok":
        return {}
    return {
        s: worst(rows, oracle.criterion)[2] for s, rows in by_sample(moved).items() if s in samples
    }


def find_noisy(m: Measurement, criterion: Criterion, noise: Mapping[str, float]) -> frozenset[str]:
    """The samples that are off by no more than rounding makes (``measure_noise``): boxes sorted by
    scores that tie. No node is kept for them either."""
    if not noise or m.status != "ok" or m.assumed:
        return frozenset()
    failing = (
        (s, rows) for s, rows in by_sample(m).items() if s in noise and exceed(rows, criterion)
    )
    return frozenset(s for s, rows in failing if worst(rows, criterion)[2] <= WITHIN * noise[s])


def list_failing(m: Measurement, criterion: Criterion) -> list[str]:
    """The samples that are over tolerance in any run, the worst first."""
    errors = {
        s: worst(runs, criterion)[2] for s, runs in by_sample(m).items() if exceed(runs, criterion)
    }
    return sorted(errors, key=lambda s: -errors[s])


def count_wanted(plain: Measurement, held: int) -> int:
    """How many samples to make: as many as ``WANTED`` wants beside those that are ``held``, fewer
    where running takes long."""
    each = plain.run_seconds / max(1, len(plain.results))
    most = max(GIVEN, min(WANTED, int(SECONDS / each))) if each > 0 else WANTED
    return max(0, most - held)


def tell_apart(m: Measurement, rule: Criterion, basis: Basis, margin: float = 1.0) -> Determined:
    """The measurement without those that fail (with ``margin`` to spare) on nearly nothing only, or
    by no more than rounding makes."""
    strict = tighten_criterion(rule, margin)
    slight = find_slight(m, rule, basis.scale, strict)
    noisy = find_noisy(m, strict, basis.noise) - slight
    counted = restrict(m, set(by_sample(m)) - slight - noisy) if slight or noisy else m
    return Determined(counted, tuple(list_failing(counted, rule)), noisy, slight)


def try_unseen(
    oracle: Oracle,
    question: Ask,
    given: Measurement,
    basis: Basis,
    batch: int = 0,
    joined: int = 0,
) -> Sub[Tried]:
    """The workaround of ``question`` on what it was not made on. ``given``: its measurement on all
    of the user's samples. ``joined``: samples that joined the search."""
    rule, plain = oracle.criterion, basis.plain
    apart = tell_apart(restrict(given, basis.held), rule, basis)
    n = len(by_sample(apart.counted))
    right = n - len(apart.missed)
    each = math.ceil(len(plain.results) / max(1, len(oracle.feeds)))
    near: Near = yield from oracle.near(count_wanted(plain, len(basis.held)), batch, each)
    unseen = Unseen(
        right,
        n,
        n,
        right,
        plain=len(list_failing(restrict(plain, by_sample(apart.counted)), rule)),
        undetermined=len(apart.loose),
        joined=joined,
        error=find_worst(apart.counted, rule),
        slight=len(apart.slight),
    )
    loose = apart.loose | apart.slight
    m = UNASKED
    if near.feeds:
        yield Note(f"does it hold on {len(near.feeds) * each} samples that it was not made on?")
        m = yield from question(near.inputs, near.feeds)
    if m.status != "ok":
        return Tried(unseen, apart.missed, loose=loose)
    made: Determined = yield from count_determined(oracle, near, m, basis.scale)
    return Tried(
        add_made(unseen, made, rule, plain=0),
        (*apart.missed, *made.missed),
        near,
        loose | made.loose | made.slight,
        tuple(by_sample(made.counted)),
    )


def count_plain(oracle: Oracle, tried: Tried, unseen: Unseen) -> Sub[Unseen]:
    """The figures with how many of the made samples that are counted fail without the workaround:
    asked of what is told alone, as a search makes several times as many."""
    if not tried.counted:
        return unseen
    plain: Measurement = yield from oracle.feed(tried.near.feeds, inputs=tried.near.inputs)
    known = restrict(plain, tried.counted) if plain.status == "ok" else Measurement()
    failing = len(list_failing(known, oracle.criterion))
    return msgspec.structs.replace(unseen, plain=unseen.plain + failing)


def count_determined(
    oracle: Oracle, near: Near, m: Measurement, scale: Mapping[str, float] = NOTHING
) -> Sub[Determined]:
    """What the measurement of the made samples says of the determined ones among them."""
    rule = oracle.criterion
    slight = find_slight(m, rule, scale)
    over = [s for s in list_failing(m, rule) if s not in slight]
    loose: frozenset[str] = yield from find_undetermined(oracle, near, m, over)
    counted = restrict(m, set(by_sample(m)) - loose - slight)
    return Determined(counted, tuple(s for s in over if s not in loose), loose, slight)


def add_made(unseen: Unseen, made: Determined, rule: Criterion, *, plain: int) -> Unseen:
    """The figures with those of made samples, of which ``plain`` fail without the workaround."""
    n = len(by_sample(made.counted))
    return msgspec.structs.replace(
        unseen,
        ok=unseen.ok + n - len(made.missed),
        n=unseen.n + n,
        plain=unseen.plain + plain,
        undetermined=unseen.undetermined + len(made.loose),
        slight=unseen.slight + len(made.slight),
        error=max(unseen.error, find_worst(made.counted, rule)),
    )


def find_undetermined(
    oracle: Oracle, near: Near, m: Measurement, over: list[str]
) -> Sub[frozenset[str]]:
    """Of the made samples that fail, those that rounding of the inputs moves as far in the
    reference itself: a picture of nothing says nothing of a workaround. Rows that can be fed alone
    are; whole numbers are not rounded."""
    alone = any(s.rows for s in oracle.samples)
    fed = over if alone else dict.fromkeys(s.partition("/")[0] for s in over)
    moved: Measurement = yield from _jitter(oracle, tuple(fed), near.inputs)
    if moved.status != "ok":
        return frozenset()
    rule, by, off = oracle.criterion, by_sample(moved), by_sample(m)
    return frozenset(
        s for s in over if s in by and worst(off[s], rule)[2] <= WITHIN * worst(by[s], rule)[2]
    )


def find_worst(m: Measurement, rule: Criterion) -> float:
    """The worst error of any sample in any run; 0 where there is none."""
    rows = [r for run in by_sample(m).values() for r in run]
    return worst(rows, rule)[2] if rows else 0.0


def say_tried(ok: int, n: int, unseen: Unseen | None, slight: int = 0, noisy: int = 0) -> str:
    """``8 of 8 tuning samples and 31 of 32 held-out samples pass``. Of
    those that it was made on, not counted: ``slight`` that fail on nearly nothing, ``noisy`` that
    rounding moves as far."""
    made = f"{ok} of {n} tuning samples" if n else "no tuning sample tells"
    nothing = slight + (unseen.slight if unseen else 0)
    few = (
        f"; {nothing} more {'is' if nothing == 1 else 'are'} off on nearly nothing only"
        if nothing
        else ""
    )
    loosely = noisy + (unseen.undetermined if unseen else 0)
    loose = f"; {loosely} more are not determined to this tolerance" if loosely else ""
    if unseen is None or not unseen.n:
        return f"{made}{' pass' if n else ''}; tried on no others{loose}{few}"
    kinds = (
        "all generated near these"
        if not unseen.given
        else f"{unseen.given} yours, {unseen.n - unseen.given} generated"
        if unseen.given < unseen.n
        else ""
    )
    more = f"{unseen.ok} of {unseen.n} held-out samples pass{f' ({kinds})' if kinds else ''}"
    bare = f"; without it {unseen.plain} of the {unseen.n} fail"
    return f"{made}{' and' if n else ','} {more}{bare}{loose}{few}"
