"""A model is restated in older versions only where it then means exactly the same."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from narrowdown.engines.backends import ceiling
from narrowdown.engines.graph import versions

NEWEST = versions.newest_opset()
ROW = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]


def model(*nodes: onnx.NodeProto, opset: int, ir: int = 10) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "g", ROW[:1], ROW[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def opset_of(made: onnx.ModelProto) -> int:
    return int(made.opset_import[0].version)


def test_operators_with_one_definition_are_restated_and_give_the_same() -> None:
    made = model(
        helper.make_node("Neg", ["x"], ["h"]), helper.make_node("Relu", ["h"], ["y"]), opset=17
    )
    before = ReferenceEvaluator(made).run(None, {"x": np.arange(4, dtype=np.float32) - 2})
    assert versions.restate(made, 10, 14) == ""
    assert opset_of(made) == 14
    after = ReferenceEvaluator(made).run(None, {"x": np.arange(4, dtype=np.float32) - 2})
    np.testing.assert_array_equal(before[0], after[0])


@pytest.mark.parametrize("deep", [False, True], ids=["flat", "in a body"])
def test_an_operator_that_was_defined_anew_stands_in_the_way(deep: bool) -> None:
    relu = helper.make_node(
        "Relu", ["x"], ["y"], name="anew"
    )  # Relu has a definition of its own since opset 14
    if deep:
        branch = helper.make_graph([relu], "b", [], ROW[1:])
        yes = helper.make_node(
            "Constant", [], ["yes"], value=helper.make_tensor("", TensorProto.BOOL, [], [True])
        )
        made = model(
            yes,
            helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch),
            opset=17,
        )
    else:
        made = model(relu, opset=17)
    before = made.SerializeToString()
    obstacle = versions.restate(made, 10, 13)
    # The If itself has changed since, too: whichever comes first is named.
    assert obstacle.endswith("is not the same in opset 13")
    assert ("'anew'" in obstacle) or deep
    assert made.SerializeToString() == before, "a model that is not restated is left alone"


def test_an_unknown_operator_is_not_taken_for_the_same() -> None:
    made = model(helper.make_node("NoSuchOperator", ["x"], ["y"], name="odd"), opset=17)
    assert "'odd'" in versions.restate(made, 10, 16)


def test_functions_are_restated_and_looked_into() -> None:
    def made(op: str) -> onnx.ModelProto:
        opsets = [helper.make_opsetid("", 17)]
        function = helper.make_function(
            "own", "F", ["x"], ["y"], [helper.make_node(op, ["x"], ["y"], name="inner")], opsets
        )
        graph = helper.make_graph(
            [helper.make_node("F", ["x"], ["y"], domain="own")], "g", ROW[:1], ROW[1:]
        )
        imports = [*opsets, helper.make_opsetid("own", 1)]
        return helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=10)

    plain = made("Neg")
    assert versions.restate(plain, 10, 13) == ""
    assert [o.version for f in plain.functions for o in f.opset_import] == [13]
    assert "'inner'" in versions.restate(made("Relu"), 10, 13)


def test_an_ir_version_is_lowered() -> None:
    made = model(helper.make_node("Neg", ["x"], ["y"]), opset=17, ir=versions.NEWEST_IR)
    assert versions.restate(made, 10, 17) == ""
    assert made.ir_version == 10


def test_the_ceiling_is_what_the_engine_takes() -> None:
    ir, opset = ceiling.onnxruntime(versions.NEWEST_IR, NEWEST)
    made = model(helper.make_node("Neg", ["x"], ["y"]), opset=opset, ir=ir)
    ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    assert ceiling.onnxruntime(7, 11) == (7, 11)
    assert ceiling.onnxruntime(ir, opset) == (ir, opset)
    for above in ([(ir + 1, opset)] if ir < versions.NEWEST_IR else []) + (
        [(ir, opset + 1)] if opset < NEWEST else []
    ):
        made = model(helper.make_node("Neg", ["x"], ["y"]), opset=above[1], ir=above[0])
        with pytest.raises(Exception, match=r"opset|IR version"):
            ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
