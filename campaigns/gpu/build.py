"""One build by TensorRT 10 and one run of its engine, without a line of the product's own engine:

    python campaigns/gpu/build.py MODEL.onnx IN.npz --kind weak|strong|int|fp [--keep OP ...]

prints what became of it, as JSON. ``--keep``: the model is converted to FP16 inside first, with the
nodes of these operators left in FP32 by casts.
"""

import argparse
import functools
import hashlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))


@dataclass(frozen=True)
class Built:
    """``plan``: the serialized engine, or None where it was refused; ``timings``: what to give to the
    next build of the same network, so that its kernels are not timed again."""

    plan: bytes | None
    seconds: float
    said: list[str]
    timings: bytes


class Server:
    """A process that answers each line by a line of JSON, started where there is none; ``log``: the
    file that it writes to."""

    def __init__(self, words: Sequence[str], log: Path) -> None:
        self.words, self.log, self.process = [sys.executable, *words], log.open("a"), None

    def ask(self, line: str, longest: float) -> dict[str, Any]:
        """The answer, or how the process ended."""
        if self.process is None:
            self.process = subprocess.Popen(
                self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
            )  # fmt: skip
        process = self.process
        ends = threading.Timer(longest, process.kill)
        ends.start()
        began = time.monotonic()
        try:
            print(line, file=process.stdin, flush=True)
            answer = next((a for a in process.stdout if a.startswith("{")), "")
        except BrokenPipeError:
            answer = ""
        ends.cancel()
        took = round(time.monotonic() - began, 1)
        if answer:
            return {**json.loads(answer), "whole": took}
        self.process = None
        code = process.wait()
        return {"status": "late" if took >= longest else f"exit {code}", "whole": took}


@functools.cache
def open_library() -> tuple[Any, Any]:
    """(A logger that keeps what it is told in ``said``, a builder.) Both are held: with the last
    builder of a process gigabytes of kernels go, and the next one reads them again."""
    import tensorrt as trt

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.said: list[str] = []

        def log(self, severity: Any, text: str) -> None:
            if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR, trt.ILogger.WARNING):
                self.said.append(text[:300])

    logger = Log()
    trt.init_libnvinfer_plugins(logger, "")
    return logger, trt.Builder(logger)


def build(
    model: bytes,
    feeds: Mapping[str, np.ndarray],
    kind: str,
    *,
    marked: Sequence[str] = (),
    timings: bytes = b"",
) -> Built:
    """``kind``: weak, strong, int or fp; a digit at its end is the optimization level (at 1 sort
    takes 7 s where the default takes 66, the same error). ``marked``: inner tensors to watch. TF32 is off."""
    import tensorrt as trt

    logger, builder = open_library()
    logger.said.clear()
    word = kind.rstrip("01")
    strong = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = builder.create_network(strong if word == "strong" else 0)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(model):
        why = [parser.get_error(i).desc()[:300] for i in range(parser.num_errors)]
        return Built(None, 0.0, why or logger.said[-2:] or ["not parsed"], timings)
    mark(network, marked)
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.clear_flag(trt.BuilderFlag.TF32)
    if word in ("weak", "int"):
        config.set_flag(trt.BuilderFlag.FP16)
    if word == "int":
        config.set_flag(trt.BuilderFlag.INT8)
    if kind != word:
        config.builder_optimization_level = int(kind[-1])
    cache = config.create_timing_cache(timings)
    config.set_timing_cache(cache, ignore_mismatch=True)
    add_profile(builder, network, config, feeds)
    began = time.monotonic()
    plan = builder.build_serialized_network(network, config)
    seconds = time.monotonic() - began
    kept = bytes(config.get_timing_cache().serialize())
    return Built(None if plan is None else bytes(plan), seconds, list(logger.said), kept)


def mark(network: Any, names: Sequence[str]) -> None:
    """Make inner tensors outputs; KeyError: no layer makes a tensor of that name."""
    layers = [network.get_layer(i) for i in range(network.num_layers)]
    made = {t.name: t for a in layers for t in (a.get_output(k) for k in range(a.num_outputs))}
    for name in names:
        network.mark_output(made[name])


def add_profile(
    builder: Any, network: Any, config: Any, feeds: Mapping[str, np.ndarray], most: int = 2
) -> None:
    """One profile from the sizes that are fed to ``most`` times as many, where a size is open."""
    profile, has_open = builder.create_optimization_profile(), False
    for tensor in (network.get_input(i) for i in range(network.num_inputs)):
        if -1 in tuple(tensor.shape):
            has_open, shape = True, feeds[tensor.name].shape
            largest = tuple(
                most * s if d == -1 else s for d, s in zip(tensor.shape, shape, strict=True)
            )
            profile.set_shape(tensor.name, shape, largest, largest)
    if has_open:
        config.add_optimization_profile(profile)


def run(plan: bytes, feeds: Mapping[str, np.ndarray], times: int = 1) -> dict[str, Any]:
    """``outputs``: arrays by name; ``run_us``: the median of so many runs, in microseconds;
    ``count`` and ``layers``: number of layers, and a digest of what the engine tells of them."""
    import tensorrt as trt

    from narrowdown.engines.backends.tensorrt.cuda import Stream

    logger, _ = open_library()
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    told = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    context, stream, outputs = engine.create_execution_context(), Stream(), []
    for i in range(engine.num_io_tensors):
        name = engine.get_tensor_name(i)
        if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
            dtype = trt.nptype(engine.get_tensor_dtype(name))
            value = np.ascontiguousarray(feeds[name].astype(dtype))
            context.set_input_shape(name, value.shape)
            context.set_tensor_address(name, stream.put(name, value))
        else:
            outputs.append(name)
    for name in outputs:
        size = int(np.prod(context.get_tensor_shape(name))) * 8
        context.set_tensor_address(name, stream.room(name, size))
    took = []
    for _ in range(times):
        start = time.monotonic()
        context.execute_async_v3(stream.handle)
        stream.wait()
        took.append(time.monotonic() - start)
    values = {}
    for name in outputs:
        dtype = np.dtype(trt.nptype(engine.get_tensor_dtype(name)))
        values[name] = stream.get(name, tuple(context.get_tensor_shape(name)), dtype)
    return {
        "outputs": values,
        "run_us": round(1e6 * sorted(took)[len(took) // 2]),
        "count": engine.num_layers,
        "layers": hashlib.sha256(told.encode()).hexdigest()[:12],
    }


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("model", type=Path)
    reader.add_argument("inputs", type=Path)
    reader.add_argument("--kind", default="weak")
    reader.add_argument("--keep", nargs="*")
    given = reader.parse_args()
    source = given.model.read_bytes()
    if given.keep is not None:
        import onnx

        from narrowdown.engines.graph.typed import to_precision

        model = onnx.load_from_string(source)
        kept = [i for i, n in enumerate(model.graph.node) if n.op_type in given.keep]
        source = to_precision(model, "fp16", kept).SerializeToString()
    feeds = dict(np.load(given.inputs))
    built = build(source, feeds, given.kind)
    told: dict[str, Any] = {"built": built.plan is not None, "seconds": round(built.seconds, 1)}
    if built.plan is not None:
        ran = run(built.plan, feeds)
        told |= {k: v for k, v in ran.items() if k != "outputs"}
        told["finite"] = {k: bool(np.isfinite(v).all()) for k, v in ran["outputs"].items()}
    print(
        json.dumps({"model": given.model.name, "keep": given.keep, **told, "said": built.said[-6:]})
    )


if __name__ == "__main__":
    main()
