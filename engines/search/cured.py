"""A culprit is taken out of the model, by its own share only: does the model still fail, and how?
What is left is what the next round searches.

A culprit's nodes kept in FP32, or computed by the reference where the engine keeps none, are given
what the engine gives them in that very run, so that errors made before them stay in it. Reference
values fed in after them take those away, too: they are for what fails of its rounded inputs alone,
and for what FP32 does not cure.
"""

from collections.abc import Sequence
from functools import partial

import msgspec

from narrowdown.engines.asking import Answer, Fed, Note, Question, Sub
from narrowdown.engines.asking.failure import find_own
from narrowdown.engines.asking.inquiry import Inquiry
from narrowdown.engines.asking.oracle import Oracle, make_oracle
from narrowdown.engines.asking.whole_model import WholeModel
from narrowdown.engines.compare.judge import (
    by_sample,
    exceed,
    list_slight,
    restrict,
    sign_failure,
    worst,
    worst_run,
)
from narrowdown.engines.findings import Case, Findings
from narrowdown.engines.graph import GraphIndex, ranges
from narrowdown.engines.graph.quantized import find_bypassable
from narrowdown.engines.probe import HUGE, Measurement
from narrowdown.engines.search.determined import move_last_place
from narrowdown.engines.search.unseen import SECONDS, list_failing

# A tensor that loses this part of itself when it is stored cannot be fed: rounding alone costs BF16
# 0.004, FP8 0.06, and an epsilon that becomes 0 loses all.
LOST = 0.1
VANISHING = ("epsilon-underflow", "underflow")


class Cut(msgspec.Struct, frozen=True):
    """What takes the error of a culprit out of the whole model: ``patches``, tensors that are fed
    with reference values; ``keep``, nodes in FP32; ``righted``, nodes that the reference
    computes. ``around``: the nodes that a workaround would have to keep."""

    around: tuple[int, ...]
    patches: tuple[int, ...] = ()
    keep: tuple[int, ...] = ()
    righted: tuple[int, ...] = ()

    def widen(self, index: GraphIndex, more: Sequence[int]) -> "Cut":
        """The same done to more nodes."""
        made = {t for n in more for t in index.nodes[n].outputs}
        grown = {"around": more, "patches": made, "keep": more, "righted": more}
        fields = msgspec.structs.asdict(self).items()
        return Cut(**{k: tuple(sorted({*v, *grown[k]})) if v else v for k, v in fields})


class Left(msgspec.Struct, frozen=True):
    """What the model does without the culprits. ``findings``: where the search goes on; ``error`` of
    the worst sample, None where it does not run so; ``still``: it fails."""

    findings: Findings
    error: float | None = None
    still: bool = False


def list_cuts(oracle: Oracle, case: Case, cause: str) -> Sub[tuple[Cut, ...]]:
    """The ways to take this case out of the model, the one first that leaves in it what was wrong
    before."""
    nodes = ranges.decode(case.node_ids)
    if cause == "quantization" and (pairs := find_bypassable(oracle.index, nodes)):
        # Computed exactly a dequantizer gives what its codes are worth, and the loss is in these.
        return (Cut(nodes, keep=pairs),)
    patched, fits = yield from _walk_forward(oracle, case, small=cause in VANISHING)
    around = patched.around
    # Wrong by what its own nodes do to what they are given, and not by how that was rounded.
    own = case.feed == "stored" and not case.needs_higher_inputs
    if own and not oracle.keeps:
        return Cut(around, righted=around), patched
    if oracle.keeps and (not fits or (own and (yield from _is_right_in_fp32(oracle, nodes)))):
        return (Cut(around, keep=around),)
    return (patched,)


def _walk_forward(oracle: Oracle, case: Case, *, small: bool) -> Sub[tuple[Cut, bool]]:
    """The tensors that cut this case off when they are fed with reference values, and whether the
    case's own outputs could be fed at once.

    A value that the engine's storage cannot hold (an overflowing sum, an epsilon that becomes 0)
    cannot be fed: the patch moves to the outputs of its readers, and those readers join the nodes
    that a workaround would have to keep. ``small``: that values vanish is the fault, so a single one
    that does among others is enough, while the model fails.
    """
    index = oracle.index
    nodes = set(index.with_copies(ranges.decode(case.node_ids)))
    _, leaves = index.boundary(nodes)
    patches, fits = set(leaves), True
    # Twelve steps forward are a bound, chosen and not measured: a norm's square, sum and root take
    # three.
    for _ in range(12):
        note = Note("the whole model, with right values put in after the case")
        answer: Answer = yield from oracle.ask(
            Question(fed=Fed((case.sample,)), right=frozenset(patches), build=0, note=note)
        )
        stuck = _list_unfeedable(oracle, answer, small=small) & patches
        if not stuck:
            break
        fits = False
        readers = {r for t in stuck for r in index.readers[t]}
        nodes |= readers
        made = {t for r in readers for t in index.nodes[r].outputs if index.readers[t]}
        patches = (patches - stuck) | made
    return Cut(tuple(sorted(nodes)), patches=tuple(sorted(patches))), fits


