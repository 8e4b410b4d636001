"""TensorRT with its options: from a build request to an engine."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from narrowdown.engines.backends.base import (
    BuildRequest,
    Built,
    Capability,
    EngineFault,
    EngineInfo,
)
from narrowdown.engines.backends.builds import write_weights
from narrowdown.engines.backends.tensorrt import (
    configure,
    kept_timings,
    layers,
    network,
    quantization,
    switches,
)
from narrowdown.engines.backends.tensorrt.choices import Chooser
from narrowdown.engines.backends.tensorrt.library import Library
from narrowdown.engines.backends.tensorrt.network import Watched
from narrowdown.engines.backends.tensorrt.settings import Settings
from narrowdown.engines.backends.tensorrt.timings import Entries
from narrowdown.engines.data import held
from narrowdown.engines.graph import ModelProblem
from narrowdown.engines.graph.typed import to_precision


class Plan:
    """An engine that was built and cannot be run here: it says so when it is asked to. ``size`` in
    bytes."""

    def __init__(self, model: onnx.ModelProto, facts: Mapping[str, Any], reason: str) -> None:
        self.model, self.facts, self._reason = model, facts, reason

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] = ()) -> dict[str, Any]:  # noqa: ARG002
        """Raises ``EngineFault``."""
        raise EngineFault("refused", f"The engine was built, but {self._reason}")

    def close(self) -> None:
        """Nothing is held."""


class Engine:
    """TensorRT or TensorRT-RTX, here. Builds share a timing cache where the settings say so and the
    build is no repetition; it begins with what earlier sessions left in the file ``timings``, and
    builds of whole models leave there what they learnt."""

    converts = True

    def __init__(
        self,
        info: EngineInfo,
        found: Library,
        settings: Settings,
        strong: bool,
        runs: Capability,
        timings: Path | None = None,
    ) -> None:
        self.info = info
        self._found, self._settings, self._strong, self._runs = found, settings, strong, runs
        self._builder: Any = None
        self._runtime: Any = None
        self._file = timings
        self._timings = b""

    def build(self, request: BuildRequest) -> Built:
        """Parse, build and load. ``keep``: casts in the model where it is strongly typed, layer
        precisions elsewhere. A build with ``attempt`` shares no timings: it is asked for because it
        may choose otherwise. Raises ``EngineFault``."""
        found, settings = self._found, self._settings
        found.plug(settings.plugins)
        marked, untyped = network.expose_marks(request.model, request.marks)
        model, positions = network.name_nodes(marked)
        kept = {name for name, i in positions.items() if i in request.keep}
        if self._strong and settings.precision in ("fp16", "bf16"):
            try:
                model = to_precision(model, settings.precision, request.keep)
            except ModelProblem as error:
                raise EngineFault("unsupported", str(error)) from error
        write_weights(model, request.weights_dir)
        try:
            return self._built(request, model, kept, untyped)
        except EngineFault as fault:
            if fault.status in ("unsupported", "invalid-model", "build-failed", "error"):
                told = quantization.say_untaken(model, unsigned=found.rtx)
                fault = EngineFault(fault.status, f"{fault}{told}")
            fault.model = model
            raise fault from None

    def _built(
        self, request: BuildRequest, model: onnx.ModelProto, kept: set[str], untyped: dict[str, str]
    ) -> Built:
        found, settings, trt = self._found, self._settings, self._found.trt
        flags = quantization.builder_flags(model, settings, self._strong, request.part)
        # Asked for layer by layer it may not be built at all (basic_pitch, 10.6); it is the same
        # engine without the flag.
        narrow = not self._strong and settings.precision in ("fp16", "bf16")
        if everything := narrow and 0 < len(kept) == len(model.graph.node):
            flags = ()
        self._builder = self._builder or trt.Builder(found.log.logger)
        say: Callable[[str], None] = request.say or (lambda _: None)
        parsed = network.parse_network(
            found,
            self._builder,
            model,
            request.weights_dir,
            self._strong,
            Watched(request.marks, settings.observe),
        )
        config = configure.configure_build(
            found,
            self._builder,
            parsed.network,
            settings,
            flags,
            configure.Sizes(request.feed_shapes, request.least_shapes),
        )
        if (kept or settings.constraints == "always") and not self._strong and not everything:
            network.keep_higher(found, parsed.network, kept)
            configure.constrain_precisions(found, config, settings.constraints)
        calibrator = quantization.make_calibrator(found, config, settings, self._strong)
        chooser = self._chooser(request)
        if isinstance(chooser, Chooser):
            config.algorithm_selector = chooser.selector
        editing = isinstance(chooser, Entries)
        # A repetition shares no timings, nor does a build whose kernels are chosen for it.
        fresh = bool(request.attempt or request.force or request.forbid)
        cache = None if editing else self._share(config, fresh)
        monitor = configure.watch_build(found, config, say)
        found.log.clear()

        def build() -> Any:
            return self._builder.build_serialized_network(parsed.network, config)

        with switches.switched_off(found, config, settings.off):
            plan = chooser.build(config, build) if isinstance(chooser, Entries) else build()
        del monitor, calibrator
        if plan is None:
            raise configure.make_fault(
                found, quantization.hint_at_types(model, settings, self._strong)
            )
        whole = not request.part or bool(request.keep)
        self._learn(config, cache, whole=whole and not settings.off)
        facts: dict[str, Any] = {
            "bytes": plan.nbytes,
            "unobservable": {**untyped, **parsed.skipped},
        }
        if request.record or not self._runs.present:
            # Where kernels are not timed, other bytes are another engine: all that can be said of
            # a switch where nothing can run.
            facts["digest"] = switches.digest_plan(plan)
        if chooser is not None:
            facts |= {"choices": chooser.choices, "refused": chooser.refused}
        if not self._runs.present:
            return Plan(model, facts, self._runs.reason)
        return self._load(plan, model, parsed, facts, read=not (request.part or kept))

    def _chooser(self, request: BuildRequest) -> Chooser | Entries | None:
        """How this version records and forces its choices; None where nobody asks, or where it
        cannot."""
        if not (request.record or request.force or request.forbid):
            return None
        by_cache = self._settings.tactics == "cache" or not self._found.selector
        if by_cache and not self._found.editable.present:
            return None
        return (Entries if by_cache else Chooser)(self._found, request.force, request.forbid)

    def _load(
        self,
        plan: Any,
        model: onnx.ModelProto,
        parsed: network.Parsed,
        facts: dict[str, Any],
        read: bool,
    ) -> Built:
        from narrowdown.engines.backends.tensorrt.execution import Execution

        found = self._found
        self._runtime = self._runtime or found.trt.Runtime(found.log.logger)
        engine = self._runtime.deserialize_cuda_engine(plan)
        if engine is None:
            raise configure.make_fault(found)
        if read:
            facts["layers"] = layers.list_layers(layers.read_layers(found, engine))
        unseen = {*parsed.skipped, *(mark for marks in parsed.heard.values() for mark in marks)}
        names = {o.name: o.name for o in model.graph.output if o.name not in unseen}
        return Execution(found, engine, model, names, facts, parsed.heard)

    def _share(self, config: Any, fresh: bool) -> Any:
        """Give the build what earlier ones timed. A cache that is read or written would hide what a
        repetition looks for."""
        if self._found.rtx:
            return None  # it times nothing while it builds
        if fresh or not self._settings.timing_cache:
            config.set_flag(self._found.trt.BuilderFlag.DISABLE_TIMING_CACHE)
            return None
        if not self._timings:
            self._timings = self._begin()
        # What this version cannot read is none of its own: it begins with nothing then.
        for timings in dict.fromkeys((self._timings, b"")):
            cache = config.create_timing_cache(timings)
            if cache is not None and config.set_timing_cache(cache, False):
                return cache
            if self._settings.timings:
                raise EngineFault(
                    "refused",
                    f"{self._found.title} {self._found.version} does not take the timing cache '{self._settings.timings}' on "
                    "this GPU: it is another version's or another GPU's. Leave out timings=.",
                )
        return None

    def _begin(self) -> bytes:
        """The timings that the first build begins with. Raises ``EngineFault``."""
        if not self._settings.timings:
            return kept_timings.read_timings(self._file) if self._file is not None else b""
        try:
            return held.content(self._settings.timings)
        except OSError as error:
            why = error.strerror or error
            raise EngineFault(
                "refused", f"The timing cache '{self._settings.timings}' cannot be read: {why}."
            ) from error

    def _learn(self, config: Any, cache: Any, *, whole: bool) -> None:
        if cache is None:
            return
        timings = config.get_timing_cache().serialize()
        if timings is None or timings.nbytes > kept_timings.MOST:
            return
        grown = timings.nbytes > len(self._timings)
        self._timings = bytes(timings)
        if whole and grown and self._file is not None:
            kept_timings.keep_timings(self._file, self._timings)
