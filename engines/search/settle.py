"""From a failing node set to a case: fed exactly beside as stored, made simpler, in fresh builds,
with a passing neighbour."""

import math
from collections.abc import Iterable
from typing import Literal

import msgspec

from narrowdown.engines.asking import Note, Sub, asked
from narrowdown.engines.compare.criterion import Signature, Verdict
from narrowdown.engines.compare.judge import SHARE, badness, over
from narrowdown.engines.findings import Case, Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.graph.index import GraphIndex
from narrowdown.engines.graph.shapelike import form_deciding_tensors
from narrowdown.engines.probe import HUGE, Candidate, Edit, Measurement
from narrowdown.engines.search.inquiry import Inquiry
from narrowdown.engines.search.search import NodeIds, Trials
from narrowdown.engines.search.twin import asking_twin
from narrowdown.engines.search.whole import sign_failure

# Values that a fed tensor is filled with, to see whether the fault needs its own: the last one
# squares past what FP16 holds.
SIMPLE = (1.0, -1.0, 300.0)
# Edits that are tried on what is left of a case, unless told: a bound for cases that hold many
# shapes and attributes.
SHRINK_PROBES = 32
# What is usual of one node, and of the several that a reduction leaves: 3 to 15 in nine cases and 4
# to 31 in twelve.
SHRINKS, SHRINKS_OF_MANY = 7, 16
# The same on an engine whose builds are dear (``engines.search.twin``): up to 2 s each on its twin.
SHRINK_DEAR = 8
# A shrunk case fails like itself with a tenth of its own error and more, as a candidate does
# (``engines.compare.judge.SHARE``); of an error beyond 1, of 1: how far beyond is a matter of the
# values that were made simple.
OWN = 1.0
CODES = ("int8", "uint8")  # of quantized weights; other integers are indices and shapes
# Bytes of weights that the passing neighbour is kept with: it only stands beside the case, which is
# kept whatever it weighs.
HEAVIEST_GOOD = 256 << 20


