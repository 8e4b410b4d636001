"""What is known of a workaround, and what is not: the cause, where it cures, on how many samples,
which of them real, which of them unseen. One list, which the step judges by and every display
shows."""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from narrowdown.engines.findings import Culprit, Findings, Unseen, Workaround
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.nearest import join_some
from narrowdown.engines.probe import APART, is_given
from narrowdown.engines.search.statistics import CONFIDENCE, fisher_exact, say_most_wrong

NEAR = 2  # steps along the graph: what a culprit's nodes feed and read is cured with them
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


# Whether something holds, what is said then, and whether nothing is open there.
Case: TypeAlias = tuple[object, str, bool]


def _tell_first(*cases: Case) -> tuple[Fact, ...]:
    return _tell_each(*cases)[:1]


def _tell_each(*cases: Case) -> tuple[Fact, ...]:
    return tuple(Fact(text, firm) for holds, text, firm in cases if holds)


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
    codes = (
        "Samples that calibrated the model count for nothing, as its ranges were measured on them: give some that it has not "
        "seen (--inputs)."
    )
    return (
        *_tell_cause(findings),
        *_tell_place(findings, cure),
        *_tell_tuning(cure, real=real),
        *_tell_held_out(unseen, real=real),
        *_tell_each((findings.codes and real, codes, True)),
        *_tell_condition(cure),
        *_tell_each((cure.close, _say_close(cure), True)),
        *_tell_size(cure),
        *_tell_each((cure.written, cure.written, True)),
    )


def is_known(findings: Findings, cure: Workaround) -> bool:
    """Whether one may say that it works and why: the cause is known and lies where the cure is, it
    was made on real samples, and others are right, too."""
    return cure.holds and all(fact.firm for fact in list_facts(findings, cure))


def _tell_cause(findings: Findings) -> tuple[Fact, ...]:
    causes = dict.fromkeys(c.cause for c in findings.culprits)
    switched = (*findings.optimizers, *findings.options, *findings.tactics)
    return _tell_first(
        (causes and "unknown" not in causes, f"The cause is known: {', '.join(causes)}.", True),
        (causes, "The cause is not known: the case fails, and no measurement says why.", False),
        (switched, f"The cause is known: {join_some(switched)}.", True),
        (
            findings.spread,
            "There is no single cause: the error is spread over many layers.",
            False,
        ),
        (
            True,
            "The cause is not known: no failing case was looked for, or none was confirmed.",
            False,
        ),
    )


def _tell_place(findings: Findings, cure: Workaround) -> tuple[Fact, ...]:
    """Of nodes that cure and lie outside of what is accused."""
    if not cure.outside:
        return ()
    many, kept, ok, n = len(cure.outside), len(cure.keep_names), cure.accused_ok, cure.accused_n
    which = "The nodes that cure" if many == kept else f"{many} of the {kept} nodes that cure"
    where = f"{which} {'lies' if many == 1 < kept else 'lie'} outside of what is accused ({join_some(cure.outside)})"
    tried = f" With what is accused alone {ok} of {n} are right" if n else ""
    dot = "." if n else ""
    joined = cure.unseen is not None and cure.unseen.joined
    return _tell_first(
        (
            ok == n > 0 and not joined,
            f"{where}: for a margin. With what is accused alone every given sample is right, too.",
            True,
        ),
        (
            ok == n > 0,
            f"{where}: with what is accused alone every given sample is right, and made ones are not.",
            False,
        ),
        (
            findings.spread and n,
            f"{where}.{tried}, and what is left is spread over many layers.",
            False,
        ),
        (findings.spread, f"{where}.", False),
        (True, f"{where}: something else is wrong there, too.{tried}{dot}", False),
    )


def _tell_tuning(cure: Workaround, *, real: bool) -> tuple[Fact, ...]:
    """How it does on what it was made on."""
    what = f"{cure.samples_n} {'sample' if cure.samples_n == 1 else 'samples'}"
    joined = cure.unseen.joined if cure.unseen else 0
    more = f", {joined} of them taken in as an earlier set was wrong there" if joined else ""
    loose = _tell_loose(cure.slight, cure.undetermined)
    few = "".join(f" {fact.text}" for fact in loose)
    right = cure.samples_ok == cure.samples_n
    return _tell_first(
        (not cure.samples_n, f"No tuning sample tells whether it is right.{few}", False),
        (real, f"It was made on {what}{more}: right on {cure.samples_ok}.{few}", right),
        (
            True,
            f"It was made on {what} of made-up inputs{more}; real ones were not given.{few}",
            False,
        ),
    )


