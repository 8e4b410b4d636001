"""Does a workaround hold on samples that it was not made on? Given ones are set apart before the
search; more are made near them."""

import math
from collections.abc import Callable, Collection, Mapping

import msgspec

from narrowdown.engines.asking import Fed, Note, Question, Sub
from narrowdown.engines.asking.near import Near
from narrowdown.engines.asking.oracle import Oracle
from narrowdown.engines.compare.judge import (
    Criterion,
    by_sample,
    exceed,
    find_largest,
    list_slight,
    over,
    restrict,
    tighten_criterion,
    worst,
)
from narrowdown.engines.findings import Findings, Unseen, Workaround
from narrowdown.engines.probe import Measurement, is_given
from narrowdown.engines.search.determined import DRAWS, WITHIN

# Samples: of fewer that are given none is set apart, as a search needs what there is; and no fewer
# are made, of a model that takes long.
GIVEN = 8
WANTED = 32  # unseen samples: one that fails in ten is missed 3 times in 100
SECONDS = 60.0  # that a look beside the search may take, as far as that can be foretold
# A question about samples of inputs (a digest); as many probes as it takes.
Ask = Callable[[str, tuple[str, ...]], Sub[Measurement]]


class Determined(msgspec.Struct, frozen=True):
    """The measurement of those samples that are ``counted``, which of these fail (the worst first),
    and the others (``loose``): nobody can call them right or wrong, so no node is kept for them.
    They fail on nearly nothing only, or by no more than rounding of the inputs makes."""

    counted: Measurement
    missed: tuple[str, ...] = ()
    loose: frozenset[str] = frozenset()


NONE_MADE = Determined(Measurement())  # where none could be made or run


class Basis(msgspec.Struct, frozen=True):
    """What is known of the user's samples. ``plain``: the model's measurement as it is; ``held``:
    those that were set apart; ``scale``: beside what a value is nearly nothing (``find_scale``);
    ``noise``: what rounding makes of them (``measure_noise``)."""

    plain: Measurement = Measurement()
    held: frozenset[str] = frozenset()
    scale: Mapping[str, float] = {}
    noise: Mapping[str, float] = {}


class Tried(msgspec.Struct, frozen=True):
    """``failing``: the samples that it is not right on, the worst first; those of ``near`` among
    them are its own. ``counted``: the made samples that ``unseen`` counts; how many of them fail
    without the workaround ``count_plain`` asks."""

    unseen: Unseen = Unseen()
    failing: tuple[str, ...] = ()
    near: Near = Near()
    counted: tuple[str, ...] = ()


def set_apart(findings: Findings, samples: Collection[str]) -> frozenset[str]:
    """Of the samples that results name, those that the search must not see, where at least
    ``GIVEN`` were given: every second feed of those that no step before has singled out, with all
    of its rows; of a single feed every second such row."""
    signed = (findings.signature, findings.round_signature)
    met = (
        {c.case.sample for c in findings.culprits}
        | {s.sample for s in signed if s}
        | {findings.sample}
    )
    given = [s for s in samples if is_given(s)]
    if len(given) < GIVEN:
        return frozenset()
    # Rows of one feed may go alike (moments of a movement), so that one says little of what is
    # unseen where another was seen.
    feeds = tuple(dict.fromkeys(s.partition("/")[0] for s in given))
    if len(feeds) == 1:
        return frozenset([s for s in given if s not in met and feeds[0] not in met][::2])
    begun = {s.partition("/")[0] for s in met}
    apart = [feed for feed in feeds if feed not in begun][::2]
    return frozenset(s for s in given if s.partition("/")[0] in apart)


def join_answers(answers: list[Measurement]) -> Measurement:
    """Several measurements of different samples as one; the first that did not work where one did
    not; an empty one of none."""
    bad = next((m for m in answers if m.status != "ok" or m.assumed), None)
    if bad is not None or len(answers) < 2:
        return bad or next(iter(answers), Measurement())
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


