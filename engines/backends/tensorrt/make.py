"""Whether TensorRT or TensorRT-RTX can be had here, and what it can do."""

import os
from collections.abc import Collection
from typing import Any

import msgspec

from narrowdown.engines import installed, options
from narrowdown.engines.backends import machine
from narrowdown.engines.backends.base import Capability, EngineInfo, EngineMissing
from narrowdown.engines.backends.tensorrt import BY_NAME, cuda, kept_timings, library, switches
from narrowdown.engines.backends.tensorrt.built_file import (
    BuiltFile,
    FileEngine,
    read_file,
    say_rebuilt,
)
from narrowdown.engines.backends.tensorrt.engine import Engine
from narrowdown.engines.backends.tensorrt.outside import SWITCHES
from narrowdown.engines.backends.tensorrt.settings import COMPUTED, STORED, Settings, strongly_typed
from narrowdown.engines.nearest import suggestion
from narrowdown.engines.spec import EngineSpec

_INSTALL = "NVIDIA's driver and a GPU are needed"
# Changes when what is built for nodes kept in FP32 does, in weakly typed networks: 2 keeps the
# constants that they read, too, and builds everything kept without the flag.
_KEPT = "2"


def make(spec: EngineSpec) -> Engine | FileEngine:
    """The engine of a spec. Raises ``EngineMissing`` where the library or the GPU that it needs is
    not here or a built engine is another version's or GPU's, ``ValueError`` for a wrong spec, a
    damaged engine or an option that the installed version lacks, with the reason."""
    chosen = options.values(spec)
    gpu, why_no_gpu = cuda.device()
    if gpu is None and spec.name == "tensorrt":
        # TensorRT ends the whole process where its builder finds no GPU, so it is not even asked.
        raise EngineMissing(
            f"TensorRT is installed, but finds no GPU here ({why_no_gpu}). {_INSTALL}: its engines are built on the GPU. With "
            "neither, tensorrt_rtx builds, which shows what is refused."
        )
    found = _load_library(spec.name)
    settings = Settings.of(spec.name, chosen, found, gpu)
    plan = chosen["plan"]
    if plan and (
        more := [key for key, _ in spec.options if key not in ("plan", "precision", "plugins")]
    ):
        raise ValueError(
            f"{spec.name}: {more[0]}= says how to build, and plan= is built already; leave out one of them."
        )
    strong = not plan and strongly_typed(settings, found)
    runnable = _runs(spec.name, gpu, why_no_gpu, settings)
    low = settings.precision in ("fp16", "bf16", "int8", "fp8")
    device = (
        f"{gpu.name} (compute capability {gpu.capability})"
        if gpu
        else f"no GPU, building for {settings.capability}"
    )
    facts: dict[str, Any] = {**chosen, "capability": settings.capability}
    for later in ("plan", "disabled_optimizers"):  # older sessions keep their fingerprints
        if not facts[later]:
            del facts[later]
    kept = {} if strong or not low else {"kept": _KEPT}
    names = () if plan else switches.list_switches(found)
    _refuse_unknown_switches(found, settings.off, names)
    if not found.routes and (own := os.environ.get(SWITCHES)):
        kept["variable"] = own
    info = EngineInfo(
        name=spec.name,
        spec=str(spec),
        version=found.version,
        device=device,
        precision=COMPUTED[settings.precision],
        storage=STORED[settings.precision] if strong or settings.precision in ("fp16", "bf16") else "float32",
        fingerprint=machine.fingerprint(
            spec.name, found.version, facts, device, driver=gpu.driver if gpu else "", strong=str(strong), **kept
        ),
        capabilities=_list_capabilities(found, settings, runnable, low, switchable=bool(names)),
        options=BY_NAME[spec.name].options,
        optimizers=names,
        experimental="" if found.routes or not names else _say_experimental(found),
        apart=True,
        slots=1 if runnable.present else machine.count_slots(1),
        gpus=int(runnable.present),
        spans=True,
        typed=_typed(spec, settings) if strong else "",
    )  # fmt: skip
    if plan:
        return _take_built(spec, info, found, read_file(found, plan, runnable), runnable)
    timings = (
        None if gpu is None or found.rtx else kept_timings.cache_file(spec.name, found.version, gpu)
    )
    return Engine(info, found, settings, strong, runnable, timings)


