"""What a cold build of TensorRT pays for, and whether later ones in the same process are builds at
all.

    python campaigns/gpu/fresh_builds.py --out FOLDER [--models FOLDER] [--gpus N] [--only N]

Every condition is a process of its own; unless it says ``cache``, a build has no timing cache
(DISABLE_TIMING_CACHE), as ``repeat`` asks for them. One line a build in ``builds.jsonl``: seconds
by phase, processor seconds, how many kernels the log says were timed, digests of the chosen kernels
(engine inspector) and of the outputs, error against ONNX Runtime in FP32. Needs a GPU with TensorRT
10; one lane a GPU. docs/tensorrt.md tells what was seen.
"""

import argparse
import collections
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import numpy as np

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "wizard" / "demo" / "models"


# -- one condition, in a process of its own


def sampled(until: threading.Event, rows: list[tuple[float, int, int, float]]) -> None:
    """Every second: (seconds, mapped files, resident MiB, load average of this process: cores in
    use)."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    then = began
    while not until.wait(1.0):
        now, usage = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
        used = usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime
        maps = Path("/proc/self/maps").read_text().count(".so")
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20
        rows.append((round(now - began, 1), maps, resident, round(used / (now - then), 2)))
        before, then = usage, now


def condition(job: dict[str, Any]) -> None:
    """Build what the job says, one after the other; prints a JSON line for each."""
    with Path(job["log"]).open("w") as verbose:
        _builds(job, verbose)


def _builds(job: dict[str, Any], verbose: IO[str]) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # TensorRT's logger writes to stdout
    t0 = time.monotonic()
    import tensorrt as trt

    counts: collections.Counter[str] = collections.Counter()
    timed = re.compile(r"Tactic(?: Name)?: .*Time: ")

    class Log(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, text: str) -> None:
            counts[str(severity).rpartition(".")[2]] += 1
            if timed.search(text):
                counts["timed"] += 1
            if "Skipping tactic" in text:
                counts["skipped"] += 1
            if job.get("verbose") and counts["kept"] < 40000:
                counts["kept"] += 1
                verbose.write(text + "\n")
            elif severity <= trt.ILogger.WARNING:
                verbose.write(text + "\n")

    logger = Log() if job.get("verbose") else trt.Logger(trt.Logger.WARNING)
    t1 = time.monotonic()
    builder = trt.Builder(logger)
    t2 = time.monotonic()
    for number, build in enumerate(job["builds"]):
        if job.get("new_builder") and number:
            builder = trt.Builder(logger)
        counts.clear()
        said: dict[str, Any] = {
            "condition": job["name"],
            "number": number,
            **build,
            "import": round(t1 - t0, 2),
            "builder": round(t2 - t1, 2),
        }
        try:
            said |= one(trt, logger, builder, build)
        except Exception as error:  # told, and the next is tried
            said["failed"] = f"{type(error).__name__}: {error}"[:500]
        said["log"] = dict(counts)
        print(json.dumps(said), file=answers, flush=True)


def one(trt: Any, logger: Any, builder: Any, build: dict[str, Any]) -> dict[str, Any]:
    import onnx
    from onnx import numpy_helper

    path, precision = Path(build["model"]), build["precision"]
    model = onnx.load(path)
    if build.get("nudge"):  # other weights, the same graph
        for tensor in model.graph.initializer:
            array = numpy_helper.to_array(tensor)
            if array.dtype == np.float32 and array.size > 64:
                tensor.CopyFrom(
                    numpy_helper.from_array(
                        (array * np.float32(1 + build["nudge"])).astype(np.float32), tensor.name
                    )
                )
    if precision.startswith("strong"):
        sys.path.insert(0, str(ROOT))
        from narrowdown.engines.graph.typed import to_precision

        model = to_precision(model, precision.partition("-")[2], ())
    strong = precision.startswith(("strong", "model"))
    network = builder.create_network(
        1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED) if strong else 0
    )
    began = time.monotonic()
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(model.SerializeToString()):
        raise RuntimeError(str(parser.get_error(0)))
    parsed = time.monotonic()
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if not build.get("cache"):
        config.set_flag(trt.BuilderFlag.DISABLE_TIMING_CACHE)
    if precision == "weak-fp16":
        config.set_flag(trt.BuilderFlag.FP16)
    selector = _selector(trt) if build.get("selector") else None
    if selector is not None:
        config.algorithm_selector = selector
    if "level" in build:
        config.builder_optimization_level = build["level"]
    if build.get("keep") and not strong:
        config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
        pattern = re.compile(build["keep"])
        for i in range(network.num_layers):
            layer = network.get_layer(i)
            floats = all(
                layer.get_output(o).dtype in (trt.float32, trt.float16)
                for o in range(layer.num_outputs)
            )
            if (
                pattern.search(layer.name)
                and floats
                and layer.type not in (trt.LayerType.CONSTANT, trt.LayerType.SHAPE)
            ):
                layer.precision = trt.float32
                for o in range(layer.num_outputs):
                    if not layer.get_output(o).is_shape_tensor:
                        layer.set_output_type(o, trt.float32)
    feeds = {
        k: v[: build["rows"]] if build.get("rows") else v
        for k, v in np.load(build["inputs"]).items()
    }
    profile, dynamic = builder.create_optimization_profile(), False
    for i in range(network.num_inputs):
        tensor = network.get_input(i)
        if any(d < 0 for d in tensor.shape):
            dynamic = True
            shape = feeds[tensor.name].shape
            low = (1, *shape[1:]) if build.get("from_one") else shape
            profile.set_shape(tensor.name, low, shape, shape)
    if dynamic:
        config.add_optimization_profile(profile)
    phases: dict[str, float] = {}
    open_: dict[str, float] = {}

    class Monitor(trt.IProgressMonitor):
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase: str, _parent: Any, _steps: int) -> None:
            open_[phase] = time.monotonic()

        def step_complete(self, _phase: str, _step: int) -> bool:
            return True

        def phase_finish(self, phase: str) -> None:
            if phase in open_:
                phases[phase] = round(phases.get(phase, 0) + time.monotonic() - open_.pop(phase), 2)

    monitor = Monitor()
    config.progress_monitor = monitor
    rows: list[tuple[float, int, int, float]] = []
    stop = threading.Event()
    watcher = threading.Thread(target=sampled, args=(stop, rows), daemon=True)
    watcher.start()
    before = resource.getrusage(resource.RUSAGE_SELF)
    began_build = time.monotonic()
    plan = builder.build_serialized_network(network, config)
    seconds = time.monotonic() - began_build
    after = resource.getrusage(resource.RUSAGE_SELF)
    stop.set()
    if plan is None:
        raise RuntimeError("no plan")
    said: dict[str, Any] = {
        "parse": round(parsed - began, 2),
        "build": round(seconds, 2),
        "cpu_user": round(after.ru_utime - before.ru_utime, 1),
        "cpu_system": round(after.ru_stime - before.ru_stime, 1),
        "phases": {k: v for k, v in phases.items() if v >= 0.2},
        "bytes": plan.nbytes,
        "plan": hashlib.sha256(bytes(plan)).hexdigest()[:12],
        "samples": rows[:: max(1, len(rows) // 12)],
    }
    runtime = trt.Runtime(logger)
    began = time.monotonic()
    engine = runtime.deserialize_cuda_engine(plan)
    said["load"] = round(time.monotonic() - began, 2)
    information = json.loads(
        engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    )
    layers = [layer for layer in information.get("Layers", []) if isinstance(layer, dict)]
    kernels = [
        (
            layer.get("Name", ""),
            layer.get("LayerType", ""),
            layer.get("TacticName", ""),
            str(layer.get("TacticValue", "")),
        )
        for layer in layers
    ]
    said["layers"] = len(layers)
    said["kernels"] = hashlib.sha256(json.dumps(kernels).encode()).hexdigest()[:12]
    said["tactics"] = hashlib.sha256(json.dumps([k[2:] for k in kernels]).encode()).hexdigest()[:12]
    if os.environ.get("KERNELS"):
        with Path(os.environ["KERNELS"]).open("a") as file:
            file.write(json.dumps({"number": build, "kernels": kernels}) + "\n")
    import torch

    context = engine.create_execution_context()
    torch_type = {
        trt.float32: torch.float32,
        trt.float16: torch.float16,
        trt.int64: torch.int64,
        trt.int32: torch.int32,
        trt.bool: torch.bool,
    }
    held, outputs = [], {}
    for i in range(engine.num_io_tensors):
        name = engine.get_tensor_name(i)
        if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
            value = torch.as_tensor(np.ascontiguousarray(feeds[name])).cuda()
            held.append(value)
            context.set_input_shape(name, tuple(value.shape))
            context.set_tensor_address(name, value.data_ptr())
    for i in range(engine.num_io_tensors):
        name = engine.get_tensor_name(i)
        if engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT:
            value = torch.empty(
                tuple(context.get_tensor_shape(name)),
                dtype=torch_type[engine.get_tensor_dtype(name)],
            ).cuda()
            outputs[name] = value
            context.set_tensor_address(name, value.data_ptr())
    stream = torch.cuda.Stream()
    context.execute_async_v3(stream.cuda_stream)
    stream.synchronize()
    got = {name: value.cpu().numpy() for name, value in outputs.items()}
    said["outputs"] = hashlib.sha256(b"".join(got[n].tobytes() for n in sorted(got))).hexdigest()[
        :12
    ]
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        onnx.load(path).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    want = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
    if not build.get("nudge"):
        errors = []
        for name, value in want.items():
            mine, other = got[name].astype(np.float64), value.astype(np.float64)
            errors.append(float(np.linalg.norm(mine - other) / (np.linalg.norm(other) or 1)))
        said["error"] = [round(e, 6) if np.isfinite(e) else str(e) for e in errors]
    return said


def _selector(trt: Any) -> Any:
    """A selector that leaves every choice to TensorRT, as ``step repeat`` records choices."""

    class Selector(trt.IAlgorithmSelector):
        def __init__(self) -> None:
            trt.IAlgorithmSelector.__init__(self)

        def select_algorithms(self, _context: Any, choices: list[Any]) -> list[int]:
            return list(range(len(choices)))

        def report_algorithms(self, contexts: list[Any], choices: list[Any]) -> None:
            """Nothing is kept."""

    return Selector()


# -- all conditions


def jobs(folder: Path) -> list[dict[str, Any]]:
    sort = {
        "model": str(MODELS / "sort_tf_massive_m4.onnx"),
        "inputs": str(MODELS / "sort_tf_massive_m4_in.npz"),
    }
    shapes = {"model": str(MODELS / "shapes_cnn.onnx"), "inputs": str(MODELS / "shapes_cnn_in.npz")}
    weak, strong = {**sort, "precision": "weak-fp16"}, {**sort, "precision": "strong-fp16"}
    level = {**weak, "level": 1}
    cached = {**weak, "cache": True}
    found: list[dict[str, Any]] = [
        {"name": "with a timing cache, then without", "builds": [cached, weak, cached, weak]},
        {"name": "with the selector", "builds": [weak, {**weak, "selector": True}, weak, {**weak, "selector": True}]},
        {"name": "level 1 alone", "builds": [level] * 6},
        {"name": "eager modules", "builds": [weak, weak], "environment": "eager"},
        {"name": "strong", "builds": [strong] * 3},
        {"name": "strong at level 1, then 3", "builds": [{**strong, "level": 1}] * 2 + [strong]},
        {"name": "norms in FP32", "builds": [{**weak, "keep": "(?i)Pow|ReduceMean|Sqrt|Div"}, weak]},
        {"name": "norms in FP32, level 1", "builds": [level, {**level, "keep": "(?i)Pow|ReduceMean|Sqrt|Div"}]},
        {"name": "one process, one builder", "builds": [weak] * 12},
        {"name": "the log counted, one process", "builds": [weak] * 3, "verbose": True},
        {"name": "new process, same home", "builds": [weak]},
        {"name": "new process, new home, no CUDA cache", "builds": [weak], "environment": "new"},
        {"name": "one process, new builder each", "builds": [weak] * 2, "new_builder": True},
        {"name": "another model first", "builds": [{**shapes, "precision": "weak-fp16"}, weak, weak]},
        {"name": "other weights second", "builds": [weak, {**weak, "nudge": 0.001}, {**weak, "nudge": 0.002}]},
        {"name": "level 0 first", "builds": [{**weak, "level": 0}, level, {**weak, "level": 2}, weak]},
        {"name": "one row first", "builds": [{**weak, "rows": 1}, weak, {**weak, "from_one": True}]},
        {"name": "shapes", "builds": [{**shapes, "precision": "weak-fp16"}] * 3},
        {"name": "shapes at level 1", "builds": [{**shapes, "precision": "weak-fp16", "level": 1}] * 2},
    ]  # fmt: skip
    for path in sorted(folder.glob("*.onnx")) if folder.is_dir() else []:
        case = {"model": str(path), "inputs": str(path.with_name(path.stem + "_in.npz"))}
        found.append(
            {"name": path.stem + ", weak", "builds": [{**case, "precision": "weak-fp16"}] * 2}
        )
        found.append(
            {
                "name": path.stem + ", level 1",
                "builds": [{**case, "precision": "weak-fp16", "level": 1}] * 2,
            }
        )
    return found


def run(job: dict[str, Any], out: Path, gpu: int) -> None:
    slug = re.sub(r"\W+", "-", job["name"])
    job = {**job, "log": str(out / f"{slug}.log")}
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": str(gpu),
        "KERNELS": str(out / f"{slug}.kernels.jsonl"),
    }
    if job.get("environment") == "new":
        home = tempfile.mkdtemp()
        environment |= {
            "HOME": home,
            "XDG_CACHE_HOME": home,
            "CUDA_CACHE_PATH": home + "/cuda",
            "TMPDIR": home,
            "CUDA_CACHE_DISABLE": "1",
        }
    if job.get("environment") == "eager":
        environment |= {"CUDA_MODULE_LOADING": "EAGER"}
    began = time.monotonic()
    with (out / f"{slug}.err").open("w") as err:
        done = subprocess.run(
            [sys.executable, __file__, "--condition", json.dumps(job)],
            stdout=subprocess.PIPE,
            stderr=err,
            env=environment,
            check=False,
            timeout=560,
        )
    with (out / "builds.jsonl").open("ab") as file:
        file.write(done.stdout)
    for line in done.stdout.decode().splitlines():
        said = json.loads(line)
        keys = (
            "condition",
            "number",
            "build",
            "cpu_user",
            "cpu_system",
            "layers",
            "kernels",
            "tactics",
            "outputs",
            "error",
            "failed",
        )
        print(
            " | ".join(str(said.get(k, "")) for k in keys),
            said.get("log", {}).get("timed", ""),
            flush=True,
        )
    if done.returncode:
        print(job["name"], "ended with", done.returncode, flush=True)
    print(f"  {job['name']}: {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("fresh"))
    parser.add_argument("--models", type=Path, default=Path(".models"))
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--only", type=int, default=99, help="the first so many conditions")
    parser.add_argument("--condition")
    arguments = parser.parse_args()
    if arguments.condition:
        condition(json.loads(arguments.condition))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    free = list(range(arguments.gpus))
    lock = threading.Lock()

    def lane(job: dict[str, Any]) -> None:
        with lock:
            gpu = free.pop()
        try:
            run(job, arguments.out, gpu)
        except Exception as error:
            print(job["name"], f"{type(error).__name__}: {error}"[:300], flush=True)
        finally:
            with lock:
                free.append(gpu)

    with ThreadPoolExecutor(arguments.gpus) as lanes:
        list(lanes.map(lane, jobs(arguments.models)[: arguments.only]))


if __name__ == "__main__":
    main()
