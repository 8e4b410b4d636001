"""Where layers in FP32 may compute in less, everything in FP32 need not be right: it is tried where
they may not, too."""

import random
from typing import Any

import msgspec
import pytest

from narrowdown.engines.findings import Findings
from narrowdown.engines.graph import ranges
from narrowdown.engines.probe import Measure
from narrowdown.engines.search.switches import find_exact
from narrowdown.engines.views import view_engine

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


def test_the_set_is_searched_where_fp32_is_fp32() -> None:
    finish, asked = walk_workaround({GIVEN: 0.0123, EXACT: 0.0})
    found: Findings = finish.findings
    assert found.workaround is not None
    assert (found.workaround.engine, found.workaround.kind) == (EXACT, "precision")
    assert ranges.decode(found.workaround.keep) == (NARROW,)
    assert finish.outcome.holds
    assert finish.outcome.message.startswith(
        "Layers in FP32 may compute in less here, so this takes tf32=off as well. Kee"
    )
    assert finish.decisive["workaround"][0].engine == EXACT
    assert {GIVEN, EXACT} <= set(asked)


@pytest.mark.parametrize("left", [{GIVEN: 0.0, EXACT: 0.0}, {GIVEN: 0.0123, EXACT: 0.0123}])
def test_it_is_no_other_engine_where_that_is_not_needed_or_no_help(left: dict[str, float]) -> None:
    finish, asked = walk_workaround(left)
    cured = not left[GIVEN]
    assert finish.outcome.holds is cured
    assert (EXACT in asked) is not cured
    assert finish.findings.workaround is None or finish.findings.workaround.engine == GIVEN
    assert "tf32" not in finish.outcome.message


def test_what_is_exact_is_left_as_it_is() -> None:
    assert find_exact(GIVEN, INFO) == EXACT
    assert find_exact(EXACT, INFO) == ""
    assert find_exact(GIVEN, view_engine({"options": [{"name": "level"}]})) == ""
