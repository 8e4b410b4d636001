"""Which compiler switch of TensorRT 10.x changes a wrong answer: table of knob x fault.

    python campaigns/gpu/knobs.py cases FOLDER [MODELS]     writes the cases (anywhere); MODELS: a folder with
                                                            wake_embedding.onnx (campaigns/field/models.py)
    python campaigns/gpu/knobs.py run FOLDER --out FILE [--seconds 500] [--at-once 14] [--only CASE ...]
                                                            asks, on a machine with a GPU

TensorRT 10.x reads ``-name=value`` options from the environment variable ``__LUNOWUD`` of the
process that builds; their names stand as text in libnvinfer. Each build is a process of its own.
First the bare build, then whole families (all names before one colon) off and on, then single
names; the members of a family that changed the error follow as soon as it did. One JSON line a
build: case, what was set, status, relative error of the worst output, NaN or Inf, seconds of the
build, a digest of the layer information, and what the log said of the option.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

BARE = ""
LONGEST = 90.0  # seconds of one build


def write_cases(folder: Path, more: Path | None = None) -> None:
    """``NAME.onnx``, ``NAME_in.npz``, ``NAME_want.npz`` (ONNX Runtime, FP32, optimizers off) and
    ``cases.json``."""
    import onnx
    import onnxruntime

    from tests.gpu import models

    shared = Path(__file__).parents[3] / "shared"
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / "made"
    made.mkdir(exist_ok=True)
    four = [sys.executable, str(shared / "cases" / "make_tensorrt.py"), str(made)]
    subprocess.run(four, check=True, stdout=subprocess.DEVNULL)
    sources: dict[str, tuple[Path, Path, str]] = {
        f"{name}-{kind}": (made / f"{name}.onnx", made / f"{name}_in.npz", kind)
        for name, kind in (
            ("crf", "fp32"), ("gru", "weak"), ("boxref", "strong"), ("boxref", "weak"), ("qdq", "int8"),
        )
    }  # fmt: skip
    for make in (models.layernorm, models.cancelling):
        at = folder / make.__name__
        at.mkdir(exist_ok=True)
        model, inputs = make(at)
        sources |= {f"{make.__name__}-{k}": (model, inputs, k) for k in ("weak", "strong")}
    # The two patterns for which NVIDIA's TensorRT-Edge-LLM switches something off, at one row.
    for make in (write_gated, write_parallel):
        at = folder / make.__name__
        at.mkdir(exist_ok=True)
        model, inputs = make(at)
        sources |= {f"{make.__name__[6:]}-{k}": (model, inputs, k) for k in ("weak", "strong")}
    if more is not None:
        model = more / "wake_embedding.onnx"
        inputs = folder / "wake_in.npz"
        bands = np.random.default_rng(1).normal(8, 3, (1, 76, 32, 1)).astype(np.float32)
        np.savez(inputs, **{onnx.load(model).graph.input[0].name: bands})
        planted = models.plant_overflow(model, inputs, folder)
        sources |= {f"planted-{k}": (planted, inputs, k) for k in ("weak1", "strong1")}
    sort = shared / "models" / "sort_tf_massive_m4.onnx"
    sources |= {
        f"sort-{k}": (sort, sort.with_name("sort_tf_massive_m4_in.npz"), k)
        for k in ("weak1", "strong1")
    }
    for path in sorted((shared / "models").glob("*.onnx")):
        inputs = path.with_name(f"{path.stem}_in.npz")
        if not path.stem.startswith("sort"):
            sources |= {f"{path.stem}-{k}": (path, inputs, k) for k in ("weak", "strong")}
    cases = {}
    for name, (model, inputs, kind) in sources.items():
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(model), options)
        feeds = dict(np.load(inputs))
        names = [o.name for o in session.get_outputs()]
        want = dict(zip(names, session.run(names, feeds), strict=True))
        source = model.read_bytes()
        if kind in ("strong", "strong1"):
            source = _convert_to_fp16(source)
        (folder / f"{name}.onnx").write_bytes(source)
        np.savez(folder / f"{name}_in.npz", **feeds)
        np.savez(folder / f"{name}_want.npz", **want)
        cases[name] = kind
    (folder / "cases.json").write_text(json.dumps(cases, indent=1))
    print(", ".join(cases))


def write_gated(folder: Path, width: int = 256) -> tuple[Path, Path]:
    """A gated block, silu(x A) * (x B) C, three times: two products of one input side by side."""
    lines, names, value = [], [], "x"
    for i in range(3):
        names += [(f"a{i}", (width, 2 * width)), (f"b{i}", (width, 2 * width))]
        names += [(f"c{i}", (2 * width, width))]
        lines.append(
            f"p{i} = MatMul ({value}, a{i}) q{i} = MatMul ({value}, b{i}) s{i} = Sigmoid (p{i})"
            f" g{i} = Mul (p{i}, s{i}) h{i} = Mul (g{i}, q{i}) y{i} = MatMul (h{i}, c{i})"
        )
        value = f"y{i}"
    return _write(folder, width, lines, names, value)


def write_parallel(folder: Path, width: int = 256) -> tuple[Path, Path]:
    """Three products of one input side by side, added, three times."""
    lines, names, value = [], [], "x"
    for i in range(3):
        names += [(f"{k}{i}", (width, width)) for k in "abc"]
        lines.append(
            " ".join(f"{k}y{i} = MatMul ({value}, {k}{i})" for k in "abc")
            + f" s{i} = Add (ay{i}, by{i}) y{i} = Add (s{i}, cy{i})"
        )
        value = f"y{i}"
    return _write(folder, width, lines, names, value)


def _write(
    folder: Path, width: int, lines: list[str], names: list[tuple[str, tuple[int, int]]], last: str
) -> tuple[Path, Path]:
    import onnx

    rng = np.random.default_rng(7)
    body = " ".join(lines)
    text = f'<ir_version: 8, opset_import: ["":17]> g (float[1,{width}] x) => (float[1,{width}] {last}) {{{body}}}'
    model = onnx.parser.parse_model(text)
    for name, shape in names:
        weight = (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "in.npz", x=rng.normal(size=(1, width)).astype(np.float32))
    return folder / "model.onnx", folder / "in.npz"


def _convert_to_fp16(source: bytes) -> bytes:
    """The model with FP16 values inside and FP32 at its ends: what a strongly typed build obeys."""
    import onnx

    from narrowdown.engines.graph.typed import to_precision

    return bytes(to_precision(onnx.load_from_string(source), "fp16", ()).SerializeToString())


def read_switches(library: Path) -> list[str]:
    """The on/off names in the library's text, without those that only talk."""
    from narrowdown.engines.backends.tensorrt.switches import read_names

    return sorted(read_names(library)[0])