def _list_unfeedable(oracle: Oracle, answer: Answer, *, small: bool) -> set[int]:
    """The tensors that could not be fed as they are, as their values were lost where they were
    stored."""
    results = answer.measured.results if answer.measured.status == "ok" else ()
    lost = {n for r in results for n in r.unrepresentable}
    lost |= {n for r in results for n, part in r.rounded.items() if part > LOST}
    if small and answer.fails:
        lost |= {n for r in results for n in r.vanished}
    return {oracle.index.by_name[n] for n in lost if n in oracle.index.by_name}


def _is_right_in_fp32(oracle: Oracle, nodes: Sequence[int]) -> Sub[bool]:
    """Whether a part, fed as it was, is right once its nodes are in FP32."""
    part, note = frozenset(nodes), Note("the case, its nodes in FP32")
    answer: Answer = yield from oracle.ask(Question(part, keep=part, build=0, note=note))
    return answer.clean


def measure_without(ask: Inquiry, cut: Cut) -> Sub[Left]:
    """Does the whole model still fail once this is taken out beside what ``ask`` has cured already?
    If so: lock what the next round searches. Not counted is what fails on nearly nothing
    (``list_slight``), and what rounding alone moves as far."""
    before, oracle = ask.findings, make_oracle(ask)

    yield Note("does the model still fail without this case?")
    look = partial(
        oracle.feed,
        uncured=False,
        right=frozenset(cut.patches),
        keep=frozenset(cut.keep),
        righted=frozenset(cut.righted),
    )
    fed: Measurement = yield from look(oracle.feeds)
    m = worst_run(fed, ask.criterion)
    if m.status != "ok":
        return Left(before)
    # Nobody can call these right or wrong (``compare`` asks about none of them), so no further
    # culprit is accused of them.
    slight = list_slight(m.results, ask.criterion)
    counted = tuple(r for r in m.results if r.sample not in slight)
    sample, _, error = worst(counted or m.results, ask.criterion)
    after = msgspec.structs.replace(
        before,
        patches=_join(before.patches, cut.patches),
        keep=_join(before.keep, cut.keep),
        righted=_join(before.righted, cut.righted),
    )
    if not exceed(counted, ask.criterion) or before.signature is None:
        return Left(after, error)
    result = next(r for r in m.results if r.sample == sample)
    result = yield from find_own(before, result, look((sample,), apart=True))
    if msgspec.structs.replace(before, sample=result.sample).loop is not None:
        return Left(after, error)  # it grows in what is carried: no node is to be found
    # A row may fail in its batch only, so the batch is what the next round searches on.
    feed = sample.partition("/")[0] if result.sample == sample else result.sample
    signature = sign_failure(result, ask.criterion, result.sample)
    if is_infinite(before):
        # Of what was infinite nobody asks whether rounding makes it. Of what is left it may (boxes
        # sorted by their scores).
        on_it = msgspec.structs.replace(before, signature=signature, sample=feed)
        moved = yield from move_last_place(WholeModel(ask.ctx, on_it, SECONDS))
        if moved.explains:
            return Left(after, error)
    after = msgspec.structs.replace(after, round_signature=signature, sample=feed)
    return Left(after, error, True)


def _join(ids: str, more: Sequence[int]) -> str:
    return ranges.encode({*ranges.decode(ids), *more})


def is_infinite(findings: Findings) -> bool:
    """Whether the failure is, so that nobody asked yet whether rounding makes it."""
    signature = findings.signature
    return signature is not None and (signature.nonfinite or signature.error >= HUGE)


def count_right_without(oracle: Oracle, accused: frozenset[int]) -> Sub[tuple[int, int]]:
    """How many of so many given samples are right with the found nodes in FP32 and nothing else;
    (-1, 0) where it does not run so. What fails on nearly nothing is not counted."""
    yield Note(f"with the {len(accused)} nodes found so far in FP32, and nothing else")
    m: Measurement = yield from oracle.feed(oracle.feeds, keep=accused)
    if m.status != "ok":
        return -1, 0
    slight = list_slight((r for run in m.each_run for r in run), oracle.criterion)
    counted = restrict(m, set(by_sample(m)) - slight)
    n = len(by_sample(counted))
    return n - len(list_failing(counted, oracle.criterion)), n
