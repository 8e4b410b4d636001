"""What is said of a set of nodes kept in FP32."""

from types import SimpleNamespace
from typing import Any

import pytest

from engines.compare.criterion import Criterion
from engines.findings import Unseen
from engines.search.kept import Kept, _say_most


@pytest.mark.parametrize(
    ("unseen", "said"),
    [(0.0, "0.0346 %"), (0.0002, "0.0346 %"), (0.000617, "0.0346 %, on those it had not seen 0.0617 %")],
)
def test_at_most_is_no_promise_that_unseen_samples_broke(unseen: float, said: str) -> None:
    ask: Any = SimpleNamespace(criterion=Criterion())
    assert _say_most(ask, Kept("found", (1,), error=0.000346, unseen=Unseen(4, 4, error=unseen))) == said
