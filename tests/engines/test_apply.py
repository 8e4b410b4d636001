"""A workaround in the words of other tools: what is pasted does it, where the tool is here, and
names stay whole."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from narrowdown.engines import outside
from narrowdown.engines.declaration import Cure, Program, Recipe
from narrowdown.engines.installed import importable
from narrowdown.engines.spec import parse
from narrowdown.wizard.demo import MODELS

HARD = ("a/Conv", "b 'quoted'", 'c "twice"', "d$HOME`id`;\\", "e(1)[2]*+?.", "f\u00e9")


def recipes(engine: str, cure: Cure, version: str = "") -> dict[str, Recipe]:
    return {r.tool: r for r in outside.apply(outside.found(parse(engine), version), cure)}


def pasted(text: str, folder: Path) -> dict[str, Any]:
    """What a Python recipe leaves behind, run in this folder."""
    before, found = Path.cwd(), {}
    os.chdir(folder)
    try:
        exec(text, found)
    finally:
        os.chdir(before)
    return found


@pytest.mark.parametrize(
    ("fails", "cures", "line"),
    [
        ("optimization=all", "optimization=all,prepacking=false", ["config session.disable_prepacking 1"]),
        ("optimization=all,threads=4", "optimization=all,threads=1", ["options.intra_op_num_threads = 1"]),
        # Without optimizers the weights were not repacked either, so both is what cures.
        (
            "optimization=all", "optimization=disabled",
            [
                "options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL",
                "config session.disable_prepacking 1",
            ],
        ),
        (
            "optimization=all,execution=parallel", "optimization=all",
            ["options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL"],
        ),
        ("optimization=all,provider=cuda", "optimization=all,provider=cpu", []),
    ],
)  # fmt: skip
def test_onnx_runtime_is_told_what_the_failing_one_has_otherwise(
    fails: str, cures: str, line: list[str]
) -> None:
    """Nothing else is in the text; one thread, which we measure on and nobody asked for, is a
    comment."""
    failing = outside.found(parse(f"onnxruntime:{fails}"), "")
    python, cpp = outside.apply(
        outside.found(parse(f"onnxruntime:{cures}"), ""), Cure(failing=failing)
    )
    wanted = [
        re.sub(r"^config (\S+) (\S+)$", r"options.add_session_config_entry('\1', '\2')", each)
        for each in line
    ]
    assert python.line.splitlines() == wanted
    body = [each for each in python.text.splitlines() if each.startswith("options.")]
    assert body == wanted
    assert ("# " in python.text) == ("// " in cpp.text) == ("threads=1" not in cures)
    assert len(cpp.line.splitlines()) == len(wanted)


def test_cpp_says_what_python_says() -> None:
    options = "optimization=extended,disabled_optimizers=ConstantFolding+Pad_Fusion,threads=3"
    spec = f"onnxruntime:{options},session_config=session.intra_op.allow_spinning=0"
    told = recipes(spec, Cure(file="worked-around.onnx"))
    python, cpp = told["ONNX Runtime in Python"].text, told["ONNX Runtime in C++"].text
    entries = re.findall(r"add_session_config_entry\('(.*?)', '(.*?)'\)", python)
    assert entries == re.findall(r'AddConfigEntry\("(.*?)", "(.*?)"\)', cpp)
    assert ("optimization.disable_specified_optimizers", "ConstantFolding;Pad_Fusion") in entries
    assert "ORT_ENABLE_EXTENDED" in python
    assert "ORT_ENABLE_EXTENDED" in cpp
    assert 'ORT_TSTR("worked-around.onnx")' in cpp


@pytest.mark.parametrize(
    ("version", "typed"),
    [("10.6.0", True), ("11.4.0.106", False)],
    ids=["10", "11 has no other typing"],
)
def test_an_option_of_tensorrt_that_cures_is_told_to_each_tool(version: str, typed: bool) -> None:
    failing = outside.found(parse("tensorrt:precision=model"), version)
    told = recipes(
        "tensorrt:precision=model,optimization_level=0,tf32=off", Cure(failing=failing), version
    )
    assert list(told) == ["TensorRT in Python", "trtexec", "Polygraphy"]
    assert told["TensorRT in Python"].line.splitlines() == [
        "config.clear_flag(trt.BuilderFlag.TF32)", "config.builder_optimization_level = 0",
    ]  # fmt: skip
    assert {"--noTF32", "--builderOptimizationLevel=0"} <= set(shlex.split(told["trtexec"].text))
    assert (
        ("--stronglyTyped" in told["trtexec"].text)
        == typed
        == ("STRONGLY_TYPED" in told["TensorRT in Python"].text)
    )
    assert not outside.apply(failing, Cure(failing=failing)), "nothing cures, so nothing is told"


@pytest.mark.skipif(not importable("tensorrt_rtx"), reason="TensorRT-RTX is not installed")
def test_tensorrt_rtx_builds_what_is_pasted(tmp_path: Path) -> None:
    """The bindings that are the likest to TensorRT's of those that build with no GPU."""
    shutil.copy(MODELS / "shapes_cnn.onnx", tmp_path / "worked-around.onnx")
    model = onnx.load(tmp_path / "worked-around.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(model, tmp_path / "worked-around.onnx")
    spec = "tensorrt_rtx:precision=fp32,compute_capability=sm86,workspace=256"
    told = recipes(spec, Cure(file="worked-around.onnx"))["TensorRT-RTX in Python"].text
    subprocess.run([sys.executable, "-c", told], cwd=tmp_path, check=True)
    assert (tmp_path / "model.engine").stat().st_size > 100_000


@pytest.mark.parametrize("typing", ["weak", "strong"])
def test_what_shall_be_outputs_too_is_told_to_each_tool(typing: str) -> None:
    """trtexec marks nothing by itself, so it gets the file; Polygraphy is told of all outputs, as
    it has those alone."""
    engine = f"tensorrt:precision=fp16,typing={typing}"
    told = recipes(engine, Cure(file="worked-around.onnx", outputs=("y", "a/b out")), "10.3.0")
    assert shlex.split(told["trtexec"].text)[:2] == ["trtexec", "--onnx=worked-around.onnx"]
    assert "worked-around.onnx" in shlex.split(told["Polygraphy"].text)
    marked = "Polygraphy, with the model as it was"
    if typing == "weak":
        words = shlex.split(told[marked].text)
        assert "model.onnx" in words
        assert words[words.index("--trt-outputs") + 1 :] == ["y", "a/b out"]
    else:
        assert marked not in told, "the types are in the file alone"
    assert marked not in recipes(engine, Cure(file="worked-around.onnx"), "10.3.0")


def test_a_program_is_given_the_file_that_is_right() -> None:
    run = "command:run=python run.py {model} {inputs} {outputs}"
    assert recipes(run, Cure(file="worked-around.onnx"))["your program"].text == (
        "python run.py worked-around.onnx inputs.npz outputs.npz"
    )
    built = f"{run.replace('{model}', '{engine}')},build=compile {{model}} {{engine}}"
    assert recipes(built, Cure(file="w.onnx"))["your program"].text == (
        "compile w.onnx model.engine\npython run.py model.engine inputs.npz outputs.npz"
    )
    assert not recipes(run, Cure())


def test_openvino_compiles_what_is_pasted(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    shutil.copy(MODELS / "shapes_cnn.onnx", tmp_path / "model.onnx")
    failing = outside.found(parse("openvino:precision=bf16"), "")
    told = recipes("openvino:precision=f32", Cure(failing=failing))["OpenVINO in Python"].text
    assert "{'INFERENCE_PRECISION_HINT': 'f32'}" in told, "one thread is a comment"
    assert (
        pasted(told, tmp_path)["compiled"].get_property("INFERENCE_PRECISION_HINT").to_string()
        == "f32"
    )
    told = recipes("openvino:precision=f32,threads=2", Cure(failing=failing))[
        "OpenVINO in Python"
    ].text
    assert pasted(told, tmp_path)["compiled"].get_property("INFERENCE_NUM_THREADS") == 2, (
        "somebody asked for it"
    )


def test_names_reach_autocast_whole_and_match_themselves_alone() -> None:
    """It keeps a node whose name one of the words matches by ``re.match``."""
    told = recipes("emulate:precision=bf16", Cure(keep=HARD))
    words = shlex.split(next(r.text for tool, r in told.items() if "AutoCast" in tool))
    patterns = words[words.index("--nodes_to_exclude") + 1 :]
    others = ("a/Conv_1", "xa/Conv", "e(1)[2]", "f")
    assert [[name for name in (*HARD, *others) if re.match(p, name)] for p in patterns] == [
        [name] for name in HARD
    ]
    assert words[words.index("--low_precision_type") + 1] == "bf16"
    assert "onnxconverter-common" not in told, "it knows FP16 alone"


def test_names_reach_onnxconverter_whole() -> None:
    text = recipes("emulate:precision=fp16", Cure(keep=HARD))["onnxconverter-common"].text
    assert text.isascii()
    found = re.search(r"node_block_list=casts \+ (\[.*\])\)", text, re.DOTALL)
    assert found
    assert tuple(eval(found[1])) == HARD


@pytest.mark.parametrize(
    ("keep", "nameless", "told"),
    [
        (("a/Conv", "b"), 0, True),
        (("a,b",), 0, False),
        (("a:b",), 0, False),
        (("a*",), 0, False),
        (("a",), 1, False),
    ],
)
def test_trtexec_is_told_only_what_its_lists_can_say(
    keep: tuple[str, ...], nameless: int, told: bool
) -> None:
    found = recipes("tensorrt:precision=fp16", Cure(keep=keep, nameless=nameless), "10.6.0")
    named = "trtexec (TensorRT up to 10; constants that these nodes read stay in low precision)"
    assert (named in found) == told
    assert any("keep_fp32.py" in r.text for r in found.values())
    if told:
        words = shlex.split(found[named].text)
        assert "--layerPrecisions=a/Conv:fp32,b:fp32" in words
        assert "--precisionConstraints=obey" in words


@pytest.mark.parametrize("engine", ["tensorrt:precision=fp16", "emulate:precision=fp16"])
@pytest.mark.parametrize("name", ["a", "a,b"])
def test_a_file_with_the_types_in_it_is_told_first_as_any_tensorrt_takes_it(
    engine: str, name: str
) -> None:
    told = recipes(engine, Cure(keep=(name,), file="worked-around.onnx"), "10.6.0").values()
    python = next(iter(told))
    assert python.language == "python", "pip's packages of TensorRT bring no trtexec"
    compile(python.text, "pasted", "exec")
    if engine.startswith("emulate"):
        assert {"worked-around.onnx", "STRONGLY_TYPED"} <= set(
            re.findall(r"worked-around\.onnx|STRONGLY_TYPED", python.text)
        )
        assert python.line in python.text
    first, *rest = [recipe for recipe in told if recipe.language == "sh"]
    assert (
        first.text == "trtexec --onnx=worked-around.onnx --stronglyTyped --saveEngine=model.engine"
    )
    assert "keep_fp32.py" in rest[0].text


@pytest.mark.parametrize(
    ("engine", "version", "in_float"),
    [
        ("tensorrt:precision=fp16,typing=strong", "11.0.0", False),
        ("tensorrt_rtx:precision=fp16", "11.0.0", False),
        # On 10.6 the layer by its name was as wrong as without: 43.0 %, and 3.4 % by the file.
        ("tensorrt:precision=int8", "10.6.0", True),
        ("tensorrt:precision=fp16", "10.6.0", True),
    ],
)
def test_where_the_file_states_the_types_the_file_is_told(
    engine: str, version: str, in_float: bool
) -> None:
    cure = Cure(keep=("a",), file="worked-around.onnx", in_float=in_float)
    own = [
        r
        for tool, r in recipes(engine, cure, version).items()
        if "model.onnx" not in r.text.replace(cure.file, "")
    ]
    assert own
    assert all("worked-around.onnx" in r.text for r in own)
    without = recipes(engine, Cure(keep=("a",), in_float=in_float), version)
    assert all("AutoCast" in tool or "onnxconverter" in tool for tool in without), (
        "nothing of the engine's own to paste"
    )


def test_a_node_without_a_name_is_told_to_no_converter() -> None:
    assert recipes("emulate:precision=fp16", Cure(keep=("Conv_3",), nameless=1)).keys() == {
        "Polygraphy, with keep_fp32.py of this folder (TensorRT up to 10)"
    }


@pytest.mark.slow
def test_onnxconverter_common_keeps_them(tmp_path: Path) -> None:
    """The real tool, in an environment of its own: what is pasted keeps the norms of a transformer,
    and the halves are right."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    subprocess.run([sys.executable, "-m", "venv", tmp_path / "v"], check=True)
    python = tmp_path / "v/bin/python"
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "onnxconverter-common", "onnx<1.20"], check=True
    )
    model = onnx.load(MODELS / "sort_tf_massive_m4.onnx")
    # What the workaround of this model keeps (docs/after.md has it written otherwise).
    kept = tuple(
        n.name for n in model.graph.node if re.search(r"/l\d?/(Pow|ReduceMean_1|Add|Sqrt)$", n.name)
    )
    assert len(kept) == 28
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "convert.py").write_text(
        recipes("emulate:precision=fp16", Cure(keep=kept))["onnxconverter-common"].text
    )
    subprocess.run([python, "convert.py"], cwd=tmp_path, check=True)
    made = onnx.shape_inference.infer_shapes(onnx.load(tmp_path / "converted.onnx"))
    types = {v.name: v.type.tensor_type.elem_type for v in made.graph.value_info}
    halves = {n.name for n in made.graph.node if types.get(n.output[0]) == onnx.TensorProto.FLOAT16}
    assert len(halves) > 100
    assert not halves & set(kept)
    feeds = {
        name: value[:2] for name, value in np.load(MODELS / "sort_tf_massive_m4_in.npz").items()
    }
    right = onnxruntime.InferenceSession(str(MODELS / "sort_tf_massive_m4.onnx")).run(None, feeds)[
        0
    ]

    def error(file: str) -> float:
        """Of the file, computed literally in the types that it states."""
        given = np.asarray(ReferenceEvaluator(str(tmp_path / file)).run(None, feeds)[0], np.float64)
        return float(np.linalg.norm(given - right) / np.linalg.norm(right))

    assert error("converted.onnx") < 0.01
    (tmp_path / "convert.py").write_text(
        recipes("emulate:precision=fp16", Cure(keep=kept[:1]))["onnxconverter-common"].text
    )
    subprocess.run([python, "convert.py"], cwd=tmp_path, check=True)
    assert not error("converted.onnx") < 0.5, "with one norm kept of seven it is wrong"


@pytest.mark.parametrize(
    ("engine", "version", "tool"),
    [
        ("tensorrt:precision=fp16", "11.2.1.2", "TensorRT in Python, once w.onnx is FP16"),
        ("tensorrt:precision=bf16", "11.2.1.2", "TensorRT in Python, once w.onnx is BF16"),
        ("tensorrt_rtx:precision=fp16", "1.7", "TensorRT-RTX in Python, once w.onnx is FP16"),
        ("tensorrt_rtx", "1.7", "TensorRT-RTX in Python"),
        ("tensorrt:precision=model", "10.6.0", "TensorRT in Python"),
        ("tensorrt:precision=fp16", "10.6.0", "TensorRT in Python"),
    ],
)
def test_a_file_with_the_types_of_the_users_model_is_converted_first_where_the_engine_goes_by_these(
    engine: str, version: str, tool: str
) -> None:
    """An If that is fixed: the session built the file converted. What was rewritten, or has nodes
    kept, has the types itself."""
    opened = Cure(file="w.onnx", plain=True)
    assert next(iter(recipes(engine, opened, version))) == tool
    for typed in (Cure(file="w.onnx", keep=("a",)), Cure(file="w.onnx")):
        assert not any("once" in told for told in recipes(engine, typed, version))


def test_a_quantizer_leaves_out_what_is_pasted(tmp_path: Path) -> None:
    """ONNX Runtime's own, as it is pasted; the words of ModelOpt match the names alone, and NNCF is
    asked where it is here."""
    names = tuple(
        n.name for n in onnx.load(MODELS / "shapes_cnn.onnx").graph.node if n.op_type == "Conv"
    )[3:5]
    shutil.copy(MODELS / "shapes_cnn.onnx", tmp_path / "float.onnx")
    shutil.copy(MODELS / "shapes_cnn_in.npz", tmp_path / "calibration.npz")
    settings = "activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, per_channel=False"
    told = recipes("onnxruntime", Cure(names, in_float=True, quantized=settings))
    assert not [tool for tool in told if tool.startswith("ONNX Runtime in")], "without a file"
    found = pasted(told["onnxruntime.quantization"].text, tmp_path)
    assert tuple(found["exclude"]) == names
    assert list_quantized_convolutions(tmp_path / "model.onnx").isdisjoint(names)
    assert len(list_quantized_convolutions(tmp_path / "model.onnx")) == 14
    words = shlex.split(told[next(t for t in told if "ModelOpt" in t)].text)
    assert {"int8", "fp32"} < set(words)
    eight = settings.replace("QUInt8", "QFLOAT8E4M3FN").replace("QInt8", "QFLOAT8E4M3FN")
    fp8 = recipes("onnxruntime", Cure(names, quantized=eight, floats="bfloat16"))
    assert "--quantize_mode fp8 --high_precision_dtype bf16" in list(fp8.values())[1].text
    assert not [tool for tool in fp8 if "NNCF" in tool], "it makes INT8 alone"
    patterns = words[words.index("--nodes_to_exclude") + 1 :]
    assert [[n for n in (*names, "other") if re.match(p, n)] for p in patterns] == [
        [n] for n in names
    ]
    if importable("nncf"):
        pasted(told[next(t for t in told if "NNCF" in t)].text, tmp_path)
        assert list_quantized_convolutions(tmp_path / "model.onnx").isdisjoint(names)
    assert "onnxruntime.quantization" not in recipes(
        "onnxruntime", Cure(names, 1, quantized=settings)
    )


def list_quantized_convolutions(path: Path) -> set[str]:
    nodes = onnx.load(path).graph.node
    pairs = {node.output[0] for node in nodes if node.op_type == "DequantizeLinear"}
    return {n.name for n in nodes if n.op_type == "Conv" and n.input[1] in pairs}


@pytest.mark.parametrize(
    ("source", "example", "line"),
    [
        ("/a/model.py:build", {}, "args, kwargs = ((), inputs) if"),
        ("a.b:build", {"0": ("int64", (2, 3))}, "(torch.zeros([2, 3], dtype=torch.int64), ), {}"),
        ("a.b:c.d", {"x": ("bool", (1,))}, "(), {'x': torch.zeros([1], dtype=torch.bool)}"),
        ("/a/program.pt2", {}, "torch.export.unflatten(torch.export.load('/a/program.pt2'))"),
        ("/a/x;y.py:b", {}, ""),
    ],
)
def test_pytorch_is_told_of_a_module_that_can_be_imported(
    source: str, example: dict[str, tuple[str, tuple[int, ...]]], line: str
) -> None:
    cure = Cure(program=Program(source, example, ("blocks.1",), ("x", "y")))
    told = recipes("emulate:precision=fp16", cure).get("PyTorch, which exports again")
    assert (told is not None and "'blocks.1'" in told.line and line in told.text) == bool(line)
    if told is not None:
        compile(told.text, source, "exec")
