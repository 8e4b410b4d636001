"""A builder's configuration from the settings, and why a build failed."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from narrowdown.engines.backends.base import EngineFault
from narrowdown.engines.backends.tensorrt import cuda
from narrowdown.engines.backends.tensorrt.library import Library
from narrowdown.engines.backends.tensorrt.network import strip_source_places
from narrowdown.engines.backends.tensorrt.settings import Settings

_NO_MEMORY = re.compile(
    r"out ?of ?memory|insufficient memory|cannot allocate|failed to allocate|bad_alloc",
    re.IGNORECASE,
)
_NOTHING_SAID = re.compile(r"no further information|it gave no reason", re.IGNORECASE)
_CRAMPED = (
    2 << 30
)  # bytes free on the GPU, below which a failure without a reason is laid to memory
# 10.15 and 11.2 where libnvinfer_builder_resource for the GPU at hand is not the one that they came
# with.
_NO_KERNELS = re.compile(r"validateCaskKLib|Klib \d+ failed", re.IGNORECASE)
_NO_TACTIC = re.compile(r"could not find any implementation for node (.*?)(?:\.|$)", re.IGNORECASE)


class Sizes(NamedTuple):
    """Shapes of the inputs as they will be fed, the largest; the smallest, of those that will be
    fed in several sizes."""

    largest: Mapping[str, tuple[int, ...]] = {}
    least: Mapping[str, tuple[int, ...]] = {}


def configure_build(
    found: Library,
    builder: Any,
    network: Any,
    settings: Settings,
    flags: Sequence[str],
    sizes: Sizes,
) -> Any:
    """Precision flags, memory, level, profiles. Raises ``EngineFault``."""
    trt = found.trt
    config = builder.create_builder_config()
    if (settings.precision == "fp32" or not settings.tf32) and found.has_flag("TF32"):
        config.clear_flag(trt.BuilderFlag.TF32)
    for flag in flags:
        config.set_flag(getattr(trt.BuilderFlag, flag))
    if settings.workspace:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, settings.workspace)
    if settings.level >= 0:
        config.builder_optimization_level = settings.level
    if settings.tactic_sources is not None:
        chosen = sum(1 << int(getattr(trt.TacticSource, name)) for name in settings.tactic_sources)
        config.set_tactic_sources(chosen)
    if settings.capability != "current":
        config.num_compute_capabilities = 1
        config.set_compute_capability(
            getattr(trt.ComputeCapability, settings.capability.upper()), 0
        )
    # What the inspector says of a layer, its nodes and its kernel, it says only of engines that
    # were built to say it.
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    profile = _make_profile(builder, network, settings, sizes)
    if profile is not None and config.add_optimization_profile(profile) < 0:
        raise EngineFault(
            "refused", f"{found.title} refuses the shapes: {' '.join(found.log.errors()[-1:])}."
        )
    return config


def constrain_precisions(found: Library, config: Any, how: str) -> None:
    """Obey or prefer the precisions that layers ask for. Raises ``EngineFault`` where this version
    cannot."""
    if not found.constraints:
        raise EngineFault("unsupported", found.lacks("layer precisions; use typing=strong"))
    flags = found.trt.BuilderFlag
    if how != "none":
        config.set_flag(
            flags.OBEY_PRECISION_CONSTRAINTS
            if how in ("obey", "always")
            else flags.PREFER_PRECISION_CONSTRAINTS
        )


class Phase(NamedTuple):
    """One that a build is in: its name, its steps, and how many of them are done."""

    name: str
    steps: int
    done: int = 0


# Steps of a phase from which it tells how far a build is. The outer phases have a handful of steps,
# of which one takes nearly all of the time ("Computing profile costs, 1 of 5"); "Timing graph
# nodes" has one for each layer, and is 99 % of a build (campaigns/logs/fresh-builds.jsonl); those inside
# of it start anew for each layer.
COUNTED = 10


def describe_phases(phases: Mapping[str, Phase], at: str) -> str:
    """How far a build is that has just done a step of the phase ``at``: by the outermost phase with
    many steps, as ``Timing graph nodes, 30 of 48``; else by that one. ``phases``: outermost
    first."""
    told = next((p for p in phases.values() if p.steps >= COUNTED), phases[at])
    return f"{told.name}, {told.done} of {told.steps}"


def watch_build(found: Library, config: Any, say: Callable[[str], None]) -> Any:
    """Report the phases of a build through ``say``; the monitor, which must live as long as the
    build."""
    if not found.monitor:
        return None

    base = found.trt.IProgressMonitor

    class Monitor(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            base.__init__(self)
            self.open: dict[str, Phase] = {}

        def phase_start(self, phase: str, _parent: str | None, steps: int) -> None:
            self.open[phase] = Phase(phase, steps)

        def step_complete(self, phase: str, step: int) -> bool:
            if begun := self.open.get(phase):
                self.open[phase] = begun._replace(done=step + 1)
                if begun.steps:
                    say(f"building: {describe_phases(self.open, phase)}")
            return True

        def phase_finish(self, phase: str) -> None:
            self.open.pop(phase, None)

    monitor = Monitor()
    config.progress_monitor = monitor
    return monitor


def make_fault(found: Library, hint: str = "") -> EngineFault:
    """Why the last build gave nothing, from the log. ``hint``: a sentence for a failure that is not
    for want of memory."""
    errors = found.log.errors()
    said = next(
        (e for e in errors if _NO_TACTIC.search(e)), errors[0] if errors else "it gave no reason"
    )
    text = _strip_source_place(said)
    if _NO_KERNELS.search(said):
        return EngineFault(
            "build-failed",
            f"{found.title} has no kernels for this GPU: its library libnvinfer_builder_resource is missing here, or another "
            f"version's. Install {found.title} again, whole ({text}).",
        )
    # That memory is short is often said in a warning, and the error says nothing. Beside another
    # reason such a warning only means that some kernels were not tried.
    lines = (*errors, *found.log.warnings()) if _NOTHING_SAID.search(said) else errors
    short = next((e for e in lines if _NO_MEMORY.search(e)), "")
    if short and not _NO_TACTIC.search(said):
        return EngineFault(
            "out-of-memory",
            f"{found.title} ran out of memory while it built: {_strip_source_place(short)}.",
        )
    if (
        _NOTHING_SAID.search(said)
        and (room := cuda.memory_room()) is not None
        and room[0] < _CRAMPED
    ):
        return EngineFault(
            "out-of-memory",
            f"{found.title} could not build the engine and gives no reason ({text}); the GPU has only {room[0] >> 20:,} MiB of "
            f"{room[1] >> 20:,} MiB free, so most likely that was too little.",
        )
    return EngineFault("build-failed", f"{found.title} could not build the engine: {text}.{hint}")


def _strip_source_place(line: str) -> str:
    """An error line without the place in NVIDIA's source that wrote it."""
    text = re.sub(
        r"^\s*(?:IBuilder::\w+: )?(?:\d+: )?Error Code \d+: ", "", strip_source_places(line)
    ).strip(" .")
    # What it is wrapped in; its last bracket may have gone with the place.
    inner = re.sub(r"^(?:[A-Z]\w*(?: \w+)* Error )?\(", "", text)
    if inner != text and inner.count(")") > inner.count("("):
        inner = inner.removesuffix(")")
    return inner.strip(" .")[:300]


