"""What a step will cost before it runs, and how much is left while it does: its plan, priced by
this session's probes."""

import contextlib
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from narrowdown.engines.asking import Note, StepContext
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.graph.weight_files import list_weight_files
from narrowdown.engines.probe import AnyProbe, LoadInputs, Measurement, SampleInfo
from narrowdown.engines.search.cost import (
    CUTTING,
    SOON,
    WIDE,
    Cost,
    Kind,
    Plan,
    Size,
    Work,
    is_wide,
)
from narrowdown.engines.search.prices import (
    ENOUGH,
    LATELY,
    OTHERWISE,
    price_kept,
    price_plan,
    span_work,
)
from narrowdown.engines.search.timings import Seen, classify_probe, collect_seen
from narrowdown.engines.steps.base import StepSpec
from narrowdown.engines.store import regular
from narrowdown.engines.store.content import Store
from narrowdown.wizard.problem import CAPTURE_BYTES
from narrowdown.wizard.runner.drive import index_of, replayed, specs
from narrowdown.wizard.runner.ledger import asked_probe
from narrowdown.wizard.session import removal
from narrowdown.wizard.session.state import State, count_nodes, find_index

OVERRUN = 5  # a plan that is used up goes on with one more probe for each five that were answered
# Times the seconds that a step has taken, beyond its plan, that it takes still: of 602 looks at
# steps of every kind nine in ten were 0.01 to 1.7, and of 833 at searches 0.04 to 4; the middle
# 0.25 and 0.55 (docs/estimates.md).
BEYOND = 0.05, 2.2
# Times that mean that what follows takes, of nine searches of ten, and times the probes that its
# phase has foretold that come (docs/estimates.md): parts get smaller as a search goes on, and a
# phase is followed by a few checks.
AS_IT_WENT, FORETOLD = (0.6, 1.3), (0.85, 1.5)
# Times the least that the most of what is left is, from which no number is said while more may be
# found than was planned: with 4 of 48 numbers that were told after a tenth of a look at each layer
# 41 were near, so of 39 38.
SEARCHING = 3.0
# Times what the parts tell that a step has built where kernels are timed, what its others take. The
# first two are its part on the engine as it is and with its precision as an order; one that took
# less seconds found its timings done, and tells nothing.
OWN_CUTS, TRIED, DONE = (0.6, 1.6), 2, 0.25
# Of the dearest of its parts, what one took at the least whose kernels were timed for it; and times
# what such a one took that a fresh build of it does: 0.9 to 2.
TIMED, ANEW = 0.3, 1.25
# Effects of single layers after which the mean tells what the others take: of 34 looks after two or
# three, nine of ten came at
# 0.47 to 1.64 times that.
SOME = 2
# Times what a step took the last time that it takes at the least and at the most: of 120 on
# TensorRT 105 came between these. And the part of that which is left, at the least, where a number
# is told by it: after a quarter of the seconds 98 of 114 were near, after half of them 55 of 80
# (docs/estimates.md).
LIKE_LAST_TIME, STILL = (0.5, 2.0), 0.6


