"""The curve of a loop: which step is over what is allowed first, and which token changes."""

import msgspec
import numpy as np
import pytest

from narrowdown.engines.compare.answers import answer
from narrowdown.engines.compare.judge import Criterion
from narrowdown.engines.compare.loops import draw_curve, say_curve, sum_up_curve
from narrowdown.engines.compare.metrics import score, score_steps
from narrowdown.engines.probe import HUGE, SampleInfo, SampleResult

RULE = Criterion(tolerance=0.01)
INFO = SampleInfo("real:0", "in.npz", steps=3, chosen=("logits",))
RIGHT = np.array([[1.0, 4.0, 3.99]], np.float32)


def curve(*steps, own=()):
    def result(value):
        scored = msgspec.structs.replace(score("logits", value, RIGHT), answer=answer(value, RIGHT))
        return SampleResult("real:0", outputs=(scored,))

    return draw_curve([result(v) for v in steps], [result(v) for v in own], INFO, RULE)


def test_the_first_step_over_tolerance_and_the_worst_by_itself_are_told() -> None:
    rows = curve(RIGHT, RIGHT * 1.02, RIGHT * 1.5, own=(RIGHT, RIGHT * 1.005, RIGHT))
    facts = sum_up_curve(rows, "state")
    assert (facts["steps"], facts["first_step"], facts["carrier"]) == (3, 1, "state")
    assert facts["own_error"] == pytest.approx(0.005, rel=1e-3)
    assert facts["token_step"] is None
    told = say_curve(rows, RULE, "accumulation", "state")
    assert "'state'" in told
    assert say_curve(rows, RULE, "reference", "") == ""


def test_a_token_that_what_is_allowed_may_turn_is_a_near_tie() -> None:
    turned = np.array([[1.0, 3.99, 4.0]], np.float32)
    far = np.array([[4.5, 4.0, 3.99]], np.float32)
    lost = np.array([[np.nan, 4.0, 3.99]], np.float32)
    near, wide, none = (sum_up_curve(curve(RIGHT, v), "") for v in (turned, far, lost))
    assert (near["token_step"], near["near_tie"]) == (1, True)
    assert (wide["token_step"], wide["near_tie"]) == (1, False)
    assert (none["token_step"], none["near_tie"]) == (1, False)
    assert curve(lost)[0].answer.margin == HUGE
    assert curve(far)[0].answer.margin == pytest.approx(3.0)


def test_a_score_over_steps_is_that_of_the_worst() -> None:
    """Of a cache that grows as well, and of a step that gives nothing."""
    right = [np.ones((1, n, 4), np.float32) for n in (1, 2, 3)]
    wrong = [right[0], right[1] * 1.5, right[2]]
    found, mine, theirs = score_steps("present", wrong, right)
    assert found.rel_l2 == pytest.approx(0.5)
    assert mine.shape == theirs.shape == (6, 4)
    assert found.max_abs == 0.5
    infinite = [right[0], right[1], right[2] * np.inf]
    assert score_steps("present", infinite, right)[0].new_nonfinite == 12
    missing = score_steps("present", [right[0], None, right[2]], right)[0]
    assert missing.problem
    assert score_steps("ids", [np.ones(2, np.int64)] * 2, [np.ones(2, np.int64)] * 2)[0].equal
