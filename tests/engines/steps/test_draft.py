"""An emulation of the precision asked in place of an engine that times kernels: for a draft of the
set to keep, and for a look at every layer. The engine has the last word."""

import functools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from narrowdown.engines.asking import Sub
from narrowdown.engines.compare.criterion import Criterion
from narrowdown.engines.findings import Workaround
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Measure, Measurement
from narrowdown.engines.search import draft, polish
from narrowdown.engines.search.draft import FORETOLD, Word
from narrowdown.engines.search.fewest import TOLD, Fewest, PrecisionParams
from narrowdown.engines.search.known import list_facts
from narrowdown.engines.search.sets import NodeSet

from .conftest import Walk, walk
from .simulated import BROKEN, Simulated, graph, random_graph

seeds = st.integers(0, 2**16)
CHAIN = [() if i == 0 else (i - 1,) for i in range(40)]
# Each adds too little to be seen by itself and too much for all of them: rounding.
ROUNDING = {4: 0.02, 11: 0.015, 12: 0.02, 25: 0.03, 31: 0.012}
SLOW = 5.0


class Timed(Simulated, kw_only=True):
    """Each question to it takes a build of seconds; beside it an emulation, in which nodes add what
    ``emulated`` says."""

    emulated: Mapping[str, Mapping[int, float]] = {}
    takes: float = 0.01

    def findings(self) -> Any:
        return msgspec.structs.replace(super().findings(), emulated=0.05, dear=100.0)

    def context(self, **rest: Any) -> Any:
        info = super().context().engine_info
        return super().context(engine_info=msgspec.structs.replace(info, gpus=1), **rest)

    def _answer(self, probe: Measure, question: str) -> Measurement:
        if probe.engine.startswith("emulate:"):
            there = Simulated(
                index=self.index,
                added=self.emulated,
                made=self.made,
                asked={},
                hiding={},
                rare=self.rare,
            )
            return msgspec.structs.replace(there(probe), build_seconds=self.takes)
        return msgspec.structs.replace(super()._answer(probe, question), build_seconds=SLOW)


def timed(emulated: Mapping[int, float] | None = None, **rest: Any) -> Timed:
    added = {f"real:{i}": ROUNDING for i in range(4)}
    there = added if emulated is None else dict.fromkeys(added, emulated)
    return Timed(
        index=graph(CHAIN), added=added, emulated=there, made={}, asked={}, hiding={}, **rest
    )


def sets_built(done: Walk) -> set[str]:
    return {p.keep for p in done.probes if isinstance(p, Measure) and p.engine == "e"}


def kept(done: Walk) -> set[int]:
    return set(ranges.decode(done.finish.findings.workaround.keep))


# -- the set to keep


def test_the_engine_is_asked_about_a_set_that_was_drafted_and_about_little_else() -> None:
    without = walk("precision", timed(takes=SLOW).context(), timed(takes=SLOW))
    engine = timed()
    done = walk("precision", engine.context(), engine)
    assert kept(done) == kept(without), "the same set"
    assert done.finish.outcome.holds
    assert done.finish.outcome.minimal, "each of its nodes was left out once, on the engine"
    assert len(sets_built(done)) < len(sets_built(without)) / 2


def test_an_emulation_as_slow_as_the_engine_is_asked_once() -> None:
    engine = timed(takes=SLOW)
    done = walk("precision", engine.context(), engine)
    assert sum(isinstance(p, Measure) and p.engine.startswith("emulate:") for p in done.probes) == 1


def test_what_the_emulation_gets_wrong_is_found_on_the_engine() -> None:
    """The engine is right at five nodes that the emulation accuses, and wrong at one that it does
    not know of."""
    wrongly = dict.fromkeys((18, 20, 22, 34, 36), 0.05)
    engine = timed({**{n: e for n, e in ROUNDING.items() if n != 25}, **wrongly})
    done = walk("precision", engine.context(), engine)
    assert done.finish.outcome.holds
    assert 25 in kept(done)
    assert len(kept(done) & set(wrongly)) <= 1, (
        "its word is looked at, and once it was wrong it is taken no more"
    )


