"""No flow recommends an answer whose step lacks what it needs."""

import itertools
from typing import Any

import msgspec
import pytest

from narrowdown.engines.steps.registry import STEPS
from narrowdown.wizard.flow.load import load, shipped
from narrowdown.wizard.flow.rules import destination, recommend


def recommended(flow: str, node: str, **outcome: Any) -> str:
    """Where the recommended answer leads."""
    found = load(flow).flow.nodes[node]
    assert found.step is not None
    whole = {**defaults(found.step.use), **outcome}
    answer = recommend(found, whole)
    return destination(found.answers[answer.answer], whole)


def defaults(step: str) -> dict[str, Any]:
    fields = msgspec.structs.fields(STEPS[step].outcome)
    return {f.name: f.default for f in fields if f.default is not msgspec.NODEFAULT}


def test_nothing_is_cut_out_where_no_suspect_is_known() -> None:
    for observer, spread in itertools.product(
        ("reproduces", "improves", "unresolved"), (True, False)
    ):
        assert (
            recommended("accuracy", "layerwise", observer=observer, spread=spread, culprit="")
            != "extract"
        )
    assert (
        recommended("accuracy", "layerwise", observer="reproduces", spread=False, culprit="node")
        == "extract"
    )
    for flow in ("accuracy", "flaky"):
        assert (
            recommended(flow, "nondeterminism", nondeterministic=False, first_node="") != "extract"
        )


@pytest.mark.parametrize(
    "flow", [name for name in shipped() if "reproduce" in load(name).flow.nodes]
)
def test_a_refused_model_is_no_wrong_result(flow: str) -> None:
    """It is searched for the part that is refused, or ends with the way to that; nothing of it is
    called right or wrong."""
    found = load(flow).flow
    to = recommended(flow, "reproduce", verdict="refused", failure="build")
    if to in found.ends:
        assert "build-failure" in found.ends[to].explain
    elif flow == "flaky":
        assert to == "intermittent", "a build that is refused now and then is what it looks for"
    else:
        assert to == "sanitize"
        assert recommended(flow, to, failure="build") in ("reduce", "fixed-by-sanitizing")
    assert recommended(flow, "reproduce", verdict="refused-whole", failure="build") in found.ends


@pytest.mark.parametrize(("flow", "kept"), [("precision", "FP32"), ("quantization", "float")])
def test_what_only_the_whole_model_cures_is_not_said_to_have_another_cause(
    flow: str, kept: str
) -> None:
    """A quantized model that passes with all 8 layers in float ended with "the layers are not the
    cause", and that float does not help."""
    found = load(flow).flow
    end = recommended(flow, "layers", outcome="whole")
    assert found.ends[end].title == f"Right only with all layers in {kept}"
    assert "at fault" in found.ends[end].explain
    assert recommended(flow, "layers", outcome="not-enough") == "unresolved"
    assert not any(
        "not the cause" in answer.text for answer in found.nodes["layers"].answers.values()
    )


def test_no_layer_is_ranked_where_the_engine_computes_right_codes_wrong() -> None:
    """The optimizer of ONNX Runtime that makes products saturate was missed, and 8 of 108 layers
    left in float for it."""
    asked = [
        recommended("quantization", "reproduce", verdict="fails", explanation=e)
        for e in ("engine", "both", "precision")
    ]
    assert asked == ["tactics", "real-inputs", "real-inputs"]
    assert recommended("quantization", "tactics", found=True) == "workaround"
    ends = load("quantization").flow.ends
    assert ends[recommended("quantization", "workaround", holds=True)].verdict == "worked-around"
    for node in ("tactics", "workaround"):
        assert "--flow" in ends[recommended("quantization", node)].explain, (
            "it says what to do next"
        )


@pytest.mark.parametrize("flow", ["precision", "quantization"])
@pytest.mark.parametrize("verdict", ["built", "unresolved"])
def test_what_never_ran_is_not_called_good_enough(flow: str, verdict: str) -> None:
    """An engine that only builds here, or that needs a GPU to read the model."""
    found = load(flow).flow
    answer, _ = recommend(found.nodes["reproduce"], {**defaults("compare"), "verdict": verdict})
    assert found.nodes["reproduce"].answers[answer].text == "That could not be measured here"
    assert recommended(flow, "reproduce", verdict=verdict) == "unresolved"
    assert recommended(flow, "reproduce", verdict="passes") == "not-reproduced"
