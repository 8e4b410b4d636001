"""A workaround as a file: written into the user's model, by the user's names, and tried as it
stands."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from narrowdown.engines.graph import load
from narrowdown.engines.graph.load import build_index
from narrowdown.engines.graph.typed import to_precision, to_rounded
from narrowdown.engines.graph.unroll import find_inside
from narrowdown.engines.probe import Measure
from narrowdown.engines.search.workaround_facts import list_facts
from narrowdown.engines.store import Store
from narrowdown.engines.workers.workaround_model import Place, find_folded, find_origins
from tests.gpu import models

from .conftest import Session

FP16 = "emulate:precision=fp16"


@pytest.fixture
def failing(tmp_path: Path, open_model: Callable[..., Session]) -> Session:
    """A session on the emulation whose failure is locked."""
    model, inputs = models.layernorm(tmp_path)
    s = open_model(model, FP16, (inputs,))
    s.step("compare")
    return s


def search_on(s: Session, rename_tensors: bool) -> None:
    """The working model becomes one that was made from the user's, in which no node has its own
    name."""
    proto = onnx.ModelProto()
    proto.CopyFrom(load.load(s.store, s.findings.model).proto)
    ends = {o.name for o in proto.graph.output}
    renamed = {
        n: f"{n}_clean"
        for node in proto.graph.node
        for n in node.output
        if n not in ends and rename_tensors
    }
    for i, node in enumerate(proto.graph.node):
        node.name = f"clean_{i}"
        node.input[:] = [renamed.get(n, n) for n in node.input]
        node.output[:] = [renamed.get(n, n) for n in node.output]
    del proto.graph.value_info[:]
    s.findings = msgspec.structs.replace(s.findings, model=load.save(s.store, proto))


def file_of(s: Session, done: Any) -> onnx.ModelProto:
    files = next(row["files"] for row in done.tables["bundle"] if row["role"] == "workaround")
    return onnx.load_from_string(s.store.path(files["worked-around.onnx"]).read_bytes())


def test_the_file_is_the_users_model_with_casts_and_was_run_as_it_stands(failing: Session) -> None:
    s, done = failing, failing.step("workaround").finish
    cure = done.findings.workaround
    assert "worked-around.onnx (your model with" in cure.written
    assert re.search(r"loaded and run: right on (\d\d) of \1 samples", cure.written)
    model = file_of(s, done)
    types = {t.data_type for t in model.graph.initializer}
    assert TensorProto.FLOAT16 in types
    kinds = {
        v.name: v.type.tensor_type.elem_type
        for v in onnx.shape_inference.infer_shapes(model).graph.value_info
    }
    for node in model.graph.node:
        if node.name in cure.keep_names:
            assert all(
                kinds.get(name, TensorProto.FLOAT) == TensorProto.FLOAT for name in node.output
            )
    assert {n.name for n in model.graph.node} >= set(cure.keep_names)
    assert cure.written in [fact.text for fact in list_facts(done.findings, cure)]


def test_nodes_of_a_cleaned_model_are_kept_by_the_users_names(failing: Session) -> None:
    s = failing
    users = {n.name for n in load.load(s.store, s.findings.model).proto.graph.node}
    search_on(s, rename_tensors=False)
    done = s.step("workaround").finish
    cure = done.findings.workaround
    assert all(name.startswith("clean_") for name in cure.keep_names)
    assert "worked-around.onnx (your model with" in cure.written
    assert {n.name for n in file_of(s, done).graph.node} >= users
    assert cure.in_model
    assert set(cure.in_model) <= users


def test_what_makes_a_constant_of_the_cleaned_model_stays_in_fp32_with_who_reads_it(
    tmp_path: Path, open_model: Callable[..., Session]
) -> None:
    """A codec's Snake, x + sin(ax)^2 / (a + 1e-9), of a channel whose a is 0: cleaned, it reads a
    constant of 1e9. In the user's model that is made by two nodes, and kept without them the file
    was right on none."""
    n = helper.make_node
    alpha = np.array([0, 1, 2, 3], np.float32)
    weights = {"alpha": alpha, "epsilon": np.float32(1e-9)}
    makers = [
        n("Add", ["alpha", "epsilon"], ["guarded"], "guarded"),
        n("Reciprocal", ["guarded"], ["over"], "over"),
    ]
    rest = [
        n("Mul", ["x", "alpha"], ["turned"], "turned"),
        n("Sin", ["turned"], ["wave"], "wave"),
        n("Mul", ["wave", "wave"], ["square"], "square"),
        n("Mul", ["square", "over"], ["snake"], "snake"),
        n("Add", ["x", "snake"], ["y"], "sum"),
    ]

    def build(nodes: list[onnx.NodeProto], held: dict[str, Any]) -> onnx.ModelProto:
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy")
        tensors = [
            onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()
        ]
        graph = helper.make_graph(nodes, "snake", [x], [y], tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

    onnx.save(build(makers + rest, weights), tmp_path / "snake.onnx")
    np.savez(tmp_path / "in.npz", x=np.array([[0.5, 1.5, -1, 2]], np.float32))
    s = open_model(tmp_path / "snake.onnx", FP16, (tmp_path / "in.npz",))
    s.step("compare")
    over = 1 / (alpha + np.float32(1e-9))
    cleaned = load.save(s.store, build(rest, {"alpha": alpha, "over": over}))
    s.findings = msgspec.structs.replace(s.findings, model=cleaned, original=s.findings.model)
    done = s.step("workaround").finish
    cure = done.findings.workaround
    assert "snake" in cure.keep_names
    assert "worked-around.onnx (your model with" in cure.written
    assert {"guarded", "over"} <= set(cure.in_model)


def test_what_makes_a_constant_is_found_for_who_reads_it_and_where_the_precision_has_not_got_it() -> (
    None
):
    """Of a normalizer, (x - mean) / sqrt(var + 1e-8), the difference alone was kept, and in FP16
    the root was 0 in the user's."""
    from narrowdown.engines.workers.workaround_model import _find_outside

    n = helper.make_node
    nodes = [
        n("Add", ["var", "small"], ["guarded"], "guarded"),
        n("Sqrt", ["guarded"], ["root"], "root"),
        n("Sub", ["x", "mean"], ["less"], "less"),
        n("Div", ["less", "root"], ["part"], "part"),
        n("Sqrt", ["width"], ["scale"], "scale"),
        n("Mul", ["part", "scale"], ["y"], "end"),
    ]
    held = {"var": [0, 1], "small": [1e-8], "mean": [0, 1], "width": [4]}
    tensors = [
        onnx.numpy_helper.from_array(np.array(value, np.float32), name)
        for name, value in held.items()
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in "xy")
    proto = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], tensors),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        own = load.load(store, load.save(store, proto))
    index, made = own.index, chain(n("Neg", ["x"], ["y"], "cleaned"))
    outside = _find_outside(own, "fp16")
    assert [index.nodes[i].name for i in sorted(find_folded(made, index, outside))] == [
        "guarded",
        "root",
    ]
    assert _find_outside(own, "bf16") == set()
    read = set(index.nodes[5].reads)
    assert [index.nodes[i].name for i in find_folded(made, index, read)] == ["scale"]
    assert find_folded(index, index, outside) == frozenset(), "the searched model makes them, too"


