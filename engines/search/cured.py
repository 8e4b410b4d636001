"""The model with culprits cured, each by its own share only: does it still fail, and how? What is
left is what the next round looks for.

A culprit's nodes kept in FP32, or computed by the reference where the engine keeps none, are given
what the engine gives them in that very run, so that errors made before them stay in it. Reference
values fed in after them take those away, too: they are for what fails of its rounded inputs alone.
"""

import msgspec

from narrowdown.engines.asking import Note, Sub
from narrowdown.engines.asking.answer import Answer
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import Oracle, make_oracle
from narrowdown.engines.asking.question import Question
from narrowdown.engines.compare.judge import exceed, list_slight, sign_failure, worst, worst_run
from narrowdown.engines.findings import Case, Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import HUGE, Measurement
from narrowdown.engines.search.determined import move_last_place
from narrowdown.engines.search.unseen import SECONDS
from narrowdown.engines.search.whole import look_at_whole


def has_own_share(case: Case) -> bool:
    """Whether the case is wrong by what its own nodes do to what they are given, and not by how
    that was rounded."""
    return case.feed == "stored" and not case.needs_higher_inputs


def rights_itself(oracle: Oracle, case: Case) -> Sub[bool]:
    """Whether the case, fed as it was, passes once its nodes are in FP32. False where the engine
    cannot keep nodes."""
    if not oracle.keeps or not has_own_share(case):
        return False
    nodes = frozenset(ranges.decode(case.node_ids))
    note = Note("the case, its nodes in FP32")
    answer: Answer = yield from oracle.ask(Question(nodes, keep=nodes, build=0, note=note))
    return answer.passes


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
    before, oracle = ask.findings, make_oracle(ask)
    all_patches = {*patches, *ranges.decode(before.patches)}
    all_kept = {*keep, *ranges.decode(before.keep)}
    all_righted = {*righted, *ranges.decode(before.righted)}

    def cure(samples: tuple[str, ...]) -> Sub[Measurement]:
        m: Measurement = yield from oracle.feed(
            samples,
            uncured=False,
            right=frozenset(patches),
            keep=frozenset(keep),
            righted=frozenset(righted),
        )
        return worst_run(m, ask.criterion)

    yield Note("does the model still fail without this case?")
    m: Measurement = yield from cure(oracle.feeds)
    if m.status != "ok":
        return findings, None, False
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
    result, feed = next(r for r in m.results if r.sample == sample), oracle.feed_for(sample)
    if feed == sample and "/" in sample:
        # A row may fail in its batch only; then the batch is what the next round searches on.
        yield Note(f"does {sample} fail without the rest of its batch?")
        alone: Measurement = yield from cure((sample,))
        if alone.status == "ok" and exceed(alone.results, ask.criterion):
            result = alone.results[0]
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