def _tell_loose(slight: int, noisy: int) -> tuple[Fact, ...]:
    """Of samples that are neither right nor wrong: they fail on nearly nothing only, or rounding
    alone makes as much."""
    are, them = ("is", "it") if noisy == 1 else ("are", "them")
    return _tell_each(
        (
            slight,
            f"{slight} more {'is' if slight == 1 else 'are'} not counted: only values that are nearly nothing, beside those of "
            "other samples, are wrong there.",
            True,
        ),
        (
            noisy,
            f"{noisy} more {are} not counted: rounding of the inputs moves {them} as far.",
            True,
        ),
    )


def _tell_held_out(unseen: Unseen, *, real: bool) -> tuple[Fact, ...]:
    """How it does on others."""
    loose = unseen.undetermined + unseen.slight
    if not unseen.n:
        return _tell_first(
            (loose, f"It was tried on {loose} others, and of none anybody can tell.", False),
            (True, "It was tried on no other samples.", False),
        )
    made = unseen.n - unseen.given
    near = f"made {'near yours' if real else 'up like these'}"
    which = f", {unseen.given} of yours and {made} {near}"
    if not made or not unseen.given:
        which = f", all {near}" if made else " of yours"
    bare = f" Without it {unseen.plain} of these {'fails' if unseen.plain == 1 else 'fail'}."
    return (
        Fact(
            f"It was tried on {unseen.n} others{which}: right on {unseen.ok}.{bare}",
            unseen.ok == unseen.n,
        ),
        Fact(f"With it {say_most_wrong(unseen.ok, unseen.n)}."),
        *_tell_loose(unseen.slight, unseen.undetermined),
        *_tell_first(
            (
                not unseen.plain,
                "Not one of these fails without it, so they say little of it.",
                False,
            ),
            (
                may_be_chance(unseen),
                "So few fail without it that what it does for others may be chance: give more samples.",
                False,
            ),
        ),
    )


def may_be_chance(unseen: Unseen) -> bool:
    """Whether as many could be right without the workaround, by Fisher's exact test. Samples that
    fail in both are counted as if they were not the same, which can only say "chance" too often. Of
    pulsevad_int8 28 of 32 were right without it and 31 with it; of 200 new ones 176 and 178."""
    better = unseen.n - unseen.ok < unseen.plain
    return (
        not better
        or fisher_exact(unseen.n - unseen.ok, unseen.n, unseen.plain, unseen.n) > 1 - CONFIDENCE
    )


def _tell_condition(cure: Workaround) -> tuple[Fact, ...]:
    left = f" For {cure.elsewhere} of the samples that is not so, and it is not for these."
    while_ = f"It is right only while {cure.condition}.{left if cure.elsewhere else ''}"
    always = "It is right whatever is fed: what is fixed rests on constants alone."
    return _tell_each(
        (cure.kind == "control-flow" and cure.condition, while_, not cure.elsewhere),
        (cure.kind == "control-flow" and not cure.condition, always, True),
    )


def _say_close(cure: Workaround) -> str:
    """Where it leaves values so large that other data may take them beyond the type; no matter of
    whether it works."""
    many = len(cure.close)
    named = join_some([f"{each.node} {each.reached:,.0f}" for each in cure.close])
    which, them = ("1 node that stays", "it") if many == 1 else (f"{many} nodes that stay", "them")
    return (
        f"Larger data may break it: FP16 ends at 65,504, and {which} in it come{'s' if many == 1 else ''} near that on your "
        f"samples ({named}). If your data can be larger, keep {them} in FP32 as well."
    )


def _tell_size(cure: Workaround) -> tuple[Fact, ...]:
    if cure.kind not in ("precision", *APART):
        return ()
    kept = len(ranges.decode(cure.keep))
    things = "tensors" if cure.kind in APART else "nodes"
    nearly = say_nearly_all(kept, cure.of)
    needed = f"Not one of its {things} can be left out: the set was tried without each of them"
    there = "in an emulation of the precision or with more nodes kept"
    if kept > cure.foretold:
        there = f"{kept - cure.foretold} on this engine, {cure.foretold} {there}"
    return _tell_first(
        (nearly, nearly, True),
        (cure.minimal and cure.foretold, f"{needed}, {there}.", True),
        (cure.minimal, f"{needed}.", True),
        (True, f"A smaller set may do: it was not tried without each of its {things}.", True),
    )


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
