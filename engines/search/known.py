"""What is known of a workaround, and what is not: the cause, where it cures, on how many samples,
which of them real, which of them unseen. One list, which the step judges by and every display
shows."""

from collections.abc import Iterable

import msgspec

from narrowdown.engines.findings import Culprit, Findings, Unseen, Workaround
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.probe import APART, is_given
from narrowdown.engines.search.statistics import CONFIDENCE, fisher_exact, say_most_wrong

NEAR = 2  # steps along the graph: what a culprit's nodes feed and read is cured with them
SHOWN = 3  # names in a sentence
NAMED = 6  # and of those that somebody may want to keep as well
# Of the nodes that can be kept; from here on that is said. Chosen: a model of the field campaign
# passed with 115 of 117.
NEARLY_ALL = 0.8

# The end of a bound for others, where a quantized model may have been calibrated on the samples
# behind it.
UNCALIBRATED = (
    ", if these did not calibrate the model. What calibrated it counts for nothing, as its ranges were measured on that: give "
    "samples that it has not seen (--inputs)."
)


class Fact(msgspec.Struct, frozen=True):
    """One sentence. ``firm`` False: something is open there, so nobody can say that they know why
    it works."""

    text: str
    firm: bool = True


def list_outside(index: GraphIndex, findings: Findings, keep: Iterable[int]) -> tuple[int, ...]:
    """Of the nodes that cure those that lie beyond what is accused and ``NEAR`` nodes around; none
    where nobody is accused."""
    accused = {n for c in findings.culprits for n in ranges.decode(c.keep or c.case.node_ids)}
    if not accused:
        return ()
    for _ in range(NEAR):
        accused = index.ring(accused)
    return tuple(n for n in keep if n not in accused)


def holds_accused(findings: Findings, cure: Workaround) -> bool | None:
    """Whether every accused node is in the set that is kept; None where nobody is accused, or the
    workaround keeps no nodes, or a session of an earlier version does not hold which they are. Of
    nodes that fail together the one is asked for that the evidence is about."""
    accused = [_list_accused(culprit) for culprit in findings.culprits]
    if cure.kind != "precision" or not accused or not all(accused):
        return None
    return set(ranges.decode(cure.keep)).issuperset(n for nodes in accused for n in nodes)


def _list_accused(culprit: Culprit) -> tuple[int, ...]:
    nodes = ranges.decode(culprit.case.node_ids)
    about = tuple(
        n for n, name in zip(nodes, culprit.case.nodes, strict=False) if name == culprit.at
    )
    return about or nodes


def list_facts(findings: Findings, cure: Workaround) -> tuple[Fact, ...]:
    """All that is known of the workaround, the most important first."""
    unseen = cure.unseen or Unseen()
    real = any(is_given(s.id) for s in findings.samples)
    return (
        _cause(findings),
        *_place(findings, cure),
        _made_on(cure, real=real),
        *_tried_on(unseen, real=real),
        *_calibrated(findings, real=real),
        *_condition(cure),
        *_headroom(cure),
        *_size(cure),
        *_file(cure),
    )


def is_known(findings: Findings, cure: Workaround) -> bool:
    """Whether one may say that it works and why: the cause is known and lies where the cure is, it
    was made on real samples, and others are right, too."""
    return cure.holds and all(fact.firm for fact in list_facts(findings, cure))


def _cause(findings: Findings) -> Fact:
    causes = dict.fromkeys(c.cause for c in findings.culprits)
    if causes and "unknown" not in causes:
        return Fact(f"The cause is known: {', '.join(causes)}.")
    if causes:
        return Fact(
            "The cause is not known: the case fails, and no measurement says why.", firm=False
        )
    if switched := (*findings.optimizers, *findings.options, *findings.tactics):
        return Fact(f"The cause is known: {', '.join(switched[:SHOWN])}.")
    if findings.spread:
        return Fact("There is no single cause: the error is spread over many layers.", firm=False)
    return Fact(
        "The cause is not known: no failing case was looked for, or none was confirmed.", firm=False
    )


