"""confirm (node ``minimal-case``): the case again in fresh builds, its cause named, and whether the
model fails without it."""

from typing import NamedTuple

import msgspec

from narrowdown.engines.asking import Count, Note, StepContext, StepRefused, Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.asking.oracle import Oracle, make_oracle
from narrowdown.engines.asking.question import Fed, NodeIds, Question
from narrowdown.engines.compare.judge import REFUSALS, judge_whole, worst
from narrowdown.engines.findings import Case, Culprit, Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.graph.quantized import find_bypassable
from narrowdown.engines.probe import Measurement
from narrowdown.engines.search.alike import Alike, find_alike, say_alike, widen_culprit
from narrowdown.engines.search.alike import make_culprits as alike_culprits
from narrowdown.engines.search.cured import has_own_share, measure_cured, rights_itself
from narrowdown.engines.search.fresh import Seen, ask_about, confirm_in_fresh_builds
from narrowdown.engines.search.ordered import say_ordered
from narrowdown.engines.search.remedy import list_cured
from narrowdown.engines.search.settle import Saved
from narrowdown.engines.search.statistics import binomial_interval
from narrowdown.engines.search.switches import list_switches
from narrowdown.engines.steps.base import BUILDS_MODELS, End, Finish, Steps, StepSpec, with_case
from narrowdown.engines.steps.prepare import prepare_findings
from narrowdown.engines.steps.reduce import (
    Reduced,
    ReduceParams,
    reduce_model,
)

# A tensor that loses this part of itself when it is stored cannot be fed: rounding alone costs BF16
# 0.004, FP8 0.06, and an epsilon that becomes 0 loses all.
LOST = 0.1
VANISHING = ("epsilon-underflow", "underflow")
# A case of more than this share of the model, and of more nodes than these, names nobody: what is
# asked is which part is wrong, and "17 of 24 nodes" answers that it is not in one. Chosen by what a
# person can use; the field campaign counts the same way.
MOST, SOME = 0.5, 6


class ConfirmOutcome(msgspec.Struct, frozen=True, kw_only=True):
    confirmed: bool = False  # the case fails when built afresh
    failures: int = 0
    looks: int = 0
    interval_low: float = 0.0
    interval_high: float = 1.0
    nodes: int = 0
    nodes_before: int = 0
    ops: str = ""
    names: str = ""
    cause: str = "unknown"
    evidence: str = ""  # the numbers that show the cause, one sentence
    own: float | None = None
    effect: float | None = None
    own_places: tuple[int, int] = (0, 0)  # of whole numbers, those that are wrong and all
    effect_places: tuple[int, int] = (0, 0)  # the same of the model's outputs
    culprits: int = 0  # found so far, this one among them
    alike: int = 0  # more of them, found because the reference predicts the same fault there
    patched_fails: bool = False  # the whole model fails with all culprits patched
    patched_error: float | None = None  # the whole model's then
    fixable: bool = False  # refused as it is, and right in another way
    way: str = ""  # that way: what the engine takes the model with
    waits: bool = False  # a workaround was begun and waits for the next culprit
    message: str = ""


# Five builds that fail leave no rate below 48 % (95 %), so chance is out of the question. Eight
# culprits are a bound on time, as each takes PLACE probes; what is left joins the first one's kept
# nodes. Six probes for another of a kind: the first one's case was made simple already. Twelve
# steps forward are a bound, chosen and not measured: a norm's square, sum and root take three.
class ConfirmParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    repeats: Count = 5  # fresh builds
    most_culprits: Count = 8  # of the session
    most_rounds: Count = 8  # of the session; then a workaround is looked for
    shrink_others: Count = 6  # probes that simplify the case of a node alike
    most_patches: Count = 12  # steps that a patch moves past values that the precision cannot hold


