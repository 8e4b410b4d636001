"""TensorRT with its options: from a build request to an engine."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx

from engines.backends.base import BuildRequest, Built, Capability, EngineFault, EngineInfo
from engines.backends.tensorrt import configure, layers, network
from engines.backends.tensorrt.choices import Chooser
from engines.backends.tensorrt.library import Library
from engines.backends.tensorrt.settings import Settings
from engines.graph.problem import ModelProblem
from engines.graph.typed import to_precision

_CACHE_MOST = 64 << 20  # bytes of a timing cache that is carried from build to build


class Plan:
    """An engine that was built and cannot be run here: it says so when it is asked to. ``size`` in bytes."""

    def __init__(self, model: onnx.ModelProto, facts: Mapping[str, Any], reason: str) -> None:
        self.model, self.facts, self._reason = model, facts, reason

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] = ()) -> dict[str, Any]:  # noqa: ARG002
        """Raises ``EngineFault``."""
        raise EngineFault("refused", f"The engine was built, but {self._reason}")

    def close(self) -> None:
        """Nothing is held."""


class Engine:
    """TensorRT or TensorRT-RTX, here. Builds share a timing cache where the settings say so and the build is no repetition."""

    def __init__(self, info: EngineInfo, found: Library, settings: Settings, strong: bool, runs: Capability) -> None:
        self.info = info
        self._found, self._settings, self._strong, self._runs = found, settings, strong, runs
        self._builder: Any = None
        self._runtime: Any = None
        self._timings = b""

    def build(self, request: BuildRequest) -> Built:
        """Parse, build and load. ``keep``: casts in the model where it is strongly typed, layer precisions elsewhere. A build
        with ``attempt`` shares no timings: it is asked for because it may choose otherwise. Raises ``EngineFault``."""
        found, settings = self._found, self._settings
        found.plug(settings.plugins)
        marked, untyped = network.observable(request.model, request.marks)
        model, positions = network.named(marked)
        kept = {name for name, i in positions.items() if i in request.keep}
        if self._strong and settings.precision in ("fp16", "bf16"):
            try:
                model = to_precision(model, request.weights_dir, settings.precision, request.keep)
            except ModelProblem as error:
                raise EngineFault("unsupported", str(error)) from error
        try:
            return self._built(request, model, kept, untyped)
        except EngineFault as fault:
            fault.model = model
            raise

    def _built(self, request: BuildRequest, model: onnx.ModelProto, kept: set[str], untyped: dict[str, str]) -> Built:
        found, settings, trt = self._found, self._settings, self._found.trt
        self._builder = self._builder or trt.Builder(found.log.logger)
        say: Callable[[str], None] = request.say or (lambda _: None)
        parsed = network.parse(found, self._builder, model, request.weights_dir, request.marks, self._strong)
        config = configure.configure(found, self._builder, parsed.network, settings, self._strong, request.feed_shapes)
        if kept and not self._strong:
            network.keep_higher(found, parsed.network, kept)
            configure.constrain(found, config, settings.constraints)
        chooser = None
        if request.record or request.force or request.forbid:
            chooser = Chooser(found, request.force, request.forbid)
            if chooser.selector is not None:
                config.algorithm_selector = chooser.selector
        cache = self._share(config, fresh=bool(request.attempt or chooser))
        monitor = configure.watch(found, config, say)
        found.log.clear()
        plan = self._builder.build_serialized_network(parsed.network, config)
        del monitor
        if plan is None:
            raise configure.fault(found)
        self._learn(config, cache)
        facts: dict[str, Any] = {"bytes": plan.nbytes, "unobservable": {**untyped, **parsed.skipped}}
        if chooser is not None:
            facts |= {"choices": chooser.choices, "refused": chooser.refused}
        if not self._runs.present:
            return Plan(model, facts, self._runs.reason)
        return self._load(plan, model, parsed, kept, facts, read=request.record or bool(kept))

    def _load(
        self,
        plan: Any,
        model: onnx.ModelProto,
        parsed: network.Parsed,
        kept: set[str],
        facts: dict[str, Any],
        read: bool,
    ) -> Built:
        from engines.backends.tensorrt.execution import Execution

        found = self._found
        self._runtime = self._runtime or found.trt.Runtime(found.log.logger)
        engine = self._runtime.deserialize_cuda_engine(plan)
        if engine is None:
            raise configure.fault(found)
        if read:
            built = layers.read(found, engine)
            facts["layers"] = len(built)
            if kept:
                facts["kept"] = layers.precision_of(kept, built)
        names = {o.name: o.name for o in model.graph.output if o.name not in parsed.skipped}
        return Execution(found, engine, model, names, facts)

    def _share(self, config: Any, fresh: bool) -> Any:
        """Give the build what earlier ones timed. A cache that is read or written would hide what a repetition looks for."""
        if self._found.rtx:
            return None  # it times nothing while it builds
        if fresh or not self._settings.timing_cache:
            config.set_flag(self._found.trt.BuilderFlag.DISABLE_TIMING_CACHE)
            return None
        cache = config.create_timing_cache(self._timings)
        if cache is None or not config.set_timing_cache(cache, False):
            return None
        return cache

    def _learn(self, config: Any, cache: Any) -> None:
        if cache is not None:
            timings = config.get_timing_cache().serialize()
            if timings is not None and timings.nbytes <= _CACHE_MOST:
                self._timings = bytes(timings)
