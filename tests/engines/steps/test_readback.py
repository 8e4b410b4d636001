"""What an engine made of nodes that were to stay in FP32, as it reads in the step's sentence."""

import pytest

from engines.steps.precision import _say_obeyed


@pytest.mark.parametrize(
    ("became", "said"),
    [
        ({}, ""),
        ({"a": "applied", "b": "unknown"}, ""),
        ({"a": "ignored"}, " Read back from the engine: 1 (a): a layer of their own gives less all the same."),
        (
            {"a": "fused", "b": "fused", "c": "fused", "d": "fused", "e": "widened"},
            " Read back from the engine: 4 (a, b, c, ...): they are inside of a layer of several nodes that gives less; "
            "1 (e): not asked for, but joined with nodes that were, so FP32 too.",
        ),
    ],
)
def test_what_the_engine_made_of_the_wish_is_said(became: dict[str, str], said: str) -> None:
    assert _say_obeyed(became) == said