class Standing(NamedTuple):
    """What a case is beside what is known."""

    known: bool  # found before, or a part of what was
    wide: bool  # most of the model, so it names nobody
    remedy: tuple[int, ...]  # nodes that cure the whole model, one of the case among them

    @property
    def new(self) -> bool:
        """Whether it joins the culprits."""
        return not (self.known or self.wide)


class Without(NamedTuple):
    """The whole model with a culprit cured."""

    culprit: Culprit  # with what cures it
    findings: Findings  # where the search goes on
    error: float | None = None  # of the model then; None: not measured
    still: bool = False  # it fails then
    others: Alike = Alike()  # more of its kind
    way: str = ""  # with what the engine takes a model that it refuses


def confirm(ctx: StepContext) -> Steps[ConfirmOutcome]:
    params = msgspec.convert(dict(ctx.params), ConfirmParams)
    findings = yield from prepare_findings(ctx)
    ask: Inquiry = yield from open_inquiry(ctx, findings)
    case, files = yield from _find_case(ask)
    ask = ask.lowered(case.effect)
    oracle, there = make_oracle(ask), ask.of(case.engine)
    seen: Seen = yield from _see_afresh(ask, there, case, params.repeats)
    case, cause = seen.case, seen.cause
    standing = _place_case(ask, case)
    culprit = Culprit(
        case=case,
        cause=cause.name,
        evidence=cause.evidence,
        at=cause.beyond,
        dir=culprit_folder(len(findings.culprits) + 1),
    )
    without: Without = yield from _take_out(ask, culprit, standing, params)
    without = without._replace(way=(yield from _find_way_around(ask)))
    others = without.others
    culprits = findings.culprits
    if standing.new:
        culprits = join_culprit(ask.index, culprits, without.culprit)
    for other in alike_culprits(others):
        culprits = (
            *culprits,
            msgspec.structs.replace(other, dir=culprit_folder(len(culprits) + 1)),
        )
    first = findings.culprits[0].case.sample if findings.culprits else findings.sample
    whole = Question(fed=Fed((first,)), uncured=True, build=0)
    asked_again = make_oracle(there)
    return Finish(
        _sum_up(ask, seen, standing, without, params, len(culprits)),
        msgspec.structs.replace(
            without.findings, culprits=culprits, spread=findings.spread or standing.wide
        ),
        tables={
            "bundle": [
                Saved("case", seen.saved),
                *(Saved("alike", o.seen.saved, case=o.seen.case.node_ids) for o in others.found),
                *(f for f in files if f.role == "good"),
            ]
        },
        decisive={
            "whole": oracle.list_probes(whole),
            "case": (
                *asked_again.list_probes(ask_about(case)),
                *(p for o in others.found for p in oracle.list_probes(ask_about(o.seen.case))),
            ),
            "good": asked_again.list_probes(ask_about(case, part=case.good, like=None))
            if case.good
            else (),
        },
    )


def _find_case(ask: Inquiry) -> Sub[tuple[Case, tuple[Saved, ...]]]:
    """The case that was reduced before, or else is now: a route that named a tactic or an optimizer
    comes with no smaller model yet. Raises StepRefused where there is none."""
    if ask.findings.case is not None:
        return ask.findings.case, ()
    uncut = msgspec.structs.replace(ask, frozen=ask.index.from_weights)
    reduced: Reduced = yield from reduce_model(make_oracle(uncut), uncut, ReduceParams())
    if reduced.case is None or reduced.found.settled is None:
        raise StepRefused(f"There is no failing case to confirm: {reduced.reason}.")
    return reduced.case, reduced.found.settled.files


def _see_afresh(ask: Inquiry, there: Inquiry, case: Case, repeats: int) -> Sub[Seen]:
    """The case in fresh builds of the engine that ``there`` asks, with all the evidence that there
    is for its cause."""
    seen: Seen = yield from confirm_in_fresh_builds(there, case, repeats)
    more = say_ordered(ask.ctx, seen.case) if seen.case.engine else ""
    if make_oracle(ask).refused:
        more += yield from _describe_rest(ask, seen.case)
    return msgspec.structs.replace(
        seen, cause=msgspec.structs.replace(seen.cause, evidence=f"{seen.cause.evidence}{more}")
    )


