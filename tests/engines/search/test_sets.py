"""What is known of sets of nodes: asked once, told sample by sample, counted by builds."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from narrowdown.engines.compare.criterion import Criterion, tighten_criterion
from narrowdown.engines.compare.judge import judge_whole
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Measure, Measurement, SampleResult, Score
from narrowdown.engines.search.inquiry import make_inquiry
from narrowdown.engines.search.sets import KeptSets, NodeSet
from tests.engines.steps.simulated import RULE, Simulated, graph

SAMPLES = ("real:0", "real:1", "real:2")


class Asked:
    """The sets over an engine that needs node 1 on each sample, and what was asked of it."""

    def __init__(self, answer: Callable[["Asked", Measure], Measurement] | None = None) -> None:
        added = {sample: {1: 0.5} for sample in SAMPLES}
        self.engine = Simulated(index=graph([(), (0,), (1,)]), added=added, asked={}, hiding={})
        findings = self.engine.findings()
        assert findings.signature is not None
        self.sets = KeptSets(
            make_inquiry(self.engine.context(), findings, self.engine.index, findings.signature)
        )
        self.answer = answer or (lambda asked, probe: asked.engine(probe))
        self.probes: list[Measure] = []

    def drive(self, sub: Any) -> Any:
        reply = None
        while True:
            try:
                probe = sub.send(reply)
            except StopIteration as end:
                return end.value
            reply = None
            if isinstance(probe, Measure):
                self.probes.append(probe)
                reply = self.answer(self, probe)


def test_it_knows_what_was_asked_and_nothing_else() -> None:
    asked = Asked()
    asked.drive(asked.sets.measure((1,), SAMPLES[:1]))
    assert asked.sets.knows((1,), SAMPLES[:1])
    assert not asked.sets.knows((1,), SAMPLES)
    assert not asked.sets.knows((0,), SAMPLES[:1])


def test_what_is_asked_of_a_build_right_after_it_was_made_costs_no_other() -> None:
    """The hardest sample alone, then the others: two questions and one build."""
    asked = Asked()
    assert asked.drive(asked.sets.passes((1,), RULE, SAMPLES)).passed
    assert [len(p.samples) for p in asked.probes] == [1, 2]
    assert asked.sets.spent == 1
    asked.drive(asked.sets.passes((0,), RULE, SAMPLES))
    assert asked.sets.spent == 2


def test_the_model_as_it_is_is_asked_for_as_the_session_has_run_it() -> None:
    """On all samples together, which is known by then; told are those that were asked for."""
    asked = Asked()
    given: Measurement = asked.drive(asked.sets.measure_plain(SAMPLES[:2]))
    assert [p.samples for p in asked.probes] == [SAMPLES]
    assert {r.sample for r in given.results} == set(SAMPLES[:2])
    assert asked.sets.knows((), SAMPLES[:2])

    def answer(asked: Asked, probe: Measure) -> Measurement:
        return Measurement(status="crash") if probe.samples == SAMPLES else asked.engine(probe)

    alone = Asked(answer)
    assert alone.drive(alone.sets.measure_plain(SAMPLES[:1])).status == "ok"
    assert [p.samples for p in alone.probes] == [SAMPLES, SAMPLES[:1]]


def test_what_was_made_near_is_fed_from_its_own_inputs() -> None:
    asked = Asked()
    asked.sets.near["near:0"] = "others"
    asked.drive(asked.sets.measure((1,), ("real:0", "near:0", "real:1")))
    assert [(p.inputs, p.samples) for p in asked.probes] == [
        ("i", ("real:0", "real:1")),
        ("others", ("near:0",)),
    ]


def test_what_could_not_be_built_once_more_to_be_kept_stays_known() -> None:
    def answer(asked: Asked, probe: Measure) -> Measurement:
        return (
            Measurement(status="build-failed", message="no room")
            if probe.save
            else asked.engine(probe)
        )

    asked = Asked(answer)
    asked.drive(asked.sets.measure((1,), SAMPLES))
    again = asked.drive(asked.sets.measure((1,), SAMPLES, save="workaround"))
    assert again.status == "ok"
    assert [p.save for p in asked.probes] == ["", "workaround"]
    assert asked.drive(asked.sets.passes((1,), RULE, SAMPLES)).passed


@pytest.mark.parametrize("unclear", SAMPLES)
def test_a_set_that_could_not_be_seen_on_a_sample_has_not_passed(unclear: str) -> None:
    def answer(asked: Asked, probe: Measure) -> Measurement:
        if unclear in probe.samples:
            return Measurement(status="timeout", message="it did not end")
        return asked.engine(probe)

    asked = Asked(answer)
    verdict = asked.drive(asked.sets.passes((1,), RULE, SAMPLES))
    assert not verdict.passed
    assert not verdict.failed


def test_of_what_was_fed_together_each_has_its_own_part() -> None:
    def answer(asked: Asked, probe: Measure) -> Measurement:
        return msgspec.structs.replace(asked.engine(probe), run_seconds=3.0)

    asked = Asked(answer)
    asked.drive(asked.sets.measure((1,), SAMPLES))
    one = asked.drive(asked.sets.measure((1,), SAMPLES[1:2]))
    assert [r.sample for r in one.results] == ["real:1"]
    assert one.run_seconds == pytest.approx(1.0)
    assert len(asked.probes) == 1


def test_what_is_fed_together_is_one_probe_and_where_it_fails_the_rest_is_not_run() -> None:
    """Of two inputs the one that sets failed on goes first; with none such, the session's."""
    asked = Asked()
    asked.sets.near |= {"real:1": "others", "real:2": "others"}
    failing = {"real:0": 0, "real:1": 1, "real:2": 1}
    asked.answer = lambda asked, probe: asked.engine(
        msgspec.structs.replace(
            probe, keep="" if any(failing[s] for s in probe.samples) else probe.keep
        )
    )
    assert asked.drive(asked.sets.passes((1,), RULE, SAMPLES)).failed
    assert [p.samples for p in asked.probes] == [("real:0",), ("real:1", "real:2")]
    asked.probes.clear()
    assert asked.drive(asked.sets.passes((0, 1), RULE, SAMPLES)).failed
    assert [p.samples for p in asked.probes] == [("real:1",)]
    asked.probes.clear()
    failing["real:1"] = 0
    assert asked.drive(asked.sets.passes((1, 2), RULE, SAMPLES)).failed
    assert [p.samples for p in asked.probes] == [("real:1",), ("real:2",)]


