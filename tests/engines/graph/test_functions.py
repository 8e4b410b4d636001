"""Calls of model-local functions become what is in them: the same bits, under names that say where
each node stood."""

import itertools
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

from narrowdown.engines.graph import ModelProblem, functions, load
from narrowdown.engines.store import Store

NESTED = """
<ir_version: 8, opset_import: ["":17, "f":1]>
g (float[2,3] x, bool which) => (float[2,3] y, float[2,3] z) {
  [first] h, unused = f.Block <gain = 2.0> (x)
  [second] y, again = f.Block <gain = 3.0> (h)
  [choice] z = If (which) <
    then_branch = t () => (float[2,3] zt) { [inside] zt = f.Half (h) },
    else_branch = e () => (float[2,3] ze) { ze = Identity (x) }>
}
<domain: "f", opset_import: ["":17, "f":1]>
Block <gain> (x) => (r, s) {
  k = Constant <value_float: float = @gain> ()
  [mul] t = Mul (x, k)
  [half] r = f.Half (t)
  s = Exp (x)
}
<domain: "f", opset_import: ["":17]>
Half <by: float = 0.5> (x) => (r) {
  k = Constant <value_float: float = @by> ()
  [scale] r = Mul (x, k)
}
"""


def both(text: str, feeds: dict[str, np.ndarray]) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """(as it was, inlined), held to give the same bits on ONNX Runtime."""
    model = onnx.parser.parse_model(text)
    inlined = onnx.ModelProto()
    inlined.CopyFrom(model)
    functions.inline(inlined)
    onnx.checker.check_model(inlined, full_check=True)
    before, after = (
        ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, feeds
        )
        for m in (model, inlined)
    )
    for a, b in zip(before, after, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    return model, inlined


@pytest.mark.parametrize("which", [True, False])
def test_nested_calls_keep_their_names_and_their_bits(which: bool) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    _, inlined = both(NESTED, {"x": x, "which": np.array(which)})
    named = [node.name for node in inlined.graph.node]
    assert {"first/mul", "first/half/scale", "second/mul", "second/half/scale", "choice"} <= set(
        named
    )
    assert len(set(named)) == len(named)
    then = inlined.graph.node[-1].attribute[0].g
    assert [node.name for node in then.node if node.op_type == "Mul"] == ["inside/scale"]
    assert not inlined.functions


def test_a_value_that_a_function_hands_on_is_there_under_both_names() -> None:
    """No engine takes such a call (ONNX Runtime finds no names for its outputs); what stands in its
    place is valid."""
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["":17, "f":1]>
    g (float[3] x) => (float[3] a, float[3] b, float[3] c) { a, b, c = f.Two (x) }
    <domain: "f", opset_import: ["":17]>
    Two (x) => (x, r, r) { r = Neg (x) }
    """)
    functions.inline(model)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    a, b, c = session.run(None, {"x": np.array([1, 2, 3], np.float32)})
    assert (a.tolist(), b.tolist(), c.tolist()) == ([1, 2, 3], [-1, -2, -3], [-1, -2, -3])


def test_an_optional_input_and_attribute_that_the_call_leaves_out() -> None:
    text = """
    <ir_version: 8, opset_import: ["":17, "f":1]>
    g (float[3] x) => (float[3] y) { y = f.Cut (x) }
    <domain: "f", opset_import: ["":17]>
    Cut <axis> (x, low, high) => (r) { t = Clip (x, low, high)
      r = Softmax <axis: int = @axis> (t) }
    """
    both(text, {"x": np.array([1, 2, 3], np.float32)})


def test_what_a_function_imports_the_model_imports() -> None:
    text = """
    <ir_version: 8, opset_import: ["f":1]>
    g (float[3] x) => (float[3] y) { y = f.Neg (x) }
    <domain: "f", opset_import: ["":17]>
    Neg (x) => (r) { r = Neg (x) }
    """
    both(text, {"x": np.array([1, 2, 3], np.float32)})


SOFT = """
<ir_version: 8, opset_import: ["":17, "f":1]>
g (float[2,3,4] x) => (float[2,3,4] y) {{ y = f.Soft (x) }}
<domain: "f", opset_import: ["":{version}]>
Soft (x) => (r) {{ r = Softmax (x) }}
"""


def test_a_function_of_another_opset_is_inlined_where_its_operators_are_the_same() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    both(SOFT.format(version=16), {"x": x})
    with pytest.raises(ModelProblem, match="'Soft' is of opset 11 and the model of 17, in which"):
        functions.inline(onnx.parser.parse_model(SOFT.format(version=11)))


def test_the_model_comes_in_without_its_functions(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(NESTED), tmp_path / "m.onnx")
    store = Store(tmp_path / "session")
    done = load.import_model(tmp_path / "m.onnx", store)
    model = load.load(store, done.digest)
    assert "5 calls of the model's own functions became what is in them." in done.notes
    assert [node.name for node in model.index.nodes if node.op == "Mul"] == [
        "first/mul", "first/half/scale", "second/mul", "second/half/scale"]  # fmt: skip


def chain(path: Path, calls: int, count: int, *, round_: bool = False) -> Path:
    """``count`` functions, each of which calls the one before it ``calls`` times; ``round_``: and
    the first one the last."""
    imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("own", 1)]

    def function(i: int) -> onnx.FunctionProto:
        op, domain = (
            (f"F{i - 1}", "own") if i else (f"F{count - 1}", "own") if round_ else ("Neg", "")
        )
        tensors = ["a", *(f"t{n}" for n in range(1, calls)), "b"]
        nodes = [
            onnx.helper.make_node(op, [a], [b], domain=domain)
            for a, b in itertools.pairwise(tensors)
        ]
        return onnx.helper.make_function("own", f"F{i}", ["a"], ["b"], nodes, imports)

    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(f"F{count - 1}", ["x"], ["y"], domain="own")],
        "g",
        [info[0]],
        [info[1]],
    )
    functions = [function(i) for i in range(count)]
    model = onnx.helper.make_model(graph, functions=functions, opset_imports=imports, ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("calls", "count", "round_", "said"),
    [
        (
            2,
            40,
            False,
            "has 1,099,511,627,776 nodes once its own functions are inlined, and no more than 1,000,000 can be",
        ),
        (9, 99, False, r"has about 10\^94 nodes once its own functions are inlined"),
        (1, 101, False, "more than 100 call one another in a row \\('F100' does\\); inline some"),
        (2, 3, True, "The model's own function 'F2' calls itself"),
    ],
)
def test_functions_count_as_what_they_hold(
    tmp_path: Path, calls: int, count: int, round_: bool, said: str
) -> None:
    path = chain(tmp_path / "m.onnx", calls, count, round_=round_)
    with pytest.raises(ModelProblem, match=said):
        load.import_model(path, Store(tmp_path))
    store = Store(tmp_path / "stored")
    digest = load.save(store, onnx.load(path))
    with pytest.raises(ModelProblem, match=said):
        load.load(store, digest)


def test_functions_that_are_not_too_much(tmp_path: Path) -> None:
    path = chain(tmp_path / "m.onnx", 2, 10)
    assert functions.count_expanded_nodes(onnx.load(path)) == 1 << 10
    assert load.import_model(path, Store(tmp_path)).nodes == 1 << 10
