"""The innermost way to ask: a question becomes one probe of the engine, its measurement an answer."""

import msgspec

from narrowdown.engines.asking import Answer, Ask, Fed, Question, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.compare.judge import (
    SHARE,
    Signature,
    Verdict,
    badness,
    judge,
    judge_check,
    judge_cured,
    judge_shrunk,
    judge_whole,
    over,
    sign_failure,
    unpatched,
)
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import ALL_HELD, HUGE, Candidate, Measure, Measurement, Score

KINDS = {"fail": "fails", "pass": "passes", "unresolved": "unknown"}
# A simplified part fails like itself with a tenth of its own error and more, as a part does like
# the model (``engines.compare.judge.SHARE``); of an error beyond 1, of 1: how far beyond is a matter
# of the values that were made simple.
OWN = 1.0


def ask_engine(inquiry: Inquiry) -> Ask:
    """Whatever the layers around it have made of the question goes into the probe."""

    def ask(question: Question) -> Sub[Answer]:
        if question.note is not None:
            yield question.note
        return read(inquiry, question, (yield from asked(phrase(inquiry, question))))

    return ask


def phrase(inquiry: Inquiry, question: Question) -> Measure:
    """The probe that asks this of the engine, on the sample that the search works on."""
    findings, ctx = inquiry.findings, inquiry.ctx
    candidate = _cut(inquiry, question)
    part, fed = question.nodes is not None, question.fed or Fed((findings.sample,))
    return Measure(
        model=findings.model,
        inputs=fed.inputs or findings.inputs,
        samples=fed.samples,
        engine=ctx.reference if question.reference else ctx.engine,
        reference=ctx.reference,
        candidate=candidate,
        keep=ranges.encode(question.keep),
        righted=ranges.encode(question.righted),
        marks=ranges.encode(question.watch),
        effect=part and not question.alone and not candidate.edits,
        effect_on=ranges.encode(inquiry.watched) if part else "",
        runs=question.runs,
        feed=question.feed,
        attempt=question.build or 0,
        exclusive=question.exclusive,
        force=dict(question.choose),
        forbid=dict(question.avoid),
        record=question.record,
        save=question.save,
        nudge=fed.nudge,
        rewrite=question.rewrite[0],
        rewrite_at=question.rewrite[1],
        held=ALL_HELD if fed.apart else () if part else ctx.problem.held,
        curve=fed.apart,
    )


def _cut(inquiry: Inquiry, question: Question) -> Candidate:
    if question.part is not None:
        return question.part
    if question.nodes is None:
        return Candidate(severed=ranges.encode(question.right))
    if question.alone:  # side by side: every edge between them is severed
        index = inquiry.index
        made = {t for n in question.nodes for t in index.nodes[n].outputs}
        read = {t for n in question.nodes for t in index.nodes[n].reads}
        return Candidate(
            nodes=ranges.encode(question.nodes),
            outputs=ranges.encode(question.outputs),
            severed=ranges.encode(made & read),
        )
    return inquiry.cut(question.nodes, question.outputs, question.right, question.edits)


def read(inquiry: Inquiry, question: Question, m: Measurement) -> Answer:
    """What the measurement says of the question. Pure: a new tolerance is a new reading."""
    rule, whole = inquiry.criterion, question.nodes is None
    if whole:
        m = unpatched(m, {inquiry.index.tensors[t].name for t in question.right})
    if question.alone or question.fed is not None:
        verdict = judge_whole(m, rule)
    elif question.like is not None and question.part is not None:
        verdict = judge_shrunk(m, rule, question.like)
    elif question.like is not None:
        verdict = _judge_simpler(inquiry, question.like, m)
    elif whole:
        verdict = judge_cured(m, rule, inquiry.signature)
    elif inquiry.ctx.check:
        verdict = judge_check(m, rule)
    else:
        verdict = judge(m, rule, inquiry.signature)
    told = m.status == "ok" and bool(m.results)
    alone = find_worst_scores(inquiry, m) if question.alone else {}
    return Answer(
        kind=KINDS[verdict.kind],  # type: ignore[arg-type]
        why=verdict.reason or ("" if verdict.kind != "unresolved" else "error"),
        detail=verdict.detail,
        **verdict.off,
        signature=_sign(inquiry, m) if verdict.failed else None,
        scores=alone or (_find_scores(inquiry, question, m) if told else {}),
        reach=0.0 if whole or not told else _find_reach(inquiry, m),
        lost=any(r.unrepresentable for r in m.results),
        files=dict(m.artifacts),
        choices=m.facts.get("build", {}).get("choices", {}),
        measured=m,
        probes=1,
    )


def _sign(inquiry: Inquiry, m: Measurement) -> Signature | None:
    """The part's own failure. What crashes or does not build has no errors: there it is the
    model's."""
    if inquiry.signature.kind in ("build", "crash"):
        return inquiry.signature
    if not m.results:
        return None
    return sign_failure(inquiry.row(m), inquiry.criterion, inquiry.findings.sample)


def _judge_simpler(inquiry: Inquiry, like: Signature, m: Measurement) -> Verdict:
    """A simplified part, which has no effect on the model's outputs to be judged by: it fails where
    the outputs of its own failure do, by enough, and in the same way."""
    if m.assumed or m.status != "ok" or not m.results:
        return judge_whole(m, inquiry.criterion)
    scores = {s.name: s for s in inquiry.row(m).outputs}
    same = [scores[n] for n in like.outputs if n in scores]
    worst = max((badness(s, inquiry.criterion) for s in same), default=0.0)
    failed = (
        any(over(s, inquiry.criterion) for s in same)
        and worst >= SHARE * min(like.error, OWN)
        and any(s.new_nonfinite > 0 for s in same) == like.nonfinite
        # a reference of zeros makes any error infinitely large
        and (worst >= HUGE) == (like.error >= HUGE)
    )
    return Verdict("fail" if failed else "pass", own=worst)


def find_worst_scores(inquiry: Inquiry, m: Measurement) -> dict[str, Score]:
    """The judged scores by name, each the worst of all runs; none where the probe could not be
    answered."""
    found: dict[str, Score] = {}
    rule = inquiry.criterion
    for run in m.each_run if m.status == "ok" and m.results else ():
        for score in inquiry.row(msgspec.structs.replace(m, results=run, runs=())).outputs:
            held = found.get(score.name)
            if held is None or badness(score, rule) > badness(held, rule):
                found[score.name] = score
    return found


def _find_reach(inquiry: Inquiry, m: Measurement) -> float:
    names, rule = inquiry.signature.outputs, inquiry.criterion
    moved = [s for run in m.each_run for r in run for s in r.effect if s.name in names or not names]
    return (
        max((badness(s, rule) for s in moved), default=0.0)
        if any(over(s, rule) for s in moved)
        else 0.0
    )


def _find_scores(inquiry: Inquiry, question: Question, m: Measurement) -> dict[str, Score]:
    """The score of each tensor that was watched, of the whole model of its outputs as well: on the
    row that fails."""
    if question.nodes is not None and not question.watch:
        return {}
    row = inquiry.row(m)
    return {s.name: s for s in (*row.marks, *row.outputs)}