def test_where_the_users_model_has_not_got_the_nodes_the_cleaned_one_is_written(
    failing: Session,
) -> None:
    search_on(failing, rename_tensors=True)
    done = failing.step("workaround").finish
    said = done.findings.workaround.written
    assert "the cleaned model that was searched with" in said
    assert "Not of your own model: written into your model, which has no clean_" in said
    assert "it is right on 0 of" in said
    assert {n.name for n in file_of(failing, done).graph.node} >= set(
        done.findings.workaround.keep_names
    )


def test_a_file_that_is_wrong_is_not_handed_over(failing: Session, monkeypatch: Any) -> None:
    """What is written keeps nothing: read back and run, it fails, and that is what is said."""
    from narrowdown.engines.workers import workaround_model

    right = workaround_model.to_precision
    monkeypatch.setattr(
        workaround_model, "to_precision", lambda model, rest, *_: right(model, rest, ())
    )
    done = failing.step("workaround").finish
    assert (
        "There is no worked-around.onnx: written into your model it is right on"
        in done.findings.workaround.written
    )
    assert not any("worked-around.onnx" in row["files"] for row in done.tables["bundle"])


def chain(*nodes: Any) -> Any:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    model = helper.make_model(
        helper.make_graph(list(nodes), "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)]
    )
    return build_index(model, "d")


def test_nodes_are_found_again_by_what_they_give_by_name_and_by_the_body_that_they_stood_in() -> (
    None
):
    times, twice = (helper.make_node("Mul", ["s", "s"], [name], name) for name in ("mul", "t"))
    body = helper.make_graph(
        [helper.make_node("Constant", [], ["k"], value_float=1.0), times, twice], "body", [], []
    )
    loop = helper.make_node("Loop", ["n", "", "b"], ["c"], "walk", body=body)
    n = [
        helper.make_tensor_value_info("n", TensorProto.INT64, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], ""),
        helper.make_node("Neg", ["a"], ["b"], "minus"),
        loop,
    ]
    nodes += [helper.make_node("Abs", ["c"], ["y"], "last")]
    origin = build_index(
        helper.make_model(
            helper.make_graph(nodes, "g", n, [y]), opset_imports=[helper.make_opsetid("", 17)]
        ),
        "o",
    )
    made = chain(
        helper.make_node("Exp", ["x"], ["a"], "renamed"),
        helper.make_node("Neg", ["a"], ["other"], "minus"),
        helper.make_node("Mul", ["other", "other"], ["i"], "walk/body/iteration_0/mul"),
        helper.make_node("Add", ["i", "i"], ["j"], "made of nothing"),
        helper.make_node("Abs", ["j"], ["y"], "last"),
        helper.make_node("Gather", ["i", "i"], ["row"], "walk/body/iteration_0/row/Gather"),
    )
    found = find_origins(made, origin, ("exp", "minus", "walk", "last"), range(6))
    assert found == {
        0: Place(0),
        1: Place(1),
        2: Place(2, "body/iteration_0/mul"),
        4: Place(3),
        5: Place(2, "body/iteration_0/row/Gather"),
    }
    assert find_inside(loop, found[2].inside, "Mul") == ("body/mul", body.node[1])
    assert find_inside(loop, found[5].inside, "Gather") is None


