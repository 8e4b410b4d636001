"""The flows flaky and precision, walked by whole sessions: each answer that leads elsewhere, and
each end."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from narrowdown.engines.data.tactic_replay import canonical_algorithm

from . import tiny
from .conftest import Walk

FLAKY, PRECISION = ("--flow", "flaky"), ("--flow", "precision")
BAD = canonical_algorithm({"implementation": 0, "tactic": 1, "inputs": [], "outputs": []})


def chain(folder: Path) -> tuple[Path, Path]:
    """Six nodes in a row, each with a name of its own."""
    nodes = [
        onnx.helper.make_node("Tanh", [f"t{i}"], [f"t{i + 1}"], name=f"layer{i}") for i in range(6)
    ]
    ends = [
        onnx.helper.make_tensor_value_info(f"t{i}", onnx.TensorProto.FLOAT, [2, 3]) for i in (0, 6)
    ]
    graph = onnx.helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    path = folder / "named-chain.onnx"
    onnx.save(
        onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
        ),
        path,
    )
    return path, tiny.feeds(
        folder / "named-chain.npz", t0=np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    )


# -- flaky


def test_a_kernel_that_some_builds_choose_is_proven_and_kept_out(walk: Walk, models: Path) -> None:
    model, inputs = chain(models)
    # With this seed the first build chooses the bad kernel, and some of the next ones do.
    engine = "fake:fault=wrong,nodes=layer2,tactics=3,bad=1,seed=4"
    walked = walk(model, "--inputs", inputs, "--engine", engine, *FLAKY)
    assert walked.ran.code == 0, walked.ran.out
    assert walked.answers() == [
        ("reproduce", "yes"), ("intermittent", "yes"), ("tactics", "yes"), ("minimal-case", "workaround"), ("workaround", "yes"),
    ]  # fmt: skip
    found = walked.visits("tactics")[0].outcome
    assert (found["suspects"], found["necessary"], found["sufficient"]) == (
        "layer2 (tactic 1)",
        True,
        True,
    )
    report = walked.reading.report()
    assert [c.cause for c in report.culprits] == ["kernel"]
    assert report.culprits[0].nodes == ("layer2",)
    assert report.workaround is not None
    assert report.workaround.switched_off == ("layer2",)


def test_what_comes_and_goes_within_one_build_is_not_laid_to_builds(
    walk: Walk, models: Path
) -> None:
    model, inputs = chain(models)
    engine = "fake:fault=wrong,nodes=layer2,rate=0.4,per=run,seed=3"
    walked = walk(model, "--inputs", inputs, "--engine", engine, *FLAKY)
    assert walked.answers()[:3] == [
        ("reproduce", "yes"),
        ("intermittent", "same-engine"),
        ("nondeterminism", "yes"),
    ]
    assert walked.visits("nondeterminism")[0].outcome["first_node"] == "layer2"
    assert walked.reading.report().verdict in ("minimal-case", "worked-around")


def test_what_always_fails_is_sent_to_the_other_flow(walk: Walk, models: Path) -> None:
    model, inputs = chain(models)
    walked = walk(model, "--inputs", inputs, "--engine", "fake:fault=wrong,nodes=layer2", *FLAKY)
    assert walked.ran.code == 6, walked.ran.out
    assert walked.answers() == [("reproduce", "yes"), ("intermittent", "no")]
    assert "It fails every time" in walked.ran.said
    assert "--flow accuracy" in walked.ran.said


@pytest.mark.slow
def test_a_choice_that_decides_nothing_is_not_accused(walk: Walk, models: Path) -> None:
    model, inputs = chain(models)
    engine = "fake:fault=wrong,rate=0.5,tactics=3,seed=5"
    walked = walk(model, "--inputs", inputs, "--engine", engine, *FLAKY)
    assert walked.ran.code == 6, walked.ran.out
    assert walked.answers() == [("reproduce", "yes"), ("intermittent", "yes"), ("tactics", "no")]
    assert "no tactic could be proven guilty" in walked.ran.said


@pytest.mark.slow
@pytest.mark.parametrize("flow", [FLAKY, PRECISION], ids=lambda f: f[1])
def test_what_does_not_fail_ends_at_once(walk: Walk, models: Path, flow: tuple[str, str]) -> None:
    inputs = tiny.feeds(models / "control.npz", x=tiny.weights(2, 16, seed=7))
    walked = walk(tiny.faultless(models), "--inputs", inputs, "--engine", "emulate", *flow)
    assert walked.ran.code == 10
    assert walked.answers() == [("reproduce", "no")]


@pytest.mark.slow
def test_a_real_optimizer_that_always_does_harm_is_found_beside(walk: Walk, models: Path) -> None:
    """On a real engine: nothing comes and goes, and its optimizers can be switched, which is
    quickly asked."""
    model, inputs = tiny.two_fusions(models)
    walked = walk(
        model,
        "--inputs",
        inputs,
        "--engine",
        "onnxruntime:optimization=all",
        "--tolerance",
        "1e-3",
        *FLAKY,
    )
    assert walked.answers()[:3] == [
        ("reproduce", "yes"),
        ("intermittent", "no"),
        ("tactics", "yes"),
    ]
    assert walked.ran.code == 0, walked.ran.out
    assert walked.reading.report().workaround is not None


# -- precision


@pytest.mark.slow
def test_the_layers_that_need_more_precision_are_found(walk: Walk, models: Path) -> None:
    """On a real computation: a decomposed LayerNorm whose squares leave FP16."""
    walked = walk(
        tiny.two_norms(models), "--inputs", tiny.rows(models), "--engine", "emulate", *PRECISION
    )
    assert walked.ran.code == 0, walked.ran.out
    assert walked.answers()[0] == ("reproduce", "yes")
    assert walked.answers()[-1] == ("layers", "yes")
    found = walked.visits("layers")[0].outcome
    assert 0 < found["keep"] < 8
    assert found["samples_ok"] == found["samples"]
    report = walked.reading.report()
    assert report.verdict == "worked-around"
    assert report.workaround is not None
    assert len(report.workaround.keep_higher) == found["keep"]


@pytest.mark.slow
def test_where_precision_is_not_the_cause_it_says_so(walk: Walk, models: Path) -> None:
    """An engine that is wrong whatever is kept in FP32."""
    model, inputs = chain(models)
    walked = walk(
        model, "--inputs", inputs, "--engine", "fake:fault=wrong,nodes=layer2", *PRECISION
    )
    assert walked.ran.code == 6, walked.ran.out
    assert walked.answers()[-1] == ("layers", "no")
    assert (
        "cannot keep single nodes" in walked.ran.said
        or "precision alone does not make it right" in walked.ran.said
    )


def test_real_inputs_that_fit_need_nothing(walk: Walk, models: Path) -> None:
    real = tiny.feeds(
        models / "between-0-and-1.npz", x=np.random.default_rng(0).random((2, 64), np.float32)
    )
    words = (tiny.norm(models), "--inputs", real, "--val-range", "x:[0,255]", "--engine", "emulate")
    walked = walk(*words, *PRECISION)
    assert walked.ran.code == 10, walked.ran.out
    assert walked.answers() == [("reproduce", "no")]
