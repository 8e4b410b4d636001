"""The model with culprits cured, each by its own share only: does it still fail, and how? What is
left is what the next round looks for.

A culprit's nodes kept in FP32, or computed by the reference where the engine keeps none, are given
what the engine gives them in that very run, so that errors made before them stay in it. Reference
values fed in after them take those away, too: they are for what fails of its rounded inputs alone.
"""

import msgspec

from narrowdown.engines.asking import Note, Sub, asked
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.compare.judge import exceed, list_slight, sign_failure, worst, worst_run
from narrowdown.engines.findings import Case, Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import HUGE, Measure
from narrowdown.engines.search.noise import move_last_place
from narrowdown.engines.search.whole import choose_feed, list_feeds, look_at_whole

SECONDS = 60.0  # that the reference may take on inputs that are moved, as in ``compare``


def has_own_share(case: Case) -> bool:
    """Whether the case is wrong by what its own nodes do to what they are given, and not by how
    that was rounded."""
    return case.feed == "stored" and not case.needs_higher_inputs


def rights_itself(ask: Inquiry, case: Case) -> Sub[bool]:
    """Whether the case, fed as it was, passes once its nodes are in FP32. False where the engine
    cannot keep nodes."""
    if not ask.ctx.can("keep") or not has_own_share(case):
        return False
    nodes = ranges.decode(case.node_ids)
    yield Note("the case, its nodes in FP32")
    probe = ask.ask(ask.candidate(nodes))
    kept = {*nodes, *ranges.decode(ask.findings.keep)}
    m = yield from asked(msgspec.structs.replace(probe, keep=ranges.encode(kept)))
    return ask.verdict(m).passed


def measure_cured(
    ask: Inquiry,
    findings: Findings,
    patches: tuple[int, ...],
    keep: tuple[int, ...],
    righted: tuple[int, ...] = (),
) -> Sub[tuple[Findings, float | None, bool]]:
    """Does the whole model still fail once these are cured beside what ``ask`` has cured already?
    If so: lock what the next round looks for. Returns (findings, error, whether it fails). Not
    counted is what fails on nearly nothing (``list_slight``), and what rounding alone moves as
    far."""
    before = ask.findings
    all_patches = {*patches, *ranges.decode(before.patches)}
    all_kept = {*keep, *ranges.decode(before.keep)}
    all_righted = {*righted, *ranges.decode(before.righted)}

    def cure(samples: tuple[str, ...]) -> Measure:
        return ask.whole(samples, patches=all_patches, keep=all_kept, righted=all_righted)

    yield Note("does the model still fail without this case?")
    m = yield from asked(cure(list_feeds(findings)))
    if m.status != "ok":
        return findings, None, False
    m = worst_run(ask.unpatched(m, all_patches), ask.criterion)
    # Nobody can call these right or wrong (``compare`` asks about none of them), so no further
    # culprit is accused of them.
    slight = list_slight(m.results, ask.criterion)
    counted = tuple(r for r in m.results if r.sample not in slight)
    sample, _, error = worst(counted or m.results, ask.criterion)
    still = exceed(counted, ask.criterion)
    after = msgspec.structs.replace(
        findings,
        patches=ranges.encode(all_patches),
        keep=ranges.encode(all_kept),
        righted=ranges.encode(all_righted),
    )
    if not still or findings.signature is None:
        return after, error, still
    result, feed = next(r for r in m.results if r.sample == sample), feed_of(findings, sample)
    if feed == sample and "/" in sample:
        # A row may fail in its batch only; then the batch is what the next round searches on.
        yield Note(f"does {sample} fail without the rest of its batch?")
        alone = yield from asked(cure((sample,)))
        by_itself = worst_run(ask.unpatched(alone, all_patches), ask.criterion)
        if alone.status == "ok" and exceed(by_itself.results, ask.criterion):
            result = by_itself.results[0]
        else:
            feed = sample.partition("/")[0]
    signature = sign_failure(result, ask.criterion, sample)
    if is_infinite(findings):
        # Of what was infinite nobody asks whether rounding makes it. Of what is left it may (boxes
        # sorted by their scores).
        on_it = msgspec.structs.replace(findings, signature=signature, sample=feed)
        moved = yield from move_last_place(look_at_whole(ask.ctx, on_it, SECONDS))
        still = not moved.explains
    if not still:
        return after, error, still
    return msgspec.structs.replace(after, round_signature=signature, sample=feed), error, still


def is_infinite(findings: Findings) -> bool:
    """Whether the failure is, so that nobody asked yet whether rounding makes it."""
    signature = findings.signature
    return signature is not None and (signature.nonfinite or signature.error >= HUGE)


def feed_of(findings: Findings, sample: str) -> str:
    """What to feed for a scored sample: its row alone where the search feeds rows alone, else the
    feed that holds it."""
    return choose_feed(findings, sample) if "/" in findings.sample else sample.partition("/")[0]