class Saved(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row of the table ``bundle``: the files of a model that a step leaves, name -> digest.
    ``role``: ``alike`` is the case of another culprit of the same kind, found in the same step;
    ``rewrite`` a model written with other nodes that is right, too, where a workaround is known
    already. ``case``: the node ids of an ``alike`` one; of others they are the findings' own."""

    role: Literal["case", "good", "alike", "workaround", "rewrite"]
    files: dict[str, str]
    case: str = ""


def shrinks_for(findings: Findings) -> int:
    """How many edits are tried on a case: few where the engine has a twin to be asked, or its
    builds are dear, as what they simplify is no node less."""
    return SHRINK_DEAR if findings.twin or findings.dear else SHRINK_PROBES


def foretell_settling(ask: Inquiry, shrink_probes: int, verify: int, usual: int = SHRINKS) -> int:
    """Probes that turning a part into a case takes, as a rule: the exact feed, the shrinks, fresh
    builds, a passing neighbour."""
    return 2 + min(usual, shrink_probes) + max(verify, ask.findings.builds)


def settle_case(
    ask: Inquiry,
    trials: Trials,
    nodes: NodeIds,
    minimal: bool,
    *,
    found_by: str,
    verify: int,
    shrink_probes: int = SHRINK_PROBES,
    then: int = -1,
) -> Sub[tuple[Case, tuple[Saved, ...], int]]:
    """Turn a failing node set into a case: exact feed beside stored, shrinks, k of n fresh builds,
    a passing neighbour, files.

    ``found_by``: the step; ``verify``: fresh builds; ``shrink_probes``: how many go into making it
    simpler at most. ``then``: probes that follow it in the step, -1 where nobody knows."""
    candidate, good = ask.candidate(nodes), trials.good(nodes)
    # Where builds differ, more of them, and none that the search has seen.
    looks, seen = max(verify, ask.findings.builds) if verify else 0, ask.findings.builds
    told = then >= 0
    after = looks + bool(good) + max(0, then)
    first = trials.known[nodes]
    spent, needs_higher = 0, False
    if ask.feed == "stored" and not ask.ctx.check and ask.signature.kind == "accuracy":
        usual = 1 + min(SHRINKS, shrink_probes) + after
        yield Note(
            "what is left, fed values that were not rounded", usual if told else -1, best=len(nodes)
        )
        exact = yield from asked(ask.ask(candidate, feed="exact"))
        spent += 1
        needs_higher = ask.verdict(exact).passed
    signature = _sign_case(ask, trials.measured[nodes], first)
    if (
        shrink_probes
        and not ask.ctx.check
        and signature is not None
        and signature.kind == "accuracy"
    ):
        candidate, shrunk = yield from _shrink_cheaply(
            ask, candidate, nodes, signature, shrink_probes, after if told else -1
        )
        spent += shrunk
    failures, files = yield from _verify_in_fresh_builds(
        ask, candidate, nodes, signature, range(seen, seen + looks), after if told else -1
    )
    neighbour = None
    if good:
        neighbour, kept = yield from _keep_neighbour(
            ask, good, nodes, seen, 1 + then if told else -1
        )
        files += kept
    _, leaves = ask.index.boundary(nodes)
    case = Case(
        candidate=candidate,
        sample=ask.findings.sample,
        nodes=ask.names(sorted(nodes)),
        node_ids=ranges.encode(nodes),
        ops=ask.ops(sorted(nodes)),
        inputs=tuple(ask.index.tensors[t].name for t in ask.fed(nodes)),
        outputs=tuple(ask.index.tensors[t].name for t in leaves),
        own=first.own,
        effect=first.effect,
        own_places=first.own_places,
        effect_places=first.effect_places,
        feed=ask.feed,
        needs_higher_inputs=needs_higher,
        good=neighbour,
        verified=f"{failures}/{looks}",
        signature=signature,
        minimal=minimal,
        found_by=found_by,
    )
    return case, files, spent + looks + bool(good)


def _verify_in_fresh_builds(
    ask: Inquiry,
    candidate: Candidate,
    nodes: NodeIds,
    signature: Signature | None,
    attempts: range,
    after: int,
) -> Sub[tuple[int, tuple[Saved, ...]]]:
    """In how many of these builds the case fails like itself, and the files of the first.
    ``after``: probes from here to the end of the step, -1 where nobody knows."""
    failures, files = 0, tuple[Saved, ...]()
    for done, attempt in enumerate(attempts):
        text = f"what is left in fresh builds, {done + 1} of {len(attempts)}"
        yield Note(text, after - done if after >= 0 else -1, best=len(nodes))
        again = yield from asked(ask.ask(candidate, attempt=attempt, save="" if done else "case"))
        failures += _still_fails(ask, again, candidate, signature)
        files = files or (Saved("case", dict(again.artifacts)),)
    return failures, files


def _keep_neighbour(
    ask: Inquiry, good: NodeIds, nodes: NodeIds, attempt: int, after: int
) -> Sub[tuple[Candidate | None, tuple[Saved, ...]]]:
    """The largest part that passes, where it does so in a build of its own, and its files; None
    where it does not."""
    candidate = ask.candidate(good)
    yield Note("the largest part that passes, once more", after, best=len(nodes))
    heavy = count_weight_bytes(ask.index, ranges.decode(candidate.nodes)) > HEAVIEST_GOOD
    m = yield from asked(ask.ask(candidate, attempt=attempt, save="" if heavy else "good"))
    if not ask.verdict(m).passed:
        return None, ()
    return candidate, (Saved("good", {} if heavy else dict(m.artifacts)),)


def _shrink_cheaply(
    ask: Inquiry,
    candidate: Candidate,
    nodes: NodeIds,
    signature: Signature,
    budget: int,
    after: int,
) -> Sub[tuple[Candidate, int]]:
    """``shrink_case`` on the cheap twin, where there is one: what holds there is kept if the engine
    as it was given fails so, too, which one build tells. On a CNN's part each edit took 9 s as
    given, and half a second on the twin (an H100)."""
    there = asking_twin(ask)
    shrunk, spent = yield from shrink_case(there, candidate, nodes, signature, budget, after)
    if there is ask or shrunk == candidate:
        return shrunk, spent
    yield Note(
        "the simpler one, on the engine as it was given",
        1 + after if after >= 0 else -1,
        best=len(nodes),
    )
    m = yield from asked(ask.ask(shrunk))
    return (shrunk if _still_fails(ask, m, shrunk, signature) else candidate), spent + 1


def shrink_case(
    ask: Inquiry,
    candidate: Candidate,
    nodes: NodeIds,
    signature: Signature,
    budget: int,
    after: int = -1,
) -> Sub[tuple[Candidate, int]]:
    """Simplify what is left of a case, one edit at a time, as long as it keeps failing like itself.
    Returns (candidate, probes). ``after``: probes that follow until the step ends, -1 where nobody
    knows."""
    spent = 0
    edits = _list_edits(ask, nodes)
    for at, edit_set in enumerate(edits):
        if spent >= budget:
            break
        done = {(e.kind, e.tensor, e.axis, e.node, e.attribute) for e in candidate.edits}
        if done.intersection((e.kind, e.tensor, e.axis, e.node, e.attribute) for e in edit_set):
            continue  # a stronger edit of the same thing has held
        trial = msgspec.structs.replace(candidate, edits=(*candidate.edits, *edit_set))
        left = min(budget - spent, len(edits) - at) + after if after >= 0 else -1
        yield Note("can what is left be made simpler?", left, best=len(nodes))
        m = yield from asked(ask.ask(trial))
        spent += 1
        if _still_fails(ask, m, trial, signature):
            candidate = trial
    return candidate, spent


def _list_edits(ask: Inquiry, nodes: NodeIds) -> list[tuple[Edit, ...]]:
    """Shrinks worth trying, most worth first: dimensions that fed tensors and weights share, down
    to 1 (then by half), then simple values for what is fed and for weights, then attributes left to
    their defaults.

    Of a batch the rows around the one that fails are kept."""
    index = ask.index
    row = ask.signature.sample.partition("/")[2] if "/" not in ask.findings.sample else ""
    forming = form_deciding_tensors(
        index, nodes
    )  # of other values a result may not fit into memory
    feeds = tuple(t for t in index.boundary(nodes)[0] if t not in forming)
    read = sorted(
        {t for n in nodes for t in index.nodes[n].reads if index.tensors[t].kind == "weight"}
        - forming
    )
    weights = [t for t in read if index.tensors[t].floating or index.tensors[t].dtype in CODES]
    edits: list[tuple[Edit, ...]] = []
    # Sizes that are equal mostly are one dimension of the graph: of what is fed and of weights,
    # else of what is fed alone.
    all_axes, fed_axes = _group_axes(index, (*feeds, *weights)), _group_axes(index, feeds)
    for size, places in sorted(all_axes.items(), key=lambda item: -item[0]):
        for of in dict.fromkeys((tuple(places), tuple(fed_axes.get(size, ())))):
            edits += [
                tuple(
                    _keep_rows(
                        t, axis, n, min(int(row or 0), size - n) if t in feeds and not axis else 0
                    )
                    for t, axis in of
                )
                for n in dict.fromkeys((1, size // 2) if of else ())
            ]
    large = [t for t in read if math.prod(index.tensors[t].shape or ()) > 1]
    floating = [t for t in (*feeds, *large) if index.tensors[t].floating]
    edits += [(Edit("fill", tensor=t, value=value),) for t in floating for value in SIMPLE]
    edits += [
        (Edit("drop-attribute", node=n, attribute=a),)
        for n in sorted(nodes)
        for a in index.nodes[n].attributes
    ]
    return edits


def _group_axes(index: GraphIndex, tensors: Iterable[int]) -> dict[int, list[tuple[int, int]]]:
    """Size -> (tensor, axis) of all dimensions of that size; 1 is left out."""
    axes: dict[int, list[tuple[int, int]]] = {}
    for t in tensors:
        for axis, size in enumerate(index.tensors[t].shape or ()):
            if size > 1:
                axes.setdefault(size, []).append((t, axis))
    return axes


def _keep_rows(tensor: int, axis: int, kept: int, start: int) -> Edit:
    return Edit("keep-rows", tensor=tensor, axis=axis, value=float(kept), start=start)


def _sign_case(ask: Inquiry, m: Measurement, verdict: Verdict) -> Signature | None:
    """The case's own signature: its outputs and its error; what check.py and every shrink must
    keep. What crashes or does not build has no errors: there it is the whole model's."""
    if ask.signature.kind in ("build", "crash"):
        return ask.signature
    if not m.results or not verdict.failed:
        return None
    return sign_failure(ask.row(m), ask.criterion, ask.findings.sample)


def _still_fails(
    ask: Inquiry, m: Measurement, candidate: Candidate, signature: Signature | None
) -> bool:
    """Whether a case fails like itself: by own error and effect, or, once edited, by its own
    signature."""
    if not candidate.edits or signature is None:
        return ask.verdict(m).failed
    if m.status != "ok" or not m.results:
        return False
    scores = {s.name: s for s in ask.row(m).outputs}
    same = [scores[n] for n in signature.outputs if n in scores]
    errors = [badness(s, ask.criterion) for s in same]
    worst = max(errors, default=0.0)
    return (
        any(over(s, ask.criterion) for s in same)
        and worst >= SHARE * min(signature.error, OWN)
        and any(s.new_nonfinite > 0 for s in same) == signature.nonfinite
        and (worst >= HUGE)
        == (signature.error >= HUGE)  # a reference of zeros makes any error infinitely large
    )


def count_weight_bytes(index: GraphIndex, nodes: Iterable[int]) -> int:
    """Bytes of the weights that the nodes read, each counted once."""
    read = {t for n in nodes for t in index.nodes[n].reads}
    return sum(max(0, index.tensors[t].bytes) for t in read if index.tensors[t].kind == "weight")
