"""The case by hand: the equivalent polygraphy and trtexec commands. Text only; every value is quoted for the shell."""

import shlex

from engines.compare.criterion import Criterion
from engines.spec import EngineSpec


def commands(engine: EngineSpec, criterion: Criterion, inputs: "tuple[str, ...]") -> list[str]:
    """Shell lines to run inside the case's folder. ``inputs`` are the names of the case's inputs.

    Polygraphy compares element by element here, so its tolerances stand in for a relative L2.
    """
    atol, rtol = tolerances(criterion)
    compare = f"--load-inputs inputs.json --load-outputs expected.json --atol {atol:g} --rtol {rtol:g}"
    flag = {"fp16": " --fp16", "bf16": " --bf16", "int8": " --int8", "fp8": " --fp8"}.get(
        engine.get("precision", "fp16"), ""
    )
    lines = ["# the check that comes with the case: exit 1 while the fault lasts", "python check.py", ""]
    if engine.name in ("onnxruntime", "emulate"):
        model = "engine.onnx" if engine.name == "emulate" else "model.onnx"
        lines += [
            "# ONNX Runtime through Polygraphy (its optimizers at their default)",
            f"polygraphy run {model} --onnxrt {compare}",
            "",
        ]
    lines += ["# TensorRT, where there is one", f"polygraphy run model.onnx --trt{flag} {compare}"]
    lines += trtexec(flag, inputs)
    spec = shlex.quote(str(engine))
    tolerance = (
        f" --tolerance {criterion.tolerance:g}"
        if criterion.metric != "elementwise"
        else f" --atol {atol:g} --rtol {rtol:g}"
    )
    return [
        *lines,
        "",
        "# Narrowdown on the case itself",
        f"narrowdown run model.onnx --engine {spec} --inputs inputs.json{tolerance}",
    ]


def trtexec(flag: str, inputs: "tuple[str, ...]") -> list[str]:
    """trtexec reads raw bytes, one file an input."""
    if not inputs or any(not name.isprintable() or "'" in name or "," in name for name in inputs):
        return []
    dump = "import numpy; [v.tofile(k) for k, v in zip({names}, map(numpy.load('inputs.npz').get, {inputs}))]"
    files = [f"input-{i}.bin" for i in range(len(inputs))]
    loads = ",".join(f"'{name}':{file}" for name, file in zip(inputs, files, strict=True))
    script = dump.format(names=files, inputs=list(inputs))
    return [
        f"python -c {shlex.quote(script)}",
        f"trtexec --onnx=model.onnx{flag} --loadInputs={shlex.quote(loads)} --exportOutput=actual.json",
    ]


def tolerances(criterion: Criterion) -> tuple[float, float]:
    """(atol, rtol) for tools that know only these."""
    if criterion.metric == "elementwise":
        return criterion.atol, criterion.rtol
    if criterion.metric == "max_abs":
        return criterion.tolerance, 0.0
    relative = criterion.tolerance if criterion.metric in ("rel_l2", "rel_max", "max_rel") else 1e-2
    return relative, relative