def _place(findings: Findings, cure: Workaround) -> tuple[Fact, ...]:
    if not cure.outside:
        return ()
    names = ", ".join(cure.outside[:SHOWN]) + (", ..." if len(cure.outside) > SHOWN else "")
    many, kept = len(cure.outside), len(cure.keep_names)
    which = "The nodes that cure" if many == kept else f"{many} of the {kept} nodes that cure"
    lie = "lies" if many == 1 < kept else "lie"
    where = f"{which} {lie} outside of what is accused ({names})"
    enough = cure.accused_ok == cure.accused_n > 0
    if enough and not (cure.unseen and cure.unseen.joined):
        return (
            Fact(
                f"{where}: for a margin. With what is accused alone every given sample is right, too."
            ),
        )
    if enough:
        return (
            Fact(
                f"{where}: with what is accused alone every given sample is right, and made ones are not.",
                firm=False,
            ),
        )
    tried = (
        f" With what is accused alone {cure.accused_ok} of {cure.accused_n} are right"
        if cure.accused_n
        else ""
    )
    if findings.spread:
        return (
            Fact(
                f"{where}.{tried}, and what is left is spread over many layers."
                if tried
                else f"{where}.",
                firm=False,
            ),
        )
    more = (
        "it was looked for, and nobody can be named."
        if findings.sought
        else "something else is wrong there, too."
    )
    return (Fact(f"{where}: {more}{f'{tried}.' if tried else ''}", firm=False),)


def _made_on(cure: Workaround, *, real: bool) -> Fact:
    what = f"{cure.samples_n} {'sample' if cure.samples_n == 1 else 'samples'}"
    joined = cure.unseen.joined if cure.unseen else 0
    more = f", {joined} of them taken in as an earlier set was wrong there" if joined else ""
    few = f" {_say_slight(cure.slight).text}" if cure.slight else ""
    few += f" {_say_noisy(cure.undetermined).text}" if cure.undetermined else ""
    if not cure.samples_n:
        return Fact(f"No tuning sample tells whether it is right.{few}", firm=False)
    if not real:
        return Fact(
            f"It was made on {what} of made-up inputs{more}; real ones were not given.{few}",
            firm=False,
        )
    return Fact(
        f"It was made on {what}{more}: right on {cure.samples_ok}.{few}",
        firm=cure.samples_ok == cure.samples_n,
    )


def _say_noisy(many: int) -> Fact:
    """Of samples that are neither right nor wrong, as rounding alone makes as much."""
    moved = (
        "is not counted: rounding of the inputs moves it"
        if many == 1
        else "are not counted: rounding of the inputs moves them"
    )
    return Fact(f"{many} more {moved} as far.")


def _say_slight(many: int) -> Fact:
    """Of samples that are neither right nor wrong, as they fail on nearly nothing only."""
    return Fact(
        f"{many} more {'is' if many == 1 else 'are'} not counted: only values that are nearly nothing, beside those of other "
        "samples, are wrong there."
    )


def _tried_on(unseen: Unseen, *, real: bool) -> tuple[Fact, ...]:
    loose = unseen.undetermined + unseen.slight
    if not unseen.n:
        tried = (
            f"It was tried on {loose} others, and of none anybody can tell."
            if loose
            else "It was tried on no other samples."
        )
        return (Fact(tried, firm=False),)
    made = unseen.n - unseen.given
    kinds = [f"{unseen.given} of yours"] if unseen.given else []
    kinds += (
        [f"{made if unseen.given else 'all'} made {'near yours' if real else 'up like these'}"]
        if made
        else []
    )
    which = " of yours" if kinds and not made else f", {' and '.join(kinds)}"
    bare = f" Without it {unseen.plain} of these {'fails' if unseen.plain == 1 else 'fail'}."
    said = [
        Fact(
            f"It was tried on {unseen.n} others{which}: right on {unseen.ok}.{bare}",
            unseen.ok == unseen.n,
        ),
        Fact(f"With it {say_most_wrong(*unseen.independent)}.{_say_alike(unseen)}"),
    ]
    if unseen.undetermined:
        said.append(_say_noisy(unseen.undetermined))
    if unseen.slight:
        said.append(_say_slight(unseen.slight))
    if not unseen.plain:
        said.append(
            Fact("Not one of these fails without it, so they say little of it.", firm=False)
        )
    elif may_be_chance(unseen):
        said.append(
            Fact(
                "So few fail without it that what it does for others may be chance: give more samples.",
                firm=False,
            )
        )
    return tuple(said)


