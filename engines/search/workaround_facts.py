"""What is known of a workaround, and what is not: the cause, where it cures, on how many samples,
which of them real, which of them unseen. One list, which the step judges by and every display
shows."""

from collections.abc import Iterable

import msgspec

from narrowdown.engines.compare.say import say_many
from narrowdown.engines.compare.statistics import CONFIDENCE, fisher_exact, say_most_wrong
from narrowdown.engines.findings import Culprit, Findings, Unseen, Workaround
from narrowdown.engines.graph import GraphIndex, ranges
from narrowdown.engines.nearest import join_some
from narrowdown.engines.probe import APART, Measure, is_given

NEAR = 2  # steps along the graph: what a culprit's nodes feed and read is cured with them

# The end of a bound for others, where a quantized model may have been calibrated on the samples
# behind it.
UNCALIBRATED = (
    ", if these did not calibrate the model. What calibrated it counts for nothing, as its ranges were measured on that: give "
    "others (--inputs)."
)
_CALIBRATED = "Samples that calibrated the model count for nothing, as its ranges were measured on them: give others (--inputs)."


class Cure(msgspec.Struct, frozen=True):
    """What was found to help. Without a ``workaround``, ``message`` says why there is none.
    ``files``: artifact name -> digest; ``probe``: the question that shows it again, where the
    workaround does not say so itself."""

    message: str
    workaround: Workaround | None = None
    files: dict[str, str] = {}
    probe: Measure | None = None


class Fact(msgspec.Struct, frozen=True):
    """One sentence. ``firm`` False: something is open there, so nobody can say that they know why
    it works."""

    text: str
    firm: bool = True


def _first(*cases: tuple[object, str, bool]) -> Fact:
    """Of cases (whether it holds, what is said then, whether nothing is open there) the first that
    holds; an empty one where none does."""
    return next((Fact(text, firm) for holds, text, firm in cases if holds), Fact(""))


def find_accused(findings: Findings) -> frozenset[int]:
    """The nodes of all culprits, up to where their values fit again."""
    return frozenset(n for c in findings.culprits for n in ranges.decode(c.keep or c.case.node_ids))


def list_outside(index: GraphIndex, findings: Findings, keep: Iterable[int]) -> tuple[int, ...]:
    """Of the nodes that cure those that lie beyond what is accused and ``NEAR`` nodes around; none
    where nobody is accused."""
    accused = set(find_accused(findings))
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
    facts = (
        _tell_cause(findings),
        _tell_place(findings, cure),
        _tell_tuning(cure, real=real),
        _tell_loose(cure.undetermined),
        *_tell_held_out(unseen, real=real, calibrated=cure.layers and real),
        _tell_others(findings, unseen),
        _tell_crossed(*cure.crossed),
        _tell_condition(cure),
        Fact(_say_close(cure) if cure.close else ""),
        _tell_size(cure),
        Fact(cure.written),
    )
    return tuple(fact for fact in facts if fact.text)


def is_known(findings: Findings, cure: Workaround) -> bool:
    """Whether one may say that it works and why: the cause is known and lies where the cure is, its
    tuning samples are real, and held-out ones pass, too."""
    return cure.holds and all(fact.firm for fact in list_facts(findings, cure))


def _tell_others(findings: Findings, unseen: Unseen) -> Fact:
    """Of outputs that are right on the user's samples, so that no node was kept for them."""
    own = findings.signature.outputs if findings.signature else unseen.outputs
    new = [name for name in unseen.outputs if name not in own]
    said = (
        f"Wrong there, and right on your samples: {join_some(new)}. The search could not see that."
    )
    return Fact(said if new else "")


def _tell_cause(findings: Findings) -> Fact:
    causes = dict.fromkeys(c.cause for c in findings.culprits)
    spread = (
        "There is no single cause: the error "
        f"{'grows from step to step' if findings.loop else 'is spread over many layers'}."
    )
    return _first(
        (causes and "unknown" not in causes, f"The cause is known: {', '.join(causes)}.", True),
        (causes, "The cause is not known: the case fails, and no measurement says why.", False),
        (findings.guilty, f"The cause is known: {join_some(findings.guilty)}.", True),
        (findings.spread, spread, False),
        (True, "The cause is not known: no failing case was confirmed.", False),
    )