class Experience:
    """What the probes of one session took. Each is looked at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: dict[str, tuple[int, Seen | None]] = {}
        self._samples: tuple[SampleInfo, ...] = ()
        self._met: set[tuple[str, str, str]] = set()

    def of(self, state: State, ctx: StepContext) -> tuple[Seen, ...]:
        """In the order in which they were measured."""
        nodes = count_nodes(state, ctx.findings.model)
        for name, known in state.known.items():
            if name in self._found and self._found[name][0] == known.seq:
                continue
            probe = asked_probe(state, name, self._store)
            answer = (
                known.measurement or Measurement()
            )  # a large one lies in a file; its status was ok
            if isinstance(probe, LoadInputs) and not probe.base and answer.status == "ok":
                self._samples = tuple(msgspec.convert(answer.facts["samples"], list[SampleInfo]))
            took = ((probe, answer, known.seconds),) if probe is not None else ()
            new = collect_seen(took, ctx.engine, ctx.reference, self._samples, nodes, self._met)
            self._found[name] = (known.seq, new[0] if new else None)
        return tuple(s for name in state.known if (s := self._found[name][1]) is not None)


class Estimate(msgspec.Struct, frozen=True):
    """A step before it starts: what it will ask that is not known yet. ``plan`` None: nothing can
    be said. ``known``: what was, of all that it asks. ``blind``: the sizes of the model's tensors
    were not known then. ``last``: seconds that it took the last time that this problem was looked
    into, where it is told by that; else -1."""

    plan: Plan | None = None
    cost: Cost = Cost()
    slots: int = 1
    known: int = 0
    blind: bool = False
    last: float = -1.0

    @property
    def needed(self) -> int:
        """Bytes that the step cannot do without, at most; captured values are made again where they
        find no room. 0 where nothing is known."""
        return max(0, self.cost.disk - (self.plan.captured if self.plan else 0))


def estimate(
    spec: StepSpec[Any],
    ctx: StepContext,
    state: State,
    fingerprints: Mapping[str, str],
    store: Store,
    found: tuple[Seen, ...],
    slots: int,
) -> Estimate:
    """What the step is expected to ask and take. Never raises: an estimate must not stop a
    session."""
    try:
        finish, probe, known = replayed(spec, ctx, state, dict(fingerprints), store)
        size = _size(ctx, state, store)
        # Where only an engine is to be looked at first, what follows may all be known.
        met = probe is not None and all(name in fingerprints for name in specs(probe))
        if finish is not None:
            plan = Plan()
        else:
            whole = spec.plan(ctx, size)
            plan = _within(rest_of(whole, known) if met else whole.after(known), ctx, size)
        slots = 1 if spec.exclusive else slots
        cost = price_plan(plan, found, slots)
        if finish is None and not met:
            cost = msgspec.structs.replace(cost, least_probes=min(0, cost.least_probes))
        return Estimate(plan, cost, slots, known, size.index is None)
    except (
        Exception
    ):  # parameters that do not fit, an index that is gone: the step itself will say so
        return Estimate()


def look_again(
    made: Estimate, spec: StepSpec[Any], ctx: StepContext, state: State, store: Store
) -> Estimate:
    """The estimate as it would have been had the sizes of the model's tensors been known, once a
    step that runs has asked for them; its cost stays what was said before it ran. Never raises."""
    if not made.blind or made.plan is None or not find_index(state, ctx.findings.model):
        return made
    try:
        size = _size(ctx, state, store)
        plan = _within(rest_of(spec.plan(ctx, size), made.known), ctx, size)
    except Exception:
        return msgspec.structs.replace(made, blind=False)
    return msgspec.structs.replace(made, plan=plan, blind=False)


def rest_of(plan: Plan, known: int) -> Plan:
    """The plan without what is known. One that is used up by a step that is not through goes on as
    it does at work: "nothing has to run" would be wrong."""
    return (
        plan.after(known) if plan.probes > known or not known else plan.of(max(1, known // OVERRUN))
    )


def classify(probe: AnyProbe, ctx: StepContext, state: State) -> Kind | None:
    """What a probe of the step counts as."""
    return classify_probe(probe, ctx.engine, ctx.reference, count_nodes(state, ctx.findings.model))


class Rest(NamedTuple):
    """What is left of a step, the probe at work among it; -1 where nothing is known. ``seconds``:
    -1 too where they are known too little for one number, and lie between ``least`` and
    ``most``."""

    probes: int = -1
    seconds: float = -1.0
    least: float = -1.0
    most: float = -1.0


def estimate_rest(
    made: Estimate,
    found: tuple[Seen, ...],
    done: int,
    note: Note,
    waiting: float,
    at_work: Kind | None = None,
) -> Rest:
    """What is left, as ``_estimate_by_probes`` has it; where that is no number, by what the step
    took the last time, as long as most of that is left."""
    rest = _estimate_by_probes(made, found, done, note, waiting, at_work)
    spent = sum(s.seconds for s in found[max(0, len(found) - done) :]) + waiting
    if rest.seconds >= 0 or made.last <= 0 or made.last - spent < STILL * made.last:
        return rest
    least, most = (times * made.last - spent for times in LIKE_LAST_TIME)
    within = (
        min(s, note.limit - waiting) if note.limit else s for s in (made.last - spent, least, most)
    )
    return Rest(rest.probes, *(round(max(0.1, s), 1) for s in within))


def _estimate_by_probes(
    made: Estimate,
    found: tuple[Seen, ...],
    done: int,
    note: Note,
    waiting: float,
    at_work: Kind | None,
) -> Rest:
    """What is left. Of a step that has asked more than was planned and cannot tell what is left,
    what it took so far tells between which ends that lies: nothing counts down then.

    ``done``: probes answered in this run that were not known before. ``note``: what the step itself
    says, and how many it says are to come now. ``waiting``: seconds that the probe at work has
    taken so far; ``at_work``: its kind. Never 0 while a probe is at work.
    """
    if made.plan is None and note.expected < 0:
        return Rest()
    plan, own = made.plan or Plan(), found[max(0, len(found) - done) :]
    # What an emulation is asked comes among the questions to the engine, and what is said then is
    # of the emulation alone.
    beside = at_work == "emulated"
    asked = sum(s.kind == "emulated" for s in own)
    here, there = plan.only(emulated=False), plan.only(emulated=True)
    said, told = (-1, False) if beside else (note.expected, note.expected >= 0 and not note.more)
    rest = _count_rest(here, done - asked, said, least=0 if beside else 1, more=note.more)
    rest = Plan(
        _as_its_own(tuple(_as_it_went(work, here, found, done, told) for work in rest.works), own)
    )
    if note.runs:
        rest = Plan((Work("whole", rest.probes, runs=-(-note.runs // rest.probes), reused=True),))
    if note.kept and any(w.timed for w in rest.works):
        rest = Plan((price_kept(note.kept, found),))
    if beside or (there.works and not told):
        questions = _count_rest(
            there, asked, note.expected if beside else -1, least=int(beside), more=True
        )
        rest = Plan((*questions.works, *rest.works))
    whole, first = (
        price_plan(rest, found, made.slots),
        price_plan(_find_first(rest, at_work, found), found),
    )
    if not told and 0 < here.probes < done - asked:
        spent = sum(s.seconds for s in own) + waiting
        # What its phase has left is the least, where it says so.
        known = whole.least if note.expected >= 0 and whole.seconds >= 0 else 0.0
        most = max(BEYOND[1] * spent, whole.most if known else 0.0)
        beyond = (round(max(0.1, s), 1) for s in (max(BEYOND[0] * spent, known), most))
        return Rest(rest.probes, -1.0, *beyond) if spent else Rest(rest.probes)
    if whole.seconds < 0 or waiting > first.most + SOON:
        return Rest(rest.probes)
    # Of the probe at work the middle of what it may take still is left: that only gets less,
    # however long it takes.
    now = max(first.seconds - waiting, (first.most - waiting) / 2, 0.0)
    took = min(whole.seconds, max(0.0, whole.seconds - first.seconds) + now)
    least = max(0.0, whole.least - min(waiting, first.least))
    most = max(least, whole.most - min(waiting, first.most))
    # Where another phase may follow what is said is the least that comes.
    searches = any(w.open and w.probes for w in rest.works)
    vague = is_wide(least, most, SEARCHING if searches else WIDE) or (
        note.more and note.expected >= 0
    )
    ends = (-1.0 if vague else took, least, most)
    within = (min(s, note.limit - waiting) if note.limit else s for s in ends)
    return Rest(rest.probes, *(round(max(0.1, s), 1) if s >= 0 else -1.0 for s in within))


def _count_rest(plan: Plan, done: int, said: int, *, least: int, more: bool) -> Plan:
    """What is left of a plan, ``least`` probes of it or more. ``said``: how many the step says are
    to come, -1 where it does not; ``more``: these are the least."""
    left = max(plan.probes - done, done // OVERRUN)
    return _cut_to(plan, done, max(least, left if said < 0 else max(said, left) if more else said))


def _find_first(rest: Plan, at_work: Kind | None, found: tuple[Seen, ...]) -> Plan:
    """The probe at work: the first that is planned of its kind, where one is. It is one, however
    many may follow."""
    planned = [w for w in rest.works if w.probes]
    like = next((w for w in planned if w.kind == at_work), planned[0] if planned else None)
    if like is None:
        return Plan()
    return Plan(
        (msgspec.structs.replace(like, probes=1, least=-1, most=-1, span=span_work(like, found)),)
    )


def _cut_to(plan: Plan, done: int, probes: int) -> Plan:
    """So many probes of what is left of the plan; where that has fewer, more of what it searches
    by."""
    rest = plan.after(done)
    if probes <= rest.probes:
        return rest.of(probes)
    more = probes - rest.probes
    if (still := next((w for w in rest.works if w.open and w.probes), None)) is not None:
        longer = still.prolong(still.probes + more)
        return Plan(tuple(longer if w is still else w for w in rest.works))
    search = next(
        (w for w in plan.works if w.open and w.probes),
        plan.works[-1] if plan.works else Work("part"),
    )
    return Plan((search.cut(more) if more <= search.probes else search.prolong(more), *rest.works))


def _as_it_went(work: Work, plan: Plan, found: tuple[Seen, ...], done: int, told: bool) -> Work:
    """A search goes on as it went so far: more samples may have joined it, which every probe of it
    runs then, or only some do. ``told``: its phase has told how many are left."""
    if not work.open:
        return work
    if told and work.highest <= 1:  # its phase tells that it comes
        return msgspec.structs.replace(work, least=-1, most=-1)
    before = sum(
        w.probes for w in plan.works[: next((i for i, w in enumerate(plan.works) if w.open), 0)]
    )
    own = [s for s in found[len(found) - done :][before:] if s.kind == work.kind]
    span = span_work(work, found)
    if len(own) >= (SOME if told and work.kind == "effect" else ENOUGH):
        mean = statistics.fmean(s.seconds for s in own[-LATELY:])
        work, span = msgspec.structs.replace(work, told=mean), AS_IT_WENT
    elif told:
        span = OTHERWISE
    if not told:
        return msgspec.structs.replace(work, span=span)
    span = span[0] * FORETOLD[0], span[1] * FORETOLD[1]
    return msgspec.structs.replace(work, least=-1, most=-1, span=span)


def _as_its_own(works: tuple[Work, ...], own: Sequence[Seen]) -> tuple[Work, ...]:
    """Where kernels are timed, parts as those that this very step has built, once it is through
    with its search: they hold the same nodes. What it built last tells most, but for what found all
    of its timings done."""
    cuts = [s for s in own if s.kind in CUTTING and not s.broke]
    built = [s.seconds for s in cuts if not s.reused]
    if len(cuts) < TRIED or max(built, default=0.0) < DONE or any(w.open for w in works):
        return works
    last = next(s for s in reversed(built) if s >= max(built) * TIMED)
    return tuple(
        msgspec.structs.replace(w, told=w.times * last * (ANEW if w.afresh else 1.0), span=OWN_CUTS)
        if w.timed and w.kind in CUTTING
        else w
        for w in works
    )


def _within(plan: Plan, ctx: StepContext, size: Size) -> Plan:
    """The plan with no more captured values than their budget has room for."""
    budget = ctx.problem.capture_bytes if ctx.problem.capture_bytes >= 0 else CAPTURE_BYTES
    over = max(0, plan.captured - max(0, budget - size.captured))
    disk = max(0, plan.disk - over) if plan.disk >= 0 else -1
    return msgspec.structs.replace(plan, disk=disk, captured=plan.captured - over)


def _size(ctx: StepContext, state: State, store: Store) -> Size:
    held = removal.weight(store.captures), removal.weight(store.models)
    return Size(
        count_nodes(state, ctx.findings.model),
        _index(ctx, state, store),
        *held,
        model_bytes(Path(ctx.problem.model)),
    )


def model_bytes(path: Path) -> int:
    """Bytes of a model's file and of the weights files that it names, none of them read; -1 where
    it cannot be looked at."""
    try:
        total, weights = regular.size(path), list_weight_files(path)
    except (OSError, ValueError):
        return -1
    for file in weights:
        with contextlib.suppress(OSError, ValueError):
            total += file.stat().st_size
    return total


def _index(ctx: StepContext, state: State, store: Store) -> GraphIndex | None:
    """The working model's graph, with the shapes of a reference run, where a step has asked for
    it."""
    digest = find_index(state, ctx.findings.model)
    return index_of(store.root, digest) if digest else None
