"""The engines of the campaign, driven by their own APIs and never through the product."""

import contextlib
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import onnxruntime as ort

sys.path.insert(0, str(Path(__file__).parents[2]))  # the process behind OpenVino is a script
from campaigns.field.interpret import Array, Changes, Interpreter, evaluator

# What the product's documentation says an engine may be off by (rel_l2), by what it computes in:
# docs/tolerance.md.
TOLERANCE = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 5e-2, "int8": 1e-1}


class Refused(Exception):
    """The engine itself does not take the model; its words."""


class Died(Refused):
    """The engine took the process along."""


class Voice(Protocol):
    """Something that computes the model's outputs from a sample."""

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]: ...


class OnnxRuntime:
    """ONNX Runtime on one thread. ``disabled``: optimizers to switch off. ``prepacking``: by
    default with the optimizers."""

    def __init__(
        self,
        model: str | bytes,
        optimize: bool = False,
        disabled: Sequence[str] = (),
        threads: int = 1,
        prepacking: bool | None = None,
    ) -> None:
        options = ort.SessionOptions()
        level = ort.GraphOptimizationLevel
        options.graph_optimization_level = (
            level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
        )
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        options.log_severity_level = 4
        if not (optimize if prepacking is None else prepacking):
            options.add_session_config_entry("session.disable_prepacking", "1")
        more = {"disabled_optimizers": list(disabled)} if disabled else {}
        try:
            self.session = ort.InferenceSession(
                model, options, providers=["CPUExecutionProvider"], **more
            )
        except Exception as error:
            raise Refused(str(error)[:300]) from error
        self.outputs = [o.name for o in self.session.get_outputs()]

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        taken = {i.name for i in self.session.get_inputs()}
        try:
            made = self.session.run(None, {k: v for k, v in feeds.items() if k in taken})
        except Exception as error:
            raise Refused(str(error)[:300]) from error
        return dict(zip(self.outputs, made, strict=True))


class OpenVino:
    """OpenVINO on the CPU, in a process of its own, which some models take along. ``precision``: ""
    for what it chooses itself, or ``f32``. ``computes``: what it computes in."""

    def __init__(self, model: str | bytes, precision: str = "") -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.computes: str = self._ask((model, precision))

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        made: dict[str, Array] = self._ask(dict(feeds))
        return made

    def _ask(self, what: Any) -> Any:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        try:
            pickle.dump(what, self.child.stdin)
            self.child.stdin.flush()
            answer = pickle.load(self.child.stdout)
        except (EOFError, BrokenPipeError) as error:
            code = self.child.wait()
            raise Died(f"OpenVINO ended the process with {code}") from error
        if error := answer.get("refused"):
            raise Refused(error)
        return answer["answer"]

    def __del__(self) -> None:
        if "child" in vars(self):
            for pipe in (self.child.stdin, self.child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self.child.wait()


def _openvino(read: IO[bytes], write: IO[bytes]) -> None:
    """The process behind ``OpenVino``: a model, then sample after sample until the pipe ends."""
    import openvino as ov

    def compiled(model: str | bytes, precision: str) -> Any:
        config: dict[str, Any] = {"INFERENCE_NUM_THREADS": 1}
        if precision:
            config["INFERENCE_PRECISION_HINT"] = precision
        core = ov.Core()
        return core.compile_model(core.read_model(model), "CPU", config)

    def outputs(model: Any, request: Any, feeds: Mapping[str, Array]) -> dict[str, Array]:
        ports = {name: port for port in model.inputs for name in port.get_names()}
        for name, value in feeds.items():
            if name in ports:
                request.set_tensor(
                    ports[name],
                    ov.Tensor(np.ascontiguousarray(value) if value.ndim else value.copy()),
                )
        request.infer()
        return {
            name: np.array(request.get_tensor(port).data)
            for port in model.outputs
            for name in port.get_names()
        }

    model: Any = None
    while True:
        try:
            asked = pickle.load(read)
        except EOFError:
            return
        try:
            if model is None:
                model = compiled(*asked)
                request = model.create_infer_request()
                names = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}
                hint = model.get_property("INFERENCE_PRECISION_HINT").get_type_name()
                answer: dict[str, Any] = {"answer": names.get(hint, "fp32")}
            else:
                answer = {"answer": outputs(model, request, asked)}
        except Exception as error:
            answer = {"refused": str(error)[:300]}
        pickle.dump(answer, write)
        write.flush()


class Rounded:
    """Every result rounded to the precision, node by node, by an interpreter of the campaign's own.
    ``typed``: computed in that precision, too, by ONNX's own evaluator."""

    def __init__(self, path: Path, precision: str, typed: bool = False) -> None:
        self.interpreter = Interpreter(path, evaluator(precision) if typed else None)
        self.precision = precision

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return self.interpreter.run(feeds, Changes(self.precision))


def distance(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """The worst relative L2 distance of an output. Infinite where a value is not finite and ought
    to be or the reverse, where a shape differs, or where integers, booleans or texts differ at
    all."""
    worst = 0.0
    for name, right in expected.items():
        if name not in actual or np.shape(actual[name]) != np.shape(right):
            return float("inf")
        mine, right = np.asarray(actual[name]), np.asarray(right)
        if right.dtype.kind not in "fV" and str(right.dtype) != "bfloat16":
            if not np.array_equal(mine, right):
                return float("inf")
            continue
        a, b = mine.astype(np.float64), right.astype(np.float64)
        sound = np.isfinite(b)
        if (sound & ~np.isfinite(a)).any() or not np.array_equal(
            a[~sound], b[~sound], equal_nan=True
        ):
            return float("inf")
        a, b = a[sound], b[sound]
        size = float(np.linalg.norm(b))
        apart = float(np.linalg.norm(a - b))
        worst = max(worst, 0.0 if apart == 0 else apart / size if size else float("inf"))
    return worst


def nudged(feeds: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """The sample with every float moved by one unit in the last place, up or down. Whole numbers
    where there is nothing else stay: they may be codes of letters, and the one below is another
    letter."""
    random = np.random.default_rng(seed)
    moved = {}
    for name, value in feeds.items():
        if value.dtype in (np.float32, np.float16) and (value != np.rint(value)).any():
            to = np.where(random.random(value.shape) < 0.5, -np.inf, np.inf).astype(value.dtype)
            value = np.asarray(np.nextafter(value, to), value.dtype)
        moved[name] = value
    return moved


if __name__ == "__main__":
    _openvino(sys.stdin.buffer, sys.stdout.buffer)