def _place_case(ask: Inquiry, case: Case) -> Standing:
    """Whether somebody is accused of this case, and who was accused of it before."""
    findings = ask.findings
    if any(c.case.node_ids == case.node_ids for c in findings.culprits):
        return Standing(True, False, ())
    if remedy := _remedy(findings, case):
        return Standing(False, False, remedy)
    # What has widened an earlier culprit was cured with it, and fails all the same.
    known = any(set(ranges.decode(case.node_ids)) <= _nodes_of(c) for c in findings.culprits)
    return Standing(known, not known and _names_nobody(ask, case), ())


def _take_out(
    ask: Inquiry, culprit: Culprit, standing: Standing, params: ConfirmParams
) -> Sub[Without]:
    """The culprit with what cures it, and what the whole model does with that."""
    findings = ask.findings
    after = msgspec.structs.replace(findings, case=culprit.case)
    if remedy := standing.remedy:
        # What cures the whole model is known, and holds this case: no other culprit is left to look
        # for.
        also = _also(ask, culprit.case, remedy)
        culprit = msgspec.structs.replace(culprit, keep=ranges.encode(remedy), also=also)
        return Without(culprit, after, findings.workaround.error if findings.workaround else None)
    oracle = make_oracle(ask)
    if not oracle.patches:
        return Without(culprit, after)
    cut: Cut = yield from _cut_off(ask, culprit.case, culprit.cause, params.most_patches)
    patches = cut.patches
    culprit = msgspec.structs.replace(
        culprit, patches=ranges.encode(patches), keep=ranges.encode(cut.keep)
    )
    if findings.optimizers or findings.options or findings.tactics:
        return Without(culprit, after)
    cured = () if patches or cut.righted else cut.pairs or cut.keep
    after, error, still = yield from measure_cured(ask, after, patches, cured, cut.righted)
    if cut.righted and error is None:
        patches = cut.around  # the engine runs no such part
        culprit = msgspec.structs.replace(culprit, patches=ranges.encode(patches))
        after, error, still = yield from measure_cured(ask, after, patches, ())
    if not (still and culprit.at and standing.new and oracle.keeps):
        return Without(culprit, after, error, still)
    others: Alike = yield from find_alike(
        ask,
        culprit,
        room=params.most_culprits - len(findings.culprits) - 1,
        shrink_probes=params.shrink_others,
        repeats=params.repeats,
    )
    if others.keep:
        culprit = widen_culprit(ask.index, culprit, others)
        after, error, still = yield from measure_cured(ask, after, patches, (*cured, *others.keep))
    return Without(culprit, after, error, still, others)


def _sum_up(
    ask: Inquiry,
    seen: Seen,
    standing: Standing,
    without: Without,
    params: ConfirmParams,
    culprits: int,
) -> ConfirmOutcome:
    """``culprits``: how many there are by now."""
    case, cause, visit = seen.case, seen.cause, ask.ctx.visit
    goes_on = without.still and standing.new and visit < params.most_rounds
    low, high = binomial_interval(seen.failures, params.repeats)
    return ConfirmOutcome(
        confirmed=seen.failures > 0,
        failures=seen.failures,
        looks=params.repeats,
        interval_low=low,
        interval_high=high,
        nodes=len(case.nodes),
        nodes_before=len(ask.index.nodes),
        ops=" + ".join(case.ops),
        names=", ".join(case.nodes),
        cause=cause.name,
        evidence=cause.evidence,
        own=case.own,
        effect=case.effect,
        own_places=case.own_places,
        effect_places=case.effect_places,
        culprits=culprits,
        alike=len(without.others.found),
        patched_fails=goes_on,
        patched_error=without.error,
        fixable=bool(without.way),
        way=without.way,
        waits=ask.findings.sought > 0,
        message=_message(
            seen, standing, without, params.repeats, 0 if goes_on else visit, len(ask.index.nodes)
        ),
    )