def test_what_a_set_cannot_do_without_is_taken_from_an_emulation_whose_word_has_held() -> None:
    needed = dict.fromkeys(range(2, 22), 0.5)
    both = {f"real:{i}": needed for i in range(4)}
    engine = Timed(index=graph(CHAIN), added=both, emulated=both, made={}, asked={}, hiding={})
    done = walk("precision", engine.context(), engine)
    findings = done.finish.findings
    cure = findings.workaround
    assert kept(done) == set(needed)
    assert cure.minimal
    assert 0 < cure.foretold < len(needed), "some were left out on the engine, too"
    told = f"{len(ranges.decode(cure.keep)) - cure.foretold} on this engine, {cure.foretold} in an emulation of the precision"
    assert any(told in fact.text for fact in list_facts(findings, cure))
    without = [
        s for s in sets_built(done) if len(set(ranges.decode(s)) & set(needed)) == len(needed) - 1
    ]
    assert len(without) < len(needed) * 0.75


def test_an_emulation_that_was_wrong_once_is_not_taken_at_its_word_where_types_are_free() -> None:
    needed = dict.fromkeys(range(2, 14), 0.5)
    added = {f"real:{i}": needed for i in range(4)}
    there = {f"real:{i}": dict.fromkeys(range(2, 26), 0.5) for i in range(4)}
    engine = Timed(index=graph(CHAIN), added=added, emulated=there, made={}, asked={}, hiding={})
    done = walk("precision", engine.context(), engine)
    assert kept(done) == set(needed)
    assert done.finish.findings.workaround.foretold == 0


def test_one_word_in_two_is_looked_at_where_types_are_free() -> None:
    word = Word(ordered=False)
    assert not word.takes(), "it was not borne out yet"
    word.right = 3
    assert [word.takes() for _ in range(6)] == [True, False] * 3
    word.wrong = 1
    assert not word.holds
    assert not word.takes()


def test_what_failed_by_far_with_more_nodes_kept_is_not_built_with_fewer() -> None:
    """The emulation knows of none of the nodes that are needed here, so that what is foretold is
    the engine's own word."""
    needed = dict.fromkeys(range(2, 16), 0.5)
    engine = timed(dict.fromkeys(range(20, 40), 0.1))
    engine = msgspec.structs.replace(engine, added=dict.fromkeys(engine.added, needed))
    done = walk("precision", engine.context(), engine)
    assert kept(done) == set(needed)
    assert done.finish.outcome.minimal
    assert 0 < done.finish.outcome.foretold < len(needed)


