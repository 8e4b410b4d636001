"""Where a part is right alone because the engine may take a wider type: it is shown where the
precision is an order."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from narrowdown.engines import discovery
from narrowdown.engines.asking import StepContext
from narrowdown.engines.asking.engine_forms import (
    EXPENSIVE,
    SHRINK_EXPENSIVE,
    order_precision,
    shrinks_for,
)
from narrowdown.engines.findings import Workaround
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Measure, Measurement, Score
from narrowdown.engines.search.settle import SHRINK_PROBES
from narrowdown.engines.views import view_engine

from .conftest import walk
from .simulated import PRESENT, Simulated, random_graph

GIVEN, ORDERED = "e", "e:typing=strong"
OPTIONS = [
    {"name": "typing", "default": "auto", "ordered": "strong"},
    {"name": "level", "twin": "1"},
]
INFO = view_engine(
    {
        "precision": "fp16", "storage": "float16", "options": OPTIONS,
        "capabilities": {"mark": PRESENT, "keep": PRESENT},
    }
)  # fmt: skip
BEYOND = 100_000.0


class Weak:
    """An engine that is right on parts of fewer than ``company`` nodes, and one with its precision
    as an order, which is right on those of fewer than ``ordered``. The nodes at fault reach
    ``BEYOND``."""

    def __init__(self, engine: Simulated, company: int, ordered: int = 1) -> None:
        self.engine = engine
        self.takes = {GIVEN: company, ORDERED: ordered, "e:level=1": company}
        self.asked: list[Measure] = []
        self.guilty = tuple(next(iter(engine.added.values())))

    def __call__(self, probe: Any) -> Any:
        m = self.engine(probe)
        if not isinstance(probe, Measure):
            return m
        if probe.engine == "r":
            return self._reached(m)
        self.asked.append(probe)
        whole = probe.candidate.nodes == ranges.ALL
        if whole or len(ranges.decode(probe.candidate.nodes)) >= self.takes[probe.engine]:
            return m
        return _each(m, lambda s: Score(s.name))

    def _reached(self, m: Measurement) -> Measurement:
        top = {self.engine.index.tensors[n + 1].name: BEYOND for n in self.guilty}
        return _each(m, lambda s: msgspec.structs.replace(s, absmax=top.get(s.name, 1.0)))

    def context(self, **changes: Any) -> StepContext:
        cure = Workaround(
            kind="precision",
            engine=GIVEN,
            keep=ranges.encode(self.guilty),
            samples_ok=1,
            samples_n=1,
            error=0.0,
        )
        findings = msgspec.structs.replace(
            self.engine.findings(), workaround=cure, expensive=EXPENSIVE, **changes
        )
        return self.engine.context(findings=findings, engine_info=INFO)

    def parts(self, engine: str) -> list[str]:
        return [
            p.candidate.nodes
            for p in self.asked
            if p.engine == engine and p.candidate.nodes != ranges.ALL
        ]


def _each(m: Measurement, change: Any) -> Measurement:
    def changed(scores: Any) -> Any:
        return tuple(change(s) for s in scores)

    results = [
        msgspec.structs.replace(
            r, outputs=changed(r.outputs), marks=changed(r.marks), effect=changed(r.effect)
        )
        for r in m.results
    ]
    return msgspec.structs.replace(m, results=tuple(results))


def planted(n: int, seed: int, many: int = 1) -> Simulated:
    rng = random.Random(seed)
    index = random_graph(n, rng)
    return Simulated.single(index, dict.fromkeys(rng.sample(range(n), many), 0.5), seed=seed)


sizes, seeds = st.integers(6, 40), st.integers(0, 2**16)


@settings(max_examples=60, deadline=None)
@given(sizes, seeds, st.integers(1, 3))
def test_what_is_right_alone_as_given_is_a_case_where_the_precision_is_an_order(
    n: int, seed: int, many: int
) -> None:
    weak = Weak(planted(n, seed, many), company=n)
    found = walk("extract", weak.context(), weak).finish
    case = found.findings.case
    assert case is not None
    assert case.engine == ORDERED
    assert len(case.nodes) == 1
    assert ranges.decode(case.node_ids)[0] in weak.guilty
    assert case.verified == "3/3"
    assert "typing=strong, where the precision is an order" in found.outcome.message
    assert weak.parts(GIVEN) == weak.parts(ORDERED)[:1], (
        "as given it is asked once, alone, and no twin is looked for"
    )
    assert (found.findings.expensive, found.findings.cheap) == (EXPENSIVE, "")
    assert (
        shrinks_for(found.findings, SHRINK_PROBES)
        == SHRINK_EXPENSIVE
        < shrinks_for(msgspec.structs.replace(found.findings, expensive=0.0), SHRINK_PROBES)
    )
    assert all(p.engine == ORDERED for p in found.decisive["case"])

    weak.asked.clear()
    ctx = msgspec.structs.replace(weak.context(), findings=found.findings)
    end = walk("confirm", ctx, weak).finish
    culprit = end.findings.culprits[0]
    assert end.outcome.failures == end.outcome.looks == 5
    assert {p.engine for p in weak.asked} == {ORDERED}
    assert culprit.case.engine == ORDERED
    assert ranges.decode(culprit.keep) == tuple(sorted(weak.guilty)), (
        "what was seen to cure the model as given"
    )
    assert "typing=strong, where the precision is an order" in culprit.evidence
    assert {p.engine for p in end.decisive["case"]} == {ORDERED}
    assert {p.engine for p in end.decisive["whole"]} == {GIVEN}


@settings(max_examples=30, deadline=None)
@given(sizes, seeds)
def test_what_fails_alone_as_given_is_shown_as_given(n: int, seed: int) -> None:
    weak = Weak(planted(n, seed), company=1)
    found = walk("extract", weak.context(), weak).finish
    assert found.findings.case is not None
    assert found.findings.case.engine == ""
    assert "is an order" not in found.outcome.message
    assert weak.parts(ORDERED) == []


@settings(max_examples=30, deadline=None)
@given(sizes, seeds)
def test_what_is_right_there_too_takes_company(n: int, seed: int) -> None:
    """The search of the whole model, which has a twin to look for, finds it as before."""
    weak = Weak(planted(n, seed), company=n, ordered=n)
    found = walk("extract", weak.context(), weak).finish
    assert found.findings.case is None
    assert "takes company" in found.outcome.message
    assert found.findings.expensive == EXPENSIVE
    assert len(weak.parts(ORDERED)) <= 9
    assert all(len(ranges.decode(nodes)) <= n // 2 for nodes in weak.parts(ORDERED))


def test_a_place_that_only_grows_into_a_failure_is_grown_there() -> None:
    weak = Weak(planted(20, 3), company=20, ordered=2)
    case = walk("extract", weak.context(), weak).finish.findings.case
    assert case is not None
    assert case.engine == ORDERED
    assert len(case.nodes) == 2


def test_what_was_not_seen_to_cure_the_model_is_not_shown_otherwise() -> None:
    """Without that nothing ties the part to the model's failure as given."""
    weak = Weak(planted(12, 3), company=12)
    ctx = weak.context(patches="1")
    assert walk("extract", ctx, weak).finish.findings.case is None
    assert weak.parts(ORDERED) == []


@pytest.mark.parametrize(
    ("given_spec", "there"),
    [
        ("tensorrt:precision=fp16", "tensorrt:precision=fp16,typing=strong"),
        ("tensorrt:precision=fp16,typing=weak", "tensorrt:precision=fp16,typing=strong"),
        ("tensorrt:precision=fp16,typing=strong", ""),
    ],
)
def test_which_option_makes_an_order_of_it_is_the_declaration_s_to_say(
    given_spec: str, there: str
) -> None:
    info = view_engine({"options": msgspec.to_builtins(discovery.ours()["tensorrt"].options)})
    ctx = StepContext(
        engine=given_spec, reference="r", findings=planted(6, 1).findings(), engine_info=info
    )
    assert order_precision(ctx) == there
    old = {"strongly-typed": {"present": False, "reason": "TensorRT 8 has none."}}
    too_old = view_engine({"options": msgspec.to_builtins(info.options), "capabilities": old})
    assert order_precision(msgspec.structs.replace(ctx, engine_info=too_old)) == ""
    plain = view_engine({"options": msgspec.to_builtins(discovery.ours()["onnxruntime"].options)})
    assert (
        order_precision(msgspec.structs.replace(ctx, engine="onnxruntime", engine_info=plain)) == ""
    )
