"""A case whose weights are a secret: random ones in their place, or none, and what that does to the
failure."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from narrowdown.engines.compare.judge import Criterion, Signature
from narrowdown.engines.findings import Case, Culprit
from narrowdown.engines.probe import Candidate
from narrowdown.engines.workers.withheld import draw_alike, withhold_weights
from narrowdown.wizard.bundle.check_script import Asked, script
from narrowdown.wizard.bundle.withheld import withheld
from narrowdown.wizard.machine_room import ask

SECRET = np.random.default_rng(1).normal(0.5, 2.0, (8, 8)).astype(np.float32)


def save(path: Path, weight: np.ndarray, *, half: bool) -> None:
    """y = x @ w, stored as FP16 where ``half``; w is followed by a small constant that is no
    weight."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="Product"),
        helper.make_node("Mul", ["m", "two"], ["d"]),
    ]
    if half:
        nodes += [
            helper.make_node("Cast", ["d"], ["h"], to=TensorProto.FLOAT16),
            helper.make_node("Cast", ["h"], ["y"], to=TensorProto.FLOAT),
        ]
    else:
        nodes.append(helper.make_node("Identity", ["d"], ["y"]))
    x, y = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, size])
        for n, size in zip("xy", weight.shape, strict=True)
    )
    weights = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.float32(2), "two")]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path
    )


def made(folder: Path, size: float, weight: np.ndarray = SECRET) -> Path:
    """A case; with ``size`` large enough its FP16 overflows."""
    folder.mkdir()
    x = np.full((1, 8), size, np.float32)
    save(folder / "model.onnx", weight, half=False)
    save(folder / "engine.onnx", weight.astype(np.float16).astype(np.float32), half=True)
    np.savez(folder / "inputs.npz", x=x)
    np.savez(folder / "expected.npz", y=x @ weight * 2)
    np.savez(folder / "actual.npz", y=x)
    signature = Signature(kind="accuracy", sample="real:0", outputs=("y",))
    culprit = Culprit(
        Case(Candidate(), "real:0", nodes=("Product",), outputs=("y",), signature=signature),
        "overflow",
    )
    asked = Asked(
        engine="emulate:precision=fp16", found_with="?", criterion=Criterion(tolerance=1e-2)
    )
    (folder / "check.py").write_text(script(culprit, asked))
    return folder


def weight(folder: Path, name: str) -> np.ndarray:
    tensors = {t.name: t for t in onnx.load(folder / name).graph.initializer}
    assert numpy_helper.to_array(tensors["two"]) == 2, "a constant of one element is no weight"
    return numpy_helper.to_array(tensors["w"])


def test_random_weights_are_others_and_the_failure_survives(tmp_path: Path) -> None:
    case = made(tmp_path / "case", 30_000)
    withhold_weights(case, "random", "onnxruntime")
    new = weight(case, "model.onnx")
    left = set(new.ravel()) & set(SECRET.ravel())
    assert left == {SECRET.min(), SECRET.max()}, "of the true values none but the extremes is left"
    assert np.array_equal(weight(case, "engine.onnx"), new)
    with np.load(case / "expected.npz") as archive:
        assert np.allclose(archive["y"], np.full((1, 8), 30_000, np.float32) @ new * 2, rtol=1e-5)
    assert not (case / "actual.npz").exists()
    assert "the failure survives that" in withheld(case, "random")


def test_a_failure_that_needs_the_true_weights_is_said_to_be_gone(tmp_path: Path) -> None:
    """Each column sums to more than FP16 holds; random weights of the same statistics cancel
    out."""
    pattern = np.tile(np.float32([[1000], [-1000]]), (4, 8))
    case = made(tmp_path / "case", 10, pattern)
    np.savez(case / "inputs.npz", x=np.float32([[10, -10] * 4]))
    np.savez(case / "expected.npz", y=np.float32([[10, -10] * 4]) @ pattern * 2)
    assert withheld(case, "random").endswith("the failure survives that."), "as it is, it fails"
    withhold_weights(case, "random", "onnxruntime")
    assert "with them the failure is GONE" in withheld(case, "random")


def test_left_out_weights_are_nowhere(tmp_path: Path) -> None:
    case = made(tmp_path / "case", 30_000)
    withhold_weights(case, "none", "onnxruntime")
    for name in ("model.onnx", "engine.onnx"):
        data = (case / name).read_bytes()
        assert not any(row.tobytes() in data for row in SECRET)
        tensor = onnx.load(case / name, load_external_data=False).graph.initializer[0]
        assert (tensor.name, list(tensor.dims), len(tensor.raw_data)) == ("w", [8, 8], 0)
    assert "whoever has them can put them back" in withheld(case, "none")


@pytest.mark.parametrize("manner", ["random", "none"])
def test_the_process_says_how_many_weights_there_were(tmp_path: Path, manner: str) -> None:
    """In the failing model and in what the engine ran; a case with none is as it was."""
    rich, poor = made(tmp_path / "rich", 30_000), made(tmp_path / "poor", 30_000)
    for name in ("model.onnx", "engine.onnx"):
        save(poor / name, np.eye(8, 2, dtype=np.float32), half=name == "engine.onnx")
    np.savez(poor / "expected.npz", y=np.ones((1, 2), np.float32))
    before = {name: (poor / name).read_bytes() for name in ("model.onnx", "engine.onnx")}
    assert ask(
        "narrowdown.engines.workers.withheld", "{}", manner, "onnxruntime", str(rich), str(poor)
    ).split() == ["2", "0"]
    assert {name: (poor / name).read_bytes() for name in before} == before


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint8])
def test_the_statistics_stay(dtype: type) -> None:
    values = np.clip(
        np.random.default_rng(0).normal(3, 40, (64, 64)), 0 if dtype == np.uint8 else -120, 120
    ).astype(dtype)
    new = draw_alike(values, "w")
    assert new.shape == values.shape
    assert (new.min(), new.max()) == (values.min(), values.max())
    assert new.mean() == pytest.approx(values.mean(dtype=np.float64), abs=4)
    assert new.std() == pytest.approx(values.std(dtype=np.float64), rel=0.25)
    assert np.array_equal(draw_alike(values, "w"), new)
    assert not np.array_equal(draw_alike(values, "v"), new)
