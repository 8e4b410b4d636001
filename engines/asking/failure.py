"""The failure that an answer about the whole model shows: how it fails, and on which sample."""

import msgspec

from narrowdown.engines.asking import Note, StepContext, Sub, asked
from narrowdown.engines.asking.whole_model import probe_whole
from narrowdown.engines.compare.judge import (
    REFUSALS,
    Signature,
    choose_result,
    judge_check,
    judge_whole,
    sign_failure,
    worst,
)
from narrowdown.engines.compare.loops import choose_step
from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import ALL_HELD, Measurement, SampleResult


def lock_failure(ctx: StepContext, findings: Findings, measurement: Measurement) -> Sub[Findings]:
    """Findings with the signature of this failure and the sample to search on; unchanged where the
    measurement passes.

    The worst sample: new non-finite values first, then the highest score, then the lowest index;
    what fails on nearly nothing last. Its row is searched alone where rows can be fed alone and the
    row still fails by itself.
    """
    rule, m = findings.rule, measurement
    first = findings.samples[0].id if findings.samples else ""
    uncompared = None
    if ctx.check:
        uncompared = Signature("check", first) if judge_check(m, rule).failed else None
    elif m.status in REFUSALS:
        uncompared = Signature("build", first, refusal=tuple(m.facts.get("refusal", ())))
    elif m.status == "crash":
        uncompared = Signature("crash", first)
    if ctx.check or uncompared is not None:
        return msgspec.structs.replace(findings, signature=uncompared, sample=first)
    if not judge_whole(m, rule).failed:
        return findings
    result = choose_result(m, rule)
    apart = probe_whole(ctx, findings, samples=(result.sample,), held=ALL_HELD, curve=True)
    result = yield from find_own(findings, result, asked(apart))
    name = result.sample
    feed, fed = name.partition("/")[0], choose_feed(findings, name)
    # Rows that fail now and then may be failing together: they are not told apart.
    if fed != feed and not m.runs:
        yield Note(f"does {name} fail alone?")
        alone = yield from asked(probe_whole(ctx, findings, samples=(name,)))
        near = worst(alone.results, rule)[2] >= worst((result,), rule)[2] / 2
        if near and judge_whole(alone, rule).failed:
            feed, result = name, alone.results[0]
    return msgspec.structs.replace(
        findings, signature=sign_failure(result, rule, name), sample=feed
    )


def find_own(findings: Findings, result: SampleResult, look: Sub[Measurement]) -> Sub[SampleResult]:
    """Of a loop that fails, the step that fails by itself, fed the reference's state: the worst.
    ``result`` where none does: the error grows in what is carried. ``look``: what tells, asked only
    of a loop."""
    if msgspec.structs.replace(findings, sample=result.sample).loop is None:
        return result
    yield Note("does a step fail by itself, fed the reference's state?")
    return choose_step((yield from look), result, findings.rule)


def choose_feed(findings: Findings, sample: str) -> str:
    """What to feed for a scored sample: its row alone where the feed's rows can be fed alone, else
    the whole feed."""
    feed, _, row = sample.partition("/")
    alone = any(s.id == feed and (s.rows or s.steps) for s in findings.samples)
    return sample if row and alone else feed


def list_feeds(findings: Findings) -> tuple[str, ...]:
    """The feeds that decide: the given ones, or the made-up one where none were given."""
    return tuple(s.id for s in findings.samples)


def say_other(before: Signature, after: Signature | None, m: Measurement) -> str:
    """How the model that ``m`` is of fails otherwise than before, as words that follow "it"; ""
    where it fails in that way, or passes."""
    why = m.message.rstrip(".")
    if after is None:
        return f"does not run ({why})" if m.status != "ok" else ""
    if after.kind != before.kind:
        return f"fails in another way ({after.kind}: {why})"
    return ""


def keep_rate(locked: Findings, before: Signature) -> Findings:
    """The failure with the rate that was measured over more runs than these, on the whole feed."""
    return locked if locked.looks == 1 else with_rate(locked, before.failures, before.looks)


def with_rate(locked: Findings, failures: int, runs: int) -> Findings:
    """The failure as one that ``failures`` of so many runs show, on the whole feed: its rows may
    race together."""
    if locked.signature is None:
        return locked
    counted = msgspec.structs.replace(locked.signature, failures=failures, looks=runs)
    return msgspec.structs.replace(
        locked, signature=counted, sample=counted.sample.partition("/")[0]
    )
