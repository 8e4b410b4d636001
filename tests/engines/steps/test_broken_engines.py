"""Every searching step over engines that crash, time out, refuse, slide to another failure, and
fail now and then: it ends, and what it says is true."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given, settings, strategies as st

from narrowdown.engines.asking.failure_rate import builds_to_see
from narrowdown.engines.compare.judge import Signature, judge_whole
from narrowdown.engines.compare.statistics import runs_to_see
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Measure, Measurement
from narrowdown.engines.search import tensor_errors as side_by_side
from narrowdown.engines.search.accuse import ALIKE
from narrowdown.engines.spec import parse

from . import answers
from .conftest import walk
from .simulated import BROKEN, RULE, Simulated, graph, random_graph

sizes, seeds, rates = st.integers(2, 32), st.integers(0, 2**16), st.floats(0, 0.9)


def planted(n: int, seed: int, culprits: int, **rest: Any) -> tuple[Simulated, set[int]]:
    """(engine, culprits): some nodes add a large error, others a larger one that nothing lets
    through; all others add what a right engine of that precision does."""
    rng = random.Random(seed)
    index = random_graph(n, rng)
    final = set(index.outputs)
    order = rng.sample(range(n), n)
    guilty = set(order[:culprits])
    added = dict.fromkeys(range(n), 0.0003) | {node: rng.uniform(0.2, 0.6) for node in guilty}
    gain = {}
    for node in order[culprits : culprits + 2]:
        readers = index.readers[index.nodes[node].outputs[0]]
        if readers and not final & set(index.nodes[node].outputs) and not guilty & {node, *readers}:
            added[node] = 5.0
            gain |= dict.fromkeys(readers, 0.0)
    return Simulated.single(index, added, gain=gain, seed=seed, **rest), guilty


def reaching(engine: Simulated, guilty: set[int]) -> set[int]:
    """The culprits whose own error alone moves an output by a tenth of the failure, and beyond the
    tolerance."""
    whole = engine.findings().signature.error
    found = set()
    for node in guilty:
        errors = engine._transplanted(
            {engine.index.nodes[node].outputs[0]: engine.added["real:0"][node]}
        )
        worst = max(errors.get(t, 0.0) for t in engine.index.outputs)
        found |= {node} if worst > 0.01 and worst >= whole / 10 else set()
    return found


@settings(max_examples=60, deadline=None)
@given(sizes, seeds, st.integers(1, 3), st.integers(1, 6))
def test_layerwise_ends_where_its_budget_does(
    n: int, seed: int, culprits: int, budget: int
) -> None:
    engine, guilty = planted(n, seed, min(culprits, n))
    assume(engine.findings().signature is not None and reaching(engine, guilty))
    whole = walk("layerwise", engine.context(), engine)
    asked = [note for note in whole.notes if note.best == 0]
    assert [note.tried for note in asked] == list(range(len(asked))), "each may be the last"
    ended = walk(
        "layerwise", msgspec.structs.replace(engine.context(), params={"budget": budget}), engine
    )
    assert sum(note.best == 0 for note in ended.notes) == min(budget, len(asked))
    outcome, accused = ended.finish.outcome, {s.node for s in ended.finish.findings.suspects}
    assert accused <= {s.node for s in whole.finish.findings.suspects}
    assert (outcome.left > 0) == (budget < len(asked))
    assert ("The step was ended here" in outcome.message) == (outcome.left > 0)
    assert not whole.finish.outcome.left
    if not outcome.left:
        assert msgspec.to_builtins(outcome) == msgspec.to_builtins(whole.finish.outcome)


@settings(max_examples=100, deadline=None)
@given(sizes, seeds, st.integers(1, 3))
def test_layerwise_accuses_who_moves_the_outputs_and_nobody_else(
    n: int, seed: int, culprits: int
) -> None:
    engine, guilty = planted(n, seed, min(culprits, n))
    assume(engine.findings().signature is not None and reaching(engine, guilty))
    done = walk("layerwise", engine.context(), engine).finish
    accused = [s.node for s in done.findings.suspects]
    assert done.outcome.observer == "reproduces"
    assert set(accused) == reaching(engine, guilty)
    effects = [s.effect for s in done.findings.suspects]
    alike = [s.node for s in done.findings.suspects if ALIKE * s.effect >= max(effects)]
    assert accused[: len(alike)] == sorted(alike), (
        "the largest effects first, of those alike the first in the graph"
    )
    assert effects[len(alike) :] == sorted(effects[len(alike) :], reverse=True)


@settings(max_examples=100, deadline=None)
@given(sizes, seeds, st.integers(1, 3), rates)
def test_layerwise_on_an_engine_that_breaks_accuses_no_innocent(
    n: int, seed: int, culprits: int, broken: float
) -> None:
    engine, guilty = planted(n, seed, min(culprits, n), broken=broken)
    assume(engine.findings().signature is not None)
    done = walk("layerwise", engine.context(), engine).finish
    assert {s.node for s in done.findings.suspects} <= guilty
    if done.outcome.observer == "cannot-run":
        assert done.outcome.reason
        assert not done.findings.suspects
    if not engine.unanswered:
        assert {s.node for s in done.findings.suspects} >= reaching(engine, guilty)


@settings(max_examples=60, deadline=None)
@given(sizes, seeds, st.floats(0.05, 0.9))
def test_layerwise_looks_often_enough_at_what_comes_and_goes(
    n: int, seed: int, rate: float
) -> None:
    engine, guilty = planted(n, seed, 1, rate=rate, looks=2 * runs_to_see(rate))
    assume(engine.findings().signature is not None)
    done = walk("layerwise", engine.context(), engine).finish
    accused = {s.node for s in done.findings.suspects}
    assert accused <= guilty
    if not engine.missed:
        assert done.outcome.observer == "reproduces"
        assert accused == reaching(engine, guilty)


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 32), seeds)
@example(24, 137)
def test_a_quiet_culprit_before_a_node_that_amplifies_is_found(n: int, seed: int) -> None:
    rng = random.Random(seed)
    index = random_graph(n, rng)
    quiet = rng.randrange(n - 1)
    behind = [m for m in index.descendants(index.nodes[quiet].outputs) if m != quiet]
    assume(behind)
    loud = rng.choice(behind)
    engine = Simulated.single(index, {quiet: 1e-4}, gain={loud: 2000.0})
    done = walk("layerwise", engine.context(), engine).finish
    assert [s.node for s in done.findings.suspects] == [quiet]
    case = walk("extract", engine.context(findings=done.findings), engine).finish
    assert case.outcome.reproduced
    nodes = set(ranges.decode(case.findings.case.node_ids))
    assert {quiet, loud} <= nodes
    assert case.findings.case.minimal


@pytest.mark.parametrize("most", [1, 5, 2_000])
def test_no_build_runs_more_nodes_side_by_side_than_it_can_hold(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """However many there are at a time, every node is looked at once alone and the same one is
    accused."""
    monkeypatch.setattr(side_by_side, "ALONE", most)
    index = random_graph(23, random.Random(3))
    engine = Simulated.single(index, dict.fromkeys(range(23), 0.0003) | {11: 0.5})
    done = walk("layerwise", engine.context(), engine)
    alone = [
        p for p in done.probes if isinstance(p, Measure) and p.candidate.outputs and not p.effect
    ]
    for feed in ("stored", "exact"):
        nodes = [ranges.decode(p.candidate.nodes) for p in alone if p.feed == feed]
        assert sorted(n for batch in nodes for n in batch) == list(range(23))
        assert max(map(len, nodes)) == min(most, 23)
    assert [s.node for s in done.finish.findings.suspects] == [11]


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 32), seeds, st.integers(1, 200))
def test_tensors_are_watched_in_batches_by_bytes_and_each_batch_is_checked(
    n: int, seed: int, limit: int
) -> None:
    """Where watching one tensor cures the failure, only what was watched with it is left out."""
    rng = random.Random(seed)
    index = random_graph(n, rng)
    inner = [t.id for t in index.tensors if t.kind == "node" and t.id not in index.outputs]
    assume(len(inner) > 1)
    shy = rng.choice(inner)
    # Errors reach every tensor from the first node on.
    engine = Simulated.single(index, dict.fromkeys(range(n), 0.2), shy=frozenset({shy}))
    done = walk("layerwise", engine.context(params={"batch_bytes": limit}), engine)
    watched = [ranges.decode(p.marks) for p in done.probes if isinstance(p, Measure) and p.marks]
    assert sorted(t for batch in watched for t in batch) == inner, "each tensor once"
    for batch in watched:
        assert len(batch) == 1 or sum(index.tensors[t].bytes for t in batch) <= limit
    lost = next(set(batch) for batch in watched if shy in batch)
    seen = {
        index.by_name[row["name"]]
        for row in done.finish.tables["tensors"]
        if row["error"] is not None
    }
    assert seen == set(inner) - lost | (set(index.outputs) if len(watched) > 1 else set())
    assert done.finish.outcome.observer == ("reproduces" if len(watched) > 1 else "improves")


def test_what_amplifies_is_asked_about_with_what_made_its_inputs() -> None:
    """A cancellation is wrong by all the rounding that leads to it: that of its inputs alone makes
    a fiftieth of it."""
    engine = Simulated.single(graph([(), (0,), (1,)]), {0: 0.0009}, gain={1: 1000.0}, rounding=2e-5)
    found = walk("layerwise", engine.context(), engine)
    assert [(s.node, s.nodes) for s in found.finish.findings.suspects] == [(1, "0-1")]
    assert found.finish.findings.suspects[0].effect == pytest.approx(
        engine.findings().signature.error
    )


def test_a_node_that_is_most_of_the_failure_is_cut_out_before_another_is_grown() -> None:
    """The errors of two nodes cancel in part. The first is within what is allowed and passes alone;
    grown with what amplifies it, it would be a crowd."""
    chain = graph([(), *((i,) for i in range(7))])
    engine = Simulated.single(chain, {0: 0.008, 6: 0.036}, gain={2: 3.5})
    findings = walk("layerwise", engine.context(), engine).finish.findings
    assert [s.node for s in findings.suspects] == [0, 6]
    for error, names in ((0.05, "n6"), (0.07, "n0, n1, n2")):
        signature = msgspec.structs.replace(findings.signature, errors={"t7": error})
        told = msgspec.structs.replace(findings, signature=signature)
        extracted = walk("extract", engine.context(findings=told), engine).finish
        assert extracted.outcome.names == names


@pytest.mark.parametrize("step", ["layerwise", "reduce"])
def test_a_node_that_was_fed_what_nobody_can_store_is_not_accused(step: str) -> None:
    """Fed exactly it is right: whoever made that value is at fault."""
    engine = Simulated.single(graph([(), (0,)]), {0: 0.02}, gain={1: 2.0}, rounding=0.025)

    def answer(probe: Any) -> Any:
        m = engine(probe)
        fed = isinstance(probe, Measure) and probe.feed == "stored"
        if not fed or 1 not in ranges.decode(probe.candidate.nodes.replace(ranges.ALL, "")):
            return m
        if 0 in ranges.decode(probe.candidate.nodes) and not probe.candidate.severed:
            return m
        told = tuple(msgspec.structs.replace(r, unrepresentable=("t0",)) for r in m.results)
        return msgspec.structs.replace(m, results=told)

    found = walk(step, engine.context(), answer).finish.findings
    if step == "layerwise":
        assert [s.node for s in found.suspects] == [0]
    else:
        assert found.case is not None
        assert 0 in ranges.decode(found.case.node_ids)


@settings(max_examples=100, deadline=None)
@given(sizes, seeds, st.integers(1, 3), rates)
def test_extract_and_reduce_end_with_what_was_seen_to_fail(
    n: int, seed: int, culprits: int, broken: float
) -> None:
    engine, guilty = planted(n, seed, min(culprits, n), broken=broken)
    assume(engine.findings().signature is not None)
    findings = walk("layerwise", engine.context(), engine).finish.findings
    extracted = walk("extract", engine.context(findings=findings), engine).finish
    reduced = walk("reduce", engine.context(findings=findings), engine).finish
    if findings.suspects and not engine.unanswered:
        assert extracted.outcome.reproduced
    assert engine.unanswered or reduced.outcome.verdict == "reduced"
    for done in (extracted, reduced):
        case = done.findings.case
        if case is None:
            continue
        nodes = set(ranges.decode(case.node_ids))
        assert nodes & guilty, "without a culprit nothing fails"
        failed, looks = map(int, case.verified.split("/"))
        assert failed <= looks
        if not engine.unanswered:
            assert len(nodes) == 1, "a culprit fails alone"
            assert (case.minimal, failed) == (True, looks)


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 24), seeds, st.integers(1, 3), rates)
@example(14, 482, 3, 0.234375)  # in the end what was made near the given ones cannot be run again
@example(
    24, 48, 2, 0.25
)  # the smaller set cures what was searched on, and its look at all samples has no answer
def test_precision_keeps_what_every_sample_needs(
    n: int, seed: int, samples: int, broken: float
) -> None:
    """Each sample needs nodes of its own; what is kept is all of these, and each is needed."""
    rng = random.Random(seed)
    index = random_graph(n, rng)
    added = {
        f"real:{i}": dict.fromkeys(rng.sample(range(n), min(n, rng.randint(0, 2))), 0.5)
        for i in range(samples)
    }
    needed = {node for of in added.values() for node in of}
    engine = Simulated(index=index, added=added, broken=broken, seed=seed, asked={}, hiding={})
    done = walk("precision", engine.context(), engine).finish
    outcome = done.outcome
    assert (outcome.outcome == "none-needed") == (not needed)
    if outcome.outcome == "found":
        kept = set(ranges.decode(done.findings.workaround.keep))
        assert kept >= needed
        assert outcome.samples_ok == outcome.samples >= samples, (
            "made ones decide, too, where a trimmed set has lost some"
        )
        assert kept == needed or not outcome.minimal, "minimal: each was seen to be needed"
        if not engine.unanswered:
            assert kept == needed
            assert outcome.minimal
    elif outcome.outcome == "whole":
        assert len(needed) == n or engine.unanswered, "a smaller set does"
        assert done.findings.workaround is None, "all nodes kept is the model in FP32"
    elif needed:
        assert outcome.outcome == "not-enough"
        assert engine.unanswered, "everything in FP32 is right here"
        assert "precision alone does not" not in outcome.message, "it was not seen"


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 24), seeds, st.floats(0.05, 0.9))
def test_precision_looks_often_enough_at_what_comes_and_goes(
    n: int, seed: int, rate: float
) -> None:
    rng = random.Random(seed)
    index = random_graph(n, rng)
    needed = set(rng.sample(range(n), min(n, rng.randint(1, 2))))
    engine = Simulated.single(
        index, dict.fromkeys(needed, 0.5), rate=rate, looks=2 * runs_to_see(rate), seed=seed
    )
    done = walk("precision", engine.context(), engine).finish
    if not engine.missed:
        kept = done.findings.workaround
        assert set(range(n) if kept is None else ranges.decode(kept.keep)) == needed


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 24), seeds)
def test_precision_is_exact_about_not_enough(n: int, seed: int) -> None:
    """One node is wrong in every precision."""
    rng = random.Random(seed)
    index = random_graph(n, rng)
    wrong = rng.randrange(n)
    engine = Simulated.single(
        index, {wrong: 0.5, rng.randrange(n): 0.4}, stubborn=frozenset({wrong})
    )
    done = walk("precision", engine.context(), engine).finish
    assert done.outcome.outcome == "not-enough"
    assert "precision alone does not make it right" in done.outcome.message
    assert len(engine.asked) == 2, "nothing kept, everything kept"


@pytest.mark.parametrize(("left", "said"), [(0.02, "2 %"), (0.2, "20 %")])
def test_what_precision_brings_is_told_where_it_is_not_enough(left: float, said: str) -> None:
    """What no precision cures is a little over the tolerance, or far."""
    index = random_graph(8, random.Random(1))
    engine = Simulated.single(index, {2: left, 5: 0.5}, stubborn=frozenset({2}))
    outcome = walk("precision", engine.context(), engine).finish.outcome
    assert outcome.outcome == "not-enough"
    assert outcome.message.startswith(f"With everything in FP32 the error is {said} in place of ")


def test_a_precision_that_was_never_measured_is_not_called_innocent() -> None:
    engine = Simulated.single(random_graph(6, random.Random(0)), {2: 0.5}, broken=1.0)
    outcome = walk("precision", engine.context(), engine).finish.outcome
    assert outcome.outcome == "not-enough"
    assert outcome.message.startswith("With everything in FP32 the model did not run")
    assert msgspec.to_builtins(outcome)["error"] is None


# -- what the engine switches

NAMES = ("Alpha", "Beta", "ConstantFolding", "Delta", "Epsilon", "Eta", "Theta", "Zeta")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sets(st.sampled_from(NAMES), min_size=1, max_size=3), min_size=1, max_size=3),
    seeds,
    rates,
    st.one_of(st.just(1.0), st.floats(0.05, 0.9)),
)
def test_optimizers_are_accused_of_what_was_seen(
    harms: list[set[str]], seed: int, broken: float, rate: float
) -> None:
    """Any of ``harms`` being on breaks the model. Some builds do not answer, and what fails may
    fail now and then."""
    looks = 1 if rate == 1 else 2 * runs_to_see(rate)
    seen: dict[frozenset[str], Measurement] = {}
    missed = 0

    def answer(probe: Any) -> Measurement:
        nonlocal missed
        off = set(filter(None, parse(probe.engine).get("disabled_optimizers").split("+")))
        on = frozenset(NAMES) - off
        rng = random.Random(f"{seed}{sorted(on)}")
        if on not in seen:
            assert probe.runs == looks
            assert len(seen) < 2 ** len(NAMES)
            bad = answers.measured(("real:0", 0.5))
            right = answers.measured(("real:0", 0.0))
            shown = any(rng.random() < rate for _ in range(looks))
            fails = any(harm <= on for harm in harms)
            missed += fails and not shown
            broke = 0 < len(on) < len(NAMES) and rng.random() < broken
            seen[on] = rng.choice(BROKEN) if broke else bad if fails and shown else right
        return seen[on]

    locked = msgspec.structs.replace(
        answers.READY,
        signature=Signature(
            kind="accuracy", sample="real:0", outputs=("y",), errors={"y": 0.5}, tolerance=0.01
        ),
        sample="real:0",
        looks=looks,
    )
    context = answers.context(
        locked,
        engine="onnxruntime",
        capabilities={"optimizers": answers.PRESENT},
        info={"optimizers": NAMES},
    )
    outcome = walk("tactics", context, answer).finish.outcome
    verdicts = {on: judge_whole(m, RULE).kind for on, m in seen.items()}
    unanswered = sum(kind == "unresolved" for kind in verdicts.values())
    guilty = frozenset(filter(None, outcome.suspects.split(", ")))
    enablers = frozenset(filter(None, outcome.enablers.split(", ")))
    every = frozenset(NAMES)
    if outcome.found:
        assert verdicts[every - guilty] == "pass", "off, it passes"
        assert outcome.sufficient == (verdicts[guilty | enablers] == "fail"), "on alone, it fails"
    if not unanswered and not missed:
        assert outcome.found
        assert guilty <= set.union(*harms), "no innocent is accused"
        assert all(harm & guilty for harm in harms), (
            "switching these off cures it, whichever does the harm"
        )
    assert unanswered == 0 or f"{unanswered} did not answer" in outcome.message


@settings(max_examples=100, deadline=None)
@given(st.sets(st.sampled_from(NAMES), min_size=1, max_size=3), st.integers(2, 12))
def test_a_search_among_switches_ends_where_its_budget_does_and_checks_what_it_has(
    harm: set[str], budget: int
) -> None:
    asked: list[frozenset[str]] = []

    def answer(probe: Any) -> Measurement:
        on = frozenset(NAMES) - set(
            filter(None, parse(probe.engine).get("disabled_optimizers").split("+"))
        )
        asked.append(on)
        return answers.measured(("real:0", 0.5 if harm <= on else 0.0))

    context = answers.context(
        msgspec.structs.replace(
            answers.READY,
            signature=Signature(
                kind="accuracy", sample="real:0", outputs=("y",), errors={"y": 0.5}, tolerance=0.01
            ),
            sample="real:0",
        ),
        engine="onnxruntime",
        capabilities={"optimizers": answers.PRESENT},
        info={"optimizers": NAMES},
    )
    searched = walk("tactics", context, answer)
    whole = len(asked)
    asked.clear()
    ended = walk("tactics", msgspec.structs.replace(context, params={"budget": budget}), answer)
    assert len(asked) <= budget + 1, "what was found is checked all the same"
    outcome = ended.finish.outcome
    if not outcome.stopped:
        assert msgspec.to_builtins(outcome) == msgspec.to_builtins(searched.finish.outcome)
    assert outcome.stopped == (budget < whole) or budget == whole - 1, (
        "the last build may be the check of what was found"
    )
    assert outcome.found, "what was found was checked: off, it passes"
    assert set(outcome.suspects.split(", ")) & harm
    assert ("not shown" in outcome.message) == outcome.stopped
    assert "not shown" not in searched.finish.outcome.message
    settles = [note.tried for note in searched.notes if note.best == 0 and note.tried > 0]
    assert settles == list(range(2, whole)), "it can be ended from the third build on"


@settings(max_examples=60, deadline=None)
@given(sizes, seeds, st.floats(0.05, 0.9))
def test_what_comes_and_goes_is_reduced_and_confirmed_like_the_rest(
    n: int, seed: int, rate: float
) -> None:
    engine, guilty = planted(n, seed, 1, rate=rate, looks=2 * runs_to_see(rate))
    assume(engine.findings().signature is not None)
    done = walk("reduce", engine.context(), engine).finish
    case = done.findings.case
    if case is None:
        assert engine.missed, done.outcome.message
        return
    assert set(ranges.decode(case.node_ids)) >= guilty
    assert case.signature.errors, "the failure that was seen in some run"
    confirmed = walk("confirm", engine.context(findings=done.findings), engine).finish
    assert (confirmed.outcome.cause, confirmed.outcome.confirmed or engine.missed > 0) == (
        "nondeterminism",
        True,
    )
    if not engine.missed:
        assert set(ranges.decode(case.node_ids)) == guilty
        assert (case.minimal, case.verified, confirmed.outcome.patched_fails) == (
            True,
            "3/3",
            False,
        )


@settings(max_examples=60, deadline=None)
@given(sizes, seeds, st.floats(0.2, 0.9))
def test_where_builds_differ_each_verdict_takes_as_many_as_it_needs(
    n: int, seed: int, rate: float
) -> None:
    engine, guilty = planted(n, seed, 1, rate=rate, builds=runs_to_see(rate) + 1)
    assume(engine.findings().signature is not None)
    watched = walk("layerwise", engine.context(), engine).finish
    assert {s.node for s in watched.findings.suspects} <= guilty
    missed = engine.missed
    if not missed:
        assert {s.node for s in watched.findings.suspects} == reaching(engine, guilty)
    done = walk("reduce", engine.context(), engine).finish
    case = done.findings.case
    if case is not None:
        assert set(ranges.decode(case.node_ids)) >= guilty
        failed, looks = map(int, case.verified.split("/"))
        assert looks == max(3, engine.builds)
        assert 0 < failed <= looks
    if engine.missed == missed:
        assert case is not None
        assert set(ranges.decode(case.node_ids)) == guilty


@pytest.mark.parametrize(
    ("failing", "answered", "builds"),
    [(5, 5, 1), (0, 5, 1), (4, 5, 2), (3, 5, 4), (1, 5, 14), (1, 100, 20), (0, 0, 1)],
)
def test_how_many_builds_a_verdict_needs(failing: int, answered: int, builds: int) -> None:
    assert builds_to_see(failing, answered) == builds