def test_the_sample_that_failed_of_late_is_asked_first_though_another_failed_more_often() -> None:
    failing = "real:0"
    asked = Asked(
        lambda asked, probe: asked.engine(
            msgspec.structs.replace(probe, keep="0-2" if failing not in probe.samples else "")
        )
    )
    for keep in ((0,), (2,), (0, 2)):
        assert asked.drive(asked.sets.passes(keep, RULE, SAMPLES)).failed
    assert [p.samples for p in asked.probes] == [("real:0",)] * 3
    failing = "real:2"
    for keep in ((1,), (0, 1), (1, 2)):
        asked.probes.clear()
        assert asked.drive(asked.sets.passes(keep, RULE, SAMPLES)).failed
    assert [p.samples for p in asked.probes] == [("real:2",)]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sets(st.integers(0, 5), min_size=1), st.sets(st.sampled_from(SAMPLES), min_size=1)
        ),
        max_size=12,
    ),
    st.dictionaries(st.sampled_from(SAMPLES), st.sets(st.integers(0, 5)), min_size=3),
)
def test_whatever_is_asked_first_a_set_passes_where_each_sample_does(
    questions: list[tuple[set[int], set[str]]], needs: dict[str, set[int]]
) -> None:
    """``needs``: sample -> nodes without which it is wrong. No sample of a set is asked twice."""

    def answer(asked: Asked, probe: Measure) -> Measurement:
        kept = set(ranges.decode(probe.keep))
        results = [
            asked.engine(
                msgspec.structs.replace(probe, samples=(s,), keep="1" if needs[s] <= kept else "")
            )
            for s in probe.samples
        ]
        return msgspec.structs.replace(
            results[0], results=tuple(r for m in results for r in m.results)
        )

    asked = Asked(answer)
    for keep, samples in questions:
        verdict = asked.drive(asked.sets.passes(tuple(sorted(keep)), RULE, tuple(sorted(samples))))
        assert verdict.passed == all(needs[s] <= keep for s in samples)
        assert verdict.passed != verdict.failed
    pairs = [(p.keep, s) for p in asked.probes for s in p.samples]
    assert len(pairs) == len(set(pairs))


