"""What is planted into a model fails where it is meant to, at the nodes that are named, and nowhere
in FP32."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from campaigns.field import campaign, models
from campaigns.field.plant import LOST_IN_BF16, Fault, plant
from campaigns.field.remake import remake
from campaigns.field.truth import Case

FLOAT = TensorProto.FLOAT


def save_layers(path: Path) -> None:
    """Two layers with a Relu between them."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
        helper.make_node("Add", ["a", "b"], ["c"], "bias"),
        helper.make_node("Relu", ["c"], ["d"], "turn"),
        helper.make_node("MatMul", ["d", "v"], ["y"], "second"),
    ]
    weights = {
        "w": rng.normal(0, 0.3, (8, 16)),
        "b": rng.normal(0, 0.3, 16),
        "v": rng.normal(0, 0.3, (16, 8)),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", FLOAT, [1, 8])],
        [
            numpy_helper.from_array(value.astype(np.float32), name)
            for name, value in weights.items()
        ],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )


FEEDS = [
    {"x": np.random.default_rng(seed).normal(0, 1, (1, 8)).astype(np.float32)} for seed in range(4)
]


@pytest.mark.slow
def test_what_is_planted_fails_at_its_nodes_in_its_precision_and_is_right_in_fp32(
    tmp_path: Path,
) -> None:
    for fault, engine in (
        (Fault("overflow", "Relu"), "emulate:precision=fp16"),
        (Fault("cancellation", "Add"), "emulate:precision=fp16"),
        (Fault("cancellation", "Add", times=LOST_IN_BF16), "emulate:precision=bf16"),
        (Fault("mask", "Add"), "emulate:precision=fp16"),
        (Fault("epsilon", "Relu"), "emulate:precision=fp16"),
        (Fault("logsum", "Relu"), "emulate:precision=fp16"),
    ):
        path = tmp_path / f"{fault.kind}.onnx"
        save_layers(path)
        plain = ort.InferenceSession(str(path)).run(None, FEEDS[0])[0]
        assert Case(path, engine).whole(FEEDS)["state"] == "passes"
        planted = onnx.load(path)
        culprits = plant(planted, fault, FEEDS[0])
        onnx.save(planted, path)
        assert np.allclose(
            ort.InferenceSession(str(path)).run(None, FEEDS[0])[0], plain, rtol=1e-3, atol=1e-4
        )
        case = Case(path, engine)
        assert case.whole(FEEDS)["state"] == "fails"
        assert case.culprits(culprits, FEEDS[0])["true"]


def test_a_channel_that_is_far_larger_is_lost_in_int8_alone(tmp_path: Path) -> None:
    path, coarse = tmp_path / "outlier.onnx", tmp_path / "int8.onnx"
    states = []
    for planted in (False, True):
        save_layers(path)
        if planted:
            model = onnx.load(path)
            assert plant(model, Fault("outlier", "MatMul"), FEEDS[0]) == ("first", "second")
            onnx.save(model, path)
        campaign.quantize(path, coarse, FEEDS)
        states.append(Case(coarse, "onnxruntime", path).whole(FEEDS)["state"])
        assert Case(path, "emulate:precision=fp16").whole(FEEDS)["state"] == "passes"
    assert states == ["passes", "fails"]


def test_a_policy_that_is_put_into_a_loop_acts_as_it_did(tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    save_layers(path)
    model = onnx.load(path)
    act = ort.InferenceSession(model.SerializeToString())
    remake(model, "loop")
    last, actions = ort.InferenceSession(model.SerializeToString()).run(None, FEEDS[0])
    seen = FEEDS[0]["x"]
    for action in actions:
        assert np.allclose(action, act.run(None, {"x": seen})[0], atol=1e-6)
        seen = seen + np.float32(0.1) * action
    assert np.allclose(last, seen, atol=1e-6)


def test_weights_in_bf16_are_the_same_but_for_their_digits(tmp_path: Path) -> None:
    path = tmp_path / "layers.onnx"
    save_layers(path)
    model = onnx.load(path)
    plain = ort.InferenceSession(model.SerializeToString()).run(None, FEEDS[0])[0]
    remake(model, "bf16")
    assert {t.data_type for t in model.graph.initializer} == {TensorProto.BFLOAT16}
    assert np.allclose(
        ort.InferenceSession(model.SerializeToString()).run(None, FEEDS[0])[0], plain, atol=2e-2
    )


def test_what_does_not_fit_is_said() -> None:
    empty = helper.make_model(helper.make_graph([], "g", [], []))
    for fault in (Fault("overflow", "Relu"), Fault("outlier", "MatMul")):
        with pytest.raises(ValueError, match=r"^no "):
            plant(empty, fault, {})


def test_planted_models_are_of_models_that_are_asked_as_shipped_too() -> None:
    assert len({m.name for m in models.MODELS}) == len(models.MODELS)
    for planted in models.PLANTED:
        assert any(
            m.fault is None and (m.wheel, m.path) == (planted.wheel, planted.path)
            for m in models.MODELS
        )
