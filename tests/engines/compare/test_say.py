"""What is said of the answers in the outputs."""

import msgspec
import numpy as np
import pytest

from narrowdown.engines.compare.answers import answer
from narrowdown.engines.compare.judge import Criterion
from narrowdown.engines.compare.metrics import score
from narrowdown.engines.compare.say import say_answers
from narrowdown.engines.probe import SampleResult, Score


def test_what_holds_nothing_that_the_metric_judges_is_told() -> None:
    """Once for each output, and not of one that is equal or that has its answer."""

    def scored(a: object, b: object) -> Score:
        ours, theirs = np.asarray(a, np.float32), np.asarray(b, np.float32)
        return msgspec.structs.replace(score("y", ours, theirs), answer=answer(ours, theirs))

    logits, boxes = scored([[1.0, 2, 3]], [[1, 2, 4]]), scored([[0, 0, 2, 2]], [[1, 0, 3, 2]])
    same = msgspec.structs.replace(scored([[1.0, 2]], [[1, 2]]), name="same")
    rows = tuple(
        SampleResult(f"real:{i}", (logits, msgspec.structs.replace(boxes, name="boxes"), same))
        for i in range(2)
    )
    (said,) = (s for s in say_answers(rows, Criterion(metric="iou")) if "rel_l2" in s)
    assert said.startswith(f"{logits.name} holds no masks of integers or boxes")
    assert not any("rel_l2" in s for s in say_answers(rows, Criterion(metric="top1")))
    assert not any("rel_l2" in s for s in say_answers(rows, Criterion()))


@pytest.mark.parametrize(
    ("shape", "said"),
    [((4,), ""), ((1, 4), "The predicted class of probs is another in 1 of 1 samples.")],
)
def test_of_a_vector_no_answer_is_said(shape: tuple[int, ...], said: str) -> None:
    """``speech_probs[37]`` of a detector of speech: one score a moment, no classes."""
    ours, theirs = (np.asarray(v, np.float32).reshape(shape) for v in ([1, 2, 3, 0], [3, 2, 1, 0]))
    one = msgspec.structs.replace(score("probs", ours, theirs), answer=answer(ours, theirs))
    assert " ".join(say_answers((SampleResult("real:0", (one,)),), Criterion())) == said