node_sets = st.sets(st.integers(0, 3)).map(lambda nodes: tuple(sorted(nodes)))
some = st.sets(st.sampled_from(SAMPLES), min_size=1).map(lambda samples: tuple(sorted(samples)))
# What happens to a search: a set is measured (again, with ``save``, and then with another answer),
# other samples decide, or values are nearly nothing beside others than before.
happens = st.one_of(
    st.tuples(st.just("measure"), node_sets, some, st.lists(st.sampled_from([0.0, 0.008, 0.015, 0.5]), min_size=3, max_size=3)),
    st.tuples(st.just("measure again"), node_sets, some, st.lists(st.sampled_from([0.0, 0.5]), min_size=3, max_size=3)),
    st.tuples(st.just("decide"), some),
    st.tuples(st.just("scale"), st.sampled_from([0.0, 1.0, 1000.0])),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(happens, min_size=3, max_size=20))
def test_what_is_known_of_sets_is_as_judged_anew(events: list[Any]) -> None:
    errors: dict[str, float] = {}

    def answer(_asked: Asked, probe: Measure) -> Measurement:
        rows = {
            s: Score("y", rel_l2=errors[s], max_abs=errors[s], absmax=1.0) for s in probe.samples
        }
        return Measurement(results=tuple(SampleResult(s, (row,)) for s, row in rows.items()))

    asked = Asked(answer)
    sets, answers = asked.sets, dict[NodeSet, dict[str, Measurement]]()
    rules = [RULE, tighten_criterion(RULE, 1.5), tighten_criterion(RULE, 0.5)]

    def verdicts(keep: NodeSet, rule: Criterion) -> dict[str, Any]:
        return {
            s: judge_whole(sets.judged(m, rule), rule) for s, m in answers.get(keep, {}).items()
        }

    def short(keep: NodeSet, rule: Criterion, fed: Any = SAMPLES) -> set[str]:
        return {s for s, verdict in verdicts(keep, rule).items() if verdict.failed and s in fed}

    for what, *of in events:
        if what == "decide":
            sets.seen = frozenset(of[0])
        elif what == "scale":
            sets.scale = {"y": of[0]}
        else:
            keep, samples, of_samples = of
            errors.update(zip(SAMPLES, of_samples, strict=True))
            asked.probes.clear()
            asked.drive(
                sets.measure(keep, samples, save="workaround" if what == "measure again" else "")
            )
            for probe in asked.probes:
                each = {
                    s: answer(asked, msgspec.structs.replace(probe, samples=(s,)))
                    for s in probe.samples
                }
                answers.setdefault(keep, {}).update(each)
        for rule in rules:
            for keep in {(), (0, 1), (0, 1, 2), (0, 1, 2, 3), *answers}:
                assert set(sets.list_short(keep, rule, SAMPLES)) == short(keep, rule)
                assert sets.is_short(keep, rule) == bool(short(keep, rule))
                above = [
                    short(k, rule) for k in answers if len(k) > len(keep) and set(keep) <= set(k)
                ]
                assert set(sets.list_short_above(keep, rule)) == next(filter(None, above), set())
                good = [s for s, verdict in verdicts(keep, rule).items() if verdict.passed]
                without = {n: tuple(k for k in keep if k != n) for n in keep}
                assert sets.list_needed(keep, rule) == {
                    n for n, less in without.items() if short(less, rule, good)
                }
