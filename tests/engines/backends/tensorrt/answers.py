"""What a real TensorRT answers to all that the backend asks of it but the build itself: versions
whose libraries can be had for parsing and configuring only (10.15, 11.2: no kernels for the GPU at
hand), and 10.6, which does all.

    python tests/engines/backends/tensorrt/answers.py --out FILE.json [--library tensorrt] [--jobs
    4] [--only ASK ...]

Needs TensorRT and a GPU (TensorRT-RTX needs none). A library that dies of one question answers the
others in another process. ``answers.json`` holds what was recorded: version -> question -> answer;
``test_answers.py`` holds the stand-ins of the other tests against it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

if __name__ == "__main__":
    sys.path.insert(
        0, str(Path(__file__).parents[4])
    )  # as a script it has no package to import from
from narrowdown.engines import options
from narrowdown.engines.backends.base import BuildRequest, EngineFault
from narrowdown.engines.backends.tensorrt import (
    configure,
    cuda,
    library,
    make as backend,
    network,
    quantization,
)
from narrowdown.engines.backends.tensorrt.settings import FLAGS, Settings, strongly_typed
from narrowdown.engines.spec import parse

RECORD = Path(__file__).with_name("answers.json")
ABILITIES = (
    "weak", "strong", "constraints", "selector", "editable_cache", "debug", "unfused_debug", "monitor", "rtx",
)  # fmt: skip
# Every option of the command line that a version may refuse.
OPTIONS = (
    "tensorrt", "tensorrt:precision=fp16", "tensorrt:precision=fp16,typing=weak", "tensorrt:precision=bf16,typing=weak",
    "tensorrt:precision=fp16,typing=strong", "tensorrt:precision=bf16,typing=strong", "tensorrt:precision=fp32",
    "tensorrt:precision=model", "tensorrt:precision=int8", "tensorrt:precision=fp8", "tensorrt:precision=int8,calibration=/c",
    "tensorrt:tactics=selector", "tensorrt:tactics=cache", "tensorrt:observe=debug", "tensorrt:observe=unfused",
    "tensorrt:tactic_sources=CUDNN", "tensorrt:tactic_sources=JIT_CONVOLUTIONS", "tensorrt:workspace=64,optimization_level=1",
    "tensorrt:timing_cache=off",
)  # fmt: skip
_SECONDS = 60.0  # of one question
_ANSWER = "answer "


def _graph(text: str, opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["":{opset}]>\n{text}')


def _chain(*ops: str, opset: int = 17, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    nodes = [
        helper.make_node(op, [f"t{i}"], [f"t{i + 1}"], f"/{op}{i}") for i, op in enumerate(ops)
    ]
    ends = [helper.make_tensor_value_info(f"t{i}", kind, ["n", 4]) for i in (0, len(ops))]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def _quantized(codes: int, zero: int, bias: bool = False) -> onnx.ModelProto:
    """A product between Q/DQ pairs of this type; ``bias``: an INT32 one behind a DequantizeLinear
    of its own."""
    rng = np.random.default_rng(3)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "/q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], "/dq"),
        helper.make_node("DequantizeLinear", ["wq", "s", "z"], ["w"], "/dqw"),
        helper.make_node("Gemm", ["d", "w", *(["b"] if bias else [])], ["y"], "/gemm"),
    ]
    weights = [
        numpy_helper.from_array(np.array(0.05, np.float32), "s"),
        helper.make_tensor("z", codes, [], [zero]),
        helper.make_tensor("wq", codes, [32, 8], rng.integers(1, 100, (32, 8)).flatten().tolist()),
    ]
    if bias:
        nodes.insert(0, helper.make_node("DequantizeLinear", ["bq", "s"], ["b"], "/dqb"))
        weights.append(helper.make_tensor("bq", TensorProto.INT32, [8], range(8)))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])
        for name, size in (("x", 32), ("y", 8))
    ]
    graph = helper.make_graph(nodes, "quantized", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


IF = """g (float[1,4] x, int64 sr) => (float[1,4] y) {
  wide = Constant <value: tensor = int64 {16000}> ()
  [is_wide] w = Equal (sr, wide)
  [choice] h = If (w) <
    then_branch = a () => (float[1,4] p) { [double] p = Add (x, x) },
    else_branch = b () => (float[1,QUOTED] q) { [turn] q = TURN }>
  [after] y = Abs (h)
}"""
LOOP = """g (float[1,4] x, int64 n, bool c) => (float[1,4] y) {
  [turns] y = Loop (n, c, x) <body = b (int64 i, bool go, float[1,4] v) => (bool on, float[1,4] next) {
    [keep] on = Identity (go)
    [grow] next = Add (v, v)
  }>
}"""
SCAN = """g (float[1,4] x, float[3,1,4] rows) => (float[1,4] y) {
  [sum] y = Scan <num_scan_inputs = 1, body = b (float[1,4] v, float[1,4] row) => (float[1,4] next) {
    [add] next = Add (v, row)
  }> (x, rows)
}"""


def _models() -> dict[str, onnx.ModelProto]:
    from narrowdown.wizard.demo import MODELS
    from tests.engines.backends.tensorrt.test_rtx_builds import NARROW

    made = {p.stem: onnx.load(p) for p in sorted(MODELS.glob("*.onnx"))}
    made |= {
        f"Relu and Exp, opset {opset}": _chain("Relu", "Exp", opset=opset)
        for opset in (9, 13, 17, 20, 22, 23)
    }
    made |= {
        "If": _graph(IF.replace("QUOTED", "4").replace("TURN", "Neg (x)")),
        "If, branches of two shapes": _graph(
            IF.replace("QUOTED", "8").replace("TURN", "Concat <axis = 1> (x, x)")
        ),
        "Loop": _graph(LOOP),
        "Scan": _graph(SCAN),
        "double": _chain("Relu", "Neg", kind=TensorProto.DOUBLE),
        "bfloat16": _chain("Relu", "Neg", kind=TensorProto.BFLOAT16),
        "uint8 as quantize_static makes it": _quantized(TensorProto.UINT8, 128),
        "int8 pairs": _quantized(TensorProto.INT8, 0),
        "int8 pairs, not symmetric": _quantized(TensorProto.INT8, 3),
        "int8 pairs with an int32 bias": _quantized(TensorProto.INT8, 0, bias=True),
        "an operator that nobody has": _graph(
            "g (float[1,4] x) => (float[1,4] y) { [odd] y = Nonsense (x) }"
        ),
        "random": _graph(
            "g (float[1,4] x) => (float[1,4] y) { [r] r = RandomNormalLike (x) [s] y = Add (x, r) }"
        ),
        "Unique": _graph("g (float[8] x) => (float[n] y) { [u] y = Unique <sorted = 1> (x) }"),
        "SequenceAt": _graph(
            "g (float[1,4] x) => (float[1,4] y) { s = SequenceConstruct (x, x)\n i = Constant <value: tensor = int64 {0}> ()\n"
            "[at] y = SequenceAt (s, i) }"
        ),
    }
    made |= {
        f"weights of {what}": model for what, (model, _, _) in NARROW.items() if "older" not in what
    }
    return made


def _library(name: str) -> library.Library:
    return library.load(name)


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    given = {i.name for i in model.graph.initializer}
    return {
        i.name: tuple(d.dim_value or 2 for d in i.type.tensor_type.shape.dim)
        for i in model.graph.input
        if i.name not in given
    }


def ask_abilities(name: str) -> Any:
    found = _library(name)
    return {
        "version": found.version,
        **{ability: bool(getattr(found, ability)) for ability in ABILITIES},
    }


def ask_options(name: str) -> Any:
    """Option text -> whether it is strongly typed, or the refusal."""
    found, said = _library(name), {}
    for text in OPTIONS:
        spec = parse(text)
        gpu = cuda.device()[0]
        try:
            said[text] = strongly_typed(
                Settings.of(spec.name, options.values(spec), found, gpu), found
            )
        except ValueError as error:
            said[text] = str(error)
    return said


def ask_capabilities(name: str) -> Any:
    info = backend.make(parse(f"{name}:precision=fp16")).info
    return {what: [able.present, able.reason] for what, able in sorted(info.capabilities.items())}


def ask_timing_cache(name: str) -> Any:
    """What an empty cache of a fresh configuration answers, editable where the version has that."""
    found = _library(name)
    trt = found.trt
    config = trt.Builder(found.log.logger).create_builder_config()
    if found.editable_cache:
        config.set_flag(trt.BuilderFlag.EDITABLE_TIMING_CACHE)
    cache = config.create_timing_cache(b"")
    said: dict[str, Any] = {
        "is made of nothing": cache is not None,
        "is taken": config.set_timing_cache(cache, False),
        "comes back": config.get_timing_cache() is not None,
        "bytes": len(bytes(cache.serialize())) > 0,
        "of another": config.create_timing_cache(b"no timing cache at all") is not None,
    }
    if found.editable_cache:
        key = trt.TimingCacheKey.parse("0x" + "1" * 32)
        said |= {
            "keys": [str(k) for k in cache.queryKeys()],
            "an unknown key's kernel": cache.query(key).tacticHash,
            "an unknown key is changed": cache.update(key, trt.TimingCacheValue(1, 1.0)),
        }
    return said


def ask_flags(name: str) -> Any:
    """Flag -> whether a configuration has it once it was set, and whether it had it before."""
    found = _library(name)
    config, flags = (
        found.trt.Builder(found.log.logger).create_builder_config(),
        found.trt.BuilderFlag,
    )
    said: dict[str, Any] = {}
    wanted = {flag for row in FLAGS.values() for flag in row} | {
        "TF32", "DISABLE_TIMING_CACHE", "EDITABLE_TIMING_CACHE", "OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS",
    }  # fmt: skip
    for flag in sorted(wanted):
        if not found.has_flag(flag):
            said[flag] = "no such flag"
            continue
        before = config.get_flag(getattr(flags, flag))
        config.set_flag(getattr(flags, flag))
        said[flag] = [before, config.get_flag(getattr(flags, flag))]
    return said


def ask_parse(name: str, what: str, *, strong: bool = True) -> Any:
    """The parser's answer to a model: layers, or the refusal as the user reads it."""
    found = _library(name)
    model, positions = network.name_nodes(_models()[what])
    builder = found.trt.Builder(found.log.logger)
    try:
        parsed = network.parse_network(found, builder, model, "", strong)
    except EngineFault as fault:
        empty = builder.create_network(
            1 << int(found.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        )  # outlives the parser
        parser = found.trt.OnnxParser(empty, found.log.logger)
        parser.parse(model.SerializeToString())
        errors = [parser.get_error(i) for i in range(parser.num_errors)]
        raw = [[str(e.code()), e.desc(), e.node_name(), e.node_operator()] for e in errors]
        then = quantization.say_untaken(model, unsigned=found.rtx)
        return {"refused": fault.status, "said": f"{fault}", "then": then, "errors": raw}
    made = parsed.network
    layers = [made.get_layer(i) for i in range(made.num_layers)]
    named = {
        node for layer in layers for node in network.node_names(layer.metadata) or (layer.name,)
    }
    return {
        "layers": made.num_layers,
        "nodes": len(positions),
        "nodes with a layer of their name": len(named & positions.keys()),
        "strong": bool(made.get_flag(found.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        if strong
        else False,
        "kept in FP32": network.keep_higher(found, made, positions)
        if found.constraints and not strong
        else None,
    }


def ask_marks(name: str, observe: str) -> Any:
    """A LayerNorm of primitives with each of its tensors watched."""
    from tests.gpu import models

    found = _library(name)
    with tempfile.TemporaryDirectory() as folder:
        model = onnx.load(models.layernorm(Path(folder))[0])
    marks = [n.output[0] for n in model.graph.node][:-1]
    exposed, untyped = network.expose_marks(model, marks)
    strong = found.strong and not found.weak
    builder = found.trt.Builder(found.log.logger)
    parsed = network.parse_network(
        found, builder, exposed, "", strong, network.Watched(marks, observe)
    )
    return {
        "marks": len(marks), "outputs": parsed.network.num_outputs, "heard": len(parsed.heard),
        "skipped": dict(sorted({**untyped, **parsed.skipped}.items())),
    }  # fmt: skip


def ask_configuration(name: str) -> Any:
    """What a configuration holds once it is written from the options, for a model with an open
    batch."""
    found = _library(name)
    model = _models()["shapes_cnn"]
    builder = found.trt.Builder(found.log.logger)
    parsed = network.parse_network(found, builder, model, "", strong=not found.weak)
    ends = next(iter(_shapes(model).items()))
    shapes, least = {ends[0]: (8, *ends[1][1:])}, {ends[0]: (1, *ends[1][1:])}
    chosen = Settings(precision="fp32", workspace=64 << 20, level=1)
    config = configure.configure_build(
        found, builder, parsed.network, chosen, (), configure.Sizes(shapes, least)
    )
    said = {
        "workspace": config.get_memory_pool_limit(found.trt.MemoryPoolType.WORKSPACE),
        "level": config.builder_optimization_level,
        "TF32": config.get_flag(found.trt.BuilderFlag.TF32),
        "verbosity": str(config.profiling_verbosity).rpartition(".")[2],
        "profiles": config.num_optimization_profiles,
        "watched": configure.watch_build(found, config, lambda _: None) is not None,
    }
    wrong = msgspec.structs.replace(chosen, largest={ends[0]: (4, *ends[1][1:])})
    try:
        configure.configure_build(
            found, builder, parsed.network, wrong, (), configure.Sizes(shapes, least)
        )
    except EngineFault as fault:
        said["shapes outside of the profile"] = str(fault)
    return said


def ask_build(name: str, text: str, what: str) -> Any:
    """The backend's whole way to an engine: built, or what the user is told."""
    if name != "tensorrt":
        text = text.replace("tensorrt", name, 1).replace(",typing=strong", "")
    engine = backend.make(parse(text))
    model = _models()[what]
    shapes = _shapes(model)
    heard: list[str] = []
    try:
        built = engine.build(BuildRequest(model, "", feed_shapes=shapes, say=heard.append))
    except EngineFault as fault:
        log = library.load(name).log
        return {
            "refused": fault.status,
            "said": str(fault),
            "phases": len(heard),
            "errors": log.errors(),
        }
    return {"bytes": built.facts.get("bytes", 0) > 0, "phases": len(heard)}


ASKS: dict[str, Callable[[str], Any]] = {
    "abilities": ask_abilities,
    "options": ask_options,
    "capabilities": ask_capabilities,
    "timing cache": ask_timing_cache,
    "flags": ask_flags,
    "configuration": ask_configuration,
    **{f"marks, {o}": (lambda name, o=o: ask_marks(name, o)) for o in ("outputs", "debug", "unfused")},
    **{
        f"build {what}, {text}": (lambda name, text=text, what=what: ask_build(name, text, what))
        for text, what in (
            ("tensorrt", "Relu and Exp, opset 17"), ("tensorrt:precision=fp16,typing=strong", "shapes_cnn"),
            ("tensorrt:precision=model", "int8 pairs"), ("tensorrt:precision=model", "weights of FP4 in blocks of 16"),
        )
    },
}  # fmt: skip


def asks() -> dict[str, Callable[[str], Any]]:
    parsing: dict[str, Callable[[str], Any]] = {}
    for what in _models():
        parsing[f"parse {what}"] = lambda name, what=what: ask_parse(name, what)  # type: ignore[misc]
    for what in ("shapes_cnn", "If", "int8 pairs"):
        parsing[f"parse {what}, weakly typed"] = lambda name, what=what: ask_parse(
            name, what, strong=False
        )  # type: ignore[misc]
    return ASKS | parsing


def record(name: str, questions: list[str], lanes: int) -> dict[str, Any]:
    """Question -> answer. Loading a library takes many seconds, so each lane asks all of its
    questions in one process, and goes on in another where that one died or hung."""

    def ask_lane(left: list[str]) -> dict[str, Any]:
        said: dict[str, Any] = {}
        while left:
            command = [sys.executable, "-W", "ignore", __file__, "--library", name, "--ask", *left]
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            assert process.stdout is not None
            assert process.stderr is not None
            dog = threading.Timer(_SECONDS, process.kill)
            dog.start()
            for line in process.stdout:
                dog.cancel()
                dog = threading.Timer(_SECONDS, process.kill)
                dog.start()
                if line.startswith(_ANSWER):
                    what, answer = json.loads(line.removeprefix(_ANSWER))
                    said[what] = answer
                    left = [q for q in left if q != what]
            dog.cancel()
            if left and (code := process.wait()):
                said[left[0]] = {
                    "died": code,
                    "said": " ".join(process.stderr.read().split())[-400:],
                }
                left = left[1:]
        return said

    with ThreadPoolExecutor(lanes) as pool:
        found = pool.map(ask_lane, [questions[i::lanes] for i in range(lanes)])
    return {what: answer for lane in found for what, answer in lane.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--library", default="tensorrt")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--ask", nargs="*", help="these, here")
    given = parser.parse_args()
    known = asks()
    if given.ask:
        for what in given.ask:
            print(_ANSWER + json.dumps([what, known[what](given.library)]), flush=True)
        return
    begun = time.monotonic()
    said = record(given.library, given.only or list(known), given.jobs)
    version = str(said.get("abilities", {}).get("version", given.library))
    print(
        f"{len(said)} answers to {len(known)} questions by {given.library} {version} in {time.monotonic() - begun:.0f} s"
    )
    print(json.dumps({k: v for k, v in said.items() if isinstance(v, dict) and "died" in v})[:3000])
    if given.out:
        given.out.write_text(json.dumps({version: said}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