class Cut(NamedTuple):
    """What takes the error that a case makes out of the whole model."""

    patches: tuple[int, ...] = ()  # tensors that are fed with reference values
    keep: tuple[int, ...] = ()  # nodes that are kept in FP32
    righted: tuple[int, ...] = ()  # nodes that the reference computes
    around: tuple[
        int, ...
    ] = ()  # the patches that do it where the engine runs none of those nodes alone
    pairs: tuple[
        int, ...
    ] = ()  # of those nodes the dequantizers that give what their pairs were given


def _cut_off(ask: Inquiry, case: Case, cause: str, most: int) -> Sub[Cut]:
    """The way that leaves in the model what was wrong before the case, where there is one."""
    nodes = ranges.decode(case.node_ids)
    if cause == "quantization" and (pairs := find_bypassable(ask.index, nodes)):
        # Computed exactly a dequantizer gives what its codes are worth, and the loss is in these.
        return Cut(keep=nodes, pairs=pairs)
    oracle = make_oracle(ask)
    patches, keep, fits = yield from walk_forward(oracle, case, most, small=cause in VANISHING)
    if patches and not oracle.keeps and has_own_share(case):
        # Its nodes are computed by the reference, for the reason that is told below.
        return Cut(keep=keep, righted=keep, around=patches)
    if not fits and oracle.keeps:
        # Its values cannot be fed: the next round keeps its nodes in FP32 instead.
        earlier = frozenset(ranges.decode(ask.findings.keep))
        keep = yield from widen_kept(oracle, frozenset(keep), earlier, most)
        return Cut(keep=keep)
    if patches and (yield from rights_itself(oracle, case)):
        # Right by itself in FP32, so that its own share can be taken away: right values fed after
        # it would take every error with it that was made before it, and who made those would never
        # be looked for.
        return Cut(keep=keep)
    return Cut(patches, keep)


def _describe_rest(ask: Inquiry, case: Case) -> Sub[str]:
    """Whether the engine takes the model with the part that it refuses replaced by the values that
    it gives, as a sentence with a space in front; "" where there is no rest."""
    nodes = set(ask.everything) - set(ranges.decode(case.node_ids))
    if not nodes:
        return ""
    note = Note("the rest of the model, with the values of that part fed")
    answer = yield from make_oracle(ask).ask(Question(frozenset(nodes), build=0, note=note))
    m = answer.measured
    if answer.passes:
        return " The rest builds, with the values of this part fed in its place."
    if answer.fails:
        return " The rest is refused for the same reason: there is another such part."
    if m.status not in REFUSALS:
        return f" Whether the rest builds, with the values of this part fed in its place, could not be asked: {m.message}"
    return f" The rest, with the values of this part fed in its place, does not build for another reason: {m.message}"


def _find_way_around(ask: Inquiry) -> Sub[str]:
    """With what the engine takes a model that it refuses, and is right, as a phrase; "" where no
    such thing is known, and of one that it takes."""
    if not make_oracle(ask).refused:
        return ""
    if ask.findings.fixable:
        return "plain nodes in the place of its If, Loop and Scan"
    can = list_switches(ask.ctx.engine, ask.ctx.engine_info)
    if not can.names:
        return ""
    yield Note("the whole model with everything switched off")
    oracle = make_oracle(ask.of(can.with_on(())))
    m: Measurement = yield from oracle.feed(oracle.feeds)
    return "its optimizers and options off" if judge_whole(m, ask.criterion).passed else ""