def _tell_place(findings: Findings, cure: Workaround) -> Fact:
    """Of kept nodes that are not among the nodes found."""
    many, ok, n = len(cure.outside), cure.accused_ok, cure.accused_n
    joined = cure.unseen is not None and cure.unseen.joined
    where = f"{many} of the {len(cure.keep_names)} kept nodes are not among the nodes found so far ({join_some(cure.outside)})"
    tried = f" With the found nodes alone {ok} of {n} given samples pass." if n else ""
    right = ok == n > 0
    return _first(
        (not many, "", True),
        (right and not joined, f"{where}: for a margin.{tried}", True),
        (right, f"{where}: for generated samples.{tried}", False),
        (findings.spread, f"{where}: no other node stands out.{tried}", False),
        (True, f"{where}: something else is wrong there, too.{tried}", False),
    )


def _tell_tuning(cure: Workaround, *, real: bool) -> Fact:
    """How it does on tuning samples."""
    what = say_many(cure.samples_n, "sample")
    joined = cure.unseen.joined if cure.unseen else 0
    more = f", {joined} of them taken in as an earlier set was wrong there" if joined else ""
    verb = "passes" if cure.samples_ok == 1 else "pass"
    made_up = f"The tuning samples are {what} of made-up inputs{more}; real ones were not given."
    return _first(
        (not cure.samples_n, "No tuning sample tells whether it is right.", False),
        (not real, made_up, False),
        (
            True,
            f"{cure.samples_ok} of {cure.samples_n} tuning samples {verb}{more}.",
            cure.samples_ok == cure.samples_n,
        ),
    )


def _tell_loose(many: int) -> Fact:
    """Of samples that nobody can call right or wrong."""
    are = "is" if many == 1 else "are"
    said = f"{many} more {are} too close to call (rounding noise), and not counted."
    return Fact(said if many else "")


def _tell_crossed(ok: int, n: int) -> Fact:
    """How it does on samples that did not calibrate it."""
    said = f"Calibrated on half of your samples, {ok} of {n} pass, each where the other half calibrated: {say_most_wrong(ok, n)}."
    return Fact(said if n else "", ok == n)


def _tell_held_out(unseen: Unseen, *, real: bool, calibrated: bool) -> tuple[Fact, ...]:
    """How it does on others. ``calibrated``: the ranges of a quantized model may have been measured
    on what was given, so that no bound for others follows."""
    loose = _tell_loose(unseen.undetermined)
    if not unseen.n:
        return Fact("No held-out sample tells whether it is right.", False), loose
    made = unseen.n - unseen.given
    near = "generated near yours" if real else "made up like these"
    which = f"{unseen.given} yours, {made} {near}"
    if not made or not unseen.given:
        which = f"all {near}" if made else "all yours"
    bare = f" Without it {unseen.plain} of these {'fails' if unseen.plain == 1 else 'fail'}."
    tried = f"{unseen.ok} of {unseen.n} held-out samples pass ({which}).{bare}"
    none = "Not one of these fails without it, so they say little of it."
    alone = "No fewer fail with it, so it fits its tuning samples alone: give more samples."
    chance = "So few fail without it that what it does for others may be chance: give more samples."
    return (
        Fact(tried, unseen.ok == unseen.n),
        Fact(_CALIBRATED if calibrated else f"With it {say_most_wrong(unseen.ok, unseen.n)}."),
        loose,
        _first(
            (not unseen.plain, none, False),
            (unseen.n - unseen.ok >= unseen.plain, alone, False),
            (may_be_chance(unseen), chance, False),
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


def _tell_condition(cure: Workaround) -> Fact:
    left = f" For {cure.elsewhere} of the samples that is not so, and it is not for these."
    while_ = f"It is right only while {cure.condition}.{left if cure.elsewhere else ''}"
    always = "It is right whatever is fed: what is fixed rests on constants alone."
    return _first(
        (cure.kind != "control-flow", "", True),
        (cure.condition, while_, not cure.elsewhere),
        (True, always, True),
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


def _tell_size(cure: Workaround) -> Fact:
    things = {"precision": "layers" if cure.layers else "nodes"} | dict.fromkeys(APART, "tensors")
    each = things.get(cure.kind, "")
    needed = f"Not one of its {each} can be left out: the set was tried without each of them."
    more = f"A smaller set may do: it was not tried without each of its {each}."
    return _first((not each, "", True), (cure.minimal, needed, True), (True, more, True))
