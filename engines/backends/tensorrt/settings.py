"""An engine's options as TensorRT understands them, and whether the installed version can follow
them."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from narrowdown.engines.backends.base import Capability
from narrowdown.engines.backends.tensorrt.cuda import Device
from narrowdown.engines.backends.tensorrt.library import Library

# What an engine computes in, and what its inner float tensors are, by the option ``precision``.
COMPUTED = {
    "model": "fp32", "fp32": "fp32", "tf32": "tf32", "fp16": "fp16", "bf16": "bf16", "int8": "int8", "fp8": "fp8",
}  # fmt: skip
STORED = {
    "model": "float32", "fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "float32",
    "fp8": "float32",
}  # fmt: skip
# Builder flags of a weakly typed build; what is not quantized stays in FP32 under INT8 and FP8.
FLAGS: Mapping[str, tuple[str, ...]] = {
    "model": (), "fp32": (), "tf32": (), "fp16": ("FP16",), "bf16": ("BF16",), "int8": ("INT8",), "fp8": ("FP8",),
}  # fmt: skip
_DIMS = re.compile(r"^[0-9]+(x[0-9]+)*$")

Shapes = dict[str, tuple[int, ...]]


class Settings(msgspec.Struct, frozen=True):
    """``workspace`` in bytes, 0: all of the GPU's memory. ``level``: builder optimization level,
    -1: the version's own. ``capability``: ``current`` or ``sm89``: what the engine is built for.
    ``tf32``: whether FP32 layers may use it; precision ``tf32`` without it is ``fp32``. Shapes are
    by input name."""

    precision: str = "tf32"
    typing: str = "auto"
    constraints: str = "obey"
    capability: str = "current"
    tf32: bool = True
    workspace: int = 0
    level: int = -1
    timing_cache: bool = True
    plugins: tuple[str, ...] = ()
    tactic_sources: tuple[str, ...] | None = None
    observe: str = "outputs"
    tactics: str = "auto"
    calibration: str = ""
    timings: str = ""
    off: tuple[str, ...] = ()  # switches of the compiler
    times: int = 1  # usual and largest shapes are so many times what is fed
    smallest: Shapes = {}
    usual: Shapes = {}
    largest: Shapes = {}

    @staticmethod
    def of(name: str, chosen: Mapping[str, Any], found: Library, gpu: Device | None) -> "Settings":
        """Settings of an engine's option values. Raises ``ValueError`` with a sentence for a shape
        that is none."""
        capability = chosen.get("compute_capability", "current")
        if found.rtx and capability == "current" and gpu is None:
            capability = "sm89"  # an engine must be built for something; Ada is the middle of what RTX supports
        sources = chosen.get("tactic_sources")
        precision, tf32 = chosen["precision"], chosen.get("tf32", "on") == "on"
        return Settings(
            precision="fp32" if precision == "tf32" and not tf32 else precision,
            typing=chosen.get("typing", "strong"),
            constraints=chosen.get("constraints", "obey"),
            capability=capability,
            tf32=tf32,
            workspace=int(chosen["workspace"]) << 20,
            level=-1 if chosen["optimization_level"] is None else int(chosen["optimization_level"]),
            timing_cache=chosen["timing_cache"] == "shared",
            plugins=tuple(chosen["plugins"]),
            tactic_sources=tuple(sources) if sources else None,
            observe=chosen["observe"],
            tactics=chosen.get("tactics", "auto"),
            calibration=chosen.get("calibration", ""),
            timings=chosen.get("timings", ""),
            off=tuple(chosen["disabled_optimizers"]),
            times=2 if chosen["profile"] == "twice" else 1,
            smallest=_parse_shapes(name, "min_shapes", chosen["min_shapes"]),
            usual=_parse_shapes(name, "opt_shapes", chosen["opt_shapes"]),
            largest=_parse_shapes(name, "max_shapes", chosen["max_shapes"]),
        )


def strongly_typed(settings: Settings, found: Library) -> bool:
    """Whether the network is strongly typed. Raises ``ValueError`` with a sentence where the
    installed version cannot do what is asked."""
    precision, typing = settings.precision, settings.typing
    _refuse_unknown(settings, found)
    if typing == "strong" and not found.strong:
        raise ValueError(
            f"{found.lacks('strongly typed networks')} Use typing=weak, or TensorRT 9 or newer."
        )
    if typing == "weak" and not found.weak:
        raise ValueError(
            f"{found.lacks('weakly typed networks')} Its engines compute in the types that the model has: use typing=strong, "
            "and precision=fp16 or bf16 to have the model converted."
        )
    if precision == "model" and typing != "weak" and found.strong:
        return True
    strong = typing == "strong" or not found.weak
    if strong and precision in ("int8", "fp8"):
        raise ValueError(
            f"In a strongly typed network {precision} comes from the model's Q/DQ nodes, not from a flag: use precision=model."
        )
    if not strong and (missing := [f for f in FLAGS[precision] if not found.has_flag(f)]):
        raise ValueError(
            f"{found.lacks(f'builder flag {missing[0]}')} Use typing=strong, or another precision."
        )
    return strong


def _refuse_unknown(settings: Settings, found: Library) -> None:
    for name in settings.tactic_sources or ():
        if not hasattr(found.trt.TacticSource, name):
            known = ", ".join(sorted(m for m in dir(found.trt.TacticSource) if m.isupper()))
            raise ValueError(f"{found.lacks(f'tactic source {name!r}')} It has {known}.")
    able = {
        "debug": found.debug_tensors, "unfused": found.unfused_tensors, "cache": found.editable,
        "selector": Capability(found.selector, found.lacks("algorithm selector; use tactics=cache")),
    }  # fmt: skip
    for wanted in (settings.observe, settings.tactics):
        if wanted in able and not able[wanted].present:
            raise ValueError(able[wanted].reason)
    if settings.timings and not settings.timing_cache:
        raise ValueError(
            "With timing_cache=off no build reads a timing cache; leave out timings= or timing_cache=off."
        )
    if settings.calibration and settings.precision != "int8":
        raise ValueError(
            f"A calibration cache is for precision=int8, not for {settings.precision}."
        )


def _parse_shapes(engine: str, key: str, given: tuple[str, ...]) -> Shapes:
    """``("x:1x3x8x8",)`` as shapes by name; a scalar is ``x:``."""
    shapes: Shapes = {}
    for text in given:
        name, colon, dims = text.rpartition(":")
        if not colon or not name or (dims and not _DIMS.match(dims)):
            raise ValueError(
                f"{engine}: {key}={text} is not NAME:DIMxDIM, such as input:1x3x224x224."
            )
        shapes[name] = tuple(int(d) for d in dims.split("x")) if dims else ()
    return shapes