def build_one(folder: Path, case: str, kind: str) -> dict[str, Any]:
    """Build, run and compare in this process."""
    import tensorrt as trt

    from narrowdown.engines.backends.tensorrt.cuda import Stream

    said: list[str] = []

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, text: str) -> None:
            if severity <= trt.Severity.WARNING or re.search(r"option|LUNOWUD", text):
                said.append(text[:160])

    feeds = dict(np.load(folder / f"{case}_in.npz"))
    want = dict(np.load(folder / f"{case}_want.npz"))
    logger = Log()
    trt.init_libnvinfer_plugins(logger, "")
    builder = trt.Builder(logger)
    flags = (
        1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        if kind in ("strong", "strong1")
        else 0
    )
    network = builder.create_network(flags)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse((folder / f"{case}.onnx").read_bytes()):
        why = [str(parser.get_error(i))[:300] for i in range(parser.num_errors)]
        return {"status": "parser", "said": why or said[-2:]}
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if kind in ("weak", "weak1", "int8"):
        config.set_flag(trt.BuilderFlag.FP16)
    if kind in ("weak1", "strong1", "int8"):
        config.builder_optimization_level = (
            1  # 7 s where the default takes 66, the same error (sort)
        )
    if kind == "int8":
        config.set_flag(trt.BuilderFlag.INT8)
    config.clear_flag(trt.BuilderFlag.TF32)
    profile = builder.create_optimization_profile()
    dynamic = False
    for i in range(network.num_inputs):
        tensor = network.get_input(i)
        if -1 in tuple(tensor.shape):
            dynamic = True
            shape = feeds[tensor.name].shape
            twice = tuple(2 * s if d == -1 else s for d, s in zip(tensor.shape, shape, strict=True))
            profile.set_shape(tensor.name, shape, twice, twice)
    if dynamic:
        config.add_optimization_profile(profile)
    began = time.monotonic()
    plan = builder.build_serialized_network(network, config)
    seconds = time.monotonic() - began
    if plan is None:
        return {"status": "refused", "seconds": round(seconds, 1), "said": said[-3:]}
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    layers = engine.create_engine_inspector().get_engine_information(
        trt.LayerInformationFormat.JSON
    )
    context = engine.create_execution_context()
    stream = Stream()
    outputs = []
    for i in range(engine.num_io_tensors):
        name = engine.get_tensor_name(i)
        if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
            kept = np.ascontiguousarray(
                feeds[name].astype(trt.nptype(engine.get_tensor_dtype(name)))
            )
            context.set_input_shape(name, kept.shape)
            context.set_tensor_address(name, stream.put(name, kept))
        else:
            outputs.append(name)
    for name in outputs:
        size = int(np.prod(context.get_tensor_shape(name))) * 8
        context.set_tensor_address(name, stream.room(name, size))
    times = []
    for _ in range(12):
        start = time.monotonic()
        context.execute_async_v3(stream.handle)
        stream.wait()
        times.append(time.monotonic() - start)
    error, bad = 0.0, False
    for name in outputs:
        dtype = np.dtype(trt.nptype(engine.get_tensor_dtype(name)))
        got = stream.get(name, tuple(context.get_tensor_shape(name)), dtype).astype(np.float64)
        right = want[name].astype(np.float64)
        bad |= not np.isfinite(got).all() and bool(np.isfinite(right).all())
        far = np.abs(got - right)[np.isfinite(got)]  # of what is no number ``bad`` tells
        error = max(error, float(far.max(initial=0.0) / max(np.abs(right).max(), 1e-12)))
    return {
        "status": "ok", "error": error, "bad": bad, "seconds": round(seconds, 1),
        "run_us": round(1e6 * sorted(times)[len(times) // 2]),
        "layers": hashlib.sha256(layers.encode()).hexdigest()[:12], "count": engine.num_layers,
        "said": [s for s in said if re.search(r"option|LUNOWUD", s)][:2],
    }  # fmt: skip


def ask(folder: Path, case: str, kind: str, options: str) -> dict[str, Any]:
    """One build in a process of its own."""
    command = [sys.executable, __file__, "one", str(folder), case, kind]
    environment = {**os.environ, "__LUNOWUD": options}
    if not options:
        del environment["__LUNOWUD"]
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LONGEST, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"status": "late"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return {**found, "whole": round(time.monotonic() - began, 1)}
    return {"status": f"exit {done.returncode}", "said": [done.stderr[-200:]]}


def plan(switches: list[str], cases: list[str]) -> Iterator[tuple[str, str, str]]:
    """(case, label, options) in the order in which they are worth asking."""
    families: dict[str, list[str]] = {}
    for name in switches:
        families.setdefault(name.partition(":")[0], []).append(name)
    several = {f: names for f, names in families.items() if len(names) > 1}
    single = [names[0] for names in families.values() if len(names) == 1]
    for value in ("off", "on"):
        for family, names in several.items():
            for case in cases:
                yield case, f"{family}*={value}", " ".join(f"-{n}={value}" for n in names)
        for name in single:
            for case in cases:
                yield case, f"{name}={value}", f"-{name}={value}"


def run(folder: Path, out: Path, seconds: float, at_once: int, only: list[str]) -> None:
    """Ask until the time is over; appends to ``out``."""
    library = Path(os.environ.get("LD_LIBRARY_PATH", "").split(":")[0]) / "libnvinfer.so.10"
    switches = read_switches(library)
    kinds: dict[str, str] = json.loads((folder / "cases.json").read_text())
    cases = [c for c in kinds if not only or c in only]
    deadline = time.monotonic() + seconds
    print(f"{len(switches)} switches, cases {cases}", flush=True)

    def put(case: str, label: str, options: str) -> dict[str, Any]:
        if time.monotonic() > deadline:
            return {"status": "not asked"}
        answer = ask(folder, case, kinds[case], options)
        line = {"case": case, "set": label, **answer}
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return answer

    with ThreadPoolExecutor(at_once) as pool:
        bare = {c: [pool.submit(put, c, BARE, "") for _ in range(2)] for c in cases}
        unknown = pool.submit(put, cases[0], "no_such_name=off", "-no_such_name=off")
        base = {c: both[0].result() for c, both in bare.items()}
        print(
            {
                c: (a.get("error"), a.get("bad"), a["status"], a.get("whole"))
                for c, a in base.items()
            }
        )
        print("unknown name:", unknown.result(), flush=True)
        good = [c for c in cases if base[c]["status"] == "ok"]
        waiting = [(w, pool.submit(put, *w)) for w in plan(switches, good)]
        opened: set[tuple[str, str]] = set()
        for (case, label, _), future in waiting:
            if _differs(future.result(), base[case]) and "*" in label:
                print(case, label, future.result(), flush=True)
                family, _, value = label.partition("*=")
                if (case, label) not in opened:
                    opened.add((case, label))
                    for name in (n for n in switches if n.partition(":")[0] == family):
                        pool.submit(put, case, f"{name}={value}", f"-{name}={value}")


def _differs(answer: dict[str, Any], bare: dict[str, Any]) -> bool:
    """Whether the answer is another one than by chance: twice or half the error, or no NaN."""
    if answer["status"] != "ok":
        return False
    if answer["bad"] != bare["bad"]:
        return True
    return not bare["error"] / 2 <= answer["error"] <= bare["error"] * 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("cases", "run", "one", "names"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("more", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("knobs.jsonl"))
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--at-once", type=int, default=14)
    parser.add_argument("--only", nargs="*", default=[])
    chosen = parser.parse_args()
    if chosen.what == "cases":
        write_cases(chosen.folder, *map(Path, chosen.more))
    elif chosen.what == "names":
        print("\n".join(read_switches(chosen.folder)))
    elif chosen.what == "one":
        print(json.dumps(build_one(chosen.folder, *chosen.more)), flush=True)
    else:
        run(chosen.folder, chosen.out, chosen.seconds, chosen.at_once, chosen.only)


if __name__ == "__main__":
    main()
