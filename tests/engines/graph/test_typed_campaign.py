"""Typed conversion of every float model of the ONNX backend test suite: it converts, it is valid, it runs."""

import collections
import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from engines.graph.problem import ModelProblem
from engines.graph.typed import to_float64, to_precision

FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32


def converted(model: onnx.ModelProto, precision: str, keep: list[int]) -> onnx.ModelProto:
    made = to_float64(model, "") if precision == "fp64" else to_precision(model, "", precision, keep)
    onnx.checker.check_model(made, full_check=True)
    return made


def judge(model: onnx.ModelProto, feeds: dict[str, object], precision: str, keep: list[int]) -> str:
    """What became of one conversion: ``ok``, ``refused``, or the first line of what went wrong."""
    try:
        made = converted(model, precision, keep)
        wide = {
            name: np.asarray(v, np.float64) if precision == "fp64" and getattr(v, "dtype", "") == np.float32 else v
            for name, v in feeds.items()
        }
        with np.errstate(all="ignore"):
            ReferenceEvaluator(made).run(None, wide)
    except ModelProblem:
        return "refused"
    except Exception as error:
        return repr(error).splitlines()[0][:160]
    return "ok"


@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp64"])
def test_bits_are_not_cast_again(precision: str) -> None:
    """BitCast needs the width that it had."""
    graph = helper.make_graph(
        [helper.make_node("BitCast", ["x"], ["y"], to=INT32)], "g",
        [helper.make_tensor_value_info("x", FLOAT, [3])], [helper.make_tensor_value_info("y", INT32, [3])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=13)
    assert judge(model, {"x": np.float32([1, 2, 3])}, precision, []) == "ok"


def test_casts_come_with_their_domain() -> None:
    """A model of another domain only imports the standard one once it is given casts."""
    graph = helper.make_graph(
        [helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=1.0)], "g",
        [helper.make_tensor_value_info("x", FLOAT, [3])], [helper.make_tensor_value_info("y", FLOAT, [3])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 3)], ir_version=8)
    made = to_precision(model, "", "fp16", [])
    casts = [n for n in made.graph.node if n.op_type == "Cast"]
    assert {o.domain for o in made.opset_import} == ({"", "ai.onnx.ml"} if casts else {"ai.onnx.ml"})
    onnx.checker.check_model(made, full_check=True)


@pytest.mark.slow
def test_every_float_model_of_the_backend_suite() -> None:
    """Some 1,600 models, each in three precisions, with no, half and all of its nodes kept."""
    from onnx.backend.test.case.node import collect_testcases

    cases = collect_testcases(None)
    random.Random(0).shuffle(cases)
    counted: collections.Counter[str] = collections.Counter()
    wrong: list[tuple[str, str, int, str]] = []
    for case in cases:
        model = case.model
        if not any(i.type.tensor_type.elem_type == FLOAT for i in model.graph.input):
            continue
        given = case.data_sets[0][0]
        feeds = {
            i.name: numpy_helper.to_array(v) if isinstance(v, TensorProto) else v
            for i, v in zip(model.graph.input, given, strict=False)
        }
        try:
            with np.errstate(all="ignore"):
                ReferenceEvaluator(model).run(None, feeds)
            onnx.checker.check_model(model, full_check=True)
        except Exception:
            counted["not by the reference either"] += 1
            continue
        nodes = list(range(len(model.graph.node)))
        for precision, keep in [(p, k) for p in ("fp16", "bf16") for k in ([], nodes[::2], nodes)] + [("fp64", [])]:
            verdict = judge(model, feeds, precision, keep)
            counted[f"{precision} {verdict if verdict in ('ok', 'refused') else 'wrong'}"] += 1
            if verdict not in ("ok", "refused"):
                wrong.append((case.name, precision, len(keep), verdict))
    print(f"typed conversion: {dict(sorted(counted.items()))}")
    assert counted["fp16 ok"] > 3000, counted
    assert wrong == []
