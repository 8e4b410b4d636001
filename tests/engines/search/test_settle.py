"""How many probes turning a part into a case is said to take."""

from types import SimpleNamespace
from typing import Any

import pytest

from narrowdown.engines.findings import Findings
from narrowdown.engines.search.settle import SHRINKS, SHRINKS_OF_MANY, foretell_settling


@pytest.mark.parametrize(
    ("shrinks", "verify", "builds", "usual", "expected"),
    [
        (32, 3, 1, SHRINKS, 2 + SHRINKS + 3),
        (32, 3, 1, SHRINKS_OF_MANY, 2 + SHRINKS_OF_MANY + 3),
        (5, 3, 1, SHRINKS_OF_MANY, 2 + 5 + 3),
        (0, 3, 1, SHRINKS, 2 + 3),
        (32, 3, 9, SHRINKS, 2 + SHRINKS + 9),
    ],
    ids=["a node", "several nodes", "few edits", "none", "builds differ"],
)
def test_what_settling_takes_is_the_exact_feed_the_edits_the_builds_and_a_neighbour(
    shrinks: int, verify: int, builds: int, usual: int, expected: int
) -> None:
    ask: Any = SimpleNamespace(findings=Findings(builds=builds))
    assert foretell_settling(ask, shrinks, verify, usual) == expected
