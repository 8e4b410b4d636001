"""What is said of a set of nodes kept in FP32."""

from types import SimpleNamespace
from typing import Any

import pytest

from engines.compare.criterion import Criterion
from engines.findings import Unseen
from engines.search.kept import Kept, _say_most
from engines.search.written import Right


@pytest.mark.parametrize(
    ("unseen", "said"),
    [(0.0, "0.0346 %"), (0.0002, "0.0346 %"), (0.000617, "0.0346 %, on those it had not seen 0.0617 %")],
)
def test_at_most_is_no_promise_that_unseen_samples_broke(unseen: float, said: str) -> None:
    ask: Any = SimpleNamespace(criterion=Criterion())
    assert _say_most(ask, Kept("found", (1,), error=0.000346, unseen=Unseen(4, 4, error=unseen))) == said


def test_a_file_is_said_to_be_tried_on_what_the_set_was_first_made_on() -> None:
    """Beside "made on 15 samples: right on 15" stood "right on 8 of 8" of the file: seven were taken in later."""
    assert Right(8, 8, 40, 40).say() == "right on 8 of 8 it was first made on and 40 of 40 others"
    assert Right(0, 1).say() == "right on 0 of 1 it was first made on"