def _load_library(name: str) -> library.Library:
    try:
        return library.load(name)
    except (ImportError, OSError) as error:
        install = installed.command(BY_NAME[name].install)
        said = " ".join(str(error).split()).rstrip(".")
        raise EngineMissing(
            f"{name} is installed but does not load here: {said}. Its libraries are a package of their own, or lie where "
            f"the loader does not look (LD_LIBRARY_PATH); install it again: {install}."
        ) from error


def _refuse_unknown_switches(
    found: library.Library, off: Collection[str], names: Collection[str]
) -> None:
    """Raises ``ValueError`` for a name that the library would ignore with a word in its log."""
    for name in off:
        if name not in names:
            raise ValueError(f"{found.lacks(f'switch {name!r}')}{suggestion(name, names, ' ')}")


def _say_experimental(found: library.Library) -> str:
    return (
        f"The switches of {found.title} {found.version} are not documented: names and effects may change with any release. "
        "Never ship one without a check."
    )


def _list_capabilities(
    found: library.Library,
    settings: Settings,
    runnable: Capability,
    low: bool,
    *,
    switchable: bool,
) -> dict[str, Capability]:
    return {
        "build": Capability(True),
        "run": runnable,
        "mark": runnable if not runnable.present else Capability(True),
        "keep": Capability(low, "" if low else _nothing_to_keep(settings)),
        "optimizers": Capability(
            switchable, "" if switchable else found.lacks("list of its compiler's switches (11.1 brought it)"),
        ),
        "tactics": found.tactics,
        "rebuild": Capability(True),
        "threads": Capability(False, "TensorRT computes on the GPU."),
        "strongly-typed": Capability(found.strong, "" if found.strong else found.lacks("strongly typed networks")),
        "weakly-typed": Capability(found.weak, "" if found.weak else found.lacks("weakly typed precision flags")),
        "layers": runnable,
        "debug-tensors": found.debug_tensors if runnable.present else runnable,
        "unfused-debug-tensors": found.unfused_tensors if runnable.present else runnable,
        "editable-timing-cache": found.editable,
    }  # fmt: skip


def _take_built(
    spec: EngineSpec, info: EngineInfo, found: library.Library, read: BuiltFile, runs: Capability
) -> FileEngine:
    """The engine of a file. What it computes in is what its layers say; where they say nothing,
    what the spec does."""
    asked = read.precision or spec.get("precision") or "tf32"
    notes = []
    if not read.precision:
        notes.append(
            f"The engine in '{read.path}' does not say what its layers compute in: it was built without detailed profiling "
            f"verbosity. It is held to the tolerance of {COMPUTED[asked].upper()}; precision= says otherwise."
        )
    as_it_is = Capability(False, "an engine that was built before runs as it is.")
    able = dict.fromkeys(
        ("mark", "keep", "optimizers", "tactics", "rebuild", "editable-timing-cache"), as_it_is
    )
    able |= dict.fromkeys(("debug-tensors", "unfused-debug-tensors"), as_it_is)
    info = msgspec.structs.replace(
        info,
        precision=COMPUTED[asked],
        storage=STORED[asked],
        capabilities={**info.capabilities, **able},
        options=tuple(o for o in info.options if o.name in ("plan", "precision")),
        spans=False,
        notes=(*info.notes, *notes),
        rebuilt=say_rebuilt(spec, read, weak=found.weak),
    )
    return FileEngine(info, found, read, runs)


def _typed(spec: EngineSpec, settings: Settings) -> str:
    """The spec that computes a file in the types it states, where networks are strongly typed.
    Where they are not, it would be another engine, whose first build costs as much again."""
    if settings.precision not in ("fp16", "bf16"):
        return str(spec)
    return str(spec.with_option("precision", "model").with_option("typing", ""))


def _nothing_to_keep(settings: Settings) -> str:
    return (
        f"with precision={settings.precision} no layer computes below the model's own types; with precision=fp16 there is "
        "something to keep."
    )


def _runs(name: str, gpu: "cuda.Device | None", why: str, settings: Settings) -> Capability:
    if gpu is None:
        return Capability(
            False,
            f"there is no GPU here ({why}); engines can be built here, neither run nor looked into.",
        )
    if name == "tensorrt_rtx" and not cuda.is_rtx(gpu):
        return Capability(
            False,
            f"TensorRT-RTX runs on RTX GPUs only, and this is {gpu.name}; use --engine tensorrt.",
        )
    if settings.capability not in ("current", f"sm{gpu.capability.replace('.', '')}"):
        return Capability(
            False,
            f"the engine is built for {settings.capability}, and this GPU is {gpu.capability}.",
        )
    return Capability(True)