def _make_profile(builder: Any, network: Any, settings: Settings, sizes: Sizes) -> Any:
    """One optimization profile: shapes that were given for an input, else those it will be fed
    with; None where no input is open. Raises ``EngineFault``."""
    profile = builder.create_optimization_profile()
    dynamic = False
    for i in range(network.num_inputs):
        tensor = network.get_input(i)
        fed = tuple(sizes.largest.get(tensor.name, tensor.shape))
        if tensor.is_shape_tensor:
            dynamic = True
            count = fed[0] if fed else 1
            profile.set_shape_input(tensor.name, [0] * count, [1] * count, [_LARGEST] * count)
        elif any(d < 0 for d in tensor.shape):
            dynamic = True
            low = settings.smallest.get(tensor.name, tuple(sizes.least.get(tensor.name, fed)))
            sizes_of = zip(fed, tensor.shape, strict=False)
            wide = tuple(d * settings.times if declared < 0 else d for d, declared in sizes_of)
            usual = settings.usual.get(tensor.name, wide)
            high = settings.largest.get(tensor.name, wide)
            if not len(low) == len(usual) == len(high) == len(tensor.shape):
                raise EngineFault(
                    "refused",
                    f"The input '{tensor.name}' has {len(tensor.shape)} dimensions; the shapes given for it have others.",
                )
            outside = [
                d for d, (a, f, b) in enumerate(zip(low, fed, high, strict=True)) if not a <= f <= b
            ]
            if outside:
                raise EngineFault(
                    "refused",
                    f"The input '{tensor.name}' is fed with {fed}, outside of its profile from {low} to {high}; widen "
                    "min_shapes and max_shapes.",
                )
            try:
                profile.set_shape(tensor.name, low, usual, high)
            except (RuntimeError, ValueError) as error:
                raise EngineFault(
                    "refused", f"The shapes of input '{tensor.name}' do not fit: {error}."
                ) from error
    return profile if dynamic else None


_LARGEST = 1 << 16  # of a value that decides a shape, where nothing is known of it
