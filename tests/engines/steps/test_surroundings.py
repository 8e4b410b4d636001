"""Which probes are told how outputs are postprocessed: those that compare the model's own."""

from typing import Any

import msgspec
import pytest

from narrowdown.engines.findings import Findings
from narrowdown.engines.probe import Candidate, Check, Measure, key
from narrowdown.engines.steps.base import Finish
from narrowdown.engines.steps.registry import STEPS
from narrowdown.engines.steps.surroundings import surround_step

PART = Candidate(nodes="0-3")
WHOLE = Measure(
    model="m", inputs="i", samples=("real:0",), engine="emulate", reference="onnxruntime"
)
PRINTS = {"emulate": "a", "onnxruntime": "b"}


def asked(answers: Any, probe: Any, **problem: Any) -> Any:
    """The probe as it leaves a step that asks it and names it as decisive."""

    def run(_ctx: Any) -> Any:
        yield probe
        return Finish(None, Findings(), decisive={"whole": (probe,)})

    steps = surround_step(msgspec.structs.replace(STEPS["compare"], run=run)).run(
        answers.context(Findings(), problem=problem)
    )
    sent = next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send(answers.measured(("real:0", 0.0)))
    assert end.value.value.decisive == {"whole": (sent,)}
    return sent


@pytest.mark.parametrize(
    ("probe", "told"),
    [
        (WHOLE, True),
        (msgspec.structs.replace(WHOLE, candidate=PART, effect=True), True),
        (msgspec.structs.replace(WHOLE, candidate=PART), False),
        (Check(model="m", command="true"), False),
    ],
)
def test_what_compares_the_models_outputs_is_told(answers: Any, probe: Any, told: bool) -> None:
    script = "/s/post.py"
    sent = asked(
        answers, probe, postprocess=[f"{script}:f"], folder="/w", digests={script: "abc", "/m": "d"}
    )
    if told:
        assert (sent.postprocess, sent.postprocess_digest, sent.folder) == (
            (f"{script}:f",),
            "abc",
            "/w",
        )
    else:
        assert getattr(sent, "postprocess", ()) == ()


def test_another_script_is_another_question_and_none_is_the_old_one(answers: Any) -> None:
    one, other = (asked(answers, WHOLE, postprocess=["/p.py"], digests={"/p.py": d}) for d in "ab")
    assert len({key(p, PRINTS) for p in (WHOLE, one, other)}) == 3
    assert asked(answers, WHOLE, folder="/w") == WHOLE
    top = asked(answers, WHOLE, postprocess=["top-5"], folder="/w")
    assert (top.postprocess, top.postprocess_digest, top.folder) == (("top-5",), "", "")