def test_what_a_file_types_as_half_is_rounded_and_what_it_keeps_is_not() -> None:
    """``emulate:precision=typed``: 60,000 twice is beyond FP16; kept in FP32 it is not."""
    import onnxruntime as ort

    nodes = [
        helper.make_node("Add", ["x", "x"], ["s"], "sum"),
        helper.make_node("Div", ["s", "four"], ["y"], "part"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    four = helper.make_tensor("four", TensorProto.FLOAT, [1], [4.0])
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], [four]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    fed = {"x": np.array([60000.0, 1.0], np.float32)}
    for keep, right in (((), np.inf), ((0, 1), 30000.0)):
        made = to_rounded(to_precision(model, "fp16", keep))
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(
            made.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        assert session.run(None, fed)[0][0] == right


def test_an_engine_that_takes_no_types_from_files_is_not_asked(failing: Session) -> None:
    s = failing
    s.info = {**s.info, "typed": ""}
    done = s.step("workaround")
    assert done.finish.findings.workaround.written == ""
    assert not any(isinstance(p, Measure) and p.written for p in done.probes)
    assert msgspec.json.encode(done.finish.findings.workaround)


def test_pairs_stay_where_the_reference_computes_the_same_codes(
    tmp_path: Path, open_model: Callable[..., Session]
) -> None:
    """FP16 of a quantized model against itself: what overflows is kept in FP32, and its codes stay
    codes. Left in float, as it is done against the float model, all of it would be further from the
    reference than FP16 is."""
    n = helper.make_node
    constants = {
        "scale": np.float32(0.5), "zero": np.int8(0), "k": np.float32(400), "w": np.eye(4, dtype=np.int8) * 2,
    }  # fmt: skip
    nodes = [
        n("QuantizeLinear", ["x", "scale", "zero"], ["codes"], "codes"),
        n("DequantizeLinear", ["codes", "scale", "zero"], ["coarse"], "coarse"),
        n("DequantizeLinear", ["w", "scale", "zero"], ["weight"], "weight"),
        n("MatMul", ["coarse", "weight"], ["m"], "product"),
        n("Mul", ["m", "k"], ["large"], "large"),
        n("Mul", ["large", "large"], ["square"], "square"),
        n("Sqrt", ["square"], ["root"], "root"),
        n("Div", ["root", "k"], ["y"], "back"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [1, 4])], [value("y", TensorProto.FLOAT, [1, 4])],
        [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )  # fmt: skip
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "m.onnx",
    )
    np.savez(tmp_path / "in.npz", x=np.float32([[0.7, 1.2, 1.9, 0.8]]))
    s = open_model(tmp_path / "m.onnx", FP16, (tmp_path / "in.npz",))
    assert s.step("compare").finish.outcome.verdict == "fails"
    done = s.step("workaround").finish
    cure = done.findings.workaround
    assert cure is not None, done.outcome.message
    assert "square" in cure.keep_names
    kinds = [node.op_type for node in file_of(s, done).graph.node]
    assert (kinds.count("QuantizeLinear"), kinds.count("DequantizeLinear")) == (1, 2)
