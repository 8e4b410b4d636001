"""What a plan will take: its probes, priced by what probes of their kind have taken in this
session.

What each takes is never guessed from the model alone: where no probe has been measured yet, seconds
are unknown.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from narrowdown.engines.search.cost import (
    CUTTING,
    WIDE,
    Cost,
    Kind,
    Plan,
    Span,
    Work,
    settle_between,
)
from narrowdown.engines.search.timings import Seen

# Probes of a kind that its price is taken from: a machine is busier now than it was before. Chosen,
# not measured: a median of fewer follows one slow probe.
RECENT = 8
# Of a search's own kinds the mean, from so many on and of so many of the latest: a few of each ten
# are large and take most of the time, which a middle one does not show.
ENOUGH, LATELY = 8, 32
SEARCHED = (*CUTTING, "emulated")
# Seconds of a probe beside its build that do not grow with its rows, but half of those at most.
# Five looks at 4 to 9 rows beside 28 and 32 of the same model: 0.5 to 1.3 of what came is told so,
# and 0.25 to 0.5 by the square root of the rows.
ONCE = 0.1
MOSTLY_BUILT = 0.8
# Bytes that a probe leaves in the journal, in its log and among the artifacts, at most: 3 to 10 KiB
# came (docs/estimates.md).
LINE = 8 << 10
# What a later build of the whole model takes of a first one that was dear, where an engine times
# kernels and keeps what it timed:
# 0.2 to 0.7 s after 12 s on small models, 1.1 to 2.5 s after 24 to 115 s on a transformer, 1.3 and
# 1.8 after 73 and 82, 4 to 9 after 380 to 466 s on CNNs (TensorRT 10.6): so many seconds, and this
# part of the first.
LEAST = 0.3
LATER = 1 / 65
# Where kernels are timed, the first build with nodes kept in higher precision: seconds, a part of
# the first build of all, and seconds for each node. Of 21 such builds of five models, of 2, 4 and
# 20 nodes, 20 came within a factor of two, or a second.
FIRST_KEPT, FIRST_KEPT_SPAN = (0.5, 1 / 120, 0.35), (0.7, 1.6)
# Seconds of a part's build, where kernels are timed and no part was built yet: 0.2 to 0.9 on five
# models, 1.2 to 3 on three. Where the whole was built again so many, and this part of the latest of
# those: of some 35 steps on nine models, by hand, the first part took 0.35 to 2.2 times that. Once
# some were built, whether for what they do by themselves or to the outputs, these tell what
# follows.
CUT, CUT_SPAN, CUT_TOLD = 0.6, (0.25, 5.0), (0.4, 3.0)
CUT_LEAST, CUT_LATER, CUT_LATER_SPAN = 0.4, 0.2, (0.35, 2.2)
# Times their price that the probes of a search take at the least, and at the most, where more
# samples join it: magika's took 0.4 to 3.8 times that in three searches, others 0.6 to 2.8.
CHEAP, JOINED = 0.7, 2.0
# Power of the times that the most of a search is its middle: as independent errors are, 20 of 123
# steps came beyond their ends, 13 of them by less than this; those that ask the most have mostly
# the dearest probes.
LONGER = 1.25
# Times its price that a probe takes at the least and at the most, by how the price is known: with
# these nine of ten steps came between their ends on 54 sessions on CPU engines and 34 on TensorRT
# (docs/estimates.md). Of a kind that was measured on as many rows, so often; or more seldom, or on
# up to so many times more or fewer rows.
OFTEN, FAR = 3, 4
MEASURED, SELDOM = (0.6, 1.8), (0.55, 1.9)
# Of one that was measured on other rows still, or only otherwise: repeated, afresh, with the
# reference's values missing, refused.
OTHERWISE = (0.3, 3.3)
# Of a reading; of what other means tell; of a kind that is priced beside another.
READ, TOLD, BESIDE_IT = (0.3, 3.0), (0.5, 2.0), (0.2, 8.0)
# Seconds that a probe may take beside that: scores, messages, files. Where a model answers in a few
# thousandths of a second they are most of it. Effects are priced with them.
BESIDES = 0.02
# Where none of a kind has been measured: about so many times what the first of these takes that
# was, one row at a time. Seen on magika, sort, shapes, a quantized network, ResNet-50, BERT and
# detectors, beside the whole model: watched 1.5 to 11, alone 1 to 26, a part 0.1 to 0.4, an effect
# 0.04 to 0.7, other 0.3 to 4. The first look at the whole model beside the reference alone: 4 to 8
# on seven; where kernels are timed, nothing tells.
BESIDE: Mapping[Kind, tuple[tuple[Kind, float], ...]] = {
    "whole": (("control", 5.0),),
    "watched": (("whole", 4.0),),
    "alone": (("watched", 1.5), ("whole", 4.5)),
    "part": (("effect", 0.4), ("whole", 0.15)),
    "effect": (("part", 2.5), ("whole", 0.15)),
    "control": (("whole", 1.0),),
    "other": (("whole", 1.0), ("control", 3.0)),
    "emulated": (("other", 1.0), ("control", 3.0)),
}
# Of a model on a CPU engine, what a look at all of its nodes takes beside what the whole takes, and
# seconds for each node more, to score what it makes: sort, a keyword spotter, a filter bank and a
# classifier, of 37 to 258 nodes, took 0.7 to 1.6 times that, and magika, whose tensors are large,
# up to 4.
LOOKED_INTO, NODE = 1.5, 0.001
# Where the sizes of its tensors are known: a run of the reference, that for each node, and seconds
# for each byte: 36 of 40 first looks came within a factor of two (0.5 to 3.3), and the same nodes
# alone took 0.45 to 1.7 times as long, mostly 0.9.
BYTE, BY_ITSELF = 15e-9, 0.9
# An effect there, before any was measured: seconds, and of a run of the reference. All of 38 models
# came within a factor of two.
EFFECT, OF_REFERENCE = 0.01, 0.6
# How far off these are, of nine of ten: the first look, the same nodes alone once they were
# watched, and effects.
LOOKED, ALONE, FELT = (0.55, 2.0), (0.6, 1.6), (0.55, 1.6)


def price_plan(plan: Plan, seen: Sequence[Seen], slots: int = 1) -> Cost:
    """The plan, priced. ``slots``: probes at a time; a search that runs ahead on n of them is about
    1 + log2(n) / 5 times as fast (campaigns/benchmarks.md: 1.3 on 2 slots, 1.5 on 4, 1.6 on 8), as most
    of what runs ahead is not asked for."""
    built = [w for w in plan.works if w.kind not in ("import", "read", "emulated")]
    least, seconds, most = _price_works(plan.works, seen, slots)
    firsts = [s.build_seconds for s in seen if s.first] if seconds < 0 else []
    searches = any(w.open for w in plan.works)
    return Cost(
        probes=plan.probes,
        builds=sum(w.probes for w in built),
        runs=sum(w.probes * w.runs * max(1, w.rows) for w in built),
        seconds=settle_between(seconds, least, most) if seconds >= 0 else -1.0,
        disk=plan.disk + LINE * plan.probes if plan.disk >= 0 else -1,
        unit=round(max(firsts, default=-1.0), 1),
        least=least,
        most=most,
        least_probes=min(1, plan.probes) if searches else -1,
        most_probes=sum(w.highest for w in plan.works) if searches else -1,
        each=_price_each([w for w in plan.works if w.open] or plan.works, seen),
    )


def _price_each(works: Sequence[Work], seen: Sequence[Seen]) -> float:
    """Seconds of one of these probes, where all are known well enough for one number."""
    works = [w for w in works if w.probes]
    if not works or any(high > WIDE * low for low, high in (_span_of_kind(w, seen) for w in works)):
        return -1.0
    return round(sum(price_work(w, seen) or 0.0 for w in works) / sum(w.probes for w in works), 3)


def _price_works(
    works: Iterable[Work], seen: Sequence[Seen], slots: int
) -> tuple[float, float, float]:
    """Seconds of all of them: at the least, as planned, at the most; -1 where those of one are not
    known. What is told too low of one kind is mostly told too high of another, so that the ends of
    several kinds are nearer than their sums."""
    kinds: dict[Kind, list[float]] = {}
    for work in works:
        each = price_work(msgspec.structs.replace(work, probes=1), seen)
        if each is None and work.probes:
            return -1.0, -1.0, -1.0
        each = (each or 0.0) / (1 + math.log2(max(1, slots)) / 5 if work.ahead else 1.0)
        low, high = span_work(work, seen)
        more = 0.0 if work.kind in ("import", "read", "effect") or work.told else BESIDES
        dearest = max(each * high, _price_unless_it_stands(work, seen)) + more
        ends = _find_ends(work, each, each * low, dearest)
        # The same nodes watched and alone are told too low or too high together.
        alike: Kind = "watched" if work.kind == "alone" else work.kind
        kinds[alike] = [a + b for a, b in zip(kinds.get(alike, [0.0] * 3), ends, strict=True)]
    seconds = sum(middle for _, middle, _ in kinds.values())
    under, over = (math.hypot(*(ends[1] - ends[end] for ends in kinds.values())) for end in (0, 2))
    return round(max(0.0, seconds - under), 3), round(seconds, 3), round(seconds + over, 3)


def _find_ends(work: Work, each: float, low: float, high: float) -> tuple[float, float, float]:
    """Seconds of all its probes at the least, as planned and at the most. ``each``: of one, between
    ``low`` and ``high``. How many come and what each takes are told too low or too high
    independently of each other."""
    n = work.probes
    if not work.open or not n or min(each, low) <= 0:
        return work.fewest * low, n * each, work.highest * high
    under = (
        math.exp(-math.hypot(math.log(n / work.fewest), math.log(each / low)))
        if work.fewest
        else 0.0
    )
    wider = 1.0 if work.span else LONGER
    over = math.exp(wider * math.hypot(math.log(work.highest / n), math.log(high / each)))
    return n * each * under, n * each, min(n * each * over, work.highest * high)


def _list_like(work: Work, seen: Sequence[Seen]) -> list[Seen]:
    """Those of its kind; where kernels are timed any build of a part, whatever is asked of it."""
    kinds = CUTTING if work.timed and work.kind in CUTTING else (work.kind,)
    return [s for s in seen if s.kind in kinds]


def _price_unless_it_stands(work: Work, seen: Sequence[Seen]) -> float:
    """Seconds of a probe at the most, should the build that it is to be fed to be made anew:
    whether one stands nobody knows before one did. 0 where that does not matter."""
    if not work.reused or work.span or any(s.reused and s.kind == work.kind for s in seen):
        return 0.0
    return SELDOM[1] * (
        price_work(msgspec.structs.replace(work, probes=1, reused=False), seen) or 0.0
    )


def span_work(work: Work, seen: Sequence[Seen]) -> Span:
    """Times their price that its probes take at the least and at the most."""
    if work.span:
        return work.span
    low, high = TOLD if work.told else _span_of_kind(work, seen)
    return (
        (min(low, CHEAP), max(high, JOINED)) if work.open and work.kind != "effect" else (low, high)
    )


def _span_of_kind(work: Work, seen: Sequence[Seen]) -> Span:
    if work.kind in ("import", "read"):
        return READ
    like = _list_like(work, _that_worked([s for s in seen if not s.first]))
    if (
        work.timed
        and work.kind in CUTTING
        and not work.dear
        and not (work.afresh and any(s.afresh for s in like))
    ):
        return CUT_TOLD if like else CUT_LATER_SPAN if _list_later_builds(seen) else CUT_SPAN
    if work.kind == "whole" and work.timed and not any(s.broke for s in like):
        return SELDOM
    if not like and _is_told_by_reference(work, seen):
        return FELT if work.kind == "effect" else LOOKED
    if (
        not like
        and work.kind == "alone"
        and not work.timed
        and any(s.kind == "watched" for s in seen)
    ):
        return ALONE
    same = [s for s in like if s.reused == work.reused and s.afresh == work.afresh and not s.broke]
    if not same:
        # Whether a build stands when it is asked for nobody knows beforehand.
        return OTHERWISE if like and not work.reused else BESIDE_IT
    if work.rows and not any(work.rows / FAR <= s.rows <= FAR * work.rows for s in same):
        return OTHERWISE
    rows = [s for s in same if not work.rows or s.rows == work.rows]
    alike = [s for s in rows if s.cold == work.fresh]
    if rows and not alike:
        return OTHERWISE
    return MEASURED if len(alike) >= OFTEN else SELDOM


def price_work(work: Work, seen: Sequence[Seen]) -> float | None:
    """Seconds of all its probes; None where nothing like it was measured. A first build that was
    dear says nothing of later ones: on TensorRT those took a ninth of it."""
    if work.told:
        return work.probes * work.told
    firsts = [s.build_seconds for s in seen if s.first and s.kind == work.kind]
    seen = _that_worked([s for s in seen if not s.first])
    like = _list_like(work, seen)
    each = _seconds_of_one(work, like)
    if firsts and not work.reused and all(s.reused for s in like):
        # No later build was made.
        return work.probes * (work.more + LEAST + LATER * max(firsts)) if work.timed else None
    if each is None and work.timed and work.kind in CUTTING:
        each = _price_first_cut(seen)
    if (
        work.afresh
        and work.dear
        and not any(s.afresh and s.kind in ("part", "effect") for s in seen)
    ):
        # Parts were asked of a twin. As given, with no timings at hand, one took as long as there,
        # or thirty times (an H100).
        if not work.timed:
            return None
        each = max(CUT, each or 0.0)
    elif (
        work.timed
        and work.afresh
        and work.kind in CUTTING
        and like
        and not any(s.afresh for s in like)
    ):
        # A shrunken case takes no time, and what is built afresh is the case: 0.75 to 1.4 times the
        # dearest on seven of nine.
        each = max(s.seconds for s in like[-RECENT:])
    timed = work.timed and work.kind == "whole"
    if each is None:
        each = _seconds_by_reference(work, seen)
    for beside, times in BESIDE.get(work.kind, ()) if each is None and not timed else ():
        each = _seconds_of_one(
            msgspec.structs.replace(work, rows=1), [s for s in seen if s.kind == beside]
        )
        if each is not None:
            if work.nodes and not work.timed:
                times = LOOKED_INTO if beside == "whole" else BY_ITSELF
            each = each * times * work.share + NODE * work.nodes * (
                beside == "whole" and not work.timed
            )
            break
    if each is None and work.kind in ("import", "read") and seen:
        each = min(s.seconds for s in seen)
    return None if each is None else work.probes * (work.more + work.times * each)


def _price_first_cut(seen: Sequence[Seen]) -> float:
    """Seconds of the first part that is built where kernels are timed."""
    later = _list_later_builds(seen)
    return CUT_LEAST + CUT_LATER * later[-1] if later else CUT


def _list_later_builds(seen: Sequence[Seen]) -> list[float]:
    """Seconds of the builds of the whole model but the first."""
    return [
        s.build_seconds
        for s in seen
        if s.kind == "whole" and s.build_seconds and not s.first and not s.broke
    ]


def price_kept(nodes: int, seen: Sequence[Seen]) -> Work:
    """The first build that keeps so many nodes in higher precision, on an engine that times
    kernels."""
    stays, part, each = FIRST_KEPT
    first = max((s.build_seconds for s in seen if s.first), default=0.0)
    return Work("whole", told=stays + part * first + each * nodes, span=FIRST_KEPT_SPAN, timed=True)


def _seconds_by_reference(work: Work, seen: Sequence[Seen]) -> float | None:
    """Seconds of a probe of a kind that was never measured, by what the reference takes, where that
    tells it best."""
    if not _is_told_by_reference(work, seen):
        return None
    run = _seconds_of_one(
        Work("control", 1, work.rows or 1), [s for s in seen if s.kind == "control"]
    )
    if run is None:
        return None
    if work.kind == "effect":
        return EFFECT + OF_REFERENCE * run
    looked = work.share * run + NODE * work.nodes + BYTE * work.bytes * max(1, work.rows)
    return looked * (BY_ITSELF if work.kind == "alone" else 1.0)


def _is_told_by_reference(work: Work, seen: Sequence[Seen]) -> bool:
    """Whether what the reference takes tells what this probe will, better than anything else."""
    kinds = {s.kind for s in seen}
    if work.timed or work.kind in kinds or "control" not in kinds:
        return False
    # Nodes alone are told best by the same nodes watched.
    looks = work.kind in ("watched", "alone") and "watched" not in kinds
    return work.kind == "effect" or (looks and work.bytes >= 0)


def _seconds_of_one(work: Work, like: Sequence[Seen]) -> float | None:
    """Seconds of one probe, from those of its kind: with as many rows where there are such, else
    between the nearest on either side; beyond all of them in proportion, but for the build and a
    little more; where the build is nearly all of it (other shapes, other kernels) by the square
    root. More runs than those had cost a run each."""
    if not like:
        return None
    if work.reused:
        like = [s for s in like if s.reused] or [_without_build(s) for s in like]
    else:
        like = [s for s in like if not s.reused] or like
    # What a further run takes shows where there were some: of a single one the engine's own time is
    # a part of it.
    repeated = [s for s in like if s.runs > 1] or like
    # What ran cold tells less of what will not, but more than what ran on other rows.
    alike = {s.rows for s in like if s.cold == work.fresh}
    like = [
        s
        for s in like
        if s.cold == work.fresh or (s.rows not in alike and not (work.fresh and alike))
    ]
    like = [s for s in like if s.afresh == work.afresh] or like
    at: dict[int, list[Seen]] = {}
    # A build that times kernels takes as long for any rows, and that of everything kept may be ten
    # times as dear as the others.
    together = max(s.rows for s in like) if work.timed and not work.rows else 0
    for s in like:
        at.setdefault(together or s.rows, []).append(s)
    rows = work.rows or max(at)
    took = {
        n: _settle_seconds([_seconds_of_one_run(s, work.fresh) for s in found], work.kind)
        for n, found in at.items()
    }
    below, above = (
        max((n for n in took if n <= rows), default=0),
        min((n for n in took if n >= rows), default=0),
    )
    if below and above:
        single = took[below] + (took[above] - took[below]) * (rows - below) / max(1, above - below)
    else:
        nearest = below or above
        built = min(
            took[nearest], statistics.median_low([s.build_seconds for s in at[nearest][-RECENT:]])
        )
        if built >= MOSTLY_BUILT * took[nearest]:
            single = took[nearest] * math.sqrt(rows / nearest)
        else:
            stays = built + min(ONCE, (took[nearest] - built) / 2)
            single = stays + (took[nearest] - stays) * rows / nearest
    a_run = statistics.median_low(
        [s.run_seconds / max(1, s.runs * s.rows) for s in repeated[-RECENT:]]
    )
    return max(0.0, single + (work.runs - 1) * a_run * rows)


def _settle_seconds(seconds: Sequence[float], kind: Kind) -> float:
    """What the next one of these takes."""
    if kind in SEARCHED and len(seconds) >= ENOUGH:
        return statistics.fmean(seconds[-LATELY:])
    return statistics.median_low(seconds[-RECENT:])


def _that_worked(seen: Sequence[Seen]) -> list[Seen]:
    """What worked; of kinds of which nothing did, what broke."""
    worked = {s.kind for s in seen if not s.broke}
    return [s for s in seen if not s.broke or s.kind not in worked]


def _without_build(s: Seen) -> Seen:
    """The same probe, had its build stood already."""
    took = max(s.seconds - s.build_seconds, s.run_seconds)
    return msgspec.structs.replace(s, seconds=took, build_seconds=0.0, reused=True)


def _seconds_of_one_run(s: Seen, fresh: bool) -> float:
    """Seconds of a probe as if it had run its build once."""
    return max(0.0, (s.seconds if fresh else s.again) - s.run_seconds * (s.runs - 1) / s.runs)
