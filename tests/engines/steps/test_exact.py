"""Where layers in FP32 may compute in less, everything in FP32 need not be right: where they may not
is told."""

import random
from typing import Any

import msgspec
import pytest

from narrowdown.engines.probe import Measure
from narrowdown.engines.switches import set_option
from narrowdown.engines.views import EngineInfo, view_engine

from .conftest import walk
from .simulated import PRESENT, Simulated, random_graph

GIVEN, EXACT = "e", "e:tf32=off"
INFO = view_engine(
    {
        "precision": "fp16", "storage": "float16", "options": [{"name": "tf32", "default": "on", "exact": "off"}],
        "capabilities": {"mark": PRESENT, "keep": PRESENT},
    }
)  # fmt: skip
NARROW, REST = 2, 5  # what FP16 spoils, and what TF32 does


def walk_workaround(left: dict[str, float]) -> tuple[Any, list[str]]:
    """The step, and which engines it asked. ``left``: by engine, what no precision cures."""
    index = random_graph(8, random.Random(1))
    engines = {
        spec: Simulated.single(index, {NARROW: 0.5, REST: error}, stubborn=frozenset({REST}))
        for spec, error in left.items()
    }
    asked: list[str] = []

    def answer(probe: Any) -> Any:
        given = isinstance(probe, Measure) and probe.engine in engines
        asked.extend([probe.engine] if given else [])
        return engines[probe.engine if given else GIVEN](probe)

    first = engines[GIVEN]
    context = first.context(
        findings=msgspec.structs.replace(first.findings(), culprits=()), engine_info=INFO
    )
    return walk("workaround", context, answer).finish, asked


@pytest.mark.parametrize("left", [0.0, 0.0123])
def test_where_everything_in_fp32_is_not_enough_the_exact_engine_is_named(left: float) -> None:
    finish, asked = walk_workaround({GIVEN: left, EXACT: 0.0})
    assert finish.outcome.holds is not bool(left)
    assert EXACT not in asked
    assert (f"try again with --engine {EXACT}" in finish.outcome.message) is bool(left)


@pytest.mark.parametrize(
    ("engine", "info", "exact"),
    [
        (GIVEN, INFO, EXACT),
        (EXACT, INFO, ""),
        (GIVEN, view_engine({"options": [{"name": "level"}]}), ""),
    ],
)
def test_what_is_exact_is_left_as_it_is(engine: str, info: EngineInfo, exact: str) -> None:
    assert set_option(engine, info, lambda option: option.exact) == exact
