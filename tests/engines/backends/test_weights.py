"""Converted weights: each engine finds a file of those that its model names."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.backends.base import BuildRequest, EngineFault
from narrowdown.engines.backends.builds import build, clear_all
from narrowdown.engines.backends.emulate.engine import make as make_emulate
from narrowdown.engines.backends.onnxruntime import engine
from narrowdown.engines.graph import converted, external
from narrowdown.engines.graph.typed import to_precision
from narrowdown.engines.spec import parse

FLOAT = TensorProto.FLOAT
HALF, WIDE = np.dtype(np.float16), np.dtype(np.float32)
SIZES = {"Gemm": [(512, 64), (64,)], "MatMul": [(8, 8, 64)]}
FED = {"Gemm": (2, 512), "MatMul": (8, 2, 8)}


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    clear_all()


def model_of(folder: Path, op: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """One node of the operator, whose weights lie outside, all of them behind one another in a
    file."""
    rng, at, tensors = np.random.default_rng(0), 0, []
    (folder / "weights").mkdir(exist_ok=True)
    with (folder / "weights/w.bin").open("wb") as file:
        for i, size in enumerate(SIZES[op]):
            drawn = np.abs(rng.standard_normal(size, np.float32))
            file.write(drawn.tobytes())
            tensors.append(TensorProto(name=f"w{i}", data_type=FLOAT, dims=size))
            external.make_external(tensors[-1], "weights/w.bin", at, drawn.nbytes)
            at += drawn.nbytes
    feeds = {"x": rng.standard_normal(FED[op], np.float32)}
    names = ["x", *(t.name for t in tensors)]
    kind = helper.np_dtype_to_tensor_dtype(feeds["x"].dtype)
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"])], "g",
        [helper.make_tensor_value_info("x", kind, feeds["x"].shape)], [helper.make_tensor_value_info("y", FLOAT, None)], tensors,
    )  # fmt: skip
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ), feeds


def count_files(folder: Path) -> int:
    return len(list((folder / "weights").iterdir()))


def test_a_weight_may_be_an_output_too(tmp_path: Path) -> None:
    model, feeds = model_of(tmp_path, "Gemm")
    model.graph.output.append(helper.make_tensor_value_info("w1", FLOAT, SIZES["Gemm"][1]))
    for tensor in model.graph.initializer:
        converted.convert_weight(tensor, HALF, WIDE)
    session = engine.Session(model, str(tmp_path), engine.Settings())
    exact = np.fromfile(tmp_path / "weights/w.bin", np.float32)[-64:]
    np.testing.assert_array_equal(
        session.run(feeds)["w1"], exact.astype(np.float16).astype(np.float32)
    )


def test_a_weight_of_a_body_has_a_file(tmp_path: Path) -> None:
    model, feeds = model_of(tmp_path, "MatMul")
    inner = TensorProto()
    inner.CopyFrom(model.graph.initializer[0])
    inner.name = "inside"
    out = helper.make_tensor_value_info("out", FLOAT, None)
    bodies = [
        helper.make_graph(
            [helper.make_node("MatMul", ["x", name], ["out"])],
            "b",
            [],
            [out],
            [inner][: name == "inside"],
        )
        for name in ("inside", "w0")
    ]
    graph = helper.make_graph(
        [helper.make_node("If", ["yes"], ["y"], then_branch=bodies[0], else_branch=bodies[1])], "g",
        [model.graph.input[0], helper.make_tensor_value_info("yes", TensorProto.BOOL, [])],
        model.graph.output, model.graph.initializer,
    )  # fmt: skip
    both = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    built = make_emulate(parse("emulate:precision=fp16")).build(BuildRequest(both, str(tmp_path)))
    assert count_files(tmp_path) == 2
    one, other = (
        built.run({**feeds, "yes": np.array(yes)})["y"].tobytes() for yes in (True, False)
    )
    assert one == other, "the same bytes, once from a file"


def test_weights_that_are_gone_are_one_sentence(tmp_path: Path) -> None:
    """Of a session whose weights end too early no model is loaded (``load.load``)."""
    model, _ = model_of(tmp_path, "Gemm")
    (tmp_path / "weights/w.bin").unlink()
    said = "The weights file 'weights/w.bin' cannot be converted"
    with pytest.raises(EngineFault, match=said) as caught:
        make_emulate(parse("emulate:precision=fp16")).build(BuildRequest(model, str(tmp_path)))
    assert caught.value.status == "invalid-model"


def test_other_engines_find_a_file_for_each_weight_that_their_model_names(tmp_path: Path) -> None:
    """Those of others, too, which know nothing of converted weights."""
    model, _ = model_of(tmp_path, "Gemm")
    typed, seen = to_precision(model, "fp16", ()), []

    class Other:
        def build(self, request: BuildRequest) -> str:
            seen.extend(
                external.read(t, request.weights_dir) for t in request.model.graph.initializer
            )
            return "built"

    assert build(Other(), BuildRequest(typed, str(tmp_path))) == "built"  # type: ignore[arg-type, comparison-overlap]
    assert [a.dtype for a in seen] == [HALF, HALF]