def _calibrated(findings: Findings, *, real: bool) -> tuple[Fact, ...]:
    """Of a quantized model: what its ranges were measured on says nothing of other data."""
    if not findings.codes or not real:
        return ()
    return (
        Fact(
            "Samples that calibrated the model count for nothing, as its ranges were measured on them: give some that it has not "
            "seen (--inputs)."
        ),
    )


def _say_alike(unseen: Unseen) -> str:
    """That rows of a batch count for less, a sentence with a space in front."""
    if not 0 < unseen.worth < unseen.n:
        return ""
    return f" Rows of one batch are off alike here, so that these {unseen.n} say no more than {unseen.worth} others would."


def may_be_chance(unseen: Unseen) -> bool:
    """Whether as many could be right without the workaround, by Fisher's exact test. Samples that
    fail in both are counted as if they were not the same, which can only say "chance" too often. Of
    pulsevad_int8 28 of 32 were right without it and 31 with it; of 200 new ones 176 and 178."""
    better = unseen.n - unseen.ok < unseen.plain
    return (
        not better
        or fisher_exact(unseen.n - unseen.ok, unseen.n, unseen.plain, unseen.n) > 1 - CONFIDENCE
    )


def _condition(cure: Workaround) -> tuple[Fact, ...]:
    if cure.kind != "control-flow":
        return ()
    if not cure.condition:
        return (Fact("It is right whatever is fed: what is fixed rests on constants alone."),)
    left = (
        f" For {cure.elsewhere} of the samples that is not so, and it is not for these."
        if cure.elsewhere
        else ""
    )
    return (Fact(f"It is right only while {cure.condition}.{left}", firm=not cure.elsewhere),)


def _headroom(cure: Workaround) -> tuple[Fact, ...]:
    """Where it leaves values so large that other data may take them beyond the type; no matter of
    whether it works."""
    if not cure.close:
        return ()
    many = len(cure.close)
    named = ", ".join(f"{each.node} {each.reached:,.0f}" for each in cure.close[:NAMED])
    more = f" and {many - NAMED} more" if many > NAMED else ""
    which, them = ("1 node that stays", "it") if many == 1 else (f"{many} nodes that stay", "them")
    return (
        Fact(
            f"Larger data may break it: FP16 ends at 65,504, and {which} in it come{'s' if many == 1 else ''} near that on your "
            f"samples ({named}{more}). If your data can be larger, keep {them} in FP32 as well "
            "(narrowdown step precision MODEL, with the same options and --with headroom=16)."
        ),
    )


def _file(cure: Workaround) -> tuple[Fact, ...]:
    return (Fact(cure.written),) if cure.written else ()


def _size(cure: Workaround) -> tuple[Fact, ...]:
    if cure.kind not in ("precision", *APART):
        return ()
    things = "tensors" if cure.kind in APART else "nodes"
    nearly = say_nearly_all(len(ranges.decode(cure.keep)), cure.of)
    if nearly:
        return (Fact(nearly),)
    if cure.minimal and cure.foretold:
        rest = len(ranges.decode(cure.keep)) - cure.foretold
        there = "in an emulation of the precision or with more nodes kept"
        if rest:
            there = f"{rest} on this engine, {cure.foretold} {there}"
        return (
            Fact(
                f"Not one of its {things} can be left out: the set was tried without each of them, {there}."
            ),
        )
    if cure.minimal:
        return (
            Fact(
                f"Not one of its {things} can be left out: the set was tried without each of them."
            ),
        )
    return (Fact(f"A smaller set may do: it was not tried without each of its {things}."),)


def is_nearly_all(kept: int, of: int) -> bool:
    """Whether a set leaves next to nothing in the lower precision; ``of``: how many nodes could be
    kept, 0 where nobody knows."""
    return 0 < NEARLY_ALL * of <= kept


def say_nearly_all(kept: int, of: int) -> str:
    """That a set leaves next to nothing in the lower precision, one sentence; "" where it does
    not."""
    if not is_nearly_all(kept, of):
        return ""
    return f"That is nearly the whole model ({kept} of {of}): it saves next to nothing beside FP32 throughout."