def test_what_a_set_was_tried_on_decides_before_it_is_trimmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where each set is run on all that decides, so that none is trimmed too far and anew."""
    decided: list[frozenset[str]] = []
    trim = polish.polish

    def trimmed(
        search: Fewest, keep: NodeSet, likely: Sequence[int], less: NodeSet = ()
    ) -> Sub[NodeSet]:
        decided.append(search.seen)
        return (yield from trim(search, keep, likely, less))

    monkeypatch.setattr(polish, "polish", trimmed)
    engine = timed()
    walk("precision", engine.context(), engine)
    assert any(sample.startswith("near:") for sample in decided[0])


def test_everything_is_not_built_where_the_emulation_tells_what_it_cures() -> None:
    """All in FP32, the kernels of the whole model are timed anew: minutes, where a set that is
    known to cure takes seconds."""
    engine = timed(rare={35: 0.5})
    known = Workaround("precision", "e", keep=ranges.encode(ROUNDING), samples_ok=4, samples_n=4)
    findings = msgspec.structs.replace(engine.findings(), workaround=known)
    done = walk("precision", engine.context(findings=findings), engine)
    assert 35 in kept(done), "samples joined"
    assert done.finish.outcome.holds
    built = sets_built(done)
    assert ranges.encode(range(40)) not in built


def test_what_the_longest_set_lacks_is_tried_where_it_does_not_do_and_larger_ones_are_refused() -> (
    None
):
    """As basic_pitch on a machine with other kernels: what the emulation takes for light is what
    the engine is wrong at."""

    class Refusing(Timed, kw_only=True):
        def _answer(self, probe: Measure, question: str) -> Measurement:
            refused = probe.engine == "e" and 50 < len(ranges.decode(probe.keep)) < 60
            return BROKEN[0] if refused else super()._answer(probe, question)

    chain = [() if i == 0 else (i - 1,) for i in range(60)]
    added = dict.fromkeys((f"real:{i}" for i in range(4)), dict.fromkeys((46, 53, 57), 0.06))
    there = {s: {n: 0.05 if n < 45 else 0.001 for n in range(60)} for s in added}
    engine = Refusing(index=graph(chain), added=added, emulated=there, made={}, asked={}, hiding={})
    done = walk("precision", engine.context(), engine)
    assert kept(done) == {46, 53, 57}
    assert sum(50 < len(ranges.decode(keep)) < 60 for keep in sets_built(done)) < 4, (
        "no larger ones one after the other"
    )


def test_an_engine_that_refuses_one_set_after_the_other_is_not_asked_about_all_of_them() -> None:
    class Choosy(Timed, kw_only=True):
        def _answer(self, probe: Measure, question: str) -> Measurement:
            answer = super()._answer(probe, question)
            count = len(ranges.decode(probe.keep))
            return (
                BROKEN[0] if probe.engine == "e" and 100 < count < len(self.index.nodes) else answer
            )

    index = graph([() if i == 0 else (i - 1,) for i in range(160)])
    many = {f"real:{i}": dict.fromkeys(range(160), 0.02) for i in range(3)}
    engine = Choosy(index=index, added=many, emulated=many, made={}, asked={}, hiding={})
    done = walk("precision", engine.context(), engine)
    assert done.finish.outcome.outcome == "whole"
    assert len({k for k in sets_built(done) if 100 < len(ranges.decode(k)) < 160}) < 40


@settings(max_examples=40, deadline=None)
@given(st.integers(4, 24), seeds)
def test_whatever_the_emulation_says_what_is_kept_is_right_on_the_engine(n: int, seed: int) -> None:
    rng = random.Random(seed)
    index = random_graph(n, rng)

    def some() -> dict[int, float]:
        return {rng.randrange(n): rng.choice((0.005, 0.05, 0.5)) for _ in range(3)}

    added = {f"real:{i}": some() for i in range(3)}
    engine = Timed(
        index=index,
        added=added,
        emulated={s: some() for s in added},
        made={},
        asked={},
        hiding={},
        rare=some(),
    )
    if engine.findings().signature is None:
        return
    outcome = walk("precision", engine.context(), engine).finish.outcome
    assert outcome.outcome in ("found", "whole")
    assert outcome.outcome == "whole" or outcome.samples_ok == outcome.samples


def test_the_emulation_is_asked_so_much_and_no_more_and_only_of_what_the_engine_has_failed_on() -> (
    None
):
    many = dict.fromkeys(range(400), 0.004)
    added = {f"real:{i}": many for i in range(3)}
    index = graph([() if i == 0 else (i - 1,) for i in range(400)])
    engine = Timed(index=index, added=added, emulated=added, made={}, asked={}, hiding={})
    done = walk("precision", engine.context(), engine)
    asked = [p for p in done.probes if isinstance(p, Measure) and p.engine.startswith("emulate:")]
    assert TOLD < len({p.keep for p in asked}) <= TOLD + FORETOLD + 2
    failed = {
        s for p in done.probes if isinstance(p, Measure) and p.engine == "e" for s in p.samples
    }
    assert {s for p in asked for s in p.samples} <= failed
    assert done.finish.outcome.samples_ok == done.finish.outcome.samples


# -- a look at every layer


def single(engine_adds: Mapping[int, float], emulation_adds: Mapping[int, float]) -> Timed:
    return Timed(
        index=graph(CHAIN),
        added={"real:0": engine_adds},
        emulated={"real:0": emulation_adds},
        made={},
        asked={},
        hiding={},
    )


def looks_into_the_engine(done: Walk) -> int:
    return sum(isinstance(p, Measure) and p.engine == "e" and bool(p.marks) for p in done.probes)


def test_the_emulation_is_looked_into_where_the_engine_bears_it_out() -> None:
    engine = single({17: 0.5}, {17: 0.4})
    done = walk("layerwise", engine.context(), engine)
    outcome = done.finish.outcome
    assert (outcome.culprit, outcome.observer, outcome.emulated) == (
        "n17",
        "reproduces",
        "emulate:precision=fp16",
    )
    assert looks_into_the_engine(done) == 0
    assert len(sets_built(done)) == 1, "with what is accused in FP32, once"
    assert "in an emulation of FP16" in outcome.message
    assert "right on 1 of 1 samples" in outcome.message
    assert {16, 17} == set(ranges.decode(done.finish.findings.workaround.keep))


def test_what_only_the_emulation_gets_wrong_is_not_accused() -> None:
    engine = single({17: 0.5}, {8: 0.4})
    done = walk("layerwise", engine.context(), engine)
    assert (done.finish.outcome.culprit, done.finish.outcome.emulated) == ("n17", "")
    assert looks_into_the_engine(done) > 0
    assert done.finish.findings.workaround is None


def test_an_error_that_many_nodes_add_to_is_spread_in_the_emulation_too() -> None:
    engine = single(dict.fromkeys(range(40), 0.004), dict.fromkeys(range(40), 0.005))
    done = walk("layerwise", engine.context(), engine)
    assert done.finish.outcome.spread
    assert done.finish.outcome.emulated
    assert looks_into_the_engine(done) == 0
    assert len(kept_or_none(done)) > 0


def kept_or_none(done: Walk) -> set[int]:
    cure = done.finish.findings.workaround
    return set(ranges.decode(cure.keep)) if cure else set()


def test_an_engine_that_builds_quickly_is_looked_into_itself() -> None:
    engine = single({17: 0.5}, {17: 0.4})
    cheap = msgspec.structs.replace(engine.findings(), dear=0.0)
    done = walk("layerwise", engine.context(findings=cheap), engine)
    assert (done.finish.outcome.culprit, done.finish.outcome.emulated) == ("n17", "")
    assert looks_into_the_engine(done) > 0


def test_what_was_asked_for_one_order_leaves_the_next_as_many_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Samples that join need nodes of their own, so the order is asked for once more."""
    # The first order takes most of that.
    monkeypatch.setattr(
        draft, "PrecisionParams", functools.partial(PrecisionParams, budget=2 * TOLD)
    )
    index = graph([() if i == 0 else (i - 1,) for i in range(400)])
    added = {"real:0": dict.fromkeys(range(0, 400, 4), 0.004)}
    rare = dict.fromkeys(range(1, 400, 8), 0.004)
    engine = Timed(
        index=index, added=added, emulated=added, rare=rare, made={}, asked={}, hiding={}
    )
    asked: list[int] = []
    weigh = Fewest._weigh

    class ToldTwice(Exception):
        """The rest of the search, most of it, is not looked at here."""

    def counted(search: Fewest, nodes: NodeSet, rule: Criterion, most: int = 0) -> Sub[Any]:
        before = search.spent
        told = yield from weigh(search, nodes, rule, most)
        asked.append(search.spent - before)
        if len(asked) == 2:
            raise ToldTwice
        return told

    monkeypatch.setattr(Fewest, "_weigh", counted)
    with pytest.raises(ToldTwice):
        walk("precision", engine.context(), engine)
    assert min(asked) > TOLD / 2
