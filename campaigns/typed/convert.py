"""One process of the typed campaign: converts the backend suite's float models from a given one on,
and says what became of each.

A process of its own, because an engine may crash on a model that it should refuse. One JSON line
before each model and one after.
"""

import copy
import json
import sys
import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

from narrowdown.engines.graph import ModelProblem
from narrowdown.engines.graph.typed import to_float64, to_precision

FLOAT = TensorProto.FLOAT
DRAWN = {
    "RandomNormal",
    "RandomUniform",
    "RandomNormalLike",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
    "Dropout",
}
# What the two runtimes say of a valid model whose operator they have not in FP16.
NO_KERNEL = ("NOT_IMPLEMENTED", "MLFloat16 data type is not supported", "(operator 'Det')")


def cases() -> list[Any]:
    """The float models of the suite, by name."""
    found = {c.name: c for c in collect_testcases(None)}
    graphs = {name: c.model.graph for name, c in found.items()}
    return [
        found[name]
        for name in sorted(found)
        if any(
            i.type.tensor_type.elem_type == FLOAT
            for i in (*graphs[name].input, *graphs[name].output)
        )
    ]


def referee(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    return list(ReferenceEvaluator(model).run(None, feeds))


def runtime(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    # A copy: training-mode BatchNormalization updates what it is fed in place.
    return list(session.run(None, copy.deepcopy(feeds)))


def attempt(run: Any, *args: Any) -> tuple[list[Any] | None, str]:
    """(results, "") or (None, the first line of what went wrong)."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return run(*args), ""
    except ModelProblem as refused:
        return None, f"refused: {refused}"
    except Exception as error:
        said = repr(error).splitlines()[0][:300]
        missing = any(words in said for words in NO_KERNEL)
        return None, f"no kernel: {said}" if missing else said


def converted(model: onnx.ModelProto, precision: str, keep: list[int]) -> list[onnx.ModelProto]:
    made = to_float64(model) if precision == "fp64" else to_precision(model, precision, keep)
    onnx.checker.check_model(made, full_check=True)
    return [made]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if left is None or right is None:
        return left is right
    left, right = np.asarray(left), np.asarray(right)
    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and left.tobytes() == right.tobytes()
    )


def judged(model: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, str]:
    """What became of each conversion: ``ok``, ``refused: why``, ``no kernel: why``, or what went
    wrong where the model itself had worked."""
    verdicts: dict[str, str] = {}
    valid, why = attempt(lambda: onnx.checker.check_model(model, full_check=True) or [])
    if valid is None:
        return {"model": f"invalid itself: {why}"}
    plain = {
        "reference": attempt(referee, model, feeds)[0],
        "onnxruntime": attempt(runtime, model, feeds)[0],
    }
    nodes = list(range(len(model.graph.node)))
    drawn = any(n.op_type in DRAWN for n in model.graph.node)
    kept = {"none": [], "half": nodes[::2], "all": nodes}
    for precision, name in [(p, k) for p in ("fp16", "bf16") for k in kept] + [("fp64", "none")]:
        made, why = attempt(converted, model, precision, kept[name])
        verdicts[f"{precision} {name} converted"] = why or "ok"
        if made is None:
            continue
        for engine, run in (("reference", referee), ("onnxruntime", runtime)):
            # ONNX Runtime's CPU provider computes FP16 by casts of its own; it has next to nothing
            # in BF16 and little in doubles.
            if plain[engine] is None or (engine == "onnxruntime" and precision != "fp16"):
                continue
            got, why = attempt(run, made[0], feeds)
            if got is not None and name == "all" and not drawn and not same(got, plain[engine]):
                why = "with every node kept it gives other values"
            verdicts[f"{precision} {name} {engine}"] = why or "ok"
    return verdicts


def main(begin: int) -> None:
    onnxruntime.set_default_logger_severity(4)
    for i, case in enumerate(cases()):
        if i < begin:
            continue
        print(json.dumps({"begins": i, "name": case.name}), flush=True)
        feeds = {
            info.name: numpy_helper.to_array(v) if isinstance(v, TensorProto) else v
            for info, v in zip(case.model.graph.input, case.data_sets[0][0], strict=False)
        }
        print(json.dumps({"ends": i, "verdicts": judged(case.model, feeds)}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
