"""Whether TensorRT or TensorRT-RTX can be had here, and what it can do."""

from typing import Any

from engines import installed, options
from engines.backends import machine
from engines.backends.base import Capability, EngineInfo, EngineMissing
from engines.backends.tensorrt import BY_NAME, cuda, kept_timings, library
from engines.backends.tensorrt.engine import Engine
from engines.backends.tensorrt.settings import COMPUTED, STORED, Settings, strongly_typed
from engines.spec import EngineSpec

_INSTALL = "NVIDIA's driver and a GPU are needed"


def make(spec: EngineSpec) -> Engine:
    """The engine of a spec. Raises ``EngineMissing`` where the library or the GPU that it needs is not here, ``ValueError``
    for a wrong spec or for an option that the installed version lacks, with the reason."""
    chosen = options.values(spec)
    gpu, why_no_gpu = cuda.device()
    if gpu is None and spec.name == "tensorrt":
        # TensorRT ends the whole process where its builder finds no GPU, so it is not even asked.
        raise EngineMissing(
            f"TensorRT is installed, but finds no GPU here ({why_no_gpu}). {_INSTALL}: its engines are built on the GPU. With "
            "neither, tensorrt_rtx builds, which shows what is refused."
        )
    try:
        found = library.load(spec.name)
    except (ImportError, OSError) as error:
        install = installed.command(BY_NAME[spec.name].install)
        said = " ".join(str(error).split()).rstrip(".")
        raise EngineMissing(
            f"{spec.name} is installed but does not load here: {said}. Its libraries are a package of their own, or lie where "
            f"the loader does not look (LD_LIBRARY_PATH); install it again: {install}."
        ) from error
    settings = Settings.of(spec.name, chosen, found, gpu)
    strong = strongly_typed(settings, found)
    runnable = _runs(spec.name, gpu, why_no_gpu, settings)
    low = settings.precision in ("fp16", "bf16", "int8", "fp8")
    device = (
        f"{gpu.name} (compute capability {gpu.capability})" if gpu else f"no GPU, building for {settings.capability}"
    )
    facts: dict[str, Any] = {**chosen, "capability": settings.capability}
    info = EngineInfo(
        name=spec.name,
        spec=str(spec),
        version=found.version,
        device=device,
        precision=COMPUTED[settings.precision],
        storage=STORED[settings.precision] if strong or settings.precision in ("fp16", "bf16") else "float32",
        fingerprint=machine.fingerprint(
            spec.name, found.version, facts, device, driver=gpu.driver if gpu else "", strong=str(strong)
        ),
        capabilities={
            "build": Capability(True),
            "run": runnable,
            "mark": runnable if not runnable.present else Capability(True),
            "keep": Capability(low, "" if low else _nothing_to_keep(settings)),
            "optimizers": Capability(False, "TensorRT has no switches for its single fusions."),
            "tactics": found.tactics,
            "rebuild": Capability(True),
            "threads": Capability(False, "TensorRT computes on the GPU."),
            "strongly-typed": Capability(found.strong, "" if found.strong else found.lacks("strongly typed networks")),
            "weakly-typed": Capability(found.weak, "" if found.weak else found.lacks("weakly typed precision flags")),
            "layers": runnable,
            "debug-tensors": found.debug_tensors if runnable.present else runnable,
            "unfused-debug-tensors": found.unfused_tensors if runnable.present else runnable,
            "editable-timing-cache": found.editable,
        },
        options=BY_NAME[spec.name].options,
        slots=1,
        gpus=int(runnable.present),
        spans=True,
    )  # fmt: skip
    timings = None if gpu is None or found.rtx else kept_timings.cache_file(spec.name, found.version, gpu)
    return Engine(info, found, settings, strong, runnable, timings)


def _nothing_to_keep(settings: Settings) -> str:
    return (
        f"with precision={settings.precision} no layer computes below the model's own types; with precision=fp16 there is "
        "something to keep."
    )


def _runs(name: str, gpu: "cuda.Device | None", why: str, settings: Settings) -> Capability:
    if gpu is None:
        return Capability(
            False, f"there is no GPU here ({why}); engines can be built here, neither run nor looked into."
        )
    if name == "tensorrt_rtx" and not cuda.is_rtx(gpu):
        return Capability(False, f"TensorRT-RTX runs on RTX GPUs only, and this is {gpu.name}; use --engine tensorrt.")
    if settings.capability not in ("current", f"sm{gpu.capability.replace('.', '')}"):
        return Capability(False, f"the engine is built for {settings.capability}, and this GPU is {gpu.capability}.")
    return Capability(True)