def measure_noise(
    oracle: Oracle, samples: Collection[str], inputs: str = ""
) -> Sub[Mapping[str, float]]:
    """How far rounding of the inputs alone moves the reference's outputs on these samples, the
    worst of a few draws; nothing where that cannot be asked: whole numbers are not rounded."""
    feeds = tuple(dict.fromkeys(s.partition("/")[0] for s in samples))
    if not feeds or not any(oracle.index.tensors[t].floating for t in oracle.index.inputs):
        return {}
    answer = yield from oracle.ask(
        Question(fed=Fed(feeds, inputs, DRAWS, "inputs"), reference=True)
    )
    moved = by_sample(answer.measured) if answer.measured.status == "ok" else {}
    return {s: worst(rows, oracle.criterion)[2] for s, rows in moved.items() if s in samples}


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
    by no more than rounding makes: of a network with an epsilon that FP16 rounds to 0 two nodes
    cure 31 of 32 samples, and the last took eleven more, for an error of 22 % of nearly nothing."""
    if m.status != "ok" or m.assumed:
        return Determined(m, tuple(list_failing(m, rule)))
    strict, runs = tighten_criterion(rule, margin), by_sample(m)
    loose = {
        s
        for s, noise in basis.noise.items()
        if s in runs and exceed(runs[s], strict) and worst(runs[s], strict)[2] <= WITHIN * noise
    }
    if basis.scale:
        loose |= list_slight((r for run in m.each_run for r in run), rule, basis.scale, strict)
    counted = restrict(m, runs.keys() - loose)
    return Determined(counted, tuple(list_failing(counted, rule)), frozenset(loose))


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
    bare = list_failing(restrict(plain, by_sample(apart.counted)), rule)
    unseen = add_made(Unseen(joined=joined), apart, rule, plain=len(bare))
    unseen = msgspec.structs.replace(unseen, given=unseen.n)
    wanted = count_wanted(plain, len(basis.held))
    near, made = yield from try_made(oracle, question, wanted, len(plain.results), batch, basis)
    unseen = add_made(unseen, made, rule, plain=0)
    return Tried(unseen, (*apart.missed, *made.missed), near, tuple(by_sample(made.counted)))


def try_made(
    oracle: Oracle,
    question: Ask,
    wanted: int,
    rows: int,
    batch: int = 0,
    given: Basis | None = None,
) -> Sub[tuple[Near, Determined]]:
    """So many samples near the user's, which have so many ``rows``, and what ``question`` gives on
    those of them that are determined: a picture of nothing says nothing of a workaround. Nothing
    where none can be made or run. ``given``: what is known of the user's, whose scale holds."""
    rule, basis = oracle.criterion, Basis(scale=given.scale if given else {})
    near: Near = yield from oracle.near(wanted, batch, math.ceil(rows / max(1, len(oracle.feeds))))
    if not near.feeds:
        return near, NONE_MADE
    yield Note(f"the same on {len(near.feeds)} samples that are made near yours")
    m: Measurement = yield from question(near.inputs, near.feeds)
    if m.status != "ok" or m.assumed:
        return near, NONE_MADE
    noise: Mapping[str, float] = yield from measure_noise(
        oracle, tell_apart(m, rule, basis).missed, near.inputs
    )
    return near, tell_apart(m, rule, msgspec.structs.replace(basis, noise=noise))


def count_plain(oracle: Oracle, tried: Tried, *, refused: bool = False) -> Sub[Unseen]:
    """Its figures with how many of the made samples that are counted fail without the workaround:
    asked of what is told alone, as a search makes several times as many. ``refused``: without it
    the model is refused, or crashes, whatever is fed."""
    unseen = tried.unseen
    if refused:
        return msgspec.structs.replace(unseen, plain=unseen.n)
    if not tried.counted:
        return unseen
    plain: Measurement = yield from oracle.feed(tried.near.feeds, inputs=tried.near.inputs)
    known = restrict(plain, tried.counted) if plain.status == "ok" else Measurement()
    failing = len(list_failing(known, oracle.criterion))
    return msgspec.structs.replace(unseen, plain=unseen.plain + failing)


def add_made(unseen: Unseen, made: Determined, rule: Criterion, *, plain: int) -> Unseen:
    """The figures with those of made samples, of which ``plain`` fail without the workaround."""
    n = len(by_sample(made.counted))
    missed = restrict(made.counted, made.missed).each_run
    wrong = (s.name for run in missed for r in run for s in r.outputs if over(s, rule))
    return msgspec.structs.replace(
        unseen,
        ok=unseen.ok + n - len(made.missed),
        n=unseen.n + n,
        plain=unseen.plain + plain,
        undetermined=unseen.undetermined + len(made.loose),
        error=max(unseen.error, find_worst(made.counted, rule)),
        outputs=tuple(dict.fromkeys((*unseen.outputs, *wrong))),
    )


def find_worst(m: Measurement, rule: Criterion) -> float:
    """The worst error of any sample in any run; 0 where there is none."""
    rows = [r for run in by_sample(m).values() for r in run]
    return worst(rows, rule)[2] if rows else 0.0


def say_tried(cure: Workaround) -> str:
    """``8 of 8 tuning samples and 31 of 32 held-out samples pass``."""
    unseen = cure.unseen or Unseen()
    made = f"{cure.samples_ok} of {cure.samples_n} tuning samples"
    if not cure.samples_n:
        made = "no tuning sample tells"
    loose = cure.undetermined + unseen.undetermined
    close = f"; {loose} more are too close to call (rounding noise)" if loose else ""
    if not unseen.n:
        return f"{made}{' pass' if cure.samples_n else ''}; tried on no others{close}"
    generated = unseen.n - unseen.given
    kinds = f" ({unseen.given} yours, {generated} generated)" if generated else ""
    if not unseen.given:
        kinds = " (all generated near these)"
    more = f"{unseen.ok} of {unseen.n} held-out samples pass{kinds}"
    bare = f"; without it {unseen.plain} of the {unseen.n} fail"
    return f"{made}{' and' if cure.samples_n else ','} {more}{bare}{close}"
