"""Calls of model-local functions become what is in them: the same bits, under names that say where
each node stood."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

from narrowdown.engines.graph import functions, load
from narrowdown.engines.store.content import Store

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
    if not inlined.functions:
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


@pytest.mark.parametrize(("version", "left"), [(16, 0), (11, 1)])
def test_a_function_of_another_opset_is_inlined_where_its_operators_are_the_same(
    version: int, left: int
) -> None:
    text = f"""
    <ir_version: 8, opset_import: ["":17, "f":1]>
    g (float[2,3,4] x) => (float[2,3,4] y) {{ y = f.Soft (x) }}
    <domain: "f", opset_import: ["":{version}]>
    Soft (x) => (r) {{ r = Softmax (x) }}
    """
    model, inlined = both(
        text, {"x": np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)}
    )
    assert len(inlined.functions) == left
    assert bool(functions.inline(model)[1]) == bool(left)


def test_the_model_comes_in_without_its_functions(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(NESTED), tmp_path / "m.onnx")
    store = Store(tmp_path / "session")
    done = load.import_model(tmp_path / "m.onnx", store)
    model = load.load(store, done.digest)
    assert "5 calls of the model's own functions became what is in them." in done.notes
    assert [node.name for node in model.index.nodes if node.op == "Mul"] == [
        "first/mul", "first/half/scale", "second/mul", "second/half/scale"]  # fmt: skip
