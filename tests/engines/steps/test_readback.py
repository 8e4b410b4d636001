"""What an engine made of nodes that were to stay in FP32, as it reads in the step's sentence."""

from types import SimpleNamespace
from typing import Any

import pytest

from narrowdown.engines.findings import Case, Culprit, Findings
from narrowdown.engines.nearest import join_some
from narrowdown.engines.probe import Candidate
from narrowdown.engines.search.kept import Kept, _say_obeyed, _say_without

from .simulated import graph


@pytest.mark.parametrize(
    ("became", "said"),
    [
        ({}, ""),
        ({"a": "applied", "b": "unknown"}, ""),
        (
            {"a": "ignored"},
            " Read back from the engine: 1 (a): a layer of their own gives less all the same.",
        ),
        (
            {"a": "fused", "b": "fused", "c": "fused", "d": "fused", "e": "widened"},
            " Read back from the engine: 4 (a, b, c, ...): they are inside of a layer of several nodes that gives less; "
            "1 (e): not asked for, but joined with nodes that were, so FP32 too.",
        ),
    ],
)
def test_what_the_engine_made_of_the_wish_is_said(became: dict[str, str], said: str) -> None:
    assert _say_obeyed(became) == said


@pytest.mark.parametrize(("keep", "told"), [((2, 3), ""), ((4, 5), " qk is not among them: ")])
def test_a_cure_that_leaves_the_culprit_as_it_was_is_said_to_rest_on_a_fusion(
    keep: tuple[int, ...], told: str
) -> None:
    case = Case(candidate=Candidate(), sample="real:0", nodes=("qk",), node_ids="3")
    for rebuilds in (True, False):
        ctx = SimpleNamespace(can={"rebuild": rebuilds}.get)
        findings = Findings(culprits=(Culprit(case=case, cause="overflow"),))
        ask: Any = SimpleNamespace(findings=findings, ctx=ctx, index=graph([()] * 6))
        said = _say_without(ask, Kept("found", keep))
        assert said.startswith(told)
        assert bool(said) == bool(told)
        # An emulation joins nothing, and was said to.
        assert ("rests on which nodes the engine joins" in said) == (bool(told) and rebuilds)


def test_of_three_hundred_names_a_sentence_has_six_and_how_many_more() -> None:
    names = tuple(f"/n{i}" for i in range(300))
    assert join_some(names) == f"{', '.join(names[:6])} and 294 more"
    assert join_some(names[:6]) == ", ".join(names[:6])
