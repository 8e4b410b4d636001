"""An emulation of the precision asked in place of an engine that times kernels: for a draft of the
set to keep, and for a look at every layer. The engine has the last word."""

import random
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import given, settings, strategies as st

from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Measure, Measurement

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
        return msgspec.structs.replace(super().findings(), emulated=0.05, expensive=100.0)

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


def test_the_engine_is_asked_about_few_sets_where_an_emulation_tells_the_order() -> None:
    alone = msgspec.structs.replace(timed().findings(), emulated=None)
    without = walk("precision", timed().context(findings=alone), timed())
    engine = timed()
    done = walk("precision", engine.context(), engine)
    assert kept(done) == kept(without), "the same set"
    assert done.finish.outcome.holds
    assert done.finish.outcome.minimal, "each of its nodes was left out once, on the engine"
    assert len(sets_built(done)) < len(sets_built(without)) / 2


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


# -- a look at every layer


def kept_or_none(done: Walk) -> set[int]:
    cure = done.finish.findings.workaround
    return set(ranges.decode(cure.keep)) if cure else set()