def _remedy(findings: Findings, case: Case) -> tuple[int, ...]:
    """The nodes that were seen to cure the whole model in FP32, where one of the case is among
    them; else none."""
    kept = list_cured(findings)
    return kept if set(kept).intersection(ranges.decode(case.node_ids)) else ()


def _names_nobody(ask: Inquiry, case: Case) -> bool:
    """Whether what is left of a failure, of which a culprit is known, shows in nothing smaller than
    most of the model. What is refused, infinite or NaN has its place, however much of the model it
    takes to show it."""
    if not ask.findings.culprits or make_oracle(ask).refused or ask.signature.nonfinite:
        return False
    return len(case.nodes) > max(SOME, MOST * len(ask.index.nodes))


def _also(ask: Inquiry, case: Case, kept: tuple[int, ...]) -> tuple[str, ...]:
    """Nodes that are kept with the case and do the same as one of its own."""
    inside = set(ranges.decode(case.node_ids))
    ops = {ask.index.nodes[n].op for n in inside.intersection(kept)}
    return ask.names(n for n in kept if n not in inside and ask.index.nodes[n].op in ops)


def culprit_folder(number: int) -> str:
    """Where the bundle of the culprit of that number, from 1 on, lies below the session folder."""
    return "case" if number == 1 else f"case/culprit-{number}"


def join_culprit(
    index: GraphIndex, earlier: tuple[Culprit, ...], new: Culprit
) -> tuple[Culprit, ...]:
    """The culprits with one more. The same cause at a neighbouring node, found on another sample,
    is the same culprit met further on (a square that overflows on one row, its sum on another): it
    widens what is to be kept and is not counted again."""
    nodes = _nodes_of(new)
    near = index.ring(nodes)
    for i, old in enumerate(earlier):
        kept = _nodes_of(old)
        if old.cause == new.cause and kept & near:
            patches = {*ranges.decode(old.patches), *ranges.decode(new.patches)}
            both = msgspec.structs.replace(
                old,
                keep=ranges.encode(kept | nodes),
                patches=ranges.encode(patches),
                also=tuple(dict.fromkeys((*old.also, *new.also))),
            )
            return (*earlier[:i], both, *earlier[i + 1 :])
    return (*earlier, new)


def _nodes_of(culprit: Culprit) -> set[int]:
    """What is kept in FP32 for it, where that is known; else its case."""
    return set(ranges.decode(culprit.keep or culprit.case.node_ids))


def walk_forward(
    oracle: Oracle, case: Case, most: int, *, small: bool = False
) -> Sub[tuple[tuple[int, ...], tuple[int, ...], bool]]:
    """(patches, keep, fits): the tensors that cut this case off when fed with reference values, the
    nodes up to them, and whether the case's own outputs could be fed at once.

    A value that the engine's storage cannot hold (an overflowing sum, an epsilon that becomes 0)
    cannot be fed as a patch: the patch moves to the outputs of its readers, and those readers join
    the nodes that a workaround would have to keep in higher precision. ``small``: that values
    vanish is the fault, so a single one that does among others is enough, while the model fails.
    """
    index = oracle.index
    nodes = set(ranges.decode(case.node_ids))
    _, leaves = index.boundary(nodes)
    patches = set(leaves)
    fits = True
    for _ in range(most):
        note = Note("the whole model, with right values put in after the case")
        answer: Answer = yield from oracle.ask(
            Question(fed=Fed((case.sample,)), right=frozenset(patches), build=0, note=note)
        )
        m = answer.measured
        if m.status != "ok":
            break
        lost = {
            n
            for r in m.results
            for n in (*r.unrepresentable, *(k for k, v in r.rounded.items() if v > LOST))
        }
        if small and answer.fails:
            lost |= {n for r in m.results for n in r.vanished}
        stuck = {index.by_name[n] for n in lost if n in index.by_name} & patches
        if not stuck:
            break
        fits = False
        readers = {r for t in stuck for r in index.readers[t]}
        nodes |= readers
        patches = (patches - stuck) | {
            t for r in readers for t in index.nodes[r].outputs if index.readers[t]
        }
    return tuple(sorted(patches)), tuple(sorted(nodes)), fits


