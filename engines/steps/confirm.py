"""confirm (node ``minimal-case``): the case again in fresh builds, its cause named, and whether the
model fails without it."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from narrowdown.engines.asking import (
    Answer,
    Count,
    Fed,
    Note,
    Question,
    StepContext,
    StepRefused,
    Sub,
)
from narrowdown.engines.asking.engine_forms import say_ordered
from narrowdown.engines.asking.inquiry import Inquiry, open_inquiry
from narrowdown.engines.asking.oracle import Oracle, make_oracle
from narrowdown.engines.compare.judge import judge_whole
from narrowdown.engines.compare.refusal import is_same, words
from narrowdown.engines.findings import Case, Culprit
from narrowdown.engines.graph import GraphIndex, ranges
from narrowdown.engines.nearest import join_some
from narrowdown.engines.probe import Measurement
from narrowdown.engines.search.cured import Cut, Left, list_cuts, measure_without
from narrowdown.engines.search.fresh import Seen, confirm_in_fresh_builds
from narrowdown.engines.search.remedy import (
    Alike,
    find_alike,
    find_same_operator,
    list_cured,
    say_alike,
    say_kept_along,
    widen_culprit,
)
from narrowdown.engines.search.settle import Saved, ask_about
from narrowdown.engines.search.smallest import ReduceParams
from narrowdown.engines.steps.base import (
    BUILDS_MODELS,
    CaseOutcome,
    End,
    Finish,
    Steps,
    StepSpec,
    tell_case,
    with_case,
)
from narrowdown.engines.steps.prepare import prepare_findings
from narrowdown.engines.steps.reduce import Reduced, reduce_model
from narrowdown.engines.steps.tactics import count_switch_builds
from narrowdown.engines.switches import list_switches


class ConfirmOutcome(CaseOutcome, frozen=True, kw_only=True):
    confirmed: bool = False  # the case fails when built afresh
    failures: int = 0
    looks: int = 0
    nodes: int = 0
    nodes_before: int = 0
    cause: str = "unknown"
    evidence: str = ""  # the numbers that show the cause, one sentence
    culprits: int = 0  # found so far, this one among them
    alike: int = 0  # more of them, found because the reference predicts the same fault there
    patched_fails: bool = False  # the whole model fails with all culprits patched
    patched_error: float | None = None  # the whole model's then
    fixable: bool = False  # refused as it is, and right in another way
    way: str = ""  # that way: what the engine takes the model with
    # Builds of the case, at most as a rule, in which a workaround looks for a switch first.
    switch_builds: int = 0
    message: str = ""


# Five builds that fail leave no rate below 48 % (95 %), so chance is out of the question. Eight
# culprits are a bound on time, as each takes PLACE probes; what is left joins the first one's kept
# nodes.
class ConfirmParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    repeats: Count = 5  # fresh builds
    most_culprits: Count = 8  # of the session, and rounds; then a workaround is looked for


# What a case is beside what is known: found before, or a part of what was; most of the model, so that
# it names nobody. A new one joins the culprits.
Standing: TypeAlias = Literal["new", "known", "wide"]


class Without(NamedTuple):
    """The whole model with a culprit cured."""

    culprit: Culprit  # with what cures it
    left: Left
    others: Alike = Alike()  # more of its kind


def confirm(ctx: StepContext) -> Steps[ConfirmOutcome]:
    params = msgspec.convert(dict(ctx.params), ConfirmParams)
    findings = yield from prepare_findings(ctx)
    ask: Inquiry = yield from open_inquiry(ctx, findings)
    case, files = yield from _find_case(ask)
    ask = msgspec.structs.replace(ask, findings=msgspec.structs.replace(findings, case=case))
    oracle, there = make_oracle(ask), ask.of(case.engine)
    seen: Seen = yield from confirm_in_fresh_builds(there, case, params.repeats)
    case, said = seen.culprit.case, f"{seen.culprit.evidence}{say_ordered(ctx, case)}"
    culprit = msgspec.structs.replace(seen.culprit, evidence=said)
    seen = msgspec.structs.replace(seen, culprit=culprit)
    standing = _place_case(ask, case)
    without: Without = yield from _take_out(ask, culprit, standing, params)
    others = without.others.found
    culprits = findings.culprits
    if standing == "new":
        culprits = join_culprit(ask.index, culprits, without)
    culprits = _give_folders((*culprits, *(other.culprit for other in others)))
    outcome = _sum_up(ask, seen, standing, without, params)
    way = yield from _find_way_around(ask)
    first = findings.culprits[0].case.sample if findings.culprits else findings.sample
    whole = Question(fed=Fed((first,)), uncured=True, build=0)
    asked_again = make_oracle(there)
    return Finish(
        msgspec.structs.replace(outcome, culprits=len(culprits), fixable=bool(way), way=way),
        msgspec.structs.replace(
            without.left.findings,
            case=case,
            culprits=culprits,
            spread=findings.spread or standing == "wide",
        ),
        tables={
            "bundle": [
                Saved("case", seen.saved),
                *(Saved("alike", o.saved, case=o.culprit.case.node_ids) for o in others),
                *(f for f in files if f.role == "good"),
            ]
        },
        decisive={
            "whole": oracle.list_probes(whole),
            "case": (
                *asked_again.list_probes(ask_about(case)),
                *(p for o in others for p in oracle.list_probes(ask_about(o.culprit.case))),
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


def _place_case(ask: Inquiry, case: Case) -> Standing:
    """What is left of a failure, of which a culprit is known, may show in nothing smaller than most
    of the model. What is refused, infinite or NaN has its place, however much of it that takes."""
    findings, nodes = ask.findings, set(ranges.decode(case.node_ids))
    if any(c.case.node_ids == case.node_ids for c in findings.culprits):
        return "known"
    if nodes.intersection(list_cured(findings)):
        return "new"
    # What has widened an earlier culprit was cured with it, and fails all the same.
    if any(nodes <= _nodes_of(c) for c in findings.culprits):
        return "known"
    placed = ask.signature.kind == "build" or ask.signature.nonfinite
    most = 2 * len(nodes) > len(ask.index.nodes)
    return "wide" if findings.culprits and most and not placed else "new"


def _take_out(
    ask: Inquiry, culprit: Culprit, standing: Standing, params: ConfirmParams
) -> Sub[Without]:
    """The culprit with what cures it, and what the whole model does with that."""
    findings, oracle, case = ask.findings, make_oracle(ask), culprit.case
    remedy = list_cured(findings)
    if set(remedy).intersection(ranges.decode(case.node_ids)):
        # What cures the whole model is known, and holds this case: no other culprit is left to look
        # for.
        culprit = msgspec.structs.replace(
            culprit, keep=ranges.encode(remedy), also=_list_also(ask, case, remedy)
        )
        return Without(
            culprit, Left(findings, findings.workaround.error if findings.workaround else None)
        )
    if oracle.refused:
        refused: tuple[int, ...] = yield from _list_also_refused(oracle, culprit, params)
        return Without(_tell_also(culprit, ask.index.names(refused)), Left(findings))
    if not oracle.patches or findings.guilty:
        return Without(culprit, Left(findings))
    cuts: tuple[Cut, ...] = yield from list_cuts(oracle, case, culprit.cause)
    for cut in cuts:
        left: Left = yield from measure_without(ask, cut)
        if left.error is not None:
            break
    culprit = msgspec.structs.replace(culprit, keep=ranges.encode(cut.around))
    if not left.still or standing != "new":
        return Without(culprit, left)
    others: Alike = yield from find_same_operator(ask, culprit)
    if not others.keep and culprit.at and oracle.keeps:
        others = yield from find_alike(
            ask,
            culprit,
            room=params.most_culprits - len(findings.culprits) - 1,
            repeats=params.repeats,
        )
    if set(others.keep).difference(cut.around):
        culprit = widen_culprit(culprit, others)
        left = yield from measure_without(ask, cut.widen(ask.index, others.keep))
    return Without(culprit, left, others)


def _list_also_refused(
    oracle: Oracle, culprit: Culprit, params: ConfirmParams
) -> Sub[tuple[int, ...]]:
    """Other nodes that are refused alone in the same words, but for operators and names, as far as
    the engine names them when what is left of the model is asked: whoever mends one of them would
    meet the next."""
    names = {name: n for n, name in enumerate(oracle.index.shown_names)}
    ops = {node.op.lower() for node in oracle.index.nodes}

    def hear(part: Sequence[int]) -> Sub[str]:
        """What is said of a part that is refused alike; "" of any other."""
        answer: Answer = yield from oracle.ask(Question(frozenset(part)))
        said = answer.measured.message if answer.measured.status != "ok" else ""
        alike = is_same(words(culprit.evidence, names), set(words(said, names)) - ops)
        return said if alike else ""

    found = ranges.decode(culprit.case.node_ids)
    for _ in range(params.most_culprits - 1):
        left = [n for n in oracle.live if n not in found]
        said = yield from hear(left)
        named = [n for name, n in names.items() if f"'{name}'" in said and n in left][:1]
        if not named or not (yield from hear(named)):
            break
        found = (*found, *named)
    return found[len(culprit.case.nodes) :]


def _tell_also(culprit: Culprit, names: tuple[str, ...]) -> Culprit:
    """The culprit of a refusal with the others that are refused."""
    if not names:
        return culprit
    said = f"{culprit.evidence} Without it {join_some(names)} {'is' if len(names) == 1 else 'are'} refused, too."
    return msgspec.structs.replace(culprit, also=names, evidence=said)


def _sum_up(
    ask: Inquiry,
    seen: Seen,
    standing: Standing,
    without: Without,
    params: ConfirmParams,
) -> ConfirmOutcome:
    case, visit, left = seen.culprit.case, ask.ctx.visit, without.left
    goes_on = left.still and standing == "new" and visit < params.most_culprits
    outcome = ConfirmOutcome(
        confirmed=seen.failures > 0,
        failures=seen.failures,
        looks=params.repeats,
        nodes=len(case.nodes),
        nodes_before=len(ask.index.nodes),
        cause=seen.culprit.cause,
        evidence=seen.culprit.evidence,
        alike=len(without.others.found),
        patched_fails=goes_on,
        patched_error=left.error,
        switch_builds=count_switch_builds(ask.ctx, ask.findings),
        message=_message(
            seen, standing, without, params.repeats, 0 if goes_on else visit, len(ask.index.nodes)
        ),
    )
    return msgspec.structs.replace(outcome, **tell_case(case))


def _find_way_around(ask: Inquiry) -> Sub[str]:
    """With what the engine takes a model that it refuses, and is right, as a phrase; "" where no
    such thing is known, and of one that it takes."""
    if not make_oracle(ask).refused:
        return ""
    if ask.findings.fixable:
        return "plain nodes in the place of its If, Loop and Scan"
    can = list_switches(ask.ctx.engine, ask.ctx.engine_info)
    if not can.names or can.apart:
        return ""
    yield Note("the whole model with everything switched off")
    oracle = make_oracle(ask.of(can.without(can.names)))
    m: Measurement = yield from oracle.feed(oracle.feeds)
    return "its optimizers and options off" if judge_whole(m, ask.criterion).passed else ""


def _list_also(ask: Inquiry, case: Case, kept: tuple[int, ...]) -> tuple[str, ...]:
    """Nodes that are kept with the case and do the same as one of its own."""
    inside = set(ranges.decode(case.node_ids))
    ops = {ask.index.nodes[n].op for n in inside.intersection(kept)}
    return ask.index.names(n for n in kept if n not in inside and ask.index.nodes[n].op in ops)


def _give_folders(culprits: tuple[Culprit, ...]) -> tuple[Culprit, ...]:
    """Each with where its bundle lies below the session folder."""
    folders = ("case", *(f"case/culprit-{n}" for n in range(2, len(culprits) + 1)))
    pairs = zip(culprits, folders, strict=False)
    return tuple(c if c.dir else msgspec.structs.replace(c, dir=folder) for c, folder in pairs)


def join_culprit(
    index: GraphIndex, earlier: tuple[Culprit, ...], found: Without
) -> tuple[Culprit, ...]:
    """The culprits with one more. The same cause at a neighbouring node, found on another sample,
    is the same culprit met further on (a square that overflows on one row, its sum on another): it
    widens what is to be kept and is not counted again. So are nodes of one operator of which a third
    fails alone."""
    new, others = found.culprit, found.others
    nodes = _nodes_of(new)
    near = index.ring(nodes)
    for i, old in enumerate(earlier):
        kept = _nodes_of(old)
        joined = bool(old.also) and old.case.ops == new.case.ops
        if old == others.earlier or (old.cause == new.cause and (joined or kept & near)):
            also, said = (*old.also, *new.also), old.evidence
            if joined or others.earlier is not None:
                also = (*old.also, *new.case.nodes, *new.also)
            if others.earlier is not None:
                said += say_kept_along(msgspec.structs.replace(others, along=also))
            both = msgspec.structs.replace(
                old,
                keep=ranges.encode(kept | nodes),
                also=tuple(dict.fromkeys(also)),
                evidence=said,
            )
            return (*earlier[:i], both, *earlier[i + 1 :])
    return (*earlier, new)


def _nodes_of(culprit: Culprit) -> set[int]:
    """What is kept in FP32 for it, where that is known; else its case."""
    return set(ranges.decode(culprit.keep or culprit.case.node_ids))


def _message(
    seen: Seen, standing: Standing, without: Without, repeats: int, last: int, of: int
) -> str:
    """``last``: the round after which no further one comes; 0: one does where it fails still.
    ``of``: the nodes of the model."""
    nodes = seen.culprit.case.nodes
    also = ""
    if standing == "wide":
        also = f" That is most of the model ({len(nodes)} of {of}), so no node is blamed for what is left: it adds up."
    elif standing == "known":
        also = " This case was found before: patching it did not make the rest pass."
    elif without.left.still:
        more = f" {last} rounds are the most that one session takes, so a workaround is looked for."
        also = f" With it patched by reference values the model still fails: there is another culprit.{more if last else ''}"
    size = f"{len(nodes)} node fails" if len(nodes) == 1 else f"{len(nodes)} nodes fail"
    return f"{size} in {seen.failures} of {repeats} fresh builds. {seen.culprit.evidence}{say_alike(without.others)}{also}"


SPEC = StepSpec(
    name="confirm",
    version=19,
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
        "switch_builds": "builds of the case that look for a switch first",
    },
    json=with_case,
    # The case in fresh builds and its inside; the model with the case put right, on the search's
    # sample and on all.
    plan=ConfirmParams().repeats + 3,
)