def widen_kept(oracle: Oracle, keep: NodeIds, earlier: NodeIds, most: int) -> Sub[tuple[int, ...]]:
    """The nodes to keep with those beside them that overflow on other samples: the square of a sum
    of squares on one row, its sum on another. A neighbour joins when it gives non-finite values
    from finite ones while ``keep`` is kept. ``earlier``: what is kept for earlier culprits.
    """
    index = oracle.index
    own = set(keep)
    for _ in range(most):
        yield Note("the whole model, with the case kept in higher precision")
        m: Measurement = yield from oracle.feed(oracle.feeds, uncured=False, keep=frozenset(own))
        if m.status != "ok" or judge_whole(m, oracle.criterion).passed:
            break
        sample = worst(m.results, oracle.criterion)[0]
        near = index.ring(own) - own - earlier
        marks = {t for n in near for t in (*index.nodes[n].outputs, *index.nodes[n].reads)}
        made = {t for t in marks if index.tensors[t].producer >= 0}
        seen: Measurement = yield from oracle.feed(
            (oracle.feed_for(sample),), uncured=False, keep=frozenset(own), watch=tuple(made)
        )
        if seen.status != "ok":
            break
        scores = [s for r in seen.results for s in (*r.marks, *r.outputs) if s.new_nonfinite]
        broken = {index.by_name[s.name] for s in scores if s.name in index.by_name}
        fresh = {
            n
            for n in near
            if broken.intersection(index.nodes[n].outputs)
            and not broken.intersection(index.nodes[n].reads)
        }
        if not fresh:
            break
        own |= fresh
    return tuple(sorted(own))


def _message(
    seen: Seen, standing: Standing, without: Without, repeats: int, last: int, of: int
) -> str:
    """``last``: the round after which no further one comes; 0: one does where it fails still.
    ``of``: the nodes of the model."""
    also = ""
    if standing.wide:
        also = f" That is most of the model ({len(seen.case.nodes)} of {of}), so nobody is accused of what is left: it adds up."
    elif standing.known:
        also = " This case was found before: patching it did not make the rest pass."
    elif without.still:
        also = (
            " With it patched by reference values the model still fails: there is another culprit."
        )
        also += (
            f" {last} rounds are the most that one session takes, so a workaround is looked for."
            if last
            else ""
        )
    nodes = seen.case.nodes
    size = f"{len(nodes)} node fails" if len(nodes) == 1 else f"{len(nodes)} nodes fail"
    return f"{size} in {seen.failures} of {repeats} fresh builds. {seen.cause.evidence}{say_alike(without.others)}{also}"


def _plan(ctx: StepContext, _nodes: int) -> int | None:
    """The case in fresh builds and its inside; the model with the case put right, on the search's
    sample and on all. Where there is no case yet, nobody knows."""
    if ctx.findings.case is None:
        return None
    return msgspec.convert(dict(ctx.params), ConfirmParams).repeats + 3


SPEC = StepSpec(
    name="confirm",
    version=11,
    summary="Build the case afresh several times, name its cause, and see whether the model still fails without it.",
    run=confirm,
    outcome=ConfirmOutcome,
    params=ConfirmParams,
    needs=(BUILDS_MODELS,),
    exclusive=True,
    sets=("case", "culprits", "patches", "righted", "keep", "spread"),
    makes=("confirmed",),
    ends=(End("confirmed", False, "unresolved"),),
    labels={
        "looks": "fresh builds",
        "failures": "of them failing",
        "evidence": "shown by",
        "culprits": "culprits so far",
        "alike": "of them found with this one",
        "patched_fails": "still fails with them patched",
        "patched_error": "error with them patched",
    },
    json=with_case,
    plan=_plan,
)
